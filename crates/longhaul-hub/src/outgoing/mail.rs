//! The message of an event by mail: plain text in UTF-8 (RFC 5322, RFC 2045, RFC 2047).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;
use longhaul_core::text::escape;

use crate::records::events::Event;
use crate::records::runs::name_of;
use crate::words;

/// The maximum number of characters of a subject.
const SUBJECT: usize = 160;
/// The bytes of an encoded word before base64: its line has at most 76 characters.
const WORD: usize = 45;

/// Returns whether a text is an email address without a quoted part: `NAME@DOMAIN`.
pub fn is_address(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || ".!#$%&'*+-/=?^_`{|}~".contains(c);
    let label = |c: char| c.is_ascii_alphanumeric() || "-.".contains(c);
    text.len() <= 254
        && text.split_once('@').is_some_and(|(name, domain)| {
            let filled = !name.is_empty() && !domain.is_empty();
            filled && name.chars().all(plain) && domain.chars().all(label)
        })
}

/// Returns the message of an event, with CR LF after each line except the last. Texts of agents
/// cannot add a header or a line: hostile characters are escaped, and the body is encoded.
pub(super) fn message(event: &Event, from: &str, to: &str) -> String {
    let domain = from.split_once('@').map_or("localhost", |(_, domain)| domain);
    let date = Timestamp::from_millisecond(event.at_ms)
        .ok()
        .and_then(|time| DateTimePrinter::new().timestamp_to_string(&time).ok())
        .unwrap_or_default();
    let severity = name_of(&event.severity);
    let subject = encoded(&cut(&format!("[longhaul] {severity}: {}", escape(&event.message))));
    let id: String = event.id.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
    let headers = [
        format!("Date: {date}"),
        format!("From: longhaul hub <{from}>"),
        format!("To: <{to}>"),
        format!("Subject: {subject}"),
        // A repeated message has the same id, so that a mailbox can drop it.
        format!("Message-ID: <{id}@{domain}>"),
        "Auto-Submitted: auto-generated".to_owned(),
        "MIME-Version: 1.0".to_owned(),
        "Content-Type: text/plain; charset=utf-8".to_owned(),
        "Content-Transfer-Encoding: base64".to_owned(),
    ];
    format!("{}\r\n\r\n{}", headers.join("\r\n"), body(event, &severity))
}

/// Returns the body in base64, in lines of 76 characters.
fn body(event: &Event, severity: &str) -> String {
    let lines = [
        ("", event.message.as_str()),
        ("Time:     ", &words::utc(event.at_ms)),
        ("Severity: ", severity),
        ("Kind:     ", &event.kind),
        ("Subject:  ", &event.subject),
        ("Event:    ", &event.id),
    ];
    let text: String =
        lines.iter().map(|(name, value)| format!("{name}{}\r\n", escape(value))).collect();
    let encoded = STANDARD.encode(text);
    let whole: Vec<&str> = encoded
        .as_bytes()
        .chunks(76)
        .map(|line| std::str::from_utf8(line).unwrap_or_default())
        .collect();
    whole.join("\r\n")
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(SUBJECT) {
        Some((end, _)) => format!("{}\u{2026}", &text[..end]),
        None => text.to_owned(),
    }
}

/// Returns a text for a header: as it is if it is ASCII, and otherwise as encoded words.
fn encoded(text: &str) -> String {
    if text.chars().all(|c| c.is_ascii_graphic() || c == ' ') && !text.contains("=?") {
        return text.to_owned();
    }
    let mut words = vec![String::new()];
    for c in text.chars() {
        match words.last_mut() {
            Some(word) if word.len() + c.len_utf8() <= WORD => word.push(c),
            _ => words.push(c.to_string()),
        }
    }
    let word = |word: &String| format!("=?utf-8?B?{}?=", STANDARD.encode(word));
    words.iter().map(word).collect::<Vec<_>>().join("\r\n ")
}

#[cfg(test)]
mod tests {
    use longhaul_fleet::protocol::Severity;

    use super::*;

    fn event(message: &str) -> Event {
        Event {
            id: "0198-1".to_owned(),
            at_ms: 1_700_000_000_000,
            severity: Severity::Error,
            kind: "x\r\nBcc: <eve@example.net>".to_owned(),
            subject: "a > b".to_owned(),
            message: message.to_owned(),
            repeats: 1,
            acknowledged_by: None,
            acknowledged_ms: None,
        }
    }

    #[test]
    fn a_text_of_an_agent_cannot_add_a_header_or_a_line() {
        let hostile = "host\r\nBcc: <eve@example.net>\r\n\r\n.\r\nMAIL FROM:<x@y>";
        let text = message(&event(hostile), "hub@example.net", "ops@example.net");
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert_eq!(head.lines().count(), 9, "{head}");
        assert!(!head.contains("\r\nBcc"), "{head}");
        assert!(head.contains("\r\nTo: <ops@example.net>\r\n"), "{head}");
        assert!(head.starts_with("Date: Tue, 14 Nov 2023 22:13:20 "), "{head}");
        assert!(body.split("\r\n").all(|line| line.len() <= 76 && !line.starts_with('.')));
        let plain = STANDARD.decode(body.replace("\r\n", "")).unwrap();
        let plain = String::from_utf8(plain).unwrap();
        assert_eq!(plain.lines().count(), 6, "{plain}");
        assert!(plain.starts_with("host%0D%0ABcc"), "{plain}");
    }

    #[test]
    fn a_subject_is_cut_and_encoded() {
        assert_eq!(encoded("[longhaul] error: a > b"), "[longhaul] error: a > b");
        let long = encoded(&cut(&"\u{fc}".repeat(500)));
        assert!(long.split("\r\n ").all(|word| word.len() <= 76), "{long}");
        assert!(long.split("\r\n ").count() > 5);
    }

    #[test]
    fn addresses_are_plain() {
        assert!(is_address("ops+hub@mail.example.net"));
        for bad in ["ops", "@x", "a@", "a b@c", "a@b>", "a@b\r\n", "<a@b>", "a@b@c"] {
            assert!(!is_address(bad), "{bad}");
        }
    }
}
