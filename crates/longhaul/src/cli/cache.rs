//! `longhaul cache`: lists and removes the data that `longhaul matrix` creates once and uses again.

use std::fmt::Write as _;

use longhaul_core::units::Bytes;
use longhaul_lab::LabError;
use longhaul_lab::data::cache_entries;
use serde_json::json;

use crate::exit::{self, Coded};
use crate::output::{print_document, print_message, print_result};

#[derive(Debug, clap::Args)]
#[command(after_help = "The cache is ~/.cache/longhaul, or longhaul in XDG_CACHE_HOME. 'longhaul \
                        matrix' creates its data there. Exit codes: 0 done, 5 file or disk error.")]
pub(super) struct Args {
    /// Remove the data
    #[arg(long)]
    clear: bool,
    /// Print one JSON document, "longhaul.cache/1"
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(super) fn run(self) -> Result<u8, Coded> {
        let entries = cache_entries().map_err(files)?;
        if self.clear {
            for entry in &entries {
                entry.remove().map_err(files)?;
            }
        }
        let total = entries.iter().fold(0_u64, |sum, entry| sum.saturating_add(entry.bytes.get()));
        if self.json {
            let entries: Vec<_> = entries
                .iter()
                .map(|entry| json!({ "path": entry.path.to_string_lossy(), "bytes": entry.bytes }))
                .collect();
            print_document(&json!({
                "schema": "longhaul.cache/1", "entries": entries, "total_bytes": total,
                "cleared": self.clear,
            }))?;
            return Ok(exit::OK);
        }
        let mut text = String::new();
        for entry in &entries {
            let _ = writeln!(text, "{:>10}  {}", entry.bytes.to_string(), entry.path.display());
        }
        let what = if self.clear { "removed" } else { "in the cache" };
        let _ = writeln!(text, "{:>10}  {what}", Bytes::new(total).to_string());
        print_result(&text)?;
        Ok(exit::OK)
    }
}

fn files(error: LabError) -> Coded {
    Coded::new(exit::FILES, error)
}

/// Prints the size of the cache if it is not empty.
pub(super) fn announce() {
    let Ok(entries) = cache_entries() else { return };
    let total = entries.iter().fold(0_u64, |sum, entry| sum.saturating_add(entry.bytes.get()));
    if total > 0 {
        let total = Bytes::new(total);
        print_message(format_args!(
            "{total} of data remain in the cache for later runs; 'longhaul cache --clear' removes \
             them"
        ));
    }
}
