//! A reflector as a guest of a server: it uses the server's log, and ends with the server.

use longhaul_core::units::Bytes;
use longhaul_core::wire::RefusalKind;
use longhaul_engine::EngineError;
use longhaul_engine::serve::{Gate, Guest, GuestReport};
use longhaul_engine::session::{Operation, SessionWork};

use super::answer::Unanswered;
use super::sessions::EndedSession;
use super::{Reflector, ReflectorEvent};

const PROGRAM: &str = "stamp";

impl Guest for Reflector {
    fn program(&self) -> &'static str {
        PROGRAM
    }

    fn run(&self, gate: &Gate) {
        let log = |event| report(event).into_iter().for_each(|report| gate.report(report));
        Reflector::run(self, || gate.stopped(), log);
    }
}

/// Returns the report of an event; `None` for the start of a session, whose end is reported.
fn report(event: ReflectorEvent) -> Option<GuestReport> {
    match event {
        ReflectorEvent::Began(_) => None,
        ReflectorEvent::Ended(EndedSession { id, bytes, duration, .. }) => Some(GuestReport {
            program: PROGRAM,
            version: None,
            address: id.sender,
            began: true,
            duration,
            work: SessionWork {
                operation: Some(Operation::Path),
                bytes: Bytes::new(bytes),
                duration: Some(duration),
                ..SessionWork::default()
            },
            reasons: Vec::new(),
            outcome: Ok(()),
        }),
        ReflectorEvent::Refused { from, reason, count } => Some(GuestReport {
            program: PROGRAM,
            version: None,
            address: from,
            began: false,
            duration: std::time::Duration::ZERO,
            work: SessionWork::default(),
            reasons: Vec::new(),
            outcome: Err(EngineError::Refused {
                peer: from.to_string(),
                kind: RefusalKind::Limit,
                reason: format!("{count} packets without a reply: {}", words(reason)),
            }),
        }),
    }
}

fn words(reason: Unanswered) -> &'static str {
    match reason {
        Unanswered::Short => "shorter than a reply",
        Unanswered::Unauthentic => "the HMAC is invalid",
        Unanswered::Reply => "a reply of another service",
        Unanswered::TooFast => "above the limit on packets per second",
    }
}
