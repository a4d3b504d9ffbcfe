//! This end of a test: the data, and the figures of this end.

use std::io;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use longhaul_core::plan::TestPlan;
use longhaul_core::result::{End, SideResult, SideSample};
use longhaul_engine::test::{EndRun, Ending, TestLimits, TestMemory};

use super::blocks::Marks;
use super::datagrams::{self, Datagrams};
use super::open::Sockets;
use crate::error::{InteropError, Result};
use crate::nuttcp::{BlockTotals, Parameters, Retransmits, Spread};

/// The use of this host by a test.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Usage {
    /// The CPU time of the test's threads.
    pub cpu: Duration,
}

/// The figures of this end.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LocalEnd {
    /// The bytes that this end moved.
    pub bytes: u64,
    /// The seconds that this end measured.
    pub seconds: f64,
    /// The use of this host.
    pub usage: Usage,
    /// The retransmits of this end, if it sends over TCP.
    pub retransmits: Option<u64>,
    /// The sum of the congestion windows in bytes at the last sample, if it sends over TCP.
    pub cwnd_bytes: u64,
    /// The jitter, if this end measured it.
    pub jitter: Option<Spread>,
    /// The one-way delay, if this end measured it.
    pub delay: Option<Spread>,
}

impl LocalEnd {
    /// Returns the figures of the engine's result.
    pub(super) fn of(side: &SideResult, cwnd_bytes: u64, run: &DataRun<'_>) -> Self {
        let sends = run.role == End::Sender && !run.parameters.udp;
        let (jitter, delay) = run.datagrams.spreads();
        Self {
            bytes: side.streams.iter().map(|stream| stream.total_bytes.get()).sum(),
            seconds: side.seconds,
            usage: Usage { cpu: Duration::from_secs_f64(side.cpu_seconds.max(0.0)) },
            retransmits: sends.then(|| side.streams.iter().map(|s| s.retransmits).sum()),
            cwnd_bytes,
            jitter,
            delay,
        }
    }

    /// Returns the figures for the lines about this end.
    #[must_use]
    pub fn totals(&self, parameters: &Parameters) -> BlockTotals {
        let connection = self
            .retransmits
            .map(|count| (Retransmits { count, of_host: false }, self.cwnd_bytes / 1024));
        BlockTotals {
            bytes: self.bytes,
            seconds: self.seconds,
            // The threads of a test spend their time in system calls; the engine does not divide it.
            cpu: (Duration::ZERO, self.usage.cpu),
            calls: self.bytes.div_ceil(u64::from(parameters.buffer_bytes).max(1)),
            jitter: self.jitter.filter(|_| parameters.jitter != 0),
            delay: self.delay.filter(|_| parameters.delay != 0),
            connection,
            ..BlockTotals::default()
        }
    }
}

/// The data of this end.
pub(super) struct DataRun<'a> {
    pub(super) parameters: &'a Parameters,
    pub(super) plan: &'a TestPlan,
    pub(super) role: End,
    pub(super) at_client: bool,
    pub(super) limits: &'a TestLimits,
    pub(super) memory: Option<&'a TestMemory>,
    /// Ends the data early.
    pub(super) stop: &'a AtomicBool,
    /// Aborts the data because the peer is gone.
    pub(super) abort: &'a AtomicBool,
    pub(super) marks: &'a Marks,
    pub(super) datagrams: Arc<Datagrams>,
}

impl DataRun<'_> {
    /// Moves the data, and passes a sample to `on_sample` every interval. `over` returns true once
    /// the peer needs no more marks of the end.
    pub(super) fn run(
        &self,
        sockets: Sockets,
        on_sample: impl FnMut(SideSample),
        over: impl Fn() -> bool,
    ) -> Result<SideResult> {
        match sockets {
            Sockets::Tcp(streams) => {
                Ok(self.end(Ending::HalfClose).tcp_blocks(streams, self.marks, on_sample)?)
            }
            Sockets::Udp(sockets) if self.role == End::Sender => {
                self.send(sockets, on_sample, over)
            }
            Sockets::Udp(sockets) => {
                let format = self.format();
                Ok(self.end(Ending::Stop).udp(sockets, &format, on_sample)?)
            }
        }
    }

    fn send(
        &self,
        sockets: Vec<UdpSocket>,
        on_sample: impl FnMut(SideSample),
        over: impl Fn() -> bool,
    ) -> Result<SideResult> {
        let host = |operation| move |source| InteropError::Host { operation, source };
        let kept = sockets.iter().map(UdpSocket::try_clone).collect::<io::Result<Vec<_>>>();
        let kept = kept.map_err(host("duplicate a socket"))?;
        datagrams::begin(&kept).map_err(host("send the first datagram"))?;
        let format = self.format();
        let side = self.end(Ending::Amount).udp(sockets, &format, on_sample)?;
        datagrams::end(&kept, over);
        Ok(side)
    }

    fn format(&self) -> Arc<dyn longhaul_engine::test::DatagramFormat> {
        self.datagrams.clone()
    }

    fn end(&self, ending: Ending) -> EndRun<'_> {
        // A receiver ends with the data, or by its flag.
        let ending = match (self.role, ending) {
            (End::Receiver, Ending::HalfClose) if self.at_client => Ending::Stop,
            (_, ending) => ending,
        };
        EndRun {
            plan: self.plan,
            at_client: self.at_client,
            role: self.role,
            reverse: false,
            ending,
            limits: self.limits,
            memory: self.memory,
            stop: self.stop,
            abort: self.abort,
        }
    }
}
