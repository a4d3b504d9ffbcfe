//! The lines about one end of a test: a server prints them for its client, a client with `-v`.

use std::net::IpAddr;
use std::time::Duration;

use super::{Datagrams, Retransmits, Spread, Style};
use super::{Unit, megabits, megabytes};
use crate::nuttcp::{Parameters, Version};

/// The set-up of the data connections at one end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Opening {
    /// True if this end connected, false if it accepted.
    pub connected: bool,
    /// The address of the peer.
    pub peer: IpAddr,
    /// The segment size; a receiver does not report it.
    pub mss: Option<u32>,
    /// The time of the first connect in ms, if this end connected.
    pub rtt_ms: f64,
}

/// The lines about one end of a test.
#[derive(Debug, Clone, Copy)]
pub struct Block<'a> {
    /// True if this end sends.
    pub sends: bool,
    /// The identifier of `-I`, or an empty string.
    pub ident: &'a str,
    /// The parameters of the test.
    pub parameters: &'a Parameters,
    /// The form of the lines.
    pub style: Style,
}

/// The figures of one end for its last lines.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct BlockTotals {
    /// The bytes that this end moved.
    pub bytes: u64,
    /// The seconds that this end measured.
    pub seconds: f64,
    /// The CPU time of this end: in user mode and in the kernel.
    pub cpu: (Duration, Duration),
    /// The number of reads or writes.
    pub calls: u64,
    /// The datagrams, at a client that receives over UDP.
    pub datagrams: Option<Datagrams>,
    /// The jitter, at a receiver that measured it.
    pub jitter: Option<Spread>,
    /// The one-way delay, at a receiver that measured it.
    pub delay: Option<Spread>,
    /// The retransmits and the sum of the congestion windows in KB, at a sender over TCP.
    pub connection: Option<(Retransmits, u64)>,
    /// The largest resident size of the process in KB.
    pub resident_kb: u64,
    /// Voluntary and involuntary context switches.
    pub switches: (u64, u64),
}

