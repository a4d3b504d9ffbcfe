//! The result of a STAMP measurement as text for terminals of 80 columns, and the sentences for its
//! errors.

use std::fmt::Write;

use longhaul_core::result::{
    NoHardware, PathEnd, StampClass, StampClocks, StampDirection, StampNumbering, StampOrigin,
    StampResult,
};
use longhaul_interop::stamp::{MIN_REPLY_BYTES, NoReply, StampError};
use longhaul_sys::probe::Report;

use super::test::words::{count, millis, wrap};
use super::{text_columns, with_escaped_text};

/// Returns the text of a result.
pub(crate) fn stamp_text(result: &StampResult) -> String {
    let result = &with_escaped_text(result);
    let mut text = head(result);
    round_trip(&mut text, result);
    directions(&mut text, result);
    classes(&mut text, result);
    for sentence in sentences(result) {
        let _ = writeln!(text, "{}", wrap(&sentence, text_columns()));
    }
    text
}

fn ways(result: &StampResult) -> [(&'static str, &StampDirection); 2] {
    [("forward", &result.figures.forward), ("reverse", &result.figures.reverse)]
}

fn head(result: &StampResult) -> String {
    let StampResult { target, address, reflector, figures, seconds, .. } = result;
    let address = if target.contains(&address.ip().to_string()) {
        String::new()
    } else {
        format!(" ({address})")
    };
    let numbering = match reflector.numbering {
        StampNumbering::Stateful => "stateful reflector",
        StampNumbering::Stateless => "stateless reflector",
        StampNumbering::Unknown => "reflector",
    };
    let extensions = if reflector.extensions { "" } else { ", no extensions" };
    let authenticated = if result.plan.authenticated { ", authenticated" } else { "" };
    let packets = count(figures.sent, "packet");
    let head = format!(
        "STAMP to {target}{address}: {numbering}{extensions}{authenticated}, {packets} in \
         {seconds:.1} s"
    );
    format!("{}\n\n", wrap(&head, text_columns()))
}

fn round_trip(text: &mut String, result: &StampResult) {
    let Some(rtt) = &result.figures.rtt else { return };
    let _ = writeln!(
        text,
        "{:<20}{:>10}{:>10}{:>10}{:>10}{:>20}",
        "round trip", "min", "median", "p99", "max", "answered"
    );
    let answered = format!("{} of {}", result.figures.answered, result.figures.sent);
    let _ = writeln!(
        text,
        "{:<20}{:>10}{:>10}{:>10}{:>10}{answered:>20}\n",
        "",
        millis(rtt.min_ms),
        millis(rtt.p50_ms),
        millis(rtt.p99_ms),
        millis(rtt.max_ms)
    );
}

fn directions(text: &mut String, result: &StampResult) {
    let _ = writeln!(
        text,
        "{:<9}{:>8}{:>12}{:>11}{:>16}{:>12}{:>12}",
        "direction",
        "lost",
        "duplicated",
        "reordered",
        "one-way median",
        "jitter p50",
        "jitter p99"
    );
    for (way, at) in ways(result) {
        let lost = at.lost.map_or("-".to_owned(), |lost| lost.count.to_string());
        let delay = at.delay.filter(|_| result.clocks.error_ms.is_some());
        let delay = delay.map_or("-".to_owned(), |delay| signed(delay.p50_ms));
        let variation = |part: fn(&longhaul_core::result::DelayVariation) -> f64| {
            at.variation
                .as_ref()
                .map_or("-".to_owned(), |found| format!("+{}", millis(part(found))))
        };
        let _ = writeln!(
            text,
            "  {way:<7}{lost:>8}{:>12}{:>11}{delay:>16}{:>12}{:>12}",
            at.duplicated.count,
            at.reordered.count,
            variation(|found| found.p50_ms),
            variation(|found| found.p99_ms)
        );
    }
    text.push('\n');
}

fn signed(ms: f64) -> String {
    if ms < 0.0 { format!("-{}", millis(-ms)) } else { millis(ms) }
}

fn classes(text: &mut String, result: &StampResult) {
    for (way, at) in ways(result) {
        if at.classes.is_empty() && at.hop_limits.is_none() {
            continue;
        }
        let shown = at.classes.iter().take(4).map(|class| {
            let StampClass { dscp, ecn, packets } = class;
            let ecn =
                ["", ", ECT(1)", ", ECT(0)", ", congestion experienced"][usize::from(ecn & 3)];
            format!("DSCP {dscp}{ecn} ({packets})")
        });
        let limits = at.hop_limits.map(|[low, high]| {
            if low == high {
                format!("hop limit {low}")
            } else {
                format!("hop limits {low} to {high}")
            }
        });
        let all: Vec<_> = shown.chain(limits).collect();
        let _ = writeln!(text, "arrived {way:<9}{}", all.join("; "));
    }
    text.push('\n');
}

fn sentences(result: &StampResult) -> Vec<String> {
    let mut all = Vec::new();
    if result.end == PathEnd::Interrupted {
        all.push("The measurement was interrupted; these are the results until then.".to_owned());
    }
    all.push(stamps(result));
    all.push(clocks(&result.clocks));
    all.extend(packet_sentences(result));
    all.push(loss(result));
    all
}

fn origin(origin: StampOrigin) -> &'static str {
    match origin {
        StampOrigin::Hardware => "the network interface",
        StampOrigin::Kernel => "the kernel",
        StampOrigin::Program => "the program",
        StampOrigin::Software => "software",
        StampOrigin::Mixed => "the network interface or software",
        StampOrigin::ControlPlane => "a control plane",
        StampOrigin::Unknown => "an unknown source",
    }
}

