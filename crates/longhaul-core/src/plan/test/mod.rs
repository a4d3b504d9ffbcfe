//! The plan of a memory-to-memory test: [`TestPlan`] and its parts.

mod check;
mod placement;
mod striping;

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::units::{Bytes, Rate, seconds};

pub use placement::{CpuList, Placement};
pub use striping::{LinkAddress, TestLink, parse_addresses};

/// A memory-to-memory test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TestPlan {
    /// The direction of the bytes.
    pub direction: Direction,
    /// The duration or amount of data that ends the test.
    pub amount: TestLength,
    /// The first seconds, which do not count (`-O`).
    #[serde(rename = "omit_seconds", with = "seconds")]
    pub omit: Duration,
    /// The time between samples (`-i`).
    #[serde(rename = "interval_seconds", with = "seconds")]
    pub interval: Duration,
    /// The connections or flows per direction, each with a thread at both ends (`-P`); 1 to 128.
    pub streams: u32,
    /// The bytes per write (`-l`); over UDP the payload of a datagram.
    pub write_bytes: Bytes,
    /// The requested socket buffers (`-w`); `None` uses the kernel's autotuning.
    pub window_bytes: Option<Bytes>,
    /// The congestion control (`-C`); `None` uses the host's default.
    pub congestion: Option<String>,
    /// Maximum segment size (`-M`).
    pub mss: Option<u32>,
    /// The pacing rate of all streams of a direction together (`-b`); `None` means unpaced.
    pub rate_bps: Option<Rate>,
    /// The transport protocol (`-u`, `--mptcp`).
    #[serde(default)]
    pub protocol: Protocol,
    /// The end that opens the data connections (`--flip`).
    #[serde(default)]
    pub opener: Opener,
    /// The links over which the streams are spread (`--local`, `--remote`); empty for one link that
    /// the routing table chooses.
    #[serde(default)]
    pub links: Vec<TestLink>,
    /// The pacing mechanism (`--pacing`); `None` means the kernel for TCP and a timer for UDP and
    /// MPTCP.
    #[serde(default)]
    pub pacing: Option<Pacing>,
    /// The bytes that a paced stream sends back to back (`--burst`); `None` means those of 1 ms.
    #[serde(default)]
    pub burst_bytes: Option<Bytes>,
    /// The differentiated services code point (`--dscp`); 0 to 63.
    #[serde(default)]
    pub dscp: Option<u8>,
    /// True to send small writes at once (`-N`).
    #[serde(default)]
    pub nodelay: bool,
    /// True to send without copying from user memory (`-Z`).
    #[serde(default)]
    pub zero_copy: bool,
    /// True to let the receiving kernel discard the bytes without copying them (`--skip-rx-copy`).
    #[serde(default)]
    pub skip_receive_copy: bool,
    /// The CPUs of the threads.
    #[serde(default)]
    pub placement: Placement,
    /// True to measure the latency of small requests during the test (`--latency`).
    #[serde(default)]
    pub latency: bool,
}

impl TestPlan {
    /// The most TCP connections per test; nuttcp and iperf3 have the same limit.
    pub const MAX_STREAMS: u32 = 128;
    /// The default bytes per write and read. Larger buffers do not fit a core's second-level cache
    /// but need fewer wake-ups: of the sizes from 64 KiB to 1 MiB, this one needs the least CPU
    /// time per gigabyte over loopback (bench/runs/2026-11-21-epyc-2core/flow.md).
    pub const WRITE_BYTES: Bytes = Bytes::mib(1);
    /// The largest write size; it bounds the memory that a test needs on either host.
    pub const MAX_WRITE_BYTES: Bytes = Bytes::mib(4);
    /// The default payload of a datagram: it fits 1500 bytes with the headers of IPv6 and UDP.
    pub const DATAGRAM_BYTES: Bytes = Bytes::new(1452);
    /// The largest payload: 65535 minus the headers of IPv4 and UDP.
    pub const MAX_DATAGRAM_BYTES: Bytes = Bytes::new(65507);

