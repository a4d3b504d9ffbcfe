use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use longhaul_core::text::chain;
use longhaul_core::units::MinFree;
use longhaul_core::wire::{RefusalKind, Service};
use longhaul_engine::Result as EngineResult;
use longhaul_engine::copy::{self, Tree};
use longhaul_engine::diagnose;
use longhaul_engine::path;
use longhaul_engine::serve::{Event, Host, Services, is_out_of_reach};
use longhaul_engine::session::{ConfigDir, Grant, Rights, ServedSession};
use longhaul_engine::test;

use super::limits::Tiers;
use super::log::Log;
use crate::output::say;

/// Tests for anyone, under limits; files for the authorised.
pub(super) struct Offer {
    pub(super) files: Option<Tree>,
    /// What the server allows of any client.
    pub(super) rights: Rights,
    /// The part of a file system that copies leave free.
    pub(super) min_free: MinFree,
    /// Nobody may have this server send to others.
    pub(super) no_third_party: bool,
    pub(super) tiers: Tiers,
    /// Who this server is, also as a client of another.
    pub(super) host: Arc<Host>,
    /// Where the other servers are that it knows.
    pub(super) config: ConfigDir,
    /// Tests too are for the authorised alone.
    pub(super) keys_only: bool,
    pub(super) stop: Arc<AtomicBool>,
    pub(super) log: Arc<Log>,
}

const NOT_AUTHORISED: &str = "this key is not authorised; add the line that 'longhaul key' prints \
                              here to ~/.config/longhaul/authorized_keys there";

const NO_THIRD_PARTY: &str = "it does not send to other servers for this key";

const NEW_ROOT: &str = "the directory of this key was not there, or was another one, when the \
                        server started, and Landlock keeps the server out of it; restart the server";

impl Offer {
    /// The files that a key reaches and what it may do with them, or why none.
    fn files_of(&self, grant: &Grant) -> Result<Tree, String> {
        let files = match (&grant.root, &self.files) {
            (Some(root), _) if is_out_of_reach(root) => return Err(NEW_ROOT.to_owned()),
            (Some(root), _) => Tree::beneath(root)
                .map_err(|error| format!("the directory of this key cannot be opened: {error}"))?,
            (None, Some(files)) => files.clone(),
            (None, None) => return Err("it offers no files to this key".to_owned()),
        };
        let third_party = !self.no_third_party && !grant.no_third_party;
        match self.rights.and(grant.rights) {
            Some(rights) => Ok(files
                .with_rights(rights)
                .with_third_party(third_party)
                .with_owners(grant.owners)
                .with_min_free(self.min_free)),
            None => Err("what the server and the key allow leaves nothing".to_owned()),
        }
    }
}

impl Services for Offer {
    fn refusal(&self, service: Service, authorised: bool) -> Option<(RefusalKind, String)> {
        let reason = match (service, &self.files) {
            _ if self.keys_only && !authorised => NOT_AUTHORISED.to_owned(),
            (Service::Test | Service::Path, _) => return None,
            (Service::ThirdParty, _) if self.no_third_party => NO_THIRD_PARTY.to_owned(),
            (Service::ThirdParty, _) if authorised => return None,
            (Service::ThirdParty, _) => {
                format!(
                    "it tests against other servers for authorised keys alone: {NOT_AUTHORISED}"
                )
            }
            (Service::Copy | Service::Diagnose, None) if !self.host.authorised.has_roots() => {
                "it offers no files; start it as 'longhaul serve --root DIR'".to_owned()
            }
            (Service::Copy | Service::Diagnose, _) if !authorised => NOT_AUTHORISED.to_owned(),
            (Service::Copy | Service::Diagnose, _) => return None,
        };
        Some((RefusalKind::NotAuthorised, reason))
    }

    fn run(&self, service: Service, session: ServedSession) -> EngineResult<()> {
        match service {
            Service::Copy => match self.files_of(&session.grant) {
                Ok(files) => copy::serve(session, &files, &self.stop),
                Err(reason) => copy::refuse(session, RefusalKind::NotAuthorised, reason),
            },
            Service::Diagnose => match self.files_of(&session.grant) {
                Ok(files) => diagnose::serve(session, &files, &self.stop),
                Err(reason) => diagnose::refuse(session, RefusalKind::NotAuthorised, reason),
            },
            Service::ThirdParty if session.grant.no_third_party => {
                test::refuse_third(session, NO_THIRD_PARTY.to_owned())
            }
            Service::ThirdParty => {
                let limits = self.tiers.of(session.authorised);
                test::serve_third(session, (&self.host.identity, &self.config), limits)
            }
            Service::Path => {
                let limits = self.tiers.of(session.authorised);
                path::serve(session, limits)
            }
            Service::Test => {
                let limits = self.tiers.of(session.authorised);
                test::serve(session, limits)
            }
        }
    }

    fn log(&self, event: Event) {
        // The log may be elsewhere, and who has just changed the list reads standard error.
        match &event {
            Event::KeysRead { keys, ended } => say(format_args!(
                "read authorized_keys again: {keys} keys besides this user's own, {ended} sessions \
                 to end"
            )),
            Event::KeysKept { error } => say(format_args!(
                "ERROR: the change of authorized_keys is NOT in force, the keys read before still \
                 count: {}",
                chain(error)
            )),
            _ => {}
        }
        self.log.record(event);
    }
}
