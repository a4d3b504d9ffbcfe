//! The validation of a test plan, by client and server.

use std::time::Duration;

use super::{Opener, Pacing, Protocol, TestLength, TestLink, TestPlan};
use crate::plan::{PlanError, TestOption};
use crate::units::format_span;
use crate::wire::DATAGRAM_HEADER_BYTES;

fn check(
    good: bool,
    field: &'static str,
    value: String,
    accepted: &'static str,
) -> Result<(), PlanError> {
    if good { Ok(()) } else { Err(PlanError::OutOfRange { field, value, accepted }) }
}

impl TestPlan {
    /// Checks every number.
    ///
    /// # Errors
    /// The first field that is out of range.
    pub fn validate(&self) -> Result<(), PlanError> {
        let span = |from: f64, to: f64, d: Duration| (from..=to).contains(&d.as_secs_f64());
        match self.amount {
            TestLength::Time(t) => {
                check(span(0.1, 86400.0, t), "time", format_span(t), "0.1s to 24h")?;
            }
            TestLength::Bytes(b) => check(b.get() > 0, "bytes", b.to_string(), "at least 1")?,
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
        self.check_length()?;
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
            // TCP_CA_NAME_MAX is 16 with the terminating zero (net/tcp.h).
            let good = (1..16).contains(&name.len())
                && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
            check(good, "congestion control", format!("'{name}'"), "a name such as bbr or cubic")?;
        }
        if let Some(burst) = self.burst_bytes {
            let good = (1..=1 << 30).contains(&burst.get());
            check(good, "burst", burst.to_string(), "1 byte to 1 GiB")?;
        }
        if let Some(dscp) = self.dscp {
            // Six bits, RFC 2474.
            check(dscp < 64, "DSCP", dscp.to_string(), "0 to 63")?;
        }
        check(
            self.links.len() <= TestLink::MAX_LINKS,
            "number of links",
            self.links.len().to_string(),
            "128 at most",
        )?;
        self.check_together()
    }

    /// Checks the length of a write or datagram.
    fn check_length(&self) -> Result<(), PlanError> {
        let length = self.write_bytes.get();
        if self.protocol == Protocol::Udp {
            let good =
                (DATAGRAM_HEADER_BYTES as u64..=Self::MAX_DATAGRAM_BYTES.get()).contains(&length);
            return check(good, "length of a datagram", length.to_string(), "24 to 65507 bytes");
        }
        let good = (1..=Self::MAX_WRITE_BYTES.get()).contains(&length);
        check(good, "length of a write", self.write_bytes.to_string(), "1 byte to 4 MiB")
    }

