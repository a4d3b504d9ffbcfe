//! Driver of iperf3.

use std::process::Command;

use longhaul_core::plan::Workload;
use longhaul_core::result::{Guarantees, ToolOutput};
use longhaul_core::units::{Bytes, Rate};

use super::{Detected, Driver, Job, RunOutput, ServerCommand, ToolFigures, detect};
use crate::LabError;

const NAME: &str = "iperf3";
pub(super) const PORT: u16 = 5201;

/// iperf3, measured by its JSON output.
pub(super) struct Iperf3;

impl Driver for Iperf3 {
    fn name(&self) -> &'static str {
        NAME
    }

    fn workload(&self) -> Workload {
        Workload::Memory
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
        detect::detect(&["iperf3"], "--version")
    }

    fn goes_far(&self) -> bool {
        true
    }

    fn server(&self, _job: &Job<'_>) -> Result<Option<ServerCommand>, LabError> {
        let mut command = Command::new(detect::program("iperf3"));
        command.args(["-s", "-p", &PORT.to_string()]);
        Ok(Some(ServerCommand::new(command, PORT)))
    }

    fn client(&self, job: &Job<'_>) -> Result<Command, LabError> {
        let task = job.memory(NAME)?;
        let mut command = Command::new(detect::program("iperf3"));
        command.args(["-c", job.far, "-p", &PORT.to_string(), "-J"]);
        command.args(["-t", &task.seconds.to_string(), "-O", &task.omit_seconds.to_string()]);
        command.args(job.options);
        Ok(command)
    }

    fn read(&self, _job: &Job<'_>, output: RunOutput<'_>) -> Result<ToolFigures, String> {
        let document = detect::json(output.client)?;
        if let Some(error) = document["error"].as_str() {
            let is_window = error.contains("socket buffer size not set correctly");
            let advice = "; raise net.core.rmem_max and net.core.wmem_max";
            return Err(format!("{error}{}", if is_window { advice } else { "" }));
        }
        // The receiver's count without the omitted seconds; UDP tests report it as `sum`.
        let end = &document["end"];
        let sum = if end["sum_received"].is_object() { &end["sum_received"] } else { &end["sum"] };
        let rate =
            sum["bits_per_second"].as_f64().ok_or("the JSON output has no end.sum_received")?;
        Ok(ToolFigures {
            throughput: Some(Rate::from_bps(rate as u64)),
            bytes: sum["bytes"].as_u64().map(Bytes::new),
        })
    }

    fn failure(&self, output: &ToolOutput) -> Option<String> {
        // With -J the error message is JSON on standard output as well.
        let said =
            detect::json(output).ok().and_then(|doc| doc["error"].as_str().map(str::to_owned));
        said.or_else(|| output.last_line().map(str::to_owned))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drivers::driver::tests::memory_job;

    fn printed(stdout: &str) -> ToolOutput {
        ToolOutput { stdout: stdout.into(), ..ToolOutput::default() }
    }

    #[test]
    fn reads_what_the_receiver_counted() {
        let output = printed(
            r#"{"start": {"version": "iperf 3.12"}, "intervals": [], "end": {
                "sum_sent": {"bytes": 2992048980, "bits_per_second": 11946237234.25},
                "sum_received": {"start": 0, "end": 2.003683, "seconds": 2.003683,
                    "bytes": 2991063040, "bits_per_second": 11946196998.227762}}}"#,
        );
        let reading =
            memory_job(|job| Iperf3.read(job, RunOutput { client: &output, server: None }))
                .unwrap();
        assert_eq!(reading.throughput, Some(Rate::from_bps(11_946_196_998)));
        assert_eq!(reading.bytes, Some(Bytes::new(2_991_063_040)));
    }

    #[test]
    fn its_complaint_is_in_the_json() {
        let output = printed(r#"{"error": "unable to connect to server: Connection refused"}"#);
        let said = Iperf3.failure(&output).unwrap();
        assert_eq!(said, "unable to connect to server: Connection refused");
        assert!(
            memory_job(|job| Iperf3.read(job, RunOutput { client: &output, server: None }))
                .is_err()
        );
    }
}
