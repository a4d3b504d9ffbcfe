//! The keys that may reach files here: `authorized_keys`, read again when it changes.
//!
//! A change applies to the next session. A [watch](AuthorizedKeys::watch) checks the list every
//! second and ends the sessions of keys that are no longer valid. A list that cannot be read, has
//! an unknown option or is exposed to other users is ignored, and the previous list stays in force.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use longhaul_core::units::Rate;

use super::config_dir::ConfigDir;
use super::grant::{Grant, KeyLapse};
use super::key_list::{FILE, IgnoredLines, LastRead, is_fresh, parse, stamp};
use super::key_quota::{KeyQuota, Quotas};
use super::key_rate::KeyRate;
use super::private_file::{self, Secrecy};
use super::public_key::PublicKey;
use crate::error::{EngineError, Result};
use crate::lock;

/// The interval between two checks of the list and of the expiry times.
const CHECK_INTERVAL: Duration = Duration::from_millis(if cfg!(test) { 100 } else { 1000 });
/// The maximum number of events that wait for a report.
const EVENTS_LIMIT: usize = 64;

/// The keys that may reach files, with their rights: this user's own and those in
/// `authorized_keys`, one `[OPTIONS] longhaul-ed25519 BASE64 comment` per line; lines that begin
/// with `#` are comments. `docs/guide/serve.md` describes the options. Clones share one list.
#[derive(Debug, Clone)]
pub struct AuthorizedKeys(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    config: ConfigDir,
    own: PublicKey,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    keys: HashMap<PublicKey, Grant>,
    /// The lines of the list that have no valid key.
    ignored: IgnoredLines,
    /// The state of the file when it was last read.
    last_read: Option<LastRead>,
    sessions: HashMap<u64, Live>,
    sessions_begun: u64,
    /// The rate that the running sessions of a key share.
    rates: HashMap<PublicKey, Weak<KeyRate>>,
    quotas: Quotas,
    events: Vec<KeysEvent>,
}

/// An event of the list or its sessions, for the log.
#[derive(Debug)]
pub enum KeysEvent {
    /// A new list is in force.
    Reloaded {
        /// The number of keys in it, without this user's own.
        keys: usize,
        /// The running sessions whose key is no longer in it.
        ended: usize,
        /// The directories of single keys.
        roots: Vec<PathBuf>,
        /// The lines without a valid key.
        ignored: IgnoredLines,
    },
    /// The list has changed and is invalid; the previous one stays in force. Reported once per
    /// change.
    Kept(EngineError),
    /// A client with a listed key was refused.
    Denied {
        /// The key's fingerprint.
        fingerprint: String,
        /// The client's address.
        address: IpAddr,
        /// The reason.
        lapse: KeyLapse,
    },
}

/// A running session of a key.
struct Live {
    key: PublicKey,
    address: IpAddr,
    /// True if the key was missing at the last check. Editors briefly remove a file.
    missed: bool,
    lapse: Arc<Mutex<Option<KeyLapse>>>,
    end: EndSession,
}

/// Ends a session from another thread.
type EndSession = Arc<dyn Fn() + Send + Sync>;

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live").field("key", &self.key).finish_non_exhaustive()
    }
}

impl AuthorizedKeys {
    /// Reads the list; it always contains `own`, so that everything works on one machine.
    ///
    /// # Errors
    /// The file cannot be read, is exposed to other users, or has an invalid option.
    pub fn load(config: &ConfigDir, own: PublicKey) -> Result<Self> {
        let mut state = State::default();
        let last_read = state.read(config, own, None)?;
        state.last_read = Some(last_read);
        let shared = Shared { config: config.clone(), own, state: Mutex::new(state) };
        Ok(AuthorizedKeys(Arc::new(shared)))
    }

    /// Returns the rights of `key` from `address` now; `None` if it may not reach files. A changed
    /// list is read first.
    pub fn find(&self, key: &PublicKey, address: IpAddr) -> Option<Grant> {
        let mut state = self.refreshed(false);
        let grant = state.keys.get(key)?;
        let Some(lapse) = grant.lapse(address, SystemTime::now()) else {
            return Some(grant.clone());
        };
        state.record(KeysEvent::Denied { fingerprint: key.fingerprint(), address, lapse });
        None
    }

