//! The longhaul program: it parses the command line into a plan, runs it and prints the result.
//!
//! [`run`] does all of it. `cli` has one module per command, `output` makes all text for the user,
//! and [`exit`] defines the exit codes.
//!
//! ```no_run
//! // Prints the version, and returns the exit code.
//! let code = longhaul::run(["longhaul", "--version"].map(Into::into));
//! ```

mod cli;
pub mod exit;
mod lab_path;
mod monotonic;
mod output;
mod passphrase;
mod process;
mod real_path;
mod remote;
mod signals;

pub use cli::run;
