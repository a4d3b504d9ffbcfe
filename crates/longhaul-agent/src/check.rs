//! The self-check of an agent.

mod enrolled;

use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Stdio};

use self::enrolled::check_enrollment;
use crate::agent::AgentOptions;
use crate::error::AgentError;
use crate::home::Home;
use crate::journal::Journal;
use crate::measure::host_state;

/// The result of one check.
#[derive(Debug)]
pub struct CheckItem {
    /// The checked object.
    pub name: &'static str,
    /// The result.
    pub result: CheckResult,
}

/// The result of a check.
#[derive(Debug)]
pub enum CheckResult {
    /// The check passed; the text has the checked value.
    Passed(String),
    /// An agent runs with the directory, so its journal and its port are not checked.
    Running,
    /// The check failed.
    Failed(AgentError),
    /// The check failed with a plain message.
    Wrong(String),
}

/// The free space below which an agent is about to refuse runs.
const LEAST_FREE_BYTES: u64 = 100 << 20;

/// Checks the directory, the key, the enrollment, the journal, the program, the reflector's port, the
/// hub and its acceptance of the key. Writes nothing. If an agent runs with the directory, its journal
/// and the port of its reflector are not checked.
pub fn check(options: &AgentOptions) -> Vec<CheckItem> {
    let mut items = Vec::new();
    let mut add = |name, result| items.push(CheckItem { name, result });
    let home = match Home::look(&options.state) {
        Ok(home) => home,
        Err(error) => {
            add("state directory", CheckResult::Failed(error));
            return items;
        }
    };
    let directory = options.state.display();
    let running = home.as_ref().is_some_and(Home::is_in_use);
    let directory = match home {
        Some(_) if running => CheckResult::Running,
        Some(_) => CheckResult::Passed(directory.to_string()),
        None => {
            CheckResult::Passed(format!("none yet: the agent creates {directory} when it enrolls"))
        }
    };
    add("state directory", directory);
    add("disk", check_disk(&options.state));
    add("key", of(check_key(home.as_ref())));
    if !running {
        add("journal", of(check_journal(home.as_ref())));
    }
    add("program", check_program(&options.program));
    for address in options.reflectors.iter().filter(|_| !running) {
        let bound = UdpSocket::bind(address);
        add(
            "STAMP reflector",
            match bound {
                Ok(_) => CheckResult::Passed(address.to_string()),
                Err(error) => CheckResult::Wrong(format!("{address}: {error}")),
            },
        );
    }
    items.extend(check_enrollment(options, home.as_ref()));
    items
}

fn of(result: Result<String, AgentError>) -> CheckResult {
    result.map_or_else(CheckResult::Failed, CheckResult::Passed)
}

/// Checks the free space at the directory, or at the nearest one above it that exists.
fn check_disk(state: &Path) -> CheckResult {
    let state = std::path::absolute(state).unwrap_or_else(|_| state.to_owned());
    let present = state.ancestors().find(|path| path.exists()).unwrap_or(&state);
    let (free, _) = host_state(present);
    let text = format!("{} MiB free", free >> 20);
    if free >= LEAST_FREE_BYTES { CheckResult::Passed(text) } else { CheckResult::Wrong(text) }
}

fn check_key(home: Option<&Home>) -> Result<String, AgentError> {
    let identity = home.map_or(Ok(None), Home::known_identity)?;
    Ok(identity.map_or_else(
        || "none yet: the agent creates a key when it enrolls".to_owned(),
        |identity| identity.public().fingerprint(),
    ))
}

fn check_journal(home: Option<&Home>) -> Result<String, AgentError> {
    let path = home.map_or(Ok(None), |home| home.known_file("journal.db"))?;
    let Some(path) = path else { return Ok("none yet".to_owned()) };
    let mut text = match Journal::look(&path)? {
        Some(journal) => {
            let (entries, runs) = (journal.backlog()?, journal.open_runs()?.len());
            format!("{entries} entries to send, {runs} runs open")
        }
        None => "empty".to_owned(),
    };
    if fs::metadata(path.with_extension("db-wal")).is_ok_and(|log| log.len() > 0) {
        text.push_str("; the agent was killed, and its log journal.db-wal is not counted");
    }
    Ok(text)
}

