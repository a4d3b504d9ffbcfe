//! Combines the samples of both ends for one interval.

use super::math::{mean, percent, rate, sum};
use super::{Shares, StreamSample, TestSample};
use crate::result::{End, SideSample, UdpResult};
use crate::units::Bytes;

impl TestSample {
    /// Combines the samples of both ends for one interval.
    pub fn join(receiver: &SideSample, sender: Option<&SideSample>) -> Self {
        let seconds = receiver.end_seconds - receiver.start_seconds;
        let sent = |stream: usize| sender.and_then(|s| s.streams.get(stream));
        let streams: Vec<_> = receiver
            .streams
            .iter()
            .enumerate()
            .map(|(number, stream)| StreamSample {
                stream: number as u32,
                bytes: stream.bytes,
                throughput_bps: rate(stream.bytes, seconds),
                sender: sent(number).and_then(|s| s.tcp.clone()),
                sender_thread: sent(number).and_then(|s| s.thread.clone()),
                receiver_thread: stream.thread.clone(),
                udp: stream
                    .udp
                    .map(|to| UdpResult::join(sent(number).and_then(|s| s.udp.as_ref()), &to)),
            })
            .collect();
        let tcp: Vec<_> = streams.iter().filter_map(|s| s.sender.as_ref()).collect();
        let bytes = Bytes::new(sum(streams.iter().map(|s| s.bytes.get())));
        // The sender's times refer to the sender's interval.
        let shares = sender.and_then(|sender| {
            let seconds = sender.end_seconds - sender.start_seconds;
            Shares::of(tcp.iter().map(|tcp| (*tcp, seconds)))
        });
        TestSample {
            index: receiver.index,
            omitted: receiver.omitted,
            reverse: receiver.reverse,
            counted_by: None,
            start_seconds: receiver.start_seconds,
            end_seconds: receiver.end_seconds,
            bytes,
            throughput_bps: rate(bytes, seconds),
            retransmits: sender.map(|_| sum(tcp.iter().map(|t| t.retransmits))),
            rtt_ms: mean(tcp.iter().map(|t| t.rtt_ms)),
            sender_cpu_percent: sender
                .map(|s| percent(s.cpu_seconds, s.end_seconds - s.start_seconds)),
            receiver_cpu_percent: Some(percent(receiver.cpu_seconds, seconds)),
            shares,
            udp: UdpResult::sum(streams.iter().filter_map(|s| s.udp)),
            streams,
            sender_host: sender.and_then(|s| s.host.clone()),
            receiver_host: receiver.host.clone(),
        }
    }

    /// Returns the sample of an interval of which only the sender is known. Its bytes are those
    /// sent.
    pub fn of_sender(sender: &SideSample) -> Self {
        // The receiver's fields come from a copy of the sender without a thread and a host.
        let mut receiver = SideSample { host: None, ..sender.clone() };
        for stream in &mut receiver.streams {
            (stream.thread, stream.udp) = (None, None);
        }
        TestSample {
            counted_by: Some(End::Sender),
            receiver_cpu_percent: None,
            ..TestSample::join(&receiver, Some(sender))
        }
    }

    /// Returns the length of the interval in seconds, on the receiver's clock.
    pub fn seconds(&self) -> f64 {
        self.end_seconds - self.start_seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{SideStreamSample, TcpSample};
    use crate::units::Rate;

    #[test]
    fn an_interval_has_the_receivers_bytes_and_the_senders_reasons() {
        let tcp = TcpSample {
            rtt_ms: 90.0,
            rtt_variation_ms: 1.0,
            cwnd_bytes: Bytes::mib(1),
            peer_window_bytes: Bytes::mib(3),
            retransmits: 2,
            delivery_rate_bps: Rate::from_bps(1_000_000),
            app_limited: false,
            notsent_bytes: Bytes::new(0),
            busy_ms: 1000.0,
            rwnd_limited_ms: 10.0,
            ..TcpSample::default()
        };
        let sample = |bytes, tcp: Option<&TcpSample>| SideSample {
            index: 4,
            omitted: false,
            start_seconds: 4.0,
            end_seconds: 5.0,
            cpu_seconds: 0.25,
            streams: vec![
                SideStreamSample {
                    bytes: Bytes::new(bytes),
                    tcp: tcp.cloned(),
                    ..SideStreamSample::default()
                };
                2
            ],
            ..SideSample::default()
        };
        let (sender, receiver) = (sample(5000, Some(&tcp)), sample(4000, None));
        let joined = TestSample::join(&receiver, Some(&sender));
        assert_eq!(joined.bytes, Bytes::new(8000));
        assert_eq!(joined.throughput_bps, Rate::from_bps(64_000));
        assert_eq!((joined.retransmits, joined.rtt_ms), (Some(4), Some(90.0)));
        assert_eq!(joined.sender_cpu_percent, Some(25.0));
        assert_eq!(joined.streams[1].sender, Some(tcp));
        let alone = TestSample::join(&receiver, None);
        assert_eq!((alone.retransmits, alone.rtt_ms, alone.sender_cpu_percent), (None, None, None));
    }
}
