//! Converts events of a server to records of its log.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use longhaul_core::result::{AUDIT_SCHEMA, AuditEvent, AuditRecord};
use longhaul_core::text::{escape, escape_name};
use longhaul_core::units::{Bytes, Rate};
use longhaul_core::wire::Service;
use longhaul_engine::serve::{
    CloseReason, GuestReport, ServeEvent, SessionClient, SessionReport, SessionStart,
};
use longhaul_engine::session::{IgnoredLines, Operation, SessionWork};
use longhaul_engine::{EngineError, Result};

use crate::output::{failure_text, ignored_lines, lapse_text, reason_sentence};

/// The largest number of characters of a text from a peer.
const TEXT_LIMIT: usize = 1024;

/// Returns the record of `event`, with the present time.
pub(super) fn of(event: ServeEvent) -> AuditRecord {
    match event {
        ServeEvent::Dropped { address, reason } => AuditRecord {
            address: address.map(|address| address.to_string()),
            error: Some(words(reason).into_owned()),
            ..record(AuditEvent::Dropped)
        },
        ServeEvent::NoHandshake { address, error } => AuditRecord {
            address: address.map(|address| address.to_string()),
            error: Some(text(&failure_text(&error))),
            ..record(AuditEvent::Handshake)
        },
        ServeEvent::Began(start) => began(start),
        ServeEvent::Ended(report) => ended(*report),
        ServeEvent::Guest(report) => guest(*report),
        ServeEvent::KeysRead { keys, ended, out_of_reach, ignored } => AuditRecord {
            count: Some(keys as u64),
            error: keys_error(ended, &out_of_reach, &ignored),
            ..record(AuditEvent::Keys)
        },
        ServeEvent::KeyDenied { fingerprint, address, lapse } => AuditRecord {
            address: Some(address.to_string()),
            key: Some(fingerprint),
            error: Some(lapse_text(lapse).to_owned()),
            ..record(AuditEvent::KeyDenied)
        },
        ServeEvent::KeysKept { error } => {
            AuditRecord { error: Some(text(&failure_text(&error))), ..record(AuditEvent::KeysKept) }
        }
    }
}

/// Returns the sessions that end, the roots that are out of reach and the lines that are ignored
/// after a reload.
fn keys_error(ended: usize, out_of_reach: &[PathBuf], ignored: &IgnoredLines) -> Option<String> {
    let ended = (ended > 0).then(|| format!("{ended} sessions end: their key was removed"));
    let roots = out_of_reach.iter().map(|root| text(&out_of_reach_words(root)));
    let all: Vec<String> = ended.into_iter().chain(roots).chain(ignored_lines(ignored)).collect();
    (!all.is_empty()).then(|| clip(&all.join("; ")))
}

/// Returns the message about a root that the server can open only after a restart.
pub(in crate::cli::serve) fn out_of_reach_words(root: &Path) -> String {
    format!(
        "Landlock excludes {}, the root of a key, because it is new; restart the server",
        root.display()
    )
}

/// Returns the record of the server's start or stop.
pub(super) fn server(event: AuditEvent, address: Option<SocketAddr>) -> AuditRecord {
    AuditRecord { address: address.map(|address| address.to_string()), ..record(event) }
}

/// Returns the record of suppressed or lost lines.
pub(super) fn missing(event: AuditEvent, count: u64, what: &str) -> AuditRecord {
    AuditRecord { count: Some(count), error: Some(what.to_owned()), ..record(event) }
}

fn record(event: AuditEvent) -> AuditRecord {
    let now = jiff::Timestamp::now();
    let time = now.round(jiff::Unit::Millisecond).unwrap_or(now);
    AuditRecord {
        schema: AUDIT_SCHEMA.to_owned(),
        // Always three decimals, so that lines align.
        time: format!("{time:.3}"),
        event,
        ..AuditRecord::default()
    }
}

fn by(client: &SessionClient, record: AuditRecord) -> AuditRecord {
    AuditRecord {
        session: client.session.map(|session| format!("{session:?}")),
        address: client.address.map(|address| address.to_string()),
        key: client.key.map(|key| key.fingerprint()),
        comment: client.comment.as_deref().map(text),
        authorized: Some(client.authorized),
        ..record
    }
}

fn began(start: SessionStart) -> AuditRecord {
    AuditRecord {
        service: Some(service(start.service).to_owned()),
        waited_seconds: Some(seconds(start.waited)),
        ..by(&start.client, record(AuditEvent::Session))
    }
}

fn ended(report: SessionReport) -> AuditRecord {
    let SessionReport { client, service: asked, began, duration, work, outcome } = report;
    let event = if began { AuditEvent::Transfer } else { AuditEvent::Refused };
    let common = AuditRecord {
        service: asked.map(|asked| service(asked).to_owned()),
        session_seconds: Some(seconds(duration)),
        result: Some(result(&outcome, &work).to_owned()),
        error: error(&outcome, &work),
        ..by(&client, record(event))
    };
    if began { with_work(common, &work) } else { common }
}

