use std::io::ErrorKind;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::Instant;

use super::{Pacer, Slot, Supply};

/// Sends from `supply` until `share` bytes are sent or `stop` is set, at the pacer's rate, then
/// closes its half of `stream`.
///
/// `stop` is to be followed by a shutdown of the writing half from outside, which ends a write
/// that waits for the peer; what the kernel took before counts, and is sent.
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
            // The peer, which has closed already, says so elsewhere.
            Err(e) if e.kind() != ErrorKind::NotConnected => Err(e),
            _ => Ok(Instant::now()),
        }
    });
}
