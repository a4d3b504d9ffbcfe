//! Attributes lost packets to a direction by the numbers of a stateful reflector.

/// A settled packet with a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Numbered {
    /// The number of the first reply.
    pub(super) number: u32,
    /// The time at which the request arrived at the reflector.
    pub(super) received_ns: u64,
    /// The number of packets without a reply directly before it.
    pub(super) missing_before: u64,
}

/// The last reply of the earlier packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LastReply {
    number: u64,
    received_ns: u64,
}

/// The state between two batches of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct LossState {
    top: Option<LastReply>,
}

/// The lost packets of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Losses {
    /// Requests that did not arrive at the reflector.
    pub(super) forward: u64,
    /// Replies that did not arrive here.
    pub(super) reverse: u64,
    /// Lost packets whose direction is unknown.
    pub(super) undetermined: u64,
    /// The number of times at which the reflector began to count again.
    pub(super) restarts: u64,
}

/// Attributes the losses of a batch of packets in the order of sending. `extra` has the numbers of
/// further replies to these packets.
///
/// A stateful reflector numbers its replies from 0 in the order in which it sends them. A number
/// that never arrives belongs to a reply that was lost in the reverse direction; the other packets
/// without a reply were lost in the forward direction. The reply to a duplicate has a number, too.
/// If its reply is lost, the gap between two replies has more numbers than packets. The function
/// detects this unless the batch is also out of order.
pub(super) fn attribute(packets: &[Numbered], extra: &[u32], carry: &mut LossState) -> Losses {
    let mut losses = Losses::default();
    let mut rest = packets;
    while !rest.is_empty() {
        let end = restart(rest, carry.top).unwrap_or(rest.len());
        if end == 0 {
            losses.restarts += 1;
            carry.top = None;
            losses.undetermined += rest[0].missing_before;
            let after = restart(rest, None).unwrap_or(rest.len());
            let first = Numbered { missing_before: 0, ..rest[0] };
            let segment: Vec<_> =
                [first].into_iter().chain(rest[1..after].iter().copied()).collect();
            count(&segment, &[], carry, &mut losses, true);
            rest = &rest[after..];
        } else {
            count(&rest[..end], extra, carry, &mut losses, false);
            rest = &rest[end..];
        }
    }
    losses
}

/// Returns the index of the first packet that arrived at the reflector later than one with a higher
/// number: the reflector has begun to count again.
fn restart(packets: &[Numbered], top: Option<LastReply>) -> Option<usize> {
    let mut highest = top;
    packets.iter().position(|packet| {
        let number = unfolded(packet.number, highest);
        let again = highest.is_some_and(|highest| {
            number <= highest.number && packet.received_ns > highest.received_ns
        });
        if highest.is_none_or(|highest| number > highest.number) {
            highest = Some(LastReply { number, received_ns: packet.received_ns });
        }
        again
    })
}

/// Returns the number without its wrap at 2^32, near `top`.
fn unfolded(number: u32, top: Option<LastReply>) -> u64 {
    let Some(top) = top else { return number.into() };
    let ahead = number.wrapping_sub(top.number as u32) as i32;
    top.number.checked_add_signed(ahead.into()).unwrap_or(number.into())
}

/// Counts a batch without a restart. `fresh` means that the first packet begins a new count.
fn count(
    packets: &[Numbered],
    extra: &[u32],
    carry: &mut LossState,
    losses: &mut Losses,
    fresh: bool,
) {
    let first = packets[0];
    let mut highest = carry.top;
    let mut numbers = Vec::with_capacity(packets.len() + extra.len());
    let (mut in_order, mut before) = (true, None);
    for packet in packets {
        let number = unfolded(packet.number, highest);
        in_order &= before.is_none_or(|before| number > before);
        before = Some(number);
        numbers.push(number);
        if highest.is_none_or(|highest| number > highest.number) {
            highest = Some(LastReply { number, received_ns: packet.received_ns });
        }
    }
    let ordered = numbers.clone();
    numbers.extend(extra.iter().map(|number| unfolded(*number, highest)));
    numbers.sort_unstable();
    numbers.dedup();
    let mut missing: u64 = packets.iter().map(|packet| packet.missing_before).sum();
    // The numbers before the first: a new session begins at 0. A session that the reflector knew
    // before begins anywhere, so the direction of the packets before its first reply is unknown.
    let start = match carry.top {
        Some(top) => top.number + 1,
        None if !fresh && u64::from(first.number) <= first.missing_before => 0,
        None => {
            losses.undetermined += first.missing_before;
            missing -= first.missing_before;
            numbers[0]
        }
    };
    let new = numbers.iter().filter(|number| **number >= start).count() as u64;
    // Numbers that an earlier batch counted as lost.
    let filled = numbers.len() as u64 - new;
    let last = *numbers.last().expect("the batch has a packet");
    let absent = (last + 1).saturating_sub(start).saturating_sub(new);
    losses.reverse = (losses.reverse + absent).saturating_sub(filled);
    let duplicates = if in_order { unseen_duplicates(packets, &ordered, &numbers) } else { 0 };
    losses.forward += (missing + duplicates).saturating_sub(absent);
    carry.top = highest;
}

