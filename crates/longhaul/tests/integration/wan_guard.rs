//! The settings of the interfaces of a bridge after its guard was killed.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::host::PROGRAM;
use crate::wan::{assert_code, stderr};
use crate::wan_bridge::{Boxes, Bridge};

/// Returns the process that restores the interfaces.
fn guard(bridge: &Bridge) -> Pid {
    let id = bridge.child.id();
    let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
    Pid::from_raw(children.trim().parse().unwrap()).unwrap()
}

/// Waits until a process that was killed has closed its files.
fn await_end(process: Pid) {
    let files = format!("/proc/{}/fd", process.as_raw_nonzero());
    let deadline = Instant::now() + Duration::from_secs(30);
    while std::fs::read_dir(&files).is_ok_and(|mut files| files.next().is_some()) {
        assert!(Instant::now() < deadline, "the process has not ended");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn settings_that_a_killed_guard_leaves_are_restored() {
    let boxes = Boxes::new();
    boxes.falsify();
    boxes.ip("box", &["link", "set", "eth2", "down"]);
    let state = || boxes.state();
    let before = state();
    // The bridge restores the settings of a guard that was killed.
    let mut bridge = boxes.bridge(&["--rtt", "1ms", "--fix"]);
    kill_process(guard(&bridge), Signal::KILL).unwrap();
    assert_eq!(bridge.signal(Signal::TERM), Some(0));
    assert_eq!(state(), before);
    // `wan down` leaves this to the bridge.
    let mut bridge = boxes.bridge(&["--rtt", "1ms", "--fix"]);
    let killed = guard(&bridge);
    kill_process(killed, Signal::KILL).unwrap();
    await_end(killed);
    let words = ["wan", "down", "--name", &bridge.name];
    assert_code(&boxes.command("box", PROGRAM, &words).output().unwrap(), 0);
    assert_eq!(bridge.wait(), Some(0));
    assert_eq!(state(), before);
    // The next command restores the settings if both processes were killed.
    let kill_both = || {
        let mut bridge = boxes.bridge(&["--rtt", "1ms", "--fix"]);
        let guard = guard(&bridge);
        kill_process(guard, Signal::KILL).unwrap();
        bridge.signal(Signal::KILL);
        await_end(guard);
        assert_ne!(state(), before);
        bridge
    };
    let killed = kill_both();
    let says = "restored the settings of eth1 and eth2, which a killed bridge had changed";
    let words = ["wan", "down", "--name", &killed.name];
    let output = boxes.command("box", PROGRAM, &words).output().unwrap();
    assert_code(&output, 0);
    assert!(stderr(&output).contains(says), "{}", stderr(&output));
    assert_eq!(state(), before);
    // `wan down` in another network namespace, on drop, restores nothing.
    drop(kill_both());
    assert_ne!(state(), before);
    let bridge = boxes.bridge(&["--rtt", "1ms", "--fix"]);
    assert!(bridge.notes[0].contains(says), "{:?}", bridge.notes);
    assert_code(&bridge.wan("down", &[]), 0);
    assert_eq!(state(), before);
}
