//! The readers of the messages of iperf3: states, parameters, results and datagrams.
//!
//! The fuzz target `iperf3` calls this, and so does `crates/longhaul-interop/tests/hostile.rs`.

use longhaul_engine::test::{DatagramFormat, ReceivedDatagram};
use longhaul_interop::iperf3::{
    ClientEvent, ClientMachine, DatagramHeader, Parameters, ServerEvent, ServerMachine,
    StateMachine,
};

/// Reads `bytes` as both ends of a control connection and as a datagram. The first byte is the
/// length of the pieces in which they arrive.
pub fn iperf3(bytes: &[u8]) {
    let Some((size, bytes)) = bytes.split_first() else { return };
    let size = usize::from(*size).max(1);
    let mut client = ClientMachine::new(usize::from(*bytes.first().unwrap_or(&1)), false);
    drive(&mut client, bytes, size, |event| {
        if let ClientEvent::Results(results) = event {
            assert!(results.streams.len() <= 255);
            assert!(results.streams.iter().all(|stream| stream.jitter.is_finite()));
        }
    });
    client.closed();
    drive(&mut ServerMachine::default(), bytes, size, |event| {
        if let ServerEvent::Parameters(parameters) = event {
            check(&parameters);
        }
    });
    for long in [false, true] {
        for expected in [0, 1 << 32, 1 << 62] {
            let read = DatagramHeader { long }.read(bytes, expected);
            if let ReceivedDatagram::Data { number: Some(number), .. } = read {
                assert!(number < 1 << 62);
            }
        }
    }
}

fn drive<M: StateMachine>(machine: &mut M, bytes: &[u8], size: usize, take: impl Fn(M::Event)) {
    for piece in bytes.chunks(size) {
        machine.push(piece);
        loop {
            match machine.next() {
                Ok(Some(event)) => take(event),
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
}

/// A plan that a server accepts is bounded, and its own document is read as the same.
fn check(parameters: &Parameters) {
    let document = serde_json::to_value(parameters).expect("a document");
    assert_eq!(Parameters::read(&document), *parameters);
    if let Ok(plan) = parameters.plan() {
        assert!((1..=128).contains(&plan.streams));
        assert!((1..=1 << 20).contains(&plan.write_bytes.get()));
        assert!(plan.omit.as_secs() <= 600);
        assert!(plan.window_bytes.is_none_or(|window| window.get() <= 512 << 20));
    }
}

/// Inputs from which mutation begins.
pub fn seeds() -> Vec<Vec<u8>> {
    let framed = |text: &str| [&(text.len() as u32).to_be_bytes()[..], text.as_bytes()].concat();
    let parameters = framed(concat!(
        r#"{"tcp":true,"omit":1,"time":10,"num":0,"blockcount":0,"MSS":1400,"nodelay":true,"#,
        r#""parallel":2,"window":65536,"len":1000,"bandwidth":1000000,"pacing_timer":1000,"TOS":184,"#,
        r#""congestion":"cubic","client_version":"3.12"}"#
    ));
    let results = framed(concat!(
        r#"{"cpu_util_total":3.08,"cpu_util_user":0,"cpu_util_system":3,"sender_has_retransmits":1,"#,
        r#""congestion_used":"bbr","streams":[{"id":1,"bytes":125000,"retransmits":"#,
        r#"18446744073709551615,"jitter":0.5,"errors":0,"omitted_errors":0,"packets":7,"#,
        r#""omitted_packets":0,"start_time":0,"end_time":1.000036}]}"#
    ));
    vec![
        [&[64][..], &parameters, &[4], &results, &[16]].concat(),
        [&[1, 9, 10, 1, 2, 13][..], &results, &[14]].concat(),
        vec![1, 9, 0xfe, 0, 0, 0, 142, 0, 0, 0, 0],
        vec![9, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3],
    ]
}
