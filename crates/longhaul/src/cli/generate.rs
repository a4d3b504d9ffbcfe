//! `longhaul generate`: man pages and shell completions, from the same definitions as `--help`.

use std::path::PathBuf;

use anyhow::Context;
use clap::CommandFactory;
use clap_complete::Shell;

use super::Cli;
use crate::exit::{self, Coded};
use crate::output::print_result;

#[derive(Debug, clap::Subcommand)]
pub(super) enum Args {
    /// Write one man page per command into a directory
    Man {
        /// The directory; it must exist
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
    /// Print the completion script of a shell
    Completions {
        /// The shell
        shell: Shell,
    },
}

impl Args {
    pub(super) fn run(self) -> Result<u8, Coded> {
        let mut command = Cli::command();
        match self {
            Args::Man { directory } => {
                clap_mangen::generate_to(command, &directory)
                    .with_context(|| format!("cannot write into {}", directory.display()))
                    .map_err(|error| Coded { code: exit::FILES, error })?;
            }
            Args::Completions { shell } => {
                let mut text = Vec::new();
                clap_complete::generate(shell, &mut command, "longhaul", &mut text);
                print_result(&String::from_utf8_lossy(&text))?;
            }
        }
        Ok(exit::OK)
    }
}
