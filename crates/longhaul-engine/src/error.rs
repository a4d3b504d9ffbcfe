use std::io;
use std::path::PathBuf;

use longhaul_core::units::Bytes;
use longhaul_core::wire::{FrameError, RefusalKind};

use crate::session::{Exposure, Lapse};

/// What went wrong while bytes were moved or a peer was spoken to.
///
/// Each message names the operation and its object; the cause is the `source`.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// `HOST[:PORT]` does not read as one.
    #[error("'{0}' is not an address: expected HOST, HOST:PORT or [IPV6]:PORT")]
    Address(String),
    /// The name has no address.
    #[error("cannot find the host '{host}'; check the name")]
    Resolve {
        /// The name as given.
        host: String,
        /// The resolver's answer.
        source: io::Error,
    },
    /// Nothing answers at the address.
    #[error("cannot connect to {address}; is 'longhaul serve' running there?")]
    Connect {
        /// Host and port as given.
        address: String,
        /// The last attempt's error.
        source: io::Error,
    },
    /// A data connection could not be opened although the control channel is up.
    #[error("cannot open data connection {stream} to {address}; is the port open in the firewall?")]
    DataConnect {
        /// Its number.
        stream: u32,
        /// The address tried.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// The other side did not open its data connections in time.
    #[error("the data connections of {peer} did not arrive in time")]
    DataMissing {
        /// The client.
        peer: String,
    },
    /// The port cannot be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// The TLS handshake failed: the peer is not longhaul, or the connection broke.
    #[error("cannot agree on encryption with {peer}; is it 'longhaul serve'?")]
    Handshake {
        /// Host and port.
        peer: String,
        /// Why.
        source: io::Error,
    },
    /// The server closed the connection before the handshake was finished.
    #[error("{peer} {reason}")]
    TurnedAway {
        /// Host and port.
        peer: String,
        /// Why.
        reason: TurnedAway,
    },
    /// The server's key is not the one recorded for it.
    #[error(
        "the key of {host} has changed: known is {known}, offered {offered}; if that is right, \
         remove its line from {}", .file.display()
    )]
    KeyChanged {
        /// Host and port.
        host: String,
        /// The recorded key's fingerprint.
        known: String,
        /// The offered key's fingerprint.
        offered: String,
        /// The known-hosts file.
        file: PathBuf,
    },
    /// The server's key is not recorded.
    #[error(
        "the server {host} is not known; if its key is {offered} (see 'longhaul key' there), \
         use --accept-new once to record it"
    )]
    KeyUnknown {
        /// Host and port.
        host: String,
        /// The offered key's fingerprint.
        offered: String,
    },
    /// A key file cannot be used.
    #[error("{} is not a longhaul key file", .0.display())]
    BadKey(PathBuf),
    /// A private key is encrypted, and nobody gave its passphrase.
    #[error(
        "{path} is encrypted and no passphrase was given; run this in a terminal, set \
         LONGHAUL_ASKPASS to a program that prints it, or give the key to an ssh-agent \
         (ssh-add {path})", path = .0.display()
    )]
    Locked(PathBuf),
    /// The passphrase of a private key is another.
    #[error("the passphrase of {} is another; try again", .0.display())]
    WrongPassphrase(PathBuf),
    /// The identity is a public key, and no agent has the private half.
    #[error(
        "{} is a public key, and no ssh-agent has the private half of {fingerprint}; set \
         SSH_AUTH_SOCK, and add the key with ssh-add", .path.display()
    )]
    NoAgentKey {
        /// The identity file.
        path: PathBuf,
        /// The key's fingerprint.
        fingerprint: String,
    },
    /// There is no key to change to.
    #[error("there is no next key at {}; make it with 'longhaul key --rotate'", .0.display())]
    NoNextKey(PathBuf),
    /// A file that says who may do what can be changed, or its secret read, by other users.
    #[error("refusing to use a key file: {}", .exposure.about(.path))]
    Exposed {
        /// The file, or a directory above it.
        path: PathBuf,
        /// How.
        exposure: Exposure,
    },
    /// What stands before a key in the authorised list is no option.
    #[error(
        "line {line} of {} has '{option}' before its key; see 'Keys' in \
         'longhaul serve --help'", .file.display()
    )]
    KeyOption {
        /// The list.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What it has.
        option: String,
    },
    /// The program's own files need a home directory.
    #[error("cannot tell where the identity key is kept; set HOME or XDG_CONFIG_HOME")]
    NoConfigDir,
    /// A session whose key no longer counts was ended.
    #[error("ended the session of {peer}: {lapse}")]
    Lapsed {
        /// The client.
        peer: String,
        /// Why.
        lapse: Lapse,
    },
    /// The other side said no.
    #[error("{peer} refuses: {reason}")]
    Refused {
        /// Host and port.
        peer: String,
        /// The class of the reason.
        kind: RefusalKind,
        /// The sentence it gave.
        reason: String,
    },
    /// The control channel broke or brought nonsense.
    #[error("lost the control channel to {peer}")]
    Control {
        /// Host and port.
        peer: String,
        /// What happened.
        source: FrameError,
    },
    /// The peer did something that the protocol does not allow.
    #[error("{peer} broke the protocol: {what}")]
    Protocol {
        /// Host and port.
        peer: String,
        /// What it did.
        what: &'static str,
    },
    /// A data connection failed.
    #[error("data connection {stream} failed")]
    Data {
        /// Its number.
        stream: u32,
        /// Why.
        source: io::Error,
    },
    /// An operation on a file failed at this end.
    #[error("cannot {operation} {}", .path.display())]
    File {
        /// A verb: `open`, `read`, `write`, `create`, `sync`.
        operation: &'static str,
        /// Its object.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// What is to be written does not fit.
    #[error("the copy needs {needs}, and {free} are free in {}{}; make room and give the same \
             command again", .path.display(), kept(*.keeps))]
    NoSpace {
        /// The directory.
        path: PathBuf,
        /// Bytes that are announced and not on the disk.
        needs: Bytes,
        /// Bytes that are free.
        free: Bytes,
        /// Those of them that stay free.
        keeps: Bytes,
    },
    /// A client's files would take more than the quota of its key.
    #[error(
        "the copy needs {needs}, and {left} are left of this key's quota of {limit}; delete \
             files there, or ask for a larger quota, and give the same command again"
    )]
    OverQuota {
        /// Bytes that do not fit.
        needs: Bytes,
        /// Bytes that are left.
        left: Bytes,
        /// The quota.
        limit: Bytes,
    },
    /// A helper program could not be run.
    #[error("cannot run {program}")]
    Spawn {
        /// The program.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// A socket option that was asked for does not work on this host.
    #[error(transparent)]
    SocketOption(#[from] longhaul_sys::tcp::OptionError),
    /// A thread was to run on a CPU that cannot be used.
    #[error("there is no CPU {cpu} that this process may use; see 'taskset -p $$' and -A")]
    NoCpu {
        /// Its number.
        cpu: u32,
    },
    /// The other side had to give up.
    #[error("{peer} could not go on: {reason}")]
    Failed {
        /// Host and port.
        peer: String,
        /// The sentence it gave.
        reason: String,
        /// It was for a lost connection, and may go on over another.
        again: bool,
    },
    /// Nothing moved for too long, and nothing at this end is at work.
    #[error("nothing has moved for {} s: waited for {peer} to {waits_for}; see --give-up", .time.as_secs())]
    Stalled {
        /// Host and port.
        peer: String,
        /// What it was to do.
        waits_for: WaitsFor,
        /// How long nothing had moved.
        time: std::time::Duration,
    },
    /// A thread or system resource is missing.
    #[error("cannot {operation}")]
    System {
        /// A verb and its object.
        operation: &'static str,
        /// Why.
        source: io::Error,
    },
    /// Ctrl-C, SIGTERM or the server's end.
    #[error("interrupted")]
    Interrupted,
}

/// What an end of a copy waits for the other to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitsFor {
    /// The sink is to say which files it wants.
    Wanted,
    /// The sink is to take data.
    TakeData,
    /// The sink is to report that so many files are in place.
    Confirm(usize),
    /// The source is to announce more, or the end.
    Announce,
    /// The source is to send the data of so many files.
    Send(usize),
    /// One of two servers is to go on.
    GoOn,
    /// The server is to read files for a check.
    Check,
}

