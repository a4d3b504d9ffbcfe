//! Complete copies between two ends in this process, with faults: on the control channel, on data
//! connections, at the disk, and in the files that one attempt leaves to the next.
//!
//! Every attempt must end in bounded time. No file with a final name may have wrong bytes. An
//! attempt without faults must complete the copy and leave no other files.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use std::{fs, thread};

use longhaul_core::plan::{CopyOptions, DirectIo, Protection};
use longhaul_core::result::CopyResult;
use longhaul_core::units::Bytes;

use super::Script;
use super::relay::{Control, Fault, Relay};
use crate::copy::sink::fail_at;
use crate::copy::{
    CopyProgress, CopyRun, CopySecret, FetchTarget, Reconnect, RemoteFiles, SourcePlan, SourceRoot,
    Tree, pull, push, serve,
};
use crate::error::{EngineError, Result};
use crate::session::{
    DataDialer, Grant, OPENING_TIMEOUT, ServedSession, Session, SessionRegistry, SessionSecret,
    WorkRecord, control, random_keying_material,
};

/// The longest that an attempt may take. Limits of time are a twentieth of the program's, unless
/// in tests.
const HANG: Duration = Duration::from_secs(if cfg!(feature = "fuzzing") { 60 } else { 120 });
/// The time without progress after which an end stops.
const GIVE_UP_MS: u64 = if cfg!(feature = "fuzzing") { 1500 } else { 20_000 };
/// Honest attempts, of which a loaded machine may let some fail by their limits of time.
const HONEST_ATTEMPTS: u32 = 5;
/// Around the sizes of blocks and packs.
const SIZES: [usize; 12] =
    [0, 1, 100, 4096, 5000, 65_536, 65_537, 200_000, 900_000, 1 << 20, (1 << 20) + 1, 3 << 20];
const BLOCKS: [u64; 6] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];

/// Runs the copy that `bytes` describe.
pub(super) fn run(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let mut machine = FuzzedCopy::new(&mut script);
    for _ in 0..script.below(4) {
        let attempt = Attempt::read(&mut script, machine.options.protection);
        // It may end in any way; only the files that it leaves are checked.
        let _ = machine.attempt(&attempt);
        machine.interfere(&mut script);
    }
    machine.complete();
}

/// The options and faults of one attempt.
#[derive(Debug, Default)]
struct Attempt {
    block_bytes: Option<u64>,
    faults: Vec<Fault>,
    /// The operation on the sink's disk that fails.
    disk: Option<i64>,
}

impl Attempt {
    fn read(script: &mut Script<'_>, protection: Protection) -> Self {
        let block_bytes = Some(script.choose(&BLOCKS));
        let faults: Vec<_> = (0..script.below(5)).map(|_| Fault::read(script)).collect();
        // Without verification changed bytes are not noticed, as documented.
        let noticed = |fault: &Fault| protection != Protection::Bare || !fault.is_of_bytes();
        let faults = faults.into_iter().filter(noticed).collect();
        let disk = script.flag().then(|| i64::from(script.byte() % 64));
        Attempt { block_bytes, faults, disk }
    }
}

/// A source, a target, and the copy from the one to the other.
struct FuzzedCopy {
    dir: tempfile::TempDir,
    /// The client is the source.
    pushes: bool,
    options: CopyOptions,
    /// The user's, from which the same command derives the same key.
    secret: Arc<CopySecret>,
    /// Every content that a file has had, the present one last.
    files: BTreeMap<String, Vec<Vec<u8>>>,
    changes: u8,
}

impl FuzzedCopy {
    fn new(script: &mut Script<'_>) -> Self {
        let dir = tempfile::tempdir().expect("a directory is made");
        for name in ["source", "target"] {
            fs::create_dir(dir.path().join(name)).expect("a directory is made");
        }
        let mut options = CopyOptions {
            streams: Some(1 + script.below(3) as u32),
            give_up_ms: Some(GIVE_UP_MS),
            block_bytes: Bytes::new(script.choose(&BLOCKS)),
            protection: script.choose(&[Protection::Sealed, Protection::Hashed, Protection::Bare]),
            durable: script.flag(),
            preserve: script.flag(),
            recursive: true,
            direct: script.choose(&[DirectIo::Never, DirectIo::Auto, DirectIo::Always]),
            ..CopyOptions::default()
        };
        options.tree.digests = script.flag();
        options.tree.update = script.flag();
        let pushes = script.flag();
        let secret = Arc::new(CopySecret::random());
        let mut machine =
            FuzzedCopy { dir, pushes, options, secret, files: BTreeMap::new(), changes: 0 };
        for number in 0..1 + script.below(6) {
            machine.change(&format!("f{number}"), script.choose(&SIZES));
        }
        machine
    }

