//! The shares of time in which each cause limited a connection.

use serde::{Deserialize, Serialize};

use crate::result::TcpSample;
use crate::stats::percent;

/// The time shares of the sending connections in percent; they add up to 100.
///
/// The kernel has clocks for the first two shares (`tcp_chrono_start` in net/ipv4/tcp_output.c),
/// which count too little: the clock of the receiver's window stops while pacing delays a packet,
/// and that of the send buffer starts only when an acknowledgement reveals the state. Busy time is
/// therefore divided in proportion to fifty samples per second, and a clock counts if it shows
/// more. Time without data in flight belongs to the application.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Shares {
    /// The receiver's window was full (`TCP_CHRONO_RWND_LIMITED`, and samples).
    pub receiver_window_percent: f64,
    /// All data of a full send buffer were in flight (`TCP_CHRONO_SNDBUF_LIMITED`, and samples).
    pub send_buffer_percent: f64,
    /// There were data to send, but the congestion window was full.
    pub congestion_window_percent: f64,
    /// There were data to send and both windows had space, but packets were delayed by pacing (of
    /// the congestion control or requested) or by the queue of the interface.
    pub pacing_percent: f64,
    /// There were no data to send: the sending thread did not provide more.
    pub application_percent: f64,
}

/// The cause of a share in [`Shares`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Holder {
    /// The receiver's window.
    ReceiverWindow,
    /// The send buffer.
    SendBuffer,
    /// The congestion window.
    CongestionWindow,
    /// Pacing.
    Pacing,
    /// The sending program.
    Application,
}

/// The longest interval that is accepted from a peer: ten years.
const LONGEST_MS: f64 = 10.0 * 365.0 * 86_400_000.0;

/// Limits `value` to 0 to `most`; 0 for NaN.
fn within(value: f64, most: f64) -> f64 {
    value.max(0.0).min(most)
}

impl Shares {
    /// Returns the shares of `streams` over `seconds` each; `None` for zero time.
    pub fn of<'a>(streams: impl IntoIterator<Item = (&'a TcpSample, f64)>) -> Option<Self> {
        let mut sums = Shares::default();
        let mut total = 0.0;
        for (tcp, seconds) in streams {
            let whole = within(seconds * 1e3, LONGEST_MS);
            // The clocks count jiffies, so they may exceed the interval.
            let busy = within(tcp.busy_ms, whole);
            let receiver = within(tcp.rwnd_limited_ms, busy);
            let buffer = within(tcp.sndbuf_limited_ms, busy - receiver);
            let rest = busy - receiver - buffer;
            let full = within(tcp.rwnd_full_ms, rest);
            let (receiver, rest) = (receiver + full, rest - full);
            let full = within(tcp.sndbuf_full_ms, rest);
            let (buffer, rest) = (buffer + full, rest - full);
            let window = within(tcp.cwnd_limited_ms, rest);
            let paced = within(tcp.paced_ms, rest - window);
            sums.receiver_window_percent += receiver;
            sums.send_buffer_percent += buffer;
            sums.congestion_window_percent += window;
            sums.pacing_percent += paced;
            sums.application_percent += whole - receiver - buffer - window - paced;
            total += whole;
        }
        (total > 0.0).then(|| sums.map(|sum| percent(sum, total)))
    }

    fn map(self, with: impl Fn(f64) -> f64) -> Self {
        Shares {
            receiver_window_percent: with(self.receiver_window_percent),
            send_buffer_percent: with(self.send_buffer_percent),
            congestion_window_percent: with(self.congestion_window_percent),
            pacing_percent: with(self.pacing_percent),
            application_percent: with(self.application_percent),
        }
    }

    /// Returns the largest share and its cause.
    pub fn largest(&self) -> (Holder, f64) {
        [
            (Holder::ReceiverWindow, self.receiver_window_percent),
            (Holder::SendBuffer, self.send_buffer_percent),
            (Holder::CongestionWindow, self.congestion_window_percent),
            (Holder::Pacing, self.pacing_percent),
            (Holder::Application, self.application_percent),
        ]
        .into_iter()
        .max_by(|one, other| one.1.total_cmp(&other.1))
        .unwrap_or((Holder::Application, 0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_add_up_with_any_clocks() {
        let tcp = TcpSample {
            busy_ms: 1004.0,
            rwnd_limited_ms: 800.0,
            sndbuf_limited_ms: 100.0,
            cwnd_limited_ms: 60.0,
            paced_ms: 500.0,
            ..TcpSample::default()
        };
        let shares = Shares::of([(&tcp, 1.0)]).unwrap();
        assert_eq!(shares.largest(), (Holder::ReceiverWindow, 80.0));
        assert_eq!(shares.pacing_percent, 4.0);
        assert_eq!(shares.application_percent, 0.0);
        let idle = TcpSample::default();
        let half = Shares::of([(&tcp, 1.0), (&idle, 1.0)]).unwrap();
        assert_eq!(half.largest(), (Holder::Application, 50.0));
        assert_eq!(Shares::of([]), None);
    }
}
