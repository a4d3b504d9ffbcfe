//! Words for the errors of the engine.

use std::fmt::Display;
use std::io;

use super::key_list::option_words;
use longhaul_core::units::Bytes;
use longhaul_core::wire::RefusalKind;
use longhaul_engine::session::{Exposure, KeyLapse};
use longhaul_engine::{EngineError, HandshakeRefusal, WaitsFor};

/// The name that the engine gives to a server in this process.
const THIS_HOST: &str = "this host";

/// Returns the words for an error whose cause is printed after it.
pub(super) fn engine_words(error: &EngineError) -> String {
    connection_words(error).or_else(|| key_words(error)).unwrap_or_else(|| run_words(error))
}

/// Returns the words for an error of finding, reaching or recognizing a host.
fn connection_words(error: &EngineError) -> Option<String> {
    Some(match error {
        EngineError::Resolve { host, .. } => {
            format!("cannot find the host '{host}'; check the name")
        }
        EngineError::LocalAddress { address, .. } => {
            format!("cannot bind to {address}; choose an address of this host ('ip address')")
        }
        EngineError::OtherFamily { host, local, ipv6 } => {
            let version = if *ipv6 { "IPv6" } else { "IPv4" };
            format!(
                "{host} has no {version} address, which the local address {local} needs; choose \
                 another local address"
            )
        }
        // An error of the kernel has a number.
        EngineError::Connect { address, source }
            if source.kind() == io::ErrorKind::AddrNotAvailable
                && source.raw_os_error().is_none() =>
        {
            format!("cannot connect to {address} with this version of IP; omit -4 or -6")
        }
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
        EngineError::HandshakeRefusal { peer, reason } => handshake_refused(peer, *reason),
        EngineError::FarProgram { host, program } => format!(
            "cannot run {program} on {host}; give its path there with --far-longhaul PATH, or \
             install it with 'longhaul cp --install-far {host}'"
        ),
        EngineError::Login { host } => {
            format!("ssh did not reach {host}; check that 'ssh {host} true' works")
        }
        EngineError::FarTimeout { host, seconds } => format!(
            "ssh to {host} did not end within {seconds} s; check that 'ssh {host} true' works"
        ),
        _ => return None,
    })
}

/// Returns the words for an error of a key.
fn key_words(error: &EngineError) -> Option<String> {
    Some(match error {
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
        EngineError::NoAgentKey { path, fingerprint } => format!(
            "{} is a public key, and no ssh-agent has the private key of {fingerprint}; set \
             SSH_AUTH_SOCK, and add the key with ssh-add",
            path.display()
        ),
        EngineError::Exposed { path, exposure } => {
            format!("refusing to use a key file: {}", exposed(&path.display(), exposure))
        }
        EngineError::NoNextKey(path) => {
            format!("{}: no such key; create it with 'longhaul key --rotate'", path.display())
        }
        EngineError::KeyOption { file, line, option, fault } => {
            format!("{}:{line}: {}", file.display(), option_words(option, *fault))
        }
        EngineError::NoConfigDir => {
            "no directory for the identity key; set HOME or XDG_CONFIG_HOME".to_owned()
        }
        EngineError::Lapsed { peer, lapse } => {
            format!("ended the session of {peer}: {}", lapse_text(*lapse))
        }
        _ => return None,
    })
}

