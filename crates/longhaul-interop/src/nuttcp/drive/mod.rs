//! Runs the client and the server of nuttcp on sockets: the control channel and the data connections.
//! This file computes the figures of a receiver, per interval and since the start.

mod accept;
mod blocks;
mod channel;
mod client;
mod datagrams;
mod end;
mod open;
mod plan;
mod ports;
mod result;
mod server;
mod visit;

use longhaul_core::result::SideSample;

use self::blocks::Marks;
use crate::nuttcp::{Datagrams, Interval, Parameters, Retransmits, Totals};
pub use client::{ClientOptions, ClientResult, run};
pub use end::{LocalEnd, Usage};
pub use plan::plan_of;
pub use result::Observer;
pub use server::NuttcpServer;

/// The figures of a receiver since the start.
#[derive(Debug, Default)]
struct Running {
    totals: Totals,
    retransmits: u64,
}

impl Running {
    /// Returns the figures of an interval. `marks` has the state of the sender during this interval.
    fn interval(
        &mut self,
        sample: &SideSample,
        parameters: &Parameters,
        marks: &Marks,
    ) -> Interval {
        let bytes: u64 = sample.streams.iter().map(|stream| stream.bytes.get()).sum();
        // A receiver of datagrams waits for late ones after the time of the test.
        let over = parameters.time.as_secs_f64();
        let waits = parameters.udp && sample.start_seconds < over && sample.end_seconds > over;
        let end_seconds = if waits { over } else { sample.end_seconds };
        let seconds = end_seconds - sample.start_seconds;
        let now = marks.retransmits();
        let since = now.map(|now| now.saturating_sub(self.retransmits));
        self.retransmits = now.unwrap_or(0);
        let sent_bytes = sent_bytes(sample, parameters);
        self.totals.bytes += bytes;
        self.totals.seconds = end_seconds;
        self.totals.sent_bytes += sent_bytes;
        let datagrams = |sent, received| {
            parameters.udp.then(|| Datagrams::of_bytes(sent, received, parameters.buffer_bytes))
        };
        self.totals.datagrams = datagrams(self.totals.sent_bytes, self.totals.bytes);
        Interval {
            bytes,
            seconds,
            datagrams: datagrams(sent_bytes, bytes),
            sent_bytes,
            retransmits: since.map(|count| Retransmits { count, of_host: marks.of_host() }),
            cwnd_kb: marks.cwnd_kb(),
            totals: self.totals,
            ..Interval::default()
        }
    }
}

/// Returns the bytes that the sender sent in an interval, by the counts in its datagrams.
fn sent_bytes(sample: &SideSample, parameters: &Parameters) -> u64 {
    let counts = sample.streams.iter().filter_map(|stream| stream.udp);
    let sent: u64 = counts.map(|counts| counts.expected).sum();
    sent.saturating_mul(parameters.buffer_bytes.into())
}