/// Returns the number of duplicates at the reflector whose replies were lost: in a gap between two
/// replies, the absent numbers beyond the packets without a reply.
fn unseen_duplicates(packets: &[Numbered], ordered: &[u64], numbers: &[u64]) -> u64 {
    let gaps = ordered.windows(2).zip(&packets[1..]);
    gaps.map(|(pair, packet)| {
        let present = numbers.partition_point(|number| *number < pair[1])
            - numbers.partition_point(|number| *number <= pair[0]);
        let absent = (pair[1] - pair[0] - 1).saturating_sub(present as u64);
        absent.saturating_sub(packet.missing_before)
    })
    .sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns a batch from the numbers of the replies; `None` is a packet without a reply.
    fn batch(numbers: &[Option<u32>]) -> Vec<Numbered> {
        let mut missing_before = 0;
        let mut packets = Vec::new();
        for number in numbers {
            match number {
                None => missing_before += 1,
                Some(number) => {
                    let received_ns = u64::from(*number) * 1000;
                    packets.push(Numbered { number: *number, received_ns, missing_before });
                    missing_before = 0;
                }
            }
        }
        packets
    }

    fn of(numbers: &[Option<u32>], extra: &[u32]) -> (u64, u64, u64) {
        let found = attribute(&batch(numbers), extra, &mut LossState::default());
        assert_eq!(found.restarts, 0);
        (found.forward, found.reverse, found.undetermined)
    }

    #[test]
    fn absent_numbers_are_lost_back_and_the_others_there() {
        assert_eq!(of(&[Some(0), Some(1), Some(2)], &[]), (0, 0, 0));
        assert_eq!(of(&[Some(0), None, Some(1)], &[]), (1, 0, 0));
        assert_eq!(of(&[Some(0), None, Some(2)], &[]), (0, 1, 0));
        assert_eq!(of(&[Some(0), None, None, None, Some(2), None, Some(3)], &[]), (3, 1, 0));
        assert_eq!(of(&[None, Some(1)], &[]), (0, 1, 0));
        assert_eq!(of(&[None, Some(0)], &[]), (1, 0, 0));
        assert_eq!(of(&[None, None, Some(1)], &[]), (1, 1, 0));
        // The reflector knows the session from before.
        assert_eq!(of(&[None, Some(700), None, Some(702)], &[]), (0, 1, 1));
        assert_eq!(attribute(&[], &[], &mut LossState::default()), Losses::default());
    }

    #[test]
    fn duplicates_and_reordering_are_no_loss() {
        // The second packet was answered twice, as 1 and 2.
        assert_eq!(of(&[Some(0), Some(1), Some(3)], &[2]), (0, 0, 0));
        // The reply to a duplicate of the second packet was lost.
        assert_eq!(of(&[Some(0), Some(1), Some(3)], &[]), (0, 1, 0));
        assert_eq!(of(&[Some(0), Some(1), Some(3), None, Some(4)], &[]), (1, 1, 0));
        // Packets 1 and 2 arrived at the reflector in the other order.
        assert_eq!(of(&[Some(0), Some(2), Some(1), Some(3)], &[]), (0, 0, 0));
        // The same, and the reply to packet 1 was lost.
        assert_eq!(of(&[Some(0), None, Some(1), Some(3)], &[]), (1, 1, 0));
        assert_eq!(of(&[Some(0), None, Some(1), Some(4), Some(3)], &[]), (0, 1, 0));
    }

    #[test]
    fn a_batch_continues_the_one_before() {
        let mut carry = LossState::default();
        let all = batch(&[Some(0), Some(1), None, Some(3), Some(5), None, Some(6), Some(4)]);
        let one = attribute(&all[..2], &[], &mut carry);
        assert_eq!((one.forward, one.reverse), (0, 0));
        let two = attribute(&all[2..4], &[], &mut carry);
        assert_eq!((two.forward, two.reverse), (0, 2));
        // Number 4, which counted as lost, arrives.
        let three = attribute(&all[4..], &[], &mut carry);
        assert_eq!((three.forward, three.reverse), (1, 0));
    }

    #[test]
    fn a_reflector_that_begins_again_makes_only_its_gap_unknown() {
        let mut packets =
            batch(&[Some(0), None, Some(2), None, None, Some(0), None, Some(1), Some(2)]);
        for (at, packet) in packets.iter_mut().enumerate() {
            packet.received_ns = at as u64 * 1000;
        }
        let found = attribute(&packets, &[], &mut LossState::default());
        let expected = Losses { forward: 1, reverse: 1, undetermined: 2, restarts: 1 };
        assert_eq!(found, expected);
    }

    #[test]
    fn numbers_wrap() {
        let mut carry =
            LossState { top: Some(LastReply { number: u64::from(u32::MAX) - 1, received_ns: 0 }) };
        let packet = |number, received_ns| Numbered { number, received_ns, missing_before: 0 };
        let found = attribute(&[packet(u32::MAX, 1), packet(0, 2), packet(2, 3)], &[], &mut carry);
        assert_eq!((found.reverse, found.restarts), (1, 0));
    }

    proptest! {
        #[test]
        fn without_duplicates_and_reordering_the_counts_are_exact(
            fates in prop::collection::vec(0..3u8, 1..200),
        ) {
            let mut next = 0;
            let mut numbers: Vec<_> = fates.iter().map(|fate| match fate {
                0 => None,
                fate => {
                    next += 1;
                    (*fate == 2).then_some(next - 1)
                }
            }).collect();
            // The last packet is answered.
            numbers.push(Some(next));
            let count = |wanted| fates.iter().filter(|fate| **fate == wanted).count() as u64;
            prop_assert_eq!(of(&numbers, &[]), (count(0), count(1), 0));
        }

        #[test]
        fn any_numbers_of_a_peer_are_counted_without_overflow(
            packets in prop::collection::vec((any::<u32>(), any::<u64>(), 0..9u64), 0..50),
            extra in prop::collection::vec(any::<u32>(), 0..9),
        ) {
            let packets: Vec<_> = packets.into_iter().map(|(number, received_ns, missing_before)| {
                Numbered { number, received_ns, missing_before }
            }).collect();
            attribute(&packets, &extra, &mut LossState::default());
        }
    }
}
