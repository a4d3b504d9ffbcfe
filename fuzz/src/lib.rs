//! Code that the fuzz targets share.

mod entries;
pub mod iperf3;
pub mod nuttcp;
mod stamp;

pub use entries::Entry;
use longhaul_engine::copy::fuzzing;

/// All entries, by the names of their fuzz targets.
pub fn all() -> impl Iterator<Item = (&'static str, Entry)> {
    let stamp: (&'static str, Entry) = ("stamp", stamp::stamp);
    entries::ENTRIES.iter().chain(fuzzing::ENTRIES).copied().chain([stamp])
}

/// Inputs to begin from.
pub fn seeds(entry: &str) -> Vec<Vec<u8>> {
    if entry == "stamp" {
        return stamp::seeds();
    }
    match fuzzing::seeds(entry) {
        none if none.is_empty() => entries::seeds(entry),
        seeds => seeds,
    }
}

/// Runs the entry called `name` on `data`.
///
/// # Panics
/// There is no such entry, or it has found what it looks for.
pub fn run(name: &str, data: &[u8]) {
    let (_, entry) = all().find(|(entry, _)| *entry == name).expect("an entry's name");
    entry(data);
}
