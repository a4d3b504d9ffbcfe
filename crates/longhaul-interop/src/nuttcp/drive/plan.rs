//! The parameters of nuttcp for a plan, and the plan of the engine for parameters.

use std::time::Duration;

use longhaul_core::plan::{Direction, Opener, Pacing, Placement, Protocol, TestLength, TestPlan};
use longhaul_core::units::{Bytes, Rate};

use super::channel::kilobits;
use crate::error::PeerOption;
use crate::nuttcp::{DATA_PORT, MOST_STREAMS, Parameters};

/// The bytes of one write over TCP, by default: those of nuttcp. The receiver reads a whole block
/// of each stream in turn, so that longer ones would make the streams wait for each other.
const BLOCK_BYTES: u32 = 65536;
/// The minimum length of a datagram, which has its count in the bytes 24 to 31.
const LEAST_DATAGRAM: u64 = 32;
/// The time of the plan of a test by bytes without an interval.
const NO_INTERVAL: Duration = Duration::from_secs(3600);

/// Returns the parameters for `plan`.
///
/// # Errors
/// The protocol does not have an option of the plan.
pub(super) fn parameters_of(plan: &TestPlan) -> Result<Parameters, PeerOption> {
    check(plan)?;
    let udp = plan.protocol == Protocol::Udp;
    let buffer_bytes = buffer_bytes(plan)?;
    let window = plan.window_bytes.map_or(0, Bytes::get);
    let (time, buffers) = match plan.amount {
        TestLength::Time(time) => (time, None),
        TestLength::Bytes(bytes) => {
            (Duration::ZERO, Some(bytes.get().div_ceil(u64::from(buffer_bytes)).max(1)))
        }
    };
    let burst = plan.burst_bytes.map(|burst| burst.get().div_ceil(u64::from(buffer_bytes)));
    let client_sends = plan.direction == Direction::Forward;
    // A server has no line for an interval as long as the test, but as a sender it counts its
    // datagrams only with an interval.
    let lines = time.is_zero() || plan.interval < time || (udp && !client_sends);
    let interval = if lines { plan.interval } else { Duration::ZERO };
    Ok(Parameters {
        buffer_bytes,
        buffers,
        server_window_bytes: u32::try_from(window)
            .ok()
            .filter(|window| i32::try_from(*window).is_ok())
            .ok_or(PeerOption::Window)?,
        streams: u16::try_from(plan.streams)
            .ok()
            .filter(|n| *n <= MOST_STREAMS)
            .ok_or(PeerOption::Streams)?,
        rate_kbps: plan.rate_bps.map(kilobits),
        port: DATA_PORT,
        client_sends,
        time,
        udp,
        interval,
        flip: plan.opener == Opener::Server,
        instant_rate: burst.is_some(),
        mss: u16::try_from(plan.mss.unwrap_or(0)).map_err(|_| PeerOption::SegmentSize)?,
        tos: plan.dscp.unwrap_or(0) << 2,
        nodelay: plan.nodelay,
        burst: burst.map_or(1, |burst| u32::try_from(burst.max(1)).unwrap_or(u32::MAX)),
        ..Parameters::default()
    })
}

/// Refuses the options that no version of the protocol carries.
fn check(plan: &TestPlan) -> Result<(), PeerOption> {
    let lacks = [
        (plan.direction == Direction::Both, PeerOption::BothDirections),
        (plan.protocol == Protocol::Mptcp, PeerOption::Multipath),
        (plan.latency, PeerOption::Latency),
        (!plan.links.is_empty(), PeerOption::Links),
        (!plan.omit.is_zero(), PeerOption::Omit),
        // A reverse test uses the congestion control of the server, which no field states.
        (plan.congestion.is_some() && plan.direction == Direction::Reverse, PeerOption::Congestion),
        (
            plan.skip_receive_copy && plan.direction == Direction::Forward,
            PeerOption::SkipReceiveCopy,
        ),
        // Blocks are counted in memory.
        (plan.zero_copy, PeerOption::ZeroCopy),
        (plan.opener == Opener::Server && plan.protocol == Protocol::Udp, PeerOption::Flip),
    ];
    lacks.into_iter().find(|(lacks, _)| *lacks).map_or(Ok(()), |(_, wanted)| Err(wanted))
}

