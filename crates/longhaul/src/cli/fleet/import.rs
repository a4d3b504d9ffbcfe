//! The import of a pSConfig template.

use std::io::Read as _;
use std::net::{IpAddr, ToSocketAddrs as _};
use std::path::PathBuf;

use anyhow::{Context, anyhow};
use longhaul_core::units::Rate;
use longhaul_fleet::psconfig::{MAX_TEMPLATE_BYTES, import};

use crate::exit::{self, Coded};
use crate::output::{print_message, print_result};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "The mesh file goes to standard output, and a line per part that a mesh file \
                        cannot express to standard error. pSConfig states no capacities: edit those \
                        of the result before you apply it."
)]
pub(super) struct ImportArgs {
    /// The pSConfig template (JSON)
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Capacity of all interfaces
    #[arg(long, value_name = "RATE", default_value = "10G")]
    capacity: Rate,
}

impl ImportArgs {
    pub(super) fn run(self) -> Result<u8, Coded> {
        let mut text = String::new();
        let limit = MAX_TEMPLATE_BYTES as u64 + 1;
        std::fs::File::open(&self.file)
            .and_then(|file| file.take(limit).read_to_string(&mut text))
            .with_context(|| format!("cannot read {}", self.file.display()))
            .map_err(|error| Coded::new(exit::FILES, error))?;
        let imported = import(&text, self.capacity, &resolve).map_err(|error| {
            Coded::new(exit::USAGE, anyhow!("{}: {error}", self.file.display()))
        })?;
        for left in &imported.left_out {
            print_message(format_args!("left out: {left}"));
        }
        print_result(&imported.text)?;
        Ok(exit::OK)
    }
}

/// Returns the first address of a name.
fn resolve(name: &str) -> Option<IpAddr> {
    if let Ok(address) = name.parse() {
        return Some(address);
    }
    (name, 0).to_socket_addrs().ok()?.next().map(|address| address.ip())
}
