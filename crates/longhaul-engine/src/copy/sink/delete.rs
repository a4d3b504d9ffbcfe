//! Deletes the entries of the target that the source does not have (`--delete`).

use std::io;
use std::path::Path;

use longhaul_core::result::{Action, ActionKind};
use longhaul_core::units::Bytes;
use longhaul_core::wire::copy::SinkMessage;
use rustix::fs::{AtFlags, unlinkat};

use super::extras::Extra;
use super::placement::Destination;
use super::shared::SinkShared;
use crate::copy::tree::{Tree, wire_path};
use crate::error::Result;
use crate::lock;

/// The maximum number of actions in one message: with the longest paths it stays below the frame
/// limit.
const ACTIONS_BATCH: usize = 64;

impl SinkShared<'_> {
    /// Deletes entries that the source does not have, or reports it in a dry run; returns the
    /// number.
    pub(super) fn delete_extras(&self) -> Result<u64> {
        let Destination::Directory { tree, path: base, .. } = &self.store.destination else {
            return Ok(0);
        };
        let Some(delete) = self.records.extras.delete else { return Ok(0) };
        let refuse = |reason: &str| self.report_kept_directory(base, reason).map(|()| 0);
        if !lock(&self.records.reports).failures.is_empty() {
            return refuse("nothing was deleted, because some files were not copied");
        }
        let extras = match self.records.extras.find(self.store, tree) {
            Ok(extras) => extras,
            Err(error) => return refuse(&format!("cannot list the target: {error}")),
        };
        if let Some(limit) = delete.limit.filter(|limit| extras.len() as u64 > *limit) {
            return refuse(&format!(
                "nothing was deleted: {} not at the source, and the limit is {limit}",
                match extras.len() {
                    1 => "1 entry is".to_owned(),
                    count => format!("{count} entries are"),
                }
            ));
        }
        let mut deleted = 0;
        for batch in extras.chunks(ACTIONS_BATCH) {
            let mut actions = Vec::with_capacity(batch.len());
            for Extra { path, is_dir } in batch {
                if !self.records.extras.dry_run
                    && let Err(error) = remove(tree, path, *is_dir)
                {
                    self.report_failure(None, path, "delete", &error)?;
                    continue;
                }
                deleted += 1;
                actions.push(Action {
                    what: ActionKind::Delete,
                    path: self.store.shown(path, *is_dir),
                    bytes: Bytes::new(0),
                });
            }
            self.report_actions(actions)?;
        }
        for Extra { path, .. } in &extras {
            // Names in a directory that was deleted too need no separate sync.
            if tree.open_real_dir(path.parent().unwrap_or(Path::new(""))).is_ok() {
                self.finisher.made_name(path);
            }
        }
        Ok(deleted)
    }

    /// Reports the reason why nothing is deleted in the target.
    pub(super) fn report_kept_directory(&self, path: &Path, reason: &str) -> Result<()> {
        let path = wire_path(path);
        let reason = reason.to_owned();
        lock(&self.records.reports).fail(path.to_string(), reason.clone());
        self.context.control.send(&SinkMessage::Failed { id: None, path, reason })
    }
}

fn remove(tree: &Tree, path: &Path, is_dir: bool) -> io::Result<()> {
    let above = tree.open_real_dir(path.parent().unwrap_or(Path::new("")))?;
    let name = path.file_name().unwrap_or_default();
    let flags = if is_dir { AtFlags::REMOVEDIR } else { AtFlags::empty() };
    Ok(unlinkat(above, name, flags)?)
}
