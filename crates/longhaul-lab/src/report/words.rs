//! Figures and references to notes as text.

use longhaul_core::units::Rate;

pub(super) fn references(notes: &[usize]) -> String {
    notes.iter().map(|number| format!("[{number}]")).collect()
}

/// Formats a rate in Gb/s with three significant digits, or two for a rate below 0.5 Mb/s.
pub(super) fn gbps(rate: Rate) -> String {
    let value = rate.bps() as f64 / 1e9;
    match value {
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        v if v >= 0.0995 => format!("{value:.2}"),
        v if v >= 0.0005 || v == 0.0 => format!("{value:.3}"),
        _ => format!("{value:.1e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_copy_is_not_zero() {
        let figures = [0, 31_400, 499_999, 500_000, 76_000_000, 151_000_000, 12_400_000_000];
        let texts = figures.map(|bps| gbps(Rate::from_bps(bps)));
        assert_eq!(texts, ["0.000", "3.1e-5", "5.0e-4", "0.001", "0.076", "0.15", "12.4"]);
    }
}
