use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::Instant;

use rustix::fs::{MemfdFlags, memfd_create, sendfile};

use super::{Pacer, Slot};

/// What the senders of an end send, over and over; all read the same, which keeps it in cache.
#[derive(Debug)]
pub(in crate::flow) enum Supply {
    /// From memory, by write(2).
    Memory(Vec<u8>),
    /// From a file that lives in memory, by sendfile(2): the kernel sends the file's own pages.
    /// Over loopback MSG_ZEROCOPY copies all the same (skb_orphan_frags_rx() in
    /// include/linux/skbuff.h), and costs its notifications on top; sendfile does not copy there
    /// either (bench/runs/2026-11-21-epyc-2core/flow.md).
    File(File, usize),
}

impl Supply {
    /// `length` bytes.
    ///
    /// # Errors
    /// No file could be made in memory.
    pub(in crate::flow) fn new(length: usize, zero_copy: bool) -> io::Result<Self> {
        let bytes = noise(length);
        if !zero_copy {
            return Ok(Supply::Memory(bytes));
        }
        let mut file = File::from(memfd_create("longhaul-test", MemfdFlags::CLOEXEC)?);
        file.write_all(&bytes)?;
        Ok(Supply::File(file, length))
    }

    fn length(&self) -> usize {
        match self {
            Supply::Memory(bytes) => bytes.len(),
            Supply::File(_, length) => *length,
        }
    }

    /// Sends the first `count` bytes, or what of them the socket takes.
    fn write(&self, mut stream: &TcpStream, count: usize) -> io::Result<usize> {
        match self {
            Supply::Memory(bytes) => stream.write(&bytes[..count]),
            Supply::File(file, _) => Ok(sendfile(stream, file, Some(&mut 0), count)?),
        }
    }
}

/// Bytes to send: noise, because a path that compresses would shine on zeros.
pub(in crate::flow) fn noise(length: usize) -> Vec<u8> {
    let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        // Marsaglia's xorshift64.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Sends from `supply` until `share` bytes are sent or `stop` is set, at the pacer's rate, then
/// closes its half of `stream`.
///
/// `stop` is to be followed by a shutdown of the writing half from outside, which ends a write
/// that waits for the peer; what the kernel took before counts, and is sent.
pub(in crate::flow) fn send(
    slot: &Slot,
    stream: &TcpStream,
    supply: &Supply,
    share: Option<u64>,
    mut pacer: Option<Pacer>,
    stop: &AtomicBool,
    sampler: &Thread,
) {
    slot.run(sampler, || {
        let mut sent = 0u64;
        while !stop.load(Ordering::Relaxed) {
            let left = share.map_or(u64::MAX, |share| share - sent);
            let allowed = pacer.as_mut().map_or(u64::MAX, |pacer| pacer.allowance(stop));
            let count = (supply.length() as u64).min(left).min(allowed);
            if count == 0 {
                break;
            }
            match supply.write(stream, count as usize) {
                Ok(count) => {
                    sent += count as u64;
                    slot.moved.set(sent);
                    if let Some(pacer) = &mut pacer {
                        pacer.spend(count as u64);
                    }
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::BrokenPipe && stop.load(Ordering::Acquire) => {
                    break;
                }
                Err(e) => return Err(e),
            }
        }
        match stream.shutdown(Shutdown::Write) {
            // The peer, which has closed already, says so elsewhere.
            Err(e) if e.kind() != ErrorKind::NotConnected => Err(e),
            _ => Ok(Instant::now()),
        }
    });
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn noise_does_not_compress() {
        let bytes = noise(100_003);
        assert_eq!(bytes.len(), 100_003);
        let mut seen = [0u32; 256];
        bytes.iter().for_each(|&byte| seen[usize::from(byte)] += 1);
        assert!(seen.iter().all(|count| (250..550).contains(count)), "{seen:?}");
    }

    #[test]
    fn a_file_sends_the_same_bytes_as_memory() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        for zero_copy in [false, true] {
            let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut far, _) = listener.accept().unwrap();
            let supply = Supply::new(5000, zero_copy).unwrap();
            assert_eq!(supply.write(&near, 5000).unwrap(), 5000);
            assert_eq!(supply.write(&near, 10).unwrap(), 10);
            let mut bytes = vec![0; 5010];
            far.read_exact(&mut bytes).unwrap();
            let noise = noise(5000);
            assert!(bytes[..5000] == noise && bytes[5000..] == noise[..10]);
        }
    }
}
