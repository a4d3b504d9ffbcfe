//! A network in virtual time between a STAMP sender and a reflector.

// Not every test uses everything.
#![allow(dead_code, unreachable_pub)]

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use longhaul_core::plan::StampPlan;
use longhaul_interop::stamp::{
    Arrival, LocalClock, Moment, NoReply, PacketTime, PeriodReport, ReflectorMachine,
    ReflectorSettings, ReplyArrival, SenderAction, SenderMachine, StampKey,
};

/// The time at which every simulation begins, in ns since 1970.
pub const START_NS: u64 = 1_795_305_600_000_000_000;

/// The time between the arrival of a request and the reply.
const REPLY: Duration = Duration::from_micros(20);

/// One direction of the network.
#[derive(Debug, Clone, Copy, Default)]
pub struct Direction {
    pub delay: Duration,
    pub loss: f64,
    pub duplicate: f64,
    /// The share of packets that are delayed by a further 50 ms.
    pub reorder: f64,
}

/// The packets that a direction changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub entered: u64,
    pub lost: u64,
    pub duplicated: u64,
}

/// A packet on its way: the time of arrival, a unique number, true on the way back, and the bytes.
type InFlight = Reverse<(Duration, u64, bool, Vec<u8>)>;

/// The settings of a simulation.
#[derive(Clone)]
pub struct Network {
    pub directions: [Direction; 2],
    pub seed: u64,
    pub settings: ReflectorSettings,
    pub key: Option<StampKey>,
    /// The reflector's clock minus the sender's, in ns.
    pub offset_ns: i64,
    /// The sender's clock steps by this many ns at this time.
    pub step: Option<(Duration, i64)>,
    /// The reflector answers nothing in this span and then begins again.
    pub outage: Option<(Duration, Duration)>,
    /// The longest reply in bytes.
    pub cut: usize,
}

impl Default for Network {
    fn default() -> Self {
        let both = Direction { delay: Duration::from_millis(10), ..Direction::default() };
        Network {
            directions: [both; 2],
            seed: 1,
            settings: ReflectorSettings::default(),
            key: None,
            offset_ns: 0,
            step: None,
            outage: None,
            cut: usize::MAX,
        }
    }
}

/// The outcome of a simulation.
#[derive(Debug)]
pub struct Outcome {
    pub machine: SenderMachine,
    /// The records of a measurement without an end, and at its end or of another one the last.
    pub reports: Vec<PeriodReport>,
    pub silence: Option<NoReply>,
    pub counts: [Counts; 2],
}

impl Outcome {
    pub fn last(&self) -> &PeriodReport {
        self.reports.last().expect("the measurement has a report")
    }
}

struct Simulation {
    network: Network,
    random: u64,
    flying: BinaryHeap<InFlight>,
    number: u64,
    counts: [Counts; 2],
    now: Duration,
    mirror: ReflectorMachine,
    origin: Instant,
    restarted: bool,
}

impl Network {
    /// Runs `plan` until it ends, or for at most `time`.
    pub fn run(&self, plan: StampPlan, time: Duration) -> Outcome {
        self.run_with(plan, time, |_| ())
    }

    /// As [`run`](Self::run); `keep` receives every record, which is dropped afterwards.
    pub fn run_with(
        &self,
        plan: StampPlan,
        time: Duration,
        mut keep: impl FnMut(&PeriodReport),
    ) -> Outcome {
        let origin = Instant::now();
        let mut machine = SenderMachine::new(plan, self.key.clone(), 77, 28);
        let mut simulation = Simulation {
            network: self.clone(),
            random: self.seed,
            flying: BinaryHeap::new(),
            number: 0,
            counts: [Counts::default(); 2],
            now: Duration::ZERO,
            mirror: ReflectorMachine::new(self.settings.clone(), origin),
            origin,
            restarted: false,
        };
        let mut silence = None;
        let mut last = None;
        while simulation.now < time {
            match machine.poll(simulation.moment()) {
                SenderAction::Send => {
                    simulation.enter(0, Duration::ZERO, machine.packet().to_vec());
                }
                SenderAction::Wait(until) => simulation.advance(until, &mut machine),
                SenderAction::Record(report) => {
                    keep(&report);
                    last = Some(*report);
                }
                SenderAction::Done => break,
                SenderAction::Silent(found) => {
                    silence = Some(found);
                    break;
                }
            }
        }
        let rest = machine.finish(simulation.moment());
        let reports = last.into_iter().chain([rest]).collect();
        Outcome { machine, reports, silence, counts: simulation.counts }
    }
}

impl Simulation {
    fn moment(&self) -> Moment {
        let stepped = self.network.step.filter(|(at, _)| self.now >= *at).map_or(0, |(_, by)| by);
        let unix_ns = (START_NS + self.now.as_nanos() as u64).wrapping_add_signed(stepped);
        Moment { at: self.now, unix_ns }
    }

    fn chance(&mut self) -> f64 {
        // splitmix64
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Takes a packet into a direction after a time.
    fn enter(&mut self, way: usize, after: Duration, packet: Vec<u8>) {
        let Direction { delay, loss, duplicate, reorder } = self.network.directions[way];
        self.counts[way].entered += 1;
        if self.chance() < loss {
            self.counts[way].lost += 1;
            return;
        }
        let late = if self.chance() < reorder { Duration::from_millis(50) } else { Duration::ZERO };
        let mut copies = vec![packet];
        if self.chance() < duplicate {
            self.counts[way].duplicated += 1;
            copies.push(copies[0].clone());
        }
        for (copy, packet) in copies.into_iter().enumerate() {
            self.number += 1;
            // A duplicate arrives 10 us after its packet.
            let at = self.now + after + delay + late + Duration::from_micros(10 * copy as u64);
            self.flying.push(Reverse((at, self.number, way == 1, packet)));
        }
    }

    /// Advances the time to the next arrival or to `until`.
    fn advance(&mut self, until: Duration, machine: &mut SenderMachine) {
        let next = self.flying.peek().map(|Reverse((at, ..))| *at).filter(|at| *at <= until);
        let Some(at) = next else {
            self.now = self.now.max(until);
            return;
        };
        self.now = self.now.max(at);
        let Some(Reverse((_, _, back, packet))) = self.flying.pop() else { return };
        if back {
            let at_nanos = self.moment().unix_ns;
            let time = PacketTime { at_nanos, by_hardware: false };
            machine.receive(&packet, &ReplyArrival { time, hop_limit: Some(64), class: 0 });
        } else {
            self.reflect(packet);
        }
    }

    fn reflect(&mut self, mut packet: Vec<u8>) {
        if let Some((from, to)) = self.network.outage {
            if self.now >= from && self.now < to {
                return;
            }
            if self.now >= to && !self.restarted {
                self.restarted = true;
                self.mirror = ReflectorMachine::new(self.network.settings.clone(), self.origin);
            }
        }
        let at_nanos =
            (START_NS + self.now.as_nanos() as u64).wrapping_add_signed(self.network.offset_ns);
        let arrival = Arrival {
            from: "192.0.2.1:5000".parse().unwrap(),
            to: None,
            time: PacketTime { at_nanos, by_hardware: false },
            hop_limit: 255,
            class: 0,
            now: self.origin + self.now,
        };
        let clock = || at_nanos + REPLY.as_nanos() as u64;
        if self.mirror.answer(&mut packet, &arrival, LocalClock::default(), clock).is_ok() {
            packet.truncate(self.network.cut);
            self.enter(1, REPLY, packet);
        }
    }
}
