//! The checks, in order of execution.

mod damage;
mod delay;
mod identity;
mod jitter;
mod loss;
mod rate;
mod reorder;

use longhaul_core::result::Check;

use super::lab::Lab;

/// Runs all checks, and calls `each` with each result.
pub(super) fn all(lab: &mut Lab<'_>, quick: bool, each: &mut dyn FnMut(Check)) {
    for ipv6 in [false, true] {
        identity::check(lab, ipv6, quick, each);
        delay::idle(lab, ipv6, quick, each);
        loss::independent(lab, ipv6, 1e-2, if quick { 100_000 } else { 400_000 }, each);
    }
    delay::loaded(lab, quick, each);
    rate::check(lab, quick, each);
    loss::independent(lab, false, 1e-3, if quick { 200_000 } else { 1_000_000 }, each);
    loss::independent(lab, false, 1e-4, if quick { 500_000 } else { 4_000_000 }, each);
    loss::bursty(lab, if quick { 200_000 } else { 1_000_000 }, each);
    jitter::check(lab, quick, each);
    reorder::check(lab, quick, each);
    damage::check(lab, quick, each);
}
