//! `longhaul test`: arguments to a plan, a run, its output.

use std::io::{self, Write};
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::anyhow;
use longhaul_core::plan::{Amount, Direction, FlowPlan};
use longhaul_core::result::{FLOW_SCHEMA, FlowEnd, FlowResult};
use longhaul_core::units::{Bytes, Rate, parse_span};
use longhaul_core::wire::Service;
use longhaul_engine::flow;
use longhaul_engine::session::{
    ConfigDir, ConnectOptions, HostPolicy, HostPort, Identity, connect,
};
use serde_json::json;

use crate::exit::{self, Coded};
use crate::interrupt::Interrupt;
use crate::output::FlowText;

#[derive(Debug, clap::Args)]
#[command(after_help = "Sizes are 64MiB, 4G (binary) or 4GB; rates 10G or 2.5Gb/s; times 10, \
                        1.5s or 200ms. Exit codes: 0 done, 2 bad arguments, 3 not reachable or \
                        connection lost, 4 refused by the server, 130 stopped by Ctrl-C.")]
pub(super) struct Args {
    #[arg(help = "Where 'longhaul serve' runs: HOST, HOST:PORT or [IPV6]:PORT")]
    host: HostPort,
    /// The server's port
    #[arg(short, long, value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Test for this long [default: 10]
    #[arg(short, long, value_name = "SECS", value_parser = parse_span, conflicts_with = "bytes")]
    time: Option<Duration>,
    /// Test with this many bytes, over all streams together
    #[arg(short = 'n', long)]
    bytes: Option<Bytes>,
    /// TCP connections, one thread each at both ends
    #[arg(short = 'P', long = "parallel", value_name = "STREAMS", default_value_t = 1)]
    streams: u32,
    /// The server sends
    #[arg(short = 'R', long)]
    reverse: bool,
    /// Pace to this rate, over all streams together
    #[arg(short = 'b', long = "bitrate", value_name = "RATE")]
    rate: Option<Rate>,
    /// Bytes in one write and one read [default: 1 MiB]
    #[arg(short, long = "length", value_name = "BYTES")]
    length: Option<Bytes>,
    /// Socket buffers at both ends [default: the kernel's autotuning]
    #[arg(short, long, value_name = "BYTES")]
    window: Option<Bytes>,
    /// The sender's congestion control, such as bbr or cubic [default: the host's]
    #[arg(short = 'C', long, value_name = "ALGORITHM")]
    congestion: Option<String>,
    /// Maximum segment size
    #[arg(short = 'M', long = "set-mss", value_name = "BYTES")]
    mss: Option<u32>,
    /// Leave the first seconds out of the result
    #[arg(short = 'O', long, value_name = "SECS", value_parser = parse_span, default_value = "0")]
    omit: Duration,
    /// Time between interval lines
    #[arg(short, long, value_name = "SECS", value_parser = parse_span, default_value = "1")]
    interval: Duration,
    /// Print one JSON document, "longhaul.test/1"
    #[arg(long, conflicts_with = "json_stream")]
    json: bool,
    /// Print one line of JSON for each interval, and one for the result
    #[arg(long)]
    json_stream: bool,

    // Of the contract, but not built: taken so that they can be refused by name.
    #[arg(short = 'u', long, hide = true)]
    udp: bool,
    #[arg(long, hide = true)]
    bidir: bool,
    #[arg(short = 'Z', long, hide = true)]
    zerocopy: bool,
    #[arg(short = 'A', long, hide = true, value_name = "CPUS")]
    affinity: Option<String>,
}

impl Args {
    pub(super) fn run(self) -> Result<u8, Coded> {
        let plan = self.plan()?;
        let mut target = self.host.clone();
        target.port = self.port.unwrap_or(target.port);
        let interrupt = Interrupt::install().map_err(|e| Coded::new(exit::HOST, e))?;
        let config = ConfigDir::of_user()?;
        let identity = Identity::load_or_create(&config)?;
        // A test sends nothing secret, so an unknown server will do; a changed key will not.
        let policy = HostPolicy::RefuseChanged;
        let options = ConnectOptions { identity: &identity, config: &config, policy };
        let session = connect(&target, Service::Test, &options)?;
        let mut lines = Lines { out: io::stdout().lock(), interrupt: &interrupt };
        let text = FlowText::new(&target.to_string(), &plan);
        if !self.json && !self.json_stream {
            lines.write(&text.head());
        }
        let result = flow::run(session, &plan, interrupt.flag(), |sample| {
            if self.json_stream {
                lines.write(&event("interval", &json!(sample)));
            } else if !self.json {
                lines.write(&text.interval(sample));
            }
        })?;
        for warning in &result.warnings {
            eprintln!("warning: {}: {}", warning.message, warning.advice);
        }
        if self.json {
            lines.write(&serde_json::to_string_pretty(&result).map_err(anyhow::Error::from)?);
        } else if self.json_stream {
            // The intervals have been printed.
            let whole = FlowResult { intervals: Vec::new(), ..result.clone() };
            lines.write(&event("result", &json!(whole)));
        } else {
            lines.write(&text.block(&result));
        }
        match result.end {
            FlowEnd::Completed => Ok(exit::OK),
            FlowEnd::Interrupted => Ok(interrupt.exit_code().unwrap_or(exit::OK)),
            FlowEnd::Cut { reason } => {
                Err(Coded::new(exit::UNREACHABLE, anyhow!("the test was cut: {reason}")))
            }
        }
    }

