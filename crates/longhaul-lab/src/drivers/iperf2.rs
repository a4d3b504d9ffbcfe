//! Driver of iperf 2.

use std::process::Command;

use longhaul_core::plan::Workload;
use longhaul_core::result::Guarantees;
use longhaul_core::units::{Bytes, Rate};

use super::{Detected, Driver, Job, RunOutput, ServerCommand, ToolFigures, detect};
use crate::LabError;

const NAME: &str = "iperf";
const PORT: u16 = 5001;

/// iperf 2, measured by its server's intervals: the client counts bytes written, not bytes
/// received.
pub(super) struct Iperf2;

impl Driver for Iperf2 {
    fn name(&self) -> &'static str {
        NAME
    }

    fn workload(&self) -> Workload {
        Workload::Memory
    }

    fn many_clients(&self) -> bool {
        true
    }

    fn streams(&self, count: u32) -> Option<Vec<String>> {
        Some(vec!["-P".to_owned(), count.to_string()])
    }

    fn message(&self, size: Bytes) -> Option<Vec<String>> {
        Some(vec!["-l".to_owned(), size.get().to_string()])
    }

    fn window(&self, size: Bytes) -> Option<Vec<String>> {
        Some(vec!["-w".to_owned(), size.get().to_string()])
    }

    fn guarantees(&self, _options: &[String]) -> Guarantees {
        Guarantees::default()
    }

    fn detect(&self) -> Detected {
        detect::detect(&["iperf"], "--version")
    }

    fn goes_far(&self) -> bool {
        true
    }

    fn server(&self, _job: &Job<'_>) -> Result<Option<ServerCommand>, LabError> {
        let mut command = Command::new(detect::program("iperf"));
        command.args(["-s", "-p", &PORT.to_string(), "-i", "1", "-y", "C"]);
        Ok(Some(ServerCommand::new(command, PORT)))
    }

    fn client(&self, job: &Job<'_>) -> Result<Command, LabError> {
        let task = job.memory(NAME)?;
        let seconds = (task.seconds + task.omit_seconds).to_string();
        let mut command = Command::new(detect::program("iperf"));
        command.args(["-c", job.far, "-p", &PORT.to_string(), "-t", &seconds]).args(job.options);
        Ok(command)
    }

    fn read(&self, job: &Job<'_>, output: RunOutput<'_>) -> Result<ToolFigures, String> {
        let task = job.memory(NAME).map_err(|error| error.to_string())?;
        let from = f64::from(task.omit_seconds);
        let to = from + f64::from(task.seconds);
        let text = output.server.map_or("", |server| server.stdout.as_str());
        let bytes = bytes_between(text, from, to);
        if bytes == 0 {
            return Err("the server printed no interval".into());
        }
        let rate = Rate::from_bps(bytes * 8 / u64::from(task.seconds.max(1)));
        Ok(ToolFigures { throughput: Some(rate), bytes: Some(Bytes::new(bytes)) })
    }
}

/// Returns the bytes of all streams in the one-second intervals between two times.
///
/// A row is `time,address,port,address,port,stream,from-to,bytes,bits per second`; the last row of
/// a stream is its total.
fn bytes_between(csv: &str, from: f64, to: f64) -> u64 {
    let bytes = |row: &str| -> Option<u64> {
        let fields: Vec<&str> = row.split(',').collect();
        let (begun, ended) = fields.get(6)?.split_once('-')?;
        let (begun, ended): (f64, f64) = (begun.parse().ok()?, ended.parse().ok()?);
        let counts = begun >= from - 0.01 && begun < to - 0.01 && ended - begun < 1.5;
        // The rows of stream -1 are the sums of all streams.
        (counts && *fields.get(5)? != "-1").then_some(fields.get(7)?.parse().ok()?)
    };
    csv.lines().filter_map(bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_the_intervals_that_count() {
        let csv = "20261121113824,127.0.0.1,5001,127.0.0.1,1,1,0.0-1.0,100,800\n\
                   20261121113824,127.0.0.1,5001,127.0.0.1,1,1,1.0-2.0,10,80\n\
                   20261121113824,127.0.0.1,5001,127.0.0.1,2,2,1.0-2.0,20,160\n\
                   20261121113824,127.0.0.1,5001,127.0.0.1,2,-1,1.0-2.0,30,240\n\
                   20261121113825,127.0.0.1,5001,127.0.0.1,1,1,2.0-3.0,5,40\n\
                   20261121113825,127.0.0.1,5001,127.0.0.1,1,1,3.0-3.0,7,40\n\
                   20261121113825,127.0.0.1,5001,127.0.0.1,1,1,0.0-3.0,115,300\n";
        assert_eq!(bytes_between(csv, 1.0, 3.0), 35);
        assert_eq!(bytes_between("nothing", 1.0, 3.0), 0);
    }
}