/// Returns the words for an error of a test or copy, and for every error without words of its own.
fn run_words(error: &EngineError) -> String {
    match error {
        EngineError::Refused { peer, kind, reason } => refused(peer, *kind, reason),
        EngineError::NoSpace { reserve, .. } => {
            let lower = if reserve.get() == 0 { "" } else { " or lower --min-free" };
            format!("{error}; free some space{lower}, then run the same command again")
        }
        EngineError::OverQuota { needs, left, limit } => over_quota(*needs, *left, *limit),
        EngineError::NoCpu { cpu } => format!(
            "CPU {cpu} is not available to this process; choose CPUs that 'taskset -cp $$' prints \
             (--affinity)"
        ),
        EngineError::Failed { peer, reason, .. } if peer == THIS_HOST => reason.clone(),
        EngineError::Failed { peer, reason, .. } => format!("{peer} stopped: {reason}"),
        EngineError::Stalled { peer, waits_for, time } => format!(
            "no progress for {} s: waited for {peer} to {}; --give-up sets the limit",
            time.as_secs(),
            awaited(*waits_for)
        ),
        // The functions above word these errors.
        EngineError::Resolve { .. }
        | EngineError::LocalAddress { .. }
        | EngineError::OtherFamily { .. }
        | EngineError::Connect { .. }
        | EngineError::DataConnect { .. }
        | EngineError::Handshake { .. }
        | EngineError::HandshakeRefusal { .. }
        | EngineError::FarProgram { .. }
        | EngineError::Login { .. }
        | EngineError::FarTimeout { .. }
        | EngineError::KeyChanged { .. }
        | EngineError::KeyUnknown { .. }
        | EngineError::Locked(_)
        | EngineError::WrongPassphrase(_)
        | EngineError::NoAgentKey { .. }
        | EngineError::Exposed { .. }
        | EngineError::NoNextKey(_)
        | EngineError::KeyOption { .. }
        | EngineError::NoConfigDir
        | EngineError::Lapsed { .. }
        // These sentences need no names of options.
        | EngineError::Address(_)
        | EngineError::DataMissing { .. }
        | EngineError::Listen { .. }
        | EngineError::BadKey(_)
        | EngineError::Control { .. }
        | EngineError::Protocol { .. }
        | EngineError::InvalidEntry { .. }
        | EngineError::Data { .. }
        | EngineError::File { .. }
        | EngineError::Spawn { .. }
        | EngineError::SocketOption(_)
        | EngineError::System { .. }
        | EngineError::Interrupted => error.to_string(),
    }
}

/// Returns the reason why a key is no longer accepted.
pub(crate) fn lapse_text(lapse: KeyLapse) -> &'static str {
    match lapse {
        KeyLapse::Removed => "its key was removed from authorized_keys",
        KeyLapse::Expired => "the expiry-time of its key has passed",
        KeyLapse::Address => "from= does not allow its key from this address",
    }
}

fn exposed(path: &dyn Display, exposure: &Exposure) -> String {
    match exposure {
        Exposure::Owner { found, wanted } => format!(
            "{path} belongs to user {found}; check its contents, then run 'chown {wanted} {path}'"
        ),
        Exposure::Writable { mode } => format!(
            "other users may write to {path} (mode {mode:04o}); check its contents, then run \
             'chmod go-w {path}'"
        ),
        Exposure::Readable { mode } => format!(
            "other users may read {path} (mode {mode:04o}); run 'chmod 600 {path}', and make a new \
             key if another user may have read it"
        ),
        Exposure::NoFile => format!("{path} is not a regular file; remove it"),
    }
}

fn handshake_refused(peer: &str, reason: HandshakeRefusal) -> String {
    match reason {
        HandshakeRefusal::Crowded => format!(
            "{peer} has too many unauthenticated connections; try again in a few seconds \
             ('longhaul serve --max-startups' sets the limit there)"
        ),
        HandshakeRefusal::Penalty => format!(
            "{peer} refuses connections from this address after failed attempts; try again in ten \
             minutes at most ('longhaul serve --no-penalties' disables this there)"
        ),
        HandshakeRefusal::Closed => format!(
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
    use super::*;

    fn refusal(peer: &str, kind: RefusalKind) -> String {
        engine_words(&EngineError::Refused {
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
    fn missing_space_names_the_reserve_and_its_option() {
        let text = |free, reserve| {
            engine_words(&EngineError::NoSpace {
                path: "/data".into(),
                needs: Bytes::mib(3),
                free: Bytes::mib(free),
                reserve: Bytes::mib(reserve),
            })
        };
        let needs = "the copy needs 3.00 MiB, and 2.00 MiB are free in /data";
        let again = "then run the same command again";
        assert_eq!(text(2, 0), format!("{needs}; free some space, {again}"));
        let remedy = format!("free some space or lower --min-free, {again}");
        assert_eq!(text(2, 1), format!("{needs}, of which 1.00 MiB stay free; {remedy}"));
        assert_eq!(text(2, 2), format!("{needs}, but 2.00 MiB must stay free; {remedy}"));
    }

    #[test]
    fn a_missing_address_is_no_missing_server() {
        let text = |kind| {
            let source = io::Error::new(kind, "none");
            engine_words(&EngineError::Connect { address: "far:5210".to_owned(), source })
        };
        assert!(text(io::ErrorKind::AddrNotAvailable).contains("omit -4 or -6"));
        assert!(text(io::ErrorKind::ConnectionRefused).contains("longhaul serve"));
    }
}
