//! The reports of a copy on single files: failures, skipped files, actions and digests.
//!
//! A hostile peer can send any number of reports, so the memory for its reports is bounded.

use std::io;

use longhaul_core::result::{Action, CopyFailure, DigestOf, NotKept};

use crate::error::{EngineError, Result};

/// The maximum number of failures, and of skipped files, that are kept. More do not help a user.
const FAILURES_KEPT: usize = 1000;
/// The longest path or reason in a failure; the rest is cut off.
const TEXT_BYTES: usize = 16 << 10;
/// The maximum number of bytes of a peer's actions and digests: about five million files.
const PEER_BYTES: usize = 1 << 30;

/// The reports of a copy on single files.
#[derive(Debug, Default)]
pub(super) struct FileReports {
    /// True at a server: its client gets all actions and digests in messages.
    failures_only: bool,
    pub(super) failures: Vec<CopyFailure>,
    pub(super) skipped: Vec<CopyFailure>,
    pub(super) not_kept: Vec<NotKept>,
    pub(super) actions: Vec<Action>,
    pub(super) digests: Vec<DigestOf>,
    /// Bytes of the actions and digests of a peer.
    peer_bytes: usize,
}

impl FileReports {
    /// Creates the reports of a server, which keep no actions and no digests.
    pub(super) fn of_server() -> Self {
        FileReports { failures_only: true, ..FileReports::default() }
    }

    /// Adds the attributes that the sink could not keep.
    pub(super) fn with_not_kept(self, not_kept: Vec<NotKept>) -> Self {
        FileReports { not_kept, ..self }
    }

    /// Adds a file that failed.
    pub(super) fn fail(&mut self, path: String, reason: String) {
        keep(&mut self.failures, path, reason);
    }

    /// Adds a file that is not copied by design.
    pub(super) fn skip(&mut self, path: String, reason: String) {
        keep(&mut self.skipped, path, reason);
    }

    /// Adds actions that a peer reports.
    ///
    /// # Errors
    /// There is no room for all of them.
    pub(super) fn peer_acts(&mut self, actions: Vec<Action>) -> Result<()> {
        let bytes = |action: &Action| action.path.as_bytes().len();
        add(&mut self.actions, actions, &mut self.peer_bytes, bytes)
    }

    /// Adds digests of this end.
    pub(super) fn own_digests(&mut self, digests: &[DigestOf]) {
        if !self.failures_only {
            self.digests.extend_from_slice(digests);
        }
    }

    /// Adds actions of this end on the entries of a peer.
    ///
    /// # Errors
    /// There is no room for all of them.
    pub(super) fn own_actions(&mut self, actions: &[Action]) -> Result<()> {
        if self.failures_only { Ok(()) } else { self.peer_acts(actions.to_vec()) }
    }

    /// Adds digests that a peer reports.
    ///
    /// # Errors
    /// There is no room for all of them.
    pub(super) fn peer_digests(&mut self, digests: Vec<DigestOf>) -> Result<()> {
        let bytes = |digest: &DigestOf| digest.path.as_bytes().len() + digest.blake3.len();
        add(&mut self.digests, digests, &mut self.peer_bytes, bytes)
    }
}

fn add<T>(
    list: &mut Vec<T>,
    more: Vec<T>,
    used: &mut usize,
    bytes: impl Fn(&T) -> usize,
) -> Result<()> {
    for item in more {
        *used += size_of::<T>() + bytes(&item);
        if *used > PEER_BYTES {
            let operation = "keep the list of actions and digests";
            let source = io::Error::other("it exceeds 1 GiB; copy fewer files at once");
            return Err(EngineError::System { operation, source });
        }
        list.push(item);
    }
    Ok(())
}

fn keep(list: &mut Vec<CopyFailure>, path: String, reason: String) {
    if list.len() < FAILURES_KEPT {
        list.push(CopyFailure { path: cut(path), reason: cut(reason) });
    }
}

fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(TEXT_BYTES));
    text
}

#[cfg(test)]
mod tests {
    use longhaul_core::result::ActionKind;
    use longhaul_core::units::Bytes;
    use longhaul_core::wire::FilePath;

    use super::*;

    #[test]
    fn failures_are_bounded_in_number_and_length() {
        let mut reports = FileReports::default();
        for _ in 0..2000 {
            reports.fail("\u{e9}".repeat(TEXT_BYTES), "r".repeat(100_000));
        }
        assert_eq!(reports.failures.len(), FAILURES_KEPT);
        let CopyFailure { path, reason } = &reports.failures[0];
        assert_eq!((path.len(), reason.len()), (TEXT_BYTES, TEXT_BYTES));
    }

    #[test]
    fn a_peer_has_no_end_of_actions() {
        let mut reports = FileReports { peer_bytes: PEER_BYTES - 1000, ..FileReports::default() };
        let path = FilePath::new("p".repeat(100)).unwrap();
        let action = Action { what: ActionKind::Create, path, bytes: Bytes::new(0) };
        reports.peer_acts(vec![action.clone(); 3]).unwrap();
        let full = reports.peer_acts(vec![action; 1000]).unwrap_err();
        assert!((3..8).contains(&reports.actions.len()), "{}", reports.actions.len());
        assert!(
            matches!(full, EngineError::System { source, .. } if source.to_string().contains("1 GiB"))
        );
        let path = FilePath::new("p").unwrap();
        let digest = DigestOf { path, bytes: Bytes::new(0), blake3: String::new() };
        assert!(reports.peer_digests(vec![digest]).is_err(), "the list is not cut silently");
    }

    #[test]
    fn a_server_keeps_no_list_of_the_entries_of_its_client() {
        let path = FilePath::new("p").unwrap();
        let bytes = Bytes::new(0);
        let action = Action { what: ActionKind::Create, path: path.clone(), bytes };
        let digest = DigestOf { path, bytes, blake3: String::new() };
        for (mut reports, kept) in [(FileReports::of_server(), 0), (FileReports::default(), 1)] {
            reports.own_actions(std::slice::from_ref(&action)).unwrap();
            reports.own_digests(std::slice::from_ref(&digest));
            reports.fail("p".to_owned(), "reason".to_owned());
            let lengths = [reports.actions.len(), reports.digests.len(), reports.failures.len()];
            assert_eq!(lengths, [kept, kept, 1]);
        }
    }
}
