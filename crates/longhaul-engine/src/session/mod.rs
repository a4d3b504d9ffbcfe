//! Sessions: how two longhauls meet, prove who they are, and open data connections.
//!
//! A session has one control channel (TLS 1.3 with raw Ed25519 keys, or the standard input and
//! output of an ssh connection) and a secret that both ends derive from it. Every data connection
//! begins with a [hello](longhaul_core::wire::DataHello) authenticated under that secret, so a
//! stranger can neither join nor hijack a transfer.
//!
//! What this does not do: decide who may do what (that is `serve`), or move payload.

mod address;
mod agent;
mod allowance;
mod authorised;
mod channel;
mod client;
mod conditions;
mod deadline;
mod grant;
mod identity;
mod key_file;
mod key_quota;
mod key_rate;
mod known_hosts;
mod private_file;
mod rotation;
mod secret;
mod server;
mod tls;
mod udp;
mod work;

pub use address::{DEFAULT_PORT, HostPort};
pub use allowance::Shortage;
pub(crate) use allowance::{Announced, Descriptors};
pub(crate) use authorised::KeySession;
pub use authorised::{AuthorisedKeys, KeysEvent, KeysWatch};
pub use channel::{ControlReceiver, ControlSender, control};
pub use client::{
    ConnectOptions, DataDialer, Family, HostPolicy, Queued, Session, Tunnel, connect,
    connect_early, connect_queued, connect_unasked, greet,
};
pub(crate) use client::{Route, await_welcome};
pub(crate) use deadline::OPENING_TIMEOUT;
pub use grant::{Grant, Lapse, Rights};
pub use identity::{AskPassphrase, ConfigDir, Identity, PublicKey};
pub(crate) use key_quota::{KeyQuota, OverQuota};
pub(crate) use key_rate::{Direction, KeyRate, Reserved};
pub use known_hosts::KnownHosts;
pub use private_file::Exposure;
pub use secret::{SessionSecret, StreamKey, random_keying_material};
pub(crate) use server::{Admitted, Opening, serve_tls};
pub use server::{DataAcceptor, ServedSession, SessionRegistry};
pub(crate) use udp::{TestAnswers, UdpDoor};
pub use work::{Operation, Work, WorkRecord};
