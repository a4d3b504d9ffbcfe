//! Enrollment tokens and agents.

use std::collections::BTreeSet;

use longhaul_fleet::protocol::{AgentState, EnrollRequest, RefusalCode};
use serde_json::Value as Json;

use super::packed::{pack_json, unpack_json};
use crate::clock::{MINUTE, SECOND};
use crate::store::{Row, Sql, StoreError, first, values};

/// The time in which the same agent may repeat its enrollment.
const REPEAT_MS: i64 = 10 * MINUTE;

/// The maximum number of reports of facts of an agent that are kept.
pub const MOST_FACTS: i64 = 200;

/// An enrolled agent.
#[derive(Debug, Clone, PartialEq)]
pub struct Agent {
    /// The id.
    pub id: String,
    /// The name of its host.
    pub host: String,
    /// The Ed25519 public key in base64.
    pub public_key: String,
    /// The time of the revocation in ms since 1970.
    pub revoked_ms: Option<i64>,
    /// The last contact in ms since 1970.
    pub seen_ms: Option<i64>,
    /// The address of the last contact.
    pub address: Option<String>,
    /// The agent's clock minus the hub's clock at the last contact, in ms.
    pub clock_offset_ms: Option<i64>,
    /// The last reported state.
    pub state: Option<AgentState>,
    /// True if the agent is in contact.
    pub present: bool,
}

const COLUMNS: &str =
    "id, host, public_key, revoked_ms, seen_ms, address, clock_offset_ms, state, present";

fn agent(row: &Row) -> Result<Agent, StoreError> {
    let state = row.opt_text(7)?.map(|text| serde_json::from_str(&text));
    Ok(Agent {
        id: row.text(0)?,
        host: row.text(1)?,
        public_key: row.text(2)?,
        revoked_ms: row.opt_int(3)?,
        seen_ms: row.opt_int(4)?,
        address: row.opt_text(5)?,
        clock_offset_ms: row.opt_int(6)?,
        state: state.transpose().map_err(|_| StoreError::Malformed { what: "agent state" })?,
        present: row.int(8)? != 0,
    })
}

/// Adds an enrollment token. `hash` is the hash of its secret.
///
/// # Errors
/// The database is unavailable.
pub fn add_enrollment(
    sql: &mut dyn Sql,
    hash: &str,
    host: &str,
    expires_ms: i64,
) -> Result<(), StoreError> {
    sql.execute(
        "INSERT INTO enrolment (hash, host, expires_ms) VALUES ($1, $2, $3)",
        values![hash, host, expires_ms],
    )?;
    Ok(())
}

/// Enrolls an agent with the token of `hash`, and revokes an earlier agent of the host. `id` is the
/// id of a new agent. Returns the agent's id, or the reason of the refusal.
///
/// # Errors
/// The database is unavailable.
pub fn enroll(
    sql: &mut dyn Sql,
    (hash, id): (&str, &str),
    request: &EnrollRequest,
    now: i64,
) -> Result<Result<String, RefusalCode>, StoreError> {
    // The update locks the token, so two agents cannot use it at once.
    sql.execute("UPDATE enrolment SET hash = hash WHERE hash = $1", values![hash])?;
    let query = "SELECT host, expires_ms, used_ms, agent FROM enrolment WHERE hash = $1";
    let Some(token) = first(sql, query, values![hash])? else {
        return Ok(Err(RefusalCode::UnknownToken));
    };
    if token.text(0)? != request.host {
        return Ok(Err(RefusalCode::OtherHost));
    }
    if let Some(used) = token.opt_int(2)? {
        let agent = token.opt_text(3)?.unwrap_or_default();
        let same = agent_of(sql, &agent)?.is_some_and(|agent| {
            agent.public_key == request.public_key && agent.revoked_ms.is_none()
        });
        return Ok(if same && now - used < REPEAT_MS {
            Ok(agent)
        } else {
            Err(RefusalCode::TokenUsed)
        });
    }
    if token.int(1)? <= now {
        return Ok(Err(RefusalCode::UnknownToken));
    }
    revoke(sql, &request.host, now)?;
    sql.execute(
        "INSERT INTO agent (id, host, public_key, enrolled_ms, counter, present)
         VALUES ($1, $2, $3, $4, 0, 0)",
        values![id, &request.host, &request.public_key, now],
    )?;
    sql.execute(
        "UPDATE enrolment SET used_ms = $1, agent = $2 WHERE hash = $3",
        values![now, id, hash],
    )?;
    Ok(Ok(id.to_owned()))
}

/// Revokes the agent with an id or of a host. Returns its id and its host, or `None` if there is no
/// such agent that is not revoked.
///
/// # Errors
/// The database is unavailable.
pub fn revoke(
    sql: &mut dyn Sql,
    agent: &str,
    now: i64,
) -> Result<Option<(String, String)>, StoreError> {
    let rows = sql.query(
        "UPDATE agent SET revoked_ms = $1, present = 0
         WHERE (id = $2 OR host = $2) AND revoked_ms IS NULL RETURNING id, host",
        values![now, agent],
    )?;
    rows.first().map(|row| Ok((row.text(0)?, row.text(1)?))).transpose()
}

/// Returns the agent with an id.
///
/// # Errors
/// The database is unavailable.
pub fn agent_of(sql: &mut dyn Sql, id: &str) -> Result<Option<Agent>, StoreError> {
    let query = format!("SELECT {COLUMNS} FROM agent WHERE id = $1");
    first(sql, &query, values![id])?.as_ref().map(agent).transpose()
}

