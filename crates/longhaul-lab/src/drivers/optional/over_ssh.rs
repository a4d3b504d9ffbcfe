//! Tools that start their far half over ssh, through a private sshd.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use longhaul_core::plan::Workload;
use longhaul_core::result::Guarantees;
use longhaul_core::text::shell_quoted;

use super::super::{Job, sshd};
use super::{Programs, Tool, VersionSource, encrypted, has, path_with, plain};
use crate::LabError;

const BASE: Tool = Tool {
    name: "",
    programs: &[],
    version: VersionSource::Line("--version"),
    workload: Workload::Disk,
    trees: true,
    many_clients: true,
    guarantees: encrypted,
    streams: None,
    window: None,
    server: |job, _| sshd::private_server(job).map(Some),
    client: |_, _| Err(LabError::Task { tool: "" }),
    read: None,
    goes_far: false,
    untried: None,
    found_in: Programs { only: None },
};

pub(super) const TOOLS: &[Tool] = &[
    // https://www.slac.stanford.edu/~abh/bbcp/: the data connections are in clear text.
    Tool {
        name: "bbcp",
        programs: &["bbcp", "ssh", "sshd", "ssh-keygen"],
        guarantees: |options| Guarantees {
            encrypted: false,
            verified: has(options, "-e"),
            synced: has(options, "-y"),
        },
        streams: Some("-s"),
        window: Some("-w"),
        client: |job, programs| {
            let task = job.disk("bbcp")?;
            // bbcp replaces %I by the identity, %U by the user and %H by the host.
            let remote = format!("ssh -x -a %I -l %U %H {}", programs.get("bbcp").display());
            if !task.tree {
                let mut command = with_ssh(job, programs, "bbcp")?;
                command.args(["-f", "-S", &remote, "-T", &remote]).args(job.options);
                command.arg(task.source).arg(far_path(job)?);
                return Ok(command);
            }
            // bbcp copies the contents of the directory of -d into an existing directory.
            let mut command = with_ssh(job, programs, "sh")?;
            let host = shell_quoted(&sshd::destination_host(job)?).into_owned();
            // Two shells read the name.
            let make = format!("mkdir -p {}", shell_quoted(&task.destination.to_string_lossy()));
            let make = shell_quoted(&make);
            command.args(["-c", &format!("ssh -x {host} {make} && exec \"$@\""), "sh"]);
            command.arg(programs.get("bbcp")).args(["-f", "-S", &remote, "-T", &remote]);
            command.args(job.options).args(["-r", "-d"]).arg(task.source).arg(".");
            command.arg(far_path(job)?);
            Ok(command)
        },
        ..BASE
    },
    // https://bbftp.in2p3.fr: ssh starts the daemon, data connections are in clear text.
    Tool {
        name: "bbftp",
        programs: &["bbftp", "bbftpd", "ssh", "sshd", "ssh-keygen"],
        version: VersionSource::Line("-v"),
        trees: false,
        guarantees: plain,
        streams: Some("-p"),
        window: None,
        client: |job, programs| {
            let task = job.single_file("bbftp")?;
            let mut command = with_ssh(job, programs, "bbftp")?;
            let daemon = format!("{} -s", programs.get("bbftpd").display());
            command.args(["-S", "-L", "ssh -q", "-E", &daemon, "-u", &sshd::user()?]);
            command.args(job.options);
            let (from, to) = (task.source.display(), task.destination.display());
            command.args(["-e", &format!("put {from} {to}")]).arg(job.far);
            Ok(command)
        },
        ..BASE
    },
    // https://github.com/upa/mscp: one copy over several ssh connections.
    Tool {
        name: "mscp",
        programs: &["mscp", "ssh", "sshd", "ssh-keygen"],
        version: VersionSource::Line("-h"),
        streams: Some("-n"),
        client: |job, programs| {
            let task = job.disk("mscp")?;
            let mut command = Command::new(programs.get("mscp"));
            command.args(ssh_files(job)).args(["-P", &sshd::PORT.to_string()]);
            command.args(job.options).arg(task.source).arg(far_path(job)?);
            Ok(command)
        },
        ..BASE
    },
    // https://www.psc.edu/hpn-ssh-home/: scp without the 2 MiB window, with its own sshd.
    Tool {
        name: "hpn-ssh",
        programs: &["hpnssh", "hpnscp", "hpnsshd", "ssh-keygen"],
        version: VersionSource::Line("-V"),
        server: |job, programs| {
            let mut server = sshd::private_server(job)?;
            let mut command = Command::new(programs.get("hpnsshd"));
            command.args(server.command.get_args());
            server.command = command;
            Ok(Some(server))
        },
        client: |job, programs| {
            let task = job.disk("hpn-ssh")?;
            let mut command = Command::new(programs.get("hpnscp"));
            command.args(["-S".into(), programs.get("hpnssh")]).args(sshd::client_options(job));
            command.args(task.tree.then_some("-r")).args(job.options).arg(task.source);
            command.arg(far_path(job)?);
            Ok(command)
        },
        ..BASE
    },
    // https://github.com/esnet/EScp: encrypted with AES-GCM; ssh starts the receiver.
    Tool {
        name: "escp",
        programs: &["escp", "ssh", "sshd", "ssh-keygen"],
        streams: Some("--threads"),
        client: |job, programs| {
            let task = job.disk("escp")?;
            let mut command = with_ssh(job, programs, "escp")?;
            command.args(task.tree.then_some("-r")).args(job.options).arg(task.source);
            command.arg(far_path(job)?);
            Ok(command)
        },
        untried: Some("its public source was not built"),
        ..BASE
    },
    // https://github.com/crazyscot/qcp: QUIC with keys exchanged over ssh; single files only.
    Tool {
        name: "qcp",
        programs: &["qcp", "ssh", "sshd", "ssh-keygen"],
        trees: false,
        client: |job, programs| {
            let task = job.single_file("qcp")?;
            let mut command = with_ssh(job, programs, "qcp")?;
            command.args(job.options).arg(task.source).arg(far_path(job)?);
            Ok(command)
        },
        untried: Some("its public source was not built"),
        ..BASE
    },
    // https://github.com/LabAdvComp/UDR: rsync over UDT, in clear text unless -n is given; ssh
    // starts the far half. Option -c names its program there; older versions have no option for the
    // port of ssh.
    Tool {
        name: "udr",
        programs: &["udr", "rsync", "ssh", "sshd", "ssh-keygen"],
        guarantees: |options| Guarantees {
            // rsync compares a checksum of each complete file.
            encrypted: has(options, "-n"),
            verified: true,
            synced: false,
        },
        client: |job, programs| {
            let task = job.disk("udr")?;
            let mut command = with_ssh(job, programs, "udr")?;
            command.arg("-c").arg(programs.get("udr")).args(job.options).args(["rsync", "-a"]);
            // The trailing slash copies the contents of the directory instead of the directory
            // itself.
            let slash = if task.tree { "/" } else { "" };
            command.arg(format!("{}{slash}", task.source.display()));
            command.arg(format!("{}{slash}", far_path(job)?));
            Ok(command)
        },
        ..BASE
    },
    // https://www.ibm.com/products/aspera: FASP over UDP, encrypted unless -T is given.
    Tool {
        name: "aspera",
        programs: &["ascp", "ssh", "sshd", "ssh-keygen"],
        version: VersionSource::Line("-A"),
        guarantees: |options| Guarantees {
            encrypted: !has(options, "-T"),
            verified: false,
            synced: false,
        },
        client: |job, programs| {
            let task = job.disk("aspera")?;
            let mut command = Command::new(programs.get("ascp"));
            command.args(["-q", "-P", &sshd::PORT.to_string(), "-i"]);
            command.arg(job.private.join("user_key")).args(job.options).arg(task.source);
            command.arg(far_path(job)?);
            Ok(command)
        },
        untried: Some("a commercial program"),
        ..BASE
    },
];

