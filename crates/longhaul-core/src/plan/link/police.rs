//! The policer of a link: a token bucket that drops segments and has no queue.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::LinkPlanError;
use super::error::MIN_RATE;
use crate::units::{Bytes, Rate};

/// A token bucket. A segment passes if the bucket holds its bytes, and is dropped otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policer {
    /// The rate at which the bucket is filled, counted as the link's rate counts bytes.
    pub rate_bps: Rate,
    /// The size of the bucket, which is full at the start.
    pub burst_bytes: Bytes,
}

impl Policer {
    /// The form of a valid text, for error messages.
    pub const FORM: &str = "a policer is a rate from 1 kb/s and a burst of at most 64GiB that holds a packet of the \
                            MTU: 1G:4MB";
    const MAX_BURST: Bytes = Bytes::gib(64);

    /// Checks the policer of a link whose largest packets have `packet` bytes, as the rate counts
    /// them.
    pub(super) fn validate(self, packet: Bytes) -> Result<(), LinkPlanError> {
        let good =
            self.rate_bps >= MIN_RATE && (packet..=Self::MAX_BURST).contains(&self.burst_bytes);
        if good { Ok(()) } else { Err(LinkPlanError::value("police", self, Self::FORM)) }
    }
}

impl FromStr for Policer {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let (rate, burst) = text.split_once(':').ok_or(Self::FORM)?;
        Ok(Policer {
            rate_bps: rate.parse().map_err(|_| Self::FORM)?,
            burst_bytes: burst.parse().map_err(|_| Self::FORM)?,
        })
    }
}

impl fmt::Display for Policer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.rate_bps, self.burst_bytes)
    }
}
