//! The server of a path measurement: executes the client's orders in turn.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::plan::{PlanError, TrainSpec};
use longhaul_core::text::chain;
use longhaul_core::units::{Rate, format_span};
use longhaul_core::wire::{PathEvent, PathOrder, RefusalKind};

use super::client::{boot_mark, own_clock, patience};
use super::echo::{EchoSeries, round_trips};
use super::flow::{ProbeFlow, RECEIVE_BUFFER_BYTES};
use super::{hops, mtu, stream, tcp, trains};
use crate::error::{EngineError, Result};
use crate::session::{
    Announced, ControlReceiver, ControlSender, DataAcceptor, KeyRate, Operation, Reserved,
    ServedSession,
};
use crate::share::{SessionPart, SessionPool};
use crate::test::{PLAN_LIMIT, STEP_LIMIT, TestLimits};

/// The longest time of the parts besides loss: 30 silent hops, a binary search of the MTU, and
/// trains over a slow link, with a round trip of a second.
const OTHER_TIME: Duration = Duration::from_secs(300);
/// A client without orders and probes for this long has left: the longest part without either is
/// the search for silent hops.
const SILENCE_LIMIT: Duration = Duration::from_secs(120);
/// The interval at which silence is checked.
const SILENCE_CHECK: Duration = Duration::from_secs(1);
/// The memory of a measurement besides its socket: arrival times, waiting answers, a thread.
const FIXED_BYTES: u64 = 3 << 20;
/// The smallest buffer of the socket: the kernel's default (`net.core.rmem_default`).
const LEAST_SOCKET_BYTES: usize = 208 << 10;
/// The server's round trips, from which the time limit for answers follows.
const FIRST_TRIPS: u32 = 5;

/// Serves one measurement under `limits` on the calling thread. It returns in bounded time for
/// every behavior of the client.
///
/// # Errors
/// The client was refused, its flow did not arrive, or the control channel broke.
pub fn serve(session: ServedSession, limits: &TestLimits) -> Result<()> {
    let ServedSession { sender, mut receiver, streams, record, rate, .. } = session;
    record.note_request(Operation::Path, []);
    let peer = sender.peer().to_owned();
    let protocol = |what| EngineError::Protocol { peer: peer.clone(), what };
    receiver.set_timeout(Some(PLAN_LIMIT))?;
    let PathOrder::Begin { seconds } = receiver.receive()? else {
        return Err(protocol("its first message is not the duration of the measurement"));
    };
    let time = match Duration::try_from_secs_f64(seconds) {
        Ok(time) if time <= limits.time => time,
        _ => {
            let reason = format!(
                "this server allows measurements of loss for {}, not {seconds} s",
                format_span(limits.time)
            );
            sender
                .send(&PathEvent::Refused { kind: RefusalKind::Limit, reason: reason.clone() })?;
            return Err(EngineError::Refused { peer, kind: RefusalKind::Limit, reason });
        }
    };
    receiver.set_timeout(Some(STEP_LIMIT))?;
    let reserved = rate.as_ref().map(KeyRate::reserve_half).transpose();
    let reserved = reserved.map_err(|taken| taken.to_string()).and_then(|rate| {
        let own = rate.as_ref().map(Reserved::rate);
        let limits = limits.clone();
        let limits = TestLimits { rate: [limits.rate, own].into_iter().flatten().min(), ..limits };
        Ok((reserve(&limits, &streams)?, rate, limits))
    });
    let (memory, _rate, limits) = match reserved {
        Ok(reserved) => reserved,
        Err(reason) => {
            let kind = RefusalKind::Limit;
            sender.send(&PathEvent::Refused { kind, reason: reason.clone() })?;
            return Err(EngineError::Refused { peer, kind, reason });
        }
    };
    let boot = boot_mark(streams.secret());
    sender.send(&PathEvent::Accepted { clock: own_clock(), boot })?;
    let (mut flows, answers) = streams.accept_all_flows(1, STEP_LIMIT)?;
    sender.send(&PathEvent::Ready)?;
    let PathOrder::Start = receiver.receive()? else {
        return Err(protocol("it did not start the measurement"));
    };
    drop(answers);
    let flow = flows.pop().ok_or(EngineError::DataMissing { peer: peer.clone() })?;
    let flow = start(flow, &streams, &limits, memory.socket_bytes())?;
    sender.send(&PathEvent::Started)?;
    let allowed = Allowed { streams: &streams, limits: &limits, time };
    record.time(|| serve_orders(&sender, receiver, flow, allowed))
}

