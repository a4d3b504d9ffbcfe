//! Reports the digests of complete files, or writes them to a manifest beside the files.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering;

use longhaul_core::result::{DigestOf, Manifest, ManifestFile, hex};
use longhaul_core::units::Bytes;
use longhaul_core::wire::FilePath;
use longhaul_core::wire::copy::SinkMessage;
use rustix::fs::{AtFlags, OFlags, renameat, unlinkat};

use super::digests::Done;
use super::ledger::SinkFile;
use super::placement::Destination;
use super::shared::SinkShared;
use super::store::Store;
use crate::copy::digest::whole_digest;
use crate::copy::tree::{Tree, wire_path};
use crate::error::Result;
use crate::lock;

/// The maximum number of digests in one message: with the longest paths it stays below the frame
/// limit.
const DIGESTS_BATCH: usize = 64;
/// The manifest of several sources, or of a directory's contents.
const DEFAULT_NAME: &[u8] = b"longhaul.b3";
const SUFFIX: &[u8] = b".b3";

impl SinkShared<'_> {
    /// Takes the digest of a complete file.
    pub(super) fn note_digest(&self, file: &SinkFile) -> io::Result<()> {
        let Some(digest) = file.digest.as_ref().filter(|_| self.records.digests.wanted()) else {
            return Ok(());
        };
        if let Some(hash) = self.store.outlet().and_then(|outlet| outlet.digest()) {
            let (path, size, digest) = (file.path.clone(), file.size(), *hash.as_bytes());
            lock(&self.records.digests.done).push(Done { path, size, digest });
            return Ok(());
        }
        if digest.is_too_long(file.size()) {
            return Err(io::Error::other("the file is too long for a digest with this block size"));
        }
        let (missing, step) = digest.missing(file.size());
        if !missing.is_empty()
            && let Destination::Directory { tree, .. } = &self.store.destination
        {
            // Blocks that an earlier, broken copy has written.
            let there = tree.open_file(&file.path)?;
            let mut buffer = vec![0; step as usize];
            for offset in missing {
                let length = step.min(file.size() - offset) as usize;
                there.read_exact_at(&mut buffer[..length], offset)?;
                self.store.checked.fetch_add(length as u64, Ordering::Relaxed);
                digest.add(offset, &buffer[..length], Some(file.size()));
            }
        }
        if let Some(hash) = digest.finish(file.size()) {
            let digest = *hash.as_bytes();
            let path = file.path.clone();
            lock(&self.records.digests.done).push(Done { path, size: file.size(), digest });
        }
        Ok(())
    }

    /// Reports all digests and writes the manifest; returns its path.
    pub(super) fn report_digests(&self) -> Result<Option<FilePath>> {
        if !self.records.digests.wanted() {
            return Ok(None);
        }
        if let Destination::Directory { tree, .. } = &self.store.destination {
            for path in lock(&self.records.digests.unchanged).drain(..) {
                match digest_of(tree, &path, self.store) {
                    Ok((digest, size)) => {
                        lock(&self.records.digests.done).push(Done { path, size, digest });
                    }
                    Err(error) => self.report_failure(None, &path, "read", &error)?,
                }
            }
        }
        let mut done = std::mem::take(&mut *lock(&self.records.digests.done));
        done.sort_by(|one, other| one.path.cmp(&other.path));
        if self.records.digests.reported {
            for batch in done.chunks(DIGESTS_BATCH) {
                let digests: Vec<_> = batch
                    .iter()
                    .map(|Done { path, size, digest }| DigestOf {
                        path: wire_path(path),
                        bytes: Bytes::new(*size),
                        blake3: hex(digest),
                    })
                    .collect();
                lock(&self.records.reports).own_digests(&digests);
                self.context.control.send(&SinkMessage::Digests(digests))?;
            }
        }
        self.write_manifest(done)
    }

    fn write_manifest(&self, done: Vec<Done>) -> Result<Option<FilePath>> {
        let (Some(name), Destination::Directory { tree, contents, .. }) =
            (&self.records.digests.manifest, &self.store.destination)
        else {
            return Ok(None);
        };
        let covers = if *contents {
            vec![Vec::new()]
        } else {
            let dirs = self.records.extras.top_dirs();
            let path = |dir: &Vec<u8>| self.store.path(dir).into_os_string().into_vec();
            dirs.iter().map(path).collect()
        };
        let files = done
            .into_iter()
            .map(|Done { path, digest, .. }| ManifestFile {
                path: path.into_os_string().as_bytes().to_vec(),
                digest,
            })
            .collect();
        let name = match (name.as_bytes(), self.records.extras.only_top()) {
            (b"", Some(top)) if !contents => {
                [self.store.path(&top).as_os_str().as_bytes(), SUFFIX].concat()
            }
            (b"", _) => DEFAULT_NAME.to_vec(),
            (name, _) => name.to_vec(),
        };
        let path = Path::new(std::ffi::OsStr::from_bytes(&name)).to_owned();
        let text = Manifest { covers, files }.to_bytes();
        match self.put_manifest(tree, &path, &text) {
            Ok(()) => {
                self.finisher.made_name(&path);
                Ok(Some(wire_path(&self.store.display(&path))))
            }
            Err(error) => self.report_failure(None, &path, "write", &error).map(|()| None),
        }
    }

    fn put_manifest(&self, tree: &Tree, path: &Path, text: &[u8]) -> io::Result<()> {
        let above = path.parent().filter(|above| !above.as_os_str().is_empty());
        let dir = tree.open_dir(above.unwrap_or(Path::new(".")))?;
        let name = path.file_name().unwrap_or_default();
        // Readable as the umask allows, because the manifest has only the names and digests of the
        // files.
        let (file, temporary) = self.store.create_new((&dir, name, 0), OFlags::empty(), 0o666)?;
        let mut file = File::from(file);
        let written = file
            .write_all(text)
            .and_then(|()| if self.context.options.durable { file.sync_all() } else { Ok(()) })
            .and_then(|()| longhaul_sys::file::close(file))
            .and_then(|()| Ok(renameat(&dir, &temporary, &dir, name)?));
        if written.is_err() {
            let _ = unlinkat(&dir, &temporary, AtFlags::empty());
        }
        written
    }
}

/// Returns the digest of a file in the target, read from the disk, and its size.
fn digest_of(tree: &Tree, path: &Path, store: &Store) -> io::Result<([u8; 32], u64)> {
    whole_digest(&mut tree.open_file(path)?, |got| store.count_checked(got))
}
