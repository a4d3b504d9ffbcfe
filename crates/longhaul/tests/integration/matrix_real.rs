//! `longhaul matrix` over real paths with a private sshd, and failing tools over both kinds of
//! paths.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use longhaul_core::result::{Outcome, RunRecord};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::host::{PROGRAM, TestHost, assert_code, text, wait_for};
use crate::matrix::host_with_plan;
use crate::ssh::Sshd;

/// A stand-in for ssh that ignores options and host and runs the command on this host.
const STAND_IN_SSH: &str = r#"#!/bin/sh
while [ "${1#-}" != "$1" ]; do
    case $1 in -o) shift 2 ;; *) shift ;; esac
done
shift
exec sh -c "$*"
"#;

/// Installs a program with this name at the front of PATH.
fn program(host: &TestHost, name: &str, script: &str) {
    executable(&host.near("bin"), name, script);
}

fn executable(dir: &Path, name: &str, script: &str) {
    fs::create_dir_all(dir).unwrap();
    fs::write(dir.join(name), script).unwrap();
    fs::set_permissions(dir.join(name), fs::Permissions::from_mode(0o755)).unwrap();
}

/// Runs the matrix of the host's plan with the output directory `out`.
fn matrix(host: &TestHost) -> Command {
    let program = Path::new(PROGRAM).parent().unwrap();
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{}:{path}", host.near("bin").display(), program.display());
    let mut command = host.longhaul(&["matrix", "plan.toml", "--out", "out"]);
    command.env("PATH", path);
    command
}

fn runs(host: &TestHost) -> Vec<RunRecord> {
    let read = |path| serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let runs = fs::read_dir(host.near("out/runs")).unwrap();
    runs.map(|entry| read(entry.unwrap().path())).collect()
}

/// Creates a host with an ssh alias `dtn`, and a plan with the real path to it. ssh takes the home
/// directory from the password database, so its configuration is named explicitly.
fn host_with_dtn(entries: &str) -> (TestHost, Sshd) {
    let host = TestHost::new();
    let sshd = Sshd::start(&host);
    let directory = host.far("copies").display().to_string();
    let plan =
        format!("name = \"real\"\n[real]\nfar = \"dtn\"\ndirectory = \"{directory}\"\n{entries}");
    fs::write(host.near("plan.toml"), plan).unwrap();
    let config = host.home().join("ssh_config");
    let (port, key) = (sshd.port, host.home().join("sshd/user_key"));
    let text = format!(
        "Host dtn\n HostName 127.0.0.1\n Port {port}\n IdentityFile {}\n IdentitiesOnly yes\n \
         StrictHostKeyChecking no\n UserKnownHostsFile /dev/null\n",
        key.display()
    );
    fs::write(&config, text).unwrap();
    for name in ["ssh", "scp", "sftp"] {
        let script = format!("#!/bin/sh\nexec /usr/bin/{name} -F {} \"$@\"\n", config.display());
        program(&host, name, &script);
    }
    (host, sshd)
}

#[test]
fn a_matrix_without_runs_leaves_no_directory() {
    let (host, sshd) = host_with_dtn("[[entries]]\ntool = \"iperf3\"\nworkload = \"memory\"\n");
    drop(sshd);
    for existing in [false, true] {
        if existing {
            fs::create_dir(host.near("out")).unwrap();
        }
        let output = matrix(&host).output().unwrap();
        assert_code(&output, 3);
        assert!(text(&output.stderr).contains("ssh dtn true failed"), "{}", text(&output.stderr));
        assert_eq!(host.near("out").exists(), existing);
    }
    assert_eq!(fs::read_dir(host.near("out")).unwrap().count(), 0);
}

/// Asserts that the far end has no copies, and that other files there are unchanged.
fn assert_far_is_clean(host: &TestHost) {
    assert_eq!(fs::read_dir(host.far("copies")).unwrap().count(), 0);
    let beside: Vec<_> = fs::read_dir(host.far("")).unwrap().map(Result::unwrap).collect();
    assert_eq!(beside.len(), 1, "{beside:?}");
}

