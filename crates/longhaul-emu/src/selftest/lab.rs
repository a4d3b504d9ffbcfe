//! Runs probes over links.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use longhaul_core::plan::link::derive_seed;
use longhaul_core::plan::{LinkOptions, Side};
use longhaul_core::result::{Impairments, LinkReport, LinkWarning, MachineTiming};

use super::probe::{ProbePlan, ProbeReport, ReceivePlan, SendPlan, Sent, Witness};
use crate::{EmuError, Medium, Wan};

/// The port of the first receiver; further receivers use the following ports.
pub(super) const PORT: u16 = 5211;

/// Measures streams over links with given options.
pub(super) trait Lab {
    /// Sends several streams at the same time over a link with these options.
    fn send_all(
        &mut self,
        options: &str,
        ipv6: bool,
        streams: &[Stream],
    ) -> Result<Outcome, Unmeasured>;

    /// Sends one stream over a link with these options.
    fn send(
        &mut self,
        options: &str,
        ipv6: bool,
        stream: Stream,
    ) -> Result<(ProbeReport, Outcome), Unmeasured> {
        let mut outcome = self.send_all(options, ipv6, &[stream])?;
        match outcome.probes.pop() {
            Some(probe) => Ok((probe, outcome)),
            None => Err(Unmeasured("the probe did not report".to_owned())),
        }
    }
}

/// Runs probes as processes at the two sites of real links.
pub(super) struct SiteLab<'a> {
    /// Builds the command that runs one end of a probe.
    pub(super) probe: &'a dyn Fn(&ProbePlan) -> Command,
    /// The kind of the links.
    pub(super) medium: Medium,
    /// The seed from which the seed of every link is derived.
    pub(super) seed: u64,
    /// The number of links so far.
    pub(super) links: u64,
    /// The error that a process that held a site was killed. After that no link is built.
    pub(super) killed: Option<EmuError>,
}

/// The datagrams to send from near to far.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stream {
    pub(super) datagrams: u64,
    pub(super) payload_bytes: u16,
    pub(super) together: u16,
    pub(super) interval: Duration,
    pub(super) ecn_capable: bool,
    pub(super) verify: bool,
    /// The number of sending threads.
    pub(super) threads: u16,
}

impl Stream {
    /// Returns a stream of small datagrams, as many as can be counted in a short time.
    pub(super) fn many(datagrams: u64) -> Self {
        Stream {
            datagrams,
            payload_bytes: 200,
            together: 64,
            interval: Duration::from_micros(150),
            ecn_capable: false,
            verify: true,
            threads: 1,
        }
    }

    /// Returns a stream that is long enough to find an error of 5 % in the rate of an impairment
    /// that applies to a tenth of the datagrams.
    pub(super) fn shares() -> Self {
        Stream { interval: Duration::from_micros(300), ..Self::many(250_000) }
    }

    /// Returns a stream of single small datagrams.
    pub(super) fn single(datagrams: u64, interval: Duration) -> Self {
        Stream { datagrams, payload_bytes: 100, together: 1, interval, ..Self::many(0) }
    }

    /// Returns the IP bytes of each datagram.
    pub(super) fn ip_bytes(&self, ipv6: bool) -> u64 {
        u64::from(self.payload_bytes) + if ipv6 { 48 } else { 28 }
    }
}

/// The measurements of the streams over one link.
#[derive(Debug)]
pub(super) struct Outcome {
    /// The report of each stream.
    pub(super) probes: Vec<ProbeReport>,
    /// The emulator's counts of segments from near to far.
    pub(super) counts: Impairments,
    /// The packets that the sender's interface dropped.
    pub(super) interface_drops: u64,
    /// The emulator's warning that it did not follow the plan, if there is one.
    pub(super) emulator_warning: Option<String>,
    /// The lateness of a bare timer on the machine during the streams.
    pub(super) machine: MachineTiming,
}

impl Outcome {
    /// Returns a description of datagrams that the probe or the machine lost, in which case the
    /// check is inconclusive.
    fn spoiled(&self) -> Option<String> {
        let drops: u64 = self.probes.iter().map(|probe| probe.socket_drops).sum();
        if drops > 0 {
            return Some(format!("the probe was too slow and dropped {drops} datagrams"));
        }
        let drops = self.interface_drops;
        if drops > 0 {
            return Some(format!("the sender's interface dropped {drops} packets"));
        }
        let step = self.probes.iter().map(|probe| probe.clock_step_ms.abs()).fold(0.0, f64::max);
        (step > 0.02).then(|| format!("the wall clock was set by {step:.3} ms meanwhile"))
    }
}

/// Returns the warning that the emulator did not follow the plan, if there is one.
fn serious_warning(link: &LinkReport) -> Option<String> {
    use LinkWarning::{BehindSchedule, MemoryFull, NotConserved, ProcessorStarved, Refused};
    let serious = link.warnings.iter().find(|warning| {
        matches!(
            warning,
            BehindSchedule { .. }
                | MemoryFull { .. }
                | NotConserved { .. }
                | ProcessorStarved { .. }
                | Refused { .. }
        )
    });
    serious.map(ToString::to_string)
}

/// The reason why a measurement is missing.
#[derive(Debug)]
pub(super) struct Unmeasured(String);

impl fmt::Display for Unmeasured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Joins an error and all its causes in one line.
fn unmeasured(error: &dyn std::error::Error) -> Unmeasured {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    Unmeasured(causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}")))
}

