//! The limits of a sending connection, sampled.

use std::time::Duration;

use longhaul_core::result::{End, TcpSample, ThreadSample};
use longhaul_core::units::Bytes;
use longhaul_sys::host::{Scheduling, scheduling};
use longhaul_sys::tcp::{SocketMemory, TcpInfo};

use super::host::Cores;
use crate::test::mover::Slot;
use crate::test::ticks::millis;

/// The maximum number of unsent bytes that count as none: one super-packet, which the kernel sends
/// as soon as it may (`GSO_LEGACY_MAX_SIZE`, linux/netdevice.h).
const SUPER_PACKET_BYTES: u64 = 64 << 10;

/// The minimum number of segments that are retransmitted between two probes, and their least share
/// of the sent ones, in a burst. Random errors of 5 % have as many in one of a thousand probes.
const BURST_SEGMENTS: u64 = 8;
const BURST_PART: u64 = 5;
/// The queueing delay above which a burst is the overflow of a queue: a time by which a busy host is
/// late, and a share of the round trip.
const QUEUE: Duration = Duration::from_millis(2);
const QUEUE_PART: u32 = 7;

/// The limit of a sending connection at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Held {
    /// The receiver's window is full.
    Receiver,
    /// The send buffer is full of data in flight.
    Buffer,
    /// The congestion window is full.
    Window,
    /// Data are waiting, and every window has room.
    Paced,
    /// Nothing to send.
    Empty,
}

fn held(info: &TcpInfo, memory: &SocketMemory) -> Held {
    let mss = u64::from(info.send_mss);
    let in_flight = u64::from(info.in_flight_segments());
    let congestion = u64::from(info.congestion_window_segments);
    // Sacked and lost data occupy the receiver's window, but not the congestion window.
    let unacked_bytes = u64::from(info.unacked_segments) * mss;
    // A writer that found the buffer full is not woken before a third of it is free
    // (sk_stream_is_writeable, net/sock.h).
    let full = 8 * memory.queued_bytes >= 5 * memory.send_buffer_bytes;
    if info.peer_window_bytes <= congestion * mss && 8 * unacked_bytes >= 7 * info.peer_window_bytes
    {
        Held::Receiver
    } else if full && info.notsent_bytes < SUPER_PACKET_BYTES {
        Held::Buffer
    // The kernel waits until a third of the window is free before it cuts another super-packet
    // (tcp_tso_should_defer and sysctl_tcp_tso_win_divisor, net/ipv4/tcp_output.c).
    } else if 3 * in_flight >= 2 * congestion {
        Held::Window
    // Pacing spreads the buffered data over a round trip, so a part is always unsent.
    } else if full && 4 * info.notsent_bytes <= memory.queued_bytes {
        Held::Buffer
    } else if info.notsent_bytes < SUPER_PACKET_BYTES {
        Held::Empty
    } else {
        Held::Paced
    }
}

/// The segments that a connection has sent and retransmitted.
#[derive(Debug, Clone, Copy, Default)]
struct Segments {
    sent: u64,
    retransmits: u64,
}

impl Segments {
    fn of(info: &TcpInfo) -> Self {
        Segments { sent: info.data_segments_sent, retransmits: info.retransmits }
    }

    /// Returns the retransmissions since `earlier` if they are a burst without a queue; otherwise 0.
    fn burst_since(&self, earlier: Segments, info: &TcpInfo) -> u64 {
        let again = self.retransmits.saturating_sub(earlier.retransmits);
        let sent = self.sent.saturating_sub(earlier.sent);
        let least = info.min_rtt.unwrap_or(info.rtt);
        let queued = info.rtt.saturating_sub(least) > QUEUE + least / QUEUE_PART;
        let burst = again >= BURST_SEGMENTS && BURST_PART * again >= sent;
        if burst && !queued { again } else { 0 }
    }
}

/// The probes of one stream in an interval.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    receiver: u32,
    buffer: u32,
    window: u32,
    paced: u32,
    empty: u32,
    rtt_ms: f64,
    rtts: u32,
    full: f64,
    fulls: u32,
    drops: u64,
    scheduling: Scheduling,
    memory: SocketMemory,
    segments: Segments,
    burst_retransmits: u64,
}

