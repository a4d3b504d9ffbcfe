//! `longhaul key`: who this user of this host is, for the authorised list of another; its
//! passphrase and its successor.

use anyhow::anyhow;
use longhaul_engine::session::{ConfigDir, Identity, PublicKey};

use crate::exit::{self, Coded};
use crate::output::{answer, say};
use crate::passphrase::{ask, ask_for};

#[derive(Debug, clap::Args)]
#[command(after_help = "Add the line to ~/.config/longhaul/authorized_keys of a host whose files \
                        this user may reach. The private key is in ~/.config/longhaul/identity, in \
                        OpenSSH's format. That file may hold a public key (longhaul-ed25519 or \
                        ssh-ed25519) instead: then the ssh-agent at SSH_AUTH_SOCK signs, as it does \
                        for an encrypted key that it has. A passphrase is asked for by the program \
                        in LONGHAUL_ASKPASS, on the terminal, or by the one in SSH_ASKPASS.\n\n\
                        To change the key of a server: 'longhaul key --rotate', restart it, wait \
                        until its clients have connected once, 'longhaul key --switch', restart it.")]
pub(super) struct Args {
    /// Print the short fingerprint instead
    #[arg(long)]
    fingerprint: bool,
    /// Encrypt the private key under a passphrase, or change or (an empty one) remove it
    #[arg(long, conflicts_with_all = ["rotate", "switch"])]
    passphrase: bool,
    /// Make the key that is to follow, which the server announces to clients that trust this one
    #[arg(long, conflicts_with = "switch")]
    rotate: bool,
    /// Use the key that --rotate made; the present one is kept as identity.old
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
        answer(&format!("{line}\n"))?;
        Ok(exit::OK)
    }
}

fn change_passphrase(config: &ConfigDir) -> Result<PublicKey, Coded> {
    // The old one first, so that nobody types a new one in vain.
    let mut old = None;
    Identity::unlock_file(config, &mut |path| {
        old = ask_for(path);
        old.clone()
    })?;
    let failed = |reason| Coded::new(exit::USAGE, anyhow!("{reason}"));
    let new = ask("New passphrase (empty for none): ").ok_or_else(|| {
        failed("cannot ask for a passphrase; run it in a terminal, or set LONGHAUL_ASKPASS")
    })?;
    if ask("The same again: ").as_ref() != Some(&new) {
        return Err(failed("the two passphrases differ; nothing was changed"));
    }
    let new = Some(new).filter(|new| !new.is_empty());
    let key = Identity::set_passphrase(config, new.as_deref(), &mut |_| old.clone())?;
    say(if new.is_some() {
        "the private key is encrypted"
    } else {
        "the private key is not encrypted"
    });
    Ok(key)
}
