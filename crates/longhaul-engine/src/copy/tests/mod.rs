//! Complete copies over loopback: client and server in one process, with real sockets and files.

mod direct;
mod faults;
mod interrupted;
mod interruption;
mod pieces;
mod requested;
mod reserved;
mod resume;
mod speaker;
mod stall;
mod startup;
mod tree;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use longhaul_core::plan::{CopyOptions, Protection};
use longhaul_core::result::CopyResult;
use longhaul_core::units::{Bytes, MinFree};
use longhaul_core::wire::{RefusalKind, Service};

use self::interruption::stop_when;
use super::{
    CopyProgress, CopyRun, CopySecret, FetchTarget, Reconnect, RemoteFiles, SourcePlan, SourceRoot,
    Tree, pull, push, serve,
};
use crate::error::{EngineError, Result};
use crate::lock;
use crate::serve::{ClientLimits, Listener, ServerKeys, Services};
use crate::session::{
    AuthorizedKeys, ConfigDir, ConnectOptions, Family, HostPolicy, HostPort, Identity, Rights,
    ServedSession, Session, connect,
};

struct Files {
    root: PathBuf,
    rights: Mutex<Rights>,
    min_free: Mutex<MinFree>,
    stop: AtomicBool,
}

impl Services for Files {
    fn refusal(&self, _: Service, _: bool) -> Option<(RefusalKind, String)> {
        None
    }

    fn run(&self, _: Service, session: ServedSession) -> Result<()> {
        let tree = Tree::beneath(&self.root).unwrap().with_rights(*lock(&self.rights));
        serve(session, &tree.with_min_free(*lock(&self.min_free)), &self.stop)
    }
}

/// The `near` directory of the client, the `far` directory of the server, and the running server.
pub(super) struct CopySetup {
    dir: tempfile::TempDir,
    config: ConfigDir,
    identity: Identity,
    pub(super) port: u16,
    /// The port that clients connect to.
    entrance: AtomicU16,
    files: Arc<Files>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl CopySetup {
    pub(super) fn new() -> Self {
        // Direct I/O needs a real disk; /tmp is in memory on some hosts.
        let scratch = std::env::var_os("TMPDIR").unwrap_or_else(|| "/var/tmp".into());
        let dir = tempfile::tempdir_in(scratch).unwrap();
        for name in ["near", "far", "config"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let config = ConfigDir::at(dir.path().join("config"));
        let identity = Identity::load_or_create(&config).unwrap();
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let port = listener.address().port();
        let host = Arc::new(ServerKeys {
            identity: Identity::load_or_create(&config).unwrap(),
            authorized: AuthorizedKeys::load(&config, identity.public()).unwrap(),
        });
        let root = dir.path().join("far");
        let rights = Mutex::default();
        let (min_free, over) = (Mutex::new(MinFree::NONE), AtomicBool::new(false));
        let files = Arc::new(Files { root, rights, min_free, stop: over });
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let (files, stop) = (files.clone(), stop.clone());
            move || listener.run(host, files, ClientLimits::default(), &stop)
        });
        let entrance = AtomicU16::new(port);
        CopySetup { dir, config, identity, port, entrance, files, stop, thread: Some(thread) }
    }

    /// Sets the rights of the server's clients from now on.
    pub(super) fn set_rights(&self, rights: Rights) {
        *lock(&self.files.rights) = rights;
    }

    /// Sets the reserve of the server's disk (`--min-free`) from now on.
    pub(super) fn set_min_free(&self, min_free: &str) {
        *lock(&self.files.min_free) = min_free.parse().unwrap();
    }

    /// Makes clients connect to `port` from now on, which is that of a relay before the server.
    pub(super) fn connect_through(&self, port: u16) {
        self.entrance.store(port, Ordering::Relaxed);
    }

    pub(super) fn near(&self, path: &str) -> PathBuf {
        self.dir.path().join("near").join(path)
    }

    pub(super) fn far(&self, path: &str) -> PathBuf {
        self.dir.path().join("far").join(path)
    }

