//! Runs of one end over sockets of another protocol.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use longhaul_core::plan::{Protocol, TestLength, TestPlan};
use longhaul_core::result::End;
use longhaul_core::units::Bytes;

use crate::test::{DatagramFormat, EndRun, Ending, ReceivedDatagram, SentDatagram, TestLimits};

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

fn plan() -> TestPlan {
    TestPlan { amount: TestLength::Time(Duration::from_millis(300)), ..TestPlan::new() }
}

static NEVER: AtomicBool = AtomicBool::new(false);

fn run<'a>(
    plan: &'a TestPlan,
    limits: &'a TestLimits,
    (role, ending): (End, Ending),
    stop: &'a AtomicBool,
) -> EndRun<'a> {
    EndRun {
        plan,
        at_client: true,
        role,
        reverse: false,
        ending,
        limits,
        memory: None,
        stop,
        abort: &NEVER,
    }
}

#[test]
fn a_sender_by_amount_leaves_its_connection_open() {
    let (plan, limits) = (plan(), TestLimits::default());
    let (near, mut far) = pair();
    let mut kept = near.try_clone().unwrap();
    let reader = thread::spawn(move || {
        let mut bytes = Vec::new();
        far.read_to_end(&mut bytes).unwrap();
        bytes
    });
    let sender = run(&plan, &limits, (End::Sender, Ending::Amount), &NEVER);
    let result = sender.tcp(vec![near], |_| ()).unwrap();
    assert_eq!(result.cut, None);
    kept.set_nonblocking(false).unwrap(); // as the test leaves it, its buffer may be full
    kept.write_all(b"end").unwrap();
    drop(kept);
    let bytes = reader.join().unwrap();
    assert_eq!(bytes.len() as u64, result.streams[0].bytes.get() + 3);
    assert!(bytes.ends_with(b"end"));
}

#[test]
fn a_receiver_stops_by_its_amount_while_the_sender_goes_on() {
    let limits = TestLimits::default();
    let over = Arc::new(AtomicBool::new(false));
    let by_bytes = TestPlan { amount: TestLength::Bytes(Bytes::mib(4)), ..plan() };
    for plan in [plan(), by_bytes] {
        let (near, mut far) = pair();
        let ended = over.clone();
        let writer = thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) && far.write(&[7; 65536]).is_ok() {}
        });
        let receiver = run(&plan, &limits, (End::Receiver, Ending::Amount), &NEVER);
        let result = receiver.tcp(vec![near], |_| ()).unwrap();
        assert_eq!(result.cut, None);
        assert!(result.streams[0].bytes >= Bytes::mib(4), "{result:?}");
        over.store(true, Ordering::Relaxed);
        writer.join().unwrap();
        over.store(false, Ordering::Relaxed);
    }
}

#[test]
fn a_server_end_stops_by_its_flag_even_before_the_first_byte() {
    let (plan, limits) = (plan(), TestLimits::default());
    for role in [End::Sender, End::Receiver] {
        let (near, _far) = pair();
        let stop = AtomicBool::new(false);
        let result = thread::scope(|scope| {
            let end = run(&plan, &limits, (role, Ending::Stop), &stop);
            let running = scope.spawn(move || end.tcp(vec![near], |_| ()).unwrap());
            // Longer than the plan.
            thread::sleep(Duration::from_millis(500));
            assert!(!running.is_finished());
            stop.store(true, Ordering::Release);
            running.join().unwrap()
        });
        assert_eq!(result.cut, None, "{role}");
        assert_eq!(result.streams[0].bytes.get() > 0, role == End::Sender);
    }
}

/// A header of 4 bytes: the number.
#[derive(Debug)]
struct Number;

impl DatagramFormat for Number {
    fn header_bytes(&self) -> usize {
        4
    }

    fn write(&self, datagram: &mut [u8], header: &SentDatagram) {
        datagram[..4].copy_from_slice(&(header.number as u32).to_be_bytes());
        assert_eq!(header.bytes, (header.number + 1) * 100);
    }

    fn read(&self, datagram: &[u8], _: u64) -> ReceivedDatagram {
        match datagram.first_chunk::<4>() {
            Some(number) => ReceivedDatagram::Data {
                number: Some(u32::from_be_bytes(*number).into()),
                sent_ns: None,
            },
            None => ReceivedDatagram::Other,
        }
    }
}

#[test]
fn datagrams_of_another_format_are_numbered_and_counted() {
    let plan = TestPlan {
        protocol: Protocol::Udp,
        amount: TestLength::Bytes(Bytes::new(20_000)),
        write_bytes: Bytes::new(100),
        rate_bps: Some(longhaul_core::units::Rate::from_bps(10_000_000)),
        ..plan()
    };
    let (near, far) =
        (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    near.connect(far.local_addr().unwrap()).unwrap();
    far.connect(near.local_addr().unwrap()).unwrap();
    let (limits, stop) = (TestLimits::default(), AtomicBool::new(false));
    let format: Arc<dyn DatagramFormat> = Arc::new(Number);
    let (sent, received) = thread::scope(|scope| {
        let end = run(&plan, &limits, (End::Receiver, Ending::Stop), &stop);
        let format = &format;
        let receiver = scope.spawn(move || end.udp(vec![far], format, |_| ()).unwrap());
        let sender = run(&plan, &limits, (End::Sender, Ending::Amount), &NEVER);
        let sent = sender.udp(vec![near], format, |_| ()).unwrap();
        stop.store(true, Ordering::Release);
        (sent, receiver.join().unwrap())
    });
    let (sent, received) = (sent.streams[0].udp.unwrap(), received.streams[0].udp.unwrap());
    assert_eq!((sent.expected, received.expected, received.datagrams), (200, 200, 200));
}
