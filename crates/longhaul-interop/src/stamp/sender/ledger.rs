//! The packets of a session that may still be answered, in bounded memory.

use std::time::Duration;

use longhaul_core::result::StampOrigin;

use super::super::stamping::PacketTime;
use super::super::time::Timestamp;

/// The maximum number of stored reply numbers per packet, besides that of the first reply.
const MOST_EXTRA: usize = 4;

/// The times and facts of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Arrived {
    /// The reflector's number.
    pub(super) number: u32,
    /// The time in ns since 1970 at which the request arrived.
    pub(super) received_ns: u64,
    /// The time at which the reply was sent.
    pub(super) replied_ns: u64,
    /// The time at which the reply arrived.
    pub(super) arrived_ns: u64,
    /// True if `arrived_ns` is the network interface's.
    pub(super) by_hardware: bool,
    /// The traffic class of the request at the reflector, if it is stated.
    pub(super) forward_class: Option<u8>,
    /// The traffic class of the reply.
    pub(super) reverse_class: u8,
    /// The hop limit of the request at the reflector.
    pub(super) forward_hop_limit: u8,
    /// The hop limit of the reply, if it is known.
    pub(super) reverse_hop_limit: Option<u8>,
}

/// A packet of the session.
#[derive(Debug, Clone, Copy)]
pub(super) struct Packet {
    /// The sequence number.
    pub(super) sequence: u64,
    /// The time in the packet.
    wire: Timestamp,
    /// The time of sending in ns since 1970.
    pub(super) sent_ns: u64,
    /// The time of sending since the start, on a clock that never steps.
    pub(super) sent_at: Duration,
    /// The origin of `sent_ns`.
    pub(super) origin: StampOrigin,
    /// True if the clock stepped before the reply.
    pub(super) stepped: bool,
    /// The first reply.
    pub(super) reply: Option<Arrived>,
    /// The number of further replies that the reflector sent because the request arrived again.
    pub(super) forward_duplicates: u32,
    /// The number of copies of replies.
    pub(super) reverse_duplicates: u32,
    extra: [u32; MOST_EXTRA],
    /// False for a number that was left out.
    counts: bool,
}

impl Packet {
    /// Returns the reflector's numbers of further replies.
    pub(super) fn extra(&self) -> &[u32] {
        &self.extra[..(self.forward_duplicates as usize).min(MOST_EXTRA)]
    }
}

/// The meaning of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// The first reply to its packet.
    First,
    /// A further reply.
    Further,
    /// A reply to a packet that already counts as lost, or was answered long ago.
    Late,
    /// No reply to a packet of this session.
    Foreign,
}

/// The packets from the oldest unsettled one to the last. A packet is settled when its outcome is
/// final: answered, or lost.
#[derive(Debug)]
pub(super) struct Ledger {
    ring: Vec<Option<Packet>>,
    next: u64,
    oldest: u64,
}

impl Ledger {
    /// Creates a ledger for `packets` packets.
    pub(super) fn new(packets: usize) -> Self {
        Ledger { ring: vec![None; packets.max(1)], next: 0, oldest: 0 }
    }

    /// Returns the sequence number of the next packet.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Returns whether the ledger is full.
    pub(super) fn is_full(&self) -> bool {
        self.next - self.oldest >= self.ring.len() as u64
    }

    /// Returns whether all packets are settled.
    pub(super) fn is_empty(&self) -> bool {
        self.next == self.oldest
    }

    fn slot(&mut self, sequence: u64) -> &mut Option<Packet> {
        let index = (sequence % self.ring.len() as u64) as usize;
        &mut self.ring[index]
    }

    /// Enters the next packet.
    pub(super) fn send(&mut self, wire: Timestamp, sent_ns: u64, sent_at: Duration) {
        debug_assert!(!self.is_full(), "the caller settles the oldest first");
        let packet = Packet {
            sequence: self.next,
            wire,
            sent_ns,
            sent_at,
            origin: StampOrigin::Program,
            stepped: false,
            reply: None,
            forward_duplicates: 0,
            reverse_duplicates: 0,
            extra: [0; MOST_EXTRA],
            counts: true,
        };
        *self.slot(self.next) = Some(packet);
        self.next += 1;
    }

