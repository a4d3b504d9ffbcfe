//! Rules for disks and file systems.

use crate::doctor::rule::{NOTHING, RuleAnswer, RuleJudgement, advice, fine, problem};
use crate::doctor::{DirectIoSupport, DiskFacts, HostFacts, MountFacts, Target};
use crate::units::{Bytes, Rate};

/// Network file systems and other remote ones.
const REMOTE: [&str; 9] = ["nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "beegfs", "gpfs", "9p"];
/// The access time in seconds of a rotational disk, and of flash under load.
const SEEK_SECONDS: f64 = 0.010;
const FLASH_SECONDS: f64 = 0.001;

pub(super) fn file_system(disk: &DiskFacts, _: &HostFacts, _: &Target) -> RuleAnswer {
    let mount = disk.mount.clone()?;
    let device = disk.device.clone().ok().flatten();
    by_options(&mount)
        .unwrap_or_else(|| by_kind(&mount.kind))
        .with("file_system", mount.kind)
        .with("mount_point", mount.point)
        .with_any("device", device)
        .answer()
}

fn by_options(mount: &MountFacts) -> Option<RuleJudgement> {
    let has = |option: &str| mount.options.iter().any(|one| one == option);
    match () {
        () if has("ro") => Some(advice("read_only")),
        () if has("sync") => Some(problem("sync")),
        () if has("data=journal") => Some(problem("data_journal")),
        () if has("strictatime") => Some(advice("strictatime")),
        () => None,
    }
}

fn by_kind(kind: &str) -> RuleJudgement {
    match kind {
        "tmpfs" | "ramfs" => advice("memory"),
        "overlay" => advice("overlay"),
        kind if REMOTE.contains(&kind) || kind.starts_with("fuse") => advice("remote"),
        _ => fine("local"),
    }
}

pub(super) fn room(disk: &DiskFacts, _: &HostFacts, target: &Target) -> RuleAnswer {
    let (free, all) = disk.room.clone()?;
    let share = free.get() as f64 / all.get().max(1) as f64;
    let judgement = if share < 0.05 { advice("low") } else { fine("enough") };
    judgement
        .with("free_bytes", free)
        .with("size_bytes", all)
        .with("full_after_seconds", Rate::time_for(target.rate, free.get()).as_secs_f64().round())
        .with("target_bps", target.rate)
        .answer()
}

pub(super) fn direct_io(disk: &DiskFacts, _: &HostFacts, _: &Target) -> RuleAnswer {
    match disk.direct_io.clone()? {
        DirectIoSupport::Works => fine("works"),
        DirectIoSupport::Refused => advice("refused"),
    }
    .answer()
}

pub(super) fn scheduler(disk: &DiskFacts, _: &HostFacts, _: &Target) -> RuleAnswer {
    let Some(device) = disk.device.clone()? else { return NOTHING };
    let (present, turns) = (disk.scheduler.clone()?, disk.rotational.clone()?);
    let (ordered, bare) = (["mq-deadline", "deadline"], ["none", "noop"]);
    let good = ordered.contains(&present.as_str()) || (!turns && bare.contains(&present.as_str()));
    match (good, turns) {
        (true, _) => fine("good"),
        (false, true) => advice("other_rotational").with("wanted", "mq-deadline"),
        (false, false) => advice("other").with("wanted", "none"),
    }
    .with("scheduler", present)
    .with("device", device)
    .answer()
}

pub(super) fn read_ahead(disk: &DiskFacts, _: &HostFacts, target: &Target) -> RuleAnswer {
    let Some(device) = disk.device.clone()? else { return NOTHING };
    let (present, turns) = (disk.read_ahead.clone()?, disk.rotational.clone()?);
    let wait = if turns { SEEK_SECONDS } else { FLASH_SECONDS };
    let wanted = Bytes::new(
        ((target.rate.bytes_per_second() as f64 * wait) as u64).next_multiple_of(64 << 10),
    );
    let judgement = if present >= wanted { fine("enough") } else { advice("small") };
    judgement
        .with("read_ahead_bytes", present)
        .with("wanted_bytes", wanted)
        .with("wanted_sectors", wanted.get() / 512)
        .with("access_ms", wait * 1e3)
        .with("target_bps", target.rate)
        .with("device", device)
        .answer()
}

pub(super) fn node(disk: &DiskFacts, host: &HostFacts, _: &Target) -> RuleAnswer {
    if host.nodes.len() < 2 {
        return NOTHING;
    }
    let Some(node) = disk.node.clone()? else { return NOTHING };
    let nodes = host.interfaces.iter().filter_map(|one| Some((&one.name, one.node.clone().ok()??)));
    let other = nodes.into_iter().find(|(_, near)| *near != node);
    match other {
        None => fine("same"),
        Some((name, near)) => {
            advice("other").with("interface", name.as_str()).with("interface_node", near)
        }
    }
    .with("node", node)
    .answer()
}
