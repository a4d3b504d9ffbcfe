//! Driver of nuttcp.

use std::process::Command;

use longhaul_core::plan::Workload;
use longhaul_core::result::Guarantees;
use longhaul_core::units::{Bytes, Rate};

use super::{Detected, Driver, Job, RunOutput, ServerCommand, ToolFigures, detect};
use crate::LabError;

const NAME: &str = "nuttcp";
/// nuttcp's control port; its data use the next port.
pub(super) const PORT: u16 = 5000;
/// The maximum difference in seconds between the omitted time and the end of an interval.
const TOLERANCE: f64 = 0.5;

/// nuttcp, measured by its interval lines: it has no option to omit slow start, so the driver omits
/// the first intervals.
pub(super) struct Nuttcp;

impl Driver for Nuttcp {
    fn name(&self) -> &'static str {
        NAME
    }

    fn workload(&self) -> Workload {
        Workload::Memory
    }

    fn streams(&self, count: u32) -> Option<Vec<String>> {
        Some(vec![format!("-N{count}")])
    }

    fn message(&self, size: Bytes) -> Option<Vec<String>> {
        Some(vec![format!("-l{}", size.get())])
    }

    /// Returns the arguments for a window; nuttcp counts it in KiB.
    fn window(&self, size: Bytes) -> Option<Vec<String>> {
        Some(vec![format!("-w{}", size.get().div_ceil(1024))])
    }

    fn guarantees(&self, _options: &[String]) -> Guarantees {
        Guarantees::default()
    }

    fn detect(&self) -> Detected {
        detect::detect(&["nuttcp"], "-V")
    }

    fn goes_far(&self) -> bool {
        true
    }

    fn server(&self, _job: &Job<'_>) -> Result<Option<ServerCommand>, LabError> {
        let mut command = Command::new(detect::program("nuttcp"));
        command.args(["-S", "--nofork", &format!("-P{PORT}")]);
        Ok(Some(ServerCommand::new(command, PORT)))
    }

    fn client(&self, job: &Job<'_>) -> Result<Command, LabError> {
        let task = job.memory(NAME)?;
        let mut command = Command::new(detect::program("nuttcp"));
        let seconds = task.seconds + task.omit_seconds;
        command.args([&format!("-P{PORT}"), &format!("-T{seconds}"), "-i1", "-fparse"]);
        command.args(job.options).arg(job.far);
        Ok(command)
    }

    fn read(&self, job: &Job<'_>, output: RunOutput<'_>) -> Result<ToolFigures, String> {
        let omit = job.memory(NAME).map_err(|error| error.to_string())?.omit_seconds;
        let (mut time, mut counted, mut bits, mut omitted) = (0.0, 0.0, 0.0, 0.0);
        let mut whole = (0.0, 0.0);
        for line in output.client.stdout.lines() {
            let Some(rate) = field(line, "rate_Mbps").map(|rate| rate * 1e6) else { continue };
            // Interval lines have real_sec, the last line has real_seconds.
            if let Some(seconds) = field(line, "real_seconds") {
                whole = (seconds, rate * seconds);
            }
            let Some(seconds) = field(line, "real_sec") else { continue };
            // The tolerance of half a second allows for intervals that are not exactly one second
            // long.
            if time > f64::from(omit) - TOLERANCE {
                counted += seconds;
                bits += rate * seconds;
            } else {
                omitted += rate * seconds;
            }
            time += seconds;
        }
        if counted <= 0.0 && (time - f64::from(omit)).abs() <= TOLERANCE {
            // A test of one second can end before the line of its last interval.
            (counted, bits) = (whole.0 - time, whole.1 - omitted);
        }
        if counted < TOLERANCE || bits <= 0.0 {
            return Err(format!("it printed no interval after the {omit} s that are omitted"));
        }
        Ok(ToolFigures {
            throughput: Some(Rate::from_bps((bits / counted) as u64)),
            bytes: Some(Bytes::new((bits / 8.0) as u64)),
        })
    }
}

/// Returns the number after `key=` in a line of `key=value` pairs.
fn field(line: &str, key: &str) -> Option<f64> {
    line.split_whitespace()
        .find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='))
        .and_then(|value| value.parse().ok())
}

#[cfg(test)]
mod tests {
    use longhaul_core::result::ToolOutput;

    use super::*;
    use crate::drivers::driver::tests::memory_job;

    #[test]
    fn leaves_the_first_intervals_out() {
        let output = ToolOutput {
            stdout: "megabytes=148.0 real_sec=1.00 rate_Mbps=1241.9492 retrans=0\n\
                     megabytes=1601.1250 real_sec=1.00 rate_Mbps=13000.0 retrans=0\n\
                     megabytes=1601.1250 real_sec=1.00 rate_Mbps=15000.0 retrans=0\n\n\
                     megabytes=4565.8125 real_seconds=3.00 rate_Mbps=12769.0355 tx_cpu=96 \
                     rx_cpu=39 retrans=0 rtt_ms=0.32\n"
                .into(),
            ..ToolOutput::default()
        };
        let reading =
            memory_job(|job| Nuttcp.read(job, RunOutput { client: &output, server: None }))
                .unwrap();
        assert_eq!(reading.throughput, Some(Rate::from_bps(14_000_000_000)));
    }

    #[test]
    fn the_remainder_counts_if_the_last_interval_has_no_line() {
        let output = |stdout: &str| {
            let output = ToolOutput { stdout: stdout.into(), ..ToolOutput::default() };
            memory_job(|job| Nuttcp.read(job, RunOutput { client: &output, server: None }))
        };
        let last = "megabytes=2400.0 real_seconds=2.00 rate_Mbps=10000.0 tx_cpu=82\n";
        let reading = output(&format!("megabytes=480.0 real_sec=1.00 rate_Mbps=4000.0\n{last}"));
        assert_eq!(reading.unwrap().throughput, Some(Rate::from_bps(16_000_000_000)));
        assert!(output(last).is_err(), "the omitted second is unknown");
    }

    #[test]
    fn an_output_without_figures_is_an_error() {
        let said = memory_job(|job| {
            Nuttcp.read(job, RunOutput { client: &ToolOutput::default(), server: None })
        })
        .unwrap_err();
        assert!(said.contains("no interval"), "{said}");
    }
}
