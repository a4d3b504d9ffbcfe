//! Workloads of a matrix.

use serde::{Deserialize, Serialize};

use super::Mixed;
use crate::units::Bytes;

/// A checked workload: the data, their origin and their destination.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "WorkDocument", into = "WorkDocument")]
pub struct PlannedWork {
    /// The name by which entries and tables refer to it.
    pub name: String,
    /// The data to move.
    pub content: Content,
    /// The store that is read.
    pub from: DataStore,
    /// The store that is written.
    pub to: DataStore,
}

/// The data that a workload moves.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// Arbitrary bytes from memory for a given time.
    Timed {
        /// The measured seconds; 1 to 86400.
        seconds: u32,
        /// The omitted seconds before the measurement; at most 3600.
        omit_seconds: u32,
    },
    /// Files of incompressible bytes of one size. One file is copied as a file, several as a
    /// directory.
    Files {
        /// The number of files; 1 to ten million.
        files: u64,
        /// The size of each file.
        size: Bytes,
    },
    /// Files of one size that together have a given volume.
    Volume {
        /// The size of all files together.
        volume: Bytes,
        /// The size of each file.
        size: Bytes,
    },
    /// Files of different sizes.
    Mixed {
        /// The size of all files together.
        volume: Bytes,
        /// The distribution of the sizes.
        sizes: Mixed,
    },
    /// A file or directory of the user.
    Data {
        /// The path of the data.
        path: String,
    },
}

/// The kind of storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DataStore {
    /// A file system on a disk.
    #[default]
    Disk,
    /// A file system in memory.
    Memory,
}

/// The kind of work, by the storage that is read and written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Workload {
    /// Memory to memory for a given time.
    Memory,
    /// Disk to disk, a file or a directory.
    Disk,
    /// Files in memory to disk.
    MemoryToDisk,
    /// Files on disk to memory.
    DiskToMemory,
    /// Files in memory to memory.
    MemoryFiles,
}

impl Workload {
    /// All kinds in the order of tables.
    pub const ALL: [Workload; 5] = [
        Workload::Memory,
        Workload::MemoryFiles,
        Workload::MemoryToDisk,
        Workload::DiskToMemory,
        Workload::Disk,
    ];

    /// Returns the text of the table's column `Type`.
    pub const fn label(self) -> &'static str {
        match self {
            Workload::Memory => "Mem to mem",
            Workload::Disk => "Disk to disk",
            Workload::MemoryToDisk => "Mem to disk",
            Workload::DiskToMemory => "Disk to mem",
            Workload::MemoryFiles => "Mem to mem, files",
        }
    }

    /// Returns the name in documents and archives.
    pub const fn name(self) -> &'static str {
        match self {
            Workload::Memory => "memory",
            Workload::Disk => "disk",
            Workload::MemoryToDisk => "memory_to_disk",
            Workload::DiskToMemory => "disk_to_memory",
            Workload::MemoryFiles => "memory_files",
        }
    }

    /// Returns whether files are copied.
    pub const fn copies(self) -> bool {
        !matches!(self, Workload::Memory)
    }
}

impl PlannedWork {
    /// Returns the kind of the work.
    pub fn workload(&self) -> Workload {
        match (&self.content, self.from, self.to) {
            (Content::Timed { .. }, ..) => Workload::Memory,
            (_, DataStore::Disk, DataStore::Disk) => Workload::Disk,
            (_, DataStore::Disk, DataStore::Memory) => Workload::DiskToMemory,
            (_, DataStore::Memory, DataStore::Disk) => Workload::MemoryToDisk,
            (_, DataStore::Memory, DataStore::Memory) => Workload::MemoryFiles,
        }
    }

    /// Returns this work with created data multiplied by `scale`: the file size if the number of
    /// files is given, otherwise the volume. The user's data and times are not scaled.
    #[must_use]
    pub fn scaled(&self, scale: f64) -> Self {
        let content = match &self.content {
            Content::Files { files, size } => {
                Content::Files { files: *files, size: scaled(*size, scale) }
            }
            Content::Volume { volume, size } => {
                let volume = scaled(*volume, scale).max(*size);
                Content::Files { files: volume.get().div_ceil(size.get().max(1)), size: *size }
            }
            Content::Mixed { volume, sizes } => {
                let volume = scaled(*volume, scale);
                Content::Mixed { volume, sizes: sizes.below(volume) }
            }
            other => other.clone(),
        };
        PlannedWork { content, ..self.clone() }
    }
}

