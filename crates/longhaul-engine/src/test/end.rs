//! One end of one direction of a test: its threads, their samples and their result.

use std::net::Shutdown;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Instant;

use longhaul_core::plan::{Pacing, TestLength, TestPlan};
use longhaul_core::result::{End, SideResult, SideSample};

use super::block_format::BlockFormat;
use super::context::{Context, Ending, Part};
use super::mover::{self, Carrier, Pacer, Reading, Sending, Slot, Supply, Turns, Watch};
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
    let (Context { plan, places, bounds, ending, blocks, .. }, role) = (context, part.role);
    let open = ending != Ending::HalfClose;
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
    let turns = Turns::new(slots.len(), total_blocks(plan));
    let this = thread::current();
    let cut = thread::scope(|scope| {
        if role == End::Sender {
            let _ = first.set(Instant::now());
        }
        let job = Job { plan, ending, role, supply: &supply, reading, blocks, turns: &turns };
        let stop = open.then_some(&closing);
        let watch = Watch { first: &first, sampler: &this, stop, blocks };
        for (number, slot) in slots.iter().enumerate() {
            let closing = &closing;
            let thread = thread::Builder::new().name(format!("{role}-{number}"));
            let work = move || job.run(number as u32, slot, watch, closing);
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

/// The work of the threads of one end.
#[derive(Clone, Copy)]
struct Job<'a> {
    plan: &'a TestPlan,
    ending: Ending,
    role: End,
    supply: &'a Supply,
    reading: Reading,
    blocks: Option<&'a dyn BlockFormat>,
    turns: &'a Turns,
}

impl Job<'_> {
    /// Moves the bytes of stream `number` on the calling thread until `closing` is set.
    fn run(self, number: u32, slot: &Slot, watch: Watch<'_>, closing: &AtomicBool) {
        let Job { plan, ending, role, supply, reading, blocks, turns } = self;
        let sending = |unit| Sending {
            share: share(plan, ending, number),
            pacer: pacer(plan, unit),
            stop: closing,
            open: ending != Ending::HalfClose,
            sampler: watch.sampler,
        };
        let length = plan.write_bytes.get();
        match (&slot.carrier, role) {
            (Carrier::Tcp(stream), End::Sender) => match blocks {
                Some(format) => {
                    let turn = (turns, number as usize, format);
                    mover::send_blocks(slot, stream, supply.block(), turn, sending(1));
                }
                None => mover::send(slot, stream, supply, sending(1)),
            },
            (Carrier::Tcp(stream), End::Receiver) => mover::receive(slot, stream, reading, watch),
            (Carrier::Udp(flow), End::Sender) => {
                udp::send(slot, flow, length as usize, sending(length));
            }
            (Carrier::Udp(flow), End::Receiver) => {
                udp::receive(slot, flow, watch, ending == Ending::Stop);
            }
        }
    }
}

/// Returns the bytes that stream `number` sends; `None` if the sampler stops it.
fn share(plan: &TestPlan, ending: Ending, number: u32) -> Option<u64> {
    match ending {
        Ending::HalfClose => plan.share(number),
        // The omitted bytes do not belong to the amount.
        Ending::Amount => plan.share(number).filter(|_| plan.omit.is_zero()),
        Ending::Stop => None,
    }
}

/// Returns the number of whole blocks of the amount of `plan`; `None` if it has a time.
fn total_blocks(plan: &TestPlan) -> Option<u64> {
    match plan.amount {
        TestLength::Bytes(bytes) => Some(bytes.get().div_ceil(plan.write_bytes.get().max(1))),
        TestLength::Time(_) => None,
    }
}

/// Returns the timer that paces a stream, if `plan` needs one; `unit` is the least that the stream
/// sends.
fn pacer(plan: &TestPlan, unit: u64) -> Option<Pacer> {
    let rate = plan.stream_rate().filter(|_| plan.pacing() == Pacing::Timer)?;
    let burst = plan.burst_bytes.map(|burst| burst.get());
    Some(Pacer::new(rate.bytes_per_second().max(1), burst, unit))
}
