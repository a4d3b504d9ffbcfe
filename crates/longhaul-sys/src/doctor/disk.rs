//! Reads facts about directories and their disks.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use longhaul_core::doctor::{DirectIoSupport, DiskFacts, FactResult, MountFacts, UnknownFact};
use longhaul_core::units::Bytes;

use super::FactSource;
use super::interface::{bus, node};
use super::pci::Place;

/// The largest depth of a stack of devices: LVM on encryption on RAID on a partition has four.
const DEPTH: usize = 8;

/// Reads facts about the directory at `path` and the devices below it. If permitted, creates a
/// temporary unnamed file there to test direct I/O.
pub(super) fn read(source: &FactSource, path: &str) -> DiskFacts {
    let real = source.call(&format!("directory {path}"), || {
        let real = fs::canonicalize(path)?;
        Ok(real.to_string_lossy().into_owned())
    });
    let real = match real {
        Ok(real) => real,
        Err(unseen) => return nothing(path, unseen),
    };
    let mount = mount(source, &real);
    let device =
        mount.clone().and_then(|(_, number, device)| whole_device(source, &number, &device));
    // The first device at the bottom of the stack represents all of them.
    let bottom = device.clone().map(|device| device.map(|name| lowest(source, name)));
    let sharers = bottom.as_ref().ok().and_then(Option::as_ref).map_or(1, |(_, sharers)| *sharers);
    let bottom = bottom.map(|bottom| bottom.map(|(name, _)| name));
    let queue = |name: &str, what: &str| source.text(&format!("sys/block/{name}/queue/{what}"));
    let of = |name: &FactResult<Option<String>>| match name {
        Ok(Some(name)) => Ok(name.clone()),
        Ok(None) => Err(UnknownFact::absent(format!("block device of {path}"))),
        Err(unseen) => Err(unseen.clone()),
    };
    let place = of(&bottom)
        .and_then(|name| source.real(&format!("sys/block/{name}")))
        .ok()
        .and_then(|path| Place::in_path(&path));
    DiskFacts {
        path: path.to_owned(),
        mount: mount.map(|(facts, ..)| facts),
        direct_io: direct_io(source, path),
        room: free_space(source, path),
        scheduler: of(&bottom)
            .and_then(|name| queue(&name, "scheduler"))
            .map(|text| in_force(&text)),
        read_ahead: of(&device).and_then(|name| {
            let text = queue(&name, "read_ahead_kb")?;
            let kib =
                text.parse().map_err(|_| UnknownFact::not_understood("read_ahead_kb", &text))?;
            Ok(Bytes::kib(kib))
        }),
        rotational: of(&bottom).and_then(|name| turns(source, &name)),
        node: node(source, place.as_ref()),
        pci: bus(source, place.as_ref(), sharers),
        device,
    }
}

/// Returns facts for a directory that does not exist or is unreachable: all unseen.
fn nothing(path: &str, unseen: UnknownFact) -> DiskFacts {
    DiskFacts {
        path: path.to_owned(),
        mount: Err(unseen.clone()),
        direct_io: Err(unseen.clone()),
        room: Err(unseen.clone()),
        device: Err(unseen.clone()),
        scheduler: Err(unseen.clone()),
        read_ahead: Err(unseen.clone()),
        rotational: Err(unseen.clone()),
        node: Err(unseen),
        pci: Ok(None),
    }
}

/// Returns whether a disk is rotational. Virtual disks (`vd`, `xvd`) always report that they are,
/// which is ignored.
fn turns(source: &FactSource, name: &str) -> FactResult<bool> {
    let says = source.text(&format!("sys/block/{name}/queue/rotational"))? == "1";
    Ok(says && !name.starts_with("vd") && !name.starts_with("xvd"))
}

/// Returns the value in brackets: `none` for `[none] mq-deadline kyber`.
fn in_force(text: &str) -> String {
    let bracketed = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    bracketed.map_or(text, |(name, _)| name).to_owned()
}

/// Returns the mount that contains `real`, with its device's number and name, from
/// `/proc/self/mountinfo` (proc_pid_mountinfo(5)).
fn mount(source: &FactSource, real: &str) -> FactResult<(MountFacts, String, String)> {
    let table = source.text("proc/self/mountinfo")?;
    nearest_mount(&table, Path::new(real))
        .ok_or_else(|| UnknownFact::absent("/proc/self/mountinfo"))
}

