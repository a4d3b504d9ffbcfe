//! perftest, which measures memory-to-memory throughput of RDMA; it needs a device at both ends.

use std::process::Command;

use longhaul_core::plan::Workload;
use longhaul_core::result::ToolOutput;
use longhaul_core::units::{Bytes, Rate};

use super::super::{Job, ServerCommand, ToolFigures};
use super::{Programs, Tool, VersionSource, plain};
use crate::LabError;

const PORT: u16 = 18515;

pub(super) const TOOLS: &[Tool] = &[Tool {
    name: "perftest",
    programs: &["ib_write_bw"],
    version: VersionSource::Line("--version"),
    workload: Workload::Memory,
    trees: false,
    many_clients: false,
    guarantees: plain,
    streams: Some("-q"),
    window: None,
    server: |job, programs| Ok(Some(ServerCommand::new(command(job, programs)?, PORT))),
    client: |job, programs| {
        let mut command = command(job, programs)?;
        command.arg(job.far);
        Ok(command)
    },
    read: Some(read),
    goes_far: true,
    untried: None,
    found_in: Programs { only: None },
}];

/// Builds the command; both ends take the same arguments. A later option of the plan replaces an
/// earlier one.
///
/// `-F` ignores differing frequencies of the processors. `-u 20` waits 4.3 s for an acknowledgement:
/// the default of 67 ms is shorter than a long round trip.
fn command(job: &Job<'_>, programs: &Programs) -> Result<Command, LabError> {
    let task = job.memory("perftest")?;
    let mut command = Command::new(programs.get("ib_write_bw"));
    let seconds = task.seconds.to_string();
    command.args(["-p", &PORT.to_string(), "-D", &seconds, "--report_gbits", "-F", "-u", "20"]);
    command.args(job.options);
    Ok(command)
}

/// Reads the line below the heading: size, iterations, peak, average in Gb/s, message rate.
fn read(output: &ToolOutput) -> Result<ToolFigures, String> {
    let mut lines = output.stdout.lines().skip_while(|line| !line.contains("BW average"));
    let figures = lines.nth(1).ok_or("it printed no result line")?;
    let fields: Vec<f64> = figures.split_whitespace().map_while(|f| f.parse().ok()).collect();
    let [size, iterations, _peak, average, ..] = fields[..] else {
        return Err(format!("'{figures}' is not a result line"));
    };
    // perftest prints two decimals, and 0.00 if no message completed in the measured time.
    if average == 0.0 {
        return Err(format!("it printed a rate of 0.00 Gb/s after {iterations} messages"));
    }
    Ok(ToolFigures {
        throughput: Some(Rate::from_bps((average * 1e9) as u64)),
        bytes: Some(Bytes::new((size * iterations) as u64)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_average() {
        let stdout = " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   \
                      MsgRate[Mpps]\n 65536      1000             0.00               92.50 \
                      0.176\n---\n";
        let output = ToolOutput { stdout: stdout.into(), ..ToolOutput::default() };
        let reading = read(&output).unwrap();
        assert_eq!(reading.throughput, Some(Rate::from_bps(92_500_000_000)));
        assert_eq!(reading.bytes, Some(Bytes::new(65_536_000)));
        assert!(read(&ToolOutput::default()).is_err());
        let output = ToolOutput { stdout: stdout.replace("92.50", "0.00"), ..output };
        assert!(read(&output).unwrap_err().ends_with("0.00 Gb/s after 1000 messages"));
    }
}
