//! Chooses, while the copy runs, how many connections carry it, what controls their congestion,
//! and how fast they may go.
//!
//! It begins with two connections and doubles them as long as the rate goes up by a tenth with
//! it. It stops when it does not, when the senders wait for the disk rather than for the network,
//! or when the processors are used up. A kernel's own congestion control is left alone unless
//! segments get lost and BBR, which does not take loss for congestion, is to be had.

use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use longhaul_core::result::PathReport;
use longhaul_core::units::Rate;
use longhaul_core::wire::copy::SourceMessage;
use longhaul_sys::cpu::HostTimes;
use longhaul_sys::tcp::{self, TcpInfo, set_max_pacing_rate, tcp_info};

use super::run::Shared;
use crate::lock::lock;

/// Connections that a copy begins with unless it is told how many.
pub(in crate::copy) const FIRST_STREAMS: u32 = 2;
/// Most connections that are opened by measurement: eight fill a path that drops one segment in
/// ten thousand, and every one of them costs both ends two buffers.
pub(in crate::copy) const MOST_STREAMS: u32 = 16;
/// What more connections must bring to stay worth it.
const WORTH: f64 = 1.1;
/// Share of the time from which on the senders are held up by the network.
const HELD_UP: f64 = 0.5;
/// Share of the host's processor time that is as good as all.
const CPU_FULL: f64 = 0.95;
/// Bytes sent again for each byte delivered from which on loss is what limits a window: one lost
/// segment in 20,000 keeps a loss-based window below 200 segments (RFC 3649, section 2).
const LOSSY: f64 = 5e-5;
/// Round trips that a change takes to show.
const SETTLING_TRIPS: u32 = 8;
/// The shortest time over which a rate is measured.
const SHORTEST_WINDOW: Duration = Duration::from_secs(1);
/// Delay added to the path's own that a copy with `--nice` allows itself (RFC 6817: 100 ms at the
/// most; less is kinder).
const NICE_DELAY: Duration = Duration::from_millis(15);
/// By how much it slows down and speeds up again, every tick.
const NICE_DOWN: f64 = 0.85;
const NICE_UP: f64 = 1.05;

/// What is steered.
#[derive(Default)]
pub(super) struct Helm {
    sockets: Mutex<Vec<TcpStream>>,
    wanted: AtomicU32,
    /// The congestion control that was chosen instead of the kernel's.
    chosen: Mutex<Option<String>>,
    report: Mutex<PathReport>,
}

impl Helm {
    /// Takes a connection under control.
    pub(super) fn add(&self, socket: &TcpStream) {
        let congestion = lock(&self.chosen).clone();
        if congestion.is_some() {
            let options = tcp::SocketOptions { congestion, ..tcp::SocketOptions::default() };
            // Granted for the others; without it this one is as the kernel has it.
            let _ = options.apply(socket);
        }
        lock(&self.sockets).extend(socket.try_clone());
    }

    /// Connections that are wanted in all.
    pub(super) fn wanted(&self) -> u32 {
        self.wanted.load(Ordering::Relaxed)
    }

    /// What was done, and what `tcp` says of the connections at their end.
    pub(super) fn report(&self, tcp: &[TcpInfo]) -> PathReport {
        let sum = |of: fn(&TcpInfo) -> f64| tcp.iter().map(of).sum::<f64>();
        let share = |of, all: f64| if all > 0.0 { sum(of) / all } else { 0.0 };
        let busy = sum(|info| info.busy.as_secs_f64());
        let streams = lock(&self.sockets).len() as u32;
        let steered = lock(&self.report).clone();
        PathReport {
            streams,
            congestion: self.congestion(),
            loss: share(
                |info| info.retransmitted_bytes as f64,
                sum(|info| info.acked_bytes as f64),
            ),
            receive_window_limited: share(|info| info.receive_window_limited.as_secs_f64(), busy),
            send_buffer_limited: share(|info| info.send_buffer_limited.as_secs_f64(), busy),
            ..steered
        }
    }

    fn congestion(&self) -> Option<String> {
        let sockets = lock(&self.sockets);
        Some(tcp::granted(sockets.first()?).ok()?.congestion)
    }

    fn note(&self, step: String) {
        lock(&self.report).steps.push(step);
    }

    /// Lets all connections together send at `rate`.
    fn pace(&self, rate: Option<Rate>) {
        let sockets = lock(&self.sockets);
        let each = rate.map_or(u64::MAX, |rate| {
            (rate.bytes_per_second() / sockets.len().max(1) as u64).max(1)
        });
        for socket in sockets.iter() {
            // One that is gone needs no pace.
            let _ = set_max_pacing_rate(socket, each);
        }
    }

    /// Makes all connections use `congestion`; true if they do.
    fn use_congestion(&self, congestion: &str) -> bool {
        let options = tcp::SocketOptions {
            congestion: Some(congestion.to_owned()),
            ..tcp::SocketOptions::default()
        };
        let sockets = lock(&self.sockets);
        let used = !sockets.is_empty() && sockets.iter().all(|s| options.apply(s).is_ok());
        if used {
            *lock(&self.chosen) = options.congestion;
        }
        used
    }
}

/// The sums over all connections at one time.
struct Reading {
    at: Instant,
    acked: u64,
    resent: u64,
    sending: Duration,
    host: HostTimes,
}

/// Steers while the copy runs; called every tick.
pub(super) struct Pilot<'a> {
    shared: &'a Shared<'a>,
    /// Whether the number of connections is to be found.
    free: bool,
    nice: bool,
    /// Whether the congestion control may still be changed.
    congestion_free: bool,
    window: Option<Reading>,
    /// The rate before connections were added, and how many there were.
    before: Option<(f64, u32)>,
    /// The user's limit and the number of connections that are in force.
    paced: Option<(Option<Rate>, usize)>,
    /// What `--nice` allows at present.
    allowed: Option<f64>,
    last: Option<(Instant, u64)>,
}