fn nearest_mount(table: &str, path: &Path) -> Option<(MountFacts, String, String)> {
    let mounts = table.lines().filter_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ').skip(2);
        // A blank in a mount point is written as \040.
        let (number, point) = (left.next()?, left.nth(1)?.replace("\\040", " "));
        let mut right = right.split(' ');
        let (kind, device, more) = (right.next()?, right.next()?, right.next()?);
        let options = left.next()?.split(',').chain(more.split(',')).map(str::to_owned).collect();
        let facts = MountFacts { kind: kind.to_owned(), point, options };
        Some((facts, number.to_owned(), device.to_owned()))
    });
    mounts
        .filter(|(facts, ..)| path.starts_with(&facts.point))
        // Of equal mount points the last one counts: a later mount covers an earlier one.
        .max_by_key(|(facts, ..)| facts.point.len())
}

/// Returns the device, or the disk of which it is a partition.
fn whole_device(source: &FactSource, number: &str, device: &str) -> FactResult<Option<String>> {
    // The device number of Btrfs belongs to no block device, so the device is found by name.
    let named = device.strip_prefix("/dev/").map(|name| format!("sys/class/block/{name}"));
    let real = match (number.split_once(':'), named) {
        (Some(("0", _)), None) => return Ok(None),
        (Some(("0", _)), Some(named)) => source.real(&named),
        _ => source.real(&format!("sys/dev/block/{number}")),
    };
    let Ok(real) = real else { return Ok(None) };
    let mut parts = real.rsplit('/');
    let name = parts.next().unwrap_or_default();
    let whole = match source.text(&format!("{real}/partition")) {
        Ok(_) => parts.next().unwrap_or(name),
        Err(_) => name,
    };
    Ok(Some(whole.to_owned()))
}

/// Returns the first bottom device below `name`, and the number of bottom devices that share its
/// load.
fn lowest(source: &FactSource, mut name: String) -> (String, u32) {
    let mut sharers = 1;
    for _ in 0..DEPTH {
        let below = source.names(&format!("sys/block/{name}/slaves")).unwrap_or_default();
        let Some(first) = below.first() else { break };
        let Ok(real) = source.real(&format!("sys/class/block/{first}")) else { break };
        sharers *= below.len() as u32;
        let partition = source.text(&format!("{real}/partition")).is_ok();
        name = real.rsplit('/').nth(usize::from(partition)).unwrap_or(first).to_owned();
    }
    (name, sharers)
}

fn free_space(source: &FactSource, path: &str) -> FactResult<(Bytes, Bytes)> {
    let [free, all] = source.numbers(&format!("room {path}"), ["free", "all"], || {
        let disk = rustix::fs::statvfs(path)?;
        let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
        Ok([bytes(disk.f_bavail), bytes(disk.f_blocks)])
    })?;
    Ok((Bytes::new(free), Bytes::new(all)))
}

fn direct_io(source: &FactSource, path: &str) -> FactResult<DirectIoSupport> {
    let [works] = source.numbers(&format!("direct {path}"), ["works"], || {
        Ok([u64::from(opens_directly(Path::new(path))?)])
    })?;
    Ok(if works == 1 { DirectIoSupport::Works } else { DirectIoSupport::Refused })
}

/// Returns whether a file can be opened for direct I/O. open(2) fails with `EINVAL` if the file
/// system does not support it.
fn opens_directly(path: &Path) -> io::Result<bool> {
    let mut options = OpenOptions::new();
    if fs::metadata(path)?.mode() & libc::S_IFMT == libc::S_IFDIR {
        options.read(true).write(true).custom_flags(libc::O_TMPFILE | libc::O_DIRECT);
    } else {
        options.read(true).custom_flags(libc::O_DIRECT);
    }
    match options.open(path) {
        Ok(_) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_mount_is_found_with_its_device() {
        let table = "22 1 259:2 / / rw,relatime - ext4 /dev/nvme0n1p2 rw,errors=remount-ro\n\
                     30 22 0:40 /data /big\\040data rw,noatime shared:1 - btrfs /dev/sdb rw,ssd\n";
        let (facts, number, device) = nearest_mount(table, Path::new("/big data/run")).unwrap();
        assert_eq!((&*facts.kind, &*number, &*device), ("btrfs", "0:40", "/dev/sdb"));
        assert_eq!(facts.options, ["rw", "noatime", "rw", "ssd"]);
        assert_eq!(nearest_mount(table, Path::new("/home")).unwrap().0.point, "/");
        assert_eq!(in_force("mq-deadline kyber [none]"), "none");
        assert_eq!(in_force("none"), "none");
    }

    #[test]
    fn this_directory_answers() {
        let facts = read(&FactSource::host(), &std::env::temp_dir().to_string_lossy());
        assert!(facts.mount.is_ok() && facts.room.is_ok() && facts.direct_io.is_ok(), "{facts:?}");
        let missing = read(&FactSource::host(), "/no/such/directory");
        assert!(missing.mount.is_err() && missing.room.is_err() && missing.direct_io.is_err());
    }
}