/// Rounds to whole pages, so that every block is complete, and to at least one page.
fn scaled(size: Bytes, scale: f64) -> Bytes {
    const PAGE: u64 = 4096;
    if scale == 1.0 {
        return size;
    }
    let pages = (size.get() as f64 * scale / PAGE as f64).round() as u64;
    Bytes::new(pages.max(1) * PAGE)
}

/// The reason why a workload is invalid.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum WorkFault {
    /// The workload has no name.
    #[error("a workload has no name")]
    NoName,
    /// The data are missing or ambiguous.
    #[error(
        "the workload '{name}' needs one of: seconds; size with files or volume; volume with \
         mixed; data"
    )]
    Content {
        /// The name of the workload.
        name: String,
    },
    /// A workload has a field of another kind of workload.
    #[error("the workload '{name}' has {field}, which cannot be combined with {with}")]
    Stray {
        /// The name of the workload.
        name: String,
        /// The superfluous field.
        field: &'static str,
        /// The field that it conflicts with.
        with: &'static str,
    },
    /// A number is out of range.
    #[error("{field} of the workload '{name}' is {value}; it must be {accepted}")]
    Range {
        /// The name of the workload.
        name: String,
        /// The name of the field.
        field: &'static str,
        /// The given value.
        value: String,
        /// The accepted values.
        accepted: &'static str,
    },
}

/// A workload in the form of a document.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct WorkDocument {
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seconds: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    omit_seconds: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    files: Option<u64>,
    #[serde(rename = "size_bytes", alias = "size", default)]
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<Bytes>,
    #[serde(rename = "volume_bytes", alias = "volume", default)]
    #[serde(skip_serializing_if = "Option::is_none")]
    volume: Option<Bytes>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mixed: Option<Mixed>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    data: Option<String>,
    #[serde(default)]
    from: DataStore,
    #[serde(default)]
    to: DataStore,
}

impl TryFrom<WorkDocument> for PlannedWork {
    type Error = WorkFault;

    fn try_from(document: WorkDocument) -> Result<Self, WorkFault> {
        if document.name.trim().is_empty() {
            return Err(WorkFault::NoName);
        }
        let content = document.content()?;
        for (field, bytes) in [("size", document.size), ("volume", document.volume)] {
            if bytes.is_some_and(|bytes| bytes.get() == 0) {
                let accepted = "more: there must be something to copy";
                return Err(document.out_of_range(field, 0, accepted));
            }
        }
        if let Content::Mixed { sizes, .. } = &content
            && let Some((field, accepted)) = sizes.fault()
        {
            return Err(document.out_of_range(field, "out of range", accepted));
        }
        let count = match content {
            Content::Files { files, .. } => files,
            Content::Volume { volume, size } => volume.get().div_ceil(size.get()),
            _ => 1,
        };
        if !(1..=10_000_000).contains(&count) {
            return Err(document.out_of_range("the number of files", count, "1 to ten million"));
        }
        let WorkDocument { name, from, to, .. } = document;
        Ok(PlannedWork { name, content, from, to })
    }
}

impl WorkDocument {
    /// Returns the content that the fields describe.
    fn content(&self) -> Result<Content, WorkFault> {
        let WorkDocument { seconds, omit_seconds, files, size, volume, mixed, data, .. } = self;
        if omit_seconds.is_some() && seconds.is_none() {
            return Err(self.stray("omit_seconds", "anything but seconds"));
        }
        Ok(match (*seconds, *files, *size, *volume, mixed, data) {
            (Some(seconds), None, None, None, None, None) => self.timed(seconds)?,
            (None, files, Some(size), None, None, None) => {
                Content::Files { files: files.unwrap_or(1), size }
            }
            (None, None, Some(size), Some(volume), None, None) => Content::Volume { volume, size },
            (None, None, None, Some(volume), Some(sizes), None) => {
                Content::Mixed { volume, sizes: *sizes }
            }
            (None, None, None, None, None, Some(path)) if !path.is_empty() => {
                Content::Data { path: path.clone() }
            }
            _ => return Err(WorkFault::Content { name: self.name.clone() }),
        })
    }

    /// Returns the content of a work that lasts for a time.
    fn timed(&self, seconds: u32) -> Result<Content, WorkFault> {
        if self.from != DataStore::Disk || self.to != DataStore::Disk {
            return Err(self.stray("from or to", "seconds, which run from memory to memory"));
        }
        let omit_seconds = self.omit_seconds.unwrap_or_default();
        if !(1..=86_400).contains(&seconds) {
            return Err(self.out_of_range("seconds", seconds, "1 to 86400"));
        }
        if omit_seconds > 3600 {
            return Err(self.out_of_range("omit_seconds", omit_seconds, "at most 3600"));
        }
        Ok(Content::Timed { seconds, omit_seconds })
    }

