//! The channels of a copy between its two ends: control messages and data connections.

use std::sync::Arc;
use std::time::Duration;

use super::cancel::Cancel;
use super::streams::Streams;
use super::watchdog::SILENCE_LIMIT;
use crate::HASTE;
use crate::error::{EngineError, Result};
use crate::session::{ControlReceiver, ControlSender};

/// The time that a broken data connection waits for the reason on the control channel.
const REASON_GRACE: Duration = Duration::from_millis(2_000 / HASTE);
/// Both channels of a copy, from either end.
pub(super) struct Channels {
    pub(super) sender: ControlSender,
    pub(super) receiver: ControlReceiver,
    pub(super) streams: Streams,
}

impl Channels {
    /// Lets `cancel` end everything that waits on this link.
    pub(super) fn arm(&self, cancel: &Cancel) -> Result<()> {
        self.streams.arm(cancel)?;
        cancel.on_cancel(self.receiver.closer());
        self.receiver.set_timeout(Some(SILENCE_LIMIT))
    }
}

/// Fails the copy because data connection `stream` broke, unless the other side says a better
/// reason on the control channel first.
pub(super) fn data_failed(cancel: &Arc<Cancel>, stream: u32, source: std::io::Error) {
    let deadline = std::time::Instant::now() + REASON_GRACE;
    let over = || cancel.is_set() || cancel.is_released();
    while !over() && std::time::Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    cancel.fail(EngineError::Data { stream, source });
}
