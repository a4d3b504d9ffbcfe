//! A line of the log of `longhaul serve`, `longhaul.audit/1`. `docs/design/audit.md` describes it.

use serde::{Deserialize, Serialize};

use crate::text::escape;
use crate::units::{Bytes, Rate};

/// The schema of [`AuditRecord`].
pub const AUDIT_SCHEMA: &str = "longhaul.audit/1";

/// One event of a server. A field that does not apply is absent. Text from clients is escaped:
/// hostile characters are `%XX`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct AuditRecord {
    /// [`AUDIT_SCHEMA`].
    pub schema: String,
    /// The time in UTC (RFC 3339).
    pub time: String,
    /// The kind of event.
    pub event: AuditEvent,
    /// The id of the session, 32 hexadecimal digits, known to client and server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The client's address and port; in a `start` event those of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The fingerprint of the client's key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The comment of the key in the list of authorized keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// True if the key is in the list of authorized keys.
    #[serde(default, alias = "authorised", skip_serializing_if = "Option::is_none")]
    pub authorized: Option<bool>,
    /// The service: `test`, `copy`, `third_party`, `path` or `diagnose`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// The program of a client that is not longhaul, with the version that it stated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// The operation: `test`, `test_other`, `get`, `put`, `forward`, `check`, `path` or `diagnose`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// The first paths of the request, as the client wrote them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// The number of further paths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub more_paths: Option<u64>,
    /// The other server of a third-party copy or test.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other: Option<String>,
    /// The payload bytes moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Bytes>,
    /// The files with their final names at the sink.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<u64>,
    /// Files that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failures: Option<u64>,
    /// The time in the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited_seconds: Option<f64>,
    /// The duration of the transfer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// The duration of the session since its connection was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_seconds: Option<f64>,
    /// The mean rate of the payload bytes of this session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bps: Option<Rate>,
    /// The limiting factor of a copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// The reason for the rate of a test with another program, as far as the server knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The outcome: `ok`, `partial`, `refused`, `revoked`, `lost`, `failed` or `interrupted`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// The error, or the reason for a refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The number of lines, keys or sessions that the event counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
}

/// The kind of an [`AuditRecord`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditEvent {
    /// The server accepts clients.
    Start,
    /// The server ends.
    Stop,
    /// A session has begun.
    Session,
    /// The transfer and the session have ended.
    Transfer,
    /// A client was refused or lost after its handshake and before its session began.
    Refused,
    /// A handshake failed.
    Handshake,
    /// A connection was closed before its client sent a valid hello.
    Dropped,
    /// `count` lines were omitted because they came too fast; `error` names their kind.
    Suppressed,
    /// `count` lines were lost because the log could not be written.
    Lost,
    /// A client with an authorized key did not get the rights of its owner; `error` states the
    /// reason.
    KeyDenied,
    /// The list of authorized keys was read again and has `count` keys.
    Keys,
    /// The list of authorized keys cannot be used; the previous list stays valid.
    KeysKept,
    /// An event of a later version.
    #[default]
    #[serde(other)]
    Other,
}

impl AuditEvent {
    /// Returns the name in documents.
    pub fn name(self) -> &'static str {
        match self {
            AuditEvent::Start => "start",
            AuditEvent::Stop => "stop",
            AuditEvent::Session => "session",
            AuditEvent::Transfer => "transfer",
            AuditEvent::Refused => "refused",
            AuditEvent::Handshake => "handshake",
            AuditEvent::Dropped => "dropped",
            AuditEvent::Suppressed => "suppressed",
            AuditEvent::Lost => "lost",
            AuditEvent::KeyDenied => "key_denied",
            AuditEvent::Keys => "keys",
            AuditEvent::KeysKept => "keys_kept",
            AuditEvent::Other => "other",
        }
    }
}

impl AuditRecord {
    /// Returns the record as text: its event, then `name=value` pairs separated by spaces. Text
    /// from clients is in double quotes. The time is omitted, because the writer adds it.
    pub fn text(&self) -> String {
        let mut line = Line(self.event.name().to_owned());
        line.word("session", self.session.as_ref());
        line.word("address", self.address.as_ref());
        line.word("key", self.key.as_ref());
        line.quoted("comment", self.comment.as_ref());
        line.word("authorized", self.authorized);
        line.word("service", self.service.as_ref());
        line.quoted("program", self.program.as_ref());
        line.word("operation", self.operation.as_ref());
        for path in &self.paths {
            line.quoted("path", Some(path));
        }
        line.word("more_paths", self.more_paths);
        line.quoted("other", self.other.as_ref());
        line.word("bytes", self.bytes.map(Bytes::get));
        line.word("files", self.files);
        line.word("failures", self.failures);
        let seconds = |seconds: Option<f64>| seconds.map(|seconds| format!("{seconds:.3}"));
        line.word("waited_seconds", seconds(self.waited_seconds));
        line.word("seconds", seconds(self.seconds));
        line.word("session_seconds", seconds(self.session_seconds));
        line.word("rate_bps", self.rate_bps.map(Rate::bps));
        line.word("limit", self.limit.as_ref());
        line.quoted("reason", self.reason.as_ref());
        line.word("count", self.count);
        line.word("result", self.result.as_ref());
        line.quoted("error", self.error.as_ref());
        line.0
    }
}

