//! The client of a path measurement with `longhaul serve`.

mod capacity;
mod loss;

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use longhaul_core::path::{Clock, asymmetry};
use longhaul_core::plan::{PathPart, PathPlan};
use longhaul_core::result::{
    PATH_SCHEMA, PathDirection, PathEnd, PathResult, Prober, RoundTrips, RttFigures, Unmeasured,
    Warning, WarningKind,
};
use longhaul_core::text::chain;
use longhaul_core::wire::{PathEvent, PathOrder};
use longhaul_sys::host;
use longhaul_sys::probe::now_nanos;

use super::echo::{EchoSeries, Trips, gentle_trips, round_trips};
use super::flow::ProbeFlow;
use super::probe_socket::ProbeSocket;
use super::probers::Echo;
use super::{hops, mtu, tcp};
use crate::error::{EngineError, Result};
use crate::session::{
    ControlReceiver, ControlSender, DataDialer, DataRoute, Session, SessionSecret,
};
use crate::test::STEP_LIMIT;

/// The first round trips, from which the time limit for answers follows.
const FIRST_TRIPS: u32 = 10;
/// The time limit for the first answers, longer than the round trip of any usual path.
const FIRST_PATIENCE: Duration = Duration::from_secs(3);
/// The smallest change of this host's clock that is a step and not drift.
const CLOCK_STEP_NS: i64 = 5_000_000;
/// The length of a full packet if the MTU is not measured: that of Ethernet.
pub(super) const USUAL_MTU: u32 = 1500;

/// Measures the path to the server of `session`, which the user named `target`, and reports each
/// part to `note`. When `stop` is set, it ends early with the results so far.
///
/// # Errors
/// The server refuses the measurement, or no data can be exchanged with it. The result names later
/// failures.
pub fn run(
    session: Session,
    target: &str,
    plan: &PathPlan,
    stop: &AtomicBool,
    note: impl FnMut(&str),
) -> Result<PathResult> {
    let begun = Instant::now();
    let clock_at_begin = now_nanos();
    let mut client = PathClient::open(session, target, plan, stop, note)?;
    client.run();
    let _ = client.sender.send(&PathOrder::Finished);
    let mut result = client.result;
    let elapsed = begun.elapsed();
    result.seconds = elapsed.as_secs_f64();
    let step = now_nanos().wrapping_sub(clock_at_begin) as i64 - elapsed.as_nanos() as i64;
    if step.abs() > CLOCK_STEP_NS {
        let step_ms = step as f64 / 1e6;
        result.warnings.push(Warning::from(WarningKind::ClockStepped { step_ms }));
    }
    if stop.load(Ordering::Acquire) {
        result.end = PathEnd::Interrupted;
    }
    Ok(result)
}

/// Returns an empty result.
pub(super) fn empty(target: &str, address: IpAddr, plan: &PathPlan) -> PathResult {
    PathResult {
        schema: PATH_SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        target: target.to_owned(),
        address,
        local: None,
        served: false,
        alone_because: None,
        plan: plan.clone(),
        end: PathEnd::Completed,
        seconds: 0.0,
        rtt: None,
        forward: PathDirection::default(),
        reverse: PathDirection::default(),
        asymmetry: None,
        unmeasured: Vec::new(),
        warnings: Vec::new(),
        summary: Vec::new(),
    }
}

/// Returns the state of this host's clock.
pub(super) fn own_clock() -> Clock {
    host::clock_state().map_or(Clock::default(), |state| Clock {
        synchronised: state.synchronised,
        max_error_ms: state.max_error.as_secs_f64() * 1e3,
    })
}

/// Returns a mark of this boot that only the ends of the session can compare.
pub(super) fn boot_mark(secret: &SessionSecret) -> Option<[u8; 16]> {
    Some(secret.mark(host::boot_id()?.as_bytes()))
}

/// Returns the time limit for answers: one and a half times the longest of the first round trips.
pub(super) fn patience(trips: &[Trips]) -> Duration {
    let longest = trips.iter().flat_map(|trips| &trips.times_ms).copied().fold(0.0, f64::max);
    match longest {
        0.0 => Duration::from_secs(1),
        ms => Duration::from_secs_f64((ms * 1.5 + 50.0) / 1e3).min(FIRST_PATIENCE),
    }
}

pub(super) struct PathClient<'a, N> {
    pub(super) sender: ControlSender,
    pub(super) receiver: ControlReceiver,
    dialer: DataDialer,
    pub(super) flow: ProbeFlow,
    plan: &'a PathPlan,
    stop: &'a AtomicBool,
    note: N,
    patience: Duration,
    near: Clock,
    far: Clock,
    pub(super) same_clock: bool,
    pub(super) result: PathResult,
}

