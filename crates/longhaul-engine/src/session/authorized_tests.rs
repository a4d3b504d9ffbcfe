//! Tests of the list of authorized keys.

use super::*;
use crate::session::{Identity, Rights};
use std::fs;

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

    fn load(&self) -> AuthorizedKeys {
        AuthorizedKeys::load(&self.config, self.own).unwrap()
    }
}

fn key() -> PublicKey {
    Identity::generate().public()
}

#[test]
fn the_own_key_is_authorized_and_an_unknown_key_is_not() {
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
        let slip = AuthorizedKeys::load(&place.config, own).unwrap_err();
        assert!(matches!(&slip, EngineError::KeyOption { line: 4, .. }), "{slip}");
    }
    place.write(&format!("root=\"/a longhaul-ed25519 b\" {bob}\n"));
    let root = place.load().find(&bob, HERE).unwrap().root;
    assert_eq!(root.as_deref(), Some("/a longhaul-ed25519 b".as_ref()));
}

#[test]
fn lines_without_a_valid_key_are_reported() {
    let [alice, bob] = [key(), key()];
    let list = format!("# people\n\nssh-ed25519 AAAA bob\n{alice}\nlonghaul-ed25519 AAAA bob\n");
    let place = Place::new(&list);
    let keys = place.load();
    assert_eq!(keys.ignored(), IgnoredLines { first: vec![3, 5], count: 2 });
    place.write(&format!("{bob}\n{}", "junk\n".repeat(20)));
    let reported = keys.poll_events(false);
    let [KeysEvent::Reloaded { ignored, .. }] = &reported[..] else { panic!("{reported:?}") };
    assert_eq!(*ignored, IgnoredLines { first: (2..10).collect(), count: 20 });
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
    assert!(matches!(keys.poll_events(false)[..], [KeysEvent::Reloaded { keys: 1, ended: 0, .. }]));
    fs::remove_file(place.config.file(FILE)).unwrap();
    assert!(keys.find(&bob, HERE).is_none() && keys.find(&place.own, HERE).is_some());
    assert!(matches!(keys.poll_events(false)[..], [KeysEvent::Reloaded { keys: 0, ended: 0, .. }]));
    assert!(matches!(keys.poll_events(true)[..], [KeysEvent::Reloaded { keys: 0, ended: 0, .. }]));
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
    let removed = KeyLapse::Removed;
    assert!(first_ended.load(Ordering::Relaxed) && !second_ended.load(Ordering::Relaxed));
    assert_eq!((first.lapse(), second.lapse()), (Some(removed), None));
    assert!(keys.poll_events(false).is_empty());
    place.write(&format!("expiry-time=20200101Z {bob}\n"));
    keys.poll_events(false);
    assert_eq!(second.lapse(), Some(KeyLapse::Expired));
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
    let address = KeyLapse::Address;
    assert!(
        matches!(reported[..], [KeysEvent::Denied { lapse, .. }] if lapse == address),
        "{reported:?}"
    );
}

#[test]
fn a_session_that_ends_slowly_excludes_no_other() {
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
    let answer = answer.recv_timeout(Duration::from_secs(30));
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
