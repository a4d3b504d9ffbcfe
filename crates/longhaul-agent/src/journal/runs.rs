//! The runs of the journal: accepted, running, over.

use longhaul_fleet::protocol::{Lease, Role, RunReport};
use rusqlite::{OptionalExtension as _, params};

use super::Journal;
use crate::error::Result;

/// The outcome of the acceptance of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Acceptance {
    /// The lease is new and stored.
    New,
    /// The journal has the run; nothing changes.
    Known,
    /// A resource has a fencing number that is as high or higher.
    Stale,
}

/// A run that is not over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredRun {
    pub(crate) lease: Lease,
    /// The start in ms since 1970; `None` if the run has not started.
    pub(crate) started_ms: Option<i64>,
}

/// The time for which the ids of runs that are over are kept, to recognize repeated leases.
const KEPT_MS: i64 = 7 * 86_400_000;

fn role_name(role: Role) -> &'static str {
    match role {
        Role::Source => "source",
        Role::Target => "target",
    }
}

impl Journal {
    /// Stores a lease and its fencing number, if the lease is new.
    pub(crate) fn accept(&self, lease: &Lease) -> Result<Acceptance> {
        let text = serde_json::to_string(lease).unwrap_or_default();
        let fencing = i64::try_from(lease.fencing).unwrap_or(i64::MAX);
        let role = role_name(lease.role);
        self.write(|transaction| {
            let sql = "SELECT 1 FROM runs WHERE run = ?1 AND role = ?2";
            let known =
                transaction.query_row(sql, params![lease.run, role], |_| Ok(())).optional()?;
            if known.is_some() {
                return Ok(Acceptance::Known);
            }
            for resource in &lease.resources {
                let sql = "SELECT fencing FROM fences WHERE resource = ?1";
                let highest: Option<i64> =
                    transaction.query_row(sql, [resource], |row| row.get(0)).optional()?;
                if highest.is_some_and(|highest| highest >= fencing) {
                    return Ok(Acceptance::Stale);
                }
            }
            for resource in &lease.resources {
                let sql = "INSERT OR REPLACE INTO fences VALUES (?1, ?2)";
                transaction.execute(sql, params![resource, fencing])?;
            }
            let sql = "INSERT INTO runs VALUES (?1, ?2, 'accepted', ?3, NULL, ?4)";
            transaction.execute(sql, params![lease.run, role, text, lease.end_ms])?;
            Ok(Acceptance::New)
        })
    }

    /// Records that a run starts. Returns false if it has started before or is over: it must not
    /// start.
    pub(crate) fn start(&self, lease: &Lease, started_ms: i64) -> Result<bool> {
        let role = role_name(lease.role);
        let sql = "UPDATE runs SET state = 'running', started_ms = ?3
                   WHERE run = ?1 AND role = ?2 AND state = 'accepted'";
        let changed = self
            .write(|transaction| transaction.execute(sql, params![lease.run, role, started_ms]))?;
        Ok(changed == 1)
    }

    /// Records the outcome of a run, once. Returns false if the run has an outcome.
    pub(crate) fn finish(&self, report: &RunReport) -> Result<bool> {
        let role = role_name(report.role);
        let body = serde_json::to_string(report).unwrap_or_default();
        self.write(|transaction| {
            let sql = "SELECT state FROM runs WHERE run = ?1 AND role = ?2";
            let state: Option<String> = transaction
                .query_row(sql, params![report.run, role], |row| row.get(0))
                .optional()?;
            if state.as_deref() == Some("over") {
                return Ok(false);
            }
            let sql = "INSERT INTO runs VALUES (?1, ?2, 'over', '', NULL, ?3)
                       ON CONFLICT DO UPDATE SET state = 'over', lease = ''";
            transaction.execute(sql, params![report.run, role, report.ended_ms])?;
            let sql = "INSERT INTO outbox (kind, bytes, rows, body) VALUES ('result', ?1, 0, ?2)";
            transaction.execute(sql, params![body.len() as i64, body])?;
            Ok(true)
        })
    }

