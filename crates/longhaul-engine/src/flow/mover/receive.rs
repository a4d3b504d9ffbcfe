use std::io::{self, ErrorKind, Read};
use std::net::TcpStream;
use std::sync::OnceLock;
use std::thread::Thread;
use std::time::Instant;

use rustix::net::{RecvFlags, recv};

use super::Slot;

/// Reads `stream` until the peer closes its half. `first` is set when the first bytes are there.
/// With `skip_copy` the kernel drops the bytes (`MSG_TRUNC`, tcp(7)).
pub(in crate::flow) fn receive(
    slot: &Slot,
    mut stream: &TcpStream,
    buffer_bytes: usize,
    skip_copy: bool,
    first: &OnceLock<Instant>,
    sampler: &Thread,
) {
    slot.run(sampler, || {
        let mut buffer = vec![0; buffer_bytes];
        let mut received = 0u64;
        loop {
            let took = match skip_copy {
                false => stream.read(&mut buffer),
                true => recv(stream, &mut buffer[..], RecvFlags::TRUNC)
                    .map(|(_, count)| count)
                    .map_err(io::Error::from),
            };
            match took {
                Ok(0) => break,
                Ok(count) => {
                    if received == 0 {
                        let _ = first.set(Instant::now());
                        sampler.unpark();
                    }
                    received += count as u64;
                    slot.moved.set(received);
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        let end = Instant::now();
        // An end with nothing before it starts the clock too, for a share of no bytes.
        let _ = first.set(end);
        Ok(end)
    });
}
