//! The text of iperf3: a line per stream and interval, and a summary.

use std::fmt::Write;

use longhaul_core::plan::Direction;
use longhaul_core::result::{End, TestSample};

use super::figures::{
    StreamFigures, interval_packets, is_udp, per_second, percent, socket_of, span,
};
use super::units::{bytes, rate};
use super::{Finished, FinishedHalf, Started};

pub use super::units::Format;

const SEPARATOR: &str = "- - - - - - - - - - - - - - - - - - - - - - - - -\n";

/// The text of one test.
#[derive(Debug)]
pub struct TextOutput {
    format: Format,
    /// True after the header of the intervals.
    headed: bool,
}

/// The figures at the end of a line.
struct Line {
    /// `[  5]` or `[SUM]`, with the role in a bidirectional test.
    label: String,
    span: (f64, f64),
    bytes: u64,
    rest: String,
}

impl TextOutput {
    /// Creates the text with rates in `format`.
    pub fn new(format: Format) -> Self {
        TextOutput { format, headed: false }
    }

    /// Returns the lines before the data.
    pub fn start(&self, started: &Started) -> String {
        let mut text = String::new();
        if !started.at_client {
            let _ =
                writeln!(text, "Accepted connection from {}, port {}", started.host, started.port);
        } else if started.plan.direction == Direction::Reverse {
            let _ = writeln!(text, "Reverse mode, remote host {} is sending", started.host);
        }
        for (index, stream) in started.connected.iter().enumerate() {
            let (local, remote) = (stream.local, stream.remote);
            let _ = writeln!(
                text,
                "[{:3}] local {} port {} connected to {} port {}",
                socket_of(index),
                local.ip().to_canonical(),
                local.port(),
                remote.ip().to_canonical(),
                remote.port()
            );
        }
        text
    }

    /// Returns the lines of an interval, after the header if it is the first one.
    pub fn interval(&mut self, started: &Started, role: End, sample: &TestSample) -> String {
        let plan = &started.plan;
        let mut text = String::new();
        if !self.headed {
            self.headed = true;
            text.push_str(&header(started, role, false));
        } else if plan.streams > 1 && !sample.reverse {
            text.push_str(SEPARATOR);
        }
        let first = if sample.reverse { plan.streams as usize } else { 0 };
        let omitted = if sample.omitted { "(omitted)" } else { "" };
        let span = span(plan, sample);
        for (number, stream) in sample.streams.iter().enumerate() {
            let label = label(started, role, Some(socket_of(first + number)));
            let rest = if is_udp(plan) {
                let counts = interval_packets(plan, sample, number);
                udp_rest(role, counts, stream.udp.and_then(|udp| udp.jitter_ms))
            } else {
                match &stream.sender {
                    Some(tcp) => {
                        let cwnd = bytes(tcp.cwnd_bytes.get() as f64);
                        format!("{:3}   {cwnd}       ", tcp.retransmits)
                    }
                    None => " ".repeat(18),
                }
            };
            let rest = format!("{rest}{omitted}");
            text.push_str(&self.line(Line { label, span, bytes: stream.bytes.get(), rest }));
        }
        if plan.streams > 1 {
            let rest = self.sum_rest(started, role, sample);
            let label = label(started, role, None);
            let rest = format!("{rest}{omitted}");
            text.push_str(&self.line(Line { label, span, bytes: sample.bytes.get(), rest }));
        }
        text
    }

    fn sum_rest(&self, started: &Started, role: End, sample: &TestSample) -> String {
        let plan = &started.plan;
        if !is_udp(plan) {
            return match sample.retransmits {
                Some(retransmits) => format!("{retransmits:3}             "),
                None => " ".repeat(18),
            };
        }
        let all = (0..sample.streams.len()).map(|number| interval_packets(plan, sample, number));
        let counts = all.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        udp_rest(role, counts, sample.udp.and_then(|udp| udp.jitter_ms))
    }

    /// Returns the lines of the results.
    pub fn end(&self, finished: &Finished) -> String {
        let started = &finished.started;
        let mut text = SEPARATOR.to_owned();
        let role = finished.halves.first().map_or(End::Sender, |half| half.role);
        text.push_str(&header(started, role, true));
        for half in &finished.halves {
            let streams = finished.streams(half);
            for stream in &streams {
                self.ends(&mut text, started, half, std::slice::from_ref(stream));
            }
            if streams.len() > 1 {
                self.ends(&mut text, started, half, &streams);
            }
        }
        if started.at_client {
            if let Some(output) = &finished.theirs.server_output_text {
                let _ = writeln!(text, "\nServer output:\n{output}");
            }
            text.push_str("\niperf Done.\n");
        }
        text
    }

