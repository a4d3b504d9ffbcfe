//! Blocks that one thread sends or receives in pieces, which stay in the processor's cache.
//!
//! A piece is a segment of the payload, so that the bytes on the wire are those of a whole block.

use std::io;

use longhaul_core::wire::BlockHeader;
use twox_hash::XxHash3_128;

use super::{BlockReceiver, BlockSender, Payload, SEGMENT_BYTES, TAG_BYTES};

impl BlockSender {
    /// Sends the block of `length` bytes at `offset` of `file`. `fill` fills each piece, given its
    /// position in the block, and returns false if it cannot: then the receiver gets the rest of the
    /// block with an invalid protection, and does not accept it. Without protection a receiver
    /// accepts every block, so `fill` must not fail there.
    ///
    /// # Errors
    /// The connection is broken.
    pub(in crate::copy) fn send_in_pieces(
        &mut self,
        (file, offset, length): (u64, u64, usize),
        mut fill: impl FnMut(usize, &mut [u8]) -> bool,
    ) -> io::Result<()> {
        let wire_length = u32::try_from(length).map_err(io::Error::other)?;
        let header = self.header(&BlockHeader::Block { file, offset, length: wire_length });
        let (mut before, mut genuine) = (&header[..], true);
        let mut hasher = XxHash3_128::new();
        let mut buffer = std::mem::take(&mut self.piece);
        buffer.resize(SEGMENT_BYTES, 0);
        for start in (0..length).step_by(SEGMENT_BYTES) {
            let piece = &mut buffer[..SEGMENT_BYTES.min(length - start)];
            genuine = genuine && fill(start, piece);
            if !genuine {
                piece.fill(0);
            }
            self.segment(before, piece, &mut hasher, genuine)?;
            before = &[];
        }
        self.piece = buffer;
        self.trailer(&hasher, genuine)
    }
}

impl BlockReceiver {
    /// Receives a payload of `length` bytes and passes each piece to `take` with its position in
    /// the block. A sealed piece that fails its check is not passed on, nor are those after it;
    /// pieces with a hash are passed on before it is checked. Hashes the payload if `digest`. If
    /// the check fails, the connection can still receive the next block.
    pub(in crate::copy) fn receive_in_pieces(
        &mut self,
        length: usize,
        digest: bool,
        mut take: impl FnMut(usize, &[u8]),
    ) -> io::Result<Payload> {
        let mut hasher = self.hasher(digest);
        let mut buffer = std::mem::take(&mut self.piece);
        buffer.resize(SEGMENT_BYTES + TAG_BYTES, 0);
        let mut intact = true;
        for start in (0..length).step_by(SEGMENT_BYTES) {
            let piece_bytes = SEGMENT_BYTES.min(length - start);
            intact &= self.segment(&mut buffer[..piece_bytes + TAG_BYTES], hasher.as_mut())?;
            if intact {
                take(start, &buffer[..piece_bytes]);
            }
        }
        self.piece = buffer;
        self.conclude(intact, hasher)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use longhaul_core::plan::Protection;

    use super::*;
    use crate::session::StreamKey;

    const KEY: StreamKey = StreamKey([5; 32]);
    const PROTECTIONS: [Protection; 3] = [Protection::Sealed, Protection::Hashed, Protection::Bare];

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    fn content(length: usize) -> Vec<u8> {
        (0..length).map(|at| (at ^ at >> 8 ^ at >> 16) as u8).collect()
    }

    /// Returns the bytes on the wire of a block of `bytes`, whole or in pieces, and an end.
    fn wire(protection: Protection, bytes: &[u8], pieces: bool) -> Vec<u8> {
        let (near, mut far) = pair();
        let mut sender = BlockSender::new(near, &KEY, protection);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                if pieces {
                    let fill = |start: usize, piece: &mut [u8]| {
                        piece.copy_from_slice(&bytes[start..start + piece.len()]);
                        true
                    };
                    sender.send_in_pieces((3, 8192, bytes.len()), fill).unwrap();
                } else {
                    sender.send(3, 8192, &mut bytes.to_vec()).unwrap();
                }
                sender.finish().unwrap();
            });
            let mut wire = Vec::new();
            far.read_to_end(&mut wire).unwrap();
            wire
        })
    }

    /// Receives a block from `wire` in pieces, and the end.
    fn received(protection: Protection, wire: &[u8]) -> (Payload, Vec<u8>) {
        let (mut near, far) = pair();
        std::thread::scope(|scope| {
            scope.spawn(move || near.write_all(wire).unwrap());
            let mut receiver = BlockReceiver::new(far, &KEY, protection);
            let BlockHeader::Block { file: 3, offset: 8192, length } = receiver.header().unwrap()
            else {
                panic!("another header");
            };
            let mut bytes = Vec::new();
            let payload = receiver.receive_in_pieces(length as usize, true, |start, piece| {
                assert_eq!(start, bytes.len());
                bytes.extend_from_slice(piece);
            });
            assert_eq!(receiver.header().unwrap(), BlockHeader::End);
            (payload.unwrap(), bytes)
        })
    }

    #[test]
    fn pieces_are_on_the_wire_as_whole_blocks_are_whatever_their_length() {
        let around = |length: usize| [length - 1, length, length + 1];
        let lengths = [1, 2, 4096].into_iter().chain(around(SEGMENT_BYTES)).chain(around(3 << 17));
        for length in lengths {
            let bytes = content(length);
            for protection in PROTECTIONS {
                let wire = [true, false].map(|pieces| wire(protection, &bytes, pieces));
                assert!(wire[0] == wire[1], "{length} {protection:?}");
                let (payload, got) = received(protection, &wire[0]);
                assert!(payload.intact && got == bytes, "{length} {protection:?}");
                assert_eq!(payload.digest, Some(XxHash3_128::oneshot(&bytes)));
            }
        }
    }

    #[test]
    fn a_changed_byte_spoils_the_block_and_a_sealed_piece_with_it_is_not_passed_on() {
        let bytes = content(3 * SEGMENT_BYTES);
        for protection in [Protection::Sealed, Protection::Hashed] {
            for at in [50, SEGMENT_BYTES + 50, 3 * SEGMENT_BYTES] {
                let mut wire = wire(protection, &bytes, true);
                wire[at + 40] ^= 1;
                let (payload, got) = received(protection, &wire);
                assert!(!payload.intact, "{protection:?} {at}");
                if protection == Protection::Sealed {
                    assert!(got.len() <= at && got == bytes[..got.len()], "{at}");
                }
            }
        }
    }

    #[test]
    fn a_block_that_cannot_be_filled_is_not_accepted_and_the_connection_goes_on() {
        for protection in [Protection::Sealed, Protection::Hashed] {
            for good_pieces in [0, 1, 2] {
                let (near, far) = pair();
                let mut sender = BlockSender::new(near, &KEY, protection);
                let sending = std::thread::spawn(move || {
                    let fill = |start: usize, _: &mut [u8]| start / SEGMENT_BYTES < good_pieces;
                    sender.send_in_pieces((1, 0, 2 * SEGMENT_BYTES + 9), fill).unwrap();
                    sender.send_in_pieces((1, 0, 5), |_, _| true).unwrap();
                });
                let mut receiver = BlockReceiver::new(far, &KEY, protection);
                for (length, intact) in [(2 * SEGMENT_BYTES + 9, false), (5, true)] {
                    receiver.header().unwrap();
                    let payload = receiver.receive_in_pieces(length, false, |_, _| ()).unwrap();
                    assert_eq!(payload.intact, intact, "{protection:?} {good_pieces}");
                }
                sending.join().unwrap();
            }
        }
    }
}