    /// Runs `copy` over a connection to the server that is not opened again if it fails.
    fn over_connection<T>(&self, copy: impl FnOnce(Reconnect<'_>) -> T) -> T {
        let mut connect = || Ok(self.session());
        let secret = CopySecret::load_or_create(&self.config);
        let lost = &|_: &EngineError| ();
        let give_up = Duration::ZERO;
        copy(Reconnect { connect: &mut connect, give_up, lost, secret: &secret, past: None })
    }

    pub(super) fn session(&self) -> Session {
        let options = ConnectOptions {
            identity: &self.identity,
            config: &self.config,
            policy: HostPolicy::RequireKnown,
            family: Family::Any,
            local: None,
        };
        let port = self.entrance.load(Ordering::Relaxed);
        connect(&HostPort::new("127.0.0.1", port), Service::Copy, &options).unwrap()
    }

    pub(super) fn push(
        &self,
        sources: &[&str],
        target: &str,
        options: &CopyOptions,
    ) -> Result<CopyResult> {
        self.push_until(sources, target, options, &AtomicBool::new(false))
    }

    pub(super) fn push_until(
        &self,
        sources: &[&str],
        target: &str,
        options: &CopyOptions,
        stop: &AtomicBool,
    ) -> Result<CopyResult> {
        self.push_with_progress(sources, target, options, (&CopyProgress::default(), stop))
    }

    pub(super) fn push_with_progress(
        &self,
        sources: &[&str],
        target: &str,
        options: &CopyOptions,
        (progress, stop): (&CopyProgress, &AtomicBool),
    ) -> Result<CopyResult> {
        let roots = sources.iter().map(|path| SourceRoot::Path(self.near(path))).collect();
        let plan = SourcePlan { tree: Tree::anywhere(), roots };
        self.over_connection(|line| {
            push(line, &plan, Path::new(target), CopyRun { options, progress, stop })
        })
    }

    pub(super) fn pull(
        &self,
        sources: &[&str],
        target: &str,
        options: &CopyOptions,
    ) -> Result<CopyResult> {
        self.pull_until(sources, target, options, &AtomicBool::new(false))
    }

    pub(super) fn pull_until(
        &self,
        sources: &[&str],
        target: &str,
        options: &CopyOptions,
        stop: &AtomicBool,
    ) -> Result<CopyResult> {
        self.pull_with_progress(sources, target, options, (&CopyProgress::default(), stop))
    }

    pub(super) fn pull_with_progress(
        &self,
        sources: &[&str],
        target: &str,
        options: &CopyOptions,
        (progress, stop): (&CopyProgress, &AtomicBool),
    ) -> Result<CopyResult> {
        let sources: Vec<_> = sources.iter().map(PathBuf::from).collect();
        // As the command line does: "t/." names the target "t".
        let target = self.near(target.trim_end_matches("/."));
        self.over_connection(|line| {
            let files = RemoteFiles { paths: &sources, names: None };
            pull(line, files, FetchTarget::Path(&target), CopyRun { options, progress, stop })
        })
    }
}

impl Drop for CopySetup {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.files.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

pub(super) fn bytes(count: usize) -> Vec<u8> {
    let (mut bytes, mut state) = (vec![0; count], 0x9e37_79b9_7f4a_7c15_u64);
    for part in bytes.chunks_mut(8) {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        // The low bits of this generator have a short period.
        part.copy_from_slice(&(state ^ state >> 32).to_be_bytes()[..part.len()]);
    }
    bytes
}

pub(super) fn options() -> CopyOptions {
    // Small blocks, so that small files have several.
    CopyOptions { recursive: true, block_bytes: Bytes::mib(1), ..CopyOptions::default() }
}

pub(super) fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_large_file_is_pushed_and_pulled_under_every_protection() {
    let world = CopySetup::new();
    let data = bytes((5 << 20) + 12_345);
    fs::write(world.near("data"), &data).unwrap();
    for protection in [Protection::Sealed, Protection::Hashed, Protection::Bare] {
        let options = CopyOptions { protection, ..options() };
        let result = world.push(&["data"], "there", &options).unwrap();
        assert_eq!(result.summary.bytes, Bytes::new(data.len() as u64));
        assert_eq!(result.summary.files, 1);
        assert!(result.summary.durable);
        assert_eq!(result.summary.verified, protection != Protection::Bare);
        assert_eq!(result.summary.encrypted, protection == Protection::Sealed);
        assert!(fs::read(world.far("there")).unwrap() == data);
        let result = world.pull(&["there"], "back", &options).unwrap();
        assert_eq!(result.summary.bytes, Bytes::new(data.len() as u64));
        assert!(result.source.end.cpu_seconds > 0.0, "the source has reported");
        assert!(fs::read(world.near("back")).unwrap() == data);
    }
    assert_eq!(names(&world.far("")), ["there"], "no temporary file is left");
}

#[test]
fn a_tree_of_files_keeps_its_shape() {
    let world = CopySetup::new();
    fs::create_dir_all(world.near("tree/sub/deep")).unwrap();
    fs::create_dir(world.near("tree/void")).unwrap();
    fs::write(world.near("tree/empty"), "").unwrap();
    for i in 0..300 {
        fs::write(world.near(&format!("tree/sub/f{i}")), bytes(i * 17)).unwrap();
    }
    fs::write(world.near("tree/sub/deep/large"), bytes(3 << 20)).unwrap();
    fs::write(world.near("tree/sub/caf\u{e9} 100%"), "x").unwrap();
    symlink("sub/f7", world.near("tree/link")).unwrap();
    let result = world.push(&["tree"], ".", &options()).unwrap();
    assert!(result.failures.is_empty(), "{:?}", result.failures);
    assert_eq!(result.summary.files, 304);
    let again = world.pull(&["tree"], "again", &options()).unwrap();
    assert_eq!(again.summary.files, 304);
    for copy in [world.far("tree"), world.near("again")] {
        let diff = std::process::Command::new("diff")
            .args(["-r", "--no-dereference"])
            .args([&world.near("tree/sub"), &copy.join("sub")])
            .output()
            .unwrap();
        assert!(diff.status.success(), "{}", String::from_utf8_lossy(&diff.stdout));
        assert!(copy.join("void").is_dir());
        assert_eq!(fs::read(copy.join("link")).unwrap(), bytes(7 * 17));
        assert_eq!(names(&copy), ["empty", "link", "sub", "void"]);
    }
}

#[test]
fn modes_and_times_are_kept_on_request() {
    let world = CopySetup::new();
    fs::create_dir(world.near("d")).unwrap();
    fs::write(world.near("d/f"), "x").unwrap();
    fs::set_permissions(world.near("d/f"), fs::Permissions::from_mode(0o750)).unwrap();
    let then = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    for path in ["d/f", "d"] {
        fs::File::open(world.near(path)).unwrap().set_modified(then).unwrap();
    }
    let keep = CopyOptions { preserve: true, ..options() };
    world.push(&["d"], "kept", &keep).unwrap();
    for path in ["kept", "kept/f"] {
        assert_eq!(fs::metadata(world.far(path)).unwrap().modified().unwrap(), then, "{path}");
    }
    assert_eq!(fs::metadata(world.far("kept/f")).unwrap().mode() & 0o777, 0o750);
    world.push(&["d"], "fresh", &options()).unwrap();
    assert!(fs::metadata(world.far("fresh/f")).unwrap().modified().unwrap() > then);
}

#[test]
fn one_bad_file_does_not_stop_the_others() {
    let world = CopySetup::new();
    fs::create_dir_all(world.near("t")).unwrap();
    fs::write(world.near("t/good"), bytes(100)).unwrap();
    fs::write(world.near("t/taken"), bytes(100)).unwrap();
    fs::create_dir_all(world.far("t/taken/inside")).unwrap();
    symlink("nowhere", world.near("t/dangling")).unwrap();
    let result = world.push(&["t", "missing"], ".", &options()).unwrap();
    let mut failed: Vec<_> = result
        .failures
        .iter()
        .map(|failure| Path::new(&failure.path).file_name().unwrap().to_str().unwrap())
        .collect();
    failed.sort_unstable();
    assert_eq!(failed, ["dangling", "missing", "taken"]);
    assert_eq!(result.summary.files, 1);
    assert_eq!(names(&world.far("t")), ["good", "taken"]);
}

#[test]
fn an_invalid_target_is_refused_before_data_is_sent() {
    let world = CopySetup::new();
    fs::write(world.near("a"), "x").unwrap();
    fs::write(world.near("b"), "x").unwrap();
    for (sources, target) in [(&["a", "b"][..], "none"), (&["a"], "none/x"), (&["a"], "../out")] {
        let refused = world.push(sources, target, &options());
        assert!(
            matches!(refused, Err(EngineError::Refused { kind: RefusalKind::Files, .. })),
            "{refused:?}"
        );
    }
    assert!(names(&world.far("")).is_empty());
    let many = CopyOptions { streams: Some(1000), ..options() };
    assert!(matches!(
        world.push(&["a"], "x", &many),
        Err(EngineError::Refused { kind: RefusalKind::Invalid, .. })
    ));
}

#[test]
fn files_outside_the_root_are_not_sent() {
    let world = CopySetup::new();
    fs::write(world.near("secret"), "x").unwrap();
    symlink(world.near("secret"), world.far("link")).unwrap();
    let result = world.pull(&["../near/secret", "link"], ".", &options()).unwrap();
    assert_eq!((result.summary.files, result.failures.len()), (0, 2), "{result:?}");
}

#[test]
fn zeros_are_copied_without_a_source_file_and_to_dev_null() {
    let world = CopySetup::new();
    let plan = SourcePlan {
        tree: Tree::anywhere(),
        roots: vec![SourceRoot::Zero(Bytes::new((7 << 20) + 1))],
    };
    let stop = AtomicBool::new(false);
    let progress = CopyProgress::default();
    let null = Path::new("/dev/null");
    let result = world
        .over_connection(|line| {
            push(
                line,
                &plan,
                null,
                CopyRun { options: &options(), progress: &progress, stop: &stop },
            )
        })
        .unwrap();
    assert_eq!(result.summary.bytes, Bytes::new((7 << 20) + 1));
    assert_eq!(progress.moved(), result.summary.bytes);
    assert!(!result.summary.durable, "nothing is on a disk");
    let zeros = Path::new("zeros");
    world
        .over_connection(|line| {
            push(
                line,
                &plan,
                zeros,
                CopyRun { options: &options(), progress: &CopyProgress::default(), stop: &stop },
            )
        })
        .unwrap();
    assert!(fs::read(world.far("zeros")).unwrap() == vec![0; (7 << 20) + 1]);
}

#[test]
fn an_interrupted_copy_leaves_no_final_name() {
    let world = CopySetup::new();
    let plan = SourcePlan { tree: Tree::anywhere(), roots: vec![SourceRoot::Zero(Bytes::gib(4))] };
    // At this rate the copy takes three minutes, so the interruption is in its middle.
    let slow = CopyOptions { rate_bps: Some("200M".parse().unwrap()), ..options() };
    let target = Path::new("/null-not");
    let moves = |progress: &CopyProgress| progress.moved() > Bytes::new(0);
    let (outcome, total) = stop_when(moves, |(progress, stop)| {
        let outcome = world.over_connection(|line| {
            push(line, &plan, target, CopyRun { options: &slow, progress, stop })
        });
        (outcome, progress.total())
    });
    // If the disk has less than 4 GiB, the server refuses the file instead.
    match outcome {
        Err(EngineError::Interrupted) => assert!(total == Bytes::gib(4)),
        Ok(result) => assert_eq!(result.failures.len(), 1),
        Err(other) => panic!("{other:?}"),
    }
    let hidden = |name: &String| name.starts_with(".null-not.") || name.ends_with(".journal");
    assert!(names(&world.far("")).iter().all(hidden), "{:?}", names(&world.far("")));
}

/// The report of a sink that has done nothing.
pub(super) fn empty_report() -> longhaul_core::wire::copy::SinkReport {
    serde_json::from_value(serde_json::json!({
        "files": 0, "bytes": 0, "resent_blocks": 0, "durable": true,
        "end": { "cpu_percent": 0.0, "cpu_seconds": 0.0, "peak_memory_bytes": 0 },
        "stages": {},
    }))
    .unwrap()
}