struct Line(String);

impl Line {
    fn word(&mut self, name: &str, value: Option<impl ToString>) {
        if let Some(value) = value {
            let value = escape(&value.to_string()).replace(' ', "%20").replace('"', "%22");
            self.0.push_str(&format!(" {name}={value}"));
        }
    }

    fn quoted(&mut self, name: &str, value: Option<&String>) {
        if let Some(value) = value {
            let value = escape(value).replace('"', "%22");
            self.0.push_str(&format!(" {name}=\"{value}\""));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::is_hostile;

    /// Returns a record in which every text field is hostile.
    fn full() -> AuditRecord {
        let text = || Some("x\" result=ok\n\u{1b}[2J\u{202e}".to_owned());
        AuditRecord {
            schema: AUDIT_SCHEMA.to_owned(),
            time: "2026-11-22T04:10:00.123Z".to_owned(),
            event: AuditEvent::Transfer,
            session: text(),
            address: text(),
            key: text(),
            comment: text(),
            authorized: Some(true),
            service: text(),
            program: text(),
            operation: text(),
            paths: vec![text().unwrap(); 2],
            more_paths: Some(1),
            other: text(),
            bytes: Some(Bytes::new(2)),
            files: Some(3),
            failures: Some(4),
            waited_seconds: Some(0.5),
            seconds: Some(1.5),
            session_seconds: Some(2.5),
            rate_bps: Some(Rate::from_bps(5)),
            limit: text(),
            reason: text(),
            result: text(),
            error: text(),
            count: Some(6),
        }
    }

    #[test]
    fn fields_are_escaped_and_complete() {
        let record = full();
        let text = record.text();
        assert!(!text.contains(is_hostile), "{text}");
        let names: Vec<&str> = text
            .split('"')
            .step_by(2)
            .flat_map(str::split_whitespace)
            .filter_map(|part| part.split_once('=').map(|(name, _)| name))
            .collect();
        let document = serde_json::to_value(&record).unwrap();
        for name in document.as_object().unwrap().keys() {
            let expected = match name.as_str() {
                "schema" | "time" | "event" => 0,
                "paths" => 0,
                _ => 1,
            };
            let found = names.iter().filter(|one| *one == name).count();
            assert_eq!(found, expected, "{name} in {text}");
        }
        assert_eq!(names.iter().filter(|one| **one == "path").count(), 2);
        assert_eq!(names.iter().filter(|one| **one == "result").count(), 1);
    }

    #[test]
    fn lines_of_version_1_are_read_whatever_is_added_or_left_out() {
        let fixture = include_str!("../../tests/fixtures/audit-1.jsonl");
        let records: Vec<AuditRecord> =
            fixture.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(records.iter().all(|record| record.schema == AUDIT_SCHEMA));
        assert_eq!(records[0].event, AuditEvent::Start);
        assert_eq!(records[1].authorized, Some(true), "the spelling of earlier lines");
        let written = serde_json::to_string(&records[1]).unwrap();
        assert!(written.contains("\"authorized\":true"), "{written}");
        assert!(records[1].text().contains(" authorized=true "), "{}", records[1].text());
        assert_eq!(records[2].rate_bps, Some(Rate::from_bps(9_395_240_955)));
        assert_eq!(records[2].paths, ["run17/a%0Ab"]);
        assert_eq!(records.last().unwrap().event, AuditEvent::Other);
    }

    #[test]
    fn a_name_is_that_of_the_document() {
        for event in [
            AuditEvent::Start,
            AuditEvent::Stop,
            AuditEvent::Session,
            AuditEvent::Transfer,
            AuditEvent::Refused,
            AuditEvent::Handshake,
            AuditEvent::Dropped,
            AuditEvent::Suppressed,
            AuditEvent::Lost,
            AuditEvent::KeyDenied,
            AuditEvent::Keys,
            AuditEvent::KeysKept,
        ] {
            assert_eq!(serde_json::to_value(event).unwrap(), event.name());
        }
    }
}
