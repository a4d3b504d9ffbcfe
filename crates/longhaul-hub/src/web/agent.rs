//! The requests of agents.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, Query, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use longhaul_fleet::protocol::{
    AGENT_HEADER, AgentSettings, COUNTER_HEADER, DIGEST_HEADER, EnrollRequest, EnrollResponse,
    InterfaceAddress, Lease, MAX_BODY_BYTES, MAX_NAME_BYTES, MAX_WAIT_SECONDS, RefusalBody,
    RefusalCode, SIGNATURE_HEADER, SyncRequest, SyncResponse, body_digest, signature_holds,
    signed_text, signed_text_of_digest,
};
use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, SemaphorePermit};

use super::connection::Client;
use super::failure::{Cause, Refusal};
use crate::clock::now_ms;
use crate::fleet::{
    self, Upload, host_capacity, ingest, limit_times, upload_seconds, within_limits,
};
use crate::hub::{Hub, PageMessage};
use crate::login_guard::Admission;
use crate::records::agents::{Accepted, Agent, Contact, agent_of, enroll};
use crate::secret;
use crate::store::StoreError;

/// The limit on the time in which a body arrives.
const BODY: Duration = Duration::from_secs(60);
/// The limit for a sender whose headers are not signed.
const UNPROVEN_BODY: Duration = Duration::from_secs(15);
/// The maximum number of bytes of an enrollment.
const ENROL_BYTES: usize = 16 << 10;
/// The bytes of an Ed25519 public key.
const KEY_BYTES: usize = 32;
/// The name of enrollments among the users whose failures are limited; no user has it.
const ENROLLING: &str = " enroll";
/// The maximum number of commas of a body, and so of values. In memory a value has 32 bytes, and the
/// text `0,` has two. The largest upload of rows has 200,000 commas.
const COMMAS: usize = 2 << 20;
/// The size from which on a body takes one of the few places for large ones.
const LARGE_BYTES: usize = 256 << 10;
/// The time between two queries for cancellations of the runs that an agent holds.
const CANCELLATIONS: Duration = Duration::from_secs(2);
/// The interval of interface samples in ms.
const SAMPLE_INTERVAL_MS: u32 = 1000;

/// A refused request of an agent.
pub(crate) struct Refused {
    code: RefusalCode,
    /// The highest counter of the agent.
    counter: Option<u64>,
    /// The failure of the database, for the log only.
    cause: Option<Arc<StoreError>>,
}

impl From<RefusalCode> for Refused {
    fn from(code: RefusalCode) -> Self {
        Refused { code, counter: None, cause: None }
    }
}

impl From<StoreError> for Refused {
    fn from(error: StoreError) -> Self {
        Refused { code: RefusalCode::Busy, counter: None, cause: Some(Arc::new(error)) }
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let full = self.cause.as_ref().is_some_and(|cause| cause.is_full_disk());
        let message = match self.code {
            RefusalCode::Busy if full => "the hub cannot store the message now: its disk is full",
            RefusalCode::UnknownToken => "the token is unknown or has expired",
            RefusalCode::TokenUsed => "the token was used",
            RefusalCode::OtherHost => "the token belongs to another host name",
            RefusalCode::UnknownAgent => "the agent is unknown",
            RefusalCode::Revoked => "the key of the agent is revoked",
            RefusalCode::BadSignature => "the signature does not belong to the request",
            RefusalCode::Replayed => "the counter is not above the last one",
            RefusalCode::TooLarge => "the message is larger than the limits",
            RefusalCode::Malformed => "the message is malformed",
            RefusalCode::Busy => "the hub cannot store the message now",
            RefusalCode::Other => "the request is refused",
        };
        let status = StatusCode::from_u16(self.code.status()).unwrap_or(StatusCode::BAD_REQUEST);
        let body =
            RefusalBody { code: self.code, message: message.to_owned(), counter: self.counter };
        let mut response = (status, Json(body)).into_response();
        if self.code != RefusalCode::Busy {
            response.extensions_mut().insert(Refusal(message));
        }
        if let Some(cause) = self.cause {
            response.extensions_mut().insert(Cause(cause));
        }
        response
    }
}