    /// Appends the lines of sender and receiver over `streams`: of one stream, or of the sum of several. A
    /// server knows only its own end.
    fn ends(
        &self,
        text: &mut String,
        started: &Started,
        half: &FinishedHalf,
        streams: &[StreamFigures<'_>],
    ) {
        for end in [End::Sender, End::Receiver] {
            if !started.at_client && end != half.role {
                continue;
            }
            let moved = streams.iter().map(|stream| stream.moved(end));
            let (bytes, seconds) =
                moved.fold((0, 0.0), |sum, one| (sum.0 + one.0, f64::max(sum.1, one.1)));
            let rest = end_rest(started, streams, end);
            let socket = streams.first().map(|stream| stream.socket).filter(|_| streams.len() == 1);
            let label = label(started, half.role, socket);
            text.push_str(&self.line(Line { label, span: (0.0, seconds), bytes, rest }));
        }
    }

    fn line(&self, line: Line) -> String {
        let Line { label, span: (start, end), bytes: count, rest } = line;
        let per_second = per_second(count, end - start);
        format!(
            "{label} {start:6.2}-{end:<6.2} sec  {}  {}/sec  {rest}\n",
            bytes(count as f64),
            rate(per_second, self.format)
        )
    }
}

fn end_rest(started: &Started, streams: &[StreamFigures<'_>], end: End) -> String {
    if is_udp(&started.plan) {
        let packets = streams.iter().map(|stream| stream.packets(end)).sum();
        let (lost, jitter) = match end {
            End::Sender => (0, 0.0),
            End::Receiver => {
                let jitter: f64 = streams.iter().map(StreamFigures::jitter_ms).sum();
                let lost = streams.iter().map(|stream| stream.lost().0).sum();
                (lost, jitter / streams.len().max(1) as f64)
            }
        };
        return format!("{}{end}", udp_rest(End::Receiver, (packets, lost), Some(jitter)));
    }
    let retransmits: Option<u64> = streams.iter().map(StreamFigures::retransmits).sum();
    match (end, retransmits) {
        (End::Sender, Some(retransmits)) => format!("{retransmits:3}             {end}"),
        _ => format!("{}{end}", " ".repeat(16)),
    }
}

fn udp_rest(role: End, (packets, lost): (u64, u64), jitter_ms: Option<f64>) -> String {
    match role {
        End::Sender => format!("{packets}  "),
        End::Receiver => format!(
            "{:5.3} ms  {lost}/{packets} ({}%)  ",
            jitter_ms.unwrap_or(0.0),
            two_digits(percent(lost, packets))
        ),
    }
}

/// Returns a percentage with two significant digits, as `%.2g` of C prints it.
fn two_digits(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let exponent = value.abs().log10().floor() as i32;
    if !(-4..2).contains(&exponent) {
        let mantissa = value / 10f64.powi(exponent);
        let mantissa = format!("{mantissa:.1}");
        let mantissa = mantissa.trim_end_matches('0').trim_end_matches('.');
        return format!("{mantissa}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs());
    }
    let digits = usize::try_from(1 - exponent).unwrap_or(0);
    let text = format!("{value:.digits$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

fn label(started: &Started, role: End, socket: Option<u64>) -> String {
    let number = socket.map_or("[SUM]".to_owned(), |socket| format!("[{socket:3}]"));
    if started.plan.direction != Direction::Both {
        return number;
    }
    let role = if role == End::Sender { "TX" } else { "RX" };
    format!("{number}[{role}-{}]", if started.at_client { 'C' } else { 'S' })
}

/// Returns the header of the intervals or of the results.
fn header(started: &Started, role: End, results: bool) -> String {
    let both = started.plan.direction == Direction::Both;
    let mut text = if both { "[ ID][Role]" } else { "[ ID]" }.to_owned();
    text.push_str(" Interval           Transfer     Bitrate");
    let sends = both || role == End::Sender;
    text.push_str(match (is_udp(&started.plan), results) {
        (true, false) if sends && !both => "         Total Datagrams",
        (true, _) => "         Jitter    Lost/Total Datagrams",
        (false, false) if sends => "         Retr  Cwnd",
        (false, true) => "         Retr",
        (false, false) => "",
    });
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_have_two_significant_digits() {
        for (value, text) in [
            (0.0, "0"),
            (4.5349, "4.5"),
            (12.3, "12"),
            (100.0, "1e+02"),
            (0.0123, "0.012"),
            (0.5, "0.5"),
        ] {
            assert_eq!(two_digits(value), text);
        }
        assert_eq!(two_digits(0.000_012_3), "1.2e-05");
    }
}
