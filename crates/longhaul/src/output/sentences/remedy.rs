//! The remedies of a diagnosis as text with commands.

use longhaul_core::plan::Location;
use longhaul_core::result::{Cure, Diagnosis, End, Remedy, Resource};
use longhaul_core::text::shell_quoted;
use longhaul_core::units::Rate;

/// The options of a copy that have no value.
const FLAGS: [&str; 4] = ["-r", "--cleartext", "--no-fsync", "--accept-new"];

/// The displayed value of an option that the user did not set.
const BY_DEFAULT: &str = "cp's choice";

const LARGE_EXTENTS: &str =
    "a file system that allocates large extents, such as XFS, and is not nearly full";

/// The text of a remedy: the change, its present and proposed value, and a command.
#[derive(Default)]
struct Words {
    what: String,
    present: String,
    proposed: String,
    command: String,
}

impl Words {
    fn of(what: impl Into<String>) -> Self {
        Words { what: what.into(), ..Words::default() }
    }

    fn value(mut self, present: &str, proposed: &str) -> Self {
        (self.present, self.proposed) = (present.to_owned(), proposed.to_owned());
        self
    }

    fn run(mut self, command: impl Into<String>) -> Self {
        self.command = command.into();
        self
    }
}

/// The limit that a remedy removes.
#[derive(Clone, Copy)]
pub(super) struct Remedied {
    pub(super) resource: Resource,
    /// The rate that the limit allows.
    pub(super) allows: Rate,
    /// The rate at which a shallow queue begins to drop segments.
    pub(super) drops_at: Rate,
}

/// The proposed bound of the rate, in percent of the rate at which drops set in.
const BOUND_PERCENT: u64 = 90;

/// Fills in the text of a remedy for a limit.
pub(super) fn complete(cure: &mut Cure, remedied: Remedied, diagnosis: &Diagnosis) {
    let (Some(remedy), Some(end)) = (&cure.remedy, cure.end) else { return };
    let words = match remedy {
        Remedy::Finding { rule } => finding(rule, end, diagnosis),
        other => Some(words(other, remedied, diagnosis)),
    };
    let Some(Words { what, present, proposed, command }) = words else { return };
    (cure.what, cure.present, cure.proposed, cure.command) = (what, present, proposed, command);
    cure.host = host_of(diagnosis, end);
}

fn finding(rule: &str, end: End, diagnosis: &Diagnosis) -> Option<Words> {
    let finding = diagnosis.ends.of(end)?.finding(rule)?;
    let command = finding.commands.first().cloned().unwrap_or_default();
    Some(Words::of(&finding.title).value(&finding.present, &finding.wanted).run(command))
}

fn words(remedy: &Remedy, remedied: Remedied, diagnosis: &Diagnosis) -> Words {
    let Remedied { resource, allows, drops_at } = remedied;
    let allows = &allows.to_string();
    let cp = |words: &[&str]| cp(words, diagnosis);
    match remedy {
        Remedy::PathRepair
        | Remedy::DeeperQueue
        | Remedy::FasterCores
        | Remedy::AesCores
        | Remedy::MemoryChannels
        | Remedy::DiskOperations
        | Remedy::SeparateDisks => Words::of(repair(remedy)),
        // The words of a finding are those of the doctor.
        Remedy::Finding { .. } => Words::default(),
        Remedy::MoreStreams => {
            Words::of(more_streams(resource)).value(BY_DEFAULT, "16").run(cp(&["-P", "16"]))
        }
        Remedy::FewerStreams => {
            Words::of("fewer connections").value(BY_DEFAULT, "2").run(cp(&["-P", "2"]))
        }
        Remedy::LongerCopy => {
            Words::of("copy more: the window was still growing").run(longer(diagnosis))
        }
        Remedy::Bbr => {
            Words::of("a congestion control that does not take every loss for congestion")
                .value(congestion(diagnosis), "bbr")
                .run("sudo sysctl -w net.ipv4.tcp_congestion_control=bbr")
        }
        Remedy::FasterLink => {
            Words::of("a faster link, or a path around the slow one").value(allows, "")
        }
        Remedy::LowerRate => {
            let bound = Rate::from_bps(drops_at.bps() / 100 * BOUND_PERCENT).to_string();
            Words::of(lower_rate(drops_at, diagnosis.bounded.map(|test| test.bound_bps)))
                .value(BY_DEFAULT, &bound)
                .run(cp(&["--bwlimit", &bound.replace(' ', "")]))
        }
        Remedy::FreeTcpMemory => {
            Words::of("stop the programs that use the memory").run("ss -tmn | sort -k2 -n | tail")
        }
        Remedy::HigherQuota => Words::of("raise the processor quota of its control group")
            .run("sudo systemctl set-property UNIT CPUQuota="),
        Remedy::FreeCores => {
            Words::of("stop the other programs on its cores, or give the copy other cores")
                .run("ps -eo pid,psr,pcpu,comm --sort=-pcpu | head")
        }
        Remedy::ClearText => {
            Words::of("do not encrypt; blocks are still authenticated and verified")
                .value("encrypted", "in clear text")
                .run(cp(&["--cleartext"]))
        }
        Remedy::OtherDiskUsers => {
            Words::of("find the other programs that use it").run("iostat -x 1 5")
        }
        Remedy::FasterDisk => {
            Words::of("a faster disk, or several as one (RAID 0, striped LVM)").value(allows, "")
        }
        Remedy::LargeExtents => Words::of(LARGE_EXTENTS).run("df -hT ."),
        Remedy::OneArchive => Words::of("copy them as one archive").run(archive(diagnosis)),
        Remedy::NoSync => Words::of("do not sync: a crash of the sink's host may lose files")
            .value("synced", "not synced")
            .run(cp(&["--no-fsync"])),
    }
}

