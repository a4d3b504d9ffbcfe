//! Phrases with placeholders, and the format of values by the unit in their names.

use std::time::Duration;

use longhaul_core::result::{Finding, FindingValue};
use longhaul_core::units::{Bytes, Rate, format_span};

/// The phrases of one rule.
pub(super) struct Phrase {
    pub(super) rule: &'static str,
    pub(super) title: &'static str,
    pub(super) cases: &'static [Case],
}

/// The phrases of one case of a rule.
///
/// `{name}` stands for a value of the finding in its unit, `{name#}` for its bare number, and
/// `{subject}` for the subject of the finding. A part in brackets is omitted if the finding lacks
/// one of its values. `{{` and `}}` stand for braces.
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) present: &'static str,
    pub(super) wanted: &'static str,
    pub(super) why: &'static str,
    pub(super) commands: &'static [&'static str],
}

/// Returns the phrases of a rule.
pub(super) const fn phrase(
    rule: &'static str,
    title: &'static str,
    cases: &'static [Case],
) -> Phrase {
    Phrase { rule, title, cases }
}

/// Returns a case with the value read.
pub(super) const fn case(name: &'static str, present: &'static str) -> Case {
    Case { name, present, wanted: "", why: "", commands: &[] }
}

impl Case {
    /// Sets the wanted value.
    pub(super) const fn wanted(self, wanted: &'static str) -> Case {
        Case { wanted, ..self }
    }

    /// Sets the reason.
    pub(super) const fn why(self, why: &'static str) -> Case {
        Case { why, ..self }
    }

    /// Sets the commands.
    pub(super) const fn run(self, commands: &'static [&'static str]) -> Case {
        Case { commands, ..self }
    }
}

/// Returns `phrase` with the values of `finding`. A missing value is shown as a question mark.
pub(super) fn fill(phrase: &str, finding: &Finding) -> String {
    let mut text = String::with_capacity(phrase.len());
    let mut rest = phrase;
    while let Some(at) = rest.find(['{', '}', '[']) {
        text.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some(after) = rest.strip_prefix("{{").or_else(|| rest.strip_prefix("}}")) {
            text.push_str(&rest[..1]);
            rest = after;
        } else if let Some((part, after)) = enclosed(rest, '[', ']') {
            let part = fill(part, finding);
            text.push_str(if part.contains('?') { "" } else { &part });
            rest = after;
        } else if let Some((name, after)) = enclosed(rest, '{', '}') {
            text.push_str(&value(name, finding).unwrap_or_else(|| "?".to_owned()));
            rest = after;
        } else {
            text.push_str(&rest[..1]);
            rest = &rest[1..];
        }
    }
    text + rest
}

fn enclosed(text: &str, open: char, close: char) -> Option<(&str, &str)> {
    text.strip_prefix(open)?.split_once(close)
}

fn value(name: &str, finding: &Finding) -> Option<String> {
    if name == "subject" {
        return Some(finding.subject.clone());
    }
    let (name, bare) = name.strip_suffix('#').map_or((name, false), |name| (name, true));
    let unit = if bare { "" } else { name.rsplit('_').next().unwrap_or_default() };
    Some(match finding.values.get(name)? {
        FindingValue::Text(text) => text.clone(),
        FindingValue::Count(count) => counted(*count, unit),
        FindingValue::Number(value) => number(*value, unit),
    })
}

fn counted(count: u64, unit: &str) -> String {
    match unit {
        "bps" => Rate::from_bps(count).to_string(),
        "bytes" => Bytes::new(count).to_string(),
        "ms" | "percent" | "second" => number(count as f64, unit),
        _ => count.to_string(),
    }
}

fn number(value: f64, unit: &str) -> String {
    match unit {
        "ms" => Duration::try_from_secs_f64(value / 1e3)
            .map_or_else(|_| format!("{value} ms"), |time| format_span(rounded(time))),
        "us" => format!("{value:.0}"),
        "loss" => format!("{:.1e}", 1.0 / value),
        "percent" if value == 0.0 || value >= 0.1 => format!("{value:.1} %"),
        "percent" => format!("{value:.1e} %"),
        // Packets per second.
        "second" if value >= 1e6 => format!("{:.2} million", value / 1e6),
        "second" => format!("{:.0} thousand", value / 1e3),
        _ if value.fract() == 0.0 => format!("{value:.0}"),
        _ => format!("{value:.1}"),
    }
}

/// Returns `time` without the error of its conversion from ms.
fn rounded(time: Duration) -> Duration {
    Duration::from_nanos(time.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use longhaul_core::result::{Area, FindingVerdict};

    use super::*;

    fn filled(phrase: &str) -> String {
        let values = [
            ("size_bytes", FindingValue::Count(4096)),
            ("wait_ms", FindingValue::Number(1.5)),
            ("lost_percent", FindingValue::Number(0.0012)),
            ("packets_per_second", FindingValue::Number(8.3e6)),
            ("name", FindingValue::Text("eth0".to_owned())),
        ];
        let finding = Finding {
            rule: "mtu".to_owned(),
            area: Area::Interface,
            subject: "eth0".to_owned(),
            verdict: FindingVerdict::Ok,
            case: "enough".to_owned(),
            values: values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            title: String::new(),
            present: String::new(),
            wanted: String::new(),
            why: String::new(),
            commands: Vec::new(),
        };
        fill(phrase, &finding)
    }

    #[test]
    fn values_are_shown_in_the_units_of_their_names() {
        assert_eq!(filled("{size_bytes} is {size_bytes#}"), "4.00 KiB is 4096");
        assert_eq!(filled("{wait_ms}, {lost_percent}"), "1.5ms, 1.2e-3 %");
        assert_eq!(filled("{packets_per_second} of {subject}"), "8.30 million of eth0");
    }

    #[test]
    fn parts_without_their_values_are_omitted() {
        assert_eq!(filled("one[, {name}][, {other}]."), "one, eth0.");
        assert_eq!(filled("${{i##*/}} {other}"), "${i##*/} ?");
    }
}