#[test]
fn a_real_path_runs_far_commands_over_ssh() {
    let host = host_with_plan(
        r#"name = "real"
[real]
far = "me@127.0.0.1"
[memory]
seconds = 1
omit_seconds = 0
[[entries]]
tool = "longhaul test"
workload = "memory"
"#,
    );
    program(&host, "ssh", STAND_IN_SSH);
    let run = matrix(&host).arg("--json").output().unwrap();
    assert_code(&run, 0);
    let document: Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!(document["schema"], "longhaul.matrix/1");
    let file = fs::read_dir(host.near("out/runs")).unwrap().next().unwrap().unwrap().path();
    let run: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    assert_eq!(run["condition"]["real"], "127.0.0.1");
    assert!(run["throughput_bps"].as_u64().unwrap() > 0, "{run}");
}

#[test]
fn copies_over_a_real_path_use_ssh_and_are_compared() {
    let tools = ["longhaul cp", "scp", "rsync", "sftp", "tar over ssh"];
    let entry =
        |tool: &str| format!("[[entries]]\ntool = \"{tool}\"\nworkload = [\"disk\", \"few\"]\n");
    let works = "[disk]\nsize = \"8MiB\"\n[[workloads]]\nname = \"few\"\nfiles = 3\n\
                 size = \"1MiB\"\nto = \"memory\"\n";
    let (host, _sshd) = host_with_dtn(&(works.to_owned() + &tools.map(entry).concat()));
    let output = matrix(&host).arg("--json").output().unwrap();
    assert_code(&output, 0);
    assert!(text(&output.stderr).contains("of disk at the far end"), "{}", text(&output.stderr));
    let mut seen = BTreeSet::new();
    for run in runs(&host) {
        assert_eq!(run.outcome, Outcome::Ok, "{run:#?}");
        assert!(run.throughput_bps.unwrap().bps() > 0);
        assert!(run.durable_seconds.unwrap() >= run.seconds.unwrap());
        assert_eq!((run.far_command, run.far_caches_kept), (None, true));
        assert_eq!(run.notes, Vec::<String>::new(), "{}", run.label);
        let to = if run.label.ends_with("few") { "/dev/shm" } else { "/copies" };
        let place = format!("{to}/longhaul-run-");
        // sftp reads its commands from a file.
        let named = run.near_command.contains(&place) || run.tool == "sftp";
        assert!(named, "{}", run.near_command);
        seen.insert(run.label);
    }
    let expected = tools.iter().flat_map(|t| [format!("{t}, disk"), format!("{t}, few")]);
    assert_eq!(seen, expected.collect());
    assert_far_is_clean(&host);
    // The report must not need the far end: it is rendered from the archive.
    let again = host.run(&["report", "out"]);
    assert_code(&again, 0);
    assert!(text(&again.stdout).contains("longhaul cp"), "{}", text(&again.stdout));
    let page = fs::read_to_string(host.near("out/report.html")).unwrap();
    assert!(page.contains("kept at the far end"), "the caches of the far end are not told");
}

#[test]
fn ctrl_c_leaves_nothing_at_the_far_end() {
    // At 0.25 MB/s the copy takes 30 s.
    let (host, _sshd) = host_with_dtn(
        "[disk]\nsize = \"8MiB\"\n[[entries]]\ntool = \"scp\"\nworkload = \"disk\"\n\
         options = [\"-l\", \"2000\"]\n",
    );
    let child = matrix(&host).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("the copy", || {
        let runs = fs::read_dir(host.far("copies")).into_iter().flatten().flatten();
        runs.into_iter().any(|run| run.path().join("copy").exists())
    });
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_code(&child.wait_with_output().unwrap(), 130);
    assert_eq!(runs(&host).len(), 0);
    assert_far_is_clean(&host);
}

