//! Direct I/O: files of any length, file systems without direct I/O, and the choice between direct
//! I/O and the page cache.

use std::ffi::CStr;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use longhaul_core::plan::{CopyOptions, DirectIo};
use longhaul_core::result::DataPath;
use longhaul_core::units::Bytes;
use rustix::fs::OFlags;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::{CopySetup, bytes, names, options};
use crate::copy::disk::DIRECT_FROM_BYTES;

/// Lengths around the smallest file that is read with direct I/O, pages and blocks.
fn odd_sizes() -> Vec<usize> {
    let least = DIRECT_FROM_BYTES as usize;
    vec![least - 1, least, least + 1, least + 4095, 2 * least, 5 * least + 777, 8 * least + 4096]
}

/// Pushes and pulls files of odd sizes, in blocks of the default size and in small blocks.
fn odd_sizes_pass(world: &CopySetup) {
    fs::create_dir(world.near("t")).unwrap();
    let contents: Vec<_> = odd_sizes().into_iter().map(bytes).collect();
    for content in &contents {
        fs::write(world.near(&format!("t/{}", content.len())), content).unwrap();
    }
    let all = contents.iter().map(|content| content.len() as u64).sum();
    for block in [CopyOptions::default().block_bytes, Bytes::mib(1), Bytes::new(12 << 10)] {
        let options = CopyOptions { block_bytes: block, ..options() };
        let (there, back) = (format!("there-{block}"), format!("back-{block}"));
        let pushed = world.push(&["t"], &there, &options).unwrap();
        assert_eq!(pushed.summary.bytes, Bytes::new(all));
        world.pull(&[&there], &back, &options).unwrap();
        for content in &contents {
            let size = content.len();
            let copied = |dir: PathBuf| fs::read(dir.join(size.to_string())).unwrap() == *content;
            assert!(copied(world.far(&there)), "{size} there by {block}");
            assert!(copied(world.near(&back)), "{size} back by {block}");
        }
    }
}

fn supports_direct(dir: &Path) -> bool {
    let path = dir.join("probe");
    fs::write(&path, "").unwrap();
    let direct = OFlags::DIRECT.bits() as i32;
    let opened = fs::OpenOptions::new().read(true).custom_flags(direct).open(&path);
    fs::remove_file(path).unwrap();
    opened.is_ok()
}

#[test]
fn odd_sizes_pass_with_direct_io() {
    let world = CopySetup::new();
    assert!(supports_direct(&world.near("")), "this test needs a disk with direct I/O");
    odd_sizes_pass(&world);
}

/// A memory file system without direct I/O (ramfs has none, tmpfs has since Linux 6.6), at `at`.
struct Memory(PathBuf);

impl Memory {
    fn mount(kind: &str, at: PathBuf) -> Self {
        Memory::with(kind, at, None)
    }

