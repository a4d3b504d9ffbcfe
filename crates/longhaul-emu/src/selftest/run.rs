//! Runs the self-test.

use std::process::Command;
use std::time::{Duration, Instant};

use longhaul_core::plan::LinkPlan;
use longhaul_core::result::{Certificate, Check};

use super::case::FALSE_ALARM;
use super::checks;
use super::lab::SiteLab;
use super::probe::ProbePlan;
use crate::{EmuError, Wan};

/// The settings of a self-test.
#[derive(Debug, Clone)]
pub struct Settings {
    /// True for fewer datagrams in checks of rare losses, delays, rates and identity.
    pub quick: bool,
    /// The seed of all random decisions.
    pub seed: u64,
    /// The start time (RFC 3339) for the certificate.
    pub started: String,
}

/// Checks the emulator on this machine in about two minutes. `probe` builds the command that
/// runs one end of a probe: the calling program with the plan as its argument. `each` is called
/// with every completed check.
///
/// The process must have the privileges of [`crate::acquire_privileges`].
///
/// # Errors
/// No link can be built on this machine, or a process that held a site was killed. Other failures
/// are part of the certificate.
pub fn run(
    settings: &Settings,
    probe: &dyn Fn(&ProbePlan) -> Command,
    each: &mut dyn FnMut(&Check),
) -> Result<Certificate, EmuError> {
    let begun = Instant::now();
    Wan::start(&LinkPlan::symmetric(Duration::ZERO))?.finish()?;
    let mut lab = SiteLab { probe, seed: settings.seed, links: 0, killed: None };
    let mut made = Vec::new();
    checks::all(&mut lab, settings.quick, &mut |check| {
        each(&check);
        made.push(check);
    });
    if let Some(killed) = lab.killed {
        return Err(killed);
    }
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    Ok(Certificate {
        schema: Certificate::SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started: settings.started.clone(),
        kernel,
        processors: std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
        quick: settings.quick,
        seed: settings.seed,
        seconds: begun.elapsed().as_secs_f64(),
        false_alarm: FALSE_ALARM * made.len() as f64,
        checks: made,
    })
}
