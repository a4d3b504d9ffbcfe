//! Turns the arguments of `longhaul cp` into a plan.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use longhaul_core::plan::{
    CopyOptions, CopyPlan, DeleteOptions, Location, OwnerMode, Protection, TreeOptions, Verify,
};
use longhaul_core::wire::{BLOCK_LIMIT, FilePath};
use longhaul_engine::copy::read_names;

use super::filters::read_list;
use super::{Args, LEAST_GIVE_UP};
use crate::exit::{self, Coded};

impl Args {
    /// Returns the plan of the copy.
    pub(super) fn plan(&self) -> Result<CopyPlan, Coded> {
        let usage = |text: String| Err(Coded::new(exit::USAGE, anyhow!(text)));
        let page = longhaul_sys::memory::DIRECT_ALIGN as u64;
        let rate = self.bwlimit.filter(|rate| rate.bps() > 0);
        let block = self.block.unwrap_or_else(|| CopyOptions::block(self.streams, rate));
        if block.get() == 0 || !block.get().is_multiple_of(page) || block > BLOCK_LIMIT {
            return usage(format!(
                "invalid --block {block}: it must be a multiple of {page} bytes and at most \
                 {BLOCK_LIMIT}"
            ));
        }
        let Some((target, sources @ [_, ..])) = self.places.split_last() else {
            return usage("missing target: give SRC... DST".to_owned());
        };
        self.check_places(sources, target)?;
        Ok(CopyPlan {
            sources: if self.rsync_slash {
                sources.iter().map(Location::contents_if_slash).collect()
            } else {
                sources.to_vec()
            },
            target: target.clone(),
            options: CopyOptions {
                streams: self.streams,
                block_bytes: block,
                protection: self.protection(),
                durable: !self.no_fsync,
                preserve: self.preserve || self.archive,
                recursive: self.recursive || self.archive,
                rate_bps: rate,
                direct: self.direct,
                nice: self.nice,
                dedicated: self.dedicated,
                verify: self.verify,
                give_up_ms: Some(self.give_up.max(LEAST_GIVE_UP).as_millis() as u64),
                tree: self.tree()?,
                ..CopyOptions::default()
            },
            names: self.names(sources)?,
            zero_bytes: self.size,
        })
    }

    /// Rejects sources and targets that exclude each other or an option.
    fn check_places(&self, sources: &[Location], target: &Location) -> Result<(), Coded> {
        let usage = |text: &str| Err(Coded::new(exit::USAGE, anyhow!(text.to_owned())));
        match (sources.contains(&Location::Zero), self.size.is_some()) {
            (true, false) => return usage("the source /dev/zero needs --size"),
            (false, true) => return usage("--size is only for the source /dev/zero"),
            _ => {}
        }
        if *target == Location::Zero || sources.contains(&Location::Null) {
            return usage("/dev/zero can only be a source, and /dev/null only a target");
        }
        self.check_standard(sources, target)?;
        if self.verify == Verify::Reread && matches!(target, Location::Null | Location::Standard) {
            return usage("--verify=reread needs files as target");
        }
        Ok(())
    }

    fn protection(&self) -> Protection {
        let is_remote =
            |place: &Location| matches!(place, Location::Server { .. } | Location::Ssh { .. });
        match (self.cleartext, self.no_verify) {
            (_, true) => Protection::Bare,
            (true, false) => Protection::Hashed,
            // A copy within one process crosses no network.
            (false, false) if !self.places.iter().any(is_remote) => Protection::Hashed,
            (false, false) => Protection::Sealed,
        }
    }

    /// Reads the paths listed in --files-from.
    fn names(&self, sources: &[Location]) -> Result<Option<Vec<PathBuf>>, Coded> {
        let Some(list) = &self.files_from else { return Ok(None) };
        let usage = |text: &str| Err(Coded::new(exit::USAGE, anyhow!(text.to_owned())));
        if !matches!(sources, [Location::Local(_) | Location::Server { .. } | Location::Ssh { .. }])
        {
            return usage("--files-from needs one SRC: the directory of the listed paths");
        }
        if self.delete {
            return usage("--delete cannot be combined with --files-from");
        }
        Ok(Some(read_names(&read_list(Path::new(list))?, self.from0)))
    }

    /// Returns the options of a tree: its selection, attributes and treatment of existing files.
    fn tree(&self) -> Result<TreeOptions, Coded> {
        let usage = |text: &str| Err(Coded::new(exit::USAGE, anyhow!(text.to_owned())));
        let recursive = self.recursive || self.archive;
        if self.delete && !recursive {
            return usage("--delete needs -r or -a");
        }
        let manifest = match &self.manifest {
            None => None,
            Some(_) if self.places.last() == Some(&Location::Null) => {
                return usage("--manifest cannot be written to /dev/null; use --digest");
            }
            Some(name) => {
                let name = FilePath::new(name.as_bytes());
                match name {
                    Some(name) if name.as_bytes().is_empty() || name.is_plain_relative() => {
                        Some(name)
                    }
                    _ => return usage("--manifest must be a relative path without '..'"),
                }
            }
        };
        let archive = if self.archive { TreeOptions::archive() } else { TreeOptions::default() };
        Ok(TreeOptions {
            keep_links: self.links || self.archive,
            owner: match (self.archive, self.numeric_ids) {
                (false, _) => OwnerMode::Ignore,
                (true, false) => OwnerMode::Names,
                (true, true) => OwnerMode::Numbers,
            },
            update: self.update,
            sync_level: self.sync_level,
            list: self.verbose,
            dry_run: self.dry_run,
            delete: self.delete.then_some(DeleteOptions { limit: self.max_delete }),
            filters: self.filters.rules()?,
            digests: self.digest,
            ordered: self.to_stdout(),
            manifest,
            ..archive
        })
    }
}