impl Block<'_> {
    /// Returns the lines at the start of the test, for the socket buffers `(send, receive)`.
    #[must_use]
    pub fn start(&self, opening: &Opening, windows: (u64, u64)) -> Vec<String> {
        let mut lines = vec![format!("v{}: socket", Version::OURS), self.buffers(opening)];
        lines.extend(self.limits());
        if !self.parameters.udp {
            lines.push(self.opening(opening));
        }
        lines.extend(self.windows(windows));
        lines.into_iter().map(|line| self.named(&line)).collect()
    }

    /// Returns the lines at the end of the test. `verbose` adds the CPU seconds.
    #[must_use]
    pub fn end(&self, totals: &BlockTotals, verbose: bool) -> Vec<String> {
        let parse = self.style.parse();
        let mut lines = vec![totals.rate(parse)];
        if let Some(datagrams) = &totals.datagrams {
            lines.push(drops(datagrams, parse));
        }
        lines.extend(totals.jitter.map(|jitter| jitter.line(self.style, Unit::Jitter)));
        lines.extend(totals.delay.map(|delay| delay.line(self.style, Unit::Delay)));
        lines.extend(verbose.then(|| totals.efficiency(parse)));
        lines.extend(totals.connection(parse));
        lines.extend([totals.calls(parse), totals.usage(parse)]);
        lines.into_iter().map(|line| self.named(&line)).collect()
    }

    /// Returns `line` with the name of this end.
    fn named(&self, line: &str) -> String {
        let role = if self.sends { 't' } else { 'r' };
        let dash = if self.ident.is_empty() { "" } else { "-" };
        format!("nuttcp-{role}{dash}{}: {line}", self.ident)
    }

    fn buffers(&self, opening: &Opening) -> String {
        let Parameters { buffer_bytes, streams, port, udp, .. } = self.parameters;
        let parse = self.style.parse();
        let separator = if parse { " " } else { ", " };
        let mode = if *udp { "udp" } else { "tcp" };
        let mut line = format!("buflen={buffer_bytes}");
        if let Some(buffers) = self.parameters.buffers {
            line.push_str(&format!("{separator}nbuf={buffers}"));
        }
        line.push_str(&format!("{separator}nstream={streams}{separator}port={port} "));
        line.push_str(&if parse { format!("mode={mode}") } else { mode.to_owned() });
        if self.sends {
            let before = if parse { " host=" } else { " -> " };
            line.push_str(&format!("{before}{}", opening.peer));
        }
        if *udp {
            line.push_str(&format!(" {}", family(opening.peer)));
        }
        line
    }

    fn limits(&self) -> Vec<String> {
        if self.sends { self.sender_limits() } else { self.receiver_limits() }
    }

    fn sender_limits(&self) -> Vec<String> {
        let Parameters { time, tos, .. } = self.parameters;
        let (seconds, parse) = (time.as_secs_f64(), self.style.parse());
        let mut lines = Vec::new();
        if !time.is_zero() {
            lines.push(if parse {
                format!("time_limit={seconds:.2}")
            } else {
                format!("time limit = {seconds:.2} second{}", plural(seconds))
            });
        }
        let rate = self.parameters.rate_kbps.map(|rate| self.rate_limit(rate));
        let class = (*tos != 0).then(|| class(*tos, parse));
        let separator = if parse { " " } else { ", " };
        let both: Vec<_> = rate.into_iter().chain(class).collect();
        lines.extend((!both.is_empty()).then(|| both.join(separator)));
        lines
    }

    fn rate_limit(&self, kbps: u64) -> String {
        let Parameters { instant_rate, burst, udp, buffer_bytes, .. } = self.parameters;
        let megabits = kbps as f64 / 1000.0;
        let mode = if *instant_rate { "instantaneous" } else { "aggregate" };
        let per_second = udp.then(|| kbps.saturating_mul(125) / u64::from(*buffer_bytes).max(1));
        let burst = (*burst > 1).then_some(*burst);
        let mut line = if self.style.parse() {
            format!("rate_limit={megabits:.3} rate_unit=Mbps rate_mode={mode}")
        } else {
            format!("rate limit = {megabits:.3} Mbps ({mode})")
        };
        let parse = self.style.parse();
        if let Some(burst) = burst {
            line.push_str(&if parse {
                format!(" packet_burst={burst}")
            } else {
                format!(", packet burst = {burst}")
            });
        }
        if let Some(rate) = per_second {
            line.push_str(&if parse {
                format!(" pps_rate={rate}")
            } else {
                format!(", {rate} pps")
            });
        }
        line
    }

    fn receiver_limits(&self) -> Vec<String> {
        let Parameters { interval, tos, .. } = self.parameters;
        let (seconds, parse) = (interval.as_secs_f64(), self.style.parse());
        let mut lines: Vec<_> = (*tos != 0).then(|| class(*tos, parse)).into_iter().collect();
        if !interval.is_zero() {
            lines.push(if parse {
                format!("reporting_interval={seconds:.2}")
            } else {
                format!("interval reporting every {seconds:.2} second{}", plural(seconds))
            });
        }
        lines
    }

    fn opening(&self, opening: &Opening) -> String {
        let Opening { connected, peer, mss, rtt_ms } = opening;
        let family = family(*peer);
        let mss = mss.filter(|_| self.sends);
        if self.style.parse() {
            let mss = mss.map(|mss| format!(" mss={mss}")).unwrap_or_default();
            let rtt = if *connected { format!(" rtt_ms={rtt_ms:.3}") } else { String::new() };
            let name = if *connected { "connect" } else { "accept" };
            return format!("{name}={peer}{mss}{rtt} {family}");
        }
        match (connected, mss) {
            (true, Some(mss)) => {
                format!("connect to {peer} with mss={mss}, RTT={rtt_ms:.3} ms {family}")
            }
            (true, None) => format!("connect to {peer} with RTT={rtt_ms:.3} ms {family}"),
            (false, Some(mss)) => format!("accept from {peer} with mss={mss} {family}"),
            (false, None) => format!("accept from {peer} with {family}"),
        }
    }

    /// Returns the sizes of the socket buffers. Linux reports twice the usable size.
    fn windows(&self, (send, receive): (u64, u64)) -> [String; 2] {
        let usable = (send / 2, receive / 2);
        if self.style.parse() {
            return [
                format!("send_window_size={send} receive_window_size={receive}"),
                format!("send_window_avail={} receive_window_avail={}", usable.0, usable.1),
            ];
        }
        [
            format!("send window size = {send}, receive window size = {receive}"),
            format!(
                "available send window = {}, available receive window = {}",
                usable.0, usable.1
            ),
        ]
    }
}

fn family(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "af=inet" } else { "af=inet6" }
}

fn class(tos: u8, parse: bool) -> String {
    if parse { format!("tos=0x{tos:X}") } else { format!("tos = 0x{tos:X}") }
}

