//! Tests of the table with stand-ins for the tools.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::super::driver::ToolTask;
use super::super::{DiskTask, MemoryTask};
use super::*;

/// Writes a script for every program of the table, which prints its version or records its
/// arguments.
fn stand_ins(dir: &Path) {
    for tool in tools() {
        let mark = match tool.version {
            VersionSource::Line(_) => "",
            VersionSource::From(_, mark) | VersionSource::File(mark) => mark,
        };
        for program in tool.programs {
            let path = dir.join(program);
            let script = format!("#!/bin/sh\necho '{mark} 1.2' >&2\necho \"{program} 1.2 $@\"\n");
            fs::write(&path, script).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        }
    }
}

fn tool(name: &str, found_in: &Path) -> Tool {
    let mut all = tools();
    let found_in = Programs { only: Some(found_in.to_owned()) };
    Tool { found_in, ..all.find(|tool| tool.name == name).unwrap().clone() }
}

#[test]
fn an_absent_tool_names_the_missing_program() {
    let nowhere = tempfile::tempdir().unwrap();
    for one in tools() {
        let absent = tool(one.name, nowhere.path());
        assert_eq!(absent.detect(), Detected::Missing { program: one.programs[0] });
    }
}

#[test]
fn commands_are_those_of_each_tools_documentation() {
    let programs = tempfile::tempdir().unwrap();
    stand_ins(programs.path());
    // The expected arguments of the client after its name.
    for (name, expected) in [
        (
            "bbcp",
            "-f -S ssh -x -a %I -l %U %H P/bbcp -T ssh -x -a %I -l %U %H P/bbcp -s 8 \
                  /data/file USER@far:/scratch/copy",
        ),
        ("bbftp", "-S -L ssh -q -E P/bbftpd -s -u USER -p 8 -e put /data/file /scratch/copy far"),
        (
            "mscp",
            "-i J/user_key -o UserKnownHostsFile=J/known_hosts -P 2222 -n 8 /data/file \
                  USER@far:/scratch/copy",
        ),
        ("escp", "--threads 8 /data/file USER@far:/scratch/copy"),
        ("qcp", "/data/file USER@far:/scratch/copy"),
        ("udr", "-c P/udr rsync -a /data/file USER@far:/scratch/copy"),
        ("aspera", "-q -P 2222 -i J/user_key /data/file USER@far:/scratch/copy"),
        ("fdt", "-c far -p 54321 -noupdates -P 8 -d /scratch J/source/copy"),
        (
            "wdt",
            "-destination far -transfer_id longhaul -start_port 22356 -num_ports 8 \
                 -follow_symlinks -directory J/source",
        ),
        ("tsunami", "set port 46224 connect far get copy quit"),
        ("irods", "-f -N 8 -p /scratch/copy /data/file copy"),
        ("perftest", "-p 18515 -D 5 --report_gbits -F -u 20 -q 8 far"),
        ("uftp", "-p 1044 -M far -P far -R -1 -q -D copy /data/file"),
    ] {
        let tool = tool(name, programs.path());
        let Detected::Installed { version } = tool.detect() else { panic!("{name}") };
        assert!(version.contains("1.2"), "{version}");
        let options = tool.streams(8).unwrap_or_default();
        let said = said(&tool, programs.path(), &options, |job| tool.client(job).unwrap());
        assert_eq!(said, expected, "{name}");
    }
}

#[test]
fn servers_are_those_of_each_tools_documentation() {
    let programs = tempfile::tempdir().unwrap();
    stand_ins(programs.path());
    for (name, expected) in [
        ("fdt", "-p 54321 -noupdates"),
        ("wdt", "-directory /scratch -transfer_id longhaul -start_port 22356"),
        ("tsunami", "--port=46224"),
        ("irods", "-u"),
        ("perftest", "-p 18515 -D 5 --report_gbits -F -u 20"),
        ("uftp", "-d -p 1044 -D /scratch"),
    ] {
        let tool = tool(name, programs.path());
        let said =
            said(&tool, programs.path(), &[], |job| tool.server(job).unwrap().unwrap().command);
        assert_eq!(said, expected, "{name}");
    }
}