#[test]
fn a_far_end_without_space_is_reported_before_the_start() {
    let (host, _sshd) = host_with_dtn(
        "[disk]\nsize = \"8MiB\"\n[[entries]]\ntool = \"scp\"\nworkload = \"disk\"\n",
    );
    let line = "/dev/sdb1 10240 6144 4096 60% /data";
    executable(&host.home().join("bin"), "df", &format!("#!/bin/sh\necho '{line}'\n"));
    let output = matrix(&host).output().unwrap();
    assert_code(&output, 5);
    let printed = text(&output.stderr);
    let expected =
        format!("the disk of {} at dtn has 4.00 MiB free, but", host.far("copies").display());
    assert!(printed.contains(&expected), "{printed}");
    assert!(!host.near("out").exists() && !host.far("copies").exists());
    let elsewhere = matrix(&host).args(["--scratch", "."]).output().unwrap();
    assert_code(&elsewhere, 2);
    assert!(text(&elsewhere.stderr).contains("the directory of [real] in the plan"));
    fs::write(
        host.near("plan.toml"),
        "name = \"x\"\n[real]\nfar = \"dtn\"\n\
        directory = \"~/x\"\n[[entries]]\ntool = \"scp\"\nworkload = \"disk\"\n",
    )
    .unwrap();
    let odd = matrix(&host).output().unwrap();
    assert_code(&odd, 2);
    assert!(text(&odd.stderr).contains("plan.toml:4:13: real.directory is '~/x'"));
}

/// Returns the number of `sleep` processes with this duration.
fn sleepers(seconds: &str) -> usize {
    let wanted = format!("sleep\0{seconds}\0");
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|one| fs::read(one.path().join("cmdline")).ok());
    lines.filter(|line| line == wanted.as_bytes()).count()
}

/// Tests tools over emulated paths with a private sshd, and over real paths with the user's ssh.
#[test]
fn failing_tools_are_ended_and_recorded() {
    let entries = "[disk]\nsize = \"1MiB\"\n[[entries]]\ntool = \"scp\"\nworkload = \"disk\"\n\
                   [[entries]]\ntool = \"rsync\"\nworkload = \"disk\"\n\
                   [[entries]]\ntool = \"sftp\"\nworkload = \"disk\"\n";
    let plan =
        format!("name = \"bad\"\nlimit_seconds = 8\n[conditions]\nrtt = [\"0ms\"]\n{entries}");
    let (real, _sshd) = host_with_dtn(entries);
    let limited = fs::read_to_string(real.near("plan.toml")).unwrap();
    fs::write(real.near("plan.toml"), format!("limit_seconds = 8\n{limited}")).unwrap();
    for (host, options) in [
        (&host_with_plan(&plan), String::new()),
        (&real, format!("-F {}", real.home().join("ssh_config").display())),
    ] {
        // This tool omits the last byte of the copy.
        program(
            host,
            "scp",
            &format!(
                "#!/bin/sh\n/usr/bin/scp {options} \"$@\" || exit\nfor last; do :; done\n\
                 truncate -s -1 \"${{last#*:}}\"\n"
            ),
        );
        // The process is found by its argument, because process ids differ between namespaces.
        let seconds = format!("305.{}{}", std::process::id(), options.len());
        program(
            host,
            "rsync",
            &format!(
                "#!/bin/sh\n[ \"$1\" = --version ] && exec /usr/bin/rsync --version\n\
                 sleep {seconds} & echo thinking; wait\n"
            ),
        );
        program(
            host,
            "sftp",
            &format!(
                "#!/bin/sh\n/usr/bin/sftp {options} \"$@\" || exit\n\
                 setsid sleep {seconds} > /dev/null 2>&1 &\nsleep 0.3\n"
            ),
        );
        let output = matrix(host).output().unwrap();
        assert_code(&output, 7);
        let runs = runs(host);
        let run = |tool: &str| runs.iter().find(|run| run.tool == tool).unwrap();
        let failed = |tool: &str, expected: &str| match &run(tool).outcome {
            Outcome::Failed { reason } => assert!(reason.contains(expected), "{reason}"),
            other => panic!("{tool}: {other:?}"),
        };
        failed("scp", "has 1048575 bytes instead of 1048576");
        failed("rsync", "timed out after 8 s; last output: thinking");
        assert_eq!(sleepers(&seconds), 0, "what the tools started lives on");
        assert!(!matches!(run("sftp").outcome, Outcome::Failed { .. }), "{:?}", run("sftp"));
        let note = "sftp left 1 processes running; they were killed: sleep";
        assert!(run("sftp").notes.iter().any(|printed| printed == note), "{:?}", run("sftp").notes);
        let printed = text(&output.stdout);
        assert!(printed.contains("scp failed: the copy of"), "{printed}");
    }
    assert_far_is_clean(&real);
}
