//! Emulates a link with a round trip of 90 ms and 1 % loss, and pings across it.
//!
//! `cargo run --example ping_across -- 20` sends 20 requests; the default is 5. Ordinary users need
//! user namespaces.

#![expect(
    clippy::disallowed_methods,
    reason = "the rule concerns the output of the program longhaul"
)]

use std::io::Write;
use std::process::Command;

use longhaul_emu::{LinkOptions, Side, Validity, Wan};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let count = std::env::args().nth(1).unwrap_or_else(|| "5".to_owned());

    // Enters a user namespace if necessary, so it must precede the start of other threads.
    longhaul_emu::acquire_privileges()?;

    let mut options = LinkOptions::default();
    for (name, value) in [("rtt", "90ms"), ("rate", "100M"), ("loss", "1%"), ("seed", "1")] {
        options.set(name, value)?;
    }
    let plan = options.plan(&|file| Ok(Box::new(std::fs::File::open(file)?)))?;

    let wan = Wan::start(&plan)?;
    let mut ping = Command::new("ping");
    ping.args(["-i", "0.2", "-c", &count, "far"]);
    let status = wan.spawn(Side::Near, ping)?.wait()?;

    let report = wan.finish()?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "\nping: {status}")?;
    for direction in [&report.up, &report.down] {
        writeln!(
            out,
            "from {}: {} packets entered, {} were lost, {} were delivered",
            direction.from,
            direction.entered.packets,
            direction.impairments.lost.segments,
            direction.delivered.packets,
        )?;
    }
    for fault in Validity::of(&report).faults {
        writeln!(out, "invalid: {fault}")?;
    }
    Ok(())
}
