//! Merges the counters of the queues of a link.

use longhaul_core::result::{
    DirectionReport, Impairments, Lateness, LatenessCause, LatenessCauses, ProcessorShare,
};
use longhaul_core::units::Bytes;

/// Adds the counters of another queue in the same direction. The quantiles of lateness become those
/// of the later queue, because the quantiles of both together are not known and at most as high.
pub(super) fn add(total: &mut DirectionReport, other: &DirectionReport) {
    total.entered += other.entered;
    total.delivered += other.delivered;
    total.queued += other.queued;
    total.dropped.queue_full += other.dropped.queue_full;
    total.dropped.memory_full += other.dropped.memory_full;
    total.dropped.refused += other.dropped.refused;
    total.interface_drops += other.interface_drops;
    let sum = |one: Bytes, two: Bytes| Bytes::new(one.get().saturating_add(two.get()));
    total.waiting_bytes = sum(total.waiting_bytes, other.waiting_bytes);
    total.peak_memory_bytes = sum(total.peak_memory_bytes, other.peak_memory_bytes);
    add_impairments(&mut total.impairments, &other.impairments);
    add_lateness(&mut total.lateness, &other.lateness);
}

fn add_impairments(total: &mut Impairments, other: &Impairments) {
    let Impairments {
        lost,
        outage,
        policed,
        bit_errors,
        queue_full,
        aqm_dropped,
        marked_ce,
        corrupted,
        corrupted_silent,
        duplicated,
        reordered,
        cross_sent,
        cross_dropped,
    } = other;
    total.lost += *lost;
    total.outage += *outage;
    total.policed += *policed;
    total.bit_errors += *bit_errors;
    total.queue_full += *queue_full;
    total.aqm_dropped += *aqm_dropped;
    total.marked_ce += *marked_ce;
    total.corrupted += *corrupted;
    total.corrupted_silent += *corrupted_silent;
    total.duplicated += *duplicated;
    total.reordered += *reordered;
    total.cross_sent += *cross_sent;
    total.cross_dropped += *cross_dropped;
}

fn add_lateness(total: &mut Lateness, other: &Lateness) {
    total.p50_ms = total.p50_ms.max(other.p50_ms);
    total.p99_ms = total.p99_ms.max(other.p99_ms);
    total.p999_ms = total.p999_ms.max(other.p999_ms);
    total.max_ms = total.max_ms.max(other.max_ms);
    for bucket in &other.histogram {
        let place = total
            .histogram
            .binary_search_by(|known| known.at_most_ms.total_cmp(&bucket.at_most_ms));
        match place {
            Ok(index) => total.histogram[index].packets += bucket.packets,
            Err(index) => total.histogram.insert(index, *bucket),
        }
    }
    let causes: &mut LatenessCauses = &mut total.causes;
    causes.over_ms = causes.over_ms.max(other.causes.over_ms);
    causes.packets += other.causes.packets;
    for cause in LatenessCause::ALL {
        causes.add(cause, other.causes.of(cause));
    }
}

/// Adds the processor time of another thread. The time of waiting becomes that of the thread that
/// waited longer, so that the warning of a starved processor describes one thread.
pub(super) fn add_share(total: &mut ProcessorShare, other: &ProcessorShare) {
    total.seconds = total.seconds.max(other.seconds);
    total.busy_seconds += other.busy_seconds;
    total.waited_seconds = total.waited_seconds.max(other.waited_seconds);
    total.stolen_seconds = total.stolen_seconds.max(other.stolen_seconds);
}

#[cfg(test)]
mod tests {
    use longhaul_core::plan::Side;
    use longhaul_core::result::{LatenessBucket, Traffic};

    use super::*;

    fn queue(packets: u64, late_ms: f64) -> DirectionReport {
        let traffic = Traffic { packets, segments: packets, bytes: 100 * packets };
        let bucket = |at_most_ms| LatenessBucket { at_most_ms, packets };
        DirectionReport {
            from: Side::Near,
            entered: traffic,
            delivered: traffic,
            impairments: Impairments::default(),
            dropped: Default::default(),
            queued: Traffic::default(),
            waiting_bytes: Bytes::new(packets),
            interface_drops: 1,
            lateness: Lateness {
                p50_ms: 0.1,
                p99_ms: late_ms,
                p999_ms: late_ms,
                max_ms: late_ms,
                histogram: vec![bucket(0.1), bucket(late_ms)],
                causes: LatenessCauses::default(),
            },
            peak_memory_bytes: Bytes::new(7),
        }
    }

    #[test]
    fn counters_add_up_and_quantiles_are_those_of_the_later_queue() {
        let mut total = queue(10, 2.0);
        add(&mut total, &queue(5, 1.0));
        assert_eq!((total.entered.packets, total.delivered.bytes), (15, 1500));
        assert!(total.is_conserved());
        assert_eq!((total.interface_drops, total.waiting_bytes.get()), (2, 15));
        let buckets: Vec<(f64, u64)> = total
            .lateness
            .histogram
            .iter()
            .map(|bucket| (bucket.at_most_ms, bucket.packets))
            .collect();
        assert_eq!(buckets, [(0.1, 15), (1.0, 5), (2.0, 10)]);
        assert_eq!(total.lateness.p99_ms, 2.0);
    }
}
