//! What passes on the control channel from the source.

use std::sync::atomic::Ordering;

use longhaul_core::wire::copy::SourceMessage;

use super::entry::take_entries;
use super::run::{Shared, broken};
use crate::copy::link::keep;
use crate::error::{EngineError, Result};
use crate::lock::lock;
use crate::session::ControlReceiver;

/// Hears the source out; ends only with the channel.
pub(super) fn follow_source(
    shared: &Shared<'_>,
    control: &mut ControlReceiver,
) -> Result<std::convert::Infallible> {
    let peer = control.peer().to_owned();
    let mut announced = 0;
    loop {
        match control.receive()? {
            SourceMessage::Entries(entries) => {
                announced += entries.len() as u64;
                take_entries(shared, entries, &peer)?;
            }
            SourceMessage::Failed { id, path, reason } => {
                keep(&mut lock(&shared.failures), path.to_string(), reason);
                if id.is_some_and(|id| shared.ledger.failed(id).is_some()) {
                    shared.ledger.failure_told();
                }
            }
            SourceMessage::Skipped { path, reason } => {
                keep(&mut lock(&shared.skipped), path.to_string(), reason);
            }
            SourceMessage::End { entries } if entries == announced => {
                shared.progress.listed.store(true, Ordering::Relaxed);
                shared.ledger.end(entries);
            }
            SourceMessage::End { .. } => {
                return Err(broken(&peer, "it announced another number of entries"));
            }
            SourceMessage::Report(report) => *lock(&shared.source) = Some(report),
            SourceMessage::Alive => {}
            SourceMessage::Abort => return Err(EngineError::Interrupted),
        }
    }
}
