//! The program: command line -> plan -> run -> print.
//!
//! [`run`] is the whole of it; the modules are one for each command, `output` for what people
//! read, and `exit` for the codes.

mod cli;
pub mod exit;
mod interrupt;
mod lab_path;
mod output;
mod passphrase;
mod real_path;
mod remote;
mod supervisor;
mod throttle;

pub use cli::run;
