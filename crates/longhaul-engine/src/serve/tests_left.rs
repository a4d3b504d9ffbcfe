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

/// The time within which a session must end after its client has left.
const LEFT_LIMIT: Duration = Duration::from_secs(5);

/// Waits for the end of the server's next session, which must come soon and with an error.
fn ends_soon(server: &TestServer, left: Instant) {
    let outcome = server.outcome();
    assert!(outcome.is_err());
    assert!(left.elapsed() < LEFT_LIMIT, "{:?}: {outcome:?}", left.elapsed());
}

#[test]
fn a_test_whose_client_leaves_before_its_data_connections_ends_at_once() {
    let server = TestServer::start(|session| crate::test::serve(session, &TestLimits::default()));
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        let (sender, mut receiver, dialer) = server.session(Service::Test).unwrap().split();
        let plan = TestPlan { protocol, write_bytes: TestPlan::DATAGRAM_BYTES, ..TestPlan::new() };
        sender.send(&TestOrder::Plan(Box::new(plan))).unwrap();
        assert_eq!(receiver.receive::<TestEvent>().unwrap(), TestEvent::Accepted);
        let left = Instant::now();
        drop((sender, receiver, dialer));
        ends_soon(&server, left);
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
    let (sender, mut receiver) = begin();
    assert!(matches!(receiver.receive().unwrap(), CopyReply::Ready { .. }));
    // The second one waits for the journal of the first.
    let second = begin();
    thread::sleep(Duration::from_millis(300));
    let left = Instant::now();
    drop(second);
    ends_soon(&server, left);
    let left = Instant::now();
    drop((sender, receiver));
    ends_soon(&server, left);
}