    /// Returns the default test: ten seconds forward over one stream with the hosts' defaults.
    pub fn new() -> Self {
        TestPlan {
            direction: Direction::Forward,
            amount: TestLength::Time(Duration::from_secs(10)),
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

    /// Returns the default bytes per write for each of `streams` that share `rate`: the bytes of 10
    /// ms. Small writes matter because the kernel does not pace the first ten segments
    /// (`tcp_update_skb_after_send`).
    pub fn paced_write_bytes(rate: Rate, streams: u32) -> Bytes {
        let worth = rate.bytes_per_second() / 100 / u64::from(streams.max(1));
        Bytes::new(worth.clamp(4 << 10, Self::WRITE_BYTES.get()))
    }

    /// Returns the default bytes per datagram for each of `streams` that share `rate`: the bytes of 10
    /// ms, from 128 to `most`. Few large datagrams would exceed a low rate in single seconds.
    pub fn paced_datagram_bytes(rate: Rate, streams: u32, most: Bytes) -> Bytes {
        let worth = rate.bytes_per_second() / 100 / u64::from(streams.max(1));
        most.min(Bytes::new(worth.max(128)))
    }

    /// Returns the number of directions with streams.
    pub fn directions(&self) -> u32 {
        if self.direction == Direction::Both { 2 } else { 1 }
    }

    /// Returns the pacing mechanism, by default that of the protocol.
    pub fn pacing(&self) -> Pacing {
        match (self.pacing, self.burst_bytes, self.protocol) {
            (Some(pacing), _, _) => pacing,
            // MPTCP does not support a pacing rate (net/mptcp/sockopt.c).
            (None, Some(_), _) | (None, None, Protocol::Udp | Protocol::Mptcp) => Pacing::Timer,
            (None, None, Protocol::Tcp) => Pacing::Kernel,
        }
    }

    /// Returns the pacing rate of one stream.
    pub fn stream_rate(&self) -> Option<Rate> {
        self.rate_bps.map(|rate| Rate::from_bps((rate.bps() / u64::from(self.streams)).max(8)))
    }

    /// Returns the link of stream `stream` with its number.
    pub fn link_of(&self, stream: u32) -> Option<(usize, &TestLink)> {
        let number = (stream as usize).checked_rem(self.links.len())?;
        Some((number, &self.links[number]))
    }

    /// Returns the bytes that stream `stream` moves in a test of a fixed amount; the first streams
    /// take the remainder.
    pub fn share(&self, stream: u32) -> Option<u64> {
        match self.amount {
            TestLength::Time(_) => None,
            TestLength::Bytes(total) => {
                let streams = u64::from(self.streams);
                Some(total.get() / streams + u64::from(u64::from(stream) < total.get() % streams))
            }
        }
    }
}

impl Default for TestPlan {
    fn default() -> Self {
        Self::new()
    }
}

/// The direction of a test, seen from the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// The client sends.
    Forward,
    /// The server sends.
    Reverse,
    /// Both send at the same time, each over its own streams.
    Both,
}

/// The extent of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TestLength {
    /// The test ends after this time.
    #[serde(rename = "seconds", with = "seconds")]
    Time(Duration),
    /// The test ends after this many bytes of all streams together, per direction.
    Bytes(Bytes),
}

/// The transport protocol of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// TCP.
    #[default]
    Tcp,
    /// Multipath TCP (RFC 8684).
    Mptcp,
    /// UDP.
    Udp,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Protocol::Tcp => "TCP",
            Protocol::Mptcp => "MPTCP",
            Protocol::Udp => "UDP",
        })
    }
}

/// The end that opens the data connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Opener {
    /// The client opens them to the server's port.
    #[default]
    Client,
    /// The server opens them to a port on which the client listens during the test (nuttcp's flip).
    Server,
}

/// The mechanism that limits a sender to its rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pacing {
    /// The kernel paces each packet (`SO_MAX_PACING_RATE`). TCP always supports this, UDP only if
    /// the interface has the fq queueing discipline, MPTCP not at all.
    Kernel,
    /// The sending thread writes a burst and sleeps until the next one is due.
    Timer,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_survives_its_document() {
        let plan = TestPlan { rate_bps: Some(Rate::from_bps(100_000_000_000)), ..TestPlan::new() };
        let text = serde_json::to_string(&plan).unwrap();
        assert!(text.contains(r#""amount":{"seconds":10.0}"#), "{text}");
        assert_eq!(serde_json::from_str::<TestPlan>(&text).unwrap(), plan);
    }

    #[test]
    fn datagrams_shrink_at_low_rates() {
        let bytes = |rate: &str, streams, most| {
            let rate = rate.parse().unwrap();
            TestPlan::paced_datagram_bytes(rate, streams, Bytes::new(most)).get()
        };
        assert_eq!([bytes("64k", 1, 8972), bytes("1M", 1, 8972)], [128, 1250]);
        assert_eq!([bytes("72M", 1, 8972), bytes("72M", 8, 8972)], [8972, 8972]);
        assert_eq!([bytes("10M", 10, 8972), bytes("1G", 1, 1472)], [1250, 1472]);
    }

    #[test]
    fn writes_shrink_with_the_rate() {
        let of = |bps| TestPlan::paced_write_bytes(Rate::from_bps(bps), 2).get();
        assert_eq!(of(100_000_000_000), 1 << 20);
        assert_eq!(of(100_000_000), 62_500);
        assert_eq!(of(1), 4 << 10);
    }

    #[test]
    fn shares_add_up_to_the_byte() {
        for (total, streams) in [(10, 3), (1, 4), (1 << 33, 7), (128, 128)] {
            let plan = TestPlan {
                amount: TestLength::Bytes(Bytes::new(total)),
                streams,
                ..TestPlan::new()
            };
            assert_eq!((0..streams).map(|s| plan.share(s).unwrap()).sum::<u64>(), total);
        }
        assert_eq!(TestPlan::new().share(0), None);
    }
}
