//! Path measurements over loopback, with client and server in one process, and peers that break the
//! protocol.

use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::plan::{PathPart, PathPlan, StreamSpec, TrainSpec};
use longhaul_core::result::{PathResult, Prober};
use longhaul_core::units::Rate;
use longhaul_core::wire::{PathEvent, PathOrder, RefusalKind, Service};

use super::flow::ProbeFlow;
use super::probe_socket::{ProbeSocket, ProbeSpec};
use super::{run, serve};
use crate::error::{EngineError, Result};
use crate::serve::testing::TestServer;
use crate::session::{ControlReceiver, ControlSender, DataDialer, DataRoute, Session};
use crate::test::TestLimits;

struct Server(TestServer);

impl Server {
    fn start(limits: TestLimits) -> Self {
        Server(TestServer::start(move |session| serve(session, &limits)))
    }

    fn session(&self) -> Session {
        self.0.session(Service::Path).unwrap()
    }

    fn measure(&self, plan: &PathPlan) -> Result<PathResult> {
        run(self.session(), "here", plan, &AtomicBool::new(false), |_| {})
    }

    fn outcome(&self) -> Result<()> {
        self.0.outcome()
    }
}

fn short() -> PathPlan {
    PathPlan { echoes: 5, probe_time: Duration::from_millis(200), ..PathPlan::new() }
}

/// A client that can send any message.
struct Client {
    sender: ControlSender,
    receiver: ControlReceiver,
    dialer: DataDialer,
}

impl Client {
    fn of(server: &Server) -> Self {
        let (sender, receiver, dialer) = server.session().split();
        receiver.set_timeout(Some(Duration::from_secs(20))).unwrap();
        Client { sender, receiver, dialer }
    }

    fn ask(&mut self, order: PathOrder) -> Result<PathEvent> {
        self.sender.send(&order)?;
        self.receiver.receive()
    }

    /// Performs the setup up to the flow.
    fn begin(&mut self) -> ProbeFlow {
        let accepted = self.ask(PathOrder::Begin { seconds: 1.0 }).unwrap();
        assert!(matches!(accepted, PathEvent::Accepted { boot: Some(_), .. }), "{accepted:?}");
        let socket = self.dialer.open_flow(0, &DataRoute::default(), |_| Ok(())).unwrap();
        assert_eq!(self.receiver.receive::<PathEvent>().unwrap(), PathEvent::Ready);
        assert_eq!(self.ask(PathOrder::Start).unwrap(), PathEvent::Started);
        ProbeFlow::start(socket, self.dialer.secret().datagram_tag(0), None, usize::MAX).unwrap()
    }
}

#[test]
fn every_part_is_measured_over_loopback() {
    let server = Server::start(TestLimits::default());
    let found = server.measure(&short()).unwrap();
    assert!(found.is_complete(), "{:?}", found.unmeasured);
    assert!(found.asymmetry.unwrap().same_clock);
    for way in [&found.forward, &found.reverse] {
        assert_eq!(way.mtu_bytes(), Some(65_535));
        assert_eq!(way.mtu[0].by, Prober::Udp);
        assert_eq!(way.hops.as_ref().unwrap().list.len(), 1);
        let probes = way.probes.as_ref().unwrap();
        assert_eq!((probes.sent, probes.lost.count), (200, 0), "{probes:?}");
        assert_eq!((probes.duplicated.count, probes.reordered.count), (0, 0));
    }
    let rtt = found.rtt.unwrap();
    assert_eq!((rtt.small.unwrap().times.answered, rtt.full.unwrap().packet_bytes), (5, 65_535));
    assert!(server.outcome().is_ok());
}

#[test]
fn only_requested_parts_are_measured() {
    let server = Server::start(TestLimits::default());
    let skip = vec![PathPart::Mtu, PathPart::Hops, PathPart::Capacity, PathPart::Loss];
    let found = server.measure(&PathPlan { skip, ..short() }).unwrap();
    assert!(found.is_complete() && found.rtt.is_some());
    let ways = [&found.forward, &found.reverse];
    assert!(
        ways.iter().all(|way| way.hops.is_none() && way.mtu.is_empty() && way.probes.is_none())
    );
}

