//! `longhaul path --stamp`: measures with a STAMP or TWAMP Light reflector.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow};
use longhaul_core::plan::StampPlan;
use longhaul_core::result::{PathEnd, STAMP_RECORD_SCHEMA, StampRecord};
use longhaul_core::units::parse_span;
use longhaul_engine::session::{HostPort, secret_text};
use longhaul_interop::stamp::{
    Measured, MeasuredPeriod, STAMP_PORT, StampEnds, StampError, StampKey, clocks, is_this_host,
    measure, origins,
};

use super::Args;
use crate::cli::test::parse_dscp;
use crate::exit::{self, Coded};
use crate::output::{
    after_printing, print_document, print_document_line, print_message, print_result,
    stamp_failure, stamp_text,
};
use crate::signals::Interrupt;

/// The default interval of packets.
const INTERVAL: Duration = Duration::from_millis(10);
/// The default interval of a measurement without an end.
const CONTINUOUS_INTERVAL: Duration = Duration::from_millis(100);

/// The options of a STAMP measurement.
#[derive(Debug, clap::Args)]
pub(super) struct StampArgs {
    /// Measure with the STAMP or TWAMP Light reflector at HOST, UDP port 862: -t, -i, -c and -l set
    /// the time, the interval [default: 10ms], the number and the size of the packets
    #[arg(
        long,
        conflicts_with_all = ["skip", "max_hops", "no_server"]
    )]
    stamp: bool,
    /// Send STAMP packets [default: 10 per second] until stopped, and print a JSON record per
    /// minute
    #[arg(long, requires = "stamp", conflicts_with_all = ["echoes", "json"])]
    continuous: bool,
    /// Duration of a record of --continuous
    #[arg(long, value_name = "TIME", value_parser = parse_span, requires = "continuous", default_value = "60")]
    record_time: Duration,
    /// Authenticate STAMP packets with the key in FILE, 32 to 128 hexadecimal digits
    #[arg(long, value_name = "FILE", requires = "stamp")]
    stamp_key: Option<PathBuf>,
    /// Differentiated services code point of STAMP packets and their replies: a number, or a name
    /// such as ef, cs1 or af41
    #[arg(long, value_name = "DSCP", value_parser = parse_dscp, requires = "stamp")]
    dscp: Option<u8>,
    /// Send STAMP packets with ECT(0)
    #[arg(long, requires = "stamp")]
    ecn: bool,
    /// Send STAMP packets without the extensions of RFC 8972
    #[arg(long, requires = "stamp")]
    no_extensions: bool,
    /// Compute one-way delays as if both ends had the same clock
    #[arg(long, requires = "stamp")]
    same_clock: bool,
}

impl StampArgs {
    pub(super) fn is_requested(&self) -> bool {
        self.stamp
    }
}

/// Reads the key of authenticated packets.
///
/// # Errors
/// The file cannot be read, other users may read it, or it has no key.
pub(in crate::cli) fn stamp_key(file: &Path) -> Result<StampKey, Coded> {
    let key = StampKey::parse(&secret_text(file)?);
    key.with_context(|| format!("{} has no key", file.display()))
        .map_err(|error| Coded::new(exit::HOST, error))
}

/// Measures and prints the result.
pub(super) fn run(args: &Args) -> Result<u8, Coded> {
    let plan = plan(args)?;
    let key = args.stamp.stamp_key.as_deref().map(stamp_key).transpose()?;
    let target = target(args)?;
    let address = args.address_of(&target)?;
    let local = args.local()?.map(|local| local.socket_address()).transpose();
    let local = local.map_err(|error| Coded::new(exit::HOST, error))?;
    let ends = StampEnds { target: address, local };
    let interrupt = Interrupt::install().map_err(|e| Coded::new(exit::HOST, e))?;
    if plan.packets.is_none() && !args.quiet {
        let seconds = plan.record.as_secs_f64();
        print_message(format_args!("measuring until interrupted, with a record every {seconds} s"));
    }
    let mut printed = Ok(());
    let found = measure(ends, &plan, key, interrupt.flag(), |progress| {
        printed = print_document_line(&record(&target, address, &plan, progress));
        printed.is_ok()
    });
    let measured = found.map_err(|error| failure(&target, &error))?;
    let code = code(&measured, &interrupt);
    if plan.packets.is_none() {
        let last = || print_document_line(&record(&target, address, &plan, measured.last));
        return after_printing(code, printed.and_then(|()| last()));
    }
    let result = measured.document(&target.to_string(), address, &plan, env!("CARGO_PKG_VERSION"));
    let printed =
        if args.json { print_document(&result) } else { print_result(&stamp_text(&result)) };
    after_printing(code, printed)
}

