//! Blocks on a data connection: framing and protection.
//!
//! Every connection has a separate key, and its bytes flow in one direction, so a counter makes each
//! nonce unique. `docs/design/wire.md` defines the bytes; in short:
//!
//! - *sealed*: the header and each 128 KiB of the payload are sealed with AES-256-GCM;
//! - *hashed*: the header is in clear text with a GCM tag; the payload is followed by its XXH3-128
//!   with a GCM tag;
//! - *bare*: as hashed, without the hash.
//!
//! A pack of small files has a table between header and payload, which is protected like the
//! header.
//!
//! The payload is hashed or sealed in segments between the reads and writes of the socket, while
//! the segment is in the CPU cache. `pieces` passes each segment on at once.

mod pieces;

use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_core::plan::Protection;
use longhaul_core::wire::{BLOCK_HEADER_BYTES, BlockHeader, PACK_ENTRY_BYTES, PackEntry};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use twox_hash::XxHash3_128;

use super::clock::Lanes;
use super::rate_gate::RateGate;
use crate::session::{KeyRate, RateDirection, StreamKey};

/// The length of an AES-GCM tag.
pub(super) const TAG_BYTES: usize = 16;
/// The bytes of a segment: so few that the segment is still in a core's second-level cache (512 KiB
/// or more) when it goes from the cipher to the socket or back.
const SEGMENT_BYTES: usize = 128 << 10;
const HASH_BYTES: usize = 16;

/// The key of a connection with its counter.
struct Sealer {
    key: LessSafeKey,
    counter: u64,
}

impl Sealer {
    fn new(key: &StreamKey) -> Self {
        let key = UnboundKey::new(&AES_256_GCM, &key.0).expect("the key has 256 bits");
        Sealer { key: LessSafeKey::new(key), counter: 0 }
    }

    fn nonce(&mut self) -> Nonce {
        let mut nonce = [0; 12];
        nonce[4..].copy_from_slice(&self.counter.to_be_bytes());
        self.counter += 1;
        Nonce::assume_unique_for_key(nonce)
    }

    fn seal(&mut self, bytes: &mut [u8]) -> [u8; TAG_BYTES] {
        let nonce = self.nonce();
        let tag = self.key.seal_in_place_separate_tag(nonce, Aad::empty(), bytes);
        tag_bytes(tag.as_ref().map(AsRef::as_ref))
    }

    fn sign(&mut self, bytes: &[u8]) -> [u8; TAG_BYTES] {
        let nonce = self.nonce();
        let tag = self.key.seal_in_place_separate_tag(nonce, Aad::from(bytes), &mut []);
        tag_bytes(tag.as_ref().map(AsRef::as_ref))
    }

    /// Opens `bytes`, whose last [`TAG_BYTES`] are the tag.
    fn open(&mut self, bytes: &mut [u8]) -> bool {
        let nonce = self.nonce();
        self.key.open_in_place(nonce, Aad::empty(), bytes).is_ok()
    }

    fn verify(&mut self, bytes: &[u8], tag: &[u8]) -> bool {
        let nonce = self.nonce();
        let mut tag = tag.to_vec();
        self.key.open_in_place(nonce, Aad::from(bytes), &mut tag).is_ok()
    }
}

fn tag_bytes(tag: Result<&[u8], &ring::error::Unspecified>) -> [u8; TAG_BYTES] {
    // GCM refuses only messages over 64 GiB; a segment is 128 KiB.
    let tag = tag.expect("a segment is short enough to seal");
    tag.try_into().expect("a GCM tag has 16 bytes")
}

/// The sending end of a data connection.
pub struct BlockSender {
    socket: TcpStream,
    sealer: Sealer,
    protection: Protection,
    /// The time for sealing and hashing.
    sealing: Duration,
    rate: Option<Arc<KeyRate>>,
    gate: Option<Arc<RateGate>>,
    /// The buffer for a segment of a block that is sent in pieces; empty before the first.
    piece: Vec<u8>,
}

