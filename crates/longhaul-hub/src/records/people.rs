//! Users, their sessions and their API tokens.

use longhaul_fleet::api::UserRole;

use crate::store::{Sql, StoreError, first, values};

/// A user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Person {
    /// The name.
    pub name: String,
    /// The rights.
    pub role: UserRole,
    /// The time of creation in ms since 1970.
    pub created_ms: i64,
}

/// An open session of a browser.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrowserSession {
    /// The user.
    pub person: String,
    /// The rights of the user.
    pub role: UserRole,
    /// The secret that forms of the session repeat.
    pub csrf: String,
}

/// Returns the name of a role in the store.
pub fn role_name(role: UserRole) -> &'static str {
    match role {
        UserRole::Viewer => "viewer",
        UserRole::Operator => "operator",
        UserRole::Admin => "admin",
    }
}

/// Returns the role with a name.
pub fn role_named(name: &str) -> Option<UserRole> {
    [UserRole::Viewer, UserRole::Operator, UserRole::Admin]
        .into_iter()
        .find(|role| role_name(*role) == name)
}

fn role(name: &str) -> Result<UserRole, StoreError> {
    role_named(name).ok_or(StoreError::Malformed { what: "role" })
}

/// The maximum number of sessions, and of API tokens, of a user. A later one ends the oldest.
pub const MOST_LOGINS: i64 = 100;

/// Adds a user; returns false if the name exists.
///
/// # Errors
/// The database is unavailable.
pub fn add_person(
    sql: &mut dyn Sql,
    person: &Person,
    password_hash: &str,
) -> Result<bool, StoreError> {
    let added = sql.execute(
        "INSERT INTO person (name, password, role, created_ms) VALUES ($1, $2, $3, $4)
         ON CONFLICT (name) DO NOTHING",
        values![&person.name, password_hash, role_name(person.role), person.created_ms],
    )?;
    Ok(added == 1)
}

/// Changes a password and ends the user's sessions and tokens; returns false if the name is
/// unknown.
///
/// # Errors
/// The database is unavailable.
pub fn set_password(sql: &mut dyn Sql, name: &str, hash: &str) -> Result<bool, StoreError> {
    sql.execute("DELETE FROM session WHERE person = $1", values![name])?;
    sql.execute("DELETE FROM bearer WHERE person = $1", values![name])?;
    Ok(sql.execute("UPDATE person SET password = $1 WHERE name = $2", values![hash, name])? == 1)
}

/// Removes a user with the sessions and tokens; returns false if the name is unknown.
///
/// # Errors
/// The database is unavailable.
pub fn remove_person(sql: &mut dyn Sql, name: &str) -> Result<bool, StoreError> {
    Ok(sql.execute("DELETE FROM person WHERE name = $1", values![name])? == 1)
}

/// Returns all users by name.
///
/// # Errors
/// The database is unavailable.
pub fn people(sql: &mut dyn Sql) -> Result<Vec<Person>, StoreError> {
    let rows = sql.query("SELECT name, role, created_ms FROM person ORDER BY name", &[])?;
    let read = |row: &crate::store::Row| {
        Ok(Person { name: row.text(0)?, role: role(&row.text(1)?)?, created_ms: row.int(2)? })
    };
    rows.iter().map(read).collect()
}

/// Returns the password hash and the role of a user.
///
/// # Errors
/// The database is unavailable.
pub fn password_of(
    sql: &mut dyn Sql,
    name: &str,
) -> Result<Option<(String, UserRole)>, StoreError> {
    let row = first(sql, "SELECT password, role FROM person WHERE name = $1", values![name])?;
    row.map(|row| Ok((row.text(0)?, role(&row.text(1)?)?))).transpose()
}

