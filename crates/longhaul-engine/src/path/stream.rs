//! Streams of probes, which measure loss, reordering and jitter.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::plan::StreamSpec;
use longhaul_core::result::SentProbes;
use longhaul_core::wire::{PROBE_BYTES, ProbeHeader, ProbeKind};
use longhaul_sys::poll;
use longhaul_sys::probe::now_nanos;
use rustix::io::Errno;

use super::flow::ProbeFlow;

/// The longest sleep before a sender checks whether to stop.
const STOP_CHECK: Duration = Duration::from_millis(20);

/// Sends the stream of `spec`, each packet at its time, until `stopped`.
pub(super) fn send(
    flow: &ProbeFlow,
    spec: &StreamSpec,
    stopped: impl Fn() -> bool,
) -> io::Result<SentProbes> {
    let payload = spec.packet_bytes.saturating_sub(flow.header_bytes()).max(PROBE_BYTES as u32);
    let mut packet = vec![0; payload as usize];
    let mut sent = SentProbes::default();
    let begun = Instant::now();
    while sent.datagrams < spec.datagrams {
        let due = Duration::from_nanos(sent.datagrams.saturating_mul(spec.interval_ns));
        if stopped() {
            break;
        }
        if let Some(early) = due.checked_sub(begun.elapsed()).filter(|early| !early.is_zero()) {
            thread::sleep(early.min(STOP_CHECK));
            continue;
        }
        let header = ProbeHeader {
            tag: flow.shared.tag,
            kind: ProbeKind::Stream,
            train: 0,
            answer_bytes: 0,
            number: sent.datagrams as u32,
            sent_ns: now_nanos(),
            arrived_ns: 0,
            last: sent.datagrams,
        };
        packet[..PROBE_BYTES].copy_from_slice(&header.encode());
        match flow.shared.send(&packet, None) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                poll::writable(&flow.shared.socket, STOP_CHECK);
                continue;
            }
            // The interface's queue was full.
            Err(error) if error.raw_os_error() == Some(Errno::NOBUFS.raw_os_error()) => {
                sent.dropped += 1;
            }
            Err(error) => return Err(error),
        }
        sent.datagrams += 1;
    }
    Ok(SentProbes { seconds: begun.elapsed().as_secs_f64(), ..sent })
}
