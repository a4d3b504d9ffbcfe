//! The datagrams of a flow for the engine, and the marks around its data.

use std::io::{self, ErrorKind};
use std::net::UdpSocket;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use longhaul_engine::test::{DatagramFormat, ReceivedDatagram, SentDatagram};

use super::channel::{Deadline, LOOK, STEP_LIMIT};
use crate::nuttcp::Spread;
use crate::nuttcp::datagram::{
    BEGIN_SPACING, LEAST_COUNTED, Mark, read_time, write_count, write_time,
};

/// The time between the end marks that longhaul sends, less than `END_SPACING`: a receiver of
/// nuttcp 6.1.2 with `-i0.5` fails if an interval passes without a datagram, and its intervals
/// begin a few milliseconds after the first mark.
const SENT_END_SPACING: Duration = Duration::from_millis(400);

/// The format of the datagrams of a test.
#[derive(Debug)]
pub(super) struct Datagrams {
    length: u64,
    streams: u64,
    /// True if datagrams have a count: nuttcp writes it only for interval reports.
    counted: bool,
    /// The time between two datagrams in ms, if the jitter is measured.
    spacing_ms: Option<f64>,
    /// True if datagrams have the time of sending.
    timed: bool,
    times: Mutex<Times>,
}

/// The times that a receiver measures.
#[derive(Debug, Default)]
struct Times {
    last: Option<Instant>,
    jitter: Series,
    delay: Series,
}

/// A series of values in ms.
#[derive(Debug, Clone, Copy, Default)]
struct Series {
    count: u64,
    sum: f64,
    min: f64,
    max: f64,
}

impl Series {
    fn add(&mut self, value: f64) {
        let first = self.count == 0;
        self.min = if first { value } else { self.min.min(value) };
        self.max = if first { value } else { self.max.max(value) };
        self.count += 1;
        self.sum += value;
    }

    fn spread(&self) -> Option<Spread> {
        let mean = self.sum / self.count.max(1) as f64;
        (self.count > 0).then_some(Spread { min: self.min, mean, max: self.max })
    }
}

impl Datagrams {
    /// Returns the format for `parameters`.
    pub(super) fn new(parameters: &crate::nuttcp::Parameters) -> Self {
        let length = u64::from(parameters.buffer_bytes);
        let rate = parameters.rate_kbps.filter(|_| parameters.jitter != 0);
        Self {
            length,
            streams: parameters.streams.into(),
            counted: !parameters.interval.is_zero() && length >= LEAST_COUNTED as u64,
            spacing_ms: rate.map(|kbps| length as f64 * 8.0 / kbps.max(1) as f64),
            timed: parameters.delay != 0,
            times: Mutex::default(),
        }
    }

    /// Returns the jitter and the one-way delay of the received datagrams.
    pub(super) fn spreads(&self) -> (Option<Spread>, Option<Spread>) {
        let times = self.times.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        (times.jitter.spread(), times.delay.spread())
    }

    fn note_times(&self, datagram: &[u8]) {
        if self.spacing_ms.is_none() && !self.timed {
            return;
        }
        let mut times = self.times.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let now = Instant::now();
        if let (Some(spacing), Some(last)) = (self.spacing_ms, times.last.replace(now)) {
            let difference = (now - last).as_secs_f64() * 1e3 - spacing;
            times.jitter.add(difference.abs());
        }
        if let Some(sent) = read_time(datagram).filter(|_| self.timed) {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            times.delay.add((now.as_secs_f64() - sent.as_secs_f64()) * 1e3);
        }
    }
}

impl DatagramFormat for Datagrams {
    fn header_bytes(&self) -> usize {
        LEAST_COUNTED
    }

    /// Writes the count as a sender does that sends to all streams in turn.
    fn write(&self, datagram: &mut [u8], header: &SentDatagram) {
        let turn = header.number * self.streams + 1;
        write_count(datagram, turn * self.length);
        let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        write_time(datagram, if self.timed { now() } else { Duration::ZERO });
    }

