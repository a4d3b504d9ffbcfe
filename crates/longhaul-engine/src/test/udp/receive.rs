//! The receiving thread of a UDP flow.

use std::io::ErrorKind;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use longhaul_core::wire::DatagramHeader;
use longhaul_sys::memory::AlignedBuffer;
use longhaul_sys::udp;

use super::{SequenceTracker, UdpFlow};
use crate::test::block_format::ReceivedDatagram;
use crate::test::mover::{Slot, Watch};

/// The largest merged datagram.
pub(in crate::test) const BUFFER_BYTES: usize = 1 << 16;
/// The time after the last datagram or mark for which a receiver that saw the end waits for late
/// datagrams and answers marks.
const LINGER: Duration = Duration::from_millis(100);
/// The limit of that wait.
const LONGEST_LINGER: Duration = Duration::from_secs(2);

/// Receives until the sender's end mark, until the stop flag of `watch` is set, or until the flow is
/// shut. With `lingers` it receives for a short time after the stop flag, in which datagrams in
/// flight arrive.
pub(in crate::test) fn receive(slot: &Slot, flow: &UdpFlow, watch: Watch<'_>, lingers: bool) {
    let Watch { first, sampler, .. } = watch;
    slot.run(sampler, || {
        let epoch = Instant::now();
        let mut buffer = AlignedBuffer::new(BUFFER_BYTES);
        let mut intake = Intake::new(flow);
        let mut last = None;
        let mut stopped_at = None;
        while !flow.is_shut() {
            if watch.stopped() {
                let since = *stopped_at.get_or_insert_with(Instant::now);
                if !lingers || since.elapsed() > LONGEST_LINGER {
                    break;
                }
            }
            let received = match udp::receive(&flow.socket, &mut buffer) {
                Ok(received) => received,
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    if intake.ended_at.is_some() || stopped_at.is_some() {
                        break;
                    }
                    continue;
                }
                // ICMP errors about the reports concern the sender, not the data.
                Err(e) if e.kind() == ErrorKind::ConnectionRefused => continue,
                Err(e) => return Err(e),
            };
            let now = Instant::now();
            let data = &buffer[..received.bytes];
            let took = intake.take(data, &received, (now - epoch).as_nanos() as u64);
            if took.bytes > 0 {
                if last.is_none() {
                    let _ = first.set(now);
                    sampler.unpark();
                }
                last = Some(now);
                slot.moved.set(intake.bytes);
            }
            if took.end {
                let _ = first.set(now);
                if intake.ended_at.is_none() {
                    intake.ended_at = Some(now);
                    flow.socket.set_read_timeout(Some(LINGER))?;
                    let dropped = udp::drops(&flow.socket).unwrap_or(0);
                    intake.blame_this_host(dropped, intake.last_gap);
                    flow.end_seen.store(true, Ordering::Release);
                }
                flow.counted.set(&intake.account.counts());
                if flow.format.is_none() {
                    flow.send_mark(&flow.report());
                }
            }
            flow.counted.set(&intake.account.counts());
            if intake.ended_at.is_some_and(|ended| now - ended > LONGEST_LINGER) {
                break;
            }
        }
        Ok(last.or(intake.ended_at).unwrap_or_else(Instant::now))
    });
}

/// The header of a datagram in either format.
enum Header {
    Data { number: u64, sent_ns: Option<u64> },
    End { total: u64 },
    Other,
}

impl UdpFlow {
    /// Reads the header of a datagram. `expected` is the number after the highest one seen.
    fn read_header(&self, datagram: &[u8], expected: u64) -> Header {
        if let Some(format) = &self.format {
            return match format.read(datagram, expected) {
                ReceivedDatagram::Data { number, sent_ns } => {
                    Header::Data { number: number.unwrap_or(expected), sent_ns }
                }
                ReceivedDatagram::End => Header::End { total: expected },
                ReceivedDatagram::Other => Header::Other,
            };
        }
        match DatagramHeader::decode(datagram) {
            Some(header) if header.tag != self.tag => Header::Other,
            Some(header) if header.end => Header::End { total: header.number },
            Some(header) => Header::Data { number: header.number, sent_ns: Some(header.time_ns) },
            None => Header::Other,
        }
    }
}

/// Splits the received data into datagrams and accounts for them.
struct Intake<'a> {
    flow: &'a UdpFlow,
    account: SequenceTracker,
    /// Payload that counts.
    bytes: u64,
    /// The kernel's drop counter as last seen.
    drops: u32,
    /// The maximum number of datagrams that came in one piece: what one drop may have been.
    most_merged: u64,
    /// The datagrams after the last one received, by the total of the end mark.
    last_gap: u64,
    ended_at: Option<Instant>,
}

struct ReadBatch {
    bytes: u64,
    end: bool,
}

impl<'a> Intake<'a> {
    fn new(flow: &'a UdpFlow) -> Self {
        Intake {
            flow,
            account: SequenceTracker::new(),
            bytes: 0,
            drops: 0,
            most_merged: 1,
            last_gap: 0,
            ended_at: None,
        }
    }

