//! The CPUs of the threads of an end.

use longhaul_core::plan::{CpuList, Placement, TestPlan};
use longhaul_sys::cpu;
use longhaul_sys::topology::{Topology, interface_of};

use super::mover::Carrier;
use crate::error::{EngineError, Result};

/// The placement of one end's threads.
#[derive(Debug, Clone)]
pub(super) enum Places {
    /// The scheduler chooses.
    Free,
    /// The streams use these CPUs in turn.
    On(CpuList),
    /// Each thread runs near its interface, on a host with several NUMA nodes.
    Near(Topology),
}

impl Places {
    /// Returns the placement that `plan` requests at this end.
    ///
    /// # Errors
    /// A CPU of the list does not exist, or this process may not use it.
    pub(super) fn of(plan: &TestPlan, at_client: bool) -> Result<Self> {
        let list = match &plan.placement {
            Placement::Free => return Ok(Places::Free),
            Placement::Auto => {
                let topology = Topology::host();
                return Ok(match topology.nodes() {
                    1 => Places::Free,
                    _ => Places::Near(topology),
                });
            }
            Placement::On { client, server } => {
                if at_client {
                    client
                } else {
                    server
                }
            }
        };
        let Some(list) = list else { return Ok(Places::Free) };
        let allowed = allowed()?;
        match list.cpus().iter().find(|cpu| !allowed.contains(cpu)) {
            Some(&cpu) => Err(EngineError::NoCpu { cpu }),
            None => Ok(Places::On(list.clone())),
        }
    }

    /// Returns the CPUs of stream `number`; `None` leaves the choice to the scheduler.
    pub(super) fn of_stream(&self, number: usize, carrier: &Carrier) -> Option<CpuList> {
        match self {
            Places::Free => None,
            Places::On(list) => CpuList::new(vec![list.of_stream(number)]),
            Places::Near(topology) => {
                let interface = interface_of(carrier.local_address()?.ip()).ok()??;
                let node = topology.cpus_of(topology.node_of(&interface)?);
                near(&node, &topology.interrupt_cpus(&interface), &allowed().ok()?)
            }
        }
    }
}

fn allowed() -> Result<Vec<u32>> {
    let operation = "read which CPUs may be used";
    cpu::allowed().map_err(|source| EngineError::System { operation, source })
}

/// Returns the allowed CPUs of the node without those that handle the interface's interrupts, if at
/// least as many remain: a thread beside the interrupts shares their cache, and one on the same CPU
/// has to wait.
fn near(node: &[u32], interrupts: &[u32], allowed: &[u32]) -> Option<CpuList> {
    let usable: Vec<u32> = node.iter().copied().filter(|cpu| allowed.contains(cpu)).collect();
    let (busy, calm): (Vec<u32>, Vec<u32>) =
        usable.iter().partition(|cpu| interrupts.contains(cpu));
    CpuList::new(if calm.len() >= busy.len() { calm } else { usable })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(list: Option<CpuList>) -> String {
        list.map_or("free".to_owned(), |list| list.to_string())
    }

    #[test]
    fn threads_go_beside_the_interrupts_on_the_same_node() {
        let node: Vec<u32> = (8..16).collect();
        let all: Vec<u32> = (0..32).collect();
        assert_eq!(listed(near(&node, &[8, 9], &all)), "10-15");
        assert_eq!(listed(near(&node, &[], &all)), "8-15");
        // If interrupts use most of the CPUs, threads may use all.
        assert_eq!(listed(near(&node, &node[..5], &all)), "8-15");
        assert_eq!(listed(near(&node, &[8], &[8, 9, 10, 20])), "9-10");
        assert_eq!(listed(near(&node, &[8], &[0, 1])), "free");
    }

    #[test]
    fn a_cpu_that_is_not_there_is_named() {
        let list = |text: &str| Some(text.parse().unwrap());
        let plan = |client, server| TestPlan {
            placement: Placement::On { client, server },
            ..TestPlan::new()
        };
        let error = Places::of(&plan(list("0+8191"), None), true).unwrap_err();
        assert!(error.to_string().contains("CPU 8191"), "{error}");
        // The list of the peer is checked by the peer.
        let there = Places::of(&plan(list("8191"), None), false).unwrap();
        assert!(matches!(there, Places::Free));
    }
}
