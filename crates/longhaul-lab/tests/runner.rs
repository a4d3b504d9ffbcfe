//! Whole matrices over the loopback interface, with small shell scripts for tools.

use std::cell::Cell as Flag;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use longhaul_core::plan::{Condition, MatrixPlan, Side, Workload};
use longhaul_core::result::{Guarantees, Outcome};
use longhaul_core::units::Rate;
use longhaul_lab::archive::{Archive, Contents, Data, MatrixHeader};
use longhaul_lab::data::CopyData;
use longhaul_lab::drivers::{
    Detected, Driver, Job, RunOutput, ServerCommand, ToolFigures, ToolTask,
};
use longhaul_lab::runner::{Ended, Matrix, MatrixEvent, Setup, find_tools};
use longhaul_lab::table::{CellOutcome, Table};
use longhaul_lab::{
    FarHost, LabError, NetPath, Network, NetworkError, PathReport, plan, run_script,
};

/// A network without a network: both ends are this host. At 90 ms its paths are faulty, and at 91 ms
/// they break after a moment.
struct Loopback {
    opened: u32,
    /// The login directory of the far end of real paths.
    login: PathBuf,
}

struct LoopbackPath {
    faulty: bool,
    breaks: Option<Instant>,
    far: Option<Login>,
}

/// A far end that is another directory.
struct Login(PathBuf);

impl FarHost for Login {
    fn ssh_name(&self) -> &str {
        "me@dtn"
    }

    fn directory(&self) -> &str {
        "copies"
    }

    fn run(&self, script: &str, give_up: &dyn Fn() -> bool) -> Result<String, NetworkError> {
        let mut sh = Command::new("sh");
        sh.current_dir(&self.0);
        run_script(sh, script, give_up)
    }
}