impl BlockSender {
    /// Sends blocks on `socket`, which is authenticated.
    pub fn new(socket: TcpStream, key: &StreamKey, protection: Protection) -> Self {
        let (sealer, sealing) = (Sealer::new(key), Duration::ZERO);
        let (rate, gate, piece) = (None, None, Vec::new());
        BlockSender { socket, sealer, protection, sealing, rate, gate, piece }
    }

    /// Sets the rate that this connection shares with others.
    pub(super) fn with_shared_rate(self, rate: Option<Arc<KeyRate>>) -> Self {
        BlockSender { rate, ..self }
    }

    /// Sets the gate that the connections of the copy pass.
    pub(super) fn with_gate(self, gate: Arc<RateGate>) -> Self {
        BlockSender { gate: Some(gate), ..self }
    }

    /// Sends a block; sealing changes `payload`.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn send(&mut self, file: u64, offset: u64, payload: &mut [u8]) -> io::Result<()> {
        let length = u32::try_from(payload.len()).map_err(io::Error::other)?;
        let header = self.header(&BlockHeader::Block { file, offset, length });
        self.payload(&header, payload)
    }

    /// Sends whole files, whose bytes are in `payload` one after another.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn send_pack(&mut self, files: &[PackEntry], payload: &mut [u8]) -> io::Result<()> {
        let length = u32::try_from(payload.len()).map_err(io::Error::other)?;
        let header = BlockHeader::Pack { files: files.len() as u32, length };
        let mut before = self.header(&header).to_vec();
        let start = before.len();
        before.extend(files.iter().flat_map(PackEntry::encode));
        let tag = self.protect(&mut before[start..]);
        before.extend(tag);
        self.payload(&before, payload)
    }

    /// Sends a header and a table unchanged, even if they do not match `payload`. Tests use this
    /// for hostile peers.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn send_unchecked(
        &mut self,
        header: &[u8; BLOCK_HEADER_BYTES],
        table: &[u8],
        payload: &mut [u8],
    ) -> io::Result<()> {
        let mut before = Vec::new();
        for plain in [&header[..], table].into_iter().filter(|plain| !plain.is_empty()) {
            let start = before.len();
            before.extend_from_slice(plain);
            let tag = self.protect(&mut before[start..]);
            before.extend(tag);
        }
        self.payload(&before, payload)
    }

    /// Sends `before`, then `payload` with its protection.
    fn payload(&mut self, mut before: &[u8], payload: &mut [u8]) -> io::Result<()> {
        let mut hasher = XxHash3_128::new();
        for segment in payload.chunks_mut(SEGMENT_BYTES) {
            self.segment(before, segment, &mut hasher, true)?;
            before = &[];
        }
        if !before.is_empty() {
            self.socket.write_all(before)?;
        }
        self.trailer(&hasher, true)
    }

    /// Sends `before`, then a segment of a payload with its protection. The protection of a segment
    /// that is not `genuine` is invalid.
    fn segment(
        &mut self,
        before: &[u8],
        segment: &mut [u8],
        hasher: &mut XxHash3_128,
        genuine: bool,
    ) -> io::Result<()> {
        if let Some(rate) = &self.rate {
            rate.take(RateDirection::Out, segment.len());
        }
        if let Some(gate) = &self.gate {
            gate.take(segment.len());
        }
        let start = Instant::now();
        let tag = match self.protection {
            Protection::Sealed => {
                let mut tag = self.sealer.seal(segment);
                if !genuine {
                    tag = tag.map(|byte| !byte);
                }
                Some(tag)
            }
            Protection::Hashed => {
                hasher.write(segment);
                None
            }
            Protection::Bare => None,
        };
        self.sealing += start.elapsed();
        let after = tag.as_ref().map_or(&[][..], |tag| tag);
        write_all_vectored(&mut self.socket, [before, segment, after])
    }

    /// Sends what follows a payload. Without the hash of a `genuine` payload, it is not accepted.
    fn trailer(&mut self, hasher: &XxHash3_128, genuine: bool) -> io::Result<()> {
        if self.protection != Protection::Hashed {
            return Ok(());
        }
        let hash = hasher.finish_128();
        let hash = if genuine { hash } else { !hash }.to_be_bytes();
        let tag = self.sealer.sign(&hash);
        write_all_vectored(&mut self.socket, [&hash, &tag, &[]])
    }

    /// Returns the time for sealing and hashing since the last call.
    pub(super) fn take_sealing(&mut self) -> Duration {
        std::mem::take(&mut self.sealing)
    }

    /// Sends the end of the blocks.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn finish(&mut self) -> io::Result<()> {
        let header = self.header(&BlockHeader::End);
        self.socket.write_all(&header)
    }

    pub(super) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    fn header(&mut self, header: &BlockHeader) -> [u8; BLOCK_HEADER_BYTES + TAG_BYTES] {
        let mut bytes = [0; BLOCK_HEADER_BYTES + TAG_BYTES];
        let (plain, tag) = bytes.split_at_mut(BLOCK_HEADER_BYTES);
        plain.copy_from_slice(&header.encode());
        tag.copy_from_slice(&self.protect(plain));
        bytes
    }

    /// Seals or signs `plain`, which is not payload, and returns its tag.
    fn protect(&mut self, plain: &mut [u8]) -> [u8; TAG_BYTES] {
        match self.protection {
            Protection::Sealed => self.sealer.seal(plain),
            Protection::Hashed | Protection::Bare => self.sealer.sign(plain),
        }
    }
}

