//! `longhaul test`: turns arguments into a plan, runs the test and prints its result.

mod target;
mod values;

pub(super) use target::credentials as peer_credentials;
pub(super) use values::parse_dscp;

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use longhaul_core::plan::{
    Direction, Opener, Pacing, Placement, Protocol, TestLength, TestLink, TestPlan,
};
use longhaul_core::result::{TEST_SCHEMA, TestEnd, TestResult, TestSample};
use longhaul_core::units::{Bytes, Rate, parse_span};
use longhaul_core::wire::Service;
use longhaul_engine::session::{
    ConfigDir, ConnectOptions, Family, HostPolicy, HostPort, LocalAddress,
};
use longhaul_engine::{EngineError, test};
use longhaul_interop::PeerTest;
use longhaul_interop::iperf3::Credentials;
use serde_json::json;

use self::target::Target;
use self::values::{AddressList, parse_placement, parse_tos};
use super::bind::BindArgs;
use super::queue::connect_in_turn;
use crate::exit::{self, Coded};
use crate::output::{
    TestText, after_printing, complete_test, print_document, print_document_line, print_message,
    print_note, print_result,
};
use crate::passphrase;
use crate::process::invocation;
use crate::remote::{SshOptions, SshServer, is_ssh_alias};
use crate::signals::Interrupt;

#[derive(Debug, clap::Args)]
#[command(after_help = "Sizes are 64MiB, 4G (binary) or 4GB; rates 10G or 2.5Gb/s; times 10, \
                        1.5s or 200ms. Exit codes: 0 done, 2 invalid arguments, 3 host \
                        unreachable or connection lost, 4 refused by the server, 130 interrupted \
                        by Ctrl-C.")]
