//! Trains of packets, which measure the capacity of a path.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::path::{Dispersion, Train, TrainPacket, capacity};
use longhaul_core::plan::TrainSpec;
use longhaul_core::result::CapacityFigures;
use longhaul_core::stats::median;
use longhaul_core::wire::{PROBE_BYTES, ProbeHeader, ProbeKind};
use longhaul_sys::probe::{now_nanos, send_train};
use socket2::SockRef;

use super::flow::ProbeFlow;
use crate::error::Result;

/// The largest packet: a jumbo frame, so that a train has many packets.
const MOST_BYTES: u32 = 9000;
/// The first trains, which show the order of magnitude of the rate.
const FIRST: (u8, u32) = (3, 16);
/// The target duration of a train on the slowest link, in seconds: much longer than errors of
/// clocks and delays of threads.
const TRAIN_TIME: f64 = 0.004;
/// The maximum number of bytes of a train, which fit the queues of switches.
const TRAIN_BYTES: u32 = 512 << 10;
/// The pause between two trains, as a multiple of the duration of a train.
const REST: f64 = 4.0;
/// The shortest pause in seconds, so that a delay of the host affects at most one train.
const LEAST_REST: f64 = 0.01;
/// The longest sleep before a sender checks whether to stop.
const STOP_CHECK: Duration = Duration::from_millis(20);
/// The longest time of all trains of a direction in seconds, if more than [`LEAST_TRAINS`] are
/// left.
const ALL_TIME: f64 = 2.5;
const LEAST_TRAINS: f64 = 6.0;
const MOST_TRAINS: f64 = 30.0;

/// Sends the trains of `spec` until `stopped`. Returns the number of packets that the kernel
/// accepted and the seconds that this took, per train.
///
/// # Errors
/// The kernel accepts nothing.
pub(super) fn send(
    flow: &ProbeFlow,
    spec: &TrainSpec,
    stopped: impl Fn() -> bool,
) -> io::Result<Vec<(u32, f64)>> {
    let payload = spec.packet_bytes.saturating_sub(flow.header_bytes()).max(PROBE_BYTES as u32);
    let mut bytes = vec![0; payload as usize * spec.packets as usize];
    let mut sent = Vec::new();
    for train in 0..spec.trains {
        if stopped() {
            break;
        }
        let due = Instant::now() + Duration::from_nanos(if train > 0 { spec.gap_ns } else { 0 });
        while let Some(left) = due.checked_duration_since(Instant::now()).filter(|_| !stopped()) {
            thread::sleep(left.min(STOP_CHECK));
        }
        for (number, packet) in bytes.chunks_mut(payload as usize).enumerate() {
            let header = ProbeHeader {
                tag: flow.shared.tag,
                kind: ProbeKind::Train,
                train,
                answer_bytes: 0,
                number: number as u32,
                sent_ns: now_nanos(),
                arrived_ns: 0,
                last: 0,
            };
            packet[..PROBE_BYTES].copy_from_slice(&header.encode());
        }
        let begun = Instant::now();
        let taken = again(|| send_train(&flow.shared.socket, &bytes, payload as usize))?;
        sent.push((taken as u32, begun.elapsed().as_secs_f64()));
    }
    Ok(sent)
}

/// Repeats an attempt that failed because of an error of an earlier packet.
fn again(mut attempt: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    attempt().or_else(|_| attempt())
}

/// The trains of one direction.
pub(super) struct Trains {
    /// The result of [`send`].
    pub(super) sent: Vec<(u32, f64)>,
    /// The packets of each train in the order of arrival.
    pub(super) arrived: Vec<Vec<TrainPacket>>,
}

/// Sends trains in one direction, from either end.
pub(super) trait TrainDirection {
    /// Sends trains and returns their arrivals.
    ///
    /// # Errors
    /// The peer is gone or failed.
    fn trains(&mut self, spec: &TrainSpec) -> Result<Trains>;
}

/// Returns the maximum number of packets of `packet_bytes` that fit the socket's buffer: a longer
/// train leaves at the rate of the interface.
pub(super) fn most_packets(flow: &ProbeFlow, packet_bytes: u32) -> u32 {
    // The kernel counts about twice the length of a packet (skb truesize).
    let buffer = SockRef::from(&flow.shared.socket).send_buffer_size().unwrap_or(0) as u32 / 3;
    (TRAIN_BYTES.min(buffer) / packet_bytes.max(1)).clamp(FIRST.1, TrainSpec::MOST_PACKETS)
}

