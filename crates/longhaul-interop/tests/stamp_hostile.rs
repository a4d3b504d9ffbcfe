//! Packets of a peer may have any bytes: the entry of the fuzz target `stamp`, on noise and on
//! changed packets. `fuzz/` runs longer and by coverage; this runs always.

// Its items are public for the fuzz target.
#[allow(unreachable_pub)]
#[path = "../../../fuzz/src/stamp.rs"]
mod entry;

use proptest::prelude::*;

proptest! {
    #[test]
    fn noise_is_no_reply(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        entry::stamp(&bytes);
    }

    #[test]
    fn changed_packets_are_counted_or_refused(
        which in 0..4usize,
        changes in prop::collection::vec((any::<usize>(), any::<u8>()), 0..20),
        cut in any::<usize>(),
    ) {
        let mut bytes = entry::seeds()[which].clone();
        for (at, byte) in changes {
            if !bytes.is_empty() {
                let at = at % bytes.len();
                bytes[at] = byte;
            }
        }
        bytes.truncate(cut % (bytes.len() + 1));
        entry::stamp(&bytes);
    }
}

#[test]
fn the_packets_to_begin_from_are_read() {
    entry::seeds().iter().for_each(|seed| entry::stamp(seed));
}
