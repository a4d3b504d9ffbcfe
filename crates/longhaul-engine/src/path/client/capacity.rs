//! The capacity of both directions, from trains of packets.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use longhaul_core::plan::TrainSpec;
use longhaul_core::result::PathDirection;
use longhaul_core::wire::{PathEvent, PathOrder};

use super::{PathClient, USUAL_MTU, unexpected_message};
use crate::error::{EngineError, Result};
use crate::path::trains;
use crate::test::STEP_LIMIT;

impl<N: FnMut(&str)> PathClient<'_, N> {
    pub(in crate::path) fn capacity(&mut self) -> Result<()> {
        let mtu = |way: &PathDirection| way.mtu_bytes().unwrap_or(USUAL_MTU);
        let (there, back) = (mtu(&self.result.forward), mtu(&self.result.reverse));
        (self.note)("estimating the forward capacity with trains of packets");
        let found = trains::estimate(&mut Forward(self), there, |_| TrainSpec::MOST_PACKETS)?;
        self.result.forward.capacity = Some(found);
        if self.stopped() {
            return Ok(());
        }
        (self.note)("estimating the reverse capacity");
        let found = trains::estimate(&mut Reverse(self), back, |_| TrainSpec::MOST_PACKETS)?;
        self.result.reverse.capacity = Some(found);
        Ok(())
    }
}

/// The trains from this host to the server.
struct Forward<'s, 'a, N>(&'s mut PathClient<'a, N>);

impl<N: FnMut(&str)> trains::TrainDirection for Forward<'_, '_, N> {
    fn trains(&mut self, spec: &TrainSpec) -> Result<trains::Trains> {
        let client = &mut *self.0;
        let most = trains::most_packets(&client.flow, spec.packet_bytes);
        let spec = TrainSpec { packets: spec.packets.min(most), ..*spec };
        let stop = client.stop;
        let sent = trains::send(&client.flow, &spec, || stop.load(Ordering::Acquire))
            .map_err(|source| EngineError::System { operation: "send probes", source })?;
        client.settle(&spec);
        client.sender.send(&PathOrder::Arrivals { trains: spec.trains })?;
        match client.awaited(STEP_LIMIT)? {
            PathEvent::Arrived { trains: arrived } => Ok(trains::Trains { sent, arrived }),
            _ => unexpected_message(&client.sender),
        }
    }
}

/// The trains from the server to this host.
struct Reverse<'s, 'a, N>(&'s mut PathClient<'a, N>);

impl<N: FnMut(&str)> trains::TrainDirection for Reverse<'_, '_, N> {
    fn trains(&mut self, spec: &TrainSpec) -> Result<trains::Trains> {
        let client = &mut *self.0;
        client.sender.send(&PathOrder::SendTrains(*spec))?;
        let time = Duration::from_nanos(spec.gap_ns.saturating_mul(spec.trains.into()));
        let sent = match client.awaited(time + STEP_LIMIT)? {
            PathEvent::SentTrains { trains } => trains,
            _ => return unexpected_message(&client.sender),
        };
        client.settle(spec);
        Ok(trains::Trains { sent, arrived: client.flow.take_arrivals(spec.trains) })
    }
}

impl<N> PathClient<'_, N> {
    /// Waits for the last train.
    fn settle(&self, spec: &TrainSpec) {
        thread::sleep(self.patience + Duration::from_nanos(spec.gap_ns));
    }
}
