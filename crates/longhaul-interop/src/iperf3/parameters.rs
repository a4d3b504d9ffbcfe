//! The parameters of a test, which the client sends to the server.

use std::time::Duration;

use longhaul_core::plan::{Direction, Pacing, Placement, Protocol, TestLength, TestPlan};
use longhaul_core::units::{Bytes, Rate};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::{Fault, PeerOption};

/// The longest parameters that a server accepts; iperf3 3.18 has the same limit.
pub const MOST_PARAMETERS: u32 = 8 << 10;
/// The limits of every iperf3 server (iperf.h): the longest write, the largest socket buffer, and
/// the longest test and omitted time in seconds.
const MOST_LENGTH: u64 = 1 << 20;
const MOST_WINDOW: u64 = 512 << 20;
const MOST_TIME: u64 = 86_400;
const MOST_OMIT: u64 = 600;
/// The largest burst in packets.
const MOST_BURST: u64 = 1000;
/// The range of the length of a datagram.
const DATAGRAM_LENGTHS: std::ops::RangeInclusive<u64> = 16..=65_507;
/// The default length of a write over TCP and of a datagram.
const DEFAULT_LENGTH: u64 = 128 << 10;
const DEFAULT_DATAGRAM: u64 = 1460;
/// The buffer of a receiver with GRO; the largest of iperf3 3.21.
const GRO_BUFFER: u64 = 65_507;
/// The length of reads, if the client's writes are shorter.
const LEAST_READ: u64 = 128 << 10;

/// The parameters of a test. The order of the fields is that of the document.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Parameters {
    /// True for TCP.
    #[serde(skip_serializing_if = "is_false")]
    pub tcp: bool,
    /// True for UDP.
    #[serde(skip_serializing_if = "is_false")]
    pub udp: bool,
    /// True for SCTP.
    #[serde(skip_serializing_if = "is_false")]
    pub sctp: bool,
    /// The omitted time in seconds.
    pub omit: u64,
    /// The CPU of the server's threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_affinity: Option<u64>,
    /// The time in seconds; 0 if bytes or blocks end the test.
    pub time: u64,
    /// The bytes to send; 0 for no such end.
    pub num: u64,
    /// The writes to send; 0 for no such end.
    pub blockcount: u64,
    /// The maximum segment size.
    #[serde(rename = "MSS", skip_serializing_if = "is_zero")]
    pub mss: u64,
    /// True to disable Nagle's algorithm.
    #[serde(skip_serializing_if = "is_false")]
    pub nodelay: bool,
    /// The streams per direction.
    pub parallel: u64,
    /// True if the server sends.
    #[serde(skip_serializing_if = "is_false")]
    pub reverse: bool,
    /// True if both ends send.
    #[serde(skip_serializing_if = "is_false")]
    pub bidirectional: bool,
    /// The socket buffers in bytes.
    #[serde(skip_serializing_if = "is_zero")]
    pub window: u64,
    /// The bytes of a write or datagram.
    #[serde(skip_serializing_if = "is_zero")]
    pub len: u64,
    /// The rate of a stream in bit/s, by a timer; 0 is unlimited.
    #[serde(skip_serializing_if = "is_zero")]
    pub bandwidth: u64,
    /// The rate of a stream in bit/s, by the kernel.
    #[serde(skip_serializing_if = "is_zero")]
    pub fqrate: u64,
    /// The interval of the sender's timer in us.
    #[serde(skip_serializing_if = "is_zero")]
    pub pacing_timer: u64,
    /// The writes that are sent back to back.
    #[serde(skip_serializing_if = "is_zero")]
    pub burst: u64,
    /// The type of service, the whole byte.
    #[serde(rename = "TOS", skip_serializing_if = "is_zero")]
    pub tos: u64,
    /// The title of the output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Text that the output repeats.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extra_data: Option<String>,
    /// The congestion control.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion: Option<String>,
    /// 1 to receive the server's output with its results.
    #[serde(skip_serializing_if = "is_zero")]
    pub get_server_output: u64,
    /// 1 for datagram numbers of 64 bits.
    #[serde(skip_serializing_if = "is_zero")]
    pub udp_counters_64bit: u64,
    /// 1 to receive several datagrams per system call, as 3.21 can.
    #[serde(skip_serializing_if = "is_zero")]
    pub gro: u64,
    /// The bytes of such a call.
    #[serde(skip_serializing_if = "is_zero")]
    pub gro_bf_size: u64,
    /// 1 to send without copying.
    #[serde(skip_serializing_if = "is_zero")]
    pub zerocopy: u64,
    /// The encrypted user name and password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authtoken: Option<String>,
    /// The version of the client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_version: Option<String>,
}

