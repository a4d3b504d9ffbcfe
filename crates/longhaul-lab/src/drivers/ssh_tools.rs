//! Drivers of the tools that copy over ssh, as a table: scp, sftp, tar and rsync, to a private sshd
//! or over a real path.

use std::path::Path;
use std::process::Command;

use longhaul_core::plan::Workload;
use longhaul_core::result::Guarantees;
use longhaul_core::text::shell_quoted;
use longhaul_core::units::{Bytes, Rate};

use super::{Detected, Driver, Job, Pace, RunOutput, ServerCommand, ToolFigures, detect, sshd};
use crate::LabError;

/// A tool that copies over ssh.
pub(super) struct SshTool {
    name: &'static str,
    /// The program needed in addition to ssh.
    program: &'static str,
    /// The program that prints the version; scp and sftp print none.
    version: Version,
    trips_per_file: u32,
    /// True if the tool compares a checksum of each complete file. ssh authenticates each packet,
    /// but does not compare the written file.
    verified: bool,
    /// The option that makes the tool sync the files.
    sync_option: Option<&'static str>,
    client: fn(&Job<'_>) -> Result<Command, LabError>,
    /// Reads the tool's own figures from its standard output.
    read: Option<fn(&str) -> ToolFigures>,
}

/// The program whose version counts.
#[derive(Clone, Copy, PartialEq)]
enum Version {
    Ssh,
    Tool,
}

/// All tools that copy over ssh.
pub(super) const SSH_TOOLS: [SshTool; 4] = [
    SshTool {
        name: "scp",
        program: "scp",
        version: Version::Ssh,
        trips_per_file: 2,
        verified: false,
        sync_option: None,
        client: scp,
        read: None,
    },
    SshTool {
        name: "sftp",
        program: "sftp",
        version: Version::Ssh,
        trips_per_file: 2,
        verified: false,
        sync_option: Some("-f"),
        client: sftp,
        read: None,
    },
    SshTool {
        name: "tar over ssh",
        program: "tar",
        version: Version::Tool,
        trips_per_file: Pace::SSH.trips_per_file,
        verified: false,
        sync_option: None,
        client: tar,
        read: None,
    },
    SshTool {
        name: "rsync",
        program: "rsync",
        version: Version::Tool,
        trips_per_file: Pace::SSH.trips_per_file,
        verified: true,
        sync_option: Some("--fsync"),
        client: rsync,
        read: Some(statistics),
    },
];

impl SshTool {
    fn detect_with(&self, others: &[&'static str]) -> Detected {
        let [ssh, ..] = sshd::PROGRAMS;
        let (first, argument) = match self.version {
            Version::Ssh => ([ssh, self.program], "-V"),
            Version::Tool => ([self.program, ssh], "--version"),
        };
        let programs: Vec<&'static str> = first.iter().chain(others).copied().collect();
        detect::detect(&programs, argument)
    }
}

impl Driver for SshTool {
    fn name(&self) -> &'static str {
        self.name
    }

    fn workload(&self) -> Workload {
        Workload::Disk
    }

    fn many_clients(&self) -> bool {
        true
    }

    fn goes_far(&self) -> bool {
        true
    }

    fn pace(&self) -> Pace {
        Pace { trips_per_file: self.trips_per_file, ..Pace::SSH }
    }

    fn guarantees(&self, options: &[String]) -> Guarantees {
        let synced =
            self.sync_option.is_some_and(|sync| options.iter().any(|option| option == sync));
        Guarantees { encrypted: true, verified: self.verified, synced }
    }

    fn detect(&self) -> Detected {
        let [_, sshd, keygen] = sshd::PROGRAMS;
        self.detect_with(&[sshd, keygen])
    }

    fn detect_near(&self) -> Detected {
        self.detect_with(&[])
    }

    fn server(&self, job: &Job<'_>) -> Result<Option<ServerCommand>, LabError> {
        sshd::server(job)
    }

    fn client(&self, job: &Job<'_>) -> Result<Command, LabError> {
        (self.client)(job)
    }

