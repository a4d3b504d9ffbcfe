//! The data connections of a test at the server.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use longhaul_core::plan::{Protocol, TestPlan};
use longhaul_engine::Result;
use longhaul_engine::test::set_options;

use super::registry::Destination;
use crate::iperf3::direction::{Sockets, TestDirection};

/// The data connections that arrive for a test.
pub(super) enum Arriving {
    Tcp(Receiver<(u64, std::net::TcpStream)>),
    Udp(Receiver<std::net::UdpSocket>),
}

/// Returns the two ends of the channel for the data connections of `plan`.
pub(super) fn channel(plan: &TestPlan) -> (Destination, Arriving) {
    if plan.protocol == Protocol::Udp {
        let (sender, receiver) = mpsc::channel();
        (Destination::Udp(sender), Arriving::Udp(receiver))
    } else {
        let (sender, receiver) = mpsc::channel();
        (Destination::Tcp(sender), Arriving::Tcp(receiver))
    }
}

/// Waits until `count` connections have arrived; `None` if they do not arrive by `until` or the
/// client has left.
pub(super) fn collect<T>(
    arriving: &Receiver<T>,
    count: usize,
    until: Instant,
    present: impl Fn() -> bool,
) -> Option<Vec<T>> {
    let mut found = Vec::new();
    while found.len() < count {
        match arriving.recv_timeout(Duration::from_millis(100)) {
            Ok(one) => found.push(one),
            Err(RecvTimeoutError::Timeout) if Instant::now() < until && present() => {}
            Err(_) => return None,
        }
    }
    Some(found)
}

impl Arriving {
    /// Waits for the connections of all directions, in their order.
    pub(super) fn all(
        &self,
        plan: &TestPlan,
        until: Instant,
        present: impl Fn() -> bool,
    ) -> Option<Vec<(TestDirection, Sockets)>> {
        let (halves, each) = (TestDirection::all(plan.direction, false), plan.streams as usize);
        let count = halves.len() * each;
        let sockets: Vec<Sockets> = match self {
            Arriving::Tcp(streams) => {
                let mut numbered = collect(streams, count, until, present)?;
                numbered.sort_by_key(|(number, _)| *number);
                let streams = numbered.into_iter().map(|(_, stream)| stream).collect();
                chunks(streams, each).map(Sockets::Tcp).collect()
            }
            Arriving::Udp(flows) => {
                chunks(collect(flows, count, until, present)?, each).map(Sockets::Udp).collect()
            }
        };
        Some(halves.into_iter().zip(sockets).collect())
    }
}

fn chunks<T>(all: Vec<T>, each: usize) -> impl Iterator<Item = Vec<T>> {
    let mut all = all.into_iter();
    std::iter::from_fn(move || {
        let chunk: Vec<T> = all.by_ref().take(each).collect();
        (!chunk.is_empty()).then_some(chunk)
    })
}

/// Sets the options of `plan` on all connections.
///
/// # Errors
/// The kernel rejects an option.
pub(super) fn prepare(plan: &TestPlan, halves: &[(TestDirection, Sockets)]) -> Result<()> {
    for (half, sockets) in halves {
        match sockets {
            Sockets::Tcp(streams) => {
                for stream in streams {
                    stream.set_nonblocking(false).map_err(|source| {
                        let operation = "set up a data connection";
                        longhaul_engine::EngineError::System { operation, source }
                    })?;
                    set_options(plan, half.role, stream, true)?;
                }
            }
            Sockets::Udp(flows) => {
                for flow in flows {
                    set_options(plan, half.role, flow, true)?;
                }
            }
        }
    }
    Ok(())
}
