//! Real-time scheduling of one thread; see `sched(7)`.

use std::io;

/// The kernel's `struct sched_param` (linux/sched/types.h). That of musl has more fields.
#[repr(C)]
struct SchedParam {
    priority: libc::c_int,
}

/// Gives the calling thread priority over all threads of ordinary priority; its children do not
/// inherit this. Real-time threads with a larger `priority`, 1 to 99, run first. The kernel
/// reserves 5 % of each second for ordinary threads (`kernel.sched_rt_runtime_us`).
///
/// # Errors
/// `PermissionDenied` without `CAP_SYS_NICE` in the initial user namespace.
pub fn run_first(priority: i32) -> io::Result<()> {
    let scheduling = SchedParam { priority };
    let policy = libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;
    // musl's sched_setscheduler() always fails (ENOSYS), so the system call is made directly.
    // SAFETY: the call reads one sched_param, which lives across it; 0 means the calling thread.
    let result =
        unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const scheduling) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
