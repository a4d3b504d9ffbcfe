//! The HTTPS client of an agent.

mod request;
mod tls;
mod url;

pub use request::HubClient;
pub use tls::Trust;
pub use url::{HubUrl, InvalidUrl};
