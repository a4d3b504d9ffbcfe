//! The summary of a path measurement as sentences.

use longhaul_core::result::{
    Asymmetry, AsymmetryVerdict, CapacityFigures, Certainty, MtuLimit, MtuProof, PathDirection,
    PathEnd, PathResult, ProbeFigures, Proportion,
};
use longhaul_core::text::capitalized;

use crate::output::test::words::millis;

/// An upper bound of the headers of TCP over IPv6 with options, in bytes.
const HEADERS: u32 = 100;
/// The MTU up to which TCP's segments are full-size; above it they are also limited to half of the
/// peer's window (tcp_bound_to_half_wnd(), include/net/tcp.h).
const JUMBO: u32 = 9216;

/// Returns the summary of a measurement, a sentence per element.
pub(super) fn summary(result: &PathResult) -> Vec<String> {
    let mut sentences = Vec::new();
    if result.end == PathEnd::Interrupted {
        sentences
            .push("The measurement was interrupted; these are the results until then.".to_owned());
    }
    sentences.extend(round_trip(result));
    sentences.extend(mtu(result));
    sentences.extend(hops(result));
    let ways = [("forward", &result.forward), ("reverse", &result.reverse)];
    sentences
        .extend(ways.iter().filter_map(|(way, at)| Some(capacity(way, at.capacity.as_ref()?))));
    for (way, at) in ways {
        sentences.extend(at.probes.iter().flat_map(|probes| loss(way, probes)));
    }
    sentences.extend(result.asymmetry.as_ref().map(asymmetry));
    if let Some(why) = &result.alone_because {
        sentences.push(format!(
            "Loss, jitter, capacity and the reverse direction need 'longhaul serve' on that host ({why})."
        ));
    }
    if result.is_empty() {
        sentences.push(format!("Nothing of the path to {} could be measured.", result.target));
    }
    sentences
}

fn round_trip(result: &PathResult) -> Option<String> {
    let rtt = result.rtt.as_ref()?;
    let sizes = [&rtt.small, &rtt.full];
    let least = sizes.iter().filter_map(|size| Some(size.as_ref()?.times.min_ms));
    let least = least.min_by(f64::total_cmp)?;
    let more = match sizes {
        // The significance of a difference of two minima depends on the spread of the times.
        [Some(small), Some(full)] if full.times.min_ms > small.times.min_ms => format!(
            "; for packets of {} bytes it is {} higher",
            full.packet_bytes,
            millis(full.times.min_ms - small.times.min_ms)
        ),
        _ => String::new(),
    };
    Some(format!("The lowest RTT is {}{more}.", millis(least)))
}

/// Returns the proof with the largest packet for a direction.
fn best(way: &PathDirection) -> Option<&MtuProof> {
    way.mtu.iter().filter(|proof| proof.bytes.is_some()).max_by_key(|proof| proof.bytes)
}

fn mtu(result: &PathResult) -> Vec<String> {
    let mut sentences = Vec::new();
    match (best(&result.forward), best(&result.reverse)) {
        (Some(there), Some(back)) if there.bytes == back.bytes => {
            sentences.push(format!(
                "The path MTU is {} bytes in both directions{}.",
                number(there),
                why(there)
            ));
        }
        (there, back) => {
            for (way, proof) in [("forward", there), ("reverse", back)] {
                let Some(proof) = proof else { continue };
                let number = number(proof);
                sentences.push(format!(
                    "The path MTU is {number} bytes in the {way} direction{}.",
                    why(proof)
                ));
            }
        }
    }
    for (way, at) in [("forward", &result.forward), ("reverse", &result.reverse)] {
        if best(at).is_some_and(|proof| proof.limit == MtuLimit::Silent) {
            sentences.push(format!(
                "Larger packets are dropped silently in the {way} direction: a black hole for TCP \
                 without MTU probing (net.ipv4.tcp_mtu_probing=1 enables it)."
            ));
        }
        let Some(tcp) = at.tcp.filter(|tcp| tcp.proven()) else { continue };
        let proven = at.mtu_bytes().unwrap_or(u32::MAX);
        if tcp.segment_bytes.saturating_add(HEADERS) < proven.min(tcp.path_mtu_bytes).min(JUMBO) {
            sentences.push(format!(
                "TCP's segments have only {} bytes in the {way} direction: the other host's \
                 interface or a middlebox requests small ones.",
                tcp.segment_bytes
            ));
        }
    }
    sentences
}

