//! `longhaul test`: the arguments, and the plan that they make.

mod measure;
mod target;
mod values;

pub(super) use target::credentials as peer_credentials;
pub(super) use values::parse_dscp;

use std::path::PathBuf;
use std::time::Duration;

use longhaul_core::plan::{
    Direction, Opener, Pacing, Placement, Protocol, TestLength, TestLink, TestPlan,
};
use longhaul_core::units::{Bytes, Rate, parse_span};
use longhaul_engine::session::{Family, HostPort};

use self::target::Target;
use self::values::{AddressList, parse_placement, parse_tos};
use super::bind::BindArgs;
use crate::exit::{self, Coded};
use crate::remote::SshOptions;

#[derive(Debug, clap::Args)]
#[command(after_help = "Sizes are 64MiB, 4G (binary) or 4GB; rates 10G or 2.5Gb/s; times 10, \
                        1.5s or 200ms. Exit codes: 0 done, 2 invalid arguments, 3 host \
                        unreachable or connection lost, 4 refused by the server, 6 error of this \
                        host, 130 interrupted by Ctrl-C, 143 ended by SIGTERM.")]
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

impl Args {
    fn family(&self) -> Family {
        match (self.ipv4, self.ipv6) {
            (true, _) => Family::V4,
            (false, true) => Family::V6,
            (false, false) => Family::Any,
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
