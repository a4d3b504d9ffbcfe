//! The parts of an upload that exceed a limit of the hub, and are not stored.

use longhaul_fleet::protocol::Severity;

use crate::clock::{DAY, HOUR};
use crate::records::events::{NewEvent, events_since};
use crate::records::intake::{self, Intake};
use crate::records::series::MOST_SERIES;
use crate::store::{Sql, StoreError};

/// The maximum number of bytes of the facts about a host.
pub(super) const MAX_FACTS_BYTES: usize = 512 << 10;
/// The maximum number of events of an agent per hour; an agent that fails often repeats a few per
/// minute.
const MOST_EVENTS: usize = 1000;
/// The bytes of an event besides its texts: its id, origin, subject and the entries in indexes.
const EVENT_BYTES: usize = 256;
/// The maximum age of accepted samples. A journal of 256 MiB has the samples of one interface and its host for
/// almost three weeks.
pub(super) const OLDEST_SAMPLE_MS: i64 = 31 * DAY;
/// The maximum time by which an accepted sample is in the future; an agent's clock may be ahead.
pub(super) const NEWEST_MS: i64 = HOUR;

/// The exceeded limit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Excess {
    /// The size of the facts.
    Facts,
    /// The number of series.
    Series,
    /// The age of samples, or the time by which they are in the future.
    SampleTimes,
    /// The number of events per hour, or their bytes per day.
    Events,
    /// The bytes of samples per day.
    Samples,
    /// The bytes of documents of runs per day.
    Documents,
}

/// Returns the event of a refused part of an upload: one per hour, which counts its repetitions.
pub(super) fn refused(host: &str, excess: Excess, now: i64) -> NewEvent {
    let mebibytes = |part: Intake| part.most_bytes() >> 20;
    let (kind, limit) = match excess {
        Excess::Facts => ("facts_too_large", format!("facts of at most {MAX_FACTS_BYTES} bytes")),
        Excess::Series => ("too_many_series", format!("at most {MOST_SERIES} series of a kind")),
        Excess::SampleTimes => (
            "samples_out_of_time",
            format!(
                "samples that are at most {} days old and at most {} minutes in the future",
                OLDEST_SAMPLE_MS / DAY,
                NEWEST_MS / 60_000
            ),
        ),
        Excess::Events => (
            "too_many_events",
            format!(
                "at most {MOST_EVENTS} events per hour and {} MiB of events per day",
                mebibytes(Intake::Events)
            ),
        ),
        Excess::Samples => (
            "too_many_samples",
            format!("at most {} MiB of samples per day", mebibytes(Intake::Samples)),
        ),
        Excess::Documents => (
            "too_many_documents",
            format!("at most {} MiB of documents of runs per day", mebibytes(Intake::Documents)),
        ),
    };
    NewEvent {
        at_ms: now,
        severity: Severity::Warning,
        kind: kind.to_owned(),
        subject: host.to_owned(),
        message: format!("the agent of {host} exceeds a limit: the hub keeps {limit}"),
        origin: format!("{kind}/{host}/{}", now / HOUR),
    }
}

/// The events of an agent that the hub still accepts.
#[derive(Default)]
pub(super) struct EventAllowance {
    left: usize,
    left_bytes: usize,
    /// The bytes of the accepted events.
    pub(super) bytes: usize,
    /// True if the hub does not accept an event.
    pub(super) is_exceeded: bool,
}

impl EventAllowance {
    /// Returns the number and the bytes of events that the hub accepts from an agent, after those of
    /// the last hour and of this day.
    pub(super) fn of(
        sql: &mut dyn Sql,
        (agent, host): (&str, &str),
        now: i64,
    ) -> Result<Self, StoreError> {
        let present = events_since(sql, host, now - HOUR, MOST_EVENTS as i64)?;
        let left = MOST_EVENTS.saturating_sub(usize::try_from(present).unwrap_or(0));
        let left_bytes = intake::remaining_bytes(sql, agent, Intake::Events, now)?;
        let left_bytes = usize::try_from(left_bytes).unwrap_or(0);
        Ok(EventAllowance { left, left_bytes, ..EventAllowance::default() })
    }

    /// Adds an event to `events`, if the hub accepts it.
    pub(super) fn push(&mut self, event: NewEvent, events: &mut Vec<NewEvent>) {
        let bytes = EVENT_BYTES + event.kind.len() + event.subject.len() + event.message.len();
        if self.left == 0 || self.left_bytes < bytes {
            self.is_exceeded = true;
            return;
        }
        self.left -= 1;
        self.left_bytes -= bytes;
        self.bytes += bytes;
        events.push(event);
    }
}
