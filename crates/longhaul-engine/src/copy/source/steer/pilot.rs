//! Looks at the connections, lets it be decided, and acts.

use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::plan::CopyOptions;
use longhaul_core::units::Rate;
use longhaul_core::wire::copy::SourceMessage;
use longhaul_sys::cpu::HostTimes;
use longhaul_sys::tcp::TcpInfo;

use super::bound::{Bound, Sample};
use super::course::{Course, Seen, Turn};
use super::helm::rate_of;
use super::yielding::Yielding;
use crate::copy::source::run::Shared;

/// Round trips that a change takes to show.
const SETTLING_TRIPS: u32 = 8;
/// The shortest time over which a rate is measured.
const SHORTEST_WINDOW: Duration = Duration::from_secs(1);

/// Time between two looks of the pacemaker: half a round trip within these limits.
const LEAST_LOOK: Duration = Duration::from_millis(4);
const MOST_LOOK: Duration = Duration::from_millis(30);
/// Segments of the kernel's first congestion window (RFC 6928).
const FIRST_WINDOW: u64 = 10;

/// The sums over all connections at one time.
struct Reading {
    at: Instant,
    acked: u64,
    resent: u64,
    sending: Duration,
    host: HostTimes,
}

/// Steers while the copy runs; called every tick.
pub(in crate::copy::source) struct Pilot<'a> {
    shared: &'a Shared<'a>,
    course: Course,
    /// With `--nice`.
    yielding: Option<Yielding>,
    /// With `--dedicated`: no [`Pacemaker`] keeps the user's limit.
    dedicated: bool,
    window: Option<Reading>,
    /// The user's limit and the number of connections that are in force.
    paced: Option<(Option<Rate>, usize)>,
    last: Option<(Instant, u64)>,
    /// When it was last looked at what is on the path, and what had been delivered by then.
    path: Option<(Instant, u64)>,
}

impl<'a> Pilot<'a> {
    pub(in crate::copy::source) fn new(shared: &'a Shared<'a>, options: &CopyOptions) -> Self {
        let nice = options.nice;
        let course = Course::new(options.streams, nice);
        shared.helm.want(course.wanted());
        if nice && shared.helm.use_congestion("lp") {
            shared.helm.note("congestion control 'lp', which yields to others".to_owned());
        }
        let yielding = nice.then(Yielding::default);
        Pilot {
            shared,
            course,
            yielding,
            dedicated: options.dedicated,
            window: None,
            paced: None,
            last: None,
            path: None,
        }
    }

    /// Looks at the connections and acts.
    /// Returns a number that changes with the bytes that have arrived.
    pub(in crate::copy::source) fn tick(&mut self) -> u64 {
        let infos = self.shared.helm.look();
        if !infos.is_empty() {
            self.steer(&infos);
        }
        infos.iter().map(|info| info.acked_bytes).sum()
    }

    fn steer(&mut self, infos: &[TcpInfo]) {
        self.tell_feed(infos);
        let limit = self.shared.progress.limit();
        if self.yielding.is_some() {
            self.yield_to_others(infos, limit);
        } else if self.dedicated && self.paced != Some((limit, infos.len())) {
            if limit.is_some() || self.paced.is_some_and(|(before, _)| before.is_some()) {
                self.shared.helm.pace(limit);
            }
            self.paced = Some((limit, infos.len()));
        }
        let Some(now) = self.read(infos) else { return };
        let Some(then) = &self.window else {
            self.window = Some(now);
            return;
        };
        let rtt = infos.iter().map(|info| info.rtt).max().unwrap_or_default();
        if now.at - then.at < SHORTEST_WINDOW.max(rtt * SETTLING_TRIPS) {
            return;
        }
        let seen = Seen::between(then, &now, infos.len() as u32);
        self.window = Some(now);
        let congestion = self.shared.helm.congestion().unwrap_or_default();
        let turn = self.course.decide(seen, limit, &congestion);
        self.act(turn, &congestion);
    }

    fn read(&self, infos: &[TcpInfo]) -> Option<Reading> {
        Some(Reading {
            at: Instant::now(),
            acked: infos.iter().map(|info| info.acked_bytes).sum(),
            resent: infos.iter().map(|info| info.retransmitted_bytes).sum(),
            sending: self.shared.sending.busy(),
            host: HostTimes::now().ok()?,
        })
    }

    fn act(&self, turn: Turn, congestion: &str) {
        let helm = &self.shared.helm;
        match turn {
            Turn::Keep => return,
            Turn::Bbr { .. } if !helm.use_congestion("bbr") => return,
            Turn::Bbr { .. } => {
                helm.note(format!("congestion control from {congestion} to {turn}"));
            }
            Turn::Add { .. } | Turn::Stop { .. } => helm.note(turn.to_string()),
        }
        if let Turn::Add { to, .. } = turn {
            helm.want(to);
            if !self.shared.dials {
                let told = self.shared.control.send(&SourceMessage::Streams { wanted: to });
                self.shared.cancel.check(told);
            }
        }
    }

