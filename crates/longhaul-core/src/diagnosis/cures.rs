//! Remedies for a limit: the doctor's findings, and other known changes, each with the privilege
//! that it needs.

use super::cause::{Cause, name_of};
use crate::result::{Cure, CureKind, Diagnosis, End, Finding, Resource, Verdict};

/// Returns the remedies for `cause` in a copy of `diagnosis`, best first.
pub(super) fn of(diagnosis: &Diagnosis, cause: &Cause) -> Vec<Cure> {
    let shelf = Shelf { diagnosis };
    let end = cause.end.unwrap_or(End::Sender);
    let allows = cause.allows.to_string();
    let (findings, others) = match cause.resource {
        Resource::ReceiverWindow => (
            shelf.findings(End::Receiver, &["tcp_rmem", "tcp_moderate_rcvbuf", SCALING]),
            vec![shelf.more_streams("more connections, each with a window of its own")],
        ),
        Resource::SenderWindow => (
            shelf.findings(End::Sender, &["tcp_wmem", SCALING]),
            vec![shelf.more_streams("more connections, each with a buffer of its own")],
        ),
        Resource::Loss => (shelf.congestion_control(), shelf.for_loss()),
        Resource::CongestionWindow => (
            Vec::new(),
            vec![
                shelf
                    .safe(End::Sender, "copy more: the window was still growing")
                    .run(shelf.cp("")),
                shelf.more_streams("more connections"),
            ],
        ),
        Resource::LinkRate => {
            (Vec::new(), vec![shelf.hardware(End::Receiver, FASTER_LINK).value(&allows, "")])
        }
        Resource::TcpMemory => (
            shelf.findings(end, &["tcp_mem", "tcp_memory_now"]),
            vec![shelf.safe(end, "end what holds the memory").run("ss -tmn | sort -k2 -n | tail")],
        ),
        Resource::HostDrops => (
            shelf.findings(end, &["core_drops", "missed", "rings", "coalescing"]),
            vec![shelf.more_streams("more connections, whose packets use more queues")],
        ),
        Resource::InterruptCpu => (
            shelf.findings(end, &["interrupt_spread", "interrupt_node", "irqbalance", "offloads"]),
            vec![shelf.more_streams("more connections, whose interrupts use more cores")],
        ),
        Resource::SenderCpu | Resource::ReceiverCpu => (
            shelf.findings(end, &["governor", "turbo", "idle_states", "offloads"]),
            shelf.for_processors(end, cause),
        ),
        Resource::Encryption => (Vec::new(), shelf.for_encryption(end)),
        Resource::MemoryBandwidth => (
            Vec::new(),
            vec![
                shelf.more_streams("more connections, whose threads use other cores"),
                shelf.hardware(end, "memory in every channel; NIC and disk on one NUMA node"),
            ],
        ),
        Resource::SourceDisk | Resource::SinkDisk => (
            shelf.findings(end, &["scheduler", "read_ahead", "direct_io"]),
            vec![
                shelf.safe(end, "see what else uses it").run("iostat -x 1 5"),
                shelf.hardware(end, FASTER_DISK).value(&allows, ""),
            ],
        ),
        Resource::FileAllocation => (
            shelf.findings(end, &["file_system"]),
            vec![shelf.root(end, LARGE_EXTENTS).run("df -hT .")],
        ),
        Resource::SmallFiles => (Vec::new(), shelf.for_small_files(end)),
        Resource::Contention => (
            Vec::new(),
            vec![
                shelf
                    .safe(End::Sender, "fewer connections")
                    .value(BY_ITSELF, "2")
                    .run(shelf.cp("-P 2")),
                shelf.hardware(end, "more cores, or disks of their own for source and sink"),
            ],
        ),
    };
    findings.into_iter().chain(others).collect()
}

/// The name of the doctor's rule.
const SCALING: &str = "tcp_window_scaling";
/// The displayed value of an option that the user did not set.
const BY_ITSELF: &str = "cp's choice";
const FASTER_LINK: &str = "a faster link, or a way around the slow one";
const FASTER_DISK: &str = "a faster disk, or several as one (RAID 0, striped LVM)";
const LARGE_EXTENTS: &str =
    "a file system that gives room in large extents, such as XFS, and is not nearly full";
const MEND_PATH: &str =
    "find and mend what loses packets: optics, cables, a duplex mismatch, a policer";

/// The facts from which the remedies of a diagnosis are made.
struct Shelf<'a> {
    diagnosis: &'a Diagnosis,
}