/// Returns the advice to lower the rate. `tested` is the rate of a test that lost nearly no segments.
fn lower_rate(drops_at: Rate, tested: Option<Rate>) -> String {
    let lower = match tested {
        Some(rate) => format!("lower it to {rate}, at which the test lost nearly no segments"),
        None => "halve it".to_owned(),
    };
    format!(
        "limit the rate to less than {drops_at}, the highest rate that the path delivered; a queue of a few segments can \
         also drop bursts below this rate: if the copy still retransmits segments, {lower}"
    )
}

/// Returns the command that copies the source as one archive; none if the source is on another host,
/// whose files only a command on that host can archive.
fn archive(diagnosis: &Diagnosis) -> String {
    let Diagnosis { source, target, .. } = diagnosis;
    if !matches!(source.parse(), Ok(Location::Local(_))) {
        return String::new();
    }
    let target = match target.rsplit(['/', ':']).next() {
        _ if target == "/dev/null" => target.clone(),
        Some("") => format!("{target}archive.tar"),
        Some("." | "..") => format!("{target}/archive.tar"),
        _ => format!("{target}.tar"),
    };
    let (source, target) = (place(source), place(&target));
    let words = options_without("-r", diagnosis).into_iter().chain(["-".to_owned(), target]);
    format!("tar c {} | {}", shell_quoted(&source), command(words))
}

/// Returns the words for new or repaired hardware.
fn repair(remedy: &Remedy) -> &'static str {
    match remedy {
        Remedy::PathRepair => {
            "find and repair the part that loses packets: optics, cables, a duplex mismatch, a \
             policer"
        }
        Remedy::DeeperQueue => {
            "a longer queue at that link, or a larger burst size of the policer: at least 10 ms at \
             its rate"
        }
        Remedy::FasterCores => "faster or more cores",
        Remedy::AesCores => {
            "cores with AES instructions (aes, vaes in /proc/cpuinfo), or faster cores"
        }
        Remedy::MemoryChannels => "memory in every channel; NIC and disk on one NUMA node",
        Remedy::DiskOperations => "a disk with more operations per second",
        Remedy::SeparateDisks => "more cores, or separate disks for source and sink",
        _ => "",
    }
}

/// Returns the effect of more connections on a limit.
fn more_streams(resource: Resource) -> &'static str {
    match resource {
        Resource::ReceiverWindow => "more connections, each with its own window",
        Resource::SenderWindow => "more connections, each with its own buffer",
        Resource::Loss => "more connections: a loss slows only one of them",
        Resource::HostDrops => "more connections, whose packets use more queues",
        Resource::InterruptCpu => "more connections, whose interrupts use more cores",
        Resource::SenderCpu | Resource::ReceiverCpu => {
            "more connections, whose threads use more cores"
        }
        Resource::Encryption => "more connections, whose threads encrypt on more cores",
        Resource::MemoryBandwidth => "more connections, whose threads use other cores",
        _ => "more connections",
    }
}

/// Returns the sender's congestion control in the tests.
fn congestion(diagnosis: &Diagnosis) -> &str {
    let mut rounds = diagnosis.steps.iter().flat_map(|step| &step.rounds);
    let reason = rounds.find_map(|round| round.reason.as_deref());
    reason.map_or("", |reason| &reason.facts.congestion)
}

/// Returns the copy command of the user with `words`, an option and its value. The option replaces
/// that of the user.
fn cp(words: &[&str], diagnosis: &Diagnosis) -> String {
    let options = options_without(words.first().unwrap_or(&""), diagnosis);
    let places = [place(&diagnosis.source), place(&diagnosis.target)];
    command(options.into_iter().chain(words.iter().map(|&word| word.to_owned())).chain(places))
}

/// Returns the command `longhaul cp` with `words`.
fn command(words: impl IntoIterator<Item = String>) -> String {
    let add = |command: String, word: String| format!("{command} {}", shell_quoted(&word));
    words.into_iter().fold("longhaul cp".to_owned(), add)
}

