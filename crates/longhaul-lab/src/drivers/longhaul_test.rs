//! Driver of `longhaul test`.

use std::path::PathBuf;
use std::process::Command;

use longhaul_core::plan::Workload;
use longhaul_core::result::{Guarantees, ToolOutput};
use longhaul_core::units::{Bytes, Rate};

use super::{Detected, Driver, Job, RunOutput, ServerCommand, ToolFigures, detect};
use crate::LabError;

const NAME: &str = "longhaul test";
/// The default port of `longhaul serve`.
pub(super) const PORT: u16 = 5210;

/// `longhaul test` against `longhaul serve`.
pub(super) struct LonghaulTest {
    pub(super) program: PathBuf,
}

impl Driver for LonghaulTest {
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
        Detected::Installed { version: detect::version(&self.program, "--version") }
    }

    fn program(&self) -> Option<PathBuf> {
        Some(self.program.clone())
    }

    fn goes_far(&self) -> bool {
        true
    }

    fn server(&self, _job: &Job<'_>) -> Result<Option<ServerCommand>, LabError> {
        let mut command = Command::new(&self.program);
        command.args(["serve", "--port", &PORT.to_string()]);
        Ok(Some(ServerCommand::new(command, PORT)))
    }

    fn client(&self, job: &Job<'_>) -> Result<Command, LabError> {
        let task = job.memory(NAME)?;
        let mut command = Command::new(&self.program);
        command.arg("test").arg(job.far);
        command.args(["-p", &PORT.to_string(), "-t", &task.seconds.to_string()]);
        command.args(["-O", &task.omit_seconds.to_string()]);
        command.args(job.options).arg("--json");
        Ok(command)
    }

    fn read(&self, _job: &Job<'_>, output: RunOutput<'_>) -> Result<ToolFigures, String> {
        read_summary(output.client)
    }
}

/// Reads the `summary` object of a longhaul result document.
pub(super) fn read_summary(output: &ToolOutput) -> Result<ToolFigures, String> {
    let document = detect::json(output)?;
    let summary = &document["summary"];
    let throughput = summary["throughput_bps"]
        .as_f64()
        .ok_or("the JSON output has no summary.throughput_bps")?;
    let bytes = summary["bytes"].as_u64().or_else(|| summary["receiver"]["bytes"].as_u64());
    Ok(ToolFigures {
        throughput: Some(Rate::from_bps(throughput as u64)),
        bytes: bytes.map(Bytes::new),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(stdout: &str) -> ToolOutput {
        ToolOutput { stdout: stdout.into(), exit_code: Some(0), ..ToolOutput::default() }
    }

    #[test]
    fn reads_the_figure_counted_at_the_receiver() {
        let reading = read_summary(&printed(
            r#"{"schema": "longhaul.test/1", "summary": {"throughput_bps": 23500000000,
                "sender": {"bytes": 99}, "receiver": {"bytes": 11750000000}}}"#,
        ));
        let expected = ToolFigures {
            throughput: Some(Rate::from_bps(23_500_000_000)),
            bytes: Some(Bytes::new(11_750_000_000)),
        };
        assert_eq!(reading, Ok(expected));
    }

    #[test]
    fn reads_a_copy() {
        let reading = read_summary(&printed(
            r#"{"schema": "longhaul.cp/1", "summary": {"throughput_bps": 9.5e9, "bytes": 1024}}"#,
        ));
        assert_eq!(reading.unwrap().bytes, Some(Bytes::new(1024)));
    }

    #[test]
    fn the_missing_program_is_named() {
        assert!(read_summary(&printed("{}")).unwrap_err().contains("summary.throughput_bps"));
        assert!(read_summary(&printed("oops")).unwrap_err().contains("not valid JSON"));
    }
}
