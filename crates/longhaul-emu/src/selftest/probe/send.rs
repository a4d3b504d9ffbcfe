//! The sending end of a probe.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use longhaul_sys::datagram;

use super::datagram::{HEADER_BYTES, Header, realtime_nanos, seal};
use super::{SendPlan, Sent};

/// Sends the datagrams of `plan`.
///
/// # Errors
/// The receiver has no address of the family, the socket could not be created, or the kernel
/// rejects a super-packet of this size. A datagram that the kernel rejects for lack of memory
/// counts as not sent.
pub fn send(plan: &SendPlan) -> io::Result<Sent> {
    let threads = if plan.verify { 1 } else { plan.threads.max(1) };
    let part = SendPlan {
        datagrams: plan.datagrams / u64::from(threads),
        interval_seconds: plan.interval_seconds * u32::from(threads),
        ..plan.clone()
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(|| send_alone(&part))).collect();
        let first = send_alone(&part);
        others.into_iter().try_fold(first?, |sum, other| {
            let other = other.join().map_err(|_| io::Error::other("a thread panicked"))??;
            Ok(Sent {
                datagrams: sum.datagrams + other.datagrams,
                refused: sum.refused + other.refused,
                seconds: sum.seconds.max(other.seconds),
            })
        })
    })
}

fn send_alone(plan: &SendPlan) -> io::Result<Sent> {
    let size = usize::from(plan.payload_bytes.max(SendPlan::LEAST_PAYLOAD));
    let ecn = if plan.ecn_capable { 0b10 } else { 0 };
    let socket = datagram::sender(address(plan)?, size as u16, ecn)?;
    // The default timer slack of 50 us would lengthen every interval.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    let mut buffer = filler(size * usize::from(plan.together.max(1)));
    let begun = Instant::now();
    let mut next = Duration::ZERO;
    let mut sent = Sent::default();
    while sent.datagrams < plan.datagrams {
        if let Some(early) = next.checked_sub(begun.elapsed()) {
            std::thread::sleep(early);
        }
        next += plan.interval_seconds;
        let left = usize::try_from(plan.datagrams - sent.datagrams).unwrap_or(usize::MAX);
        let together = left.min(buffer.len() / size);
        let packet = &mut buffer[..together * size];
        let sent_nanos = realtime_nanos();
        for (datagram, number) in packet.chunks_exact_mut(size).zip(sent.datagrams..) {
            seal(datagram, Header { number, sent_nanos }, plan.verify);
        }
        match socket.send(packet) {
            Ok(_) => sent.datagrams += together as u64,
            Err(error) if is_passing(&error) => sent.refused += 1,
            Err(error) => return Err(error),
        }
    }
    sent.seconds = begun.elapsed().as_secs_f64();
    Ok(sent)
}

fn address(plan: &SendPlan) -> io::Result<SocketAddr> {
    let mut all = (plan.to.as_str(), plan.port).to_socket_addrs()?;
    all.find(|address| address.is_ipv6() == plan.ipv6).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::AddrNotAvailable,
            "the receiver has no address of this family",
        )
    })
}

/// Returns whether the error is temporary: a lack of memory, or an ICMP error about an earlier
/// datagram that reached no socket.
fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, Interrupted, OutOfMemory, WouldBlock};
    matches!(error.kind(), ConnectionRefused | Interrupted | OutOfMemory | WouldBlock)
        || error.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error())
}

/// Returns bytes that differ from position to position, so that a misplaced piece is detected.
fn filler(length: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut byte = || {
        // The xorshift64 generator of Marsaglia.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..length.max(HEADER_BYTES)).map(|_| byte()).collect()
}
