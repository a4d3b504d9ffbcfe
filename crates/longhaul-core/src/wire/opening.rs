//! The opening messages of a control channel.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// The version of the wire protocol. A peer of another version is refused with an error that names
/// both versions. To make this possible, [`AnyHello`] and [`Welcome::Refused`] never change.
pub const PROTOCOL_VERSION: u32 = 3;

/// The service that a client requests when it opens a control channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Service {
    /// A memory-to-memory test.
    Test,
    /// A copy of files.
    Copy,
    /// A test between this server and another one.
    ThirdParty,
    /// A path measurement.
    Path,
    /// The steps of a diagnosis at one end, which reads or writes files and examines its host.
    #[serde(rename = "rung")]
    Diagnose,
}

/// The client's first message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL_VERSION`] of the client.
    pub protocol: u32,
    /// The client's program version, for messages.
    pub version: String,
    /// The requested service.
    pub service: Service,
}

/// A [`Hello`] of any version. The server reads it first, because it may not understand the rest.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct AnyHello {
    /// The client's protocol version.
    pub protocol: u32,
    /// The client's program version, for messages.
    #[serde(default)]
    pub version: String,
    /// The requested service, which may be unknown in this version.
    #[serde(default)]
    service: serde_json::Value,
}

impl AnyHello {
    /// Returns the client's program version, cut to a length that fits a sentence.
    pub fn short_version(&self) -> &str {
        let end = self.version.char_indices().nth(32).map_or(self.version.len(), |(at, _)| at);
        &self.version[..end]
    }

    /// Returns the requested service; `None` if this version does not know it.
    pub fn service(&self) -> Option<Service> {
        Service::deserialize(&self.service).ok()
    }
}

/// The first message of a server that was started over ssh, sent before the client's [`Hello`]: the
/// address for data connections, and the secret that authenticates them. The ssh channel protects
/// the secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FarReady {
    /// The TCP port for data connections.
    pub port: u16,
    /// The address at which ssh reached the server, if ssh reports it.
    pub address: Option<IpAddr>,
    /// The random keying material of the session.
    pub secret: [u8; 32],
}

/// The server's answer to a [`Hello`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Welcome {
    /// The client may request the service.
    Ready {
        /// The server's program version.
        version: String,
        /// The announced keys; the first versions send `None`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        host_keys: Option<HostKeys>,
    },
    /// Other clients are ahead in the queue. Sent when the position changes and every few seconds,
    /// until another answer follows.
    Queued {
        /// The position in the queue, from 1.
        place: u32,
    },
    /// The server refuses the service and then closes the channel.
    Refused {
        /// The class of the reason, which decides the client's exit code.
        kind: RefusalKind,
        /// The reason as one sentence for the user.
        reason: String,
    },
}

/// The server's keys other than the one that it presented. Keys are text, as in `known_hosts`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HostKeys {
    /// The keys that it will present later.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<HostKey>,
    /// The former keys that it will not present again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retired: Vec<String>,
}

/// A key that a server will present later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostKey {
    /// The key.
    pub key: String,
    /// The key's signature for this session, 64 bytes in base64; `docs/design/wire.md` defines the
    /// signed bytes.
    pub proof: String,
}

/// The class of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalKind {
    /// The protocol version differs.
    Version,
    /// The client's key is not authorized, or the service is not offered.
    #[serde(rename = "not_authorised")]
    NotAuthorized,
    /// A limit of the server: clients, streams, time.
    Limit,
    /// The request is invalid.
    Invalid,
    /// A file or directory at the server is unusable.
    Files,
    /// The other server, to which the server should connect, is unreachable.
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

    /// The bytes that version 0.1 sends and reads.
    const FIRST_READY: &str = r#"{"ready":{"version":"0.1.0"}}"#;
    const ANNOUNCING_READY: &str = concat!(
        r#"{"ready":{"version":"0.2.0","host_keys":{"keys":[{"key":"longhaul-ed25519 AAAA","#,
        r#""proof":"c2ln"}],"retired":["longhaul-ed25519 BBBB"]}}}"#
    );

    #[test]
    fn host_keys_are_an_optional_part_of_the_welcome() {
        let first = Welcome::Ready { version: "0.1.0".to_owned(), host_keys: None };
        assert_eq!(serde_json::from_str::<Welcome>(FIRST_READY).unwrap(), first);
        assert_eq!(serde_json::to_string(&first).unwrap(), FIRST_READY);
        let key = "longhaul-ed25519 AAAA".to_owned();
        let keys = HostKeys {
            keys: vec![HostKey { key, proof: "c2ln".to_owned() }],
            retired: vec!["longhaul-ed25519 BBBB".to_owned()],
        };
        let ready = Welcome::Ready { version: "0.2.0".to_owned(), host_keys: Some(keys) };
        assert_eq!(serde_json::to_string(&ready).unwrap(), ANNOUNCING_READY);
        assert_eq!(serde_json::from_str::<Welcome>(ANNOUNCING_READY).unwrap(), ready);
        /// The message as version 0.1 declares it.
        #[derive(Debug, Deserialize)]
        #[serde(rename_all = "snake_case")]
        enum First {
            Ready { version: String },
        }
        let First::Ready { version } = serde_json::from_str(ANNOUNCING_READY).unwrap();
        assert_eq!(version, "0.2.0", "an older client passes over it");
    }
}