    fn with(kind: &str, at: PathBuf, options: Option<&CStr>) -> Self {
        mount(kind, &at, kind, MountFlags::empty(), options)
            .expect("this test mounts a file system: run it as root");
        Memory(at)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

#[test]
#[ignore = "needs root"]
fn file_systems_without_direct_io_use_the_page_cache() {
    let world = CopySetup::new();
    let _near = Memory::mount("ramfs", world.near(""));
    let _far = Memory::mount("ramfs", world.far(""));
    assert!(!supports_direct(&world.near("")), "ramfs supports direct I/O now");
    odd_sizes_pass(&world);
}

#[test]
#[ignore = "needs root"]
fn from_memory_to_disk_and_back() {
    let world = CopySetup::new();
    let _near = Memory::mount("tmpfs", world.near(""));
    odd_sizes_pass(&world);
}

fn with(direct: DirectIo) -> CopyOptions {
    CopyOptions { direct, ..options() }
}

const MODES: [DirectIo; 3] = [DirectIo::Auto, DirectIo::Always, DirectIo::Never];

/// Syncs a file and removes it from the page cache.
fn drop_from_cache(path: &Path) {
    let file = fs::File::open(path).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}

#[test]
fn the_user_chooses_direct_io_or_the_page_cache() {
    let world = CopySetup::new();
    let data = bytes((5 << 20) + 777);
    fs::write(world.near("f"), &data).unwrap();
    for mode in MODES {
        drop_from_cache(&world.near("f"));
        let result = world.push(&["f"], "there", &with(mode)).unwrap();
        assert!(fs::read(world.far("there")).unwrap() == data, "{mode:?}");
        let expected = Bytes::new(if mode == DirectIo::Never { 0 } else { data.len() as u64 });
        let direct_bytes = (result.source.end.direct_bytes, result.sink.end.direct_bytes);
        assert_eq!(direct_bytes, (expected, expected), "{mode:?}");
        let never = mode == DirectIo::Never;
        let path = Some(if never { DataPath::Buffered } else { DataPath::Direct });
        assert_eq!((result.source.end.data_path, result.sink.end.data_path), (path, path));
    }
}

#[test]
fn cached_files_are_read_from_the_page_cache() {
    let world = CopySetup::new();
    let path = world.near("f");
    let data = bytes(6 << 20);
    fs::write(&path, &data).unwrap();
    let file = fs::File::open(&path).unwrap();
    // cachestat(2) exists since Linux 6.5.
    let countable = longhaul_sys::file::cached_bytes(&file, 0, data.len() as u64).is_ok();
    let expected = Bytes::new(if countable { 0 } else { data.len() as u64 });
    let result = world.push(&["f"], "there", &with(DirectIo::Auto)).unwrap();
    assert_eq!(result.source.end.direct_bytes, expected);
    assert_eq!(result.sink.end.direct_bytes, Bytes::new(data.len() as u64));
    let result = world.push(&["f"], "there", &with(DirectIo::Always)).unwrap();
    assert_eq!(result.source.end.direct_bytes, Bytes::new(data.len() as u64));
    assert!(fs::read(world.far("there")).unwrap() == data);
}

#[test]
fn a_trial_reads_and_writes_both_with_direct_io_and_through_the_page_cache() {
    let world = CopySetup::new();
    // Long enough for a trial. Every MiB has other bytes, and the end is not aligned to a page.
    let mebibyte = bytes(1 << 20);
    let file = fs::File::create(world.near("long")).unwrap();
    for at in 0..140_u64 {
        file.write_all_at(&mebibyte, at << 20).unwrap();
        file.write_all_at(&at.to_le_bytes(), (at << 20) + 5000).unwrap();
    }
    file.write_all_at(b"end", (140 << 20) + 9).unwrap();
    drop_from_cache(&world.near("long"));
    let result = world.push(&["long"], "there", &with(DirectIo::Auto)).unwrap();
    let all = (140 << 20) + 12;
    for (end, report) in [("source", &result.source), ("sink", &result.sink)] {
        let direct = report.end.direct_bytes.get();
        assert!(
            direct >= 8 << 20 && direct < all,
            "the {end} used only one data path: {direct} bytes with direct I/O"
        );
    }
    assert!(fs::read(world.near("long")).unwrap() == fs::read(world.far("there")).unwrap());
    assert_eq!(names(&world.far("")), ["there"]);
}

#[test]
fn sparse_files_stay_sparse_with_direct_io_and_with_the_page_cache() {
    let world = CopySetup::new();
    let file = fs::File::create(world.near("sparse")).unwrap();
    file.set_len((64 << 20) + 5).unwrap();
    file.write_all_at(&bytes(10_000), 5 << 20).unwrap();
    file.write_all_at(&bytes(777), (64 << 20) - 700).unwrap();
    for mode in MODES {
        world.push(&["sparse"], "there", &with(mode)).unwrap();
        assert!(fs::read(world.near("sparse")).unwrap() == fs::read(world.far("there")).unwrap());
        let occupied = fs::metadata(world.far("there")).unwrap().blocks() * 512;
        assert!(occupied < 200_000, "{mode:?}: it occupies {occupied}");
    }
}

#[test]
#[ignore = "needs root"]
fn a_full_disk_fails_one_file_with_direct_io_and_with_the_page_cache() {
    let world = CopySetup::new();
    // The server checks the space of the target, but not that of a file system mounted below it.
    for dir in [world.near("t"), world.far("t")] {
        fs::create_dir(dir).unwrap();
    }
    let _far = Memory::with("tmpfs", world.far("t"), Some(c"size=8m"));
    fs::write(world.near("t/large"), bytes(20 << 20)).unwrap();
    fs::write(world.near("t/small"), bytes(3 << 20)).unwrap();
    for mode in MODES {
        let options = CopyOptions { recursive: true, ..with(mode) };
        let result = world.push(&["t"], ".", &options).unwrap();
        assert_eq!((result.summary.files, result.failures.len()), (1, 1), "{mode:?}");
        assert!(result.failures[0].path.ends_with("large"), "{:?}", result.failures);
        assert_eq!(names(&world.far("t")), ["small"], "{mode:?}");
    }
}
