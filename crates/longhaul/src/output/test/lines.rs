use longhaul_core::plan::{Direction, Protocol};
use longhaul_core::result::{Holder, Shares, TcpSample, TestSample};
use longhaul_core::units::Bytes;

use super::TestText;
use super::words::{millis, or_dash};

impl TestText {
    pub(super) fn columns(&self) -> String {
        match self.protocol {
            Protocol::Udp => format!(
                "{:>13} {:>11} {:>9} {:>10} {:>8} {:>7} {:>6} {:>6}",
                "seconds", "goodput", "jitter", "received", "lost", "lost %", "here", "there"
            ),
            Protocol::Tcp | Protocol::Mptcp => format!(
                "{:>13} {:>11} {:>9} {:>9} {:>7} {:>6} {:>6} {:>12}",
                "seconds", "goodput", "RTT", "cwnd", "retrans", "here", "there", "held by"
            ),
        }
    }

    /// One interval. Over TCP: goodput at the receiver, the sender's round-trip time, congestion
    /// window over all streams and retransmissions, the CPU of both ends, and what held the
    /// sender back for most of the time.
    pub(crate) fn interval(&self, sample: &TestSample) -> String {
        let span = format!("{:.1}-{:.1}", sample.start_seconds, sample.end_seconds);
        let span = match self.direction {
            Direction::Both => format!("{} {span}", if sample.reverse { '<' } else { '>' }),
            Direction::Forward | Direction::Reverse => span,
        };
        let sender = or_dash(sample.sender_cpu_percent, |cpu| format!("{cpu:.0} %"));
        let receiver = format!("{:.0} %", sample.receiver_cpu_percent);
        let server_sends = sample.reverse || self.direction == Direction::Reverse;
        let (here, there) = if server_sends { (receiver, sender) } else { (sender, receiver) };
        let goodput = sample.throughput_bps.to_string();
        let mut line = match self.protocol {
            Protocol::Udp => format!(
                "{span:>13} {goodput:>11} {:>9} {:>10} {:>8} {:>7} {here:>6} {there:>6}",
                or_dash(sample.udp, |udp| millis(udp.jitter_ms)),
                or_dash(sample.udp, |udp| udp.received.to_string()),
                or_dash(sample.udp, |udp| udp.lost.to_string()),
                or_dash(sample.udp, |udp| format!("{:.2}", udp.lost_percent)),
            ),
            Protocol::Tcp | Protocol::Mptcp => {
                let tcp: Vec<&TcpSample> =
                    sample.streams.iter().filter_map(|s| s.sender.as_ref()).collect();
                let cwnd = (!tcp.is_empty())
                    .then(|| Bytes::new(tcp.iter().map(|t| t.cwnd_bytes.get()).sum()));
                format!(
                    "{span:>13} {goodput:>11} {:>9} {:>9} {:>7} {here:>6} {there:>6} {:>12}",
                    or_dash(sample.rtt_ms, millis),
                    or_dash(cwnd, |bytes| bytes.to_string()),
                    or_dash(sample.retransmits, |count| count.to_string()),
                    or_dash(sample.shares.as_ref(), held_by),
                )
            }
        };
        if sample.omitted {
            line.push_str("  omitted");
        }
        line
    }
}

/// Who held the sender back for most of the time, in the words of `ss(8)` where it has some.
fn held_by(shares: &Shares) -> String {
    let (holder, percent) = shares.largest();
    let name = match holder {
        Holder::ReceiverWindow => "rwnd",
        Holder::SendBuffer => "sndbuf",
        Holder::CongestionWindow => "cwnd",
        Holder::Pacing => "pacing",
        Holder::Application => "sender",
    };
    format!("{name} {percent:.0} %")
}

#[cfg(test)]
mod tests {
    use longhaul_core::plan::TestPlan;
    use longhaul_core::result::UdpResult;

    use super::super::sample::{self, plan};
    use super::*;

    #[test]
    fn columns_stand_under_their_heads() {
        let text = TestText::new("far:5210", &plan(Direction::Forward));
        let joined = sample::interval();
        let head = text.head();
        let heads = head.lines().last().unwrap();
        let line = text.interval(&joined);
        let columns = line.strip_suffix("  omitted").unwrap();
        assert_eq!((columns.len(), heads.len()), (80, 80), "{heads}\n{line}");
        for value in ["11.0-12.0", "9.42 Gb/s", "90.1 ms", "110 MiB", "12", "54 %", "cwnd 91 %"] {
            let end = columns.find(&format!(" {value}")).map(|at| at + 1 + value.len()).unwrap();
            assert!(heads[..end].ends_with(char::is_alphabetic), "{heads}\n{line}");
        }
        let alone = text.interval(&TestSample { shares: None, retransmits: None, ..joined });
        assert!(alone.contains(" - "), "{alone}");
        assert!(head.starts_with("TCP to far, 4 streams, 10s\n"), "{head}");
    }

    #[test]
    fn the_ways_of_a_test_of_both_are_told_apart() {
        let text = TestText::new("far:5210", &plan(Direction::Both));
        let there = sample::interval();
        let back = TestSample { reverse: true, ..there.clone() };
        assert!(text.interval(&there).contains(" > 11.0-12.0 "));
        let line = text.interval(&back);
        assert!(line.contains(" < 11.0-12.0 ") && line.len() == 80 + "  omitted".len(), "{line}");
    }

    #[test]
    fn datagrams_have_columns_of_their_own() {
        let plan = TestPlan { protocol: Protocol::Udp, ..plan(Direction::Forward) };
        let text = TestText::new("far:5210", &plan);
        let udp = UdpResult {
            received: 1_234_567,
            lost: 12,
            lost_percent: 0.013,
            jitter_ms: 0.021,
            ..UdpResult::default()
        };
        let line =
            text.interval(&TestSample { udp: Some(udp), omitted: false, ..sample::interval() });
        assert_eq!((line.len(), text.columns().len()), (77, 77), "{line}");
        assert!(line.contains(" 0.021 ms    1234567       12    0.01 "), "{line}");
    }
}