pub(super) struct Args {
    #[arg(help = "Address of 'longhaul serve': HOST, HOST:PORT or [IPV6]:PORT; or of another \
                  server: iperf3://HOST[:PORT] or nuttcp://HOST[:PORT]; or USER@HOST to start \
                  longhaul there over ssh")]
    host: Target,
    #[arg(help = "Address of a second server: HOST tests against it, and this host prints the \
                  result")]
    other: Option<HostPort>,
    /// Port of the server; with two servers, of the first one
    #[arg(short, long, value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Test for this long [default: 10]
    #[arg(short, long, value_name = "SECS", value_parser = parse_span, conflicts_with = "bytes")]
    time: Option<Duration>,
    /// Send this many bytes over all streams together
    #[arg(short = 'n', long)]
    bytes: Option<Bytes>,
    /// Send this many blocks of -l bytes
    #[arg(short = 'k', long = "blockcount", value_name = "BLOCKS", conflicts_with_all = ["bytes", "time"])]
    blocks: Option<u64>,
    /// Streams in each direction, with a thread per stream on both hosts [default: 1, or one per
    /// link of --local and --remote]
    #[arg(short = 'P', long = "parallel", value_name = "STREAMS")]
    streams: Option<u32>,
    /// The server sends
    #[arg(short = 'R', long, conflicts_with = "bidir")]
    reverse: bool,
    /// Both hosts send at the same time, over separate streams
    #[arg(long)]
    bidir: bool,
    /// The server opens the data connections to this host, for a server behind a firewall
    #[arg(long)]
    flip: bool,
    /// Use UDP instead of TCP; without -b as fast as the host can send
    #[arg(short = 'u', long, conflicts_with = "mptcp")]
    udp: bool,
    /// Use Multipath TCP instead of TCP
    #[arg(long)]
    mptcp: bool,
    /// Pace all streams of a direction together to this rate
    #[arg(short = 'b', long = "bitrate", value_name = "RATE")]
    rate: Option<Rate>,
    /// Apply -b to each stream
    #[arg(long, requires = "rate")]
    per_stream: bool,
    /// Pace in the kernel, packet by packet, or by a timer in the sending thread [default: kernel
    /// for TCP, timer for UDP and MPTCP]
    #[arg(long, value_name = "BY")]
    pacing: Option<PacingArg>,
    /// Bytes that a stream paced by a timer sends back to back [default: the bytes of 1 ms]
    #[arg(long, value_name = "BYTES")]
    burst: Option<Bytes>,
    /// Bytes per write, or per datagram [default: 1 MiB, or the bytes of 10 ms at a low rate; for UDP
    /// the largest datagram that the path MTU allows, at most 8972, or the bytes of 10 ms]
    #[arg(short, long = "length", value_name = "BYTES")]
    length: Option<Bytes>,
    /// Socket buffer size on both hosts [default: autotuned by the kernel]
    #[arg(short, long, value_name = "BYTES")]
    window: Option<Bytes>,
    /// Congestion control of the sender, such as bbr or cubic [default: the host's]
    #[arg(short = 'C', long, value_name = "ALGORITHM")]
    congestion: Option<String>,
    /// Maximum segment size
    #[arg(short = 'M', long = "set-mss", value_name = "BYTES")]
    mss: Option<u32>,
    /// Disable Nagle's algorithm (TCP_NODELAY)
    #[arg(short = 'N', long)]
    no_delay: bool,
    /// Differentiated services code point: 0 to 63, or a name such as ef, cs1 or af41
    #[arg(long, value_name = "DSCP", value_parser = parse_dscp, conflicts_with = "tos")]
    dscp: Option<u8>,
    /// Type of service, the whole byte: 0xb8 is --dscp 46
    #[arg(short = 'S', long, value_name = "BYTE", value_parser = parse_tos)]
    tos: Option<u8>,
    /// Send without copying from user memory, by splice(2)
    #[arg(short = 'Z', long)]
    zerocopy: bool,
    /// The receiving kernel discards the data without copying them, so the rate can exceed that of
    /// a real application
    #[arg(long)]
    skip_rx_copy: bool,
    /// CPUs of the streams on this host and on the server: 0-3,4-7 or 0+2,1+3; 'auto' selects the
    /// NUMA node of the network interface, 'off' leaves the choice to the scheduler
    #[arg(short = 'A', long, value_name = "CPUS[,CPUS]", value_parser = parse_placement, default_value = "auto")]
    affinity: Placement,
    #[command(flatten)]
    bind: BindArgs,
    /// Local addresses to distribute the streams over: ADDR,ADDR or ADDR+STEP*COUNT
    #[arg(long, value_name = "ADDRS", value_parser = AddressList::parse)]
    local: Option<AddressList>,
    /// Addresses of the server to distribute the streams over
    #[arg(long, value_name = "ADDRS", value_parser = AddressList::parse)]
    remote: Option<AddressList>,
    /// Use only IPv4
    #[arg(short = '4', long, conflicts_with = "ipv6")]
    ipv4: bool,
    /// Use only IPv6
    #[arg(short = '6', long)]
    ipv6: bool,
    /// Measure the round-trip time of small requests before and during the test
    #[arg(long)]
    latency: bool,
    /// User name for an iperf3 server with authentication; set the password in IPERF3_PASSWORD
    #[arg(long, value_name = "NAME", requires = "rsa_public_key_path")]
    username: Option<String>,
    /// Public key of the iperf3 server, in PEM format
    #[arg(long, value_name = "FILE", requires = "username")]
    rsa_public_key_path: Option<PathBuf>,
    /// Encrypt the password as versions of iperf3 before 3.17 do
    #[arg(long, requires = "username")]
    use_pkcs1_padding: bool,
    /// Omit the first seconds from the result
    #[arg(short = 'O', long, value_name = "SECS", value_parser = parse_span, default_value = "0")]
    omit: Duration,
    /// Time between interval lines
    #[arg(short, long, value_name = "SECS", value_parser = parse_span, default_value = "1")]
    interval: Duration,
    /// Print one JSON document, "longhaul.test/1"
    #[arg(short = 'J', long, conflicts_with = "json_stream")]
    json: bool,
    /// Print one line of JSON per interval, and one for the result
    #[arg(long)]
    json_stream: bool,
    #[command(flatten)]
    ssh: SshOptions,
}

