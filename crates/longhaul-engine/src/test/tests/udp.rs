//! Datagrams over loopback: every datagram is accounted for, and none is sent to an unverified
//! address.

use super::*;

fn datagrams(millis: u64, megabits: u64) -> TestPlan {
    TestPlan {
        protocol: Protocol::Udp,
        write_bytes: Bytes::new(1472),
        rate_bps: Some(Rate::from_bps(megabits * 1_000_000)),
        ..by_time(millis)
    }
}

#[track_caller]
fn assert_accounted(summary: &longhaul_core::result::TestSummary) {
    let udp = summary.udp.unwrap();
    assert!(udp.received > 0);
    assert_eq!(
        udp.sent,
        udp.received
            + udp.lost
            + [udp.late, udp.sender_dropped, udp.receiver_dropped]
                .map(Option::unwrap)
                .iter()
                .sum::<u64>(),
        "{udp:?}"
    );
    assert_eq!((udp.lost, udp.duplicated, udp.late), (0, Some(0), Some(0)), "{udp:?}");
    assert_eq!(summary.totals_agree, None);
}

/// The result of a test in which no datagram was lost. Where the host withholds the processor, the
/// kernel drops datagrams before they reach a socket, so the test is repeated.
fn lossless(server: &Server, plan: &TestPlan) -> TestResult {
    for _ in 0..10 {
        let result = server.run(plan).unwrap();
        let lost = |summary: &longhaul_core::result::TestSummary| summary.udp.unwrap().lost;
        let reverse = result.reverse.as_ref().map_or(0, |reverse| lost(&reverse.summary));
        if lost(&result.summary) + reverse == 0 {
            return result;
        }
    }
    panic!("each of ten tests over loopback lost datagrams");
}

#[test]
fn every_datagram_is_accounted_for_in_all_directions() {
    let server = Server::start(TestLimits::default());
    for direction in [Direction::Forward, Direction::Reverse, Direction::Both] {
        let plan = TestPlan { direction, streams: 2, ..datagrams(300, 200) };
        let result = lossless(&server, &plan);
        assert_eq!(result.end, TestEnd::Completed);
        assert_accounted(&result.summary);
        if let Some(reverse) = &result.reverse {
            assert_accounted(&reverse.summary);
        }
        // 25 MB in a second, and a burst of each stream; a late sender sends less.
        let (bytes, seconds) = (result.summary.receiver.bytes.get(), result.summary.sender.seconds);
        assert!(bytes as f64 <= 25e6 * seconds + 1e6, "{bytes} in {seconds} s");
        assert_eq!(result.streams.len(), 2);
        assert!(result.intervals.iter().all(|i| i.udp.is_some() && i.streams[1].sender.is_none()));
        let counted: u64 = result.intervals.iter().map(|i| i.udp.unwrap().received).sum();
        assert_eq!(counted, result.summary.udp.unwrap().received);
    }
}

#[test]
fn a_test_by_bytes_sends_all_of_them() {
    let server = Server::start(TestLimits::default());
    let amount = TestLength::Bytes(Bytes::new(1_000_000));
    let plan = TestPlan { amount, ..datagrams(1000, 400) };
    let result = lossless(&server, &plan);
    assert_accounted(&result.summary);
    assert_eq!(result.summary.sender.total_bytes, Some(Bytes::new(1_000_000)));
    assert_eq!(result.summary.udp.unwrap().sent, 1_000_000_u64.div_ceil(1472));
}

#[test]
fn the_last_interval_ends_with_the_last_datagram() {
    let server = Server::start(TestLimits::default());
    // The receiver waits 100 ms for late datagrams. In a test of 60 ms, an interval would end then.
    let bytes = TestLength::Bytes(Bytes::new(1_000_000));
    for plan in [datagrams(250, 100), TestPlan { amount: bytes, ..datagrams(0, 133) }] {
        let result = lossless(&server, &plan);
        let last = result.intervals.last().unwrap();
        let (end, seconds) = (last.end_seconds, result.summary.receiver.seconds);
        assert!((end - seconds).abs() < 1e-6, "the interval ends at {end}, the data at {seconds}");
    }
}

#[test]
fn large_and_small_datagrams_pass() {
    let server = Server::start(TestLimits::default());
    for bytes in [24, 100, 8972, 40_000, 65_507] {
        let write_bytes = Bytes::new(bytes);
        let result = lossless(&server, &TestPlan { write_bytes, ..datagrams(100, 50) });
        assert_accounted(&result.summary);
        let udp = result.summary.udp.unwrap();
        assert_eq!(udp.received * bytes, result.summary.receiver.bytes.get());
    }
}

#[test]
fn drops_of_the_receiver_are_not_losses_of_the_path() {
    // A receive buffer of one send, and no pacing.
    let server = Server::start(TestLimits::default());
    let plan = TestPlan {
        rate_bps: None,
        window_bytes: Some(Bytes::new(70_000)),
        streams: 2,
        ..datagrams(500, 1)
    };
    let tested = || {
        let result = server.run(&plan).unwrap();
        let udp = result.summary.udp.unwrap();
        let dropped = udp.receiver_dropped.unwrap();
        assert!(dropped > 0, "{udp:?}");
        assert_eq!(udp.sent, udp.received + udp.lost + udp.late.unwrap() + dropped, "{udp:?}");
        // If the host withholds the processor, the kernel drops datagrams before the socket.
        (udp.lost <= udp.sent / 100).then_some(result)
    };
    let result = (0..5).find_map(|_| tested()).expect("one of five tests lost little on the way");
    let warned = |w: &longhaul_core::result::Warning| {
        matches!(w.kind, WarningKind::HostDropped { end: longhaul_core::result::End::Receiver, .. })
    };
    assert!(result.warnings.iter().any(warned));
}

#[test]
fn the_omitted_time_does_not_count_in_datagrams_either() {
    let server = Server::start(TestLimits::default());
    let plan = TestPlan { omit: Duration::from_millis(300), ..datagrams(300, 100) };
    let result = lossless(&server, &plan);
    assert_accounted(&result.summary);
    let summary = &result.summary;
    assert!(Some(summary.receiver.bytes) < summary.receiver.total_bytes);
    let received = summary.udp.unwrap().received;
    assert_eq!(received * 1472, summary.receiver.bytes.get());
}

#[test]
fn a_sender_whose_receiver_is_silent_stops() {
    // The client opens the flow for a test in reverse and never reports.
    let server =
        Server::start(TestLimits { idle: Duration::from_millis(600), ..TestLimits::default() });
    let plan = TestPlan { direction: Direction::Reverse, ..datagrams(60_000, 10) };
    let (sender, mut receiver, dialer) = server.session().split();
    sender.send(&TestOrder::Plan(plan.into())).unwrap();
    assert_eq!(receiver.receive::<TestEvent>().unwrap(), TestEvent::Accepted);
    let flow = dialer.open_flow(0, &crate::session::DataRoute::default(), |_| Ok(())).unwrap();
    assert_eq!(receiver.receive::<TestEvent>().unwrap(), TestEvent::Ready);
    sender.send(&TestOrder::Start).unwrap();
    let result = loop {
        match receiver.receive().unwrap() {
            TestEvent::Sample(_) => {}
            TestEvent::Done(result) => break result,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(result.cut.as_deref(), Some("no data moved for 600.0ms"));
    sender.send(&TestOrder::Finished).unwrap();
    server.outcome().unwrap();
    drop(flow);
}
