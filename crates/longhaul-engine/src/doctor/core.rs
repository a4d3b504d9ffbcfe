//! The speed of one core with bytes in memory.

use std::time::{Duration, Instant};

use longhaul_core::result::Measurement;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

use super::measured;
use crate::noise;

/// More bytes than the caches of a core, and mostly of a processor, hold.
const MEMORY_BYTES: usize = 128 << 20;
/// The bytes that a copy hashes and seals at once (`copy/stream.rs`).
const SEGMENT_BYTES: usize = 128 << 10;

/// One kind of work.
pub(super) struct CoreTask {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    note: &'static str,
    /// Works for the given time; returns the bytes and the elapsed time.
    run: fn(Duration) -> (u64, Duration),
}

/// All kinds of work.
pub(super) const WORKS: &[CoreTask] = &[
    CoreTask {
        name: "memory_copy",
        title: "memory, copied by one core",
        note: "128 MiB to another 128 MiB; each byte is read once and written once",
        run: copy_memory,
    },
    CoreTask {
        name: "blake3",
        title: "BLAKE3, one core",
        note: "the digests of cp and its manifests",
        run: |time| {
            over_a_segment(time, |segment| {
                std::hint::black_box(blake3::hash(segment));
            })
        },
    },
    CoreTask {
        name: "xxh3",
        title: "XXH3-128, one core",
        note: "the digests of blocks in cleartext copies",
        run: |time| {
            over_a_segment(time, |segment| {
                std::hint::black_box(twox_hash::XxHash3_128::oneshot(segment));
            })
        },
    },
    CoreTask {
        name: "aes_256_gcm",
        title: "AES-256-GCM, one core",
        note: "the encryption and verification of blocks",
        run: seal,
    },
];

/// Measures `work` for `time`.
pub(super) fn measure(work: &CoreTask, time: Duration) -> Measurement {
    let (bytes, elapsed) = (work.run)(time);
    measured(work.name, work.title, bytes, elapsed, work.note)
}

fn copy_memory(time: Duration) -> (u64, Duration) {
    let from = vec![1_u8; MEMORY_BYTES];
    // The pages are allocated before the clock starts.
    let mut to = vec![2_u8; MEMORY_BYTES];
    repeat(time, || {
        to.copy_from_slice(std::hint::black_box(&from));
        std::hint::black_box(&mut to);
        MEMORY_BYTES as u64
    })
}

fn over_a_segment(time: Duration, mut work: impl FnMut(&mut [u8])) -> (u64, Duration) {
    let mut segment = vec![0; SEGMENT_BYTES];
    noise(&mut segment);
    repeat(time, || {
        work(std::hint::black_box(&mut segment));
        SEGMENT_BYTES as u64
    })
}

fn seal(time: Duration) -> (u64, Duration) {
    let key = UnboundKey::new(&AES_256_GCM, &[7; 32]).expect("the key has 256 bits");
    let key = LessSafeKey::new(key);
    let mut counter = 0_u64;
    over_a_segment(time, |segment| {
        let mut nonce = [0; 12];
        nonce[4..].copy_from_slice(&counter.to_be_bytes());
        counter += 1;
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = key.seal_in_place_separate_tag(nonce, Aad::empty(), segment);
        let _ = std::hint::black_box(tag);
    })
}

/// Repeats `work` until `time` has passed; `work` returns its bytes.
fn repeat(time: Duration, mut work: impl FnMut() -> u64) -> (u64, Duration) {
    let begun = Instant::now();
    let mut bytes = 0;
    loop {
        bytes += work();
        let elapsed = begun.elapsed();
        if elapsed >= time {
            return (bytes, elapsed);
        }
    }
}
