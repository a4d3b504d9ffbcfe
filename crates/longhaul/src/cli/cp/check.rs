//! `longhaul cp --check MANIFEST [DIR]`, on this host or on a server.

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::anyhow;
use longhaul_core::plan::Location;
use longhaul_core::result::{Manifest, ManifestCheck};
use longhaul_engine::copy;

use super::connector::Connector;
use super::route::{Endpoint, endpoint};
use crate::exit::{self, Coded};
use crate::output::{after_printing, print_document, print_message, print_result};

/// A comparison of files with the digests in a manifest.
pub(super) struct Check<'a> {
    pub(super) manifest: &'a Location,
    /// The directory of the files; empty for that of the manifest.
    pub(super) places: &'a [Location],
    /// The longest time without progress.
    pub(super) patience: Duration,
    pub(super) stop: &'a Arc<AtomicBool>,
}

/// Compares the files. A remote host compares its files itself, in a session that `open` returns.
pub(super) fn check<'a>(
    what: &Check<'_>,
    json: bool,
    open: impl FnOnce(&Endpoint) -> Result<Connector<'a>, Coded>,
) -> Result<u8, Coded> {
    let Check { manifest, places, patience, stop } = *what;
    let usage = |text: &str| Coded::new(exit::USAGE, anyhow!(text.to_owned()));
    let place = |place| match place {
        Location::Local(path) | Location::Server { path, .. } | Location::Ssh { path, .. } => {
            Ok(path)
        }
        _ => Err(usage("--check needs a manifest and a directory, not '-' or a device")),
    };
    let dir = match places {
        [] => None,
        [dir] if endpoint(dir) == endpoint(manifest) => Some(place(dir.clone())?),
        _ => return Err(usage("--check accepts one directory, on the host of the manifest")),
    };
    let path = place(manifest.clone())?;
    let result = match endpoint(manifest) {
        None => check_here(&path, dir.as_deref(), stop)?,
        Some(far) => {
            let mut connector = open(&far)?;
            let result = connector.open().and_then(|session| {
                copy::check_far(session, &path, dir.as_deref(), patience, stop)
            });
            connector.finish();
            result?
        }
    };
    let printed = if json { print_document(&result) } else { print(&result) };
    after_printing(if result.holds() { exit::OK } else { exit::PARTIAL }, printed)
}

fn check_here(
    manifest: &Path,
    dir: Option<&Path>,
    stop: &AtomicBool,
) -> Result<ManifestCheck, Coded> {
    let named = |error: anyhow::Error, what: &str| {
        Coded::new(exit::FILES, error.context(format!("cannot {what} {}", manifest.display())))
    };
    let text = std::fs::read(manifest).map_err(|error| named(error.into(), "read"))?;
    let recorded =
        Manifest::from_bytes(&text).map_err(|error| named(error.into(), "use the manifest"))?;
    let beside = manifest.parent().filter(|above| !above.as_os_str().is_empty());
    let base = dir.or(beside).unwrap_or(Path::new("."));
    Ok(copy::check(&recorded, base, stop)?)
}

fn print(result: &ManifestCheck) -> Result<(), Coded> {
    let mut text = String::new();
    for (paths, what) in
        [(&result.missing, "missing"), (&result.changed, "changed"), (&result.extra, "extra")]
    {
        for path in paths {
            let _ = writeln!(text, "{what} {path}");
        }
    }
    for failure in &result.failures {
        print_message(format_args!("{}: {}", failure.path, failure.reason));
    }
    let _ = writeln!(
        text,
        "{} unchanged ({}), {} changed, {} missing, {} extra",
        result.unchanged_files,
        result.unchanged_bytes,
        result.changed.len(),
        result.missing.len(),
        result.extra.len()
    );
    print_result(&text)
}
