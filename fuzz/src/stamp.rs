//! The readers of STAMP packets: those of a reflector and of a sender.
//!
//! The fuzz target `stamp` calls them, and so does `crates/longhaul-interop/tests/stamp_hostile.rs`.

use std::time::{Duration, Instant};

use longhaul_core::plan::StampPlan;
use longhaul_interop::stamp::{
    Arrival, LocalClock, Moment, PacketTime, ReflectorMachine, ReflectorSettings, ReplyArrival,
    SenderAction, SenderMachine, StampKey,
};

/// The time of all packets, in ns since 1970.
const NOW: u64 = 1_795_305_600_000_000_000;
/// The bytes of the headers of IPv4 and UDP.
const HEADER_BYTES: usize = 28;

/// Passes `bytes` to reflectors and senders in both modes: as it is, and as changes of a valid
/// packet. A reply has the length of its request.
pub fn stamp(bytes: &[u8]) {
    for key in [None, StampKey::parse(&"42".repeat(16)).ok()] {
        let settings = ReflectorSettings { key: key.clone(), ..ReflectorSettings::default() };
        let mut mirror = ReflectorMachine::new(settings, Instant::now());
        reflect(&mut mirror, &mut bytes.to_vec());
        let plan = StampPlan { packets: Some(8), ..StampPlan::new() };
        let mut machine = SenderMachine::new(plan, key, 7, HEADER_BYTES);
        // Each byte pair changes one byte; the packets share the changes.
        let mut changes = bytes.chunks(16);
        for round in 0..8 {
            let moment = Moment { at: Duration::from_secs(round), unix_ns: NOW + round };
            if machine.poll(moment) != SenderAction::Send {
                continue;
            }
            let mut packet = machine.packet().to_vec();
            let changes = changes.next().unwrap_or_default();
            let (of_request, of_reply) = changes.split_at(changes.len() / 2);
            change(&mut packet, of_request);
            reflect(&mut mirror, &mut packet);
            change(&mut packet, of_reply);
            let landed = ReplyArrival { time: at(NOW + 1000), hop_limit: None, class: 0 };
            machine.receive(&packet, &landed);
            machine.receive(bytes, &landed);
            machine.departed(bytes, at(NOW));
        }
        let report = machine.finish(Moment { at: Duration::from_secs(60), unix_ns: NOW });
        assert!(report.figures.answered <= report.figures.sent);
    }
}

fn reflect(mirror: &mut ReflectorMachine, packet: &mut [u8]) {
    let arrival = Arrival {
        from: "192.0.2.1:5000".parse().expect("an address"),
        to: None,
        time: at(NOW),
        hop_limit: 64,
        class: 0,
        now: Instant::now(),
    };
    let _ = mirror.answer(packet, &arrival, LocalClock::default(), || NOW + 100);
    mirror.departed(packet, at(NOW + 200));
}

fn at(at_nanos: u64) -> PacketTime {
    PacketTime { at_nanos, by_hardware: false }
}

fn change(packet: &mut [u8], changes: &[u8]) {
    for pair in changes.chunks_exact(2) {
        if let Some(byte) = packet.get_mut(usize::from(pair[0])) {
            *byte ^= pair[1];
        }
    }
}

/// Packets to begin from.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut machine = SenderMachine::new(StampPlan::new(), None, 7, HEADER_BYTES);
    machine.poll(Moment { at: Duration::ZERO, unix_ns: NOW });
    let request = machine.packet().to_vec();
    vec![request.clone(), request[..44].to_vec(), vec![24, 1, 30, 2, 0, 1, 12, 64], vec![]]
}
