//! Bundles of parallel links, and the workers of interfaces with several queues, over socket pairs.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::sync::mpsc::channel;
use std::time::Duration;

use longhaul_core::plan::{LinkPlan, TopologyLink};

use super::*;
use crate::packet::test_frames::TestFrame;

#[test]
fn parallel_links_form_a_bundle_in_either_order_of_their_sites() {
    let mut plan = TopologyPlan::pair(LinkPlan::symmetric(Duration::ZERO));
    let mut back = plan.links[0].clone();
    (back.near, back.far, back.name) = ("far".into(), "near".into(), "back".into());
    back.plan.up.delay = Duration::from_millis(3);
    plan.sites.push("third".into());
    let third = TopologyLink { far: "third".into(), name: "third".into(), ..back.clone() };
    plan.links.extend([third, back]);
    let bundles = Bundle::all(&plan);
    let member = |link, reversed| Member { link, reversed };
    assert_eq!(bundles.len(), 2);
    assert_eq!(bundles[0].members, [member(0, false), member(2, true)]);
    assert_eq!(bundles[1].members, [member(1, false)]);
    assert_eq!(bundles[0].side_of(1), Some(Side::Far));
    assert_eq!(bundles[0].side_of(2), None);
    let delays: Vec<u128> = bundles[0]
        .directions(&plan, Side::Far)
        .map(|direction| direction.delay.as_millis())
        .collect();
    assert_eq!(delays, [0, 3], "up of the reversed link leaves from the far end");
}

/// A link between interfaces with two queues. `hosts` has the host's end of each queue, by side and
/// index.
struct TwoQueues {
    hosts: [Vec<UnixDatagram>; 2],
    running: RunningBundle,
}

impl TwoQueues {
    fn start() -> Self {
        let queue = || {
            let (host, emulator) = UnixDatagram::pair().unwrap();
            emulator.set_nonblocking(true).unwrap();
            host.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            let device: Arc<dyn PacketDevice> = Arc::new(OwnedFd::from(emulator));
            (host, device)
        };
        let interface = || (0..2).map(|_| queue()).unzip();
        let [(near, near_queues), (far, far_queues)]: [(_, Queues); 2] = [interface(), interface()];
        let plan = LinkPlan { queues: 2, ..LinkPlan::symmetric(Duration::ZERO) };
        let link = BundleLink { member: Member { link: 0, reversed: false }, plan };
        let ends = [0, 1].map(|site| End { site, interface: 0 });
        let shared = Shared {
            memory: PacketMemory::start(Bytes::mib(64), Bytes::mib(64)).unwrap(),
            spins: SpinBudget::of(1),
            hash: FlowHash::Ports,
            failover: Duration::from_millis(50),
        };
        let offloads = TunOffloads { tcp: true, udp: true };
        let devices = [near_queues, far_queues];
        let running = RunningBundle::start(vec![link], ends, devices, offloads, &shared).unwrap();
        TwoQueues { hosts: [near, far], running }
    }

    /// Sends frames from a side into a queue.
    fn send(&self, side: Side, queue: u32, frames: u64) {
        let host = &self.hosts[usize::from(side == Side::Far)][queue as usize];
        for _ in 0..frames {
            host.send(&frame()).unwrap();
        }
    }

    /// Receives frames that were sent from a side into a queue.
    fn receive(&self, side: Side, queue: u32, frames: u64) {
        let host = &self.hosts[usize::from(side == Side::Near)][queue as usize];
        let mut buffer = [0; 2000];
        for _ in 0..frames {
            let length = host.recv(&mut buffer).unwrap();
            assert_eq!(buffer[..length], frame());
        }
    }

    /// Checks that no queue has a frame that was not received.
    fn assert_empty(&self) {
        for host in self.hosts.iter().flatten() {
            host.set_nonblocking(true).unwrap();
            assert_eq!(host.recv(&mut [0; 2000]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
            host.set_nonblocking(false).unwrap();
        }
    }

    /// Returns the queue, the side and the number of entered packets of each worker.
    fn counts(&self) -> Vec<(u32, Side, u64)> {
        let count = |worker: &Worker| {
            let [side] = *worker.ways else { panic!("{:?}", worker.ways) };
            let lanes = worker.driver.snapshot().unwrap().lanes;
            assert_eq!(lanes.len(), 1);
            assert_eq!(lanes[0].delivered, lanes[0].entered);
            (worker.queue, side, lanes[0].entered.packets)
        };
        self.running.workers.iter().map(count).collect()
    }
}

fn frame() -> Vec<u8> {
    TestFrame { payload: 100, ..TestFrame::TCP }.frame()
}

#[test]
fn each_queue_has_a_worker_per_direction_that_counts_only_its_packets() {
    let link = TwoQueues::start();
    let expected = [(0, Side::Near, 5), (0, Side::Far, 6), (1, Side::Near, 7), (1, Side::Far, 8)];
    for (queue, side, frames) in expected {
        link.send(side, queue, frames);
        link.receive(side, queue, frames);
    }
    link.assert_empty();
    assert_eq!(link.counts(), expected);
    let report = link.running.report([0, 0]).unwrap().remove(0);
    assert_eq!([report.up, report.down].map(|way| way.entered.packets), [5 + 7, 6 + 8]);
}

#[test]
fn a_blocked_worker_delays_no_other_worker() {
    let link = TwoQueues::start();
    for (index, blocked) in link.running.workers.iter().enumerate() {
        let (unblock, wait) = channel::<()>();
        // The worker applies the change, and waits in it until the sender is dropped.
        let (begun, has_begun) = channel();
        blocked.driver.set(0, Bytes::mib(4), move |_, _| {
            begun.send(()).unwrap();
            assert!(wait.recv().is_err());
        });
        has_begun.recv_timeout(Duration::from_secs(10)).unwrap();
        link.send(blocked.ways[0], blocked.queue, 3);
        for (_, other) in link.running.workers.iter().enumerate().filter(|(at, _)| *at != index) {
            link.send(other.ways[0], other.queue, 3);
            link.receive(other.ways[0], other.queue, 3);
            assert!(other.driver.snapshot().is_some());
        }
        link.assert_empty();
        drop(unblock);
        link.receive(blocked.ways[0], blocked.queue, 3);
    }
    assert!(link.counts().iter().all(|(.., packets)| *packets == 12), "{:?}", link.counts());
}
