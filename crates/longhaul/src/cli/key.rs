//! `longhaul key`: who this user of this host is, for the authorised list of another.

use longhaul_engine::session::{ConfigDir, Identity};

use crate::exit::{self, Coded};
use crate::output::answer;

#[derive(Debug, clap::Args)]
#[command(after_help = "Add the line to ~/.config/longhaul/authorized_keys of a host whose files \
                        this user may reach.")]
pub(super) struct Args {
    /// Print the short fingerprint instead
    #[arg(long)]
    fingerprint: bool,
}

impl Args {
    pub(super) fn run(self) -> Result<u8, Coded> {
        let key = Identity::load_or_create(&ConfigDir::of_user()?)?.public();
        let line = if self.fingerprint { key.fingerprint() } else { key.to_string() };
        answer(&format!("{line}\n"))?;
        Ok(exit::OK)
    }
}