/// The receiving end of a data connection.
pub(super) struct BlockReceiver {
    socket: Counted,
    sealer: Sealer,
    protection: Protection,
    /// The time for opening and hashing.
    verifying: Duration,
    rate: Option<Arc<KeyRate>>,
    /// The buffer for a segment of a block that is received in pieces; empty before the first.
    piece: Vec<u8>,
}

/// The outcome of a received payload.
pub(super) struct Payload {
    /// True if the message passed its check.
    pub(super) intact: bool,
    /// Its XXH3-128, if it was requested or is its check.
    pub(super) digest: Option<u128>,
}

/// The space that a buffer given to [`BlockReceiver::payload`] needs after the payload.
pub(super) const RECEIVE_SLACK: usize = TAG_BYTES;

impl BlockReceiver {
    pub(super) fn new(socket: TcpStream, key: &StreamKey, protection: Protection) -> Self {
        let socket = Counted { socket, count: None };
        let (sealer, verifying) = (Sealer::new(key), Duration::ZERO);
        BlockReceiver { socket, sealer, protection, verifying, rate: None, piece: Vec::new() }
    }

    /// Sets the rate that this connection shares with others.
    pub(super) fn with_shared_rate(self, rate: Option<Arc<KeyRate>>) -> Self {
        BlockReceiver { rate, ..self }
    }

    /// Reads the next header.
    ///
    /// # Errors
    /// `InvalidData` if the check fails. The connection cannot be used any more, because the length
    /// of the message is unknown.
    pub(super) fn header(&mut self) -> io::Result<BlockHeader> {
        let mut bytes = [0; BLOCK_HEADER_BYTES + TAG_BYTES];
        self.socket.read_exact(&mut bytes)?;
        let genuine = self.genuine(&mut bytes);
        let mut plain = [0; BLOCK_HEADER_BYTES];
        plain.copy_from_slice(&bytes[..BLOCK_HEADER_BYTES]);
        BlockHeader::decode(&plain)
            .filter(|_| genuine)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a header fails its check"))
    }

    /// Reads the table of a pack of `files` files with `length` bytes together. Fails as
    /// [`header`](Self::header) does.
    pub(super) fn table(&mut self, files: u32, length: u32) -> io::Result<Vec<PackEntry>> {
        let plain_bytes = files as usize * PACK_ENTRY_BYTES;
        let mut bytes = vec![0; plain_bytes + TAG_BYTES];
        self.socket.read_exact(&mut bytes)?;
        let genuine = self.genuine(&mut bytes);
        PackEntry::decode_table(&bytes[..plain_bytes], length)
            .filter(|_| genuine)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a table fails its check"))
    }

    /// Opens or verifies `bytes`, which end in their tag and are not payload.
    fn genuine(&mut self, bytes: &mut [u8]) -> bool {
        let plain_bytes = bytes.len() - TAG_BYTES;
        match self.protection {
            Protection::Sealed => self.sealer.open(bytes),
            Protection::Hashed | Protection::Bare => {
                let (plain, tag) = bytes.split_at(plain_bytes);
                self.sealer.verify(plain, tag)
            }
        }
    }