/// Waits for a place for a large body. One network cannot take all places, and senders whose
/// headers are not signed use separate places.
async fn place(
    hub: &Hub,
    client: Client,
    proven: bool,
) -> Result<(OwnedSemaphorePermit, SemaphorePermit<'_>), Refused> {
    let all = if proven { &hub.uploads } else { &hub.unproven_uploads };
    let places = async {
        let share = hub.upload_shares.of(client.0.ip(), proven).acquire_owned().await.ok()?;
        Some((share, all.acquire().await.ok()?))
    };
    let places = tokio::time::timeout(BODY, places).await.ok().flatten();
    Ok(places.ok_or(RefusalCode::Busy)?)
}

/// Reads a body of at most `most` bytes within `limit`.
async fn body_of(body: Body, most: usize, limit: Duration) -> Result<axum::body::Bytes, Refused> {
    let read = axum::body::to_bytes(body, most);
    let read = tokio::time::timeout(limit, read).await.map_err(|_| RefusalCode::Malformed)?;
    Ok(read.map_err(|_| RefusalCode::TooLarge)?)
}

/// `POST /agent/v1/enrol`.
pub(crate) async fn post_enrol(
    State(hub): State<Arc<Hub>>,
    Extension(client): Extension<Client>,
    body: Body,
) -> Result<Json<EnrollResponse>, Refused> {
    // Anybody can send it, so it takes none of the places of agents.
    let body = body_of(body, ENROL_BYTES, UNPROVEN_BODY).await?;
    let request: EnrollRequest =
        serde_json::from_slice(&body).map_err(|_| RefusalCode::Malformed)?;
    let short = [&request.secret, &request.host, &request.public_key, &request.version];
    if short.iter().any(|text| text.len() > MAX_NAME_BYTES) {
        return Err(RefusalCode::TooLarge.into());
    }
    // Other agents get the key with their leases.
    if STANDARD.decode(&request.public_key).map_or(0, |key| key.len()) != KEY_BYTES {
        return Err(RefusalCode::Malformed.into());
    }
    // Failed enrollments count like failed logins.
    let (address, now) = (client.0.ip(), now_ms());
    let Admission::Allowed(attempt) = hub.guard.admit(address, ENROLLING, hub.uptime_ms()) else {
        return Err(RefusalCode::Busy.into());
    };
    let hash = secret::hash(&request.secret);
    let id = secret::id(now).map_err(|_| RefusalCode::Busy)?;
    let host = request.host.clone();
    let enrolled = hub.store.write(move |sql| enroll(sql, (&hash, &id), &request, now)).await;
    let agent = enrolled.inspect_err(|_| hub.guard.released(&attempt))??;
    hub.guard.released(&attempt);
    let hub_version = env!("CARGO_PKG_VERSION").to_owned();
    Ok(Json(EnrollResponse { agent, host, hub_version }))
}

/// `GET /agent/v1/check`: returns the agent if the hub accepts its key. The hub stores nothing, so
/// that the counter of an agent that runs at the same time stays valid.
pub(crate) async fn get_check(
    State(hub): State<Arc<Hub>>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Json<EnrollResponse>, Refused> {
    let path = uri.path_and_query().map_or("", |path| path.as_str());
    let Identity { agent, counter, signature, .. } = identify(&hub, &headers).await?;
    if !signature_holds(&agent.public_key, &signed_text("GET", path, counter, b""), &signature) {
        return Err(RefusalCode::BadSignature.into());
    }
    let hub_version = env!("CARGO_PKG_VERSION").to_owned();
    Ok(Json(EnrollResponse { agent: agent.id, host: agent.host, hub_version }))
}

/// The query of a sync.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct SyncQuery {
    #[serde(default)]
    wait: u64,
}

