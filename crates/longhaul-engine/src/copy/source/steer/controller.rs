//! Measures the data connections and applies the decisions on them.

use std::time::{Duration, Instant};

use longhaul_core::plan::CopyOptions;
use longhaul_core::units::Rate;
use longhaul_core::wire::copy::SourceMessage;
use longhaul_sys::cpu::HostTimes;
use longhaul_sys::tcp::TcpInfo;

use super::bound::is_queued;
use super::nice::NicePacer;
use super::policy::{Decision, LEAST_GAIN, StreamPolicy, WindowStats};
use super::steered::rate_of;
use super::stuck::StuckConnections;
use crate::copy::source::shared::SourceShared;
use crate::copy::streams::first_streams;

/// The number of round trips after which a change of the connections has its full effect.
const SETTLING_TRIPS: u32 = 8;
/// The shortest time over which a rate is measured.
const SHORTEST_WINDOW: Duration = Duration::from_secs(1);

/// The counters of the copy at one time.
struct Reading {
    at: Instant,
    /// The acknowledged bytes of all connections.
    acked: u64,
    /// The retransmitted bytes of all connections.
    resent: u64,
    /// The time for which the sending threads worked or waited for their sockets.
    sending: Duration,
    host: HostTimes,
    /// The time for which the receive window or the send buffer limited each connection.
    window_limited: Vec<Duration>,
}

/// Controls the streams of a copy.
pub(in crate::copy::source) struct StreamController<'a> {
    shared: &'a SourceShared<'a>,
    policy: StreamPolicy,
    /// The rate limit that `--nice` requests; `None` without the option.
    nice_pacer: Option<NicePacer>,
    /// True with `--dedicated`. No [`Pacemaker`](super::Pacemaker) runs then, so this controller
    /// applies the user's rate limit.
    dedicated: bool,
    /// The reading at the start of the window.
    window: Option<Reading>,
    /// The time and the acknowledged bytes in the middle of the window.
    middle: Option<(Instant, u64)>,
    /// The rate limit and the number of connections in force.
    paced: Option<(Option<Rate>, usize)>,
    /// The time of the last tick with `--nice`, and the bytes acknowledged by then.
    last: Option<(Instant, u64)>,
    /// The time of the last estimate of the bandwidth-delay product, and the bytes acknowledged by
    /// then.
    path: Option<(Instant, u64)>,
    stuck: StuckConnections,
}

impl<'a> StreamController<'a> {
    pub(in crate::copy::source) fn new(
        shared: &'a SourceShared<'a>,
        options: &CopyOptions,
    ) -> Self {
        let nice = options.nice;
        let policy =
            StreamPolicy::new(options.fixed_streams(), nice).starting_with(first_streams(options));
        shared.steered.want(policy.wanted());
        if nice && shared.steered.use_congestion("lp") {
            shared.steered.note("congestion control 'lp', which yields to others".to_owned());
        }
        let nice_pacer = nice.then(NicePacer::default);
        StreamController {
            shared,
            policy,
            nice_pacer,
            dedicated: options.dedicated,
            window: None,
            middle: None,
            paced: None,
            last: None,
            path: None,
            stuck: StuckConnections::default(),
        }
    }

    /// Measures the connections and applies decisions; called at every tick of the source. Returns
    /// the acknowledged bytes of all connections.
    pub(in crate::copy::source) fn tick(&mut self) -> u64 {
        let infos = self.shared.steered.tcp_infos();
        if !infos.is_empty() {
            self.steer(&infos);
        }
        infos.iter().map(|info| info.acked_bytes).sum()
    }

    fn steer(&mut self, infos: &[TcpInfo]) {
        self.update_feed(infos);
        self.stuck.check(&self.shared.steered, infos, Instant::now());
        let limit = self.shared.context.progress.limit();
        if self.nice_pacer.is_some() {
            self.yield_to_others(infos, limit);
        } else if self.dedicated && self.paced != Some((limit, infos.len())) {
            if limit.is_some() || self.paced.is_some_and(|(before, _)| before.is_some()) {
                self.shared.steered.pace_each(limit);
            }
            self.paced = Some((limit, infos.len()));
        }
        let Some(now) = self.read(infos) else { return };
        let Some(then) = &self.window else {
            self.window = Some(now);
            return;
        };
        let rtt = infos.iter().map(|info| info.rtt).max().unwrap_or_default();
        let length = SHORTEST_WINDOW.max(rtt * SETTLING_TRIPS);
        if now.at - then.at >= length / 2 && self.middle.is_none() {
            self.middle = Some((now.at, now.acked));
        }
        if now.at - then.at < length {
            return;
        }
        let stats = WindowStats::between(then, self.middle.take(), &now, infos);
        self.window = Some(now);
        let congestion = self.shared.steered.congestion().unwrap_or_default();
        let decision = self.policy.decide(stats, limit, &congestion);
        self.act(decision, &congestion);
    }

