//! The options of iperf3 for `test` and `serve`.

use std::ffi::OsString;

use super::{Handled, Line, answer, has_option};
use crate::cli::iperf3::command;

/// Returns whether the words of `longhaul test` start a server.
pub(super) fn is_server(words: &[OsString]) -> bool {
    let own = words.split(|word| word == "--").next().unwrap_or_default();
    own.iter().any(|word| word == "-s" || word == "--server")
}

/// Translates an option of an iperf3 client.
pub(super) fn client_option(word: &str, line: &mut Line) -> Handled {
    let is_zero = line.rest.front().is_some_and(|value| value == "0");
    match word {
        // The host follows as a separate word.
        "-c" | "--client" => {}
        // The result has both already.
        "-V" | "--verbose" | "--get-server-output" => {}
        // Lines are written at once, and the numbers of datagrams have 64 bits.
        "--forceflush" | "--udp-counters-64bit" => {}
        "-b" | "--bitrate" | "--bandwidth" if is_zero => {
            line.value();
        }
        "-i" | "--interval" if is_zero => {
            line.value();
            line.push("-i");
            line.push("1h");
        }
        "--bandwidth" => line.rename("--bitrate"),
        "--version4" => line.push("-4"),
        "--version6" => line.push("-6"),
        "--fq-rate" => {
            line.push("--pacing");
            line.push("kernel");
            line.rename("--bitrate");
        }
        "-D" | "--daemon" => {
            return Err(answer(
                "longhaul test stays in the foreground: instead of -D give 'setsid -f longhaul test \
                 ... > FILE'",
            ));
        }
        "-f" | "--format" => {
            line.value();
            without_unit(line);
        }
        "-fk" | "-fm" | "-fg" | "-ft" | "-fK" | "-fM" | "-fG" | "-fT" => without_unit(line),
        "--logfile" => {
            let file = line.value();
            return Err(answer(format!(
                "there is no --logfile: redirect the result with '> {}'",
                file.display()
            )));
        }
        "-t" | "--time" if line.rest.front().is_some_and(|time| time == "0") => {
            return Err(answer(
                "a test needs an end: instead of -t 0 give a long time such as -t 1h, and press \
                 Ctrl-C for the result until then",
            ));
        }
        _ => match word.strip_prefix("--bandwidth=") {
            Some(rate) => line.push(format!("--bitrate={rate}")),
            None => return only_of_iperf3(word, line),
        },
    }
    Ok(true)
}

/// Returns an answer to an option that only `longhaul iperf3` has.
fn only_of_iperf3(word: &str, line: &Line) -> Handled {
    let name = word.split('=').next().unwrap_or_default();
    // clap adds the options of the help later.
    let is_help = matches!(name, "-h" | "--help");
    let is_own = is_help || line.command.is_some_and(|own| has_option(own, name));
    if is_own || !has_option(&command(), name) {
        return Ok(false);
    }
    Err(answer(format!(
        "longhaul test has no {name}: for the command line of iperf3 give 'longhaul iperf3 -c HOST \
         {name}', with an iperf3 server or 'longhaul serve --iperf3' at the other end"
    )))
}

/// Translates an option of an iperf3 server.
pub(super) fn server_option(word: &str, line: &mut Line) -> Handled {
    match word {
        "-s" | "--server" | "-V" | "--verbose" | "--forceflush" => {}
        // The server prints one line per test, with units.
        "-i" | "--interval" | "-f" | "--format" => {
            line.value();
        }
        "-1" => line.push("--one-off"),
        "-B" => line.rename("--bind"),
        "--logfile" => line.rename("--log"),
        "-J" | "--json" => {
            line.push("--log-format");
            line.push("json");
        }
        "-D" | "--daemon" => {
            return Err(answer(
                "longhaul serve stays in the foreground: instead of -D start it with the systemd \
                 unit of the package, or with 'setsid -f longhaul serve'",
            ));
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn without_unit(line: &mut Line) {
    line.note("-f has no effect: each rate has its unit, and --json has bit/s");
}
