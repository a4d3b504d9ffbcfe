//! The names of the programs of connections.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::time::Instant;

use longhaul_sys::cpu::ThreadClock;
use longhaul_sys::traffic::programs_of;

/// The reciprocal of the share of a core that searches may use: 0.1 %.
const COST: u32 = 1000;

/// The programs of the connections that are shown. A search reads the open files of all processes, so its
/// answers are kept, also that a program is not visible.
#[derive(Debug)]
pub(crate) struct Programs {
    known: HashMap<u32, Option<String>>,
    /// The earliest time of the next search.
    due: Instant,
}

impl Programs {
    pub(crate) fn new() -> Self {
        Programs { known: HashMap::new(), due: Instant::now() }
    }

    /// Searches the programs of new sockets, and forgets those of others.
    pub(crate) fn update(&mut self, inodes: &BTreeSet<u32>, now: Instant) -> io::Result<()> {
        self.known.retain(|inode, _| inodes.contains(inode));
        let new: BTreeSet<u32> =
            inodes.iter().copied().filter(|inode| !self.known.contains_key(inode)).collect();
        if new.is_empty() || now < self.due {
            return Ok(());
        }
        let clock = ThreadClock::current();
        let before = clock.elapsed()?;
        let mut found = programs_of(&new);
        self.known.extend(new.into_iter().map(|inode| (inode, found.remove(&inode))));
        self.due = now + clock.elapsed()?.saturating_sub(before) * COST;
        Ok(())
    }

    /// Returns the program that has a socket open.
    pub(crate) fn of(&self, inode: u32) -> Option<String> {
        self.known.get(&inode).cloned().flatten()
    }
}
