//! Events, their acknowledgement, and the notifications that wait to be sent.

use longhaul_fleet::protocol::Severity;
use serde::{Deserialize, Serialize};

use super::runs::{name_of, named};
use crate::clock::{HOUR, MINUTE};
use crate::store::{Row, Sql, StoreError, Value, first, values};

/// The maximum number of notifications of a channel that wait.
const MOST_WAITING: i64 = 1000;

/// The longest pause before another attempt to send a notification, in ms.
pub(crate) const MOST_PAUSE_MS: i64 = HOUR;

/// An event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Event {
    /// The id; a later event has a higher one.
    pub id: String,
    /// The time in ms since 1970.
    pub at_ms: i64,
    /// The severity: `info`, `warning` or `error`.
    #[schema(value_type = String)]
    pub severity: Severity,
    /// The kind, such as `agent_away` or `cell_critical`.
    pub kind: String,
    /// The host or pair (`A > B`).
    pub subject: String,
    /// The description, one sentence.
    pub message: String,
    /// The number of events with the same origin.
    pub repeats: i64,
    /// The user who acknowledged the event.
    pub acknowledged_by: Option<String>,
    /// The time of the acknowledgement in ms since 1970.
    pub acknowledged_ms: Option<i64>,
}

/// A new event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEvent {
    /// The time in ms since 1970.
    pub at_ms: i64,
    /// The severity.
    pub severity: Severity,
    /// The kind.
    pub kind: String,
    /// The host or pair.
    pub subject: String,
    /// The description, one sentence.
    pub message: String,
    /// The identity of the event. A second event with the same origin only counts.
    pub origin: String,
}

impl NewEvent {
    /// Returns whether notifications are sent: for warnings, errors, and the recovery of a cell or
    /// agent.
    pub fn is_notified(&self) -> bool {
        match &*self.kind {
            // A notification about a lost notification would be lost, too.
            "notification_dropped" => false,
            "cell_good" | "agent_present" => true,
            _ => self.severity != Severity::Info,
        }
    }
}

/// Adds an event; returns its id if it is new.
///
/// # Errors
/// The database is unavailable.
pub fn add_event(
    sql: &mut dyn Sql,
    id: &str,
    event: &NewEvent,
) -> Result<Option<String>, StoreError> {
    let rows = sql.query(
        "INSERT INTO event (id, origin, at_ms, severity, kind, subject, message, repeats)
         VALUES ($1, $2, $3, $4, $5, $6, $7, 1)
         ON CONFLICT (origin) DO UPDATE SET repeats = event.repeats + 1 RETURNING id, repeats",
        values![
            id,
            &event.origin,
            event.at_ms,
            name_of(&event.severity).as_str(),
            &event.kind,
            &event.subject,
            &event.message
        ],
    )?;
    let row = rows.first().ok_or(StoreError::Malformed { what: "event" })?;
    Ok((row.int(1)? == 1).then(|| id.to_owned()))
}

/// Adds events, and queues the notifications of new ones for `channels`.
///
/// # Errors
/// The database is unavailable.
pub fn record(
    sql: &mut dyn Sql,
    events: &[NewEvent],
    channels: &[String],
    now: i64,
) -> Result<(), StoreError> {
    for event in events {
        let id = crate::secret::id(now).map_err(|_| StoreError::Closed)?;
        let Some(id) = add_event(sql, &id, event)? else { continue };
        for channel in channels.iter().filter(|_| event.is_notified()) {
            queue(sql, &id, channel, now)?;
        }
    }
    Ok(())
}

const COLUMNS: &str =
    "id, at_ms, severity, kind, subject, message, repeats, person, acknowledged_ms";

fn event(row: &Row) -> Result<Event, StoreError> {
    Ok(Event {
        id: row.text(0)?,
        at_ms: row.int(1)?,
        severity: named(&row.text(2)?)?,
        kind: row.text(3)?,
        subject: row.text(4)?,
        message: row.text(5)?,
        repeats: row.int(6)?,
        acknowledged_by: row.opt_text(7)?,
        acknowledged_ms: row.opt_int(8)?,
    })
}

