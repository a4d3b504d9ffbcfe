//! The errors of the engine.

use std::io;
use std::path::PathBuf;

use longhaul_core::units::Bytes;
use longhaul_core::wire::{FrameError, RefusalKind};

use crate::session::{Exposure, KeyLapse, OptionFault};

/// An error of the engine.
///
/// Each message names the operation and its object; the cause is the `source`. Remedies are the
/// program's: messages name no options of its command line.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The text is not `HOST[:PORT]`.
    #[error("'{0}' is not an address: expected HOST, HOST:PORT or [IPV6]:PORT")]
    Address(String),
    /// The name has no address.
    #[error("cannot resolve the host name '{host}'")]
    Resolve {
        /// The name as given.
        host: String,
        /// The resolver's answer.
        source: io::Error,
    },
    /// Nothing answers at the address.
    #[error("cannot connect to {address}")]
    Connect {
        /// Host and port as given.
        address: String,
        /// The last attempt's error.
        source: io::Error,
    },
    /// This host does not have the local address.
    #[error("this host cannot use the local address {address}")]
    LocalAddress {
        /// The address as given.
        address: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The peer has no address of the version of IP of the local address.
    #[error("{host} has no {} address, as the local address {local} needs", if *.ipv6 { "IPv6" } else { "IPv4" })]
    OtherFamily {
        /// The peer as given.
        host: String,
        /// The local address.
        local: String,
        /// True if the local address is an IPv6 address.
        ipv6: bool,
    },
    /// A data connection could not be opened although the control channel is up.
    #[error("cannot open data connection {stream} to {address}")]
    DataConnect {
        /// Its number.
        stream: u32,
        /// The address tried.
        address: String,
        /// The error of the last attempt.
        source: io::Error,
    },
    /// The client did not open its data connections in time.
    #[error("the data connections of {peer} did not arrive in time")]
    DataMissing {
        /// The client.
        peer: String,
    },
    /// The server cannot listen on its port.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: String,
        /// The error of the socket.
        source: io::Error,
    },
    /// The TLS handshake failed: the peer is not longhaul, or the connection broke.
    #[error("TLS handshake with {peer} failed")]
    Handshake {
        /// Host and port.
        peer: String,
        /// The error of the handshake.
        source: io::Error,
    },
    /// The server closed the connection before the handshake was finished.
    #[error("{peer} {reason}")]
    HandshakeRefusal {
        /// Host and port.
        peer: String,
        /// The reason.
        reason: HandshakeRefusal,
    },
    /// The server's key is not the one recorded for it.
    #[error(
        "the key of {host} changed from {known} to {offered}; {} has the known key", .file.display()
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
    #[error("the server {host} with the key {offered} is not known")]
    KeyUnknown {
        /// Host and port.
        host: String,
        /// The offered key's fingerprint.
        offered: String,
    },
    /// A key file cannot be used.
    #[error("{} is not a longhaul key file", .0.display())]
    BadKey(PathBuf),
    /// A private key is encrypted, and no passphrase is available.
    #[error(
        "{path} is encrypted, and no passphrase is available", path = .0.display()
    )]
    Locked(PathBuf),
    /// The passphrase of a private key is wrong.
    #[error("wrong passphrase for {}", .0.display())]
    WrongPassphrase(PathBuf),
    /// The identity is a public key, and no agent has the private half.
    #[error(
        "{} is a public key, and no ssh-agent has the private key of {fingerprint}", .path.display()
    )]
    NoAgentKey {
        /// The identity file.
        path: PathBuf,
        /// The key's fingerprint.
        fingerprint: String,
    },
    /// There is no next key.
    #[error("there is no next key at {}", .0.display())]
    NoNextKey(PathBuf),
    /// Other users can change a file that grants rights, or read a secret one.
    #[error("refusing to use a key file: {}", .exposure.about(.path))]
    Exposed {
        /// The file, or a directory above it.
        path: PathBuf,
        /// The kind of exposure.
        exposure: Exposure,
    },
    /// The text before a key in the authorized list is not an option.
    #[error(
        "invalid option '{option}' in line {line} of {}", .file.display()
    )]
    KeyOption {
        /// The list.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The text.
        option: String,
        /// The fault.
        fault: OptionFault,
    },
    /// The program's own files need a home directory.
    #[error("no directory for the identity key")]
    NoConfigDir,
    /// A session was ended because its key is no longer valid.
    #[error("ended the session of {peer}: {lapse}")]
    Lapsed {
        /// The client.
        peer: String,
        /// The reason.
        lapse: KeyLapse,
    },
    /// The peer refused.
    #[error("{peer} refused: {reason}")]
    Refused {
        /// Host and port.
        peer: String,
        /// The class of the reason.
        kind: RefusalKind,
        /// The peer's reason as a sentence.
        reason: String,
    },
    /// The control channel broke, or a message was invalid.
    #[error("lost the control channel to {peer}")]
    Control {
        /// Host and port.
        peer: String,
        /// The error of the channel.
        source: FrameError,
    },
    /// The peer violated the protocol.
    #[error("{peer} violated the protocol: {what}")]
    Protocol {
        /// Host and port.
        peer: String,
        /// The violation.
        what: &'static str,
    },
    /// The source of a copy announced an invalid entry.
    #[error("{peer} violated the protocol: {violation} {entry}")]
    InvalidEntry {
        /// Host and port.
        peer: String,
        /// The number of the entry.
        entry: u64,
        /// The violation.
        violation: EntryViolation,
    },
    /// A data connection failed.
    #[error("data connection {stream} failed")]
    Data {
        /// Its number.
        stream: u32,
        /// The error of the connection.
        source: io::Error,
    },
    /// An operation on a file failed at this end.
    #[error("cannot {operation} {}", .path.display())]
    File {
        /// A verb: `open`, `read`, `write`, `create`, `sync`.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the file system.
        source: io::Error,
    },
    /// The data to write do not fit.
    #[error("the copy needs {needs}, and {free} are free in {}{}", .path.display(), kept(*.free, *.reserve))]
    NoSpace {
        /// The directory.
        path: PathBuf,
        /// The bytes that are announced and not on the disk.
        needs: Bytes,
        /// The bytes that are free.
        free: Bytes,
        /// The bytes that must stay free; they can exceed the free bytes.
        reserve: Bytes,
    },
    /// A client's files would take more than the quota of its key.
    #[error("the copy needs {needs}, and {left} are left of this key's quota of {limit}")]
    OverQuota {
        /// The bytes that do not fit.
        needs: Bytes,
        /// The bytes that are left.
        left: Bytes,
        /// The quota.
        limit: Bytes,
    },
    /// A helper program cannot be run.
    #[error("cannot run {program}")]
    Spawn {
        /// The program.
        program: String,
        /// The error of the system.
        source: io::Error,
    },
    /// ssh reached the host, and longhaul is not there or cannot run.
    #[error("cannot run {program} on {host}")]
    FarProgram {
        /// `[user@]host`.
        host: String,
        /// The path of longhaul on that host.
        program: String,
    },
    /// ssh, which prints its own reason, did not reach the host.
    #[error("ssh did not reach {host}")]
    Login {
        /// `[user@]host`.
        host: String,
    },
    /// A command on another host did not end in time.
    #[error("ssh to {host} did not end within {seconds} s")]
    FarTimeout {
        /// `[user@]host`.
        host: String,
        /// The limit in seconds.
        seconds: u64,
    },
    /// A requested socket option does not work on this host.
    #[error(transparent)]
    SocketOption(#[from] longhaul_sys::tcp::OptionError),
    /// A thread cannot use the requested CPU.
    #[error("CPU {cpu} is not available to this process")]
    NoCpu {
        /// Its number.
        cpu: u32,
    },
    /// The peer stopped.
    #[error("{peer} stopped: {reason}")]
    Failed {
        /// Host and port.
        peer: String,
        /// The peer's reason as a sentence.
        reason: String,
        /// True if the reason is a lost connection, so that another one may succeed.
        again: bool,
    },
    /// Nothing moved for too long, and this end is idle.
    #[error("no progress for {} s: waited for {peer} to {waits_for}", .time.as_secs())]
    Stalled {
        /// Host and port.
        peer: String,
        /// The awaited step of the peer.
        waits_for: WaitsFor,
        /// The time without progress.
        time: std::time::Duration,
    },
    /// A thread or system resource is missing.
    #[error("cannot {operation}")]
    System {
        /// A verb and its object.
        operation: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// The process was interrupted by Ctrl-C or SIGTERM, or the server ends.
    #[error("interrupted")]
    Interrupted,
}

/// A violation of the protocol in the announcement of an entry. The texts end before its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EntryViolation {
    /// The path is absolute or contains `..`.
    #[error("path outside the target in entry")]
    PathOutside,
    /// The client has not requested the path.
    #[error("path that was not requested in entry")]
    NotRequested,
    /// The announced entries exceed the memory of a copy.
    #[error("too much memory for the entries up to entry")]
    TooMuchMemory,
    /// The target is described, but it is not the copied directory.
    #[error("attributes of a target that is not copied in entry")]
    NotTheTarget,
    /// A hard link names a file that was not announced.
    #[error("link to a file that was not announced in entry")]
    LinkToUnannounced,
    /// A hole is not inside the file.
    #[error("hole outside the file of entry")]
    HoleOutside,
    /// The number is not the next one.
    #[error("entry number out of sequence:")]
    OutOfSequence,
    /// The length of a stream was announced twice, or data exceed it.
    #[error("duplicate end-of-stream for entry")]
    DuplicateEnd,
}

