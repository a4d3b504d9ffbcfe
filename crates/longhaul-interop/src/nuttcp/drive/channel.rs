//! The control connection, with limits on every wait.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use longhaul_core::units::Rate;

/// The interval at which a waiting thread checks its flags.
pub(super) const LOOK: Duration = Duration::from_millis(20);
/// The time limit of the peer for one step before the test.
pub(super) const STEP_LIMIT: Duration = Duration::from_secs(20);
/// The maximum number of bytes of one read.
const READ_BYTES: usize = 4096;

/// The outcome of one check of the control connection.
#[derive(Debug)]
pub(super) enum ChannelRead {
    /// Bytes of the peer.
    Bytes(Vec<u8>),
    /// Nothing arrived within [`LOOK`].
    Nothing,
    /// The peer closed its half.
    End,
    /// The connection broke.
    Broken(io::Error),
}

/// A control connection.
#[derive(Debug)]
pub(super) struct Channel {
    stream: TcpStream,
}

impl Channel {
    /// Sets the limits of `stream`.
    pub(super) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LOOK))?;
        stream.set_write_timeout(Some(STEP_LIMIT))?;
        Ok(Self { stream })
    }

    pub(super) fn duplicate(&self) -> io::Result<Self> {
        Ok(Self { stream: self.stream.try_clone()? })
    }

    pub(super) fn peer(&self) -> io::Result<SocketAddr> {
        self.stream.peer_addr()
    }

    pub(super) fn local(&self) -> io::Result<SocketAddr> {
        self.stream.local_addr()
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Closes this end's half: a server that waits for datagrams then stops.
    pub(super) fn finish(&self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Returns the segment size.
    pub(super) fn segment_bytes(&self) -> Option<u32> {
        longhaul_sys::tcp::granted(&self.stream).ok().map(|granted| granted.mss)
    }

    /// Returns false if the peer has closed its half.
    pub(super) fn is_open(&self) -> bool {
        match self.stream.peek(&mut [0]) {
            Ok(count) => count > 0,
            Err(e) => matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        }
    }

    /// Waits up to [`LOOK`] for bytes.
    pub(super) fn look(&mut self) -> ChannelRead {
        let mut bytes = vec![0; READ_BYTES];
        match self.stream.read(&mut bytes) {
            Ok(0) => ChannelRead::End,
            Ok(count) => {
                bytes.truncate(count);
                ChannelRead::Bytes(bytes)
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                ChannelRead::Nothing
            }
            Err(e) => ChannelRead::Broken(e),
        }
    }
}

/// The end of a wait.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadline(Instant);

impl Deadline {
    pub(super) fn after(time: Duration) -> Self {
        Self(Instant::now() + time)
    }

    pub(super) fn is_over(self) -> bool {
        Instant::now() >= self.0
    }
}

/// Returns a rate in kbit/s.
pub(super) fn kilobits(rate: Rate) -> u64 {
    (rate.bps() / 1000).max(1)
}
