//! What the fuzz targets share.

mod entries;

pub use entries::{ENTRIES, Entry, seeds};

/// Runs the entry called `name` on `data`.
///
/// # Panics
/// There is no such entry, or it has found what it looks for.
pub fn run(name: &str, data: &[u8]) {
    let (_, entry) = ENTRIES.iter().find(|(entry, _)| *entry == name).expect("an entry's name");
    entry(data);
}