/// Returns the destination as `user@far:/path`.
fn far_path(job: &Job<'_>) -> Result<String, LabError> {
    let task = job.disk("ssh")?;
    Ok(format!("{}:{}", sshd::destination_host(job)?, task.destination.display()))
}

/// Returns the options of OpenSSH that name the files of the private sshd.
fn ssh_files(job: &Job<'_>) -> Vec<String> {
    let dir = job.private.display();
    vec![
        "-i".to_owned(),
        format!("{dir}/user_key"),
        "-o".to_owned(),
        format!("UserKnownHostsFile={dir}/known_hosts"),
    ]
}

/// Returns the command of a tool that starts `ssh` itself. Its PATH begins with an `ssh` that
/// connects only to the private sshd.
fn with_ssh(job: &Job<'_>, programs: &Programs, tool: &str) -> Result<Command, LabError> {
    let dir = job.private.join("bin");
    fs::create_dir_all(&dir).map_err(LabError::file("create", &dir))?;
    let file = dir.join("ssh");
    let options = sshd::client_options(job);
    let words: Vec<_> = options.iter().map(|word| shell_quoted(word)).collect();
    let ssh = programs.get("ssh");
    let text = format!("#!/bin/sh\nexec {} {} \"$@\"\n", ssh.display(), words.join(" "));
    sshd::write(&file, &text)?;
    let executable = fs::Permissions::from_mode(0o700);
    fs::set_permissions(&file, executable).map_err(LabError::file("set permissions of", &file))?;
    let mut command = Command::new(programs.get(tool));
    command.env("PATH", path_with(&dir));
    Ok(command)
}