/// The memory of a measurement.
struct Memory(Option<SessionPart>);

impl Memory {
    /// Returns the largest buffer of the socket.
    fn socket_bytes(&self) -> usize {
        let granted = self.0.as_ref().map_or(u64::MAX, SessionPart::granted);
        usize::try_from(granted.saturating_sub(FIXED_BYTES)).unwrap_or(usize::MAX)
    }
}

/// Reserves the memory and the descriptors of a measurement, or returns the reason of the refusal.
fn reserve(limits: &TestLimits, streams: &DataAcceptor) -> std::result::Result<Memory, String> {
    let wanted = FIXED_BYTES + RECEIVE_BUFFER_BYTES as u64;
    let memory = Memory(limits.pool.as_ref().map(|pool| pool.memory(wanted)));
    if memory.socket_bytes() < LEAST_SOCKET_BYTES {
        let reason = "this server has too little memory left for another measurement; try again \
            later";
        return Err(reason.to_owned());
    }
    let announced = Announced { streams: 1, flows: 1, ..Announced::default() };
    streams.announce(announced).map_err(|shortage| shortage.to_string())?;
    Ok(memory)
}

fn start(
    flow: UdpSocket,
    streams: &DataAcceptor,
    limits: &TestLimits,
    socket_bytes: usize,
) -> Result<ProbeFlow> {
    let tag = streams.secret().datagram_tag(0);
    ProbeFlow::start(flow, tag, limits.rate, socket_bytes)
        .map_err(|source| EngineError::System { operation: "set up a UDP socket", source })
}

/// The resources of one measurement.
struct Allowed<'a> {
    streams: &'a DataAcceptor,
    limits: &'a TestLimits,
    /// The longest measurement of loss.
    time: Duration,
}

/// Executes orders until the client has finished or left, or its time is over.
fn serve_orders(
    sender: &ControlSender,
    mut receiver: ControlReceiver,
    flow: ProbeFlow,
    allowed: Allowed<'_>,
) -> Result<()> {
    let Allowed { streams, limits, time } = allowed;
    let until = Instant::now() + time + OTHER_TIME;
    receiver.set_timeout(Some(time + OTHER_TIME))?;
    let closer = receiver.closer();
    let stop = AtomicBool::new(false);
    // One order runs, and one waits while the client reads the answer.
    let (give, orders) = mpsc::sync_channel(4);
    thread::scope(|scope| {
        let stop = &stop;
        scope.spawn(move || listen(&mut receiver, stop, &give));
        let mut service = Service { flow, streams, limits, stop, until, patience: None };
        let mut sent = Ok(());
        let mut silence = IdleClient::new(limits);
        loop {
            let order = match orders.recv_timeout(SILENCE_CHECK) {
                Ok(order) => order,
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(mpsc::RecvTimeoutError::Timeout) if Instant::now() >= until => break,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    let received = service.flow.shared.received.load(Ordering::Relaxed);
                    let Some(reason) = silence.ended(received, Instant::now()) else { continue };
                    sent = sender.send(&PathEvent::Failed { reason: reason.to_owned() });
                    break;
                }
            };
            let event = service
                .execute(order)
                .unwrap_or_else(|error| PathEvent::Failed { reason: chain(&error) });
            sent = sender.send(&event);
            if sent.is_err() {
                break;
            }
            silence.since = Instant::now();
            if service.flow.shared.cut.load(Ordering::Acquire) {
                let reason = "the client sent faster than this server allows".to_owned();
                let _ = sender.send(&PathEvent::Failed { reason });
                break;
            }
        }
        // The receiving thread and a running order end.
        stop.store(true, Ordering::Release);
        closer();
        sent
    })
}