    fn plan(&self) -> Result<FlowPlan, Coded> {
        let missing = [
            (self.udp, "-u (UDP)"),
            (self.bidir, "--bidir (both directions at once)"),
            (self.zerocopy, "-Z (zero-copy send)"),
            (self.affinity.is_some(), "-A (placement on CPUs)"),
        ];
        if let Some((_, flag)) = missing.iter().find(|(given, _)| *given) {
            return Err(Coded::new(exit::USAGE, anyhow!("{flag} is not built yet")));
        }
        let defaults = FlowPlan::new();
        let plan = FlowPlan {
            direction: if self.reverse { Direction::Reverse } else { Direction::Forward },
            amount: match (self.bytes, self.time) {
                (Some(bytes), _) => Amount::Bytes(bytes),
                (None, Some(time)) => Amount::Time(time),
                (None, None) => defaults.amount,
            },
            omit: self.omit,
            interval: self.interval,
            streams: self.streams,
            write_bytes: self.length.unwrap_or(defaults.write_bytes),
            window_bytes: self.window,
            congestion: self.congestion.clone(),
            mss: self.mss,
            rate_bps: self.rate,
            ..defaults
        };
        plan.validate().map_err(|error| Coded::new(exit::USAGE, error))?;
        Ok(plan)
    }
}

/// One line of `--json-stream`.
fn event(name: &str, data: &serde_json::Value) -> String {
    json!({ "schema": FLOW_SCHEMA, "event": name, "data": data }).to_string()
}

/// Standard output. When nobody reads it any more, the test ends in order.
struct Lines<'a> {
    out: io::StdoutLock<'static>,
    interrupt: &'a Interrupt,
}

impl Lines<'_> {
    fn write(&mut self, text: &str) {
        if writeln!(self.out, "{text}").and_then(|()| self.out.flush()).is_err() {
            self.interrupt.flag().store(true, Ordering::Release);
        }
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

    fn plan(line: &str) -> Result<FlowPlan, Coded> {
        let words = std::iter::once("test").chain(line.split_whitespace());
        Program::try_parse_from(words).expect("clap takes it").args.plan()
    }

    #[test]
    fn flags_follow_iperf3() {
        let plan =
            plan("far -R -P 4 -n 4G -b 10G -l 1M -w 64M -C bbr -M 1400 -O 2 -i 0.5").unwrap();
        let expected = FlowPlan {
            direction: Direction::Reverse,
            amount: Amount::Bytes(Bytes::gib(4)),
            omit: Duration::from_secs(2),
            interval: Duration::from_millis(500),
            streams: 4,
            write_bytes: Bytes::mib(1),
            window_bytes: Some(Bytes::mib(64)),
            congestion: Some("bbr".to_owned()),
            mss: Some(1400),
            rate_bps: Some(Rate::from_bps(10_000_000_000)),
            ..FlowPlan::new()
        };
        assert_eq!(plan, expected);
    }

    #[test]
    fn without_flags_it_is_the_default_plan() {
        assert_eq!(plan("far").unwrap(), FlowPlan::new());
    }

    #[test]
    fn what_is_not_built_is_refused_by_name() {
        for (flag, name) in [("-u", "-u"), ("--bidir", "--bidir"), ("-Z", "-Z"), ("-A 0,1", "-A")] {
            let refused = plan(&format!("far {flag}")).unwrap_err();
            assert_eq!(refused.code, exit::USAGE);
            let message = refused.error.to_string();
            assert!(
                message.starts_with(name) && message.ends_with("is not built yet"),
                "{message}"
            );
        }
    }

    #[test]
    fn nonsense_is_a_usage_error() {
        for line in ["far -P 0", "far -P 1000", "far -t 0", "far -n 0", "far -i 0", "far -l 1G"] {
            assert_eq!(plan(line).unwrap_err().code, exit::USAGE, "{line}");
        }
        for line in ["far -t 10 -n 1G", "far -b fast", "far -t -1", "far:0", "", "a b"] {
            let words = std::iter::once("test").chain(line.split_whitespace());
            assert!(Program::try_parse_from(words).is_err(), "{line}");
        }
    }
}