    fn stray(&self, field: &'static str, with: &'static str) -> WorkFault {
        WorkFault::Stray { name: self.name.clone(), field, with }
    }

    fn out_of_range(
        &self,
        field: &'static str,
        value: impl ToString,
        accepted: &'static str,
    ) -> WorkFault {
        let (name, value) = (self.name.clone(), value.to_string());
        WorkFault::Range { name, field, value, accepted }
    }
}

impl From<PlannedWork> for WorkDocument {
    fn from(work: PlannedWork) -> Self {
        let PlannedWork { name, content, from, to } = work;
        let blank = WorkDocument { name, from, to, ..WorkDocument::default() };
        match content {
            Content::Timed { seconds, omit_seconds } => {
                let (seconds, omit_seconds) = (Some(seconds), Some(omit_seconds));
                WorkDocument { seconds, omit_seconds, ..blank }
            }
            Content::Files { files, size } => {
                WorkDocument { files: Some(files), size: Some(size), ..blank }
            }
            Content::Volume { volume, size } => {
                WorkDocument { volume: Some(volume), size: Some(size), ..blank }
            }
            Content::Mixed { volume, sizes } => {
                WorkDocument { volume: Some(volume), mixed: Some(sizes), ..blank }
            }
            Content::Data { path } => WorkDocument { data: Some(path), ..blank },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(json: &str) -> Result<PlannedWork, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    #[test]
    fn each_kind_reads_and_survives_its_document() {
        for (json, kind) in [
            (r#"{"name": "m", "seconds": 10, "omit_seconds": 4}"#, Workload::Memory),
            (r#"{"name": "16G", "size": "16GB"}"#, Workload::Disk),
            (
                r#"{"name": "16@16", "files": 16, "size": "16GB", "from": "memory"}"#,
                Workload::MemoryToDisk,
            ),
            (
                r#"{"name": "small", "volume": "1GiB", "size": "64KiB", "to": "memory"}"#,
                Workload::DiskToMemory,
            ),
            (
                r#"{"name": "tree", "volume": "1GiB", "mixed": {"median": "64KiB", "sigma": 2}}"#,
                Workload::Disk,
            ),
            (
                r#"{"name": "own", "data": "/data", "from": "memory", "to": "memory"}"#,
                Workload::MemoryFiles,
            ),
        ] {
            let work = of(json).unwrap();
            assert_eq!(work.workload(), kind, "{json}");
            assert_eq!(of(&serde_json::to_string(&work).unwrap()).unwrap(), work);
        }
    }

    #[test]
    fn an_invalid_workload_is_refused_by_name() {
        for (json, says) in [
            (r#"{"name": " ", "size": "1GB"}"#, "a workload has no name"),
            (r#"{"name": "w"}"#, "the workload 'w' needs one of"),
            (r#"{"name": "w", "size": "1GB", "data": "/x"}"#, "needs one of"),
            (r#"{"name": "w", "size": "1GB", "omit_seconds": 1}"#, "has omit_seconds"),
            (r#"{"name": "w", "seconds": 1, "to": "memory"}"#, "has from or to"),
            (r#"{"name": "w", "seconds": 0}"#, "seconds of the workload 'w' is 0"),
            (r#"{"name": "w", "size": 0}"#, "size of the workload 'w' is 0"),
            (r#"{"name": "w", "size": 1, "files": 0}"#, "the number of files"),
            (r#"{"name": "w", "size": 1, "volume": "1TB"}"#, "the number of files"),
        ] {
            let error = of(json).unwrap_err();
            assert!(error.contains(says), "{json}: {error}");
        }
    }

    #[test]
    fn one_factor_scales_sizes_or_numbers() {
        let scaled = |json: &str| of(json).unwrap().scaled(1.0 / 256.0).content;
        let file = scaled(r#"{"name": "a", "size": "16GiB"}"#);
        assert_eq!(file, Content::Files { files: 1, size: Bytes::mib(64) });
        let few = scaled(r#"{"name": "a", "files": 16, "size": "16GiB"}"#);
        assert_eq!(few, Content::Files { files: 16, size: Bytes::mib(64) });
        let many = scaled(r#"{"name": "a", "volume": "256GiB", "size": "64KiB"}"#);
        assert_eq!(many, Content::Files { files: 16_384, size: Bytes::new(64 << 10) });
        let least = scaled(r#"{"name": "a", "size": 1}"#);
        assert_eq!(least, Content::Files { files: 1, size: Bytes::new(4096) });
    }
}
