//! The list of names that follows a request (`--files-from`).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use longhaul_core::wire::FilePath;
use longhaul_core::wire::copy::{NAMES_BATCH_BYTES, NAMES_LIMIT_BYTES, Names};

use crate::error::{EngineError, Result};
use crate::session::{ControlReceiver, ControlSender};

/// Bytes of a name in a message, besides the name.
const NAME_BYTES: usize = 32;

/// Sends `names` in as many messages as they take.
pub(super) fn send_names(sender: &ControlSender, names: &[PathBuf]) -> Result<()> {
    let mut batch = Vec::new();
    let mut bytes = 0;
    for name in names {
        let name = sent_path(name)?;
        bytes += name.as_bytes().len() + NAME_BYTES;
        batch.push(name);
        if bytes >= NAMES_BATCH_BYTES {
            bytes = 0;
            sender.send(&Names { names: std::mem::take(&mut batch), more: true })?;
        }
    }
    sender.send(&Names { names: batch, more: false })
}

/// Returns a path as a request contains it.
///
/// # Errors
/// The path contains a NUL.
pub(super) fn sent_path(path: &Path) -> Result<FilePath> {
    FilePath::new(path.as_os_str().as_bytes()).ok_or_else(|| EngineError::File {
        operation: "use",
        path: path.to_owned(),
        source: std::io::ErrorKind::InvalidInput.into(),
    })
}

/// Takes the names that follow a request.
pub(super) fn receive_names(receiver: &mut ControlReceiver) -> Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    let mut bytes = 0;
    loop {
        let Names { names, more } = receiver.receive()?;
        bytes += names.iter().map(|name| name.as_bytes().len() + NAME_BYTES).sum::<usize>();
        if bytes > NAMES_LIMIT_BYTES {
            let peer = receiver.peer().to_owned();
            return Err(EngineError::Protocol { peer, what: "it names too many files" });
        }
        let path = |name: &[u8]| Path::new(OsStr::from_bytes(name)).to_owned();
        all.extend(names.iter().map(|name| path(name.as_bytes())));
        if !more {
            return Ok(all);
        }
    }
}
