//! Complete tests over loopback: client and server in one process, with real sockets.

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::plan::{Direction, Protocol, TestLength, TestPlan};
use longhaul_core::result::{TestEnd, TestResult, WarningKind};
use longhaul_core::units::{Bytes, Rate};
use longhaul_core::wire::{RefusalKind, Service, TestEvent, TestOrder};

use super::{TestLimits, run, serve};
use crate::error::{EngineError, Result};
use crate::serve::Services;
use crate::serve::testing::TestServer;
use crate::session::{ServedSession, Session};

mod end_run;
mod options;
mod udp;

struct Server(TestServer);

impl Server {
    fn start(limits: TestLimits) -> Self {
        Server(TestServer::start(move |session| serve(session, &limits)))
    }

    fn session(&self) -> Session {
        self.0.session(Service::Test).unwrap()
    }

    fn run(&self, plan: &TestPlan) -> Result<TestResult> {
        run(self.session(), plan, &AtomicBool::new(false), |_| {})
    }

    fn outcome(&self) -> Result<()> {
        self.0.outcome()
    }
}

fn by_bytes(bytes: u64) -> TestPlan {
    TestPlan { amount: TestLength::Bytes(Bytes::new(bytes)), ..TestPlan::new() }
}

fn by_time(millis: u64) -> TestPlan {
    TestPlan {
        amount: TestLength::Time(Duration::from_millis(millis)),
        interval: Duration::from_millis(100),
        ..TestPlan::new()
    }
}

fn assert_whole(result: &TestResult) {
    assert_eq!(result.end, TestEnd::Completed);
    assert_eq!(result.summary.totals_agree, Some(true));
    assert!(result.summary.throughput_bps.bps() > 0);
    let summed: u64 = result.intervals.iter().filter(|i| !i.omitted).map(|i| i.bytes.get()).sum();
    assert_eq!(summed, result.summary.receiver.bytes.get(), "the intervals cover the test");
}

#[test]
fn bytes_are_exact_in_both_directions() {
    let server = Server::start(TestLimits::default());
    // Odd numbers: neither streams nor write length divide them; one stream has no byte at all.
    for (total, streams) in [(30_000_019, 3), (1, 1), (3, 4), (262_144, 1)] {
        for direction in [Direction::Forward, Direction::Reverse] {
            let plan = TestPlan { streams, direction, ..by_bytes(total) };
            let result = server.run(&plan).unwrap();
            assert_whole(&result);
            let summary = &result.summary;
            assert_eq!(summary.sender.total_bytes, Some(Bytes::new(total)));
            assert_eq!(summary.receiver.total_bytes, Some(Bytes::new(total)));
            assert_eq!(result.streams.len(), streams as usize);
            server.outcome().unwrap();
        }
    }
}

#[test]
fn a_test_by_time_takes_its_time_and_every_byte_arrives() {
    let server = Server::start(TestLimits::default());
    for direction in [Direction::Forward, Direction::Reverse] {
        let plan = TestPlan { streams: 4, direction, ..by_time(500) };
        let mut seen = 0;
        let result = run(server.session(), &plan, &AtomicBool::new(false), |sample| {
            assert_eq!(sample.index, seen);
            assert_eq!(sample.streams.len(), 4);
            assert!(sample.streams.iter().all(|s| s.sender.is_some()));
            seen += 1;
        })
        .unwrap();
        assert_whole(&result);
        assert_eq!((seen, result.intervals.len()), (5, 5));
        let (sender, receiver) = (&result.summary.sender, &result.summary.receiver);
        assert!((0.5..30.0).contains(&sender.seconds), "{sender:?}");
        assert!((0.45..30.0).contains(&receiver.seconds), "{receiver:?}");
        assert!(sender.cpu_percent > Some(0.0) && receiver.cpu_percent > Some(0.0));
        assert!(sender.rtt_min_ms > Some(0.0) && sender.rtt_ms >= sender.rtt_min_ms);
    }
}

