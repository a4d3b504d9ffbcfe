//! Tests of the limits on failed logins.

use super::*;

const UNKNOWN: Option<Scope> = Some(Scope::Network);
const KNOWN: Option<Scope> = Some(Scope::Known);
const REGION: Option<Scope> = Some(Scope::Region);

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

impl LoginGuard {
    fn attempt(&self, address: IpAddr, user: &str, now: i64) -> Attempt {
        match self.admit(address, user, now) {
            Admission::Allowed(attempt) => attempt,
            Admission::Refused { seconds } => panic!("refused for {seconds} s"),
        }
    }

    /// Fails a login. Returns the kind of its counter, or `None` if it was refused.
    fn fails(&self, address: IpAddr, user: &str, now: i64) -> Option<Scope> {
        match self.admit(address, user, now) {
            Admission::Allowed(attempt) => Some(attempt.scope),
            Admission::Refused { .. } => None,
        }
    }

    fn succeeds(&self, address: IpAddr, user: &str, now: i64) {
        self.succeeded(self.attempt(address, user, now));
    }
}

/// Fills the counters from as many networks of 10.0.0.0/8 as they hold, and from more.
fn flood(guard: &LoginGuard, now: i64) {
    for at in 0..20_000u32 {
        guard.fails(IpAddr::V4((0x0a00_0000 + at).into()), "admin", now);
    }
}

#[test]
fn ten_thousand_logins_are_refused_in_bounded_memory() {
    let guard = LoginGuard::default();
    let one = address("192.0.2.1");
    let allowed = (0..10_000).filter(|_| guard.fails(one, "admin", 1000) == UNKNOWN).count();
    assert_eq!(allowed, MOST_FAILURES as usize);
    let other = address("192.0.2.2");
    assert_eq!(guard.fails(other, "admin", 1000), UNKNOWN);
    for at in 0..200_000u32 {
        guard.fails(IpAddr::V4((at << 12).into()), "x", 2000);
    }
    let counters = guard.counters.lock().unwrap();
    assert_eq!(counters.networks.counters.len(), MOST_NETWORKS);
    assert_eq!(counters.regions.counters.len(), MOST_REGIONS);
    drop(counters);
    // The window ends.
    assert_eq!(guard.fails(one, "admin", 2000 + WINDOW_MS), UNKNOWN);
}

#[test]
fn many_networks_lock_out_neither_known_users_nor_other_regions() {
    let guard = LoginGuard::default();
    let (office, elsewhere) = (address("10.9.9.9"), address("203.0.113.1"));
    guard.succeeds(office, "ann", 0);
    flood(&guard, 1000);
    assert_eq!(guard.fails(office, "ann", 2000), KNOWN);
    assert_eq!(guard.fails(elsewhere, "ann", 2000), REGION);
    // Guesses of others behind the same address do not affect the known user.
    while guard.fails(office, "admin", 2000).is_some() {}
    assert_eq!(guard.fails(office, "ann", 2000), KNOWN);
    // The known network has no more guesses than another one.
    let allowed = (0..100).filter(|_| guard.fails(office, "ann", 2000) == KNOWN).count();
    assert_eq!(allowed, MOST_FAILURES as usize - 2);
}

#[test]
fn a_flood_gives_nobody_more_guesses() {
    let guard = LoginGuard::default();
    let guesser = address("192.0.2.1");
    for _ in 0..MOST_FAILURES {
        assert_eq!(guard.fails(guesser, "admin", 0), UNKNOWN);
    }
    flood(&guard, 1000);
    assert_eq!(guard.fails(guesser, "admin", 5000), None);
    // 10.1.0.0/16 has no counters of networks any more.
    let next = |at: u32| guard.fails(IpAddr::V4((0x0a01_0000 + at).into()), "admin", 5000);
    let allowed = (0..1000).filter(|at| next(*at) == REGION).count();
    assert_eq!(allowed, MOST_FAILURES as usize);
}

