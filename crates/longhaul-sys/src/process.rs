//! This process and its children: the limit of open descriptors, the foreground of the terminal, and children that end with their thread.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Returns the soft limit; `u64::MAX` means unlimited.
pub fn descriptor_limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Raises the soft limit to the hard limit, which needs no privilege, and returns it. Programs that
/// use `select(2)` expect the soft limit of 1024, so a process that starts such programs should not
/// call this.
///
/// # Errors
/// The kernel refuses; the limit is unchanged.
pub fn raise_descriptor_limit() -> io::Result<u64> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    Ok(descriptor_limit())
}

/// Returns whether this process is in the foreground of the terminal on its standard input, so that
/// Ctrl-C reaches it and its children in the same process group.
pub fn is_foreground() -> bool {
    // SAFETY: both calls only query the kernel about this process.
    unsafe { libc::tcgetpgrp(libc::STDIN_FILENO) == libc::getpgrp() }
}

/// Makes the kernel kill the process of `command` when the thread that starts it ends, also if this
/// process is killed (prctl(2), `PR_SET_PDEATHSIG`). The thread must wait for the process.
pub fn die_with_thread(command: &mut Command) {
    let parent = std::process::id();
    let set = move || {
        // SAFETY: prctl and getppid are system calls on constants, and async-signal-safe.
        let (done, now) =
            unsafe { (libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL), libc::getppid()) };
        if done != 0 {
            return Err(io::Error::last_os_error());
        }
        // The parent may have died before the signal was set.
        if u32::try_from(now) == Ok(parent) {
            Ok(())
        } else {
            Err(io::ErrorKind::BrokenPipe.into())
        }
    };
    // SAFETY: the closure makes only async-signal-safe calls, and allocates nothing.
    unsafe { command.pre_exec(set) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_to_the_hard_one() {
        let hard = getrlimit(Resource::Nofile).maximum;
        assert_eq!(raise_descriptor_limit().unwrap(), hard.unwrap_or(u64::MAX));
        assert_eq!(getrlimit(Resource::Nofile).current, hard);
    }

    #[test]
    fn a_child_dies_with_the_thread_that_started_it() {
        let child = std::thread::spawn(|| {
            let mut command = Command::new("sleep");
            command.arg("60");
            die_with_thread(&mut command);
            command.spawn().unwrap()
        });
        let status = child.join().unwrap().wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGKILL));
    }
}
