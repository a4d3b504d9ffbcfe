//! The client of iperf3 against servers that do not follow the protocol.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::plan::{Protocol, TestLength, TestPlan};
use longhaul_core::units::Bytes;
use longhaul_engine::session::Family;
use longhaul_interop::iperf3::{self, ClientOptions, Credentials, Padding};
use longhaul_interop::{Fault, InteropError, PeerAddress, PeerTest, Program, Step};

const PUBLIC_KEY: &str = "-----BEGIN PUBLIC KEY-----\n\
MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAzRt5fAvOetnkBhGVh//S\n\
UdF71dLGywLt75MfF9z/9kxdc+BhItHwwptv+eQpGVkycgkYiKVlnvKVFSeP4QPI\n\
wNRaK00Dq/SGaknG1laA49ksThc0awX3GXLw6MTxU1qFFcaUoVoOUVDVihjrRjpq\n\
cAkVGuhruqSweKC+he75bYJavmiAMPlnAaRiIaT6xXy/kEzyMJgQ4N86we6jjEG4\n\
iEIIcbppATmmpPZH1xSeGsOosNr750UrPwAKteabnUPfupQx0sX2Rhls+//F9Dyd\n\
U6NrSfwIVX3Io2hx0gIESoJx0OlSkgc2T5wIPtmlcLRIM4ABnavSjn5XA8KXOGKE\n\
SwIDAQAB\n\
-----END PUBLIC KEY-----\n";

/// Runs a short test against a server that behaves as `script`.
fn run(script: impl FnOnce(&mut TcpStream, &TcpListener) + Send + 'static) -> InteropError {
    run_with(&ClientOptions::default(), Protocol::Tcp, script)
}

fn run_with(
    options: &ClientOptions,
    protocol: Protocol,
    script: impl FnOnce(&mut TcpStream, &TcpListener) + Send + 'static,
) -> InteropError {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = thread::spawn(move || {
        let (mut control, _) = listener.accept().unwrap();
        control.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        script(&mut control, &listener);
    });
    let address = PeerAddress { program: Program::Iperf3, host: "127.0.0.1".to_owned(), port };
    let amount = TestLength::Time(Duration::from_millis(200));
    let mut plan = TestPlan { amount, protocol, ..TestPlan::new() };
    if protocol == Protocol::Udp {
        plan.write_bytes = Bytes::new(1400);
    }
    let stop = AtomicBool::new(false);
    let family = Family::Any;
    let test = PeerTest { address: &address, plan: &plan, family, local: None, stop: &stop };
    let failed = iperf3::run(&test, options, &mut |_| ()).unwrap_err();
    // A client that fails before it connects must not leave the server waiting.
    let _ = TcpStream::connect(("127.0.0.1", port));
    server.join().unwrap();
    failed
}

/// Reads the cookie and the parameters.
fn greet(control: &mut TcpStream) {
    control.read_exact(&mut [0; 37]).unwrap();
    control.write_all(&[9]).unwrap();
    read_document(control);
}

fn read_document(control: &mut TcpStream) {
    let mut length = [0; 4];
    control.read_exact(&mut length).unwrap();
    control.read_exact(&mut vec![0; u32::from_be_bytes(length) as usize]).unwrap();
}

/// Runs the protocol up to the results, which are `results`.
fn until_results(results: Vec<u8>) -> impl FnOnce(&mut TcpStream, &TcpListener) + Send {
    move |control, listener| {
        greet(control);
        control.write_all(&[10]).unwrap();
        let (mut data, _) = listener.accept().unwrap();
        control.write_all(&[1, 2]).unwrap();
        let reader =
            thread::spawn(move || while data.read(&mut [0; 65536]).is_ok_and(|n| n > 0) {});
        control.read_exact(&mut [0; 1]).unwrap();
        control.write_all(&[13]).unwrap();
        read_document(control);
        control.write_all(&results).unwrap();
        reader.join().unwrap();
    }
}

fn framed(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes()[..], text.as_bytes()].concat()
}

fn fault(error: &InteropError) -> Option<(Step, Fault)> {
    match error {
        InteropError::Protocol { during, fault, .. } => Some((*during, fault.clone())),
        _ => None,
    }
}

#[test]
fn results_that_are_too_long_malformed_or_of_another_stream_are_named() {
    let long = run(until_results(vec![0x7f, 0xff, 0xff, 0xff]));
    let too_long = Fault::TooLong { bytes: 0x7fff_ffff, limit: 256 << 10 };
    assert_eq!(fault(&long), Some((Step::Results, too_long)));
    let malformed = run(until_results(framed("{\"cpu_util_total\":1")));
    assert_eq!(fault(&malformed), Some((Step::Results, Fault::Malformed)));
    let missing = run(until_results(framed("{}")));
    assert_eq!(fault(&missing), Some((Step::Results, Fault::Field("streams"))));
    let mut strange = framed(concat!(
        r#"{"cpu_util_total":1,"cpu_util_user":1,"cpu_util_system":1,"sender_has_retransmits":-1,"#,
        r#""streams":[{"id":7,"bytes":1,"retransmits":-1,"jitter":0,"errors":0,"packets":0}]}"#
    ));
    strange.push(14);
    assert_eq!(fault(&run(until_results(strange))), Some((Step::Results, Fault::NoStream(7))));
}

