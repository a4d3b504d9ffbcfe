//! The TCP connections with the highest rates.

use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant};

use longhaul_core::units::{Bytes, Rate};
use longhaul_sys::cpu::ThreadClock;
use longhaul_sys::traffic::{FlowReader, TcpFlow};

use crate::programs::Programs;
use crate::sample::FlowSample;

/// The maximum number of connections whose counters are kept; further ones are ignored.
const MOST: usize = 50_000;
/// The reciprocal of the share of a core that listings may use: 0.25 %.
const COST: u32 = 400;

/// Lists the connections, and compares their counters with those of the previous listing.
#[derive(Debug)]
pub(crate) struct FlowSampler {
    reader: FlowReader,
    shown: usize,
    interval: Duration,
    programs: Option<Programs>,
    known: HashMap<u64, Counted>,
    listed: Option<Instant>,
    /// The earliest time of the next listing.
    due: Instant,
    found: Vec<FlowSample>,
}

/// The counters of a connection at the previous listing.
#[derive(Debug, Clone, Copy)]
struct Counted {
    received: u64,
    acked: u64,
    retransmits: u64,
}

impl FlowSampler {
    /// Creates a sampler that returns the `shown` fastest connections, lists them at most once per
    /// `interval`, and names their programs if it has `programs`.
    pub(crate) fn open(
        shown: usize,
        interval: Duration,
        programs: Option<Programs>,
    ) -> io::Result<Self> {
        Ok(FlowSampler {
            reader: FlowReader::open()?,
            shown,
            interval,
            programs,
            known: HashMap::new(),
            listed: None,
            due: Instant::now(),
            found: Vec::new(),
        })
    }

    /// Returns the fastest connections. A host with many connections is listed less often, so that
    /// listings use at most 0.25 % of a core; between listings the function returns the last one.
    pub(crate) fn sample(&mut self, now: Instant) -> io::Result<Vec<FlowSample>> {
        if now >= self.due {
            let clock = ThreadClock::current();
            let before = clock.elapsed()?;
            // The second listing gives the first rates, so it comes soon.
            let pause = if self.listed.is_some() { self.interval } else { Duration::ZERO };
            self.list(now)?;
            let used = clock.elapsed()?.saturating_sub(before);
            self.due = now + pause.max(used * COST);
        }
        Ok(self.found.clone())
    }

    fn list(&mut self, now: Instant) -> io::Result<()> {
        let span = self.listed.map(|listed| now.saturating_duration_since(listed));
        let mut current = HashMap::with_capacity(self.known.len().min(MOST));
        let mut found = Vec::new();
        let known = &self.known;
        self.reader.flows(|flow| {
            let counted = Counted {
                received: flow.info.received_bytes,
                acked: flow.info.acked_bytes,
                retransmits: flow.info.retransmits,
            };
            if current.len() >= MOST {
                return;
            }
            current.insert(flow.cookie, counted);
            // Without an earlier listing there is no time to divide by; a connection that it did not list
            // is younger, so its counters are those of the interval.
            let Some(span) = span else { return };
            let before = known.get(&flow.cookie).copied().unwrap_or(Counted {
                received: 0,
                acked: 0,
                retransmits: 0,
            });
            found.extend(moved(&flow, &before, span).map(|sample| (flow.inode, sample)));
        })?;
        found.sort_by_key(|(_, flow)| {
            std::cmp::Reverse(flow.in_rate.bps().saturating_add(flow.out_rate.bps()))
        });
        found.truncate(self.shown);
        self.known = current;
        self.listed = Some(now);
        if let Some(programs) = &mut self.programs {
            programs.update(&found.iter().map(|(inode, _)| *inode).collect(), now)?;
        }
        let program = |inode| self.programs.as_ref().and_then(|programs| programs.of(inode));
        let named = |(inode, flow)| FlowSample { program: program(inode), ..flow };
        self.found = found.into_iter().map(named).collect();
        Ok(())
    }
}

/// Returns the sample of a connection that moved data.
fn moved(flow: &TcpFlow<'_>, before: &Counted, span: Duration) -> Option<FlowSample> {
    let info = &flow.info;
    let received = info.received_bytes.saturating_sub(before.received);
    let acked = info.acked_bytes.saturating_sub(before.acked);
    if received == 0 && acked == 0 && flow.queued_bytes == 0 {
        return None;
    }
    let segments = info.congestion_window_segments;
    Some(FlowSample {
        local: flow.local,
        peer: flow.peer,
        user: flow.user,
        program: None,
        congestion: flow.congestion.to_owned(),
        in_rate: Rate::mean(Bytes::new(received), span),
        out_rate: Rate::mean(Bytes::new(acked), span),
        rtt: info.rtt,
        min_rtt: info.min_rtt,
        window_segments: segments,
        window_bytes: u64::from(segments) * u64::from(info.send_mss),
        delivery_rate: Rate::from_bps(info.delivery_bytes_per_second.saturating_mul(8)),
        delivery_app_limited: info.delivery_app_limited,
        retransmits: info.retransmits.saturating_sub(before.retransmits),
        queued_bytes: flow.queued_bytes,
        unread_bytes: flow.unread_bytes,
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_connection_that_moves_data_is_found_with_its_rate() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let programs = Some(Programs::new());
        let mut sampler = FlowSampler::open(usize::MAX, Duration::ZERO, programs).unwrap();
        let start = Instant::now();
        assert!(sampler.sample(start).unwrap().is_empty(), "a rate needs two listings");
        for _ in 0..100 {
            near.write_all(&[7; 10_000]).unwrap();
            far.read_exact(&mut [0; 10_000]).unwrap();
        }
        // The time is virtual: the counters are divided by exactly a thousand seconds.
        let found = sampler.sample(start + Duration::from_secs(1000)).unwrap();
        let receiver = found.iter().find(|flow| flow.local == near.peer_addr().unwrap()).unwrap();
        assert_eq!((receiver.in_rate.bps(), receiver.peer), (8_000, near.local_addr().unwrap()));
        let own = std::fs::read_to_string("/proc/self/comm").unwrap();
        assert_eq!(receiver.program.as_deref(), Some(own.trim_end()));
        let sender = found.iter().find(|flow| flow.local == near.local_addr().unwrap()).unwrap();
        assert!(
            sender.window_bytes >= u64::from(sender.window_segments) && sender.rtt > Duration::ZERO
        );
        let later = sampler.sample(start + Duration::from_secs(90_000)).unwrap();
        assert!(later.iter().all(|flow| flow.local != near.peer_addr().unwrap()), "it is idle");
    }
    #[test]
    fn connections_are_listed_once_per_interval() {
        let mut sampler = FlowSampler::open(20, Duration::from_secs(1000), None).unwrap();
        let start = Instant::now();
        let mut listed = |seconds| {
            sampler.sample(start + Duration::from_secs(seconds)).unwrap();
            sampler.listed.unwrap() - start
        };
        // The first two give rates.
        let times = [0, 5000, 5999, 6000].map(&mut listed).map(|at| at.as_secs());
        assert_eq!(times, [0, 5000, 5000, 6000]);
    }
}
