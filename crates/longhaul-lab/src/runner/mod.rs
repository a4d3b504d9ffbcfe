//! Runs a matrix: complete passes over all cells in random order, one run at a time. Each run has a
//! new path and is stored when it ends.
//!
//! A new path per run costs some tenths of a second and makes runs independent: no cached TCP
//! metrics, no leftover server or child, no emulator memory touched by another tool. A tool that
//! fails, hangs or delivers wrong bytes gives a run with that outcome, and the matrix continues.
//! Each path is measured before its first run. A run over a path that violates its conditions is
//! repeated at most twice.

mod beside;
mod compare;
mod disk;
mod ends;
mod estimate;
mod event;
mod far;
mod listing;
mod load;
mod matrix;
mod order;
mod path;
mod process;
mod ready;
mod run;
mod script;
mod strays;
mod tally;
mod tools;
mod work;

pub use estimate::Cost;
pub use event::{MatrixEvent, MatrixProgress};
pub use far::check_far_room;
pub use matrix::{Ended, Matrix, Setup};
pub use order::{Cell, cells};
pub use ready::has_listener;
pub use script::run_script;
pub use tools::{changed_tool, detect, digest, find_tools};
