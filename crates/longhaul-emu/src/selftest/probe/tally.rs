//! Counts the datagrams that a probe receives.

use longhaul_sys::datagram::MergedDatagrams;

use super::datagram::open;
use super::{DelayReport, ProbeReport};

/// Datagrams with larger numbers are foreign. The limit bounds the memory of `arrivals`.
const LARGEST_NUMBER: u64 = 1 << 28;

/// Counts the received datagrams.
#[derive(Debug)]
pub(in super::super) struct Tally {
    verify: bool,
    /// The bytes of the IP and UDP headers of one datagram.
    header_bytes: u64,
    /// The number of unchanged arrivals of each number, up to 255.
    arrivals: Vec<u8>,
    /// The position and number of each arrival whose number was higher than all before it.
    leaders: Vec<(u64, u64)>,
    /// The time and IP bytes of each piece that arrived.
    pieces: Vec<(u64, u32)>,
    delays_nanos: Vec<u64>,
    report: ProbeReport,
}

impl Tally {
    pub(in super::super) fn new(verify: bool, ipv6: bool) -> Self {
        Tally {
            verify,
            header_bytes: if ipv6 { 48 } else { 28 },
            arrivals: Vec::new(),
            leaders: Vec::new(),
            pieces: Vec::new(),
            delays_nanos: Vec::new(),
            report: ProbeReport::default(),
        }
    }

    pub(in super::super) fn add(&mut self, arrival: &MergedDatagrams<'_>) {
        let count = arrival.length.div_ceil(arrival.segment_bytes.max(1)).max(1) as u64;
        let bytes = arrival.length as u64 + count * self.header_bytes;
        self.pieces.push((arrival.at_nanos, bytes as u32));
        self.report.bytes += bytes;
        if !self.verify {
            self.report.arrivals += count;
            return;
        }
        let mut sent_nanos = None;
        for datagram in arrival.bytes.chunks(arrival.segment_bytes.max(1)) {
            self.report.arrivals += 1;
            self.report.marked += u64::from(arrival.ecn == 0b11);
            self.report.ecn_capable += u64::from(arrival.ecn != 0);
            match open(datagram) {
                Some(header) if header.number < LARGEST_NUMBER => {
                    self.place(header.number);
                    sent_nanos.get_or_insert(header.sent_nanos);
                }
                _ => self.report.changed += 1,
            }
        }
        if let Some(sent_nanos) = sent_nanos {
            self.delays_nanos.push(arrival.at_nanos.saturating_sub(sent_nanos));
        }
    }

    /// Counts an unchanged datagram and its position.
    fn place(&mut self, number: u64) {
        let index = number as usize;
        if self.arrivals.len() <= index {
            self.arrivals.resize(index + 1, 0);
        }
        self.arrivals[index] = self.arrivals[index].saturating_add(1);
        if self.arrivals[index] > 1 {
            self.report.duplicates += 1;
            return;
        }
        let position = self.report.received;
        self.report.received += 1;
        match self.leaders.last() {
            Some(&(_, largest)) if number < largest => {
                self.report.reordered += 1;
                let first_later = self.leaders.partition_point(|&(_, leader)| leader < number);
                let extent = position - self.leaders[first_later].0;
                *self.report.extents.entry(extent).or_default() += 1;
            }
            _ => self.leaders.push((position, number)),
        }
    }

    /// Returns the report, given that `sent` datagrams were sent.
    pub(in super::super) fn report(mut self, sent: u64) -> ProbeReport {
        if self.verify {
            self.count_losses(sent);
        }
        let mut report = self.report;
        report.delay = delays(self.delays_nanos);
        report.rate_bps = rate(&self.pieces);
        report.window_rates_bps = window_rates(&self.pieces);
        report
    }

    fn count_losses(&mut self, sent: u64) {
        let report = &mut self.report;
        report.lost = sent.saturating_sub(report.received + report.changed);
        let mut run = 0;
        for number in 0..=sent {
            let missing =
                number < sent && self.arrivals.get(number as usize).is_none_or(|n| *n == 0);
            if missing {
                run += 1;
                if report.first_lost.len() < ProbeReport::LISTED {
                    report.first_lost.push(number);
                }
            } else if run > 0 {
                *report.loss_runs.entry(run).or_default() += 1;
                run = 0;
            }
        }
    }
}

fn delays(mut nanos: Vec<u64>) -> Option<DelayReport> {
    nanos.sort_unstable();
    let last = nanos.len().checked_sub(1)?;
    let points = nanos.len().min(DelayReport::POINTS);
    let quantile = |point: usize| {
        let index = last * point / (points - 1).max(1);
        nanos[index] as f64 / 1e6
    };
    Some(DelayReport {
        samples: nanos.len() as u64,
        mean_ms: nanos.iter().map(|nanos| *nanos as f64).sum::<f64>() / nanos.len() as f64 / 1e6,
        quantiles_ms: (0..points).map(quantile).collect(),
    })
}

