//! What a sink writes down of a copy, so that the same command can go on after any break.
//!
//! The journal stands in the target's directory as `.longhaul-KEY.journal`, under a lock that its
//! copy holds; `docs/design/journal.md` is its format. A record of blocks is written only after
//! the blocks it speaks of were verified and synced, and a record of a file only after the file
//! was put in place: so nothing it says needs to be read again. What it does not say was at worst
//! done in vain.
//!
//! What this does not do: decide what to write down (that is the sink), or touch files.

mod file;
mod format;
mod trust;

pub(super) use file::{Journal, OpenError, remove_temporary};
pub(super) use format::{FileId, Past, PastFile, Record};
pub(super) use trust::is_own;