/// `POST /agent/v1/sync?wait=SECONDS`.
pub(crate) async fn post_sync(
    State(hub): State<Arc<Hub>>,
    Extension(client): Extension<Client>,
    (uri, Query(query)): (Uri, Query<SyncQuery>),
    headers: HeaderMap,
    body: Body,
) -> Result<Json<SyncResponse>, Refused> {
    let path = uri.path_and_query().map_or("", |path| path.as_str()).to_owned();
    let Identity { agent, counter, signature, digest } = identify(&hub, &headers).await?;
    let signed = |digest: &str| {
        let text = signed_text_of_digest("POST", &path, counter, digest);
        signature_holds(&agent.public_key, &text, &signature)
    };
    let proven = digest.is_some();
    if digest.as_deref().is_some_and(|digest| !signed(digest)) {
        return Err(RefusalCode::BadSignature.into());
    }
    let mut stored = {
        let _place = place(&hub, client, proven).await?;
        let limit = if proven { BODY } else { UNPROVEN_BODY };
        let body = body_of(body, MAX_BODY_BYTES, limit).await?;
        let received = body_digest(&body);
        let holds = digest.map_or_else(|| signed(&received), |digest| digest == received);
        if !holds {
            return Err(RefusalCode::BadSignature.into());
        }
        if body.iter().filter(|byte| **byte == b',').count() > COMMAS {
            return Err(RefusalCode::TooLarge.into());
        }
        let large = async { hub.large_uploads.acquire().await.map_err(|_| RefusalCode::Busy) };
        let _large = if body.len() < LARGE_BYTES { None } else { Some(large.await?) };
        let request: SyncRequest =
            serde_json::from_slice(&body).map_err(|_| RefusalCode::Malformed)?;
        drop(body);
        if !within_limits(&request) {
            return Err(RefusalCode::TooLarge.into());
        }
        store(&hub, &agent, counter, client, request).await?
    };
    let limit = Duration::from_secs(query.wait.min(MAX_WAIT_SECONDS));
    let held = &stored.held;
    let news = wait(&hub, (&agent, counter), std::mem::take(&mut stored.news), held, limit).await?;
    Ok(Json(answer(&hub, &agent, stored, news).await?))
}

/// The sender of a request, as its headers claim.
struct Identity {
    agent: Agent,
    counter: u64,
    signature: String,
    /// The digest of the body. With it the signature is verified before the body is read.
    digest: Option<String>,
}

/// Returns the sender of a request before the body is read.
async fn identify(hub: &Hub, headers: &HeaderMap) -> Result<Identity, Refused> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let id = header(AGENT_HEADER).ok_or(RefusalCode::UnknownAgent)?.to_owned();
    let counter: u64 =
        header(COUNTER_HEADER).and_then(|text| text.parse().ok()).ok_or(RefusalCode::Malformed)?;
    let signature = header(SIGNATURE_HEADER).ok_or(RefusalCode::BadSignature)?.to_owned();
    let digest = header(DIGEST_HEADER).map(str::to_owned);
    let agent = hub.store.read(move |sql| agent_of(sql, &id)).await?;
    let agent = agent.ok_or(RefusalCode::UnknownAgent)?;
    if agent.revoked_ms.is_some() {
        return Err(RefusalCode::Revoked.into());
    }
    Ok(Identity { agent, counter, signature, digest })
}

/// The stored part of a sync.
struct Stored {
    acknowledged: Vec<u64>,
    facts: bool,
    news: AgentOrders,
    held: Vec<String>,
    addresses: Vec<InterfaceAddress>,
}

/// The leases of an agent, and the runs that it must stop.
type AgentOrders = (Vec<Lease>, Vec<String>);

