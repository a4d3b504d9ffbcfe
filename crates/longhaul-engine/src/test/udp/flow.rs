//! The UDP flow of a test.

use std::io;
use std::net::{Shutdown, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use longhaul_core::result::{End, UdpCounts};
use longhaul_core::wire::{DATAGRAM_HEADER_BYTES, DatagramHeader};
use longhaul_sys::tcp::{Granted, SocketMemory, socket_memory};
use longhaul_sys::udp;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use socket2::SockRef;

use crate::lock;
use crate::test::block_format::DatagramFormat;

/// The timeout of a call on the socket, after which the thread checks for shutdown.
const SHUT_CHECK: Duration = Duration::from_millis(100);
/// The interval between reports of a receiver.
const REPORT_EVERY: Duration = Duration::from_millis(250);
/// The interval between end marks of a sender until the receiver has seen one.
const MARK_EVERY: Duration = Duration::from_millis(20);
/// The default receive buffer: 25 ms at 20 Gb/s, which is longer than a thread waits for a busy
/// core. The kernel's default holds three merged datagrams.
const RECEIVE_BUFFER_BYTES: usize = 64 << 20;
/// The receive buffers of all flows of a test, so that a client cannot request gigabytes.
const ALL_BUFFERS_BYTES: usize = 128 << 20;
const SEND_BUFFER_BYTES: usize = 4 << 20;

/// Returns the largest receive buffer of each of `flows` sockets.
pub(in crate::test) fn receive_buffer_bytes(flows: usize) -> usize {
    RECEIVE_BUFFER_BYTES.min(ALL_BUFFERS_BYTES / flows.max(1))
}

/// One end of a flow of datagrams.
#[derive(Debug)]
pub(in crate::test) struct UdpFlow {
    pub(super) socket: UdpSocket,
    /// Identifies the datagrams; 0 with another format.
    pub(super) tag: u64,
    /// The format of another program; `None` for that of longhaul.
    pub(super) format: Option<Arc<dyn DatagramFormat>>,
    payload_bytes: u32,
    shut: AtomicBool,
    pub(super) counted: Counted,
    /// The total that the sender announced, at the end.
    pub(super) total: OnceLock<u64>,
    /// True after the receiver saw the end mark.
    pub(super) end_seen: AtomicBool,
    /// The datagrams that the receiver has reported, at the sender.
    reported: AtomicU64,
    said: Mutex<Option<Instant>>,
}

/// The counters of the flow. Only the flow's thread writes them.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Counted {
    datagrams: AtomicU64,
    expected: AtomicU64,
    late: AtomicU64,
    duplicated: AtomicU64,
    reordered: AtomicU64,
    host_dropped: AtomicU64,
    jitter_ns: AtomicU64,
}

impl Counted {
    pub(super) fn set(&self, counts: &UdpCounts) {
        self.datagrams.store(counts.datagrams, Ordering::Relaxed);
        self.expected.store(counts.expected, Ordering::Relaxed);
        self.late.store(counts.late, Ordering::Relaxed);
        self.duplicated.store(counts.duplicated, Ordering::Relaxed);
        self.reordered.store(counts.reordered, Ordering::Relaxed);
        self.host_dropped.store(counts.host_dropped, Ordering::Relaxed);
        self.jitter_ns.store((counts.jitter_ms * 1e6) as u64, Ordering::Relaxed);
    }

    fn get(&self) -> UdpCounts {
        UdpCounts {
            datagrams: self.datagrams.load(Ordering::Relaxed),
            expected: self.expected.load(Ordering::Relaxed),
            late: self.late.load(Ordering::Relaxed),
            duplicated: self.duplicated.load(Ordering::Relaxed),
            reordered: self.reordered.load(Ordering::Relaxed),
            host_dropped: self.host_dropped.load(Ordering::Relaxed),
            jitter_ms: self.jitter_ns.load(Ordering::Relaxed) as f64 / 1e6,
        }
    }
}

impl UdpFlow {
    /// Creates a flow over `socket`, which is connected; `tag` identifies its datagrams. Without a
    /// `window` the socket gets a receive buffer of `buffer_bytes`, which holds datagrams while a
    /// thread waits for its core.
    ///
    /// # Errors
    /// The kernel refuses an option.
    pub(in crate::test) fn new(
        socket: UdpSocket,
        tag: u64,
        payload_bytes: u32,
        window: Option<usize>,
        buffer_bytes: usize,
    ) -> io::Result<Self> {
        let options = SockRef::from(&socket);
        match window {
            Some(bytes) => {
                options.set_send_buffer_size(bytes)?;
                options.set_recv_buffer_size(bytes)?;
            }
            None => {
                options.set_send_buffer_size(SEND_BUFFER_BYTES.min(buffer_bytes))?;
                udp::force_receive_buffer(&socket, buffer_bytes)
                    .or_else(|_| options.set_recv_buffer_size(buffer_bytes))?;
            }
        }
        udp::merge_receives(&socket)?;
        udp::count_drops(&socket)?;
        udp::report_send_drops(&socket, socket.local_addr()?.is_ipv6())?;
        socket.set_nonblocking(false)?;
        socket.set_read_timeout(Some(SHUT_CHECK))?;
        socket.set_write_timeout(Some(SHUT_CHECK))?;
        Ok(UdpFlow {
            socket,
            tag,
            format: None,
            payload_bytes,
            shut: AtomicBool::new(false),
            counted: Counted::default(),
            total: OnceLock::new(),
            end_seen: AtomicBool::new(false),
            reported: AtomicU64::new(0),
            said: Mutex::new(None),
        })
    }