/// The pacing method of `--pacing`.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum PacingArg {
    Kernel,
    Timer,
}

/// The circumstances of a run.
#[derive(Clone, Copy)]
struct Run<'a> {
    interrupt: &'a Interrupt,
    /// The local address of `--bind`.
    local: Option<&'a LocalAddress>,
    begun: Instant,
}

/// The test that is printed: the address of the server as text, the plan, and the start.
struct PrintedTest<'a> {
    shown: &'a str,
    plan: &'a TestPlan,
    begun: Instant,
}

impl Args {
    pub(super) fn run(self) -> Result<u8, Coded> {
        let begun = Instant::now();
        // Invalid arguments are reported before a connection is opened.
        let plan = self.plan(TestPlan::DATAGRAM_BYTES)?;
        let local = self.bind.checked(self.family())?;
        for address in AddressList::of(&self.local) {
            LocalAddress::from(address.clone()).check()?;
        }
        let local = local.as_ref();
        let interrupt = Interrupt::install().map_err(|e| Coded::new(exit::HOST, e))?;
        let run = Run { interrupt: &interrupt, local, begun };
        match self.host.clone() {
            Target::Longhaul(mut target) => {
                target.port = self.port.unwrap_or(target.port);
                self.run_longhaul(&target, plan, run)
            }
            Target::Ssh(destination) => self.run_ssh(&destination, plan, run),
            Target::Peer(_) if self.other.is_some() => {
                let reason = anyhow!("a test between two servers needs 'longhaul serve' on both");
                Err(Coded::new(exit::USAGE, reason))
            }
            Target::Peer(mut address) => {
                address.port = self.port.unwrap_or(address.port);
                let shown = format!("{}:{}", address.host, address.port);
                let credentials = self.credentials()?;
                let test = PeerTest {
                    address: &address,
                    plan: &plan,
                    family: self.family(),
                    local,
                    stop: interrupt.flag(),
                };
                let printed = PrintedTest { shown: &shown, plan: &plan, begun };
                self.print(printed, &interrupt, |show| {
                    target::run_with_peer(&test, credentials, show)
                })
            }
        }
    }

    fn run_longhaul(
        &self,
        target: &HostPort,
        mut plan: TestPlan,
        run: Run<'_>,
    ) -> Result<u8, Coded> {
        let Run { interrupt, local, begun } = run;
        let config = ConfigDir::of_user()?;
        let identity = passphrase::identity(&config)?;
        // A test sends no secrets, so an unknown server is accepted, but not a changed key.
        let policy = HostPolicy::RefuseChanged;
        let (identity, config, family) = (&identity, &config, self.family());
        let options = ConnectOptions { identity, config, policy, family, local };
        let service = match &self.other {
            None => Service::Test,
            Some(_) => Service::ThirdParty,
        };
        let session = match connect_in_turn(target, service, &options, interrupt.flag()) {
            Err(EngineError::Resolve { .. }) if is_ssh_alias(&target.host, &self.ssh) => {
                return self.run_ssh(&target.host, plan, run);
            }
            opened => opened?,
        };
        if let (None, Some(bytes)) = (&self.other, session.datagram_bytes()) {
            plan = self.plan(bytes)?;
        }
        let shown = self.other.as_ref().unwrap_or(target).to_string();
        let printed = PrintedTest { shown: &shown, plan: &plan, begun };
        self.print(printed, interrupt, |show| {
            let result = match &self.other {
                None => test::run(session, &plan, interrupt.flag(), show),
                Some(other) => test::run_third(session, other, &plan, interrupt.flag(), show),
            };
            Ok(result?)
        })
    }

