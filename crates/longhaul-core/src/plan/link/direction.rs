//! The plan of one direction of a link.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::capacity::{MAX_OVERHEAD, RATE_LAYER_FORM};
use super::error::{MAX_DELAY, MIN_RATE};
use super::loss::LossTrace;
use super::trace::ReadFile;
use super::{
    Aqm, ClassMatch, CrossTraffic, DelayDistribution, DelaySchedule, Extent, Jitter, LinkPlanError,
    Loss, Outage, PathRecording, Policer, Probability, QueueLimit, RateSchedule, Reorder, Side,
    Slots, TraceFile,
};
use crate::units::Rate;
use crate::units::seconds;

/// The properties of one direction of a link, applied segment by segment.
///
/// The default changes nothing. docs/design/emulator-time.md describes the order of the stages.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LinkDirection {
    /// The one-way propagation delay; zero with `delay_trace`.
    #[serde(rename = "delay_seconds", with = "seconds")]
    pub delay: Duration,
    /// The delay over time, instead of `delay`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_trace: Option<TraceFile<DelaySchedule>>,
    /// The recorded path whose delay, loss and reordering the direction has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<TraceFile<PathRecording>>,
    /// The recorded capacity over time; `rate_bps` is then its median. Loading a plan without a rate
    /// sets both.
    #[serde(skip)]
    pub replayed_rates: Option<Arc<RateSchedule>>,
    /// The variation of the delay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter: Option<Jitter>,
    /// The reordering of segments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reorder: Option<Reorder>,
    /// The capacity; `None` means as fast as the machine forwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bps: Option<Rate>,
    /// The capacity over time, instead of `rate_bps`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_trace: Option<TraceFile<RateSchedule>>,
    /// The bytes that each segment uses of the capacity in addition to its IP bytes; 0 for a rate
    /// of the IP layer.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub overhead_bytes: u32,
    /// The limit of the queue; `None` uses the default of
    /// [`LinkPlan::queue_limit`](super::LinkPlan::queue_limit).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueLimit>,
    /// The queue management, in addition to the limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aqm: Option<Aqm>,
    /// The cross traffic in the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cross: Option<CrossTraffic>,
    /// The policer before the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub police: Option<Policer>,
    /// The slots in which segments are delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slots: Option<Slots>,
    /// The loss of segments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<Loss>,
    /// The bit-error rate: the probability that a bit of a segment is wrong on the wire. A segment
    /// with a wrong bit is dropped, as an interface drops a frame with a wrong checksum.
    #[serde(default, skip_serializing_if = "Probability::is_zero")]
    pub bit_errors: Probability,
    /// The share of segments damaged detectably, so that TCP and UDP drop them.
    #[serde(default, skip_serializing_if = "Probability::is_zero")]
    pub corrupt: Probability,
    /// The share of segments damaged with a matching checksum.
    #[serde(default, skip_serializing_if = "Probability::is_zero")]
    pub corrupt_silent: Probability,
    /// The share of segments that arrive twice.
    #[serde(default, skip_serializing_if = "Probability::is_zero")]
    pub duplicate: Probability,
    /// The share of ECN-capable segments that is marked (CE, RFC 3168).
    #[serde(default, skip_serializing_if = "Probability::is_zero")]
    pub mark_ce: Probability,
    /// The outages of the link.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outages: Vec<Outage>,
    /// The precedence of the segments in the queue, from 0 (the default, last) to 7 (first).
    #[serde(default, skip_serializing_if = "is_default")]
    pub priority: u8,
    /// The classes of traffic with other properties. The first class that contains a packet
    /// applies. A class has no classes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<LinkClass>,
}

/// A class of traffic with its own properties of a link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkClass {
    /// The packets of the class.
    pub matches: ClassMatch,
    /// The options that differ from those of the direction.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, String>,
    /// The properties of the class: those of the direction, changed by `options`.
    pub link: LinkDirection,
}

impl LinkClass {
    /// Returns whether the class has a separate rate and queue. Otherwise it shares those of the
    /// direction.
    pub fn has_own_queue(&self) -> bool {
        ["rate", "rate-trace"].iter().any(|name| self.options.contains_key(*name))
    }
}

