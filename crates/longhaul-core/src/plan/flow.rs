use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{PlanError, seconds};
use crate::units::{Bytes, Rate, format_span};

/// Which way the bytes of a test go, seen from the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// The client sends.
    Forward,
    /// The server sends.
    Reverse,
}

/// How much a test moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Amount {
    /// As much as passes in this time.
    #[serde(rename = "seconds", with = "seconds")]
    Time(Duration),
    /// This many bytes over all streams together.
    Bytes(Bytes),
}

/// A memory-to-memory test over TCP.
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
    /// TCP connections, one thread each at both ends (`-P`); 1 to 128.
    pub streams: u32,
    /// Bytes in one write and one read (`-l`).
    pub write_bytes: Bytes,
    /// Socket buffers asked for (`-w`); `None` leaves the kernel's autotuning alone.
    pub window_bytes: Option<Bytes>,
    /// Congestion control (`-C`); `None` leaves the host's.
    pub congestion: Option<String>,
    /// Maximum segment size (`-M`).
    pub mss: Option<u32>,
    /// Pacing rate for all streams together (`-b`); `None` is unpaced.
    pub rate_bps: Option<Rate>,
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
        }
    }

    /// Checks every number; the server does so as well as the client.
    ///
    /// # Errors
    /// The first field that is out of its range.
    pub fn validate(&self) -> Result<(), PlanError> {
        let check = |good: bool, field, value: String, accepted| match good {
            true => Ok(()),
            false => Err(PlanError::OutOfRange { field, value, accepted }),
        };
        let span = |from: f64, to: f64, d: Duration| (from..=to).contains(&d.as_secs_f64());
        match self.amount {
            Amount::Time(t) => {
                check(span(0.1, 86400.0, t), "time", format_span(t), "0.1s to 24h")?;
            }
            Amount::Bytes(b) => check(b.get() > 0, "bytes", b.to_string(), "at least 1")?,
        }
        let (omit, interval) = (self.omit, self.interval);
        check(span(0.0, 600.0, omit), "omitted time", format_span(omit), "0 to 600s")?;
        check(span(0.05, 3600.0, interval), "interval", format_span(interval), "50ms to 1h")?;
        check(
            (1..=Self::MAX_STREAMS).contains(&self.streams),
            "number of streams",
            self.streams.to_string(),
            "1 to 128",
        )?;
        check(
            (1..=Self::MAX_WRITE_BYTES.get()).contains(&self.write_bytes.get()),
            "length of a write",
            self.write_bytes.to_string(),
            "1 byte to 4 MiB",
        )?;
        if let Some(window) = self.window_bytes {
            // The kernel takes an int and doubles it.
            let good = (4096..=1 << 30).contains(&window.get());
            check(good, "window", window.to_string(), "4 KiB to 1 GiB")?;
        }
        if let Some(mss) = self.mss {
            // TCP_MIN_MSS and MAX_TCP_WINDOW, net/ipv4/tcp.c.
            check((88..=32767).contains(&mss), "segment size", mss.to_string(), "88 to 32767")?;
        }
        if let Some(rate) = self.rate_bps {
            let good = rate.bps() >= 8 * u64::from(self.streams);
            check(good, "rate", rate.to_string(), "at least one byte a second for each stream")?;
        }
        if let Some(name) = &self.congestion {
            // TCP_CA_NAME_MAX is 16 with the closing zero, net/tcp.h.
            let good = (1..16).contains(&name.len())
                && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
            check(good, "congestion control", format!("'{name}'"), "a name such as bbr or cubic")?;
        }
        Ok(())
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
    fn shares_add_up_to_the_byte() {
        for (total, streams) in [(10, 3), (1, 4), (1 << 33, 7), (128, 128)] {
            let plan =
                FlowPlan { amount: Amount::Bytes(Bytes::new(total)), streams, ..FlowPlan::new() };
            assert_eq!((0..streams).map(|s| plan.share(s).unwrap()).sum::<u64>(), total);
        }
        assert_eq!(FlowPlan::new().share(0), None);
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        let good = FlowPlan::new();
        assert_eq!(good.validate(), Ok(()));
        let wrong = [
            (FlowPlan { streams: 0, ..good.clone() }, "number of streams is 0"),
            (FlowPlan { streams: 129, ..good.clone() }, "1 to 128"),
            (FlowPlan { amount: Amount::Time(Duration::ZERO), ..good.clone() }, "time is 0ms"),
            (FlowPlan { amount: Amount::Bytes(Bytes::new(0)), ..good.clone() }, "bytes is 0 B"),
            (FlowPlan { interval: Duration::from_millis(1), ..good.clone() }, "interval is 1ms"),
            (FlowPlan { write_bytes: Bytes::gib(1), ..good.clone() }, "length of a write"),
            (FlowPlan { window_bytes: Some(Bytes::gib(2)), ..good.clone() }, "window is 2.00 GiB"),
            (FlowPlan { mss: Some(1 << 20), ..good.clone() }, "segment size"),
            (FlowPlan { rate_bps: Some(Rate::from_bps(0)), ..good.clone() }, "rate is 0.00 b/s"),
            (FlowPlan { congestion: Some("a b".into()), ..good }, "congestion control is 'a b'"),
        ];
        for (plan, expected) in wrong {
            let message = plan.validate().unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }
}
