use longhaul_core::plan::FlowPlan;
use longhaul_sys::tcp::SocketOptions;

/// How much may wait unsent in a socket. Without it a test ends with a send buffer of a
/// bandwidth-delay product and more to drain, and a sender that dies leaves the host's TCP memory
/// full. Over loopback 1 MiB costs nothing against none (bench/flow.sh); at 100 Gb/s it is 80 us
/// of data, many times what it takes to wake a thread.
const NOTSENT_LOWAT_BYTES: u32 = 1 << 20;

/// The options of each of the plan's connections, the same at both ends: only the sending one
/// makes use of pacing and of the limit on unsent data.
pub(super) fn socket_options(plan: &FlowPlan) -> SocketOptions {
    SocketOptions {
        window_bytes: plan.window_bytes.map(|w| w.get() as usize),
        congestion: plan.congestion.clone(),
        mss: plan.mss,
        max_pacing_bytes_per_second: plan
            .rate_bps
            .map(|rate| (rate.bytes_per_second() / u64::from(plan.streams)).max(1)),
        notsent_lowat_bytes: Some(NOTSENT_LOWAT_BYTES),
        nodelay: false,
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::units::Rate;

    use super::*;

    #[test]
    fn the_rate_is_split_over_the_streams_in_64_bits() {
        let rate_bps = Some(Rate::from_bps(400_000_000_000));
        let plan = FlowPlan { rate_bps, streams: 4, ..FlowPlan::new() };
        assert_eq!(socket_options(&plan).max_pacing_bytes_per_second, Some(12_500_000_000));
        assert_eq!(socket_options(&FlowPlan::new()).max_pacing_bytes_per_second, None);
    }
}
