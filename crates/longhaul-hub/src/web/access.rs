//! Authentication of people: sessions, tokens, roles, and the check against forged requests.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, header};
use longhaul_fleet::api::UserRole;
use longhaul_fleet::protocol::Severity;

use super::failure::Failure;
use crate::clock::{DAY, HOUR, now_ms};
use crate::hub::Hub;
use crate::local::LOCAL_USER;
use crate::login_guard::Admission;
use crate::records::events::NewEvent;
use crate::records::people::{self, ApiToken, BrowserSession};
use crate::secret;
use crate::secret::{MOST_BYTES, has_hash, hash_password};

/// The name of the session's cookie. The prefix binds it to this host and to HTTPS.
const COOKIE: &str = "__Host-longhaul";
/// The length of a session in ms.
const SESSION_MS: i64 = 12 * HOUR;
/// The validity of an API token in ms.
const BEARER_MS: i64 = 90 * DAY;
/// The limit on the wait until a password is checked, because others are.
const CHECK: Duration = Duration::from_secs(10);
/// The header with the session's secret, for requests that change something.
pub(crate) const CSRF_HEADER: &str = "x-csrf-token";

/// The user of a request.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    /// The user; empty for a reader without login.
    pub(crate) name: String,
    pub(crate) role: UserRole,
    /// The secret of the session; `None` with an API token or without login.
    pub(crate) csrf: Option<String>,
}

impl Caller {
    /// Returns whether the caller is a reader of public pages, without login.
    pub(crate) fn is_anonymous(&self) -> bool {
        self.name.is_empty()
    }

    /// Refuses a caller with fewer rights than `role`.
    pub(crate) fn at_least(&self, role: UserRole) -> Result<(), Failure> {
        let named = !self.is_anonymous() || role == UserRole::Viewer;
        if self.role >= role && named { Ok(()) } else { Err(Failure::forbidden()) }
    }

    /// Refuses a form of another site: it lacks the secret of the session.
    pub(crate) fn sent_form(&self, csrf: &str) -> Result<(), Failure> {
        match &self.csrf {
            Some(own) if secret::same(own, csrf) => Ok(()),
            _ => Err(Failure::csrf()),
        }
    }
}

/// A caller with at least the rights of a viewer. A request that changes something has an API token,
/// or the secret of its session in a header.
#[derive(Debug)]
pub(crate) struct ApiCaller(pub(crate) Caller);

impl FromRequestParts<Arc<Hub>> for ApiCaller {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, hub: &Arc<Hub>) -> Result<Self, Failure> {
        let caller = caller(hub, &parts.headers).await?.ok_or_else(Failure::login)?;
        if parts.method != Method::GET
            && let Some(own) = &caller.csrf
        {
            let sent = parts.headers.get(CSRF_HEADER).and_then(|value| value.to_str().ok());
            if !sent.is_some_and(|sent| secret::same(own, sent)) {
                return Err(Failure::csrf());
            }
        }
        Ok(ApiCaller(caller))
    }
}

/// A caller of a page. Its forms have the secret of the session as a field.
#[derive(Debug)]
pub(crate) struct PageCaller(pub(crate) Option<Caller>);

impl FromRequestParts<Arc<Hub>> for PageCaller {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, hub: &Arc<Hub>) -> Result<Self, Failure> {
        Ok(PageCaller(caller(hub, &parts.headers).await?))
    }
}

/// Returns the person of a request; `None` without a valid session or token.
pub(crate) async fn caller(hub: &Hub, headers: &HeaderMap) -> Result<Option<Caller>, Failure> {
    let now = now_ms();
    let authorization = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    if let Some(authorization) = authorization {
        let Some(token) = authorization.strip_prefix("Bearer ") else { return Ok(None) };
        let hash = secret::hash(token.trim());
        if hub.is_local(&hash) {
            let name = LOCAL_USER.to_owned();
            return Ok(Some(Caller { name, role: UserRole::Admin, csrf: None }));
        }
        let latest = now + BEARER_MS + DAY;
        let found = hub.store.read(move |sql| people::bearer(sql, &hash, (now, latest))).await?;
        return Ok(found.map(|(name, role)| Caller { name, role, csrf: None }));
    }
    if let Some(cookie) = cookie(headers) {
        let hash = secret::hash(&cookie);
        // A later end was set by a clock that was ahead.
        let latest = now + SESSION_MS + HOUR;
        let found = hub.store.read(move |sql| people::session(sql, &hash, (now, latest))).await?;
        if let Some(BrowserSession { person, role, csrf }) = found {
            return Ok(Some(Caller { name: person, role, csrf: Some(csrf) }));
        }
    }
    let anybody = Caller { name: String::new(), role: UserRole::Viewer, csrf: None };
    Ok(hub.public.then_some(anybody))
}

