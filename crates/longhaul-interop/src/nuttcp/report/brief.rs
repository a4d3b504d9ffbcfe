//! The last line of a test, which a client prints by default.

use super::{Datagrams, Retransmits, Spread, Style};
use super::{Unit, append_cwnd, megabytes};
use crate::nuttcp::parameters::format;

/// The figures of the last line. The bytes, the time and the rate are the receiver's.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Brief {
    /// The bytes received.
    pub bytes: u64,
    /// The seconds that the receiver measured.
    pub seconds: f64,
    /// The rate in 10^6 bit/s, as the receiver computed it.
    pub megabits: f64,
    /// The CPU time of the sender in percent of the time.
    pub sender_cpu_percent: u32,
    /// The CPU time of the receiver in percent of the time.
    pub receiver_cpu_percent: u32,
    /// The datagrams, over UDP.
    pub datagrams: Option<Datagrams>,
    /// The bytes sent, over UDP.
    pub sent_bytes: u64,
    /// The jitter, and the bits that select the printed values.
    pub jitter: Option<(u8, Spread)>,
    /// The retransmits, over TCP.
    pub retransmits: Option<Retransmits>,
    /// The sum of the congestion windows in KB, over TCP.
    pub cwnd_kb: Option<u64>,
    /// The time of the first connect in ms, over TCP.
    pub rtt_ms: Option<f64>,
    /// The one-way delay, and the bits that select the printed values.
    pub delay: Option<(u8, Spread)>,
}

impl Brief {
    /// Returns the line, without its end.
    #[must_use]
    pub fn line(&self, style: Style) -> String {
        let mut line = self.head(style);
        if let Some(datagrams) = &self.datagrams {
            datagrams.append(&mut line, style, true);
            self.append_sent(&mut line, style);
        }
        if let Some((bits, jitter)) = &self.jitter {
            jitter.append(&mut line, style, *bits, Unit::Jitter);
        }
        self.append_connection(&mut line, style);
        if let Some((bits, delay)) = &self.delay {
            delay.append(&mut line, style, *bits, Unit::Delay);
        }
        line
    }

    fn head(&self, style: Style) -> String {
        let (mb, seconds, mbps) = (megabytes(self.bytes), self.seconds, self.megabits);
        let (tx, rx) = (self.sender_cpu_percent, self.receiver_cpu_percent);
        if style.parse() {
            format!(
                "megabytes={mb:.4} real_seconds={seconds:.2} rate_Mbps={mbps:.4} tx_cpu={tx} \
                 rx_cpu={rx}"
            )
        } else {
            format!("{mb:10.4} MB / {seconds:6.2} sec = {mbps:9.4} Mbps {tx} %TX {rx} %RX")
        }
    }

    fn append_sent(&self, line: &mut String, style: Style) {
        if style.has(format::TRANSMITTED) {
            let sent = megabytes(self.sent_bytes);
            line.push_str(&if style.parse() {
                format!(" tx_megabytes={sent:.4}")
            } else {
                format!(" Trans: {sent:.4} MB")
            });
        }
    }

    fn append_connection(&self, line: &mut String, style: Style) {
        if let Some(retransmits) = self.retransmits.filter(|_| !style.has(format::NO_RETRANSMITS)) {
            retransmits.append(line, style, true);
        }
        if let Some(cwnd) = self.cwnd_kb.filter(|_| !style.has(format::NO_CWND)) {
            append_cwnd(line, cwnd, style, true);
        }
        if let Some(rtt) = self.rtt_ms.filter(|rtt| *rtt > 0.0 && style.has(format::RTT)) {
            line.push_str(&if style.parse() {
                format!(" rtt_ms={rtt:.2}")
            } else {
                format!(" {rtt:.2} msRTT")
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp() -> Brief {
        Brief {
            bytes: 1116 << 20,
            seconds: 1.0,
            megabits: 9341.7383,
            sender_cpu_percent: 8,
            receiver_cpu_percent: 37,
            retransmits: Some(Retransmits { count: 5, of_host: false }),
            cwnd_kb: Some(511),
            rtt_ms: Some(0.09),
            ..Brief::default()
        }
    }

    #[test]
    fn the_line_over_tcp_is_that_of_nuttcp() {
        assert_eq!(
            tcp().line(Style(format::RTT)),
            " 1116.0000 MB /   1.00 sec = 9341.7383 Mbps 8 %TX 37 %RX 5 retrans 511 KB-cwnd 0.09 \
             msRTT"
        );
        assert_eq!(
            tcp().line(Style(format::RTT | format::PARSE)),
            "megabytes=1116.0000 real_seconds=1.00 rate_Mbps=9341.7383 tx_cpu=8 rx_cpu=37 \
             retrans=5 cwnd=511 rtt_ms=0.09"
        );
        assert_eq!(
            tcp().line(Style(format::NO_RETRANSMITS | format::NO_CWND)),
            " 1116.0000 MB /   1.00 sec = 9341.7383 Mbps 8 %TX 37 %RX"
        );
    }

    #[test]
    fn the_line_over_udp_is_that_of_nuttcp() {
        let udp = Brief {
            bytes: 264 * 8192,
            seconds: 1.0,
            megabits: 17.2977,
            sender_cpu_percent: 46,
            datagrams: Some(Datagrams::of_bytes(264 * 8192, 264 * 8192, 8192)),
            sent_bytes: 264 * 8192,
            jitter: Some((4, Spread { max: 12.3802, ..Spread::default() })),
            ..Brief::default()
        };
        assert_eq!(
            udp.line(Style(format::TRANSMITTED)),
            "    2.0625 MB /   1.00 sec =   17.2977 Mbps 46 %TX 0 %RX 0 / 264 drop/pkt 0.00 %loss \
             Trans: 2.0625 MB 12.3802 msMaxJitter"
        );
        assert_eq!(
            udp.line(Style(format::PARSE)),
            "megabytes=2.0625 real_seconds=1.00 rate_Mbps=17.2977 tx_cpu=46 rx_cpu=0 drop=0 \
             pkt=264 data_loss=0.00000 msmaxjitter=12.3802"
        );
    }
}