    /// Returns whether a key has a separate directory.
    pub fn has_roots(&self) -> bool {
        lock(&self.0.state).keys.values().any(|grant| grant.root.is_some())
    }

    /// Returns the directories of single keys.
    pub fn roots(&self) -> Vec<PathBuf> {
        lock(&self.0.state).roots()
    }

    /// Returns the lines of the list that have no valid key.
    pub fn ignored(&self) -> IgnoredLines {
        lock(&self.0.state).ignored.clone()
    }

    /// Returns whether a key may set owners.
    pub fn has_owners(&self) -> bool {
        lock(&self.0.state).keys.values().any(|grant| grant.owners)
    }

    /// Counts a session of `key` until the value is dropped; `end` is called when the key becomes
    /// invalid. `None` if the key has reached its limit of sessions.
    pub(crate) fn begin(
        &self,
        key: PublicKey,
        grant: &Grant,
        address: IpAddr,
        end: impl Fn() + Send + Sync + 'static,
    ) -> Option<KeySession> {
        let mut state = lock(&self.0.state);
        let running = state.sessions.values().filter(|live| live.key == key).count();
        if grant.max_sessions.is_some_and(|most| running >= most.get() as usize) {
            return None;
        }
        let rate = grant.max_rate.map(|limit| state.rate_of(key, limit));
        let quota = match (&grant.root, grant.quota) {
            (Some(root), Some(limit)) => Some(state.quotas.of(root, limit)),
            _ => None,
        };
        let number = state.sessions_begun;
        state.sessions_begun += 1;
        let lapse = Arc::default();
        let live =
            Live { key, address, missed: false, lapse: Arc::clone(&lapse), end: Arc::new(end) };
        state.sessions.insert(number, live);
        Some(KeySession { keys: self.clone(), number, lapse, rate, quota })
    }

    /// Checks the list every second, and at once after `forced` was set, on a separate thread until
    /// the value is dropped. `report` runs on another thread, so that a slow report delays neither
    /// a check nor the end of a session.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn watch(
        &self,
        forced: Arc<AtomicBool>,
        mut report: impl FnMut(KeysEvent) + Send + 'static,
    ) -> Result<KeysWatch> {
        let keys = self.clone();
        let (stop, stopped) = bounded::<()>(0);
        let (events, reported) = bounded(EVENTS_LIMIT);
        let check = move || {
            while stopped.recv_timeout(CHECK_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                for event in keys.poll_events(forced.swap(false, Ordering::Relaxed)) {
                    // Events that find no place are lost, as the report has not returned for long.
                    let _ = events.try_send(event);
                }
            }
        };
        start("key-events", move || reported.into_iter().for_each(&mut report))?;
        let thread = start("keys", check)?;
        Ok(KeysWatch { stop: Some(stop), thread: Some(thread) })
    }

    /// Reads the list if it has changed or `forced` is true, and ends the sessions of keys that are
    /// no longer valid.
    fn poll_events(&self, forced: bool) -> Vec<KeysEvent> {
        let mut state = self.refreshed(forced);
        let lapsed = state.lapsed(SystemTime::now());
        let events = std::mem::take(&mut state.events);
        // New connections need the lock to find their key.
        drop(state);
        lapsed.iter().for_each(|end| end());
        events
    }

    fn refreshed(&self, forced: bool) -> std::sync::MutexGuard<'_, State> {
        let mut state = lock(&self.0.state);
        state.refresh(&self.0.config, self.0.own, forced);
        state
    }
}

impl State {
    /// Reads the list if it has changed; with `forced` it is read and reported in any case.
    fn refresh(&mut self, config: &ConfigDir, own: PublicKey, forced: bool) {
        let stamp = stamp(config);
        let same = self
            .last_read
            .as_ref()
            .is_some_and(|last_read| last_read.stamp == stamp && !last_read.fresh);
        if same && !forced {
            return;
        }
        let before = self.last_read.take().filter(|_| !forced);
        let read = self.read(config, own, before.as_ref().map(|last_read| &last_read.outcome));
        let (last_read, event) = match read {
            Ok(last_read) => {
                let keys = self.keys.keys().filter(|key| **key != own).count();
                let gone = |live: &&Live| !self.keys.contains_key(&live.key);
                let ended = self.sessions.values().filter(gone).count();
                let same = before.is_some_and(|before| before.outcome == last_read.outcome);
                let (roots, ignored) = (self.roots(), self.ignored.clone());
                let event = KeysEvent::Reloaded { keys, ended, roots, ignored };
                (last_read, (!same).then_some(event))
            }
            Err(error) => {
                let outcome = Err(longhaul_core::text::chain(&error));
                let reported =
                    |before: LastRead| before.stamp == stamp && before.outcome == outcome;
                let event = (!before.is_some_and(reported)).then_some(KeysEvent::Kept(error));
                (LastRead { stamp, fresh: is_fresh(stamp), outcome }, event)
            }
        };
        self.last_read = Some(last_read);
        event.into_iter().for_each(|event| self.record(event));
    }

