//! Recorded diagnoses with an injected limit, judged again. Each is the document of one run of
//! `bench/diagnose.sh`, with the doctor's findings that concern no limit left out. The link of
//! `shallow-queue` and `policer` has `--rate 500M --queue 20KB` and `--police 500M:20KB`, with an RTT
//! of 20 ms and an MTU of 1500 bytes.

use longhaul_core::diagnosis::judge;
use longhaul_core::result::{
    CopyLimit, Diagnosis, DiagnosisStep, End, Evidence, Remedy, Resource, TestLimit,
};
use longhaul_core::units::Rate;

macro_rules! recorded {
    ($($name:literal => $resource:ident,)*) => {
        const RECORDED: &[(&str, &str, Resource)] = &[
            $(($name, include_str!(concat!("fixtures/diagnoses/", $name, ".json")), Resource::$resource),)*
        ];
    };
}

recorded! {
    "source-disk" => SourceDisk,
    "sink-disk" => SinkDisk,
    "sender-cpu" => SenderCpu,
    "receiver-cpu" => ReceiverCpu,
    "receiver-window" => ReceiverWindow,
    "sender-window" => SenderWindow,
    "link-rate" => LinkRate,
    "loss-cubic" => Loss,
    "loss-bbr" => Loss,
    "tcp-memory" => TcpMemory,
    "tiny-files" => SmallFiles,
    "encryption" => Encryption,
    "shallow-queue" => ShallowQueue,
    "policer" => ShallowQueue,
}

fn read(name: &str) -> Diagnosis {
    let (_, text, _) = RECORDED.iter().find(|(other, ..)| *other == name).unwrap();
    serde_json::from_str(text).unwrap()
}

#[test]
fn each_limit_that_was_injected_is_named_first() {
    for (name, text, expected) in RECORDED {
        let judged = judge(serde_json::from_str(text).unwrap());
        let Some(first) = judged.limits.first() else { panic!("{name}: nothing is named") };
        assert_eq!(first.resource, *expected, "{name}: {first:?}");
        assert!(!first.cures.is_empty(), "{name}: there is no cure");
    }
}

#[test]
fn limits_are_in_order_and_the_gain_is_the_next_ones() {
    for (name, text, _) in RECORDED {
        let judged = judge(serde_json::from_str(text).unwrap());
        let rates: Vec<Rate> = judged.limits.iter().map(|limit| limit.allows_bps).collect();
        assert!(rates.is_sorted(), "{name}: {rates:?}");
        for limit in &judged.limits {
            let expected =
                limit.without_bps.map(|next| next.bps() as f64 / limit.allows_bps.bps() as f64);
            assert_eq!(limit.gain, expected, "{name}");
            // The ratio of medians lies between the ratios of the rounds, or is their only value.
            if let (Some(gain), Some(of)) = (limit.gain, limit.gain_rounds) {
                assert!(of.rounds >= 1 && of.interval.is_none(), "{name}: {of:?}");
                assert!(of.least <= gain * 1.001 && gain <= of.most * 1.001, "{name}: {of:?}");
            }
        }
        // Judged again, it is the same.
        assert_eq!(judge(judged.clone()), judged, "{name}");
    }
}

#[test]
fn loss_of_a_policer_is_random_loss_if_a_lower_rate_has_the_same_share() {
    for name in ["shallow-queue", "policer"] {
        let mut diagnosis = read(name);
        let first = |diagnosis: Diagnosis| judge(diagnosis).limits.swap_remove(0);
        let Some(Evidence::ShallowQueue { rate_bps, queue_ms, least_percent, .. }) =
            first(diagnosis.clone()).evidence
        else {
            panic!("{name}: a shallow queue");
        };
        // No rate exceeds that of the link, and the round trip of 20 ms grew by at most a tenth.
        assert!((300e6..=500e6).contains(&(rate_bps.bps() as f64)), "{name}: {rate_bps}");
        assert!(queue_ms < 2.0 && least_percent > 10.0, "{name}");
        let bounded = diagnosis.bounded.as_mut().unwrap();
        bounded.retransmits = bounded.segments / 5;
        assert_eq!(first(diagnosis).resource, Resource::Loss, "{name}");
    }
}