fn number(proof: &MtuProof) -> u32 {
    proof.bytes.unwrap_or(0)
}

fn why(proof: &MtuProof) -> String {
    match proof.limit {
        MtuLimit::Interface => " (the MTU of the sender's interface)".to_owned(),
        MtuLimit::Router { address } => format!(" (limited by router {address})"),
        MtuLimit::Silent | MtuLimit::Nothing => String::new(),
    }
}

fn hops(result: &PathResult) -> Option<String> {
    let reached =
        |way: &PathDirection| way.hops.as_ref().filter(|hops| hops.reached).map(|h| h.list.len());
    let word = |count: usize| if count == 1 { "hop" } else { "hops" };
    match (reached(&result.forward), reached(&result.reverse)) {
        (Some(there), Some(back)) if there != back => Some(format!(
            "The path has {there} {} in the forward direction and {back} in the reverse direction: \
             the two directions take different paths.",
            word(there)
        )),
        (Some(there), Some(_)) => {
            Some(format!("The path has {there} {} in each direction.", word(there)))
        }
        (Some(there), None) => {
            Some(format!("The path has {there} {} in the forward direction.", word(there)))
        }
        _ => None,
    }
}

fn capacity(way: &str, found: &CapacityFigures) -> String {
    let estimate = found.estimate_bps.unwrap_or_default();
    let trains = found.trains_used;
    let interval = found.interval_bps.map_or(String::new(), |[low, high]| {
        format!(", between {low} and {high} with 95 % confidence")
    });
    match found.certainty {
        Certainty::Good => format!(
            "The slowest link in the {way} direction carries about {estimate} (median of {trains} \
             trains{interval})."
        ),
        Certainty::Rough => {
            let quartiles = found.quartiles_bps.map_or(String::new(), |[low, high]| {
                format!(": half of {trains} trains lie between {low} and {high}")
            });
            format!(
                "The slowest link in the {way} direction carries roughly {estimate}{quartiles}."
            )
        }
        Certainty::AtLeast => format!(
            "The slowest link in the {way} direction carries {estimate} or more: the sender's host \
             cannot send trains of packets faster than this."
        ),
        Certainty::Coalesced => format!(
            "The capacity in the {way} direction is unknown: the receiver's interface or host \
             coalesces packets."
        ),
        Certainty::Scattered => format!(
            "The capacity in the {way} direction is unknown: {trains} trains differ by more than \
             half of their median, which happens if a host is the slowest part of the path."
        ),
        Certainty::TooFew => format!(
            "The capacity in the {way} direction is unknown: only {trains} of {} trains arrived \
             with enough packets.",
            found.trains
        ),
    }
}

fn loss(way: &str, probes: &ProbeFigures) -> Vec<String> {
    let mut sentences = vec![share("lost", "no loss", way, &probes.lost)];
    if let Some(bursts) = probes.loss_bursts.filter(|_| probes.lost.count > 1) {
        let count = probes.lost.count;
        sentences.push(match bursts {
            1 => {
                format!("All {} were lost in one burst, so the interval is wide.", thousands(count))
            }
            _ => format!(
                "They were lost in {} bursts; the interval allows for that.",
                thousands(bursts)
            ),
        });
    }
    if probes.duplicated.count > 0 {
        sentences.push(share("duplicated", "", way, &probes.duplicated));
    }
    if probes.reordered.count > 0 {
        sentences.push(format!(
            "{} They arrived up to {} late, behind at most {} packets; TCP would consider {} of them \
             lost.",
            share("out of order", "", way, &probes.reordered),
            millis(probes.reordering_late_ms),
            probes.reordering_extent,
            probes.three_reordered
        ));
    }
    for (host, dropped) in
        [("sender", probes.sender_dropped), ("receiver", probes.receiver_dropped)]
    {
        if dropped > 0 {
            sentences.push(format!(
                "The {host}'s host dropped {dropped} probes in the {way} direction; they count \
                 neither as sent over the path nor as lost."
            ));
        }
    }
    sentences
}

