use std::ops::Add;
use std::time::Duration;

/// A point in time: nanoseconds since the link's origin, which lasts for 584 years.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct LinkTime(u64);

impl LinkTime {
    /// The point `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        LinkTime(nanos)
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to this point; zero if it is not earlier.
    pub const fn since(self, earlier: LinkTime) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The point `span` before this one; the origin, if that is later.
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
