//! The journal of a sink, with which the same command resumes after an interruption.
//!
//! The journal stands in the target's directory as `.longhaul-KEY.journal`, under a lock that its
//! copy holds; `docs/design/journal.md` is its format. A record of blocks has a digest of them, and
//! the next attempt reads the blocks again before they count. A record of a file is written after
//! the file was put in place. What the journal does not say costs work, never correctness.
//!
//! The recorder of the sink decides on the records; this module reads and writes the file.

mod file;
mod format;
mod trust;

pub(super) use file::{Journal, OpenError, Setting, boot, remove_temporary};
pub(super) use format::{Claim, CopyTerms, Digest, Extent, FileId, Past, PastFile, Record};
pub(super) use trust::{is_of_user, is_own};
