//! The times in which a link delivers nothing: outages, and the gaps between the slots of shared media.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::LinkPlanError;
use crate::units::{Bytes, format_span, parse_span, seconds};

/// A period in which the link is down, as if its cable were unplugged at the sender's end, once or
/// at a fixed interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outage {
    /// The start, relative to the link's start.
    #[serde(rename = "start_seconds", with = "seconds")]
    pub start: Duration,
    /// The length of the outage.
    #[serde(rename = "length_seconds", with = "seconds")]
    pub length: Duration,
    /// The period from start to start, if the outage repeats.
    #[serde(
        rename = "every_seconds",
        default,
        skip_serializing_if = "Option::is_none",
        serialize_with = "serialize_every",
        deserialize_with = "deserialize_every"
    )]
    pub every: Option<Duration>,
}

impl Outage {
    /// The form of a valid text, for error messages.
    pub const FORM: &str = "outages are START+LENGTH or START+LENGTH/EVERY, joined by commas, with \
                            a length above 0 and below EVERY: 10s+2s or 10s+500ms/30s";

    /// Parses a list of outages.
    pub(super) fn parse_list(text: &str) -> Result<Vec<Outage>, &'static str> {
        text.split(',').map(str::parse).collect()
    }

    /// Returns the start and end of the first outage that ends after `time`.
    pub fn next_after(&self, time: Duration) -> Option<(Duration, Duration)> {
        let mut start = self.start;
        if let Some(every) = self.every {
            let passed = time.saturating_sub(start).as_nanos() / every.as_nanos();
            start += Duration::from_nanos((passed * every.as_nanos()) as u64);
            if start + self.length <= time {
                start += every;
            }
        }
        (start + self.length > time).then_some((start, start + self.length))
    }

    pub(super) fn validate(&self) -> Result<(), LinkPlanError> {
        if !self.length.is_zero() && self.every.is_none_or(|every| every > self.length) {
            Ok(())
        } else {
            Err(LinkPlanError::value("outage", self, Self::FORM))
        }
    }
}

impl FromStr for Outage {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let span = |text: &str| parse_span(text).map_err(|_| Self::FORM);
        let (start, rest) = text.split_once('+').ok_or(Self::FORM)?;
        let (length, every) = match rest.split_once('/') {
            None => (rest, None),
            Some((length, every)) => (length, Some(span(every)?)),
        };
        Ok(Outage { start: span(start)?, length: span(length)?, every })
    }
}

impl std::fmt::Display for Outage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}+{}", format_span(self.start), format_span(self.length))?;
        match self.every {
            None => Ok(()),
            Some(every) => write!(f, "/{}", format_span(every)),
        }
    }
}

fn serialize_every<S: Serializer>(every: &Option<Duration>, s: S) -> Result<S::Ok, S::Error> {
    every.as_ref().map(Duration::as_secs_f64).serialize(s)
}

fn deserialize_every<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Duration>, D::Error> {
    seconds::deserialize(d).map(Some)
}

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
    /// The maximum number of segments per slot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segments: Option<u32>,
    /// The most IP bytes per slot. A longer segment takes a separate slot.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_repeats_at_its_interval() {
        let s = Duration::from_secs;
        let outage: Outage = "10s+2s/30s".parse().unwrap();
        assert_eq!(outage.to_string(), "10s+2s/30s");
        for (time, next) in [(0, 10), (10, 10), (11, 10), (12, 40), (39, 40), (41, 40), (42, 70)] {
            assert_eq!(outage.next_after(s(time)), Some((s(next), s(next + 2))), "{time}");
        }
        let once: Outage = "10s+2s".parse().unwrap();
        assert_eq!((once.next_after(s(11)), once.next_after(s(12))), (Some((s(10), s(12))), None));
        for text in ["10s", "10s+0s", "1s+3s/2s", "1s+2s/0s"] {
            let outage = text.parse::<Outage>();
            assert!(outage.is_err() || outage.unwrap().validate().is_err(), "{text}");
        }
        let text = serde_json::to_string(&outage).unwrap();
        assert_eq!(serde_json::from_str::<Outage>(&text).unwrap(), outage);
    }
}
