//! The words of pages and events: states with their glyphs, metrics, times and quantities.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use longhaul_core::units::Rate;
use longhaul_fleet::api::{CellMetric, CellState, HostState, RunState};
use longhaul_fleet::protocol::{RunReason, Severity};

/// Returns the word, the glyph and the style class of a cell's state. The glyphs differ without
/// color.
pub(crate) fn state(state: CellState) -> (&'static str, &'static str, &'static str) {
    match state {
        CellState::Good => ("good", "\u{2713}", "good"),
        CellState::Warning => ("warning", "\u{25B3}", "warning"),
        CellState::Critical => ("critical", "\u{2715}", "critical"),
        CellState::Unknown => ("unknown", "?", "unknown"),
        CellState::NotRun => ("not run", "\u{2298}", "notrun"),
        CellState::Maintenance => ("in maintenance", "\u{25C6}", "maintenance"),
        CellState::NotTested => ("not tested", "\u{00B7}", "untested"),
    }
}

/// Returns the name of a metric.
pub(crate) fn metric(metric: CellMetric) -> &'static str {
    match metric {
        CellMetric::Throughput => "throughput",
        CellMetric::Loss => "loss",
        CellMetric::Rtt => "round-trip time",
        CellMetric::Mtu => "path MTU",
    }
}

/// Returns a value with the unit of its metric.
pub(crate) fn value(metric: CellMetric, value: f64) -> String {
    match metric {
        CellMetric::Throughput => rate(value),
        CellMetric::Loss => percent(value),
        CellMetric::Rtt => milliseconds(value),
        CellMetric::Mtu => format!("{value:.0} B"),
    }
}

/// Returns a value for a small cell: without the unit that the caption of the table states.
pub(crate) fn short(metric: CellMetric, value: f64) -> String {
    let text = self::value(metric, value);
    let unit = match metric {
        CellMetric::Throughput => "b/s",
        CellMetric::Loss => "",
        CellMetric::Rtt => " ms",
        CellMetric::Mtu => " B",
    };
    text.strip_suffix(unit).unwrap_or(&text).to_owned()
}

/// Returns a rate in bit/s with a unit.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub(crate) fn rate(bps: f64) -> String {
    Rate::from_bps(bps.clamp(0.0, 1e18) as u64).to_string()
}

/// Returns a share in percent with two significant digits.
pub(crate) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent {
        0.0 => "0 %".to_owned(),
        p if p < 0.01 => format!("{p:.1e} %"),
        p if p < 1.0 => format!("{p:.2} %"),
        p => format!("{p:.1} %"),
    }
}

/// Returns a rate as a whole percentage of a capacity.
#[allow(clippy::cast_precision_loss)]
pub(crate) fn share(bps: f64, capacity_bps: u64) -> String {
    format!("{:.0} %", bps / (capacity_bps as f64).max(1.0) * 100.0)
}

/// Returns a time in ms with three significant digits.
pub(crate) fn milliseconds(ms: f64) -> String {
    match ms {
        v if v < 10.0 => format!("{v:.2} ms"),
        v if v < 100.0 => format!("{v:.1} ms"),
        v => format!("{v:.0} ms"),
    }
}

/// Returns a size with a binary unit.
#[allow(clippy::cast_precision_loss)]
pub(crate) fn bytes(bytes: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut size = bytes;
    let mut unit = 0;
    while size >= 1024.0 && unit + 1 < units.len() {
        size /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{size:.0} B") } else { format!("{size:.1} {}", units[unit]) }
}

/// Returns a span in its largest whole units: "3 min 5 s".
pub(crate) fn span(ms: i64) -> String {
    let seconds = ms.max(0) / 1000;
    let (days, hours) = (seconds / 86_400, seconds / 3600 % 24);
    let (minutes, rest) = (seconds / 60 % 60, seconds % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{rest} s"),
        (0, 0, _) => format!("{minutes} min {rest} s"),
        (0, ..) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

/// Returns a time in UTC: "2026-11-23 07:15:02 UTC".
pub(crate) fn utc(ms: i64) -> String {
    let time = Timestamp::from_millisecond(ms).unwrap_or_default().to_zoned(TimeZone::UTC);
    time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// Returns a time as RFC 3339, for the attribute of a time element.
pub(crate) fn rfc3339(ms: i64) -> String {
    Timestamp::from_millisecond(ms).unwrap_or_default().to_string()
}

/// Returns the word and the style class of a run's state.
pub(crate) fn run_state(state: RunState) -> (&'static str, &'static str) {
    match state {
        RunState::Planned => ("planned", "unknown"),
        RunState::Leased => ("leased", "unknown"),
        RunState::Running => ("running", "unknown"),
        RunState::Finished => ("finished", "good"),
        RunState::Failed => ("failed", "critical"),
        RunState::Missed => ("missed", "notrun"),
        RunState::Cancelled => ("cancelled", "untested"),
    }
}

/// Returns the word and the style class of a host's state.
pub(crate) fn host_state(state: HostState) -> (&'static str, &'static str) {
    match state {
        HostState::Present => ("present", "good"),
        HostState::Away => ("away", "critical"),
        HostState::Maintenance => ("in maintenance", "maintenance"),
        HostState::NotEnrolled => ("not enrolled", "notrun"),
        HostState::Revoked => ("revoked", "critical"),
        HostState::NoAgent => ("without agent", "untested"),
    }
}

/// Returns the word, the glyph and the style class of a severity.
pub(crate) fn severity(severity: Severity) -> (&'static str, &'static str, &'static str) {
    match severity {
        Severity::Info => ("info", "i", "untested"),
        Severity::Warning => ("warning", "\u{25B3}", "warning"),
        Severity::Error => ("error", "\u{2715}", "critical"),
    }
}

/// Returns the sentence of a reason.
pub(crate) fn reason(reason: RunReason) -> &'static str {
    match reason {
        RunReason::AgentAway => "the agent of the source was not connected",
        RunReason::PeerAway => "the agent or server of the destination was unreachable",
        RunReason::ResourceBusy => "another run used the path",
        RunReason::WindowMissed => "the lease arrived after the latest start",
        RunReason::WindowEnded => "the run did not end within its window",
        RunReason::Failed => "the command failed",
        RunReason::Cancelled => "the run was cancelled",
        RunReason::HubAway => "no hub was running",
        RunReason::HostMaintenance => "a host was in maintenance",
        RunReason::StaleLease => "a newer lease replaced the lease",
        RunReason::AgentRestarted => "the agent stopped during the run",
        RunReason::DiskFull => "the disk of the agent was full",
        RunReason::Unsupported => "the agent cannot run this test",
        RunReason::AddressRefused => "an agent may not test the address of its peer",
        RunReason::MeshChanged => "the mesh changed before the run started",
        RunReason::Unknown => "the reason is unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_units() {
        assert_eq!(percent(0.0), "0 %");
        assert_eq!(percent(0.0123), "1.2 %");
        assert_eq!(percent(0.000_05), "5.0e-3 %");
        assert_eq!(milliseconds(12.34), "12.3 ms");
        assert_eq!(value(CellMetric::Throughput, 9.4e9), "9.40 Gb/s");
        assert_eq!(short(CellMetric::Throughput, 9.4e9), "9.40 G");
        assert_eq!(short(CellMetric::Rtt, 12.34), "12.3");
        assert_eq!(bytes(1536.0), "1.5 KiB");
        assert_eq!(span(185_000), "3 min 5 s");
        assert_eq!(utc(1_700_000_000_000), "2023-11-14 22:13:20 UTC");
    }
}
