//! The receiving end of a probe.

use std::fs;
use std::io::{self, BufRead};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use longhaul_sys::datagram::Receiver;
use longhaul_sys::poll::readable;

use super::datagram::{HEADER_BYTES, monotonic_nanos, realtime_nanos};
use super::tally::Tally;
use super::{ProbeReport, ReceivePlan, Sent};

/// The socket's receive buffer: half a second at 1 Gb/s.
const BUFFER_BYTES: usize = 64 << 20;

/// The interval at which the receiver checks whether the sender has ended.
const PATIENCE: Duration = Duration::from_millis(20);

/// Receives until `control` returns the sender's [`Sent`] as a line, and then for the plan's drain
/// time. Calls `ready` once the socket is open.
///
/// # Errors
/// The socket could not be created or read, or `control` ended without a [`Sent`].
pub fn receive(
    plan: &ReceivePlan,
    control: impl BufRead + Send + 'static,
    ready: impl FnOnce() -> io::Result<()>,
) -> io::Result<ProbeReport> {
    let room = if plan.verify { usize::MAX } else { HEADER_BYTES };
    let mut receiver = Receiver::bind(plan.bind, BUFFER_BYTES, room)?;
    let (sender, control_line) = channel();
    std::thread::spawn(move || sender.send(read_sent(control)));
    let kernel_before = KernelCounts::read(plan.bind.is_ipv6());
    let clock_before = clock_difference();
    ready()?;
    let mut tally = Tally::new(plan.verify, plan.bind.is_ipv6());
    let mut sent: Option<(Sent, Instant)> = None;
    loop {
        while receiver.receive(|arrival| tally.add(&arrival))? > 0 {}
        match &sent {
            Some((_, end)) if Instant::now() >= *end => break,
            Some(_) => {}
            None => match control_line.recv_timeout(Duration::ZERO) {
                Ok(line) => sent = Some((line?, Instant::now() + plan.drain_seconds)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            },
        }
        readable(&receiver, PATIENCE);
    }
    let (sent, _) = sent.ok_or(io::ErrorKind::UnexpectedEof)?;
    let kernel = KernelCounts::read(plan.bind.is_ipv6());
    let mut report = tally.report(sent.datagrams);
    report.checksum_errors = kernel.checksum_errors.saturating_sub(kernel_before.checksum_errors);
    report.socket_drops = kernel.buffer_errors.saturating_sub(kernel_before.buffer_errors);
    report.clock_step_ms = (clock_difference() - clock_before) as f64 / 1e6;
    report.sent = sent;
    Ok(report)
}

fn read_sent(mut control: impl BufRead) -> io::Result<Sent> {
    let mut line = String::new();
    control.read_line(&mut line)?;
    if line.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_str(&line)?)
}

/// Returns the offset of the wall clock from the monotonic clock; it changes only when the wall
/// clock is set.
fn clock_difference() -> i64 {
    realtime_nanos().wrapping_sub(monotonic_nanos()) as i64
}

/// The network namespace's counts of datagrams that arrived but reached no program.
#[derive(Debug, Default, PartialEq, Eq)]
struct KernelCounts {
    /// Datagrams with a wrong checksum.
    checksum_errors: u64,
    /// Datagrams dropped because a socket's buffer was full.
    buffer_errors: u64,
}

impl KernelCounts {
    fn read(ipv6: bool) -> Self {
        let file = if ipv6 { "/proc/self/net/snmp6" } else { "/proc/self/net/snmp" };
        let text = fs::read_to_string(file).unwrap_or_default();
        if ipv6 { Self::of_lines(&text) } else { Self::of_columns(&text) }
    }

    /// Parses `/proc/net/snmp6`: one name and value per line.
    fn of_lines(text: &str) -> Self {
        let value = |name: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
                .unwrap_or_default()
        };
        KernelCounts {
            checksum_errors: value("Udp6InCsumErrors "),
            buffer_errors: value("Udp6RcvbufErrors "),
        }
    }

    /// Parses `/proc/net/snmp`: a line of names followed by a line of values.
    fn of_columns(text: &str) -> Self {
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp: "));
        let (names, values) = (lines.next().unwrap_or(""), lines.next().unwrap_or(""));
        let value = |name| {
            let mut pairs = names.split_whitespace().zip(values.split_whitespace());
            pairs.find(|pair| pair.0 == name).and_then(|pair| pair.1.parse().ok()).unwrap_or(0)
        };
        KernelCounts {
            checksum_errors: value("InCsumErrors"),
            buffer_errors: value("RcvbufErrors"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_counts_are_found() {
        let expected = KernelCounts { checksum_errors: 3, buffer_errors: 9 };
        let columns = "Udp: InDatagrams RcvbufErrors InCsumErrors\nUdp: 100 9 3\nUdpLite: 1\n";
        assert_eq!(KernelCounts::of_columns(columns), expected);
        let lines = "Udp6InDatagrams  7\nUdp6RcvbufErrors                9\nUdp6InCsumErrors \t3\n";
        assert_eq!(KernelCounts::of_lines(lines), expected);
        assert_eq!(KernelCounts::of_lines(""), KernelCounts::default());
    }
}
