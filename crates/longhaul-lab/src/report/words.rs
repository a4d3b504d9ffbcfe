//! Figures and references to notes as text.

use longhaul_core::units::Rate;

pub(super) fn references(notes: &[usize]) -> String {
    notes.iter().map(|number| format!("[{number}]")).collect()
}

/// Formats a rate in Gb/s with three significant digits.
pub(super) fn gbps(rate: Rate) -> String {
    let value = rate.bps() as f64 / 1e9;
    match value {
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        v if v >= 0.0995 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}
