//! Driver of `longhaul test`.

use std::path::PathBuf;
use std::process::Command;

use longhaul_core::plan::Workload;
use longhaul_core::result::{Guarantees, ToolOutput};
use longhaul_core::units::{Bytes, Rate};
use serde_json::Value;

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
        let figures = read_summary(output.client)?;
        check_window(&detect::json(output.client)?)?;
        Ok(figures)
    }
}

/// Checks that the kernel gave every stream the requested window.
fn check_window(document: &Value) -> Result<(), String> {
    let Some(wanted) = document["plan"]["window_bytes"].as_u64() else { return Ok(()) };
    let streams = document["streams"].as_array().map_or(&[][..], Vec::as_slice);
    let buffers =
        streams.iter().flat_map(|s| [&s["send_buffer_bytes"], &s["receive_buffer_bytes"]]);
    match buffers.filter_map(Value::as_u64).min() {
        Some(least) if least < wanted => Err(format!(
            "the kernel limited the window to {}; raise net.core.rmem_max and net.core.wmem_max",
            Bytes::new(least)
        )),
        _ => Ok(()),
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
    fn a_window_that_the_kernel_limited_is_an_error() {
        let document = |wanted: &str, sender: u64| -> Value {
            let text = format!(
                r#"{{"plan": {{"window_bytes": {wanted}}}, "streams": [{{"send_buffer_bytes": {sender},
                    "receive_buffer_bytes": 8388608}}]}}"#
            );
            serde_json::from_str(&text).unwrap()
        };
        assert_eq!(check_window(&document("null", 4_194_304)), Ok(()));
        assert_eq!(check_window(&document("8388608", 8_388_608)), Ok(()));
        let said = check_window(&document("8388608", 4_194_304)).unwrap_err();
        assert!(said.starts_with("the kernel limited the window to 4.00 MiB; raise"), "{said}");
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
