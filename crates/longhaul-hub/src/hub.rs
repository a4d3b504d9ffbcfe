//! The state that all parts of a running hub share.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use rustls::ClientConfig;
use tokio::sync::{Notify, Semaphore, broadcast};

use crate::clock::{SteadyClock, now_ms};
use crate::config::{Channel, HubConfig};
use crate::fleet::{self, Applied};
use crate::guard::{Places, Shares};
use crate::log::Log;
use crate::login_guard::LoginGuard;
use crate::records::agents::{Agent, agents};
use crate::records::events::{Event, NewEvent, record};
use crate::secret;
use crate::store::{Store, StoreError};

/// The logins whose password is checked at the same time; each needs 19 MiB.
const LOGINS: usize = 2;
/// The requests of agents whose body is in memory at the same time.
const UPLOADS: usize = 64;
/// The limit per network.
const UPLOADS_OF_NETWORK: usize = 32;
/// The requests whose headers have no signature: anybody who knows an agent's id can send them.
const UNPROVEN_UPLOADS: usize = 8;
/// The large uploads whose documents are in memory at the same time; each needs up to 100 MiB.
const LARGE_UPLOADS: usize = 4;
/// The meshes that are read and scheduled at the same time; a large one takes seconds of a core.
const PLANS: usize = 2;
/// The open pages that receive live updates.
const STREAMS: usize = 2048;
/// The limit per network.
const STREAMS_OF_NETWORK: usize = 512;
/// The large lists that are in memory at the same time, because their readers have not taken all bytes.
const EXPORTS: usize = 8;
/// The limit per network.
const EXPORTS_OF_NETWORK: usize = 4;
/// The answers to readers of pages and of the API that are in memory at the same time, because their
/// readers have not taken all bytes. A page can have some megabytes.
const READERS: usize = 128;
/// The limit per network.
const READERS_OF_NETWORK: usize = 32;
/// The maximum number of messages that a slow reader of live updates may miss before it is
/// disconnected.
const LIVE: usize = 256;

/// The age at which the list of agents is read again.
const DIRECTORY: Duration = Duration::from_secs(2);

/// A message to open pages.
#[derive(Debug, Clone)]
pub(crate) enum PageMessage {
    /// A new event.
    Event(Arc<Event>),
    /// Runs or cells changed.
    Changed,
}

/// A running hub.
#[derive(Debug)]
pub(crate) struct Hub {
    pub(crate) store: Store,
    /// The pin of the hub's key.
    pub(crate) pin: String,
    /// True if anyone may read.
    pub(crate) public: bool,
    pub(crate) guard: LoginGuard,
    pub(crate) logins: Semaphore,
    /// For users from known networks, so that a flood of other logins does not delay them.
    pub(crate) known_logins: Semaphore,
    pub(crate) uploads: Semaphore,
    pub(crate) upload_shares: Shares,
    pub(crate) unproven_uploads: Semaphore,
    pub(crate) large_uploads: Semaphore,
    pub(crate) plans: Arc<Semaphore>,
    pub(crate) live: broadcast::Sender<PageMessage>,
    pub(crate) streams: Places,
    pub(crate) exports: Places,
    pub(crate) readers: Places,
    pub(crate) channels: Vec<Channel>,
    /// The host and the directory of this hub: its name among several hubs that share a database.
    pub(crate) instance: String,
    /// The URL of the receiver of remote write.
    pub(crate) remote_write: Option<String>,
    /// The trust in servers that the hub connects to.
    pub(crate) outgoing_tls: Arc<ClientConfig>,
    pub(crate) log: Log,
    /// The hash of the token of the login on this host.
    local_token: OnceLock<String>,
    /// The start of the hub.
    started: Instant,
    steady: Mutex<SteadyClock>,
    applied: RwLock<Option<Arc<Applied>>>,
    directory: tokio::sync::Mutex<Option<(Instant, Arc<Vec<Agent>>)>>,
    wakes: Mutex<HashMap<String, Arc<Notify>>>,
    /// The counters of the latest long polls, by the id of the agent.
    polls: Mutex<HashMap<String, u64>>,
    /// The pairs whose cells must be computed.
    touched: Mutex<BTreeSet<(String, String)>>,
}

impl Hub {
    pub(crate) fn new(
        store: Store,
        pin: String,
        config: &HubConfig,
        outgoing_tls: Arc<ClientConfig>,
    ) -> Self {
        Hub {
            store,
            pin,
            public: config.public,
            channels: config.channels.clone(),
            instance: format!(
                "{} {}",
                rustix::system::uname().nodename().to_string_lossy(),
                config.data.display()
            ),
            remote_write: config.remote_write.clone(),
            outgoing_tls,
            log: Log::new(config.log),
            local_token: OnceLock::new(),
            started: Instant::now(),
            steady: Mutex::new(SteadyClock::new(Instant::now(), now_ms())),
            guard: LoginGuard::default(),
            logins: Semaphore::new(LOGINS),
            known_logins: Semaphore::new(LOGINS),
            uploads: Semaphore::new(UPLOADS),
            upload_shares: Shares::new(UPLOADS_OF_NETWORK),
            unproven_uploads: Semaphore::new(UNPROVEN_UPLOADS),
            large_uploads: Semaphore::new(LARGE_UPLOADS),
            plans: Arc::new(Semaphore::new(PLANS)),
            live: broadcast::Sender::new(LIVE),
            streams: Places::new(STREAMS, STREAMS_OF_NETWORK),
            exports: Places::new(EXPORTS, EXPORTS_OF_NETWORK),
            readers: Places::new(READERS, READERS_OF_NETWORK),
            applied: RwLock::default(),
            directory: tokio::sync::Mutex::default(),
            wakes: Mutex::default(),
            polls: Mutex::default(),
            touched: Mutex::default(),
        }
    }

