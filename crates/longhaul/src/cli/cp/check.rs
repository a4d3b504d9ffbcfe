//! `longhaul cp --check MANIFEST [DIR]`.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use longhaul_core::result::{CheckResult, Manifest};
use longhaul_engine::copy;

use crate::exit::{self, Coded};

/// Compares the files in `dir`, or beside the manifest, with what `manifest` has recorded.
pub(super) fn check(
    manifest: &Path,
    dir: Option<&Path>,
    json: bool,
    stop: &AtomicBool,
) -> Result<u8, Coded> {
    let named = |error: anyhow::Error, what: &str| {
        Coded::new(exit::FILES, error.context(format!("cannot {what} {}", manifest.display())))
    };
    let text = std::fs::read(manifest).map_err(|error| named(error.into(), "read"))?;
    let recorded =
        Manifest::from_bytes(&text).map_err(|error| named(error.into(), "use the manifest"))?;
    let beside = manifest.parent().filter(|above| !above.as_os_str().is_empty());
    let base = dir.or(beside).unwrap_or(Path::new("."));
    let result = copy::check(&recorded, base, stop)?;
    if json {
        println!("{}", serde_json::to_string_pretty(&result).map_err(anyhow::Error::from)?);
    } else {
        print(&result);
    }
    Ok(if result.holds() { exit::OK } else { exit::PARTIAL })
}

fn print(result: &CheckResult) {
    for (paths, what) in
        [(&result.missing, "missing"), (&result.changed, "changed"), (&result.extra, "extra")]
    {
        for path in paths {
            println!("{what} {path}");
        }
    }
    for failure in &result.failures {
        eprintln!("longhaul: {}: {}", failure.path, failure.reason);
    }
    println!(
        "{} unchanged ({}), {} changed, {} missing, {} extra",
        result.unchanged_files,
        result.unchanged_bytes,
        result.changed.len(),
        result.missing.len(),
        result.extra.len()
    );
}
