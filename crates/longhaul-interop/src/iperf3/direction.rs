//! The directions of a test at one end: their roles, their streams and their runs.

use std::net::{Shutdown, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::plan::{Direction, TestPlan};
use longhaul_core::result::{End, SideResult, SideSample, TestSample};
use longhaul_engine::EngineError;

use super::output::Connected;
use longhaul_engine::test::{DatagramFormat, EndRun, Ending, TestLimits, TestMemory};

/// The time after a test in which the receiver discards bytes that still arrive.
const DISCARD_LIMIT: Duration = Duration::from_secs(10);

/// One direction of a test at one end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TestDirection {
    /// The role of this end.
    pub(super) role: End,
    /// True for the direction from server to client of a bidirectional test.
    pub(super) reverse: bool,
}

impl TestDirection {
    /// Returns the directions of a test in the order of its streams.
    pub(super) fn all(direction: Direction, at_client: bool) -> Vec<TestDirection> {
        let role =
            |client_sends| if client_sends == at_client { End::Sender } else { End::Receiver };
        let forward = TestDirection { role: role(true), reverse: false };
        match direction {
            Direction::Forward => vec![forward],
            Direction::Reverse => vec![TestDirection { role: role(false), reverse: false }],
            Direction::Both => vec![forward, TestDirection { role: role(false), reverse: true }],
        }
    }
}

/// The sockets of one direction, in the order of the streams.
#[derive(Debug)]
pub(super) enum Sockets {
    Tcp(Vec<TcpStream>),
    Udp(Vec<UdpSocket>),
}

impl Sockets {
    /// Returns the addresses of the streams; a socket that is gone has none.
    pub(super) fn connected(&self) -> Vec<Connected> {
        let both = |local: std::io::Result<_>, remote: std::io::Result<_>| {
            Some(Connected { local: local.ok()?, remote: remote.ok()? })
        };
        match self {
            Sockets::Tcp(streams) => {
                streams.iter().filter_map(|s| both(s.local_addr(), s.peer_addr())).collect()
            }
            Sockets::Udp(flows) => {
                flows.iter().filter_map(|s| both(s.local_addr(), s.peer_addr())).collect()
            }
        }
    }
}

/// The shared parts of the runs of all directions.
#[derive(Clone, Copy)]
pub(super) struct Runs<'a> {
    pub(super) plan: &'a TestPlan,
    pub(super) at_client: bool,
    pub(super) limits: &'a TestLimits,
    pub(super) memory: Option<&'a TestMemory>,
    pub(super) format: &'a Arc<dyn DatagramFormat>,
    pub(super) stop: &'a AtomicBool,
    pub(super) abort: &'a AtomicBool,
}

/// A message from a run.
pub(super) enum Note {
    Sample(SideSample),
    End(Result<SideResult, EngineError>),
}

impl Runs<'_> {
    /// Runs one direction over its sockets and sends its samples and its result to `notes`.
    pub(super) fn run(&self, half: TestDirection, sockets: Sockets, notes: &mpsc::Sender<Note>) {
        let end = EndRun {
            plan: self.plan,
            at_client: self.at_client,
            role: half.role,
            reverse: half.reverse,
            ending: if self.at_client { Ending::Amount } else { Ending::Stop },
            limits: self.limits,
            memory: self.memory,
            stop: self.stop,
            abort: self.abort,
        };
        let on_sample = |sample| drop(notes.send(Note::Sample(sample)));
        let result = match sockets {
            Sockets::Tcp(streams) => end.tcp(streams, on_sample),
            Sockets::Udp(sockets) => end.udp(sockets, self.format, on_sample),
        };
        if !matches!(&result, Ok(result) if result.cut.is_none()) {
            // If one direction breaks, the other ends, too.
            self.abort.store(true, Ordering::Release);
        }
        let _ = notes.send(Note::End(result));
    }
}

/// Returns the sample of an interval of which only this end is known.
pub(super) fn sample_of(half: TestDirection, sample: &SideSample) -> TestSample {
    match half.role {
        End::Sender => TestSample::of_sender(sample),
        End::Receiver => TestSample::join(sample, None),
    }
}

/// The duplicates of the sockets of an end, which stay open after its run.
#[derive(Debug, Default)]
pub(super) struct KeptSockets {
    streams: Vec<(End, TcpStream)>,
    /// Without them, a sender whose datagrams still arrive would see errors of the network.
    flows: Vec<UdpSocket>,
}

impl KeptSockets {
    /// Duplicates the sockets of `sockets`, which this end uses as `role`.
    ///
    /// # Errors
    /// No descriptor is free.
    pub(super) fn add(&mut self, role: End, sockets: &Sockets) -> std::io::Result<()> {
        match sockets {
            Sockets::Tcp(streams) => {
                for stream in streams {
                    self.streams.push((role, stream.try_clone()?));
                }
            }
            Sockets::Udp(flows) => {
                for flow in flows {
                    self.flows.push(flow.try_clone()?);
                }
            }
        }
        Ok(())
    }

    /// Discards the bytes that still arrive on the connections of a receiver, until the peer closes
    /// them or `over` is set. Without this, a peer whose send buffer is full would not read its
    /// control connection.
    pub(super) fn discard<'scope>(
        &'scope self,
        scope: &'scope thread::Scope<'scope, '_>,
        over: &'scope AtomicBool,
    ) {
        for (role, stream) in &self.streams {
            if *role == End::Receiver {
                let spawned = thread::Builder::new().spawn_scoped(scope, || discard(stream, over));
                if spawned.is_err() {
                    // The peer sees the end of the connection instead.
                    let _ = stream.shutdown(Shutdown::Both);
                }
            }
        }
    }
}

fn discard(mut stream: &TcpStream, over: &AtomicBool) {
    let until = Instant::now() + DISCARD_LIMIT;
    let _ = stream.set_read_timeout(Some(Duration::from_millis(50)));
    let mut bytes = vec![0; 256 << 10];
    while !over.load(Ordering::Relaxed) && Instant::now() < until {
        match std::io::Read::read(&mut stream, &mut bytes) {
            Ok(0) => return,
            Ok(_) => {}
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}