#[test]
fn a_refused_user_is_reported_in_each_way() {
    let answer = |bytes: &'static [u8]| {
        run(move |control, _| {
            greet(control);
            control.write_all(bytes).unwrap();
        })
    };
    for numbers in [&[0xfe, 0, 0, 0, 142][..], &[0xfe, 0, 0, 0, 142, 0, 0, 0, 0]] {
        let error = answer(numbers);
        assert!(matches!(error, InteropError::Denied { .. }), "{error}");
    }
    let none = answer(&[0xfe]);
    let expected = matches!(none, InteropError::Reported { during: Step::Parameters, code: 0, .. });
    assert!(expected, "{none}");
    let silent = answer(&[]);
    let expected = matches!(silent, InteropError::Closed { during: Step::Parameters, .. });
    assert!(expected, "{silent}");
}

#[test]
fn every_end_after_the_parameters_with_a_user_refuses_the_user() {
    let key = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(key.path(), PUBLIC_KEY).unwrap();
    let credentials = Credentials::new("mario", "rossi", key.path(), Padding::Oaep).unwrap();
    let options = ClientOptions { credentials: Some(credentials), ..ClientOptions::default() };
    for (answer, expected) in [
        (&[0xfe, 0, 0, 0, 142, 0, 0, 0, 0][..], true),
        (&[0xfe, 0, 0, 0, 142], true),
        (&[0xfe], false),
        (&[], false),
    ] {
        let error = run_with(&options, Protocol::Tcp, |control, _| {
            greet(control);
            control.write_all(answer).unwrap();
        });
        let found = matches!(error, InteropError::Denied { stated, .. } if stated == expected);
        assert!(found, "{answer:?}: {error}");
    }
}

/// The behavior of a server.
type Script = fn(&mut TcpStream, &TcpListener);

/// Keeps the connection open until the client closes it.
fn stay_silent(control: &mut TcpStream) {
    control.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    while control.read(&mut [0; 4096]).is_ok_and(|bytes| bytes > 0) {}
}

#[test]
fn a_silent_server_is_reported_at_each_step_within_the_limit() {
    let begun = Instant::now();
    let cases: [(Step, u64, Script); 5] = [
        (Step::Greeting, 20, |control, _| stay_silent(control)),
        (Step::Parameters, 20, |control, _| {
            greet(control);
            stay_silent(control);
        }),
        (Step::Streams, 20, |control, listener| {
            greet(control);
            control.write_all(&[10]).unwrap();
            let _data = listener.accept().unwrap();
            stay_silent(control);
        }),
        // A frame that ends early.
        (Step::Results, 20, |control, listener| {
            until_results(vec![0, 0, 1, 0, b'{'])(control, listener);
            stay_silent(control);
        }),
        // A firewall drops the first datagram.
        (Step::FirstDatagram, 10, |control, listener| {
            let _deaf = UdpSocket::bind(listener.local_addr().unwrap()).unwrap();
            greet(control);
            control.write_all(&[10]).unwrap();
            stay_silent(control);
        }),
    ];
    thread::scope(|scope| {
        for (step, seconds, script) in cases {
            scope.spawn(move || {
                let datagrams = step == Step::FirstDatagram;
                let protocol = if datagrams { Protocol::Udp } else { Protocol::Tcp };
                let error = run_with(&ClientOptions::default(), protocol, script);
                let InteropError::Silent { during, limit, .. } = &error else { panic!("{error}") };
                assert_eq!((*during, limit.as_secs()), (step, seconds));
            });
        }
    });
    // All wait at the same time; the rest is for a busy host.
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
}

#[test]
fn a_server_that_leaves_or_stops_is_reported() {
    let busy = run(|control, _| control.write_all(&[0xff]).unwrap());
    assert!(matches!(busy, InteropError::Busy { .. }), "{busy}");
    let other = run(|control, _| control.write_all(b"220 mail.example.org ESMTP\r\n").unwrap());
    assert_eq!(fault(&other), Some((Step::Greeting, Fault::Unexpected(50))));
    let stopped = run(|control, listener| {
        greet(control);
        control.write_all(&[10]).unwrap();
        let (mut data, _) = listener.accept().unwrap();
        control.write_all(&[1, 2, 11]).unwrap();
        while data.read(&mut [0; 65536]).is_ok_and(|n| n > 0) {}
    });
    let during = matches!(stopped, InteropError::Terminated { during: Step::Running, .. });
    assert!(during, "{stopped}");
}