/// Estimates the capacity of one direction: short trains first, then trains and pauses that suit
/// the rate.
///
/// # Errors
/// As [`TrainDirection::trains`].
pub(super) fn estimate(
    way: &mut impl TrainDirection,
    mtu: u32,
    most_packets: impl Fn(u32) -> u32,
) -> Result<CapacityFigures> {
    let packet_bytes = mtu.min(MOST_BYTES);
    let first = TrainSpec {
        trains: FIRST.0,
        packets: FIRST.1,
        packet_bytes,
        gap_ns: (LEAST_REST * 2e9) as u64,
    };
    let (mut sent, mut arrived) = round(way, &first)?;
    let rates: Vec<f64> = arrived.iter().map(|train| train.rate_bps).collect();
    let spec = match median(&rates) {
        Some(rate) => suited(rate, packet_bytes, most_packets(packet_bytes)),
        // If many packets are lost, a short train may still arrive complete.
        None => TrainSpec { trains: MOST_TRAINS as u8, packets: FIRST.1 / 2, ..first },
    };
    let (more_sent, more_arrived) = round(way, &spec)?;
    // The first trains only determine the length.
    if more_arrived.len() >= arrived.len() {
        (sent, arrived) = (more_sent, more_arrived);
    }
    Ok(capacity(&sent, &arrived))
}

/// Returns trains and pauses for a link of about `rate` bit/s.
fn suited(rate: f64, packet_bytes: u32, most_packets: u32) -> TrainSpec {
    let packet_time = f64::from(packet_bytes) * 8.0 / rate;
    let packets = (TRAIN_TIME / packet_time).clamp(8.0, f64::from(most_packets.max(8)));
    let time = packets.floor() * packet_time;
    // The pause begins when the train has left the sender, not the link.
    let gap = (time * (1.0 + REST)).clamp(LEAST_REST, 10.0);
    let trains = (ALL_TIME / gap).clamp(LEAST_TRAINS, MOST_TRAINS);
    TrainSpec {
        trains: trains as u8,
        packets: packets as u32,
        packet_bytes,
        gap_ns: (gap * 1e9) as u64,
    }
}

fn round(way: &mut impl TrainDirection, spec: &TrainSpec) -> Result<(Vec<Train>, Vec<Dispersion>)> {
    let Trains { sent, arrived } = way.trains(spec)?;
    let train = |(packets, seconds): &(u32, f64)| Train {
        packet_bytes: spec.packet_bytes,
        packets: *packets,
        seconds: *seconds,
    };
    let arrived =
        arrived.iter().filter_map(|train| Dispersion::of(train, spec.packet_bytes)).collect();
    Ok((sent.iter().map(train).collect(), arrived))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A link with a rate, and a faster sender.
    struct EmulatedLink {
        bps: f64,
        specs: Vec<TrainSpec>,
    }

    impl TrainDirection for EmulatedLink {
        fn trains(&mut self, spec: &TrainSpec) -> Result<Trains> {
            spec.validate().expect("a peer would take it");
            self.specs.push(*spec);
            let gap = f64::from(spec.packet_bytes) * 8e9 / self.bps;
            let packet = |number| TrainPacket { number, at_ns: (f64::from(number) * gap) as u64 };
            let train: Vec<_> = (0..spec.packets).map(packet).collect();
            let took = f64::from(spec.packets) * gap / 1e9 / 10.0;
            Ok(Trains {
                sent: vec![(spec.packets, took); spec.trains.into()],
                arrived: vec![train; spec.trains.into()],
            })
        }
    }

    #[test]
    fn trains_suit_the_rate_and_leave_the_link_to_others() {
        for bps in [1e5, 1e6, 1e8, 1e9, 1e10, 1e11] {
            let mut link = EmulatedLink { bps, specs: Vec::new() };
            let found = estimate(&mut link, 1500, |_| 200).unwrap();
            let estimate = found.estimate_bps.unwrap().bps() as f64;
            assert!((estimate / bps - 1.0).abs() < 0.01, "{bps}: {estimate}");
            let spec = link.specs[1];
            let train = f64::from(spec.packets) * 12_000.0 / bps;
            let share = train / (spec.gap_ns as f64 / 1e9);
            assert!(share < 0.25, "{bps}: {share}");
            let all = f64::from(spec.trains) * spec.gap_ns as f64 / 1e9;
            assert!(all < 3.0 || spec.trains == 6, "{bps}: {all} s");
        }
    }

    #[test]
    fn no_arrivals_are_too_few() {
        struct NoReplies;
        impl TrainDirection for NoReplies {
            fn trains(&mut self, spec: &TrainSpec) -> Result<Trains> {
                let sent = vec![(spec.packets, 1e-5); 3];
                Ok(Trains { sent, arrived: vec![Vec::new(); 3] })
            }
        }
        let found = estimate(&mut NoReplies, 1500, |_| 200).unwrap();
        assert_eq!((found.estimate_bps, found.trains, found.trains_used), (None, 3, 0));
    }
}
