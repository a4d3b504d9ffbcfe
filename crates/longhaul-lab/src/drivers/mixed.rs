//! Pairs of different programs: longhaul as the client of iperf3 and nuttcp servers, and as the server
//! of their clients.

use std::path::{Path, PathBuf};
use std::process::Command;

use longhaul_core::plan::Workload;
use longhaul_core::result::{Guarantees, ToolOutput};
use longhaul_core::units::{Bytes, Rate};

use super::longhaul_test::{LonghaulTest, PORT, read_summary};
use super::{Detected, Driver, Job, RunOutput, ServerCommand, ToolFigures, detect};
use crate::LabError;

/// `longhaul test` against the server of another tool.
pub(super) struct LonghaulClient {
    pub(super) name: &'static str,
    /// The scheme of the server's address, such as `iperf3`.
    pub(super) scheme: &'static str,
    /// True if the protocol can omit the first seconds. Otherwise the driver omits intervals.
    pub(super) omits: bool,
    pub(super) ours: LonghaulTest,
    /// The tool whose server answers.
    pub(super) peer: Box<dyn Driver>,
}

impl Driver for LonghaulClient {
    fn name(&self) -> &'static str {
        self.name
    }

    fn workload(&self) -> Workload {
        Workload::Memory
    }

    fn streams(&self, count: u32) -> Option<Vec<String>> {
        self.ours.streams(count)
    }

    fn message(&self, size: Bytes) -> Option<Vec<String>> {
        self.ours.message(size)
    }

    fn window(&self, size: Bytes) -> Option<Vec<String>> {
        self.ours.window(size)
    }

    fn guarantees(&self, options: &[String]) -> Guarantees {
        self.ours.guarantees(options)
    }

    fn detect(&self) -> Detected {
        self.peer.detect()
    }

    fn detect_near(&self) -> Detected {
        self.ours.detect()
    }

    fn program(&self) -> Option<PathBuf> {
        self.ours.program()
    }

    fn goes_far(&self) -> bool {
        self.peer.goes_far()
    }

    fn server(&self, job: &Job<'_>) -> Result<Option<ServerCommand>, LabError> {
        self.peer.server(job)
    }

    fn client(&self, job: &Job<'_>) -> Result<Command, LabError> {
        let task = job.memory(self.name)?;
        let mut command = Command::new(&self.ours.program);
        command.args(["test", &format!("{}://{}", self.scheme, job.far)]);
        if self.omits {
            command.args(["-t", &task.seconds.to_string(), "-O", &task.omit_seconds.to_string()]);
        } else {
            command.args(["-t", &(task.seconds + task.omit_seconds).to_string(), "-i", "1"]);
        }
        command.args(job.options).arg("--json");
        Ok(command)
    }

    fn read(&self, job: &Job<'_>, output: RunOutput<'_>) -> Result<ToolFigures, String> {
        if self.omits {
            return read_summary(output.client);
        }
        let task = job.memory(self.name).map_err(|error| error.to_string())?;
        read_intervals(output.client, task.omit_seconds)
    }
}

/// Reads the intervals of a `longhaul.test/1` document that begin after the omitted seconds.
fn read_intervals(output: &ToolOutput, omit_seconds: u32) -> Result<ToolFigures, String> {
    let document = detect::json(output)?;
    let intervals = document["intervals"].as_array().ok_or("the JSON output has no intervals")?;
    let (mut seconds, mut bytes) = (0.0, 0);
    for interval in intervals {
        let (Some(start), Some(end)) =
            (interval["start_seconds"].as_f64(), interval["end_seconds"].as_f64())
        else {
            continue;
        };
        // Intervals are not exactly one second long.
        if start > f64::from(omit_seconds) - 0.5 {
            seconds += end - start;
            bytes += interval["bytes"].as_u64().unwrap_or(0);
        }
    }
    if seconds <= 0.0 {
        return Err(format!("it printed no interval after the {omit_seconds} s that are omitted"));
    }
    Ok(ToolFigures {
        throughput: Some(Rate::from_bps((bytes as f64 * 8.0 / seconds) as u64)),
        bytes: Some(Bytes::new(bytes)),
    })
}

/// The client of another tool against `longhaul serve`.
pub(super) struct LonghaulServer {
    pub(super) name: &'static str,
    /// The option of `longhaul serve` for the protocol, and the port without its default.
    pub(super) listen: (&'static str, u16),
    pub(super) program: PathBuf,
    /// The tool whose client measures.
    pub(super) peer: Box<dyn Driver>,
}

impl Driver for LonghaulServer {
    fn name(&self) -> &'static str {
        self.name
    }

