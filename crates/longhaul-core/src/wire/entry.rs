//! The entries that a copy announces: files, directories, links and devices, with their attributes.

use serde::{Deserialize, Serialize};

use super::FilePath;
use crate::units::Bytes;

/// The maximum number of bytes of names and values of an entry's extended attributes. With base64
/// and the rest of a full batch the message stays below the frame limit; ext4 allows 4 KiB, XFS 64
/// KiB per attribute.
pub const XATTRS_LIMIT_BYTES: usize = 256 << 10;

/// The path of the entry that describes the target directory itself, sent if the contents of a
/// directory are copied. The entry has the attributes of that directory.
pub const TOP_DIRECTORY: &str = ".";

/// An entry, announced before its blocks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The id of the entry, counted from 0 in the order of announcement.
    pub id: u64,
    /// The path relative to the target; it starts with the top-level name.
    pub path: FilePath,
    /// The kind of the entry.
    pub kind: EntryKind,
    /// The permission bits.
    pub mode: u32,
    /// The modification time in seconds since 1970.
    pub mtime_seconds: i64,
    /// The nanoseconds of the modification time.
    pub mtime_ns: u32,
    /// A number that changes with the identity, size or times of the source's file.
    #[serde(default)]
    pub stamp: u64,
    /// The BLAKE3 digest of the file, if files with the same contents are not copied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<[u8; 32]>,
    /// The blocks that are holes, as first block and count; `None` if the file is not sparse.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holes: Option<Vec<(u64, u64)>>,
    /// Owner and group, if they are to be preserved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
    /// The extended attributes, if they are to be preserved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub xattrs: Vec<Xattr>,
    /// Numbers that identify the file, and the target of a symbolic link, if both ends can be on
    /// one host. The sink recognizes files by these numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub identities: Vec<u64>,
}

impl Entry {
    /// Creates an entry with this name, kind and mode and no other attributes; the id is set later.
    pub fn new(path: FilePath, kind: EntryKind, mode: u32) -> Self {
        Entry {
            id: 0,
            path,
            kind,
            mode,
            mtime_seconds: 0,
            mtime_ns: 0,
            stamp: 0,
            digest: None,
            holes: None,
            owner: None,
            xattrs: Vec::new(),
            identities: Vec::new(),
        }
    }
}

/// The kind of an [`Entry`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// A regular file; its blocks follow, none if it is empty.
    File {
        /// The size at the time of announcement.
        size_bytes: Bytes,
    },
    /// A byte stream of unknown length, such as standard input; `SourceMessage::Length` reports its
    /// end. A copy has at most one stream, and its blocks are in order.
    Stream,
    /// A directory; announced before its contents.
    Directory,
    /// A symbolic link.
    Symlink {
        /// The target of the link, unchanged.
        target: FilePath,
    },
    /// Another name of a file that was announced earlier.
    HardLink {
        /// The id of the file's entry.
        first: u64,
        /// The file's path, relative to the target.
        path: FilePath,
    },
    /// A named pipe.
    Fifo,
    /// A Unix socket's name.
    Socket,
    /// A character device.
    CharDevice(DeviceNumber),
    /// A block device.
    BlockDevice(DeviceNumber),
}

/// The device of a special file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceNumber {
    /// The major number, which selects the driver.
    pub major: u32,
    /// The minor number, which selects the device.
    pub minor: u32,
}

/// The owner of an entry at the source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The user id.
    pub uid: u32,
    /// The group id.
    pub gid: u32,
    /// The user's name, if the host has one and names are requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The group's name, if the host has one and names are requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
}

/// An extended attribute. Access control lists are the kernel's attributes
/// `system.posix_acl_access` and `system.posix_acl_default`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Xattr {
    /// The name, including its namespace.
    pub name: FilePath,
    /// The value; base64 on the wire.
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
    fn a_complete_entry_is_read_as_written() {
        let entry = Entry {
            id: 1,
            path: FilePath::new("dev/x").unwrap(),
            kind: EntryKind::CharDevice(DeviceNumber { major: 1, minor: 3 }),
            mode: 0o600,
            mtime_seconds: -5,
            mtime_ns: 9,
            stamp: u64::MAX,
            digest: Some([7; 32]),
            identities: vec![5],
            holes: Some(vec![(3, 4)]),
            owner: Some(Owner { uid: 0, gid: 7, user: Some("root".into()), group: None }),
            xattrs: vec![Xattr { name: FilePath::new("user.x").unwrap(), value: vec![0, 255, 10] }],
        };
        let text = serde_json::to_string(&entry).unwrap();
        assert_eq!(serde_json::from_str::<Entry>(&text).unwrap(), entry);
    }
}
