//! The figures of the grid, from the result documents of runs.

use longhaul_fleet::protocol::TestKind;
use serde_json::Value as Json;

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
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let rate = |path: &str| number(path).map(|rate| rate.min(1e15) as u64);
        match kind {
            TestKind::Throughput | TestKind::Iperf3 | TestKind::Nuttcp => Figures {
                throughput_bps: rate("/summary/throughput_bps"),
                loss: number("/summary/udp/lost_percent").map(|percent| percent / 100.0),
                rtt_ms: number("/summary/sender/rtt_ms"),
                mtu: None,
            },
            TestKind::Path => Figures {
                throughput_bps: None,
                loss: number("/forward/probes/lost/ratio"),
                rtt_ms: number("/rtt/small/p50_ms"),
                mtu: mtu(document),
            },
            TestKind::Copy => Figures {
                throughput_bps: rate("/throughput_bps"),
                rtt_ms: number("/rtt_ms"),
                ..Figures::default()
            },
            TestKind::Diagnose => {
                Figures { throughput_bps: rate("/throughput_bps"), ..Figures::default() }
            }
        }
    }
}

fn mtu(document: &Json) -> Option<u32> {
    let proofs = document.pointer("/forward/mtu")?.as_array()?;
    let sizes = proofs.iter().filter_map(|proof| proof.get("bytes")?.as_u64());
    sizes.max().and_then(|bytes| u32::try_from(bytes).ok())
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
        let hostile = json!({"summary": {"throughput_bps": -1}});
        assert_eq!(Figures::of(TestKind::Throughput, Some(&hostile)), Figures::default());
    }
}
