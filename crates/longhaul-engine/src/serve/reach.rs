//! The files that a running server may open: its directories, its keys, and the files of the C
//! library and of the examination of the host.

use std::path::{Path, PathBuf};

use longhaul_sys::confine::FileRules;
use rustix::fs::{Access, CWD, Mode, OFlags, access, openat};
use rustix::io::Errno;

/// The kernel's facts about the host, and the libraries of the name service.
const SYSTEM: [&str; 7] =
    ["/proc", "/sys", "/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/share/zoneinfo"];
/// The files of the name service outside `/etc`.
const NAMES: [&str; 3] = ["/var/lib/sss/mc", "/run/systemd/resolve", "/run/resolvconf"];
/// The public files of `/etc` that the C library reads.
const PUBLIC: [&str; 10] = [
    "/etc/passwd",
    "/etc/group",
    "/etc/nsswitch.conf",
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/resolv.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/etc/localtime",
    "/etc/ld.so.cache",
];

/// The purposes of a server that need files.
#[derive(Debug, Clone, Default)]
pub struct FileAccess {
    /// The directories that it offers.
    pub roots: Vec<PathBuf>,
    /// True if it only reads them.
    pub read_only: bool,
    /// The directory of its keys.
    pub config: PathBuf,
    /// The directory of its log.
    pub log: Option<PathBuf>,
    /// True if it runs as root.
    pub root_user: bool,
    /// True if a key may set owners.
    pub owners: bool,
}

impl FileAccess {
    /// Returns the rules for Landlock.
    ///
    /// An ordinary user may read all of `/etc`, because the permissions protect the secrets. Root
    /// may read single files, which become unreadable when they are replaced. For a key that sets
    /// owners root may read all of `/etc`, because a new user must not get a wrong number.
    pub fn rules(&self) -> FileRules {
        let (mut read, mut write) = (vec![self.config.clone()], Vec::new());
        read.extend(SYSTEM.iter().chain(&NAMES).map(PathBuf::from));
        if self.root_user && !self.owners {
            read.extend(PUBLIC.map(PathBuf::from));
        } else {
            read.push("/etc".into());
        }
        let roots = if self.read_only { &mut read } else { &mut write };
        roots.extend(self.roots.iter().cloned());
        write.extend(self.log.clone());
        FileRules { read, write, devices: self.owners }
    }
}

/// Returns whether the permissions allow to read `dir` and Landlock does not, because the rules of
/// this process were made before.
pub fn is_out_of_reach(dir: &Path) -> bool {
    let open =
        || openat(CWD, dir, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    access(dir, Access::READ_OK).is_ok() && open().is_err_and(|error| error == Errno::ACCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_is_written_only_where_the_server_writes() {
        let reach = FileAccess { roots: vec!["/data".into()], ..FileAccess::default() };
        assert_eq!(reach.rules().write, [PathBuf::from("/data")]);
        let reach = FileAccess { read_only: true, ..reach };
        let rules = reach.rules();
        assert!(rules.write.is_empty() && rules.read.contains(&"/data".into()));
    }

    #[test]
    fn root_reads_no_secrets_of_the_system_unless_a_key_is_as_good_as_root() {
        let etc = |root_user, owners| {
            let rules = FileAccess { root_user, owners, ..FileAccess::default() }.rules();
            assert_eq!(rules.devices, owners);
            rules.read.contains(&"/etc".into())
        };
        assert!(etc(false, false) && etc(true, true) && !etc(true, false));
    }
}