    fn read(&self, datagram: &[u8], _expected: u64) -> ReceivedDatagram {
        if datagram.len() <= 4 {
            return match Mark::parse(datagram) {
                Some(Mark::End(_)) => ReceivedDatagram::End,
                _ => ReceivedDatagram::Other,
            };
        }
        self.note_times(datagram);
        let count = datagram.get(24..32).and_then(|field| field.try_into().ok());
        let count = count.map_or(0, u64::from_ne_bytes);
        // A larger count has the other byte order.
        let count = if count > 1 << 56 { count.swap_bytes() } else { count };
        let turn = (count / self.length.max(1)).checked_sub(1).filter(|_| self.counted);
        ReceivedDatagram::Data { number: turn.map(|turn| turn / self.streams), sent_ns: None }
    }
}

/// Sends the marks before the data. A receiver that has not yet opened its port refuses the first
/// one, which is then repeated.
pub(super) fn begin(sockets: &[UdpSocket]) -> io::Result<()> {
    let Some(first) = sockets.first() else { return Ok(()) };
    let deadline = Deadline::after(STEP_LIMIT);
    loop {
        let sent = first.send(&Mark::Begin(0).bytes());
        thread::sleep(LOOK);
        match sent.err().or(first.take_error()?) {
            None => break,
            Some(e) if e.kind() == ErrorKind::ConnectionRefused && !deadline.is_over() => {}
            Some(e) => return Err(e),
        }
    }
    thread::sleep(BEGIN_SPACING - LOOK);
    first.send(&Mark::Begin(1).bytes()).map(drop)
}

/// Sends the marks after the data, until `over` returns true: each stream has its turn.
pub(super) fn end(sockets: &[UdpSocket], over: impl Fn() -> bool) {
    for number in 0..=4 {
        // All streams get every mark: a receiver of one thread reads only one of them.
        for socket in sockets {
            let _ = socket.send(&Mark::End(number).bytes());
        }
        let until = Instant::now() + SENT_END_SPACING;
        while number < 4 && Instant::now() < until && !over() {
            thread::sleep(LOOK);
        }
        if over() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nuttcp::Parameters;

    #[test]
    fn the_count_carries_the_number_of_a_datagram_in_its_stream() {
        let interval = Duration::from_secs(1);
        let parameters =
            Parameters { buffer_bytes: 100, streams: 3, interval, ..Parameters::default() };
        let format = Datagrams::new(&parameters);
        let mut datagram = vec![1; 100];
        for number in [0, 1, 41] {
            let header = SentDatagram { number, time: Duration::ZERO, bytes: 0 };
            format.write(&mut datagram, &header);
            let expected = ReceivedDatagram::Data { number: Some(number), sent_ns: None };
            assert_eq!(format.read(&datagram, 7), expected);
        }
        // The datagrams of a sender that sends in turn: 1 and 2 belong to the same round.
        write_count(&mut datagram, 300);
        let second = ReceivedDatagram::Data { number: Some(0), sent_ns: None };
        assert_eq!(format.read(&datagram, 0), second);
        assert_eq!(format.read(b"EOD0", 0), ReceivedDatagram::End);
        assert_eq!(format.read(b"BOD1", 0), ReceivedDatagram::Other);
        assert_eq!(format.read(b"x", 0), ReceivedDatagram::Other);
    }

    #[test]
    fn jitter_is_the_difference_from_the_spacing() {
        let parameters = Parameters {
            buffer_bytes: 1000,
            rate_kbps: Some(8),
            jitter: 4,
            ..Parameters::default()
        };
        let format = Datagrams::new(&parameters);
        assert_eq!(format.spreads(), (None, None));
        let datagram = vec![0; 1000];
        for _ in 0..3 {
            let _ = format.read(&datagram, 0);
        }
        let jitter = format.spreads().0.unwrap();
        // The datagrams arrived at once, and not 1000 ms apart.
        assert!(jitter.min > 900.0 && jitter.max <= 1000.0, "{jitter:?}");
    }
}
