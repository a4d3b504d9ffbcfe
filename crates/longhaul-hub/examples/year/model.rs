//! The traffic, delays and results of the year: repeatable functions of time with noise, peaks and gaps.

use longhaul_hub::samples::{Bucket, Span};

use crate::{DAY, HOUR};

/// The sites, far enough apart for different delays.
pub(crate) const SITES: [(&str, f64); 24] = [
    ("amsterdam", 0.0),
    ("atlanta", 76.0),
    ("boston", 68.0),
    ("chicago", 82.0),
    ("dallas", 94.0),
    ("denver", 99.0),
    ("dublin", 9.0),
    ("frankfurt", 6.0),
    ("geneva", 12.0),
    ("hamburg", 8.0),
    ("houston", 97.0),
    ("kansascity", 88.0),
    ("lisbon", 27.0),
    ("london", 5.0),
    ("losangeles", 120.0),
    ("madrid", 22.0),
    ("miami", 86.0),
    ("milan", 14.0),
    ("newyork", 64.0),
    ("paris", 7.0),
    ("prague", 11.0),
    ("seattle", 118.0),
    ("sunnyvale", 122.0),
    ("washington", 71.0),
];

/// Returns a number of 0 to 1 that depends only on the arguments.
pub(crate) fn noise(series: i64, at: i64) -> f64 {
    let mut x = (series.wrapping_mul(0x9e37_79b9) ^ at).cast_unsigned().wrapping_add(0x7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((x ^ (x >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

/// Returns whether a host is down at a time: some hours about every 40 days.
pub(crate) fn is_down(host: i64, at_ms: i64) -> bool {
    let period = at_ms.div_euclid(40 * DAY);
    let start = (noise(host + 7000, period) * 39.0 * DAY as f64) as i64;
    let length = HOUR + (noise(host + 8000, period) * 9.0 * HOUR as f64) as i64;
    (start..start + length).contains(&at_ms.rem_euclid(40 * DAY))
}

/// Returns the rate of an interface as a share of its capacity: days, weeks and noise.
pub(crate) fn load(series: i64, at_ms: i64) -> f64 {
    let turn = std::f64::consts::TAU;
    let day = (at_ms.rem_euclid(DAY) as f64 / DAY as f64 * turn - 2.2).sin() * 0.5 + 0.5;
    let weekend = if (at_ms.div_euclid(DAY) + 4).rem_euclid(7) >= 5 { 0.6 } else { 1.0 };
    let base = 0.04 + 0.3 * noise(series, 1);
    (base + 0.35 * day * weekend) * (0.85 + 0.3 * noise(series, at_ms / 60_000))
}

/// Returns the round-trip time of a pair in ms without queues.
pub(crate) fn rtt_ms(source: usize, destination: usize) -> f64 {
    let (a, b) = (SITES[source].1, SITES[destination].1);
    2.0 * (a - b).abs().max(1.5) + 0.4
}

/// Returns the share of lost packets of a pair in a minute: zero, with episodes.
pub(crate) fn loss(pair: i64, at_ms: i64) -> f64 {
    let episode = noise(pair, at_ms.div_euclid(6 * HOUR));
    if episode > 0.985 { 0.02 * noise(pair + 1, at_ms / 60_000) } else { 0.0 }
}

/// Returns the bucket of values that vary by `spread` around an average, up to a peak.
pub(crate) fn bucket(start_ms: i64, weight_ms: i64, values: &[Option<(f64, f64, f64)>]) -> Bucket {
    let weight = weight_ms as f64;
    let span = |value: &Option<(f64, f64, f64)>| {
        value.map_or(Span::default(), |(low, average, high)| Span {
            weight_ms: weight,
            sum: average * weight,
            min: low,
            max: high,
        })
    };
    Bucket { start_ms, spans: values.iter().map(span).collect() }
}
