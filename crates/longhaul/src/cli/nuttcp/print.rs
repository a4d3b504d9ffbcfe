//! The lines that a client of nuttcp prints.

use longhaul_core::result::{End, TestSample};
use longhaul_interop::nuttcp::arguments::ClientArguments;
use longhaul_interop::nuttcp::{
    Block, Brief, ClientResult, Datagrams, Interval, LocalEnd, Observer, Opening, Retransmits,
    ServerReport, Style,
};

use crate::exit::Coded;
use crate::output::print_result;

/// Prints the intervals and notices of a test as they arrive.
pub(super) struct Live<'a> {
    arguments: &'a ClientArguments,
    /// The first failure of the output.
    pub(super) printed: Result<(), Coded>,
}

impl<'a> Live<'a> {
    pub(super) fn new(arguments: &'a ClientArguments) -> Self {
        Live { arguments, printed: Ok(()) }
    }

    fn print(&mut self, line: &str) {
        if self.printed.is_ok() {
            self.printed = print_result(&format!("{}{line}\n", prefix(self.arguments)));
        }
    }
}

impl Observer for Live<'_> {
    fn sample(&mut self, _sample: &TestSample) {}

    fn interval(&mut self, line: Option<&str>, interval: &Interval) {
        if self.arguments.parameters.interval.is_zero() {
            return;
        }
        let style = Style(self.arguments.parameters.format);
        let line = match line {
            Some(line) => with_connection(line, &interval.connection_fields(style)),
            None => interval.line(style),
        };
        self.print(&line);
    }

    fn notice(&mut self, line: &str) {
        self.print(line);
    }
}

/// Returns the identifier before the lines of a test.
fn prefix(arguments: &ClientArguments) -> String {
    if arguments.ident.is_empty() { String::new() } else { format!("{}: ", arguments.ident) }
}

/// Inserts the fields about the sender's connection after the rate in the line of a server.
fn with_connection(line: &str, fields: &str) -> String {
    let after_rate = line.find("Mbps").map(|at| at + "Mbps".len()).map(|at| {
        // With -fparse the value follows.
        line[at..]
            .strip_prefix('=')
            .map_or(at, |rest| at + 1 + rest.find(' ').unwrap_or(rest.len()))
    });
    let (head, tail) = line.split_at(after_rate.unwrap_or(line.len()));
    format!("{head}{fields}{tail}")
}

/// Returns the lines at the end of a test.
pub(super) fn last_lines(arguments: &ClientArguments, result: &ClientResult) -> String {
    let mut text = String::new();
    if arguments.output.blocks {
        text.push_str(&blocks(arguments, result));
    }
    if arguments.output.brief {
        if arguments.output.blocks || !arguments.parameters.interval.is_zero() {
            text.push('\n');
        }
        let style = Style(result.parameters.format);
        let line = brief(result).line(style);
        text.push_str(&format!("{}{line}\n", prefix(arguments)));
    }
    text
}

fn blocks(arguments: &ClientArguments, result: &ClientResult) -> String {
    let parameters = &result.parameters;
    let sends = parameters.client_sends;
    let style = Style(parameters.format);
    let block = Block { sends, ident: &arguments.ident, parameters, style };
    let rtt_ms = result.rtt.map_or(0.0, |rtt| rtt.as_secs_f64() * 1e3);
    let stream = result.test.streams.first();
    let opening = Opening {
        connected: result.rtt.is_some(),
        peer: result.address.ip().to_canonical(),
        mss: stream.and_then(|stream| stream.mss),
        rtt_ms,
    };
    let totals = result.ours.totals(parameters);
    let mut lines = block.start(&opening, result.windows);
    lines.extend(block.end(&totals, arguments.output.cpu_seconds));
    lines.push(String::new());
    let server = result.server.iter().flat_map(|server| &server.lines);
    let hidden = |line: &&String| arguments.output.cpu_seconds || !line.contains("KB/cpu");
    lines.extend(server.filter(hidden).cloned());
    lines.join("\n") + "\n"
}

/// Returns the figures of the last line: the receiver's bytes, time and rate.
fn brief(result: &ClientResult) -> Brief {
    let (parameters, ours) = (&result.parameters, &result.ours);
    let none = ServerReport::default();
    let theirs = result.server.as_ref().unwrap_or(&none);
    let role = if parameters.client_sends { End::Sender } else { End::Receiver };
    let our_cpu = ours.totals(parameters).cpu_percent();
    let their_cpu = theirs.cpu_percent.unwrap_or(0);
    let their_bytes = theirs.bytes().unwrap_or(0);
    let (sent, received) = match role {
        End::Sender => (ours.bytes, their_bytes),
        End::Receiver => (their_bytes, ours.bytes),
    };
    let common = Brief {
        bytes: received,
        sent_bytes: sent,
        datagrams: parameters.udp.then(|| datagrams(sent, received, parameters.buffer_bytes)),
        retransmits: retransmits(ours, theirs).filter(|_| !parameters.udp),
        cwnd_kb: cwnd_kb(ours, theirs).filter(|_| !parameters.udp),
        rtt_ms: theirs.rtt_ms.or(result.rtt.map(|rtt| rtt.as_secs_f64() * 1e3)),
        jitter: theirs.jitter.or(ours.jitter).map(|jitter| (parameters.jitter, jitter)),
        delay: theirs.delay.or(ours.delay).map(|delay| (parameters.delay, delay)),
        ..Brief::default()
    };
    match role {
        End::Sender => Brief {
            seconds: theirs.seconds.unwrap_or(0.0),
            megabits: theirs.megabits.unwrap_or(0.0),
            sender_cpu_percent: our_cpu,
            receiver_cpu_percent: their_cpu,
            ..common
        },
        End::Receiver => Brief {
            seconds: ours.seconds,
            megabits: longhaul_interop::nuttcp::megabits(ours.bytes, ours.seconds),
            sender_cpu_percent: their_cpu,
            receiver_cpu_percent: our_cpu,
            ..common
        },
    }
}

/// Returns the datagrams of both totals, of which the server's is rounded to four digits.
fn datagrams(sent: u64, received: u64, length: u32) -> Datagrams {
    let whole =
        |bytes: u64| (bytes + u64::from(length) / 2) / u64::from(length) * u64::from(length);
    Datagrams::of_bytes(whole(sent), whole(received), length)
}

fn retransmits(ours: &LocalEnd, theirs: &ServerReport) -> Option<Retransmits> {
    match ours.retransmits {
        Some(count) => Some(Retransmits { count, of_host: false }),
        None => theirs
            .retransmits
            .map(|count| Retransmits { count, of_host: theirs.retransmits_of_host }),
    }
}

fn cwnd_kb(ours: &LocalEnd, theirs: &ServerReport) -> Option<u64> {
    if ours.retransmits.is_some() { Some(ours.cwnd_bytes / 1024) } else { theirs.cwnd_kb }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_a_sender_follow_the_rate() {
        assert_eq!(
            with_connection("  1.0 MB /   0.50 sec = 9.0 Mbps Tot: 2.0 MB", "     5 retrans"),
            "  1.0 MB /   0.50 sec = 9.0 Mbps     5 retrans Tot: 2.0 MB"
        );
        assert_eq!(
            with_connection("megabytes=1.0 real_sec=0.50 rate_Mbps=9.0 x=1", " retrans=5"),
            "megabytes=1.0 real_sec=0.50 rate_Mbps=9.0 retrans=5 x=1"
        );
        assert_eq!(with_connection("other", " x"), "other x");
    }
}