impl LinkDirection {
    /// Returns the name of an option, if one is set, whose effect on a packet depends on the packets of
    /// all flows: it cannot be applied by several threads that share nothing.
    pub(super) fn needs_one_queue(&self) -> Option<&'static str> {
        let numbered = match &self.loss {
            Some(Loss::Pattern { .. }) => Some("loss-pattern"),
            Some(Loss::Trace(_)) => Some("loss-trace"),
            _ => None,
        };
        let set = [
            ("replay", self.replay.is_some()),
            ("rate", self.rate_bps.is_some()),
            ("rate-trace", self.rate_trace.is_some()),
            ("police", self.police.is_some()),
            ("slot", self.slots.is_some()),
            ("class", !self.classes.is_empty()),
        ];
        let first = set.into_iter().find(|(_, is_set)| *is_set);
        first.map(|(name, _)| name).or(numbered)
    }

    /// Creates a direction with a delay and no other impairment.
    pub fn delayed(delay: Duration) -> Self {
        LinkDirection { delay, ..LinkDirection::default() }
    }

    /// Returns the delay without queueing; for a trace its longest delay.
    pub fn propagation(&self) -> Duration {
        let trace = self.delay_trace.as_ref().and_then(TraceFile::content);
        let replay = self.replay.as_ref().and_then(TraceFile::content);
        let recorded = |replay: &PathRecording| {
            Side::BOTH.map(|side| replay.direction(side).longest()).into_iter().max()
        };
        trace
            .map(|trace| trace.longest())
            .or_else(|| replay.and_then(|replay| recorded(replay)))
            .unwrap_or(self.delay)
    }

    /// Returns the longest time from the queue to the receiver, except for the rarest segments.
    pub fn longest_flight(&self) -> Duration {
        let held = match self.reorder.map(|reorder| reorder.extent) {
            Some(Extent::Time(time)) => time,
            _ => Duration::ZERO,
        };
        let slot = self.slots.map_or(Duration::ZERO, |slots| slots.most);
        let own = self.propagation()
            + held
            + slot
            + self.jitter.as_ref().map_or(Duration::ZERO, Jitter::longest);
        self.classes.iter().map(|class| class.link.longest_flight()).fold(own, Duration::max)
    }

    /// Returns whether the queue serves segments in an order that depends on later arrivals.
    pub fn is_scheduled(&self) -> bool {
        let managed = matches!(self.aqm, Some(Aqm::FqCodel { .. } | Aqm::DualPi2 { .. }));
        managed || self.has_priorities()
    }

    /// Returns whether segments of the shared queue differ in priority.
    fn has_priorities(&self) -> bool {
        let shared = self.classes.iter().filter(|class| !class.has_own_queue());
        shared.into_iter().any(|class| class.link.priority != self.priority)
    }

    /// Returns the highest rate; `None` means as fast as the machine forwards.
    pub fn peak_rate(&self) -> Option<Rate> {
        self.rate_schedule().map(|rates| rates.peak()).or(self.rate_bps)
    }

    /// Returns the rate over time, of a trace or as recorded.
    pub fn rate_schedule(&self) -> Option<&Arc<RateSchedule>> {
        let trace = self.rate_trace.as_ref().and_then(TraceFile::content);
        trace.or(self.replayed_rates.as_ref())
    }

    /// Takes the rate of the recorded path, unless the direction has a rate.
    pub(super) fn replay_rate(&mut self, from: Side) {
        let recorded = self.replay.as_ref().and_then(TraceFile::content);
        if let Some(path) = recorded.filter(|_| !self.has_rate()) {
            self.rate_bps = path.direction(from).capacity();
            self.replayed_rates = path.direction(from).rates().cloned();
        }
    }

    /// Removes the rate, and the recorded one.
    pub(super) fn forget_rate(&mut self) {
        (self.rate_bps, self.rate_trace, self.replayed_rates) = (None, None, None);
    }

    /// Returns whether the direction has a rate.
    pub fn has_rate(&self) -> bool {
        self.rate_bps.is_some() || self.rate_trace.is_some()
    }

    /// Returns whether any decision is random.
    pub fn is_random(&self) -> bool {
        let drawn =
            [self.corrupt, self.corrupt_silent, self.duplicate, self.mark_ce, self.bit_errors];
        self.loss.as_ref().is_some_and(Loss::is_random)
            || self.slots.is_some_and(|slots| slots.least < slots.most)
            || drawn.iter().any(|p| !p.is_zero())
            || self.jitter.is_some()
            || self.replay.is_some()
            || self.reorder.is_some()
            || self.cross.is_some()
            || matches!(self.aqm, Some(Aqm::Pie { .. } | Aqm::Red { .. } | Aqm::DualPi2 { .. }))
            || self.classes.iter().any(|class| class.link.is_random())
    }

    /// Reads the files that the plan names and that are not loaded yet.
    ///
    /// # Errors
    /// The first file that cannot be read or parsed.
    pub fn load(&mut self, read: ReadFile) -> Result<(), LinkPlanError> {
        if let Some(file) = &mut self.delay_trace {
            file.load("delay-trace", read)?;
        }
        if let Some(file) = &mut self.replay {
            file.load("replay", read)?;
        }
        if let Some(Jitter { spread: DelayDistribution::File(file), .. }) = &mut self.jitter {
            file.load("jitter", read)?;
        }
        if let Some(file) = &mut self.rate_trace {
            file.load("rate-trace", read)?;
        }
        if let Some(Loss::Trace(file)) = &mut self.loss {
            TraceFile::<LossTrace>::load(file, "loss-trace", read)?;
        }
        for class in &mut self.classes {
            class.link.share_replay(self.replay.as_ref());
            class.link.load(read)?;
        }
        Ok(())
    }

    /// Takes the content of a recording from another direction that replays the same file: it may
    /// have a gigabyte.
    pub(super) fn share_replay(&mut self, loaded: Option<&TraceFile<PathRecording>>) {
        if let (Some(own), Some(loaded)) = (&mut self.replay, loaded) {
            own.share(loaded);
        }
    }

    pub(super) fn validate(&self) -> Result<(), LinkPlanError> {
        if self.delay > MAX_DELAY {
            return Err(LinkPlanError::Delay { delay: self.delay });
        }
        if let Some(rate) = self.rate_bps.filter(|rate| *rate < MIN_RATE) {
            return Err(LinkPlanError::Rate { rate });
        }
        if let Some(file) = &self.delay_trace {
            if !self.delay.is_zero() {
                return Err(LinkPlanError::contradiction("delay-trace", "delay"));
            }
            file.check("delay-trace")?;
        }
        if let Some(file) = &self.replay {
            if !self.delay.is_zero() || self.delay_trace.is_some() {
                return Err(LinkPlanError::contradiction("replay", "delay"));
            }
            file.check("replay")?;
        }
        if let Some(file) = &self.rate_trace {
            if self.rate_bps.is_some() {
                return Err(LinkPlanError::contradiction("rate-trace", "rate"));
            }
            file.check("rate-trace")?;
        }
        self.jitter.as_ref().map_or(Ok(()), Jitter::validate)?;
        self.reorder.as_ref().map_or(Ok(()), Reorder::validate)?;
        self.loss.as_ref().map_or(Ok(()), Loss::validate)?;
        self.slots.map_or(Ok(()), Slots::validate)?;
        self.outages.iter().try_for_each(Outage::validate)?;
        self.validate_capacity()?;
        self.validate_classes()
    }

    fn validate_classes(&self) -> Result<(), LinkPlanError> {
        const PRIORITY: &str = "a priority is from 0 to 7, and the highest is served first";
        if self.priority > 7 {
            return Err(LinkPlanError::value("priority", self.priority, PRIORITY));
        }
        if self.has_priorities() {
            if !self.has_rate() {
                return Err(LinkPlanError::Needs { option: "priority", needs: "rate" });
            }
            if self.aqm.is_some() {
                return Err(LinkPlanError::contradiction("priority", "aqm"));
            }
        }
        if self.is_scheduled() && self.cross.is_some() {
            let other = if self.aqm.is_some() { "aqm" } else { "priority" };
            return Err(LinkPlanError::contradiction("cross", other));
        }
        for class in &self.classes {
            let queue = ["queue", "aqm", "cross"];
            let given = |name: &&str| class.options.contains_key(*name);
            match queue.into_iter().find(given).filter(|_| !class.has_own_queue()) {
                Some(option) => return Err(LinkPlanError::Needs { option, needs: "rate" }),
                None => class.link.validate()?,
            }
        }
        Ok(())
    }

    fn validate_capacity(&self) -> Result<(), LinkPlanError> {
        if self.overhead_bytes > MAX_OVERHEAD {
            return Err(LinkPlanError::value(
                "rate-layer",
                format!("wire:{}", self.overhead_bytes),
                RATE_LAYER_FORM,
            ));
        }
        self.queue.map_or(Ok(()), QueueLimit::validate)?;
        self.aqm.map_or(Ok(()), Aqm::validate)?;
        match self.peak_rate() {
            Some(rate) => self.cross.map_or(Ok(()), |cross| cross.validate(rate)),
            None => match self.needs_rate() {
                Some(option) => Err(LinkPlanError::Needs { option, needs: "rate" }),
                None => Ok(()),
            },
        }
    }

    /// Returns the first option that needs a rate.
    fn needs_rate(&self) -> Option<&'static str> {
        let parts = [
            ("queue", self.queue.is_some()),
            ("aqm", self.aqm.is_some()),
            ("cross", self.cross.is_some()),
            ("rate-layer", self.overhead_bytes > 0 && self.police.is_none()),
        ];
        parts.iter().find(|(_, there)| *there).map(|(name, _)| *name)
    }
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn is_default(number: &u8) -> bool {
    *number == 0
}
