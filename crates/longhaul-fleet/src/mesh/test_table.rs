//! The tests and the STAMP mesh of a mesh file.

use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use longhaul_core::units::format_span;
use toml::Spanned;

use super::error::{Fault, MeshFault};
use super::hosts::Names;
use super::model::{Judgement, Mesh, MeshTest, StampMesh};
use super::raw::{
    Delay, Members, RawStamp, RawTest, Share, Span, checked_name, out_of_range, positive,
};
use crate::protocol::{TestKind, TestSpec};

type Pairs = Vec<(String, String)>;

/// The duration of a run, if the test does not declare one.
const DEFAULT_SECONDS: u32 = 10;
/// The time for the start and the end of a run, if the test does not declare one.
const DEFAULT_MARGIN: Duration = Duration::from_secs(5);
/// The time between runs, if the test does not declare one.
const DEFAULT_EVERY: Duration = Duration::from_secs(6 * 3600);
const DEFAULT_PRIORITY: u8 = 5;
/// The UDP port of the agents' reflectors, if the mesh does not declare one. Port 862 needs a
/// privilege.
const DEFAULT_STAMP_PORT: u16 = 8620;

pub(super) fn read_test(
    name: &Spanned<String>,
    raw: &RawTest,
    mesh: &Mesh,
    names: &Names,
) -> Result<MeshTest, Fault> {
    let lists = Lists { group: &raw.group, from: &raw.from, to: &raw.to };
    let what = format!("test '{}'", name.get_ref());
    let mut pairs = lists.pairs(&what, &name.span(), names)?;
    if !raw.kind.needs_target_agent() && raw.group.is_some() {
        // In a group, a host without an agent is a destination only.
        pairs.retain(|(source, _)| mesh.host(source).is_some_and(|host| host.agent));
    }
    if pairs.is_empty() {
        let fault = MeshFault::NoPairs { test: name.get_ref().clone() };
        return Err(Fault::at(&name.span(), fault));
    }
    let every = raw.every.as_ref().map_or(DEFAULT_EVERY, |every| every.get_ref().0);
    Ok(MeshTest {
        name: checked_name("test", name)?,
        spec: read_spec(raw)?,
        pairs,
        interface: raw.interface.as_ref().map(|name| name.get_ref().clone()),
        every_seconds: whole_seconds("every", raw.every.as_ref(), every, 0..=31_536_000)?,
        margin_seconds: {
            let margin = raw.margin.as_ref().map_or(DEFAULT_MARGIN, |margin| margin.get_ref().0);
            whole_seconds("margin", raw.margin.as_ref(), margin, 1..=3600)?
        },
        priority: ranged("priority", raw.priority.as_ref(), 0..=9, "0 to 9")?
            .unwrap_or(DEFAULT_PRIORITY),
        exclusive: raw.exclusive.unwrap_or(true),
        judgement: Judgement {
            expect_bps: raw.expect.as_ref().map(|rate| positive("expect", rate)).transpose()?,
            warn_share: Some(share(&raw.warn, 0.8)),
            fail_share: Some(share(&raw.fail, 0.5)),
            warn_loss: raw.warn_loss.as_ref().map(|share| share.get_ref().0),
            fail_loss: raw.fail_loss.as_ref().map(|share| share.get_ref().0),
            warn_rtt_ms: raw.warn_rtt.map(milliseconds),
            fail_rtt_ms: raw.fail_rtt.map(milliseconds),
            least_mtu: ranged("mtu", raw.mtu.as_ref(), 68..=65535, "68 to 65535")?,
            ..read_turn(raw.turn.as_ref())?
        },
    })
}

fn read_spec(raw: &RawTest) -> Result<TestSpec, Fault> {
    if let Some(rate) = &raw.rate {
        positive("rate", rate)?;
    }
    if let Some(name) = &raw.congestion {
        // TCP_CA_NAME_MAX of linux/tcp.h is 16, with its terminator.
        let good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        let text = name.get_ref();
        if !(1..=15).contains(&text.len()) || !text.bytes().all(good) {
            return Err(out_of_range("congestion", name, "the name of a congestion control"));
        }
    }
    if let Some(bytes) = raw.bytes.as_ref().filter(|bytes| bytes.get_ref().get() == 0) {
        return Err(out_of_range("bytes", bytes, "a size above 0"));
    }
    let seconds = ranged("seconds", raw.seconds.as_ref(), 1..=86_400, "1 to 86400")?;
    Ok(TestSpec {
        kind: raw.kind,
        seconds: seconds.unwrap_or(match raw.kind {
            TestKind::Path | TestKind::Copy | TestKind::Diagnose => 60,
            _ => DEFAULT_SECONDS,
        }),
        streams: ranged("streams", raw.streams.as_ref(), 1..=128, "1 to 128")?,
        rate_bps: raw.rate.as_ref().map(|rate| *rate.get_ref()),
        udp: raw.udp,
        congestion: raw.congestion.as_ref().map(|name| name.get_ref().clone()),
        bytes: raw.bytes.as_ref().map(|bytes| *bytes.get_ref()),
    })
}