/// Returns the record of another program's client.
fn guest(report: GuestReport) -> AuditRecord {
    let event = if report.began { AuditEvent::Transfer } else { AuditEvent::Refused };
    let version = report.version.as_deref().unwrap_or("");
    let reasons: Vec<String> = report.reasons.iter().map(reason_sentence).collect();
    let common = AuditRecord {
        address: Some(report.address.to_string()),
        authorized: Some(false),
        service: Some(service(Service::Test).to_owned()),
        program: Some(text(format!("{} {version}", report.program).trim_end())),
        session_seconds: Some(seconds(report.duration)),
        reason: (!reasons.is_empty()).then(|| text(&reasons.join("; "))),
        result: Some(result(&report.outcome, &report.work).to_owned()),
        error: error(&report.outcome, &report.work),
        ..record(event)
    };
    if report.began { with_work(common, &report.work) } else { common }
}

fn with_work(record: AuditRecord, work: &SessionWork) -> AuditRecord {
    let moved = work.bytes.get().saturating_sub(work.resumed.get());
    let paths = work.paths.iter().map(|path| clip(&escape_name(path.as_os_str().as_bytes())));
    AuditRecord {
        operation: work.operation.map(|operation| self::operation(operation).to_owned()),
        paths: paths.collect(),
        more_paths: Some(work.more_paths as u64).filter(|more| *more > 0),
        other: work.other.as_deref().map(text),
        bytes: work.operation.map(|_| work.bytes),
        files: work.files,
        failures: work.files.map(|_| work.failures),
        seconds: work.duration.map(seconds),
        rate_bps: work
            .duration
            .filter(|duration| !duration.is_zero())
            .map(|duration| Rate::mean(Bytes::new(moved), duration)),
        limit: work.limit.map(|limit| limit.as_str().to_owned()),
        ..record
    }
}

fn result(outcome: &Result<()>, work: &SessionWork) -> &'static str {
    match outcome {
        Ok(()) if work.cut.is_some() => "failed",
        Ok(()) if work.failures > 0 => "partial",
        Ok(()) => "ok",
        Err(EngineError::Refused { .. }) => "refused",
        Err(EngineError::Lapsed { .. }) => "revoked",
        Err(EngineError::Interrupted) => "interrupted",
        Err(error) if error.may_pass() => "lost",
        Err(_) => "failed",
    }
}

fn error(outcome: &Result<()>, work: &SessionWork) -> Option<String> {
    match outcome {
        Ok(()) => work.cut.as_deref().map(text),
        // The reason that the client received.
        Err(EngineError::Refused { reason, .. }) => Some(text(reason)),
        Err(error) => Some(text(&failure_text(error))),
    }
}

/// Escapes and clips a text from a peer.
fn text(text: &str) -> String {
    clip(&escape(text))
}

fn clip(text: &str) -> String {
    match text.char_indices().nth(TEXT_LIMIT) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// Returns seconds, rounded to a millisecond.
fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e3).round() / 1e3
}

fn service(service: Service) -> &'static str {
    match service {
        Service::Test => "test",
        Service::Copy => "copy",
        Service::ThirdParty => "third_party",
        Service::Path => "path",
        Service::Diagnose => "diagnose",
    }
}

fn operation(operation: Operation) -> &'static str {
    match operation {
        Operation::Test => "test",
        Operation::TestOther => "test_other",
        Operation::Get => "get",
        Operation::Put => "put",
        Operation::Forward => "forward",
        Operation::Check => "check",
        Operation::Path => "path",
        Operation::Diagnose => "diagnose",
    }
}

