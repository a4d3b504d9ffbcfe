//! One end of one direction of a test: its threads, their samples and their result.

use std::net::Shutdown;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Instant;

use longhaul_core::plan::{Pacing, TestPlan};
use longhaul_core::result::{End, SideResult, SideSample};

use super::context::{Context, Part};
use super::mover::{self, Carrier, Pacer, Reading, Sending, Slot, Supply};
use super::sampler::Sampler;
use super::udp;

/// Runs one end of one direction over `carriers` from the first byte to the last. Passes a sample
/// to `on_sample` every interval, on the calling thread.
pub(super) fn run(
    part: Part,
    carriers: Vec<Carrier>,
    context: Context<'_>,
    on_sample: impl FnMut(SideSample),
) -> SideResult {
    let (Context { plan, places, bounds, .. }, role) = (context, part.role);
    let slots: Vec<Slot> = carriers
        .into_iter()
        .enumerate()
        .map(|(number, carrier)| {
            let cpus = places.of_stream(number, &carrier);
            Slot::new(carrier, cpus)
        })
        .collect();
    let granted: Vec<_> = slots.iter().map(|slot| slot.carrier.granted().ok()).collect();
    let mut sampler = Sampler::new(part, &slots, context, on_sample);
    let length = plan.write_bytes.get() as usize;
    let supply = Supply::new(if role == End::Sender { length } else { 0 }, plan.zero_copy);
    let reading = Reading {
        buffer_bytes: length.min(bounds.read_bytes),
        skip_copy: plan.skip_receive_copy,
        gather: plan.window_bytes.is_none(),
    };
    let (first, closing) = (OnceLock::new(), AtomicBool::new(false));
    let cut = thread::scope(|scope| {
        if role == End::Sender {
            let _ = first.set(Instant::now());
        }
        for (number, slot) in slots.iter().enumerate() {
            let (first, supply, this) = (&first, &supply, thread::current());
            let (share, stop) = (plan.share(number as u32), &closing);
            let work = move || match (&slot.carrier, role) {
                (Carrier::Tcp(stream), End::Sender) => {
                    let sending = Sending { share, pacer: pacer(plan, 1), stop, sampler: &this };
                    mover::send(slot, stream, supply, sending);
                }
                (Carrier::Tcp(stream), End::Receiver) => {
                    mover::receive(slot, stream, reading, first, &this);
                }
                (Carrier::Udp(flow), End::Sender) => {
                    let pacer = pacer(plan, length as u64);
                    udp::send(slot, flow, length, Sending { share, pacer, stop, sampler: &this });
                }
                (Carrier::Udp(flow), End::Receiver) => udp::receive(slot, flow, first, &this),
            };
            let thread = thread::Builder::new().name(format!("{role}-{number}"));
            if let Err(error) = thread.spawn_scoped(scope, work) {
                // The threads that already run end with their connections.
                sampler.shut(Shutdown::Both);
                return Some(format!("cannot start a thread for stream {number}: {error}"));
            }
        }
        let cut = sampler.watch(&first, &closing);
        if cut.is_some() {
            sampler.shut(Shutdown::Both);
        }
        cut
    });
    sampler.result(&granted, cut)
}

/// Returns the timer that paces a stream, if `plan` needs one; `unit` is the least that the stream
/// sends.
fn pacer(plan: &TestPlan, unit: u64) -> Option<Pacer> {
    let rate = plan.stream_rate().filter(|_| plan.pacing() == Pacing::Timer)?;
    let burst = plan.burst_bytes.map(|burst| burst.get());
    Some(Pacer::new(rate.bytes_per_second().max(1), burst, unit))
}
