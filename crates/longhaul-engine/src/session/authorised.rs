//! The keys that may reach files here: `authorized_keys`, read again when it changes.
//!
//! A change applies to the next session. A [watch](AuthorisedKeys::watch) checks the list every
//! second and ends the sessions of keys that are no longer valid. A list that cannot be read, has
//! an unknown option or is exposed to other users is ignored, and the previous list stays in force.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use longhaul_core::units::Rate;

use super::config_dir::ConfigDir;
use super::grant::{Grant, Lapse, split_options};
use super::key_quota::{KeyQuota, Quotas};
use super::key_rate::KeyRate;
use super::private_file::{self, Secrecy};
use super::public_key::{KEY_TYPE, PublicKey};
use crate::error::{EngineError, Result};
use crate::lock::lock;

const FILE: &str = "authorized_keys";
/// The interval between two checks of the list and of the expiry times.
const LOOK: Duration = Duration::from_millis(if cfg!(test) { 100 } else { 1000 });
/// The age below which a file may change again without another time of change: kernels count these
/// times in steps of up to 10 ms, file servers of up to 2 s.
const FRESH: Duration = Duration::from_secs(3);
/// The most events that wait for a report.
const EVENTS_LIMIT: usize = 64;

/// The keys that may reach files, with their rights: this user's own and those in
/// `authorized_keys`, one `[OPTIONS] longhaul-ed25519 BASE64 comment` per line; lines that begin
/// with `#` are comments. `docs/guide/serve.md` describes the options. Clones share one list.
#[derive(Debug, Clone)]
pub struct AuthorisedKeys(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    config: ConfigDir,
    own: PublicKey,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    keys: HashMap<PublicKey, Grant>,
    /// The state of the file when it was last read.
    seen: Option<Seen>,
    sessions: HashMap<u64, Live>,
    sessions_begun: u64,
    /// The rate that the running sessions of a key share.
    rates: HashMap<PublicKey, Weak<KeyRate>>,
    quotas: Quotas,
    events: Vec<KeysEvent>,
}

/// A file at the time of reading it.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    stamp: Option<Stamp>,
    /// True if it was changed so recently that the same stamp does not prove the same contents.
    fresh: bool,
    /// The text, or the error of reading it.
    outcome: std::result::Result<String, String>,
}

/// Device, inode, length, mode, owner, and times of change of contents and of status.
type Stamp = (u64, u64, u64, u32, u32, (i64, i64), (i64, i64));

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
        lapse: Lapse,
    },
}

/// A running session of a key.
struct Live {
    key: PublicKey,
    address: IpAddr,
    /// True if the key was missing at the last check. Editors remove a file for a moment.
    missed: bool,
    lapse: Arc<Mutex<Option<Lapse>>>,
    end: EndSession,
}

/// Ends a session from another thread.
type EndSession = Arc<dyn Fn() + Send + Sync>;

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live").field("key", &self.key).finish_non_exhaustive()
    }
}

impl AuthorisedKeys {
    /// Reads the list; it always contains `own`, so that everything works on one machine.
    ///
    /// # Errors
    /// The file cannot be read, is exposed to other users, or has an invalid option.
    pub fn load(config: &ConfigDir, own: PublicKey) -> Result<Self> {
        let mut state = State::default();
        let seen = state.read(config, own, None)?;
        state.seen = Some(seen);
        let shared = Shared { config: config.clone(), own, state: Mutex::new(state) };
        Ok(AuthorisedKeys(Arc::new(shared)))
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
            while stopped.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
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
        let same = self.seen.as_ref().is_some_and(|seen| seen.stamp == stamp && !seen.fresh);
        if same && !forced {
            return;
        }
        let before = self.seen.take().filter(|_| !forced);
        let read = self.read(config, own, before.as_ref().map(|seen| &seen.outcome));
        let (seen, event) = match read {
            Ok(seen) => {
                let keys = self.keys.keys().filter(|key| **key != own).count();
                let gone = |live: &&Live| !self.keys.contains_key(&live.key);
                let ended = self.sessions.values().filter(gone).count();
                let same = before.is_some_and(|before| before.outcome == seen.outcome);
                let roots = self.roots();
                (seen, (!same).then_some(KeysEvent::Reloaded { keys, ended, roots }))
            }
            Err(error) => {
                let outcome = Err(longhaul_core::text::chain(&error));
                let reported = |before: Seen| before.stamp == stamp && before.outcome == outcome;
                let event = (!before.is_some_and(reported)).then_some(KeysEvent::Kept(error));
                (Seen { stamp, fresh: is_fresh(stamp), outcome }, event)
            }
        };
        self.seen = Some(seen);
        event.into_iter().for_each(|event| self.record(event));
    }

