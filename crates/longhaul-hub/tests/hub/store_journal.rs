//! The part of the conformance suite of the store about events, data that the hub sends, and changes of
//! paths.

use longhaul_fleet::protocol::{InterfaceRow, Severity};
use longhaul_hub::Route;
use longhaul_hub::records::events::{self, EventFilter, NewEvent};
use longhaul_hub::records::paths::{self, PathChange};
use longhaul_hub::records::series::{self};
use longhaul_hub::records::shipments::{self, Claim, Item};
use longhaul_hub::samples::{Kind, interface_row};
use longhaul_hub::store::Store;

use crate::store::DAY;

pub(crate) async fn events_and_outbox(store: &Store) {
    let event = |origin: &str| NewEvent {
        at_ms: 10,
        severity: Severity::Error,
        kind: "agent_away".to_owned(),
        subject: "<script>".to_owned(),
        message: "x".to_owned(),
        origin: origin.to_owned(),
    };
    let (new, repeated) = (event("one"), event("one"));
    let (first, second) = store
        .write(move |sql| {
            Ok((events::add_event(sql, "e1", &new)?, events::add_event(sql, "e2", &repeated)?))
        })
        .await
        .unwrap();
    assert_eq!((first.as_deref(), second), (Some("e1"), None));
    let (taken, taken_again, open, acknowledged, after) = store
        .write(|sql| {
            events::queue(sql, "e1", "mail", 0)?;
            events::queue(sql, "e1", "mail", 0)?;
            let other = events::take_outgoing(sql, "exec", (5, 100))?;
            assert_eq!(other, None, "each channel has its queue");
            let taken = events::take_outgoing(sql, "mail", (5, 100))?;
            let again = events::take_outgoing(sql, "mail", (5, 100))?;
            events::postpone(sql, ("e1", "mail"), 200)?;
            assert_eq!(events::take_outgoing(sql, "mail", (199, 300))?, None);
            let later = events::take_outgoing(sql, "mail", (200, 300))?;
            assert_eq!(later.map(|one| one.attempts), Some(1));
            let open = EventFilter { open: true, ..EventFilter::default() };
            let before = events::events(sql, &open, 10)?;
            assert!(events::acknowledge(sql, "e1", "ann", 20)?);
            assert!(events::acknowledge(sql, "e1", "bob", 30)?);
            assert!(!events::acknowledge(sql, "none", "bob", 30)?);
            let after = events::events(sql, &open, 10)?;
            Ok((taken, again, before, after, events::events_after(sql, "e0", 10)?))
        })
        .await
        .unwrap();
    assert_eq!((taken.map(|one| one.attempts), taken_again), (Some(0), None));
    let left = store
        .write(|sql| {
            for at in 0..1010 {
                let id = format!("f{at:04}");
                let new = NewEvent {
                    at_ms: 10,
                    severity: Severity::Info,
                    kind: "k".to_owned(),
                    subject: "s".to_owned(),
                    message: "m".to_owned(),
                    origin: id.clone(),
                };
                events::add_event(sql, &id, &new)?;
                events::queue(sql, &id, "slow", 0)?;
            }
            let earliest = events::take_outgoing(sql, "slow", (5, 100))?;
            events::remove_unsent(sql, 50)?;
            let rest = events::take_outgoing(sql, "slow", (5, 100))?;
            Ok((earliest.map(|one| one.event.id), rest))
        })
        .await
        .unwrap();
    assert_eq!(left, (Some("f0010".to_owned()), None), "1000 notifications wait at most");
    assert_eq!((open.len(), open[0].repeats, acknowledged.len()), (1, 2, 0));
    assert_eq!(after[0].acknowledged_by.as_deref(), Some("ann"));
}

pub(crate) async fn journal_of_new_data(store: &Store) {
    let start = 2_000 * DAY;
    let row = move |at: i64| {
        let end_ms = start + at * 1000;
        interface_row(InterfaceRow { end_ms, span_ms: 1000, ..InterfaceRow::default() })
    };
    let claims = store
        .write(move |sql| {
            // A new stream begins with the data that arrive later.
            shipments::ship(sql, &[], &["old".to_owned()], 5)?;
            let first = shipments::claim(sql, "s", (1, 10, 100))?;
            let name = (Kind::Interface, "journal", "eth0");
            let added = series::add_rows(sql, name, None, &[row(1), row(2), row(7200)])?;
            assert_eq!(added.blocks.len(), 2, "one block per half an hour: {added:?}");
            let again = series::add_rows(sql, name, None, &[row(1), row(2)])?;
            assert_eq!(again.blocks, [], "a repeated block is not new");
            shipments::ship(sql, &added.blocks, &["r1".to_owned()], 10)?;
            let other = shipments::claim(sql, "s", (2, 50, 100))?;
            let later = shipments::claim(sql, "s", (2, 150, 200))?;
            Ok((first, other, later))
        })
        .await
        .unwrap();
    let Claim::Granted { position } = claims.0 else { panic!("{claims:?}") };
    assert_eq!((claims.1, claims.2), (Claim::Taken, Claim::Granted { position }));
    let (waiting, block, rest) = store
        .write(move |sql| {
            let waiting = shipments::waiting(sql, position, 10)?;
            let Item::Block { series, start_ms } = waiting[0].item else { panic!("{waiting:?}") };
            let block = shipments::block(sql, series, start_ms)?;
            assert_eq!(shipments::block(sql, series, start_ms + 1)?, None);
            shipments::advance(sql, "s", waiting[1].position)?;
            let Claim::Granted { position } = shipments::claim(sql, "s", (2, 151, 200))? else {
                panic!("the same hub continues")
            };
            let rest = shipments::waiting(sql, position, 10)?;
            shipments::remove_shipments(sql, 100)?;
            assert_eq!(shipments::waiting(sql, position, 10)?, []);
            Ok((waiting, block.unwrap(), rest))
        })
        .await
        .unwrap();
    assert_eq!(waiting.len(), 3);
    assert_eq!(
        (block.host.as_str(), block.name.as_str(), block.points.len()),
        ("journal", "eth0", 2)
    );
    assert_eq!(rest.len(), 1);
    assert_eq!(rest[0].item, Item::Run { run: "r1".to_owned() });
}

pub(crate) async fn changes_of_paths(store: &Store) {
    let change = |at_ms: i64, mtu: u32| PathChange {
        at_ms,
        run: format!("p{at_ms}"),
        route: Route { mtu: Some(mtu), ..Route::default() },
    };
    let (first, same, new, all) = store
        .write(move |sql| {
            let pair = ("a", "b");
            let first = paths::note_route(sql, pair, &change(10, 9000))?;
            let same = paths::note_route(sql, pair, &change(20, 9000))?;
            let new = paths::note_route(sql, pair, &change(30, 1500))?;
            paths::note_route(sql, ("b", "a"), &change(30, 1500))?;
            let all = paths::path_changes(sql, pair, (25, 100), 10)?;
            paths::remove_path_changes(sql, 100)?;
            assert_eq!(paths::path_changes(sql, pair, (0, 100), 10)?.len(), 1);
            Ok((first, same, new, all))
        })
        .await
        .unwrap();
    assert_eq!((first, same), (None, None));
    assert_eq!(new, Some(vec!["path MTU 9000 B \u{2192} 1500 B".to_owned()]));
    let times: Vec<i64> = all.iter().map(|change| change.at_ms).collect();
    assert_eq!(times, [30, 10], "the change, and the route before it");
}