    /// Accepts `token` as that of the login on this host.
    pub(crate) fn permit_local(&self, token: &str) {
        let _ = self.local_token.set(secret::hash(token));
    }

    /// Returns whether `hash` is that of the token of the login on this host.
    pub(crate) fn is_local(&self, hash: &str) -> bool {
        self.local_token.get().is_some_and(|own| secret::same(own, hash))
    }

    /// Returns the time since the start in ms. Steps of the clock do not change it.
    pub(crate) fn uptime_ms(&self) -> i64 {
        i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX)
    }

    /// Returns the time for which the hub runs without a step of the clock, which shows `now`.
    pub(crate) fn steady_for(&self, now: i64) -> Duration {
        let mut steady = self.steady.lock().unwrap_or_else(PoisonError::into_inner);
        steady.read(Instant::now(), now)
    }

    /// Returns the mesh that was applied at the last round of planning.
    pub(crate) fn applied(&self) -> Option<Arc<Applied>> {
        self.applied.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the mesh again, if another revision was applied.
    pub(crate) async fn refresh(&self) -> Result<Option<Arc<Applied>>, StoreError> {
        let known = self.applied();
        let latest = self.store.read(move |sql| fleet::refreshed(sql, known.as_ref())).await?;
        *self.applied.write().unwrap_or_else(PoisonError::into_inner) = latest.clone();
        Ok(latest)
    }

    /// Returns the agents of all hosts, at most two seconds old.
    pub(crate) async fn directory(&self) -> Result<Arc<Vec<Agent>>, StoreError> {
        // One request reads; the others wait for it.
        let mut known = self.directory.lock().await;
        if let Some((at, agents)) = known.as_ref()
            && at.elapsed() < DIRECTORY
        {
            return Ok(agents.clone());
        }
        let agents = Arc::new(self.store.read(agents).await?);
        *known = Some((Instant::now(), agents.clone()));
        Ok(agents)
    }

    /// Returns the signal that a host has new leases or cancellations.
    pub(crate) fn wake_of(&self, host: &str) -> Arc<Notify> {
        let mut wakes = self.wakes.lock().unwrap_or_else(PoisonError::into_inner);
        wakes.entry(host.to_owned()).or_default().clone()
    }

    /// Notes that an agent waits with the request of a counter.
    pub(crate) fn begin_poll(&self, agent: &str, counter: u64) {
        let mut polls = self.polls.lock().unwrap_or_else(PoisonError::into_inner);
        let latest = polls.entry(agent.to_owned()).or_default();
        *latest = counter.max(*latest);
    }

    /// Returns whether no later request of the agent waits.
    pub(crate) fn is_latest_poll(&self, agent: &str, counter: u64) -> bool {
        let polls = self.polls.lock().unwrap_or_else(PoisonError::into_inner);
        polls.get(agent).is_none_or(|latest| *latest <= counter)
    }

    /// Ends the long polls of hosts.
    pub(crate) fn wake(&self, hosts: impl IntoIterator<Item = impl AsRef<str>>) {
        let wakes = self.wakes.lock().unwrap_or_else(PoisonError::into_inner);
        for host in hosts {
            if let Some(wake) = wakes.get(host.as_ref()) {
                wake.notify_waiters();
            }
        }
    }

    /// Ends all long polls.
    pub(crate) fn wake_all(&self) {
        let wakes = self.wakes.lock().unwrap_or_else(PoisonError::into_inner);
        wakes.values().for_each(|wake| wake.notify_waiters());
    }

    /// Notes pairs whose cells must be computed.
    pub(crate) fn touch(&self, pairs: impl IntoIterator<Item = (String, String)>) {
        self.touched.lock().unwrap_or_else(PoisonError::into_inner).extend(pairs);
    }

    /// Takes the noted pairs.
    pub(crate) fn take_touched(&self) -> BTreeSet<(String, String)> {
        std::mem::take(&mut *self.touched.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Records events and queues their notifications. The task that watches the store sends new
    /// events, including those of other hubs, to open pages.
    pub(crate) async fn record(&self, events: Vec<NewEvent>) -> Result<(), StoreError> {
        if events.is_empty() {
            return Ok(());
        }
        let (channels, now) = (self.channel_names(), now_ms());
        self.store.write(move |sql| record(sql, &events, &channels, now)).await
    }

    /// Returns the names of the channels of notifications.
    pub(crate) fn channel_names(&self) -> Vec<String> {
        self.channels.iter().map(Channel::name).collect()
    }

    /// Drops the signals of hosts that do not exist any more, so that their number stays bounded.
    pub(crate) fn forget_hosts(&self, known: &HashSet<String>) {
        let mut wakes = self.wakes.lock().unwrap_or_else(PoisonError::into_inner);
        wakes.retain(|host, wake| known.contains(host) || Arc::strong_count(wake) > 1);
    }
}
