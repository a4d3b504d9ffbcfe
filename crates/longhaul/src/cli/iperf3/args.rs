//! The command line of iperf3.

use std::path::PathBuf;
use std::time::Duration;

use clap::ArgAction::Count;
use longhaul_core::plan::{CpuList, Direction, Pacing, Placement, Protocol, TestLength, TestPlan};
use longhaul_core::units::{Bytes, Rate};
use longhaul_interop::iperf3::output::Format;

use super::values::{parse_bytes, parse_format, parse_rate, parse_seconds, parse_tos};
use crate::cli::test::parse_dscp;

/// The default rate of UDP.
const UDP_RATE: u64 = 1 << 20;
/// The default length of a write, and of a datagram on a path of 1500 bytes.
const LENGTH: u64 = 128 << 10;
const DATAGRAM: u64 = 1448;

/// The options of iperf3. The last one of several counts.
#[derive(Debug, clap::Parser)]
#[command(
    name = "iperf3",
    disable_help_flag = true,
    disable_version_flag = true,
    args_override_self = true
)]
pub(super) struct Args {
    /// Run a server
    #[arg(short, long, conflicts_with = "client")]
    pub(super) server: bool,
    /// Test against the server HOST
    #[arg(short, long, value_name = "HOST")]
    pub(super) client: Option<String>,
    /// Port of the server
    #[arg(short, long, default_value_t = 5201)]
    pub(super) port: u16,
    /// Unit of rates: k, m, g, t, K, M, G or T
    #[arg(short, long, value_parser = parse_format)]
    pub(super) format: Option<Format>,
    /// Seconds between reports
    #[arg(short, long, value_name = "SECS", value_parser = parse_seconds)]
    pub(super) interval: Option<Duration>,
    /// File for the process id
    #[arg(short = 'I', long)]
    pub(super) pidfile: Option<PathBuf>,
    /// CPUs of client and server
    #[arg(short = 'A', long, value_name = "N[,M]")]
    affinity: Option<String>,
    /// Listen on this address (server)
    #[arg(short = 'B', long, value_name = "ADDR")]
    pub(super) bind: Option<String>,
    /// Print more
    #[arg(short = 'V', long)]
    pub(super) verbose: bool,
    /// Print a JSON document
    #[arg(short = 'J', long)]
    pub(super) json: bool,
    /// Print a line of JSON per event
    #[arg(long)]
    pub(super) json_stream: bool,
    /// File for the output
    #[arg(long, value_name = "FILE")]
    pub(super) logfile: Option<PathBuf>,
    /// Write every line at once
    #[arg(long)]
    forceflush: bool,
    /// Accepted without effect
    #[arg(short, long, action = Count)]
    debug: u8,
    /// Print the version
    #[arg(short = 'v', long)]
    pub(super) version: bool,
    /// Print the options
    #[arg(short, long)]
    pub(super) help: bool,
    /// Exit after one client (server)
    #[arg(short = '1', long)]
    pub(super) one_off: bool,
    /// Exit after this time without a client (server)
    #[arg(long, value_name = "SECS", value_parser = parse_seconds)]
    pub(super) idle_timeout: Option<Duration>,
    /// Highest rate of a test (server)
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub(super) server_bitrate_limit: Option<(Rate, Option<u64>)>,
    /// Longest test (server)
    #[arg(long, value_name = "SECS", value_parser = parse_seconds)]
    pub(super) server_max_duration: Option<Duration>,
    /// Use UDP
    #[arg(short, long)]
    udp: bool,
    /// Rate per stream, and packets per burst
    #[arg(short, long, visible_alias = "bandwidth", value_name = "RATE[/BURST]", value_parser = parse_rate)]
    bitrate: Option<(Rate, Option<u64>)>,
    /// Rate per stream, paced by the kernel
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    fq_rate: Option<(Rate, Option<u64>)>,
    /// Seconds to send
    #[arg(short, long, value_name = "SECS", value_parser = parse_seconds)]
    time: Option<Duration>,
    /// Bytes to send
    #[arg(short = 'n', long, value_name = "BYTES", value_parser = parse_bytes)]
    bytes: Option<u64>,
    /// Writes to send
    #[arg(short = 'k', long, value_name = "COUNT", value_parser = parse_bytes)]
    blockcount: Option<u64>,
    /// Bytes per write or datagram
    #[arg(short, long, value_name = "BYTES", value_parser = parse_bytes)]
    length: Option<u64>,
    /// Streams
    #[arg(short = 'P', long, default_value_t = 1)]
    parallel: u32,
    /// The server sends
    #[arg(short = 'R', long, conflicts_with = "bidir")]
    reverse: bool,
    /// Both ends send
    #[arg(long)]
    bidir: bool,
    /// Socket buffers
    #[arg(short, long, value_name = "BYTES", value_parser = parse_bytes)]
    window: Option<u64>,
    /// Congestion control
    #[arg(short = 'C', long, visible_alias = "linux-congestion")]
    congestion: Option<String>,
    /// Maximum segment size
    #[arg(short = 'M', long)]
    set_mss: Option<u32>,
    /// Disable Nagle's algorithm
    #[arg(short = 'N', long)]
    no_delay: bool,
    /// Use only IPv4
    #[arg(short = '4', long, conflicts_with = "version6")]
    pub(super) version4: bool,
    /// Use only IPv6
    #[arg(short = '6', long)]
    pub(super) version6: bool,
    /// Type of service
    #[arg(short = 'S', long, value_parser = parse_tos)]
    tos: Option<u8>,
    /// Differentiated services code point
    #[arg(long, value_parser = parse_dscp)]
    dscp: Option<u8>,
    /// Send without copying
    #[arg(short = 'Z', long)]
    zerocopy: bool,
    /// Let the kernel discard received data
    #[arg(long)]
    skip_rx_copy: bool,
    /// Omit the first seconds
    #[arg(short = 'O', long, value_name = "SECS", value_parser = parse_seconds)]
    omit: Option<Duration>,
    /// Title of every line
    #[arg(short = 'T', long)]
    pub(super) title: Option<String>,
    /// Text for the document
    #[arg(long)]
    pub(super) extra_data: Option<String>,
    /// Print the server's output, too
    #[arg(long)]
    pub(super) get_server_output: bool,
    /// Datagram numbers of 64 bits; always on
    #[arg(long)]
    udp_counters_64bit: bool,
    /// Accepted without effect
    #[arg(long)]
    repeating_payload: bool,
    /// User of an authenticated server
    #[arg(long)]
    pub(super) username: Option<String>,
    /// Public key of an authenticated server
    #[arg(long, value_name = "FILE")]
    pub(super) rsa_public_key_path: Option<PathBuf>,
    /// Encrypt the password as versions before 3.17
    #[arg(long)]
    pub(super) use_pkcs1_padding: bool,
    /// Accepted without effect
    #[arg(long, value_name = "US")]
    pacing_timer: Option<String>,
    /// Accepted without effect
    #[arg(long, value_name = "MS")]
    connect_timeout: Option<String>,
    /// Accepted without effect
    #[arg(long, value_name = "MS")]
    rcv_timeout: Option<String>,
    /// Accepted without effect
    #[arg(long, value_name = "MS")]
    snd_timeout: Option<String>,
    /// Accepted without effect
    #[arg(long)]
    no_fq_socket_pacing: bool,
    /// Accepted without effect: always on where the kernel has it
    #[arg(long)]
    gsro: bool,
    /// Not available
    #[arg(short = 'F', long)]
    file: Option<PathBuf>,
    /// Not available
    #[arg(short = 'D', long)]
    daemon: bool,
    /// Not available
    #[arg(long)]
    sctp: bool,
    /// Not available
    #[arg(short = 'm', long)]
    mptcp: bool,
    /// Not available
    #[arg(short = 'L', long)]
    flowlabel: Option<String>,
    /// Not available
    #[arg(short = 'X', long)]
    xbind: Option<String>,
    /// Not available
    #[arg(long)]
    nstreams: Option<String>,
    /// Not available
    #[arg(long)]
    cport: Option<u16>,
    /// Not available
    #[arg(long)]
    bind_dev: Option<String>,
    /// Not available
    #[arg(long)]
    dont_fragment: bool,
    /// Not available
    #[arg(long, num_args = 0..=1, require_equals = true)]
    timestamps: Option<Option<String>>,
    /// Private key of the server, for users
    #[arg(long, value_name = "FILE")]
    pub(super) rsa_private_key_path: Option<PathBuf>,
    /// Users of the server, with digests of their passwords
    #[arg(long, value_name = "FILE")]
    pub(super) authorized_users_path: Option<PathBuf>,
    /// Tolerated difference of a client's clock
    #[arg(long, value_name = "SECS", value_parser = parse_seconds)]
    pub(super) time_skew_threshold: Option<Duration>,
}