    /// Runs the test with a server that ssh starts at `destination`.
    fn run_ssh(
        &self,
        destination: &str,
        mut plan: TestPlan,
        Run { interrupt, local, begun }: Run<'_>,
    ) -> Result<u8, Coded> {
        if self.other.is_some() || self.port.is_some() {
            let reason = "a test over ssh has one host, and ssh -p sets its port: -e 'ssh -p PORT'";
            return Err(Coded::new(exit::USAGE, anyhow!(reason)));
        }
        let (far, session) = SshServer::start(destination, Service::Test, &self.ssh)?;
        let session = session.bound_to(local.cloned())?;
        if let Some(bytes) = session.datagram_bytes() {
            plan = self.plan(bytes)?;
        }
        let printed = PrintedTest { shown: destination, plan: &plan, begun };
        let done = self.print(printed, interrupt, |show| {
            Ok(test::run(session, &plan, interrupt.flag(), show)?)
        });
        far.finish();
        done
    }

    /// Returns the credentials for an iperf3 server.
    fn credentials(&self) -> Result<Option<Credentials>, Coded> {
        let (Some(user), Some(key)) = (&self.username, &self.rsa_public_key_path) else {
            return Ok(None);
        };
        target::credentials(user, key, self.use_pkcs1_padding).map(Some)
    }

    fn family(&self) -> Family {
        match (self.ipv4, self.ipv6) {
            (true, _) => Family::V4,
            (false, true) => Family::V6,
            (false, false) => Family::Any,
        }
    }

    /// Prints the heading, the intervals and the result of the test that `measure` runs. The heading
    /// precedes the first interval, so that a test that cannot start prints only its error.
    fn print(
        &self,
        PrintedTest { shown, plan, begun }: PrintedTest<'_>,
        interrupt: &Interrupt,
        measure: impl FnOnce(&mut dyn FnMut(&TestSample)) -> Result<TestResult, Coded>,
    ) -> Result<u8, Coded> {
        let mut lines = Lines { interrupt, printed: Ok(()) };
        let text = TestText::new(shown, plan);
        let mut head = (!self.json && !self.json_stream).then(|| text.head());
        let mut result = measure(&mut |sample: &TestSample| {
            if self.json_stream {
                lines.event("interval", &json!(sample));
            } else if !self.json {
                if let Some(head) = head.take() {
                    lines.text(&head);
                }
                lines.text(&text.interval(sample));
            }
        })?;
        result.invocation = Some(invocation(begun.elapsed()));
        complete_test(&mut result);
        for warning in &result.warnings {
            print_note(format_args!("warning: {}: {}", warning.message, warning.advice));
        }
        if self.json {
            lines.keep(print_document(&result));
        } else if self.json_stream {
            // The intervals have been printed.
            let whole = TestResult { intervals: Vec::new(), ..result.clone() };
            lines.event("result", &json!(whole));
        } else {
            if let Some(head) = head {
                lines.text(&head);
            }
            lines.text(&text.block(&result));
        }
        match result.end {
            TestEnd::Completed => after_printing(exit::OK, lines.printed),
            TestEnd::Interrupted => {
                after_printing(interrupt.exit_code().unwrap_or(exit::OK), lines.printed)
            }
            // The document states the reason, too.
            TestEnd::Cut { reason } => {
                print_message(format_args!("the test was aborted: {reason}"));
                after_printing(exit::UNREACHABLE, lines.printed)
            }
        }
    }

    fn direction(&self) -> Direction {
        match (self.reverse, self.bidir) {
            (_, true) => Direction::Both,
            (true, false) => Direction::Reverse,
            (false, false) => Direction::Forward,
        }
    }

