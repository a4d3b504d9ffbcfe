//! Determines from the steps of a diagnosis which resource limits a copy, which would limit it
//! next, and what to do about it.
//!
//! This module is pure: [`judge`] takes a [`Diagnosis`](crate::result::Diagnosis) with filled steps
//! and returns it with its limits, so a recorded diagnosis can be judged again. A copy consists of
//! three parts: reading, the path, writing. A step measures each part separately ([`disks`],
//! [`path`]). The slowest part is the limit, and the evidence of its step names the resource. If
//! the whole copy is much slower than its slowest part, its own report is examined ([`whole`]).
//! `docs/design/diagnosis.md` explains the thresholds and states how often the answer was correct.

mod cause;
mod cures;
mod disks;
mod judge;
mod path;
mod shallow;
mod whole;

pub use judge::goal;
pub use judge::judge;