    /// Returns the runs that are not over.
    pub(crate) fn open_runs(&self) -> Result<Vec<StoredRun>> {
        let connection = self.connection();
        let sql = "SELECT lease, started_ms FROM runs WHERE state != 'over'";
        let mut statement = connection.prepare_cached(sql)?;
        let rows = statement.query_map((), |row| {
            let (text, started_ms): (String, _) = (row.get(0)?, row.get(1)?);
            Ok((text, started_ms))
        })?;
        let mut runs = Vec::new();
        for row in rows {
            let (text, started_ms) = row?;
            // This version wrote the text; a damaged one cannot run.
            if let Ok(lease) = serde_json::from_str(&text) {
                runs.push(StoredRun { lease, started_ms });
            }
        }
        Ok(runs)
    }

    /// Forgets runs that were over long before `now_ms`.
    pub(crate) fn prune(&self, now_ms: i64) -> Result<()> {
        let sql = "DELETE FROM runs WHERE state = 'over' AND end_ms < ?1";
        self.write(|transaction| transaction.execute(sql, [now_ms - KEPT_MS]))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use longhaul_fleet::protocol::{RunOutcome, TestKind, TestSpec};

    use super::*;

    pub(super) fn lease(run: &str, fencing: u64) -> Lease {
        Lease {
            run: run.to_owned(),
            fencing,
            resources: vec!["west/eth0/out".into()],
            test: "t".into(),
            role: Role::Source,
            spec: TestSpec {
                kind: TestKind::Throughput,
                seconds: 2,
                streams: None,
                rate_bps: None,
                udp: false,
                congestion: None,
                bytes: None,
            },
            source: "west".into(),
            destination: "east".into(),
            local: None,
            peer: "10.0.0.2".parse().unwrap(),
            port: 5290,
            peer_key: None,
            start_ms: 1000,
            end_ms: 9000,
        }
    }

    fn report(run: &str) -> RunReport {
        RunReport {
            id: 0,
            run: run.to_owned(),
            fencing: 7,
            role: Role::Source,
            outcome: RunOutcome::Finished,
            reason: None,
            started_ms: Some(1000),
            ended_ms: 3000,
            exit_code: Some(0),
            message: None,
            document: None,
        }
    }

    #[test]
    fn a_run_is_accepted_started_and_over_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal.db");
        let journal = Journal::open(&path).unwrap();
        let first = lease("r1", 7);
        assert_eq!(journal.accept(&first).unwrap(), Acceptance::New);
        assert_eq!(journal.accept(&first).unwrap(), Acceptance::Known);
        assert_eq!(journal.accept(&lease("r2", 7)).unwrap(), Acceptance::Stale);
        assert!(journal.start(&first, 1000).unwrap());
        assert!(!journal.start(&first, 1001).unwrap());
        drop(journal);

        let journal = Journal::open(&path).unwrap();
        let open = journal.open_runs().unwrap();
        assert_eq!(open, [StoredRun { lease: first.clone(), started_ms: Some(1000) }]);
        assert!(!journal.start(&first, 2000).unwrap());
        assert!(journal.finish(&report("r1")).unwrap());
        assert!(!journal.finish(&report("r1")).unwrap());
        assert!(journal.open_runs().unwrap().is_empty());
        assert_eq!(journal.accept(&first).unwrap(), Acceptance::Known);
        assert_eq!(journal.accept(&lease("r3", 6)).unwrap(), Acceptance::Stale);
        assert_eq!(journal.accept(&lease("r3", 8)).unwrap(), Acceptance::New);
        journal.prune(9000 + KEPT_MS + 1).unwrap();
        assert_eq!(journal.accept(&first).unwrap(), Acceptance::Stale);
    }
}