/// Returns the latest agent of every host, by host.
///
/// # Errors
/// The database is unavailable.
pub fn agents(sql: &mut dyn Sql) -> Result<Vec<Agent>, StoreError> {
    let query = format!("SELECT {COLUMNS} FROM agent ORDER BY host, enrolled_ms, id");
    let mut latest: Vec<Agent> = Vec::new();
    for row in &sql.query(&query, &[])? {
        let agent = agent(row)?;
        if latest.last().is_some_and(|last| last.host == agent.host) {
            latest.pop();
        }
        latest.push(agent);
    }
    Ok(latest)
}

/// Returns the hosts whose agents are in contact.
///
/// # Errors
/// The database is unavailable.
pub fn present_hosts(sql: &mut dyn Sql) -> Result<BTreeSet<String>, StoreError> {
    let rows = sql.query("SELECT host FROM agent WHERE present = 1", &[])?;
    rows.iter().map(|row| row.text(0)).collect()
}

/// Returns the public key of the agent of a host.
///
/// # Errors
/// The database is unavailable.
pub fn key_of(sql: &mut dyn Sql, host: &str) -> Result<Option<String>, StoreError> {
    let row = first(
        sql,
        "SELECT public_key FROM agent WHERE host = $1 AND revoked_ms IS NULL
         ORDER BY enrolled_ms DESC, id DESC LIMIT 1",
        values![host],
    )?;
    row.map(|row| row.text(0)).transpose()
}

/// The contact of an agent.
#[derive(Debug, Clone)]
pub struct Contact {
    /// The agent's id.
    pub agent: String,
    /// The counter of the signed request.
    pub counter: i64,
    /// The address of the connection.
    pub address: String,
    /// The kernel's boot id.
    pub boot: String,
    /// The agent's clock minus the hub's, in ms.
    pub clock_offset_ms: i64,
    /// The reported state.
    pub state: AgentState,
}

/// The outcome of a contact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepted {
    /// The request is new. `back` is true if the agent was away before.
    New {
        /// True if the agent was away.
        back: bool,
    },
    /// The counter is not above the last one.
    Replayed {
        /// The last counter.
        counter: i64,
    },
    /// The agent is unknown.
    Unknown,
    /// The agent is revoked.
    Revoked,
}

/// Stores a contact, if its counter is new.
///
/// # Errors
/// The database is unavailable.
pub fn contact(sql: &mut dyn Sql, contact: &Contact, now: i64) -> Result<Accepted, StoreError> {
    // The first update locks the row in PostgreSQL.
    sql.execute("UPDATE agent SET id = id WHERE id = $1", values![&contact.agent])?;
    let query = "SELECT counter, revoked_ms, present FROM agent WHERE id = $1";
    let Some(row) = first(sql, query, values![&contact.agent])? else {
        return Ok(Accepted::Unknown);
    };
    if row.opt_int(1)?.is_some() {
        return Ok(Accepted::Revoked);
    }
    if row.int(0)? >= contact.counter {
        return Ok(Accepted::Replayed { counter: row.int(0)? });
    }
    let state = serde_json::to_string(&contact.state)
        .map_err(|_| StoreError::Malformed { what: "agent state" })?;
    sql.execute(
        "UPDATE agent SET counter = $1, seen_ms = $2, address = $3, clock_offset_ms = $4, boot = $5,
         state = $6, present = 1 WHERE id = $7",
        values![
            contact.counter,
            now,
            &contact.address,
            contact.clock_offset_ms,
            &contact.boot,
            &state,
            &contact.agent
        ],
    )?;
    Ok(Accepted::New { back: row.int(2)? == 0 })
}

/// Marks the agents without contact in the last `away_ms` as away, and returns their hosts. A contact
/// in the future is one before the clock stepped back: it counts as one at `now`.
///
/// # Errors
/// The database is unavailable.
pub fn mark_away(sql: &mut dyn Sql, now: i64, away_ms: i64) -> Result<Vec<String>, StoreError> {
    sql.execute(
        "UPDATE agent SET seen_ms = $1 WHERE present = 1 AND seen_ms > $2",
        values![now, now + SECOND],
    )?;
    let rows = sql.query(
        "UPDATE agent SET present = 0 WHERE present = 1 AND seen_ms < $1 RETURNING host",
        values![now - away_ms],
    )?;
    rows.iter().map(|row| row.text(0)).collect()
}

/// Stores the facts of a host from `now` on. The oldest of too many reports are removed.
///
/// # Errors
/// The database is unavailable.
pub fn add_facts(sql: &mut dyn Sql, agent: &str, facts: &Json, now: i64) -> Result<(), StoreError> {
    sql.execute(
        "INSERT INTO fact (agent, at_ms, document) VALUES ($1, $2, $3)
         ON CONFLICT (agent, at_ms) DO NOTHING",
        values![agent, now, pack_json(facts)?],
    )?;
    sql.execute(
        "DELETE FROM fact WHERE agent = $1 AND at_ms < (SELECT min(at_ms) FROM
         (SELECT at_ms FROM fact WHERE agent = $1 ORDER BY at_ms DESC LIMIT $2) latest)",
        values![agent, MOST_FACTS],
    )?;
    Ok(())
}

/// Returns the facts of an agent's host at a time, with the time of their report.
///
/// # Errors
/// The database is unavailable.
pub fn facts(
    sql: &mut dyn Sql,
    agent: &str,
    at_ms: i64,
) -> Result<Option<(i64, Json)>, StoreError> {
    let row = first(
        sql,
        "SELECT at_ms, document FROM fact WHERE agent = $1 AND at_ms <= $2
         ORDER BY at_ms DESC LIMIT 1",
        values![agent, at_ms],
    )?;
    row.map(|row| Ok((row.int(0)?, unpack_json(&row.bytes(1)?)?))).transpose()
}
