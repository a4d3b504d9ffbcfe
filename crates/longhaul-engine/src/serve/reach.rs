//! The files that a server may open once it serves: its directories, its keys, and what the C
//! library and the facts of the host need.

use std::path::{Path, PathBuf};

use longhaul_sys::confine::FileRules;
use rustix::fs::{Access, CWD, Mode, OFlags, access, openat};
use rustix::io::Errno;

/// What the host says of itself, and the libraries of the name service.
const SYSTEM: [&str; 7] =
    ["/proc", "/sys", "/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/share/zoneinfo"];
/// What the name service keeps outside `/etc`.
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

/// What a server is for, as far as files are concerned.
#[derive(Debug, Clone, Default)]
pub struct Reach {
    /// The directories whose files it offers.
    pub roots: Vec<PathBuf>,
    /// It only reads them.
    pub read_only: bool,
    /// Where its keys are.
    pub config: PathBuf,
    /// The directory of its log.
    pub log: Option<PathBuf>,
    /// It runs as root.
    pub root_user: bool,
    /// A key may set owners.
    pub owners: bool,
}

impl Reach {
    /// The files that it needs.
    ///
    /// All of `/etc` is readable for a user, whom its secrets are kept from. Root gets single
    /// files, which are no longer readable when another takes the name; only for a key that sets
    /// owners, who must not be numbered wrongly after a user was added, is it all of `/etc` too.
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

/// Whether `dir` may be read by its permissions and yet not be opened, as the rules of this process
/// were made before it was named.
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
        let reach = Reach { roots: vec!["/data".into()], ..Reach::default() };
        assert_eq!(reach.rules().write, [PathBuf::from("/data")]);
        let reach = Reach { read_only: true, ..reach };
        let rules = reach.rules();
        assert!(rules.write.is_empty() && rules.read.contains(&"/data".into()));
    }

    #[test]
    fn root_reads_no_secrets_of_the_system_unless_a_key_is_as_good_as_root() {
        let etc = |root_user, owners| {
            let rules = Reach { root_user, owners, ..Reach::default() }.rules();
            assert_eq!(rules.devices, owners);
            rules.read.contains(&"/etc".into())
        };
        assert!(etc(false, false) && etc(true, true) && !etc(true, false));
    }
}