fn words(reason: CloseReason) -> Cow<'static, str> {
    match reason {
        CloseReason::Silent => "the client sent nothing in time".into(),
        CloseReason::NoSession => "not a data connection of a session".into(),
        CloseReason::Connections => "too many connections".into(),
        CloseReason::Unauthenticated => "too many unauthenticated connections".into(),
        CloseReason::Address => "too many connections of this address".into(),
        CloseReason::Penalty(time) => {
            format!("repeated failures of this address; refused for {} s", time.as_secs()).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::text::is_hostile;

    use super::*;

    const HOSTILE: &str =
        "x\" result=ok\r\n\u{1b}[2J<3>2026-11-22T00:00:00.000Z stop\u{202e}\u{9b}";

    fn client() -> SessionClient {
        SessionClient {
            address: Some("192.0.2.7:4".parse().unwrap()),
            comment: Some(HOSTILE.to_owned()),
            ..SessionClient::default()
        }
    }

    fn report(outcome: Result<()>, work: SessionWork, began: bool) -> ServeEvent {
        let (client, duration) = (client(), Duration::from_secs(2));
        let service = Some(Service::Copy);
        ServeEvent::Ended(Box::new(SessionReport {
            client,
            service,
            began,
            duration,
            work,
            outcome,
        }))
    }

    fn failed() -> EngineError {
        let (peer, reason) = (HOSTILE.to_owned(), HOSTILE.to_owned());
        EngineError::Failed { peer, reason, again: false }
    }

    /// Returns each kind of event with hostile texts. The match makes a missing kind a compile
    /// error.
    fn events() -> Vec<ServeEvent> {
        let kind = |event: &ServeEvent| match event {
            ServeEvent::Dropped { .. } => 0,
            ServeEvent::NoHandshake { .. } => 1,
            ServeEvent::Began(_) => 2,
            ServeEvent::Ended(_) => 3,
            ServeEvent::KeysRead { .. } => 4,
            ServeEvent::KeysKept { .. } => 5,
            ServeEvent::KeyDenied { .. } => 6,
            ServeEvent::Guest(_) => 7,
        };
        let work = SessionWork {
            operation: Some(Operation::Put),
            paths: vec![HOSTILE.into()],
            other: Some(HOSTILE.to_owned()),
            cut: Some(HOSTILE.to_owned()),
            ..SessionWork::default()
        };
        let address = Some("[2001:db8::1]:5".parse().unwrap());
        let waited = Duration::ZERO;
        let events = vec![
            ServeEvent::Dropped { address, reason: CloseReason::Penalty(Duration::from_secs(60)) },
            ServeEvent::NoHandshake { address, error: failed() },
            ServeEvent::Began(SessionStart { client: client(), service: Service::Test, waited }),
            report(Err(failed()), work.clone(), true),
            report(Ok(()), work, true),
            ServeEvent::KeysRead {
                keys: 2,
                ended: 1,
                out_of_reach: vec![HOSTILE.into()],
                ignored: IgnoredLines { first: vec![3], count: 1 },
            },
            ServeEvent::KeysKept { error: failed() },
            ServeEvent::KeyDenied {
                fingerprint: "SHA256:x".to_owned(),
                address: "192.0.2.7".parse().unwrap(),
                lapse: longhaul_engine::session::KeyLapse::Expired,
            },
        ];
        let guest = GuestReport {
            program: "iperf3",
            version: Some(HOSTILE.to_owned()),
            address: "192.0.2.7:4".parse().unwrap(),
            began: true,
            duration: Duration::from_secs(2),
            work: SessionWork { operation: Some(Operation::Test), ..SessionWork::default() },
            reasons: vec![],
            outcome: Err(failed()),
        };
        let events: Vec<_> =
            events.into_iter().chain([ServeEvent::Guest(Box::new(guest))]).collect();
        let mut kinds: Vec<_> = events.iter().map(kind).collect();
        kinds.dedup();
        assert_eq!(kinds, [0, 1, 2, 3, 4, 5, 6, 7]);
        events
    }

    #[test]
    fn hostile_texts_are_escaped_and_cannot_forge_fields() {
        for event in events() {
            let record = of(event);
            let line = record.text();
            let json = serde_json::to_string(&record).unwrap();
            assert!(!line.contains(is_hostile) && !json.contains(is_hostile), "{line}\n{json}");
            let outside: String = line.split('"').step_by(2).collect();
            assert!(!outside.contains("result=ok") || record.result.as_deref() == Some("ok"));
            assert!(!outside.contains("[2J"), "{line}");
        }
    }

    #[test]
    fn a_transfer_has_its_operation_and_result() {
        let work = SessionWork {
            operation: Some(Operation::Put),
            paths: vec!["run17".into()],
            bytes: Bytes::new(3_000_000),
            resumed: Bytes::new(1_000_000),
            files: Some(3),
            failures: 1,
            duration: Some(Duration::from_secs(2)),
            ..SessionWork::default()
        };
        let line = of(report(Ok(()), work, true)).text();
        for part in [
            "transfer address=192.0.2.7:4 ",
            " operation=put path=\"run17\" bytes=3000000 files=3 failures=1 seconds=2.000 ",
            " rate_bps=8000000 ",
            " result=partial",
        ] {
            assert!(line.contains(part), "{part} in {line}");
        }
        let refused = EngineError::Refused {
            peer: "x".to_owned(),
            kind: longhaul_core::wire::RefusalKind::Limit,
            reason: "its queue is full".to_owned(),
        };
        let line = of(report(Err(refused), SessionWork::default(), false)).text();
        assert!(line.starts_with("refused ") && !line.contains("bytes="), "{line}");
        assert!(line.ends_with("result=refused error=\"its queue is full\""), "{line}");
        assert_eq!(clip(&"\u{e9}".repeat(2000)).chars().count(), TEXT_LIMIT + 3);
    }
}
