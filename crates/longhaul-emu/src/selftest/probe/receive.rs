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

/// Receives until `control` returns the sender's [`Sent`] as a line, and then until no datagram has
/// arrived for the plan's drain time. Calls `ready` once the socket is open.
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
    let mut sent: Option<Sent> = None;
    // The time of the last arrival or of the sender's end.
    let mut last = Instant::now();
    let sent = loop {
        // Read before the socket, so that a pause of this thread is not taken for silence.
        let now = Instant::now();
        while receiver.receive(|arrival| tally.add(&arrival))? > 0 {
            last = Instant::now();
        }
        match sent {
            Some(sent) if now.saturating_duration_since(last) >= plan.drain_seconds => break sent,
            Some(_) => {}
            None => match control_line.recv_timeout(Duration::ZERO) {
                Ok(line) => {
                    sent = Some(line?);
                    last = Instant::now();
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            },
        }
        readable(&receiver, PATIENCE);
    };
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
/// clock is set. Of several readings the shortest counts: a pause of this thread between the clocks
/// would add to the offset.
fn clock_difference() -> i64 {
    const READINGS: usize = 8;
    let readings = (0..READINGS).map(|_| {
        let (before, wall, after) = (monotonic_nanos(), realtime_nanos(), monotonic_nanos());
        let took = after - before;
        (took, wall.wrapping_sub(before + took / 2) as i64)
    });
    readings.min_by_key(|(took, _)| *took).map_or(0, |(_, difference)| difference)
}

/// The network namespace's counts of datagrams that arrived but reached no program.
#[derive(Debug, Default, PartialEq, Eq)]
struct KernelCounts {
    /// Datagrams with a wrong checksum.
    checksum_errors: u64,
    /// Datagrams dropped because a socket's buffer was full, or because all UDP sockets used the
    /// memory of `net.ipv4.udp_mem` (counted separately since Linux 5.11).
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
        let value = |name: &str| -> u64 {
            text.lines()
                .find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
                .unwrap_or_default()
        };
        KernelCounts {
            checksum_errors: value("Udp6InCsumErrors "),
            buffer_errors: value("Udp6RcvbufErrors ") + value("Udp6MemErrors "),
        }
    }

    /// Parses `/proc/net/snmp`: a line of names followed by a line of values.
    fn of_columns(text: &str) -> Self {
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp: "));
        let (names, values) = (lines.next().unwrap_or(""), lines.next().unwrap_or(""));
        let value = |name| -> u64 {
            let mut pairs = names.split_whitespace().zip(values.split_whitespace());
            pairs.find(|pair| pair.0 == name).and_then(|pair| pair.1.parse().ok()).unwrap_or(0)
        };
        KernelCounts {
            checksum_errors: value("InCsumErrors"),
            buffer_errors: value("RcvbufErrors") + value("MemErrors"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;
    use std::net::UdpSocket;
    use std::thread;

    use super::super::datagram::{Header, seal};
    use super::*;

    #[test]
    fn the_kernels_counts_are_found() {
        let expected = KernelCounts { checksum_errors: 3, buffer_errors: 13 };
        let columns =
            "Udp: InDatagrams RcvbufErrors InCsumErrors MemErrors\nUdp: 100 9 3 4\nUdpLite: 1\n";
        assert_eq!(KernelCounts::of_columns(columns), expected);
        let lines = "Udp6InDatagrams  7\nUdp6RcvbufErrors                9\nUdp6InCsumErrors \t3\n\
                     Udp6MemErrors 4\n";
        assert_eq!(KernelCounts::of_lines(lines), expected);
        assert_eq!(KernelCounts::of_lines(""), KernelCounts::default());
        let before_linux_5_11 = "Udp: InDatagrams RcvbufErrors InCsumErrors\nUdp: 100 13 3\n";
        assert_eq!(KernelCounts::of_columns(before_linux_5_11), expected);
    }

    /// A queue of a link can hold datagrams for longer than the drain time after the sender's end.
    #[test]
    fn datagrams_count_for_as_long_as_the_link_passes_them_on() {
        const DATAGRAMS: u64 = 8;
        const INTERVAL: Duration = Duration::from_millis(60);
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let bind = socket.local_addr().unwrap();
        drop(socket);
        let plan = ReceivePlan { bind, drain_seconds: INTERVAL * 5, verify: true };
        // The sender has ended before the first arrival.
        let sent = Sent { datagrams: DATAGRAMS, ..Sent::default() };
        let control = Cursor::new(serde_json::to_vec(&sent).unwrap());
        let report = thread::scope(|scope| {
            let pass_on = || {
                scope.spawn(|| {
                    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
                    for number in 0..DATAGRAMS {
                        let mut datagram = [0; 40];
                        seal(&mut datagram, Header { number, sent_nanos: 0 }, true);
                        sender.send_to(&datagram, bind).unwrap();
                        thread::sleep(INTERVAL);
                    }
                });
                Ok(())
            };
            receive(&plan, control, pass_on).unwrap()
        });
        assert_eq!((report.received, report.lost), (DATAGRAMS, 0));
    }
}
