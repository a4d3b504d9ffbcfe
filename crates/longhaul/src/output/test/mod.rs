//! A memory-to-memory test as text: a heading, a line per interval, and
//! a block that ends with the goodput and the reason for it.

mod block;
#[cfg(test)]
mod fixture;
pub(super) mod words;

use std::fmt::Write;

use longhaul_core::plan::{Direction, Opener, Protocol, TestLength, TestPlan};
use longhaul_core::result::{Holder, Shares, TcpSample, TestSample};
use longhaul_core::units::{Bytes, format_span};
use words::{count, millis, or_dash, wrap};

use crate::output::text_columns;

/// The width of the table with all columns.
const COLUMNS: usize = 80;

/// The text of one test.
pub(crate) struct TestText {
    target: String,
    /// The client of a test between two servers; `None` for this host.
    client: Option<String>,
    head: String,
    direction: Direction,
    protocol: Protocol,
}

impl TestText {
    /// Returns the text of a test of `plan` against `target`.
    pub(crate) fn new(target: &str, plan: &TestPlan) -> Self {
        let target = words::short(target);
        let head = parameters(&way(&target, plan.direction), plan);
        let (direction, protocol) = (plan.direction, plan.protocol);
        TestText { target, client: None, head, direction, protocol }
    }

    /// Returns the text of a test of `plan` between the servers `client` and `target`.
    pub(crate) fn between(client: &str, target: &str, plan: &TestPlan) -> Self {
        let (client, target) = (words::short(client), words::short(target));
        let way = match plan.direction {
            Direction::Forward => format!("from {client} to {target}"),
            Direction::Reverse => format!("from {target} to {client}"),
            Direction::Both => format!("between {client} and {target}"),
        };
        let head = parameters(&way, plan);
        TestText { head, client: Some(client), ..TestText::new(&target, plan) }
    }

    /// Returns the names of the client and the server in the headings of the table.
    fn headings(&self) -> (&'static str, &'static str) {
        if self.client.is_some() { ("client", "server") } else { ("here", "there") }
    }
}

/// The widths of the tables without their last columns.
const UDP_WIDTHS: [usize; 3] = [55, 63, 77];
const TCP_WIDTHS: [usize; 3] = [53, 67, 80];

/// Returns the columns of a line of the table that fit into `columns` characters.
fn fitting(line: &str, widths: &[usize], columns: usize) -> String {
    let fits = widths.iter().rev().find(|width| **width <= columns).or(widths.first());
    line.chars().take(fits.copied().unwrap_or(columns)).collect()
}

/// Returns the direction of a test of this host with `target`.
fn way(target: &str, direction: Direction) -> String {
    match direction {
        Direction::Forward => format!("to {target}"),
        Direction::Reverse => format!("from {target}"),
        Direction::Both => format!("to and from {target}"),
    }
}

/// Returns the parameters of a test. `way` names its direction and hosts.
fn parameters(way: &str, plan: &TestPlan) -> String {
    let amount = match plan.amount {
        TestLength::Time(time) => format_span(time),
        TestLength::Bytes(bytes) => bytes.to_string(),
    };
    let streams = count(plan.streams.into(), "stream");
    let mut head = format!("{} {way}, {streams}, {amount}", plan.protocol);
    if plan.direction == Direction::Both {
        head.push_str(" each way");
    }
    if !plan.omit.is_zero() {
        let _ = write!(head, ", first {} omitted", format_span(plan.omit));
    }
    if let Some(rate) = plan.rate_bps {
        let _ = write!(head, ", paced to {rate}");
    }
    if plan.protocol == Protocol::Udp {
        let _ = write!(head, ", {}-byte datagrams", plan.write_bytes.get());
    }
    if let Some(window) = plan.window_bytes {
        let _ = write!(head, ", window {window}");
    }
    if let Some(congestion) = &plan.congestion {
        let _ = write!(head, ", {congestion}");
    }
    if plan.links.len() > 1 {
        let _ = write!(head, ", over {}", count(plan.links.len() as u64, "link"));
    }
    if plan.zero_copy {
        head.push_str(", zero-copy");
    }
    if plan.opener == Opener::Server {
        head.push_str(", the server connects");
    }
    wrap(&head, text_columns())
}

impl TestText {
    /// Returns the parameters of the test and the header of the table.
    pub(crate) fn head(&self) -> String {
        format!("{}\n{}", self.head, self.columns())
    }
}

