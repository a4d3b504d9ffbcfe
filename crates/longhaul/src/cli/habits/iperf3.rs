//! The options of iperf3 for `test` and `serve`.

use std::ffi::OsString;

use super::{Handled, Line, answer};

/// Returns whether the words of `longhaul test` start a server.
pub(super) fn is_server(words: &[OsString]) -> bool {
    let own = words.split(|word| word == "--").next().unwrap_or_default();
    own.iter().any(|word| word == "-s" || word == "--server")
}

/// Translates an option of an iperf3 client.
pub(super) fn client_option(word: &str, line: &mut Line) -> Handled {
    match word {
        // The host follows as a separate word.
        "-c" | "--client" => {}
        // The result has both already.
        "-V" | "--verbose" | "--get-server-output" => {}
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
        _ => return Ok(false),
    }
    Ok(true)
}

/// Translates an option of an iperf3 server.
pub(super) fn server_option(word: &str, line: &mut Line) -> Handled {
    match word {
        "-s" | "--server" | "-V" | "--verbose" => {}
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
