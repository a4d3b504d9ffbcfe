//! The parameters of a test: the one line with which a client of nuttcp requests it.

mod read;
mod write;

use std::time::Duration;

pub use read::ParameterError;

use super::Version;

/// The maximum number of streams of a test.
pub const MOST_STREAMS: u16 = 128;
/// The number of buffers that means "until the time is over".
const UNLIMITED_BUFFERS: u64 = 2_147_483_647;
/// The rate in kbit/s that means "unlimited".
const UNLIMITED_RATE: u64 = 4_294_967_295;
/// The data port of the first stream, before version 6.2.8.
pub const OLD_DATA_PORT: u16 = 5001;
/// The data port of the first stream, from version 6.2.8.
pub const DATA_PORT: u16 = 5101;

/// The bits of `format`, which select the server's output.
pub mod format {
    /// Interval reports include the bytes sent (UDP).
    pub const TRANSMITTED: u32 = 0x1;
    /// Interval reports include the totals since the start.
    pub const RUNNING_TOTAL: u32 = 0x4;
    /// Reports omit dropped datagrams.
    pub const NO_DROPS: u32 = 0x8;
    /// Reports omit the loss in percent.
    pub const NO_PERCENT_LOSS: u32 = 0x10;
    /// All output has the form `key=value`.
    pub const PARSE: u32 = 0x40;
    /// The last line omits retransmits.
    pub const NO_RETRANSMITS: u32 = 0x100;
    /// The last line includes the RTT.
    pub const RTT: u32 = 0x800;
    /// The last line omits the congestion window.
    pub const NO_CWND: u32 = 0x2000;
}

/// A feature of the protocol that this program does not support.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unsupported {
    /// A traceroute that the server runs.
    Traceroute,
    /// A test between the server and a third host.
    ThirdParty,
    /// UDP to a multicast group.
    Multicast,
    /// Data addresses with a stride, or several links.
    Multilink,
}

/// The parameters of a test, as the option line carries them.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameters {
    /// The bytes of one write, and of one datagram.
    pub buffer_bytes: u32,
    /// The number of buffers to send; `None` is unlimited.
    pub buffers: Option<u64>,
    /// The server's socket buffer in bytes; 0 leaves it to the kernel.
    pub server_window_bytes: u32,
    /// The number of streams, each on a separate port.
    pub streams: u16,
    /// The rate of all streams together in kbit/s; `None` is unlimited.
    pub rate_kbps: Option<u64>,
    /// The data port of the first stream.
    pub port: u16,
    /// True if the client sends.
    pub client_sends: bool,
    /// True if the window applies to the send buffer and the receive buffer of both ends.
    pub both_windows: bool,
    /// The time after which the sender stops; zero is unlimited.
    pub time: Duration,
    /// True for datagrams.
    pub udp: bool,
    /// The time between interval reports; zero is none.
    pub interval: Duration,
    /// True if the receiver opens the data connections.
    pub flip: bool,
    /// Bits of [`mod@format`].
    pub format: u32,
    /// True if the sender does not catch up after a delay.
    pub instant_rate: bool,
    /// The segment size of the data connections; 0 leaves it to the kernel.
    pub mss: u16,
    /// The traffic class of data packets.
    pub tos: u8,
    /// True if the user stated the amount in bytes.
    pub in_bytes: bool,
    /// True if the user stated the rate in packets.
    pub in_packets: bool,
    /// True if the sender disables Nagle's algorithm.
    pub nodelay: bool,
    /// The CPU of the server's process.
    pub server_cpu: Option<u16>,
    /// The number of datagrams that leave at once under an instantaneous limit.
    pub burst: u32,
    /// Bits of the requested jitter: 1 minimum, 2 mean, 4 maximum, 8 ignores reordered datagrams.
    pub jitter: u8,
    /// Bits of the requested one-way delay: 1 minimum, 2 mean, 4 maximum.
    pub delay: u8,
    /// The source port of the data; 0 leaves it to the kernel.
    pub source_port: u16,
    /// True for an emulated slow start.
    pub slow_start: bool,
    /// A requested feature that this program does not support; absent in lines that it writes.
    pub unsupported: Option<Unsupported>,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            buffer_bytes: 65536,
            buffers: None,
            server_window_bytes: 0,
            streams: 1,
            rate_kbps: None,
            port: DATA_PORT,
            client_sends: true,
            both_windows: false,
            time: Duration::from_secs(10),
            udp: false,
            interval: Duration::ZERO,
            flip: false,
            format: format::RTT,
            instant_rate: false,
            mss: 0,
            tos: 0,
            in_bytes: false,
            in_packets: false,
            nodelay: false,
            server_cpu: None,
            burst: 1,
            jitter: 0,
            delay: 0,
            source_port: 0,
            slow_start: false,
            unsupported: None,
        }
    }
}

/// An option of a test that a version of nuttcp lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feature {
    /// The server's CPU (`-xcs`).
    ServerCpu,
    /// A burst under an instantaneous limit (`-Ri.../N`).
    Burst,
    /// Jitter (`-j`).
    Jitter,
    /// One-way delay (`-o`).
    Delay,
    /// The source port of the data (`-p#:#`).
    SourcePort,
    /// The emulated slow start (`-Ris`).
    SlowStart,
    /// A data port below 5000.
    LowPort,
}

impl Feature {
    /// Returns the first version that has the feature.
    #[must_use]
    pub fn since(self) -> Version {
        match self {
            Self::ServerCpu => Version::new(6, 2, 6),
            Self::Burst => Version::new(6, 2, 7),
            Self::LowPort => Version::new(6, 2, 10),
            Self::Jitter | Self::Delay => Version::new(7, 0, 1),
            Self::SourcePort => Version::new(7, 3, 1),
            Self::SlowStart => Version::new(8, 1, 1),
        }
    }
}

impl Parameters {
    /// Returns true if output has the form `key=value`.
    #[must_use]
    pub fn parse_output(&self) -> bool {
        self.format & format::PARSE != 0
    }

    /// Returns the last data port.
    #[must_use]
    pub fn last_port(&self) -> u16 {
        self.port.saturating_add(self.streams - 1)
    }

    /// Returns a feature that these parameters use and `peer` lacks.
    #[must_use]
    pub fn lacking(&self, peer: Version) -> Option<Feature> {
        let uses = [
            (Feature::ServerCpu, self.server_cpu.is_some()),
            (Feature::Burst, self.burst > 1 && !self.client_sends),
            (Feature::Jitter, self.jitter != 0),
            (Feature::Delay, self.delay != 0),
            (Feature::SourcePort, self.source_port != 0),
            (Feature::SlowStart, self.slow_start && !self.client_sends),
            (Feature::LowPort, self.port < 5000),
        ];
        let lacks = |&(feature, used): &(Feature, bool)| used && peer < feature.since();
        uses.into_iter().find(lacks).map(|(feature, _)| feature)
    }
}
