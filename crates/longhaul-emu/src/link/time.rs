//! Time on a link, in nanoseconds.

use std::ops::Add;
use std::time::Duration;

/// A point in time: nanoseconds since the link's origin. The range is 584 years.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct LinkTime(u64);

impl LinkTime {
    /// Returns the point `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        LinkTime(nanos)
    }

    /// Returns the nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the time from `earlier` to this point; zero if `earlier` is later.
    pub const fn since(self, earlier: LinkTime) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Returns the point `span` before this one, but not before the origin.
    pub const fn before(self, span: Duration) -> LinkTime {
        LinkTime(self.0.saturating_sub(span.as_nanos() as u64))
    }
}

impl Add<Duration> for LinkTime {
    type Output = LinkTime;

    fn add(self, span: Duration) -> LinkTime {
        LinkTime(self.0.saturating_add(span.as_nanos() as u64))
    }
}