/// Returns the rate at which the pieces after the first one arrived. The bytes of the first piece
/// were sent before its arrival, so they do not count.
fn rate(pieces: &[(u64, u32)]) -> f64 {
    let (Some(first), Some(last)) = (pieces.first(), pieces.last()) else { return 0.0 };
    let bytes: u64 = pieces[1..].iter().map(|(_, bytes)| u64::from(*bytes)).sum();
    let nanos = last.0.saturating_sub(first.0);
    if nanos == 0 { 0.0 } else { bytes as f64 * 8e9 / nanos as f64 }
}

/// Returns the rate of each whole second. Every window begins and ends with an arrival, so that the
/// few large packets of a slow link do not distort it.
fn window_rates(pieces: &[(u64, u32)]) -> Vec<f64> {
    const SECOND: u64 = 1_000_000_000;
    let mut rates = Vec::new();
    let mut rest = pieces;
    while let Some(&(begin, _)) = rest.first() {
        let end = rest.partition_point(|(at, _)| *at < begin + SECOND);
        let Some(window) = rest.get(..=end) else { break };
        rates.push(rate(window));
        rest = &rest[end..];
    }
    rates
}

#[cfg(test)]
mod tests {
    use super::super::datagram::{Header, seal};
    use super::*;

    fn datagram(number: u64, sent_nanos: u64) -> Vec<u8> {
        let mut bytes = vec![1; 40];
        seal(&mut bytes, Header { number, sent_nanos }, true);
        bytes
    }

    fn tally(numbers: &[u64]) -> Tally {
        let mut tally = Tally::new(true, false);
        for (at, number) in (0u64..).zip(numbers) {
            let bytes = datagram(*number, at * 1000);
            let at_nanos = at * 1000 + 250;
            let length = bytes.len();
            tally.add(&MergedDatagrams {
                bytes: &bytes,
                length,
                segment_bytes: length,
                at_nanos,
                ecn: 2,
            });
        }
        tally
    }

    #[test]
    fn losses_are_counted_in_runs() {
        let report = tally(&[0, 3, 4, 8]).report(10);
        assert_eq!((report.received, report.lost, report.reordered), (4, 6, 0));
        assert_eq!(report.loss_runs, [(1, 1), (2, 1), (3, 1)].into());
        assert_eq!(report.first_lost, [1, 2, 5, 6, 7, 9]);
        assert_eq!(report.mean_loss_run(), Some((3, 2.0)));
        assert_eq!(report.ecn_capable, 4);
    }

    /// The first later datagram is 4; 2 and 3 arrive as the first and the third after it.
    #[test]
    fn reordering_is_that_of_rfc_4737() {
        let report = tally(&[1, 4, 2, 5, 3, 6, 7, 8]).report(9);
        assert_eq!(report.reordered, 2);
        assert_eq!(report.extents, [(1, 1), (3, 1)].into());
        let copies = tally(&[0, 1, 1, 0, 2]).report(3);
        assert_eq!((copies.duplicates, copies.reordered, copies.lost), (2, 0, 0));
    }

    #[test]
    fn every_datagram_of_a_merged_arrival_is_counted() {
        let mut bytes = [datagram(0, 5), datagram(1, 5), datagram(2, 5)].concat();
        bytes[45] ^= 1;
        let mut tally = Tally::new(true, true);
        let length = bytes.len();
        tally.add(&MergedDatagrams {
            bytes: &bytes,
            length,
            segment_bytes: 40,
            at_nanos: 25,
            ecn: 3,
        });
        let report = tally.report(3);
        assert_eq!((report.arrivals, report.received, report.changed, report.lost), (3, 2, 1, 0));
        assert_eq!((report.marked, report.bytes), (3, 3 * 88));
        assert_eq!(report.delay.unwrap().samples, 1);
    }

    #[test]
    fn rates_are_of_whole_seconds_between_arrivals() {
        let pieces: Vec<(u64, u32)> = (0..35).map(|i| (i * 100_000_000, 1250)).collect();
        assert_eq!(window_rates(&pieces), [100_000.0; 3]);
        assert_eq!(rate(&pieces), 100_000.0);
        assert_eq!((rate(&[]), window_rates(&pieces[..3]).len()), (0.0, 0));
    }

    #[test]
    fn delays_keep_their_quantiles() {
        let report = delays((0..100_000).map(|n| n * 1000).collect()).unwrap();
        assert_eq!((report.samples, report.quantiles_ms.len()), (100_000, DelayReport::POINTS));
        assert!((report.quantile_ms(0.99) - 99.0).abs() < 0.11);
        assert_eq!(delays(vec![7_000_000]).unwrap().quantile_ms(0.5), 7.0);
        assert_eq!(delays(Vec::new()), None);
    }
}