impl Lab for SiteLab<'_> {
    /// If the machine was too slow for the probe, sends again at a quarter of the speed.
    fn send_all(
        &mut self,
        options: &str,
        ipv6: bool,
        streams: &[Stream],
    ) -> Result<Outcome, Unmeasured> {
        let mut streams = streams.to_vec();
        let first = self.attempt(options, ipv6, &streams)?;
        if first.spoiled().is_none() {
            return Ok(first);
        }
        streams.iter_mut().for_each(|stream| stream.interval *= 4);
        let second = self.attempt(options, ipv6, &streams)?;
        match second.spoiled() {
            None => Ok(second),
            Some(reason) => Err(Unmeasured(reason)),
        }
    }
}

impl SiteLab<'_> {
    fn attempt(
        &mut self,
        options: &str,
        ipv6: bool,
        streams: &[Stream],
    ) -> Result<Outcome, Unmeasured> {
        if let Some(killed) = &self.killed {
            return Err(unmeasured(killed));
        }
        let mut plan = parse(options)?;
        // Every link has its own seed, so that the checks are independent.
        self.links += 1;
        plan.seed = Some(derive_seed(self.seed, &["selftest", &self.links.to_string()]));
        let drain = plan.up.longest_flight() + Duration::from_millis(150);
        let wan = Wan::start_over(&plan, self.medium).map_err(|error| unmeasured(&error))?;
        let witness = Witness::start();
        let pairs: io::Result<Vec<Pair>> = (PORT..)
            .zip(streams)
            .map(|(port, stream)| Pair::start(self.probe, &wan, (port, ipv6), stream, drain))
            .collect();
        let finish = |pairs: Vec<Pair>| pairs.into_iter().map(Pair::finish).collect();
        let probes = pairs.and_then(finish).map_err(|error| match wan.check_sites() {
            Ok(()) => unmeasured(&error),
            // The kernel has killed the probe together with its site.
            Err(killed) => unmeasured(self.killed.insert(killed)),
        })?;
        let link = wan.finish().map_err(|error| unmeasured(&error))?;
        Ok(Outcome {
            probes,
            counts: link.up.impairments,
            interface_drops: link.up.interface_drops,
            emulator_warning: serious_warning(&link),
            machine: witness.finish(),
        })
    }
}

/// Parses options in the form of `longhaul wan run`; reads no files.
pub(super) fn parse(options: &str) -> Result<longhaul_core::plan::LinkPlan, Unmeasured> {
    let mut given = LinkOptions::default();
    let words = words(options);
    for pair in words.chunks(2) {
        if let [name, value] = pair {
            given.set(name.trim_start_matches('-'), *value).map_err(|error| unmeasured(&error))?;
        }
    }
    given.plan(&|_| Err(io::ErrorKind::Unsupported.into())).map_err(|error| unmeasured(&error))
}

/// Splits options into words, with quotation marks around words that contain spaces.
fn words(options: &str) -> Vec<&str> {
    let parts = options.split('\'').enumerate().flat_map(|(index, part)| {
        // Every other part is quoted.
        let quoted = (index % 2 == 1).then_some(part);
        let plain = if quoted.is_none() { part } else { "" };
        plain.split_whitespace().chain(quoted)
    });
    parts.collect()
}

/// Both ends of one probe.
struct Pair {
    sender: End,
    receiver: End,
    output: BufReader<ChildStdout>,
}

/// The process of one end, killed and reaped on drop. A killed site ends only after all its
/// processes have been reaped.
struct End(Child);

impl Drop for End {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Pair {
    fn start(
        probe: &dyn Fn(&ProbePlan) -> Command,
        wan: &Wan,
        (port, ipv6): (u16, bool),
        stream: &Stream,
        drain: Duration,
    ) -> io::Result<Pair> {
        let any = if ipv6 { "[::]" } else { "0.0.0.0" };
        let bind = format!("{any}:{port}").parse().map_err(io::Error::other)?;
        let plan = ReceivePlan { bind, drain_seconds: drain, verify: stream.verify };
        let mut command = probe(&ProbePlan::Receive(plan));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut receiver = End(wan.spawn(Side::Far, command).map_err(io::Error::other)?);
        let output = receiver.0.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let mut output = BufReader::new(output);
        let mut line = String::new();
        output.read_line(&mut line)?;
        if line.is_empty() {
            return Err(io::Error::other("the probe's receiver did not start"));
        }
        let plan = SendPlan {
            to: Side::Far.name().to_owned(),
            port,
            ipv6,
            datagrams: stream.datagrams,
            payload_bytes: stream.payload_bytes,
            together: stream.together,
            interval_seconds: stream.interval,
            ecn_capable: stream.ecn_capable,
            verify: stream.verify,
            threads: stream.threads,
        };
        let mut command = probe(&ProbePlan::Send(plan));
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let sender = End(wan.spawn(Side::Near, command).map_err(io::Error::other)?);
        Ok(Pair { sender, receiver, output })
    }

    /// Waits for the sender, passes its result to the receiver, and waits for the receiver's
    /// report.
    fn finish(self) -> io::Result<ProbeReport> {
        let Pair { mut sender, mut receiver, mut output } = self;
        let mut sent = Vec::new();
        if let Some(mut stdout) = sender.0.stdout.take() {
            stdout.read_to_end(&mut sent)?;
        }
        let _: Sent = serde_json::from_slice(&sent)
            .map_err(|_| io::Error::other("the probe's sender failed"))?;
        if let Some(mut control) = receiver.0.stdin.take() {
            control.write_all(&sent)?;
        }
        let mut report = String::new();
        output.read_line(&mut report)?;
        receiver.0.wait()?;
        serde_json::from_str(&report).map_err(|_| io::Error::other("the probe's receiver failed"))
    }
}
