//! Diagnoses why namespaces cannot be created: distributions restrict them by different settings.

use std::fs;
use std::io;

use rustix::io::Errno;

use super::Diagnosis;

/// The system settings that decide whether this process may create namespaces.
#[derive(Debug, Clone, Default)]
pub(super) struct System {
    /// AppArmor (Ubuntu since 23.10) restricts user namespaces: programs without a profile get a
    /// user namespace without capabilities.
    apparmor_restricts: bool,
    /// Debian's setting, also in hardened kernels, that forbids user namespaces to unprivileged
    /// users.
    users_excluded: bool,
    /// The limits `user.max_*_namespaces` by name, for the kinds that a site needs (namespaces(7)).
    limits: Vec<(&'static str, u64)>,
    /// A seccomp filter is active, as in a container.
    filtered: bool,
    /// The user is root, possibly without the capabilities.
    root: bool,
}

impl System {
    /// Reads the settings for this process.
    pub(super) fn read() -> Self {
        let number = |file: &str| -> Option<u64> {
            fs::read_to_string(format!("/proc/sys/{file}")).ok()?.trim().parse().ok()
        };
        let limit =
            |kind: &'static str| Some((kind, number(&format!("user/max_{kind}_namespaces"))?));
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        System {
            apparmor_restricts: number("kernel/apparmor_restrict_unprivileged_userns") == Some(1),
            users_excluded: number("kernel/unprivileged_userns_clone") == Some(0),
            limits: ["user", "net", "mnt", "pid"].into_iter().filter_map(limit).collect(),
            // SECCOMP_MODE_FILTER (seccomp(2)).
            filtered: status.lines().any(|line| line == "Seccomp:\t2"),
            root: rustix::process::geteuid().is_root(),
        }
    }
}

/// Returns the cause and the remedy, from the kernel's error and the system's settings.
pub(super) fn diagnose(error: &io::Error, system: &System) -> Diagnosis {
    // Writing an identity map fails with EACCES, creating a namespace with EPERM.
    let denied = error.kind() == io::ErrorKind::PermissionDenied;
    // A limit of zero returns ENOSPC, as a limit that is reached does.
    let exhausted = Errno::from_io_error(error) == Some(Errno::NOSPC);
    match error {
        _ if denied && system.root => Diagnosis::new(
            "root lacks CAP_SYS_ADMIN or CAP_NET_ADMIN here, as in a container",
            "give the container both: --cap-add SYS_ADMIN --cap-add NET_ADMIN",
        ),
        _ if denied && system.apparmor_restricts => Diagnosis::new(
            "AppArmor denies user namespaces to programs without a profile",
            "run it with sudo, or allow them: sudo sysctl -w \
             kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        _ if denied && system.users_excluded => Diagnosis::new(
            "user namespaces are disabled for ordinary users",
            "run it with sudo, or allow them: sudo sysctl -w kernel.unprivileged_userns_clone=1",
        ),
        _ if denied && system.filtered => Diagnosis::new(
            "a seccomp filter, for example of a container, forbids this process to create namespaces",
            "give the container --cap-add SYS_ADMIN --cap-add NET_ADMIN, or --security-opt \
             seccomp=unconfined",
        ),
        _ if denied => Diagnosis::new(
            "CAP_SYS_ADMIN is missing and user namespaces are not permitted here",
            "run it with sudo; in a container, give it --cap-add SYS_ADMIN --cap-add NET_ADMIN",
        ),
        _ if exhausted => {
            let least = system.limits.iter().min_by_key(|(_, limit)| *limit);
            let (kind, limit) = least.copied().unwrap_or(("user", 0));
            Diagnosis::new(
                format!(
                    "the limit of namespaces is reached (user.max_{kind}_namespaces is {limit})"
                ),
                format!(
                    "run it with sudo, or raise the limit: sudo sysctl -w \
                     user.max_{kind}_namespaces=15000"
                ),
            )
        }
        _ => Diagnosis::new(
            "the kernel refused to create them",
            "run it with sudo on a kernel with user, network, mount and PID namespaces",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_diagnosis_names_the_switch_that_is_off() {
        let open = System { limits: vec![("user", 90_000), ("net", 90_000)], ..System::default() };
        let apparmor = System { apparmor_restricts: true, ..open.clone() };
        let clone = System { users_excluded: true, ..open.clone() };
        let filter = System { filtered: true, ..open.clone() };
        let root = System { root: true, filtered: true, ..open.clone() };
        let limits = vec![("user", 90_000), ("net", 0), ("pid", 90_000)];
        let limited = System { limits, apparmor_restricts: true, ..open.clone() };
        for (error, system, reason, remedy) in [
            (Errno::PERM, &apparmor, "AppArmor", "kernel.apparmor_restrict_unprivileged_userns=0"),
            (Errno::ACCESS, &apparmor, "AppArmor", "kernel.apparmor_restrict"),
            (
                Errno::PERM,
                &clone,
                "disabled for ordinary users",
                "kernel.unprivileged_userns_clone=1",
            ),
            (Errno::PERM, &filter, "seccomp", "--security-opt seccomp=unconfined"),
            (Errno::PERM, &root, "root lacks CAP_SYS_ADMIN", "--cap-add NET_ADMIN"),
            (Errno::PERM, &open, "CAP_SYS_ADMIN is missing", "--cap-add NET_ADMIN"),
            (Errno::NOSPC, &limited, "max_net_namespaces is 0", "user.max_net_namespaces=15000"),
            (Errno::INVAL, &open, "the kernel refused", "PID namespaces"),
        ] {
            let diagnosis = diagnose(&error.into(), system);
            assert!(diagnosis.reason.contains(reason), "{diagnosis:?}");
            assert!(diagnosis.remedy.contains(remedy), "{diagnosis:?}");
        }
    }
}