/// Detects a client that occupies a session without using it.
struct IdleClient<'a> {
    limits: &'a TestLimits,
    begun: Instant,
    since: Instant,
    received: u64,
}

impl<'a> IdleClient<'a> {
    fn new(limits: &'a TestLimits) -> Self {
        let now = Instant::now();
        IdleClient { limits, begun: now, since: now, received: 0 }
    }

    /// Returns the reason to end the measurement; `received` is the number of bytes of probes so
    /// far.
    fn ended(&mut self, received: u64, now: Instant) -> Option<&'static str> {
        if received != self.received {
            (self.received, self.since) = (received, now);
        }
        if now.saturating_duration_since(self.since) >= SILENCE_LIMIT {
            return Some("the client was silent for two minutes");
        }
        let waited_for = self.limits.pool.as_ref().is_some_and(SessionPool::is_contended);
        (waited_for && now.saturating_duration_since(self.begun) >= OTHER_TIME).then_some(
            "the measurement took longer than five minutes while other clients waited; only \
            clients with an authorized key have no such limit",
        )
    }
}

/// Passes the client's orders on. An order to stop takes effect at once.
fn listen(receiver: &mut ControlReceiver, stop: &AtomicBool, give: &mpsc::SyncSender<PathOrder>) {
    loop {
        match receiver.receive() {
            Ok(PathOrder::Stop) => stop.store(true, Ordering::Release),
            Ok(PathOrder::Finished) | Err(_) => break,
            // A client that does not wait for answers waits here.
            Ok(order) => {
                if give.send(order).is_err() {
                    break;
                }
            }
        }
    }
    stop.store(true, Ordering::Release);
}

/// The time by which trains may exceed the requested time to keep to the server's rate.
const STRETCH: Duration = Duration::from_secs(10);

/// Returns trains of which each is a burst, and whose mean rate is at most `limit`; `None` if not
/// even one fits the time.
fn within(spec: TrainSpec, limit: Rate) -> Option<TrainSpec> {
    let train = u64::from(spec.packets) * u64::from(spec.packet_bytes);
    let gap = limit.time_for(train).max(Duration::from_nanos(spec.gap_ns));
    let requested = Duration::from_nanos(spec.gap_ns) * spec.trains.into();
    let fit = (requested + STRETCH).as_nanos() / gap.as_nanos().max(1);
    let trains = spec.trains.min(u8::try_from(fit).unwrap_or(u8::MAX));
    let gap_ns = u64::try_from(gap.as_nanos()).ok()?;
    (trains > 0).then_some(TrainSpec { trains, gap_ns, ..spec })
}

fn refused(limit: Rate) -> EngineError {
    let reason = format!("this server allows {limit}; request fewer probes");
    let (peer, kind) = ("the server".to_owned(), RefusalKind::Limit);
    EngineError::Refused { peer, kind, reason }
}

struct Service<'a> {
    flow: ProbeFlow,
    streams: &'a DataAcceptor,
    limits: &'a TestLimits,
    stop: &'a AtomicBool,
    until: Instant,
    /// The time limit for answers, once it is known.
    patience: Option<Duration>,
}

