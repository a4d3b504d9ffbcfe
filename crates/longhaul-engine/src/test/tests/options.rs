//! The options of a test: directions, opener, links, placement and latency.

use longhaul_core::plan::{Opener, Placement, TestLink, parse_addresses};

use super::*;

#[test]
fn both_directions_at_once_are_two_whole_halves() {
    let server = Server::start(TestLimits::default());
    let plan = TestPlan { direction: Direction::Both, streams: 2, ..by_time(500) };
    let mut seen = [0, 0];
    let result = run(server.session(), &plan, &AtomicBool::new(false), |sample| {
        assert_eq!(sample.index, seen[usize::from(sample.reverse)]);
        seen[usize::from(sample.reverse)] += 1;
    })
    .unwrap();
    server.outcome().unwrap();
    assert_whole(&result);
    let reverse = result.reverse.as_ref().unwrap();
    assert_eq!((result.streams.len(), reverse.streams.len()), (2, 2));
    assert_eq!((seen, reverse.intervals.len()), ([5, 5], 5));
    assert_eq!(reverse.summary.totals_agree, Some(true));
    assert!(reverse.intervals.iter().all(|i| i.reverse && i.streams[0].sender.is_some()));
    for summary in [&result.summary, &reverse.summary] {
        assert!(summary.receiver.bytes > Bytes::new(0));
    }
    let bytes = TestPlan { direction: Direction::Both, ..by_bytes(3_000_001) };
    let result = server.run(&bytes).unwrap();
    assert_whole(&result);
    assert_eq!(result.reverse.unwrap().summary.receiver.bytes, Bytes::new(3_000_001));
}

#[test]
fn a_stop_ends_both_directions() {
    let server = Server::start(TestLimits::default());
    let plan = TestPlan { direction: Direction::Both, ..by_time(60_000) };
    let stop = AtomicBool::new(false);
    let result =
        run(server.session(), &plan, &stop, |_| stop.store(true, Ordering::Relaxed)).unwrap();
    assert_eq!(result.end, TestEnd::Interrupted);
    assert_eq!(result.reverse.unwrap().summary.totals_agree, Some(true));
    server.outcome().unwrap();
}

#[test]
fn the_server_can_open_the_connections() {
    let run = |direction, protocol, write_bytes| {
        let server = Server::start(TestLimits::default());
        let plan = TestPlan {
            opener: Opener::Server,
            direction,
            protocol,
            write_bytes,
            rate_bps: Some(Rate::from_bps(20_000_000)),
            streams: 3,
            latency: true,
            ..by_time(100)
        };
        let result = server.run(&plan).unwrap();
        assert_eq!(result.end, TestEnd::Completed);
        assert!(result.summary.receiver.bytes > Bytes::new(0));
        assert!(result.latency.unwrap().idle.is_some());
    };
    // All at once, because they mostly wait.
    std::thread::scope(|scope| {
        for direction in [Direction::Forward, Direction::Reverse, Direction::Both] {
            scope.spawn(move || run(direction, Protocol::Tcp, TestPlan::WRITE_BYTES));
            scope.spawn(move || run(direction, Protocol::Udp, TestPlan::DATAGRAM_BYTES));
        }
    });
}

#[test]
fn an_opening_server_sends_no_data_without_a_proof_of_the_client() {
    let server = Server::start(TestLimits::default());
    let (sender, mut receiver, _dialer) = server.session().split();
    let plan =
        TestPlan { opener: Opener::Server, direction: Direction::Reverse, ..TestPlan::new() };
    sender.send(&TestOrder::Plan(plan.into())).unwrap();
    assert_eq!(receiver.receive::<TestEvent>().unwrap(), TestEvent::Accepted);
    // Another server on the client's host.
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = other.local_addr().unwrap().port();
    sender.send(&TestOrder::Listening { port }).unwrap();
    let (mut connection, _) = other.accept().unwrap();
    std::io::Write::write_all(&mut connection, &[0x55; 64]).unwrap();
    let mut received = Vec::new();
    std::io::Read::read_to_end(&mut connection, &mut received).unwrap();
    assert_eq!(received.len(), 64, "its hello and nothing else");
    let refused = receiver.receive::<TestEvent>().unwrap();
    assert!(matches!(refused, TestEvent::Failed { .. }), "{refused:?}");
    assert!(server.outcome().is_err());
}

