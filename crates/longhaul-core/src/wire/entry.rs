//! What a copy announces: files, directories, links and devices, and what is kept of them.

use serde::{Deserialize, Serialize};

use super::WirePath;
use crate::units::Bytes;

/// Most bytes of extended attributes, names and values, that an entry carries. With base64 and
/// the rest of a full batch it stays below the frame limit; ext4 has 4 KiB, XFS 64 KiB for each.
pub const XATTRS_LIMIT_BYTES: usize = 256 << 10;

/// The path of an entry that describes the target itself, where the contents of a directory come:
/// it has that directory's attributes.
pub const TOP_DIRECTORY: &str = ".";

/// Something announced before its blocks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Counts from 0 in the order of announcement.
    pub id: u64,
    /// Relative to the target; begins with the top-level name.
    pub path: WirePath,
    /// What it is.
    pub kind: EntryKind,
    /// Permission bits.
    pub mode: u32,
    /// Modification time, seconds since 1970.
    pub mtime_seconds: i64,
    /// Its nanoseconds.
    pub mtime_ns: u32,
    /// A number that changes with the source's file: of its identity, size and times.
    #[serde(default)]
    pub stamp: u64,
    /// Blocks that are holes, as first and count; the file is sparse.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holes: Option<Vec<(u64, u64)>>,
    /// Owner and group, if they are to be kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
    /// Extended attributes, if they are to be kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub xattrs: Vec<Xattr>,
}

impl Entry {
    /// An entry of this name, kind and mode, and nothing else; the number is still to be given.
    pub fn new(path: WirePath, kind: EntryKind, mode: u32) -> Self {
        Entry {
            id: 0,
            path,
            kind,
            mode,
            mtime_seconds: 0,
            mtime_ns: 0,
            stamp: 0,
            holes: None,
            owner: None,
            xattrs: Vec::new(),
        }
    }
}

/// What an [`Entry`] is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// A regular file of this size; its blocks follow, none if it is empty.
    File {
        /// The size when it was announced.
        size_bytes: Bytes,
    },
    /// Bytes that come to an end sometime, as those of standard input: `SourceMessage::Length`
    /// tells where. At most one entry of a copy is such, and its blocks come in order.
    Stream,
    /// A directory; announced before what is in it.
    Directory,
    /// A symbolic link.
    Symlink {
        /// What it says, as it is.
        target: WirePath,
    },
    /// Another name of a file that was announced before.
    HardLink {
        /// The file's entry.
        first: u64,
        /// The file's path, relative to the target.
        path: WirePath,
    },
    /// A named pipe.
    Fifo,
    /// A socket's name.
    Socket,
    /// A character device.
    CharDevice(DeviceNumber),
    /// A block device.
    BlockDevice(DeviceNumber),
}

/// Which device a special file stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceNumber {
    /// The driver.
    pub major: u32,
    /// The device among the driver's.
    pub minor: u32,
}

/// To whom an entry belongs at the source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// User number.
    pub uid: u32,
    /// Group number.
    pub gid: u32,
    /// The user's name there, if it has one and names are wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The group's name there, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
}

/// An extended attribute. Access control lists are those named `system.posix_acl_access` and
/// `system.posix_acl_default`, as the kernel has them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Xattr {
    /// Its name with the namespace.
    pub name: WirePath,
    /// Its bytes, in base64 on the wire.
    #[serde(with = "base64_bytes")]
    pub value: Vec<u8>,
}

mod base64_bytes {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        STANDARD.decode(text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_of_the_first_version_reads() {
        let first = r#"{"id":3,"path":"a/b%25","kind":{"file":{"size_bytes":7}},"mode":420,
            "mtime_seconds":1,"mtime_ns":2}"#;
        let entry: Entry = serde_json::from_str(first).unwrap();
        assert_eq!(entry.kind, EntryKind::File { size_bytes: Bytes::new(7) });
        assert!(entry.owner.is_none() && entry.xattrs.is_empty());
    }

    #[test]
    fn a_whole_entry_comes_back() {
        let entry = Entry {
            id: 1,
            path: WirePath::new("dev/x").unwrap(),
            kind: EntryKind::CharDevice(DeviceNumber { major: 1, minor: 3 }),
            mode: 0o600,
            mtime_seconds: -5,
            mtime_ns: 9,
            stamp: u64::MAX,
            holes: Some(vec![(3, 4)]),
            owner: Some(Owner { uid: 0, gid: 7, user: Some("root".into()), group: None }),
            xattrs: vec![Xattr { name: WirePath::new("user.x").unwrap(), value: vec![0, 255, 10] }],
        };
        let text = serde_json::to_string(&entry).unwrap();
        assert_eq!(serde_json::from_str::<Entry>(&text).unwrap(), entry);
    }
}
