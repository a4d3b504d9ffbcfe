//! The data that the hub sends to other servers: notifications and remote write.

mod http;
mod mail;
mod notify;
mod protobuf;
mod remote_write;
mod smtp;

pub use http::is_url;
pub(crate) use http::origin;
pub use mail::is_address;
pub(crate) use notify::send_waiting;
pub(crate) use remote_write::stream;
pub use smtp::{MailSecurity, MailServer};

/// The reason why a receiver did not accept a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeliveryError {
    /// True if the same message will be refused again.
    pub(crate) permanent: bool,
    /// The reason as a part of a sentence.
    pub(crate) reason: String,
}

impl DeliveryError {
    /// Returns a failure after which the message is sent again.
    pub(crate) fn for_now(reason: impl ToString) -> Self {
        DeliveryError { permanent: false, reason: reason.to_string() }
    }

    /// Returns a failure that would repeat.
    pub(crate) fn forever(reason: impl ToString) -> Self {
        DeliveryError { permanent: true, reason: reason.to_string() }
    }
}
