use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use longhaul_core::path::MtuSearch;
use longhaul_core::plan::PathPlan;
use longhaul_core::result::{MtuLimit, MtuProof};

use super::ask::{Ask, Question, What, is_too_big};

/// Packets of one size that are lost before that size is taken not to pass: with a tenth lost both
/// ways one in thirty thousand times for no other reason.
const TRIES: u32 = 6;
/// From one to the next.
const PACE: Duration = Duration::from_millis(20);
/// How long this host's kernel takes to say what its interface takes.
const KERNEL: Duration = Duration::from_millis(100);

/// What became of a size.
enum Outcome {
    Passed,
    Stopped(MtuLimit, Option<u32>),
    /// The socket cannot be used.
    Failed(io::Error),
}

/// Finds the largest packet that arrives whole. `patience` is for how long an answer is waited.
///
/// # Errors
/// Nothing can be sent at all.
pub(super) fn prove(
    prober: &mut impl Ask,
    patience: Duration,
    stop: &AtomicBool,
) -> io::Result<MtuProof> {
    let mut search = MtuSearch::new(prober.least_bytes(), PathPlan::MOST_BYTES);
    let mut packets = 0;
    let mut limit = MtuLimit::Nothing;
    // The last that a router let know: it is not said of every packet.
    let mut said: Option<(u32, IpAddr)> = None;
    while let Some(size) = search.next() {
        if stop.load(Ordering::Acquire) {
            break;
        }
        match try_size(prober, size, patience, &mut packets) {
            Outcome::Passed => search.passed(size),
            Outcome::Stopped(by, hint) => {
                search.stopped(size, hint);
                limit = by;
                if let (MtuLimit::Router { address }, Some(bytes)) = (by, hint) {
                    said = Some((bytes, address));
                }
            }
            Outcome::Failed(error) => return Err(error),
        }
    }
    if let (MtuLimit::Silent, Some((bytes, address))) = (limit, said)
        && search.largest() == Some(bytes)
    {
        limit = MtuLimit::Router { address };
    }
    Ok(MtuProof {
        by: prober.prober(),
        bytes: search.largest(),
        stopped_bytes: search.smallest_stopped(),
        limit,
        packets,
    })
}

fn try_size(prober: &mut impl Ask, size: u32, patience: Duration, packets: &mut u32) -> Outcome {
    let mut ours = Vec::new();
    for turn in 1..=TRIES {
        let number = prober.number();
        let answer_bytes = prober.least_bytes();
        let question = Question { number, packet_bytes: size, answer_bytes, hop_limit: None };
        match prober.ask(&question) {
            Ok(()) => *packets += 1,
            Err(error) if is_too_big(&error) => {
                return Outcome::Stopped(MtuLimit::Interface, kernels_word(prober));
            }
            Err(error) => return Outcome::Failed(error),
        }
        ours.push(number);
        let until = Instant::now() + if turn == TRIES { patience } else { PACE };
        while Instant::now() < until {
            let Some(heard) = prober.hear(until) else { break };
            if !heard.number.is_some_and(|number| ours.contains(&number)) {
                continue;
            }
            match (heard.what, heard.by) {
                (What::Answer(_), _) => return Outcome::Passed,
                (What::TooBig(bytes), Some(address)) => {
                    let hint = Some(bytes).filter(|bytes| *bytes > 0);
                    return Outcome::Stopped(MtuLimit::Router { address }, hint);
                }
                _ => {}
            }
        }
    }
    Outcome::Stopped(MtuLimit::Silent, None)
}

/// What the interface takes, as this host's kernel says behind the error.
fn kernels_word(prober: &mut impl Ask) -> Option<u32> {
    let until = Instant::now() + KERNEL;
    while Instant::now() < until {
        let heard = prober.hear(until)?;
        if let (What::TooBig(bytes @ 1..), None) = (heard.what, heard.by) {
            return Some(bytes);
        }
    }
    None
}
