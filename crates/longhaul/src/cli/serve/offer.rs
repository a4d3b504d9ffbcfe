use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use longhaul_core::wire::{RefusalKind, Service};
use longhaul_engine::Result as EngineResult;
use longhaul_engine::copy::{self, Tree};
use longhaul_engine::flow;
use longhaul_engine::serve::Services;
use longhaul_engine::session::{ConfigDir, ServedSession};

use super::limits::Tiers;

/// Tests for anyone, under limits; files for the authorised.
pub(super) struct Offer {
    pub(super) files: Option<Tree>,
    pub(super) tiers: Tiers,
    /// Who this server is as a client of another.
    pub(super) config: ConfigDir,
    /// Tests too are for the authorised alone.
    pub(super) keys_only: bool,
    pub(super) stop: Arc<AtomicBool>,
}

const NOT_AUTHORISED: &str = "this key is not authorised; add the line that 'longhaul key' prints \
                              here to ~/.config/longhaul/authorized_keys there";

impl Services for Offer {
    fn refusal(&self, service: Service, authorised: bool) -> Option<(RefusalKind, String)> {
        let reason = match (service, &self.files) {
            _ if self.keys_only && !authorised => NOT_AUTHORISED.to_owned(),
            (Service::Test, _) => return None,
            (Service::ThirdParty, _) if authorised => return None,
            (Service::ThirdParty, _) => {
                format!(
                    "it tests against other servers for authorised keys alone: {NOT_AUTHORISED}"
                )
            }
            (Service::Copy, None) => {
                "it offers no files; start it as 'longhaul serve --root DIR'".to_owned()
            }
            (Service::Copy, Some(_)) if !authorised => NOT_AUTHORISED.to_owned(),
            (Service::Copy, Some(_)) => return None,
        };
        Some((RefusalKind::NotAuthorised, reason))
    }

    fn run(&self, service: Service, session: ServedSession) -> EngineResult<()> {
        match (service, &self.files) {
            (Service::Copy, Some(files)) => copy::serve(session, files, &self.stop),
            (Service::ThirdParty, _) => {
                let limits = self.tiers.of(session.authorised);
                flow::serve_third(session, &self.config, limits)
            }
            // A copy without files was refused above.
            _ => {
                let limits = self.tiers.of(session.authorised);
                flow::serve(session, limits)
            }
        }
    }

    fn ended(&self, peer: &str, outcome: EngineResult<()>) {
        match outcome {
            Ok(()) => eprintln!("longhaul: {peer}: done"),
            Err(error) => eprintln!("longhaul: {peer}: {:#}", anyhow::Error::from(error)),
        }
    }
}
