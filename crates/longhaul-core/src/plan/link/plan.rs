//! The plan of a link.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::trace::ReadFile;
use super::{LinkDirection, LinkPlanError, QueueLimit, Side, derive_seed, error};
use crate::units::{Bytes, Rate};

/// An emulated link between two sites.
///
/// A plan can be run only if [`LinkPlan::validate`] accepts it; the emulator validates again. A
/// plan from a document that names files needs [`LinkPlan::load`] first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkPlan {
    /// From near to far.
    pub up: LinkDirection,
    /// From far to near.
    pub down: LinkDirection,
    /// The MTU: the size of the largest IP packet in bytes.
    #[serde(default = "LinkPlan::default_mtu")]
    pub mtu: u32,
    /// The number of queues of each interface. Each queue has its own threads. The kernel assigns a
    /// flow to a queue by the hash of its headers.
    #[serde(default = "LinkPlan::one_queue", skip_serializing_if = "LinkPlan::is_one")]
    pub queues: u32,
    /// The seed of all random decisions: the same seed makes the same decisions about the same
    /// segments. With `None` the emulator chooses a seed and reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

impl LinkPlan {
    /// The default MTU: jumbo frames, as on data-transfer paths.
    pub const DEFAULT_MTU: u32 = 9000;
    /// The packet size that every IPv4 host must accept (RFC 791).
    pub const MIN_MTU: u32 = error::MIN_MTU;
    /// The largest MTU of a TUN device (`MAX_MTU` in drivers/net/tun.c).
    pub const MAX_MTU: u32 = error::MAX_MTU;
    /// The largest one-way delay; with a longer delay TCP times out before it has an RTT sample.
    pub const MAX_DELAY: Duration = error::MAX_DELAY;
    /// The lowest rate; below it a single packet would take minutes.
    pub const MIN_RATE: Rate = error::MIN_RATE;

    /// The maximum number of queues of an interface.
    pub const MAX_QUEUES: u32 = 64;

    /// Creates a symmetric link with a round trip of `rtt`.
    pub fn symmetric(rtt: Duration) -> Self {
        let direction = LinkDirection::delayed(rtt / 2);
        LinkPlan {
            up: direction.clone(),
            down: direction,
            mtu: Self::DEFAULT_MTU,
            queues: 1,
            seed: None,
        }
    }

    /// Returns the round trip without queueing; for delay traces the longest round trip.
    pub fn rtt(&self) -> Duration {
        self.up.propagation() + self.down.propagation()
    }

    /// Returns the direction from `side`.
    pub fn from(&self, side: Side) -> &LinkDirection {
        match side {
            Side::Near => &self.up,
            Side::Far => &self.down,
        }
    }

    /// Returns the limit of the queue at `side`. The default is one round trip at the rate, so that
    /// one flow can fill the link, and at least 10 ms or 256 KiB (four super-packets). Returns
    /// `None` without a rate, because there is no queue then.
    pub fn queue_limit(&self, side: Side) -> Option<QueueLimit> {
        const SHORTEST: Duration = Duration::from_millis(10);
        const SMALLEST: Bytes = Bytes::new(256 << 10);
        let direction = self.from(side);
        let rate = direction.peak_rate()?;
        let default = || QueueLimit::Bytes(rate.bdp(self.rtt().max(SHORTEST)).max(SMALLEST));
        Some(direction.queue.unwrap_or_else(default))
    }

    /// Returns [`LinkPlan::queue_limit`] in bytes at the highest rate.
    pub fn queue(&self, side: Side) -> Option<Bytes> {
        let rate = self.from(side).peak_rate()?;
        self.queue_limit(side).map(|limit| limit.bytes(rate, self.largest_packet(side)))
    }

    /// Returns the plan of a link that has the options of class `index` of the direction from `side`
    /// in both directions. Its seed is derived from the seed of this link.
    pub fn of_class(&self, side: Side, index: usize) -> Option<LinkPlan> {
        let class = self.from(side).classes.get(index)?;
        let mut link = class.link.clone();
        if !class.has_own_queue() {
            link.forget_rate();
            (link.queue, link.aqm, link.cross) = (None, None, None);
        }
        let seed = self.seed.map(|seed| derive_seed(seed, &["class", &index.to_string()]));
        let (mtu, queues) = (self.mtu, self.queues);
        Some(LinkPlan { up: link.clone(), down: link, mtu, queues, seed })
    }

    /// Returns the plan of one of the queues of the link's interfaces. Its seed is derived from the
    /// seed of the link, so that the queues decide independently; the first queue has the link's seed.
    pub fn of_queue(&self, index: u32) -> LinkPlan {
        let derived = |seed| derive_seed(seed, &["queue", &index.to_string()]);
        let seed = if index == 0 { self.seed } else { self.seed.map(derived) };
        LinkPlan { seed, ..self.clone() }
    }

    /// Returns the bytes of the largest packet from `side`, as the rate counts them.
    fn largest_packet(&self, side: Side) -> Bytes {
        Bytes::new(u64::from(self.mtu) + u64::from(self.from(side).overhead_bytes))
    }

    /// Returns whether any decision is random, so that the seed matters.
    pub fn is_random(&self) -> bool {
        self.up.is_random() || self.down.is_random()
    }

