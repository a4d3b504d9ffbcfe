//! The state of one end at one moment, and what lies between two of them.

use std::time::{Duration, Instant};

use longhaul_core::result::{SideSample, SideStreamSample, TcpSample};
use longhaul_core::units::{Bytes, Rate};
use longhaul_sys::tcp::{TcpInfo, tcp_info};

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
    pub(super) tcp: TcpInfo,
}

impl Snapshot {
    pub(super) fn take(slots: &[Slot]) -> Self {
        let streams = slots
            .iter()
            .map(|slot| StreamSnapshot {
                bytes: slot.bytes(),
                cpu: slot.cpu(),
                // A connection that is reset keeps its structure until it is closed.
                tcp: tcp_info(&slot.stream).unwrap_or_default(),
            })
            .collect();
        Snapshot { at: Instant::now(), streams }
    }

    /// A number that grows whenever anything moves: a byte of a stream, or an acknowledgement
    /// of what is draining.
    pub(super) fn progress(&self) -> u64 {
        self.streams.iter().map(|s| s.bytes.wrapping_add(s.tcp.acked_bytes)).sum()
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
    ) -> SideSample {
        let streams = self
            .streams
            .iter()
            .zip(&later.streams)
            .map(|(from, to)| SideStreamSample {
                bytes: Bytes::new(to.bytes - from.bytes),
                tcp: sending.then(|| tcp_sample(&from.tcp, &to.tcp)),
                udp: None,
            })
            .collect();
        SideSample {
            index,
            omitted,
            start_seconds: self.at.saturating_duration_since(epoch).as_secs_f64(),
            end_seconds: later.at.saturating_duration_since(epoch).as_secs_f64(),
            cpu_seconds: later.cpu().saturating_sub(self.cpu()).as_secs_f64(),
            reverse: false,
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
