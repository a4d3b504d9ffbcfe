//! The result of a test against a nuttcp server, and the samples of its intervals.

use std::collections::VecDeque;

use longhaul_core::plan::TestPlan;
use longhaul_core::result::{
    DatagramReport, End, MeasuredHalf, SideReport, SideResult, SideSample, SideStreamReport,
    TestEnd, TestPeer, TestResult, TestSample, UdpResult,
};
use longhaul_core::units::{Bytes, Rate};

use super::Running;
use super::blocks::Marks;
use crate::nuttcp::{Interval, Parameters, Retransmits, ServerReport};
use crate::peer::Program;

/// The receiver of a test's progress.
pub trait Observer {
    /// Takes the sample of an interval.
    fn sample(&mut self, _sample: &TestSample) {}

    /// Takes the figures of an interval: those of the server with its line, if this end sends.
    fn interval(&mut self, _line: Option<&str>, _interval: &Interval) {}

    /// Takes a warning or an error that the server printed.
    fn notice(&mut self, _line: &str) {}
}

impl<F: FnMut(&TestSample)> Observer for F {
    fn sample(&mut self, sample: &TestSample) {
        self(sample);
    }
}

/// The precision of a server's megabytes: half of the last of four digits, in bytes.
const ROUNDING: u64 = 53;

/// Joins the samples of this end with the interval lines of the server.
pub(super) struct Joiner<'a> {
    parameters: &'a Parameters,
    role: End,
    marks: &'a Marks,
    ours: VecDeque<SideSample>,
    theirs: VecDeque<(String, Interval)>,
    joined: Vec<TestSample>,
    /// The seconds of the server's intervals so far.
    elapsed: f64,
    running: Running,
    /// The sum of the congestion windows at the last sample of a sender.
    cwnd_bytes: u64,
    observer: &'a mut dyn Observer,
}

impl<'a> Joiner<'a> {
    pub(super) fn new(
        (parameters, role): (&'a Parameters, End),
        marks: &'a Marks,
        observer: &'a mut dyn Observer,
    ) -> Self {
        Joiner {
            parameters,
            role,
            marks,
            ours: VecDeque::new(),
            theirs: VecDeque::new(),
            joined: Vec::new(),
            elapsed: 0.0,
            running: Running::default(),
            cwnd_bytes: 0,
            observer,
        }
    }

    /// Adds a sample of this end.
    pub(super) fn ours(&mut self, sample: SideSample) {
        if self.role == End::Receiver {
            return self.received(&sample);
        }
        let windows = sample.streams.iter().filter_map(|stream| stream.tcp.as_ref());
        self.cwnd_bytes = windows.map(|tcp| tcp.cwnd_bytes.get()).sum();
        self.ours.push_back(sample);
        self.join(self.parameters.interval.is_zero());
    }

    /// Adds an interval line of the server.
    pub(super) fn theirs(&mut self, line: String, interval: Interval) {
        self.theirs.push_back((line, interval));
        self.join(false);
    }

    pub(super) fn notice(&mut self, line: &str) {
        self.observer.notice(line);
    }

    /// Emits the rest, and returns all samples with the sum of the congestion windows.
    pub(super) fn finish(mut self) -> (Vec<TestSample>, u64) {
        self.join(true);
        while let Some((line, interval)) = self.theirs.pop_front() {
            self.observer.interval(Some(&line), &interval);
        }
        (self.joined, self.cwnd_bytes)
    }

    /// Emits the intervals that both ends reported; with `one_sided` also those that only this end
    /// reported.
    fn join(&mut self, one_sided: bool) {
        while let Some(ours) = self.ours.front() {
            let mut sample = TestSample::of_sender(ours);
            match self.theirs.pop_front() {
                Some((line, mut interval)) => {
                    self.connection(&sample, &mut interval);
                    self.observer.interval(Some(&line), &interval);
                    self.counted(&mut sample, &interval);
                }
                None if one_sided => {}
                None => return,
            }
            self.ours.pop_front();
            self.emit(sample);
        }
    }

    /// Adds the state of this end's connection to the figures of the server.
    fn connection(&self, sample: &TestSample, interval: &mut Interval) {
        if self.parameters.streams == 1 && !self.parameters.udp {
            let count = sample.retransmits.unwrap_or(0);
            interval.retransmits = Some(Retransmits { count, of_host: false });
            interval.cwnd_kb = Some(self.cwnd_bytes / 1024);
        }
    }

    /// Replaces the bytes that this end sent by those that the server received.
    fn counted(&mut self, sample: &mut TestSample, interval: &Interval) {
        sample.counted_by = None;
        sample.bytes = Bytes::new(interval.bytes);
        sample.throughput_bps = rate(interval.bytes, interval.seconds);
        (sample.start_seconds, sample.end_seconds) =
            (self.elapsed, self.elapsed + interval.seconds);
        self.elapsed = sample.end_seconds;
        if let [stream] = sample.streams.as_mut_slice() {
            (stream.bytes, stream.throughput_bps) = (sample.bytes, sample.throughput_bps);
        }
        sample.udp = interval.datagrams.map(|datagrams| {
            let received = datagrams.sent.saturating_add_signed(-datagrams.dropped);
            UdpResult::join_reports(
                Some(&report(datagrams.sent, Some(datagrams.sent))),
                &report(received, None),
            )
        });
    }

    /// Emits a sample of this end as receiver, with the retransmits that the sender stated.
    fn received(&mut self, ours: &SideSample) {
        let mut sample = TestSample::join(ours, None);
        let interval = self.running.interval(ours, self.parameters, self.marks);
        sample.retransmits = interval.retransmits.map(|retransmits| retransmits.count);
        self.observer.interval(None, &interval);
        self.emit(sample);
    }

    fn emit(&mut self, sample: TestSample) {
        self.observer.sample(&sample);
        self.joined.push(sample);
    }
}

fn rate(bytes: u64, seconds: f64) -> Rate {
    Rate::from_bps((bytes as f64 * 8.0 / seconds.max(1e-6)) as u64)
}

fn report(datagrams: u64, expected: Option<u64>) -> DatagramReport {
    DatagramReport { datagrams, expected, ..DatagramReport::default() }
}

/// Both ends of a test.
pub(super) struct Ends<'a> {
    pub(super) target: String,
    pub(super) plan: &'a TestPlan,
    pub(super) parameters: &'a Parameters,
    pub(super) role: End,
    pub(super) version: String,
    pub(super) ours: &'a SideResult,
    /// The report of the server; `None` after an interruption.
    pub(super) theirs: Option<&'a ServerReport>,
    pub(super) intervals: Vec<TestSample>,
    pub(super) end: TestEnd,
}

