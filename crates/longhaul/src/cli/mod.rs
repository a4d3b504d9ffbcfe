//! The command line: one module per command, which turns arguments into a plan.

mod agent;
mod bind;
mod cache;
mod cp;
mod diagnose;
mod doctor;
mod failed;
mod fleet;
mod generate;
#[cfg(all(test, feature = "hub"))]
mod guide_tests;
mod habits;
mod help;
#[cfg(feature = "hub")]
mod hub;
mod hub_directory;
mod iperf3;
mod key;
mod link;
mod matrix;
mod nuttcp;
mod path;
mod queue;
mod report;
mod serve;
mod test;
mod wan;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::anyhow;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use self::failed::{ErrorFormat, usage_text};
use crate::exit::{self, Coded};
use crate::output::{output_error, output_is_terminal, print_message, print_notes, print_result};

#[derive(Debug, Parser)]
#[command(name = "longhaul", version, about, max_term_width = 100, args_override_self = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Copy files and directories, verified and encrypted, over many connections
    Cp(cp::Args),
    /// Measure the throughput of the path to a host, from memory to memory
    Test(test::Args),
    /// Run the server for test, cp, path and diagnose
    Serve(serve::Args),
    /// Measure each part of a copy separately, and report which part limits it and the remedy
    Diagnose(diagnose::Args),
    /// Check this host, or another, against a target rate and round-trip time
    Doctor(doctor::Args),
    /// Measure the path to a host: round-trip time, hops, MTU, loss, jitter, capacity
    Path(path::Args),
    Matrix(matrix::MatrixArgs),
    Report(report::ReportArgs),
    Wan(wan::WanArgs),
    /// Show, record and serve the traffic of this host's interfaces
    Watch(watch::Args),
    /// Run the hub of a fleet: agents, meshes of tests, history, web pages
    #[cfg(feature = "hub")]
    Hub(hub::Args),
    /// Run with the command line and the output of iperf3
    #[command(disable_help_flag = true)]
    Iperf3 {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Run with the command line and the output of nuttcp
    #[command(disable_help_flag = true)]
    Nuttcp {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Run the agent of a fleet: measure on behalf of a hub
    Agent(agent::Args),
    /// Plan, apply and show the mesh of a hub
    Fleet(fleet::Args),
    /// List or remove the data that matrix keeps for later runs
    Cache(cache::Args),
    /// Print the public key of this user
    Key(key::Args),
    /// Write man pages and shell completions
    #[command(subcommand)]
    Generate(generate::Args),
}

/// Runs the program with `args` (the first is the program's name) and returns its exit code.
///
/// Results go to standard output. An error is one line on standard error, and with JSON output also a
/// document on standard output.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    let format = ErrorFormat::requested(&args);
    if called_as(&args, "iperf3") {
        return end(iperf3::run(args[1..].to_vec()), ErrorFormat::Text);
    }
    if called_as(&args, "nuttcp") {
        return end(nuttcp::run(args[1..].to_vec()), ErrorFormat::Text);
    }
    let args = match habits::translate(args, &Cli::command()) {
        Ok(translated) => {
            translated.notes.iter().for_each(print_message);
            translated.args
        }
        Err(failed) => return end(Err(failed), format),
    };
    let words = args.clone();
    let mut command = help::with_examples(Cli::command());
    let parsed = command.try_get_matches_from_mut(args);
    let cli = match parsed.and_then(|mut matches| Cli::from_arg_matches_mut(&mut matches)) {
        Ok(cli) => cli,
        Err(error) => {
            let error = error.format(&mut command);
            // Help and version are results; clap chooses the stream.
            if !error.use_stderr() {
                return end(print_help(&error), ErrorFormat::Text);
            }
            return match usage_text(&error, &command, &words) {
                Some(text) => end(Err(Coded::new(exit::USAGE, anyhow!(text))), format),
                None => {
                    print_notes(&error.render().to_string());
                    exit::USAGE.into()
                }
            };
        }
    };
    let done: Result<u8, Coded> = match cli.command {
        Command::Agent(args) => args.run(),
        Command::Fleet(args) => args.run(),
        Command::Cp(args) => args.run(),
        Command::Diagnose(args) => args.run(),
        Command::Doctor(args) => args.run(),
        Command::Path(args) => args.run(),
        Command::Matrix(args) => matrix::run(args),
        Command::Report(args) => report::run(args),
        Command::Wan(args) => wan::run(args),
        Command::Watch(args) => args.run(),
        #[cfg(feature = "hub")]
        Command::Hub(args) => args.run(),
        Command::Iperf3 { args } => iperf3::run(args),
        Command::Nuttcp { args } => nuttcp::run(args),
        Command::Cache(args) => args.run(),
        Command::Key(args) => args.run(),
        Command::Generate(args) => args.run(),
        Command::Test(args) => args.run(),
        Command::Serve(args) => args.run(),
    };
    end(done, format)
}

/// Returns whether the program was started under the name of another one.
fn called_as(args: &[OsString], name: &str) -> bool {
    let program = args.first().map(std::path::Path::new);
    program.and_then(|program| program.file_name()).is_some_and(|file| file == name)
}

/// Prints the error of `done`, if any, and returns the exit code.
fn end(done: Result<u8, Coded>, format: ErrorFormat) -> ExitCode {
    done.unwrap_or_else(|failed| {
        format.print(&failed);
        failed.code
    })
    .into()
}

/// Prints clap's text of help or version.
fn print_help(help: &clap::Error) -> Result<u8, Coded> {
    if output_is_terminal() {
        help.print().map_err(output_error)?;
    } else {
        print_result(&help.render().to_string())?;
    }
    Ok(exit::OK)
}
