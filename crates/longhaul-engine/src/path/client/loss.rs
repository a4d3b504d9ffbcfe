//! Loss, duplication, reordering and jitter of both directions, from streams of probes.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use longhaul_core::plan::{PathPart, StreamSpec};
use longhaul_core::wire::{PathEvent, PathOrder};

use super::{PathClient, unexpected_message};
use crate::error::{EngineError, Result};
use crate::path::stream;
use crate::test::STEP_LIMIT;

/// The latest arrival of the last probe that counts: longer than networks delay a packet.
const LATE: Duration = Duration::from_millis(500);
/// The interval between probes, if they then take at most [`PROBE_SHARE`] of the path.
const PROBE_INTERVAL: Duration = Duration::from_millis(1);
/// The share of the path that probes may take.
const PROBE_SHARE: f64 = 0.1;

impl<N: FnMut(&str)> PathClient<'_, N> {
    /// Measures with simultaneous streams in both directions.
    pub(super) fn loss(&mut self) -> Result<()> {
        let spec = self.stream();
        let ways = [self.result.forward.mtu_bytes(), self.result.reverse.mtu_bytes()];
        if let Some(mtu) = ways.into_iter().flatten().min().filter(|mtu| spec.packet_bytes > *mtu) {
            let why =
                format!("probes of {} bytes do not pass: the path MTU is {mtu}", spec.packet_bytes);
            self.unmeasured(PathPart::Loss, "loss, duplication, reordering and jitter", why);
            return Ok(());
        }
        (self.note)("measuring loss in both directions");
        self.sender.send(&PathOrder::Send(spec))?;
        let (stop, sender) = (self.stop, &self.sender);
        let ours = stream::send(&self.flow, &spec, || stop.load(Ordering::Acquire))
            .map_err(|source| EngineError::System { operation: "send probes", source });
        if self.stopped() {
            sender.send(&PathOrder::Stop)?;
        }
        let theirs = self.awaited(spec.time() + STEP_LIMIT);
        thread::sleep(self.patience.max(LATE));
        let ours = ours?;
        let order = PathOrder::Count { datagrams: ours.datagrams, sender_dropped: ours.dropped };
        self.sender.send(&order)?;
        match self.awaited(STEP_LIMIT)? {
            PathEvent::Counted(figures) => {
                self.result.forward.probes = Some((*figures).checked());
            }
            _ => return unexpected_message(&self.sender),
        }
        match theirs? {
            PathEvent::Sent(sent) => {
                self.result.reverse.probes = Some(self.flow.count(sent.datagrams, sent.dropped));
                Ok(())
            }
            _ => unexpected_message(&self.sender),
        }
    }

    /// Returns the requested number of probes, or as many as leave the path to others.
    fn stream(&self) -> StreamSpec {
        let ways = [&self.result.forward, &self.result.reverse];
        let slowest = ways
            .into_iter()
            .filter_map(|way| way.capacity.as_ref()?.estimate_bps)
            .map(|rate| rate.bps() as f64)
            .fold(f64::INFINITY, f64::min);
        let packet = f64::from(self.plan.probe_bytes) * 8.0 / (slowest * PROBE_SHARE);
        let interval = Duration::try_from_secs_f64(packet).unwrap_or(PROBE_INTERVAL);
        self.plan.stream(interval.clamp(PROBE_INTERVAL, Duration::from_secs(1)))
    }
}
