//! The readers of bytes from a peer, each as a function of the bytes.
//!
//! The fuzz targets call these, and so does `crates/longhaul-core/tests/hostile.rs`, which is part
//! of every test run. None of them may panic or take memory that its input does not pay for, and
//! what is read must be written back to what reads.

use std::time::Duration;

use longhaul_core::path::{Delays, Dispersion, Reordering, asymmetry, capacity};
use longhaul_core::plan::{CpuList, LinkPlan, TestPlan, TrainSpec, parse_addresses};
use longhaul_core::result::{
    MeasuredHalf, SideResult, SideSample, TestEnd, TestResult, TestSample,
};
use longhaul_core::units::{Bytes, Rate, parse_span};
use longhaul_core::wire::copy::{
    CheckMessage, CopyReply, CopyRequest, Names, SinkMessage, SourceMessage,
};
use longhaul_core::wire::{
    AnyHello, BlockHeader, DataHello, DatagramHeader, DiagnoseEvent, DiagnoseOrder, FarReady,
    Greeting, Hello, PROBE_BYTES, PathEvent, PathOrder, ProbeHeader, ProbeKind, TestEvent,
    TestOrder, ThirdEvent, ThirdOrder, Welcome, read_frame, write_frame,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// One reader of a peer's bytes.
pub type Entry = fn(&[u8]);

/// All of them, by the names of their fuzz targets.
pub const ENTRIES: &[(&str, Entry)] = &[
    ("opening", opening),
    ("test_order", test_order),
    ("test_event", test_event),
    ("third", third),
    ("path", path),
    ("diagnose", diagnose),
    ("copy", copy),
    ("binary", binary),
    ("text", text),
];

/// Messages of words and whole numbers.
fn exactly<T: PartialEq>(one: &T, other: &T) -> bool {
    one == other
}

/// Messages with fractions, which serde_json reads to the last bit but one.
fn nearly<T>(_: &T, _: &T) -> bool {
    true
}

/// Reads all frames of `bytes` as `T`, and gives each to `take`. What is written of it must read
/// and be the `same`.
fn frames<T: DeserializeOwned + Serialize>(
    bytes: &[u8],
    same: fn(&T, &T) -> bool,
    take: impl Fn(T),
) {
    let mut rest = bytes;
    while let Ok(message) = read_frame::<T>(&mut rest) {
        let mut wire = Vec::new();
        // What has grown over the limit in our spelling is refused, not sent.
        if write_frame(&mut wire, &message).is_ok() {
            let again = read_frame::<T>(&mut wire.as_slice());
            assert!(again.is_ok_and(|again| same(&again, &message)), "it is written back the same");
        }
        take(message);
    }
}

fn opening(bytes: &[u8]) {
    frames::<Hello>(bytes, exactly, |_| ());
    frames::<Welcome>(bytes, exactly, |_| ());
    frames::<FarReady>(bytes, exactly, |_| ());
    let mut rest = bytes;
    while let Ok(hello) = read_frame::<AnyHello>(&mut rest) {
        assert!(hello.short_version().chars().count() <= 32);
        hello.service();
    }
}

/// Reads the messages that a server receives from the client of a test.
fn test_order(bytes: &[u8]) {
    frames::<TestOrder>(bytes, nearly, |order| {
        if let TestOrder::Plan(plan) = order {
            check_plan(&plan);
        }
    });
}

fn check_plan(plan: &TestPlan) {
    if plan.validate().is_ok() {
        assert!(plan.streams <= TestPlan::MAX_STREAMS);
        assert!(plan.write_bytes <= TestPlan::MAX_WRITE_BYTES);
        let shares = (0..plan.streams).filter_map(|stream| plan.share(stream));
        shares.fold(0u64, |sum, share| sum.checked_add(share).expect("shares add up"));
        for stream in 0..plan.streams {
            plan.link_of(stream);
            plan.stream_rate();
        }
    }
}

/// Reads the messages that the client of a test receives: it joins samples and folds results.
fn test_event(bytes: &[u8]) {
    frames::<TestEvent>(bytes, nearly, |event| match event {
        TestEvent::Sample(sample) => join(&sample),
        TestEvent::Done(result) => fold(&result, bytes),
        _ => {}
    });
}

fn join(theirs: &SideSample) {
    let ours = SideSample::default();
    let joined = [TestSample::join(theirs, Some(&ours)), TestSample::join(&ours, Some(theirs))];
    for sample in joined.iter().chain([&TestSample::join(theirs, Some(theirs))]) {
        sample.shares.map(|shares| shares.largest());
    }
}

fn fold(theirs: &SideResult, bytes: &[u8]) {
    // The samples that came before it, as a client would have them.
    let mut intervals = Vec::new();
    let mut rest = bytes;
    while let Ok(event) = read_frame::<TestEvent>(&mut rest) {
        if let TestEvent::Sample(sample) = event {
            intervals.push(TestSample::join(&sample, Some(&sample)));
        }
    }
    let ours = SideResult { streams: theirs.streams.clone(), ..SideResult::default() };
    for (sender, receiver) in [(theirs, &ours), (&ours, theirs), (theirs, theirs)] {
        let (plan, end) = (TestPlan::new(), TestEnd::Completed);
        let measured = MeasuredHalf {
            intervals: intervals.clone(),
            sender: sender.into(),
            receiver: receiver.into(),
        };
        TestResult::fold("far:5210".to_owned(), plan, end, measured);
    }
}

fn third(bytes: &[u8]) {
    frames::<ThirdOrder>(bytes, nearly, |order| {
        if let ThirdOrder::Run { plan, .. } = order {
            check_plan(&plan);
        }
    });
    frames::<ThirdEvent>(bytes, nearly, |_| ());
}

/// The messages of both ends of a path measurement.
fn path(bytes: &[u8]) {
    frames::<PathOrder>(bytes, nearly, |order| match order {
        PathOrder::Send(spec) if spec.validate().is_ok() => {
            assert!(spec.time() <= Duration::from_secs(86_400) && spec.rate_bps() > 0.0);
        }
        PathOrder::SendTrains(spec) if spec.validate().is_ok() => {
            assert!(spec.packets <= TrainSpec::MOST_PACKETS);
        }
        _ => {}
    });
    frames::<PathEvent>(bytes, nearly, |event| match event {
        PathEvent::Counted(figures) => {
            let checked = (*figures).checked();
            assert!(checked.lost.count <= checked.lost.of && checked.lost.low <= checked.lost.high);
        }
        PathEvent::Arrived { trains } => {
            let found: Vec<_> =
                trains.iter().filter_map(|train| Dispersion::of(train, 1500)).collect();
            capacity(&[], &found);
        }
        PathEvent::Accepted { clock, .. } => {
            asymmetry(1.0, 2.0, clock, clock, false);
        }
        PathEvent::Tcp(segments) => {
            segments.proven();
        }
        _ => {}
    });
    let (mut reordering, mut delays) = (Reordering::default(), Delays::default());
    for datagram in bytes.chunks(PROBE_BYTES) {
        if let Some(probe) = ProbeHeader::decode(datagram) {
            assert_eq!(probe.encode()[..], datagram[..PROBE_BYTES]);
            reordering.take(probe.last, probe.arrived_ns);
            delays.take(probe.last, probe.sent_ns, probe.arrived_ns);
        }
    }
    delays.variation();
}

/// Reads the messages of both ends of a diagnosis.
fn diagnose(bytes: &[u8]) {
    frames::<DiagnoseOrder>(bytes, nearly, |_| ());
    frames::<DiagnoseEvent>(bytes, nearly, |_| ());
}

fn copy(bytes: &[u8]) {
    frames::<CopyRequest>(bytes, exactly, |_| ());
    frames::<CheckMessage>(bytes, exactly, |_| ());
    frames::<CopyReply>(bytes, exactly, |_| ());
    frames::<Names>(bytes, exactly, |_| ());
    frames::<SourceMessage>(bytes, nearly, |_| ());
    frames::<SinkMessage>(bytes, nearly, |_| ());
}

/// Messages of fixed length: the beginnings of data connections, datagrams and blocks.
fn binary(bytes: &[u8]) {
    if let Some(first) = bytes.first_chunk()
        && let Ok((hello, mac)) = DataHello::decode(first)
    {
        assert_eq!(hello.encode(&mac), *first);
    }
    if let Some((greeting, mac)) = Greeting::decode(bytes) {
        assert_eq!(greeting.encode(&mac), bytes[..64]);
    }
    if let Some(header) = DatagramHeader::decode(bytes) {
        assert_eq!(header.encode(), bytes[..24]);
    }
    if let Some(first) = bytes.first_chunk()
        && let Some(header) = BlockHeader::decode(first)
    {
        assert_eq!(header.encode(), *first);
    }
}

/// Text of a command line or a plan.
fn text(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(rate) = text.parse::<Rate>() {
        rate.to_string();
    }
    if let Ok(size) = text.parse::<Bytes>() {
        size.to_string();
    }
    let _ = parse_span(text);
    if let Ok(list) = text.parse::<CpuList>() {
        assert_eq!(list.to_string().parse::<CpuList>().as_ref(), Ok(&list));
    }
    if let Ok(addresses) = parse_addresses(text) {
        assert!(addresses.len() <= 128);
    }
    if let Ok(plan) = serde_json::from_str::<TestPlan>(text) {
        check_plan(&plan);
    }
    if let Ok(plan) = serde_json::from_str::<LinkPlan>(text) {
        let _ = plan.validate();
    }
}

/// Messages to begin from: mutations of what reads get further than noise.
pub fn seeds(entry: &str) -> Vec<Vec<u8>> {
    let frame = |json: &str| {
        let mut bytes = (json.len() as u32).to_be_bytes().to_vec();
        bytes.extend_from_slice(json.as_bytes());
        bytes
    };
    let plan = serde_json::to_string(&TestPlan::new()).expect("a plan is written");
    match entry {
        "opening" => [
            r#"{"protocol":3,"version":"0.1.0","service":"test"}"#,
            r#"{"ready":{"version":"0.1.0"}}"#,
            r#"{"queued":{"place":3}}"#,
            r#"{"refused":{"kind":"limit","reason":"no"}}"#,
        ]
        .map(frame)
        .into(),
        "test_order" => {
            let plan = frame(&format!(r#"{{"plan":{plan}}}"#));
            let rest =
                [r#"{"listening":{"port":5210}}"#, r#""start""#, r#""stop""#, r#""finished""#];
            [plan].into_iter().chain(rest.map(frame)).collect()
        }
        "test_event" => {
            let (sample, done) = (frame(SAMPLE), frame(DONE));
            let both = [sample.clone(), done.clone()].concat();
            [sample, done, both]
                .into_iter()
                .chain([r#""accepted""#, r#"{"failed":{"reason":"no"}}"#].map(frame))
                .collect()
        }
        "third" => vec![
            frame(&format!(r#"{{"run":{{"target":"far:5210","plan":{plan}}}}}"#)),
            frame(r#""started""#),
        ],
        "path" => {
            let messages = [
                r#"{"begin":{"seconds":5.0}}"#,
                r#"{"send":{"datagrams":5000,"interval_ns":1000000,"packet_bytes":128}}"#,
                r#"{"send_trains":{"trains":3,"packets":16,"packet_bytes":1500,"gap_ns":20000000}}"#,
                r#"{"count":{"datagrams":5000,"sender_dropped":1}}"#,
                r#"{"arrived":{"trains":[[{"number":0,"at_ns":1000},{"number":1,"at_ns":13000},
                   {"number":2,"at_ns":25000},{"number":3,"at_ns":37000},{"number":4,"at_ns":49000}]]}}"#,
                r#"{"accepted":{"clock":{"synchronised":true,"max_error_ms":0.5},"boot":null}}"#,
                r#"{"tcp":{"segment_bytes":1448,"path_mtu_bytes":1500,"acked_bytes":9,"retransmits":0}}"#,
                r#"{"counted":{"sent":10,"received":9,"lost":{"count":1,"of":10,"ratio":0.1,"low":0.0,
                   "high":0.4},"duplicated":{"count":0,"of":10,"ratio":0.0,"low":0.0,"high":0.3},
                   "reordered":{"count":0,"of":9,"ratio":0.0,"low":0.0,"high":0.3},
                   "reordering_extent":0,"reordering_mean_extent":0.0,"three_reordered":0,
                   "reordering_late_ms":0.0,"sender_dropped":0,"receiver_dropped":0,
                   "jitter_ms":0.1,"delay":null}}"#,
            ];
            let probe = ProbeHeader {
                tag: 7,
                kind: ProbeKind::Stream,
                train: 0,
                answer_bytes: 0,
                number: 1,
                sent_ns: 1000,
                arrived_ns: 2000,
                last: 1,
            };
            messages.map(frame).into_iter().chain([probe.encode().repeat(3)]).collect()
        }
        "copy" => [
            r#"{"receive":{"target":"a/b","top":"one","options":{}}}"#,
            r#"{"end":{"entries":3}}"#,
            r#"{"progress":{"bytes":10,"done":[1,2,3]}}"#,
            r#""ready""#,
            r#"{"names":["a","b/c"],"more":true}"#,
        ]
        .map(frame)
        .into(),
        "binary" => {
            let mut hello = b"LHD1".to_vec();
            hello.resize(64, 0);
            let mut greeting = b"LHU1".to_vec();
            greeting.resize(64, 0);
            let mut block = vec![0; 24];
            block[19] = 1;
            vec![hello, greeting, block]
        }
        _ => ["10G", "64MiB", "1.5s", "0-3+8", "10.0.1.2+256*4", plan.as_str()]
            .map(|text| text.as_bytes().to_vec())
            .into(),
    }
}

const SAMPLE: &str = r#"{"sample":{"index":1,"omitted":false,"start_seconds":1.0,"end_seconds":2.0,
"cpu_seconds":0.5,"streams":[{"bytes":1000,"tcp":{"rtt_ms":1.0,"rtt_variation_ms":0.1,
"cwnd_bytes":1000,"peer_window_bytes":2000,"retransmits":1,"delivery_rate_bps":9,
"app_limited":false,"notsent_bytes":0,"busy_ms":900.0,"rwnd_limited_ms":100.0,
"sndbuf_limited_ms":50.0,"cwnd_limited_ms":300.0,"paced_ms":100.0,"segments":10},
"udp":{"datagrams":9,"expected":10,"late":1,"duplicated":1,"reordered":1,"host_dropped":1,
"jitter_ms":0.1},"thread":{"running_percent":50.0,"waiting_percent":10.0,"core":1,
"core_busy_percent":60.0,"core_interrupts_percent":5.0,"core_stolen_percent":1.0,
"buffer_bytes":4096,"buffer_full_percent":10.0,"drops":1}}],"host":{"cores_busy_percent":50.0,
"interrupts_core":1,"interrupts_percent":10.0,"tcp_memory_bytes":4096,
"tcp_memory_pressure_bytes":8192,"tcp_memory_pressure_percent":0.0,"tcp_drops":1,"udp_drops":2,
"interface_drops":3}}}"#;

const DONE: &str = r#"{"done":{"seconds":2.0,"cpu_seconds":1.0,"cut":null,"streams":[{"bytes":1000,
"total_bytes":2000,"seconds":2.0,"cpu_seconds":1.0,"retransmits":1,"rtt_ms":1.0,"rtt_min_ms":0.5,
"congestion":"cubic","mss":1448,"buffer_bytes":4096,"failure":null}],"curve":{"period_seconds":0.05,
"bytes":[1,2,4,8,16,16,16,16,16,16,16,16,16,16]},"limits":{"autotuned_bytes":4096,"asked_bytes":4096,
"interface_bps":1000}}}"#;