impl Ends<'_> {
    /// Returns the result of the test.
    pub(super) fn fold(self) -> TestResult {
        let mut ours = SideReport::from(self.ours);
        let theirs = self.server_report(&ours);
        if let (End::Receiver, true) = (self.role, self.parameters.udp) {
            // The server's total has the datagrams that were lost after the last one received.
            for (ours, theirs) in ours.streams.iter_mut().zip(&theirs.streams) {
                if let (Some(ours), Some(theirs)) = (&mut ours.udp, &theirs.udp) {
                    ours.expected = ours.expected.max(theirs.expected);
                }
            }
        }
        let (sender, receiver) = match self.role {
            End::Sender => (ours, theirs),
            End::Receiver => (theirs, ours),
        };
        let measured = MeasuredHalf { intervals: self.intervals, sender, receiver };
        let mut result = TestResult::fold(self.target, self.plan.clone(), self.end, measured);
        let program = Program::Nuttcp.name().to_owned();
        result.peer = Some(TestPeer { program, version: Some(self.version) });
        result
    }

    /// Returns the server's end. The server reports the sum of its streams, which is divided in
    /// the proportion of this end's streams: a sender sends the same number of blocks on each.
    fn server_report(&self, ours: &SideReport) -> SideReport {
        let sum: u64 = ours.streams.iter().map(|stream| stream.bytes.get()).sum();
        let known = self.theirs.and_then(ServerReport::bytes);
        // The server prints four digits: a smaller difference is none.
        let total = known.filter(|total| total.abs_diff(sum) > ROUNDING).unwrap_or(sum);
        let seconds = self.theirs.and_then(|report| report.seconds).unwrap_or(ours.seconds);
        let seconds = self.exact_seconds(total).unwrap_or(seconds);
        let differs = total != sum;
        let one = ours.streams.len() == 1;
        let stream = |stream: &SideStreamReport| {
            let share = stream.bytes.get() as f64 / sum.max(1) as f64;
            let bytes = Bytes::new((total as f64 * share).round() as u64);
            SideStreamReport {
                bytes,
                total_bytes: differs.then_some(bytes),
                seconds,
                retransmits: self.theirs.and_then(|r| r.retransmits).filter(|_| one),
                udp: self.parameters.udp.then(|| self.datagrams(bytes.get())),
                ..SideStreamReport::default()
            }
        };
        SideReport {
            seconds,
            cpu_percent: self.theirs.and_then(|report| report.cpu_percent).map(f64::from),
            streams: ours.streams.iter().map(stream).collect(),
            ..SideReport::default()
        }
    }

    /// Returns the time from the server's bytes and rate, which have more digits.
    fn exact_seconds(&self, total: u64) -> Option<f64> {
        let megabits = self.theirs?.megabits.filter(|rate| *rate > 0.0)?;
        Some(total as f64 / 125_000.0 / megabits)
    }

    fn datagrams(&self, bytes: u64) -> DatagramReport {
        let length = u64::from(self.parameters.buffer_bytes).max(1);
        let datagrams = (bytes + length / 2) / length;
        let sent = (self.role == End::Receiver).then_some(datagrams);
        let jitter = self.theirs.and_then(|report| report.jitter);
        DatagramReport { jitter_ms: jitter.map(|jitter| jitter.mean), ..report(datagrams, sent) }
    }
}
