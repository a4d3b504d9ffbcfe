use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Amount, Direction, Link, Opener, Pacing, Placement, Protocol};
use crate::plan::seconds;
use crate::units::{Bytes, Rate};

/// A memory-to-memory test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowPlan {
    /// Which way the bytes go.
    pub direction: Direction,
    /// When the test ends.
    pub amount: Amount,
    /// The first seconds, left out of the result (`-O`).
    #[serde(rename = "omit_seconds", with = "seconds")]
    pub omit: Duration,
    /// Time between samples (`-i`).
    #[serde(rename = "interval_seconds", with = "seconds")]
    pub interval: Duration,
    /// Connections or flows in each direction, one thread each at both ends (`-P`); 1 to 128.
    pub streams: u32,
    /// Bytes in one write (`-l`); the payload of one datagram over UDP.
    pub write_bytes: Bytes,
    /// Socket buffers asked for (`-w`); `None` leaves the kernel's autotuning alone.
    pub window_bytes: Option<Bytes>,
    /// Congestion control (`-C`); `None` leaves the host's.
    pub congestion: Option<String>,
    /// Maximum segment size (`-M`).
    pub mss: Option<u32>,
    /// Pacing rate for all streams of a direction together (`-b`); `None` is unpaced.
    pub rate_bps: Option<Rate>,
    /// What carries the bytes (`-u`, `--mptcp`).
    #[serde(default)]
    pub protocol: Protocol,
    /// Who opens the data connections (`--flip`).
    #[serde(default)]
    pub opener: Opener,
    /// The links that the streams are spread over (`--local`, `--remote`); none is one link, of
    /// the routing table's choice.
    #[serde(default)]
    pub links: Vec<Link>,
    /// What holds the sender to its rate (`--pacing`); `None` is the kernel for TCP and a timer
    /// for UDP and MPTCP.
    #[serde(default)]
    pub pacing: Option<Pacing>,
    /// Bytes that a paced stream sends back to back (`--burst`); `None` is a millisecond's worth.
    #[serde(default)]
    pub burst_bytes: Option<Bytes>,
    /// Differentiated services code point (`--dscp`); 0 to 63.
    #[serde(default)]
    pub dscp: Option<u8>,
    /// Send small writes at once (`-N`).
    #[serde(default)]
    pub nodelay: bool,
    /// Send without copying from user memory (`-Z`).
    #[serde(default)]
    pub zero_copy: bool,
    /// Have the receiving kernel drop the bytes without copying them (`--skip-rx-copy`).
    #[serde(default)]
    pub skip_receive_copy: bool,
    /// Where the threads run (`-A`).
    #[serde(default)]
    pub placement: Placement,
    /// Measure the latency of small requests beside the test (`--latency`).
    #[serde(default)]
    pub latency: bool,
}

impl FlowPlan {
    /// TCP connections in one test, at most; nuttcp's and iperf3's limit too.
    pub const MAX_STREAMS: u32 = 128;
    /// Bytes in one write and one read, unless asked for. Larger ones do not fit a core's
    /// second-level cache, but cost fewer wake-ups: of 64 KiB to 1 MiB this moves a gigabyte over
    /// loopback for the least CPU time (bench/runs/2026-11-21-epyc-2core/flow.md).
    pub const WRITE_BYTES: Bytes = Bytes::mib(1);
    /// The largest write that can be asked for; it bounds what a test takes of either host.
    pub const MAX_WRITE_BYTES: Bytes = Bytes::mib(4);
    /// The payload of a datagram where nothing better is known: what fits 1500 bytes with the
    /// headers of IPv6 and UDP.
    pub const DATAGRAM_BYTES: Bytes = Bytes::new(1452);
    /// The largest payload: 65535 less the headers of IPv4 and UDP.
    pub const MAX_DATAGRAM_BYTES: Bytes = Bytes::new(65507);