impl std::fmt::Display for WaitsFor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let files = |count: usize| if count == 1 { "file" } else { "files" };
        match *self {
            WaitsFor::Wanted => f.write_str("say which files it wants"),
            WaitsFor::TakeData => f.write_str("take data"),
            WaitsFor::Confirm(0) => f.write_str("report that the copy is complete"),
            WaitsFor::Confirm(count) => {
                write!(f, "report {count} {} in place", files(count))
            }
            WaitsFor::Announce => f.write_str("announce what it sends"),
            WaitsFor::Send(count) => write!(f, "send the data of {count} {}", files(count)),
            WaitsFor::GoOn => f.write_str("go on"),
            WaitsFor::Check => f.write_str("read files"),
        }
    }
}

/// Why a server closed a connection before the handshake was finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TurnedAway {
    /// It has too many connections that are not authenticated.
    #[error(
        "has too many connections that are not authenticated yet; try again in a few seconds \
         (there, 'longhaul serve --max-startups' sets the limit)"
    )]
    Crowded,
    /// The client's address has a penalty.
    #[error(
        "refuses connections from this address for a while, after failed ones from it; try again \
         in some minutes, at most ten (there, 'longhaul serve --no-penalties' turns this off)"
    )]
    Penalty,
    /// It did not say.
    #[error(
        "closed the connection during the handshake: it has too many connections, or is not \
         'longhaul serve'; try again in a few seconds"
    )]
    Closed,
}

/// The part of a sentence that names a reserve.
fn kept(keeps: Bytes) -> String {
    match keeps.get() {
        0 => String::new(),
        _ => format!(", of which {keeps} stay free (--min-free)"),
    }
}

/// `Result` of the engine.
pub type Result<T> = std::result::Result<T, EngineError>;

impl EngineError {
    /// Whether it came from a connection that was lost or spoilt, so that the same may succeed
    /// over another.
    pub fn may_pass(&self) -> bool {
        match self {
            EngineError::Resolve { .. }
            | EngineError::Connect { .. }
            | EngineError::DataConnect { .. }
            | EngineError::DataMissing { .. }
            | EngineError::Handshake { .. }
            | EngineError::TurnedAway { .. }
            | EngineError::Data { .. } => true,
            EngineError::Control { source, .. } => {
                matches!(source, FrameError::Closed | FrameError::Io(_))
            }
            EngineError::Failed { again, .. } => *again,
            _ => false,
        }
    }

    /// What the other side said when it gave the copy up.
    pub(crate) fn aborted(
        peer: &str,
        reason: String,
        again: bool,
        kind: Option<RefusalKind>,
    ) -> Self {
        let peer = peer.to_owned();
        match kind {
            Some(kind) => EngineError::Refused { peer, kind, reason },
            None => EngineError::Failed { peer, reason, again },
        }
    }

    /// For `map_err` on an operation with a file.
    pub fn file(
        operation: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> EngineError {
        let path = path.into();
        move |source| EngineError::File { operation, path, source }
    }
}