#[test]
fn limits_are_reported() {
    let limits = TestLimits { time: Duration::from_secs(1), ..TestLimits::default() };
    let server = Server::start(limits);
    let long = server.measure(&PathPlan { probe_time: Duration::from_secs(2), ..short() });
    assert!(matches!(long, Err(EngineError::Refused { kind: RefusalKind::Limit, .. })), "{long:?}");
    assert!(matches!(server.outcome(), Err(EngineError::Refused { .. })));

    // A reverse stream that is too fast is refused, and the rest is measured.
    let limits = TestLimits { rate: Some(Rate::from_bps(100_000)), ..TestLimits::default() };
    let server = Server::start(limits);
    let found = server.measure(&PathPlan { skip: vec![PathPart::Capacity], ..short() }).unwrap();
    assert!(found.forward.probes.is_some() && found.reverse.probes.is_none());
    let missing = found.unmeasured.iter().find(|missing| missing.part == PathPart::Loss).unwrap();
    assert!(missing.why.contains("allows 100 kb/s"), "{}", missing.why);
}

#[test]
fn an_invalid_order_is_refused_and_the_session_continues() {
    let server = Server::start(TestLimits::default());
    let mut client = Client::of(&server);
    let mut flow = client.begin();
    for nonsense in [
        PathOrder::Begin { seconds: 1.0 },
        PathOrder::Start,
        PathOrder::Send(StreamSpec { datagrams: u64::MAX, interval_ns: 1000, packet_bytes: 128 }),
        PathOrder::Send(StreamSpec { datagrams: 1, interval_ns: 0, packet_bytes: 128 }),
        PathOrder::SendTrains(TrainSpec {
            trains: 255,
            packets: u32::MAX,
            packet_bytes: 1500,
            gap_ns: 0,
        }),
    ] {
        let reply = client.ask(nonsense.clone()).unwrap();
        assert!(matches!(reply, PathEvent::Failed { .. }), "{nonsense:?}: {reply:?}");
    }
    let none = client.ask(PathOrder::Arrivals { trains: 255 }).unwrap();
    let PathEvent::Arrived { trains } = none else { panic!("{none:?}") };
    assert!(trains.len() <= 32 && trains.iter().all(Vec::is_empty));
    let counted = client.ask(PathOrder::Count { datagrams: u64::MAX, sender_dropped: u64::MAX });
    assert!(matches!(counted, Ok(PathEvent::Counted(_))), "{counted:?}");
    // The answer is not longer than the request.
    let least = flow.least_bytes();
    let probe = ProbeSpec { number: 7, packet_bytes: least, answer_bytes: 60_000, hop_limit: None };
    flow.send_probe(&probe).unwrap();
    let reply = flow.receive_reply(Instant::now() + Duration::from_secs(20)).unwrap();
    assert_eq!(reply.number, Some(7));
    client.sender.send(&PathOrder::Finished).unwrap();
    assert!(server.outcome().is_ok());
}

#[test]
fn sending_ends_when_the_client_leaves() {
    let server = Server::start(TestLimits::default());
    let mut client = Client::of(&server);
    let flow = client.begin();
    let hour = StreamSpec { datagrams: 3_600_000, interval_ns: 1_000_000, packet_bytes: 128 };
    client.sender.send(&PathOrder::Send(hour)).unwrap();
    thread::sleep(Duration::from_millis(100));
    let left = Instant::now();
    drop((client, flow));
    let _ = server.outcome();
    assert!(left.elapsed() < Duration::from_secs(30));
}

#[test]
fn a_client_that_sends_too_fast_is_ignored() {
    // The allowance beside the rate is a burst of 64 MiB.
    let limits = TestLimits { rate: Some(Rate::from_bps(8000)), ..TestLimits::default() };
    let server = Server::start(limits);
    let mut client = Client::of(&server);
    let mut flow = client.begin();
    let mut cut = false;
    for number in 0..20_000 {
        let probe = ProbeSpec { number, packet_bytes: 60_000, answer_bytes: 68, hop_limit: None };
        let _ = flow.send_probe(&probe);
        if number % 100 == 0
            && flow.receive_reply(Instant::now() + Duration::from_secs(1)).is_none()
        {
            cut = true;
            break;
        }
        while flow.receive_reply(Instant::now()).is_some() {}
    }
    assert!(cut, "a gigabyte went through");
    let reply = client.ask(PathOrder::Arrivals { trains: 1 });
    assert!(matches!(reply, Ok(PathEvent::Arrived { .. })), "{reply:?}");
    let reply: PathEvent = client.receiver.receive().unwrap();
    assert!(matches!(reply, PathEvent::Failed { .. }), "{reply:?}");
    let _ = server.outcome();
}
