//! The state machines of iperf3 against recorded control connections of real programs, which
//! `bench/interop/record.py` writes.

use std::fs;
use std::path::PathBuf;

use longhaul_core::plan::Direction;
use longhaul_interop::iperf3::{
    COOKIE_BYTES, ClientEvent, ClientMachine, Parameters, Results, ServerEvent, ServerMachine,
    State, StateMachine, stream_id,
};

/// A recorded control connection.
struct Transcript {
    name: String,
    client: Vec<u8>,
    server: Vec<u8>,
}

fn transcripts() -> Vec<Transcript> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts");
    let mut found: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("iperf3-"))
        .map(|entry| {
            let text = fs::read_to_string(entry.path()).unwrap();
            let of = |side: &str| -> Vec<u8> {
                text.lines().filter_map(|line| line.strip_prefix(side)).flat_map(unhex).collect()
            };
            let name = entry.file_name().to_string_lossy().into_owned();
            Transcript { name, client: of("C "), server: of("S ") }
        })
        .collect();
    found.sort_by(|one, other| one.name.cmp(&other.name));
    found
}

fn unhex(line: &str) -> Vec<u8> {
    let byte = |at: usize| u8::from_str_radix(&line[at..at + 2], 16).unwrap();
    (0..line.len()).step_by(2).map(byte).collect()
}

/// Feeds `bytes` in pieces of `size` and returns the events.
fn events<M: StateMachine>(machine: &mut M, bytes: &[u8], size: usize) -> Vec<M::Event> {
    let mut events = Vec::new();
    for piece in bytes.chunks(size) {
        machine.push(piece);
        while let Some(event) = machine.next().unwrap() {
            events.push(event);
        }
    }
    events
}

fn streams(parameters: &Parameters) -> usize {
    parameters.parallel as usize * if parameters.bidirectional { 2 } else { 1 }
}

/// Returns the document that begins at `at`, and the place behind it.
fn document(bytes: &[u8], at: usize) -> (&[u8], usize) {
    let length = u32::from_be_bytes(*bytes[at..].first_chunk().unwrap()) as usize;
    (&bytes[at + 4..at + 4 + length], at + 4 + length)
}

#[test]
fn several_versions_are_recorded() {
    let names: Vec<_> = transcripts().into_iter().map(|one| one.name).collect();
    for version in ["3.1", "3.7", "3.12", "3.16", "3.21"] {
        let of = names.iter().filter(|name| name.starts_with(&format!("iperf3-{version}-")));
        assert!(of.count() >= 3, "{version}: {names:?}");
    }
}

#[test]
fn the_bytes_of_every_server_become_the_events_of_a_client() {
    for Transcript { name, client, server } in transcripts() {
        let (parameters, _) = document(&client, COOKIE_BYTES);
        let parameters = Parameters::read(&serde_json::from_slice(parameters).unwrap());
        for size in [1, 7, 4096] {
            let mut machine = ClientMachine::new(streams(&parameters), false);
            let events = events(&mut machine, &server, size);
            let [first @ .., ClientEvent::Results(results), ClientEvent::Finish] = &events[..]
            else {
                panic!("{name}: {events:?}")
            };
            let expected = [
                ClientEvent::SendParameters,
                ClientEvent::OpenStreams,
                ClientEvent::Start,
                ClientEvent::Run,
                ClientEvent::SendResults,
            ];
            assert_eq!(first, expected, "{name}");
            check(&name, results, streams(&parameters));
        }
    }
}

fn check(name: &str, results: &Results, streams: usize) {
    let ids: Vec<_> = results.streams.iter().map(|stream| stream.id).collect();
    let expected: Vec<_> = (0..streams).map(stream_id).collect();
    assert_eq!(ids, expected, "{name}");
    assert!(results.streams.iter().all(|stream| stream.bytes > 0), "{name}: {results:?}");
    let times = results.streams.iter().all(|stream| stream.end_time.is_some());
    assert_eq!(times, !name.contains("-3.1-"), "{name}");
    let omitted = results.streams.iter().all(|stream| stream.omitted_packets.is_some());
    let since_3_14 = name.contains("-3.16-") || name.contains("-3.21-");
    assert_eq!(omitted, since_3_14, "{name}");
}

#[test]
fn the_bytes_of_every_client_become_the_events_of_a_server() {
    for Transcript { name, client, .. } in transcripts() {
        let events = events(&mut ServerMachine::default(), &client[COOKIE_BYTES..], 5);
        let [
            ServerEvent::Parameters(parameters),
            ServerEvent::End,
            ServerEvent::Results(results),
            ServerEvent::Done,
        ] = &events[..]
        else {
            panic!("{name}: {events:?}")
        };
        let plan = parameters.plan().unwrap();
        let direction = match name.rsplit('-').next() {
            Some("reverse.txt") => Direction::Reverse,
            Some("bidir.txt") => Direction::Both,
            _ => Direction::Forward,
        };
        assert_eq!(plan.direction, direction, "{name}");
        check(&name, results, streams(parameters));
        if name.ends_with("options.txt") {
            assert_eq!((plan.dscp, plan.nodelay, plan.omit.as_secs()), (Some(46), true, 1));
            assert_eq!(plan.window_bytes.map(|window| window.get()), Some(65_536));
        }
    }
}

#[test]
fn our_messages_have_the_bytes_of_the_program() {
    for Transcript { name, client, server } in transcripts() {
        let (recorded, end) = document(&client, COOKIE_BYTES);
        let parameters = Parameters::read(&serde_json::from_slice(recorded).unwrap());
        let ours = serde_json::to_string(&parameters).unwrap();
        // The older versions leave out an end of the test that is 0.
        let left_out: &[&str] = match name.split('-').nth(1) {
            Some("3.1") => &["time", "num", "blockcount"],
            Some("3.7") => &["num", "blockcount"],
            _ => &[],
        };
        let without = |ours: String, end: &&str| ours.replace(&format!("\"{end}\":0,"), "");
        let ours = left_out.iter().fold(ours, without);
        assert_eq!(ours, String::from_utf8_lossy(recorded), "{name}");
        assert_eq!(client[end], State::TestEnd.byte());
        assert_eq!(client.last(), Some(&State::Done.byte()));
        assert_eq!(server[..4], [9, 10, 1, 2], "{name}");
        // The order of the fields and the states around them.
        let (recorded, end) = document(&client, end + 1);
        let results = Results::read(&serde_json::from_slice(recorded).unwrap(), 2).unwrap();
        let ours = serde_json::to_string(&results).unwrap();
        assert_eq!(keys(&ours), keys(&String::from_utf8_lossy(recorded)), "{name}");
        assert_eq!(client[end..], [State::Done.byte()]);
    }
}

/// Returns the names of all fields in their order.
fn keys(document: &str) -> Vec<String> {
    document.split('"').skip(1).step_by(2).map(ToOwned::to_owned).collect()
}

#[test]
fn a_connection_that_breaks_anywhere_is_no_panic() {
    for Transcript { client, server, .. } in transcripts() {
        for end in 0..server.len() {
            let mut machine = ClientMachine::new(2, false);
            machine.push(&server[..end]);
            while let Ok(Some(_)) = machine.next() {}
            let _ = machine.closed();
        }
        for end in COOKIE_BYTES..client.len() {
            let mut machine = ServerMachine::default();
            machine.push(&client[COOKIE_BYTES..end]);
            while let Ok(Some(_)) = machine.next() {}
        }
    }
}
