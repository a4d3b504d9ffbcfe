//! Processes of a run: started in a process group, timed, and killed with all their descendants.

use std::fs;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::plan::Side;
use longhaul_core::result::ToolOutput;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use super::strays::{self, Mark};
use crate::network::{NetPath, NetworkError};

/// The number of bytes kept of each stream. The rest is read and discarded, so that the tool never
/// blocks.
const KEPT: usize = 4 << 20;
/// The interval at which a wait checks the stop flag.
const TICK: Duration = Duration::from_millis(100);
/// The time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(2);

/// A command at one end of a path, which leads a separate process group.
pub(super) struct Process {
    child: Child,
    started: Instant,
    stdout: Collector,
    stderr: Collector,
    /// The mark in the environment of this process and all its descendants.
    mark: Mark,
}

/// The facts about a process after it and its descendants have ended.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) output: ToolOutput,
    /// The CPU seconds of the process and the children that it waited for.
    pub(super) cpu_seconds: Option<f64>,
    /// The names of killed processes that had left the process group and survived its end.
    pub(super) left: Vec<String>,
}

/// The result of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waited {
    /// The process ended after this wall-clock time.
    Ended(Duration),
    /// The process exceeded the limit.
    TimedOut,
    /// The stop flag was set.
    Stopped,
    /// The tick function returned false.
    GivenUp,
}

impl Process {
    pub(super) fn spawn(
        path: &mut dyn NetPath,
        side: Side,
        mut command: Command,
    ) -> Result<Self, NetworkError> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // In a separate process group all children can be killed together, and Ctrl-C does not
        // reach them: this program stops them in order.
        command.process_group(0);
        let mark = Mark::new();
        command.env(Mark::VARIABLE, mark.value());
        let started = Instant::now();
        let mut child = path.spawn(side, command)?;
        let stdout = Collector::start(child.stdout.take());
        let stderr = Collector::start(child.stderr.take());
        Ok(Process { child, started, stdout, stderr, mark })
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the last complete line of standard output so far.
    pub(super) fn last_stdout_line(&self) -> Option<String> {
        let kept = self.stdout.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let line = kept.bytes.rsplit(|byte| *byte == b'\n').nth(1)?;
        Some(String::from_utf8_lossy(line).into_owned())
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ends_within(Duration::ZERO)
    }

    /// Waits for the end without reaping, so that the group can still be signaled safely. Calls
    /// `tick` repeatedly, and stops waiting when it returns false.
    pub(super) fn wait(
        &self,
        limit: Duration,
        stop: &AtomicBool,
        tick: &mut dyn FnMut() -> bool,
    ) -> io::Result<Waited> {
        let handle = pidfd_open(self.pid(), PidfdFlags::empty())?;
        loop {
            if !tick() {
                return Ok(Waited::GivenUp);
            }
            let elapsed = self.started.elapsed();
            if stop.load(Ordering::Relaxed) {
                return Ok(Waited::Stopped);
            }
            if elapsed >= limit {
                return Ok(Waited::TimedOut);
            }
            let pause = TICK.min(limit - elapsed);
            let pause = Timespec { tv_sec: 0, tv_nsec: i64::from(pause.subsec_nanos()) };
            match poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&pause)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return Ok(Waited::Ended(self.started.elapsed())),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Kills the process and its descendants if they have not ended.
    pub(super) fn finish(mut self) -> Finished {
        let (status, cpu_seconds) = self.end();
        let left = strays::end(&self.mark);
        let (stdout, more_out) = self.stdout.finish();
        let (stderr, more_err) = self.stderr.finish();
        let output = ToolOutput {
            exit_code: status.and_then(|status| status.code()),
            stdout,
            stderr,
            truncated: more_out || more_err,
        };
        Finished { output, cpu_seconds, left }
    }

    fn end(&mut self) -> (Option<ExitStatus>, Option<f64>) {
        // Until the leader is reaped its process id cannot be reused, so the group id is still
        // valid.
        if !self.has_ended() {
            let _ = kill_process_group(self.pid(), Signal::TERM);
            self.ends_within(GRACE);
        }
        // The kernel reports the times of an ended process until it is reaped.
        let cpu_seconds = cpu_seconds(self.id());
        let _ = kill_process_group(self.pid(), Signal::KILL);
        (self.child.wait().ok(), cpu_seconds)
    }

    fn ends_within(&self, limit: Duration) -> bool {
        let Ok(handle) = pidfd_open(self.pid(), PidfdFlags::empty()) else { return true };
        let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: 0 };
        matches!(poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&limit)), Ok(1))
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

/// Returns the CPU seconds of a process and the children that it waited for: utime, stime, cutime
/// and cstime of proc_pid_stat(5).
fn cpu_seconds(id: u32) -> Option<f64> {
    ticks(&id.to_string(), 4)
}

/// Returns the CPU seconds of this process without its children: utime and stime.
pub(super) fn own_cpu_seconds() -> Option<f64> {
    ticks("self", 2)
}

/// Returns the sum of the first `count` times of a process's stat file, in seconds.
fn ticks(process: &str, count: usize) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name in parentheses may contain any character; state is the third field.
    let fields = stat.rsplit_once(')')?.1.split_whitespace();
    let ticks: Vec<u64> = fields.skip(11).take(count).filter_map(|t| t.parse().ok()).collect();
    let of_second = rustix::param::clock_ticks_per_second() as f64;
    (ticks.len() == count).then(|| ticks.iter().sum::<u64>() as f64 / of_second)
}

