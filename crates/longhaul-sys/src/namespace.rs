//! Namespaces of a thread, and the first process of a new PID namespace.
//!
//! See `namespaces(7)`, `pid_namespaces(7)` and `user_namespaces(7)`.

use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};
use rustix::thread::{ThreadNameSpaceType, UnshareFlags};

/// Moves the calling process into a new user namespace in which it has every capability and keeps
/// its user and group id.
///
/// # Errors
/// `InvalidInput` if the process has more than one thread; `PermissionDenied` or `ENOSPC` if the
/// user may not create user namespaces.
pub fn enter_user_namespace() -> io::Result<()> {
    let user = rustix::process::geteuid().as_raw();
    let group = rustix::process::getegid().as_raw();
    // SAFETY: the file table stays shared: UnshareFlags::FILES is not among the flags.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER) }?;
    // Without this the kernel rejects a group map from a process that lacks CAP_SETGID in the
    // parent namespace.
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
}

/// Moves the calling thread into new network, mount and UTS namespaces, and its future children
/// into a new PID namespace. Mounts made inside are invisible outside. Mounts and unmounts outside
/// propagate inside.
///
/// # Errors
/// `PermissionDenied` without `CAP_SYS_ADMIN`.
pub fn enter_site_namespaces() -> io::Result<()> {
    unshare(UnshareFlags::NEWNET)
}

/// Does the same without a new network namespace.
///
/// # Errors
/// As for [`enter_site_namespaces`].
pub fn enter_local_namespaces() -> io::Result<()> {
    unshare(UnshareFlags::empty())
}

fn unshare(network: UnshareFlags) -> io::Result<()> {
    use rustix::mount::MountPropagationFlags as Propagation;
    let flags = network | UnshareFlags::NEWNS | UnshareFlags::NEWPID | UnshareFlags::NEWUTS;
    // SAFETY: the file table stays shared: UnshareFlags::FILES is not among the flags.
    unsafe { rustix::thread::unshare_unsafe(flags) }?;
    rustix::mount::mount_change("/", Propagation::DOWNSTREAM | Propagation::REC)?;
    Ok(())
}

/// A network namespace without a name. It exists as long as this value or a socket in it.
#[derive(Debug)]
pub struct NetworkNamespace {
    handle: OwnedFd,
}

impl NetworkNamespace {
    /// Creates a network namespace and moves the calling thread into it.
    ///
    /// # Errors
    /// `PermissionDenied` without `CAP_SYS_ADMIN`.
    pub fn enter_new() -> io::Result<Self> {
        // SAFETY: the file table stays shared: UnshareFlags::FILES is not among the flags.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
        Self::current()
    }

    /// Opens the network namespace that the file at `path` stands for.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(NetworkNamespace { handle: std::fs::File::open(path)?.into() })
    }

    /// Returns the network namespace of the calling thread.
    ///
    /// # Errors
    /// `/proc` is missing or shows another PID namespace.
    pub fn current() -> io::Result<Self> {
        let handle = std::fs::File::open("/proc/thread-self/ns/net")?.into();
        Ok(NetworkNamespace { handle })
    }

    /// Moves the calling thread into this namespace.
    ///
    /// # Errors
    /// `PermissionDenied` without `CAP_SYS_ADMIN` over the namespace.
    pub fn enter(&self) -> io::Result<()> {
        let kind = Some(rustix::thread::LinkNameSpaceType::Network);
        Ok(rustix::thread::move_into_link_name_space(self.handle.as_fd(), kind)?)
    }
}

impl AsFd for NetworkNamespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

/// Moves the calling process into the network, mount and UTS namespaces of `process`, and its
/// children into the PID namespace of `process`. With `user` it enters the user namespace first.
/// The working directory becomes the root.
///
/// # Errors
/// `InvalidInput` if the calling process has more than one thread, is already in that user
/// namespace, or its PID namespace is not an ancestor of the target; `PermissionDenied` for another
/// user's process; `ESRCH` if `process` has ended.
pub fn join(process: BorrowedFd<'_>, user: bool) -> io::Result<()> {
    let mut kinds = ThreadNameSpaceType::NETWORK
        | ThreadNameSpaceType::MOUNT
        | ThreadNameSpaceType::HOST_NAME_AND_NIS_DOMAIN_NAME
        | ThreadNameSpaceType::PROCESS_ID;
    if user {
        kinds |= ThreadNameSpaceType::USER;
    }
    Ok(rustix::thread::move_into_thread_name_spaces(process, kinds)?)
}

/// The first process of a PID namespace. It only adopts and reaps orphans.
///
/// The kernel kills every process of its namespace when it ends. It ends when the thread that
/// started it ends for any reason.
#[derive(Debug)]
pub struct Init {
    pid: Pid,
    handle: InitHandle,
}

