//! The settings of a reflector, and the state of this host's clock.

use std::time::Duration;

use longhaul_sys::host;

use super::super::STAMP_PORT;
use super::super::key::StampKey;
use super::super::time::{ErrorEstimate, TimeFormat};

/// The settings of a reflector.
#[derive(Debug, Clone)]
pub struct ReflectorSettings {
    /// The key; with it the reflector answers only authenticated requests.
    pub key: Option<StampKey>,
    /// True to count the packets of each session. A stateless reflector repeats the number of the
    /// request.
    pub stateful: bool,
    /// The port of the reflector.
    pub port: u16,
    /// The maximum number of packets per second of one source.
    pub rate: u32,
    /// The maximum number of packets per second of all sources.
    pub all_rate: u32,
}

impl Default for ReflectorSettings {
    fn default() -> Self {
        ReflectorSettings {
            key: None,
            stateful: true,
            port: STAMP_PORT,
            rate: 10_000,
            all_rate: 100_000,
        }
    }
}

/// The state of this host's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LocalClock {
    /// True if a program synchronizes the clock.
    pub synchronised: bool,
    /// The largest error.
    pub max_error: Duration,
}

impl LocalClock {
    /// Reads the state of this host's clock; unsynchronized if a sandbox hides it.
    #[must_use]
    pub fn of_host() -> Self {
        host::clock_state().map_or_else(
            |_| LocalClock::default(),
            |state| LocalClock { synchronised: state.synchronised, max_error: state.max_error },
        )
    }

    /// Returns the error estimate for packets.
    #[must_use]
    pub fn estimate(self) -> ErrorEstimate {
        ErrorEstimate::of(self.synchronised, self.max_error, TimeFormat::Ntp)
    }
}
