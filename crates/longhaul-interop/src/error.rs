//! The errors of tests with other programs.

use std::io;
use std::time::Duration;

use longhaul_engine::EngineError;

use crate::peer::{PeerAddress, Program};

/// A result of this crate.
pub type Result<T> = std::result::Result<T, InteropError>;

/// An error of a test with another program.
#[derive(Debug, thiserror::Error)]
pub enum InteropError {
    /// The name of the server has no address.
    #[error("cannot find the host '{host}'")]
    Resolve {
        /// The name.
        host: String,
        /// The resolver's error.
        source: io::Error,
    },
    /// The server does not accept a connection.
    #[error("cannot connect to {}:{}", .address.host, .address.port)]
    Connect {
        /// The server.
        address: PeerAddress,
        /// The error of the last attempt.
        source: io::Error,
    },
    /// The peer closed the control connection, or the connection broke.
    #[error("{peer} closed the connection while {during}")]
    Closed {
        /// The peer.
        peer: PeerName,
        /// The step of the protocol.
        during: Step,
        /// The error of the connection, if it was not closed in order.
        source: Option<io::Error>,
    },
    /// The peer sent nothing for too long.
    #[error("{peer} sent nothing for {} s while {during}", .limit.as_secs())]
    Silent {
        /// The peer.
        peer: PeerName,
        /// The step of the protocol.
        during: Step,
        /// The limit.
        limit: Duration,
    },
    /// The peer sent something that its protocol does not allow.
    #[error("{peer} does not follow the protocol while {during}: {fault}")]
    Protocol {
        /// The peer.
        peer: PeerName,
        /// The step of the protocol.
        during: Step,
        /// The fault.
        fault: Fault,
    },
    /// The server is busy with another client.
    #[error("{peer} is busy with another client")]
    Busy {
        /// The peer.
        peer: PeerName,
    },
    /// The server refused the user or the password.
    #[error("{peer} refused the user name or the password")]
    Denied {
        /// The peer.
        peer: PeerName,
        /// True if the server states this, false if it only ended the connection, as versions 3.12 and
        /// 3.21 may do.
        stated: bool,
    },
    /// The server refused the test with a reason in its own words.
    #[error("{peer} refused the test: {}", reason.join("; "))]
    Refused {
        /// The peer.
        peer: PeerName,
        /// The lines that the server sent, as printable ASCII.
        reason: Vec<String>,
    },
    /// The peer reported an error with a number of its program.
    #[error("{peer} reported error {code} while {during}")]
    Reported {
        /// The peer.
        peer: PeerName,
        /// The step of the protocol.
        during: Step,
        /// The number of the error in the peer's program.
        code: i32,
        /// The number of the operating system's error; 0 if there is none.
        os_code: i32,
    },
    /// The peer ended the test early.
    #[error("{peer} ended the test while {during}")]
    Terminated {
        /// The peer.
        peer: PeerName,
        /// The step of the protocol.
        during: Step,
    },
    /// The protocol or this peer's version does not have an option of the plan.
    #[error("{peer} does not support {wanted:?}")]
    Unsupported {
        /// The peer.
        peer: PeerName,
        /// The option.
        wanted: PeerOption,
        /// The first version with the option; `None` if no version has it.
        since: Option<&'static str>,
    },
    /// A data connection was cut during the test.
    #[error("the test with {peer} was cut off: {reason}")]
    Cut {
        /// The peer.
        peer: PeerName,
        /// The reason, as the engine reports it.
        reason: String,
    },
    /// A file with a key or password cannot be used.
    #[error("cannot use {path}")]
    KeyFile {
        /// The file.
        path: std::path::PathBuf,
        /// The error.
        source: io::Error,
    },
    /// The private key or the file of the users of a server cannot be used.
    #[error("cannot use {path}: {source}")]
    UserFile {
        /// The file.
        path: std::path::PathBuf,
        /// The error.
        source: io::Error,
    },
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// An operation of this host failed.
    #[error("cannot {operation}")]
    Host {
        /// The operation.
        operation: &'static str,
        /// The error.
        source: io::Error,
    },
}

