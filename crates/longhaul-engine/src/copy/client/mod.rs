//! The client's side of a copy: opens sessions, tries again, and sums up the result.
//!
//! [`push`] and [`pull`] copy between this host and a server, [`between`] between two servers. The
//! bytes are moved by the source and the sink, one of which is the client in `push` and `pull`.

mod between;
mod into_itself;
mod key;
mod request;
mod retry;
mod summary;
mod transfer;

pub use between::{ThirdPartyEnds, between};
pub use into_itself::{SelfCopy, check_apart};
pub use key::CopySecret;
pub(super) use request::REPLY_TIMEOUT;
pub use request::RemoteFiles;
pub use retry::Reconnect;
pub use transfer::{FetchTarget, pull, push};
