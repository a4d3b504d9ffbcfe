//! The sending thread of a TCP stream.

use std::io::ErrorKind;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::Instant;

use super::{Pacer, Slot, Supply};

/// Sends from `supply` until `share` bytes are sent or `stop` is set, at the pacer's rate. Then it
/// closes its half of `stream`.
///
/// After `stop` another thread must shut down the writing half, which ends a blocked write. The
/// bytes that the kernel accepted before count and are sent.
pub(in crate::test) fn send(
    slot: &Slot,
    stream: &TcpStream,
    supply: &Supply,
    share: Option<u64>,
    mut pacer: Option<Pacer>,
    stop: &AtomicBool,
    sampler: &Thread,
) {
    slot.run(sampler, || {
        let mut feed = supply.feed()?;
        let mut sent = 0u64;
        while !stop.load(Ordering::Relaxed) {
            let left = share.map_or(u64::MAX, |share| share - sent);
            let allowed = pacer.as_mut().map_or(u64::MAX, |pacer| pacer.allowance(stop));
            let count = (feed.length() as u64).min(left).min(allowed);
            if count == 0 {
                break;
            }
            match feed.write(stream, count as usize) {
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
            // A peer that has closed reports so on the control channel.
            Err(e) if e.kind() != ErrorKind::NotConnected => Err(e),
            _ => Ok(Instant::now()),
        }
    });
}
