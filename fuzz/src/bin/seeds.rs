//! Writes the messages to begin from into `corpus/TARGET/`, where cargo-fuzz looks for them.

use std::fs;
use std::io;
use std::path::Path;

fn main() -> io::Result<()> {
    for (name, _) in longhaul_fuzz::ENTRIES {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
        fs::create_dir_all(&directory)?;
        for (number, seed) in longhaul_fuzz::seeds(name).iter().enumerate() {
            fs::write(directory.join(format!("seed-{number}")), seed)?;
        }
    }
    Ok(())
}