    /// Returns the plan. `datagram_bytes` is the default size of a datagram.
    fn plan(&self, datagram_bytes: Bytes) -> Result<TestPlan, Coded> {
        let defaults = TestPlan::new();
        let protocol = match (self.udp, self.mptcp) {
            (true, _) => Protocol::Udp,
            (false, true) => Protocol::Mptcp,
            (false, false) => Protocol::Tcp,
        };
        let links = TestLink::pair(AddressList::of(&self.local), AddressList::of(&self.remote));
        let streams = self.streams.unwrap_or(links.len().max(1) as u32);
        let factor = if self.per_stream { streams.into() } else { 1 };
        let rate_bps = self.rate.map(|rate| Rate::from_bps(rate.bps().saturating_mul(factor)));
        let write_bytes = self.length.unwrap_or(match (protocol, rate_bps) {
            (Protocol::Udp, Some(rate)) if self.blocks.is_none() => {
                TestPlan::paced_datagram_bytes(rate, streams, datagram_bytes)
            }
            (Protocol::Udp, _) => datagram_bytes,
            (Protocol::Tcp | Protocol::Mptcp, Some(rate)) if self.blocks.is_none() => {
                TestPlan::paced_write_bytes(rate, streams)
            }
            (Protocol::Tcp | Protocol::Mptcp, _) => defaults.write_bytes,
        });
        let plan = TestPlan {
            direction: self.direction(),
            amount: match (self.bytes, self.blocks, self.time) {
                (Some(bytes), _, _) => TestLength::Bytes(bytes),
                (None, Some(blocks), _) => {
                    TestLength::Bytes(Bytes::new(blocks.saturating_mul(write_bytes.get())))
                }
                (None, None, Some(time)) => TestLength::Time(time),
                (None, None, None) => defaults.amount,
            },
            omit: self.omit,
            interval: self.interval,
            streams,
            write_bytes,
            window_bytes: self.window,
            congestion: self.congestion.clone(),
            mss: self.mss,
            rate_bps,
            protocol,
            opener: if self.flip { Opener::Server } else { Opener::Client },
            links,
            pacing: self.pacing.map(|pacing| match pacing {
                PacingArg::Kernel => Pacing::Kernel,
                PacingArg::Timer => Pacing::Timer,
            }),
            burst_bytes: self.burst,
            dscp: self.dscp.or(self.tos),
            nodelay: self.no_delay,
            zero_copy: self.zerocopy,
            skip_receive_copy: self.skip_rx_copy,
            placement: self.affinity.clone(),
            latency: self.latency,
        };
        plan.validate().map_err(|error| Coded::new(exit::USAGE, error))?;
        Ok(plan)
    }
}

/// Standard output. The test is interrupted if a write fails.
struct Lines<'a> {
    interrupt: &'a Interrupt,
    /// The first failure.
    printed: Result<(), Coded>,
}

