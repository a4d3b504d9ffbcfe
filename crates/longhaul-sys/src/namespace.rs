//! Namespaces of one thread, and the first process of a new PID namespace.
//!
//! See `namespaces(7)`, `pid_namespaces(7)` and `user_namespaces(7)`.

use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use rustix::process::{Pid, PidfdFlags, Signal};
use rustix::thread::{ThreadNameSpaceType, UnshareFlags};

/// Puts the calling process into a new user namespace in which it has every capability and keeps
/// its user and group id.
///
/// # Errors
/// `InvalidInput` when the process has more than one thread; `PermissionDenied` or `ENOSPC` when
/// the system does not let this user make user namespaces.
pub fn enter_user_namespace() -> io::Result<()> {
    let user = rustix::process::geteuid().as_raw();
    let group = rustix::process::getegid().as_raw();
    // SAFETY: the file table stays shared: UnshareFlags::FILES is not among the flags.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER) }?;
    // Without this the kernel takes no group map from a process without CAP_SETGID outside.
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
}

/// Puts the calling thread into new network, mount and UTS namespaces, and its later children into
/// a new PID namespace. No mount made from now on is seen outside; what is mounted outside later is
/// seen inside, and what is unmounted there is not held.
///
/// # Errors
/// `PermissionDenied` without `CAP_SYS_ADMIN`.
pub fn enter_site_namespaces() -> io::Result<()> {
    use rustix::mount::MountPropagationFlags as Propagation;
    let flags =
        UnshareFlags::NEWNET | UnshareFlags::NEWNS | UnshareFlags::NEWPID | UnshareFlags::NEWUTS;
    // SAFETY: the file table stays shared: UnshareFlags::FILES is not among the flags.
    unsafe { rustix::thread::unshare_unsafe(flags) }?;
    rustix::mount::mount_change("/", Propagation::DOWNSTREAM | Propagation::REC)?;
    Ok(())
}

/// A network namespace without a name, which lives as long as this, or a socket in it, does.
#[derive(Debug)]
pub struct NetworkNamespace {
    handle: OwnedFd,
}

impl NetworkNamespace {
    /// Makes a new one and puts the calling thread into it.
    ///
    /// # Errors
    /// `PermissionDenied` without `CAP_SYS_ADMIN`.
    pub fn enter_new() -> io::Result<Self> {
        // SAFETY: the file table stays shared: UnshareFlags::FILES is not among the flags.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
        Self::current()
    }

    /// That of the calling thread.
    ///
    /// # Errors
    /// `/proc` is not there, or shows another PID namespace.
    pub fn current() -> io::Result<Self> {
        let handle = std::fs::File::open("/proc/thread-self/ns/net")?.into();
        Ok(NetworkNamespace { handle })
    }

    /// Puts the calling thread into this namespace.
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

/// Puts the calling process where `process` lives: into its network, mount and UTS namespaces, its
/// children into its PID namespace, and with `user` first into its user namespace. The working
/// directory becomes the root.
///
/// # Errors
/// `InvalidInput` when the calling process has more than one thread, is in that user namespace
/// already, or is not above that PID namespace; `PermissionDenied` for another user's process;
/// `ESRCH` when it has ended.
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

/// The first process of a PID namespace: it adopts and reaps orphans and does nothing else.
///
/// When it ends, the kernel kills every process of its namespace; and it ends with the thread that
/// started it, however that ends.
#[derive(Debug)]
pub struct Init {
    pid: Pid,
    handle: OwnedFd,
}

impl Init {
    /// Forks the first process of the PID namespace that the calling thread's children enter, and
    /// has it mount that namespace's `/proc` in the thread's mount namespace, where that is
    /// permitted; containers may forbid it, and the processes inside then see the outer one.
    ///
    /// # Errors
    /// The fork failed, or the new process died at once.
    pub fn start() -> io::Result<Self> {
        let (mut ours, theirs) = UnixStream::pair()?;
        // SAFETY: the child of this many-threaded process runs only init, which makes
        // async-signal-safe calls alone and never returns.
        let pid = match unsafe { libc::fork() } {
            -1 => return Err(io::Error::last_os_error()),
            0 => init(theirs.as_raw_fd()),
            pid => pid,
        };
        drop(theirs);
        let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidData)?;
        ours.read_exact(&mut [0])?;
        let handle = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
        Ok(Init { pid, handle })
    }

    /// A handle to the process, which [`join`] takes.
    pub fn handle(&self) -> &OwnedFd {
        &self.handle
    }

    /// Kills every process of the namespace.
    pub fn kill(&self) {
        // It is our child and not yet reaped, so the id is still its own.
        let _ = rustix::process::kill_process(self.pid, Signal::KILL);
    }

    /// Reaps the process if it has ended. It ends after the last process of its namespace, and
    /// those of them that are our children must be waited for first.
    pub fn reaped(&self) -> bool {
        let options = rustix::process::WaitOptions::NOHANG;
        !matches!(rustix::process::waitpid(Some(self.pid), options), Ok(None))
    }
}

/// What the first process does. Runs in a forked child: no allocation, no lock, no panic.
fn init(parent: RawFd) -> ! {
    // SAFETY: plain system calls on constants, on this process and on one byte of its stack; the
    // descriptors closed belong to nobody else, since this process is alone in its file table.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::prctl(libc::PR_SET_NAME, c"longhaul-site".as_ptr());
        // Away from the terminal, so that neither its keys nor its closing reach this process.
        libc::setsid();
        for signal in 1..32 {
            libc::signal(signal, libc::SIG_DFL);
        }
        // The kernel reaps for a parent that ignores this.
        libc::signal(libc::SIGCHLD, libc::SIG_IGN);
        libc::mount(
            c"proc".as_ptr(),
            c"/proc".as_ptr(),
            c"proc".as_ptr(),
            libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC,
            std::ptr::null(),
        );
        // If the parent died before the death signal was set, nobody holds the other end and the
        // write fails (without SIGPIPE: a first process ignores what it does not handle).
        if libc::write(parent, c"".as_ptr().cast(), 1) != 1 {
            libc::_exit(1);
        }
        // Devices and pipes of the parent must not live on in here.
        libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, 0);
        loop {
            libc::pause();
        }
    }
}