async fn store(
    hub: &Hub,
    agent: &Agent,
    counter: u64,
    client: Client,
    mut request: SyncRequest,
) -> Result<Stored, Refused> {
    let now = now_ms();
    limit_times(&mut request, now);
    let facts = request.facts.is_some();
    let held: Vec<String> =
        request.state.running.iter().chain(&request.state.accepted).cloned().collect();
    let addresses = request.state.addresses.clone();
    let contact = Contact {
        agent: agent.id.clone(),
        counter: i64::try_from(counter).map_err(|_| RefusalCode::Malformed)?,
        address: client.0.ip().to_canonical().to_string(),
        boot: request.boot.clone(),
        clock_offset_ms: request.clock_ms.saturating_sub(now),
        state: request.state.clone(),
    };
    let channels = hub.channel_names();
    let ships = hub.remote_write.is_some();
    let upload = Upload { host: agent.host.clone(), contact, request, channels, ships };
    let applied = hub.applied();
    let work = move |sql: &mut dyn crate::store::Sql| ingest(sql, &upload, applied.as_ref(), now);
    let (accepted, mut done) = hub.store.write(work).await?;
    match accepted {
        Accepted::New { .. } => {}
        Accepted::Replayed { counter } => {
            let refused = Refused::from(RefusalCode::Replayed);
            return Err(Refused { counter: Some(counter.cast_unsigned()), ..refused });
        }
        Accepted::Unknown => return Err(RefusalCode::UnknownAgent.into()),
        Accepted::Revoked => return Err(RefusalCode::Revoked.into()),
    }
    if !done.pairs.is_empty() {
        let _ = hub.live.send(PageMessage::Changed);
    }
    hub.touch(std::mem::take(&mut done.pairs));
    let news = (done.leases, done.cancel);
    Ok(Stored { acknowledged: done.acknowledged, facts, news, held, addresses })
}

/// Waits until the agent has a new lease or a cancellation, at most for `limit`. A later request of the
/// agent ends the wait: an agent has one at a time, and others are lost or a stolen key sent them.
async fn wait(
    hub: &Hub,
    (agent, counter): (&Agent, u64),
    mut news: AgentOrders,
    held: &[String],
    limit: Duration,
) -> Result<AgentOrders, Refused> {
    let wake = hub.wake_of(&agent.host);
    hub.begin_poll(&agent.id, counter);
    wake.notify_waiters();
    let deadline = Instant::now() + limit;
    let is_new = |(leases, cancelled): &AgentOrders| {
        !cancelled.is_empty() || leases.iter().any(|lease| !held.contains(&lease.run))
    };
    while !is_new(&news) {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || !hub.is_latest_poll(&agent.id, counter) {
            return Ok(news);
        }
        // A round of planning repeats the signal until the agent has its leases. Another hub can
        // cancel a held run without a signal to this hub.
        let pause = if held.is_empty() { left } else { left.min(CANCELLATIONS) };
        let _ = tokio::time::timeout(pause, wake.notified()).await;
        if !hub.is_latest_poll(&agent.id, counter) {
            return Ok(news);
        }
        let (host, held, now) = (agent.host.clone(), held.to_vec(), now_ms());
        news = hub.store.read(move |sql| fleet::news(sql, &host, &held, now)).await?;
    }
    let (host, now) = (agent.host.clone(), now_ms());
    news.0 = hub.store.write(move |sql| fleet::leases(sql, &host, now)).await?;
    Ok(news)
}

async fn answer(
    hub: &Hub,
    agent: &Agent,
    stored: Stored,
    (leases, cancel): AgentOrders,
) -> Result<SyncResponse, Refused> {
    let all = hub.directory().await?;
    let applied = hub.applied();
    let mesh = applied.as_ref().map(|applied| &applied.mesh);
    let stamp_peers = mesh.map(|mesh| fleet::stamp_peers(mesh, &agent.host, &all));
    let capacity = mesh.and_then(|mesh| host_capacity(mesh, &agent.host, &stored.addresses));
    let settings = AgentSettings {
        hub_ms: now_ms(),
        sample_interval_ms: SAMPLE_INTERVAL_MS,
        upload_seconds: upload_seconds(all.len()),
        capacity,
    };
    Ok(SyncResponse {
        acknowledged: stored.acknowledged,
        facts_stored: stored.facts,
        leases,
        cancel,
        stamp_peers: stamp_peers.unwrap_or_default(),
        settings,
    })
}
