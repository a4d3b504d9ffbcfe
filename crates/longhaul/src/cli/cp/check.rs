//! `longhaul cp --check MANIFEST [DIR]`, here or at a far host.

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::anyhow;
use longhaul_core::plan::Location;
use longhaul_core::result::{CheckResult, Manifest};
use longhaul_engine::copy;

use super::gate::Gate;
use super::route::{Far, far};
use crate::exit::{self, Coded};
use crate::output::{after_printing, answer, document, say};

/// Compares the files in the only one of `places`, or beside the manifest, with what `manifest` has
/// recorded. Where they are at a far host, a session that `open` makes asks that host to.
pub(super) fn check<'a>(
    manifest: &Location,
    places: &[Location],
    json: bool,
    open: impl FnOnce(&Far) -> Result<Gate<'a>, Coded>,
    patience: Duration,
    stop: &Arc<AtomicBool>,
) -> Result<u8, Coded> {
    let usage = |text: &str| Coded::new(exit::USAGE, anyhow!(text.to_owned()));
    let place = |place| match place {
        Location::Local(path) | Location::Server { path, .. } | Location::Ssh { path, .. } => {
            Ok(path)
        }
        _ => Err(usage("--check takes a manifest and a directory, not standard input or a device")),
    };
    let dir = match places {
        [] => None,
        [dir] if far(dir) == far(manifest) => Some(place(dir.clone())?),
        _ => return Err(usage("--check takes one directory of the manifest's host, or none")),
    };
    let path = place(manifest.clone())?;
    let result = match far(manifest) {
        None => check_here(&path, dir.as_deref(), stop)?,
        Some(far) => {
            let mut gate = open(&far)?;
            let result = gate.open().and_then(|session| {
                copy::check_far(session, &path, dir.as_deref(), patience, stop)
            });
            gate.finish();
            result?
        }
    };
    let printed = if json { document(&result) } else { print(&result) };
    after_printing(if result.holds() { exit::OK } else { exit::PARTIAL }, printed)
}

fn check_here(
    manifest: &Path,
    dir: Option<&Path>,
    stop: &AtomicBool,
) -> Result<CheckResult, Coded> {
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

fn print(result: &CheckResult) -> Result<(), Coded> {
    let mut text = String::new();
    for (paths, what) in
        [(&result.missing, "missing"), (&result.changed, "changed"), (&result.extra, "extra")]
    {
        for path in paths {
            let _ = writeln!(text, "{what} {path}");
        }
    }
    for failure in &result.failures {
        say(format_args!("{}: {}", failure.path, failure.reason));
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
    answer(&text)
}
