//! A server under attack by clients that violate the protocol, for 30 seconds. The clients are
//! those of `examples/hostile`; `bench/hostile.sh` runs them for longer.

#[path = "../examples/hostile/attack.rs"]
mod attack;
#[path = "../examples/hostile/dice.rs"]
mod dice;
#[path = "../examples/hostile/mutate.rs"]
mod mutate;
#[path = "../examples/hostile/orders.rs"]
mod orders;
#[path = "../examples/hostile/server.rs"]
mod server;
#[path = "../examples/hostile/session.rs"]
mod session;
#[path = "../examples/hostile/watch.rs"]
mod watch;

use std::path::Path;
use std::time::Duration;

use attack::Length;

/// Attacks a server with `options` for ten seconds.
fn attacked(seed: u64, options: &[&str]) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
    let program = Path::new(env!("CARGO_BIN_EXE_longhaul"));
    let length = Length {
        messages: u64::MAX,
        time: Duration::from_secs(10),
        round: Duration::from_secs(10),
        clients: 8,
    };
    let outcome = attack::attack(program, dir.path(), &options, seed, length);
    let tally = outcome.unwrap_or_else(|what| panic!("seed {seed}, {options:?}: {what}"));
    assert!(tally.messages > 100, "{tally:?}");
}

#[test]
fn a_server_withstands_hostile_clients() {
    attacked(1, &[]);
    attacked(2, &["--write-only"]);
    attacked(3, &["--read-only"]);
}