impl<'a, N: FnMut(&str)> PathClient<'a, N> {
    pub(super) fn open(
        session: Session,
        target: &str,
        plan: &'a PathPlan,
        stop: &'a AtomicBool,
        note: N,
    ) -> Result<Self> {
        let (sender, mut receiver, dialer) = session.split();
        receiver.set_timeout(Some(STEP_LIMIT))?;
        let seconds = plan.probe_time.as_secs_f64();
        let accepted = ask(&sender, &mut receiver, &PathOrder::Begin { seconds })?;
        let PathEvent::Accepted { clock, boot } = accepted else {
            return unexpected_message(&sender);
        };
        let socket = dialer.open_flow(0, &DataRoute::default(), |_| Ok(()))?;
        let address = socket.peer_addr().map(|peer| peer.ip());
        let local = socket.local_addr().map(|local| local.ip()).ok();
        expect(&mut receiver, &PathEvent::Ready)?;
        sender.send(&PathOrder::Start)?;
        let tag = dialer.secret().datagram_tag(0);
        let failed = |source| EngineError::System { operation: "set up a UDP socket", source };
        let flow = ProbeFlow::start(socket, tag, None, usize::MAX).map_err(failed)?;
        expect(&mut receiver, &PathEvent::Started)?;
        let mut result = empty(target, address.map_err(failed)?, plan);
        (result.local, result.served) = (local, true);
        let same_clock = boot.is_some() && boot == boot_mark(dialer.secret());
        Ok(PathClient {
            sender,
            receiver,
            dialer,
            flow,
            plan,
            stop,
            note,
            patience: FIRST_PATIENCE,
            near: own_clock(),
            far: clock,
            same_clock,
            result,
        })
    }