impl<'a> Pilot<'a> {
    pub(super) fn new(shared: &'a Shared<'a>, streams: Option<u32>, nice: bool) -> Self {
        shared.helm.wanted.store(streams.unwrap_or(FIRST_STREAMS), Ordering::Relaxed);
        if nice && shared.helm.use_congestion("lp") {
            shared.helm.note("congestion control 'lp', which yields to others".to_owned());
        }
        Pilot {
            shared,
            free: streams.is_none(),
            nice,
            congestion_free: !nice,
            window: None,
            before: None,
            paced: None,
            allowed: None,
            last: None,
        }
    }

    /// Looks at the connections and acts.
    pub(super) fn tick(&mut self) {
        let infos: Vec<_> =
            lock(&self.shared.helm.sockets).iter().filter_map(|s| tcp_info(s).ok()).collect();
        if infos.is_empty() {
            return;
        }
        let limit = self.shared.progress.limit();
        if self.nice {
            self.yield_to_others(&infos, limit);
        } else if self.paced != Some((limit, infos.len())) {
            if limit.is_some() || self.paced.is_some_and(|(before, _)| before.is_some()) {
                self.shared.helm.pace(limit);
            }
            self.paced = Some((limit, infos.len()));
        }
        let Some(now) = self.read(&infos) else { return };
        let Some(then) = &self.window else {
            self.window = Some(now);
            return;
        };
        let rtt = infos.iter().map(|info| info.rtt).max().unwrap_or_default();
        if now.at - then.at < SHORTEST_WINDOW.max(rtt * SETTLING_TRIPS) {
            return;
        }
        self.decide(&now, infos.len() as u32);
        self.window = Some(now);
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

    fn decide(&mut self, now: &Reading, streams: u32) {
        let Some(then) = &self.window else { return };
        let seconds = (now.at - then.at).as_secs_f64();
        let acked = now.acked.saturating_sub(then.acked);
        let rate = acked as f64 / seconds;
        let loss = now.resent.saturating_sub(then.resent) as f64 / acked.max(1) as f64;
        let sending = (now.sending.saturating_sub(then.sending)).as_secs_f64();
        let held_up = sending / (seconds * f64::from(streams)) >= HELD_UP;
        let cpu_full = now.host.busy_since(&then.host) >= CPU_FULL;
        let helm = &self.shared.helm;
        if self.congestion_free && held_up && loss >= LOSSY {
            self.congestion_free = false;
            let used = helm.congestion().unwrap_or_default();
            if !used.starts_with("bbr") && helm.use_congestion("bbr") {
                helm.note(format!(
                    "congestion control from {used} to bbr: {:.4} % was lost",
                    100.0 * loss
                ));
                // What it brings must show before anything else is changed.
                self.before = None;
                return;
            }
        }
        if !self.free || self.shared.progress.limit().is_some() || !held_up {
            return;
        }
        if streams < helm.wanted() {
            // The last ones are not open yet, or cannot be.
            return;
        }
        if let Some((before, fewer)) = self.before
            && rate < WORTH * before
        {
            helm.note(format!(
                "{streams} streams: {} where {fewer} brought {}, no more added",
                rate_of(rate),
                rate_of(before)
            ));
            self.free = false;
        } else if cpu_full {
            helm.note(format!("{streams} streams: the processors are used up, no more added"));
            self.free = false;
        } else if streams >= MOST_STREAMS {
            self.free = false;
        } else {
            self.before = Some((rate, streams));
            let wanted = (2 * streams).min(MOST_STREAMS);
            helm.wanted.store(wanted, Ordering::Relaxed);
            helm.note(format!("from {streams} to {wanted} streams at {}", rate_of(rate)));
            if !self.shared.dials {
                let told = self.shared.control.send(&SourceMessage::Streams { wanted });
                self.shared.cancel.check(told);
            }
        }
    }

    /// Slows down while the path's queues grow, as LEDBAT does (RFC 6817), by pacing.
    fn yield_to_others(&mut self, infos: &[TcpInfo], limit: Option<Rate>) {
        let acked: u64 = infos.iter().map(|info| info.acked_bytes).sum();
        let now = Instant::now();
        let Some((then, before)) = self.last.replace((now, acked)) else { return };
        let rate = acked.saturating_sub(before) as f64 / (now - then).as_secs_f64().max(1e-3);
        let queued = infos
            .iter()
            .any(|info| info.min_rtt.is_some_and(|least| info.rtt > least + NICE_DELAY));
        let most = limit.map_or(f64::INFINITY, |limit| limit.bytes_per_second() as f64);
        let allowed = match (queued, self.allowed) {
            (true, allowed) => Some(allowed.unwrap_or(f64::INFINITY).min(rate) * NICE_DOWN),
            // What is not used up need not grow.
            (false, Some(allowed)) if rate < allowed / 2.0 => Some(allowed),
            (false, Some(allowed)) => Some(allowed * NICE_UP),
            (false, None) => None,
        };
        self.allowed = allowed.map(|allowed| allowed.clamp(SLOWEST, most.max(SLOWEST)));
        let rate = self.allowed.unwrap_or(most);
        self.shared.helm.pace(rate.is_finite().then(|| rate_of(rate)));
    }
}

fn rate_of(bytes_per_second: f64) -> Rate {
    Rate::from_bps((8.0 * bytes_per_second) as u64)
}

/// What `--nice` leaves a copy, in bytes a second: enough for it to feel its way back.
const SLOWEST: f64 = 125_000.0;
