//! `longhaul wan selftest`: checks the emulator with an independent probe, which runs as a process
//! at a site (`longhaul wan probe`).

use std::io::{BufReader, Write};
use std::process::Command;

use anyhow::Context;
use clap::Args;
use longhaul_core::result::CheckVerdict;
use longhaul_emu::Medium;
use longhaul_emu::selftest::probe::{self, ProbePlan, Witness};
use longhaul_emu::selftest::{self, Settings};
use serde::Serialize;

use crate::exit::{self, Coded};
use crate::output::{
    after_printing, certificate_end, certificate_head, check_line, error_is_colored,
    output_is_colored, print_document, print_notes, print_result, raw_output,
};

/// Check the accuracy of the emulator on this machine
///
/// An independent probe sends numbered datagrams over one emulated link after the other, with IPv4
/// and IPv6. The checks cover delay, idle and under load, rates from 1 Mb/s to the limit of this
/// machine, queues and their management, classes, slots, policer and outages, loss and its channels,
/// bit errors, jitter, reordering, duplication, corruption and ECN marks, and that a link without
/// impairments changes nothing. The checks take about three minutes. Do not use the machine
/// meanwhile.
///
/// Prints a certificate with a row per check: the configured value, the value that the probe
/// measured with its 95 % interval, the counter of the emulator, and the verdict. Checks that this
/// machine cannot run are 'not done'. The exit code is 0 if no check failed, 8 if a check failed, 6
/// if no check could run.
#[derive(Debug, Args)]
pub(super) struct SelftestArgs {
    /// Send fewer datagrams: takes about two minutes, with wider intervals for rare losses
    #[arg(long)]
    quick: bool,
    /// Check the emulator of 'wan bridge', between two pairs of Ethernet interfaces; needs root
    #[arg(long)]
    bridge: bool,
    /// Print the certificate as one JSON document on standard output, and the table on standard
    /// error
    #[arg(long)]
    json: bool,
    /// Seed of all random decisions [default: a different one per run]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..1 << 53))]
    seed: Option<u64>,
}

/// Runs the checks and returns the exit code.
pub(super) fn run(args: &SelftestArgs) -> Result<u8, Coded> {
    let host = |error: anyhow::Error| Coded::new(exit::HOST, error);
    longhaul_emu::acquire_privileges().map_err(|error| host(error.into()))?;
    let now = jiff::Timestamp::now();
    let settings = Settings {
        quick: args.quick,
        medium: if args.bridge { Medium::Bridge } else { Medium::Tun },
        seed: args.seed.unwrap_or((now.as_nanosecond() as u64) & ((1 << 53) - 1)),
        started: now.round(jiff::Unit::Second).unwrap_or(now).to_string(),
    };
    let program =
        std::env::current_exe().context("cannot find the path of this program").map_err(host)?;
    let probe_command = |plan: &ProbePlan| {
        let mut command = Command::new(&program);
        command.args(["wan", "probe"]).arg(plan.to_json());
        command
    };
    let color = if args.json { error_is_colored() } else { output_is_colored() };
    // Rows are printed at once. If a write fails, the remaining checks still run.
    let mut printed = Ok(());
    let mut show = |text: &str| {
        if args.json {
            print_notes(text);
        } else if printed.is_ok() {
            printed = print_result(text);
        }
    };
    show(&certificate_head());
    let certificate =
        selftest::run(&settings, &probe_command, &mut |check| show(&check_line(check, color)))
            .map_err(|error| host(error.into()))?;
    show(&certificate_end(&certificate));
    if args.json {
        printed = print_document(&certificate);
    }
    let code = match certificate.count(CheckVerdict::Fail) {
        0 if certificate.holds() => exit::OK,
        0 => exit::HOST,
        _ => exit::UNPROVEN,
    };
    after_printing(code, printed)
}

/// Send or receive numbered datagrams for the self-test
///
/// A receiver prints the line "ready", and ends when it reads the output of a sender on standard
/// input. 'watch' measures how late this machine wakes an idle thread.
#[derive(Debug, Args)]
pub(super) struct ProbeArgs {
    /// The plan, as JSON: {"send": {...}}, {"receive": {...}} or {"watch": {"seconds": N}}
    #[arg(value_name = "PLAN")]
    plan: String,
}

/// Runs one end of a probe.
pub(super) fn run_probe(args: &ProbeArgs) -> Result<u8, Coded> {
    let plan: ProbePlan = serde_json::from_str(&args.plan)
        .context("invalid plan")
        .map_err(|error| Coded::new(exit::USAGE, error))?;
    let failed = |error: anyhow::Error| Coded::new(exit::WAN, error);
    match plan {
        ProbePlan::Send(plan) => {
            let sent = probe::send(&plan)
                .with_context(|| format!("cannot send to {}", plan.to))
                .map_err(failed)?;
            print_report(&sent).map_err(failed)?;
        }
        ProbePlan::Receive(plan) => {
            let ready = || {
                let mut out = raw_output()?;
                out.write_all(b"ready\n")
            };
            let report = probe::receive(&plan, BufReader::new(std::io::stdin()), ready)
                .with_context(|| format!("cannot receive at {}", plan.bind))
                .map_err(failed)?;
            print_report(&report).map_err(failed)?;
        }
        ProbePlan::Watch(plan) => {
            let witness = Witness::start();
            std::thread::sleep(plan.seconds);
            print_report(&witness.finish()).map_err(failed)?;
        }
    }
    Ok(exit::OK)
}

fn print_report(document: &impl Serialize) -> anyhow::Result<()> {
    let text = serde_json::to_string(document)? + "\n";
    Ok(raw_output()?.write_all(text.as_bytes())?)
}
