//! The control channel of a sink: handles the source's messages.

use std::sync::atomic::Ordering;

use longhaul_core::wire::copy::SourceMessage;

use super::entry_file::{Intake, NextStages};
use super::shared::{SinkShared, broken};
use crate::error::{EngineError, Result};
use crate::lock;
use crate::session::ControlReceiver;

/// Handles the source's messages until the channel ends.
pub(super) fn follow_source(
    shared: &SinkShared<'_>,
    control: &mut ControlReceiver,
    onward: &NextStages,
) -> Result<std::convert::Infallible> {
    let peer = control.peer().to_owned();
    let mut announced = 0;
    loop {
        let message = control.receive()?;
        if shared.ended_too_long_ago() {
            return Err(broken(&peer, "it still sends messages after the end of the copy"));
        }
        match &message {
            SourceMessage::Alive { stages } if stages.read.unwrap_or(0.0) > 0.0 => {
                shared.context.watchdog.claim();
            }
            SourceMessage::Alive { .. } => {}
            _ => shared.context.watchdog.step(),
        }
        match message {
            SourceMessage::Entries(entries) => {
                announced += entries.len() as u64;
                Intake::new(shared, onward, &peer).take_entries(entries)?;
            }
            SourceMessage::Failed { id, path, reason } => {
                lock(&shared.records.reports).fail(path.to_string(), reason);
                if let Some(file) = id.and_then(|id| shared.records.ledger.failed(id)) {
                    shared.recorder.dropped(&file);
                    shared.settle_claim(&file);
                    shared.records.ledger.failure_reported();
                }
            }
            SourceMessage::Skipped { path, reason } => {
                lock(&shared.records.reports).skip(path.to_string(), reason);
            }
            SourceMessage::Length { id, size_bytes } => {
                Intake::new(shared, onward, &peer).end_stream(id, size_bytes.get())?;
            }
            SourceMessage::End { entries } if entries == announced => {
                shared.context.progress.listed.store(true, Ordering::Relaxed);
                shared.records.ledger.end(entries);
            }
            SourceMessage::End { .. } => {
                return Err(broken(&peer, "it announced another number of entries"));
            }
            SourceMessage::Streams { wanted } => {
                shared.records.wanted.store(wanted, Ordering::Relaxed);
            }
            SourceMessage::Report(report) => *lock(&shared.records.source) = Some(*report),
            SourceMessage::Alive { stages } => shared.context.progress.source_is(stages),
            SourceMessage::Abort { again: false } => return Err(EngineError::Interrupted),
            SourceMessage::Abort { again: true } => {
                let reason = "the source lost a connection".to_owned();
                return Err(EngineError::Failed { peer, reason, again: true });
            }
        }
    }
}
