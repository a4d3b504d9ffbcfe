//! The displays of `longhaul watch`: the terminal display, and lines of text.

mod draw;
mod graph;
mod state;
mod tables;
mod terminal;

use std::fmt::Write;

use jiff::Timestamp;
use longhaul_core::text::escape_name;
use longhaul_core::units::Rate;
use longhaul_watch::Sample;
use longhaul_watch::series::Quantity;
use state::drops;

pub(crate) use state::WatchView;
pub(crate) use terminal::WatchTerminal;

/// Returns a line per running interface with its traffic since the previous sample. An interface in a gap
/// has no line.
pub(crate) fn watch_lines(sample: &Sample) -> String {
    let mut text = String::new();
    let time = Timestamp::from_millisecond(sample.time_ms).unwrap_or_default();
    let time = time.strftime("%Y-%m-%dT%H:%M:%S%.3fZ");
    for interface in sample.interfaces.iter().filter(|one| one.running) {
        let Some(interval) = sample.interval(interface) else { continue };
        let bits = |channel| Rate::from_bps(interval.rate(channel).round() as u64);
        let errors = interval.counts.in_errors.saturating_add(interval.counts.out_errors);
        let _ = writeln!(
            text,
            "{time}  {:<15} in {:>9}  out {:>9}  packets in {:>9.0}/s  out {:>9.0}/s  drops {}  errors \
             {errors}",
            escape_name(interface.name.as_bytes()),
            bits(Quantity::InBits),
            bits(Quantity::OutBits),
            interval.rate(Quantity::InPackets),
            interval.rate(Quantity::OutPackets),
            drops(interface).unwrap_or(0),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::state::tests::sample;
    use super::*;

    #[test]
    fn each_running_interface_has_a_line() {
        let text = watch_lines(&sample());
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(
            text.starts_with("2027-01-15T08:00:00.000Z  eth0            in 8.80 Gb/s"),
            "{text}"
        );
        assert!(text.contains("e%1B[2Jvil"));
        assert_eq!(watch_lines(&Sample { span: None, ..sample() }), "", "a gap is no zero");
    }
}