    fn source(&self) -> PathBuf {
        self.dir.path().join("source")
    }

    fn target(&self) -> PathBuf {
        self.dir.path().join("target")
    }

    /// Gives file `name` of the source another content, and another inode.
    fn change(&mut self, name: &str, size: usize) {
        self.changes = self.changes.wrapping_add(1);
        let seed = self.changes;
        let content: Vec<u8> =
            (0..size).map(|n| seed.wrapping_add((n ^ n >> 8 ^ n >> 16) as u8)).collect();
        let new = self.dir.path().join("new");
        fs::write(&new, &content).expect("a file is written");
        fs::rename(new, self.source().join(name)).expect("a file gets its name");
        self.files.entry(name.to_owned()).or_default().push(content);
    }

    /// Runs one copy with the faults of `attempt`. Checks that no file with a final name is wrong,
    /// whatever the outcome.
    fn attempt(&mut self, attempt: &Attempt) -> Result<CopyResult> {
        if let Some(block_bytes) = attempt.block_bytes {
            self.options.block_bytes = Bytes::new(block_bytes);
        }
        // A server's disk has no name of its own that the countdown could go by.
        let disk = attempt.disk.filter(|_| !self.pushes);
        let left = fail_at(&self.target(), disk.map_or(i64::MAX, |count| count + 1));
        let outcome = self.copy(attempt);
        left.store(i64::MAX, std::sync::atomic::Ordering::Relaxed);
        self.check();
        if let Ok(result) = &outcome
            && result.failures.is_empty()
            && !attempt.faults.iter().any(Fault::is_of_messages)
        {
            self.check_whole(attempt);
        }
        outcome
    }

    /// Runs both ends until they have ended.
    fn copy(&self, attempt: &Attempt) -> Result<CopyResult> {
        let relay = Relay::new(attempt.faults.clone());
        let secret = SessionSecret::from_keying_material(&random_keying_material());
        let registry = SessionRegistry::default();
        let (near, far) = relay.control().expect("the kernel gives sockets");
        let (done, server_done) = mpsc::channel();
        let root = self.server_root();
        let streams = registry.register(secret.clone());
        thread::spawn(move || {
            let Control { reader, writer } = far;
            let (sender, receiver) = control(reader, writer, "the client");
            let session = ServedSession {
                sender,
                receiver,
                streams,
                authorized: true,
                grant: Grant::default(),
                key: None,
                record: WorkRecord::default(),
                host_keys: None,
                rate: None,
                quota: None,
            };
            let tree = Tree::beneath(&root).expect("the directory opens");
            let _ = done.send(serve(session, &tree, &AtomicBool::new(false)));
        });
        let (done, client_done) = mpsc::channel();
        let dialer = DataDialer::through(
            Arc::new({
                let relay = relay.clone();
                move |stream| {
                    let (client, server) = relay.data(stream)?;
                    let registry = registry.clone();
                    relay.spawn(move || {
                        let deadline = Instant::now() + OPENING_TIMEOUT;
                        registry.admit(Arc::new(server), deadline, || ());
                    });
                    Ok(client)
                }
            }),
            secret,
        );
        let client = self.client();
        thread::spawn(move || {
            let Control { reader, writer } = near;
            let (sender, receiver) = control(reader, writer, "the server");
            let _ = done.send(client(Session::new(sender, receiver, dialer)));
        });
        let outcome = client_done.recv_timeout(HANG).unwrap_or_else(|_| {
            panic!("the client has not ended: {attempt:?}, {:?}", self.options);
        });
        // A client that has ended leaves.
        relay.cut();
        let served = server_done.recv_timeout(HANG).unwrap_or_else(|_| {
            panic!("the server has not ended: {attempt:?}, {:?}", self.options);
        });
        relay.finish();
        drop(served);
        outcome
    }

    /// Returns the directory that the server serves.
    fn server_root(&self) -> PathBuf {
        if self.pushes { self.target() } else { self.source() }
    }

    /// Returns the client of the only session.
    fn client(&self) -> impl FnOnce(Session) -> Result<CopyResult> + Send + use<> {
        let (pushes, options) = (self.pushes, self.options.clone());
        let (source, target) = (self.source(), self.target());
        let secret = self.secret.clone();
        move |session| {
            let mut session = Some(session);
            let mut connect = || session.take().ok_or(EngineError::Interrupted);
            let line = Reconnect {
                connect: &mut connect,
                give_up: Duration::ZERO,
                lost: &|_| (),
                secret: &secret,
                past: None,
            };
            let (progress, stop) = (CopyProgress::default(), AtomicBool::new(false));
            let run = CopyRun { options: &options, progress: &progress, stop: &stop };
            if pushes {
                let roots = vec![SourceRoot::Path(source.join("."))];
                let plan = SourcePlan { tree: Tree::anywhere(), roots };
                push(line, &plan, Path::new("."), run)
            } else {
                let files = RemoteFiles { paths: &[PathBuf::from("./.")], names: None };
                pull(line, files, FetchTarget::Path(&target), run)
            }
        }
    }

