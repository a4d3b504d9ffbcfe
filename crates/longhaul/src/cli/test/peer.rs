//! Tests against the servers of other programs.

use anyhow::anyhow;
use longhaul_core::plan::TestPlan;
use longhaul_core::result::{TestResult, TestSample};
use longhaul_engine::session::Family;
use longhaul_interop::nuttcp;
use longhaul_interop::{PeerAddress, PeerTest, Program};

use crate::exit::{self, Coded};
use crate::signals::Interrupt;

/// Runs `plan` against the server at `address` and passes each sample to `show`.
pub(super) fn run(
    address: &PeerAddress,
    plan: &TestPlan,
    family: Family,
    interrupt: &Interrupt,
    show: &mut dyn FnMut(&TestSample),
) -> Result<TestResult, Coded> {
    let test = PeerTest { address, plan, family, stop: interrupt.flag() };
    match address.program {
        Program::Nuttcp => {
            let mut show = |sample: &TestSample| show(sample);
            Ok(nuttcp::run(&test, &nuttcp::ClientOptions::default(), &mut show)?.test)
        }
        // The branch of the program replaces this.
        Program::Iperf3 => {
            Err(Coded::new(exit::USAGE, anyhow!("no client for {} yet", address.program)))
        }
    }
}
