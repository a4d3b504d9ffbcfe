//! What a ladder's rungs say together: which part limits a copy, what would limit it next, and what
//! to do about it.
//!
//! Pure: [`judge`] takes a [`Diagnosis`](crate::result::Diagnosis) whose rungs are filled and
//! returns it with its limits, so that a recorded ladder can be judged again. A copy is three parts
//! in a row: reading, the path, writing. Each has the rung that measures it alone ([`disks`],
//! [`path`]); the slowest is the limit, and its rung's evidence names the resource. Where the whole
//! is much slower than its slowest part, the whole's own account is asked ([`whole`]).
//! `docs/design/diagnosis.md` says why the thresholds are where they are, and how often the answer
//! was right.

mod cause;
mod cures;
mod disks;
mod goal;
mod judge;
mod path;
mod whole;

pub use goal::goal;
pub use judge::judge;
