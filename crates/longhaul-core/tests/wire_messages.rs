//! The messages and headers of the wire protocol, byte for byte; see docs/design/wire.md.
//!
//! `fixtures/wire-3.txt` has one message per line: its type, a tab, and its JSON, or the bytes of a
//! binary header in hexadecimal. A change of a line that this version sends breaks older peers.

use std::collections::BTreeSet;

use longhaul_core::wire::copy::{
    CheckMessage, CopyReply, CopyRequest, Names, SinkMessage, SourceMessage,
};
use longhaul_core::wire::{
    AnyHello, BlockHeader, DataHello, DatagramHeader, DiagnoseEvent, DiagnoseOrder, FarReady,
    Greeting, GreetingKind, Hello, MAC_BYTES, PackEntry, PathEvent, PathOrder, ProbeHeader,
    ProbeKind, SessionId, TestEvent, TestOrder, ThirdEvent, ThirdOrder, Welcome,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

const FIXTURE: &str = include_str!("fixtures/wire-3.txt");

/// Returns the fixture's messages of type `name`.
fn messages(name: &str) -> Vec<&'static str> {
    let pairs = FIXTURE.lines().filter_map(|line| line.split_once('\t'));
    pairs.filter(|(of, _)| *of == name).map(|(_, text)| text).collect()
}

/// Runs `$check` for every type of JSON message.
macro_rules! for_every_message {
    ($check:ident) => {
        for_every_message!($check: Hello, FarReady, Welcome, TestOrder, TestEvent, ThirdOrder,
            ThirdEvent, PathOrder, PathEvent, DiagnoseOrder, DiagnoseEvent, CopyRequest, CopyReply,
            Names, CheckMessage, SourceMessage, SinkMessage)
    };
    ($check:ident: $($message:ident),*) => { $($check::<$message>(stringify!($message));)* };
}

#[test]
fn every_message_is_encoded_as_in_the_fixture() {
    fn check<T: Serialize + DeserializeOwned>(name: &str) {
        for text in messages(name) {
            let message: T =
                serde_json::from_str(text).unwrap_or_else(|error| panic!("{name} {text}: {error}"));
            assert_eq!(serde_json::to_string(&message).unwrap(), text, "{name}");
        }
    }
    for_every_message!(check);
}

