//! The tables of the terminal display. Columns that do not fit into the width are left out.

use longhaul_core::text::escape_name;
use longhaul_core::units::{Bytes, Rate};
use longhaul_watch::series::Quantity;
use longhaul_watch::{FlowSample, InterfaceSample, Sample};

use super::state::drops;

/// The text of a value that is unknown.
pub(super) const UNKNOWN: &str = "-";

/// A column of a table.
pub(super) struct Column<T> {
    pub(super) head: &'static str,
    /// The width in cells.
    pub(super) width: u16,
    /// The importance: columns with higher numbers are left out first.
    rank: u8,
    pub(super) text: fn(&Sample, &T) -> String,
}

/// Returns the columns that fit into `width`, in their order, with one space between two.
pub(super) fn fitting<T>(all: Vec<Column<T>>, width: u16) -> Vec<Column<T>> {
    let mut columns = all;
    let total = |columns: &[Column<T>]| -> u16 { columns.iter().map(|one| one.width + 1).sum() };
    while columns.len() > 1 && total(&columns) > width + 1 {
        let last = columns.iter().enumerate().max_by_key(|(_, one)| one.rank);
        let Some((at, _)) = last else { break };
        columns.remove(at);
    }
    columns
}

fn rate(sample: &Sample, one: &InterfaceSample, channel: Quantity) -> Option<f64> {
    sample.interval(one).map(|interval| interval.rate(channel))
}

fn bits(value: Option<f64>) -> String {
    value.map_or_else(|| UNKNOWN.into(), |bps| Rate::from_bps(bps.round() as u64).to_string())
}

fn packets(value: Option<f64>) -> String {
    match value {
        None => UNKNOWN.into(),
        Some(value) => {
            let text = Rate::from_bps(value.round() as u64).to_string();
            text.trim_end_matches("b/s").to_owned() + "p/s"
        }
    }
}

fn percent(sample: &Sample, one: &InterfaceSample, channel: Quantity) -> String {
    let speed = one.speed.map(|speed| speed.bps() as f64).filter(|bps| *bps > 0.0);
    match rate(sample, one, channel).zip(speed) {
        Some((rate, speed)) => format!("{:.0} %", rate / speed * 100.0),
        None => UNKNOWN.into(),
    }
}

fn count(value: Option<u64>) -> String {
    value.map_or_else(|| UNKNOWN.into(), |value| value.to_string())
}

fn column<T>(
    head: &'static str,
    width: u16,
    rank: u8,
    text: fn(&Sample, &T) -> String,
) -> Column<T> {
    Column { head, width, rank, text }
}

/// Returns the columns of the interfaces.
pub(super) fn interface_columns() -> Vec<Column<InterfaceSample>> {
    vec![
        column("INTERFACE", 15, 0, |_, one| escape_name(one.name.as_bytes())),
        column("IN", 9, 0, |sample, one| bits(rate(sample, one, Quantity::InBits))),
        column("%", 5, 2, |sample, one| percent(sample, one, Quantity::InBits)),
        column("OUT", 9, 0, |sample, one| bits(rate(sample, one, Quantity::OutBits))),
        column("%", 5, 2, |sample, one| percent(sample, one, Quantity::OutBits)),
        column("PACKETS IN", 10, 4, |sample, one| packets(rate(sample, one, Quantity::InPackets))),
        column("OUT", 10, 4, |sample, one| packets(rate(sample, one, Quantity::OutPackets))),
        column("DROPS", 7, 1, |_, one| count(drops(one))),
        column("ERRORS", 7, 3, |_, one| {
            count(one.change.map(|change| change.in_errors.saturating_add(change.out_errors)))
        }),
        column("QUEUE", 9, 5, |_, one| {
            let queue = one.queue.map(|queue| Bytes::new(queue.bytes.into()).to_string());
            queue.unwrap_or_else(|| UNKNOWN.into())
        }),
        column("LINK", 9, 6, |_, one| match (one.running, one.speed) {
            (false, _) => "down".into(),
            (true, Some(speed)) => speed.to_string(),
            (true, None) => "up".into(),
        }),
    ]
}

/// Returns the columns of the flows.
pub(super) fn flow_columns(width: u16) -> Vec<Column<FlowSample>> {
    let address = if width >= 130 { 40 } else { 21 };
    vec![
        column("LOCAL", address, 5, |_, flow| flow.local.to_string()),
        column("PEER", address, 0, |_, flow| flow.peer.to_string()),
        column("IN", 9, 0, |_, flow| flow.in_rate.to_string()),
        column("OUT", 9, 0, |_, flow| flow.out_rate.to_string()),
        column("RTT", 9, 1, |_, flow| format!("{:.2} ms", flow.rtt.as_secs_f64() * 1000.0)),
        column("CWND", 9, 4, |_, flow| Bytes::new(flow.window_bytes).to_string()),
        column("DELIVERY", 9, 3, |_, flow| flow.delivery_rate.to_string()),
        column("RETR", 6, 2, |_, flow| flow.retransmits.to_string()),
        column("CC", 7, 6, |_, flow| flow.congestion.clone()),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::state::tests::sample;
    use super::*;

    #[test]
    fn less_important_columns_are_left_out_first() {
        let heads = |width| -> Vec<&'static str> {
            fitting(interface_columns(), width).iter().map(|one| one.head).collect()
        };
        assert_eq!(heads(200).len(), 11);
        assert_eq!(heads(60), ["INTERFACE", "IN", "%", "OUT", "%", "DROPS"]);
        assert_eq!(heads(10), ["INTERFACE"]);
        let total: u16 = fitting(flow_columns(80), 80).iter().map(|one| one.width + 1).sum();
        assert!(total <= 81);
    }

    #[test]
    fn values_have_units_and_names_are_escaped() {
        let sample = sample();
        let row = |at: usize| -> Vec<String> {
            interface_columns()
                .iter()
                .map(|one| (one.text)(&sample, &sample.interfaces[at]))
                .collect()
        };
        assert_eq!(row(0)[..6], ["eth0", "8.80 Gb/s", "88 %", "4.40 Gb/s", "44 %", "1.10 Mp/s"]);
        assert_eq!(row(1)[0], "e%1B[2Jvil");
        let gap = Sample { span: None, ..sample.clone() };
        assert_eq!((interface_columns()[1].text)(&gap, &gap.interfaces[0]), UNKNOWN);
    }
}
