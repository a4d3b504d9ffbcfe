//! Copies a directory to a server in this process, as `longhaul cp -r SOURCE lh://HOST/` does to
//! another host: `cargo run -p longhaul-engine --example copy_to_server -- SOURCE TARGET`.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use longhaul_core::plan::CopyOptions;
use longhaul_core::wire::{RefusalKind, Service};
use longhaul_engine::copy::{
    self, CopyProgress, CopyRun, CopySecret, Reconnect, SourcePlan, SourceRoot, Tree,
};
use longhaul_engine::serve::{InProcess, Services};
use longhaul_engine::session::ServedSession;

/// A server that offers the files of one directory to all its clients.
struct Files(Tree);

impl Services for Files {
    fn refusal(&self, _: Service, _: bool) -> Option<(RefusalKind, String)> {
        None
    }

    fn run(&self, _: Service, session: ServedSession) -> longhaul_engine::Result<()> {
        copy::serve(session, &self.0, &AtomicBool::new(false))
    }
}

#[allow(clippy::print_stdout)] // The output of an example.
fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(source), Some(target)) = (arguments.next(), arguments.next()) else {
        return Err("give a directory to copy and a directory to copy it to".into());
    };
    let files = Tree::beneath(&target)?;
    // `push` calls this function for the first session, and again after a lost connection.
    let mut servers = Vec::new();
    let mut connect = || {
        let (server, session) = InProcess::start(Files(files.clone()), Service::Copy)?;
        servers.push(server);
        Ok(session)
    };
    let secret = CopySecret::random();
    let reconnect = Reconnect {
        connect: &mut connect,
        give_up: Duration::ZERO,
        lost: &|_| (),
        secret: &secret,
        past: None,
    };
    let plan = SourcePlan { tree: Tree::anywhere(), roots: vec![SourceRoot::Path(source)] };
    let options = CopyOptions { recursive: true, ..CopyOptions::default() };
    let (progress, stop) = (CopyProgress::default(), AtomicBool::new(false));
    let run = CopyRun { options: &options, progress: &progress, stop: &stop };
    let summary = copy::push(reconnect, &plan, Path::new("."), run)?.summary;
    servers.into_iter().for_each(InProcess::finish);
    println!("{} in {} files at {}", summary.bytes, summary.files, summary.throughput_bps);
    Ok(())
}