impl TestText {
    fn columns(&self) -> String {
        let (here, there) = self.headings();
        self.fitting(&match self.protocol {
            Protocol::Udp => format!(
                "{:>13} {:>11} {:>9} {:>10} {:>8} {:>7} {here:>6} {there:>6}",
                "seconds", "goodput", "jitter", "received", "lost", "lost %"
            ),
            Protocol::Tcp | Protocol::Mptcp => format!(
                "{:>13} {:>11} {:>9} {:>9} {:>7} {here:>6} {there:>6} {:>12}",
                "seconds", "goodput", "RTT", "cwnd", "retrans", "limited by"
            ),
        })
    }

    /// Returns the columns of a line of the table that fit the terminal.
    fn fitting(&self, line: &str) -> String {
        let widths = match self.protocol {
            Protocol::Udp => &UDP_WIDTHS,
            Protocol::Tcp | Protocol::Mptcp => &TCP_WIDTHS,
        };
        fitting(line, widths, text_columns())
    }

    /// Returns the line of one interval. For TCP: the goodput at the receiver, the sender's RTT,
    /// its congestion window and retransmits over all streams, the CPU of both hosts, and the limit
    /// of the sender for most of the time.
    pub(crate) fn interval(&self, sample: &TestSample) -> String {
        let span = format!("{:.1}-{:.1}", sample.start_seconds, sample.end_seconds);
        let span = match self.direction {
            Direction::Both => format!("{} {span}", if sample.reverse { '<' } else { '>' }),
            Direction::Forward | Direction::Reverse => span,
        };
        let sender = or_dash(sample.sender_cpu_percent, |cpu| format!("{cpu:.0} %"));
        let receiver = or_dash(sample.receiver_cpu_percent, |cpu| format!("{cpu:.0} %"));
        let server_sends = sample.reverse || self.direction == Direction::Reverse;
        let (here, there) = if server_sends { (receiver, sender) } else { (sender, receiver) };
        let goodput = sample.throughput_bps.to_string();
        let line = match self.protocol {
            Protocol::Udp => format!(
                "{span:>13} {goodput:>11} {:>9} {:>10} {:>8} {:>7} {here:>6} {there:>6}",
                or_dash(sample.udp.and_then(|udp| udp.jitter_ms), millis),
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
                    or_dash(sample.shares.as_ref(), limited_by),
                )
            }
        };
        let mut line = self.fitting(&line);
        if sample.omitted {
            line.push_str("  omitted");
        }
        line
    }
}

/// Returns the limit of the sender for most of the time, with the names of `ss(8)`.
fn limited_by(shares: &Shares) -> String {
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

    use super::fixture::plan;
    use super::{fixture, *};

    #[test]
    fn values_align_with_the_header() {
        let text = TestText::new("far:5210", &plan(Direction::Forward));
        let joined = fixture::interval();
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
    fn a_narrow_terminal_has_fewer_columns() {
        let text = TestText::new("far:5210", &plan(Direction::Forward));
        let (head, line) = (text.columns(), text.interval(&fixture::interval()));
        for (columns, last) in
            [(60, "retrans"), (67, "there"), (80, "limited by"), (200, "limited by")]
        {
            let shown = fitting(&head, &TCP_WIDTHS, columns);
            assert!(shown.ends_with(last) && shown.len() <= columns, "{shown}");
            assert!(fitting(&line, &TCP_WIDTHS, columns).len() <= columns);
        }
        assert!(head.starts_with(&fitting(&head, &UDP_WIDTHS, 60)));
    }

    #[test]
    fn lines_of_a_bidirectional_test_have_their_direction() {
        let text = TestText::new("far:5210", &plan(Direction::Both));
        let there = fixture::interval();
        let back = TestSample { reverse: true, ..there.clone() };
        assert!(text.interval(&there).contains(" > 11.0-12.0 "));
        let line = text.interval(&back);
        assert!(line.contains(" < 11.0-12.0 ") && line.len() == 80 + "  omitted".len(), "{line}");
    }

    #[test]
    fn udp_lines_have_datagram_columns() {
        let plan = TestPlan { protocol: Protocol::Udp, ..plan(Direction::Forward) };
        let text = TestText::new("far:5210", &plan);
        let udp = UdpResult {
            received: 1_234_567,
            lost: 12,
            lost_percent: 0.013,
            jitter_ms: Some(0.021),
            ..UdpResult::default()
        };
        let line =
            text.interval(&TestSample { udp: Some(udp), omitted: false, ..fixture::interval() });
        assert_eq!((line.len(), text.columns().len()), (77, 77), "{line}");
        assert!(line.contains(" 0.021 ms    1234567       12    0.01 "), "{line}");
    }
}
