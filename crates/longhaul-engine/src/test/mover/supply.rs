//! The data that a sender repeats: from memory, or from a pipe without copying.

use std::io::{self, PipeReader, PipeWriter, Write};
use std::net::TcpStream;

use longhaul_sys::memory::AlignedBuffer;
use rustix::pipe::{SpliceFlags, fcntl_setpipe_size, splice, tee};

use crate::noise;

/// Random bytes that all streams of an end share, so that they stay in the cache.
///
/// The buffer begins on a page: on Zen 3 processors the kernel needs twice the time to copy a
/// buffer that begins 16 bytes into a page, where malloc places large ones
/// (bench/runs/2026-11-21-epyc-2core/flow.md).
#[derive(Debug)]
pub(in crate::test) struct Supply {
    noise: AlignedBuffer,
    length: usize,
    zero_copy: bool,
}

impl Supply {
    /// Creates `length` bytes for each write; with `zero_copy` at most the capacity of a pipe.
    pub(in crate::test) fn new(length: usize, zero_copy: bool) -> Self {
        Supply { noise: payload(length), length, zero_copy }
    }

    /// Returns a copy of the data of one write.
    pub(in crate::test) fn block(&self) -> Vec<u8> {
        self.noise[..self.length].to_vec()
    }

    /// Returns the source of one stream's data.
    ///
    /// # Errors
    /// No pipe could be created.
    pub(super) fn feed(&self) -> io::Result<Feed<'_>> {
        let bytes = &self.noise[..self.length];
        Ok(if self.zero_copy { Feed::Pipe(Pipes::new(bytes)?) } else { Feed::Memory(bytes) })
    }
}

/// The source of one stream's data.
#[derive(Debug)]
pub(super) enum Feed<'a> {
    /// Memory, sent by write(2).
    Memory(&'a [u8]),
    /// A pipe, sent by splice(2): the kernel sends the pipe's pages.
    Pipe(Pipes),
}

impl Feed<'_> {
    /// Returns the maximum number of bytes of one write.
    pub(super) fn length(&self) -> usize {
        match self {
            Feed::Memory(bytes) => bytes.len(),
            Feed::Pipe(pipes) => pipes.length,
        }
    }

    /// Sends `count` bytes, or as many as the socket accepts.
    pub(super) fn write(&mut self, mut stream: &TcpStream, count: usize) -> io::Result<usize> {
        match self {
            Feed::Memory(bytes) => stream.write(&bytes[..count]),
            Feed::Pipe(pipes) => pipes.write(stream, count),
        }
    }
}

/// A pipe full of random bytes, and a second one through which they pass repeatedly by reference:
/// tee(2), then splice(2). Over loopback this costs a tenth less than sendfile(2). MSG_ZEROCOPY
/// copies there nevertheless (skb_orphan_frags_rx() in include/linux/skbuff.h) and adds
/// notifications (bench/runs/2026-11-21-epyc-2core/flow.md).
#[derive(Debug)]
pub(super) struct Pipes {
    full: PipeReader,
    /// Keeps the pipe `full` open.
    _writer: PipeWriter,
    through: (PipeReader, PipeWriter),
    /// The bytes in `full`.
    length: usize,
    /// The bytes in `through`.
    held: usize,
}

/// The capacity of a pipe: larger ones gained nothing, and the capacity of all pipes of a user is
/// limited (pipe-user-pages-soft, proc_sys_fs(5)).
const PIPE_BYTES: usize = 256 << 10;

impl Pipes {
    fn new(noise: &[u8]) -> io::Result<Self> {
        let (full, mut writer) = io::pipe()?;
        let through = io::pipe()?;
        let mut length = PIPE_BYTES;
        for pipe in [&writer, &through.1] {
            // Beyond the user's limit a pipe keeps its capacity, which the error does not contain.
            length = match fcntl_setpipe_size(pipe, PIPE_BYTES) {
                Ok(_) => length,
                Err(_) => rustix::pipe::fcntl_getpipe_size(pipe)?.min(length),
            };
        }
        let length = noise.len().min(length);
        writer.write_all(&noise[..length])?;
        Ok(Pipes { full, _writer: writer, through, length, held: 0 })
    }

    fn write(&mut self, stream: &TcpStream, count: usize) -> io::Result<usize> {
        if self.held == 0 {
            self.held = tee(&self.full, &self.through.1, count, SpliceFlags::empty())?;
        }
        let count = count.min(self.held);
        let sent = splice(&self.through.0, None, stream, None, count, SpliceFlags::empty())?;
        self.held -= sent;
        Ok(sent)
    }
}

/// Returns `length` random bytes, rounded up to whole pages: a path that compresses would be too
/// fast with zeros.
pub(in crate::test) fn payload(length: usize) -> AlignedBuffer {
    let mut buffer = AlignedBuffer::new(length);
    noise(&mut buffer);
    buffer
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_pipe_sends_the_same_bytes_as_memory() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        for zero_copy in [false, true] {
            let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut far, _) = listener.accept().unwrap();
            let supply = Supply::new(5000, zero_copy);
            let mut feed = supply.feed().unwrap();
            assert_eq!(feed.length(), 5000);
            // Twice from the beginning: sending does not consume the data.
            for count in [5000, 10, 5000] {
                assert_eq!(feed.write(&near, count).unwrap(), count);
            }
            near.write_all(b"end").unwrap();
            let mut bytes = vec![0; 10_013];
            far.read_exact(&mut bytes).unwrap();
            let noise = &payload(5000)[..5000];
            assert!(bytes[..5000] == *noise && bytes[5000..5010] == noise[..10]);
            assert!(bytes[5010..10_010] == *noise && bytes[10_010..] == *b"end");
        }
    }

    #[test]
    fn bytes_that_a_socket_did_not_take_are_sent_next() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let supply = Supply::new(10_000, true);
        let Feed::Pipe(mut pipes) = supply.feed().unwrap() else { panic!("not a pipe") };
        // The state after a short write of a full pipe.
        pipes.held = tee(&pipes.full, &pipes.through.1, 10_000, SpliceFlags::empty()).unwrap();
        assert_eq!(pipes.write(&near, 3000).unwrap(), 3000);
        assert_eq!(pipes.write(&near, 10_000).unwrap(), 7000);
        assert_eq!(pipes.held, 0);
        let mut bytes = vec![0; 10_000];
        far.read_exact(&mut bytes).unwrap();
        assert!(bytes == payload(10_000)[..10_000]);
    }
}
