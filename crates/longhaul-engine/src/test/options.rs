//! The socket options of a test.

use std::time::Duration;

use longhaul_core::plan::{Pacing, Protocol, TestPlan};
use longhaul_core::result::End;
use longhaul_sys::tcp::SocketOptions;

/// The maximum number of unsent bytes in a socket. Without a limit a test ends with a full send
/// buffer to drain, and a sender that dies leaves the host's TCP memory full. Over loopback 1 MiB
/// costs nothing (bench/runs/2026-11-21-epyc-2core/flow.md); at 100 Gb/s it is 80 us of data, many
/// times the cost of waking a thread.
const NOTSENT_LOWAT_BYTES: u64 = 1 << 20;
/// The same limit when the kernel paces, as time at the rate: enough for a thread that waits for
/// its core, and little enough to drain soon.
const NOTSENT_LOWAT_TIME: Duration = Duration::from_millis(20);
/// The limit at the lowest rates: several writes.
const LEAST_NOTSENT_LOWAT_BYTES: u64 = 16 << 10;

/// Returns the options of the plan's connections at the end with this `role`. Only the sender sets
/// congestion control and pacing.
pub(super) fn socket_options(plan: &TestPlan, role: End) -> SocketOptions {
    let (udp, dscp) = (plan.protocol == Protocol::Udp, plan.dscp);
    let max_pacing_bytes_per_second = plan
        .stream_rate()
        .filter(|_| role == End::Sender && plan.pacing() == Pacing::Kernel)
        .map(|rate| rate.bytes_per_second());
    if udp {
        // A UDP flow sets its own buffers.
        return SocketOptions { dscp, max_pacing_bytes_per_second, ..SocketOptions::default() };
    }
    let window_bytes = plan.window_bytes.map(|w| w.get() as usize);
    let both = SocketOptions { window_bytes, mss: plan.mss, dscp, ..SocketOptions::default() };
    match role {
        End::Receiver => both,
        End::Sender => SocketOptions {
            congestion: plan.congestion.clone(),
            max_pacing_bytes_per_second,
            notsent_lowat_bytes: Some(unsent_limit(max_pacing_bytes_per_second)),
            nodelay: plan.nodelay,
            ..both
        },
    }
}

fn unsent_limit(pacing_bytes_per_second: Option<u64>) -> u32 {
    let worth = pacing_bytes_per_second.map_or(NOTSENT_LOWAT_BYTES, |rate| {
        (rate as f64 * NOTSENT_LOWAT_TIME.as_secs_f64()) as u64
    });
    worth.clamp(LEAST_NOTSENT_LOWAT_BYTES, NOTSENT_LOWAT_BYTES) as u32
}

/// Returns the options of an accepted connection. The client set the segment size of both
/// directions in the handshake.
pub(super) fn accepted_options(plan: &TestPlan, role: End) -> SocketOptions {
    SocketOptions { mss: None, ..socket_options(plan, role) }
}

#[cfg(test)]
mod tests {
    use longhaul_core::units::Rate;

    use super::*;

    #[test]
    fn the_rate_is_split_over_the_streams_in_64_bits() {
        let rate_bps = Some(Rate::from_bps(400_000_000_000));
        let plan = TestPlan { rate_bps, streams: 4, ..TestPlan::new() };
        let options = socket_options(&plan, End::Sender);
        assert_eq!(options.max_pacing_bytes_per_second, Some(12_500_000_000));
        assert_eq!(socket_options(&plan, End::Receiver), SocketOptions::default());
        let timed = TestPlan { pacing: Some(Pacing::Timer), ..plan.clone() };
        assert_eq!(socket_options(&timed, End::Sender).max_pacing_bytes_per_second, None);
        let unpaced = socket_options(&TestPlan::new(), End::Sender);
        assert_eq!(unpaced.max_pacing_bytes_per_second, None);
    }

    #[test]
    fn a_paced_stream_keeps_little_unsent() {
        assert_eq!(unsent_limit(None), 1 << 20);
        assert_eq!(unsent_limit(Some(12_500_000)), 250_000);
        assert_eq!(unsent_limit(Some(1)), 16 << 10);
        assert_eq!(unsent_limit(Some(u64::MAX)), 1 << 20);
    }
}
