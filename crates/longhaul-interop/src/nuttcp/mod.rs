//! The protocol of nuttcp 6.1 and later.
//!
//! A client opens a control connection, and both ends state their versions. One line of the client
//! carries all options of the test. The server answers `OK`, the data move over other connections,
//! and then the server prints its report as text and closes the control connection.
//! `docs/design/interop.md` describes the details.

pub mod arguments;
mod control;
pub mod datagram;
mod drive;
mod parameters;
mod report;

use std::fmt;

pub use control::{Client, ClientError, ClientEvent, LONGEST_LINE, LineError, Refusal, Server};
pub use drive::{
    ClientOptions, ClientResult, LocalEnd, NuttcpServer, Observer, Usage, plan_of, run,
};
pub use parameters::{
    DATA_PORT, Feature, MOST_STREAMS, OLD_DATA_PORT, ParameterError, Parameters, Unsupported,
    format,
};
pub use report::{
    Block, BlockTotals, Brief, Datagrams, Interval, Opening, Retransmits, ServerReport, Spread,
    Style, Totals, megabits, megabytes,
};

/// A version of nuttcp, such as 6.1.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The major number.
    pub major: u16,
    /// The minor number.
    pub minor: u16,
    /// The patch number.
    pub delta: u16,
}

impl Version {
    /// The version of the protocol that this program implements and states to its peers.
    pub const OURS: Self = Self::new(8, 2, 2);
    /// The oldest supported version.
    pub const OLDEST: Self = Self::new(6, 1, 2);

    /// Returns the version with these numbers.
    #[must_use]
    pub const fn new(major: u16, minor: u16, delta: u16) -> Self {
        Self { major, minor, delta }
    }

    /// Parses `vX.Y.Z`, which a space may follow.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix('v')?.split(' ').next()?;
        let mut numbers = text.split('.').map(|number| number.parse().ok());
        let version = Self::new(numbers.next()??, numbers.next()??, numbers.next()??);
        numbers.next().is_none().then_some(version)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.delta)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_parsed_and_compared_by_number() {
        assert_eq!(Version::parse("v6.1.2"), Some(Version::OLDEST));
        assert!(Version::new(6, 2, 10) > Version::new(6, 2, 8));
        for invalid in ["6.1.2", "v6.1", "v6.1.2.3", "v6.1.x", "v70000.1.1", "v6.-1.2", ""] {
            assert_eq!(Version::parse(invalid), None, "{invalid}");
        }
        assert_eq!(Version::OURS.to_string(), "8.2.2");
    }
}