    /// Receives a payload of `length` into the front of `buffer`, which has [`RECEIVE_SLACK`] more
    /// bytes, and hashes it if `digest`. If the check fails, the connection can still receive the
    /// next block.
    pub(super) fn payload(
        &mut self,
        buffer: &mut [u8],
        length: usize,
        digest: bool,
    ) -> io::Result<Payload> {
        let mut hasher = self.hasher(digest);
        let mut intact = true;
        for start in (0..length).step_by(SEGMENT_BYTES) {
            let end = length.min(start + SEGMENT_BYTES);
            // The tag lands where the next segment will begin, and is overwritten by it.
            intact &= self.segment(&mut buffer[start..end + TAG_BYTES], hasher.as_mut())?;
        }
        self.conclude(intact, hasher)
    }

    /// Returns the hasher of a payload, if its hash is its check or `digest` is requested.
    fn hasher(&self, digest: bool) -> Option<XxHash3_128> {
        (digest || self.protection == Protection::Hashed).then(XxHash3_128::new)
    }

    /// Receives a segment into `buffer`, which has space for a tag after it. Returns false if the
    /// segment failed its check.
    fn segment(&mut self, buffer: &mut [u8], hasher: Option<&mut XxHash3_128>) -> io::Result<bool> {
        let length = buffer.len() - TAG_BYTES;
        if let Some(rate) = &self.rate {
            rate.take(RateDirection::In, length);
        }
        let mut intact = true;
        match self.protection {
            Protection::Sealed => {
                self.socket.read_exact(buffer)?;
                let start = Instant::now();
                intact = self.sealer.open(buffer);
                self.verifying += start.elapsed();
            }
            Protection::Hashed | Protection::Bare => {
                self.socket.read_exact(&mut buffer[..length])?;
            }
        }
        if let Some(hasher) = hasher {
            // While the segment is in the cache.
            let begun = Instant::now();
            hasher.write(&buffer[..length]);
            self.verifying += begun.elapsed();
        }
        Ok(intact)
    }

    /// Receives what follows a payload, of which all segments are `intact` or not.
    fn conclude(&mut self, mut intact: bool, hasher: Option<XxHash3_128>) -> io::Result<Payload> {
        let hashed = hasher.map(|hasher| hasher.finish_128());
        if self.protection == Protection::Hashed {
            let mut trailer = [0; HASH_BYTES + TAG_BYTES];
            self.socket.read_exact(&mut trailer)?;
            let (hash, tag) = trailer.split_at(HASH_BYTES);
            intact = self.sealer.verify(hash, tag)
                && hashed.is_some_and(|hashed| hash == hashed.to_be_bytes());
        }
        Ok(Payload { intact, digest: hashed })
    }

    /// Returns the time for opening and hashing since the last call.
    pub(super) fn take_verifying(&mut self) -> Duration {
        std::mem::take(&mut self.verifying)
    }

    /// Adds the received bytes to `count`.
    pub(super) fn count_into(&mut self, count: Arc<Lanes>) {
        self.socket.count = Some(count);
    }

    pub(super) fn socket(&self) -> &TcpStream {
        &self.socket.socket
    }
}

/// A socket that counts the bytes that are read from it.
struct Counted {
    socket: TcpStream,
    count: Option<Arc<Lanes>>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = self.socket.read(buffer)?;
        if let Some(count) = &self.count {
            count.add(got as u64);
        }
        Ok(got)
    }
}

