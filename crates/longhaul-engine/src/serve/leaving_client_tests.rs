//! Sessions whose client leaves before its data connections have come: they end at once.

use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::plan::{CopyOptions, Protocol, TestPlan};
use longhaul_core::wire::copy::{CopyKey, CopyReply, CopyRequest, Top};
use longhaul_core::wire::{FilePath, Service, TestEvent, TestOrder};

use super::testing::TestServer;
use crate::copy::{self, Tree};
use crate::test::TestLimits;

/// The time within which a session must end after its client has left: less than the time that a
/// server waits for data connections.
const LEFT_LIMIT: Duration = Duration::from_secs(10);

/// Waits for the end of the server's next session, which must be an error; returns whether it came
/// soon after the client had `left`.
fn ends_soon(server: &TestServer, left: Instant) -> bool {
    assert!(server.outcome().is_err());
    left.elapsed() < LEFT_LIMIT
}

/// Asserts that one of three attempts ends soon: a host can withhold the processor during one.
fn soon_once(mut attempt: impl FnMut() -> bool) {
    assert!((0..3).any(|_| attempt()), "no session ended within {LEFT_LIMIT:?}");
}

#[test]
fn a_test_whose_client_leaves_before_its_data_connections_ends_at_once() {
    let server = TestServer::start(|session| crate::test::serve(session, &TestLimits::default()));
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        soon_once(|| {
            let (sender, mut receiver, dialer) = server.session(Service::Test).unwrap().split();
            let write_bytes = TestPlan::DATAGRAM_BYTES;
            let plan = TestPlan { protocol, write_bytes, ..TestPlan::new() };
            sender.send(&TestOrder::Plan(Box::new(plan))).unwrap();
            assert_eq!(receiver.receive::<TestEvent>().unwrap(), TestEvent::Accepted);
            let left = Instant::now();
            drop((sender, receiver, dialer));
            ends_soon(&server, left)
        });
    }
}

#[test]
fn a_copy_whose_client_leaves_before_its_data_connections_ends_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let tree = Tree::beneath(dir.path()).unwrap();
    let server =
        TestServer::start(move |session| copy::serve(session, &tree, &AtomicBool::new(false)));
    let request = CopyRequest::Receive {
        key: CopyKey::new(1),
        target: FilePath::new(".").unwrap(),
        top: Top::One,
        options: CopyOptions::default(),
    };
    let begin = || {
        let (sender, receiver, _) = server.session(Service::Copy).unwrap().split();
        sender.send(&request).unwrap();
        (sender, receiver)
    };
    soon_once(|| {
        let (sender, mut receiver) = begin();
        assert!(matches!(receiver.receive().unwrap(), CopyReply::Ready { .. }));
        // The second one waits for the journal of the first, or has not come so far.
        let second = begin();
        thread::sleep(Duration::from_millis(300));
        let left = Instant::now();
        drop(second);
        let second = ends_soon(&server, left);
        let left = Instant::now();
        drop((sender, receiver));
        ends_soon(&server, left) && second
    });
}
