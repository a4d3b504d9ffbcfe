use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use rustix::event::EventfdFlags;

use super::Lane;
use super::sleeper::Sleeper;
use crate::link::LinkTime;

/// How many packets of one direction leave before the other direction has its turn.
const BATCH: usize = 8;

/// The thread that moves a link's packets.
#[derive(Debug)]
pub(crate) struct Driver {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<Vec<Lane>>>,
}

/// Asks a running driver to end: the flag while it works, the descriptor while it waits.
#[derive(Debug)]
struct Stop {
    flag: AtomicBool,
    wake: OwnedFd,
}

impl Driver {
    /// Starts moving packets.
    pub(crate) fn start(mut lanes: Vec<Lane>) -> io::Result<Self> {
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let stop = Arc::new(Stop { flag: AtomicBool::new(false), wake });
        let seen = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("link".into()).spawn(move || {
            // The default slack of 50 us would make every departure late by as much.
            let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
            // Where permitted: on a machine whose processors are all busy, as both ends of a fast
            // transfer see to, an ordinary thread waits for tens of milliseconds at a time.
            let realtime = longhaul_sys::realtime::run_first().is_ok();
            run(&mut lanes, &seen, realtime);
            lanes
        })?;
        Ok(Driver { stop, thread: Some(thread) })
    }

    /// Stops, and returns the lanes with what they counted.
    pub(crate) fn stop(mut self) -> Vec<Lane> {
        self.halt()
    }

    fn halt(&mut self) -> Vec<Lane> {
        self.stop.flag.store(true, Ordering::Relaxed);
        let _ = rustix::io::write(&self.stop.wake, &1u64.to_ne_bytes());
        let thread = self.thread.take();
        thread.and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.halt();
    }
}

fn run(lanes: &mut [Lane], stop: &Stop, realtime: bool) {
    let origin = Instant::now();
    let clock = || LinkTime::from_nanos(origin.elapsed().as_nanos() as u64);
    // When the next packet may enter. Each entry costs the thread a departure later; entering at
    // full speed while nothing is due yet would make a burst that cannot leave at the speed at
    // which it came. A link without a rate is as fast as packets enter and leave by turns.
    let mut open_at = LinkTime::default();
    let mut turn = 0;
    let mut sleeper = Sleeper::default();
    while !stop.flag.load(Ordering::Relaxed) {
        // Departures have a time and arrivals can wait in their device, so departures go first.
        let mut busy = false;
        for lane in &mut *lanes {
            busy |= (0..BATCH).take_while(|_| lane.release(clock)).count() > 0;
        }
        if realtime {
            sleeper.rest(clock);
        }
        if busy || clock() < open_at {
            continue;
        }
        // One packet, from whichever direction had its turn longer ago: a full device must not
        // keep the other direction's acknowledgements waiting.
        for _ in 0..lanes.len() {
            turn = (turn + 1) % lanes.len();
            if let Some(cost) = lanes[turn].admit(clock) {
                open_at = clock() + cost;
                busy = true;
                break;
            }
        }
        if !busy {
            let due = lanes.iter().filter_map(Lane::next_due).min();
            let wake = std::iter::once(stop.wake.as_fd());
            sleeper.wait(due, lanes.iter().filter_map(Lane::source).chain(wake), clock);
        }
    }
}
