//! Whole matrices over the loopback interface, with small shell scripts for tools.

use std::cell::Cell as Flag;
use std::fs;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};

use longhaul_core::plan::{Condition, MatrixPlan, Side, Workload};
use longhaul_core::result::{Guarantees, Outcome};
use longhaul_core::units::Rate;
use longhaul_lab::archive::{Archive, Contents, Data, Header};
use longhaul_lab::data::Source;
use longhaul_lab::drivers::{Detected, Driver, Job, Reading, Said, Server, Task};
use longhaul_lab::runner::{Ended, Event, Matrix, Setup};
use longhaul_lab::table::{CellState, Table};
use longhaul_lab::{LabError, NetPath, Network, NetworkError, PathReport, plan};

/// A network without a network: both ends are this host. At 90 ms its paths break their promise.
struct Loopback;

struct LoopbackPath {
    faulty: bool,
}

impl Network for Loopback {
    fn open(&mut self, condition: &Condition) -> Result<Box<dyn NetPath>, NetworkError> {
        Ok(Box::new(LoopbackPath { faulty: condition.rtt.as_millis() == 90 }))
    }

    fn describe(&self) -> String {
        "loopback".into()
    }
}

impl NetPath for LoopbackPath {
    fn spawn(&mut self, _side: Side, mut command: Command) -> Result<Child, NetworkError> {
        Ok(command.spawn()?)
    }

    fn host(&self, _side: Side) -> &str {
        "localhost"
    }

    fn close(self: Box<Self>) -> PathReport {
        let faults = self.faulty.then(|| "released packets 9 ms late".to_owned());
        PathReport { faults: faults.into_iter().collect(), ..PathReport::default() }
    }
}

/// A tool that is a shell script; `$1` is the source and `$2` the destination.
struct Script {
    name: &'static str,
    workload: Workload,
    script: &'static str,
    server: Option<&'static str>,
    installed: bool,
}

const fn script(name: &'static str, workload: Workload, script: &'static str) -> Script {
    Script { name, workload, script, server: None, installed: true }
}

fn sh(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]);
    command
}

impl Driver for Script {
    fn name(&self) -> &'static str {
        self.name
    }

    fn workload(&self) -> Workload {
        self.workload
    }

    fn guarantees(&self, _options: &[String]) -> Guarantees {
        Guarantees { verified: true, ..Guarantees::default() }
    }

    fn detect(&self) -> Detected {
        match self.installed {
            true => Detected::Installed { version: "script 1".into() },
            false => Detected::Missing { program: "nowhere" },
        }
    }

    fn server(&self, _job: &Job<'_>) -> Result<Option<Server>, LabError> {
        Ok(self.server.map(|script| Server::new(sh(script), 1)))
    }

    fn client(&self, job: &Job<'_>) -> Result<Command, LabError> {
        let mut command = sh(self.script);
        if let Task::Disk(task) = job.task {
            command.arg(task.source).arg(task.destination);
        }
        Ok(command)
    }

    fn read(&self, _job: &Job<'_>, said: Said<'_>) -> Result<Reading, String> {
        let rate = said.client.stdout.trim().parse().ok().map(Rate::from_bps);
        Ok(Reading { throughput: rate, bytes: None })
    }
}

fn drivers() -> Vec<Box<dyn Driver>> {
    use Workload::{Disk, Memory};
    vec![
        Box::new(script("tester", Memory, "echo 5000000000")),
        Box::new(script("copier", Disk, "cp -r \"$1\" \"$2\"")),
        Box::new(script("liar", Disk, "head -c 1000 \"$1\" > \"$2\"")),
        Box::new(script("crasher", Disk, "echo working; echo 'disk on fire' >&2; exit 3")),
        Box::new(script("hanger", Memory, "sleep 300")),
        Box::new(Script {
            server: Some("echo 'no such port' >&2; exit 1"),
            ..script("serverless", Memory, "echo 1")
        }),
        Box::new(Script { installed: false, ..script("absent", Memory, "echo 1") }),
    ]
}

const PLAN: &str = r#"
name = "scripts"
repeats = 2
limit_seconds = 1
[conditions]
rtt = ["0ms", "90ms"]
[[entries]]
tool = "tester"
workload = "memory"
[[entries]]
tool = "copier"
workload = "disk"
[[entries]]
tool = "liar"
workload = "disk"
[[entries]]
tool = "crasher"
workload = "disk"
[[entries]]
tool = "absent"
workload = "memory"
"#;

