//! Drops the rights of a server once its port is bound and its key is read: its user, its
//! capabilities and its reach in the file system.

use anyhow::{Context, anyhow};
use longhaul_engine::serve::FileAccess;
use longhaul_engine::{EngineError, Result as EngineResult};
use longhaul_sys::confine::{UserAccount, confine_files, hide_memory, keep_capabilities};
use rustix::thread::CapabilitySet;

use crate::exit::{self, Coded};

/// Files of any user, as root has them.
const FILES: CapabilitySet =
    CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::DAC_READ_SEARCH).union(CapabilitySet::FOWNER);
/// Congestion control, raw sockets of a path measurement, priorities, locked memory, limits.
const TUNING: CapabilitySet = CapabilitySet::NET_ADMIN
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::SYS_NICE)
    .union(CapabilitySet::SYS_RESOURCE)
    .union(CapabilitySet::IPC_LOCK);
/// Owners, devices, set-id bits and file capabilities, for keys with the option `owners`.
const OWNERS: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::MKNOD)
    .union(CapabilitySet::SETFCAP);

/// The options that limit the rights of the server.
#[derive(Debug, clap::Args)]
pub(super) struct ConfineArgs {
    /// Change to this user after binding the port and reading the key; requires root
    #[arg(long, value_name = "USER[:GROUP]")]
    user: Option<String>,
    /// Confine the server to its directories with Landlock; if the kernel lacks it, 'auto' warns
    /// and 'require' exits
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    landlock: LandlockUse,
}

/// The use of Landlock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum LandlockUse {
    Auto,
    Off,
    Require,
}

impl ConfineArgs {
    /// The account of `--user`.
    ///
    /// # Errors
    /// There is none, or this process is not root's.
    pub(super) fn account(&self) -> Result<Option<UserAccount>, Coded> {
        let Some(user) = &self.user else { return Ok(None) };
        let account = UserAccount::find(user)
            .map_err(|error| Coded::new(exit::USAGE, anyhow!("--user {user}: {error}")))?;
        if !rustix::process::geteuid().is_root() {
            let reason =
                anyhow!("--user {user}: only root can change the user; start the server as root");
            return Err(Coded::new(exit::HOST, reason));
        }
        Ok(Some(account))
    }

    /// Runs as `account` from now on, with memory that no one else reads.
    ///
    /// # Errors
    /// The kernel refuses; the process must end.
    pub(super) fn become_user(&self, account: Option<&UserAccount>) -> Result<(), Coded> {
        let coded = |error| Coded::new(exit::HOST, error);
        if let (Some(account), Some(user)) = (account, &self.user) {
            let became = account.assume().with_context(|| format!("cannot run as '{user}'"));
            became.map_err(coded)?;
        }
        hide_memory().context("cannot keep the key out of core files").map_err(coded)
    }

    /// Drops the capabilities that a server of root does not need. It keeps those to access files
    /// regardless of their modes and to tune sockets and threads, and with `owners` those to set
    /// owners.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(super) fn limit_root(&self, owners: bool) -> Result<(), Coded> {
        if !rustix::process::geteuid().is_root() {
            return Ok(());
        }
        let mut keep = FILES | TUNING;
        if owners {
            keep |= OWNERS;
        }
        let limited = keep_capabilities(keep).context("cannot drop capabilities");
        limited.map_err(|error| Coded::new(exit::HOST, error))
    }

    /// Adds advice to an error of permissions, if the server runs as the user of `--user`.
    ///
    /// # Errors
    /// That of `opened`.
    pub(super) fn as_user<T>(&self, opened: EngineResult<T>) -> Result<T, Coded> {
        opened.map_err(|error| match (&self.user, &error) {
            (Some(user), EngineError::File { source, .. })
                if source.kind() == std::io::ErrorKind::PermissionDenied =>
            {
                let cure = format!(
                    "user '{user}' (--user) needs this permission; grant it, or set \
                     XDG_CONFIG_HOME to a directory of that user"
                );
                let code = exit::HOST;
                Coded::new(code, anyhow::Error::from(error).context(cure))
            }
            _ => error.into(),
        })
    }

    /// True unless Landlock is turned off.
    pub(super) fn confines(&self) -> bool {
        self.landlock != LandlockUse::Off
    }

    /// Confines the server to `reach`, and returns a warning if that is impossible.
    ///
    /// # Errors
    /// Confinement is impossible and required.
    pub(super) fn confine(&self, reach: &FileAccess) -> Result<Option<String>, Coded> {
        if !self.confines() {
            return Ok(None);
        }
        match confine_files(&reach.rules()) {
            Ok(_) => Ok(None),
            Err(error) if self.landlock == LandlockUse::Require => {
                let reason = anyhow!("cannot confine the server to its directories: {error}");
                Err(Coded::new(exit::HOST, reason))
            }
            Err(error) => {
                Ok(Some(format!("warning: the server is not confined to its directories: {error}")))
            }
        }
    }
}