    /// Ten seconds forward over one stream, everything else as the hosts have it.
    pub fn new() -> Self {
        FlowPlan {
            direction: Direction::Forward,
            amount: Amount::Time(Duration::from_secs(10)),
            omit: Duration::ZERO,
            interval: Duration::from_secs(1),
            streams: 1,
            write_bytes: Self::WRITE_BYTES,
            window_bytes: None,
            congestion: None,
            mss: None,
            rate_bps: None,
            protocol: Protocol::Tcp,
            opener: Opener::Client,
            links: Vec::new(),
            pacing: None,
            burst_bytes: None,
            dscp: None,
            nodelay: false,
            zero_copy: false,
            skip_receive_copy: false,
            placement: Placement::Auto,
            latency: false,
        }
    }

    /// Bytes in one write of each of `streams` that share `rate`, unless asked for: 10 ms worth, so
    /// that the kernel, which paces all but the first ten segments (`tcp_update_skb_after_send`),
    /// has small ones.
    pub fn paced_write_bytes(rate: Rate, streams: u32) -> Bytes {
        let worth = rate.bytes_per_second() / 100 / u64::from(streams.max(1));
        Bytes::new(worth.clamp(4 << 10, Self::WRITE_BYTES.get()))
    }

    /// How many directions have streams.
    pub fn directions(&self) -> u32 {
        if self.direction == Direction::Both { 2 } else { 1 }
    }

    /// What holds the sender to its rate, chosen by the protocol unless it was asked for.
    pub fn pacing(&self) -> Pacing {
        match (self.pacing, self.burst_bytes, self.protocol) {
            (Some(pacing), _, _) => pacing,
            // MPTCP takes no pacing rate (net/mptcp/sockopt.c).
            (None, Some(_), _) | (None, None, Protocol::Udp | Protocol::Mptcp) => Pacing::Timer,
            (None, None, Protocol::Tcp) => Pacing::Kernel,
        }
    }

    /// The pacing rate of one stream.
    pub fn stream_rate(&self) -> Option<Rate> {
        self.rate_bps.map(|rate| Rate::from_bps((rate.bps() / u64::from(self.streams)).max(8)))
    }

    /// The number of the link that stream `stream` uses, and the link.
    pub fn link_of(&self, stream: u32) -> Option<(usize, &Link)> {
        let number = (stream as usize).checked_rem(self.links.len())?;
        Some((number, &self.links[number]))
    }

    /// The bytes that stream number `stream` moves in a test by bytes; the first streams take
    /// what does not divide.
    pub fn share(&self, stream: u32) -> Option<u64> {
        match self.amount {
            Amount::Time(_) => None,
            Amount::Bytes(total) => {
                let streams = u64::from(self.streams);
                Some(total.get() / streams + u64::from(u64::from(stream) < total.get() % streams))
            }
        }
    }
}

impl Default for FlowPlan {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_comes_back_from_its_document() {
        let plan = FlowPlan { rate_bps: Some(Rate::from_bps(100_000_000_000)), ..FlowPlan::new() };
        let text = serde_json::to_string(&plan).unwrap();
        assert!(text.contains(r#""amount":{"seconds":10.0}"#), "{text}");
        assert_eq!(serde_json::from_str::<FlowPlan>(&text).unwrap(), plan);
    }

    #[test]
    fn writes_shrink_with_the_rate() {
        let of = |bps| FlowPlan::paced_write_bytes(Rate::from_bps(bps), 2).get();
        assert_eq!(of(100_000_000_000), 1 << 20);
        assert_eq!(of(100_000_000), 62_500);
        assert_eq!(of(1), 4 << 10);
    }

    #[test]
    fn shares_add_up_to_the_byte() {
        for (total, streams) in [(10, 3), (1, 4), (1 << 33, 7), (128, 128)] {
            let plan =
                FlowPlan { amount: Amount::Bytes(Bytes::new(total)), streams, ..FlowPlan::new() };
            assert_eq!((0..streams).map(|s| plan.share(s).unwrap()).sum::<u64>(), total);
        }
        assert_eq!(FlowPlan::new().share(0), None);
    }
}