    fn workload(&self) -> Workload {
        Workload::Memory
    }

    fn streams(&self, count: u32) -> Option<Vec<String>> {
        self.peer.streams(count)
    }

    fn message(&self, size: Bytes) -> Option<Vec<String>> {
        self.peer.message(size)
    }

    fn window(&self, size: Bytes) -> Option<Vec<String>> {
        self.peer.window(size)
    }

    fn guarantees(&self, options: &[String]) -> Guarantees {
        self.peer.guarantees(options)
    }

    fn detect(&self) -> Detected {
        self.peer.detect()
    }

    fn goes_far(&self) -> bool {
        true
    }

    fn server(&self, _job: &Job<'_>) -> Result<Option<ServerCommand>, LabError> {
        let (option, port) = self.listen;
        let mut command = Command::new(&self.program);
        command.args(["serve", "--port", &PORT.to_string(), &format!("--{option}={port}")]);
        Ok(Some(ServerCommand::new(command, port)))
    }

    fn client(&self, job: &Job<'_>) -> Result<Command, LabError> {
        self.peer.client(job)
    }

    fn read(&self, job: &Job<'_>, output: RunOutput<'_>) -> Result<ToolFigures, String> {
        self.peer.read(job, output)
    }

    fn failure(&self, output: &ToolOutput) -> Option<String> {
        self.peer.failure(output)
    }
}

/// Returns the four pairs of `program` with iperf3 and nuttcp.
pub(super) fn pairs(program: &Path) -> Vec<Box<dyn Driver>> {
    let ours = || LonghaulTest { program: program.to_owned() };
    vec![
        Box::new(LonghaulClient {
            name: "longhaul test (iperf3 server)",
            scheme: "iperf3",
            omits: true,
            ours: ours(),
            peer: Box::new(super::iperf3::Iperf3),
        }),
        Box::new(LonghaulServer {
            name: "iperf3 (longhaul server)",
            listen: ("iperf3", super::iperf3::PORT),
            program: program.to_owned(),
            peer: Box::new(super::iperf3::Iperf3),
        }),
        Box::new(LonghaulClient {
            name: "longhaul test (nuttcp server)",
            scheme: "nuttcp",
            omits: false,
            ours: ours(),
            peer: Box::new(super::nuttcp::Nuttcp),
        }),
        Box::new(LonghaulServer {
            name: "nuttcp (longhaul server)",
            listen: ("nuttcp", super::nuttcp::PORT),
            program: program.to_owned(),
            peer: Box::new(super::nuttcp::Nuttcp),
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drivers::driver::tests::memory_job;

    fn words(command: &Command) -> Vec<String> {
        let program = [command.get_program()].into_iter();
        program.chain(command.get_args()).map(|word| word.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn each_end_runs_the_program_that_the_name_states() {
        memory_job(|job| {
            let ends = |driver: &dyn Driver| {
                let server = driver.server(job).unwrap().unwrap();
                (words(&driver.client(job).unwrap()), words(&server.command), server.port)
            };
            let [client, server, ..] = &pairs(Path::new("/bin/longhaul"))[..] else { panic!() };
            let (near, far, port) = ends(client.as_ref());
            let expected =
                ["/bin/longhaul", "test", "iperf3://far", "-t", "2", "-O", "1", "--json"];
            assert_eq!(near, expected);
            assert!(far[0].ends_with("iperf3") && port == 5201, "{far:?}");
            let (near, far, port) = ends(server.as_ref());
            assert!(near[0].ends_with("iperf3"), "{near:?}");
            assert_eq!(far, ["/bin/longhaul", "serve", "--port", "5210", "--iperf3=5201"]);
            assert_eq!(port, 5201);
        });
    }

    #[test]
    fn omitted_intervals_do_not_count() {
        let interval = |start: f64, bytes: u64| {
            format!(
                r#"{{"start_seconds": {start}, "end_seconds": {}, "bytes": {bytes}}}"#,
                start + 1.0
            )
        };
        let all = [interval(0.0, 9), interval(0.99, 125), interval(2.0, 375)].join(",");
        let stdout = format!(r#"{{"intervals": [{all}]}}"#);
        let output = ToolOutput { stdout, ..ToolOutput::default() };
        let reading = read_intervals(&output, 1).unwrap();
        assert_eq!(reading.throughput, Some(Rate::from_bps(2000)));
        assert_eq!(reading.bytes, Some(Bytes::new(500)));
        assert!(read_intervals(&output, 3).is_err());
    }
}
