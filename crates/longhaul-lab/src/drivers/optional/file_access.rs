//! File systems over distance in user space, and uftp: the far end's files are mounted at the near
//! end, or accessed by an NFS client in user space, and written or read.
//!
//! A row that writes copies from the near end to the mounted directory; a row that reads copies from
//! the mounted directory of the far end to the near end. The option `record=SIZE` sets the size of
//! each read and write call, 1 MiB by default. A workload of many files measures metadata operations:
//! for each file, a write creates a lock file and a temporary file and renames the latter, as programs
//! do that replace files safely.

use std::path::{Path, PathBuf};
use std::process::Command;

use longhaul_core::plan::Workload;
use longhaul_core::result::Guarantees;
use longhaul_core::text::shell_quoted;

use super::super::{DiskTask, Job, ServerCommand, sshd, xrdcp};
use super::{Programs, Tool, VersionSource, encrypted, has, parent, plain};
use crate::LabError;

const BASE: Tool = Tool {
    name: "",
    programs: &[],
    version: VersionSource::Line("--version"),
    workload: Workload::Disk,
    trees: false,
    many_clients: false,
    guarantees: plain,
    streams: None,
    window: None,
    server: |_, _| Ok(None),
    client: |_, _| Err(LabError::Task { tool: "" }),
    read: None,
    goes_far: false,
    untried: None,
    found_in: Programs { only: None },
};

const SSHFS: &[&str] = &["sshfs", "fusermount3", "ssh", "sshd", "ssh-keygen"];
const GANESHA: &[&str] = &["ganesha.nfsd", "nfs-cp", "rpcbind", "unshare"];
const WEBDAV: &[&str] = &["rclone", "fusermount3"];
/// The server is the first program, which prints the version, because the client prints none.
const XROOTDFS: &[&str] = &[xrdcp::SERVER[0], xrdcp::SERVER[1], "xrootdfs", "fusermount3"];
const NFS_PORT: u16 = 2049;
const MOUNT_PORT: u16 = 20048;
/// The name of the served directory in NFS version 4.
const PSEUDO: &str = "/files";
const WEBDAV_PORT: u16 = 8081;
const UFTP_PORT: u16 = 1044;

/// The end that has the source.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Transfer {
    Write,
    Read,
}

pub(super) const TOOLS: &[Tool] = &[
    Tool {
        name: "sshfs",
        programs: SSHFS,
        trees: true,
        many_clients: true,
        // The first line is the version of fusermount3.
        version: VersionSource::From("--version", "SSHFS version"),
        // dd syncs at the end, which sshfs passes on (fsync@openssh.com).
        guarantees: |_| Guarantees { encrypted: true, verified: false, synced: true },
        server: |job, _| sshd::private_server(job).map(Some),
        client: |job, programs| sshfs(job, programs, Transfer::Write),
        ..BASE
    },
    Tool {
        name: "sshfs read",
        programs: SSHFS,
        trees: true,
        many_clients: true,
        // The first line is the version of fusermount3.
        version: VersionSource::From("--version", "SSHFS version"),
        guarantees: encrypted,
        server: |job, _| sshd::private_server(job).map(Some),
        client: |job, programs| sshfs(job, programs, Transfer::Read),
        ..BASE
    },
    Tool {
        name: "nfs-ganesha",
        programs: GANESHA,
        version: VersionSource::Line("-v"),
        server: |job, programs| ganesha(job, programs, Transfer::Write).map(Some),
        client: |job, programs| nfs_cp(job, programs, Transfer::Write),
        ..BASE
    },
    Tool {
        name: "nfs-ganesha read",
        programs: GANESHA,
        version: VersionSource::Line("-v"),
        server: |job, programs| ganesha(job, programs, Transfer::Read).map(Some),
        client: |job, programs| nfs_cp(job, programs, Transfer::Read),
        ..BASE
    },
    Tool {
        name: "webdav",
        programs: WEBDAV,
        trees: true,
        many_clients: true,
        server: |job, programs| webdav(job, programs, Transfer::Write).map(Some),
        client: |job, programs| rclone_mount(job, programs, Transfer::Write),
        ..BASE
    },
    Tool {
        name: "webdav read",
        programs: WEBDAV,
        trees: true,
        many_clients: true,
        server: |job, programs| webdav(job, programs, Transfer::Read).map(Some),
        client: |job, programs| rclone_mount(job, programs, Transfer::Read),
        ..BASE
    },
    Tool {
        name: "xrootdfs",
        programs: XROOTDFS,
        version: VersionSource::Line("-v"),
        trees: true,
        many_clients: true,
        server: |job, _| xrootd_for(job, Transfer::Write).map(Some),
        client: |job, programs| xrootdfs(job, programs, Transfer::Write),
        ..BASE
    },
    Tool {
        name: "xrootdfs read",
        programs: XROOTDFS,
        version: VersionSource::Line("-v"),
        trees: true,
        many_clients: true,
        server: |job, _| xrootd_for(job, Transfer::Read).map(Some),
        client: |job, programs| xrootdfs(job, programs, Transfer::Read),
        ..BASE
    },
    // https://uftp-multicast.sourceforge.net: UDP with negative acknowledgements, here to one
    // receiver. -R -1 sends as fast as the interface allows.
    Tool {
        name: "uftp",
        programs: &["uftp", "uftpd"],
        // uftp has no option that prints its version.
        version: VersionSource::File("UFTP version "),
        server: |job, programs| {
            let task = job.single_file("uftp")?;
            let mut command = Command::new(programs.get("uftpd"));
            command.args(["-d", "-p", &UFTP_PORT.to_string(), "-D"]).arg(parent(task.destination));
            Ok(Some(ServerCommand { udp: true, ..ServerCommand::new(command, UFTP_PORT) }))
        },
        client: |job, programs| {
            let task = job.single_file("uftp")?;
            let mut command = Command::new(programs.get("uftp"));
            command.args(["-p", &UFTP_PORT.to_string(), "-M", job.far, "-P", job.far]);
            if !job.options.iter().any(|option| option == "-R" || option == "-C") {
                command.args(["-R", "-1"]);
            }
            command.args(job.options).arg("-q");
            command.arg("-D").arg(task.destination.file_name().unwrap_or_default());
            command.arg(task.source);
            Ok(command)
        },
        ..BASE
    },
];

