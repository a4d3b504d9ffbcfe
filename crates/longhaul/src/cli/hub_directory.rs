//! The default directory of a hub.

use std::path::PathBuf;

/// Returns the directory of the data of this user's hub, unless an option names another one.
pub(super) fn hub_directory() -> Option<PathBuf> {
    let absolute = |name: &str| {
        let path = PathBuf::from(std::env::var_os(name)?);
        path.is_absolute().then_some(path)
    };
    let home = || Some(absolute("HOME")?.join(".local/share"));
    let shared = || absolute("XDG_DATA_HOME").or_else(home);
    absolute("STATE_DIRECTORY").or_else(|| Some(shared()?.join("longhaul/hub")))
}