/// A peer with the version that it stated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerName {
    /// The program.
    pub program: Program,
    /// The version; `None` if the peer has not stated one.
    pub version: Option<String>,
    /// The address.
    pub address: String,
}

impl std::fmt::Display for PeerName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.program)?;
        if let Some(version) = &self.version {
            write!(f, " {version}")?;
        }
        write!(f, " at {}", self.address)
    }
}

/// A step of the control protocol of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The first messages of both ends.
    Greeting,
    /// The parameters of the test.
    Parameters,
    /// The data connections.
    Streams,
    /// The first datagrams of a UDP flow, which a firewall may drop.
    FirstDatagram,
    /// The test.
    Running,
    /// The results of both ends.
    Results,
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Step::Greeting => "the greetings were exchanged",
            Step::Parameters => "the parameters were exchanged",
            Step::Streams => "the data connections were opened",
            Step::FirstDatagram => "the first datagram of a stream was sent",
            Step::Running => "the test ran",
            Step::Results => "the results were exchanged",
        })
    }
}

/// The way in which a peer does not follow its protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// A message that does not belong to this step; its number or first byte.
    Unexpected(i32),
    /// A message longer than the limit in bytes.
    TooLong {
        /// The length that the peer announced.
        bytes: u64,
        /// The longest accepted length.
        limit: u64,
    },
    /// A document that is not JSON, is nested too deeply, or ends early.
    Malformed,
    /// A document without a required field, or with a value out of range; the name of the field.
    Field(&'static str),
    /// A stream that does not exist; its number.
    NoStream(i64),
    /// A line of text that does not belong to this step, as printable ASCII.
    Line(String),
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Fault::Unexpected(number) => write!(f, "unexpected message {number}"),
            Fault::TooLong { bytes, limit } => {
                write!(f, "a message of {bytes} bytes exceeds the limit of {limit}")
            }
            Fault::Malformed => f.write_str("a malformed document"),
            Fault::Field(name) => write!(f, "a missing or invalid field '{name}'"),
            Fault::NoStream(number) => write!(f, "stream {number} does not exist"),
            Fault::Line(line) => {
                write!(f, "unexpected line {:?}", line.chars().take(80).collect::<String>())
            }
        }
    }
}

/// An option of a plan that a peer may lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerOption {
    /// Both directions at once.
    BothDirections,
    /// Data connections that the server opens.
    Flip,
    /// Multipath TCP.
    Multipath,
    /// The latency of small requests.
    Latency,
    /// Streams over several links.
    Links,
    /// Several CPUs of the server.
    ServerCpus,
    /// A write or datagram length out of the peer's range.
    Length,
    /// An omitted time that is not a whole number of seconds, or too long.
    OmittedTime,
    /// UDP counters of 64 bits.
    LongCounters,
    /// Authentication of the user.
    Authentication,
    /// Zero-copy send by the peer.
    ZeroCopy,
    /// A time or omitted time longer than the peer allows.
    Time,
    /// A socket buffer larger than the peer allows.
    Window,
    /// Several streams in this mode.
    Streams,
    /// A receive without copying by the peer.
    SkipReceiveCopy,
    /// A congestion control.
    Congestion,
    /// A burst length.
    Burst,
    /// A maximum segment size.
    SegmentSize,
    /// No delay of small writes.
    NoDelay,
    /// A differentiated services code point.
    Dscp,
    /// An omitted time.
    Omit,
    /// A supported version of the program.
    Version,
    /// A CPU of the server.
    ServerCpu,
    /// A data port below 5000.
    LowPort,
    /// The jitter as nuttcp measures it.
    Jitter,
    /// The one-way delay.
    Delay,
    /// The source port of the data.
    SourcePort,
    /// An emulated slow start.
    SlowStart,
}
