//! The state of one end at one moment, and what lies between two of them.

use std::time::{Duration, Instant};

use longhaul_core::result::{SideSample, SideStreamSample, TcpSample};
use longhaul_core::units::{Bytes, Rate};
use longhaul_sys::cpu::ThreadClock;
use longhaul_sys::tcp::{TcpInfo, tcp_info};

use super::mover::Slot;
use super::observe::Observed;

/// One end at one moment.
#[derive(Debug, Clone)]
pub(super) struct Snapshot {
    pub(super) at: Instant,
    pub(super) streams: Vec<StreamSnapshot>,
    /// CPU time of the thread that takes snapshots.
    own_cpu: Duration,
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
        let own_cpu = ThreadClock::current().elapsed().unwrap_or_default();
        Snapshot { at: Instant::now(), streams, own_cpu }
    }

    /// A number that grows whenever anything moves: a byte of a stream, or an acknowledgement
    /// of what is draining.
    pub(super) fn progress(&self) -> u64 {
        self.streams.iter().map(|s| s.bytes.wrapping_add(s.tcp.acked_bytes)).sum()
    }

    /// CPU time of the threads that move bytes and of the one that watches them.
    pub(super) fn cpu(&self) -> Duration {
        self.streams.iter().map(|s| s.cpu).sum::<Duration>() + self.own_cpu
    }

    /// The interval from `self` to `later`, on a clock that starts at `epoch`.
    pub(super) fn until(
        &self,
        later: &Snapshot,
        epoch: Instant,
        index: u32,
        omitted: bool,
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
                tcp: sending.then(|| tcp(number, &from.tcp, &to.tcp)),
                udp: None,
                thread: Some(thread.clone()),
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
            host: Some(observed.host),
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
        segments: to.data_segments_sent.saturating_sub(from.data_segments_sent),
        marked_segments: to.marked_segments.saturating_sub(from.marked_segments),
        ..TcpSample::default()
    }
}