/// A plan with its archive and its data in a directory of their own.
struct Bench {
    dir: tempfile::TempDir,
    plan: MatrixPlan,
    source: Source,
}

impl Bench {
    fn new(text: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        fs::write(&data, vec![9; 300_000]).unwrap();
        let source = Source::own(&data).unwrap();
        Bench { plan: plan::parse("test", text, &drivers()).unwrap(), source, dir }
    }

    fn create(&self) -> Archive {
        let header = Header {
            plan: self.plan.clone(),
            started_at: "2026-11-21T09:00:00Z".into(),
            program_version: "0.1.0".into(),
            network: "loopback".into(),
            data: Some(Data { path: "data".into(), bytes: self.source.bytes, files: 1 }),
            facts: vec![("Kernel".into(), "6".into())],
        };
        Archive::create(&self.out(), &header).unwrap()
    }

    fn out(&self) -> std::path::PathBuf {
        self.dir.path().join("out")
    }

    /// Runs until the end or until `stop_after` runs have finished.
    fn run(&self, archive: &mut Archive, stop_after: usize) -> Ended {
        let stop = AtomicBool::new(false);
        let finished = Flag::new(0);
        let drivers = drivers();
        let scratch = self.dir.path().join("scratch");
        let sources = vec![Some(self.source.clone()); self.plan.entries.len()];
        let setup = Setup {
            plan: &self.plan,
            drivers: &drivers,
            sources: &sources,
            scratch: &scratch,
            retry_failed: false,
            stop: &stop,
        };
        let mut show = |event: Event<'_>| {
            if let Event::Finished { .. } = event {
                finished.set(finished.get() + 1);
            }
            stop.store(finished.get() >= stop_after, Ordering::Relaxed);
        };
        let mut network = Loopback;
        let mut matrix = Matrix::prepare(setup, archive, &mut network, &mut show).unwrap();
        let ended = matrix.run(&mut show).unwrap();
        assert!(!scratch.exists(), "the copies are still there");
        ended
    }
}

fn states(contents: &Contents) -> Vec<(String, Vec<CellState>)> {
    let table = Table::fold(contents);
    let cells = |row: &longhaul_lab::table::Row| row.cells.iter().map(|cell| cell.state).collect();
    table.rows.iter().map(|row| (row.label.clone(), cells(row))).collect()
}

#[test]
fn a_failing_tool_is_a_row_and_the_rest_goes_on() {
    let bench = Bench::new(PLAN);
    let mut archive = bench.create();
    assert_eq!(bench.run(&mut archive, usize::MAX), Ended::Complete);

    let contents = Archive::open(&bench.out()).unwrap().contents().unwrap();
    use CellState::{Failed, Invalid, Measured, NotInstalled};
    let expected = [
        ("tester", [Measured, Invalid]),
        ("copier", [Measured, Invalid]),
        ("liar", [Failed, Failed]),
        ("crasher", [Failed, Failed]),
        ("absent", [NotInstalled, NotInstalled]),
    ];
    let expected: Vec<_> =
        expected.iter().map(|(name, states)| ((*name).to_owned(), states.to_vec())).collect();
    assert_eq!(states(&contents), expected);

    let notes = Table::fold(&contents).notes.join("\n");
    for said in [
        "tester at 90 ms is invalid (5.00 Gb/s): released packets 9 ms late",
        "data has 1000 bytes instead of 300000",
        "crasher failed: ended with code 3: disk on fire",
        "not installed: nowhere is not found",
    ] {
        assert!(notes.contains(said), "{said} is not in:\n{notes}");
    }
    // Four entries that are there, two conditions, two passes; and at 90 ms two more attempts at
    // each of the four places whose path broke its promise.
    assert_eq!(contents.runs.len(), 16 + 8);
    let attempts = contents.runs.iter().filter(|run| run.tool == "tester");
    let attempts: Vec<u32> =
        attempts.filter(|run| run.repeat == 2).map(|run| run.attempt).collect();
    assert!(attempts.windows(3).any(|three| three == [1, 2, 3]), "{attempts:?}");
    let copied = contents.runs.iter().find(|run| run.tool == "copier").unwrap();
    assert_eq!(copied.bytes.unwrap().get(), 300_000);
    assert!(copied.durable_seconds.unwrap() >= copied.seconds.unwrap());
    assert!(copied.caches.is_some());
}