fn is_false(value: &bool) -> bool {
    !value
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

impl Parameters {
    /// Returns the parameters of `plan`.
    ///
    /// # Errors
    /// An option of the plan that no version of iperf3 has.
    pub fn of(plan: &TestPlan) -> Result<Self, PeerOption> {
        check(plan)?;
        let udp = plan.protocol == Protocol::Udp;
        let num = match plan.amount {
            TestLength::Bytes(bytes) => bytes.get(),
            TestLength::Time(_) => 0,
        };
        let time = match plan.amount {
            // The client ends the test; the server only has to wait as long.
            TestLength::Time(time) => time.as_secs_f64().ceil() as u64,
            TestLength::Bytes(_) => 0,
        };
        let (rate, by_kernel) = (plan.stream_rate(), plan.pacing == Some(Pacing::Kernel));
        // The server divides a buffer into datagrams of equal length, so that a shorter last one,
        // which only an amount of bytes has, would be lost.
        let gro = udp && num == 0 && plan.direction != Direction::Reverse;
        Ok(Parameters {
            tcp: !udp,
            udp,
            omit: plan.omit.as_secs(),
            server_affinity: server_cpus(plan)
                .and_then(|cpus| cpus.first())
                .map(|cpu| (*cpu).into()),
            time,
            num,
            mss: plan.mss.unwrap_or(0).into(),
            nodelay: plan.nodelay,
            parallel: plan.streams.into(),
            reverse: plan.direction == Direction::Reverse,
            bidirectional: plan.direction == Direction::Both,
            window: plan.window_bytes.map_or(0, Bytes::get),
            len: plan.write_bytes.get(),
            bandwidth: rate.filter(|_| !by_kernel).map_or(0, Rate::bps),
            fqrate: rate.filter(|_| by_kernel).map_or(0, Rate::bps),
            pacing_timer: 1000,
            burst: plan.burst_bytes.map_or(0, |b| b.get().div_ceil(plan.write_bytes.get())),
            tos: u64::from(plan.dscp.unwrap_or(0)) << 2,
            congestion: plan.congestion.clone(),
            udp_counters_64bit: udp.into(),
            gro: gro.into(),
            gro_bf_size: if gro { GRO_BUFFER } else { 0 },
            zerocopy: plan.zero_copy.into(),
            client_version: Some(concat!("longhaul ", env!("CARGO_PKG_VERSION")).to_owned()),
            ..Parameters::default()
        })
    }

    /// Reads a client's document. A field of another type keeps its default, as recent servers
    /// read it.
    pub fn read(document: &Value) -> Self {
        let number = |name: &str| document[name].as_u64().unwrap_or(0);
        let flag = |name: &str| document[name].as_bool().unwrap_or(number(name) != 0);
        let text = |name: &str| document[name].as_str().map(ToOwned::to_owned);
        Parameters {
            tcp: flag("tcp"),
            udp: flag("udp"),
            sctp: flag("sctp"),
            omit: number("omit"),
            server_affinity: document["server_affinity"].as_u64(),
            time: number("time"),
            num: number("num"),
            blockcount: number("blockcount"),
            mss: number("MSS"),
            nodelay: flag("nodelay"),
            parallel: number("parallel"),
            reverse: flag("reverse"),
            bidirectional: flag("bidirectional"),
            window: number("window"),
            len: number("len"),
            bandwidth: number("bandwidth"),
            fqrate: number("fqrate"),
            pacing_timer: number("pacing_timer"),
            burst: number("burst"),
            tos: number("TOS"),
            title: text("title"),
            extra_data: text("extra_data"),
            congestion: text("congestion"),
            get_server_output: flag("get_server_output").into(),
            udp_counters_64bit: flag("udp_counters_64bit").into(),
            gro: flag("gro").into(),
            gro_bf_size: number("gro_bf_size"),
            zerocopy: flag("zerocopy").into(),
            authtoken: text("authtoken"),
            client_version: text("client_version"),
        }
    }

    /// Returns the plan that a server executes.
    ///
    /// # Errors
    /// A parameter out of range; its name in the document.
    pub fn plan(&self) -> Result<TestPlan, Fault> {
        let check = |good: bool, name| if good { Ok(()) } else { Err(Fault::Field(name)) };
        check(self.tcp != self.udp && !self.sctp, "tcp")?;
        check(!(self.reverse && self.bidirectional), "bidirectional")?;
        check((1..=u64::from(TestPlan::MAX_STREAMS)).contains(&self.parallel), "parallel")?;
        check(self.time <= MOST_TIME, "time")?;
        check(self.omit <= MOST_OMIT, "omit")?;
        check(self.window == 0 || (4096..=MOST_WINDOW).contains(&self.window), "window")?;
        check(self.mss <= 32_767, "MSS")?;
        check(self.burst <= MOST_BURST, "burst")?;
        check(self.tos <= 255, "TOS")?;
        let congestion = self.congestion.as_deref().unwrap_or("x");
        let named = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        check((1..16).contains(&congestion.len()) && congestion.bytes().all(named), "congestion")?;
        let length = self.length()?;
        let rate = self.bandwidth.max(self.fqrate);
        let rate = (rate > 0).then(|| Rate::from_bps(rate.saturating_mul(self.parallel)));
        let amount = match (self.num, self.blockcount, self.time) {
            (0, 0, 0) => TestLength::Time(Duration::from_secs(MOST_TIME)),
            (0, 0, time) => TestLength::Time(Duration::from_secs(time)),
            (0, blocks, _) => TestLength::Bytes(Bytes::new(blocks.saturating_mul(length))),
            (bytes, _, _) => TestLength::Bytes(Bytes::new(bytes)),
        };
        Ok(TestPlan {
            direction: match (self.reverse, self.bidirectional) {
                (true, _) => Direction::Reverse,
                (false, true) => Direction::Both,
                (false, false) => Direction::Forward,
            },
            amount,
            omit: Duration::from_secs(self.omit),
            streams: self.parallel as u32,
            write_bytes: Bytes::new(length),
            window_bytes: (self.window > 0).then(|| Bytes::new(self.window)),
            congestion: self.congestion.clone().filter(|_| self.tcp),
            mss: (self.mss > 0 && self.tcp).then_some(self.mss as u32),
            rate_bps: rate,
            protocol: if self.udp { Protocol::Udp } else { Protocol::Tcp },
            pacing: (self.fqrate == 0 && rate.is_some()).then_some(Pacing::Timer),
            burst_bytes: (self.burst > 0).then(|| Bytes::new(self.burst * length)),
            dscp: (self.tos > 0).then_some((self.tos >> 2) as u8),
            nodelay: self.nodelay && self.tcp,
            zero_copy: self.zerocopy > 0 && self.tcp,
            placement: Placement::Auto,
            ..TestPlan::new()
        })
    }

    /// Returns the length of a write, or of a read if only the client sends.
    fn length(&self) -> Result<u64, Fault> {
        let sends = self.reverse || self.bidirectional;
        let length = match (self.len, self.udp) {
            (0, true) => DEFAULT_DATAGRAM,
            (0, false) => DEFAULT_LENGTH,
            (length, true) if !DATAGRAM_LENGTHS.contains(&length) => {
                return Err(Fault::Field("len"));
            }
            (length, false) if length > MOST_LENGTH => return Err(Fault::Field("len")),
            (length, _) => length,
        };
        // Blocks are counted in the client's length.
        Ok(if sends || self.udp || self.blockcount > 0 { length } else { length.max(LEAST_READ) })
    }
}

/// Returns the CPUs that the plan requests for the server.
fn server_cpus(plan: &TestPlan) -> Option<&[u32]> {
    match &plan.placement {
        Placement::On { server: Some(list), .. } => Some(list.cpus()),
        _ => None,
    }
}

/// Checks that iperf3 has every option of `plan`.
fn check(plan: &TestPlan) -> Result<(), PeerOption> {
    let udp = plan.protocol == Protocol::Udp;
    let length = plan.write_bytes.get();
    let good_length = if udp { DATAGRAM_LENGTHS.contains(&length) } else { length <= MOST_LENGTH };
    let time = match plan.amount {
        TestLength::Time(time) => time.as_secs_f64().ceil() as u64,
        TestLength::Bytes(_) => 0,
    };
    let burst = plan.burst_bytes.map_or(0, |burst| burst.get().div_ceil(length.max(1)));
    let wrong = [
        (plan.protocol == Protocol::Mptcp, PeerOption::Multipath),
        (plan.opener == longhaul_core::plan::Opener::Server, PeerOption::Flip),
        (plan.latency, PeerOption::Latency),
        (
            plan.skip_receive_copy && plan.direction == Direction::Forward,
            PeerOption::SkipReceiveCopy,
        ),
        (server_cpus(plan).is_some_and(|cpus| cpus.len() > 1), PeerOption::ServerCpus),
        (!plan.links.is_empty(), PeerOption::Links),
        (!good_length, PeerOption::Length),
        (plan.window_bytes.is_some_and(|window| window.get() > MOST_WINDOW), PeerOption::Window),
        (time > MOST_TIME, PeerOption::Time),
        (plan.omit.subsec_nanos() != 0 || plan.omit.as_secs() > MOST_OMIT, PeerOption::OmittedTime),
        (burst > MOST_BURST, PeerOption::Burst),
    ];
    wrong.into_iter().find(|(wrong, _)| *wrong).map_or(Ok(()), |(_, wanted)| Err(wanted))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_plan_survives_its_parameters() {
        let plan = TestPlan {
            direction: Direction::Both,
            streams: 4,
            rate_bps: Some(Rate::from_bps(4_000_000)),
            pacing: Some(Pacing::Timer),
            omit: Duration::from_secs(2),
            dscp: Some(46),
            congestion: Some("cubic".to_owned()),
            mss: Some(1400),
            nodelay: true,
            ..TestPlan::new()
        };
        let parameters = Parameters::of(&plan).unwrap();
        assert_eq!((parameters.bandwidth, parameters.tos), (1_000_000, 184));
        let document = serde_json::to_value(&parameters).unwrap();
        assert_eq!(Parameters::read(&document), parameters);
        assert_eq!(parameters.plan().unwrap(), plan);
    }

    #[test]
    fn plans_that_iperf3_cannot_run_are_named() {
        let wanted = |plan| Parameters::of(&plan).unwrap_err();
        let new = TestPlan::new;
        assert_eq!(wanted(TestPlan { protocol: Protocol::Mptcp, ..new() }), PeerOption::Multipath);
        assert_eq!(wanted(TestPlan { latency: true, ..new() }), PeerOption::Latency);
        assert_eq!(wanted(TestPlan { write_bytes: Bytes::mib(2), ..new() }), PeerOption::Length);
        let omit = Duration::from_millis(1500);
        assert_eq!(wanted(TestPlan { omit, ..new() }), PeerOption::OmittedTime);
    }

    #[test]
    fn hostile_parameters_are_refused_by_name() {
        let read = |document| Parameters::read(&document).plan();
        let field = |document| match read(document).unwrap_err() {
            Fault::Field(name) => name,
            fault => panic!("{fault}"),
        };
        assert_eq!(field(json!({ "parallel": 1 })), "tcp");
        assert_eq!(field(json!({ "tcp": true, "parallel": 129 })), "parallel");
        assert_eq!(field(json!({ "tcp": true, "parallel": -1 })), "parallel");
        assert_eq!(field(json!({ "tcp": true, "parallel": 1, "time": 1u64 << 40 })), "time");
        assert_eq!(field(json!({ "tcp": true, "parallel": 1, "len": 1u64 << 30 })), "len");
        assert_eq!(field(json!({ "udp": true, "parallel": 1, "len": 15 })), "len");
        assert_eq!(field(json!({ "tcp": true, "parallel": 1, "congestion": "a/b" })), "congestion");
        let mistyped = json!({ "tcp": true, "parallel": 2, "time": "x", "reverse": [] });
        assert_eq!(read(mistyped).unwrap().direction, Direction::Forward);
    }
}
