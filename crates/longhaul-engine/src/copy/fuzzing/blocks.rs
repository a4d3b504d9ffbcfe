//! A data connection whose bytes are changed in transit, or whose sender sends false headers.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::thread;

use longhaul_core::plan::Protection;
use longhaul_core::wire::{BLOCK_HEADER_BYTES, BlockHeader, PACK_ENTRY_BYTES, PackEntry};
use twox_hash::XxHash3_128;

use super::Script;
use crate::copy::data_connection::{BlockReceiver, BlockSender, RECEIVE_SLACK};
use crate::session::StreamKey;

const KEY: StreamKey = StreamKey([7; 32]);
/// Around the ends of segments, which are sealed one by one.
const LENGTHS: [usize; 8] =
    [1, 100, 4096, (128 << 10) - 1, 128 << 10, (128 << 10) + 1, (256 << 10) + 7, 5000];
/// Most messages of one input.
const MESSAGES: usize = 12;

/// A message of the sender, as the receiver must see it.
#[derive(Debug, PartialEq)]
struct Sent {
    header: BlockHeader,
    table: Vec<PackEntry>,
    payload: Vec<u8>,
}

/// Sends, changes and receives a stream as `bytes` determine.
pub(super) fn run(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let protection = script.choose(&[Protection::Sealed, Protection::Hashed, Protection::Bare]);
    if script.byte().is_multiple_of(8) {
        // Nothing but noise.
        receive(protection, bytes.to_vec(), &[], false);
        return;
    }
    let (mut wire, sent, honest) = send(&mut script, protection);
    let clean = script.is_empty();
    while !script.is_empty() {
        damage(&mut script, &mut wire);
    }
    let received = receive(protection, wire, &sent, honest);
    if clean && honest {
        assert_eq!(received, sent.len(), "what was not changed arrives");
    }
}

/// Returns the bytes on the wire, their contents, and whether every header is true.
fn send(script: &mut Script<'_>, protection: Protection) -> (Vec<u8>, Vec<Sent>, bool) {
    let (near, mut far) = pair();
    let collecting = thread::spawn(move || {
        let mut wire = Vec::new();
        far.read_to_end(&mut wire).map(|_| wire)
    });
    let mut sender = BlockSender::new(near, &KEY, protection);
    let (mut sent, mut honest) = (Vec::new(), true);
    for _ in 0..1 + script.below(MESSAGES) {
        match script.below(8) {
            0..3 => sent.push(block(script, &mut sender)),
            3..5 => sent.push(pack(script, &mut sender)),
            5 => {
                send_invalid(script, &mut sender);
                honest = false;
            }
            6 => break,
            _ => {}
        }
    }
    if script.flag() {
        sender.finish().expect("the socket pair accepts the block");
        sent.push(Sent { header: BlockHeader::End, table: Vec::new(), payload: Vec::new() });
    }
    drop(sender);
    let wire = collecting.join().expect("it does not panic").expect("the pair is read");
    (wire, sent, honest)
}

fn content(script: &mut Script<'_>, length: usize) -> Vec<u8> {
    let first = script.byte();
    (0..length).map(|n| first.wrapping_add((n ^ n >> 8) as u8)).collect()
}

fn block(script: &mut Script<'_>, sender: &mut BlockSender) -> Sent {
    let length = script.choose(&LENGTHS);
    let payload = content(script, length);
    let (file, offset) = (u64::from(script.byte()), u64::from(script.short()) << 12);
    sender.send(file, offset, &mut payload.clone()).expect("the socket pair accepts the block");
    let header = BlockHeader::Block { file, offset, length: length as u32 };
    Sent { header, table: Vec::new(), payload }
}

fn pack(script: &mut Script<'_>, sender: &mut BlockSender) -> Sent {
    let table: Vec<_> = (0..1 + script.below(5))
        .map(|_| PackEntry { file: script.byte().into(), length: script.short().into() })
        .collect();
    let length = table.iter().map(|entry| entry.length).sum();
    let payload = content(script, length as usize);
    sender.send_pack(&table, &mut payload.clone()).expect("the socket pair accepts the block");
    let header = BlockHeader::Pack { files: table.len() as u32, length };
    Sent { header, table, payload }
}

