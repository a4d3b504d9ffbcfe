//! The release of segments in slots, as media with shared access send them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::LinkPlanError;
use crate::units::seconds;
use crate::units::{Bytes, format_span, parse_span};

/// Slots in which a link delivers segments. Between two slots no segment leaves; in a slot all
/// segments that are due leave together, up to the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slots {
    /// The shortest time between the starts of two slots.
    #[serde(rename = "least_seconds", with = "seconds")]
    pub least: Duration,
    /// The longest time; the time is uniform between both.
    #[serde(rename = "most_seconds", with = "seconds")]
    pub most: Duration,
    /// The most segments per slot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segments: Option<u32>,
    /// The most IP bytes per slot. A longer segment takes a slot of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Bytes>,
}

impl Slots {
    /// The form of a valid text, for error messages.
    pub const FORM: &str = "slots are a time from 1us to 10s or a range of times, then the most segments and the \
                            most bytes of a slot: 10ms, 1ms-3ms:32 or 1ms-3ms:32:64KiB";

    pub(super) fn validate(self) -> Result<(), LinkPlanError> {
        let times = Duration::from_micros(1)..=Duration::from_secs(10);
        let good = times.contains(&self.least)
            && times.contains(&self.most)
            && self.least <= self.most
            && self.segments != Some(0)
            && self.bytes != Some(Bytes::new(0));
        if good { Ok(()) } else { Err(LinkPlanError::value("slot", self, Self::FORM)) }
    }
}

impl FromStr for Slots {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let mut parts = text.split(':');
        let times = parts.next().unwrap_or_default();
        let (least, most) = times.split_once('-').unwrap_or((times, times));
        let span = |text| parse_span(text).map_err(|_| Self::FORM);
        let segments = parts.next().map(|text| text.parse().map_err(|_| Self::FORM)).transpose()?;
        let bytes = parts.next().map(|text| text.parse().map_err(|_| Self::FORM)).transpose()?;
        let slots = Slots { least: span(least)?, most: span(most)?, segments, bytes };
        if parts.next().is_none() { Ok(slots) } else { Err(Self::FORM) }
    }
}

impl fmt::Display for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", format_span(self.least), format_span(self.most))?;
        self.segments.map_or(Ok(()), |segments| write!(f, ":{segments}"))?;
        self.bytes.map_or(Ok(()), |bytes| write!(f, ":{bytes}"))
    }
}