/// Returns the command of a longer copy; none if the size of the copy is an option.
fn longer(diagnosis: &Diagnosis) -> String {
    let is_sized = each_option(&diagnosis.copy_options).any(|option| option[0] == "--size");
    if is_sized { String::new() } else { cp(&[], diagnosis) }
}

/// Returns the words of the options of the user's copy, except the option `name`.
fn options_without(name: &str, diagnosis: &Diagnosis) -> Vec<String> {
    let mut options = diagnosis.copy_options.clone();
    // Documents of older versions have no options.
    if options.is_empty() && diagnosis.subset.files > 1 {
        options.push("-r".to_owned());
    }
    each_option(&options).filter(|option| option[0] != name).flatten().cloned().collect()
}

/// Splits `words` into options: a flag, or a name and its value.
fn each_option(words: &[String]) -> impl Iterator<Item = &[String]> {
    let mut rest = words;
    std::iter::from_fn(move || {
        let length = if FLAGS.contains(&rest.first()?.as_str()) { 1 } else { 2 };
        let (option, others) = rest.split_at(length.min(rest.len()));
        rest = others;
        Some(option)
    })
}

/// Returns a source or target in the form in which it is not an option.
fn place(text: &str) -> String {
    if text.starts_with('-') { format!("./{text}") } else { text.to_owned() }
}

/// Returns the name of the host of `end`.
pub(super) fn host_of(diagnosis: &Diagnosis, end: End) -> String {
    let known = diagnosis.ends.of(end).map(|view| view.host.clone());
    known.unwrap_or_else(|| format!("the {}'s host", name_of(end)))
}

/// Returns "source" or "sink".
pub(super) fn name_of(end: End) -> &'static str {
    match end {
        End::Sender => "source",
        End::Receiver => "sink",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diagnosis(source: &str, target: &str, options: &[&str]) -> Diagnosis {
        let recorded =
            include_str!("../../../../longhaul-core/tests/fixtures/diagnoses/link-rate.json");
        Diagnosis {
            source: source.to_owned(),
            target: target.to_owned(),
            copy_options: options.iter().map(|&option| option.to_owned()).collect(),
            ..serde_json::from_str(recorded).unwrap()
        }
    }

    #[test]
    fn a_command_has_the_options_of_the_user() {
        let options = ["-r", "-P", "8", "-e", "ssh -J gate"];
        let copy = diagnosis("my data", "me@far:in", &options);
        let expected = "longhaul cp -r -e 'ssh -J gate' -P 16 'my data' me@far:in";
        assert_eq!(cp(&["-P", "16"], &copy), expected);
        let expected = "longhaul cp -r -P 8 -e 'ssh -J gate' --cleartext 'my data' me@far:in";
        assert_eq!(cp(&["--cleartext"], &copy), expected);
        let zeros = diagnosis("/dev/zero", "me@far:/dev/null", &["--size", "4G"]);
        let expected = "longhaul cp --size 4G -P 16 /dev/zero me@far:/dev/null";
        assert_eq!(cp(&["-P", "16"], &zeros), expected);
        assert_eq!(longer(&zeros), "");
        assert_eq!(cp(&[], &diagnosis("-x", "in", &[])), "longhaul cp ./-x in");
        // A value that looks like an option, and a document with a name without its value.
        let odd = diagnosis("a", "b:", &["--far-longhaul", "-P", "-r", "-P"]);
        let expected = "longhaul cp --far-longhaul -P -r -P 16 a b:";
        assert_eq!(cp(&["-P", "16"], &odd), expected);
    }

    #[test]
    fn an_archive_has_a_name_at_the_target() {
        for (source, target, expected) in [
            ("a b", "lh://far/in", "tar c 'a b' | longhaul cp -P 8 - lh://far/in.tar"),
            ("data", "far:in/", "tar c data | longhaul cp -P 8 - far:in/archive.tar"),
            ("data", "far:", "tar c data | longhaul cp -P 8 - far:archive.tar"),
            ("data", "far:.", "tar c data | longhaul cp -P 8 - far:./archive.tar"),
            ("data", "/dev/null", "tar c data | longhaul cp -P 8 - /dev/null"),
            ("far:data", "in", ""),
        ] {
            assert_eq!(archive(&diagnosis(source, target, &["-r", "-P", "8"])), expected);
        }
    }

    #[test]
    fn a_lower_rate_is_advised_with_its_uncertainty() {
        let (drops_at, tested) = (Rate::from_bps(500_000_000), Rate::from_bps(120_000_000));
        let advice = lower_rate(drops_at, Some(tested));
        assert!(advice.contains("less than 500 Mb/s"), "{advice}");
        assert!(advice.ends_with("to 120 Mb/s, at which the test lost nearly no segments"));
        assert!(lower_rate(drops_at, None).ends_with("still retransmits segments, halve it"));
    }
}
