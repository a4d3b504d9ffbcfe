//! Words for the errors of the engine: what failed, on what, and what to do. Names of options are
//! added here, because the engine does not know the command line.

use std::error::Error;

use longhaul_core::units::Bytes;
use longhaul_core::wire::RefusalKind;
use longhaul_engine::session::Lapse;
use longhaul_engine::{EngineError, TurnedAway, WaitsFor};

use super::peer_failure::peer_words;

/// The name that the engine gives to a server in this process.
const THIS_HOST: &str = "this host";

/// Returns the sentence for an error and its causes, separated by colons.
pub(crate) fn failure_text(error: &(dyn Error + 'static)) -> String {
    let mut text = words(error);
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&words(error));
        cause = error.source();
    }
    text
}

fn words(error: &(dyn Error + 'static)) -> String {
    if let Some(error) = error.downcast_ref() {
        return peer_words(error);
    }
    error.downcast_ref().map_or_else(|| error.to_string(), engine_words)
}

/// Returns the words for an error whose cause is printed after it.
fn engine_words(error: &EngineError) -> String {
    match error {
        EngineError::Connect { address, .. } => {
            format!("cannot connect to {address}; check that 'longhaul serve' runs there")
        }
        EngineError::DataConnect { stream, address, .. } => format!(
            "cannot open data connection {stream} to {address}; check that the firewall allows \
             the port"
        ),
        EngineError::Handshake { peer, .. } => {
            format!("TLS handshake with {peer} failed; check that it is 'longhaul serve'")
        }
        EngineError::TurnedAway { peer, reason } => turned_away(peer, *reason),
        EngineError::KeyChanged { host, known, offered, file } => format!(
            "the key of {host} changed from {known} to {offered}; if you expect this, remove the \
             line of {host} from {}",
            file.display()
        ),
        EngineError::KeyUnknown { host, offered } => format!(
            "the server {host} is not known; if its key is {offered} ('longhaul key \
             --fingerprint' prints it there), add --accept-new once to record it"
        ),
        EngineError::Locked(path) => format!(
            "{path} is encrypted and no passphrase was given; run this in a terminal, set \
             LONGHAUL_ASKPASS to a program that prints the passphrase, or run 'ssh-add {path}'",
            path = path.display()
        ),
        EngineError::WrongPassphrase(path) => {
            format!("wrong passphrase for {}; try again", path.display())
        }
        EngineError::NoNextKey(path) => {
            format!("{}: no such key; create it with 'longhaul key --rotate'", path.display())
        }
        EngineError::KeyOption { file, line, option } => format!(
            "{}:{line}: unknown option '{option}'; 'longhaul serve --help' lists the options of \
             keys",
            file.display()
        ),
        EngineError::NoConfigDir => {
            "no directory for the identity key; set HOME or XDG_CONFIG_HOME".to_owned()
        }
        EngineError::Lapsed { peer, lapse } => {
            format!("ended the session of {peer}: {}", lapse_text(*lapse))
        }
        EngineError::Refused { peer, kind, reason } => refused(peer, *kind, reason),
        EngineError::NoSpace { path, needs, free, keeps } => {
            let reserve = match keeps.get() {
                0 => String::new(),
                _ => format!(", of which {keeps} stay free (--min-free)"),
            };
            format!(
                "the copy needs {needs}, and {free} are free in {}{reserve}; free some space and \
                 run the same command again",
                path.display()
            )
        }
        EngineError::OverQuota { needs, left, limit } => over_quota(*needs, *left, *limit),
        EngineError::NoCpu { cpu } => format!(
            "CPU {cpu} is not available to this process; choose CPUs that 'taskset -cp $$' prints \
             (-A)"
        ),
        EngineError::Failed { peer, reason, .. } if peer == THIS_HOST => reason.clone(),
        EngineError::Failed { peer, reason, .. } => format!("{peer} stopped: {reason}"),
        EngineError::Stalled { peer, waits_for, time } => format!(
            "no progress for {} s: waited for {peer} to {}; --give-up sets the limit",
            time.as_secs(),
            awaited(*waits_for)
        ),
        // These sentences need no names of options.
        EngineError::Address(_)
        | EngineError::Resolve { .. }
        | EngineError::DataMissing { .. }
        | EngineError::Listen { .. }
        | EngineError::BadKey(_)
        | EngineError::NoAgentKey { .. }
        | EngineError::Exposed { .. }
        | EngineError::Control { .. }
        | EngineError::Protocol { .. }
        | EngineError::Data { .. }
        | EngineError::File { .. }
        | EngineError::Spawn { .. }
        | EngineError::SocketOption(_)
        | EngineError::System { .. }
        | EngineError::Interrupted => error.to_string(),
    }
}

/// Returns the reason why a key is no longer accepted.
pub(crate) fn lapse_text(lapse: Lapse) -> &'static str {
    match lapse {
        Lapse::Removed => "its key was removed from authorized_keys",
        Lapse::Expired => "the expiry-time of its key has passed",
        Lapse::Address => "from= does not allow its key from this address",
    }
}