fn buffer_bytes(plan: &TestPlan) -> Result<u32, PeerOption> {
    let bytes = plan.write_bytes;
    if plan.protocol == Protocol::Udp {
        let range = LEAST_DATAGRAM..=TestPlan::MAX_DATAGRAM_BYTES.get();
        return if range.contains(&bytes.get()) {
            Ok(bytes.get() as u32)
        } else {
            Err(PeerOption::Length)
        };
    }
    if bytes == TestPlan::WRITE_BYTES {
        return Ok(BLOCK_BYTES);
    }
    u32::try_from(bytes.get()).map_err(|_| PeerOption::Length)
}

/// Returns the plan of this end for `parameters`. `window_bytes` is this end's socket buffer.
#[must_use]
pub fn plan_of(parameters: &Parameters, window_bytes: u32) -> TestPlan {
    let window = Some(u64::from(window_bytes)).filter(|window| *window > 0).map(Bytes::new);
    let length = u64::from(parameters.buffer_bytes);
    let amount = match parameters.buffers {
        None => TestLength::Time(parameters.time),
        Some(buffers) => TestLength::Bytes(Bytes::new(buffers.saturating_mul(length))),
    };
    let interval = match (parameters.interval, parameters.time) {
        (Duration::ZERO, Duration::ZERO) => NO_INTERVAL,
        (Duration::ZERO, time) => time,
        (interval, _) => interval,
    };
    let rate = parameters.rate_kbps.map(|rate| Rate::from_bps(rate.saturating_mul(1000)));
    TestPlan {
        direction: if parameters.client_sends { Direction::Forward } else { Direction::Reverse },
        amount,
        interval,
        streams: parameters.streams.into(),
        write_bytes: Bytes::new(length),
        window_bytes: window,
        mss: Some(u32::from(parameters.mss)).filter(|mss| *mss > 0),
        rate_bps: rate,
        protocol: if parameters.udp { Protocol::Udp } else { Protocol::Tcp },
        opener: if parameters.flip { Opener::Server } else { Opener::Client },
        pacing: rate.map(|_| Pacing::Timer),
        burst_bytes: (parameters.burst > 1)
            .then(|| Bytes::new(u64::from(parameters.burst) * length)),
        dscp: Some(parameters.tos >> 2).filter(|dscp| *dscp > 0),
        nodelay: parameters.nodelay,
        placement: Placement::Free,
        ..TestPlan::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_becomes_the_parameters_of_the_same_test() {
        let plan = TestPlan {
            direction: Direction::Reverse,
            streams: 4,
            rate_bps: Some(Rate::from_bps(100_000_000)),
            window_bytes: Some(Bytes::mib(2)),
            mss: Some(1400),
            dscp: Some(10),
            interval: Duration::from_millis(500),
            ..TestPlan::new()
        };
        let parameters = parameters_of(&plan).unwrap();
        assert_eq!((parameters.buffer_bytes, parameters.streams, parameters.tos), (65536, 4, 40));
        assert_eq!((parameters.rate_kbps, parameters.client_sends), (Some(100_000), false));
        let back = plan_of(&parameters, parameters.server_window_bytes);
        let expected = TestPlan {
            write_bytes: Bytes::kib(64),
            pacing: Some(Pacing::Timer),
            placement: Placement::Free,
            ..plan
        };
        assert_eq!(back, expected);
    }

    #[test]
    fn an_amount_is_rounded_up_to_whole_buffers() {
        let plan = TestPlan { amount: TestLength::Bytes(Bytes::new(100_000)), ..TestPlan::new() };
        let parameters = parameters_of(&plan).unwrap();
        assert_eq!((parameters.buffers, parameters.time), (Some(2), Duration::ZERO));
        assert_eq!(plan_of(&parameters, 0).amount, TestLength::Bytes(Bytes::new(131_072)));
    }

    #[test]
    fn options_that_the_protocol_lacks_are_refused_by_name() {
        let refused = |plan: TestPlan| parameters_of(&plan).unwrap_err();
        let both = TestPlan { direction: Direction::Both, ..TestPlan::new() };
        assert_eq!(refused(both), PeerOption::BothDirections);
        let omit = TestPlan { omit: Duration::from_secs(1), ..TestPlan::new() };
        assert_eq!(refused(omit), PeerOption::Omit);
        let short =
            TestPlan { protocol: Protocol::Udp, write_bytes: Bytes::new(31), ..TestPlan::new() };
        assert_eq!(refused(short), PeerOption::Length);
        let large = TestPlan { window_bytes: Some(Bytes::gib(2)), ..TestPlan::new() };
        assert_eq!(refused(large), PeerOption::Window);
    }
}