#[test]
fn nothing_is_named_where_the_path_was_not_measured() {
    let mut diagnosis = read("source-disk");
    for report in &mut diagnosis.steps {
        if !matches!(report.step, DiagnosisStep::Read | DiagnosisStep::Write) {
            report.rounds.clear();
            report.throughput_bps = None;
        }
    }
    let judged = judge(diagnosis);
    assert!(judged.limits.is_empty(), "{:?}", judged.limits);
}

#[test]
fn a_diagnosis_without_its_disks_is_judged_by_the_rest() {
    for missing in [DiagnosisStep::Read, DiagnosisStep::Write, DiagnosisStep::Whole] {
        let mut diagnosis = read("link-rate");
        diagnosis.steps.retain(|report| report.step != missing);
        let judged = judge(diagnosis);
        assert_eq!(judged.limits[0].resource, Resource::LinkRate, "without {missing:?}");
    }
}

/// Changes the rate of all rounds of a step.
fn set(diagnosis: &mut Diagnosis, step: DiagnosisStep, bps: u64) {
    let report = diagnosis.steps.iter_mut().find(|report| report.step == step).unwrap();
    report.throughput_bps = Some(Rate::from_bps(bps));
    report.rounds.iter_mut().for_each(|round| round.throughput_bps = Rate::from_bps(bps));
}

#[test]
fn writing_anew_that_is_slower_than_writing_over_is_allocation() {
    let mut diagnosis = read("sink-disk");
    let report =
        diagnosis.steps.iter_mut().find(|report| report.step == DiagnosisStep::Write).unwrap();
    for round in &mut report.rounds {
        let twice = Rate::from_bps(round.throughput_bps.bps() * 2);
        round.disk.as_mut().unwrap().overwrite_bps = Some(twice);
    }
    let judged = judge(diagnosis);
    assert_eq!(judged.limits[0].resource, Resource::FileAllocation, "{:?}", judged.limits);
}

#[test]
fn a_whole_that_is_slower_than_every_part_is_contention() {
    let mut diagnosis = read("link-rate");
    set(&mut diagnosis, DiagnosisStep::Whole, 20_000_000);
    let whole =
        diagnosis.steps.iter_mut().find(|report| report.step == DiagnosisStep::Whole).unwrap();
    for copy in whole.rounds.iter_mut().filter_map(|round| round.copy.as_mut()) {
        copy.limit = None;
        (copy.source.end.busiest, copy.sink.end.busiest) = (None, None);
        (copy.source.end.host_busy, copy.sink.end.host_busy) = (None, None);
    }
    let judged = judge(diagnosis);
    assert_eq!(judged.limits[0].resource, Resource::Contention, "{:?}", judged.limits);
    assert_eq!(judged.limits[1].resource, Resource::LinkRate);
}