#[test]
fn each_run_has_a_document_with_its_output() {
    let bench = Bench::new(PLAN);
    let mut archive = bench.create();
    bench.run(&mut archive, usize::MAX);
    let mut outputs = Vec::new();
    for entry in fs::read_dir(bench.out().join("runs")).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let run: longhaul_core::result::RunRecord = serde_json::from_str(&text).unwrap();
        if run.tool == "crasher" {
            assert!(path.to_str().unwrap().contains("-crasher-"), "{}", path.display());
            outputs.push(run.near_output.stdout);
        }
    }
    assert_eq!(outputs, ["working\n"; 4]);
}

#[test]
fn an_interrupted_matrix_goes_on_where_it_stopped() {
    let bench = Bench::new(PLAN);
    let mut archive = bench.create();
    assert_eq!(bench.run(&mut archive, 3), Ended::Interrupted);
    drop(archive);
    let mut archive = Archive::open_to_continue(&bench.out()).unwrap();
    let before = archive.contents().unwrap().runs;
    assert_eq!(before.len(), 3);

    assert_eq!(bench.run(&mut archive, usize::MAX), Ended::Complete);
    let after = archive.contents().unwrap().runs;
    assert_eq!(after.len(), 24);
    assert!(before.iter().all(|run| after.contains(run)), "a finished run was made again");
}

#[test]
fn a_hanging_tool_and_a_server_that_dies_are_told_apart() {
    let bench = Bench::new(
        "name = \"bad\"\nlimit_seconds = 1\n[conditions]\nrtt = [\"0ms\"]\n\
         [[entries]]\ntool = \"hanger\"\nworkload = \"memory\"\n\
         [[entries]]\ntool = \"serverless\"\nworkload = \"memory\"\n",
    );
    let mut archive = bench.create();
    bench.run(&mut archive, usize::MAX);
    let runs = archive.contents().unwrap().runs;
    let reason = |tool: &str| match &runs.iter().find(|run| run.tool == tool).unwrap().outcome {
        Outcome::Failed { reason } => reason.clone(),
        other => panic!("{tool}: {other:?}"),
    };
    assert_eq!(reason("hanger"), "given up after 1 s without an end");
    assert_eq!(reason("serverless"), "its server ended at once (its server: no such port)");
}

#[test]
fn an_archive_of_schema_1_still_reads() {
    let dir = tempfile::tempdir().unwrap();
    let database = dir.path().join(longhaul_lab::archive::FILE_NAME);
    let stored = include_str!("fixtures/archive-1.sql");
    rusqlite::Connection::open(&database).unwrap().execute_batch(stored).unwrap();

    let contents = Archive::open(dir.path()).unwrap().contents().unwrap();
    let continued = Archive::open_to_continue(dir.path()).unwrap();
    assert_eq!(continued.contents().unwrap(), contents, "the step to schema 2 changed something");
    let again = rusqlite::Connection::open(&database).unwrap();
    let figures = "SELECT group_concat(label || ' ' || runs || ' ' || median_gbps) FROM figures \
                   WHERE runs > 0";
    let figures: String = again.query_row(figures, [], |row| row.get(0)).unwrap();
    assert_eq!(figures, "iperf3 1 23.5");
    assert_eq!(contents.header.plan.name, "stored");
    let table = Table::fold(&contents);
    assert_eq!(table.rows[0].cells[0].median_bps, Some(Rate::from_bps(23_500_000_000)));
    assert_eq!(table.rows[1].cells[0].state, CellState::Failed);
}

#[test]
fn an_archive_of_a_later_version_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let database = dir.path().join(longhaul_lab::archive::FILE_NAME);
    let connection = rusqlite::Connection::open(&database).unwrap();
    connection.pragma_update(None, "user_version", 99).unwrap();
    let error = Archive::open(dir.path()).unwrap_err();
    assert!(matches!(error, LabError::ArchiveVersion { found: 99, .. }), "{error}");
    let nothing = Archive::open(Path::new("/proc")).unwrap_err();
    assert!(matches!(nothing, LabError::NoArchive { .. }), "{nothing}");
}
