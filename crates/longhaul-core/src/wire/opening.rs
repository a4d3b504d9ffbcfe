use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// The version of the wire protocol. A peer of another version is refused with both named, for
/// which [`AnyHello`] and [`Welcome::Refused`] stay as they are in every version.
pub const PROTOCOL_VERSION: u32 = 3;

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
    /// A survey of the path.
    Path,
    /// What one end does by itself in a diagnosis: it reads or writes files and looks at its host.
    Rung,
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

/// A [`Hello`] of any version: what a server reads before it knows whether it understands the
/// rest.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct AnyHello {
    /// The client's protocol.
    pub protocol: u32,
    /// The client's program version, for messages.
    #[serde(default)]
    pub version: String,
    /// What it wants, which another version may call by other names.
    #[serde(default)]
    service: serde_json::Value,
}

impl AnyHello {
    /// The client's program version, cut to a length that fits a sentence.
    pub fn short_version(&self) -> &str {
        let end = self.version.char_indices().nth(32).map_or(self.version.len(), |(at, _)| at);
        &self.version[..end]
    }

    /// What it wants; `None` for what this version does not know.
    pub fn service(&self) -> Option<Service> {
        Service::deserialize(&self.service).ok()
    }
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
    /// Others are before this client. Said when its place changes and every few seconds, until
    /// one of the other answers follows.
    Queued {
        /// How many turns it is until its own, from 1.
        place: u32,
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
    /// Another server that it was to send to.
    Unreachable,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_of_any_version_is_read() {
        let hello = Hello { protocol: 2, version: "1.2".to_owned(), service: Service::Test };
        let any: AnyHello = serde_json::from_str(&serde_json::to_string(&hello).unwrap()).unwrap();
        assert_eq!((any.protocol, any.service()), (2, Some(Service::Test)));
        let later = r#"{"protocol":9,"version":"9.0","service":{"dance":["tango"]},"more":[1]}"#;
        let any: AnyHello = serde_json::from_str(later).unwrap();
        assert_eq!((any.protocol, any.short_version(), any.service()), (9, "9.0", None));
        let long = format!(r#"{{"protocol":1,"version":"{}"}}"#, "\u{e9}".repeat(100));
        let any: AnyHello = serde_json::from_str(&long).unwrap();
        assert_eq!(any.short_version().chars().count(), 32);
    }
}