    fn take(&mut self, data: &[u8], received: &udp::UdpBatch, now_ns: u64) -> ReadBatch {
        let before = self.bytes;
        let mut end = false;
        let mut sent_ns = None;
        let mut datagrams = 0;
        for datagram in data.chunks(received.segment_bytes.max(1)) {
            let number = match self.flow.read_header(datagram, self.account.next()) {
                Header::Data { number, sent_ns: sent } => {
                    sent_ns = sent_ns.or(sent);
                    number
                }
                Header::End { total } => {
                    self.last_gap = self.account.gap_before(total);
                    self.account.end(total);
                    end = true;
                    continue;
                }
                Header::Other => continue,
            };
            if let (0, Some(drops)) = (datagrams, received.drops) {
                let gap = self.account.gap_before(number);
                self.blame_this_host(drops, gap);
            }
            datagrams += 1;
            if self.account.take(number) {
                self.bytes += datagram.len() as u64;
            }
        }
        self.most_merged = self.most_merged.max(datagrams);
        if let Some(sent_ns) = sent_ns {
            self.account.arrival(sent_ns, now_ns);
        }
        ReadBatch { bytes: self.bytes - before, end }
    }

    /// Attributes a gap of `gap` numbers to this host, after which the kernel's drop counter is
    /// `drops`. A drop loses at most as many datagrams as the kernel has merged into one so far.
    fn blame_this_host(&mut self, drops: u32, gap: u64) {
        let new = u64::from(drops.wrapping_sub(self.drops));
        self.drops = drops;
        self.account.dropped_here(gap.min(new.saturating_mul(self.most_merged)));
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use longhaul_core::result::UdpCounts;

    use super::*;

    fn flow(tag: u64) -> UdpFlow {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        UdpFlow::new(socket, tag, 100, None, 1 << 16).unwrap()
    }

    fn piece(numbers: std::ops::Range<u64>, length: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        for number in numbers {
            let header = DatagramHeader { tag: 7, number, end: false, time_ns: 0 };
            bytes.extend(header.encode());
            bytes.resize(bytes.len() + length - 24, 0);
        }
        bytes
    }

    fn received(bytes: &[u8], segment_bytes: usize, drops: Option<u32>) -> udp::UdpBatch {
        udp::UdpBatch { bytes: bytes.len(), segment_bytes, drops }
    }

    #[test]
    fn merged_datagrams_are_counted_one_by_one_with_a_short_last() {
        let flow = flow(7);
        let mut intake = Intake::new(&flow);
        let mut bytes = piece(0..3, 100);
        bytes.extend(piece(3..4, 40));
        let took = intake.take(&bytes, &received(&bytes, 100, None), 0);
        assert_eq!((took.bytes, took.end), (340, false));
        assert_eq!(intake.account.counts().datagrams, 4);
        // Datagrams of another flow, and datagrams that are too short.
        let other = self::flow(8);
        let mut strange = Intake::new(&other);
        assert_eq!(strange.take(&bytes, &received(&bytes, 100, None), 0).bytes, 0);
        assert_eq!(strange.take(&bytes[..20], &received(&bytes[..20], 20, None), 0).bytes, 0);
        assert_eq!(strange.account.counts(), UdpCounts::default());
    }

    #[test]
    fn gaps_up_to_the_drops_of_this_host_are_its_losses() {
        let flow = flow(7);
        let mut intake = Intake::new(&flow);
        let mut take = |numbers, drops| {
            let bytes = piece(numbers, 100);
            intake.take(&bytes, &received(&bytes, 100, drops), 0);
            intake.account.counts().host_dropped
        };
        assert_eq!(take(0..4, None), 0);
        // The path lost 4 to 7: the counter has not moved.
        assert_eq!(take(8..12, None), 0);
        // One drop, of at most four datagrams, in a gap of six: two were lost on the path.
        assert_eq!(take(18..22, Some(1)), 4);
        assert_eq!(take(22..26, Some(1)), 4);
        // Three drops, but a gap of five only.
        assert_eq!(take(31..35, Some(4)), 9);
        let counts = intake.account.counts();
        assert_eq!((counts.expected, counts.datagrams, counts.host_dropped), (35, 20, 9));
    }

    #[test]
    fn the_end_mark_tells_the_last_gap() {
        let flow = flow(7);
        let mut intake = Intake::new(&flow);
        let bytes = piece(0..4, 100);
        intake.take(&bytes, &received(&bytes, 100, None), 0);
        let mark = DatagramHeader { tag: 7, number: 10, end: true, time_ns: 0 }.encode();
        let took = intake.take(&mark, &received(&mark, 24, None), 0);
        assert!(took.end && took.bytes == 0);
        assert_eq!((intake.last_gap, intake.account.counts().expected), (6, 10));
        intake.blame_this_host(1, intake.last_gap);
        assert_eq!(intake.account.counts().host_dropped, 4);
    }
}