/// Saves each file of the directory `$1` in the new directory `$2` with a lock file, a temporary file
/// and a rename. Names have no line breaks. The sync persists the data; whether it also persists the name depends on the far file
/// system.
const SAVE_TREE: &str = r#"set -e
cd "$1"
find . -type d | while IFS= read -r directory; do
    mkdir -p "$2/$directory"
done
find . ! -type d | while IFS= read -r file; do
    : >"$2/.lock"
    cp -P "$file" "$2/.new"
    mv "$2/.new" "$2/$file"
    [ -L "$file" ] || sync "$2/$file"
    rm "$2/.lock"
done
"#;

fn word(path: &Path) -> String {
    shell_quoted(&path.to_string_lossy()).into_owned()
}

/// Returns the directory that the far end serves.
fn served<'a>(task: &DiskTask<'a>, way: Transfer) -> &'a Path {
    parent(if way == Transfer::Write { task.destination } else { task.source })
}

/// Returns the far end's path of the file, for a client that sees the whole file system.
fn far_file<'a>(task: &DiskTask<'a>, way: Transfer) -> &'a Path {
    if way == Transfer::Write { task.destination } else { task.source }
}

/// Returns the size of each call and the other options of a job, as words of a shell.
fn record(job: &Job<'_>) -> (String, String) {
    let (records, others): (Vec<&String>, Vec<&String>) =
        job.options.iter().partition(|option| option.starts_with("record="));
    let size = records.last().and_then(|option| option.strip_prefix("record=")).unwrap_or("1M");
    // dd takes KiB and MiB as K and M.
    let others: Vec<_> = others.into_iter().map(|option| shell_quoted(option)).collect();
    (shell_quoted(&size.replace("iB", "")).into_owned(), others.join(" "))
}

/// Returns the mount point of a client. Several clients of one server have different copies.
fn mount_point(job: &Job<'_>, task: &DiskTask<'_>) -> PathBuf {
    job.private.join("mount").join(task.destination.file_name().unwrap_or_default())
}

/// Returns the command that mounts the served directory with `mount`, copies the file with dd, and
/// unmounts. The copy ends with the unmount, which waits for the last write.
fn through_mount(
    job: &Job<'_>,
    programs: &Programs,
    way: Transfer,
    mount: &str,
) -> Result<Command, LabError> {
    let task = job.disk("file access")?;
    let point = mount_point(job, &task);
    let name = far_file(&task, way).file_name().unwrap_or_default();
    let there = point.join(name);
    let (from, to) = match way {
        Transfer::Write => (word(task.source), word(&there)),
        Transfer::Read => (word(&there), word(task.destination)),
    };
    let copy = match (way, task.tree) {
        (Transfer::Write, true) => {
            let save = job.private.join("save.sh");
            sshd::write(&save, SAVE_TREE)?;
            format!("sh {} {from} {to}", word(&save))
        }
        (Transfer::Read, true) => format!("cp -r {from} {to}"),
        (_, false) => {
            let sync = if way == Transfer::Write { " conv=fsync" } else { "" };
            format!("dd if={from} of={to} bs={}{sync} status=none", record(job).0)
        }
    };
    let (point, end) = (word(&point), word(&programs.get("fusermount3")));
    // The trap remains until the mount has ended, because -u fails while a process uses the mount.
    let script = format!(
        "set -e\nmkdir -p {point}\n{mount}\ntrap {last} EXIT\n\
         {copy}\n\
         {end} -u {point}\ntrap - EXIT\n",
        last = shell_quoted(&format!("{end} -uz {point}")),
    );
    let mut command = Command::new("sh");
    command.args(["-c", &script]);
    Ok(command)
}

