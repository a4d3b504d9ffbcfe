//! `longhaul key`: prints the public key of this user, sets its passphrase and replaces it.

use anyhow::anyhow;
use longhaul_engine::session::{ConfigDir, Identity, PublicKey};

use crate::exit::{self, Coded};
use crate::output::{print_message, print_result};
use crate::passphrase::{ask, ask_for};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Append the printed line to ~/.config/longhaul/authorized_keys on a server \
                        to give this user access to its files. The private key is in \
                        ~/.config/longhaul/identity, in OpenSSH's format. If that file has a public \
                        key (longhaul-ed25519 or ssh-ed25519) or an encrypted key, the ssh-agent \
                        at SSH_AUTH_SOCK can sign. longhaul reads a passphrase from the program in \
                        LONGHAUL_ASKPASS, from the terminal, or from the program in SSH_ASKPASS.\n\n\
                        To replace the key of a server: run 'longhaul key --rotate' and restart the \
                        server; after its clients have connected once, run 'longhaul key --switch' \
                        and restart it again."
)]
pub(super) struct Args {
    /// Print the fingerprint instead of the key
    #[arg(long)]
    fingerprint: bool,
    /// Set or change the passphrase of the private key; an empty passphrase removes it
    #[arg(long, conflicts_with_all = ["rotate", "switch"])]
    passphrase: bool,
    /// Create the next key, which the server announces to clients that trust the present one
    #[arg(long, conflicts_with = "switch")]
    rotate: bool,
    /// Switch to the key that --rotate created, and keep the present key as identity.old
    #[arg(long)]
    switch: bool,
}

impl Args {
    pub(super) fn run(self) -> Result<u8, Coded> {
        let config = ConfigDir::of_user()?;
        let key = if self.passphrase {
            change_passphrase(&config)?
        } else if self.rotate {
            Identity::prepare_next(&config, &mut |path| ask_for(path))?
        } else if self.switch {
            Identity::switch_to_next(&config)?
        } else {
            Identity::public_of(&config)?
        };
        let line = if self.fingerprint { key.fingerprint() } else { key.to_string() };
        print_result(&format!("{line}\n"))?;
        Ok(exit::OK)
    }
}

fn change_passphrase(config: &ConfigDir) -> Result<PublicKey, Coded> {
    // The old passphrase is checked before the user types a new one.
    let mut old = None;
    Identity::unlock_file(config, &mut |path| {
        old = ask_for(path);
        old.clone()
    })?;
    let failed = |reason| Coded::new(exit::USAGE, anyhow!("{reason}"));
    let new = ask("New passphrase (empty for none): ").ok_or_else(|| {
        failed("cannot read a passphrase; run this in a terminal, or set LONGHAUL_ASKPASS")
    })?;
    if ask("Repeat the new passphrase: ").as_ref() != Some(&new) {
        return Err(failed("the passphrases differ; nothing was changed"));
    }
    let new = Some(new).filter(|new| !new.is_empty());
    let key = Identity::set_passphrase(config, new.as_deref(), &mut |_| old.clone())?;
    print_message(if new.is_some() {
        "the private key is encrypted"
    } else {
        "the private key is not encrypted"
    });
    Ok(key)
}
