//! Passes hostile input to every reader of messages: noise, and messages with a few bytes changed,
//! removed, doubled or enlarged. These tests always run; `fuzz/` searches longer and by coverage.

// Its items are public for the fuzz targets.
#[allow(unreachable_pub)]
#[path = "../../../fuzz/src/entries.rs"]
mod entries;

use longhaul_core::result::{SideResult, SideSample};
use longhaul_core::wire::{TestEvent, TestOrder, Welcome, read_frame};
use proptest::prelude::*;

/// One change to a message.
#[derive(Debug, Clone)]
enum Change {
    Set(usize, u8),
    Cut(usize),
    Double(usize),
    /// A digit becomes a number as large as any, or one that is none of its kind.
    Number(usize, &'static str),
    /// The length field has another value.
    Length(u32),
}

fn change() -> impl Strategy<Value = Change> {
    let at = any::<usize>();
    let numbers = prop::sample::select(vec![
        "18446744073709551615",
        "9007199254740993",
        "-1",
        "1e308",
        "-1e308",
        "1e-300",
        "4294967296",
        "null",
        "[]",
    ]);
    prop_oneof![
        (at, any::<u8>()).prop_map(|(at, byte)| Change::Set(at, byte)),
        at.prop_map(Change::Cut),
        at.prop_map(Change::Double),
        (at, numbers).prop_map(|(at, number)| Change::Number(at, number)),
        any::<u32>().prop_map(Change::Length),
    ]
}

fn apply(message: &mut Vec<u8>, change: &Change) {
    if message.is_empty() {
        return;
    }
    match *change {
        Change::Set(at, byte) => {
            let at = at % message.len();
            message[at] = byte;
        }
        Change::Cut(at) => message.truncate(at % message.len()),
        Change::Double(at) => {
            let tail = message[at % message.len()..].to_vec();
            message.extend(tail);
        }
        Change::Number(at, number) => {
            let digits: Vec<usize> = message
                .iter()
                .enumerate()
                .skip(4)
                .filter(|(_, byte)| byte.is_ascii_digit())
                .map(|(at, _)| at)
                .collect();
            if let Some(at) = at.checked_rem(digits.len()).map(|n| digits[n]) {
                message.splice(at..=at, number.bytes());
                relength(message);
            }
        }
        Change::Length(length) if message.len() >= 4 => {
            message[..4].copy_from_slice(&length.to_be_bytes());
        }
        Change::Length(_) => {}
    }
}

/// Makes the first frame as long as the message, so that changes within it are read.
fn relength(message: &mut [u8]) {
    let length = message.len() as u32 - 4;
    message[..4].copy_from_slice(&length.to_be_bytes());
}

fn mutated(entry: &'static str) -> impl Strategy<Value = Vec<u8>> {
    let seeds = entries::seeds(entry);
    (prop::sample::select(seeds), prop::collection::vec(change(), 0..6)).prop_map(
        |(mut message, changes)| {
            changes.iter().for_each(|change| apply(&mut message, change));
            message
        },
    )
}

/// Every entry on `cases` inputs that `inputs` makes for it.
fn hammer<S: Strategy<Value = Vec<u8>>>(cases: u32, inputs: impl Fn(&'static str) -> S) {
    for (name, entry) in entries::ENTRIES {
        let config =
            ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases) };
        let mut runner = proptest::test_runner::TestRunner::new(config);
        let outcome = runner.run(&inputs(name), |bytes| {
            entry(&bytes);
            Ok(())
        });
        outcome.unwrap_or_else(|failure| panic!("{name}: {failure}"));
    }
}

#[test]
fn noise_is_refused() {
    hammer(2000, |_| prop::collection::vec(any::<u8>(), 0..300));
}

#[test]
fn changed_messages_are_read_or_refused() {
    hammer(4000, mutated);
}

/// The seeds must be valid messages, or the tests would change noise.
#[test]
fn the_seeds_are_messages() {
    let reads = |bytes: &Vec<u8>| {
        let mut rest = bytes.as_slice();
        read_frame::<TestEvent>(&mut rest).is_ok() && rest.is_empty()
            || read_frame::<TestEvent>(&mut bytes.as_slice()).is_ok()
    };
    assert!(entries::seeds("test_event").iter().all(reads));
    let orders = entries::seeds("test_order");
    assert!(orders.iter().all(|o| read_frame::<TestOrder>(&mut o.as_slice()).is_ok()));
    let welcomes = &entries::seeds("opening")[1..];
    assert!(welcomes.iter().all(|w| read_frame::<Welcome>(&mut w.as_slice()).is_ok()));
    let event: TestEvent = read_frame(&mut entries::seeds("test_event")[0].as_slice()).unwrap();
    let TestEvent::Sample(SideSample { host: Some(_), streams, .. }) = event else {
        panic!("{event:?}")
    };
    assert!(streams[0].tcp.is_some() && streams[0].udp.is_some() && streams[0].thread.is_some());
    let event: TestEvent = read_frame(&mut entries::seeds("test_event")[1].as_slice()).unwrap();
    assert!(matches!(event, TestEvent::Done(SideResult { curve: Some(_), .. })), "{event:?}");
}