fn write_all_vectored(socket: &mut TcpStream, parts: [&[u8]; 3]) -> io::Result<()> {
    let mut slices = parts.map(IoSlice::new);
    let mut rest = &mut slices[..];
    IoSlice::advance_slices(&mut rest, 0); // drops leading empty parts
    while !rest.is_empty() {
        match socket.write_vectored(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(sent) => IoSlice::advance_slices(&mut rest, sent),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    const PACKED: [PackEntry; 3] = [
        PackEntry { file: 4, length: 4 },
        PackEntry { file: 5, length: 0 },
        PackEntry { file: 9, length: 5 },
    ];

    /// Sends two blocks, a pack and an end through `tamper`, which sees all bytes, and returns what comes
    /// out at the other end.
    fn pass(
        protection: Protection,
        tamper: impl Fn(&mut Vec<u8>),
    ) -> Vec<io::Result<(BlockHeader, bool, Vec<u8>)>> {
        let key = StreamKey([5; 32]);
        let (near, mut middle) = pair();
        let mut sender = BlockSender::new(near, &key, protection);
        let sending = std::thread::spawn(move || {
            let mut long: Vec<u8> = (0..300_000_u32).map(|i| i as u8).collect();
            sender.send(1, 0, &mut long).unwrap();
            sender.send(2, 4096, &mut [9; 10]).unwrap();
            sender.send_pack(&PACKED, &mut [7; 9]).unwrap();
            sender.finish().unwrap();
        });
        let mut wire = Vec::new();
        middle.read_to_end(&mut wire).unwrap();
        sending.join().unwrap();
        tamper(&mut wire);

        let (mut near, far) = pair();
        let writing = std::thread::spawn(move || near.write_all(&wire));
        let mut receiver = BlockReceiver::new(far, &key, protection);
        let mut got = Vec::new();
        loop {
            let mut buffer = vec![0; 300_000 + RECEIVE_SLACK];
            let block = receiver.header().and_then(|header| match header {
                BlockHeader::End => Ok((header, true, Vec::new())),
                BlockHeader::Pack { files, length } => {
                    let table = receiver.table(files, length)?;
                    assert_eq!(table, PACKED);
                    let intact = receiver.payload(&mut buffer, length as usize, false)?.intact;
                    Ok((header, intact, buffer[..length as usize].to_vec()))
                }
                BlockHeader::Block { length, .. } => {
                    let intact = receiver.payload(&mut buffer, length as usize, false)?.intact;
                    Ok((header, intact, buffer[..length as usize].to_vec()))
                }
            });
            let last = matches!(block, Ok((BlockHeader::End, ..)) | Err(_));
            got.push(block);
            if last {
                break;
            }
        }
        let _ = writing.join();
        got
    }

    #[test]
    fn blocks_pass_under_every_protection() {
        for protection in [Protection::Sealed, Protection::Hashed, Protection::Bare] {
            let got: Vec<_> =
                pass(protection, |_| ()).into_iter().collect::<io::Result<_>>().unwrap();
            assert_eq!(got[0].0, BlockHeader::Block { file: 1, offset: 0, length: 300_000 });
            assert!(got[0].1 && got[0].2.iter().enumerate().all(|(i, byte)| *byte == i as u8));
            assert_eq!(got[1].0, BlockHeader::Block { file: 2, offset: 4096, length: 10 });
            assert_eq!(got[1].2, [9; 10]);
            assert_eq!((got[2].1, &got[2].2[..]), (true, &[7; 9][..]));
            assert_eq!(got[3].0, BlockHeader::End);
        }
    }

    #[test]
    fn a_flipped_bit_spoils_its_block_alone() {
        for protection in [Protection::Sealed, Protection::Hashed] {
            let got = pass(protection, |wire| wire[200_000] ^= 1);
            let intact: Vec<_> = got.into_iter().map(|block| block.unwrap().1).collect();
            assert_eq!(intact, [false, true, true, true], "{protection:?}");
        }
    }

    #[test]
    fn a_flipped_bit_in_a_header_ends_the_connection() {
        for protection in [Protection::Sealed, Protection::Hashed, Protection::Bare] {
            for byte in [7, 17, 30] {
                let got = pass(protection, |wire| wire[byte] ^= 1);
                let error = got[0].as_ref().unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{protection:?} {byte}");
            }
        }
    }

    #[test]
    fn sealed_bytes_are_secret() {
        pass(Protection::Sealed, |wire| {
            assert!(!wire.windows(10).any(|window| window == [9; 10]));
        });
        pass(Protection::Hashed, |wire| {
            assert!(wire.windows(10).any(|window| window == [9; 10]));
        });
    }
}