/// The choice of events of a list; `None` is any.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventFilter {
    /// The kind.
    pub kind: Option<String>,
    /// The host or pair.
    pub subject: Option<String>,
    /// The severity.
    pub severity: Option<Severity>,
    /// True for events that nobody acknowledged, except infos.
    pub open: bool,
    /// The earliest time in ms since 1970.
    pub from_ms: Option<i64>,
    /// Only events with an id below this one.
    pub before: Option<String>,
}

/// Returns the latest events of a choice, the latest first.
///
/// # Errors
/// The database is unavailable.
pub fn events(
    sql: &mut dyn Sql,
    filter: &EventFilter,
    limit: i64,
) -> Result<Vec<Event>, StoreError> {
    let severity = filter.severity.map(|severity| name_of(&severity));
    let parts: [(&str, Option<Value>); 5] = [
        ("kind = ?", filter.kind.as_ref().map(Value::from)),
        ("subject = ?", filter.subject.as_ref().map(Value::from)),
        ("severity = ?", severity.as_ref().map(Value::from)),
        ("at_ms >= ?", filter.from_ms.map(Value::from)),
        ("id < ?", filter.before.as_ref().map(Value::from)),
    ];
    let mut bound = Vec::new();
    let mut place = vec!["1 = 1".to_owned()];
    for (part, value) in parts {
        if let Some(value) = value {
            bound.push(value);
            place.push(part.replace('?', &format!("${}", bound.len())));
        }
    }
    if filter.open {
        place.push("acknowledged_ms IS NULL AND severity <> 'info'".to_owned());
    }
    bound.push(limit.into());
    let query = format!(
        "SELECT {COLUMNS} FROM event WHERE {} ORDER BY id DESC LIMIT ${}",
        place.join(" AND "),
        bound.len()
    );
    sql.query(&query, &bound)?.iter().map(event).collect()
}

/// Returns the events after an id, the earliest first.
///
/// # Errors
/// The database is unavailable.
pub fn events_after(sql: &mut dyn Sql, id: &str, limit: i64) -> Result<Vec<Event>, StoreError> {
    let query = format!("SELECT {COLUMNS} FROM event WHERE id > $1 ORDER BY id LIMIT $2");
    sql.query(&query, values![id, limit])?.iter().map(event).collect()
}

/// Returns the number of events of a subject that were recorded at `since_ms` or later, at most
/// `limit`.
///
/// # Errors
/// The database is unavailable.
pub fn events_since(
    sql: &mut dyn Sql,
    subject: &str,
    since_ms: i64,
    limit: i64,
) -> Result<i64, StoreError> {
    // The id of an event begins with the time of its record.
    let from = crate::secret::id(since_ms).map_err(|_| StoreError::Closed)?;
    let query = "SELECT count(*) FROM
                 (SELECT id FROM event WHERE subject = $1 AND id > $2 LIMIT $3) AS latest";
    first(sql, query, values![subject, &from, limit])?.map_or(Ok(0), |row| row.int(0))
}

/// Notes that `person` acknowledged an event; returns false if it is unknown. The first
/// acknowledgement stays.
///
/// # Errors
/// The database is unavailable.
pub fn acknowledge(
    sql: &mut dyn Sql,
    id: &str,
    person: &str,
    now: i64,
) -> Result<bool, StoreError> {
    let changed = sql.execute(
        "UPDATE event SET person = CASE WHEN person IS NULL THEN $1 ELSE person END,
         acknowledged_ms = CASE WHEN acknowledged_ms IS NULL THEN $2 ELSE acknowledged_ms END
         WHERE id = $3",
        values![person, now, id],
    )?;
    Ok(changed == 1)
}

