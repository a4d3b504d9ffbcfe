//! The program: command line -> plan -> run -> print.
//!
//! [`run`] is the whole of it; the modules are one for each command, and `exit` for the codes.

mod cli;
pub mod exit;
mod lab_path;

pub use cli::run;
