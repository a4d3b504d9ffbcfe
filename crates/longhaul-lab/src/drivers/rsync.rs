//! Driver of rsync over ssh.

use std::process::Command;

use longhaul_core::plan::Workload;
use longhaul_core::result::Guarantees;
use longhaul_core::units::{Bytes, Rate};

use super::{Detected, Driver, Job, Pace, Reading, RunOutput, Server, detect, sshd};
use crate::LabError;

const NAME: &str = "rsync";

/// rsync over ssh, to a private sshd or over a real path.
pub(super) struct Rsync;

impl Driver for Rsync {
    fn name(&self) -> &'static str {
        NAME
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
        Pace::SSH
    }

    /// rsync compares a checksum of each complete file.
    fn guarantees(&self, options: &[String]) -> Guarantees {
        let synced = options.iter().any(|option| option == "--fsync");
        Guarantees { encrypted: true, verified: true, synced }
    }

    fn detect(&self) -> Detected {
        let [ssh, sshd, keygen] = sshd::PROGRAMS;
        detect::detect(&["rsync", ssh, sshd, keygen], "--version")
    }

    fn detect_near(&self) -> Detected {
        detect::detect(&["rsync", "ssh"], "--version")
    }

    fn server(&self, job: &Job<'_>) -> Result<Option<Server>, LabError> {
        sshd::server(job)
    }

    fn client(&self, job: &Job<'_>) -> Result<Command, LabError> {
        let task = job.disk(NAME)?;
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

    fn read(&self, _job: &Job<'_>, said: RunOutput<'_>) -> Result<Reading, String> {
        Ok(statistics(&said.client.stdout))
    }
}

/// Quotes a word of `-e`, which rsync splits at blanks outside quotes.
fn for_rsync(word: String) -> String {
    if word.contains(char::is_whitespace) { format!("'{word}'") } else { word }
}

/// Reads `sent 67,125,260 bytes  received 35 bytes  44,750,196.67 bytes/sec`. If the format
/// changes, only rsync's own figure is missing, which is recorded beside the measured one.
pub(super) fn statistics(text: &str) -> Reading {
    let number = |text: &str| text.replace(',', "").parse::<f64>().ok();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ["sent", sent, "bytes", "received", _, "bytes", rate, "bytes/sec"] = words[..] {
            return Reading {
                throughput: number(rate).map(|rate| Rate::from_bps((rate * 8.0) as u64)),
                bytes: number(sent).map(|sent| Bytes::new(sent as u64)),
            };
        }
    }
    Reading::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_with_a_blank_stays_one() {
        assert_eq!(for_rsync("IdentityFile=/a b/key".into()), "'IdentityFile=/a b/key'");
        assert_eq!(for_rsync("BatchMode=yes".into()), "BatchMode=yes");
    }

    #[test]
    fn reads_its_own_figure() {
        let reading = statistics(
            "\nsent 67,125,260 bytes  received 35 bytes  44,750,000.50 bytes/sec\n\
             total size is 67,108,864  speedup is 1.00\n",
        );
        assert_eq!(reading.throughput, Some(Rate::from_bps(358_000_004)));
        assert_eq!(reading.bytes, Some(Bytes::new(67_125_260)));
        assert_eq!(statistics("something else"), Reading::default());
    }
}