    /// Lets what cannot be read twice be kept for as long as the path takes.
    fn tell_feed(&mut self, infos: &[TcpInfo]) {
        let Some(feed) = &self.shared.feed else { return };
        let acked = infos.iter().map(|info| info.acked_bytes).sum();
        let now = Instant::now();
        let Some((then, before)) = self.path.replace((now, acked)) else { return };
        let rate = acked.saturating_sub(before) as f64 / (now - then).as_secs_f64().max(1e-3);
        let rtt = infos.iter().map(|info| info.rtt).max().unwrap_or_default();
        feed.path_holds((rate * rtt.as_secs_f64()) as u64);
    }

    fn yield_to_others(&mut self, infos: &[TcpInfo], limit: Option<Rate>) {
        let Some(yielding) = &mut self.yielding else { return };
        let acked: u64 = infos.iter().map(|info| info.acked_bytes).sum();
        let now = Instant::now();
        let Some((then, before)) = self.last.replace((now, acked)) else { return };
        let rate = acked.saturating_sub(before) as f64 / (now - then).as_secs_f64().max(1e-3);
        let queued = infos.iter().any(|info| Yielding::is_queued(info.rtt, info.min_rtt));
        let most = limit.map_or(f64::INFINITY, |limit| limit.bytes_per_second() as f64);
        let rate = yielding.next(queued, rate, most);
        self.shared.helm.pace(rate.is_finite().then(|| rate_of(rate)));
    }
}

/// Paces all connections together at the [`Bound`] and the user's limit.
pub(in crate::copy::source) struct Pacemaker<'a> {
    shared: &'a Shared<'a>,
    bound: Bound,
    start: Instant,
    /// The rate in force and the number of connections that share it.
    paced: Option<(Rate, usize)>,
}

impl<'a> Pacemaker<'a> {
    pub(in crate::copy::source) fn new(shared: &'a Shared<'a>) -> Self {
        Pacemaker { shared, bound: Bound::default(), start: Instant::now(), paced: None }
    }

    /// Reads the state of the connections and paces them until `over`.
    pub(in crate::copy::source) fn run(&mut self, over: impl Fn() -> bool) {
        while !over() {
            thread::park_timeout(self.pace());
        }
    }

    /// Paces the connections; returns the time until the next look.
    fn pace(&mut self) -> Duration {
        let infos = self.shared.helm.look();
        let Some(sample) = sample(&infos, self.start.elapsed()) else { return LEAST_LOOK };
        let was_lowered = self.bound.is_lowered();
        let bound = self.bound.next(sample).map(rate_of);
        if self.bound.is_lowered() && !was_lowered {
            let rate = bound.unwrap_or_default();
            self.shared.helm.note(format!("paced at {rate}: the queue of the path overflows"));
        }
        let limit = self.shared.progress.limit();
        let rate = bound.into_iter().chain(limit).min();
        let change = |(paced, streams): (Rate, usize), rate: Rate| {
            streams != infos.len() || rate.bps().abs_diff(paced.bps()) > paced.bps() / 50
        };
        match (self.paced, rate) {
            (None, None) => {}
            (Some(paced), Some(rate)) if !change(paced, rate) => {}
            _ => {
                self.shared.helm.pace(rate);
                self.paced = rate.map(|rate| (rate, infos.len()));
            }
        }
        (sample.rtt / 2).clamp(LEAST_LOOK, MOST_LOOK)
    }
}

/// Sums up `infos`; `None` before the first round trip.
fn sample(infos: &[TcpInfo], at: Duration) -> Option<Sample> {
    let sum = |of: fn(&TcpInfo) -> u64| infos.iter().map(of).sum();
    Some(Sample {
        at,
        acked: sum(|info| info.acked_bytes),
        retransmitted: sum(|info| info.retransmitted_bytes),
        rtt: infos.iter().map(|info| info.rtt).filter(|rtt| !rtt.is_zero()).min()?,
        least_rtt: infos.iter().filter_map(|info| info.min_rtt).min()?,
        first_windows: sum(|info| FIRST_WINDOW * u64::from(info.send_mss)),
    })
}

impl Seen {
    fn between(then: &Reading, now: &Reading, streams: u32) -> Self {
        let seconds = (now.at - then.at).as_secs_f64();
        let acked = now.acked.saturating_sub(then.acked);
        let sending = now.sending.saturating_sub(then.sending).as_secs_f64();
        Seen {
            streams,
            rate: acked as f64 / seconds,
            loss: now.resent.saturating_sub(then.resent) as f64 / acked.max(1) as f64,
            sending: sending / (seconds * f64::from(streams)),
            cpu: now.host.busy_since(&then.host),
        }
    }
}