impl Lines<'_> {
    fn text(&mut self, text: &str) {
        self.keep(print_result(&format!("{text}\n")));
    }

    fn event(&mut self, name: &str, data: &serde_json::Value) {
        let event = json!({ "schema": TEST_SCHEMA, "event": name, "data": data });
        self.keep(print_document_line(&event));
    }

    fn keep(&mut self, printed: Result<(), Coded>) {
        if printed.is_err() {
            self.interrupt.flag().store(true, Ordering::Release);
        }
        if self.printed.is_ok() {
            self.printed = printed;
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        args: Args,
    }

    fn plan(line: &str) -> Result<TestPlan, Coded> {
        let words = std::iter::once("test").chain(line.split_whitespace());
        Program::try_parse_from(words).expect("clap takes it").args.plan(Bytes::new(8972))
    }

    #[test]
    fn flags_follow_iperf3() {
        let plan =
            plan("far -R -P 4 -n 4G -b 10G -l 1M -w 64M -C bbr -M 1400 -O 2 -i 0.5").unwrap();
        let expected = TestPlan {
            direction: Direction::Reverse,
            amount: TestLength::Bytes(Bytes::gib(4)),
            omit: Duration::from_secs(2),
            interval: Duration::from_millis(500),
            streams: 4,
            write_bytes: Bytes::mib(1),
            window_bytes: Some(Bytes::mib(64)),
            congestion: Some("bbr".to_owned()),
            mss: Some(1400),
            rate_bps: Some(Rate::from_bps(10_000_000_000)),
            ..TestPlan::new()
        };
        assert_eq!(plan, expected);
    }

    #[test]
    fn no_flags_give_the_default_plan() {
        assert_eq!(plan("far").unwrap(), TestPlan::new());
    }

    #[test]
    fn udp_mptcp_and_address_flags_reach_the_plan() {
        let found = plan(
            "far -u --bidir --flip -b 1G -P 4 --per-stream --burst 64K -S 0xb8 --latency \
             -A 0-1,2+4",
        );
        let expected = TestPlan {
            protocol: Protocol::Udp,
            direction: Direction::Both,
            opener: Opener::Server,
            rate_bps: Some(Rate::from_bps(4_000_000_000)),
            streams: 4,
            write_bytes: Bytes::new(8972),
            burst_bytes: Some(Bytes::new(65536)),
            dscp: Some(46),
            latency: true,
            placement: Placement::On {
                client: Some("0-1".parse().unwrap()),
                server: Some("2+4".parse().unwrap()),
            },
            ..TestPlan::new()
        };
        assert_eq!(found.unwrap(), expected);
        let found = plan("far --mptcp -Z --skip-rx-copy -N --dscp af41 -k 3 -l 64K -A off");
        let expected = TestPlan {
            protocol: Protocol::Mptcp,
            zero_copy: true,
            skip_receive_copy: true,
            nodelay: true,
            dscp: Some(34),
            write_bytes: Bytes::new(65536),
            amount: TestLength::Bytes(Bytes::new(3 * 65536)),
            placement: Placement::Free,
            ..TestPlan::new()
        };
        assert_eq!(found.unwrap(), expected);
        let found = plan("far --local 10.0.1.1+256*2 --remote 10.0.1.2,10.0.2.2").unwrap();
        assert_eq!((found.links.len(), found.streams), (2, 2));
        assert_eq!(found.links[1].client.as_ref().unwrap().to_string(), "10.0.2.1");
    }

    #[test]
    fn dscp_names_and_cpu_lists_are_parsed() {
        for (text, dscp) in [("0", 0), ("63", 63), ("EF", 46), ("cs1", 8), ("af11", 10), ("le", 1)]
        {
            assert_eq!(parse_dscp(text).unwrap(), dscp, "{text}");
        }
        for text in ["64", "-1", "cs8", "af51", "af14", "ef1", "", "afXX"] {
            assert!(parse_dscp(text).is_err(), "{text}");
        }
        assert_eq!(parse_tos("184").unwrap(), 46);
        assert!(parse_tos("0xb9").is_err() && parse_tos("256").is_err());
        let there = Placement::On { client: None, server: Some("1".parse().unwrap()) };
        assert_eq!(parse_placement(",1").unwrap(), there);
        for text in ["", ",", "a", "1,", "1,2,3"] {
            assert!(parse_placement(text).is_err(), "{text}");
        }
    }

    #[test]
    fn invalid_arguments_are_a_usage_error() {
        for line in [
            "far -P 0",
            "far -P 1000",
            "far -t 0",
            "far -n 0",
            "far -i 0",
            "far -l 1G",
            "far -u -Z",
            "far --burst 1K",
            "far -u -l 10",
        ] {
            assert_eq!(plan(line).unwrap_err().code, exit::USAGE, "{line}");
        }
        for line in [
            "far -t 10 -n 1G",
            "far -R --bidir",
            "far -u --mptcp",
            "far -4 -6",
            "far --per-stream",
            "far -b fast",
            "far -t -1",
            "far:0",
            "",
            "a b c",
        ] {
            let words = std::iter::once("test").chain(line.split_whitespace());
            assert!(Program::try_parse_from(words).is_err(), "{line}");
        }
    }
}
