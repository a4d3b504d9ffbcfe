//! The sending thread of a UDP flow.

use std::io::{self, ErrorKind};
use std::num::NonZeroU64;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use longhaul_core::result::UdpCounts;
use longhaul_core::wire::{DATAGRAM_HEADER_BYTES, DatagramHeader};
use longhaul_sys::memory::AlignedBuffer;
use longhaul_sys::udp;
use rustix::io::Errno;

use super::UdpFlow;
use crate::test::block_format::SentDatagram;
use crate::test::mover::{Sending, Slot, payload};

/// The maximum number of datagrams that the kernel splits from one send (UDP_MAX_SEGMENTS,
/// linux/udp.h, before Linux 6.9).
const MOST_SEGMENTS: usize = 64;
/// The maximum number of bytes of one send: an IPv6 packet of 65535 bytes without the headers of
/// IPv6 and UDP.
const MOST_BYTES: usize = 65_535 - 48;

/// Sends datagrams of `payload_bytes` until `share` bytes are sent or `stop` is set. The last
/// datagram of a share may be shorter, but contains its header.
pub(in crate::test) fn send(
    slot: &Slot,
    flow: &UdpFlow,
    payload_bytes: usize,
    sending: Sending<'_>,
) {
    let Sending { share, mut pacer, stop, sampler, .. } = sending;
    slot.run(sampler, || {
        if pacer.is_some() {
            // At high rates a burst takes as long as the default slack of 50 us.
            let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        }
        let epoch = Instant::now();
        let mut batch = Batch::new(flow, payload_bytes);
        let (mut counts, mut sent) = (UdpCounts::default(), 0u64);
        let outcome = loop {
            if stop.load(Ordering::Relaxed) || flow.is_shut() {
                break Ok(());
            }
            let left = share.map_or(u64::MAX, |share| share.saturating_sub(sent));
            let allowed = pacer.as_mut().map_or(u64::MAX, |pacer| pacer.allowance(stop));
            if left == 0 || allowed == 0 {
                break Ok(());
            }
            let from = FlowState { number: counts.expected, bytes: sent, time: epoch.elapsed() };
            let filled = batch.fill(from, allowed, left);
            match batch.send(filled.bytes) {
                Ok(()) => counts.datagrams += filled.datagrams,
                // The interface's queue was full.
                Err(e) if e.raw_os_error() == Some(Errno::NOBUFS.raw_os_error()) => {
                    counts.host_dropped += filled.datagrams;
                }
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    continue;
                }
                Err(_) if batch.cut_by_hand() => continue,
                Err(e) => break Err(e),
            }
            counts.expected += filled.datagrams;
            sent += filled.bytes as u64;
            slot.moved.set(sent);
            flow.counted.set(&counts);
            if let Some(pacer) = &mut pacer {
                pacer.spend(filled.bytes as u64);
            }
        };
        let end = Instant::now();
        let _ = flow.total.set(counts.expected);
        outcome.map(|()| end)
    });
}

impl UdpFlow {
    /// Returns the length of the shortest datagram with a header.
    fn header_bytes(&self) -> usize {
        self.format.as_ref().map_or(DATAGRAM_HEADER_BYTES, |format| format.header_bytes())
    }

    /// Writes the header of a datagram; `stand` includes its bytes.
    fn write_header(&self, datagram: &mut [u8], stand: FlowState) {
        let FlowState { number, bytes, time } = stand;
        match &self.format {
            Some(format) => format.write(datagram, &SentDatagram { number, time, bytes }),
            None => {
                let (tag, time_ns) = (self.tag, time.as_nanos() as u64);
                let header = DatagramHeader { tag, number, end: false, time_ns };
                datagram[..DATAGRAM_HEADER_BYTES].copy_from_slice(&header.encode());
            }
        }
    }
}

/// The datagrams of one send in one buffer.
struct Batch<'a> {
    flow: &'a UdpFlow,
    buffer: AlignedBuffer,
    /// The length of the whole datagrams in the buffer.
    length: usize,
    payload_bytes: usize,
    /// True if the kernel splits; otherwise a batch is one datagram.
    segmented: bool,
}

struct FilledBatch {
    datagrams: u64,
    bytes: usize,
}

/// The state of a flow before a send.
#[derive(Clone, Copy)]
struct FlowState {
    /// The number of the next datagram.
    number: u64,
    /// The bytes sent.
    bytes: u64,
    /// The time since the start.
    time: Duration,
}

impl<'a> Batch<'a> {
    fn new(flow: &'a UdpFlow, payload_bytes: usize) -> Self {
        let datagrams = (MOST_BYTES / payload_bytes).clamp(1, MOST_SEGMENTS);
        let segment = u16::try_from(payload_bytes).unwrap_or(u16::MAX);
        let segmented = datagrams > 1 && udp::segment_sends(&flow.socket, segment).is_ok();
        let count = if segmented { datagrams } else { 1 };
        let length = count * payload_bytes;
        Batch { flow, buffer: payload(length), length, payload_bytes, segmented }
    }

    /// Writes the headers of as many datagrams as fit `allowed` bytes, but at least one. The last
    /// is shortened to the bytes `left` of a share.
    fn fill(&mut self, mut from: FlowState, allowed: u64, left: u64) -> FilledBatch {
        let first = from.number;
        let allowed = allowed.min(self.length as u64) as usize;
        let whole = (allowed / self.payload_bytes).max(1) * self.payload_bytes;
        let left = usize::try_from(left).unwrap_or(usize::MAX).max(self.flow.header_bytes());
        let bytes = whole.min(left);
        for datagram in self.buffer[..bytes].chunks_mut(self.payload_bytes) {
            from.bytes += datagram.len() as u64;
            self.flow.write_header(datagram, from);
            from.number += 1;
        }
        FilledBatch { datagrams: from.number - first, bytes }
    }

    fn send(&self, bytes: usize) -> io::Result<()> {
        self.flow.socket.send(&self.buffer[..bytes]).map(drop)
    }

    /// Sends single datagrams from now on, if the kernel cannot split: datagrams above the path's
    /// MTU, or an interface without checksums (udp_send_skb(), net/ipv4/udp.c). Returns false if it
    /// did so before.
    fn cut_by_hand(&mut self) -> bool {
        if !self.segmented {
            return false;
        }
        self.segmented = false;
        self.length = self.payload_bytes;
        udp::segment_sends(&self.flow.socket, 0).is_ok()
    }
}
