use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// The version of the wire protocol. A peer of another version is refused with both named.
pub const PROTOCOL_VERSION: u32 = 1;

/// What a client asks for when it opens a control channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Service {
    /// A memory-to-memory test.
    Test,
    /// A copy of files.
    Copy,
    /// A test between this server and another one.
    ThirdParty,
}

/// The client's first message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL_VERSION`] of the client.
    pub protocol: u32,
    /// The client's program version, for messages.
    pub version: String,
    /// What it wants.
    pub service: Service,
}

/// What the far end of an ssh connection says first, before the client's [`Hello`]: where its
/// data connections are taken, and the secret that binds them, which ssh keeps from others.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FarReady {
    /// The TCP port that it listens on for data connections.
    pub port: u16,
    /// The address at which ssh reached it, if ssh told.
    pub address: Option<IpAddr>,
    /// Random keying material of the session.
    pub secret: [u8; 32],
}

/// The server's answer to a [`Hello`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Welcome {
    /// The service may be asked for now.
    Ready {
        /// The server's program version.
        version: String,
    },
    /// The server will not; the channel is closed after this.
    Refused {
        /// The class of the reason, which decides the client's exit code.
        kind: RefusalKind,
        /// One sentence for the user.
        reason: String,
    },
}

/// Why a server refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalKind {
    /// Another protocol version.
    Version,
    /// The client's key is not in the authorised list, or the service is not offered.
    NotAuthorised,
    /// A limit of the server: clients, streams, time.
    Limit,
    /// The request itself makes no sense.
    Invalid,
    /// A file or directory at the server.
    Files,
}
