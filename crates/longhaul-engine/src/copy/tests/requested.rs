//! A server that announces a name that the client has not requested creates nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use longhaul_core::result::CopyResult;
use longhaul_core::wire::copy::{
    CopyReply, CopyRequest, Entry, EntryKind, SinkMessage, SourceMessage, SourceReport,
};
use longhaul_core::wire::{FilePath, RefusalKind, Service};

use super::{names, options};
use crate::copy::{CopyProgress, CopyRun, CopySecret, FetchTarget, Reconnect, RemoteFiles, pull};
use crate::error::{EngineError, EntryViolation, Result};
use crate::serve::{InProcess, Services};
use crate::session::{Announced, ConfigDir, ServedSession};

/// A server that answers every request with an empty directory of this name.
struct Announcer(&'static str);

impl Services for Announcer {
    fn refusal(&self, _: Service, _: bool) -> Option<(RefusalKind, String)> {
        None
    }

    fn run(&self, _: Service, session: ServedSession) -> Result<()> {
        let ServedSession { sender, mut receiver, streams, .. } = session;
        let _: CopyRequest = receiver.receive()?;
        streams.announce(Announced { streams: 1, ..Announced::default() }).unwrap();
        sender.send(&CopyReply::Ready { asks: false, rereads: true })?;
        let _connections = streams.accept_all(1, Duration::from_secs(30))?;
        let entry = Entry::new(FilePath::new(self.0).unwrap(), EntryKind::Directory, 0o755);
        sender.send(&SourceMessage::Entries(vec![entry]))?;
        sender.send(&SourceMessage::End { entries: 1 })?;
        while !matches!(receiver.receive()?, SinkMessage::Finished(_) | SinkMessage::Abort { .. }) {
        }
        sender.send(&SourceMessage::Report(Box::new(report())))
    }
}

fn report() -> SourceReport {
    serde_json::from_value(serde_json::json!({
        "end": { "cpu_percent": 0.0, "cpu_seconds": 0.0, "peak_memory_bytes": 0 },
        "stages": {},
        "retransmits": 0,
    }))
    .unwrap()
}

/// Fetches `path` to the directory `home`/target from a server that announces `announced`.
fn fetch(home: &Path, path: &str, announced: &'static str) -> Result<CopyResult> {
    let (server, session) = InProcess::start(Announcer(announced), Service::Copy).unwrap();
    let mut session = Some(session);
    let mut connect = || session.take().ok_or(EngineError::Interrupted);
    let secret = CopySecret::load_or_create(&ConfigDir::at(home.join("config")));
    let (lost, give_up) = (&|_: &EngineError| (), Duration::ZERO);
    let line = Reconnect { connect: &mut connect, give_up, lost, secret: &secret, past: None };
    let paths = [PathBuf::from(path)];
    let files = RemoteFiles { paths: &paths, names: None };
    let mut options = options();
    options.streams = Some(1);
    let (progress, stop) = (&CopyProgress::default(), &AtomicBool::new(false));
    let target = home.join("target");
    let run = CopyRun { options: &options, progress, stop };
    let fetched = pull(line, files, FetchTarget::Path(&target), run);
    server.finish();
    fetched
}

#[test]
fn only_requested_names_are_accepted_from_a_server() {
    let home = tempfile::tempdir().unwrap();
    fs::create_dir(home.path().join("config")).unwrap();
    fs::create_dir(home.path().join("target")).unwrap();
    let target = || names(&home.path().join("target"));
    for announced in [".ssh", "run170", "run1"] {
        let refused = fetch(home.path(), "data/run17", announced);
        let Err(EngineError::InvalidEntry { violation, .. }) = refused else {
            panic!("{announced}: {refused:?}");
        };
        assert!(matches!(violation, EntryViolation::NotRequested), "{announced}: {violation}");
        assert!(!target().contains(&announced.to_owned()), "{announced}");
    }
    fetch(home.path(), "data/run17", "run17").unwrap();
    // Only the server knows the names in a directory.
    fetch(home.path(), "data/.", "run18").unwrap();
    for name in ["run17", "run18"] {
        assert!(target().contains(&name.to_owned()), "{name}: {:?}", target());
    }
}