impl Tally {
    /// Probes a stream.
    pub(super) fn probe(&mut self, role: End, slot: &Slot) {
        let Some(memory) = slot.carrier.memory() else { return };
        if role == End::Sender
            && let Some(info) = slot.carrier.tcp_info()
        {
            self.rtt_ms += millis(info.rtt);
            self.rtts += 1;
            let segments = Segments::of(&info);
            self.burst_retransmits += segments.burst_since(self.segments, &info);
            self.segments = segments;
            match held(&info, &memory) {
                Held::Receiver => self.receiver += 1,
                Held::Buffer => self.buffer += 1,
                Held::Window => self.window += 1,
                Held::Paced => self.paced += 1,
                Held::Empty => self.empty += 1,
            }
        }
        let (filled, buffer) = match role {
            End::Sender => (memory.queued_bytes, memory.send_buffer_bytes),
            End::Receiver => (memory.received_bytes, memory.receive_buffer_bytes),
        };
        self.full += filled as f64 / buffer.max(1) as f64;
        self.fulls += 1;
        self.memory = memory;
    }

    /// Records that the stream's thread ran for the first of two times, of which the second is the
    /// length of the interval.
    pub(super) fn thread(
        &mut self,
        role: End,
        slot: &Slot,
        (ran, elapsed): (Duration, Duration),
        cores: &Cores,
    ) -> ThreadSample {
        if self.fulls == 0 {
            self.probe(role, slot);
        }
        let percent = |time: Duration| {
            if elapsed.is_zero() {
                0.0
            } else {
                (100.0 * time.as_secs_f64() / elapsed.as_secs_f64()).min(100.0)
            }
        };
        // A thread that has ended has no statistics.
        let now = slot.clock().and_then(|clock| scheduling(clock.thread()).ok());
        let before = self.scheduling;
        self.scheduling = now.unwrap_or(before);
        let core = self.scheduling.core;
        let times = cores.of(core);
        let drops = self.memory.drops.saturating_sub(self.drops);
        self.drops = self.memory.drops;
        ThreadSample {
            running_percent: percent(ran),
            waiting_percent: now.map(|now| percent(now.waited.saturating_sub(before.waited))),
            core,
            core_busy_percent: times.busy_percent,
            core_interrupts_percent: times.interrupts_percent,
            core_stolen_percent: times.stolen_percent,
            buffer_bytes: Bytes::new(match role {
                End::Sender => self.memory.send_buffer_bytes,
                End::Receiver => self.memory.receive_buffer_bytes,
            }),
            buffer_full_percent: 100.0 * self.full / f64::from(self.fulls.max(1)),
            drops,
        }
    }

    /// Returns the probes of the interval and begins the next.
    pub(super) fn take(&mut self) -> Tally {
        let Tally { drops, scheduling, memory, segments, .. } = *self;
        std::mem::replace(self, Tally { drops, scheduling, memory, segments, ..Tally::default() })
    }

