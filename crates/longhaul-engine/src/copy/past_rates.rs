//! The rates that earlier copies reached, per destination, in the user's cache.
//!
//! The rate of the last copy over a path determines the number of connections at the start of a
//! copy, and limits the rate of its ramp-up. The file is a hint: it is used only if no other user
//! could have written it, and every value in it is bounded. `docs/design/ramp-up.md` describes its
//! effect.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use longhaul_core::units::Rate;
use rustix::fs::{FileType, Mode, OFlags, fstat};

use crate::session::random_keying_material;

/// The file in the cache directory.
const FILE: &str = "rates";
/// The first line.
const HEADING: &str = "longhaul rates 1";
/// The longest file that is read, and the maximum number of entries that are written.
const LENGTH_LIMIT: u64 = 128 << 10;
const ENTRIES: usize = 256;
/// The time after which a rate is discarded.
const LIFETIME: Duration = Duration::from_secs(7 * 24 * 3600);
/// The rates that are remembered.
const SLOWEST: Rate = Rate::from_bps(1_000_000);
const FASTEST: Rate = Rate::from_bps(1_000_000_000_000);
/// Paths with a shorter round trip need no memory.
const SHORTEST: Duration = Duration::from_millis(2);

/// The direction of a copy, as the client sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::copy) enum Direction {
    To,
    From,
}

/// One path: a direction, and `HOST:PORT` of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::copy) struct PathName<'a> {
    pub(in crate::copy) direction: Direction,
    pub(in crate::copy) server: &'a str,
    pub(in crate::copy) rtt: Duration,
}

/// The rates of earlier copies.
#[derive(Debug, Clone)]
pub struct PastRates {
    /// None where nothing is kept.
    dir: Option<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    direction: Direction,
    server: String,
    rate: Rate,
    rtt: Duration,
    at: SystemTime,
}

impl PastRates {
    /// Returns the rates in `$XDG_CACHE_HOME/longhaul` or `~/.cache/longhaul`.
    pub fn of_user() -> Self {
        let base = |name: &str| {
            std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute())
        };
        let base = base("XDG_CACHE_HOME").or_else(|| base("HOME").map(|home| home.join(".cache")));
        PastRates { dir: base.map(|base| base.join("longhaul")) }
    }

    /// Returns the rates in the directory `dir`.
    pub fn at(dir: impl Into<PathBuf>) -> Self {
        PastRates { dir: Some(dir.into()) }
    }

    /// Returns the rate that an earlier copy reached over `path`, if its round-trip time was similar.
    pub(in crate::copy) fn find(&self, path: PathName<'_>, now: SystemTime) -> Option<Rate> {
        let entry = self.read(now).ok()?.into_iter().find(|entry| entry.is_of(path))?;
        let similar = path.rtt < 2 * entry.rtt && entry.rtt < 2 * path.rtt;
        similar.then_some(entry.rate)
    }

    /// Remembers the `rate` that a copy reached over `path`. A slower copy than the one before
    /// halves the rate at most, because another cause than the path may have limited it.
    pub(in crate::copy) fn note(&self, path: PathName<'_>, rate: Rate, now: SystemTime) {
        if path.rtt < SHORTEST || !is_name(path.server) {
            return;
        }
        let before = self.find(path, now).unwrap_or_default();
        let rate = Rate::from_bps(rate.bps().max(before.bps() / 2)).clamp(SLOWEST, FASTEST);
        // A file that cannot be used is replaced, and a failure loses only the hint.
        let mut entries = self.read(now).unwrap_or_default();
        entries.retain(|entry| !entry.is_of(path));
        let PathName { direction, server, rtt } = path;
        entries.insert(0, Entry { direction, server: server.to_owned(), rate, rtt, at: now });
        entries.truncate(ENTRIES);
        let _ = self.write(&entries);
    }

    /// Reads the entries that are younger than [`LIFETIME`], the newest first.
    fn read(&self, now: SystemTime) -> io::Result<Vec<Entry>> {
        let dir = self.dir.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let above = rustix::fs::open(dir, flags | OFlags::DIRECTORY, Mode::empty())?;
        check(&above, FileType::Directory)?;
        let file = rustix::fs::openat(&above, FILE, flags, Mode::empty())?;
        check(&file, FileType::RegularFile)?;
        let mut text = String::new();
        let read = File::from(file).take(LENGTH_LIMIT + 1).read_to_string(&mut text)?;
        let mut lines = text.lines();
        if read as u64 > LENGTH_LIMIT || lines.next() != Some(HEADING) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(lines.filter_map(|line| Entry::parse(line, now)).take(ENTRIES).collect())
    }

    /// Replaces the file; a reader sees the old one or the new one.
    fn write(&self, entries: &[Entry]) -> io::Result<()> {
        let dir = self.dir.as_ref().ok_or(io::ErrorKind::NotFound)?;
        // Not recursive: a home directory that does not exist is not created.
        for dir in dir.parent().into_iter().chain([dir.as_path()]) {
            match DirBuilder::new().mode(0o700).create(dir) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC;
        check(&rustix::fs::open(dir, flags, Mode::empty())?, FileType::Directory)?;
        let [a, b, c, d, ..] = random_keying_material();
        let temporary = dir.join(format!("{FILE}.new-{:08x}", u32::from_be_bytes([a, b, c, d])));
        let lines: String = entries.iter().map(Entry::line).collect();
        let written = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary)
            .and_then(|mut file| file.write_all(format!("{HEADING}\n{lines}").as_bytes()))
            .and_then(|()| fs::rename(&temporary, dir.join(FILE)));
        written.inspect_err(|_| {
            let _ = fs::remove_file(&temporary);
        })
    }
}