fn stamps(result: &StampResult) -> String {
    let follow_up =
        if result.reflector.follow_up { ", corrected by follow-up timestamps" } else { "" };
    let hardware = result.stamps.no_hardware.map_or("", |reason| match reason {
        NoHardware::Unsupported => "",
        NoHardware::OnlyPtp => " The network interface stamps only packets of PTP.",
        NoHardware::Disabled => {
            " The network interface has hardware timestamps, which are switched off: switch them on \
             with 'hwstamp_ctl -i INTERFACE -t 1 -r 1'."
        }
        NoHardware::ClockUnreadable => {
            " The network interface has hardware timestamps, but this user cannot read its clock \
             (/dev/ptp0 and so on)."
        }
    });
    format!(
        "Timestamps: here by {} (sent) and {} (received), at the reflector by {} and \
         {}{follow_up}.{hardware}",
        origin(result.stamps.sent),
        origin(result.stamps.arrived),
        origin(result.reflector.received),
        origin(result.reflector.replied)
    )
}

fn clocks(clocks: &StampClocks) -> String {
    if clocks.same {
        return "Both ends use one clock.".to_owned();
    }
    if let Some(error) = clocks.error_ms {
        return format!("One-way delays have a clock error of up to {}.", millis(error));
    }
    let reason = match (clocks.local.synchronised, clocks.reflector.synchronised) {
        (false, false) => "neither clock is synchronized",
        (false, true) => "the clock of this host is not synchronized",
        (true, false) => "the clock of the reflector is not synchronized",
        (true, true) => "an end does not state the error of its clock",
    };
    format!("One-way delays are unknown: {reason}.")
}

/// Returns the sentences about packets that the tables do not show.
fn packet_sentences(result: &StampResult) -> Vec<String> {
    let figures = &result.figures;
    let all = [
        (figures.invalid, "packet", "arrived and did not belong to this measurement"),
        (figures.late, "reply", "arrived more than 3 s late and counted as lost"),
        (figures.untimed, "reply", "had times that contradict each other or a step of the clock"),
        (figures.unsent, "packet", "was refused by this host's kernel"),
        (figures.restarts, "time", "the reflector restarted its numbering"),
    ];
    all.into_iter()
        .filter(|(number, ..)| *number > 0)
        .map(|(number, noun, what)| match (number, noun) {
            (1, noun) => format!("1 {noun} {what}."),
            (number, "reply") => format!("{number} replies {what}."),
            (number, noun) => format!("{number} {noun}s {}.", what.replace("was ", "were ")),
        })
        .collect()
}