fn sshfs(job: &Job<'_>, programs: &Programs, way: Transfer) -> Result<Command, LabError> {
    let task = job.disk("sshfs")?;
    let ssh: Vec<String> = std::iter::once(word(&programs.get("ssh")))
        .chain(sshd::client_options(job).iter().map(|option| shell_quoted(option).into_owned()))
        .collect();
    let helper = job.private.join("ssh.sh");
    sshd::write(&helper, &format!("#!/bin/sh\nexec {} \"$@\"\n", ssh.join(" ")))?;
    let options = record(job).1;
    let mount = format!(
        "{} {} {} -o ssh_command={} {}",
        word(&programs.get("sshfs")),
        shell_quoted(&format!(
            "{}:{}",
            sshd::destination_files(job)?,
            served(&task, way).display()
        )),
        word(&mount_point(job, &task)),
        shell_quoted(&format!("sh {}", helper.display())),
        options
    );
    through_mount(job, programs, way, &mount)
}

/// Returns the server of NFS versions 3 and 4 in user space. Version 3 needs a portmapper, which gets
/// a private /run.
fn ganesha(job: &Job<'_>, programs: &Programs, way: Transfer) -> Result<ServerCommand, LabError> {
    let task = job.single_file("nfs-ganesha")?;
    let state = job.private.join("ganesha");
    let text = format!(
        "NFS_CORE_PARAM {{ Protocols = 3, 4; NFS_Port = {NFS_PORT}; MNT_Port = {MOUNT_PORT}; \
         Enable_NLM = false; Enable_RQUOTA = false; }}\n\
         NFSv4 {{ Graceless = true; RecoveryRoot = \"{state}\"; }}\n\
         EXPORT {{ Export_Id = 1; Path = \"{path}\"; Pseudo = {PSEUDO}; Access_Type = RW; \
         Squash = No_Root_Squash; SecType = sys; Protocols = 3, 4; Transports = TCP; \
         FSAL {{ Name = VFS; }} }}\n",
        state = state.display(),
        path = served(&task, way).display(),
    );
    let (conf, ready) = (job.private.join("ganesha.conf"), job.private.join("portmapper"));
    sshd::write(&conf, &text)?;
    let script = format!(
        "set -e\nmkdir -p {state}\nmount -t tmpfs none /run\nmkdir -p /run/rpcbind /run/ganesha\n\
         {rpcbind} -f & portmapper=$!\n\
         until [ -S /run/rpcbind.sock ]; do sleep 0.05; done\n\
         {nfsd} -F -f {conf} -L {log} -p {state}/pid -N NIV_EVENT & server=$!\n\
         trap 'kill $server $portmapper; wait; exit' TERM\ntouch {ready}\nwait $server\n",
        state = word(&state),
        rpcbind = word(&programs.get("rpcbind")),
        nfsd = word(&programs.get("ganesha.nfsd")),
        conf = word(&conf),
        log = word(&job.private.join("ganesha.log")),
        ready = word(&ready),
    );
    let mut command = Command::new(programs.get("unshare"));
    command.args(["--mount", "sh", "-c", &script]);
    Ok(ServerCommand { ready: Some(ready), ..ServerCommand::new(command, NFS_PORT) })
}

/// Copies by NFS version 3, or by version 4 with the option `version=4`. Version 4 has another name
/// of the served directory. libnfs 4.0 cannot write by version 4: it fails to encode the first write.
fn nfs_cp(job: &Job<'_>, programs: &Programs, way: Transfer) -> Result<Command, LabError> {
    let task = job.single_file("nfs-ganesha")?;
    let there = far_file(&task, way);
    let url = if has(job.options, "version=4") {
        let name = there.file_name().unwrap_or_default().to_string_lossy();
        format!("nfs://{}{PSEUDO}/{name}?version=4&nfsport={NFS_PORT}", job.far)
    } else {
        let there = there.display();
        format!("nfs://{}{there}?version=3&nfsport={NFS_PORT}&mountport={MOUNT_PORT}", job.far)
    };
    let mut command = Command::new(programs.get("nfs-cp"));
    match way {
        Transfer::Write => command.arg(task.source).arg(url),
        Transfer::Read => command.arg(url).arg(task.destination),
    };
    Ok(command)
}

