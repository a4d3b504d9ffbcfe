//! Runs a matrix: complete passes over all cells, shuffled within each pass, one run at a time,
//! each over a path of its own, each kept the moment it ends.
//!
//! A fresh path for every run costs some tenths of a second and buys independence: no cached TCP
//! metrics, no server or child left from the run before, no emulator memory that another tool
//! warmed. A tool that fails, hangs or delivers wrong bytes is a run with that outcome, and the
//! rest goes on. Before its first run each path is surveyed, over one of its own. A run over a path that was not what was asked for is made again, twice at most.

mod compare;
mod disk;
mod ends;
mod estimate;
mod event;
mod far;
mod landing;
mod listing;
mod load;
mod matrix;
mod order;
mod process;
mod ready;
mod run;
mod script;
mod shell;
mod strays;
mod survey;
mod tally;
mod tools;

pub use estimate::Cost;
pub use event::{Event, Progress};
pub use far::check_far_room;
pub use matrix::{Ended, Matrix, Setup};
pub use order::{Cell, cells};
pub use ready::has_listener;
pub use script::run_script;
pub use tools::{changed_tool, detect, digest, find_tools};