fn cookie(headers: &HeaderMap) -> Option<String> {
    let all = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = all.flat_map(|text| text.split(';')).filter_map(|pair| pair.split_once('='));
    let found = pairs.find(|(name, _)| name.trim() == COOKIE);
    found.map(|(_, value)| value.trim().to_owned())
}

/// The outcome of a login.
pub(crate) enum Login {
    /// The password is correct.
    Granted(UserRole),
    /// The user or password is wrong.
    Wrong,
    /// Too many logins failed.
    Limited {
        /// The seconds until the next attempt.
        seconds: i64,
    },
    /// Too many passwords are being checked.
    Busy,
}

/// Checks a password. Wrong ones are limited and recorded.
///
/// # Errors
/// The database is unavailable.
pub(crate) async fn check_login(
    hub: &Hub,
    client: IpAddr,
    user: &str,
    password: &str,
) -> Result<Login, Failure> {
    let attempt = match hub.guard.admit(client, user, hub.uptime_ms()) {
        Admission::Refused { seconds } => return Ok(Login::Limited { seconds }),
        Admission::Allowed(attempt) => attempt,
    };
    let places = if attempt.is_from_known() { &hub.known_logins } else { &hub.logins };
    let name = user.to_owned();
    let found = hub.store.read(move |sql| people::password_of(sql, &name)).await;
    let found = found.inspect_err(|_| hub.guard.released(&attempt))?;
    let Ok(place) = tokio::time::timeout(CHECK, places.acquire()).await else {
        hub.guard.released(&attempt);
        return Ok(Login::Busy);
    };
    let correct = match place {
        Ok(_place) if password.len() <= MOST_BYTES => {
            let password = password.to_owned();
            let stored = found.as_ref().map(|(hash, _)| hash.clone());
            let check = move || match stored {
                Some(stored) => has_hash(&password, &stored),
                // An unknown user takes the same time.
                None => hash_password(&password).is_err(),
            };
            tokio::task::spawn_blocking(check).await.unwrap_or(false)
        }
        _ => false,
    };
    match found {
        Some((_, role)) if correct => {
            hub.guard.succeeded(attempt);
            Ok(Login::Granted(role))
        }
        _ => {
            hub.record(vec![failed_login(hub, client, user)]).await?;
            Ok(Login::Wrong)
        }
    }
}

/// Returns the event of a failed login: one per network and hour, which counts its repetitions.
fn failed_login(hub: &Hub, client: IpAddr, user: &str) -> NewEvent {
    let user: String = user.chars().take(64).collect();
    let (now, client) = (now_ms(), client.to_canonical());
    let hour = now / HOUR;
    let network = hub.guard.reported(client, hour);
    let subject = network.as_ref().map_or("other networks".to_owned(), |_| client.to_string());
    NewEvent {
        at_ms: now,
        severity: Severity::Warning,
        kind: "login_failed".to_owned(),
        subject,
        message: format!("a login of user '{user}' from {client} failed"),
        origin: format!("login_failed/{}/{hour}", network.as_deref().unwrap_or("other")),
    }
}

/// Opens a session, and returns the value of the `set-cookie` header.
///
/// # Errors
/// The database is unavailable.
pub(crate) async fn open_session(hub: &Hub, user: &str, role: UserRole) -> Result<String, Failure> {
    let cookie = secret::secret()?;
    let session = BrowserSession { person: user.to_owned(), role, csrf: secret::secret()? };
    let (hash, expires) = (secret::hash(&cookie), now_ms() + SESSION_MS);
    hub.store.write(move |sql| people::open_session(sql, &hash, &session, expires)).await?;
    let age = SESSION_MS / 1000;
    Ok(format!("{COOKIE}={cookie}; Path=/; Max-Age={age}; Secure; HttpOnly; SameSite=Strict"))
}

/// Ends the session of a request, and returns the value of the `set-cookie` header.
///
/// # Errors
/// The database is unavailable.
pub(crate) async fn close_session(hub: &Hub, headers: &HeaderMap) -> Result<String, Failure> {
    if let Some(cookie) = cookie(headers) {
        let hash = secret::hash(&cookie);
        hub.store.write(move |sql| people::close_session(sql, &hash)).await?;
    }
    Ok(format!("{COOKIE}=; Path=/; Max-Age=0; Secure; HttpOnly; SameSite=Strict"))
}

/// Makes an API token of a user. Returns the token and the end of its validity.
///
/// # Errors
/// The database is unavailable.
pub(crate) async fn new_bearer(
    hub: &Hub,
    user: &str,
    label: &str,
) -> Result<(String, i64), Failure> {
    let token = secret::secret()?;
    let (hash, now) = (secret::hash(&token), now_ms());
    let label = label.chars().take(64).collect();
    let bearer = ApiToken { person: user.to_owned(), label, expires_ms: now + BEARER_MS };
    hub.store.write(move |sql| people::add_bearer(sql, &hash, &bearer, now)).await?;
    Ok((token, now + BEARER_MS))
}
