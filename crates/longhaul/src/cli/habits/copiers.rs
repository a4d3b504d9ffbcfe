//! The options of rsync and scp for `cp`.

use std::ffi::OsString;

use super::copier_table::{Foreign, Meaning, find};
use super::{Handled, Line, answer};
use crate::exit::Coded;

/// The largest number of connections.
const MOST_STREAMS: u64 = 128;
const SSH_PORT: u64 = 22;

/// Translates an option of rsync or scp.
pub(super) fn option(word: &str, line: &mut Line) -> Handled {
    match word {
        "-z" | "-C" | "--compress" => not_compressed(line),
        "-P" => return streams(line),
        "-c" if is_cipher(line) => {
            line.value();
            line.note(
                "-c has no effect: ssh only starts the server, and longhaul encrypts the data with AES-256-GCM",
            );
        }
        "--bwlimit" => {
            let rate = line.value();
            check_unit(&rate.to_string_lossy())?;
            line.push("--bwlimit");
            line.push(rate);
        }
        "-l" => match number(line) {
            Some(limit) => {
                return Err(answer(format!(
                    "-l copies symbolic links as links, as in rsync: for scp's limit of {limit} \
                     kb/s give --bwlimit {limit}k"
                )));
            }
            None => return Ok(false),
        },
        "-i" | "-o" | "-F" | "-J" => return for_ssh(word, line),
        _ => {
            let (name, value) = match word.split_once('=') {
                Some((name, value)) if name.starts_with("--") => (name, Some(value)),
                _ => (word, None),
            };
            return match (name, find(name)) {
                ("--info", _) => info(value, line),
                ("--bwlimit", _) => check_unit(value.unwrap_or_default()).map(|()| false),
                ("--compress-level" | "--compress-choice" | "--zc" | "--zl", _) => {
                    if value.is_none() {
                        line.value();
                    }
                    not_compressed(line);
                    Ok(true)
                }
                (_, Some(foreign)) => replace(foreign, name, value, line),
                (_, None) => match name.strip_prefix("-P").and_then(|text| text.parse().ok()) {
                    Some(number) => check_port(number, line).map(|()| false),
                    None => group(word, line),
                },
            };
        }
    }
    Ok(true)
}

/// Replaces, omits or answers an option of the table.
fn replace(foreign: &Foreign, name: &str, value: Option<&str>, line: &mut Line) -> Handled {
    let value = match (foreign.value, value) {
        (true, Some(value)) => value.to_owned(),
        (true, None) => line.value().to_string_lossy().into_owned(),
        (false, Some(_)) => return Ok(false),
        (false, None) => String::new(),
    };
    match foreign.meaning {
        Meaning::Always => {}
        Meaning::Without(reason) => line.note(&format!("{name} has no effect: {reason}")),
        Meaning::Ours(ours) => {
            ours.iter().for_each(|word| line.push(*word));
            if foreign.value {
                line.push(value);
            }
        }
        Meaning::Archive if line.has_short('a') => {}
        Meaning::Archive => {
            return Err(answer(format!(
                "there is no {name}: give -a, which preserves links, owners and groups, extended \
                 attributes, access control lists and devices"
            )));
        }
        Meaning::Instead(advice) => {
            return Err(answer(format!("there is no {name}: {}", advice.replace("{}", &value))));
        }
    }
    Ok(true)
}

/// Translates the flags of rsync's --info.
fn info(value: Option<&str>, line: &mut Line) -> Handled {
    let value = match value {
        Some(value) => value.to_owned(),
        None => line.value().to_string_lossy().into_owned(),
    };
    for flag in value.split(',') {
        match flag.trim_end_matches(char::is_numeric) {
            "progress" => {}
            "name" => line.push("-v"),
            "stats" => line.push("--stats"),
            _ => {
                return Err(answer(format!(
                    "there is no --info={flag}: -v lists files, --stats prints the counts, and the \
                     progress is shown on a terminal"
                )));
            }
        }
    }
    Ok(true)
}

/// Returns whether the next word is a cipher of ssh.
fn is_cipher(line: &Line) -> bool {
    let next = line.rest.front().and_then(|word| word.to_str()).unwrap_or_default();
    ["aes", "chacha20", "3des"].iter().any(|name| next.starts_with(name)) && next.contains('-')
}

/// Returns an answer to a rate limit without a unit, which is in KiB/s in rsync.
fn check_unit(rate: &str) -> Result<(), Coded> {
    match rate.parse::<f64>() {
        Ok(number) if number > 0.0 => Err(answer(format!(
            "--bwlimit {rate} has no unit: for rsync's {rate} KiB/s give --bwlimit {rate}KiB/s, for \
             kbit/s {rate}k, for Mbit/s {rate}M"
        ))),
        _ => Ok(()),
    }
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

/// Returns an answer if the number of connections is probably a port, as for scp.
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
    // The translation of an earlier option is the last word.
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
    // rsync's own definition of -a.
    let is_archive = "rlptgoD".chars().all(|letter| letters.contains(letter));
    let mut kept = String::new();
    for (at, letter) in letters.char_indices() {
        match letter {
            'z' | 'C' | 'h' => {}
            'P' if !(ends_in_number && at + 1 == letters.len()) => {}
            'l' | 'p' | 't' | 'g' | 'o' | 'D' if is_archive => {}
            'r' if is_archive => kept.push('a'),
            _ => match find(&format!("-{letter}")) {
                Some(foreign) if !is_archive && !letters.contains('a') => {
                    replace(foreign, &format!("-{letter}"), None, line)?;
                }
                Some(Foreign { meaning: Meaning::Archive, .. }) => {}
                Some(foreign) => {
                    replace(foreign, &format!("-{letter}"), None, line)?;
                }
                None => kept.push(letter),
            },
        }
    }
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