#[test]
fn a_user_has_few_known_networks() {
    let guard = LoginGuard::default();
    let home = address("192.0.2.1");
    guard.succeeds(home, "ann", 0);
    for at in 0..100u32 {
        guard.succeeds(IpAddr::V4((0x0a00_0000 + at).into()), "eve", 0);
        guard.succeeds(home, "eve", 0);
    }
    assert_eq!(guard.counters.lock().unwrap().known["eve"].len(), MOST_KNOWN);
    assert_eq!(guard.fails(home, "ann", 0), KNOWN);
}

#[test]
fn a_login_that_was_not_checked_is_no_failure() {
    let guard = LoginGuard::default();
    let one = address("192.0.2.1");
    for _ in 0..100 {
        guard.released(&guard.attempt(one, "ann", 0));
    }
}

#[test]
fn overlapping_logins_leave_no_failure() {
    let guard = LoginGuard::default();
    let new = address("192.0.2.1");
    for user in 0..100 {
        let user = format!("user{user}");
        let [first, second] = [0, 1].map(|at| guard.attempt(new, &user, at));
        guard.succeeded(first);
        // The network is a known one of the user by now; it was not when the second login counted.
        guard.succeeded(second);
    }
    let allowed = (0..100).filter(|_| guard.fails(new, "admin", 2) == UNKNOWN).count();
    assert_eq!(allowed, MOST_FAILURES as usize);
}

#[test]
fn a_release_subtracts_only_what_its_attempt_added() {
    let guard = LoginGuard::default();
    let new = address("192.0.2.1");
    let [first, second, third] = [0; 3].map(|now| guard.attempt(new, "ann", now));
    guard.succeeded(first);
    while guard.fails(new, "ann", 1) == KNOWN {}
    guard.released(&second);
    assert_eq!(guard.fails(new, "ann", 1), None, "the counter of the known network");
    while guard.fails(new, "admin", WINDOW_MS) == UNKNOWN {}
    guard.released(&third);
    assert_eq!(guard.fails(new, "admin", WINDOW_MS), None, "the counter of a later window");

    let guard = LoginGuard::default();
    flood(&guard, 0);
    let (known, other) = (address("198.51.100.1"), address("198.51.100.2"));
    let by_region = guard.attempt(known, "ann", 1);
    assert_eq!(by_region.scope, Scope::Region);
    // The networks have counters again.
    let now = WINDOW_MS;
    while guard.fails(known, "ann", now) == UNKNOWN {}
    guard.released(&by_region);
    assert_eq!(guard.fails(known, "ann", now), None, "the counter of the network");
    assert_eq!(guard.fails(other, "ann", now), UNKNOWN);
}

#[test]
fn a_correct_password_does_not_forget_guesses_of_others() {
    let guard = LoginGuard::default();
    let one = address("192.0.2.1");
    let guess = |at: u32| guard.fails(one, &format!("user{at}"), 0) == UNKNOWN;
    for at in 0..MOST_FAILURES {
        assert!(guess(at));
        if at + 1 < MOST_FAILURES {
            guard.succeeds(one, "eve", 0);
        }
    }
    assert!(!guess(100), "the guesses of the network");
}

#[test]
fn failed_logins_of_many_networks_have_one_event() {
    let guard = LoginGuard::default();
    let named = |at: u128| guard.reported(IpAddr::V6((at << 64).into()), 7).is_some();
    assert_eq!((1..=10_000).filter(|at| named(*at)).count(), MOST_REPORTED);
    assert!(named(1) && !named(10_000));
    assert!(guard.reported(IpAddr::V6((10_000_u128 << 64).into()), 8).is_some());
}

#[test]
fn a_network_of_ipv6_counts_as_one() {
    let guard = LoginGuard::default();
    for at in 0..10u16 {
        let address: IpAddr = format!("2001:db8::{at:x}").parse().unwrap();
        assert_eq!(guard.fails(address, &format!("user{at}"), 0), UNKNOWN);
    }
    let next: IpAddr = "2001:db8::ffff".parse().unwrap();
    assert_eq!(guard.fails(next, "other", 0), None);
}
