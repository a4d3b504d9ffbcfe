//! Options of iperf3, rsync, scp and hyperfine that have another name here. They are replaced
//! before the command line is parsed, or refused with the name of the corresponding option.

mod copier_table;
mod copiers;
mod hyperfine;
mod iperf3;

use std::collections::VecDeque;
use std::ffi::OsString;

use anyhow::anyhow;
use clap::{Arg, Command};

use crate::exit::{self, Coded};

/// Returns `args` with the options of other programs translated. `cli` is the command line of this
/// program.
///
/// # Errors
/// An option has no meaning here; the error names the alternative.
pub(super) fn translate(mut args: Vec<OsString>, cli: &Command) -> Result<Translated, Coded> {
    let words = if args.len() > 2 { args.split_off(2) } else { Vec::new() };
    let handler: fn(&str, &mut Line) -> Handled = match args.get(1).and_then(|name| name.to_str()) {
        Some("test") if iperf3::is_server(&words) => {
            args[1] = "serve".into();
            iperf3::server_option
        }
        Some("test") => iperf3::client_option,
        Some("serve") => iperf3::server_option,
        Some("cp") => copiers::option,
        Some("matrix") => hyperfine::option,
        _ => {
            args.extend(words);
            return Ok(Translated { args, notes: Vec::new() });
        }
    };
    let command = args.get(1).and_then(|name| cli.find_subcommand(name));
    let done = Translated { args, notes: Vec::new() };
    let mut line = Line { command, rest: words.into(), done };
    while let Some(word) = line.rest.pop_front() {
        if word == "--" {
            line.push(word);
            let rest = std::mem::take(&mut line.rest);
            line.done.args.extend(rest);
            break;
        }
        let text = word.to_str().unwrap_or_default();
        if handler(text, &mut line)? {
            continue;
        }
        let has_value = command.is_some_and(|command| takes_next(command, text));
        line.push(word);
        if has_value {
            let value = line.rest.pop_front();
            line.done.args.extend(value);
        }
    }
    Ok(line.done)
}

/// Returns whether the value of the option `word` is the next word.
fn takes_next(command: &Command, word: &str) -> bool {
    let takes =
        |option: &Arg| option.get_action().takes_values() && !option.is_require_equals_set();
    find_option(command, word).is_some_and(takes)
}

/// Returns whether `command` has the option `word`.
fn has_option(command: &Command, word: &str) -> bool {
    find_option(command, word).is_some()
}

/// Returns the option `word`, or the last one of a group of short options.
fn find_option<'a>(command: &'a Command, word: &str) -> Option<&'a Arg> {
    let (long, short) = match (word.strip_prefix("--"), word.strip_prefix('-')) {
        (Some(long), _) => (Some(long), None),
        (None, Some(group)) => (None, group.chars().last()),
        (None, None) => return None,
    };
    command.get_arguments().find(|option| {
        let aliases = option.get_all_aliases().unwrap_or_default();
        (long.is_some() && option.get_long() == long)
            || long.is_some_and(|long| aliases.contains(&long))
            || (short.is_some() && option.get_short() == short)
    })
}

/// A command line with the options of longhaul, and notes on options without effect.
#[derive(Debug, Default)]
pub(in crate::cli) struct Translated {
    pub(in crate::cli) args: Vec<OsString>,
    pub(in crate::cli) notes: Vec<String>,
}

/// The words of a command line that are not translated yet, and those that are.
#[derive(Debug)]
struct Line<'a> {
    /// Our command.
    command: Option<&'a Command>,
    rest: VecDeque<OsString>,
    done: Translated,
}

impl Line<'_> {
    fn push(&mut self, word: impl Into<OsString>) {
        self.done.args.push(word.into());
    }

    /// Adds a note on an option without effect.
    fn note(&mut self, note: &str) {
        self.done.notes.push(note.to_owned());
    }

    /// Returns whether the line has the short option `letter`, also in a group.
    fn has_short(&self, letter: char) -> bool {
        let is_in = |word: &OsString| {
            let letters = word.to_str().and_then(|word| word.strip_prefix('-')).unwrap_or_default();
            letters.chars().all(|letter| letter.is_ascii_alphabetic()) && letters.contains(letter)
        };
        self.done.args.iter().skip(2).chain(&self.rest).any(is_in)
    }

    /// Takes the value of an option from the next word.
    fn value(&mut self) -> OsString {
        self.rest.pop_front().unwrap_or_default()
    }

    /// Replaces an option and its value by the option of longhaul.
    fn rename(&mut self, ours: &str) {
        self.push(ours);
        let value = self.rest.pop_front();
        self.done.args.extend(value);
    }
}

