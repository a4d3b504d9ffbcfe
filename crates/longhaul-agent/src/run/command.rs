//! The command line of a run.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use longhaul_engine::session::LocalAddress;
use longhaul_fleet::protocol::{Lease, Role, TestKind};

/// The paths that a command uses.
#[derive(Debug, Clone, Copy)]
pub(super) struct Paths<'a> {
    /// The program.
    pub(super) program: &'a Path,
    /// The directory with the keys of the run.
    pub(super) config: &'a Path,
    /// The data of a copy at the source, or the root of the server at the target.
    pub(super) data: Option<&'a Path>,
}

/// Returns the command of `lease`.
pub(super) fn command(lease: &Lease, paths: Paths<'_>) -> Command {
    let mut command = Command::new(paths.program);
    command.env("XDG_CONFIG_HOME", paths.config).env_remove("SSH_AUTH_SOCK");
    match lease.role {
        Role::Source => source_arguments(lease, paths.data, &mut command),
        Role::Target => {
            command.args(["serve", "--keys-only", "--port", &lease.port.to_string()]);
            if let Some(local) = lease.local {
                command.args(["--bind", &local.to_string()]);
            }
            if let Some(root) = paths.data {
                command.arg("--root").arg(root);
            }
        }
    }
    command
}

fn source_arguments(lease: &Lease, data: Option<&Path>, command: &mut Command) {
    let server = SocketAddr::new(lease.peer, lease.port).to_string();
    match lease.spec.kind {
        TestKind::Throughput => test_arguments(lease, &server, command),
        TestKind::Iperf3 => test_arguments(lease, &format!("iperf3://{server}"), command),
        TestKind::Nuttcp => test_arguments(lease, &format!("nuttcp://{server}"), command),
        TestKind::Path => {
            command.args(["path", &server, "--json"]);
        }
        TestKind::Copy | TestKind::Diagnose => {
            let name = if lease.spec.kind == TestKind::Copy { "cp" } else { "diagnose" };
            command.arg(name).arg("--json");
            if let Some(streams) = lease.spec.streams {
                command.args(["-P", &streams.to_string()]);
            }
            command.args(data).arg(format!("lh://{server}/data"));
        }
    }
    // Behind a network address translator the host does not have the address of the mesh.
    if let Some(local) = lease.local.filter(|local| LocalAddress::from(*local).check().is_ok()) {
        command.args(["--bind", &local.to_string()]);
    }
}

fn test_arguments(lease: &Lease, server: &str, command: &mut Command) {
    let spec = &lease.spec;
    command.args(["test", server, "--json", "-t", &spec.seconds.to_string()]);
    if let Some(streams) = spec.streams {
        command.args(["-P", &streams.to_string()]);
    }
    if let Some(rate) = spec.rate_bps {
        command.args(["-b", &rate.bps().to_string()]);
    }
    if spec.udp {
        command.arg("-u");
    }
    if let Some(congestion) = &spec.congestion {
        command.args(["-C", congestion]);
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::units::Rate;
    use longhaul_fleet::protocol::TestSpec;

    use super::*;

    fn line(role: Role, kind: TestKind, local: Option<&str>) -> String {
        let lease = Lease {
            run: "r".into(),
            fencing: 1,
            resources: vec![],
            test: "t".into(),
            role,
            spec: TestSpec {
                kind,
                seconds: 2,
                streams: Some(4),
                rate_bps: Some(Rate::from_bps(1_000_000)),
                udp: true,
                congestion: Some("bbr".into()),
                bytes: None,
            },
            source: "a".into(),
            destination: "b".into(),
            local: local.map(|address| address.parse().unwrap()),
            peer: "fd00::2".parse().unwrap(),
            port: 5290,
            peer_key: None,
            start_ms: 0,
            end_ms: 1,
        };
        let data = matches!(kind, TestKind::Copy | TestKind::Diagnose).then_some(Path::new("/d"));
        let paths = Paths { program: "lh".as_ref(), config: "/c".as_ref(), data };
        let command = command(&lease, paths);
        let words = command.get_args().map(|word| word.to_string_lossy().into_owned());
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn leases_become_command_lines() {
        use TestKind::{Copy, Diagnose, Iperf3, Path, Throughput};
        let test = "-t 2 -P 4 -b 1000000 -u -C bbr";
        for (role, kind, expected) in [
            (Role::Source, Throughput, format!("test [fd00::2]:5290 --json {test}")),
            (Role::Source, Iperf3, format!("test iperf3://[fd00::2]:5290 --json {test}")),
            (Role::Source, Path, "path [fd00::2]:5290 --json".to_owned()),
            (Role::Source, Copy, "cp --json -P 4 /d lh://[fd00::2]:5290/data".to_owned()),
            (Role::Source, Diagnose, "diagnose --json -P 4 /d lh://[fd00::2]:5290/data".to_owned()),
            (Role::Target, Copy, "serve --keys-only --port 5290 --root /d".to_owned()),
            (Role::Target, Throughput, "serve --keys-only --port 5290".to_owned()),
        ] {
            assert_eq!(line(role, kind, None), expected);
        }
        let bound = line(Role::Target, Throughput, Some("fd00::1"));
        assert_eq!(bound, "serve --keys-only --port 5290 --bind fd00::1");
        for kind in [Throughput, Path, Copy, Diagnose, Iperf3, TestKind::Nuttcp] {
            let bound = line(Role::Source, kind, Some("127.0.0.2"));
            assert!(bound.ends_with(" --bind 127.0.0.2"), "{bound}");
            // TEST-NET-1 (RFC 5737): this host does not have it.
            let elsewhere = line(Role::Source, kind, Some("192.0.2.77"));
            assert!(!elsewhere.contains("--bind"), "{elsewhere}");
        }
    }
}
