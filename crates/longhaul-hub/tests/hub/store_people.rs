//! The part of the conformance suite of the store about users, enrollments and agents.

use longhaul_fleet::api::UserRole;
use longhaul_fleet::protocol::{AgentState, EnrollRequest, RefusalCode};
use longhaul_hub::records::agents::{self, Accepted, Contact};
use longhaul_hub::records::people::{self, ApiToken, BrowserSession, MOST_LOGINS, Person};
use longhaul_hub::store::{Sql, Store, StoreError};
use serde_json::json;

pub(crate) async fn people_and_sessions(store: &Store) {
    let person = Person { name: "ann".to_owned(), role: UserRole::Operator, created_ms: 5 };
    let added = store
        .write(move |sql| {
            let first = people::add_person(sql, &person, "hash")?;
            let second = people::add_person(sql, &person, "other")?;
            let session = BrowserSession {
                person: person.name.clone(),
                role: person.role,
                csrf: "c".to_owned(),
            };
            people::open_session(sql, "cookie", &session, 100)?;
            Ok((
                first,
                second,
                people::session(sql, "cookie", (99, 100))?,
                // It has expired, or a clock that was ahead opened it.
                people::session(sql, "cookie", (100, 200))?.or(people::session(
                    sql,
                    "cookie",
                    (0, 99),
                )?),
            ))
        })
        .await
        .unwrap();
    assert!(added.0 && !added.1);
    assert_eq!(added.2.unwrap().role, UserRole::Operator);
    assert_eq!(added.3, None);
    let (known, ended) = store
        .write(|sql| {
            let known = people::set_password(sql, "ann", "new")?;
            Ok((known, people::session(sql, "cookie", (0, 100))?))
        })
        .await
        .unwrap();
    assert!(known);
    assert_eq!(ended, None, "a new password ends the sessions");
    let password = store.read(|sql| people::password_of(sql, "ann")).await.unwrap();
    assert_eq!(password, Some(("new".to_owned(), UserRole::Operator)));
    store.write(many_logins).await.unwrap();
}

/// Checks that a user who logs in for ever keeps a bounded number of sessions and tokens.
fn many_logins(sql: &mut dyn Sql) -> Result<(), StoreError> {
    let person = || "ann".to_owned();
    for at in 0..MOST_LOGINS + 5 {
        let session =
            BrowserSession { person: person(), role: UserRole::Operator, csrf: "c".to_owned() };
        people::open_session(sql, &format!("s{at}"), &session, 1000 + at)?;
        let token = ApiToken { person: person(), label: String::new(), expires_ms: 1000 + at };
        people::add_bearer(sql, &format!("b{at}"), &token, 0)?;
    }
    for table in ["session", "bearer"] {
        let rows = sql.query(&format!("SELECT count(*), min(expires_ms) FROM {table}"), &[])?;
        assert_eq!((rows[0].int(0)?, rows[0].int(1)?), (MOST_LOGINS, 1005), "{table}");
    }
    people::remove_expired(sql, 2000)
}

pub(crate) async fn enrollment_and_counters(store: &Store) {
    let request = EnrollRequest {
        secret: String::new(),
        host: "a".to_owned(),
        public_key: "key".to_owned(),
        version: "1".to_owned(),
    };
    let other = EnrollRequest { public_key: "other".to_owned(), ..request.clone() };
    let elsewhere = EnrollRequest { host: "b".to_owned(), ..request.clone() };
    let outcomes = store
        .write(move |sql| {
            agents::add_enrollment(sql, "h", "a", 1000)?;
            agents::add_enrollment(sql, "old", "a", 10)?;
            Ok([
                agents::enroll(sql, ("unknown", "x"), &request, 20)?,
                agents::enroll(sql, ("old", "x"), &request, 20)?,
                agents::enroll(sql, ("h", "x"), &elsewhere, 20)?,
                agents::enroll(sql, ("h", "one"), &request, 20)?,
                agents::enroll(sql, ("h", "two"), &request, 30)?,
                agents::enroll(sql, ("h", "two"), &other, 40)?,
                agents::enroll(sql, ("h", "two"), &request, 20 + 600_000)?,
            ])
        })
        .await
        .unwrap();
    assert_eq!(
        outcomes,
        [
            Err(RefusalCode::UnknownToken),
            Err(RefusalCode::UnknownToken),
            Err(RefusalCode::OtherHost),
            Ok("one".to_owned()),
            Ok("one".to_owned()),
            Err(RefusalCode::TokenUsed),
            Err(RefusalCode::TokenUsed),
        ]
    );
    let contact = |agent: &str, counter| Contact {
        agent: agent.to_owned(),
        counter,
        address: "192.0.2.1".to_owned(),
        boot: "boot".to_owned(),
        clock_offset_ms: -3,
        state: AgentState { version: "1".to_owned(), ..AgentState::default() },
    };
    let all = [contact("one", 5), contact("one", 5), contact("one", 6), contact("none", 1)];
    let accepted = store
        .write(move |sql| {
            all.iter().map(|one| agents::contact(sql, one, 100)).collect::<Result<Vec<_>, _>>()
        })
        .await
        .unwrap();
    assert_eq!(
        accepted,
        [
            Accepted::New { back: true },
            Accepted::Replayed { counter: 5 },
            Accepted::New { back: false },
            Accepted::Unknown,
        ]
    );
    let last = contact("one", 7);
    let (away, revoked, refused, facts) = store
        .write(move |sql| {
            let away = agents::mark_away(sql, 101, 0)?;
            agents::add_facts(sql, "one", &json!({"kernel": "6.1"}), 50)?;
            let facts = (agents::facts(sql, "one", 49)?, agents::facts(sql, "one", 51)?);
            let revoked = agents::revoke(sql, "one", 200)?;
            Ok((away, revoked, agents::contact(sql, &last, 300)?, facts))
        })
        .await
        .unwrap();
    assert_eq!(away, ["a"]);
    assert_eq!(revoked, Some(("one".to_owned(), "a".to_owned())));
    assert_eq!(refused, Accepted::Revoked);
    assert_eq!(facts, (None, Some((50, json!({"kernel": "6.1"})))));
}

/// Checks that a contact before the clock stepped back does not hide an absence.
pub(crate) async fn absences(store: &Store) {
    let hour = 3_600_000;
    let add = move |sql: &mut dyn Sql| {
        sql.execute(
            "INSERT INTO agent (id, host, public_key, enrolled_ms, counter, seen_ms, present)
             VALUES ('f', 'f', 'k', 0, 0, $1, 1)",
            &[hour.into()],
        )?;
        let at_once = agents::mark_away(sql, 1000, 60_000)?;
        let in_time = agents::mark_away(sql, 61_000, 60_000)?;
        Ok((at_once, in_time, agents::mark_away(sql, 61_001, 60_000)?))
    };
    let (at_once, in_time, later) = store.write(add).await.unwrap();
    assert_eq!((at_once, in_time, later), (vec![], vec![], vec!["f".to_owned()]));
}