/// Opens a session. `hash` is the hash of its cookie.
///
/// # Errors
/// The database is unavailable.
pub fn open_session(
    sql: &mut dyn Sql,
    hash: &str,
    session: &BrowserSession,
    expires_ms: i64,
) -> Result<(), StoreError> {
    sql.execute(
        "INSERT INTO session (hash, person, csrf, expires_ms) VALUES ($1, $2, $3, $4)",
        values![hash, &session.person, &session.csrf, expires_ms],
    )?;
    remove_oldest(sql, "session", &session.person)
}

/// Removes the oldest sessions or tokens of a user, if there are too many.
fn remove_oldest(sql: &mut dyn Sql, table: &str, person: &str) -> Result<(), StoreError> {
    sql.execute(
        &format!(
            "DELETE FROM {table} WHERE hash IN (SELECT hash FROM {table} WHERE person = $1
             ORDER BY expires_ms DESC, hash LIMIT 1000000 OFFSET $2)"
        ),
        values![person, MOST_LOGINS],
    )?;
    Ok(())
}

/// Returns the session with the cookie of `hash`, if it expires between two times.
///
/// # Errors
/// The database is unavailable.
pub fn session(
    sql: &mut dyn Sql,
    hash: &str,
    (after, until): (i64, i64),
) -> Result<Option<BrowserSession>, StoreError> {
    let row = first(
        sql,
        "SELECT s.person, p.role, s.csrf FROM session s JOIN person p ON p.name = s.person
         WHERE s.hash = $1 AND s.expires_ms > $2 AND s.expires_ms <= $3",
        values![hash, after, until],
    )?;
    let read = |row: crate::store::Row| {
        Ok(BrowserSession { person: row.text(0)?, role: role(&row.text(1)?)?, csrf: row.text(2)? })
    };
    row.map(read).transpose()
}

/// Ends a session.
///
/// # Errors
/// The database is unavailable.
pub fn close_session(sql: &mut dyn Sql, hash: &str) -> Result<(), StoreError> {
    sql.execute("DELETE FROM session WHERE hash = $1", values![hash])?;
    Ok(())
}

/// An API token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiToken {
    /// The user, who gives the token its rights.
    pub person: String,
    /// The name of the token, shown in lists.
    pub label: String,
    /// The end of its validity in ms since 1970.
    pub expires_ms: i64,
}

/// Adds an API token. `hash` is the hash of its secret.
///
/// # Errors
/// The database is unavailable.
pub fn add_bearer(
    sql: &mut dyn Sql,
    hash: &str,
    bearer: &ApiToken,
    now: i64,
) -> Result<(), StoreError> {
    sql.execute(
        "INSERT INTO bearer (hash, person, label, created_ms, expires_ms) VALUES ($1, $2, $3, $4, $5)",
        values![hash, &bearer.person, &bearer.label, now, bearer.expires_ms],
    )?;
    remove_oldest(sql, "bearer", &bearer.person)
}

/// Returns the user and the rights of the token with the secret of `hash`, if it expires between two
/// times.
///
/// # Errors
/// The database is unavailable.
pub fn bearer(
    sql: &mut dyn Sql,
    hash: &str,
    (after, until): (i64, i64),
) -> Result<Option<(String, UserRole)>, StoreError> {
    let row = first(
        sql,
        "SELECT b.person, p.role FROM bearer b JOIN person p ON p.name = b.person
         WHERE b.hash = $1 AND b.expires_ms > $2 AND b.expires_ms <= $3",
        values![hash, after, until],
    )?;
    row.map(|row| Ok((row.text(0)?, role(&row.text(1)?)?))).transpose()
}

/// Removes expired sessions and tokens, and enrollment tokens that expired a day ago.
///
/// # Errors
/// The database is unavailable.
pub fn remove_expired(sql: &mut dyn Sql, now: i64) -> Result<(), StoreError> {
    sql.execute("DELETE FROM session WHERE expires_ms <= $1", values![now])?;
    sql.execute("DELETE FROM bearer WHERE expires_ms <= $1", values![now])?;
    let day = now - crate::clock::DAY;
    sql.execute("DELETE FROM enrolment WHERE expires_ms <= $1", values![day])?;
    Ok(())
}
