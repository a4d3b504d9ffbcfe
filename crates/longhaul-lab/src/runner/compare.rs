//! Compares a copy with its source on this host.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// Compares a copy with its source byte by byte. A tree must have the same files and no others.
///
/// `Ok(Some(reason))` describes the first difference.
pub(super) fn compare(source: &Path, copy: &Path) -> io::Result<Option<String>> {
    let Ok(found) = fs::symlink_metadata(copy) else {
        return Ok(Some(format!("{} was not copied", source.display())));
    };
    let expected = fs::symlink_metadata(source)?;
    if expected.is_dir() {
        return if found.is_dir() {
            compare_trees(source, copy)
        } else {
            Ok(Some(format!("the copy of {} is not a directory", source.display())))
        };
    }
    if !expected.is_file() {
        // Links and devices are not compared: each tool documents its treatment of them.
        return Ok(None);
    }
    if found.len() != expected.len() {
        let (name, has, should) = (source.display(), found.len(), expected.len());
        return Ok(Some(format!("the copy of {name} has {has} bytes instead of {should}")));
    }
    compare_files(source, copy)
}

fn compare_trees(source: &Path, copy: &Path) -> io::Result<Option<String>> {
    for entry in fs::read_dir(source)? {
        let entry = entry?;
        if let Some(reason) = compare(&entry.path(), &copy.join(entry.file_name()))? {
            return Ok(Some(reason));
        }
    }
    for entry in fs::read_dir(copy)? {
        let name = entry?.file_name();
        if fs::symlink_metadata(source.join(&name)).is_err() {
            return Ok(Some(format!("the copy has an extra {}", name.to_string_lossy())));
        }
    }
    Ok(None)
}

fn compare_files(source: &Path, copy: &Path) -> io::Result<Option<String>> {
    let (mut left, mut right) = (File::open(source)?, File::open(copy)?);
    let (mut a, mut b) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    let mut offset = 0_u64;
    loop {
        let count = left.read(&mut a)?;
        if count == 0 {
            return Ok(None);
        }
        right.read_exact(&mut b[..count])?;
        if a[..count] != b[..count] {
            let first = a[..count].iter().zip(&b[..count]).take_while(|(x, y)| x == y).count();
            let at = offset + first as u64;
            return Ok(Some(format!("the copy of {} differs at byte {at}", source.display())));
        }
        offset += count as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_differ_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("a/in")).unwrap();
        fs::write(at("a/in/file"), vec![7; 3 << 20]).unwrap();
        assert!(compare(&at("a"), &at("b")).unwrap().unwrap().contains("was not copied"));

        fs::create_dir_all(at("b/in")).unwrap();
        let differs = |expected: &str| {
            let reason = compare(&at("a"), &at("b")).unwrap().unwrap();
            assert!(reason.contains(expected), "{reason}");
        };
        fs::write(at("b/in/file"), [7]).unwrap();
        differs("has 1 bytes instead of 3145728");
        let mut wrong = vec![7; 3 << 20];
        wrong[2_500_000] = 8;
        fs::write(at("b/in/file"), &wrong).unwrap();
        differs("differs at byte 2500000");
        wrong[2_500_000] = 7;
        fs::write(at("b/in/file"), &wrong).unwrap();
        assert_eq!(compare(&at("a"), &at("b")).unwrap(), None);
        fs::write(at("b/in/other"), []).unwrap();
        differs("extra other");
    }
}