impl Service<'_> {
    fn execute(&mut self, order: PathOrder) -> Result<PathEvent> {
        let invalid = |error: PlanError| {
            let (kind, reason) = (RefusalKind::Invalid, error.to_string());
            EngineError::Refused { peer: "the server".to_owned(), kind, reason }
        };
        let failed = |operation| move |source| EngineError::System { operation, source };
        let (stop, until) = (self.stop, self.until);
        let stopped = || stop.load(Ordering::Acquire) || Instant::now() >= until;
        match order {
            PathOrder::Hops { most } => {
                let patience = self.patience();
                Ok(PathEvent::Hops(hops::find(&mut self.flow, most.max(1), patience, stop)))
            }
            PathOrder::Mtu => {
                let patience = self.patience();
                mtu::prove(&mut self.flow, patience, stop)
                    .map(PathEvent::Mtu)
                    .map_err(failed("send probes"))
            }
            PathOrder::Tcp => {
                let connections = self.streams.accept_all(1, STEP_LIMIT)?;
                self.streams.announce_again();
                let stream = connections.first().ok_or(EngineError::Interrupted)?;
                tcp::echo_bytes(stream)
                    .map(PathEvent::Tcp)
                    .map_err(|source| EngineError::Data { stream: 0, source })
            }
            PathOrder::Send(spec) => {
                spec.validate().map_err(invalid)?;
                if let Some(limit) = self.limits.rate.filter(|l| spec.rate_bps() > l.bps() as f64) {
                    return Err(refused(limit));
                }
                stream::send(&self.flow, &spec, stopped)
                    .map(PathEvent::Sent)
                    .map_err(failed("send probes"))
            }
            PathOrder::SendTrains(mut spec) => {
                spec.validate().map_err(invalid)?;
                if let Some(limit) = self.limits.rate {
                    spec = within(spec, limit).ok_or_else(|| refused(limit))?;
                }
                // A train larger than the socket's buffer would leave too slowly.
                spec.packets =
                    spec.packets.min(trains::most_packets(&self.flow, spec.packet_bytes));
                trains::send(&self.flow, &spec, stopped)
                    .map(|trains| PathEvent::SentTrains { trains })
                    .map_err(failed("send probes"))
            }
            PathOrder::Count { datagrams, sender_dropped } => {
                Ok(PathEvent::Counted(Box::new(self.flow.count(datagrams, sender_dropped))))
            }
            PathOrder::Arrivals { trains } => {
                Ok(PathEvent::Arrived { trains: self.flow.take_arrivals(trains) })
            }
            PathOrder::Begin { .. } | PathOrder::Start | PathOrder::Stop | PathOrder::Finished => {
                let (peer, what) = ("the client".to_owned(), "it sent an unexpected message");
                Err(EngineError::Protocol { peer, what })
            }
        }
    }

    fn patience(&mut self) -> Duration {
        if self.patience.is_none() {
            let least = super::probe_socket::ProbeSocket::least_bytes(&self.flow);
            let series = EchoSeries {
                sizes: &[least],
                count: FIRST_TRIPS,
                pace: Duration::from_millis(10),
                patience: Duration::from_secs(2),
            };
            let trips = round_trips(&mut self.flow, series, self.stop);
            self.patience = Some(patience(&trips));
        }
        self.patience.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_client_is_detected() {
        let pool = SessionPool::default();
        let limits = TestLimits { pool: Some(pool.clone()), ..TestLimits::default() };
        let mut silence = IdleClient::new(&limits);
        let begun = silence.begun;
        let after = |seconds| begun + Duration::from_secs(seconds);
        assert_eq!(silence.ended(0, after(119)), None);
        assert_eq!(silence.ended(64, after(121)), None, "a probe came");
        assert!(silence.ended(64, after(242)).unwrap().contains("silent"));
        assert_eq!(silence.ended(128, after(299)), None);
        assert_eq!(silence.ended(192, after(400)), None, "nobody waits");
        pool.set_waiting(true);
        assert!(silence.ended(256, after(401)).unwrap().contains("five minutes"));
    }

    #[test]
    fn trains_keep_to_the_rate_in_bounded_time() {
        let requested =
            TrainSpec { trains: 30, packets: 100, packet_bytes: 1250, gap_ns: 10_000_000 };
        // A megabit per train: 10 ms at 100 Mb/s.
        let rate = Rate::from_bps;
        assert_eq!(within(requested, rate(100_000_000)), Some(requested));
        let slower = within(requested, rate(10_000_000)).unwrap();
        assert_eq!((slower.trains, slower.gap_ns), (30, 100_000_000));
        let few = within(requested, rate(1_000_000)).unwrap();
        assert_eq!((few.trains, few.gap_ns), (10, 1_000_000_000));
        assert_eq!(within(requested, rate(10_000)), None);
        let most = TrainSpec { trains: 32, packets: 256, packet_bytes: 65_535, gap_ns: 0 };
        assert_eq!(within(most, rate(1)), None);
    }
}