/// Returns the variants of an enum, as serde names them in its error about an unknown one.
fn variants<T: DeserializeOwned>() -> BTreeSet<String> {
    let error = serde_json::from_str::<T>(r#"{"no such variant":1}"#).err();
    let text = error.map(|error| error.to_string()).unwrap_or_default();
    let expected = text.split_once("expected").map_or("", |(_, names)| names);
    expected.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn every_variant_of_every_message_is_in_the_fixture() {
    fn check<T: DeserializeOwned>(name: &str) {
        let tag = |text: &str| match serde_json::from_str(text).unwrap() {
            Value::Object(object) => object.keys().next().cloned().unwrap_or_default(),
            other => other.as_str().unwrap_or_default().to_owned(),
        };
        let found: BTreeSet<String> = messages(name).into_iter().map(tag).collect();
        let missing: Vec<_> = variants::<T>().difference(&found).cloned().collect();
        assert!(missing.is_empty(), "{name} lacks {missing:?}");
        assert!(!found.is_empty(), "{name} has no message");
    }
    for_every_message!(check);
    assert_eq!(variants::<Welcome>().len(), 3, "serde names the variants");
}

/// The names of variants with fields that are objects with one key. Nothing can be added beside
/// them.
const TAGS: &str = "accepted actions addresses alive arrivals arrived begin block_device bytes \
    changed char_device check counted count digests done end entries examine extra failed failures \
    file findings finished forget forward fresh hard_link hops length limit listening looked \
    missing mtu on open opened plan progress queued read ready receive refused report resend \
    router run sample seconds send send_trains sent sent_trains skipped streams symlink tcp wanted \
    write abort";

/// Returns the paths to all objects in `value`, as JSON pointers.
fn objects(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(object) => {
            found.push(at.to_owned());
            object.iter().for_each(|(key, inner)| objects(inner, &format!("{at}/{key}"), found));
        }
        Value::Array(array) => {
            let inner = array.iter().enumerate();
            inner.for_each(|(i, inner)| objects(inner, &format!("{at}/{i}"), found));
        }
        _ => {}
    }
}

fn is_tag(object: &Map<String, Value>) -> bool {
    let mut keys = object.keys();
    let first = keys.next().map_or("", String::as_str);
    keys.next().is_none() && TAGS.split_whitespace().any(|tag| tag == first)
}

#[test]
fn an_unknown_field_in_any_object_is_ignored() {
    fn check<T: Serialize + DeserializeOwned>(name: &str) {
        for text in messages(name) {
            let message: Value = serde_json::from_str(text).unwrap();
            let mut places = Vec::new();
            objects(&message, "", &mut places);
            for place in places {
                let mut changed = message.clone();
                let object = changed.pointer_mut(&place).unwrap().as_object_mut().unwrap();
                let may_fail = is_tag(object);
                object.insert("added_by_a_later_version".to_owned(), serde_json::json!({"x": [1]}));
                let read: T = match serde_json::from_value(changed) {
                    Ok(read) => read,
                    Err(_) if may_fail => continue,
                    Err(error) => panic!("{name} {text} at '{place}': {error}"),
                };
                assert_eq!(serde_json::to_string(&read).unwrap(), text, "{name} at '{place}'");
            }
        }
    }
    for_every_message!(check);
}

#[test]
fn a_server_reads_the_hello_of_any_client() {
    for text in messages("Hello") {
        let hello: Hello = serde_json::from_str(text).unwrap();
        let any: AnyHello = serde_json::from_str(text).unwrap();
        assert_eq!((any.protocol, any.service()), (hello.protocol, Some(hello.service)));
    }
}

/// Returns the binary headers, in the order of the fixture.
fn headers() -> Vec<(&'static str, Vec<u8>)> {
    let session = SessionId(*b"0123456789abcdef");
    let mac = [0xAA; MAC_BYTES];
    let hello = DataHello { session, stream: 7 };
    let mut headers = vec![("DataHello", hello.encode(&mac).to_vec())];
    for kind in
        [GreetingKind::Hello, GreetingKind::Challenge, GreetingKind::Confirm, GreetingKind::Accept]
    {
        let greeting = Greeting { kind, session, stream: 7, cookie: *b"cookies" };
        headers.push(("Greeting", greeting.encode(&mac).to_vec()));
    }
    for end in [false, true] {
        let header =
            DatagramHeader { tag: 0x0102_0304_0506_0708, number: 9, end, time_ns: 1 << 40 };
        headers.push(("DatagramHeader", header.encode().to_vec()));
    }
    for header in [
        BlockHeader::Block { file: 3, offset: 1 << 33, length: 4 << 20 },
        BlockHeader::End,
        BlockHeader::Pack { files: 1024, length: 1 << 20 },
    ] {
        headers.push(("BlockHeader", header.encode().to_vec()));
    }
    headers.push(("PackEntry", PackEntry { file: 1 << 40, length: 5 }.encode().to_vec()));
    for kind in [ProbeKind::Request, ProbeKind::Answer, ProbeKind::Stream, ProbeKind::Train] {
        let header = ProbeHeader {
            tag: 0x0102_0304_0506_0708,
            kind,
            train: 2,
            answer_bytes: 1472,
            number: 3,
            sent_ns: 4,
            arrived_ns: 5,
            last: 6,
        };
        headers.push(("ProbeHeader", header.encode().to_vec()));
    }
    headers
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn every_header_is_encoded_as_in_the_fixture() {
    let headers = headers();
    let names: BTreeSet<&str> = headers.iter().map(|(name, _)| *name).collect();
    let of = |name| headers.iter().filter(move |header| header.0 == name);
    for name in names {
        let encoded: Vec<String> = of(name).map(|(_, bytes)| hex(bytes)).collect();
        assert_eq!(encoded, messages(name), "{name}");
    }
}
