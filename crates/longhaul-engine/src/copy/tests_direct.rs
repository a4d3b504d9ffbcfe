//! Direct I/O: where a file system has none, both ends do without, and lengths are as they come.

use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use longhaul_core::plan::CopyOptions;
use longhaul_core::units::Bytes;
use rustix::fs::OFlags;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::disk::DIRECT_FROM_BYTES;
use super::tests::{World, bytes, options};

/// Around a page, the least for direct I/O, and a block.
fn odd_sizes() -> Vec<usize> {
    let least = DIRECT_FROM_BYTES as usize;
    vec![least - 1, least, least + 1, least + 4095, 2 * least, 5 * least + 777, 8 * least + 4096]
}

/// Copies files of odd sizes there and back, in blocks of the usual size and in small ones.
fn odd_sizes_pass(world: &World) {
    for (at, size) in odd_sizes().into_iter().enumerate() {
        let name = format!("f{at}");
        let data = bytes(size);
        fs::write(world.near(&name), &data).unwrap();
        for block in [CopyOptions::default().block_bytes, Bytes::mib(1), Bytes::new(12 << 10)] {
            let options = CopyOptions { block_bytes: block, ..options() };
            let pushed = world.push(&[&name], "there", &options).unwrap();
            assert_eq!(pushed.summary.bytes, Bytes::new(size as u64));
            assert!(fs::read(world.far("there")).unwrap() == data, "{size} there by {block}");
            world.pull(&["there"], "back", &options).unwrap();
            assert!(fs::read(world.near("back")).unwrap() == data, "{size} back by {block}");
        }
    }
}

fn takes_direct(dir: &Path) -> bool {
    let path = dir.join("probe");
    fs::write(&path, "").unwrap();
    let direct = OFlags::DIRECT.bits() as i32;
    let opened = fs::OpenOptions::new().read(true).custom_flags(direct).open(&path);
    fs::remove_file(path).unwrap();
    opened.is_ok()
}

#[test]
fn odd_sizes_pass_with_direct_io() {
    let world = World::new();
    assert!(takes_direct(&world.near("")), "this test is about a disk with direct I/O");
    odd_sizes_pass(&world);
}

/// A memory file system without direct I/O (ramfs has none, tmpfs has since Linux 6.6), at `at`.
struct Memory(std::path::PathBuf);

impl Memory {
    fn mount(kind: &str, at: std::path::PathBuf) -> Self {
        mount(kind, &at, kind, MountFlags::empty(), None)
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
fn both_ends_do_without_direct_io_where_there_is_none() {
    let world = World::new();
    let _near = Memory::mount("ramfs", world.near(""));
    let _far = Memory::mount("ramfs", world.far(""));
    assert!(!takes_direct(&world.near("")), "ramfs has learnt direct I/O");
    odd_sizes_pass(&world);
}

#[test]
fn from_memory_to_disk_and_back() {
    let world = World::new();
    let _near = Memory::mount("tmpfs", world.near(""));
    odd_sizes_pass(&world);
}
