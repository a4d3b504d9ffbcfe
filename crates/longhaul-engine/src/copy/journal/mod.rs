//! The journal of a sink, with which the same command resumes after an interruption.
//!
//! The journal is the file `.longhaul-KEY.journal` in the target directory. Its copy holds a lock on
//! it. `docs/design/journal.md` defines the format. A record of an extent has its digest, and the
//! next attempt reads the extent again before it counts. A record of a file is written after the
//! file was put in place. A missing record costs time and never causes a wrong file.
//!
//! The recorder of the sink decides on the records; this module reads and writes the file.

mod file;
mod format;
mod lock;

pub(super) use file::{Journal, OpenError, Setting, remove_temporary};
pub(super) use format::{Claim, CopyTerms, Digest, Extent, FileId, Past, PastFile, Record};
pub(super) use lock::{boot, is_of_user, is_own};