#[test]
fn both_ends_of_xdd_have_the_same_size_and_ports() {
    let programs = tempfile::tempdir().unwrap();
    stand_ins(programs.path());
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("file");
    fs::write(&source, [0; 1000]).unwrap();
    let tool = tool("xdd", programs.path());
    let options = ["-qd".to_owned(), "8".to_owned()];
    let task = DiskTask { source: &source, tree: false, destination: Path::new("/scratch/copy") };
    let (near, far) = ("near", "far");
    let task = ToolTask::Disk(task);
    let job = Job { near, far, ssh: None, options: &options, task, private: dir.path() };
    let server = tool.server(&job).unwrap().unwrap().command;
    for (command, end) in [(server, "isdest"), (tool.client(&job).unwrap(), "issrc")] {
        let line = command.get_args().last().unwrap().to_string_lossy().into_owned();
        assert!(line.contains(end), "{line}");
        assert!(line.contains("-e2e dest far:40010,8 -bytes 1000 -qd 8 && "), "{line}");
    }
}

/// Runs the command that `command` builds for a job of `tool`, with stand-ins in `programs`, and
/// returns the arguments after the name, with short names of paths and of the user.
fn said(
    tool: &Tool,
    programs: &Path,
    options: &[String],
    command: impl Fn(&Job<'_>) -> Command,
) -> String {
    let private = tempfile::tempdir().unwrap();
    let task = match tool.workload() {
        Workload::Memory => ToolTask::Memory(MemoryTask { seconds: 5, omit_seconds: 0 }),
        _ => ToolTask::Disk(DiskTask {
            source: Path::new("/data/file"),
            tree: false,
            destination: Path::new("/scratch/copy"),
        }),
    };
    let (near, far) = ("near", "far");
    let job = Job { near, far, ssh: None, options, task, private: private.path() };
    let mut command = command(&job);
    if !command.get_current_dir().is_none_or(Path::exists) {
        command.current_dir("/");
    }
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let user = super::super::sshd::user().unwrap();
    let said = said
        .replace(&private.path().display().to_string(), "J")
        .replace(&programs.display().to_string(), "P")
        .replace(&format!("{user}@"), "USER@")
        .replace(&format!("-u {user}"), "-u USER");
    said.trim().split_once(" 1.2 ").unwrap().1.to_owned()
}

#[test]
fn a_private_ssh_precedes_that_of_the_host() {
    let programs = tempfile::tempdir().unwrap();
    stand_ins(programs.path());
    let private = tempfile::tempdir().unwrap();
    let task = ToolTask::Disk(DiskTask {
        source: Path::new("/data/file"),
        tree: false,
        destination: Path::new("/scratch/copy"),
    });
    let (near, far) = ("near", "far");
    let job = Job { near, far, ssh: None, options: &[], task, private: private.path() };
    let command = tool("qcp", programs.path()).client(&job).unwrap();
    let path = command.get_envs().find(|(name, _)| *name == "PATH").unwrap().1.unwrap();
    let first = env::split_paths(path).next().unwrap();
    let output = Command::new(first.join("ssh")).args(["far", "true"]).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("-F none") && said.trim().ends_with("far true"), "{said}");
    assert!(said.contains(&format!("{}/user_key", private.path().display())), "{said}");
}

#[test]
fn a_directory_with_a_blank_survives_two_shells() {
    let programs = tempfile::tempdir().unwrap();
    stand_ins(programs.path());
    let private = tempfile::tempdir().unwrap();
    let task = ToolTask::Disk(DiskTask {
        source: Path::new("/data/tree"),
        tree: true,
        destination: Path::new("/scratch/a copy"),
    });
    let (near, far) = ("near", "far");
    let job = Job { near, far, ssh: None, options: &[], task, private: private.path() };
    let output = tool("bbcp", programs.path()).client(&job).unwrap().output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("mkdir -p '/scratch/a copy'\n"), "{said}");
}

#[test]
fn a_file_system_is_asked_of_the_kernel() {
    // Every Linux has the first file system, and none has the second.
    assert!(in_kernel("proc").is_some());
    assert!(in_kernel("no-such-file-system").is_none());
}