#[test]
fn a_disk_of_both_ends_is_judged_by_reading_and_writing_in_turn() {
    let shared = |whole: u64, change: fn(&mut Diagnosis)| {
        let mut diagnosis = read("sink-disk");
        set(&mut diagnosis, DiagnosisStep::Read, 1_200_000_000);
        set(&mut diagnosis, DiagnosisStep::Write, 1_200_000_000);
        set(&mut diagnosis, DiagnosisStep::Whole, whole);
        for report in diagnosis.steps.iter_mut().filter(|one| one.step == DiagnosisStep::Whole) {
            for copy in report.rounds.iter_mut().filter_map(|round| round.copy.as_mut()) {
                copy.limit = Some(CopyLimit::SinkDisk);
            }
        }
        for end in [&mut diagnosis.ends.source, &mut diagnosis.ends.sink].into_iter().flatten() {
            end.boot = Some("81cc".to_owned());
        }
        change(&mut diagnosis);
        let limit = judge(diagnosis).limits.remove(0);
        assert_eq!(limit.resource, Resource::SinkDisk);
        let remedies: Vec<_> = limit.cures.iter().filter_map(|cure| cure.remedy.clone()).collect();
        let is_shared = matches!(limit.evidence, Some(Evidence::SharedDisk { in_turn_bps, .. })
            if in_turn_bps == Rate::from_bps(600_000_000));
        assert_eq!(remedies.contains(&Remedy::SeparateDisks), is_shared, "{remedies:?}");
        is_shared
    };
    assert!(shared(650_000_000, |_| {}));
    let other_disk = |diagnosis: &mut Diagnosis| {
        diagnosis.ends.sink.as_mut().unwrap().device = Some("vdb".to_owned());
    };
    assert!(!shared(650_000_000, other_disk));
    let other_host = |diagnosis: &mut Diagnosis| {
        diagnosis.ends.sink.as_mut().unwrap().boot = Some("0f3a".to_owned());
    };
    assert!(!shared(650_000_000, other_host));
    let earlier_version = |diagnosis: &mut Diagnosis| {
        for end in [&mut diagnosis.ends.source, &mut diagnosis.ends.sink].into_iter().flatten() {
            end.boot = None;
        }
    };
    assert!(!shared(650_000_000, earlier_version));
}

fn names(judged: &Diagnosis) -> Vec<Resource> {
    judged.limits.iter().map(|limit| limit.resource).collect()
}

#[test]
fn of_two_ends_short_of_cores_the_copy_tells_which() {
    for (name, expected) in [("sender-cpu", End::Sender), ("receiver-cpu", End::Receiver)] {
        let mut diagnosis = read(name);
        let tests = diagnosis.steps.iter_mut().flat_map(|report| &mut report.rounds);
        for (round, limit) in tests
            .filter(|round| round.reason.is_some())
            .zip([TestLimit::SenderCpu, TestLimit::ReceiverCpu].into_iter().cycle())
        {
            let reason = round.reason.as_mut().unwrap();
            reason.limit = limit;
        }
        let judged = judge(diagnosis);
        assert_eq!(judged.limits[0].end, Some(expected), "{name}: {:?}", judged.limits);
    }
}

#[test]
fn others_on_the_core_do_not_excuse_a_quota() {
    let mut diagnosis = read("encryption");
    for round in diagnosis.steps.iter_mut().flat_map(|report| &mut report.rounds) {
        if let Some(reason) = &mut round.reason {
            reason.facts.sender.core_others_percent = 60.0;
        }
    }
    let judged = judge(diagnosis);
    assert_eq!(judged.limits[0].resource, Resource::Encryption, "{:?}", judged.limits);
}

#[test]
fn interrupts_and_memory_are_distinguished_from_a_busy_thread() {
    let change = |change: &dyn Fn(&mut longhaul_core::result::TestFacts)| {
        let mut diagnosis = read("sender-cpu");
        for round in diagnosis.steps.iter_mut().flat_map(|report| &mut report.rounds) {
            if let Some(reason) = &mut round.reason {
                reason.limit = TestLimit::SenderCpu;
                change(&mut reason.facts);
            }
        }
        judge(diagnosis)
    };
    let judged = change(&|facts| {
        (facts.sender.running_percent, facts.sender.waiting_percent) = (20.0, 5.0);
        facts.sender.interrupts_percent = 97.0;
    });
    assert!(names(&judged).contains(&Resource::InterruptCpu), "{:?}", names(&judged));
    let judged = change(&|facts| {
        (facts.sender.running_percent, facts.sender.waiting_percent) = (96.0, 2.0);
        (facts.sender.core_others_percent, facts.sender.interrupts_percent) = (1.0, 1.0);
        facts.throughput_bps = Rate::from_bps(1_000_000_000_000);
    });
    assert!(names(&judged).contains(&Resource::MemoryBandwidth), "{:?}", names(&judged));
}
