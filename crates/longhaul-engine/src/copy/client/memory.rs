//! The rates of earlier copies over a path, which a copy reads at its start and updates at its end.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use longhaul_core::plan::CopyOptions;
use longhaul_core::result::CopyPathReport;
use longhaul_core::units::Bytes;
use longhaul_core::wire::RefusalKind;

use crate::copy::past_rates::{Direction, PastRates, PathName};
use crate::copy::streams::options_for;
use crate::error::EngineError;
use crate::lock;
use crate::session::Session;

/// The bandwidth-delay products of a copy whose rate counts: the startup takes between one and five.
const STEADY_PRODUCTS: u64 = 6;

/// The memory of one copy.
pub(super) struct RateMemory<'a> {
    past: Option<&'a PastRates>,
    direction: Direction,
    /// The server of the last session and the round-trip time to it.
    path: Mutex<Option<(String, Duration)>>,
    /// True once a server has refused more first connections than usual.
    few: AtomicBool,
}

impl<'a> RateMemory<'a> {
    pub(super) fn new(past: Option<&'a PastRates>, direction: Direction) -> Self {
        RateMemory { past, direction, path: Mutex::default(), few: AtomicBool::new(false) }
    }

    /// Returns the options of a copy over `session`.
    pub(super) fn options(&self, options: &CopyOptions, session: &Session) -> CopyOptions {
        let Some(rtt) = session.rtt() else { return options_for(options, None, None) };
        let path = PathName { direction: self.direction, server: session.peer(), rtt };
        let earlier = self.past.and_then(|past| past.find(path, SystemTime::now()));
        *lock(&self.path) = Some((session.peer().to_owned(), rtt));
        let chosen = options_for(options, Some(rtt), earlier);
        if self.few.load(Ordering::Relaxed) {
            CopyOptions { earlier_bps: chosen.earlier_bps, ..options.clone() }
        } else {
            chosen
        }
    }

    /// Returns the error of an attempt to begin with `options`. If a server has no room for the
    /// connections that this end has chosen, the next attempt begins with few of them.
    pub(super) fn refused(&self, error: EngineError, options: &CopyOptions) -> EngineError {
        match error {
            EngineError::Refused { peer, kind: RefusalKind::Limit, reason }
                if options.streams_may_grow && !self.few.swap(true, Ordering::Relaxed) =>
            {
                EngineError::Failed { peer, reason, again: true }
            }
            error => error,
        }
    }

    /// Remembers the rate of a copy of `moved` bytes that the user did not limit, unless most of it
    /// was the startup.
    pub(super) fn note(&self, report: &CopyPathReport, options: &CopyOptions, moved: Bytes) {
        let path = lock(&self.path);
        let (Some((server, rtt)), Some(rate), Some(past)) = (&*path, report.peak_bps, self.past)
        else {
            return;
        };
        let steady = moved.get() / STEADY_PRODUCTS >= rate.bdp(*rtt).get();
        if options.rate_bps.is_none() && steady {
            let path = PathName { direction: self.direction, server, rtt: *rtt };
            past.note(path, rate, SystemTime::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::units::Rate;

    use super::*;

    const RTT: Duration = Duration::from_millis(90);
    const GBPS: Rate = Rate::from_bps(1_000_000_000);

    /// Returns the rate that is remembered after a copy of `products` bandwidth-delay products.
    fn after(options: &CopyOptions, peak: Option<Rate>, products: u64) -> Option<Rate> {
        let dir = tempfile::tempdir().unwrap();
        let past = PastRates::at(dir.path().join("longhaul"));
        let memory = RateMemory::new(Some(&past), Direction::To);
        let moved = Bytes::new(products * GBPS.bdp(RTT).get());
        let report = CopyPathReport { peak_bps: peak, ..CopyPathReport::default() };
        memory.note(&report, options, moved);
        let path = PathName { direction: Direction::To, server: "far:5210", rtt: RTT };
        assert_eq!(past.find(path, SystemTime::now()), None, "the path is unknown");
        *lock(&memory.path) = Some(("far:5210".to_owned(), RTT));
        memory.note(&report, options, moved);
        past.find(path, SystemTime::now())
    }

    #[test]
    fn a_server_without_room_is_asked_once_more_for_few_connections() {
        let memory = RateMemory::new(None, Direction::To);
        let refusal = |kind| EngineError::Refused {
            peer: "far".to_owned(),
            kind,
            reason: "too few file descriptors".to_owned(),
        };
        let many = CopyOptions { streams: Some(16), streams_may_grow: true, ..Default::default() };
        let own = CopyOptions { streams: Some(16), ..Default::default() };
        let again = |kind, options| memory.refused(refusal(kind), options).may_pass();
        assert!(!again(RefusalKind::Limit, &own), "the user has chosen them");
        assert!(!again(RefusalKind::Files, &many));
        assert!(!memory.few.load(Ordering::Relaxed));
        assert!(again(RefusalKind::Limit, &many));
        assert!(memory.few.load(Ordering::Relaxed));
        assert!(!again(RefusalKind::Limit, &many), "only once");
    }

    #[test]
    fn a_hostile_peak_is_not_remembered() {
        assert_eq!(after(&CopyOptions::default(), Some(Rate::from_bps(u64::MAX)), 100), None);
    }

    #[test]
    fn the_rate_of_a_long_copy_is_remembered() {
        let free = CopyOptions::default();
        assert_eq!(after(&free, Some(GBPS), STEADY_PRODUCTS), Some(GBPS));
        assert_eq!(after(&free, Some(GBPS), STEADY_PRODUCTS - 1), None, "most was the startup");
        assert_eq!(after(&free, None, 100), None);
        let limited = CopyOptions { rate_bps: Some(GBPS), ..free };
        assert_eq!(after(&limited, Some(GBPS), 100), None, "the user has limited it");
    }
}