    /// Checks options that require or exclude each other.
    fn check_together(&self) -> Result<(), PlanError> {
        let udp = self.protocol == Protocol::Udp;
        let timer = self.pacing() == Pacing::Timer;
        let mixed = self.links.iter().any(|link| match (&link.client, &link.server) {
            (Some(client), Some(server)) => client.ip.is_ipv4() != server.ip.is_ipv4(),
            _ => false,
        });
        let kernel = self.protocol == Protocol::Mptcp && self.pacing == Some(Pacing::Kernel);
        let flipped = !self.links.is_empty() && self.opener == Opener::Server;
        let conflicts = [
            (udp && self.congestion.is_some(), TestOption::Congestion, TestOption::Udp),
            (udp && self.mss.is_some(), TestOption::SegmentSize, TestOption::Udp),
            (udp && self.nodelay, TestOption::NoDelay, TestOption::Udp),
            (udp && self.zero_copy, TestOption::ZeroCopy, TestOption::Udp),
            (udp && self.skip_receive_copy, TestOption::SkipReceiveCopy, TestOption::Udp),
            (kernel, TestOption::KernelPacing, TestOption::Mptcp),
            (self.burst_bytes.is_some() && !timer, TestOption::Burst, TestOption::KernelPacing),
            (flipped, TestOption::Links, TestOption::ServerOpens),
            (mixed, TestOption::Ipv4, TestOption::Ipv6),
        ];
        if let Some((_, one, other)) = conflicts.into_iter().find(|(wrong, _, _)| *wrong) {
            return Err(PlanError::Conflict { one, other });
        }
        let rate = self.rate_bps.is_some();
        let needs = [
            (self.burst_bytes.is_some() && !rate, TestOption::Burst, TestOption::Rate),
            (self.pacing.is_some() && !rate, TestOption::Pacing, TestOption::Rate),
        ];
        match needs.into_iter().find(|(wrong, _, _)| *wrong) {
            Some((_, one, other)) => Err(PlanError::Needs { one, other }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::parse_addresses;
    use crate::units::{Bytes, Rate};

    #[test]
    fn nonsense_is_refused_by_name() {
        let good = TestPlan::new();
        assert_eq!(good.validate(), Ok(()));
        let wrong = [
            (TestPlan { streams: 0, ..good.clone() }, "number of streams is 0"),
            (TestPlan { streams: 129, ..good.clone() }, "1 to 128"),
            (TestPlan { amount: TestLength::Time(Duration::ZERO), ..good.clone() }, "time is 0ms"),
            (TestPlan { amount: TestLength::Bytes(Bytes::new(0)), ..good.clone() }, "bytes is 0 B"),
            (TestPlan { interval: Duration::from_millis(1), ..good.clone() }, "interval is 1ms"),
            (TestPlan { write_bytes: Bytes::gib(1), ..good.clone() }, "length of a write"),
            (TestPlan { window_bytes: Some(Bytes::gib(2)), ..good.clone() }, "window is 2.00 GiB"),
            (TestPlan { mss: Some(1 << 20), ..good.clone() }, "segment size"),
            (TestPlan { rate_bps: Some(Rate::from_bps(0)), ..good.clone() }, "rate is 0.00 b/s"),
            (TestPlan { congestion: Some("a b".into()), ..good.clone() }, "control is 'a b'"),
            (TestPlan { dscp: Some(64), ..good.clone() }, "DSCP is 64"),
            (TestPlan { burst_bytes: Some(Bytes::new(0)), ..good }, "burst is 0 B"),
        ];
        for (plan, expected) in wrong {
            let message = plan.validate().unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn conflicting_options_are_named() {
        let good = TestPlan::new();
        let rate_bps = Some(Rate::from_bps(1_000_000_000));
        let datagrams = TestPlan {
            protocol: Protocol::Udp,
            write_bytes: TestPlan::DATAGRAM_BYTES,
            ..good.clone()
        };
        assert_eq!(datagrams.validate(), Ok(()));
        let one = Some(Bytes::new(1));
        let kernel = Some(Pacing::Kernel);
        let addresses = |text| parse_addresses(text).unwrap();
        let wrong = [
            (TestPlan { zero_copy: true, ..datagrams.clone() }, "zero-copy send cannot"),
            (TestPlan { write_bytes: Bytes::new(23), ..datagrams.clone() }, "24 to 65507"),
            (TestPlan { write_bytes: Bytes::mib(1), ..datagrams }, "24 to 65507"),
            (TestPlan { burst_bytes: one, ..good.clone() }, "a burst needs a rate"),
            (TestPlan { pacing: kernel, ..good.clone() }, "pacing needs a rate"),
            (
                TestPlan { burst_bytes: one, rate_bps, pacing: kernel, ..good.clone() },
                "cannot be used with pacing by the kernel",
            ),
            (
                TestPlan {
                    links: TestLink::pair(&addresses("::1"), &[]),
                    opener: Opener::Server,
                    ..good.clone()
                },
                "data connections that the server opens",
            ),
            (
                TestPlan {
                    links: TestLink::pair(&addresses("::1"), &addresses("127.0.0.1")),
                    ..good.clone()
                },
                "an IPv6 address on one link",
            ),
        ];
        for (plan, expected) in wrong {
            let message = plan.validate().unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
        let burst = TestPlan { burst_bytes: one, rate_bps, ..good };
        assert_eq!((burst.validate(), burst.pacing()), (Ok(()), Pacing::Timer));
    }
}
