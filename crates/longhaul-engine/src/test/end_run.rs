//! One end of one direction of a test over sockets that another protocol opened.

use std::net::{TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use longhaul_core::plan::TestPlan;
use longhaul_core::result::{End, SideResult, SideSample};

use super::block_format::{BlockFormat, DatagramFormat};
use super::context::{Bounds, Context, Ending, Part, Signals};
use super::end;
use super::limits::TestLimits;
use super::memory::Memory;
use super::mover::Carrier;
use super::options::{accepted_options, socket_options};
use super::placement::Places;
use super::udp::{UdpFlow, receive_buffer_bytes};
use crate::error::{EngineError, Result};

/// One end of one direction of a test over sockets that another protocol opened.
///
/// A run has a thread per socket and samples on the calling thread. It returns in bounded time for
/// every behavior of the peer: see [`TestLimits`]. The caller keeps duplicates of sockets that
/// must stay open after the run.
#[derive(Clone, Copy)]
pub struct EndRun<'a> {
    /// The plan: amount, omitted time, interval, write size, pacing and options.
    pub plan: &'a TestPlan,
    /// True at the client of the test.
    pub at_client: bool,
    /// The role of this end in this direction.
    pub role: End,
    /// True for the direction from server to client of a bidirectional test.
    pub reverse: bool,
    /// The event that ends the data.
    pub ending: Ending,
    /// The limits on time, idle time and rate.
    pub limits: &'a TestLimits,
    /// The memory that a server reserved; `None` at a client.
    pub memory: Option<&'a TestMemory>,
    /// Set to end the data before the time is up.
    pub stop: &'a AtomicBool,
    /// Set to abort the run, because the peer is gone or the other direction failed.
    pub abort: &'a AtomicBool,
}

/// The memory that a server reserves for the buffers of a test until it is dropped.
#[derive(Debug)]
pub struct TestMemory(Memory);

impl TestMemory {
    /// Reserves the memory for `plan` from the pool of `limits`; without a pool all that it needs.
    ///
    /// # Errors
    /// The pool has too little, as a sentence without a full stop.
    pub fn reserve(plan: &TestPlan, limits: &TestLimits) -> std::result::Result<Self, String> {
        Memory::take(plan, limits.pool.as_ref()).map(TestMemory)
    }
}

/// Sets the options of `plan` on the socket of an end with this `role`. The segment size is set
/// only before the connection is opened, so not if the socket was `accepted`.
///
/// # Errors
/// The kernel rejects an option.
pub fn set_options(plan: &TestPlan, role: End, socket: impl AsFd, accepted: bool) -> Result<()> {
    let options = if accepted { accepted_options(plan, role) } else { socket_options(plan, role) };
    Ok(options.apply(socket)?)
}

impl EndRun<'_> {
    /// Runs this end over TCP connections, in the order of the streams, and passes a sample to
    /// `on_sample` every interval.
    ///
    /// # Errors
    /// A CPU of the plan does not exist. A connection that breaks is not an error: the result
    /// states that the test was cut.
    pub fn tcp(
        &self,
        streams: Vec<TcpStream>,
        on_sample: impl FnMut(SideSample),
    ) -> Result<SideResult> {
        self.run(streams.into_iter().map(Carrier::Tcp).collect(), None, on_sample)
    }

    /// Runs this end over TCP connections with blocks of `format`, as [`tcp`](Self::tcp). The end
    /// of a sender's data is [`Ending::HalfClose`], after a whole block.
    ///
    /// # Errors
    /// As [`tcp`](Self::tcp).
    pub fn tcp_blocks(
        &self,
        streams: Vec<TcpStream>,
        format: &dyn BlockFormat,
        on_sample: impl FnMut(SideSample),
    ) -> Result<SideResult> {
        self.run(streams.into_iter().map(Carrier::Tcp).collect(), Some(format), on_sample)
    }

    /// Runs this end over connected UDP sockets with datagrams of `format`, as
    /// [`tcp`](Self::tcp).
    ///
    /// # Errors
    /// As [`tcp`](Self::tcp), and if the kernel rejects an option of a socket.
    pub fn udp(
        &self,
        sockets: Vec<UdpSocket>,
        format: &Arc<dyn DatagramFormat>,
        on_sample: impl FnMut(SideSample),
    ) -> Result<SideResult> {
        let plan = self.plan;
        let most = self.memory.map_or(usize::MAX, |memory| memory.0.socket_bytes);
        let buffer = receive_buffer_bytes(sockets.len()).min(most);
        let window = plan.window_bytes.map(|window| window.get() as usize);
        let flow = |socket| {
            UdpFlow::new(socket, 0, plan.write_bytes.get() as u32, window, buffer)
                .map(|flow| Carrier::Udp(Box::new(flow.with_format(format.clone()))))
                .map_err(|source| EngineError::System { operation: "set up a UDP socket", source })
        };
        let flows = sockets.into_iter().map(flow).collect::<Result<Vec<_>>>()?;
        self.run(flows, None, on_sample)
    }

    fn run(
        &self,
        carriers: Vec<Carrier>,
        blocks: Option<&dyn BlockFormat>,
        on_sample: impl FnMut(SideSample),
    ) -> Result<SideResult> {
        let places = Places::of(self.plan, self.at_client)?;
        let read_bytes = self.memory.map_or(usize::MAX, |memory| memory.0.read_bytes);
        let context = Context {
            plan: self.plan,
            places: &places,
            bounds: Bounds { read_bytes, ..Bounds::new(self.plan, self.limits) },
            signals: Signals { stop: self.stop, abort: self.abort },
            ending: self.ending,
            blocks,
        };
        let part = Part { role: self.role, reverse: self.reverse };
        Ok(end::run(part, carriers, context, on_sample))
    }
}
