//! The figures of the grid and the routes of paths, from the result documents of runs.

use std::net::IpAddr;

use longhaul_fleet::protocol::TestKind;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

/// The longest round-trip time in ms that a document can have: an hour.
const MOST_MS: f64 = 3_600_000.0;

/// The figures of a run; `None` if it did not measure one.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Figures {
    /// The throughput in bit/s.
    pub throughput_bps: Option<u64>,
    /// The share of lost packets; 0 to 1.
    pub loss: Option<f64>,
    /// The median round-trip time in ms; under load if the run is a throughput test.
    pub rtt_ms: Option<f64>,
    /// The path MTU in bytes.
    pub mtu: Option<u32>,
}

impl Figures {
    /// Reads the figures of a document. Documents come from agents, so any value may be missing or
    /// of another type.
    pub fn of(kind: TestKind, document: Option<&Json>) -> Self {
        let Some(document) = document else { return Figures::default() };
        let number = |path: &str| {
            document.pointer(path).and_then(Json::as_f64).filter(|n| n.is_finite() && *n >= 0.0)
        };
        let share = |value: Option<f64>| value.filter(|share| *share <= 1.0);
        let delay = |path: &str| number(path).filter(|ms| *ms <= MOST_MS);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let rate = |path: &str| number(path).map(|rate| rate.min(1e15) as u64);
        match kind {
            TestKind::Throughput | TestKind::Iperf3 | TestKind::Nuttcp => Figures {
                throughput_bps: rate("/summary/throughput_bps"),
                loss: share(number("/summary/udp/lost_percent").map(|percent| percent / 100.0)),
                // 0 if TCP did not measure it, as with UDP.
                rtt_ms: delay("/summary/sender/rtt_ms").filter(|rtt| *rtt > 0.0),
                mtu: None,
            },
            TestKind::Path => Figures {
                throughput_bps: None,
                loss: share(number("/forward/probes/lost/ratio")),
                rtt_ms: delay("/rtt/small/p50_ms"),
                mtu: mtu(document),
            },
            TestKind::Copy => Figures {
                throughput_bps: rate("/summary/throughput_bps"),
                rtt_ms: delay("/summary/rtt_ms"),
                ..Figures::default()
            },
            // The first limit is the lowest.
            TestKind::Diagnose => Figures {
                throughput_bps: rate("/limits/0/allows_bps"),
                rtt_ms: delay("/rtt_ms"),
                ..Figures::default()
            },
        }
    }
}

fn mtu(document: &Json) -> Option<u32> {
    let proofs = document.pointer("/forward/mtu")?.as_array()?;
    let sizes = proofs.iter().filter_map(|proof| proof.get("bytes")?.as_u64());
    sizes.max().and_then(|bytes| u32::try_from(bytes).ok())
}

/// The maximum number of hops of a route.
const HOPS: usize = 64;
/// The maximum number of addresses of a hop.
const ADDRESSES: usize = 8;

/// The route of a path.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Route {
    /// The addresses that answered at each distance, from 1; none if the hop is silent.
    #[schema(value_type = Vec<Vec<String>>)]
    pub hops: Vec<Vec<IpAddr>>,
    /// True if the last hop is the destination.
    pub reached: bool,
    /// The path MTU in bytes.
    pub mtu: Option<u32>,
}

impl Route {
    /// Returns the route of a document of `path`; `None` if it has neither hops nor a path MTU.
    /// Documents come from agents: texts that are not addresses are ignored.
    pub fn of(document: &Json, mtu: Option<u32>) -> Option<Self> {
        let mut route = Route { mtu, ..Route::default() };
        let found = document.pointer("/forward/hops");
        let list = found.and_then(|found| found.get("list")?.as_array());
        for hop in list.into_iter().flatten() {
            let distance = hop.get("distance").and_then(Json::as_u64);
            let Some(at) = distance.and_then(|at| usize::try_from(at).ok()) else { continue };
            if !(1..=HOPS).contains(&at) {
                continue;
            }
            let texts = hop.get("addresses").and_then(Json::as_array).into_iter().flatten();
            let addresses = texts.filter_map(|text| text.as_str()?.parse().ok());
            route.hops.resize(route.hops.len().max(at), Vec::new());
            route.hops[at - 1] = addresses.take(ADDRESSES).collect();
        }
        route.reached = found.and_then(|found| found.get("reached")?.as_bool()).unwrap_or_default();
        (!route.hops.is_empty() || mtu.is_some()).then_some(route)
    }

    /// Returns the differences of a later route as parts of a sentence. A silent hop equals any
    /// other, and so does an unknown MTU.
    pub fn changes(&self, later: &Route) -> Vec<String> {
        let mut changes = Vec::new();
        let known = !self.hops.is_empty() && !later.hops.is_empty();
        if known && self.reached && later.reached && self.hops.len() != later.hops.len() {
            changes.push(format!("{} hops \u{2192} {} hops", self.hops.len(), later.hops.len()));
        }
        for (at, (old, new)) in self.hops.iter().zip(&later.hops).enumerate() {
            let silent = old.is_empty() || new.is_empty();
            // A balanced path answers with one of several addresses.
            if !silent && !new.iter().any(|address| old.contains(address)) {
                changes.push(format!("hop {}: {} \u{2192} {}", at + 1, names(old), names(new)));
            }
        }
        if let (Some(old), Some(new)) = (self.mtu, later.mtu)
            && old != new
        {
            changes.push(format!("path MTU {old} B \u{2192} {new} B"));
        }
        changes
    }

