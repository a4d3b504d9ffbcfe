//! Creates the files that copies use as data.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use longhaul_core::units::Bytes;

/// Writes a file of incompressible bytes. Different values of `number` give different bytes.
pub(super) fn file(path: &Path, size: Bytes, number: u64) -> io::Result<()> {
    let file = File::create(path)?;
    fill(&file, size.get(), number)?;
    file.sync_all()
}

/// Writes a directory of incompressible files, whose names sort in the order of `sizes`.
pub(super) fn tree(dir: &Path, sizes: impl Iterator<Item = Bytes>) -> io::Result<()> {
    fs::create_dir(dir)?;
    for (number, size) in (1..).zip(sizes) {
        fill(&File::create(dir.join(format!("f{number:08}")))?, size.get(), number)?;
    }
    // One sync for all files: a sync per small file would take minutes.
    rustix::fs::syncfs(File::open(dir)?)?;
    Ok(())
}

/// Copies the user's file or directory, except for links and devices.
pub(super) fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let data = fs::symlink_metadata(from)?;
    if data.is_file() {
        fs::copy(from, to)?;
    } else if data.is_dir() {
        fs::create_dir(to)?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            copy(&entry.path(), &to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

/// Writes `size` bytes of SplitMix64 (Steele, Lea and Flood, 2014), which are incompressible and
/// the same on every machine.
fn fill(mut file: &File, size: u64, number: u64) -> io::Result<()> {
    // The seed is fixed, so data of one size are always the same. The files of a tree differ, so
    // that no tool can deduplicate them.
    let mut state: u64 = 0x10_9a01 ^ number.rotate_left(32);
    let mut block = vec![0_u8; size.next_multiple_of(8).clamp(8, 1 << 20) as usize];
    let mut left = size;
    while left > 0 {
        for word in block.chunks_exact_mut(8) {
            word.copy_from_slice(&split_mix(&mut state).to_le_bytes());
        }
        let now = left.min(block.len() as u64);
        file.write_all(&block[..now as usize])?;
        left -= now;
    }
    Ok(())
}

/// Returns the next value of SplitMix64.
pub(crate) fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