#[test]
fn streams_are_spread_over_links() {
    let server = Server::start(TestLimits::default());
    let local = parse_addresses("127.0.0.2+1*2").unwrap();
    let plan = TestPlan { links: TestLink::pair(&local, &[]), streams: 3, ..by_bytes(3_000_000) };
    let result = server.run(&plan).unwrap();
    assert_whole(&result);
    let links = &result.summary.links;
    assert_eq!(links.len(), 2);
    assert_eq!((links[0].streams, links[1].streams), (2, 1));
    assert_eq!((links[0].bytes, links[1].bytes), (Bytes::new(2_000_000), Bytes::new(1_000_000)));
    assert_eq!(links[1].client.as_deref(), Some("127.0.0.3"));
    for (stream, ip) in result.streams.iter().zip(["127.0.0.2:", "127.0.0.3:", "127.0.0.2:"]) {
        let address = stream.sender_address.as_deref().unwrap();
        assert!(address.starts_with(ip), "{address}");
    }
    // An address of another host.
    let wrong = TestLink::pair(&parse_addresses("192.0.2.1").unwrap(), &[]);
    let error = server.run(&TestPlan { links: wrong, ..by_bytes(1) }).unwrap_err();
    assert!(matches!(error, EngineError::DataConnect { .. }), "{error:?}");
}

#[test]
fn threads_run_where_the_plan_puts_them() {
    let server = Server::start(TestLimits::default());
    let first: longhaul_core::plan::CpuList =
        longhaul_sys::cpu::allowed().unwrap()[0].to_string().parse().unwrap();
    let client = Some(first.clone());
    let placement = Placement::On { client: client.clone(), server: None };
    let result = server.run(&TestPlan { placement, ..by_bytes(1 << 20) }).unwrap();
    assert_eq!(
        (&result.streams[0].sender_cpus, &result.streams[0].receiver_cpus),
        (&client, &None)
    );
    let placement = Placement::On { client: None, server: client.clone() };
    let result = server.run(&TestPlan { placement, ..by_bytes(1 << 20) }).unwrap();
    assert_eq!(result.streams[0].receiver_cpus, client);
    let placement = Placement::On { client: None, server: Some("8191".parse().unwrap()) };
    let refused = server.run(&TestPlan { placement, ..by_bytes(1) });
    let Err(EngineError::Failed { reason, .. }) = &refused else { panic!("{refused:?}") };
    assert!(reason.contains("CPU 8191 is not available"), "{reason}");
}

#[test]
fn latency_is_measured_before_and_under_load() {
    let server = Server::start(TestLimits::default());
    let result = server.run(&TestPlan { latency: true, ..by_time(500) }).unwrap();
    assert_whole(&result);
    let latency = result.latency.unwrap();
    let (idle, loaded) = (latency.idle.unwrap(), latency.loaded.unwrap());
    assert!(idle.answered > 0 && loaded.answered > 0);
    assert!(idle.min_ms > 0.0 && idle.min_ms <= idle.p50_ms && idle.p99_ms <= idle.max_ms);
}

#[test]
fn zero_copy_and_skipped_copies_count_every_byte() {
    let server = Server::start(TestLimits::default());
    for direction in [Direction::Forward, Direction::Reverse] {
        for (zero_copy, skip_receive_copy) in [(true, false), (false, true), (true, true)] {
            let plan = TestPlan { zero_copy, skip_receive_copy, direction, ..by_bytes(10_000_001) };
            let result = server.run(&plan).unwrap();
            assert_whole(&result);
            assert_eq!(result.summary.receiver.bytes, Bytes::new(10_000_001));
            let warned =
                |w: &longhaul_core::result::Warning| w.kind == WarningKind::ReceiveNotCopied;
            assert_eq!(result.warnings.iter().any(warned), skip_receive_copy);
        }
    }
}

#[test]
fn a_timer_paces_with_bursts() {
    let server = Server::start(TestLimits::default());
    let rate = Rate::from_bps(80_000_000);
    let burst_bytes = Some(Bytes::new(100_000));
    let plan = TestPlan { rate_bps: Some(rate), burst_bytes, streams: 2, ..by_time(400) };
    let result = server.run(&plan).unwrap();
    assert_whole(&result);
    // 10 MB in a second, and a burst of each stream at its beginning.
    let (bytes, seconds) = (result.summary.receiver.bytes.get(), result.summary.sender.seconds);
    assert!(bytes as f64 <= 10e6 * seconds + 2e5, "{bytes} in {seconds} s");
}

#[test]
fn multipath_and_fallback_are_distinguished() {
    let server = Server::start(TestLimits::default());
    let result = server.run(&TestPlan { protocol: Protocol::Mptcp, ..by_bytes(1 << 20) }).unwrap();
    assert_whole(&result);
    assert_eq!(result.streams[0].multipath, Some(true));
    assert_eq!(server.run(&by_bytes(1)).unwrap().streams[0].multipath, None);
}

#[test]
fn marks_of_service_and_no_delay_are_taken() {
    let server = Server::start(TestLimits::default());
    let plan = TestPlan { dscp: Some(46), nodelay: true, ..by_bytes(100_000) };
    assert_whole(&server.run(&plan).unwrap());
}