fn loss(result: &StampResult) -> String {
    let figures = &result.figures;
    if figures.lost.count == 0 {
        return format!(
            "No loss in {}: below {:.1e} at 95 %.",
            count(figures.sent, "round trip"),
            figures.lost.high
        );
    }
    let share = format!(
        "{} of {} lost ({:.2} %)",
        figures.lost.count,
        count(figures.sent, "packet"),
        figures.lost.ratio * 100.0
    );
    let unknown = match figures.undetermined {
        0 => String::new(),
        some => format!(", {some} in an unknown direction"),
    };
    match (figures.forward.lost, figures.reverse.lost) {
        (Some(there), Some(back)) => {
            format!("{share}: {} forward, {} reverse{unknown}.", there.count, back.count)
        }
        _ => {
            format!("{share} on the round trip; a stateless reflector does not show the direction.")
        }
    }
}

/// Returns the sentence for an error of a measurement with the reflector `target`.
pub(crate) fn stamp_failure(target: &str, error: &StampError) -> String {
    match error {
        StampError::PacketSize { bytes, least } => format!(
            "a packet of {bytes} bytes is too small: these options need {least} bytes (-l), or \
             less with --no-extensions"
        ),
        StampError::Socket { source, .. } => format!("cannot send to {target}: {source}"),
        StampError::PortClosed { .. } => format!(
            "{target} has no STAMP reflector: the UDP port is closed; run 'longhaul serve --stamp' \
             there, or name the reflector's port"
        ),
        StampError::Silent { silence, .. } => silent(target, silence),
    }
}

fn silent(target: &str, silence: &NoReply) -> String {
    let NoReply { sent, waited, short, unauthentic, foreign, icmp } = silence;
    if *unauthentic > 0 {
        return format!("{target} answers with an invalid HMAC: its key differs (--stamp-key)");
    }
    if *foreign > 0 {
        return format!(
            "{target} answers with packets that are not STAMP replies: it is another service, or \
             a reflector in another authentication mode"
        );
    }
    if let Some(bytes) = short {
        return format!(
            "{target} answers with {bytes} bytes, and a reply of STAMP or TWAMP Light has at least \
             {MIN_REPLY_BYTES} (112 with a key): it is another service"
        );
    }
    let seconds = waited.as_secs();
    match icmp {
        Some(Report::Prohibited) => {
            format!("a firewall on the way to {target} refuses the packets")
        }
        Some(Report::Unreachable | Report::HopLimit) => format!("there is no route to {target}"),
        _ => format!(
            "no reply from {target} to {} in {seconds} s: no reflector runs there, a firewall \
             drops the UDP port, or it needs another key (--stamp-key)",
            count(*sent, "STAMP packet")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result() -> StampResult {
        let text = include_str!("../../../longhaul-core/tests/fixtures/stamp-1.json");
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn the_text_states_loss_per_direction_in_80_columns() {
        let text = stamp_text(&result());
        assert!(text.lines().all(|line| line.chars().count() <= text_columns()), "{text}");
        assert!(text.contains("5 of 200 packets lost (2.50 %): 2 forward, 3 reverse."), "{text}");
        assert!(text.contains("Both ends use one clock."), "{text}");
    }

    #[test]
    fn missing_knowledge_is_named() {
        let mut result = result();
        result.figures.forward.lost = None;
        result.figures.reverse.lost = None;
        (result.clocks.same, result.clocks.error_ms) = (false, None);
        result.clocks.reflector.synchronised = true;
        result.figures.invalid = 2;
        result.target = "far\u{1b}[2J".to_owned();
        let text = stamp_text(&result).replace('\n', " ");
        assert!(text.contains("a stateless reflector does not show the direction"), "{text}");
        assert!(text.contains("the clock of this host is not synchronized"), "{text}");
        assert!(
            text.contains("2 packets arrived and did not belong to this measurement."),
            "{text}"
        );
        assert!(text.contains("far%1B[2J"), "{text}");
    }

    #[test]
    fn every_silence_has_its_sentence() {
        let of = |silence| silent("far:862", &silence);
        let none =
            NoReply { sent: 5, waited: std::time::Duration::from_secs(5), ..NoReply::default() };
        assert!(of(none).starts_with("no reply from far:862 to 5 STAMP packets in 5 s"));
        assert!(of(NoReply { short: Some(20), ..none }).contains("answers with 20 bytes"));
        assert!(of(NoReply { foreign: 1, ..none }).contains("not STAMP replies"));
        assert!(of(NoReply { unauthentic: 1, ..none }).contains("invalid HMAC"));
        let icmp = Some(Report::Prohibited);
        assert!(of(NoReply { icmp, ..none }).contains("a firewall on the way"));
    }
}