impl Shelf<'_> {
    fn cure(&self, kind: CureKind, end: End, what: &str) -> Cure {
        Cure {
            kind,
            host: self
                .diagnosis
                .ends
                .of(end)
                .map_or_else(|| format!("the {}'s host", name_of(end)), |view| view.host.clone()),
            what: what.to_owned(),
            present: String::new(),
            proposed: String::new(),
            command: String::new(),
        }
    }

    fn safe(&self, end: End, what: &str) -> Cure {
        self.cure(CureKind::Safe, end, what)
    }

    fn root(&self, end: End, what: &str) -> Cure {
        self.cure(CureKind::NeedsRoot, end, what)
    }

    fn hardware(&self, end: End, what: &str) -> Cure {
        self.cure(CureKind::NeedsHardware, end, what)
    }

    /// Returns the doctor's findings of these rules at `end` that are not in order.
    fn findings(&self, end: End, rules: &[&str]) -> Vec<Cure> {
        let Some(view) = self.diagnosis.ends.of(end) else { return Vec::new() };
        let found = rules.iter().filter_map(|rule| view.finding(rule));
        let wrong = |one: &&Finding| matches!(one.verdict, Verdict::Problem | Verdict::Advice);
        found
            .filter(wrong)
            .map(|finding| Cure {
                present: finding.seen.clone(),
                proposed: finding.wanted.clone(),
                command: finding.commands.first().cloned().unwrap_or_default(),
                ..self.root(end, &finding.title)
            })
            .collect()
    }

    /// Returns the copy command with `option`.
    fn cp(&self, option: &str) -> String {
        let Diagnosis { source, target, .. } = self.diagnosis;
        let recursive = if self.diagnosis.sample.files > 1 { "-r " } else { "" };
        let option = if option.is_empty() { String::new() } else { format!("{option} ") };
        format!("longhaul cp {recursive}{option}{source} {target}")
    }

    fn more_streams(&self, what: &str) -> Cure {
        self.safe(End::Sender, what).value(BY_ITSELF, "16").run(self.cp("-P 16"))
    }

    fn congestion_control(&self) -> Vec<Cure> {
        let control = self.congestion().unwrap_or_default();
        if control.starts_with("bbr") {
            return Vec::new();
        }
        let what = "a congestion control that does not take every loss for congestion";
        let bbr = self
            .root(End::Sender, what)
            .value(&control, "bbr")
            .run("sudo sysctl -w net.ipv4.tcp_congestion_control=bbr");
        let available = self.findings(End::Sender, &["bbr_available"]);
        available.into_iter().chain([bbr]).collect()
    }

    fn for_loss(&self) -> Vec<Cure> {
        vec![
            self.more_streams("more connections: each suffers its own losses alone"),
            self.hardware(End::Receiver, MEND_PATH),
        ]
    }

    fn for_processors(&self, end: End, cause: &Cause) -> Vec<Cure> {
        let stop = "stop what else runs on its cores, or give the copy others";
        let mut cures = vec![
            self.safe(end, stop).run("ps -eo pid,psr,pcpu,comm --sort=-pcpu | head"),
            self.more_streams("more connections, whose threads use more cores"),
        ];
        if cause.by_quota {
            let quota = self.root(end, "raise the processor quota of its control group");
            cures.insert(0, quota.run("sudo systemctl set-property UNIT CPUQuota="));
        }
        cures.push(self.hardware(end, "faster or more cores"));
        cures
    }

    fn for_encryption(&self, end: End) -> Vec<Cure> {
        let what = "do not encrypt; blocks are still authenticated and verified";
        let clear = self.safe(End::Sender, what).value("encrypted", "in clear text");
        vec![
            clear.run(self.cp("--cleartext")),
            self.more_streams("more connections, whose threads seal on more cores"),
            self.hardware(
                end,
                "cores with AES instructions (aes, vaes in /proc/cpuinfo), or faster",
            ),
        ]
    }

    fn for_small_files(&self, end: End) -> Vec<Cure> {
        let Diagnosis { source, target, .. } = self.diagnosis;
        let slash = if target.ends_with('/') { "" } else { "/" };
        let archive = self.safe(End::Sender, "copy them as one archive");
        let unsynced = "do not sync: a crash of the sink's host may lose files";
        vec![
            archive.run(format!("tar c {source} | longhaul cp - {target}{slash}archive.tar")),
            self.safe(End::Sender, unsynced)
                .value("synced", "not synced")
                .run(self.cp("--no-fsync")),
            self.hardware(end, "a disk with more operations in a second"),
        ]
    }

    /// Returns the sender's congestion control.
    fn congestion(&self) -> Option<String> {
        let view = self.diagnosis.ends.of(End::Sender)?;
        Some(view.finding("congestion")?.seen.clone())
    }
}

impl Cure {
    fn value(mut self, present: &str, proposed: &str) -> Self {
        (self.present, self.proposed) = (present.to_owned(), proposed.to_owned());
        self
    }

    fn run(mut self, command: impl Into<String>) -> Self {
        self.command = command.into();
        self
    }
}