#[test]
fn the_omitted_time_does_not_count() {
    let server = Server::start(TestLimits::default());
    for direction in [Direction::Forward, Direction::Reverse] {
        let plan = TestPlan { omit: Duration::from_millis(250), direction, ..by_time(300) };
        let result = server.run(&plan).unwrap();
        assert_whole(&result);
        let receiver = &result.summary.receiver;
        assert!(Some(receiver.bytes) < receiver.total_bytes);
        assert!((0.25..30.0).contains(&receiver.seconds), "{receiver:?}");
        let omitted: Vec<_> = result.intervals.iter().map(|i| i.omitted).collect();
        assert_eq!(omitted, [true, true, true, false, false, false]);
        let all: u64 = result.intervals.iter().map(|i| i.bytes.get()).sum();
        assert_eq!(Some(Bytes::new(all)), receiver.total_bytes);
    }
}

#[test]
fn a_stop_ends_a_long_test_at_once_and_in_order() {
    let server = Server::start(TestLimits::default());
    for direction in [Direction::Forward, Direction::Reverse] {
        let plan = TestPlan { direction, streams: 2, ..by_time(60_000) };
        let stop = AtomicBool::new(false);
        let begun = Instant::now();
        let result =
            run(server.session(), &plan, &stop, |_| stop.store(true, Ordering::Relaxed)).unwrap();
        assert!(begun.elapsed() < Duration::from_secs(20));
        assert_eq!(result.end, TestEnd::Interrupted);
        assert_eq!(result.summary.totals_agree, Some(true));
        assert!(result.summary.receiver.bytes > Bytes::new(0));
        server.outcome().unwrap();
    }
}

#[test]
fn pacing_holds_the_rate_over_all_streams() {
    let server = Server::start(TestLimits::default());
    let rate = Rate::from_bps(200_000_000);
    let plan = TestPlan { rate_bps: Some(rate), streams: 2, ..by_time(500) };
    let result = server.run(&plan).unwrap();
    assert_whole(&result);
    // The kernel lets a burst through at the start; unpaced, loopback is fifty times faster.
    assert!(result.summary.throughput_bps.bps() < 2 * rate.bps(), "{:?}", result.summary);
}

#[test]
fn a_window_that_the_kernel_clips_is_reported_for_both_ends() {
    let server = Server::start(TestLimits::default());
    let plan = TestPlan { window_bytes: Some(Bytes::gib(1)), ..by_bytes(1 << 20) };
    let result = server.run(&plan).unwrap();
    let clipped =
        |w: &&longhaul_core::result::Warning| matches!(w.kind, WarningKind::WindowClipped { .. });
    assert_eq!(result.warnings.iter().filter(clipped).count(), 2, "{:?}", result.warnings);
    let plan = TestPlan { window_bytes: Some(Bytes::new(65536)), ..by_bytes(1 << 20) };
    let result = server.run(&plan).unwrap();
    assert_eq!(result.streams[0].receive_buffer_bytes, Some(Bytes::new(65536)));
    assert!(!result.warnings.iter().any(|w| clipped(&w)), "{:?}", result.warnings);
}

#[test]
fn congestion_control_and_segment_size_are_the_senders() {
    let server = Server::start(TestLimits::default());
    for direction in [Direction::Forward, Direction::Reverse] {
        let congestion = Some("reno".to_owned());
        let plan = TestPlan { congestion, mss: Some(1400), direction, ..by_bytes(1 << 20) };
        let result = server.run(&plan).unwrap();
        assert_eq!(result.streams[0].congestion, "reno");
        assert!((1380..=1400).contains(&result.streams[0].mss.unwrap()), "{:?}", result.streams);
    }
    let congestion = Some("nonesuch".to_owned());
    let here = server.run(&TestPlan { congestion: congestion.clone(), ..TestPlan::new() });
    assert!(matches!(&here, Err(EngineError::SocketOption(_))), "{here:?}");
    let direction = Direction::Reverse;
    let there = server.run(&TestPlan { congestion, direction, ..TestPlan::new() });
    let Err(EngineError::Failed { reason, .. }) = &there else { panic!("{there:?}") };
    assert!(reason.contains("'nonesuch'"), "{reason}");
}

