//! `longhaul nuttcp`, or the same program under the name `nuttcp`: the command line and the output of
//! nuttcp.

mod print;
mod server;

use std::ffi::OsString;

use anyhow::anyhow;
use longhaul_core::result::TestEnd;
use longhaul_engine::session::Family;
use longhaul_interop::nuttcp::arguments::{ClientArguments, Command, parse, version_text};
use longhaul_interop::nuttcp::{self, ClientOptions, plan_of};
use longhaul_interop::{PeerAddress, PeerTest, Program};

use self::print::{Live, last_lines};
use crate::exit::{self, Coded};
use crate::output::{print_message, print_notes, print_result};
use crate::signals::Interrupt;

/// The exit code of nuttcp for every error.
const FAILED: u8 = 1;

/// The text of `-h`.
const USAGE: &str = "\
Usage: longhaul nuttcp [-t|-r] [OPTIONS] HOST     run a test with a nuttcp server
       longhaul nuttcp -S [-1] [-4|-6] [-PPORT]   serve nuttcp clients
       longhaul nuttcp -V                         print the version

Options of a test, as in nuttcp:
  -t -r -F            send (default), receive, let the receiver open the connections
  -4 -6 -P# -p#[:#]   IP version, control port, data port (source:data)
  -T# -n# -i#         time, number of buffers or bytes, interval of reports
  -N# -l# -w# -ws#    streams, buffer length, socket buffer, that of the server
  -u -uu -R[i|a|u]#[/#] -j -o   UDP, unlimited UDP, rate and burst, jitter, one-way delay
  -M# -c# -D -xcs#    segment size, DSCP, no delay, CPU of the server
  -b -v -vv -I# -fparse -fxmitstats -frunningtotal -f-retrans -f-cwnd -f-drops -f-percentloss -f-rtt
";

/// Runs the command line `words`, without the name of the program.
pub(super) fn run(words: Vec<OsString>) -> Result<u8, Coded> {
    let text = |word: OsString| word.to_string_lossy().into_owned();
    let words: Vec<String> = words.into_iter().map(text).collect();
    match parse(&words).map_err(|error| Coded::new(FAILED, anyhow!(error)))? {
        // Like nuttcp, prints the usage on standard error if there are no arguments.
        Command::Usage if words.is_empty() => {
            print_notes(USAGE);
            Ok(FAILED)
        }
        Command::Usage => {
            print_result(USAGE)?;
            Ok(exit::OK)
        }
        Command::Version => {
            print_result(&version_text(concat!("longhaul ", env!("CARGO_PKG_VERSION"))))?;
            Ok(exit::OK)
        }
        Command::Server(arguments) => {
            warn(&arguments.ignored);
            server::run(&arguments)
        }
        Command::Client(arguments) => {
            warn(&arguments.ignored);
            client(*arguments)
        }
    }
}

fn warn(ignored: &[String]) {
    for option in ignored {
        print_message(format_args!("warning: {option} has no effect"));
    }
}

fn family(version: Option<u8>) -> Family {
    match version {
        Some(4) => Family::V4,
        Some(_) => Family::V6,
        None => Family::Any,
    }
}

fn client(arguments: ClientArguments) -> Result<u8, Coded> {
    let interrupt = Interrupt::install().map_err(|error| Coded::new(FAILED, error))?;
    let host = arguments.host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let address = PeerAddress { program: Program::Nuttcp, host, port: arguments.control_port };
    let plan = plan_of(&arguments.parameters, arguments.window_bytes);
    let family = family(arguments.family);
    let (address, plan, stop) = (&address, &plan, interrupt.flag());
    let test = PeerTest { address, plan, family, local: None, stop };
    let options = ClientOptions {
        parameters: Some(arguments.parameters.clone()),
        window_bytes: arguments.window_bytes,
        fit_datagram: arguments.fit_datagram,
    };
    let mut live = Live::new(&arguments);
    let result = nuttcp::run(&test, &options, &mut live);
    live.printed?;
    let result = result.map_err(|error| Coded::new(FAILED, error))?;
    print_result(&last_lines(&arguments, &result))?;
    match &result.test.end {
        TestEnd::Completed => Ok(exit::OK),
        TestEnd::Interrupted => Ok(FAILED),
        TestEnd::Cut { reason } => Err(Coded::new(FAILED, anyhow!("{reason}"))),
    }
}
