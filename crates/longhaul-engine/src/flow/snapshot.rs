//! The state of one end at one moment, and what lies between two of them.

use std::time::{Duration, Instant};

use longhaul_core::result::{SideSample, SideStreamSample, TcpSample, UdpCounts};
use longhaul_core::units::{Bytes, Rate};
use longhaul_sys::tcp::TcpInfo;

use super::mover::Slot;

/// One end at one moment.
#[derive(Debug, Clone)]
pub(super) struct Snapshot {
    pub(super) at: Instant,
    pub(super) streams: Vec<StreamSnapshot>,
}

/// One stream at one moment.
#[derive(Debug, Clone)]
pub(super) struct StreamSnapshot {
    pub(super) bytes: u64,
    pub(super) cpu: Duration,
    /// All zero for UDP.
    pub(super) tcp: TcpInfo,
    /// `None` for TCP.
    pub(super) udp: Option<UdpCounts>,
    /// Datagrams that the receiver told to have; `None` for TCP and at a receiver of UDP.
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
        Snapshot { at: Instant::now(), streams }
    }

    /// A number that grows whenever anything moves: a byte of a stream, or an acknowledgement
    /// of what is draining. What a sender of UDP sends does not prove that anyone receives it.
    pub(super) fn progress(&self, sending: bool) -> u64 {
        let of = |s: &StreamSnapshot| match s.acknowledged {
            Some(acknowledged) if sending => acknowledged,
            _ => s.bytes.wrapping_add(s.tcp.acked_bytes),
        };
        self.streams.iter().map(of).sum()
    }

    pub(super) fn cpu(&self) -> Duration {
        self.streams.iter().map(|s| s.cpu).sum()
    }

    /// The interval from `self` to `later`, on a clock that starts at `epoch`.
    pub(super) fn until(
        &self,
        later: &Snapshot,
        epoch: Instant,
        index: u32,
        omitted: bool,
        sending: bool,
        reverse: bool,
    ) -> SideSample {
        let streams = self
            .streams
            .iter()
            .zip(&later.streams)
            .map(|(from, to)| SideStreamSample {
                bytes: Bytes::new(to.bytes - from.bytes),
                tcp: (sending && to.udp.is_none()).then(|| tcp_sample(&from.tcp, &to.tcp)),
                udp: to.udp.map(|to| to.since(&from.udp.unwrap_or_default())),
            })
            .collect();
        SideSample {
            index,
            omitted,
            start_seconds: self.at.saturating_duration_since(epoch).as_secs_f64(),
            end_seconds: later.at.saturating_duration_since(epoch).as_secs_f64(),
            cpu_seconds: later.cpu().saturating_sub(self.cpu()).as_secs_f64(),
            reverse,
            streams,
        }
    }
}

pub(super) fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
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
    }
}