    /// Divides the busy time of the connection in the proportion of the probes. A larger value of
    /// the kernel's clocks takes precedence.
    pub(super) fn complete(&self, sample: &mut TcpSample) {
        let looks = self.receiver + self.buffer + self.window + self.paced + self.empty;
        let part = |of: f64, looks_of: u32, looks: u32| match looks {
            0 => 0.0,
            looks => of * f64::from(looks_of) / f64::from(looks),
        };
        let beyond =
            |looks_of: u32, clock: f64| (part(sample.busy_ms, looks_of, looks) - clock).max(0.0);
        sample.rwnd_full_ms = beyond(self.receiver, sample.rwnd_limited_ms);
        sample.sndbuf_full_ms = beyond(self.buffer, sample.sndbuf_limited_ms);
        let receiver = sample.rwnd_limited_ms + sample.rwnd_full_ms;
        let buffer = sample.sndbuf_limited_ms + sample.sndbuf_full_ms;
        let open = (sample.busy_ms - receiver - buffer).max(0.0);
        let looks = self.window + self.paced + self.empty;
        sample.cwnd_limited_ms = part(open, self.window, looks);
        sample.paced_ms = part(open, self.paced, looks);
        // A burst that began before the interval counts in it.
        sample.burst_retransmits = self.burst_retransmits.min(sample.retransmits);
        sample.rtt_mean_ms = match self.rtts {
            0 => sample.rtt_ms,
            rtts => self.rtt_ms / f64::from(rtts),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(in_flight: u32, window: u32, unsent: u64) -> TcpInfo {
        TcpInfo {
            send_mss: 1000,
            unacked_segments: in_flight,
            congestion_window_segments: window,
            notsent_bytes: unsent,
            peer_window_bytes: 1_000_000,
            ..TcpInfo::default()
        }
    }

    #[test]
    fn every_probe_has_one_limit() {
        let roomy = SocketMemory {
            queued_bytes: 1000,
            send_buffer_bytes: 100_000,
            ..SocketMemory::default()
        };
        assert_eq!(held(&info(900, 1000, 1 << 20), &roomy), Held::Receiver);
        assert_eq!(held(&info(900, 999, 1 << 20), &roomy), Held::Window);
        assert_eq!(held(&info(90, 100, 1 << 20), &roomy), Held::Window);
        assert_eq!(held(&info(70, 100, 0), &roomy), Held::Window);
        assert_eq!(held(&info(50, 100, 1 << 20), &roomy), Held::Paced);
        assert_eq!(held(&info(50, 100, 1000), &roomy), Held::Empty);
        let full = SocketMemory { queued_bytes: 67_000, ..roomy };
        assert_eq!(held(&info(50, 100, 1000), &full), Held::Buffer);
        assert_eq!(held(&info(90, 100, 1000), &full), Held::Buffer);
        assert_eq!(held(&info(50, 100, 1 << 20), &full), Held::Paced);
        // A quarter of the buffer may be queued unless the window is the limit.
        let large = SocketMemory { queued_bytes: 4 << 20, send_buffer_bytes: 4 << 20, ..roomy };
        assert_eq!(held(&info(50, 100, 1 << 20), &large), Held::Buffer);
        assert_eq!(held(&info(90, 100, 1 << 20), &large), Held::Window);
    }

    #[test]
    fn bursts_without_a_queue_are_counted() {
        let at = |sent, retransmits, rtt_ms| TcpInfo {
            data_segments_sent: sent,
            retransmits,
            rtt: Duration::from_millis(rtt_ms),
            min_rtt: Some(Duration::from_millis(60)),
            ..TcpInfo::default()
        };
        let burst =
            |then: TcpInfo, now: TcpInfo| Segments::of(&now).burst_since(Segments::of(&then), &now);
        let then = at(1000, 10, 60);
        assert_eq!(burst(then, at(1100, 60, 61)), 50);
        assert_eq!(burst(then, at(1100, 60, 75)), 0, "a queue overflows");
        assert_eq!(burst(then, at(1100, 15, 61)), 0, "random errors");
        assert_eq!(burst(then, at(1010, 15, 61)), 0, "a few of a small window");
        assert_eq!(burst(then, at(3000, 110, 61)), 0, "5 % of many");
    }

    #[test]
    fn time_is_divided_in_proportion_to_the_probes() {
        let tally = Tally { receiver: 10, window: 20, paced: 10, empty: 10, ..Tally::default() };
        let mut sample = TcpSample {
            busy_ms: 1000.0,
            rwnd_limited_ms: 50.0,
            sndbuf_limited_ms: 200.0,
            rtt_ms: 7.0,
            ..TcpSample::default()
        };
        tally.complete(&mut sample);
        // A fifth of the probes found the receiver's window full; the kernel's clock counted less.
        assert_eq!((sample.rwnd_full_ms, sample.sndbuf_full_ms), (150.0, 0.0));
        assert_eq!((sample.cwnd_limited_ms, sample.paced_ms), (300.0, 150.0));
        assert_eq!(sample.rtt_mean_ms, 7.0);
        Tally::default().complete(&mut sample);
        assert_eq!((sample.cwnd_limited_ms, sample.rwnd_full_ms), (0.0, 0.0));
    }
}
