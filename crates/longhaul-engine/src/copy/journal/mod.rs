//! What a sink writes down of a copy, so that the same command can go on after any break.
//!
//! The journal stands in the target's directory as `.longhaul-KEY.journal`, under a lock that its
//! copy holds; `docs/design/journal.md` is its format. A record of blocks has a digest of them, and
//! the next attempt reads the blocks again before they count. A record of a file is written after
//! the file was put in place. What the journal does not say costs work, never correctness.
//!
//! What this does not do: decide what to write down (that is the sink), or touch files.

mod file;
mod format;
mod trust;

pub(super) use file::{Journal, OpenError, Setting, boot, remove_temporary};
pub(super) use format::{Claim, CopyTerms, Digest, Extent, FileId, Past, PastFile, Record};
pub(super) use trust::{is_of_user, is_own};