fn plan(args: &Args) -> Result<StampPlan, Coded> {
    let continuous = args.stamp.continuous;
    let default = if continuous { CONTINUOUS_INTERVAL } else { INTERVAL };
    let interval = args.interval.unwrap_or(default).max(Duration::from_nanos(1));
    let by_time = args.time().as_nanos().div_ceil(interval.as_nanos());
    let by_time = u64::try_from(by_time).unwrap_or(u64::MAX);
    let plan = StampPlan {
        packets: (!continuous).then(|| args.echoes.map_or(by_time, u64::from)),
        interval,
        packet_bytes: args.length.map(|length| length.get().try_into().unwrap_or(u32::MAX)),
        dscp: args.stamp.dscp.unwrap_or(0),
        ecn: args.stamp.ecn,
        extensions: !args.stamp.no_extensions,
        authenticated: args.stamp.stamp_key.is_some(),
        same_clock: args.stamp.same_clock,
        record: args.stamp.record_time,
    };
    plan.validate().map_err(|error| Coded::new(exit::USAGE, error))?;
    if plan.packet_bytes.is_some_and(|bytes| bytes > 65_535) {
        return Err(Coded::new(exit::USAGE, anyhow!("a packet has at most 65535 bytes (-l)")));
    }
    Ok(plan)
}

/// Returns the reflector; its port is 862 unless the user names one.
fn target(args: &Args) -> Result<HostPort, Coded> {
    let mut target: HostPort = args.host.parse()?;
    // Without a port the text is the host, perhaps in brackets.
    let no_port = args.host.trim_matches(['[', ']']) == target.host;
    target.port = args.port.unwrap_or(if no_port { STAMP_PORT } else { target.port });
    Ok(target)
}

fn record(
    target: &HostPort,
    address: SocketAddr,
    plan: &StampPlan,
    progress: MeasuredPeriod,
) -> StampRecord {
    let MeasuredPeriod { report, reflector, clock, local, no_hardware } = progress;
    let began = jiff::Timestamp::from_nanosecond(report.unix_ns.into()).unwrap_or_default();
    StampRecord {
        schema: STAMP_RECORD_SCHEMA.to_owned(),
        time: format!("{began:.3}"),
        seconds: report.length.as_secs_f64(),
        target: target.to_string(),
        address,
        numbering: reflector.numbering,
        clocks: clocks(clock, reflector.clock, plan.same_clock || is_this_host(address, local)),
        stamps: Some(origins(&report, no_hardware)),
        figures: report.figures,
        histograms: report.histograms,
    }
}

fn failure(target: &HostPort, error: &StampError) -> Coded {
    let code = match error {
        StampError::PacketSize { .. } => exit::USAGE,
        StampError::Socket { .. } | StampError::PortClosed { .. } => exit::UNREACHABLE,
        StampError::Silent { silence, .. } if silence.unauthentic > 0 => exit::REFUSED,
        StampError::Silent { .. } => exit::UNREACHABLE,
    };
    Coded::new(code, anyhow!("{}", stamp_failure(&target.to_string(), error)))
}

fn code(measured: &Measured, interrupt: &Interrupt) -> u8 {
    match measured.end {
        PathEnd::Interrupted => interrupt.exit_code().unwrap_or(exit::OK),
        PathEnd::Completed => exit::OK,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        args: Args,
    }

    fn parse(line: &str) -> Result<Args, clap::Error> {
        let words = std::iter::once("path").chain(line.split_whitespace());
        Program::try_parse_from(words).map(|program| program.args)
    }

    fn of(line: &str) -> StampPlan {
        plan(&parse(line).unwrap()).unwrap()
    }

    #[test]
    fn options_reach_the_plan() {
        assert_eq!(of("far --stamp"), StampPlan::new());
        let found =
            of("far --stamp -c 7 -i 1ms -l 200 --dscp ef --ecn --no-extensions --same-clock");
        let expected = StampPlan {
            packets: Some(7),
            interval: Duration::from_millis(1),
            packet_bytes: Some(200),
            dscp: 46,
            ecn: true,
            extensions: false,
            same_clock: true,
            ..StampPlan::new()
        };
        assert_eq!(found, expected);
        assert_eq!(of("far --stamp -t 2 -i 100ms").packets, Some(20));
        let found = of("far --stamp --continuous --record-time 5");
        assert_eq!((found.packets, found.record), (None, Duration::from_secs(5)));
        assert_eq!(found.interval, Duration::from_millis(100));
    }

    #[test]
    fn invalid_arguments_are_refused() {
        for line in [
            "far --dscp 1",
            "far --continuous",
            "far --stamp --no-server",
            "far --stamp --continuous -c 3",
            "far --stamp --record-time 5",
            "far --stamp --dscp 64",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
        for line in ["far --stamp -c 0", "far --stamp -i 1us", "far --stamp -l 1M"] {
            assert_eq!(plan(&parse(line).unwrap()).unwrap_err().code, exit::USAGE, "{line}");
        }
    }

    #[test]
    fn the_port_is_that_of_stamp_unless_it_is_named() {
        for (line, expected) in [
            ("far --stamp", "far:862"),
            ("far:5210 --stamp", "far:5210"),
            ("far --stamp -p 9", "far:9"),
            ("fd00::1 --stamp", "[fd00::1]:862"),
            ("[fd00::1] --stamp", "[fd00::1]:862"),
            ("[fd00::1]:5210 --stamp", "[fd00::1]:5210"),
        ] {
            assert_eq!(target(&parse(line).unwrap()).unwrap().to_string(), expected);
        }
    }
}
