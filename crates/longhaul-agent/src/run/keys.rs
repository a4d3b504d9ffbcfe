//! The keys of one run: the directory in which its command finds the agent's key and the only peer
//! that it trusts.

use std::fs::{self, DirBuilder};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use longhaul_engine::session::PublicKey;
use longhaul_fleet::protocol::{Lease, Role};

use crate::home::write_private;

/// The directory of one run, which is removed with the value.
#[derive(Debug)]
pub(super) struct RunDir(PathBuf);

impl RunDir {
    /// Creates the directory `runs/RUN-ROLE` in `state`, with a copy of the key `identity`.
    pub(super) fn create(state: &Path, identity: &Path, lease: &Lease) -> io::Result<Self> {
        let role = if lease.role == Role::Source { "source" } else { "target" };
        let dir = RunDir(state.join("runs").join(format!("{}-{role}", lease.run)));
        let _ = fs::remove_dir_all(&dir.0);
        let config = dir.0.join("longhaul");
        DirBuilder::new().recursive(true).mode(0o700).create(&config)?;
        write_private(&config.join("identity"), &fs::read(identity)?)?;
        if let Some(key) = lease.peer_key.as_deref().and_then(public_key) {
            let server = SocketAddr::new(lease.peer, lease.port);
            let (name, line) = match lease.role {
                Role::Source => ("known_hosts", format!("{server} {key}\n")),
                Role::Target => ("authorized_keys", format!("{key}\n")),
            };
            write_private(&config.join(name), line.as_bytes())?;
        }
        Ok(dir)
    }

    /// Returns the value of `XDG_CONFIG_HOME` for the command.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns the key that is `base64` in a lease.
pub(super) fn public_key(base64: &str) -> Option<PublicKey> {
    format!("longhaul-ed25519 {base64}").parse().ok()
}