    fn read(&self, _job: &Job<'_>, output: RunOutput<'_>) -> Result<ToolFigures, String> {
        Ok(self.read.map_or_else(ToolFigures::default, |read| read(&output.client.stdout)))
    }
}

fn scp(job: &Job<'_>) -> Result<Command, LabError> {
    let task = job.disk("scp")?;
    let host = sshd::destination_files(job)?;
    let mut command = Command::new(detect::program("scp"));
    command.args(sshd::client_options(job)).args(task.tree.then_some("-r"));
    command.args(job.options).arg(task.source);
    command.arg(format!("{host}:{}", task.destination.display()));
    Ok(command)
}

fn sftp(job: &Job<'_>) -> Result<Command, LabError> {
    let task = job.disk("sftp")?;
    let batch = job.private.join("batch");
    let [source, destination] = [task.source, task.destination].map(|path| {
        let path = path.to_string_lossy();
        format!("\"{}\"", path.replace('\\', "\\\\").replace('"', "\\\""))
    });
    // A directory is copied into an existing directory.
    let lines = if task.tree {
        format!("mkdir {destination}\nput -R {source}/. {destination}\n")
    } else {
        format!("put {source} {destination}\n")
    };
    sshd::write(&batch, &lines)?;
    let mut command = Command::new(detect::program("sftp"));
    command.args(sshd::client_options(job)).arg("-b").arg(batch).args(job.options);
    command.arg(sshd::destination_files(job)?);
    Ok(command)
}

/// Returns a pipeline of two tars over one ssh connection: one stream, and no round trip per file.
/// The options apply to the tar that packs.
fn tar(job: &Job<'_>) -> Result<Command, LabError> {
    let task = job.disk("tar over ssh")?;
    let words = |path: &Path| shell_quoted(&path.to_string_lossy()).into_owned();
    let parent = task.source.parent().unwrap_or(task.source);
    let name = task.source.file_name().unwrap_or_default().to_string_lossy();
    // Flags r and h apply the transformation to names and hard link targets, but not to symbolic
    // link targets.
    let copy = task.destination.file_name().unwrap_or_default().to_string_lossy();
    let unpack = format!(
        "tar -xf - -C {} --transform {}",
        words(task.destination.parent().unwrap_or(task.destination)),
        shell_quoted(&format!("flags=rh;s,^[^/]*,{copy},")),
    );
    let ssh = detect::program("ssh").display().to_string();
    let ssh: Vec<String> = std::iter::once(ssh)
        .chain(sshd::client_options(job))
        .chain([sshd::destination_host(job)?, unpack])
        .map(|word| shell_quoted(&word).into_owned())
        .collect();
    let options: Vec<_> = job.options.iter().map(|option| shell_quoted(option)).collect();
    let pack =
        format!("tar -cf - {} -C {} -- {}", options.join(" "), words(parent), shell_quoted(&name));
    let mut command = Command::new("bash");
    command.args(["-o", "pipefail", "-c", &format!("{pack} | {}", ssh.join(" "))]);
    Ok(command)
}

fn rsync(job: &Job<'_>) -> Result<Command, LabError> {
    let task = job.disk("rsync")?;
    let host = sshd::destination_files(job)?;
    let ssh = detect::program("ssh").display().to_string();
    let shell = std::iter::once(ssh).chain(sshd::client_options(job)).map(for_rsync);
    let shell: Vec<String> = shell.collect();
    let mut command = Command::new(detect::program("rsync"));
    command.args(["-a", "--info=stats1", "-e", &shell.join(" ")]).args(job.options);
    // The trailing slash copies the contents of the directory instead of the directory itself.
    let slash = if task.tree { "/" } else { "" };
    command.arg(format!("{}{slash}", task.source.display()));
    command.arg(format!("{host}:{}{slash}", task.destination.display()));
    Ok(command)
}

/// Quotes a word of `-e`, which rsync splits at blanks outside quotes.
fn for_rsync(word: String) -> String {
    if word.contains(char::is_whitespace) { format!("'{word}'") } else { word }
}

/// Reads `sent 67,125,260 bytes  received 35 bytes  44,750,196.67 bytes/sec`. If the format
/// changes, only the figure that rsync prints is missing; the measured figure remains.
pub(super) fn statistics(text: &str) -> ToolFigures {
    let number = |text: &str| text.replace(',', "").parse::<f64>().ok();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ["sent", sent, "bytes", "received", _, "bytes", rate, "bytes/sec"] = words[..] {
            return ToolFigures {
                throughput: number(rate).map(|rate| Rate::from_bps((rate * 8.0) as u64)),
                bytes: number(sent).map(|sent| Bytes::new(sent as u64)),
            };
        }
    }
    ToolFigures::default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drivers::driver::tests::disk_job;

    #[test]
    fn names_survive_two_shells() {
        let command = disk_job(&["-b".into(), "512".into()], tar).unwrap();
        let line = command.get_args().last().unwrap().to_string_lossy().into_owned();
        assert!(line.starts_with("tar -cf - -b 512 -C /data -- 'a b' | "), "{line}");
        assert!(line.contains(r"-C /scratch --transform '\''flags=rh;s,"), "{line}");
    }

    #[test]
    fn a_word_with_a_blank_is_not_split() {
        assert_eq!(for_rsync("IdentityFile=/a b/key".into()), "'IdentityFile=/a b/key'");
        assert_eq!(for_rsync("BatchMode=yes".into()), "BatchMode=yes");
    }

    #[test]
    fn the_figure_of_the_tool_is_read() {
        let reading = statistics(
            "\nsent 67,125,260 bytes  received 35 bytes  44,750,000.50 bytes/sec\n\
             total size is 67,108,864  speedup is 1.00\n",
        );
        assert_eq!(reading.throughput, Some(Rate::from_bps(358_000_004)));
        assert_eq!(reading.bytes, Some(Bytes::new(67_125_260)));
        assert_eq!(statistics("something else"), ToolFigures::default());
    }
}
