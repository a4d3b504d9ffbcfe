//! The command line: one module for each command, each turning its arguments into a plan.

mod cp;
mod diagnose;
mod doctor;
mod generate;
mod key;
mod link;
mod matrix;
mod path;
mod queue;
mod report;
mod serve;
mod test;
mod wan;

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::exit::{self, Coded};
use crate::output::{answer, output_error, output_is_terminal, remark_text, say};

#[derive(Debug, Parser)]
#[command(name = "longhaul", version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Copy files and directories, verified and encrypted, over many connections
    Cp(cp::Args),
    /// Measure what the path to a host carries, from memory to memory
    Test(test::Args),
    /// Be the far end of tests and copies
    Serve(serve::Args),
    /// Measure each part of a copy by itself and name the one that limits it, with the cure
    Diagnose(diagnose::Args),
    /// Examine this host, or another, for what keeps it from a rate over a round-trip time
    Doctor(doctor::Args),
    /// Find out what the path to a host is like: round trip, hops, MTU, loss, jitter, capacity
    Path(path::Args),
    Matrix(matrix::MatrixArgs),
    Report(report::ReportArgs),
    Wan(wan::WanArgs),
    /// Print the public key by which other hosts know this user
    Key(key::Args),
    /// Write man pages and shell completions
    #[command(subcommand)]
    Generate(generate::Args),
}

/// Runs the program on `args` (the first is its own name) and returns its exit code.
///
/// Results have gone to standard output; a failure is one line on standard error.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are answers, not errors; clap knows which stream each goes to.
            let code = if error.use_stderr() { exit::USAGE } else { exit::OK };
            return end(print_usage(&error, code));
        }
    };
    let done: Result<u8, Coded> = match cli.command {
        Command::Cp(args) => args.run(),
        Command::Diagnose(args) => args.run(),
        Command::Doctor(args) => args.run(),
        Command::Path(args) => args.run(),
        Command::Matrix(args) => matrix::run(args),
        Command::Report(args) => report::run(args),
        Command::Wan(args) => wan::run(args),
        Command::Key(args) => args.run(),
        Command::Generate(args) => args.run(),
        Command::Test(args) => args.run(),
        Command::Serve(args) => args.run(),
    };
    end(done)
}

/// The exit code of `done`, whose error is printed.
fn end(done: Result<u8, Coded>) -> ExitCode {
    match done {
        Ok(code) => code.into(),
        Err(Coded { code, error }) => {
            // A reader that has left, as `head` does, needs no message.
            let left = error.downcast_ref::<io::Error>().map(io::Error::kind);
            if (code, left) != (exit::OUTPUT, Some(io::ErrorKind::BrokenPipe)) {
                say(format_args!("{error:#}"));
            }
            code.into()
        }
    }
}

/// Prints what clap has to say: help and the version on standard output, an error on standard
/// error, where it repeats arguments.
fn print_usage(error: &clap::Error, code: u8) -> Result<u8, Coded> {
    let text = error.render();
    match error.use_stderr() {
        true => remark_text(&text.to_string()),
        false if output_is_terminal() => error.print().map_err(output_error)?,
        false => answer(&text.to_string())?,
    }
    Ok(code)
}
