//! The state of one end at one time, and the differences between two states.

use std::time::{Duration, Instant};

use longhaul_core::result::{SideSample, SideStreamSample, TcpSample, UdpCounts};
use longhaul_core::units::{Bytes, Rate};
use longhaul_sys::cpu::ThreadClock;
use longhaul_sys::tcp::TcpInfo;

use super::mover::Slot;
use super::observe::interval::Observed;
use super::ticks::millis;

/// The state of one end at one time.
#[derive(Debug, Clone)]
pub(super) struct Snapshot {
    pub(super) at: Instant,
    pub(super) streams: Vec<StreamSnapshot>,
    /// The CPU time of the thread that takes snapshots.
    pub(super) own_cpu: Duration,
}

/// The state of one stream at one time.
#[derive(Debug, Clone)]
pub(super) struct StreamSnapshot {
    pub(super) bytes: u64,
    pub(super) cpu: Duration,
    /// The TCP state; zero for UDP.
    pub(super) tcp: TcpInfo,
    /// The datagrams; `None` for TCP.
    pub(super) udp: Option<UdpCounts>,
    /// The datagrams that the receiver has reported; `None` for TCP and at a receiver of UDP.
    acknowledged: Option<u64>,
}

impl Snapshot {
    pub(super) fn take(slots: &[Slot]) -> Self {
        let streams = slots
            .iter()
            .map(|slot| StreamSnapshot {
                bytes: slot.bytes(),
                cpu: slot.cpu(),
                tcp: slot.carrier.tcp_info().unwrap_or_default(),
                udp: slot.carrier.udp_counts(),
                acknowledged: slot.carrier.acknowledged(),
            })
            .collect();
        let own_cpu = ThreadClock::current().elapsed().unwrap_or_default();
        Snapshot { at: Instant::now(), streams, own_cpu }
    }

    /// Returns a number that grows with every byte of a stream and every acknowledgement while it
    /// drains. Sent datagrams are excluded, because they do not prove that anyone receives them.
    pub(super) fn progress(&self, sending: bool) -> u64 {
        let of = |s: &StreamSnapshot| match s.acknowledged {
            Some(acknowledged) if sending => acknowledged,
            _ => s.bytes.wrapping_add(s.tcp.acked_bytes),
        };
        self.streams.iter().map(of).sum()
    }

    /// Returns the CPU time of the threads that move bytes and of the thread that samples them.
    pub(super) fn cpu(&self) -> Duration {
        self.streams.iter().map(|s| s.cpu).sum::<Duration>() + self.own_cpu
    }

    /// Returns the sample from `self` to `later`, on a clock that starts at `epoch`. The caller
    /// numbers the interval.
    pub(super) fn until(
        &self,
        later: &Snapshot,
        epoch: Instant,
        sending: bool,
        observed: Observed,
    ) -> SideSample {
        let tcp = |number: usize, from: &TcpInfo, to: &TcpInfo| {
            let mut sample = tcp_sample(from, to);
            observed.complete(number, &mut sample);
            sample
        };
        let streams = self
            .streams
            .iter()
            .zip(&later.streams)
            .zip(&observed.threads)
            .enumerate()
            .map(|(number, ((from, to), thread))| SideStreamSample {
                bytes: Bytes::new(to.bytes - from.bytes),
                tcp: (sending && to.udp.is_none()).then(|| tcp(number, &from.tcp, &to.tcp)),
                udp: to.udp.map(|to| to.since(&from.udp.unwrap_or_default())),
                thread: Some(thread.clone()),
            })
            .collect();
        let elapsed = later.at.saturating_duration_since(self.at);
        let most = elapsed.saturating_mul(self.streams.len() as u32);
        SideSample {
            start_seconds: self.at.saturating_duration_since(epoch).as_secs_f64(),
            end_seconds: later.at.saturating_duration_since(epoch).as_secs_f64(),
            cpu_seconds: later.cpu().saturating_sub(self.cpu()).min(most).as_secs_f64(),
            streams,
            host: Some(observed.host),
            ..SideSample::default()
        }
    }
}

fn tcp_sample(from: &TcpInfo, to: &TcpInfo) -> TcpSample {
    let mss = u64::from(to.send_mss);
    TcpSample {
        rtt_ms: millis(to.rtt),
        rtt_variation_ms: millis(to.rtt_variation),
        cwnd_bytes: Bytes::new(u64::from(to.congestion_window_segments) * mss),
        peer_window_bytes: Bytes::new(to.peer_window_bytes),
        retransmits: to.retransmits.saturating_sub(from.retransmits),
        delivery_rate_bps: Rate::from_bps(to.delivery_bytes_per_second.saturating_mul(8)),
        app_limited: to.delivery_app_limited,
        notsent_bytes: Bytes::new(to.notsent_bytes),
        busy_ms: millis(to.busy.saturating_sub(from.busy)),
        rwnd_limited_ms: millis(
            to.receive_window_limited.saturating_sub(from.receive_window_limited),
        ),
        sndbuf_limited_ms: millis(to.send_buffer_limited.saturating_sub(from.send_buffer_limited)),
        segments: to.data_segments_sent.saturating_sub(from.data_segments_sent),
        marked_segments: to.marked_segments.saturating_sub(from.marked_segments),
        ..TcpSample::default()
    }
}