    /// Marks the last packet as not sent.
    pub(super) fn unsend(&mut self) {
        if let Some(last) = self.next.checked_sub(1)
            && let Some(packet) = self.slot(last)
        {
            packet.counts = false;
        }
    }

    /// Leaves out `count` sequence numbers.
    pub(super) fn skip(&mut self, count: u64, now: Duration) {
        for _ in 0..count.min(self.ring.len() as u64 - (self.next - self.oldest)) {
            self.send(Timestamp(0), 0, now);
            self.unsend();
        }
    }

    /// Returns the unsettled packet with a sequence number as on the wire.
    fn find(&mut self, wire_sequence: u32) -> Option<&mut Packet> {
        let behind = (self.next as u32).wrapping_sub(wire_sequence);
        let sequence = self.next.checked_sub(behind.into())?;
        if sequence < self.oldest || sequence >= self.next {
            return None;
        }
        self.slot(sequence).as_mut().filter(|packet| packet.counts)
    }

    /// Records the time of a packet's departure.
    pub(super) fn departed(&mut self, sequence: u32, wire: Timestamp, time: PacketTime) {
        if let Some(packet) = self.find(sequence).filter(|packet| packet.wire == wire) {
            let by = if time.by_hardware { StampOrigin::Hardware } else { StampOrigin::Kernel };
            (packet.sent_ns, packet.origin) = (time.at_nanos, by);
        }
    }

    /// Records a reply to the packet with this number and time.
    pub(super) fn take(&mut self, sequence: u32, wire: Timestamp, reply: Arrived) -> Place {
        let behind = (self.next as u32).wrapping_sub(sequence);
        let Some(packet) = self.find(sequence) else {
            // The time of a settled packet is not known any more.
            let known = behind != 0 && u64::from(behind) <= self.next && behind < 1 << 31;
            return if known { Place::Late } else { Place::Foreign };
        };
        if packet.wire != wire {
            return Place::Foreign;
        }
        let Some(first) = packet.reply else {
            packet.reply = Some(reply);
            return Place::First;
        };
        let known = packet.extra().contains(&reply.number) && first.number != reply.number;
        if first.received_ns == reply.received_ns || known {
            packet.reverse_duplicates = packet.reverse_duplicates.saturating_add(1);
        } else {
            if let Some(place) = packet.extra.get_mut(packet.forward_duplicates as usize) {
                *place = reply.number;
            }
            packet.forward_duplicates = packet.forward_duplicates.saturating_add(1);
        }
        Place::Further
    }

    /// Corrects the time at which the reflector sent its reply `number`. Only recent replies are
    /// searched.
    pub(super) fn follow_up(&mut self, number: u32, replied_ns: u64) {
        const RECENT: u64 = 64;
        let from = self.oldest.max(self.next.saturating_sub(RECENT));
        for sequence in (from..self.next).rev() {
            let reply = self.slot(sequence).as_mut().and_then(|packet| packet.reply.as_mut());
            if let Some(reply) = reply.filter(|reply| reply.number == number) {
                reply.replied_ns = replied_ns;
                return;
            }
        }
    }

    /// Marks the packets without a reply: the clock has stepped.
    pub(super) fn step(&mut self) {
        for sequence in self.oldest..self.next {
            if let Some(packet) = self.slot(sequence) {
                packet.stepped |= packet.reply.is_none();
            }
        }
    }

    /// Returns whether the last packet was answered.
    pub(super) fn last_is_answered(&mut self) -> bool {
        let last = self.next.checked_sub(1);
        last.is_some_and(|last| self.slot(last).is_some_and(|packet| packet.reply.is_some()))
    }