/// A handle to an [`Init`], usable from any thread of the process that started it.
#[derive(Debug)]
pub struct InitHandle {
    process: OwnedFd,
    /// A socket whose other end only the first process has. It reaches its end of file before the
    /// kernel kills the other processes of the namespace. `process` becomes readable only after
    /// each of them has been waited for.
    liveness: OwnedFd,
}

impl Init {
    /// Forks the first process of the PID namespace that the calling thread's children enter. If
    /// permitted, the process mounts the `/proc` of that namespace in the thread's mount namespace.
    /// Containers may forbid the mount; then the processes inside see the `/proc` of the outer
    /// namespace.
    ///
    /// # Errors
    /// The fork failed, or the new process ended at once.
    pub fn start() -> io::Result<Self> {
        let (mut ours, theirs) = UnixStream::pair()?;
        // SAFETY: the child of this multi-threaded process runs only `init`, which makes only
        // async-signal-safe calls and never returns.
        let pid = match unsafe { libc::fork() } {
            -1 => return Err(io::Error::last_os_error()),
            0 => init(theirs.as_raw_fd()),
            pid => pid,
        };
        drop(theirs);
        let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidData)?;
        ours.read_exact(&mut [0])?;
        let process = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
        Ok(Init { pid, handle: InitHandle { process, liveness: ours.into() } })
    }

    /// Returns a handle to the process.
    pub fn handle(&self) -> &InitHandle {
        &self.handle
    }

    /// Kills every process of the namespace.
    pub fn kill(&self) {
        // The process is our child and not yet reaped, so its id cannot have been reused.
        let _ = rustix::process::kill_process(self.pid, Signal::KILL);
    }

    /// Reaps the process if it has ended, and returns whether it has. It ends after the last
    /// process of its namespace, and children of this process among those must be waited for first.
    pub fn reaped(&self) -> bool {
        let options = rustix::process::WaitOptions::NOHANG;
        !matches!(rustix::process::waitpid(Some(self.pid), options), Ok(None))
    }
}

impl InitHandle {
    /// Duplicates the handle.
    ///
    /// # Errors
    /// The process has too many open files.
    pub fn try_clone(&self) -> io::Result<InitHandle> {
        Ok(InitHandle { process: self.process.try_clone()?, liveness: self.liveness.try_clone()? })
    }

    /// Returns the process for [`join`].
    pub fn process(&self) -> BorrowedFd<'_> {
        self.process.as_fd()
    }

    /// Returns a descriptor that becomes readable when the process ends.
    pub fn liveness(&self) -> BorrowedFd<'_> {
        self.liveness.as_fd()
    }

    /// Returns whether the process has ended. The result is true at the latest when the kernel has
    /// killed another process of the namespace because of that end.
    pub fn has_ended(&self) -> bool {
        crate::poll::readable(self.liveness(), Duration::ZERO)
    }

    /// Waits for the exit status of the process for at most `limit`, without reaping it. Returns
    /// `None` after the limit, or if the process has been reaped. The status exists once every
    /// process of the namespace has been waited for.
    pub fn status(&self, limit: Duration) -> Option<ExitStatus> {
        if !crate::poll::readable(self.process(), limit) {
            return None;
        }
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = rustix::process::waitid(WaitId::PidFd(self.process()), options).ok()??;
        // The low byte of a wait status is the signal, the next one the exit code (wait(2)).
        let code = status.exit_status().map(|code| code << 8);
        code.or(status.terminating_signal()).map(ExitStatus::from_raw)
    }
}

/// Runs the first process. It is a forked child, so it must not allocate, lock or panic.
fn init(parent: RawFd) -> ! {
    // SAFETY: these are plain system calls on constants, this process and one byte of its stack.
    // The closed descriptors belong only to this process, because it does not share its file table.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::prctl(libc::PR_SET_NAME, c"longhaul-site".as_ptr());
        // A new session detaches the process from the terminal, so that Ctrl-C and hangups do not
        // reach it.
        libc::setsid();
        for signal in 1..32 {
            libc::signal(signal, libc::SIG_DFL);
        }
        // The kernel reaps children of a process that ignores SIGCHLD.
        libc::signal(libc::SIGCHLD, libc::SIG_IGN);
        libc::mount(
            c"proc".as_ptr(),
            c"/proc".as_ptr(),
            c"proc".as_ptr(),
            libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC,
            std::ptr::null(),
        );
        // If the parent died before the death signal was set, the other end of the socket is closed
        // and the write fails (without SIGPIPE: a first process ignores signals without a handler).
        if libc::write(parent, c"".as_ptr().cast(), 1) != 1 {
            libc::_exit(1);
        }
        // The parent's devices and pipes must not stay open in this process. The exception is the
        // socket whose end of file shows the end of this process.
        libc::dup2(parent, 0);
        libc::syscall(libc::SYS_close_range, 1, libc::c_uint::MAX, 0);
        loop {
            libc::pause();
        }
    }
}