fn plural(seconds: f64) -> &'static str {
    if seconds == 1.0 { "" } else { "s" }
}

fn drops(datagrams: &Datagrams, parse: bool) -> String {
    let Datagrams { dropped, sent, loss } = datagrams;
    let percent = loss * 100.0;
    match (parse, *loss != 0.0 && *loss < 0.001) {
        (true, _) => format!("drop={dropped} pkt={sent} data_loss={percent:.5}"),
        (false, true) => format!("{dropped} / {sent} drop/pkt {percent:.5}% data loss"),
        (false, false) => format!("{dropped} / {sent} drop/pkt {percent:.2}% data loss"),
    }
}

impl BlockTotals {
    /// Returns the CPU time in percent of the time.
    #[must_use]
    pub fn cpu_percent(&self) -> u32 {
        let cpu = (self.cpu.0 + self.cpu.1).as_secs_f64();
        (cpu * 100.0 / self.seconds.max(1e-6)).min(1e6) as u32
    }

    fn rate(&self, parse: bool) -> String {
        let (mb, seconds) = (megabytes(self.bytes), self.seconds);
        let kilobytes = self.bytes as f64 / seconds.max(1e-6) / 1024.0;
        let mbps = megabits(self.bytes, seconds);
        if parse {
            format!(
                "megabytes={mb:.4} real_seconds={seconds:.2} rate_KBps={kilobytes:.2} \
                 rate_Mbps={mbps:.4}"
            )
        } else {
            format!(
                "{mb:.4} MB in {seconds:.2} real seconds = {kilobytes:.2} KB/sec = {mbps:.4} Mbps"
            )
        }
    }

    fn efficiency(&self, parse: bool) -> String {
        let (mb, cpu) = (megabytes(self.bytes), (self.cpu.0 + self.cpu.1).as_secs_f64());
        let kilobytes = self.bytes as f64 / cpu.max(1e-5) / 1024.0;
        if parse {
            format!("megabytes={mb:.4} cpu_seconds={cpu:.2} KB_per_cpu_second={kilobytes:.2}")
        } else {
            format!("{mb:.4} MB in {cpu:.2} CPU seconds = {kilobytes:.2} KB/cpu sec")
        }
    }

    fn connection(&self, parse: bool) -> Option<String> {
        let (Retransmits { count, of_host }, cwnd) = self.connection?;
        let host = if of_host { "host-" } else { "" };
        Some(if parse {
            format!("{host}retrans={count} cwnd={cwnd}")
        } else {
            format!("{host}retrans = {count} cwnd = {cwnd} KB")
        })
    }

    fn calls(&self, parse: bool) -> String {
        let (calls, seconds) = (self.calls.max(1) as f64, self.seconds.max(1e-6));
        // nuttcp counts 1024 ms in a second here.
        let (each, per_second) = (1024.0 * seconds / calls, calls / seconds);
        let calls = self.calls;
        if parse {
            format!("io_calls={calls} msec_per_call={each:.2} calls_per_sec={per_second:.2}")
        } else {
            format!("{calls} I/O calls, msec/call = {each:.2}, calls/sec = {per_second:.2}")
        }
    }

    /// Returns the CPU time with one digit, cut off as in nuttcp, and the use of the process.
    fn usage(&self, parse: bool) -> String {
        let tenths = |time: Duration| (time.as_secs(), time.subsec_millis() / 100);
        let ((user, user_part), (system, system_part)) = (tenths(self.cpu.0), tenths(self.cpu.1));
        let (minutes, seconds) = (self.seconds as u64 / 60, self.seconds as u64 % 60);
        let elapsed = match minutes {
            0..60 => format!("{minutes}:{seconds:02}"),
            _ => format!("{}:{:02}:{seconds:02}", minutes / 60, minutes % 60),
        };
        let (percent, resident, (voluntary, involuntary)) =
            (self.cpu_percent(), self.resident_kb, self.switches);
        if parse {
            format!(
                "stats=cpu user={user}.{user_part} system={system}.{system_part} \
                 elapsed={elapsed} cpu={percent}% memory=0i+0d-{resident}maxrss io=0+0pf \
                 swaps={voluntary}+{involuntary}csw"
            )
        } else {
            format!(
                "{user}.{user_part}user {system}.{system_part}sys {elapsed}real {percent}% 0i+0d \
                 {resident}maxrss 0+0pf {voluntary}+{involuntary}csw"
            )
        }
    }
}