    fn read(&self, infos: &[TcpInfo]) -> Option<Reading> {
        Some(Reading {
            at: Instant::now(),
            acked: infos.iter().map(|info| info.acked_bytes).sum(),
            resent: infos.iter().map(|info| info.retransmitted_bytes).sum(),
            sending: self.shared.meters.sending.busy(),
            host: HostTimes::now().ok()?,
            window_limited: infos.iter().map(window_limited).collect(),
        })
    }

    fn act(&self, decision: Decision, congestion: &str) {
        let steered = &self.shared.steered;
        match decision {
            Decision::Keep => return,
            Decision::Bbr { .. } if !steered.use_congestion("bbr") => return,
            Decision::Bbr { .. } => {
                steered.note(format!("congestion control from {congestion} to {decision}"));
            }
            Decision::Add { .. } | Decision::Stop { .. } => steered.note(decision.to_string()),
        }
        if let Decision::Add { to, .. } = decision {
            steered.want(to);
            if !self.shared.context.opens_connections {
                let sent = self.shared.context.control.send(&SourceMessage::Streams { wanted: to });
                self.shared.context.cancel.check(sent);
            }
        }
    }

    /// Passes the bandwidth-delay product to the feed of standard input, which keeps this number of
    /// bytes for retransmission.
    fn update_feed(&mut self, infos: &[TcpInfo]) {
        let Some(feed) = &self.shared.context.feed else { return };
        let acked = infos.iter().map(|info| info.acked_bytes).sum();
        let now = Instant::now();
        let Some((then, before)) = self.path.replace((now, acked)) else { return };
        let rate = acked.saturating_sub(before) as f64 / (now - then).as_secs_f64().max(1e-3);
        let rtt = infos.iter().map(|info| info.rtt).max().unwrap_or_default();
        feed.path_holds((rate * rtt.as_secs_f64()) as u64);
    }

    fn yield_to_others(&mut self, infos: &[TcpInfo], limit: Option<Rate>) {
        let Some(nice_pacer) = &mut self.nice_pacer else { return };
        let acked: u64 = infos.iter().map(|info| info.acked_bytes).sum();
        let now = Instant::now();
        let Some((then, before)) = self.last.replace((now, acked)) else { return };
        let rate = acked.saturating_sub(before) as f64 / (now - then).as_secs_f64().max(1e-3);
        let queued = infos.iter().any(|info| NicePacer::is_queued(info.rtt, info.min_rtt));
        let most = limit.map_or(f64::INFINITY, |limit| limit.bytes_per_second() as f64);
        let rate = nice_pacer.next(queued, rate, most);
        self.shared.steered.pace_together(rate.is_finite().then(|| rate_of(rate)));
    }
}

/// Returns the time for which the receive window or the send buffer limited a connection.
fn window_limited(info: &TcpInfo) -> Duration {
    info.receive_window_limited + info.send_buffer_limited
}

impl WindowStats {
    /// Returns the measurements between the readings `then` and `now`. `middle` is the time and the
    /// acknowledged bytes halfway between them, and `infos` is the state of the connections at
    /// `now`.
    fn between(
        then: &Reading,
        middle: Option<(Instant, u64)>,
        now: &Reading,
        infos: &[TcpInfo],
    ) -> Self {
        let rate = |(from, before): (Instant, u64), (to, after): (Instant, u64)| {
            after.saturating_sub(before) as f64 / (to - from).as_secs_f64().max(1e-3)
        };
        let (start, end) = ((then.at, then.acked), (now.at, now.acked));
        let middle = middle.unwrap_or(start);
        let acked = now.acked.saturating_sub(then.acked);
        let time = now.at - then.at;
        let sending = now.sending.saturating_sub(then.sending).as_secs_f64();
        let limited =
            infos.iter().zip(&now.window_limited).enumerate().filter(|(number, (info, now))| {
                let before = then.window_limited.get(*number).copied().unwrap_or_default();
                info.delivery_app_limited || now.saturating_sub(before) > time / 2
            });
        let rtt = infos.iter().map(|info| info.rtt).min().unwrap_or_default();
        let least = infos.iter().filter_map(|info| info.min_rtt).min().unwrap_or_default();
        WindowStats {
            streams: infos.len() as u32,
            rate: rate(start, end),
            loss: now.resent.saturating_sub(then.resent) as f64 / acked.max(1) as f64,
            sending: sending / (time.as_secs_f64() * infos.len() as f64),
            cpu: now.host.busy_since(&then.host),
            growing: rate(middle, end) > LEAST_GAIN * rate(start, middle),
            limited: limited.count() as f64 / infos.len() as f64,
            queued: is_queued(rtt, least),
        }
    }
}
