//! Rules for disks and file systems.

use crate::doctor::rule::{Answer, NOTHING, advice, fine, problem};
use crate::doctor::{DirectIoSupport, DiskFacts, HostFacts, Target};
use crate::units::{Bytes, Rate};

/// Network file systems and other remote ones.
const REMOTE: [&str; 9] = ["nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "beegfs", "gpfs", "9p"];
/// The access time in seconds of a rotational disk, and of flash under load.
const SEEK_SECONDS: f64 = 0.010;
const FLASH_SECONDS: f64 = 0.001;

pub(super) fn file_system(disk: &DiskFacts, _: &HostFacts, _: &Target) -> Answer {
    let mount = disk.mount.clone()?;
    let device = disk.device.clone().ok().flatten();
    let seen = format!(
        "{} at {}{}",
        mount.kind,
        mount.point,
        device.map_or(String::new(), |device| format!(", on {device}"))
    );
    let has = |option: &str| mount.options.iter().any(|one| one == option);
    let point = &mount.point;
    if has("ro") {
        return advice(format!("{seen}, read-only")).why("copies to it are impossible").answer();
    }
    if has("sync") || has("data=journal") {
        return problem(format!("{seen}, {}", if has("sync") { "sync" } else { "data=journal" }))
            .wanted("asynchronous writes, only metadata in the journal")
            .why(
                "every block waits for the disk, or is written twice; longhaul cp syncs each file \
                  before it gets its name",
            )
            .run(if has("sync") {
                format!("sudo mount -o remount,async {point}")
            } else {
                format!("sudoedit /etc/fstab    # {point}: data=ordered; then mount it again")
            })
            .answer();
    }
    if has("strictatime") {
        return advice(format!("{seen}, strictatime"))
            .wanted("relatime or noatime")
            .why("every read of a file writes its access time")
            .run(format!("sudo mount -o remount,noatime {point}"))
            .answer();
    }
    match mount.kind.as_str() {
        "tmpfs" | "ramfs" => advice(seen)
            .wanted("a disk")
            .why("these files are in memory: fast, and lost at the next boot")
            .answer(),
        "overlay" => advice(seen)
            .wanted("a separate volume")
            .why("a container layer copies a whole file at the first write to it")
            .answer(),
        kind if REMOTE.contains(&kind) || kind.starts_with("fuse") => advice(seen)
            .wanted("its rate, measured separately")
            .why("these files come over another network or from another program")
            .run("longhaul doctor --active --disk .")
            .answer(),
        _ => fine(seen).answer(),
    }
}

pub(super) fn room(disk: &DiskFacts, _: &HostFacts, target: &Target) -> Answer {
    let (free, all) = disk.room.clone()?;
    let seen = format!("{free} of {all}");
    let share = free.get() as f64 / all.get().max(1) as f64;
    let lasts = Rate::time_for(target.rate, free.get());
    let why = format!("at {} it is full after {:.0} s", target.rate, lasts.as_secs_f64());
    if share < 0.05 {
        return advice(seen)
            .wanted("5 % or more")
            .why(format!("{why}; a full file system takes long to find free blocks"))
            .run(format!("du -xh -d1 {} | sort -h | tail", disk.path))
            .answer();
    }
    fine(seen).why(why).answer()
}

pub(super) fn direct_io(disk: &DiskFacts, _: &HostFacts, _: &Target) -> Answer {
    match disk.direct_io.clone()? {
        DirectIoSupport::Works => {
            fine("works").why("files bypass the page cache without a copy").answer()
        }
        DirectIoSupport::Refused => advice("refused by the file system")
            .wanted("ext4, XFS or another that supports O_DIRECT")
            .why(
                "every byte is copied through the page cache, which costs a core some 5 GB/s of \
                  its memory's speed",
            )
            .answer(),
    }
}

pub(super) fn scheduler(disk: &DiskFacts, _: &HostFacts, _: &Target) -> Answer {
    let Some(device) = disk.device.clone()? else { return NOTHING };
    let (seen, turns) = (disk.scheduler.clone()?, disk.rotational.clone()?);
    let (ordered, bare) = (["mq-deadline", "deadline"], ["none", "noop"]);
    if ordered.contains(&seen.as_str()) || (!turns && bare.contains(&seen.as_str())) {
        return fine(seen).answer();
    }
    let wanted = if turns { "mq-deadline" } else { "none" };
    advice(format!("{seen}, on {device}{}", if turns { ", rotational" } else { "" }))
        .wanted(wanted)
        .why(
            "it keeps long reads and writes in order and adds no delay (ESnet's guide \
              for data-transfer nodes: deadline)",
        )
        .run(format!("echo {wanted} | sudo tee /sys/block/{device}/queue/scheduler"))
        .answer()
}

pub(super) fn read_ahead(disk: &DiskFacts, _: &HostFacts, target: &Target) -> Answer {
    let Some(device) = disk.device.clone()? else { return NOTHING };
    let (seen, turns) = (disk.read_ahead.clone()?, disk.rotational.clone()?);
    let wait = if turns { SEEK_SECONDS } else { FLASH_SECONDS };
    let wanted = Bytes::new(
        ((target.rate.bytes_per_second() as f64 * wait) as u64).next_multiple_of(64 << 10),
    );
    let why = format!(
        "{} / 8 x {} ms that the disk may take = {wanted}; programs that read through the page \
         cache wait otherwise (longhaul cp reads ahead by itself, with direct I/O)",
        target.rate,
        wait * 1e3
    );
    if seen >= wanted {
        return fine(seen.to_string()).why(why).answer();
    }
    advice(seen.to_string())
        .wanted(format!("{wanted} or more"))
        .why(why)
        .run(format!("sudo blockdev --setra {} /dev/{device}", wanted.get() / 512))
        .answer()
}

pub(super) fn node(disk: &DiskFacts, host: &HostFacts, _: &Target) -> Answer {
    if host.nodes.len() < 2 {
        return NOTHING;
    }
    let Some(node) = disk.node.clone()? else { return NOTHING };
    let others: Vec<_> = host
        .interfaces
        .iter()
        .filter_map(|one| Some((&one.name, one.node.clone().ok()??)))
        .filter(|(_, near)| *near != node)
        .collect();
    let Some((name, near)) = others.first() else {
        return fine(format!("node {node}, as the network")).answer();
    };
    advice(format!("disk on node {node}, {name} on node {near}"))
        .wanted("one node for both")
        .why(
            "what is read is carried from one processor's memory to the other's before it is sent; \
              another slot, or programs on the network's node",
        )
        .run(format!("numactl --cpunodebind={near} longhaul serve --root {}", disk.path))
        .answer()
}