    /// Changes the source, damages the journal, or changes the files of the journal between two
    /// attempts.
    fn interfere(&mut self, script: &mut Script<'_>) {
        match script.below(8) {
            0 => {
                let name = format!("f{}", script.below(self.files.len()));
                self.change(&name, script.choose(&SIZES));
            }
            1 => self.damage(script, ".journal"),
            2 => self.damage(script, ".part"),
            3 => {
                let name = format!("f{}", script.below(self.files.len()));
                let _ = fs::remove_file(self.target().join(name));
            }
            _ => {}
        }
    }

    /// Damages one of the sink's own files, those whose names end in `kind`.
    fn damage(&self, script: &mut Script<'_>, kind: &str) {
        let names = names(&self.target());
        let own: Vec<_> = names.iter().filter(|name| name.ends_with(kind)).collect();
        if own.is_empty() {
            return;
        }
        let path = self.target().join(own[script.below(own.len())]);
        let file = fs::File::options().read(true).write(true).open(&path);
        let file = file.expect("the sink's file opens");
        let length = file.metadata().expect("it has a length").len();
        let at = script.long().checked_rem(length).unwrap_or(0);
        match script.below(5) {
            0 => file.set_len(at).expect("it is cut"),
            1 if length > 0 => {
                let mut byte = [0];
                file.read_exact_at(&mut byte, at).expect("it is read");
                file.write_all_at(&[byte[0] ^ script.byte().max(1)], at).expect("it is written");
            }
            2 => {
                file.set_len(at).expect("it is cut");
                file.set_len(length).expect("it is extended");
            }
            3 => {
                let mut file = fs::File::options().append(true).open(&path).expect("it opens");
                file.write_all(&[script.byte(); 40]).expect("it is written");
            }
            _ => fs::remove_file(&path).expect("it is removed"),
        }
    }

    /// Completes the copy, over connections without faults.
    fn complete(&mut self) {
        let mut failure = None;
        for _ in 0..HONEST_ATTEMPTS {
            match self.attempt(&Attempt::default()) {
                Ok(result) => {
                    assert!(result.failures.is_empty(), "{:?}", result.failures);
                    let expected: Vec<_> = self.files.keys().cloned().collect();
                    assert_eq!(names(&self.target()), expected, "nothing is left over");
                    return;
                }
                Err(error) => failure = Some(error),
            }
        }
        panic!("an honest copy does not succeed: {failure:?}, {:?}", self.options);
    }

    /// Checks that every file with a final name has contents that its source has had.
    fn check(&self) {
        for name in names(&self.target()) {
            if is_own(&name) {
                continue;
            }
            let content = fs::read(self.target().join(&name)).expect("a file is read");
            let known = self.files.get(&name).unwrap_or_else(|| panic!("{name} was never sent"));
            assert!(known.contains(&content), "{name} is wrong: {:?}", self.options);
        }
    }

    /// Checks that every file equals that of the source.
    fn check_whole(&self, attempt: &Attempt) {
        for (name, contents) in &self.files {
            let copied = fs::read(self.target().join(name));
            let copied = copied.unwrap_or_else(|error| panic!("{name}: {error}: {attempt:?}"));
            assert!(Some(&copied) == contents.last(), "{name} is not the present one: {attempt:?}");
        }
    }
}

/// Returns whether `name` is one of the sink's journals or temporary files.
fn is_own(name: &str) -> bool {
    name.starts_with('.') && name.contains("longhaul-")
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("the directory is listed");
    let name = |entry: std::io::Result<fs::DirEntry>| {
        entry.expect("it is listed").file_name().into_string().expect("its name is text")
    };
    let mut names: Vec<_> = entries.map(name).collect();
    names.sort();
    names
}

/// Inputs to begin from.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    // Options, files, attempts.
    let mut seeds = Vec::new();
    for way in 0..2 {
        for protection in 0..3 {
            let head = [1, 2, protection, 1, 0, 0, 0, 0, way, 3, 2, 7, 8, 10];
            // No faults; cut in the middle and another block size; a disk that fails.
            seeds.push(head.to_vec());
            let cut = [2, 2, 1, 4, 0, 0x20, 0, 3, 9, 0, 7, 5, 0, 0, 7];
            seeds.push([&head[..], &cut].concat());
            let disk = [1, 3, 0, 1, 9, 7];
            seeds.push([&head[..], &disk].concat());
        }
    }
    seeds
}
