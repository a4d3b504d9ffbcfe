//! The network of the lab over the emulator: each run has a separate emulated link.

use std::fs;
use std::process::{Child, Command};

use longhaul_core::plan::{Condition, LinkPlan, MatrixPlan, Side};
use longhaul_core::result::{DirectionReport, LinkReport, LinkWarning};
use longhaul_emu::Wan;
use longhaul_lab::{NetPath, Network, NetworkError, PathReport};
use serde_json::Value;

use crate::real_path::RealNetwork;

/// Returns the network for a plan: emulated or real.
pub(crate) fn network(plan: &MatrixPlan) -> Box<dyn Network> {
    match &plan.real {
        Some(real) => Box::new(RealNetwork::new(real.clone())),
        None => Box::new(EmulatedNetwork),
    }
}

/// Opens emulated links.
#[derive(Debug)]
pub(crate) struct EmulatedNetwork;

struct EmulatedPath {
    wan: Wan,
}

impl Network for EmulatedNetwork {
    fn open(&mut self, condition: &Condition, seed: u64) -> Result<Box<dyn NetPath>, NetworkError> {
        let plan = condition.link(Some(seed), &|file| fs::read_to_string(file))?;
        Ok(Box::new(EmulatedPath { wan: Wan::start(&plan)? }))
    }

    fn describe(&self) -> String {
        format!(
            "emulated in user space on this host: two network namespaces, TUN devices, MTU {}; a \
             fresh link for every run",
            LinkPlan::DEFAULT_MTU
        )
    }
}

impl NetPath for EmulatedPath {
    fn spawn(&mut self, side: Side, command: Command) -> Result<Child, NetworkError> {
        Ok(self.wan.spawn(side, command)?)
    }

    fn host(&self, side: Side) -> &str {
        side.name()
    }

    fn carried_bytes(&self) -> Option<u64> {
        let report = self.wan.report().ok()?;
        let carried = |direction: &DirectionReport| direction.delivered.bytes;
        Some(carried(&report.up).max(carried(&report.down)))
    }

    fn close(self: Box<Self>) -> PathReport {
        match self.wan.finish() {
            Ok(report) => PathReport {
                faults: faults(&report),
                notes: notes(&report),
                counters: serde_json::to_value(&report).unwrap_or(Value::Null),
            },
            Err(error) => PathReport {
                faults: vec![format!("the link's counters could not be read: {error}")],
                ..PathReport::default()
            },
        }
    }
}

/// Returns the reasons why a run over the link is invalid: the link lost packets by mistake, or its
/// median RTT exceeded the configured RTT by more than 5 % or 0.5 ms, whichever is more.
///
/// The median decides, because a TCP flow slows down in proportion to the mean RTT. The emulator's
/// warning is about the 99.9th percentile, which exceeds its bound whenever the tools use all
/// cores.
fn faults(report: &LinkReport) -> Vec<String> {
    let late_ms = report.up.lateness.p50_ms + report.down.lateness.p50_ms;
    let allowed_ms = (report.plan.rtt().as_secs_f64() * 1e3 / 20.0).max(0.5);
    let late = (late_ms > allowed_ms).then(|| {
        format!(
            "the emulator lacked CPU time: the median RTT was {late_ms:.1} ms above the \
             configured one ({allowed_ms:.1} ms are allowed)"
        )
    });
    let lost = report.warnings.iter().filter(|warning| !is_mild(warning)).map(ToString::to_string);
    late.into_iter().chain(lost).collect()
}

/// Returns the warnings that do not invalidate a run.
fn notes(report: &LinkReport) -> Vec<String> {
    report.warnings.iter().filter(|warning| is_mild(warning)).map(ToString::to_string).collect()
}

/// True for warnings that leave a run valid. Windows limit every tool alike. [`faults`] has a bound
/// for lateness, also that from stolen CPU time.
fn is_mild(warning: &LinkWarning) -> bool {
    matches!(
        warning,
        LinkWarning::BehindSchedule { .. }
            | LinkWarning::ProcessorStarved { .. }
            | LinkWarning::WindowsClipped { .. }
            | LinkWarning::WindowsUnset { .. }
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use longhaul_core::result::{
        DirectionReport, DropCounts, Impairments, Lateness, ProcessorShare, Traffic,
    };
    use longhaul_core::units::Bytes;

    use super::*;

    fn report(rtt_ms: u64, late_ms: f64, warnings: Vec<LinkWarning>) -> LinkReport {
        let direction = |from| DirectionReport {
            from,
            entered: Traffic::default(),
            impairments: Impairments::default(),
            delivered: Traffic::default(),
            dropped: DropCounts::default(),
            queued: Traffic::default(),
            waiting_bytes: Bytes::default(),
            interface_drops: 0,
            lateness: Lateness { p50_ms: late_ms, ..Lateness::default() },
            peak_memory_bytes: Bytes::new(0),
        };
        LinkReport {
            schema: LinkReport::SCHEMA.to_owned(),
            plan: LinkPlan::symmetric(Duration::from_millis(rtt_ms)),
            seconds: 1.0,
            processor: ProcessorShare::default(),
            tcp_offload: true,
            udp_offload: true,
            up: direction(Side::Near),
            down: direction(Side::Far),
            warnings,
        }
    }

    #[test]
    fn a_longer_median_rtt_is_a_fault_and_late_packets_are_a_note() {
        let behind = LinkWarning::BehindSchedule {
            from: Side::Near,
            p999_ms: 9.0,
            bound_ms: 1.0,
            cause: None,
        };
        let mild = report(90, 0.1, vec![behind.clone()]);
        assert_eq!((faults(&mild).len(), notes(&mild).len()), (0, 1));
        let late = report(90, 2.5, vec![behind]);
        assert!(faults(&late)[0].contains("5.0 ms above the configured one (4.5 ms are allowed)"));
        assert_eq!(faults(&report(0, 0.2, vec![])).len(), 0);
        assert_eq!(faults(&report(0, 0.3, vec![])).len(), 1);
    }

    #[test]
    fn packets_dropped_by_an_interface_are_a_fault() {
        let drops = LinkWarning::InterfaceDrops { from: Side::Near, packets: 7 };
        assert!(faults(&report(90, 0.0, vec![drops]))[0].contains("dropped 7 packets"));
    }
}