    /// Measures all parts in turn. A part that fails is named, and the next begins unless the
    /// server is gone.
    fn run(&mut self) {
        (self.note)("measuring the time of an answer");
        self.first_trips();
        for part in PathPart::ALL {
            if !self.plan.wants(part) || self.stopped() {
                continue;
            }
            let done = match part {
                PathPart::Mtu => self.mtu(),
                PathPart::Rtt => self.rtt(),
                PathPart::Hops => self.hops(),
                PathPart::Capacity => self.capacity(),
                PathPart::Loss => self.loss(),
            };
            let Err(error) = done else { continue };
            let gone = error.may_pass();
            self.unmeasured(part, part.to_string(), chain(&error));
            if gone {
                break;
            }
        }
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    fn unmeasured(&mut self, part: PathPart, what: impl Into<String>, why: impl Into<String>) {
        let (what, why) = (what.into(), why.into());
        self.result.unmeasured.push(Unmeasured { part, what, why });
    }

    pub(super) fn first_trips(&mut self) {
        let (least, pace) = (self.flow.least_bytes(), Duration::from_millis(10));
        let flow = &mut self.flow;
        let series =
            EchoSeries { sizes: &[least], count: FIRST_TRIPS, pace, patience: FIRST_PATIENCE };
        let trips = round_trips(flow, series, self.stop);
        self.patience = patience(&trips);
    }

    fn rtt(&mut self) -> Result<()> {
        (self.note)("measuring round trips");
        let ways = [self.result.forward.mtu_bytes(), self.result.reverse.mtu_bytes()];
        let full = ways.into_iter().flatten().min().unwrap_or(USUAL_MTU);
        let sizes = [self.flow.least_bytes(), full];
        let trips = gentle_trips(&mut self.flow, sizes, self.plan, self.patience, self.stop);
        if let [small, _] = &trips[..]
            && let Some((forward, reverse)) = small.forward_ns.zip(small.reverse_ns)
        {
            let (forward, reverse) = (forward as f64 / 1e6, reverse as f64 / 1e6);
            self.result.asymmetry =
                Some(asymmetry(forward, reverse, self.near, self.far, self.same_clock));
        }
        let mut figures = trips
            .into_iter()
            .map(|trips| RoundTrips::of(trips.packet_bytes, trips.sent, trips.times_ms));
        let (small, full) = (figures.next().flatten(), figures.next().flatten());
        for (what, missing) in [("small", small.is_none()), ("full-size", full.is_none())] {
            if missing && !self.stopped() {
                let what = format!("round trips of {what} packets");
                self.unmeasured(PathPart::Rtt, what, "no answer");
            }
        }
        if small.is_some() || full.is_some() {
            self.result.rtt = Some(RttFigures { by: Prober::Udp, small, full });
        }
        Ok(())
    }

    fn mtu(&mut self) -> Result<()> {
        (self.note)("measuring the path MTU in both directions");
        self.sender.send(&PathOrder::Mtu)?;
        let ours = mtu::prove(&mut self.flow, self.patience, self.stop)
            .map_err(|source| EngineError::System { operation: "send probes", source });
        // Both ends finish before a failure is returned.
        let theirs = self.awaited(Duration::from_secs(120));
        self.result.forward.mtu.push(ours?);
        match theirs? {
            PathEvent::Mtu(proof) => self.result.reverse.mtu.push(proof),
            _ => return unexpected_message(&self.sender),
        }
        self.icmp_mtu();
        self.tcp()
    }

    /// Measures the MTU by another kind of packet, which firewalls may treat differently.
    fn icmp_mtu(&mut self) {
        let proof = Echo::open(self.flow.far(), self.dialer.local())
            .and_then(|mut echo| mtu::prove(&mut echo, self.patience, self.stop));
        let why = match proof {
            Ok(proof) if proof.bytes.is_some() => {
                self.result.forward.mtu.push(proof);
                return;
            }
            Ok(_) => "the host does not answer ICMP echo".to_owned(),
            Err(error) => not_by_icmp(&error),
        };
        self.unmeasured(PathPart::Mtu, "path MTU by ICMP", why);
    }

    fn tcp(&mut self) -> Result<()> {
        (self.note)("measuring TCP's segments");
        self.sender.send(&PathOrder::Tcp)?;
        let ours = self.dialer.open(0, |_| Ok(())).and_then(|stream| {
            tcp::exchange(&stream).map_err(|source| EngineError::Data { stream: 0, source })
        });
        let theirs = self.awaited(STEP_LIMIT);
        match ours {
            Ok(segments) => self.result.forward.tcp = Some(segments),
            // The control channel works, so other parts can be measured.
            Err(error) => self.unmeasured(PathPart::Mtu, "path MTU by TCP, forward", chain(&error)),
        }
        match theirs {
            Ok(PathEvent::Tcp(segments)) => self.result.reverse.tcp = Some(segments),
            Ok(_) => return unexpected_message(&self.sender),
            Err(error @ EngineError::Failed { .. }) => {
                self.unmeasured(PathPart::Mtu, "path MTU by TCP, reverse", chain(&error));
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn hops(&mut self) -> Result<()> {
        (self.note)("finding the hops in both directions");
        self.sender.send(&PathOrder::Hops { most: self.plan.most_hops })?;
        let ours = hops::find(&mut self.flow, self.plan.most_hops, self.patience, self.stop);
        self.result.forward.hops = Some(ours);
        match self.awaited(Duration::from_secs(120))? {
            PathEvent::Hops(mut hops) => {
                hops.list.truncate(self.plan.most_hops.into());
                self.result.reverse.hops = Some(hops);
            }
            _ => return unexpected_message(&self.sender),
        }
        for (way, hops) in
            [("forward", &self.result.forward.hops), ("reverse", &self.result.reverse.hops)]
        {
            if hops.as_ref().is_some_and(|hops| !hops.reached) && !self.stop.load(Ordering::Acquire)
            {
                self.result.unmeasured.push(Unmeasured {
                    part: PathPart::Hops,
                    what: format!("the last hops in the {way} direction"),
                    why: "no probe with a larger hop limit was answered".to_owned(),
                });
            }
        }
        Ok(())
    }

    fn awaited(&mut self, limit: Duration) -> Result<PathEvent> {
        self.receiver.set_timeout(Some(limit))?;
        answer(&mut self.receiver)
    }
}

fn ask(
    sender: &ControlSender,
    receiver: &mut ControlReceiver,
    order: &PathOrder,
) -> Result<PathEvent> {
    sender.send(order)?;
    answer(receiver)
}

fn answer(receiver: &mut ControlReceiver) -> Result<PathEvent> {
    let peer = receiver.peer().to_owned();
    match receiver.receive()? {
        PathEvent::Refused { kind, reason } => Err(EngineError::Refused { peer, kind, reason }),
        PathEvent::Failed { reason } => Err(EngineError::Failed { peer, reason, again: false }),
        event => Ok(event),
    }
}

fn expect(receiver: &mut ControlReceiver, expected: &PathEvent) -> Result<()> {
    match answer(receiver)? {
        event if event == *expected => Ok(()),
        _ => {
            let peer = receiver.peer().to_owned();
            Err(EngineError::Protocol { peer, what: "it sent an unexpected answer" })
        }
    }
}

fn unexpected_message<T>(sender: &ControlSender) -> Result<T> {
    let peer = sender.peer().to_owned();
    Err(EngineError::Protocol { peer, what: "it sent an unexpected answer" })
}
/// Returns the reason why ICMP echo is unavailable, and the remedy.
pub(super) fn not_by_icmp(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => {
            "this user may not send ICMP echo; 'sudo sysctl -w \
             net.ipv4.ping_group_range=\"0 2147483647\"' lets everyone, \
             'sudo setcap cap_net_raw+ep' this program"
                .to_owned()
        }
        _ => format!("ICMP echo cannot be sent: {error}"),
    }
}