/// Checks that an open file is of the kind `wanted`, belongs to this user, and cannot be changed by
/// others.
fn check(file: &impl std::os::fd::AsFd, wanted: FileType) -> io::Result<()> {
    let stat = fstat(file)?;
    let own = stat.st_uid == rustix::process::geteuid().as_raw();
    if FileType::from_raw_mode(stat.st_mode) != wanted || !own || stat.st_mode & 0o022 != 0 {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok(())
}

/// Returns whether `server` can be a word of a line.
fn is_name(server: &str) -> bool {
    (1..=300).contains(&server.len()) && server.chars().all(|c| c.is_ascii_graphic())
}

impl Entry {
    fn is_of(&self, path: PathName<'_>) -> bool {
        self.direction == path.direction && self.server == path.server
    }

    fn line(&self) -> String {
        let direction = match self.direction {
            Direction::To => "to",
            Direction::From => "from",
        };
        let at = self.at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let (rate, rtt) = (self.rate.bps(), self.rtt.as_micros());
        format!("{direction} {} {rate} {rtt} {at}\n", self.server)
    }

    /// Returns the entry of a line if all its values are plausible at the time `now`.
    fn parse(line: &str, now: SystemTime) -> Option<Self> {
        let words: Vec<_> = line.split(' ').collect();
        let [direction, server, rate, rtt, at] = words[..] else { return None };
        let direction = match direction {
            "to" => Direction::To,
            "from" => Direction::From,
            _ => return None,
        };
        let rate = Rate::from_bps(rate.parse().ok()?);
        let rtt = Duration::from_micros(rtt.parse().ok()?);
        let at = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(at.parse().ok()?))?;
        // A time in the future is an error of a clock, or forged.
        let fresh = now.duration_since(at).is_ok_and(|age| age <= LIFETIME);
        let plausible = (SLOWEST..=FASTEST).contains(&rate)
            && (SHORTEST..=Duration::from_secs(10)).contains(&rtt)
            && is_name(server);
        (fresh && plausible).then(|| Entry { direction, server: server.to_owned(), rate, rtt, at })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    const RTT: Duration = Duration::from_millis(90);

    fn to(server: &str) -> PathName<'_> {
        PathName { direction: Direction::To, server, rtt: RTT }
    }

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000 + seconds)
    }

    const GBPS: Rate = Rate::from_bps(1_000_000_000);

    fn with_one() -> (tempfile::TempDir, PastRates, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let rates = PastRates::at(dir.path().join("longhaul"));
        rates.note(to("far:5210"), GBPS, at(0));
        let file = dir.path().join("longhaul").join(FILE);
        assert_eq!(rates.find(to("far:5210"), at(1)), Some(GBPS));
        (dir, rates, file)
    }

    #[test]
    fn a_rate_is_of_one_path_and_direction() {
        let (_dir, rates, _) = with_one();
        assert_eq!(rates.find(to("far:5211"), at(1)), None);
        let from = PathName { direction: Direction::From, ..to("far:5210") };
        assert_eq!(rates.find(from, at(1)), None);
        for (ms, found) in [(30, None), (50, Some(GBPS)), (170, Some(GBPS)), (190, None)] {
            let path = PathName { rtt: Duration::from_millis(ms), ..to("far:5210") };
            assert_eq!(rates.find(path, at(1)), found, "{ms} ms is another path or not");
        }
        let homeless = PastRates { dir: None };
        homeless.note(to("far:5210"), GBPS, at(0));
        assert_eq!(homeless.find(to("far:5210"), at(0)), None);
    }

    #[test]
    fn a_missing_home_directory_is_not_created() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("home");
        let rates = PastRates::at(home.join(".cache/longhaul"));
        rates.note(to("far:5210"), GBPS, at(0));
        assert!(!home.exists());
        fs::create_dir(&home).unwrap();
        rates.note(to("far:5210"), GBPS, at(0));
        assert_eq!(rates.find(to("far:5210"), at(1)), Some(GBPS));
    }

    #[test]
    fn a_slower_copy_halves_the_rate_at_most() {
        let (_dir, rates, _) = with_one();
        rates.note(to("far:5210"), Rate::from_bps(10_000_000), at(1));
        assert_eq!(rates.find(to("far:5210"), at(1)), Some(Rate::from_bps(500_000_000)));
        rates.note(to("far:5210"), Rate::from_bps(7_000_000_000), at(2));
        assert_eq!(rates.find(to("far:5210"), at(2)), Some(Rate::from_bps(7_000_000_000)));
    }

    #[test]
    fn a_rate_expires_and_a_future_one_does_not_count() {
        let (_dir, rates, _) = with_one();
        let week = LIFETIME.as_secs();
        assert_eq!(rates.find(to("far:5210"), at(week)), Some(GBPS));
        assert_eq!(rates.find(to("far:5210"), at(week + 1)), None);
        let before = at(0) - Duration::from_secs(1);
        assert_eq!(rates.find(to("far:5210"), before), None, "the clock was ahead");
    }

    #[test]
    fn a_file_that_others_can_write_is_ignored_and_replaced() {
        for mode in [0o620, 0o602, 0o666] {
            let (_dir, rates, file) = with_one();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(rates.find(to("far:5210"), at(1)), None, "{mode:o}");
            rates.note(to("else:1"), GBPS, at(1));
            assert_eq!(rates.find(to("else:1"), at(1)), Some(GBPS));
            assert_eq!(rates.find(to("far:5210"), at(1)), None, "its entries are not kept");
            assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn a_directory_that_others_can_write_is_neither_read_nor_written() {
        let (_dir, rates, file) = with_one();
        fs::set_permissions(file.parent().unwrap(), fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(rates.find(to("far:5210"), at(1)), None);
        let before = fs::read(&file).unwrap();
        rates.note(to("else:1"), GBPS, at(1));
        assert_eq!(fs::read(&file).unwrap(), before);
    }

    #[test]
    fn a_file_of_another_owner_is_not_accepted() {
        // This user owns no file that belongs to another; the check is by the open file.
        let of_root = File::open("/proc/version").unwrap();
        let accepted = check(&of_root, FileType::RegularFile).is_ok();
        assert_eq!(accepted, rustix::process::geteuid().is_root());
        let own = tempfile::tempfile().unwrap();
        check(&own, FileType::RegularFile).unwrap();
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::fchown(&own, Some(1), None).unwrap();
            assert!(check(&own, FileType::RegularFile).is_err());
        }
    }

    #[test]
    fn links_and_other_kinds_of_files_are_not_followed() {
        let (dir, rates, file) = with_one();
        let aside = dir.path().join("aside");
        fs::rename(&file, &aside).unwrap();
        symlink(&aside, &file).unwrap();
        assert_eq!(rates.find(to("far:5210"), at(1)), None);
        rates.note(to("else:1"), GBPS, at(1));
        assert!(fs::symlink_metadata(&file).unwrap().is_file(), "the link is replaced");
        assert!(fs::read_to_string(&aside).unwrap().contains("far:5210"), "its target is not");
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        assert_eq!(rates.find(to("far:5210"), at(1)), None);
    }

    #[test]
    fn poisoned_lines_are_left_out() {
        let (_dir, rates, file) = with_one();
        let now = 1_800_000_000;
        for line in [
            "to far:5210 0 90000 NOW",
            "to far:5210 999999999999999 90000 NOW",
            "to far:5210 99999999999999999999999 90000 NOW",
            "to far:5210 1000000000 0 NOW",
            "to far:5210 1000000000 90000 99999999999999999999",
            "to far:5210 1000000000 90000 18446744073709551615",
            "to far:5210 1000000000 90000",
            "to far:5210 1000000000 90000 NOW more",
            "by far:5210 1000000000 90000 NOW",
            "to far:5210 -5 90000 NOW",
            "",
        ] {
            let line = line.replace("NOW", &now.to_string());
            let text = format!("{HEADING}\n{line}\nto good:1 2000000000 90000 {now}\n");
            fs::write(&file, text).unwrap();
            assert_eq!(rates.find(to("far:5210"), at(1)), None, "{line}");
            let good = Some(Rate::from_bps(2_000_000_000));
            assert_eq!(rates.find(to("good:1"), at(1)), good, "after {line}");
        }
        for text in [b"to far:5210 1000000000 90000 1800000000\n".to_vec(), vec![0xff; 100]] {
            fs::write(&file, text).unwrap();
            assert_eq!(rates.find(to("far:5210"), at(1)), None, "it has no heading");
        }
    }

    #[test]
    fn an_oversize_file_is_ignored_and_the_newest_entries_are_kept() {
        let (_dir, rates, file) = with_one();
        let mut text = fs::read_to_string(&file).unwrap();
        text.push_str(&"x\n".repeat(LENGTH_LIMIT as usize / 2));
        fs::write(&file, text).unwrap();
        assert_eq!(rates.find(to("far:5210"), at(1)), None);
        for number in 0..ENTRIES as u64 + 10 {
            rates.note(to(&format!("{}:{number}", "h".repeat(200))), GBPS, at(number));
        }
        assert!(fs::metadata(&file).unwrap().len() <= LENGTH_LIMIT);
        let last = format!("{}:{}", "h".repeat(200), ENTRIES + 9);
        let lost = format!("{}:0", "h".repeat(200));
        assert_eq!(rates.find(to(&last), at(300)), Some(GBPS));
        assert_eq!(rates.find(to(&lost), at(300)), None);
    }

    #[test]
    fn a_name_with_invalid_characters_is_not_written() {
        let (_dir, rates, file) = with_one();
        let before = fs::read(&file).unwrap();
        for server in ["", "a b:1", "a\nto b:1 1 1 1", &"x".repeat(301)] {
            rates.note(to(server), GBPS, at(1));
        }
        rates.note(PathName { rtt: Duration::from_micros(50), ..to("near:1") }, GBPS, at(1));
        assert_eq!(fs::read(&file).unwrap(), before);
    }
}
