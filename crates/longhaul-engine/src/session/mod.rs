//! Sessions: the connection of a client and a server, their authentication, and their data
//! connections.
//!
//! A session has one control channel (TLS 1.3 with raw Ed25519 keys, or the standard input and
//! output of an ssh connection) and a secret that both ends derive from it. Every data connection
//! begins with a [hello](longhaul_core::wire::DataHello) that the secret authenticates, so a third
//! party can neither join nor hijack a transfer.
//!
//! The module `serve` decides on rights; other modules move the payload.

mod address;
mod agent;
mod allowance;
mod authorized;
mod channel;
mod client;
mod conditions;
mod config_dir;
mod data_acceptor;
mod data_dialer;
mod deadline;
mod exposure;
mod flow_port;
mod grant;
mod identity;
mod key_file;
mod key_list;
mod key_quota;
mod key_rate;
mod known_hosts;
mod local_address;
mod message_clock;
mod private_file;
mod public_key;
mod rotation;
mod secret;
mod server;
mod tls;
mod udp;
mod udp_listener;
mod work;

pub(crate) use address::canonical;
pub use address::{DEFAULT_PORT, HostPort};
pub use allowance::Shortage;
pub(crate) use allowance::{Announced, DescriptorSource};
pub(crate) use authorized::KeySession;
pub use authorized::{AuthorizedKeys, KeysEvent, KeysWatch};
pub use channel::{ControlReceiver, ControlSender, control};
pub(crate) use client::await_welcome;
pub use client::{
    ConnectOptions, HostPolicy, Queued, Session, connect, connect_early, connect_queued,
    connect_unasked, greet,
};
pub use conditions::Sources;
pub use config_dir::ConfigDir;
pub(crate) use data_acceptor::{Admitted, LONG_PATH};
pub use data_acceptor::{DataAcceptor, SessionRegistry};
pub(crate) use data_dialer::DataRoute;
pub use data_dialer::{DataDialer, Tunnel};
pub(crate) use deadline::OPENING_TIMEOUT;
pub use exposure::Exposure;
pub use flow_port::FlowPort;
pub use grant::{Grant, KeyLapse, OptionFault, Rights};
pub use identity::{AskPassphrase, Identity};
pub use key_list::IgnoredLines;
pub(crate) use key_quota::{CountError, KeyQuota, OverQuota};
pub(crate) use key_rate::{KeyRate, RateDirection, Reserved, Throttle};
pub use known_hosts::KnownHosts;
pub(crate) use local_address::bind_to;
pub use local_address::{Family, LocalAddress};
pub use private_file::{secret_text, trusted_text};
pub use public_key::PublicKey;
pub use secret::{SessionSecret, StreamKey, random_keying_material};
pub use server::ServedSession;
pub(crate) use server::{Opening, serve_tls};
pub(crate) use udp::FlowAnswers;
pub(crate) use udp_listener::UdpListener;
pub use work::{Operation, SessionWork, WorkRecord};
