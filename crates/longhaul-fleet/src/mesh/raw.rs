//! The contents of a mesh file before they are checked, and the checks of single values.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use longhaul_core::units::{Bytes, Rate, parse_delay, parse_span};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use super::error::{Fault, MeshFault};
use crate::protocol::TestKind;

/// Tables with their names. The order of the file is the order of the spans of the names.
pub(super) type Named<T> = BTreeMap<Spanned<String>, T>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawMesh {
    pub(super) name: Option<Spanned<String>>,
    pub(super) hosts: Named<RawHost>,
    #[serde(default)]
    pub(super) groups: Named<Spanned<Members>>,
    #[serde(default)]
    pub(super) trunks: Named<RawTrunk>,
    #[serde(default)]
    pub(super) tests: Named<RawTest>,
    pub(super) stamp: Option<Spanned<RawStamp>>,
    #[serde(default)]
    pub(super) maintenance: Vec<RawMaintenance>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawHost {
    pub(super) site: Option<String>,
    #[serde(default = "yes")]
    pub(super) agent: bool,
    pub(super) port: Option<Spanned<u16>>,
    pub(super) address: Option<Spanned<IpAddr>>,
    pub(super) interface: Option<Spanned<String>>,
    pub(super) capacity: Option<Spanned<Rate>>,
    #[serde(default)]
    pub(super) interfaces: Vec<RawInterface>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawInterface {
    pub(super) name: Spanned<String>,
    pub(super) address: Spanned<IpAddr>,
    pub(super) capacity: Spanned<Rate>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawTrunk {
    pub(super) capacity: Spanned<Rate>,
    pub(super) left: Spanned<Members>,
    pub(super) right: Spanned<Members>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawTest {
    pub(super) kind: TestKind,
    pub(super) group: Option<Spanned<Members>>,
    pub(super) from: Option<Spanned<Members>>,
    pub(super) to: Option<Spanned<Members>>,
    pub(super) interface: Option<Spanned<String>>,
    pub(super) seconds: Option<Spanned<u32>>,
    pub(super) margin: Option<Spanned<Span>>,
    pub(super) every: Option<Spanned<Span>>,
    pub(super) streams: Option<Spanned<u16>>,
    pub(super) rate: Option<Spanned<Rate>>,
    #[serde(default)]
    pub(super) udp: bool,
    pub(super) congestion: Option<Spanned<String>>,
    pub(super) bytes: Option<Spanned<Bytes>>,
    pub(super) priority: Option<Spanned<u8>>,
    pub(super) exclusive: Option<bool>,
    pub(super) expect: Option<Spanned<Rate>>,
    pub(super) warn: Option<Spanned<Share>>,
    pub(super) fail: Option<Spanned<Share>>,
    pub(super) warn_loss: Option<Spanned<Share>>,
    pub(super) fail_loss: Option<Spanned<Share>>,
    pub(super) warn_rtt: Option<Delay>,
    pub(super) fail_rtt: Option<Delay>,
    pub(super) mtu: Option<Spanned<u32>>,
    pub(super) turn: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawStamp {
    pub(super) group: Option<Spanned<Members>>,
    pub(super) from: Option<Spanned<Members>>,
    pub(super) to: Option<Spanned<Members>>,
    pub(super) interval: Option<Spanned<Span>>,
    pub(super) port: Option<Spanned<u16>>,
    pub(super) warn_loss: Option<Spanned<Share>>,
    pub(super) fail_loss: Option<Spanned<Share>>,
    pub(super) warn_rtt: Option<Delay>,
    pub(super) fail_rtt: Option<Delay>,
    pub(super) turn: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawMaintenance {
    pub(super) hosts: Spanned<Members>,
    pub(super) start: Spanned<Moment>,
    pub(super) end: Spanned<Moment>,
    #[serde(default)]
    pub(super) reason: String,
}

fn yes() -> bool {
    true
}

/// The name of a host or group, or a list of such names.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, expecting = "expected the name of a host or group, or a list of names")]
pub(super) enum Members {
    One(String),
    Many(Vec<String>),
}

impl Members {
    pub(super) fn names(&self) -> &[String] {
        match self {
            Members::One(name) => std::slice::from_ref(name),
            Members::Many(names) => names,
        }
    }
}

/// A time span such as `6h`, or a number of seconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span(pub(super) Duration);

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "expected a time such as \"6h\", \"30s\" or \"90ms\"")]
        enum Form {
            Seconds(u32),
            Text(String),
        }
        match Form::deserialize(deserializer)? {
            Form::Seconds(seconds) => Ok(Span(Duration::from_secs(seconds.into()))),
            Form::Text(text) => parse_span(&text).map(Span).map_err(D::Error::custom),
        }
    }
}

/// A round-trip time such as `90ms`. A number without a unit is invalid, except 0.
#[derive(Debug, Clone, Copy)]
pub(super) struct Delay(pub(super) Duration);

impl<'de> Deserialize<'de> for Delay {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "expected a time such as \"90ms\" or \"1.5s\"")]
        enum Form {
            Number(f64),
            Text(String),
        }
        let text = match Form::deserialize(deserializer)? {
            Form::Number(number) => number.to_string(),
            Form::Text(text) => text,
        };
        parse_delay(&text).map(Delay).map_err(D::Error::custom)
    }
}