/// The step of the peer that an end of a copy waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitsFor {
    /// The sink names the files that it wants.
    Wanted,
    /// The sink takes data.
    TakeData,
    /// The sink reports that this many files have their final names.
    Confirm(usize),
    /// The source announces entries or the end.
    Announce,
    /// The source sends the data of this many files.
    Send(usize),
    /// One of two servers continues.
    GoOn,
    /// The server is to read files for a check.
    Check,
}

impl std::fmt::Display for WaitsFor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let files = |count: usize| if count == 1 { "file" } else { "files" };
        match *self {
            WaitsFor::Wanted => f.write_str("request files"),
            WaitsFor::TakeData => f.write_str("receive data"),
            WaitsFor::Confirm(0) => f.write_str("confirm the copy"),
            WaitsFor::Confirm(count) => {
                write!(f, "confirm {count} {}", files(count))
            }
            WaitsFor::Announce => f.write_str("announce more files or the end"),
            WaitsFor::Send(count) => write!(f, "send the data of {count} {}", files(count)),
            WaitsFor::GoOn => f.write_str("continue"),
            WaitsFor::Check => f.write_str("read files"),
        }
    }
}

/// The reason why a server closed a connection before the end of the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeRefusal {
    /// It has too many connections that are not authenticated.
    #[error("has too many unauthenticated connections")]
    Crowded,
    /// The client's address has a penalty.
    #[error("refuses connections from this address after failed attempts")]
    Penalty,
    /// The server gave no reason.
    #[error("closed the connection during the TLS handshake")]
    Closed,
}

