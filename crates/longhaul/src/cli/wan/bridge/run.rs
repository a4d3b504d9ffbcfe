//! The command: starts the link between the interfaces and answers requests until it ends.

use std::fs::File;
use std::io::Write;
use std::os::fd::BorrowedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use longhaul_core::plan::{LinkPlan, TopologyPlan};
use longhaul_core::result::{LinkReport, TopologyReport};
use longhaul_core::units::{format_span, parse_span};
use longhaul_core::wire::write_frame;
use longhaul_emu::{Bridge, BridgeLoop, EmuError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::super::control::{Reply, Request};
use super::super::packets::PacketFile;
use super::super::requests::{self, Emulated};
use super::super::runtime::{RuntimeFiles, RuntimeLock};
use super::guard::Guard;
use super::saved::restore_left_over;
use super::{Facts, flaws, refusal};
use crate::cli::link::LinkArgs;
use crate::exit::{self, Coded};
use crate::output::{link_text, print_message};

/// Emulate a link between two real interfaces
///
/// Forwards every Ethernet frame between NEAR and FAR, like a cable between them with the
/// properties of the link: IPv4, IPv6 and everything else, with VLAN tags. Runs until interrupted,
/// and needs root. From another terminal, 'wan set NAME/link' changes the link and 'wan status'
/// shows its traffic.
///
/// Exit codes: 0 the link has ended as requested, 2 an option or the choice of interfaces is
/// invalid, for example because they were connected at the start, 5 the file of --pcap cannot be
/// created, 6 the host lacks a permission or an interface is unsuitable, 1 other errors: an interface
/// disappeared, or another connection of the interfaces closed a loop more than five seconds after
/// the start.
#[derive(Debug, Args)]
pub(crate) struct BridgeArgs {
    /// The interface at the near end
    near: String,
    /// The interface at the far end
    far: String,
    #[command(flatten)]
    link: LinkArgs,
    /// Configure the interfaces for the link (up, equal MTUs, no LRO, no addresses and routes), and
    /// restore them at the end
    #[arg(long)]
    fix: bool,
    /// Use an interface that carries the default route of this host
    #[arg(long)]
    yes_i_know: bool,
    /// Name of the bridge for 'wan set NAME/link' and 'wan status'
    #[arg(long, default_value = "bridge")]
    name: String,
    /// End after this time
    #[arg(short = 't', long, value_name = "TIME", value_parser = time)]
    time: Option<Duration>,
    /// Write the counters of the link to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json_report: Option<PathBuf>,
    /// Write the frames of the link, with the times of their arrival and departure and the reasons
    /// of drops, to this file (pcapng)
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Print a line with the counters of the link
    #[arg(short, long)]
    verbose: bool,
}

fn time(text: &str) -> Result<Duration, String> {
    parse_span(text).map_err(|error| error.to_string())
}

/// Runs the bridge until a signal, and returns the exit code.
pub(crate) fn run(args: &BridgeArgs) -> Result<u8, Coded> {
    let plan = plan(args).map_err(|error| Coded::new(exit::USAGE, error))?;
    let host = |error: anyhow::Error| Coded::new(exit::HOST, error);
    restore_left_over()?;
    let read = || anyhow::Ok([Facts::read(&args.near)?, Facts::read(&args.far)?]);
    let mut facts = read().map_err(host)?;
    if let Some(refusal) = refusal(&facts, args.fix, args.yes_i_know) {
        return Err(Coded::new(exit::USAGE, refusal));
    }
    let report_to = args.json_report.as_ref().map(|path| (File::create(path), path));
    let report_to = report_to.map(|(file, path)| {
        file.with_context(|| format!("cannot create the report of the link {}", path.display()))
    });
    let report_to = report_to.transpose()?;
    let held = RuntimeFiles::named(&args.name)?.hold()?;
    let ran = capture_file(args).and_then(|file| bridge(args, plan, (&mut facts, file), &held));
    held.clear(true)?;
    let (report, caller) = ran?;
    // Its end signals to `wan down` that the interfaces are as before.
    drop(caller);
    print_report(&report, args.verbose);
    if let Some(mut file) = report_to {
        serde_json::to_writer_pretty(&mut file, &report)
            .map_err(anyhow::Error::from)
            .and_then(|()| Ok(file.write_all(b"\n")?))
            .context("cannot write the report of the link")?;
    }
    Ok(exit::OK)
}

fn capture_file(args: &BridgeArgs) -> Result<Option<PacketFile>, Coded> {
    let created = args.pcap.as_deref().map(PacketFile::create).transpose();
    created.map_err(|error| Coded::new(exit::FILES, error))
}

fn plan(args: &BridgeArgs) -> anyhow::Result<TopologyPlan> {
    let link = args.link.plan()?;
    anyhow::ensure!(
        !args.link.options().has("mtu"),
        "a bridge has the MTU of its interfaces; set it with 'ip link set {} mtu {}'",
        args.near,
        link.mtu
    );
    let mut plan = TopologyPlan::pair(link);
    plan.name.clone_from(&args.name);
    plan.validate()?;
    Ok(plan)
}

/// Forwards frames until the end. Returns the last counters, and the connection of the command
/// `wan down` that ended the bridge.
fn bridge(
    args: &BridgeArgs,
    mut plan: TopologyPlan,
    (facts, capture_to): (&mut [Facts; 2], Option<PacketFile>),
    held: &RuntimeLock,
) -> Result<(LinkReport, Option<UnixStream>), Coded> {
    let host = |error: anyhow::Error| Coded::new(exit::HOST, error);
    let events = Events::watch(held.listen()?, args.time)?;
    let names = [args.near.as_str(), args.far.as_str()];
    let guard = args.fix.then(|| Guard::start(names)).transpose().map_err(host)?;
    if args.fix {
        for (facts, name) in facts.iter_mut().zip(names) {
            *facts = Facts::read(name).map_err(host)?;
        }
    }
    let mtu = facts.iter().map(|facts| facts.link.mtu).min();
    for link in &mut plan.links {
        link.plan.mtu = mtu.unwrap_or_default().clamp(LinkPlan::MIN_MTU, LinkPlan::MAX_MTU);
    }
    let mut bridge = Bridge::start(&plan, names).map_err(|error| match error {
        EmuError::Loop { .. } => Coded::new(exit::USAGE, error),
        other => host(other.into()),
    })?;
    for flaw in flaws(facts) {
        print_message(format_args!("warning: {flaw}"));
    }
    let capture = capture_to.map(|to| to.start_ethernet(&plan)).transpose()?;
    if let Some(capture) = &capture {
        bridge.capture(capture.capture());
    }
    let link = plan.links.first().map(|link| link_text(&link.plan)).unwrap_or_default();
    print_message(format_args!("bridging {} and {}: {link}", args.near, args.far));
    let ended = events.serve(&mut bridge);
    let report = bridge.finish().map_err(anyhow::Error::from);
    if let Some(capture) = capture {
        capture.end();
    }
    if let Some(mut guard) = guard {
        guard.end()?;
    }
    let caller = ended?;
    Ok((report?, caller))
}

fn print_report(report: &LinkReport, verbose: bool) {
    if verbose {
        print_message(report.summary());
    }
    for warning in &report.warnings {
        print_message(format_args!("warning: {warning}"));
    }
}

/// The events that a bridge waits for.
struct Events {
    requests: UnixListener,
    /// Readable after a signal to end.
    signals: UnixStream,
    end: Option<Instant>,
}

impl Events {
    fn watch(requests: UnixListener, time: Option<Duration>) -> anyhow::Result<Events> {
        const FAILED: &str = "cannot handle signals";
        let (signals, writer) = UnixStream::pair().context(FAILED)?;
        for signal in [SIGHUP, SIGINT, SIGTERM] {
            let writer = writer.try_clone().context(FAILED)?;
            signal_hook::low_level::pipe::register(signal, writer).context(FAILED)?;
        }
        Ok(Events { requests, signals, end: time.map(|time| Instant::now() + time) })
    }

    /// Answers requests until a signal, `wan down` or the end of the time. Returns the connection of
    /// `wan down`.
    ///
    /// # Errors
    /// An interface disappeared, or the bridge is part of a loop.
    fn serve(&self, bridge: &mut Bridge) -> Result<Option<UnixStream>, Coded> {
        /// The interval of checks of the interfaces.
        const CHECK: Duration = Duration::from_millis(500);
        loop {
            let left = self.end.map_or(CHECK, |end| end.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Ok(None);
            }
            if let Some(name) = bridge.lost_interface() {
                let seconds = bridge.report().map_err(anyhow::Error::from)?.seconds;
                return Err(anyhow::anyhow!(
                    "interface {name} disappeared {} after the start of the bridge; start the \
                     bridge again when it exists",
                    format_span(Duration::from_secs(seconds as u64))
                )
                .into());
            }
            if let Some(found) = bridge.find_loop() {
                return Err(loop_error(bridge.interfaces(), found));
            }
            match self.wait(left.min(CHECK)) {
                Some(Wake::Signal) => return Ok(None),
                Some(Wake::Request) => {
                    if let Ok((mut stream, _)) = self.requests.accept()
                        && self.answer(bridge, &mut stream)
                    {
                        return Ok(Some(stream));
                    }
                }
                None => {}
            }
        }
    }

    /// Answers a request. Returns whether it ends the bridge.
    fn answer(&self, bridge: &mut Bridge, stream: &mut UnixStream) -> bool {
        match requests::read(stream) {
            Some(Request::Down) => {
                requests::answer_report(stream, bridge.report());
                true
            }
            Some(Request::Enter { .. }) => {
                let reason = "a bridge has no sites; run the command in the network of one of the \
                              hosts"
                    .to_owned();
                // If the caller has ended, it needs no answer.
                let _ = write_frame(stream, &Reply::Refused { reason });
                false
            }
            Some(request) => {
                requests::answer(bridge, stream, request);
                false
            }
            None => false,
        }
    }

    fn wait(&self, limit: Duration) -> Option<Wake> {
        let mut ready =
            [PollFd::new(&self.signals, PollFlags::IN), PollFd::new(&self.requests, PollFlags::IN)];
        let limit =
            Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
        poll(&mut ready, Some(&limit)).ok()?;
        let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
        match &ready {
            [signal, _] if is_ready(signal) => Some(Wake::Signal),
            [_, request] if is_ready(request) => Some(Wake::Request),
            _ => None,
        }
    }
}

/// Returns the error for a loop with its exit code. A loop that existed at the start is an invalid
/// choice of interfaces.
fn loop_error([near, far]: [&str; 2], found: BridgeLoop) -> Coded {
    let code = match found {
        BridgeLoop::OfStart => exit::USAGE,
        BridgeLoop::Later => exit::FAILED,
    };
    let error = anyhow::anyhow!(
        "a loop probe from {near} or {far} arrived at the other interface: another connection joins \
         them; remove this connection and start the bridge again"
    );
    Coded { code, error }
}

/// The reason for a wake-up.
enum Wake {
    Signal,
    Request,
}

impl Emulated for Bridge {
    fn plan(&self) -> &TopologyPlan {
        self.plan()
    }

    fn report(&self) -> Result<TopologyReport, EmuError> {
        self.report()
    }

    fn set(&mut self, _link: usize, plan: LinkPlan) -> Result<(), EmuError> {
        self.set(plan)
    }

    fn set_down(&mut self, _link: usize, down: bool) {
        self.set_down(down);
    }

    fn is_down(&self, _link: usize) -> bool {
        self.is_down()
    }

    fn site(&self, _site: usize) -> Option<(BorrowedFd<'_>, Vec<(String, String)>)> {
        None
    }
}