/// A share such as `80%` or `0.8`, from 0 to 1.
#[derive(Debug, Clone, Copy)]
pub(super) struct Share(pub(super) f64);

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const EXPECTED: &str = "expected a share such as \"80%\" or 0.8";
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "expected a share such as \"80%\" or 0.8")]
        enum Form {
            Whole(u8),
            Number(f64),
            Text(String),
        }
        let share = match Form::deserialize(deserializer)? {
            Form::Whole(number) => f64::from(number),
            Form::Number(number) => number,
            Form::Text(text) => {
                let number = text.strip_suffix('%').map(|number| number.trim().parse::<f64>());
                let Some(Ok(percent)) = number else { return Err(D::Error::custom(EXPECTED)) };
                percent / 100.0
            }
        };
        if (0.0..=1.0).contains(&share) {
            Ok(Share(share))
        } else {
            Err(D::Error::custom("a share is between 0% and 100%"))
        }
    }
}

/// A time with its offset, in ms since 1970: a TOML date-time or a text (RFC 3339).
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment(pub(super) i64);

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "expected a time such as 2026-12-01T08:00:00Z")]
        enum Form {
            Text(String),
            Date(toml::value::Datetime),
        }
        let text = match Form::deserialize(deserializer)? {
            Form::Text(text) => text,
            Form::Date(date) => date.to_string(),
        };
        let time: Result<jiff::Timestamp, _> = text.parse();
        time.map(|time| Moment(time.as_millisecond())).map_err(|_| {
            D::Error::custom("expected a time with its offset, such as 2026-12-01T08:00:00Z")
        })
    }
}

/// Returns the entries in the order of the file.
pub(super) fn in_order<T>(named: &Named<T>) -> Vec<(&Spanned<String>, &T)> {
    let mut entries: Vec<_> = named.iter().collect();
    entries.sort_by_key(|(name, _)| name.span().start);
    entries
}

/// Returns a valid name.
pub(super) fn checked_name(what: &'static str, name: &Spanned<String>) -> Result<String, Fault> {
    let text = name.get_ref();
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let first = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    if !first || text.len() > 63 || !text.bytes().all(good) {
        return Err(Fault::at(&name.span(), MeshFault::Name { what, name: text.clone() }));
    }
    Ok(text.clone())
}

/// Returns a rate above zero.
pub(super) fn positive(field: &'static str, rate: &Spanned<Rate>) -> Result<Rate, Fault> {
    match rate.get_ref().bps() {
        0 => Err(out_of_range(field, rate, "a rate above 0")),
        _ => Ok(*rate.get_ref()),
    }
}

/// Returns the error of a value outside its range.
pub(super) fn out_of_range<T: std::fmt::Display>(
    field: &'static str,
    value: &Spanned<T>,
    accepted: &'static str,
) -> Fault {
    let fault = MeshFault::OutOfRange { field, value: value.get_ref().to_string(), accepted };
    Fault::at(&value.span(), fault)
}