/// Sends a header and a table with a valid signature and false contents.
fn send_invalid(script: &mut Script<'_>, sender: &mut BlockSender) {
    let mut header = [0; BLOCK_HEADER_BYTES];
    header[..8].copy_from_slice(&script.long().to_be_bytes());
    header[8..16].copy_from_slice(&script.long().to_be_bytes());
    header[16..20].copy_from_slice(&(script.long() as u32).to_be_bytes());
    header[20..].copy_from_slice(&u32::from(script.byte() % 4).to_be_bytes());
    if script.flag() {
        // Within the limits, so that the table is read.
        header[..14].fill(0);
        header[16..18].fill(0);
    }
    let table: Vec<u8> = (0..script.below(4))
        .flat_map(|_| PackEntry { file: script.long(), length: script.long() as u32 }.encode())
        .collect();
    let length = usize::from(script.byte());
    let mut payload = content(script, length);
    sender
        .send_unchecked(&header, &table, &mut payload)
        .expect("the socket pair accepts the block");
}

/// Applies one change to the bytes on the wire.
fn damage(script: &mut Script<'_>, wire: &mut Vec<u8>) {
    if wire.is_empty() {
        script.byte();
        return;
    }
    let at = script.long() as usize % wire.len();
    match script.below(5) {
        0 => wire[at] ^= script.byte(),
        1 => wire.truncate(at),
        2 => wire.insert(at, script.byte()),
        3 => {
            wire.remove(at);
        }
        _ => {
            let length = usize::from(script.short()).min(wire.len() - at);
            let again = wire[at..at + length].to_vec();
            wire.extend(again);
        }
    }
}

/// Receives `wire` to its end, compares it with `sent` if the sender was honest, and returns how
/// many messages have arrived.
fn receive(protection: Protection, wire: Vec<u8>, sent: &[Sent], honest: bool) -> usize {
    let (near, far) = pair();
    let writing = thread::spawn(move || {
        let mut near = near;
        // A receiver that has seen enough closes its end.
        let _ = near.write_all(&wire);
    });
    let mut receiver = BlockReceiver::new(far, &KEY, protection);
    let mut arrived = 0;
    while let Ok(header) = receiver.header() {
        let Some((got, intact)) = body(&mut receiver, header) else { break };
        if honest {
            let sent = sent.get(arrived).expect("no more arrives than was sent");
            assert_eq!((got.header, &got.table), (sent.header, &sent.table));
            assert!(!intact || protection == Protection::Bare || got.payload == sent.payload);
        }
        arrived += 1;
        if header == BlockHeader::End {
            break;
        }
    }
    drop(receiver);
    writing.join().expect("it does not panic");
    arrived
}

/// Reads the message that begins with `header`. Returns it, and whether it passed its check.
fn body(receiver: &mut BlockReceiver, header: BlockHeader) -> Option<(Sent, bool)> {
    let mut table = Vec::new();
    let length = match header {
        BlockHeader::End => 0,
        BlockHeader::Block { length, .. } => length as usize,
        BlockHeader::Pack { files, length } => {
            table = receiver.table(files, length).ok()?;
            assert_eq!(table.len(), files as usize);
            length as usize
        }
    };
    let mut buffer = vec![0; length + RECEIVE_SLACK];
    let intact = match header {
        BlockHeader::End => true,
        _ => {
            let received = receiver.payload(&mut buffer, length, true).ok()?;
            let digest = XxHash3_128::oneshot(&buffer[..length]);
            assert!(!received.intact || received.digest == Some(digest));
            received.intact
        }
    };
    buffer.truncate(length);
    Some((Sent { header, table, payload: buffer }, intact))
}

fn pair() -> (TcpStream, TcpStream) {
    let (near, far) = UnixStream::pair().expect("the kernel gives a pair of sockets");
    (TcpStream::from(OwnedFd::from(near)), TcpStream::from(OwnedFd::from(far)))
}

/// Inputs to begin from.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for protection in 0..3 {
        // Blocks and packs; a damaged block; a lie.
        seeds.push(vec![
            protection, 1, 3, 0, 2, 9, 1, 0, 3, 3, 1, 7, 0, 9, 8, 0, 5, 4, 0, 5, 1, 1, 0, 0, 1,
        ]);
        seeds.push(
            [&[protection, 1, 1, 0, 5, 9, 1, 0, 3, 6, 1][..], &[0, 0, 0, 0, 0, 0, 2, 9, 0, 4]]
                .concat(),
        );
        seeds.push([&[protection, 1, 1, 5][..], &[0; 7], &[3; 17], &[2, 1, 2], &[0; 30]].concat());
    }
    let table = vec![0; PACK_ENTRY_BYTES];
    seeds.push([&[0, 0][..], &table].concat());
    seeds
}
