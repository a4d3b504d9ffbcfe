//! Formats commands for the report.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::process::Command;

/// Returns the command as a shell would accept it, with the variables that were set for it.
pub(super) fn words(command: &Command) -> String {
    let mut words = Vec::new();
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            words.push(format!("{}={}", name.to_string_lossy(), quote(value)));
        }
    }
    words.push(quote(command.get_program()).into_owned());
    words.extend(command.get_args().map(|argument| quote(argument).into_owned()));
    words.join(" ")
}

fn quote(word: &OsStr) -> Cow<'_, str> {
    let text = word.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@,+%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text;
    }
    Cow::Owned(format!("'{}'", text.replace('\'', "'\\''")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_would_take_it() {
        let mut command = Command::new("rsync");
        command.args(["-e", "'ssh' '-F'", "a b", ""]).env("LANG", "C");
        assert_eq!(words(&command), r"LANG=C rsync -e ''\''ssh'\'' '\''-F'\''' 'a b' ''");
    }
}
