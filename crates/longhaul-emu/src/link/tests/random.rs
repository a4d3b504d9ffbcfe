//! Tests of loss, damage, duplicates and marks: their numbers and their distribution.

use std::time::Duration;

use super::super::Corruption;
use super::{Run, assert_share, bulk, plan, plan_with_file, us};

/// Returns the lengths of runs of adjacent numbers.
fn runs(numbers: &[u64]) -> Vec<usize> {
    numbers.chunk_by(|a, b| a + 1 == *b).map(<[u64]>::len).collect()
}

fn lossy(options: &str, segments: u64) -> Run {
    let mut run = Run::new(&plan(options));
    run.offer_many(segments / 44, Duration::from_micros(10), &bulk(44));
    run
}

#[test]
fn independent_loss_has_its_rate_and_no_memory() {
    for (rate, seed) in [(0.5, 1), (1e-2, 2), (1e-3, 3), (1e-4, 4)] {
        let run = lossy(&format!("--loss {rate} --seed {seed}"), 1_000_000);
        let lost = run.missing();
        assert_share(lost.len(), run.offered, rate);
        assert_eq!(run.model.counts().lost.segments, lost.len() as u64);
        assert_eq!(run.model.counts().lost.bytes, lost.len() as u64 * 1500);
        // The share of lost segments that follow a lost segment equals the share of all.
        let pairs = lost.windows(2).filter(|pair| pair[0] + 1 == pair[1]).count();
        assert_share(pairs, lost.len() as u64, rate.max(1e-9));
    }
}

#[test]
fn everything_and_nothing_can_be_lost() {
    assert_eq!(lossy("--loss 1", 44_000).missing().len(), 44_000);
    assert_eq!(lossy("--loss 0", 44_000).missing().len(), 0);
}

#[test]
fn bursts_have_their_rate_and_geometric_lengths() {
    let (rate, mean) = (0.02f64, 4.0f64);
    let run = lossy("--loss 0.02 --loss-burst 4 --seed 5", 2_000_000);
    let lost = run.missing();
    let lengths = runs(&lost);
    // A cycle of a good and a bad state has 200 segments. The standard error of the rate over n
    // cycles follows from the variances of both lengths, b(b-1) and g(g-1).
    let cycles = lengths.len() as f64;
    let good = mean * (1.0 - rate) / rate;
    let error = ((1.0 - rate).powi(2) * mean * (mean - 1.0) + rate.powi(2) * good * (good - 1.0))
        .sqrt()
        / (mean + good)
        / cycles.sqrt();
    let found = lost.len() as f64 / run.offered as f64;
    assert!((found - rate).abs() < 4.0 * error, "{found} with an error of {error}");
    let found = lost.len() as f64 / cycles;
    let error = (mean * (mean - 1.0) / cycles).sqrt();
    assert!((found - mean).abs() < 4.0 * error, "mean burst of {found}");
    for length in 1..=8 {
        let share = (1.0f64 - 1.0 / mean).powi(length as i32 - 1) / mean;
        let count = lengths.iter().filter(|found| **found == length).count();
        assert_share(count, lengths.len() as u64, share);
    }
}

#[test]
fn patterns_and_traces_lose_what_they_say() {
    let mut run = Run::new(&plan("--loss-pattern 1,44,45,50-52"));
    run.offer(us(1), &bulk(44));
    run.offer(us(2), &bulk(44));
    assert_eq!(run.missing(), [0, 43, 44, 49, 50, 51]);

    let mut run = Run::new(&plan("--loss-pattern 10/30"));
    run.offer_many(3, Duration::from_micros(1), &bulk(44));
    assert_eq!(run.missing(), [9, 39, 69, 99, 129]);

    let mut run = Run::new(&plan_with_file("--loss-trace loss.txt", "# of ten\n00100 00011\n"));
    run.offer(us(1), &bulk(25));
    assert_eq!(run.missing(), [2, 8, 9, 12, 18, 19, 22]);
}

#[test]
fn damage_duplicates_and_marks_have_their_rates() {
    let options = "--corrupt 1e-2 --corrupt-silent 5e-3 --duplicate 1e-3 --mark 0.02 --seed 6";
    let mut run = Run::new(&plan(options));
    let packet = super::PacketShape { ecn_capable: true, ..bulk(44) };
    run.offer_many(20_000, Duration::from_micros(10), &packet);
    let counts = *run.model.counts();
    let (offered, arrivals) = (run.offered, run.finish());
    let count = |what: &dyn Fn(&super::Treatment) -> bool| {
        arrivals.iter().filter(|arrival| what(&arrival.treatment)).count()
    };
    let detected = count(&|t| matches!(t.corruption, Some(Corruption::Detected { .. })));
    let silent = count(&|t| matches!(t.corruption, Some(Corruption::Silent { .. })));
    let duplicates = count(&|t| t.duplicate);
    let marked = count(&|t| t.mark_ce && !t.duplicate);
    assert_share(detected, offered, 1e-2);
    assert_share(silent, offered, 5e-3 * 0.99);
    assert_share(duplicates, offered, 1e-3);
    assert_share(marked, offered, 0.02);
    let counted = [counts.corrupted, counts.corrupted_silent, counts.duplicated, counts.marked_ce];
    assert_eq!(
        counted.map(|segments| segments.segments as usize),
        [detected, silent, duplicates, marked]
    );
    assert_eq!(arrivals.len() as u64, offered + counts.duplicated.segments);
}

#[test]
fn only_capable_segments_are_marked() {
    let mut run = Run::new(&plan("--mark 1"));
    run.offer(us(1), &bulk(44));
    assert!(run.arrivals.iter().all(|arrival| !arrival.treatment.mark_ce));
    run.offer(us(1), &super::PacketShape { ecn_capable: true, ..bulk(44) });
    assert!(run.arrivals[44..].iter().all(|arrival| arrival.treatment.mark_ce));
    assert_eq!(run.pieces.len(), 1, "segments with the same mark leave together");
}

#[test]
fn a_copy_leaves_right_behind_its_original_and_intact() {
    let mut run = Run::new(&plan("--duplicate 1 --corrupt 1 --seed 1"));
    run.offer(us(1), &bulk(3));
    let arrivals = run.finish();
    let numbers: Vec<u64> = arrivals.iter().map(|arrival| arrival.number).collect();
    assert_eq!(numbers, [0, 0, 1, 1, 2, 2]);
    for pair in arrivals.chunks(2) {
        assert!(pair[0].treatment.corruption.is_some() && !pair[0].treatment.duplicate);
        assert!(pair[1].treatment.corruption.is_none() && pair[1].treatment.duplicate);
    }
}
