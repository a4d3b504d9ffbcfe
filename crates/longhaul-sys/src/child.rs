//! Child processes that do not outlive the thread that starts them.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

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
        match u32::try_from(now) == Ok(parent) {
            true => Ok(()),
            false => Err(io::ErrorKind::BrokenPipe.into()),
        }
    };
    // SAFETY: the closure makes only async-signal-safe calls, and allocates nothing.
    unsafe { command.pre_exec(set) };
}

#[cfg(test)]
mod tests {
    use super::*;

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