/// Reads a stream to its end on a separate thread.
struct Collector {
    kept: Arc<Mutex<Kept>>,
    ended: Receiver<()>,
}

#[derive(Default)]
struct Kept {
    bytes: Vec<u8>,
    more: bool,
}

impl Collector {
    fn start(stream: Option<impl Read + Send + 'static>) -> Self {
        let kept = Arc::new(Mutex::new(Kept::default()));
        let (done, ended) = sync_channel(1);
        if let Some(mut stream) = stream {
            let kept = Arc::clone(&kept);
            thread::spawn(move || {
                let mut block = vec![0; 64 << 10];
                while let Ok(count @ 1..) = stream.read(&mut block) {
                    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                    let room = (KEPT - kept.bytes.len()).min(count);
                    kept.bytes.extend_from_slice(&block[..room]);
                    kept.more |= room < count;
                }
                let _ = done.send(());
            });
        }
        Collector { kept, ended }
    }

    /// Returns the text so far and whether it was cut. A process that left the group may keep the
    /// stream open forever, so the wait is limited to a second.
    fn finish(self) -> (String, bool) {
        let _ = self.ended.recv_timeout(Duration::from_secs(1));
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        (String::from_utf8_lossy(&kept.bytes).into_owned(), kept.more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::PathReport;

    struct LocalPath;

    impl NetPath for LocalPath {
        fn spawn(&mut self, _side: Side, mut command: Command) -> Result<Child, NetworkError> {
            Ok(command.spawn()?)
        }

        fn host(&self, _side: Side) -> &str {
            "127.0.0.1"
        }

        fn close(self: Box<Self>) -> PathReport {
            PathReport::default()
        }
    }

    fn sh(script: &str) -> Process {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Process::spawn(&mut LocalPath, Side::Near, command).unwrap()
    }

    #[test]
    fn output_and_code_are_kept() {
        let process = sh("echo out; echo err >&2; exit 3");
        let stop = AtomicBool::new(false);
        let waited = process.wait(Duration::from_secs(20), &stop, &mut || true).unwrap();
        assert!(matches!(waited, Waited::Ended(_)));
        let Finished { output, .. } = process.finish();
        assert_eq!((output.exit_code, output.truncated), (Some(3), false));
        assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("out\n", "err\n"));
    }

    #[test]
    fn a_flood_is_bounded_and_does_not_stall_the_tool() {
        let process = sh("head -c 6000000 /dev/zero");
        let stop = AtomicBool::new(false);
        let waited = process.wait(Duration::from_secs(20), &stop, &mut || true).unwrap();
        assert!(matches!(waited, Waited::Ended(_)));
        let Finished { output, .. } = process.finish();
        assert_eq!((output.stdout.len(), output.truncated), (KEPT, true));
    }

    #[test]
    fn a_hanging_tool_is_ended_with_its_children() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("child");
        let process = sh(&format!("sleep 300 & echo $! > {}; wait", file.display()));
        let stop = AtomicBool::new(false);
        let waited = process.wait(Duration::from_millis(500), &stop, &mut || true).unwrap();
        assert_eq!(waited, Waited::TimedOut);
        process.finish();
        let child = std::fs::read_to_string(&file).unwrap();
        let lives = || {
            // The process does not exist, or is a zombie that the init process has not reaped.
            let state = std::fs::read_to_string(format!("/proc/{}/stat", child.trim()));
            state.is_ok_and(|state| !state.contains(") Z "))
        };
        let begun = Instant::now();
        while lives() {
            assert!(begun.elapsed() < Duration::from_secs(10), "the child {child} still lives");
            thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn a_process_that_slips_away_is_found_and_ended() {
        let stop = AtomicBool::new(false);
        let process = sh("setsid sleep 301 >/dev/null 2>&1 & exit 0");
        let waited = process.wait(Duration::from_secs(20), &stop, &mut || true).unwrap();
        assert!(matches!(waited, Waited::Ended(_)));
        let mark = process.mark.clone();
        let begun = Instant::now();
        // Waits until setsid has executed sleep, which is then in another group than the shell.
        while !strays::find(&mark).iter().any(|(_, name)| name == "sleep") {
            assert!(begun.elapsed() < Duration::from_secs(10));
            thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(process.finish().left, ["sleep"]);
        assert!(strays::find(&mark).is_empty());
    }

    #[test]
    fn processor_time_counts_children() {
        let stop = AtomicBool::new(false);
        let process = sh("sh -c 'i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done'; true");
        process.wait(Duration::from_secs(60), &stop, &mut || true).unwrap();
        let seconds = process.finish().cpu_seconds.unwrap();
        assert!(seconds > 0.02 && seconds < 60.0, "{seconds}");
    }

    #[test]
    fn the_stop_flag_ends_a_wait() {
        let process = sh("sleep 300");
        let waited =
            process.wait(Duration::from_secs(20), &AtomicBool::new(true), &mut || true).unwrap();
        assert_eq!(waited, Waited::Stopped);
        assert_eq!(process.finish().output.exit_code, None);
    }
}