impl Network for Loopback {
    fn open(&mut self, condition: &Condition, seed: u64) -> Result<Box<dyn NetPath>, NetworkError> {
        assert!(seed < 1 << 53);
        self.opened += 1;
        let far = condition.real.as_ref().map(|_| Login(self.login.clone()));
        let rtt = condition.rtt.as_millis();
        let breaks = (rtt == 91).then(|| Instant::now() + Duration::from_millis(300));
        Ok(Box::new(LoopbackPath { faulty: rtt == 90, breaks, far }))
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

    fn far_host(&self) -> Option<&dyn FarHost> {
        self.far.as_ref().map(|far| far as &dyn FarHost)
    }

    fn check(&self) -> Result<(), NetworkError> {
        match self.breaks {
            Some(at) if Instant::now() >= at => Err("site far was killed".into()),
            _ => Ok(()),
        }
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
        if self.installed {
            Detected::Installed { version: "script 1".into() }
        } else {
            Detected::Missing { program: "nowhere" }
        }
    }

    fn server(&self, _job: &Job<'_>) -> Result<Option<ServerCommand>, LabError> {
        Ok(self.server.map(|script| ServerCommand::new(sh(script), 1)))
    }

    fn streams(&self, count: u32) -> Option<Vec<String>> {
        Some(vec![format!("-P{count}")])
    }

    fn many_clients(&self) -> bool {
        true
    }

    fn goes_far(&self) -> bool {
        true
    }

    fn client(&self, job: &Job<'_>) -> Result<Command, LabError> {
        let mut command = sh(self.script);
        if let ToolTask::Disk(task) = job.task {
            command.arg(task.source).arg(task.destination);
        }
        command.args(job.options);
        Ok(command)
    }

    fn read(&self, _job: &Job<'_>, said: RunOutput<'_>) -> Result<ToolFigures, String> {
        let rate = said.client.stdout.trim().parse().ok().map(Rate::from_bps);
        Ok(ToolFigures { throughput: rate, bytes: None })
    }
}

fn drivers() -> Vec<Box<dyn Driver>> {
    use Workload::{Disk, Memory};
    vec![
        Box::new(script("tester", Memory, "echo 5000000000")),
        Box::new(script("copier", Disk, "cp -r \"$1\" \"$2\"")),
        Box::new(script("liar", Disk, "head -c 1000 \"$1\" > \"$2\"")),
        Box::new(script("crasher", Disk, "echo working; echo 'disk on fire' >&2; exit 3")),
        Box::new(script("hanger", Memory, "echo still here; sleep 300")),
        Box::new(script("babbler", Memory, "echo '%$# no figure'")),
        Box::new(script("flipper", Disk, "tr '\\011' '\\012' < \"$1\" > \"$2\"")),
        Box::new(script("litterer", Memory, "setsid sleep 302 & sleep 0.3; echo 1000")),
        Box::new(script("stuck", Disk, "sleep 303 & echo $! > \"$1.child\"; echo copying; wait")),
        // A far half is outside of the group and without the mark of local processes.
        Box::new(script(
            "straggler",
            Disk,
            "cp \"$1\" \"$2\"; env -u LONGHAUL_RUN setsid sleep 304 9> \"$2.lock\" &\nsleep 0.3",
        )),
        Box::new(script("counter", Memory, "echo \"1000\"; echo \"$@\" >&2")),
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

/// A plan with its archive and its data in a private directory.
struct Bench {
    dir: tempfile::TempDir,
    plan: MatrixPlan,
    source: CopyData,
    /// Paths that were opened so far.
    opened: Flag<u32>,
}

impl Bench {
    fn new(text: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        fs::write(&data, vec![9; 300_000]).unwrap();
        let source = CopyData::own(&data).unwrap();
        Bench {
            plan: plan::parse("test", text, &drivers()).unwrap(),
            source,
            dir,
            opened: Flag::new(0),
        }
    }

    fn create(&self) -> Archive {
        let header = MatrixHeader {
            plan: self.plan.clone(),
            started_at: "2026-11-21T09:00:00Z".into(),
            program_version: "0.1.0".into(),
            network: "loopback".into(),
            program_digest: Some("0123456789abcdef".into()),
            data: Some(Data { path: "data".into(), bytes: self.source.bytes, files: 1 }),
            facts: vec![("Kernel".into(), "6".into())],
        };
        Archive::create(&self.out(), &header).unwrap()
    }

    fn out(&self) -> std::path::PathBuf {
        self.dir.path().join("out")
    }

    fn login(&self) -> PathBuf {
        self.dir.path().join("login")
    }

    /// Runs until the end or until `stop_after` runs have finished.
    fn run(&self, archive: &mut Archive, stop_after: usize) -> Ended {
        let stop = AtomicBool::new(false);
        let finished = Flag::new(0);
        let drivers = drivers();
        let scratch = self.dir.path().join("scratch");
        let sources = vec![Some(self.source.clone()); self.plan.rows().len()];
        let tools = find_tools(&self.plan, &drivers);
        let setup = Setup {
            plan: &self.plan,
            drivers: &drivers,
            tools: &tools,
            sources: &sources,
            scratch: &scratch,
            memory: None,
            path_program: None,
            retry_failed: false,
            stop: &stop,
        };
        let mut show = |event: MatrixEvent<'_>| {
            if let MatrixEvent::Finished { .. } = event {
                finished.set(finished.get() + 1);
            }
            stop.store(finished.get() >= stop_after, Ordering::Relaxed);
        };
        let login = self.login();
        fs::create_dir_all(&login).unwrap();
        let mut network = Loopback { opened: 0, login };
        let mut matrix = Matrix::prepare(setup, archive, &mut network, &mut show).unwrap();
        let ended = matrix.run(&mut show).unwrap();
        self.opened.set(network.opened);
        assert!(!scratch.exists(), "the copies are still there");
        ended
    }
}

fn states(contents: &Contents) -> Vec<(String, Vec<CellOutcome>)> {
    let table = Table::fold(contents);
    let cells =
        |row: &longhaul_lab::table::TableRow| row.cells.iter().map(|cell| cell.state).collect();
    table.rows.iter().map(|row| (row.label.clone(), cells(row))).collect()
}

#[test]
fn a_path_that_breaks_ends_its_run_at_once_and_the_tool_is_not_to_blame() {
    let text = "name = \"broken\"\nrepeats = 1\nlimit_seconds = 100\n\
                [conditions]\nrtt = [\"91ms\"]\n\
                [[entries]]\ntool = \"hanger\"\nworkload = \"memory\"\n";
    let bench = Bench::new(text);
    let mut archive = bench.create();
    let begun = Instant::now();
    assert_eq!(bench.run(&mut archive, usize::MAX), Ended::Complete);
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    let contents = Archive::open(&bench.out()).unwrap().contents().unwrap();
    assert!(!contents.runs.is_empty());
    for run in &contents.runs {
        let expected = Outcome::Invalid { reason: "site far was killed".into() };
        assert_eq!(run.outcome, expected);
        assert_eq!(run.throughput_bps, None);
    }
}

#[test]
fn a_failing_tool_is_a_row_and_the_rest_goes_on() {
    let bench = Bench::new(PLAN);
    let mut archive = bench.create();
    assert_eq!(bench.run(&mut archive, usize::MAX), Ended::Complete);

    let contents = Archive::open(&bench.out()).unwrap().contents().unwrap();
    use CellOutcome::{Failed, Invalid, Measured, NotInstalled};
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
        "not installed: nowhere not found",
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
fn a_hanging_tool_and_a_dead_server_are_distinguished() {
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
    assert_eq!(reason("hanger"), "timed out after 1 s; last output: still here");
    assert_eq!(reason("serverless"), "the server ended at once (server: no such port)");
}

#[test]
fn garbage_wrong_bytes_and_leftovers_are_marked() {
    let bench = Bench::new(
        "name = \"bad\"\n[conditions]\nrtt = [\"0ms\"]\n\
         [[entries]]\ntool = \"babbler\"\nworkload = \"memory\"\n\
         [[entries]]\ntool = \"flipper\"\nworkload = \"disk\"\n\
         [[entries]]\ntool = \"litterer\"\nworkload = \"memory\"\n",
    );
    let mut archive = bench.create();
    bench.run(&mut archive, usize::MAX);
    let runs = archive.contents().unwrap().runs;
    let run = |tool: &str| runs.iter().find(|run| run.tool == tool).unwrap();
    let failed = |tool: &str, says: &str| match &run(tool).outcome {
        Outcome::Failed { reason } => assert!(reason.contains(says), "{reason}"),
        other => panic!("{tool}: {other:?}"),
    };
    failed("babbler", "the output has no rate; last output: %$# no figure");
    failed("flipper", "data differs at byte 0");
    let littered = run("litterer");
    assert_eq!(littered.outcome, Outcome::Ok);
    let note = "litterer left 1 processes running; they were killed: sleep";
    assert!(littered.notes.iter().any(|said| said == note), "{:?}", littered.notes);
}

#[test]
fn copies_at_a_separate_far_end_are_compared_too() {
    let bench = Bench::new(
        "name = \"far\"\nlimit_seconds = 3\n[real]\nfar = \"me@dtn\"\n\
         [[entries]]\ntool = \"copier\"\nworkload = \"disk\"\nclients = [1, 2]\n\
         [[entries]]\ntool = \"flipper\"\nworkload = \"disk\"\n\
         [[entries]]\ntool = \"liar\"\nworkload = \"disk\"\n\
         [[entries]]\ntool = \"crasher\"\nworkload = \"disk\"\n\
         [[entries]]\ntool = \"stuck\"\nworkload = \"disk\"\n\
         [[entries]]\ntool = \"straggler\"\nworkload = \"disk\"\n",
    );
    let mut archive = bench.create();
    assert_eq!(bench.run(&mut archive, usize::MAX), Ended::Complete);
    let runs = archive.contents().unwrap().runs;
    let run = |label: &str| runs.iter().find(|run| run.label == label).unwrap();
    for label in ["copier, 1 client", "copier, 2 clients", "straggler"] {
        let run = run(label);
        assert_eq!(run.outcome, Outcome::Ok, "{label}");
        assert!(run.durable_seconds.unwrap() >= run.seconds.unwrap());
        assert!(run.caches.is_some() && run.far_caches_kept);
        assert!(run.near_command.contains("/copies/longhaul-run-"), "{}", run.near_command);
    }
    for (label, says) in [
        ("flipper", "data has different bytes"),
        ("liar", "data has 1000 bytes instead of 300000"),
        ("crasher", "ended with code 3: disk on fire"),
        ("stuck", "timed out after 3 s; last output: copying"),
    ] {
        match &run(label).outcome {
            Outcome::Failed { reason } => assert!(reason.contains(says), "{label}: {reason}"),
            other => panic!("{label}: {other:?}"),
        }
    }
    let note = "straggler left 1 processes running at the far end; they were killed: sleep";
    assert_eq!(run("straggler").notes, [note]);
    let child = fs::read_to_string(bench.dir.path().join("data.child")).unwrap();
    // Gone, or a zombie that waits for the init process.
    let state = fs::read_to_string(format!("/proc/{}/stat", child.trim()));
    assert!(state.is_err() || state.is_ok_and(|state| state.contains(") Z ")), "the child lives");
    assert_eq!(fs::read_dir(bench.login().join("copies")).unwrap().count(), 0);
    assert_eq!(fs::read_dir(bench.login()).unwrap().count(), 1);
}

#[test]
fn each_run_has_a_fresh_path_and_a_rest_before_it() {
    let bench = Bench::new(
        "name = \"rest\"\nrepeats = 2\ncool_down_seconds = 1\n[conditions]\nrtt = [\"0ms\"]\n\
         [[entries]]\ntool = \"tester\"\nworkload = \"memory\"\n",
    );
    let mut archive = bench.create();
    let begun = Instant::now();
    bench.run(&mut archive, usize::MAX);
    assert!(begun.elapsed() >= Duration::from_secs(2));
    // One more proves, before anything is run, that paths can be opened.
    assert_eq!(bench.opened.get(), 3);
    let runs = archive.contents().unwrap().runs;
    assert_ne!(runs[0].seed, runs[1].seed, "another pass meets other chances");
    // A run that is over within the kernel's tick shows nothing about the host.
    assert!(runs.iter().all(|run| run.host.is_none_or(|host| host.steal_share <= 1.0)));
}

#[test]
fn streams_reach_the_command_and_clients_add_up() {
    let bench = Bench::new(
        "name = \"set\"\nseed = 5\n[conditions]\nrtt = [\"0ms\"]\nloss = [\"0\", \"1e-4\"]\n\
         [[entries]]\ntool = \"counter\"\nworkload = \"memory\"\nstreams = [2]\n\
         clients = [1, 3]\n\
         [[entries]]\ntool = \"copier\"\nworkload = \"disk\"\nclients = 2\n\
         [[except]]\ntool = \"copier\"\npath = { loss = \"1e-4\" }\n",
    );
    let mut archive = bench.create();
    bench.run(&mut archive, usize::MAX);
    let contents = archive.contents().unwrap();
    let runs = &contents.runs;
    assert_eq!(runs.len(), 5, "two settings over two paths, and one cell of the copier");
    let run = |label: &str| runs.iter().find(|run| run.label == label).unwrap();
    let three = run("counter, 2 streams, 3 clients");
    assert_eq!(three.throughput_bps, Some(Rate::from_bps(3000)));
    assert_eq!((three.streams, three.clients), (Some(2), Some(3)));
    assert!(three.near_output.stderr.contains("-P2"), "{:?}", three.near_output);
    assert!(three.cpu.is_some());
    let two = run("copier, 2 clients");
    assert_eq!(two.outcome, Outcome::Ok);
    assert_eq!(two.bytes.unwrap().get(), 600_000);
    // The tools of a pass meet the same chances over the same path, and others over another.
    let seeds = |loss: f64| -> Vec<u64> {
        let over = runs.iter().filter(|run| run.condition.loss() == Some(loss));
        over.map(|run| run.seed.unwrap()).collect()
    };
    assert!(seeds(0.0).windows(2).all(|pair| pair[0] == pair[1]));
    assert_ne!(seeds(0.0)[0], seeds(1e-4)[0]);

    let database = bench.out().join(longhaul_lab::archive::FILE_NAME);
    let connection = rusqlite::Connection::open(&database).unwrap();
    let query = "SELECT group_concat(path || ' ' || streams || ' ' || clients, '; ') FROM (SELECT * \
                 FROM run WHERE tool = 'counter' AND loss_share > 0 ORDER BY clients)";
    let kept: String = connection.query_row(query, [], |row| row.get(0)).unwrap();
    assert_eq!(kept, "0 ms, loss 1e-4 2 1; 0 ms, loss 1e-4 2 3");
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
    assert_eq!(table.rows[1].cells[0].state, CellOutcome::Failed);
}

#[test]
fn an_archive_of_a_later_version_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let database = dir.path().join(longhaul_lab::archive::FILE_NAME);
    let connection = rusqlite::Connection::open(&database).unwrap();
    connection.pragma_update(None, "application_id", 0x4c48_6d78).unwrap();
    connection.pragma_update(None, "user_version", 99).unwrap();
    let error = Archive::open(dir.path()).unwrap_err();
    assert!(matches!(error, LabError::ArchiveVersion { found: 99, .. }), "{error}");
    let nothing = Archive::open(Path::new("/proc")).unwrap_err();
    assert!(matches!(nothing, LabError::NoArchive { .. }), "{nothing}");
}