    /// Reads the list and puts it into force, unless its text is that of `before`.
    fn read(
        &mut self,
        config: &ConfigDir,
        own: PublicKey,
        before: Option<&std::result::Result<String, String>>,
    ) -> Result<Seen> {
        // The stamp is read before the text, so that a change in between is seen the next time.
        let stamp = stamp(config);
        let text = private_file::read(config, FILE, Secrecy::Open)?.unwrap_or_default();
        let outcome = Ok(text);
        if before != Some(&outcome) {
            let text = outcome.as_deref().unwrap_or_default();
            self.keys = parse(config, text, own)?;
        }
        Ok(Seen { stamp, fresh: is_fresh(stamp), outcome })
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
                None if live.missed => Some(Lapse::Removed),
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

fn stamp(config: &ConfigDir) -> Option<Stamp> {
    let meta = fs::metadata(config.file(FILE)).ok()?;
    let changed = (meta.mtime(), meta.mtime_nsec());
    let status = (meta.ctime(), meta.ctime_nsec());
    Some((meta.dev(), meta.ino(), meta.len(), meta.mode(), meta.uid(), changed, status))
}

fn is_fresh(stamp: Option<Stamp>) -> bool {
    let Some((.., (seconds, _))) = stamp else { return false };
    let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.max(0) as u64);
    SystemTime::now().duration_since(changed).is_ok_and(|age| age < FRESH)
}

fn parse(config: &ConfigDir, text: &str, own: PublicKey) -> Result<HashMap<PublicKey, Grant>> {
    let mut keys = HashMap::new();
    for (line, number) in text.lines().zip(1..) {
        let line = line.trim();
        if line.starts_with('#') || !line.contains(KEY_TYPE) {
            continue;
        }
        let (options, key) =
            if line.starts_with(KEY_TYPE) { ("", line) } else { split_options(line) };
        let slip =
            |option| EngineError::KeyOption { file: config.file(FILE), line: number, option };
        if !key.starts_with(KEY_TYPE) {
            return Err(slip(line[..line.find(KEY_TYPE).unwrap_or(0)].trim_end().to_owned()));
        }
        let mut grant = Grant::from_options_or_none(options).map_err(slip)?;
        grant.comment = comment(key);
        let Ok(key) = key.parse() else { continue };
        // The first line of a key applies, as with ssh.
        keys.entry(key).or_insert(grant);
    }
    keys.entry(own).or_default();
    Ok(keys)
}

/// A running session of a key; it counts until this is dropped.
#[derive(Debug)]
pub(crate) struct KeySession {
    keys: AuthorisedKeys,
    number: u64,
    lapse: Arc<Mutex<Option<Lapse>>>,
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
    pub(crate) fn lapse(&self) -> Option<Lapse> {
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

/// Returns the text after the type and the key of a line.
fn comment(key: &str) -> Option<String> {
    let mut rest = key;
    for _ in 0..2 {
        rest = rest.trim_start().split_once(char::is_whitespace)?.1;
    }
    Some(rest.trim().to_owned()).filter(|comment| !comment.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::{Identity, Rights};

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    struct Place {
        _dir: tempfile::TempDir,
        config: ConfigDir,
        own: PublicKey,
    }

    impl Place {
        fn new(list: &str) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let config = ConfigDir::at(dir.path());
            let place = Place { _dir: dir, config, own: key() };
            place.write(list);
            place
        }

        fn write(&self, list: &str) {
            fs::write(self.config.file(FILE), list).unwrap();
        }

        fn load(&self) -> AuthorisedKeys {
            AuthorisedKeys::load(&self.config, self.own).unwrap()
        }
    }

    fn key() -> PublicKey {
        Identity::generate().public()
    }

    #[test]
    fn the_own_key_is_authorised_and_a_stranger_is_not() {
        let friend = key();
        let place = Place::new(&format!("# people\n{friend} bob\n"));
        let keys = place.load();
        assert!(keys.find(&place.own, HERE).is_some() && keys.find(&friend, HERE).is_some());
        assert!(keys.find(&key(), HERE).is_none() && !keys.has_roots());
        assert_eq!(keys.find(&friend, HERE).unwrap().comment.as_deref(), Some("bob"));
        assert_eq!(keys.find(&place.own, HERE).unwrap().comment, None);
    }

    #[test]
    fn options_stand_before_a_key_and_slips_are_named() {
        let [alice, bob] = [key(), key()];
        let place = Place::new("");
        let own = place.own;
        let lines = format!("root=\"/data/a b\",read-only {alice}\n# x {bob}\nwrite-only {own}\n");
        place.write(&lines);
        let keys = place.load();
        let grant = keys.find(&alice, HERE).unwrap();
        assert_eq!(grant.root.as_deref(), Some("/data/a b".as_ref()));
        assert_eq!(grant.rights, Rights::ReadOnly);
        assert!(keys.find(&bob, HERE).is_none() && keys.has_roots());
        assert_eq!(keys.find(&own, HERE).unwrap().rights, Rights::WriteOnly);
        for slip in ["readonly", "read-only, owners", "root=\"/a longhaul-ed25519 b", "quota=1G"] {
            place.write(&format!("{lines}{slip} {bob}\n"));
            let slip = AuthorisedKeys::load(&place.config, own).unwrap_err();
            assert!(matches!(&slip, EngineError::KeyOption { line: 4, .. }), "{slip}");
        }
        place.write(&format!("root=\"/a longhaul-ed25519 b\" {bob}\n"));
        let root = place.load().find(&bob, HERE).unwrap().root;
        assert_eq!(root.as_deref(), Some("/a longhaul-ed25519 b".as_ref()));
    }

    #[test]
    fn a_changed_list_counts_for_the_next_session() {
        let [alice, bob] = [key(), key()];
        let place = Place::new(&format!("{alice}\n"));
        let keys = place.load();
        assert!(keys.poll_events(false).is_empty());
        // Of the same length, within the same step of the clock.
        place.write(&format!("{bob}\n"));
        assert!(keys.find(&alice, HERE).is_none() && keys.find(&bob, HERE).is_some());
        assert!(matches!(
            keys.poll_events(false)[..],
            [KeysEvent::Reloaded { keys: 1, ended: 0, .. }]
        ));
        fs::remove_file(place.config.file(FILE)).unwrap();
        assert!(keys.find(&bob, HERE).is_none() && keys.find(&place.own, HERE).is_some());
        assert!(matches!(
            keys.poll_events(false)[..],
            [KeysEvent::Reloaded { keys: 0, ended: 0, .. }]
        ));
        assert!(matches!(
            keys.poll_events(true)[..],
            [KeysEvent::Reloaded { keys: 0, ended: 0, .. }]
        ));
        assert!(keys.poll_events(false).is_empty());
    }

    #[test]
    fn a_list_with_a_slip_changes_nothing_and_is_reported_once() {
        use std::os::unix::fs::PermissionsExt;
        let [alice, bob] = [key(), key()];
        let place = Place::new(&format!("{alice}\n"));
        let keys = place.load();
        place.write(&format!("red-only {alice}\n{bob}\n"));
        assert!(keys.find(&alice, HERE).is_some() && keys.find(&bob, HERE).is_none());
        let reported = keys.poll_events(false);
        assert!(
            matches!(&reported[..], [KeysEvent::Kept(EngineError::KeyOption { .. })]),
            "{reported:?}"
        );
        assert!(keys.poll_events(false).is_empty(), "once per change");
        assert_eq!(keys.poll_events(true).len(), 1, "and when it is asked for");
        place.write(&format!("{bob}\n"));
        let exposed = fs::Permissions::from_mode(0o666);
        fs::set_permissions(place.config.file(FILE), exposed).unwrap();
        let reported = keys.poll_events(false);
        assert!(
            matches!(&reported[..], [KeysEvent::Kept(EngineError::Exposed { .. })]),
            "{reported:?}"
        );
        assert!(keys.find(&alice, HERE).is_some() && keys.poll_events(false).is_empty());
        fs::set_permissions(place.config.file(FILE), fs::Permissions::from_mode(0o644)).unwrap();
        assert!(keys.find(&alice, HERE).is_none() && keys.find(&bob, HERE).is_some());
    }

    #[test]
    fn a_removed_key_ends_its_sessions_and_no_others() {
        let [alice, bob] = [key(), key()];
        let place = Place::new(&format!("{alice}\n{bob}\n"));
        let keys = place.load();
        let begin = |key| {
            let ended = Arc::new(AtomicBool::new(false));
            let flag = ended.clone();
            let grant = keys.find(&key, HERE).unwrap();
            let end = move || flag.store(true, Ordering::Relaxed);
            (keys.begin(key, &grant, HERE, end).unwrap(), ended)
        };
        let ((first, first_ended), (second, second_ended)) = (begin(alice), begin(bob));
        place.write(&format!("{bob}\n"));
        let reported = keys.poll_events(false);
        assert!(
            matches!(reported[..], [KeysEvent::Reloaded { keys: 1, ended: 1, .. }]),
            "{reported:?}"
        );
        assert_eq!(first.lapse(), None, "an editor may be about to write it");
        assert!(keys.poll_events(false).is_empty());
        let removed = Lapse::Removed;
        assert!(first_ended.load(Ordering::Relaxed) && !second_ended.load(Ordering::Relaxed));
        assert_eq!((first.lapse(), second.lapse()), (Some(removed), None));
        assert!(keys.poll_events(false).is_empty());
        place.write(&format!("expiry-time=20200101Z {bob}\n"));
        keys.poll_events(false);
        assert_eq!(second.lapse(), Some(Lapse::Expired));
        drop((first, second));
        assert!(lock(&keys.0.state).sessions.is_empty());
    }

    #[test]
    fn max_sessions_limits_a_key() {
        let alice = key();
        let place = Place::new(&format!("max-sessions=2 {alice}\n"));
        let keys = place.load();
        let grant = keys.find(&alice, HERE).unwrap();
        let begin = || keys.begin(alice, &grant, HERE, || ());
        let (first, _second) = (begin(), begin());
        assert!(first.is_some() && begin().is_none());
        drop(first);
        assert!(begin().is_some());
    }

    #[test]
    fn the_sessions_of_a_key_share_one_rate() {
        let [alice, bob] = [key(), key()];
        let place = Place::new(&format!("max-rate=1G {alice}\nmax-rate=1G {bob}\n"));
        let keys = place.load();
        let begin = |key| {
            let grant = keys.find(&key, HERE).unwrap();
            keys.begin(key, &grant, HERE, || ()).unwrap()
        };
        let (first, second, other) = (begin(alice), begin(alice), begin(bob));
        let same = |one: &KeySession, two: &KeySession| {
            Arc::ptr_eq(&one.rate().unwrap(), &two.rate().unwrap())
        };
        assert!(same(&first, &second) && !same(&first, &other));
        place.write(&format!("max-rate=2G {alice}\n"));
        assert_eq!(begin(alice).rate().unwrap().limit(), Rate::from_bps(2_000_000_000));
    }

    #[test]
    fn a_key_that_comes_from_elsewhere_is_denied_and_reported() {
        let alice = key();
        let place = Place::new(&format!("from=192.0.2.0/24 {alice}\n"));
        let keys = place.load();
        assert!(keys.find(&alice, "192.0.2.9".parse().unwrap()).is_some());
        assert!(keys.find(&alice, HERE).is_none());
        let reported = keys.poll_events(false);
        let address = Lapse::Address;
        assert!(
            matches!(reported[..], [KeysEvent::Denied { lapse, .. }] if lapse == address),
            "{reported:?}"
        );
    }

    #[test]
    fn a_session_that_is_slow_to_end_keeps_nobody_out() {
        let [alice, bob] = [key(), key()];
        let place = Place::new(&format!("{alice}\n{bob}\n"));
        let keys = place.load();
        let grant = keys.find(&alice, HERE).unwrap();
        let (ending, began) = bounded::<()>(0);
        let (release, released) = bounded::<()>(0);
        let slow = move || {
            let _ = ending.send(());
            let _ = released.recv();
        };
        let _session = keys.begin(alice, &grant, HERE, slow).unwrap();
        let _watch = keys.watch(Arc::default(), |_| ()).unwrap();
        place.write(&format!("{bob}\n"));
        began.recv_timeout(Duration::from_secs(20)).unwrap();
        let (found, answer) = bounded(1);
        let keys = keys.clone();
        thread::spawn(move || found.send(keys.find(&bob, HERE).is_some()));
        let answer = answer.recv_timeout(Duration::from_secs(5));
        drop(release);
        assert_eq!(answer, Ok(true), "a new connection waits for the end of another session");
    }

    #[test]
    fn a_report_that_blocks_does_not_keep_sessions_alive() {
        let alice = key();
        let place = Place::new(&format!("{alice}\n"));
        let keys = place.load();
        let grant = keys.find(&alice, HERE).unwrap();
        let (end, ended) = bounded(1);
        let _session = keys.begin(alice, &grant, HERE, move || end.send(()).unwrap()).unwrap();
        let (release, released) = bounded::<()>(0);
        let (reporting, reported) = bounded::<()>(0);
        let watch = keys.watch(Arc::default(), move |_| {
            let _ = reporting.send(());
            let _ = released.recv();
        });
        let watch = watch.unwrap();
        place.write("# nobody\n");
        reported.recv_timeout(Duration::from_secs(20)).unwrap();
        let ended = ended.recv_timeout(Duration::from_secs(20));
        drop((release, watch));
        assert_eq!(ended, Ok(()), "the session of a removed key runs on");
    }

    #[test]
    fn a_watch_reports_and_ends() {
        let place = Place::new("");
        let keys = place.load();
        let (reported, events) = crossbeam_channel::unbounded();
        let watch = keys.watch(Arc::default(), move |event| reported.send(event).unwrap()).unwrap();
        place.write(&format!("{}\n", key()));
        let event = events.recv_timeout(Duration::from_secs(20)).unwrap();
        assert!(matches!(event, KeysEvent::Reloaded { keys: 1, .. }), "{event:?}");
        drop(watch);
        assert!(events.recv().is_err());
    }
}
