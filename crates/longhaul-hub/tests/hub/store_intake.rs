//! The conformance of the store: the daily limits on the bytes of an agent.

use longhaul_fleet::protocol::InterfaceRow;
use longhaul_hub::records::intake::{self, Intake};
use longhaul_hub::records::runs;
use longhaul_hub::records::series::{self, NewRows};
use longhaul_hub::samples::{Kind, interface_row};
use longhaul_hub::store::{Sql, Store, Value};

use crate::store::DAY;

/// Checks that an agent has room for a number of bytes per part and day.
pub(crate) async fn daily_limits(store: &Store) {
    let most = Intake::Samples.most_bytes();
    let rooms = store
        .write(move |sql| {
            let noon = 1000 * DAY + DAY / 2;
            let take = |sql: &mut dyn Sql, agent, bytes, at| {
                intake::add_bytes(sql, (agent, Intake::Samples), bytes, at)
            };
            take(sql, "one", most - 10, noon - DAY)?;
            take(sql, "one", 7, noon)?;
            take(sql, "one", 5, noon + 1)?;
            take(sql, "two", most + 5, noon)?;
            let mut room = |agent, part, at| intake::remaining_bytes(sql, agent, part, at);
            Ok([
                room("one", Intake::Samples, noon)?,
                room("two", Intake::Samples, noon)?,
                room("two", Intake::Samples, noon + DAY)?,
                room("two", Intake::Events, noon)?,
                room("none", Intake::Documents, noon)?,
            ])
        })
        .await
        .unwrap();
    let [events, documents] = [Intake::Events, Intake::Documents].map(Intake::most_bytes);
    assert_eq!(rooms, [most - 12, 0, most, events, documents]);
}

/// Checks the sizes of documents, and that blocks beyond the accepted bytes are not stored.
pub(crate) async fn documents_and_blocks(store: &Store) {
    let rows = |name: &str, at: i64| NewRows {
        name: name.to_owned(),
        speed_bps: None,
        rows: vec![interface_row(InterfaceRow {
            end_ms: 2000 * DAY + at,
            span_ms: 1000,
            ..InterfaceRow::default()
        })],
    };
    let (one, [first, again, none], bytes) = store
        .write(move |sql| {
            let host = (Kind::Interface, "intake");
            let one = series::add_series(sql, host, vec![rows("a", 0)], i64::MAX)?.bytes;
            let two = || vec![rows("a", 1000), rows("b", 1000), rows("c", 1000)];
            let added = [
                series::add_series(sql, host, two(), 2 * one + 1)?,
                series::add_series(sql, host, two(), i64::MAX)?,
                series::add_series(sql, host, two(), 0)?,
            ];
            let document = [Value::from(vec![7_u8; 9])];
            sql.execute(
                "INSERT INTO run_document (run, at_ms, document) VALUES ('intake', 0, $1)",
                &document,
            )?;
            let bytes = [runs::document_bytes(sql, "intake")?, runs::document_bytes(sql, "none")?];
            sql.execute("DELETE FROM run_document WHERE run = 'intake'", &[])?;
            sql.execute(
                "DELETE FROM chunk WHERE series IN (SELECT id FROM series WHERE host = 'intake')",
                &[],
            )?;
            sql.execute("DELETE FROM series WHERE host = 'intake'", &[])?;
            Ok((one, added, bytes))
        })
        .await
        .unwrap();
    assert!((64..128).contains(&one), "{one}");
    assert_eq!((first.blocks.len(), first.bytes, first.is_full), (2, 2 * one, true));
    assert_eq!((again.blocks.len(), again.bytes, again.is_full), (1, one, false));
    assert_eq!((none.blocks.len(), none.bytes, none.is_full), (0, 0, true));
    assert_eq!(bytes, [9, 0]);
}