/// Queues the notification of an event for a channel. If too many wait, the oldest are dropped.
///
/// # Errors
/// The database is unavailable.
pub fn queue(sql: &mut dyn Sql, event: &str, channel: &str, now: i64) -> Result<(), StoreError> {
    sql.execute(
        "INSERT INTO outbox (event, channel, attempts, next_ms) VALUES ($1, $2, 0, $3)
         ON CONFLICT (event, channel) DO NOTHING",
        values![event, channel, now],
    )?;
    sql.execute(
        "DELETE FROM outbox WHERE channel = $1 AND event IN (SELECT event FROM outbox
         WHERE channel = $1 ORDER BY event DESC LIMIT 1000000 OFFSET $2)",
        values![channel, MOST_WAITING],
    )?;
    Ok(())
}

/// A notification to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    /// The event.
    pub event: Event,
    /// The number of failed attempts.
    pub attempts: i64,
}

/// Returns the next notification of a channel that is due at `now`, and reserves it until
/// `until_ms`, so that other hubs do not send it, too.
///
/// # Errors
/// The database is unavailable.
pub fn take_outgoing(
    sql: &mut dyn Sql,
    channel: &str,
    (now, until_ms): (i64, i64),
) -> Result<Option<Outgoing>, StoreError> {
    let columns: Vec<String> = COLUMNS.split(", ").map(|column| format!("e.{column}")).collect();
    let query = format!(
        "SELECT {}, o.attempts FROM outbox o JOIN event e ON e.id = o.event
         WHERE o.channel = $1 AND (o.next_ms <= $2 OR o.next_ms > $3)
         ORDER BY o.next_ms, e.id LIMIT 1",
        columns.join(", ")
    );
    // A later attempt was planned by a clock that was ahead.
    let bound = values![channel, now, now + MOST_PAUSE_MS + MINUTE];
    let Some(row) = first(sql, &query, bound)? else { return Ok(None) };
    let outgoing = Outgoing { event: event(&row)?, attempts: row.int(9)? };
    // Another hub may have taken it since the query.
    let taken = sql.execute(
        "UPDATE outbox SET next_ms = $1, attempts = attempts + 1
         WHERE event = $2 AND channel = $3 AND attempts = $4",
        values![until_ms, &outgoing.event.id, channel, outgoing.attempts],
    )?;
    Ok((taken == 1).then_some(outgoing))
}

/// Sets the time of the next attempt of a notification.
///
/// # Errors
/// The database is unavailable.
pub fn postpone(
    sql: &mut dyn Sql,
    (event, channel): (&str, &str),
    next_ms: i64,
) -> Result<(), StoreError> {
    sql.execute(
        "UPDATE outbox SET next_ms = $1 WHERE event = $2 AND channel = $3",
        values![next_ms, event, channel],
    )?;
    Ok(())
}

/// Removes the notifications that nobody has tried to send since `limit_ms`: their channel is gone.
///
/// # Errors
/// The database is unavailable.
pub fn remove_unsent(sql: &mut dyn Sql, limit_ms: i64) -> Result<(), StoreError> {
    sql.execute("DELETE FROM outbox WHERE next_ms < $1", values![limit_ms])?;
    Ok(())
}

/// Removes a notification that was sent or has failed too often.
///
/// # Errors
/// The database is unavailable.
pub fn sent(sql: &mut dyn Sql, event: &str, channel: &str) -> Result<(), StoreError> {
    sql.execute("DELETE FROM outbox WHERE event = $1 AND channel = $2", values![event, channel])?;
    Ok(())
}

/// Removes the events before `limit_ms`.
///
/// # Errors
/// The database is unavailable.
pub fn remove_events(sql: &mut dyn Sql, limit_ms: i64) -> Result<(), StoreError> {
    sql.execute("DELETE FROM event WHERE at_ms < $1", values![limit_ms])?;
    Ok(())
}