impl Args {
    /// Returns the first option that this program does not have.
    pub(super) fn unavailable(&self) -> Option<&'static str> {
        [
            (self.file.is_some(), "--file"),
            (self.daemon, "--daemon; use a service manager, such as dist/longhaul-serve.service"),
            (self.sctp, "--sctp"),
            (self.mptcp, "--mptcp; 'longhaul test --mptcp' has it"),
            (self.flowlabel.is_some(), "--flowlabel"),
            (self.xbind.is_some(), "--xbind"),
            (self.nstreams.is_some(), "--nstreams"),
            (self.cport.is_some(), "--cport"),
            (self.bind_dev.is_some(), "--bind-dev"),
            (self.dont_fragment, "--dont-fragment"),
            (self.timestamps.is_some(), "--timestamps"),
        ]
        .into_iter()
        .find_map(|(given, name)| given.then_some(name))
    }

    /// Returns the options that have no effect, for a warning.
    pub(super) fn without_effect(&self) -> Vec<&'static str> {
        [
            (self.debug > 0, "--debug"),
            (self.forceflush, "--forceflush"),
            (self.repeating_payload, "--repeating-payload"),
            (self.udp_counters_64bit, "--udp-counters-64bit"),
            (self.pacing_timer.is_some(), "--pacing-timer"),
            (self.connect_timeout.is_some(), "--connect-timeout"),
            (self.rcv_timeout.is_some(), "--rcv-timeout"),
            (self.snd_timeout.is_some(), "--snd-timeout"),
            (self.no_fq_socket_pacing, "--no-fq-socket-pacing"),
            (self.gsro, "--gsro"),
        ]
        .into_iter()
        .filter_map(|(given, name)| given.then_some(name))
        .collect()
    }

    /// Returns the plan of a client.
    ///
    /// # Errors
    /// A sentence about options that exclude each other.
    pub(super) fn plan(&self) -> Result<TestPlan, String> {
        let ends = [self.time.is_some(), self.bytes.is_some(), self.blockcount.is_some()];
        if ends.into_iter().filter(|given| *given).count() > 1 {
            return Err("only one test end condition (-t, -n, -k) may be specified".to_owned());
        }
        let length = self.length.filter(|length| *length > 0);
        let length = length.unwrap_or(if self.udp { DATAGRAM } else { LENGTH });
        let time = self
            .time
            .filter(|time| !time.is_zero())
            .unwrap_or(Duration::from_secs(if self.time.is_some() { 86_400 } else { 10 }));
        let udp_rate = self.udp.then_some((Rate::from_bps(UDP_RATE), None));
        // A rate of 0 is unlimited.
        let rate = self.bitrate.or(self.fq_rate).or(udp_rate).filter(|rate| rate.0.bps() > 0);
        let streams = u64::from(self.parallel);
        let per_stream = |rate: Rate| Rate::from_bps(rate.bps().saturating_mul(streams));
        let kernel = self.bitrate.is_none() && self.fq_rate.is_some();
        let burst = rate.and_then(|rate| rate.1);
        Ok(TestPlan {
            direction: match (self.reverse, self.bidir) {
                (true, _) => Direction::Reverse,
                (false, true) => Direction::Both,
                (false, false) => Direction::Forward,
            },
            amount: match (self.bytes, self.blockcount) {
                (Some(bytes @ 1..), _) => TestLength::Bytes(Bytes::new(bytes)),
                (_, Some(blocks @ 1..)) => {
                    TestLength::Bytes(Bytes::new(blocks.saturating_mul(length)))
                }
                _ => TestLength::Time(time),
            },
            omit: self.omit.unwrap_or_default(),
            interval: self.interval.filter(|i| !i.is_zero()).unwrap_or(Duration::from_secs(1)),
            streams: self.parallel,
            write_bytes: Bytes::new(length),
            window_bytes: self.window.filter(|window| *window > 0).map(Bytes::new),
            congestion: self.congestion.clone(),
            mss: self.set_mss,
            rate_bps: rate.map(|rate| per_stream(rate.0)),
            protocol: if self.udp { Protocol::Udp } else { Protocol::Tcp },
            pacing: rate.map(|_| if kernel { Pacing::Kernel } else { Pacing::Timer }),
            burst_bytes: burst.map(|packets| Bytes::new(packets.saturating_mul(length))),
            dscp: self.dscp.or(self.tos),
            nodelay: self.no_delay,
            zero_copy: self.zerocopy,
            skip_receive_copy: self.skip_rx_copy,
            placement: self.placement()?,
            ..TestPlan::new()
        })
    }

    fn placement(&self) -> Result<Placement, String> {
        let Some(affinity) = &self.affinity else { return Ok(Placement::Auto) };
        let client = affinity.split(',').next().unwrap_or_default();
        let list: CpuList = client.parse().map_err(|error| format!("-A {client}: {error}"))?;
        Ok(Placement::On { client: Some(list), server: None })
    }
}