    /// Loads the files that the plan names and that are not loaded yet. `read` opens a file.
    ///
    /// # Errors
    /// The first file that cannot be read or parsed.
    pub fn load(&mut self, read: ReadFile) -> Result<(), LinkPlanError> {
        self.up.load(read)?;
        self.down.share_replay(self.up.replay.as_ref());
        self.down.load(read)?;
        self.up.replay_rate(Side::Near);
        self.down.replay_rate(Side::Far);
        Ok(())
    }

    /// Checks every number of the plan.
    ///
    /// # Errors
    /// The first number out of range, the first two options that exclude each other, or a file that
    /// is not loaded.
    pub fn validate(&self) -> Result<(), LinkPlanError> {
        self.up.validate()?;
        self.down.validate()?;
        if !(Self::MIN_MTU..=Self::MAX_MTU).contains(&self.mtu) {
            return Err(LinkPlanError::Mtu { mtu: self.mtu });
        }
        if !(1..=Self::MAX_QUEUES).contains(&self.queues) {
            return Err(LinkPlanError::value("queues", self.queues, "from 1 to 64 queues"));
        }
        if self.queues > 1 {
            let needs = Side::BOTH.into_iter().find_map(|side| self.from(side).needs_one_queue());
            if let Some(option) = needs {
                return Err(LinkPlanError::contradiction("queues", option));
            }
        }
        for side in Side::BOTH {
            if let Some(policer) = self.from(side).police {
                policer.validate(self.largest_packet(side))?;
            }
        }
        Ok(())
    }

    const fn one_queue() -> u32 {
        1
    }

    fn is_one(queues: &u32) -> bool {
        *queues == 1
    }

    const fn default_mtu() -> u32 {
        Self::DEFAULT_MTU
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_trip_is_split_evenly() {
        let plan = LinkPlan::symmetric(Duration::from_millis(15));
        assert_eq!(plan.up.delay, Duration::from_micros(7500));
        assert_eq!(plan.rtt(), Duration::from_millis(15));
        plan.validate().unwrap();
    }

    #[test]
    fn numbers_out_of_range_are_refused_by_name() {
        let good = LinkPlan::symmetric(Duration::from_millis(90));
        let slow = LinkDirection { rate_bps: Some(Rate::from_bps(0)), ..good.up.clone() };
        let long = LinkDirection::delayed(Duration::from_secs(31));
        let good = || good.clone();
        for (plan, says) in [
            (LinkPlan { up: slow, ..good() }, "a rate of 0.00 b/s is below"),
            (
                LinkPlan { down: long, ..good() },
                "a one-way delay of 31s exceeds the maximum of 30s",
            ),
            (LinkPlan { mtu: 500, ..good() }, "an MTU of 500 is outside 576 to 65535 bytes"),
            (LinkPlan { mtu: 65_536, ..good() }, "an MTU of 65536 is outside"),
        ] {
            let error = plan.validate().unwrap_err().to_string();
            assert!(error.starts_with(says), "{error}");
        }
    }

    #[test]
    fn a_queue_holds_a_round_trip_of_the_rate() {
        let mut plan = LinkPlan::symmetric(Duration::from_millis(90));
        assert_eq!(plan.queue(Side::Near), None);
        plan.up.rate_bps = Some(Rate::from_bps(10_000_000_000));
        assert_eq!(plan.queue(Side::Near), Some(Bytes::new(112_500_000)));
        assert_eq!(plan.queue(Side::Far), None);
        plan.down.rate_bps = Some(Rate::from_bps(1_000_000));
        assert_eq!(plan.queue(Side::Far), Some(Bytes::new(256 << 10)));
    }

    #[test]
    fn several_queues_exclude_a_rate_and_derive_seeds() {
        let plan = LinkPlan { queues: 4, seed: Some(7), ..LinkPlan::symmetric(Duration::ZERO) };
        plan.validate().unwrap();
        let seeds: Vec<_> = (0..3).map(|index| plan.of_queue(index).seed.unwrap()).collect();
        assert!(seeds[0] == 7 && seeds[1] != 7 && seeds[2] != 7 && seeds[1] != seeds[2]);
        let mut limited = plan.clone();
        limited.down.rate_bps = Some(Rate::from_bps(1_000_000_000));
        let error = limited.validate().unwrap_err().to_string();
        assert!(error.contains("queues and rate contradict"), "{error}");
        for queues in [0, 65] {
            let error = LinkPlan { queues, ..plan.clone() }.validate().unwrap_err().to_string();
            assert!(error.starts_with("queues cannot be"), "{error}");
        }
        let single = serde_json::to_string(&LinkPlan::symmetric(Duration::ZERO)).unwrap();
        assert!(!single.contains("queues"), "documents of earlier versions stay the same");
    }

    #[test]
    fn a_document_reads_back_and_unknown_fields_are_ignored() {
        let mut plan = LinkPlan::symmetric(Duration::from_millis(45));
        plan.up.rate_bps = Some(Rate::from_bps(1_000_000_000));
        let text = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<LinkPlan>(&text).unwrap(), plan);
        let unknown = r#"{"up":{"delay_seconds":0,"gravity":0.1},"down":{"delay_seconds":0}}"#;
        assert!(serde_json::from_str::<LinkPlan>(unknown).is_ok(), "later versions may add fields");
    }
}
