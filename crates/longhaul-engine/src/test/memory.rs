//! The memory of the server's end of a test, fitted to the available memory.
//!
//! A receiver reads into a buffer as long as the client's writes, which saves system calls at high
//! rates. If many tests share the memory, the buffers are smaller.

use std::num::NonZeroU64;

use longhaul_core::plan::{Protocol, TestPlan};
use longhaul_core::result::End;
use longhaul_core::units::Bytes;

use super::context::Part;
use super::udp;
use crate::share::{SessionPart, SessionPool};

/// The memory of a stream's thread: its stack and the kernel's data.
const THREAD_BYTES: u64 = 32 << 10;
/// The smallest buffer: a page.
const LEAST_BYTES: u64 = 4 << 10;
/// The smallest buffer of a UDP socket: the kernel's default (`net.core.rmem_default`).
const LEAST_SOCKET_BYTES: u64 = 208 << 10;

/// The memory that one end may use.
#[derive(Debug)]
pub(super) struct Memory {
    /// The length of the longest read.
    pub(super) read_bytes: usize,
    /// The largest buffer of a UDP socket, unless the client sets it.
    pub(super) socket_bytes: usize,
    _portion: Option<SessionPart>,
}

/// The memory that a test needs at the server.
#[derive(Debug, PartialEq, Eq)]
struct Need {
    /// The part that cannot be smaller.
    fixed: u64,
    /// The number of buffers that may be smaller, their length and their smallest length.
    buffers: u64,
    length: u64,
    least: u64,
}

impl Need {
    fn of(plan: &TestPlan) -> Self {
        let streams = u64::from(plan.streams);
        let parts = Part::of(plan.direction, false);
        let receivers = parts.iter().filter(|part| part.role == End::Receiver).count() as u64;
        let all = streams * parts.len() as u64;
        let write = plan.write_bytes.get();
        let threads = all * THREAD_BYTES;
        // The streams that an end sends share one buffer.
        let supply = if receivers < parts.len() as u64 { write } else { 0 };
        match plan.protocol {
            Protocol::Tcp | Protocol::Mptcp => Need {
                fixed: threads + supply,
                buffers: streams * receivers,
                length: write,
                least: LEAST_BYTES.min(write),
            },
            Protocol::Udp => Need {
                fixed: threads + all * udp::USER_BUFFER_BYTES as u64,
                buffers: if plan.window_bytes.is_some() { 0 } else { all },
                length: udp::receive_buffer_bytes(all as usize) as u64,
                least: LEAST_SOCKET_BYTES,
            },
        }
    }

    fn most(&self) -> u64 {
        self.fixed + self.buffers * self.length
    }

    fn least(&self) -> u64 {
        self.fixed + self.buffers * self.least
    }
}

impl Memory {
    /// Takes the memory for `plan` from `pool`. Without a pool it takes all that the test needs.
    ///
    /// # Errors
    /// The pool has too little, as a sentence without a full stop.
    pub(super) fn take(plan: &TestPlan, pool: Option<&SessionPool>) -> Result<Self, String> {
        let Some(pool) = pool else { return Ok(Memory::of(usize::MAX, None)) };
        let need = Need::of(plan);
        let portion = pool.memory(need.most());
        let granted = portion.granted();
        if granted < need.least() {
            return Err(format!(
                "this server has {} of memory left for a test, and {} streams need {}; request \
                fewer streams, or try again later",
                Bytes::new(granted),
                plan.streams,
                Bytes::new(need.least())
            ));
        }
        let each = NonZeroU64::new(need.buffers).map_or(u64::MAX, |buffers| {
            let each = (granted - need.fixed) / buffers;
            // Rounded to whole pages unless the full length is available.
            if each < need.length { each / LEAST_BYTES * LEAST_BYTES } else { each }
        });
        let each = each.max(need.least);
        Ok(Memory::of(usize::try_from(each).unwrap_or(usize::MAX), Some(portion)))
    }

    fn of(each: usize, portion: Option<SessionPart>) -> Self {
        Memory { read_bytes: each, socket_bytes: each, _portion: portion }
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::plan::Direction;

    use super::*;

    fn plan(streams: u32, write: u64) -> TestPlan {
        TestPlan { streams, write_bytes: Bytes::new(write), ..TestPlan::new() }
    }

    #[test]
    fn all_anonymous_tests_together_keep_to_the_pool() {
        let pool = SessionPool::new(Bytes::mib(512), 16);
        let greedy = plan(128, 2 << 20);
        let tests: Vec<_> = (0..16).map(|_| Memory::take(&greedy, Some(&pool)).unwrap()).collect();
        let total: u64 = tests
            .iter()
            .map(|test| 128 * (test.read_bytes.min(2 << 20) as u64 + THREAD_BYTES))
            .sum();
        assert!(total <= 512 << 20, "{total}");
        assert!(tests.iter().all(|test| test.read_bytes >= 4096 && test.read_bytes % 4096 == 0));
        drop(tests);
        let alone = Memory::take(&plan(8, 1 << 20), Some(&pool)).unwrap();
        assert!(alone.read_bytes >= 1 << 20, "a usual test has what it asks for");
    }

    #[test]
    fn authorized_tests_of_the_largest_kind_keep_to_their_pool() {
        let pool = SessionPool::new(Bytes::gib(1), 64);
        let largest = plan(128, 4 << 20);
        let tests: Vec<_> = (0..64).map(|_| Memory::take(&largest, Some(&pool)).unwrap()).collect();
        let total: u64 =
            tests.iter().map(|test| 128 * (test.read_bytes as u64 + THREAD_BYTES)).sum();
        assert!(total <= 1 << 30, "{total}");
        drop(tests);
        let one = Memory::take(&largest, Some(&pool)).unwrap();
        assert!(one.read_bytes >= 1 << 20, "{}", one.read_bytes);
    }

    #[test]
    fn a_test_that_does_not_fit_is_refused_with_the_reason() {
        let small = SessionPool::new(Bytes::mib(1), 16);
        let reason = Memory::take(&plan(128, 1 << 20), Some(&small)).unwrap_err();
        assert!(reason.contains("128 streams need 4.50 MiB"), "{reason}");
        assert!(reason.contains("request fewer streams"), "{reason}");
        let none = Memory::take(&plan(128, 1 << 20), None).unwrap();
        assert_eq!(none.read_bytes, usize::MAX);
    }

    #[test]
    fn both_directions_and_datagrams_count() {
        let both = TestPlan { direction: Direction::Both, ..plan(4, 1 << 20) };
        let need = Need::of(&both);
        assert_eq!(need.most(), 8 * THREAD_BYTES + (1 << 20) + (4 << 20));
        let udp = TestPlan { protocol: Protocol::Udp, ..plan(128, 1472) };
        assert!(Need::of(&udp).most() >= 128 << 20);
        let pool = SessionPool::new(Bytes::mib(512), 16);
        let first = Memory::take(&udp, Some(&pool)).unwrap();
        assert!(first.socket_bytes >= LEAST_SOCKET_BYTES as usize);
    }
}