    /// Returns whether no packet waits for its first reply.
    pub(super) fn all_are_answered(&self) -> bool {
        (self.oldest..self.next).all(|sequence| {
            let packet = &self.ring[(sequence % self.ring.len() as u64) as usize];
            packet.is_none_or(|packet| !packet.counts || packet.reply.is_some())
        })
    }

    /// Removes the oldest packet if it was sent at `until` or before, and returns it; `Some(None)`
    /// for a number that was left out.
    pub(super) fn settle(&mut self, until: Duration) -> Option<Option<Packet>> {
        if self.is_empty() {
            return None;
        }
        let oldest = self.oldest;
        let packet = (*self.slot(oldest)).filter(|packet| packet.sent_at <= until)?;
        self.oldest += 1;
        Some(Some(packet).filter(|packet| packet.counts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn reply(number: u32, received_ns: u64) -> Arrived {
        Arrived { number, received_ns, ..Arrived::default() }
    }

    #[test]
    fn replies_belong_to_the_packet_with_their_number_and_time() {
        let mut ledger = Ledger::new(8);
        for at in 0..3 {
            ledger.send(Timestamp(100 + at), at, SECOND);
        }
        assert_eq!(ledger.take(1, Timestamp(101), reply(0, 5)), Place::First);
        assert_eq!(ledger.take(1, Timestamp(101), reply(0, 5)), Place::Further);
        assert_eq!(ledger.take(1, Timestamp(101), reply(1, 6)), Place::Further);
        // A number or a time that was not sent.
        assert_eq!(ledger.take(2, Timestamp(9), reply(9, 9)), Place::Foreign);
        assert_eq!(ledger.take(3, Timestamp(103), reply(9, 9)), Place::Foreign);
        assert_eq!(ledger.take(u32::MAX, Timestamp(103), reply(9, 9)), Place::Foreign);
        assert!(!ledger.all_are_answered() && !ledger.last_is_answered());
        let time = PacketTime { at_nanos: 77, by_hardware: false };
        ledger.departed(1, Timestamp(101), time);
        ledger.departed(2, Timestamp(101), time);
        ledger.follow_up(0, 88);
        let settled: Vec<_> = std::iter::from_fn(|| ledger.settle(SECOND)).flatten().collect();
        assert_eq!(settled.iter().map(|packet| packet.sent_ns).collect::<Vec<_>>(), [0, 77, 2]);
        let one = settled[1];
        assert_eq!((one.forward_duplicates, one.reverse_duplicates, one.extra()), (1, 1, &[1][..]));
        assert_eq!(one.reply.unwrap().replied_ns, 88);
        assert_eq!(ledger.take(0, Timestamp(100), reply(2, 7)), Place::Late);
    }

    #[test]
    fn numbers_that_were_left_out_are_not_settled_and_not_answered() {
        let mut ledger = Ledger::new(8);
        ledger.send(Timestamp(1), 1, SECOND);
        ledger.skip(3, SECOND);
        assert_eq!(ledger.take(2, Timestamp(0), reply(1, 1)), Place::Late);
        ledger.send(Timestamp(5), 5, 2 * SECOND);
        ledger.unsend();
        ledger.take(0, Timestamp(1), reply(0, 1));
        assert!(ledger.all_are_answered());
        let settled: Vec<_> = std::iter::from_fn(|| ledger.settle(SECOND)).collect();
        assert_eq!(settled.iter().flatten().count(), 1);
        assert_eq!(settled.len(), 4, "the last is too young");
        ledger.skip(100, SECOND);
        assert!(ledger.is_full());
    }

    #[test]
    fn a_step_of_the_clock_affects_only_packets_without_a_reply() {
        let mut ledger = Ledger::new(8);
        ledger.send(Timestamp(1), 1, SECOND);
        ledger.send(Timestamp(2), 1, SECOND);
        ledger.take(0, Timestamp(1), reply(0, 1));
        ledger.step();
        let settled: Vec<_> = std::iter::from_fn(|| ledger.settle(SECOND)).flatten().collect();
        assert_eq!(settled.iter().map(|packet| packet.stepped).collect::<Vec<_>>(), [false, true]);
    }
}
