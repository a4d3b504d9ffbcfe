//! Measures the emulator's accuracy on this machine with an independent probe.
//!
//! [`run`] builds one link after another, sends over each with the [`probe`], and compares three
//! figures: the configured value, the value that the probe measured, and the emulator's counter.
//! The result is a [`Certificate`]. A check that could not be
//! measured is recorded as not done, never as passed.
//!
//! - `lab` runs a probe over a link.
//! - `case` judges figures by confidence intervals.
//! - `checks` has one file per kind of property.

mod case;
mod checks;
mod lab;
mod noise;
pub mod probe;
#[cfg(test)]
mod virtual_lab;
#[cfg(test)]
mod virtual_link;
#[cfg(test)]
mod virtual_proofs;

use std::process::Command;
use std::time::{Duration, Instant};

use case::FALSE_ALARM;
use lab::SiteLab;
use longhaul_core::plan::LinkPlan;
use longhaul_core::result::{Certificate, Check};
use probe::ProbePlan;

use crate::{EmuError, Medium, Wan};

/// The settings of a self-test.
#[derive(Debug, Clone)]
pub struct Settings {
    /// True for fewer datagrams in checks of rare losses, delays, rates and identity.
    pub quick: bool,
    /// The kind of the links: those of `wan run`, or bridges between Ethernet interfaces.
    pub medium: Medium,
    /// The seed of all random decisions.
    pub seed: u64,
    /// The start time (RFC 3339) for the certificate.
    pub started: String,
}

/// Checks the emulator on this machine in about three minutes. `probe` builds the command that
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
    Wan::start_over(&LinkPlan::symmetric(Duration::ZERO), settings.medium)?.finish()?;
    let Settings { medium, seed, .. } = *settings;
    let mut lab = SiteLab { probe, medium, seed, links: 0, killed: None };
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
        bridge: settings.medium == Medium::Bridge,
        seed: settings.seed,
        seconds: begun.elapsed().as_secs_f64(),
        false_alarm: FALSE_ALARM * made.len() as f64,
        checks: made,
    })
}
