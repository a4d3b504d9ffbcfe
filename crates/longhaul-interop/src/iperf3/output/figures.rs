//! The figures of a finished test that both forms of the output show.

use longhaul_core::plan::{Protocol, TestPlan};
use longhaul_core::result::{End, SideStream, TcpSample, TestSample};

use super::{Finished, FinishedHalf};
use crate::iperf3::results::StreamResults;
use crate::iperf3::state::stream_id;

/// The first socket number in the output: those of iperf3 begin with 5 and every other one.
pub(super) fn socket_of(index: usize) -> u64 {
    5 + 2 * index as u64
}

/// One stream of a finished test, from both ends.
pub(super) struct StreamFigures<'a> {
    pub(super) socket: u64,
    pub(super) ours: &'a SideStream,
    pub(super) theirs: Option<&'a StreamResults>,
    role: End,
    /// The samples of the sender's connection.
    tcp: Vec<&'a TcpSample>,
    length: u64,
}

impl Finished {
    /// Returns the streams of a direction.
    pub(super) fn streams<'a>(&'a self, half: &'a FinishedHalf) -> Vec<StreamFigures<'a>> {
        let before = self.halves.iter().take_while(|other| other.reverse != half.reverse);
        let first: usize = before.map(|half| half.ours.streams.len()).sum();
        let figures = |(offset, ours): (usize, &'a SideStream)| {
            let index = first + offset;
            let id = stream_id(index);
            let counted = half.samples.iter().filter(|sample| !sample.omitted);
            StreamFigures {
                socket: socket_of(index),
                ours,
                theirs: self.theirs.streams.iter().find(|stream| stream.id == id),
                role: half.role,
                tcp: counted.filter_map(|s| s.streams.get(offset)?.sender.as_ref()).collect(),
                length: self.started.plan.write_bytes.get().max(1),
            }
        };
        half.ours.streams.iter().enumerate().map(figures).collect()
    }
}

impl StreamFigures<'_> {
    /// Returns the bytes and seconds of an end.
    pub(super) fn moved(&self, end: End) -> (u64, f64) {
        if end == self.role {
            return (self.ours.bytes.get(), self.ours.seconds);
        }
        let theirs = self.theirs.map(|theirs| {
            let seconds = theirs.start_time.zip(theirs.end_time).map(|(start, end)| end - start);
            (theirs.bytes, seconds.filter(|s| *s > 0.0).unwrap_or(self.ours.seconds))
        });
        theirs.unwrap_or_default()
    }

    /// Returns the sender's retransmits.
    pub(super) fn retransmits(&self) -> Option<u64> {
        match self.role {
            End::Sender => Some(self.ours.retransmits),
            End::Receiver => self.theirs.and_then(|theirs| theirs.retransmits.try_into().ok()),
        }
    }

    /// Returns the datagrams of an end, without those of the omitted time.
    pub(super) fn packets(&self, end: End) -> u64 {
        if end == self.role {
            return self.ours.udp.map_or(0, |udp| udp.expected);
        }
        self.theirs.map_or(0, |theirs| {
            let packets = theirs.packets - theirs.omitted_packets.unwrap_or(0);
            packets.try_into().unwrap_or(theirs.bytes / self.length)
        })
    }

    /// Returns the lost and out-of-order datagrams, as the receiver counts them.
    pub(super) fn lost(&self) -> (u64, u64) {
        match self.role {
            End::Receiver => self.ours.udp.map_or((0, 0), |udp| {
                let lost = udp.expected.saturating_sub(udp.datagrams).saturating_sub(udp.late);
                (lost, udp.reordered)
            }),
            End::Sender => self.theirs.map_or((0, 0), |theirs| {
                let lost = theirs.errors - theirs.omitted_errors.unwrap_or(0);
                (lost.try_into().unwrap_or(0), 0)
            }),
        }
    }

    /// Returns the jitter in ms.
    pub(super) fn jitter_ms(&self) -> f64 {
        match self.role {
            End::Receiver => self.ours.udp.map_or(0.0, |udp| udp.jitter_ms),
            End::Sender => self.theirs.map_or(0.0, |theirs| theirs.jitter * 1e3),
        }
    }

    /// Returns the largest value of the sender's samples.
    pub(super) fn most(&self, of: fn(&TcpSample) -> u64) -> u64 {
        self.tcp.iter().map(|tcp| of(tcp)).max().unwrap_or(0)
    }

    /// Returns least, mean and greatest round-trip time in us.
    pub(super) fn rtts(&self) -> [u64; 3] {
        let times: Vec<u64> = self.tcp.iter().map(|tcp| micros(tcp.rtt_ms)).collect();
        let mean = times.iter().sum::<u64>() / (times.len() as u64).max(1);
        let (least, most) = (times.iter().min(), times.iter().max());
        [least.copied().unwrap_or(0), mean, most.copied().unwrap_or(0)]
    }
}

pub(super) fn micros(ms: f64) -> u64 {
    (ms * 1e3).round() as u64
}

/// Returns the start and end of an interval; after the omitted time they begin with 0 again.
pub(super) fn span(plan: &TestPlan, sample: &TestSample) -> (f64, f64) {
    let shift = if sample.omitted { 0.0 } else { plan.omit.as_secs_f64() };
    ((sample.start_seconds - shift).max(0.0), (sample.end_seconds - shift).max(0.0))
}

/// Returns the datagrams of a stream in an interval: those sent, or those received and lost.
pub(super) fn interval_packets(plan: &TestPlan, sample: &TestSample, stream: usize) -> (u64, u64) {
    let Some(stream) = sample.streams.get(stream) else { return (0, 0) };
    match stream.udp {
        Some(udp) => (udp.sent, udp.sent.saturating_sub(udp.received)),
        None => (stream.bytes.get() / plan.write_bytes.get().max(1), 0),
    }
}

/// Returns `part` in percent of `whole`.
pub(super) fn percent(part: u64, whole: u64) -> f64 {
    if whole > 0 { 100.0 * part as f64 / whole as f64 } else { 0.0 }
}

/// Returns bytes per second.
pub(super) fn per_second(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { bytes as f64 / seconds } else { 0.0 }
}

/// Returns true if the plan uses UDP.
pub(super) fn is_udp(plan: &TestPlan) -> bool {
    plan.protocol == Protocol::Udp
}
