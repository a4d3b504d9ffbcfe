//! Tools whose server the runner starts and whose client connects to its port; tools whose server
//! part starts over ssh are in `over_ssh`.

use std::path::Path;
use std::process::Command;

use longhaul_core::plan::Workload;
use longhaul_core::result::Guarantees;
use longhaul_core::text::shell_quoted;

use super::super::{Job, ServerCommand, sshd};
use super::{Programs, Tool, VersionSource, has, link_to_source, parent, plain};
use crate::LabError;

const BASE: Tool = Tool {
    name: "",
    programs: &[],
    version: VersionSource::Line("--version"),
    workload: Workload::Disk,
    trees: true,
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

const FDT_PORT: u16 = 54321;
const WDT_PORT: u16 = 22356;
const TSUNAMI_PORT: u16 = 46224;
const IRODS_PORT: u16 = 1247;
const XDD_PORT: u16 = 40010;

pub(super) const TOOLS: &[Tool] = &[
    // https://fast-data-transfer.github.io; `fdt` is a script that runs `java -jar fdt.jar`.
    Tool {
        name: "fdt",
        programs: &["fdt"],
        version: VersionSource::Line("-V"),
        guarantees: |options| Guarantees { verified: has(options, "-md5"), ..plain(options) },
        streams: Some("-P"),
        window: Some("-ss"),
        server: |_, programs| {
            let mut command = Command::new(programs.get("fdt"));
            command.args(["-p", &FDT_PORT.to_string(), "-noupdates"]);
            Ok(Some(ServerCommand::new(command, FDT_PORT)))
        },
        client: |job, programs| {
            let task = job.disk("fdt")?;
            // FDT copies a file into a directory under its own name, and the contents of a directory.
            let (source, into) = if task.tree {
                (task.source.to_owned(), task.destination)
            } else {
                (link_to_source(job, "fdt")?, parent(task.destination))
            };
            let mut command = Command::new(programs.get("fdt"));
            command.args(["-c", job.far, "-p", &FDT_PORT.to_string(), "-noupdates"]);
            command.args(task.tree.then_some("-r")).args(job.options);
            command.arg("-d").arg(into).arg(source);
            Ok(command)
        },
        ..BASE
    },
    // https://github.com/facebook/wdt: sender and receiver share a transfer id; the receiver
    // compares a checksum of each block.
    Tool {
        name: "wdt",
        programs: &["wdt"],
        guarantees: |options| Guarantees {
            encrypted: options.iter().any(|o| o.contains("encryption_type=aes")),
            verified: !has(options, "-enable_checksum=false"),
            synced: has(options, "-fsync=true"),
        },
        streams: Some("-num_ports"),
        server: |job, programs| {
            let task = job.disk("wdt")?;
            let into = if task.tree { task.destination } else { parent(task.destination) };
            let mut command = Command::new(programs.get("wdt"));
            command.arg("-directory").arg(into).args(wdt_session()).args(job.options);
            Ok(Some(ServerCommand::new(command, WDT_PORT)))
        },
        client: |job, programs| {
            let task = job.disk("wdt")?;
            let mut command = Command::new(programs.get("wdt"));
            command.args(["-destination", job.far]).args(wdt_session()).args(job.options);
            if task.tree {
                command.arg("-directory").arg(task.source);
            } else {
                let link = link_to_source(job, "wdt")?;
                command.arg("-follow_symlinks").arg("-directory").arg(parent(&link));
            }
            Ok(command)
        },
        untried: Some("its library folly was not built"),
        ..BASE
    },
    // https://tsunami-udp.sourceforge.net: the client downloads, so the far end reads. The client
    // saves the file under its own name in the current directory, so the server offers a link with
    // the name of the copy.
    Tool {
        name: "tsunami",
        programs: &["tsunami", "tsunamid"],
        version: VersionSource::From("quit", "Revision: "),
        trees: false,
        server: |job, programs| {
            let link = link_to_source(job, "tsunami")?;
            let mut command = Command::new(programs.get("tsunamid"));
            command.arg(format!("--port={TSUNAMI_PORT}")).current_dir(parent(&link));
            Ok(Some(ServerCommand::new(command, TSUNAMI_PORT)))
        },
        // Commands are separate words. Settings, including the plan's options, precede `connect`.
        // `quit` ends the client with code 1 also after a success; the runner compares the copy.
        client: |job, programs| {
            let task = job.single_file("tsunami")?;
            let mut command = Command::new("sh");
            command.args(["-c", "\"$@\" || [ $? -eq 1 ]", "sh"]).arg(programs.get("tsunami"));
            command.args(["set", "port", &TSUNAMI_PORT.to_string()]).args(job.options);
            command.args(["connect", job.far, "get"]);
            command.arg(task.destination.file_name().unwrap_or_default()).arg("quit");
            command.current_dir(parent(task.destination));
            Ok(command)
        },
        ..BASE
    },
    // https://github.com/bws/xdd: each end is an xdd; the one that writes listens on one port per
    // I/O thread. The number of threads (-qd) and the size of each request are the plan's options.
    // The source ends before the destination has all data, so the command waits for a file that the
    // destination's end creates.
    Tool {
        name: "xdd",
        programs: &["xdd"],
        version: VersionSource::Line("-version"),
        trees: false,
        guarantees: |options| Guarantees { synced: has(options, "-syncio"), ..plain(options) },
        server: |job, programs| {
            let task = job.single_file("xdd")?;
            let words = xdd(job, programs, &["-op", "write", "-e2e", "isdest"], task.destination)?;
            let ended = word(&job.private.join("ended"));
            let mut command = Command::new("sh");
            command.args(["-c", &format!("{words} && touch {ended}")]);
            Ok(Some(ServerCommand::new(command, XDD_PORT)))
        },
        client: |job, programs| {
            let task = job.single_file("xdd")?;
            let words = xdd(job, programs, &["-op", "read", "-e2e", "issrc"], task.source)?;
            let ended = word(&job.private.join("ended"));
            let mut command = Command::new("sh");
            let wait = format!("until [ -e {ended} ]; do sleep 0.01; done");
            command.args(["-c", &format!("{words} && {wait}")]);
            Ok(command)
        },
        ..BASE
    },
    // https://irods.org: the user sets up the server on this host, and the job starts it at the far
    // end. Option -p sets the physical path of the copy, so that the runner can compare it.
    Tool {
        name: "irods",
        programs: &["iput", "irodsServer"],
        // The help ends with the version.
        version: VersionSource::From("-h", "iRODS Version"),
        guarantees: |options| Guarantees { verified: has(options, "-K"), ..plain(options) },
        streams: Some("-N"),
        trees: false,
        server: |_, programs| {
            let mut command = Command::new(programs.get("irodsServer"));
            // -u keeps the server in the foreground, as in the containers of iRODS.
            command.arg("-u");
            Ok(Some(ServerCommand::new(command, IRODS_PORT)))
        },
        client: |job, programs| {
            let task = job.single_file("irods")?;
            let mut command = Command::new(programs.get("iput"));
            command.env("IRODS_HOST", job.far).env("IRODS_PORT", IRODS_PORT.to_string());
            command.arg("-f").args(job.options).arg("-p").arg(task.destination);
            command.arg(task.source).arg("copy");
            Ok(command)
        },
        untried: Some("its server needs a database and a set-up"),
        ..BASE
    },
    // The kernel's NFS, version 4.2, with the commands of nfs-utils; the client is cp. The mounts
    // end with the mount namespaces of the path.
    Tool {
        name: "nfs",
        programs: &[
            "mount.nfs4",
            "rpc.nfsd",
            "exportfs",
            "rpc.mountd",
            "the kernel's nfs4",
            "the kernel's nfsd",
        ],
        version: VersionSource::Line("-V"),
        untried: None,
        // close waits until the server has the data on stable storage (RFC 8881, section 18.3:
        // COMMIT).
        guarantees: |options| Guarantees { synced: true, ..plain(options) },
        streams: Some("nconnect"),
        server: |job, programs| {
            let task = job.disk("nfs")?;
            let state = job.private.join("nfs");
            let ready = job.private.join("nfs-ready");
            let script = NFS_SERVER
                .replace("@READY@", &word(&ready))
                .replace("@STATE@", &word(&state))
                .replace("@DIR@", &word(parent(task.destination)))
                .replace("@EXPORTFS@", &word(&programs.get("exportfs")))
                .replace("@MOUNTD@", &word(&programs.get("rpc.mountd")))
                .replace("@NFSD@", &word(&programs.get("rpc.nfsd")));
            let file = job.private.join("nfs-server.sh");
            sshd::write(&file, &script)?;
            let mut command = Command::new("sh");
            command.arg(file);
            let server = ServerCommand::new(command, NFS_PORT);
            Ok(Some(ServerCommand { ready: Some(ready), ..server }))
        },
        client: |job, _| {
            let task = job.disk("nfs")?;
            let mount = job.private.join("mount");
            let name = Path::new(task.destination.file_name().unwrap_or_default());
            // A hard mount whose server ends early blocks every later sync(2) of the host.
            let mut options =
                vec!["vers=4.2,soft".to_owned(), "rsize=1048576,wsize=1048576".to_owned()];
            // A number of streams is two words; all other options are mount options.
            let mut words = job.options.iter();
            while let Some(option) = words.next() {
                let value = (option == "nconnect").then(|| words.next()).flatten();
                options.push(value.map_or(option.clone(), |count| format!("{option}={count}")));
            }
            let script = format!(
                "set -e\nmkdir -p {mount}\nmount -t nfs4 -o {} {}:/ {mount}\n\
                 cp -r {} {mount}/{}\numount {mount}\n",
                shell_quoted(&options.join(",")),
                shell_quoted(job.far),
                word(task.source),
                word(name),
                mount = word(&mount),
            );
            let mut command = Command::new("sh");
            command.args(["-c", &script]);
            Ok(command)
        },
        ..BASE
    },
];

const NFS_PORT: u16 = 2049;

/// The script of the NFS server. It keeps its state in a private mount, so the host's exports stay
/// unchanged. The server answers no open during the grace period (RFC 8881, section 8.4.2), 90 s by
/// default; there are no clients of an earlier server. Later versions of Linux 6.1 and newer kernels
/// do not end the period on demand in a network namespace without nfsdcld
/// (nfsd4_force_end_grace of fs/nfsd/nfs4state.c), so the script reduces it to the minimum of 10 s and
/// waits for at most 15 s. Kernels without `v4_end_grace` do not report the end, so there is no wait.
const NFS_SERVER: &str = "set -e
mkdir -p @STATE@ /var/lib/nfs
mount --bind @STATE@ /var/lib/nfs
mount -t nfsd nfsd /proc/fs/nfsd
touch /var/lib/nfs/etab /var/lib/nfs/rmtab
@EXPORTFS@ -i -o rw,no_root_squash,insecure,sync,fsid=0,no_subtree_check '*:'@DIR@
@MOUNTD@ -N 3 -F & mountd=$!
trap 'echo 0 >/proc/fs/nfsd/threads || true; kill $mountd 2>/dev/null; exit' TERM
echo 10 >/proc/fs/nfsd/nfsv4gracetime || true
@NFSD@ -N 3 8
echo Y 2>/dev/null >/proc/fs/nfsd/v4_end_grace || true
tries=150
while [ -e /proc/fs/nfsd/v4_end_grace ] && [ $tries -gt 0 ]; do
    read ended </proc/fs/nfsd/v4_end_grace && [ \"$ended\" = Y ] && break
    sleep 0.1
    tries=$((tries - 1))
done
touch @READY@
wait $mountd
";

/// Returns the command line of one end of a copy by xdd, with the same size, ports and options at
/// both ends.
fn xdd(
    job: &Job<'_>,
    programs: &Programs,
    end: &[&str],
    target: &Path,
) -> Result<String, LabError> {
    let source = job.disk("xdd")?.source;
    let size = std::fs::metadata(source).map_err(LabError::file("read", source))?.len();
    let options = job.options.iter().map(String::as_str);
    let threads = options.skip_while(|option| *option != "-qd").nth(1).unwrap_or("4");
    let address = format!("{}:{XDD_PORT},{threads}", job.far);
    let mut words = vec![word(&programs.get("xdd")), "-targets 1".to_owned(), word(target)];
    words.extend(end.iter().map(|part| (*part).to_owned()));
    words.extend([
        "-e2e dest".to_owned(),
        shell_quoted(&address).into_owned(),
        format!("-bytes {size}"),
    ]);
    words.extend(job.options.iter().map(|option| shell_quoted(option).into_owned()));
    Ok(words.join(" "))
}

fn wdt_session() -> [String; 4] {
    let port = WDT_PORT.to_string();
    ["-transfer_id".to_owned(), "longhaul".to_owned(), "-start_port".to_owned(), port]
}

fn word(path: &Path) -> String {
    shell_quoted(&path.to_string_lossy()).into_owned()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::process::{Child, Stdio};
    use std::thread;
    use std::time::{Duration, Instant};

    use rustix::process::{Pid, Signal, kill_process};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(8);

    /// Starts the script of the NFS server in `dir`, which has its files, with stand-ins for its
    /// programs.
    fn nfs_server(dir: &Path, tries: u32) -> Child {
        let mut script = "mount() { :; }\nmountd() { exec sleep 60; }\n".to_owned() + NFS_SERVER;
        for (from, to) in [
            ("/proc/fs/nfsd", "proc"),
            ("/var/lib/nfs", "lib"),
            ("tries=150", &format!("tries={tries}")),
            ("@STATE@", "state"),
            ("@DIR@", "/data"),
            ("@EXPORTFS@", "true"),
            ("@NFSD@", "true"),
            ("@MOUNTD@", "mountd"),
            ("@READY@", "ready"),
        ] {
            assert!(script.contains(from), "{from}");
            script = script.replace(from, to);
        }
        let mut command = Command::new("sh");
        command.args(["-c", &script]).current_dir(dir);
        command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    fn in_time(mut done: impl FnMut() -> bool) -> bool {
        let begun = Instant::now();
        while !done() && begun.elapsed() < LIMIT {
            thread::sleep(Duration::from_millis(10));
        }
        done()
    }

    /// Sends TERM, and returns whether the script ends.
    fn ends(mut server: Child) -> bool {
        kill_process(Pid::from_child(&server), Signal::TERM).unwrap();
        let ended = in_time(|| server.try_wait().unwrap().is_some());
        let _ = server.kill();
        let _ = server.wait();
        ended
    }

    #[test]
    fn the_wait_for_the_grace_period_is_bounded_and_ends_at_term() {
        let dirs = [(); 3].map(|()| tempfile::tempdir().unwrap());
        let [missing, endless, waiting] = dirs.each_ref().map(|dir| dir.path());
        let grace = |dir: &Path| {
            fs::create_dir(dir.join("proc")).unwrap();
            dir.join("proc/v4_end_grace")
        };
        // The script cannot create this file, as in /proc.
        symlink("/none/v4_end_grace", grace(missing)).unwrap();
        // A directory cannot be read as a file, so the script sees no end.
        for dir in [endless, waiting] {
            fs::create_dir(grace(dir)).unwrap();
        }
        let servers = [(missing, 150), (endless, 3), (waiting, 150)];
        let servers = servers.map(|(dir, tries)| nfs_server(dir, tries));
        let ready = [missing, endless].map(|dir| in_time(|| dir.join("ready").exists()));
        let begun = in_time(|| waiting.join("proc/nfsv4gracetime").exists());
        let waits = !waiting.join("ready").exists();
        let ended = servers.map(ends);
        assert_eq!((ready, begun, waits, ended), ([true; 2], true, true, [true; 3]));
    }
}
