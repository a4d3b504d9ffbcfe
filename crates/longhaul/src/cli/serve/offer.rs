//! The services that the server offers to each client, and the reasons for refusals.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use longhaul_core::units::MinFree;
use longhaul_core::wire::{RefusalKind, Service};
use longhaul_engine::Result as EngineResult;
use longhaul_engine::copy::{self, Tree};
use longhaul_engine::diagnose;
use longhaul_engine::path;
use longhaul_engine::serve::{ServeEvent, ServerKeys, Services, is_out_of_reach};
use longhaul_engine::session::{ConfigDir, Grant, IgnoredLines, Rights, ServedSession};
use longhaul_engine::test;

use super::limits::Tiers;
use super::log::{Log, out_of_reach_words};
use crate::output::{failure_text, ignored_lines, print_message};

/// The services of the server. Anyone may run tests, within limits. Only authorized keys may copy
/// files.
pub(super) struct Offer {
    pub(super) files: Option<Tree>,
    /// The rights that the server allows any client.
    pub(super) rights: Rights,
    /// The space that copies leave free.
    pub(super) min_free: MinFree,
    /// No client may make this server send to other servers.
    pub(super) no_third_party: bool,
    pub(super) tiers: Tiers,
    /// The identity of this server, also as a client of another.
    pub(super) host: Arc<ServerKeys>,
    /// The directory with `known_hosts`.
    pub(super) config: ConfigDir,
    /// Only authorized keys may run tests.
    pub(super) keys_only: bool,
    pub(super) stop: Arc<AtomicBool>,
    pub(super) log: Arc<Log>,
}

const NOT_AUTHORIZED: &str = "this key is not authorized; run 'longhaul key' on the client, and \
                              add the line to ~/.config/longhaul/authorized_keys on the server";

const NO_THIRD_PARTY: &str = "the server does not send to other servers for this key";

const NEW_ROOT: &str = "Landlock excludes the directory of this key, because it did not exist or \
                        was another directory when the server started; restart the server";

impl Offer {
    /// Returns the files of a key with its rights, or the reason for a refusal.
    fn files_of(&self, grant: &Grant) -> Result<Tree, String> {
        let files = match (&grant.root, &self.files) {
            (Some(root), _) if is_out_of_reach(root) => return Err(NEW_ROOT.to_owned()),
            (Some(root), _) => Tree::beneath(root)
                .map_err(|error| format!("the directory of this key cannot be opened: {error}"))?,
            (None, Some(files)) => files.clone(),
            (None, None) => return Err("the server offers no files to this key".to_owned()),
        };
        let third_party = !self.no_third_party && !grant.no_third_party;
        match self.rights.and(grant.rights) {
            Some(rights) => Ok(files
                .with_rights(rights)
                .with_third_party(third_party)
                .with_owners(grant.owners)
                .with_min_free(self.min_free)),
            None => Err("the options of the server and of the key allow no access".to_owned()),
        }
    }
}

impl Services for Offer {
    fn refusal(&self, service: Service, authorized: bool) -> Option<(RefusalKind, String)> {
        let reason = match (service, &self.files) {
            _ if self.keys_only && !authorized => NOT_AUTHORIZED.to_owned(),
            (Service::Test | Service::Path, _) => return None,
            (Service::ThirdParty, _) if self.no_third_party => NO_THIRD_PARTY.to_owned(),
            (Service::ThirdParty, _) if authorized => return None,
            (Service::ThirdParty, _) => {
                format!("only authorized keys may test against other servers: {NOT_AUTHORIZED}")
            }
            (Service::Copy | Service::Diagnose, None) if !self.host.authorized.has_roots() => {
                "the server offers no files; start it as 'longhaul serve --root DIR'".to_owned()
            }
            (Service::Copy | Service::Diagnose, _) if !authorized => NOT_AUTHORIZED.to_owned(),
            (Service::Copy | Service::Diagnose, _) => return None,
        };
        Some((RefusalKind::NotAuthorized, reason))
    }

    fn run(&self, service: Service, session: ServedSession) -> EngineResult<()> {
        match service {
            Service::Copy => match self.files_of(&session.grant) {
                Ok(files) => copy::serve(session, &files, &self.stop),
                Err(reason) => copy::refuse(session, RefusalKind::NotAuthorized, reason),
            },
            Service::Diagnose => match self.files_of(&session.grant) {
                Ok(files) => diagnose::serve(session, &files, &self.stop),
                Err(reason) => diagnose::refuse(session, RefusalKind::NotAuthorized, reason),
            },
            Service::ThirdParty if session.grant.no_third_party => {
                test::refuse_third(session, NO_THIRD_PARTY.to_owned())
            }
            Service::ThirdParty => {
                let limits = self.tiers.of(session.authorized);
                test::serve_third(session, (&self.host.identity, &self.config), limits)
            }
            Service::Path => {
                let limits = self.tiers.of(session.authorized);
                path::serve(session, limits)
            }
            Service::Test => {
                let limits = self.tiers.of(session.authorized);
                test::serve(session, limits)
            }
        }
    }

    fn log(&self, event: ServeEvent) {
        // The administrator who changed the list reads standard error, even with a log file.
        match &event {
            ServeEvent::KeysRead { keys, ended, out_of_reach, ignored } => {
                let key = if *keys == 1 { "key" } else { "keys" };
                let sessions = if *ended == 1 { "session ends" } else { "sessions end" };
                print_message(format_args!(
                    "reloaded authorized_keys: {keys} {key}, {ended} {sessions}"
                ));
                out_of_reach.iter().for_each(|root| print_message(out_of_reach_words(root)));
                warn_of(ignored);
            }
            ServeEvent::KeysKept { error } => print_message(format_args!(
                "ERROR: cannot reload authorized_keys; the previous keys remain in force: {}",
                failure_text(error)
            )),
            _ => {}
        }
        self.log.record(event);
    }
}

/// Prints a warning about lines of `authorized_keys` that have no valid key.
pub(super) fn warn_of(ignored: &IgnoredLines) {
    if let Some(words) = ignored_lines(ignored) {
        print_message(format_args!("warning: {words}"));
    }
}