fn check_program(program: &Path) -> CheckResult {
    let output = Command::new(program).arg("--version").stdin(Stdio::null()).output();
    match output {
        Ok(output) if output.status.success() => {
            CheckResult::Passed(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        }
        Ok(output) => CheckResult::Wrong(format!("{}: {}", program.display(), output.status)),
        Err(error) => CheckResult::Wrong(format!("{}: {error}", program.display())),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn options(state: &Path) -> AgentOptions {
        AgentOptions {
            hub: None,
            token: None,
            ca: None,
            name: None,
            state: state.to_owned(),
            program: "/bin/true".into(),
            reflectors: Vec::new(),
            allow: crate::AllowedPeers::default(),
            flows: true,
        }
    }

    fn names(dir: &Path) -> Vec<String> {
        let entry = |entry: std::io::Result<fs::DirEntry>| {
            let entry = entry.unwrap();
            let size = entry.metadata().unwrap().len();
            format!("{} {size}", entry.file_name().to_string_lossy())
        };
        let mut names: Vec<_> = fs::read_dir(dir).unwrap().map(entry).collect();
        names.sort();
        names
    }

    fn passed<'a>(items: &'a [CheckItem], name: &str) -> &'a str {
        let item = items.iter().find(|item| item.name == name).unwrap();
        match &item.result {
            CheckResult::Passed(text) => text,
            other => panic!("{name}: {other:?}"),
        }
    }

    #[test]
    fn a_check_writes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("agent");
        let items = check(&options(&state));
        assert!(passed(&items, "key").starts_with("none yet"));
        assert!(!state.exists());

        fs::create_dir(&state).unwrap();
        fs::set_permissions(&state, fs::Permissions::from_mode(0o700)).unwrap();
        check(&options(&state));
        assert_eq!(names(&state), Vec::<String>::new());

        let home = Home::open(&state).unwrap();
        let key = home.identity().unwrap().public().fingerprint();
        drop(Journal::open(&home.file("journal.db")).unwrap());
        drop(home);
        let before = names(&state);
        let items = check(&options(&state));
        assert_eq!(passed(&items, "key"), key);
        assert_eq!(passed(&items, "journal"), "0 entries to send, 0 runs open");
        assert_eq!(names(&state), before);

        // systemd's state directory of a dynamic user is a symbolic link.
        let link = dir.path().join("link");
        symlink(&state, &link).unwrap();
        assert_eq!(passed(&check(&options(&link)), "journal"), "0 entries to send, 0 runs open");

        // The log of an agent that was killed.
        let journal = Journal::open(&state.join("journal.db")).unwrap();
        journal.next_counter().unwrap();
        let killed = dir.path().join("killed");
        fs::create_dir(&killed).unwrap();
        fs::set_permissions(&killed, fs::Permissions::from_mode(0o700)).unwrap();
        for name in ["journal.db", "journal.db-wal", "identity"] {
            fs::copy(state.join(name), killed.join(name)).unwrap();
        }
        let before = names(&killed);
        let items = check(&options(&killed));
        let killed_journal = passed(&items, "journal");
        assert!(killed_journal.starts_with("0 entries to send, 0 runs open; the agent was killed"));
        assert_eq!(names(&killed), before);

        // A journal that is not a file of the agent.
        fs::remove_file(killed.join("journal.db")).unwrap();
        symlink(state.join("journal.db"), killed.join("journal.db")).unwrap();
        let items = check(&options(&killed));
        let journal = items.iter().find(|item| item.name == "journal").unwrap();
        assert!(matches!(journal.result, CheckResult::Failed(AgentError::File { .. })));
    }
}