/// True if a word was an option of another program, and is translated.
type Handled = Result<bool, Coded>;

/// Returns the answer to an option that has no meaning here.
fn answer(text: impl Into<String>) -> Coded {
    Coded::new(exit::USAGE, anyhow!(text.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit;

    fn cli() -> Command {
        let cp = Command::new("cp")
            .arg(Arg::new("exclude").long("exclude"))
            .arg(Arg::new("rsh").short('e').long("rsh"))
            .arg(Arg::new("streams").short('P').long("streams"));
        let options = [("time", 't'), ("json", 'J'), ("reverse", 'R'), ("bind", 'B')];
        let options = options.map(|(long, short)| Arg::new(long).long(long).short(short));
        let test = Command::new("test").args(options);
        Command::new("longhaul").subcommand(cp).subcommand(test)
    }

    fn translated(line: &str) -> (String, usize) {
        let words = std::iter::once("longhaul").chain(line.split_whitespace());
        let done = translate(words.map(OsString::from).collect(), &cli()).unwrap();
        let words: Vec<_> = done.args.iter().skip(1).map(|word| word.to_string_lossy()).collect();
        (words.join(" "), done.notes.len())
    }

    fn answered(line: &str) -> String {
        let words = std::iter::once("longhaul").chain(line.split_whitespace());
        let failed = translate(words.map(OsString::from).collect(), &cli()).unwrap_err();
        assert_eq!(failed.code, exit::USAGE);
        failed.error.to_string()
    }

    #[test]
    fn options_of_iperf3_get_our_names() {
        for (line, ours, notes) in [
            ("test -c far -t 5", "test far -t 5", 0),
            ("test -c far -V --get-server-output -J", "test far -J", 0),
            ("test -c far -B 10.0.0.1", "test far -B 10.0.0.1", 0),
            ("test -c far -f m -R", "test far -R", 1),
            ("test -c far -b 0", "test far", 0),
            ("test -c far -i 0", "test far -i 1h", 0),
            ("test -c far --bandwidth 1M", "test far --bitrate 1M", 0),
            ("test -c far --bandwidth=1M", "test far --bitrate=1M", 0),
            ("test -c far --forceflush --version4", "test far -4", 0),
            ("test -c far --fq-rate 1G", "test far --pacing kernel --bitrate 1G", 0),
            ("serve -s -i 1 -f m", "serve", 0),
            ("test -c far -fm", "test far", 1),
            ("test -s -1 -p 5201", "serve --one-off -p 5201", 0),
            ("serve -s -B ::1 -J", "serve --bind ::1 --log-format json", 0),
            ("serve --logfile x", "serve --log x", 0),
            ("matrix -s", "matrix -s", 0),
        ] {
            assert_eq!(translated(line), (ours.to_owned(), notes), "{line}");
        }
        for (line, expected) in [
            ("test -c far --logfile x", "> x"),
            ("test -c far -t 0", "-t 1h"),
            ("test -c far -D", "setsid"),
            ("test -c far --cport 9", "longhaul iperf3 -c HOST --cport"),
            ("test -c far -T x", "longhaul iperf3 -c HOST -T"),
            ("serve -D", "setsid"),
            ("test -s -D", "setsid"),
        ] {
            let text = answered(line);
            assert!(text.contains(expected), "{line}: {text}");
        }
    }

    #[test]
    fn options_of_hyperfine_get_our_names() {
        assert_eq!(translated("matrix --runs 3 sc10"), ("matrix --repeats 3 sc10".to_owned(), 0));
        assert_eq!(translated("matrix sc10 --runs=3"), ("matrix sc10 --repeats 3".to_owned(), 0));
        assert!(answered("matrix --export-json x").contains("report DIR --format json"));
        assert!(answered("matrix -w 3 sc10").contains("omit_seconds"));
    }

    #[test]
    fn options_of_rsync_and_scp_get_our_names() {
        for (line, ours, notes) in [
            ("cp -avP a far:b", "cp -av a far:b", 0),
            ("cp -avzh a far:b", "cp -av a far:b", 1),
            ("cp -aPr a far:b", "cp -ar a far:b", 0),
            ("cp -P a far:b", "cp a far:b", 0),
            ("cp -v a far:b", "cp -v a far:b", 0),
            ("cp -P 4 a far:b", "cp -P 4 a far:b", 0),
            ("cp -aP 4 a far:b", "cp -aP 4 a far:b", 0),
            ("cp -P4 a far:b", "cp -P4 a far:b", 0),
            ("cp -P 22 a lh://far/b", "cp -P 22 a lh://far/b", 0),
            ("cp --progress --partial --info=progress2 a b", "cp a b", 0),
            ("cp -C a b", "cp a b", 1),
            ("cp -i key -o User=me a far:b", "cp --rsh ssh -i key -o User=me a far:b", 0),
            ("cp -rlptgoD a far:b", "cp -a a far:b", 0),
            ("cp -avHAXz a far:b", "cp -av a far:b", 1),
            ("cp -a -H -A a far:b", "cp -a a far:b", 0),
            ("cp -rtW a far:b", "cp -p -r a far:b", 0),
            ("cp -rc a far:b", "cp --sync-level checksum -r a far:b", 0),
            ("cp -c aes128-gcm@openssh.com a far:b", "cp a far:b", 1),
            ("cp --size-only a b", "cp --sync-level size a b", 0),
            ("cp --delete-after -a a b", "cp --delete -a a b", 0),
            ("cp --rsync-path=/x a far:b", "cp --far-longhaul /x a far:b", 0),
            ("cp --info progress2 a b", "cp a b", 0),
            ("cp --info=name,stats2 a b", "cp -v --stats a b", 0),
            ("cp --compress-level=9 a b", "cp a b", 1),
            ("cp --zc zstd a b", "cp a b", 1),
            ("cp --inplace a b", "cp a b", 1),
            ("cp -J gate a far:b", "cp --rsh ssh -J gate a far:b", 0),
            ("cp --bwlimit 2M a b", "cp --bwlimit 2M a b", 0),
            ("cp --bwlimit 0 a b", "cp --bwlimit 0 a b", 0),
            ("cp --bwlimit=0 a b", "cp --bwlimit=0 a b", 0),
            ("cp --exclude -z a b", "cp --exclude -z a b", 0),
            ("cp -h", "cp -h", 0),
            ("test -h", "test -h", 0),
            ("test --help", "test --help", 0),
            ("cp -- -P a", "cp -- -P a", 0),
        ] {
            assert_eq!(translated(line), (ours.to_owned(), notes), "{line}");
        }
        for (line, expected) in [
            ("cp -P 22 a me@far:b", "ssh -p 22"),
            ("cp -P 2222 a far:b", "ssh -p 2222"),
            ("cp -P 2222 a b", "ssh -p 2222"),
            ("cp -l 8000 a far:b", "--bwlimit 8000k"),
            ("cp -P2222 a far:b", "ssh -p 2222"),
            ("cp -P22 a me@far:b", "ssh -p 22"),
            ("cp --bwlimit 100 a far:b", "100KiB/s"),
            ("cp --bwlimit=100 a far:b", "100k"),
            ("cp -H a far:b", "give -a"),
            ("cp -rH a far:b", "give -a"),
            ("cp -x a b", "--exclude"),
            ("cp --port=1 a b", "lh://HOST:1/PATH"),
            ("cp --log-file x a b", "> x"),
            ("cp --timeout=10 a b", "--give-up 10s"),
            ("cp --info=mount a b", "--info=mount"),
            ("cp -i key -e ssh a far:b", "-e"),
        ] {
            let text = answered(line);
            assert!(text.contains(expected), "{line}: {text}");
        }
    }
}
