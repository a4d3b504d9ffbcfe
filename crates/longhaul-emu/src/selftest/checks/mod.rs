//! The checks, in order of execution.

pub(super) mod bottleneck;
pub(super) mod capacity;
pub(super) mod channels;
pub(super) mod classes;
pub(super) mod damage;
pub(super) mod delay;
pub(super) mod identity;
pub(super) mod jitter;
pub(super) mod loss;
pub(super) mod queues;
pub(super) mod rate;
pub(super) mod reorder;

use longhaul_core::result::Check;

use super::lab::Lab;

/// Runs all checks, and calls `each` with each result.
pub(super) fn all(lab: &mut dyn Lab, quick: bool, each: &mut dyn FnMut(Check)) {
    for ipv6 in [false, true] {
        identity::check(lab, ipv6, quick, each);
        delay::idle(lab, ipv6, quick, each);
        loss::independent(lab, ipv6, (0.1, 250_000), each);
    }
    delay::loaded(lab, quick, each);
    rate::check(lab, quick, each);
    // A rate of 1e-2 needs 24,000 losses to find an error of 5 %.
    loss::independent(lab, false, (1e-2, if quick { 200_000 } else { 2_400_000 }), each);
    loss::independent(lab, false, (1e-3, if quick { 200_000 } else { 1_000_000 }), each);
    loss::independent(lab, false, (1e-4, if quick { 500_000 } else { 4_000_000 }), each);
    loss::bursty(lab, each);
    loss::bit_errors(lab, each);
    channels::check(lab, each);
    jitter::check(lab, each);
    reorder::check(lab, quick, each);
    capacity::check(lab, each);
    bottleneck::check(lab, each);
    queues::check(lab, each);
    classes::check(lab, each);
    damage::check(lab, each);
}