/// Returns a sentence such as "No loss in 2.1 million packets in the forward direction: below
/// 1.4e-6 at 95 %."
fn share(what: &str, none: &str, way: &str, found: &Proportion) -> String {
    if found.count == 0 {
        return capitalized(&format!(
            "{none} in {} packets in the {way} direction: below {:.1e} at 95 %.",
            thousands(found.of),
            found.high
        ));
    }
    let count = thousands(found.count);
    format!(
        "{count} of {} packets were {what} in the {way} direction: {:.2e}, between {:.1e} and \
         {:.1e} at 95 %.",
        thousands(found.of),
        found.ratio,
        found.low,
        found.high
    )
}

fn asymmetry(found: &Asymmetry) -> String {
    let (longer, difference) = match found.difference_ms {
        d if d >= 0.0 => ("forward", millis(d)),
        d => ("reverse", millis(-d)),
    };
    let uncertainty = found.uncertainty_ms.map_or(String::new(), millis);
    match found.verdict {
        AsymmetryVerdict::Known if found.same_clock => format!(
            "The {longer} direction takes {difference} longer (forward {}, reverse {}; both hosts \
             use one clock).",
            millis(found.forward_ms),
            millis(found.reverse_ms)
        ),
        AsymmetryVerdict::Known => format!(
            "The {longer} direction takes {difference} longer, of which up to {uncertainty} may be \
             an error of the clocks."
        ),
        AsymmetryVerdict::Within if found.same_clock => format!(
            "Both directions take the same time within the error of the measurement, which is up to \
             {uncertainty} (both hosts use one clock)."
        ),
        AsymmetryVerdict::Within => format!(
            "Both directions take the same time within the error of the clocks, which is up to \
             {uncertainty}."
        ),
        AsymmetryVerdict::ClocksUnknown => "The delays of the two directions cannot be compared: \
             the clock of one end is not synchronized (see chronyc or timedatectl on that host)."
            .to_owned(),
        AsymmetryVerdict::ClocksWrong => "The delays of the two directions cannot be compared: a \
             clock is less accurate than its host reports."
            .to_owned(),
    }
}

/// Formats `2.1 million`, `5000`.
fn thousands(count: u64) -> String {
    match count {
        1_000_000.. => {
            let text = format!("{:.2}", count as f64 / 1e6);
            format!("{} million", text.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => count.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_without_loss_states_the_upper_bound() {
        let found = share("lost", "no loss", "forward", &Proportion::of(0, 2_100_000));
        assert_eq!(
            found,
            "No loss in 2.1 million packets in the forward direction: below 1.4e-6 at 95 %."
        );
        let found = share("lost", "no loss", "reverse", &Proportion::of(50, 5000));
        assert_eq!(
            found,
            "50 of 5000 packets were lost in the reverse direction: 1.00e-2, between 7.4e-3 and \
             1.3e-2 at 95 %."
        );
    }

    #[test]
    fn delays_are_compared_as_far_as_clocks_allow() {
        let clock =
            |synchronised, max_error_ms| longhaul_core::path::Clock { synchronised, max_error_ms };
        let words = |forward, reverse, near, same| {
            asymmetry(&longhaul_core::path::asymmetry(
                forward,
                reverse,
                near,
                clock(true, 1.0),
                same,
            ))
        };
        let good = clock(true, 1.0);
        assert_eq!(
            words(60.0, 40.0, good, false),
            "The forward direction takes 20.0 ms longer, of which up to 4.10 ms may be an error of \
             the clocks."
        );
        assert!(
            words(40.0, 60.0, good, true).contains("The reverse direction takes 20.0 ms longer")
        );
        assert!(words(41.0, 40.0, good, false).contains("up to 4.10 ms"));
        assert!(words(41.0, 40.0, clock(false, 0.0), false).contains("cannot be compared"));
    }
}