pub(super) fn read_stamp(
    stamp: &Spanned<RawStamp>,
    mesh: &Mesh,
    names: &Names,
) -> Result<StampMesh, Fault> {
    let raw = stamp.get_ref();
    let lists = Lists { group: &raw.group, from: &raw.from, to: &raw.to };
    let mut pairs = lists.pairs("stamp", &stamp.span(), names)?;
    let agent = |name: &String| mesh.host(name).is_some_and(|host| host.agent);
    pairs.retain(|(source, destination)| agent(source) && agent(destination));
    let interval = raw.interval.as_ref().map_or(Duration::from_millis(100), |one| one.get_ref().0);
    if !(10..=60_000).contains(&interval.as_millis()) {
        let fault = MeshFault::OutOfRange {
            field: "interval",
            value: format_span(interval),
            accepted: "10ms to 60s",
        };
        let place = raw.interval.as_ref().map_or(stamp.span(), Spanned::span);
        return Err(Fault::at(&place, fault));
    }
    Ok(StampMesh {
        pairs,
        interval_ms: interval.as_millis() as u32,
        port: ranged("port", raw.port.as_ref(), 1..=65535, "1 to 65535")?
            .unwrap_or(DEFAULT_STAMP_PORT),
        judgement: Judgement {
            warn_loss: Some(share(&raw.warn_loss, 0.001)),
            fail_loss: Some(share(&raw.fail_loss, 0.01)),
            warn_rtt_ms: raw.warn_rtt.map(milliseconds),
            fail_rtt_ms: raw.fail_rtt.map(milliseconds),
            ..read_turn(raw.turn.as_ref())?
        },
    })
}

/// The lists of hosts that form pairs.
struct Lists<'a> {
    group: &'a Option<Spanned<Members>>,
    from: &'a Option<Spanned<Members>>,
    to: &'a Option<Spanned<Members>>,
}

impl Lists<'_> {
    /// Returns the pairs of different hosts: all of a group, or those from one list to another.
    /// Without a list, the group is `all`.
    fn pairs(&self, what: &str, place: &Range<usize>, names: &Names) -> Result<Pairs, Fault> {
        let (sources, destinations) = match (self.group, self.from, self.to) {
            (Some(group), None, None) => {
                let hosts = names.hosts_of(group)?;
                (hosts.clone(), hosts)
            }
            (None, Some(from), Some(to)) => (names.hosts_of(from)?, names.hosts_of(to)?),
            (None, None, None) => {
                let all = Spanned::new(place.clone(), Members::One("all".to_owned()));
                let hosts = names.hosts_of(&all)?;
                (hosts.clone(), hosts)
            }
            _ => {
                let (what, needed) = (what.to_owned(), "either `group`, or both `from` and `to`");
                return Err(Fault::at(place, MeshFault::Needs { what, needed }));
            }
        };
        let to = &destinations;
        let pairs = sources.iter().flat_map(|from| to.iter().map(move |to| (from, to)));
        Ok(pairs.filter(|(a, b)| a != b).map(|(a, b)| (a.clone(), b.clone())).collect())
    }
}

/// Returns a rule without thresholds from a text such as `2 of 3`.
fn read_turn(turn: Option<&Spanned<String>>) -> Result<Judgement, Fault> {
    let Some(turn) = turn else { return Ok(Judgement { bad: 2, of: 3, ..Judgement::default() }) };
    let numbers = turn.get_ref().split_once(" of ").and_then(|(bad, of)| {
        Some((bad.trim().parse::<u32>().ok()?, of.trim().parse::<u32>().ok()?))
    });
    match numbers {
        Some((bad, of)) if bad >= 1 && bad <= of && of <= 100 => {
            Ok(Judgement { bad, of, ..Judgement::default() })
        }
        _ => Err(out_of_range("turn", turn, "\"M of N\" with M from 1 to N and N up to 100")),
    }
}

fn share(given: &Option<Spanned<Share>>, default: f64) -> f64 {
    given.as_ref().map_or(default, |share| share.get_ref().0)
}

fn milliseconds(delay: Delay) -> f64 {
    delay.0.as_secs_f64() * 1e3
}

fn whole_seconds(
    field: &'static str,
    given: Option<&Spanned<Span>>,
    value: Duration,
    accepted: RangeInclusive<u64>,
) -> Result<u32, Fault> {
    if accepted.contains(&value.as_secs()) && value.subsec_nanos() == 0 {
        return Ok(value.as_secs() as u32);
    }
    let accepted = match field {
        "every" => "whole seconds up to a year, or 0",
        _ => "whole seconds from 1s to 1h",
    };
    let fault = MeshFault::OutOfRange { field, value: format_span(value), accepted };
    Err(Fault::at(&given.map_or(0..0, Spanned::span), fault))
}

fn ranged<T: Copy + PartialOrd + std::fmt::Display>(
    field: &'static str,
    given: Option<&Spanned<T>>,
    range: RangeInclusive<T>,
    accepted: &'static str,
) -> Result<Option<T>, Fault> {
    match given {
        Some(value) if !range.contains(value.get_ref()) => {
            Err(out_of_range(field, value, accepted))
        }
        given => Ok(given.map(|value| *value.get_ref())),
    }
}
