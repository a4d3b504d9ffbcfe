//! Measures the cost of the link model per packet: `cargo run --release --example model_speed`.
//!
//! Prints the best of seven rounds in nanoseconds per packet, for super-packets of 44 segments and
//! for single segments.

#![expect(
    clippy::disallowed_methods,
    reason = "the rule concerns the output of the program longhaul"
)]

use std::hint::black_box;
use std::io::Write;
use std::time::{Duration, Instant};

use longhaul_core::plan::link::NO_FILES;
use longhaul_emu::link::{LinkModel, LinkTime, PacketShape};
use longhaul_emu::{LinkOptions, Side};

const PLANS: [&str; 7] = [
    "--delay 45ms",
    "--delay 45ms --rate 10G --queue 64MiB",
    "--delay 45ms --rate 10G --queue 64MiB --loss 1e-4",
    "--delay 45ms --rate 500M --queue 64MiB",
    "--delay 45ms --rate 10G --queue 64MiB --aqm codel",
    "--delay 45ms --jitter 1ms",
    "--delay 45ms --rate 10G --queue 64MiB --loss 1e-3 --duplicate 1e-3 --reorder 1e-3",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut out = std::io::stdout().lock();
    for options in PLANS {
        let mut best = [f64::MAX; 2];
        for _ in 0..7 {
            for (best, segments) in best.iter_mut().zip([44, 1]) {
                *best = best.min(nanos_per_packet(options, segments)?);
            }
        }
        writeln!(out, "{:7.1} {:7.1}  {options}", best[0], best[1])?;
    }
    Ok(())
}

fn nanos_per_packet(options: &str, segments: u32) -> Result<f64, Box<dyn std::error::Error>> {
    const PACKETS: u32 = 200_000;
    let mut parsed = LinkOptions::default();
    for pair in options.split_whitespace().collect::<Vec<_>>().chunks(2) {
        parsed.set(pair[0].trim_start_matches("--"), pair[1])?;
    }
    let plan = parsed.plan(NO_FILES)?;
    let payload_bytes = segments * 1448;
    let packet =
        PacketShape { header_bytes: 52, payload_bytes, segment_bytes: 1448, ecn_capable: false };
    let mut model = LinkModel::new(&plan, Side::Near);
    let (mut now, mut pieces) = (LinkTime::default(), Vec::new());
    let start = Instant::now();
    for _ in 0..PACKETS {
        now = now + Duration::from_nanos(u64::from(segments) * 1210);
        pieces.clear();
        model.offer(now, black_box(&packet), &mut pieces);
        black_box(&pieces);
    }
    Ok(start.elapsed().as_secs_f64() * 1e9 / f64::from(PACKETS))
}
