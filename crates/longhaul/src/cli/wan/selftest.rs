use std::process::Command;

use anyhow::Context;
use clap::Args;
use longhaul_core::result::CheckVerdict;
use longhaul_emu::selftest::probe::ProbePlan;
use longhaul_emu::selftest::{self, Settings};

use crate::exit::{self, Coded};
use crate::output::{
    after_printing, answer, certificate_end, certificate_head, check_line, document,
    error_is_terminal, output_is_terminal, remark_text,
};

/// Prove the emulator's accuracy on this machine
///
/// Links are built one after the other, and a probe that knows nothing of the emulator sends
/// numbered datagrams over each: delay idle and under load, rates from 1 Mb/s to what the machine
/// carries, loss and its bursts, jitter, reordering, duplication, corruption, ECN marks, and that
/// nothing at all happens when nothing is configured, by IPv4 and IPv6. It takes under two minutes;
/// leave the machine alone meanwhile.
///
/// Prints a certificate: for each check what was configured, what the probe measured, its 95 %
/// interval, what the emulator counted itself, and the verdict. What could not be checked is shown
/// as not done. The exit code is 0 if nothing failed, 8 if a check failed, 6 if nothing could be
/// checked here.
#[derive(Debug, Args)]
pub(super) struct SelftestArgs {
    /// A quarter of the datagrams or less: about half a minute, and wider intervals
    #[arg(long)]
    quick: bool,
    /// Print the certificate as one JSON document, and the table on standard error
    #[arg(long)]
    json: bool,
    /// What all random decisions follow from; by default another one for each run
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..1 << 53))]
    seed: Option<u64>,
}

/// Runs the checks and returns the exit code that they stand for.
pub(super) fn run(args: &SelftestArgs) -> Result<u8, Coded> {
    let host = |error: anyhow::Error| Coded::new(exit::HOST, error);
    longhaul_emu::acquire_privileges().map_err(|error| host(error.into()))?;
    let now = jiff::Timestamp::now();
    let settings = Settings {
        quick: args.quick,
        seed: args.seed.unwrap_or((now.as_nanosecond() as u64) & ((1 << 53) - 1)),
        started: now.round(jiff::Unit::Second).unwrap_or(now).to_string(),
    };
    let program = std::env::current_exe().context("cannot find this program").map_err(host)?;
    let probe = |plan: &ProbePlan| {
        let mut command = Command::new(&program);
        command.args(["wan", "probe"]).arg(plan.to_json());
        command
    };
    let colour = if args.json { error_is_terminal() } else { output_is_terminal() };
    // Rows go out as they are made. A reader who left loses them; the other checks are still done.
    let mut printed = Ok(());
    let mut show = |text: &str| match args.json {
        true => remark_text(text),
        false if printed.is_ok() => printed = answer(text),
        false => {}
    };
    show(&certificate_head());
    let certificate =
        selftest::run(&settings, &probe, &mut |check| show(&check_line(check, colour)))
            .map_err(|error| host(error.into()))?;
    show(&certificate_end(&certificate));
    if args.json {
        printed = document(&certificate);
    }
    let code = match certificate.count(CheckVerdict::Fail) {
        0 if certificate.holds() => exit::OK,
        0 => exit::HOST,
        _ => exit::UNPROVEN,
    };
    after_printing(code, printed)
}
