//! What to do about a limit: the doctor's own findings where it has one, and what else is known to
//! help, with what it takes.

use super::cause::{Cause, name_of};
use crate::result::{Cure, CureKind, Diagnosis, End, Finding, Resource, Verdict};

/// For a copy of `diagnosis` that `cause` limits, best first.
pub(super) fn of(diagnosis: &Diagnosis, cause: &Cause) -> Vec<Cure> {
    let shelf = Shelf { diagnosis };
    let end = cause.end.unwrap_or(End::Sender);
    let copy =
        |option: &str| format!("longhaul cp {option} {} {}", diagnosis.source, diagnosis.target);
    let mut cures = Vec::new();
    let mut add = |found: Vec<Cure>| cures.extend(found);
    match cause.resource {
        Resource::ReceiverWindow => {
            add(shelf.findings(
                End::Receiver,
                &["tcp_rmem", "tcp_moderate_rcvbuf", "tcp_window_scaling"],
            ));
            add(vec![
                shelf
                    .safe(End::Sender, "more connections, each with a window of its own")
                    .value("cp's choice", "16")
                    .run(copy("-P 16")),
            ]);
        }
        Resource::SenderWindow => {
            add(shelf.findings(End::Sender, &["tcp_wmem", "tcp_window_scaling"]));
            add(vec![
                shelf
                    .safe(End::Sender, "more connections, each with a buffer of its own")
                    .value("cp's choice", "16")
                    .run(copy("-P 16")),
            ]);
        }
        Resource::Loss => {
            let control = shelf.congestion().unwrap_or_default();
            if !control.starts_with("bbr") {
                add(vec![
                    shelf
                        .root(
                            End::Sender,
                            "a congestion control that does not take every loss for congestion",
                        )
                        .value(&control, "bbr")
                        .run("sudo sysctl -w net.ipv4.tcp_congestion_control=bbr"),
                ]);
                add(shelf.findings(End::Sender, &["bbr_available"]));
            }
            add(vec![
                shelf
                    .safe(End::Sender, "more connections: each suffers its own losses alone")
                    .value("cp's choice", "16")
                    .run(copy("-P 16")),
                shelf.hardware(
                    End::Receiver,
                    "find and mend what loses packets on the path: optics, \
                                               cables, a duplex mismatch, a policer",
                ),
            ]);
        }
        Resource::CongestionWindow => add(vec![
            shelf.safe(End::Sender, "copy more: the window was still growing").run(copy("")),
            shelf
                .safe(End::Sender, "more connections")
                .value("cp's choice", "16")
                .run(copy("-P 16")),
        ]),
        Resource::LinkRate => add(vec![shelf.hardware(
            End::Receiver,
            "a faster link, or a path around the slow one; or leave it to nobody else meanwhile",
        )
        .value(&cause.allows.to_string(), "")]),
        Resource::TcpMemory => {
            add(shelf.findings(end, &["tcp_mem", "tcp_memory_now"]));
            add(vec![
                shelf
                    .safe(end, "fewer connections, and end what holds the memory")
                    .run("ss -tmn | sort -k2 -n | tail"),
            ]);
        }
        Resource::HostDrops => {
            add(shelf.findings(end, &["core_drops", "missed", "rings", "coalescing"]))
        }
        Resource::InterruptCpu => {
            add(shelf
                .findings(end, &["interrupt_spread", "interrupt_node", "irqbalance", "offloads"]));
        }
        Resource::SenderCpu | Resource::ReceiverCpu => {
            add(vec![
                shelf
                    .safe(end, "stop what else runs on its cores, or give the copy others")
                    .run("ps -eo pid,psr,pcpu,comm --sort=-pcpu | head"),
                shelf
                    .safe(End::Sender, "more connections, whose threads use more cores")
                    .value("cp's choice", "16")
                    .run(copy("-P 16")),
            ]);
            add(shelf.findings(end, &["governor", "turbo", "idle_states", "offloads"]));
            if cause.sentence.contains("quota") {
                add(vec![
                    shelf
                        .root(end, "raise the processor quota of its control group")
                        .run("sudo systemctl set-property UNIT CPUQuota="),
                ]);
            }
            add(vec![shelf.hardware(end, "faster or more cores")]);
        }
        Resource::Encryption => add(vec![
            shelf
                .safe(End::Sender, "do not encrypt; blocks are still authenticated and verified")
                .value("encrypted", "in clear text")
                .run(copy("--cleartext")),
            shelf
                .safe(End::Sender, "more connections, whose threads seal on more cores")
                .value("cp's choice", "16")
                .run(copy("-P 16")),
            shelf.hardware(
                end,
                "a processor with AES instructions (aes, vaes in /proc/cpuinfo), or faster cores",
            ),
        ]),
        Resource::MemoryBandwidth => add(vec![
            shelf
                .safe(End::Sender, "more connections, whose threads use other cores")
                .run(copy("-P 16")),
            shelf.hardware(
                end,
                "memory in every channel of the processor; NIC and disk on one NUMA node",
            ),
        ]),
        Resource::SourceDisk => {
            add(shelf.findings(end, &["scheduler", "read_ahead", "direct_io"]));
            add(vec![
                shelf.safe(end, "see what else uses it").run("iostat -x 1 5"),
                shelf
                    .hardware(end, "a faster disk, or several as one (RAID 0, striped LVM)")
                    .value(&cause.allows.to_string(), ""),
            ]);
        }
        Resource::SinkDisk => {
            add(shelf.findings(end, &["scheduler", "direct_io", "file_system"]));
            add(vec![
                shelf.safe(end, "see what else uses it").run("iostat -x 1 5"),
                shelf
                    .hardware(end, "a faster disk, or several as one (RAID 0, striped LVM)")
                    .value(&cause.allows.to_string(), ""),
            ]);
        }
        Resource::FileAllocation => {
            add(shelf.findings(end, &["file_system"]));
            add(vec![
                shelf
                    .root(
                        end,
                        "a file system that gives room in large extents, such as XFS, and \
                                      that is not nearly full",
                    )
                    .run("df -hT ."),
            ]);
        }
        Resource::SmallFiles => add(vec![
            shelf.safe(End::Sender, "copy them as one archive").run(format!(
                "tar c {} | longhaul cp - {}.tar",
                diagnosis.source, diagnosis.target
            )),
            shelf
                .safe(End::Sender, "do not sync: a crash of the sink's host may lose files")
                .value("synced", "not synced")
                .run(copy("-r --no-fsync")),
            shelf.hardware(end, "a disk with more operations in a second"),
        ]),
        Resource::Contention => add(vec![
            shelf
                .safe(End::Sender, "fewer connections")
                .value("cp's choice", "2")
                .run(copy("-P 2")),
            shelf.hardware(end, "more cores, or disks of their own for source and sink"),
        ]),
    }
    cures
}

/// Where cures come from.
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

    /// What the doctor found there and would have otherwise.
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

    /// The sender's congestion control.
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
        self.command = command.into().trim().to_owned();
        self
    }
}