    /// Reads the list and puts it into force, unless its text is that of `before`.
    fn read(
        &mut self,
        config: &ConfigDir,
        own: PublicKey,
        before: Option<&std::result::Result<String, String>>,
    ) -> Result<LastRead> {
        // The stamp is read before the text, so that a change in between is seen the next time.
        let stamp = stamp(config);
        let text = private_file::read(config, FILE, Secrecy::Open)?.unwrap_or_default();
        let outcome = Ok(text);
        if before != Some(&outcome) {
            let text = outcome.as_deref().unwrap_or_default();
            (self.keys, self.ignored) = parse(config, text, own)?;
        }
        Ok(LastRead { stamp, fresh: is_fresh(stamp), outcome })
    }

    fn roots(&self) -> Vec<PathBuf> {
        self.keys.values().filter_map(|grant| grant.root.clone()).collect()
    }

    /// Returns the rate that the sessions of `key` share; sessions under another limit keep theirs.
    fn rate_of(&mut self, key: PublicKey, limit: Rate) -> Arc<KeyRate> {
        self.rates.retain(|_, rate| rate.strong_count() > 0);
        let shared = self.rates.get(&key).and_then(Weak::upgrade);
        shared.filter(|rate| rate.limit() == limit).unwrap_or_else(|| {
            let rate = KeyRate::new(limit);
            self.rates.insert(key, Arc::downgrade(&rate));
            rate
        })
    }

    /// Returns the functions that end the sessions of keys that are no longer valid.
    fn lapsed(&mut self, now: SystemTime) -> Vec<EndSession> {
        let mut ends = Vec::new();
        for live in self.sessions.values_mut() {
            let lapse = match self.keys.get(&live.key) {
                Some(grant) => grant.lapse(live.address, now),
                None if live.missed => Some(KeyLapse::Removed),
                None => {
                    live.missed = true;
                    continue;
                }
            };
            live.missed = false;
            if let Some(lapse) = lapse
                && lock(&live.lapse).replace(lapse).is_none()
            {
                ends.push(live.end.clone());
            }
        }
        ends
    }

    fn record(&mut self, event: KeysEvent) {
        if self.events.len() < EVENTS_LIMIT {
            self.events.push(event);
        }
    }
}

fn start(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    let thread = thread::Builder::new().name(name.to_owned()).spawn(work);
    thread.map_err(|source| EngineError::System { operation: "start a thread", source })
}

/// A running session of a key; it counts until this is dropped.
#[derive(Debug)]
pub(crate) struct KeySession {
    keys: AuthorizedKeys,
    number: u64,
    lapse: Arc<Mutex<Option<KeyLapse>>>,
    rate: Option<Arc<KeyRate>>,
    quota: Option<KeyQuota>,
}

impl KeySession {
    /// Returns the quota that it shares with the other sessions of its key.
    pub(crate) fn quota(&self) -> Option<KeyQuota> {
        self.quota.clone()
    }

    /// Returns the rate that it shares with the other sessions of its key.
    pub(crate) fn rate(&self) -> Option<Arc<KeyRate>> {
        self.rate.clone()
    }

    /// Returns the reason if the session was ended because of its key.
    pub(crate) fn lapse(&self) -> Option<KeyLapse> {
        *lock(&self.lapse)
    }
}

impl Drop for KeySession {
    fn drop(&mut self) {
        lock(&self.keys.0.state).sessions.remove(&self.number);
    }
}

/// A running watch, which ends when dropped.
#[derive(Debug)]
pub struct KeysWatch {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for KeysWatch {
    fn drop(&mut self) {
        drop(self.stop.take());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

#[cfg(test)]
#[path = "authorized_tests.rs"]
mod tests;