fn turned_away(peer: &str, reason: TurnedAway) -> String {
    match reason {
        TurnedAway::Crowded => format!(
            "{peer} has too many unauthenticated connections; try again in a few seconds \
             ('longhaul serve --max-startups' sets the limit there)"
        ),
        TurnedAway::Penalty => format!(
            "{peer} refuses connections from this address after failed attempts; try again in ten \
             minutes at most ('longhaul serve --no-penalties' disables this there)"
        ),
        TurnedAway::Closed => format!(
            "{peer} closed the connection during the TLS handshake: it is busy or is not \
             'longhaul serve'; try again in a few seconds"
        ),
    }
}

/// A reason about a file names the file, so it needs no introduction.
fn refused(peer: &str, kind: RefusalKind, reason: &str) -> String {
    match (peer == THIS_HOST, kind) {
        (true, RefusalKind::Files) => reason.to_owned(),
        (true, _) => format!("refused: {reason}"),
        (false, RefusalKind::Files) => format!("{peer}: {reason}"),
        (false, _) => format!("{peer}: refused: {reason}"),
    }
}

fn over_quota(needs: Bytes, left: Bytes, limit: Bytes) -> String {
    format!(
        "the copy needs {needs}, and {left} are left of this key's quota of {limit}; delete files \
         there or ask for a larger quota, then run the same command again"
    )
}

fn awaited(waits_for: WaitsFor) -> String {
    let files = |count: usize| if count == 1 { "file" } else { "files" };
    match waits_for {
        WaitsFor::Wanted => "request files".to_owned(),
        WaitsFor::TakeData => "receive data".to_owned(),
        WaitsFor::Confirm(0) => "confirm the copy".to_owned(),
        WaitsFor::Confirm(count) => format!("confirm {count} {}", files(count)),
        WaitsFor::Announce => "announce more files or the end".to_owned(),
        WaitsFor::Send(count) => format!("send the data of {count} {}", files(count)),
        WaitsFor::GoOn => "continue".to_owned(),
        WaitsFor::Check => "read files".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn refusal(peer: &str, kind: RefusalKind) -> String {
        failure_text(&EngineError::Refused {
            peer: peer.to_owned(),
            kind,
            reason: "x: no such directory".to_owned(),
        })
    }

    #[test]
    fn a_refusal_names_the_server_and_the_kind() {
        assert_eq!(
            refusal("far:5210", RefusalKind::Limit),
            "far:5210: refused: x: no such directory"
        );
        assert_eq!(refusal("far:5210", RefusalKind::Files), "far:5210: x: no such directory");
        assert_eq!(refusal(THIS_HOST, RefusalKind::Limit), "refused: x: no such directory");
        assert_eq!(refusal(THIS_HOST, RefusalKind::Files), "x: no such directory");
    }

    #[test]
    fn causes_follow_the_error() {
        let source = io::Error::other("reset");
        let error = EngineError::Handshake { peer: "far".to_owned(), source };
        let context = anyhow::Error::from(error).context("cannot copy");
        assert_eq!(
            failure_text(context.as_ref()),
            "cannot copy: TLS handshake with far failed; check that it is 'longhaul serve': reset"
        );
    }
}