/// Returns the part of a sentence that names a reserve.
fn kept(free: Bytes, reserve: Bytes) -> String {
    match reserve.get() {
        0 => String::new(),
        _ if reserve >= free => format!(", but {reserve} must stay free"),
        _ => format!(", of which {reserve} stay free"),
    }
}

/// `Result` of the engine.
pub type Result<T> = std::result::Result<T, EngineError>;

impl EngineError {
    /// Returns whether the connection to the peer was lost, or the peer ended its work.
    pub(crate) fn is_loss(&self) -> bool {
        match self {
            EngineError::Control { source, .. } => {
                matches!(source, FrameError::Closed | FrameError::Io(_))
            }
            EngineError::Failed { .. } => true,
            _ => false,
        }
    }

    /// Returns whether the error comes from a lost or corrupted connection, so that another
    /// connection may succeed.
    pub fn may_pass(&self) -> bool {
        match self {
            EngineError::Resolve { .. }
            | EngineError::Connect { .. }
            | EngineError::DataConnect { .. }
            | EngineError::DataMissing { .. }
            | EngineError::Handshake { .. }
            | EngineError::HandshakeRefusal { .. }
            | EngineError::Data { .. } => true,
            EngineError::Control { source, .. } => {
                matches!(source, FrameError::Closed | FrameError::Io(_))
            }
            EngineError::Failed { again, .. } => *again,
            _ => false,
        }
    }

    /// Returns whether the peer violated the protocol.
    pub(crate) fn is_violation(&self) -> bool {
        matches!(self, EngineError::Protocol { .. } | EngineError::InvalidEntry { .. })
    }

    /// Returns the error for the message by which a peer aborted a copy.
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

    /// Returns a function for `map_err` on an operation with a file.
    pub fn file(
        operation: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> EngineError {
        let path = path.into();
        move |source| EngineError::File { operation, path, source }
    }
}