#[test]
fn a_plan_over_a_limit_is_refused_with_the_limit() {
    let server = Server::start(TestLimits { streams: 2, ..TestLimits::default() });
    let refused = server.run(&TestPlan { streams: 3, ..TestPlan::new() });
    let Err(EngineError::Refused { kind, reason, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(kind, RefusalKind::Limit);
    assert_eq!(reason, "this server allows 2 streams, not 3");
    let nonsense = server.run(&TestPlan { interval: Duration::ZERO, ..TestPlan::new() });
    assert!(matches!(nonsense, Err(EngineError::Refused { kind: RefusalKind::Invalid, .. })));
    // The server serves the next client.
    assert_whole(&server.run(&TestPlan { streams: 2, ..by_bytes(1000) }).unwrap());
}

fn short_idle() -> TestLimits {
    TestLimits { idle: Duration::from_millis(300), ..TestLimits::default() }
}

/// A client that performs the setup up to the start.
fn start_by_hand(
    server: &Server,
    plan: &TestPlan,
) -> (crate::session::ControlSender, crate::session::ControlReceiver, TcpStream) {
    let (sender, mut receiver, dialer) = server.session().split();
    sender.send(&TestOrder::Plan(Box::new(plan.clone()))).unwrap();
    assert_eq!(receiver.receive::<TestEvent>().unwrap(), TestEvent::Accepted);
    let data = dialer.open(0, |_| Ok(())).unwrap();
    assert_eq!(receiver.receive::<TestEvent>().unwrap(), TestEvent::Ready);
    sender.send(&TestOrder::Start).unwrap();
    (sender, receiver, data)
}

#[test]
fn a_silent_client_is_given_up() {
    let server = Server::start(short_idle());
    for direction in [Direction::Forward, Direction::Reverse] {
        // No byte is sent, and none is read after the buffers are full.
        let plan = TestPlan { direction, ..by_time(60_000) };
        let (sender, mut receiver, _data) = start_by_hand(&server, &plan);
        let result = loop {
            match receiver.receive().unwrap() {
                TestEvent::Sample(_) => {}
                TestEvent::Done(result) => break result,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(result.cut.as_deref(), Some("no data moved for 300.0ms"));
        sender.send(&TestOrder::Finished).unwrap();
        server.outcome().unwrap();
    }
    // Honest clients are served meanwhile and afterwards.
    assert_whole(&server.run(&by_bytes(1000)).unwrap());
}

#[test]
fn a_client_that_vanishes_ends_its_test() {
    let server = Server::start(TestLimits::default());
    for direction in [Direction::Forward, Direction::Reverse] {
        let plan = TestPlan { direction, ..by_time(60_000) };
        let (sender, receiver, data) = start_by_hand(&server, &plan);
        receiver.closer()();
        drop((sender, receiver));
        // The session ends although its data connection stays open.
        let _ = server.outcome();
        drop(data);
    }
}

#[test]
fn a_server_that_gives_up_is_a_cut_test_for_the_client() {
    // A test by bytes that takes longer than the server's time limit.
    let limits = TestLimits { time: Duration::from_millis(200), ..TestLimits::default() };
    let server = Server::start(limits);
    let plan = TestPlan { rate_bps: Some(Rate::from_bps(8_000_000)), ..by_bytes(1 << 40) };
    let result = server.run(&plan).unwrap();
    assert!(matches!(result.end, TestEnd::Cut { .. }), "{:?}", result.end);
    assert_eq!(result.summary.totals_agree, None);
    assert!(result.summary.receiver.bytes > Bytes::new(0));
}

#[test]
fn many_clients_are_served_at_once() {
    let server = Server::start(TestLimits::default());
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_whole(&server.run(&by_time(300)).unwrap()));
        }
    });
}

#[test]
fn a_server_that_floods_the_client_with_samples_is_refused() {
    struct Flood;
    impl Services for Flood {
        fn refusal(&self, _: Service, _: bool) -> Option<(RefusalKind, String)> {
            None
        }
        fn run(&self, _: Service, mut session: ServedSession) -> Result<()> {
            let _plan: TestOrder = session.receiver.receive()?;
            session.sender.send(&TestEvent::Accepted)?;
            let _data = session.streams.accept_all(1, Duration::from_secs(20))?;
            session.sender.send(&TestEvent::Ready)?;
            loop {
                session.sender.send(&TestEvent::Sample(longhaul_core::result::SideSample {
                    index: 0,
                    omitted: false,
                    start_seconds: 0.0,
                    end_seconds: 0.0,
                    cpu_seconds: 0.0,
                    ..longhaul_core::result::SideSample::default()
                }))?;
            }
        }
    }
    let server = Server(TestServer::with(|_| Arc::new(Flood)));
    let plan = TestPlan { direction: Direction::Reverse, ..TestPlan::new() };
    let refused = server.run(&plan);
    assert!(matches!(refused, Err(EngineError::Protocol { .. })), "{refused:?}");
}
