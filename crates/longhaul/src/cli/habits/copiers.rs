//! The options of rsync and scp for `cp`.

use std::ffi::OsString;

use super::{Handled, Line, answer};
use crate::exit::Coded;

/// The largest number of connections.
const MOST_STREAMS: u64 = 128;
const SSH_PORT: u64 = 22;

/// Translates an option of rsync or scp.
pub(super) fn option(word: &str, line: &mut Line) -> Handled {
    match word {
        // The bar is always shown on a terminal, and every copy resumes.
        "--progress" | "--partial" | "--info=progress2" | "--human-readable" => {}
        "-z" | "-C" | "--compress" => not_compressed(line),
        "-P" => return streams(line),
        "-l" => match number(line) {
            Some(limit) => {
                return Err(answer(format!(
                    "-l copies symbolic links as links, as in rsync: for scp's limit of {limit} \
                     kb/s give --bwlimit {limit}k"
                )));
            }
            None => return Ok(false),
        },
        "-i" | "-o" => return for_ssh(word, line),
        _ => return group(word, line),
    }
    Ok(true)
}

fn not_compressed(line: &mut Line) {
    line.note(
        "-z and -C have no effect: longhaul does not compress, because data at network rate cost \
         more time to compress than to send",
    );
}

/// Returns the number in the next word.
fn number(line: &Line) -> Option<u64> {
    line.rest.front()?.to_str()?.parse().ok()
}

/// Translates -P: the number of connections, or rsync's --partial --progress.
fn streams(line: &mut Line) -> Handled {
    let Some(number) = number(line) else { return Ok(true) };
    check_port(number, line)?;
    line.rename("-P");
    Ok(true)
}

/// Returns an answer if the number of connections is rather scp's port.
fn check_port(number: u64, line: &Line) -> Result<(), Coded> {
    let is_port = number == SSH_PORT && line.rest.iter().any(is_ssh_place);
    if is_port || number > MOST_STREAMS {
        return Err(answer(format!(
            "-P is the number of connections, at most {MOST_STREAMS}: for port {number} of ssh \
             give -e 'ssh -p {number}', for {number} connections --streams {number}"
        )));
    }
    Ok(())
}

/// Returns whether a word is `[user@]host:path`.
fn is_ssh_place(word: &OsString) -> bool {
    let Some((host, path)) = word.to_str().and_then(|word| word.split_once(':')) else {
        return false;
    };
    !host.contains('/') && !path.starts_with("//")
}

/// Passes an option with its value to ssh.
fn for_ssh(word: &str, line: &mut Line) -> Handled {
    let is_rsh = |word: &OsString| word == "-e" || word == "--rsh" || word == "--ssh";
    let value = line.value().to_string_lossy().into_owned();
    // Our translation of an earlier option is the last word.
    let rsh = line.done.args.iter().rposition(|word| word == RSH);
    if rsh.is_none() && line.done.args.iter().any(is_rsh) || line.rest.iter().any(is_rsh) {
        return Err(answer(format!(
            "give {word} {value} as a part of -e, such as -e 'ssh {word} {value}'"
        )));
    }
    let quoted = if value.contains(char::is_whitespace) { format!("'{value}'") } else { value };
    match rsh {
        Some(at) => {
            line.done.args[at + 1].push(format!(" {word} {quoted}"));
        }
        None => {
            line.push(RSH);
            line.push(format!("ssh {word} {quoted}"));
        }
    }
    Ok(true)
}

/// The name of -e that a translation uses.
const RSH: &str = "--rsh";

/// Translates a group of short options, such as -avzP.
fn group(word: &str, line: &mut Line) -> Handled {
    let letters = word.strip_prefix('-').unwrap_or_default();
    let is_group = letters.len() > 1 && letters.chars().all(|letter| letter.is_ascii_alphabetic());
    // The rest of a group after -e is its value.
    if !is_group || letters[..letters.len() - 1].contains('e') {
        return Ok(false);
    }
    let number = number(line);
    let ends_in_number = letters.ends_with('P') && number.is_some();
    let kept: String = letters
        .char_indices()
        .filter(|(at, letter)| match letter {
            'z' | 'C' | 'h' => false,
            'P' => ends_in_number && at + 1 == letters.len(),
            _ => true,
        })
        .map(|(_, letter)| letter)
        .collect();
    if kept == letters && !ends_in_number {
        return Ok(false);
    }
    if letters.contains(['z', 'C']) {
        not_compressed(line);
    }
    if ends_in_number {
        check_port(number.unwrap_or_default(), line)?;
        line.rename(&format!("-{kept}"));
    } else if !kept.is_empty() {
        line.push(format!("-{kept}"));
        // The value of -e.
        if kept.ends_with('e') {
            let value = line.rest.pop_front();
            line.done.args.extend(value);
        }
    }
    Ok(true)
}