    /// Returns the route in a few words: "4 hops, path MTU 1500 B".
    pub fn words(&self) -> String {
        let hops = match (self.hops.len(), self.reached) {
            (0, _) => "unknown hops".to_owned(),
            (1, true) => "1 hop".to_owned(),
            (count, true) => format!("{count} hops"),
            (count, false) => format!("{count} hops or more"),
        };
        let mtu = self.mtu.map_or("unknown".to_owned(), |bytes| format!("{bytes} B"));
        format!("{hops}, path MTU {mtu}")
    }
}

fn names(addresses: &[IpAddr]) -> String {
    addresses.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(" or ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn figures_are_read_by_kind_and_bad_types_are_ignored() {
        let test = json!({"summary": {"throughput_bps": 9.4e9, "sender": {"rtt_ms": 12.5}}});
        let found = Figures::of(TestKind::Throughput, Some(&test));
        assert_eq!(found.throughput_bps, Some(9_400_000_000));
        assert_eq!(found.rtt_ms, Some(12.5));
        let path = json!({"forward": {"probes": {"lost": {"ratio": 0.01}},
            "mtu": [{"bytes": 1500}, {"bytes": null}, {"bytes": 9000}]},
            "rtt": {"small": {"p50_ms": "x"}}});
        let found = Figures::of(TestKind::Path, Some(&path));
        assert_eq!((found.loss, found.rtt_ms, found.mtu), (Some(0.01), None, Some(9000)));
        assert_eq!(Figures::of(TestKind::Path, None), Figures::default());
        let udp = json!({"summary": {"udp": {"lost_percent": 2.0}, "sender": {"rtt_ms": 0.0}}});
        let found = Figures::of(TestKind::Throughput, Some(&udp));
        assert_eq!((found.loss, found.rtt_ms), (Some(0.02), None));
        let absurd = json!({"summary": {"throughput_bps": 1e300, "udp": {"lost_percent": 1e300},
            "sender": {"rtt_ms": 1e300}}});
        let found = Figures::of(TestKind::Throughput, Some(&absurd));
        let bounded = Figures { throughput_bps: Some(1_000_000_000_000_000), ..Figures::default() };
        assert_eq!(found, bounded, "such numbers would fill a page");
        let copy = json!({"summary": {"throughput_bps": 19_042_349, "rtt_ms": 36.7}});
        let found = Figures::of(TestKind::Copy, Some(&copy));
        assert_eq!((found.throughput_bps, found.rtt_ms), (Some(19_042_349), Some(36.7)));
        let diagnosis = json!({"limits": [{"allows_bps": 26_015_357}], "rtt_ms": 30.2});
        let found = Figures::of(TestKind::Diagnose, Some(&diagnosis));
        assert_eq!((found.throughput_bps, found.rtt_ms), (Some(26_015_357), Some(30.2)));
        let hostile = json!({"summary": {"throughput_bps": -1}});
        assert_eq!(Figures::of(TestKind::Throughput, Some(&hostile)), Figures::default());
    }

    fn route(hops: &[&str], mtu: u32) -> Route {
        let list: Vec<Json> = hops
            .iter()
            .enumerate()
            .map(|(at, address)| match *address {
                "" => json!({"distance": at + 1, "addresses": []}),
                address => json!({"distance": at + 1, "addresses": [address, "<script>"]}),
            })
            .collect();
        let document = json!({"forward": {"hops": {"list": list, "reached": true}}});
        Route::of(&document, Some(mtu)).unwrap()
    }

    #[test]
    fn a_change_names_old_and_new_and_silence_is_no_change() {
        let old = route(&["10.0.0.1", "10.0.1.1", "10.0.2.1"], 9000);
        assert_eq!(old.words(), "3 hops, path MTU 9000 B");
        assert_eq!(old.changes(&route(&["10.0.0.1", "", "10.0.2.1"], 9000)), Vec::<String>::new());
        let moved = route(&["10.0.0.1", "10.9.1.1", "10.9.2.1", "10.0.2.1"], 1500);
        assert_eq!(
            old.changes(&moved),
            [
                "3 hops \u{2192} 4 hops",
                "hop 2: 10.0.1.1 \u{2192} 10.9.1.1",
                "hop 3: 10.0.2.1 \u{2192} 10.9.2.1",
                "path MTU 9000 B \u{2192} 1500 B"
            ]
        );
    }

    #[test]
    fn hostile_documents_are_bounded() {
        let hop = |distance: u64| json!({"distance": distance, "addresses": ["10.0.0.1"]});
        let list = [hop(0), hop(u64::MAX), hop(1 << 40), hop(3), json!("x")];
        let document = json!({"forward": {"hops": {"list": list, "reached": "yes"}}});
        let found = Route::of(&document, None).unwrap();
        assert_eq!((found.hops.len(), found.reached), (3, false));
        assert_eq!(Route::of(&json!({"forward": []}), None), None);
    }
}