fn webdav(job: &Job<'_>, programs: &Programs, way: Transfer) -> Result<ServerCommand, LabError> {
    let task = job.disk("webdav")?;
    let mut command = Command::new(programs.get("rclone"));
    command.env("RCLONE_CONFIG", "/dev/null");
    command.args(["serve", "webdav", "--addr", &format!(":{WEBDAV_PORT}")]);
    command.arg(served(&task, way));
    Ok(ServerCommand::new(command, WEBDAV_PORT))
}

fn rclone_mount(job: &Job<'_>, programs: &Programs, way: Transfer) -> Result<Command, LabError> {
    let options = record(job).1;
    let task = job.disk("webdav")?;
    let mount = format!(
        "{} mount --daemon {} {} {}",
        word(&programs.get("rclone")),
        options,
        shell_quoted(&format!(":webdav,url='http://{}:{WEBDAV_PORT}':", job.far)),
        word(&mount_point(job, &task)),
    );
    let mut command = through_mount(job, programs, way, &mount)?;
    command.env("RCLONE_CONFIG", "/dev/null");
    Ok(command)
}

/// Returns a private xrootd with the directory that the far end serves.
fn xrootd_for(job: &Job<'_>, way: Transfer) -> Result<ServerCommand, LabError> {
    let task = job.disk("xrootdfs")?;
    xrdcp::xrootd(job, served(&task, way))
}

fn xrootdfs(job: &Job<'_>, programs: &Programs, way: Transfer) -> Result<Command, LabError> {
    let task = job.disk("xrootdfs")?;
    let url = format!("root://{}:{}/{}", job.far, xrdcp::PORT, served(&task, way).display());
    let options = record(job).1;
    let mount = format!(
        "{} -o {} {} {}",
        word(&programs.get("xrootdfs")),
        shell_quoted(&format!("rdr={url}")),
        options,
        word(&mount_point(job, &task)),
    );
    through_mount(job, programs, way, &mount)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drivers::driver::tests::disk_job;

    #[test]
    fn a_record_size_is_an_option_of_the_copy_and_not_of_the_mount() {
        let options = ["record=64KiB".to_owned(), "-C".to_owned()];
        let found = disk_job(&options, record);
        assert_eq!(found, ("64K".to_owned(), "-C".to_owned()));
        assert_eq!(disk_job(&[], record).0, "1M");
    }

    #[test]
    fn a_read_fetches_the_source_and_a_write_sends_it() {
        let programs = Programs::default();
        let arguments = |way| {
            let command = disk_job(&[], |job| nfs_cp(job, &programs, way)).unwrap();
            let all = command.get_args().map(|arg| arg.to_string_lossy().into_owned());
            all.collect::<Vec<String>>()
        };
        let write = arguments(Transfer::Write);
        assert!(write[0] == "/data/a b" && write[1].starts_with("nfs://far/scratch/copy?"));
        let read = arguments(Transfer::Read);
        assert!(read[0].starts_with("nfs://far/data/a b?") && read[1] == "/scratch/copy");
    }

    #[test]
    fn version_4_of_nfs_names_the_file_below_the_served_directory() {
        let options = ["version=4".to_owned()];
        let programs = Programs::default();
        let command = disk_job(&options, |job| nfs_cp(job, &programs, Transfer::Read)).unwrap();
        let url = command.get_args().next().unwrap().to_string_lossy().into_owned();
        assert_eq!(url, "nfs://far/files/a b?version=4&nfsport=2049");
    }

    #[test]
    fn a_tree_is_saved_file_by_file_without_remains() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        std::fs::create_dir_all(from.join("a b")).unwrap();
        std::fs::write(from.join("a b/f 1 "), "one").unwrap();
        std::os::unix::fs::symlink("nowhere", from.join("link")).unwrap();
        std::fs::write(from.join("f2"), "two").unwrap();
        let mut sh = Command::new("sh");
        assert!(sh.args(["-c", SAVE_TREE, "sh"]).args([&from, &to]).status().unwrap().success());
        assert_eq!(std::fs::read(to.join("a b/f 1 ")).unwrap(), b"one");
        assert_eq!(std::fs::read_link(to.join("link")).unwrap(), Path::new("nowhere"));
        assert_eq!(std::fs::read(to.join("f2")).unwrap(), b"two");
        assert_eq!(
            std::fs::read_dir(&to).unwrap().count(),
            3,
            "a lock or a temporary file remains"
        );
    }

    #[test]
    fn a_mount_ends_with_the_copy_even_if_it_fails() {
        let mount = "mount";
        let programs = Programs::default();
        let command =
            disk_job(&[], |job| through_mount(job, &programs, Transfer::Write, mount)).unwrap();
        let script = command.get_args().last().unwrap().to_string_lossy().into_owned();
        assert!(script.contains("conv=fsync") && script.contains("trap '"), "{script}");
        let last = "-u /private/mount/copy\ntrap - EXIT";
        assert!(script.trim_end().ends_with(last), "{script}");
    }
}