    /// Uses the datagrams of another program, which has neither longhaul's end marks nor its
    /// reports.
    pub(in crate::test) fn with_format(mut self, format: Arc<dyn DatagramFormat>) -> Self {
        self.format = Some(format);
        self
    }

    /// Ends the flow's thread soon. The end mark is sent elsewhere.
    pub(in crate::test) fn shut(&self, how: Shutdown) {
        if how == Shutdown::Both {
            self.shut.store(true, Ordering::Release);
        }
    }

    pub(super) fn is_shut(&self) -> bool {
        self.shut.load(Ordering::Acquire)
    }

    pub(in crate::test) fn local_address(&self) -> Option<SocketAddr> {
        self.socket.local_addr().ok()
    }

    pub(in crate::test) fn counts(&self) -> UdpCounts {
        self.counted.get()
    }

    /// Returns the datagrams that the receiver has reported; `None` in the format of another
    /// program.
    pub(in crate::test) fn reported(&self) -> Option<u64> {
        self.format.is_none().then(|| self.reported.load(Ordering::Relaxed))
    }

    /// Returns whether the receiver has seen the end of the data. Another program does not report
    /// this.
    pub(in crate::test) fn end_confirmed(&self) -> bool {
        self.format.is_some() || self.end_was_seen()
    }

    /// Returns whether the end mark was received, at a receiver, or its report, at a sender.
    pub(in crate::test) fn end_was_seen(&self) -> bool {
        self.end_seen.load(Ordering::Acquire)
    }

    pub(in crate::test) fn granted(&self) -> io::Result<Granted> {
        let options = SockRef::from(&self.socket);
        Ok(Granted {
            // The kernel doubles the requested size (socket(7)).
            send_buffer_bytes: options.send_buffer_size()? as u64 / 2,
            receive_buffer_bytes: options.recv_buffer_size()? as u64 / 2,
            congestion: String::new(),
            mss: self.payload_bytes,
        })
    }

    pub(in crate::test) fn memory(&self) -> Option<SocketMemory> {
        socket_memory(&self.socket).ok()
    }

    /// Sends reports at a receiver. At a sender, reads reports and sends end marks after its thread
    /// has ended.
    pub(in crate::test) fn attend(&self, role: End, now: Instant) {
        if self.format.is_some() {
            return;
        }
        let (every, header) = match role {
            End::Receiver => (REPORT_EVERY, Some(self.report())),
            End::Sender => {
                self.receive_reports();
                let total = self.total.get().filter(|_| !self.end_confirmed());
                let mark = |total: &u64| DatagramHeader {
                    tag: self.tag,
                    number: *total,
                    end: true,
                    time_ns: 0,
                };
                (MARK_EVERY, total.map(mark))
            }
        };
        let Some(header) = header else { return };
        let mut said = lock(&self.said);
        if said.is_none_or(|said| now.duration_since(said) >= every) {
            *said = Some(now);
            self.send_mark(&header);
        }
    }

    /// Sends `header` without data. Lost ones are repeated.
    pub(super) fn send_mark(&self, header: &DatagramHeader) {
        let _ = send(&self.socket, &header.encode(), SendFlags::DONTWAIT);
    }

    pub(super) fn report(&self) -> DatagramHeader {
        DatagramHeader {
            tag: self.tag,
            number: self.counts().datagrams,
            end: self.end_confirmed(),
            time_ns: 0,
        }
    }

    fn receive_reports(&self) {
        let mut bytes = [0; DATAGRAM_HEADER_BYTES];
        while let Ok((_, count)) = recv(&self.socket, &mut bytes[..], RecvFlags::DONTWAIT) {
            match DatagramHeader::decode(&bytes[..count.min(bytes.len())]) {
                Some(report) if report.tag == self.tag => {
                    self.reported.fetch_max(report.number, Ordering::Relaxed);
                    if report.end {
                        self.end_seen.store(true, Ordering::Release);
                    }
                }
                _ => {}
            }
        }
    }
}
