//! The sentences of a diagnosis: the answer, and the evidence of each limit.

use longhaul_core::result::{
    Bottleneck, BoundedTest, BusyThread, Diagnosis, DiagnosisStep, End, Evidence, Gap, Reason,
    Resource, StepReport, StepRound,
};

use super::remedy::{Remedied, host_of, name_of};
use super::test::Hosts;
use super::{doctor, remedy, test};

/// Fills in the sentences of a diagnosis.
pub(super) fn complete(diagnosis: &mut Diagnosis) {
    reasons(diagnosis);
    findings(diagnosis);
    let mut limits = std::mem::take(&mut diagnosis.limits);
    for limit in &mut limits {
        if let Some(words) = limit.evidence.as_ref().and_then(|one| words(diagnosis, limit, one)) {
            limit.sentence = format!("limited by {words}");
        }
        let remedied = Remedied {
            resource: limit.resource,
            allows: limit.allows_bps,
            drops_at: match limit.evidence {
                Some(Evidence::ShallowQueue { rate_bps, .. }) => rate_bps,
                _ => limit.allows_bps,
            },
        };
        for cure in &mut limit.cures {
            remedy::complete(cure, remedied, diagnosis);
        }
    }
    diagnosis.limits = limits;
    diagnosis.sentence = answer(diagnosis);
}

fn reasons(diagnosis: &mut Diagnosis) {
    let host = |end| host_of(diagnosis, end);
    let (sender, receiver) = (host(End::Sender), host(End::Receiver));
    let hosts = Hosts { sender: &sender, receiver: &receiver };
    let rounds = diagnosis.steps.iter_mut().flat_map(|step| &mut step.rounds);
    rounds
        .filter_map(|round| round.reason.as_deref_mut())
        .for_each(|reason| test::complete(reason, hosts));
}

/// Completes the findings of both hosts. A missing privilege is a gap of the diagnosis; a missing
/// feature of the kernel is not.
fn findings(diagnosis: &mut Diagnosis) {
    let Diagnosis { ends, gaps, .. } = diagnosis;
    for (end, view) in [(End::Sender, &mut ends.source), (End::Receiver, &mut ends.sink)] {
        for finding in view.iter_mut().flat_map(|view| &mut view.findings) {
            doctor::complete(finding);
            let what = format!("the {}'s host: {}", name_of(end), finding.title);
            let gap = Gap { what, why: finding.present.clone() };
            if finding.is_denied() && !gaps.contains(&gap) {
                gaps.push(gap);
            }
        }
    }
}

/// Returns the evidence of a limit as the end of a sentence that begins with "limited by".
fn words(diagnosis: &Diagnosis, limit: &Bottleneck, evidence: &Evidence) -> Option<String> {
    let end = limit.end.unwrap_or(End::Sender);
    let name = name_of(end);
    Some(match evidence {
        Evidence::ThrottledFiles { .. }
        | Evidence::SmallFilesAlone { .. }
        | Evidence::BusyFilesThread { .. }
        | Evidence::Allocation { .. }
        | Evidence::Disk { .. }
        | Evidence::SharedDisk { .. } => of_files(end, evidence)?,
        Evidence::Test { .. } | Evidence::TestLoss { .. } => of_test(diagnosis, evidence)?,
        Evidence::ShallowQueue { .. } => shallow_queue(diagnosis, evidence)?,
        Evidence::Throttled { throttled_percent } => format!(
            "the {name}'s processors: the CPU quota of its control group throttles the process for \
             {throttled_percent:.0} % of the time"
        ),
        Evidence::MemoryCopy { thread_bps, copy_bps } => format!(
            "the {name}'s memory: a thread moves {thread_bps}, and a core that only copies memory \
             reaches {copy_bps}"
        ),
        Evidence::Encryption { .. } => encryption(end, evidence)?,
        Evidence::BusyThread { thread } => format!("the {name}'s processors: {}", busy(thread)),
        Evidence::FullWindow { full_percent } => {
            let window = match end {
                End::Sender => "the source's send buffer",
                End::Receiver => "the sink's window",
            };
            format!("{window}, {full_percent:.0} % of the time")
        }
        Evidence::CopyLoss { loss_percent } => {
            format!("loss: {loss_percent:.3} % of the bytes were retransmitted")
        }
        Evidence::Path { rate_bps } => format!("the path, which carries {rate_bps} for a copy"),
        Evidence::SmallFiles { files_per_second, mean_bytes, rate_bps, slowest_bps } => format!(
            "small files: {files_per_second:.0} files of {mean_bytes} on average are copied per second, \
             which is {rate_bps}; without the cost per file, their bytes would move at {slowest_bps}"
        ),
        Evidence::BusyTogether { thread } => {
            format!("the {name}'s processors during the whole copy: {}", busy(thread))
        }
        Evidence::FullTogether => format!(
            "the {name}'s processors, which are full during the whole copy and not during its parts"
        ),
        Evidence::Contention { whole_bps, slowest_bps } => format!(
            "contention: the whole copy reaches {whole_bps}, and its slowest part separately \
             reaches {slowest_bps}; reading, sending and writing slow each other down"
        ),
    })
}

/// Returns the words for files that one end reads or writes separately.
fn of_files(end: End, evidence: &Evidence) -> Option<String> {
    let (name, verb) = match end {
        End::Sender => ("source", "read"),
        End::Receiver => ("sink", "written"),
    };
    Some(match evidence {
        Evidence::ThrottledFiles { rate_bps, throttled_percent } => format!(
            "the {name}'s processors: files are {verb} at {rate_bps}, and the CPU quota of the control \
             group throttles the process for {throttled_percent:.0} % of the time"
        ),
        Evidence::SmallFilesAlone { files_per_second, mean_bytes, rate_bps } => format!(
            "small files: without the network, {files_per_second:.0} files of {mean_bytes} on average \
             are {verb} per second at the {name}, which is {rate_bps}"
        ),
        Evidence::BusyFilesThread { rate_bps, thread } => format!(
            "the {name}'s processors: without the network, files are {verb} at {rate_bps}, and {}",
            busy(thread)
        ),
        Evidence::Allocation { file_system, new_bps, overwrite_bps } => format!(
            "block allocation in the sink's {}: new files are written at {new_bps}, allocated \
             blocks at {overwrite_bps}",
            file_system.as_deref().unwrap_or("file system")
        ),
        Evidence::Disk { device, rate_bps } => {
            let device = device.as_ref().map_or(String::new(), |device| format!(" ({device})"));
            format!(
                "the {name}'s disk{device}: without the network, files are {verb} at {rate_bps}"
            )
        }
        Evidence::SharedDisk { device, read_bps, write_bps, in_turn_bps } => format!(
            "the disk ({device}), which source and sink appear to share: reading alone \
             reaches {read_bps} and writing alone {write_bps}, so reading and writing in turn reach \
             about {in_turn_bps}"
        ),
        _ => return None,
    })
}

/// Returns the words for the reason or the loss of a test.
fn of_test(diagnosis: &Diagnosis, evidence: &Evidence) -> Option<String> {
    Some(match evidence {
        Evidence::Test { step, round } => {
            let sentence = &reason_of(diagnosis, *step, *round)?.sentence;
            sentence.trim_start_matches("limited by ").to_owned()
        }
        Evidence::TestLoss { step, round, loss_percent } => {
            let facts = &reason_of(diagnosis, *step, *round)?.facts;
            format!(
                "loss: {loss_percent:.2} % of the segments were retransmitted, at which {} keeps its \
                 window at {} against a bandwidth-delay product of {} ({} at {:.1} ms)",
                facts.congestion,
                facts.cwnd_bytes,
                facts.bandwidth_delay_bytes,
                facts.reference_bps,
                facts.rtt_min_ms
            )
        }
        _ => return None,
    })
}

fn shallow_queue(diagnosis: &Diagnosis, evidence: &Evidence) -> Option<String> {
    let Evidence::ShallowQueue { rate_bps, least_percent, most_percent, queue_ms } = evidence
    else {
        return None;
    };
    // The drops lower the delivered rate, so the capacity can be higher.
    let (set_in, bounded) = match diagnosis.bounded {
        Some(BoundedTest { bound_bps, segments, retransmits, .. }) => (
            format!("drops set in between {bound_bps} and {rate_bps}"),
            format!(
                "; a test limited to {bound_bps} retransmitted {retransmits} of {segments} segments"
            ),
        ),
        None => (format!("drops set in at {rate_bps} or less"), String::new()),
    };
    Some(format!(
        "a shallow queue, that of a policer or of a switch with small buffers, which carries \
         {rate_bps} or more and drops bursts instead of queueing them: {set_in}, the queueing delay \
         was at most {queue_ms:.1} ms, and the tests retransmitted {least_percent:.1} to \
         {most_percent:.1} % of their segments{bounded}"
    ))
}

fn reason_of(diagnosis: &Diagnosis, step: DiagnosisStep, number: u32) -> Option<&Reason> {
    let mut rounds = diagnosis.step(step)?.rounds.iter();
    let round: &StepRound = rounds.find(|round| round.number == number)?;
    round.reason.as_deref()
}

fn encryption(end: End, evidence: &Evidence) -> Option<String> {
    let Evidence::Encryption { copy_bps, test_bps, sealing_percent, throttled, thread } = evidence
    else {
        return None;
    };
    let work = match end {
        End::Sender => "encryption takes",
        End::Receiver => "decryption takes",
    };
    let load = match (throttled, thread) {
        (true, _) => "the CPU quota of its control group throttles it".to_owned(),
        (false, Some(thread)) => busy(thread),
        (false, None) => "its processors are full".to_owned(),
    };
    Some(format!(
        "encryption on the processors of the {}: a copy from memory to memory moves {copy_bps}, and \
         an unencrypted test over as many connections moves {test_bps}; {work} {sealing_percent:.0} % \
         of the time of the connection threads, and {load}",
        name_of(end)
    ))
}

/// Describes how a thread spent its time, as part of a sentence.
fn busy(thread: &BusyThread) -> String {
    format!(
        "its busiest {} thread ran for {:.0} % of the time and waited for a core for {:.0} %",
        thread.role.as_str(),
        thread.running_percent,
        thread.waiting_percent
    )
}

/// The smallest reported gain; shorter steps vary by more.
const LEAST_GAIN: f64 = 1.15;

/// Returns the answer of a diagnosis as one sentence.
fn answer(diagnosis: &Diagnosis) -> String {
    if let Some(why) = diagnosis.unmeasured() {
        return format!("No step was measured: {why}");
    }
    let Some(first) = diagnosis.limits.first() else {
        return match diagnosis.gaps.first() {
            Some(gap) => format!("The limit of the copy is unknown: {}: {}", gap.what, gap.why),
            None => "The limit of the copy is unknown: too little was measured".to_owned(),
        };
    };
    let whole = diagnosis.step(DiagnosisStep::Whole).and_then(reached);
    let reached = match (whole, diagnosis.interrupted) {
        (Some(rate), _) => format!("The copy reaches {rate}, {}", first.sentence),
        (None, true) => {
            format!("According to the measurements so far, a copy is {}", first.sentence)
        }
        (None, false) => format!("A copy would be {}", first.sentence),
    };
    let next = diagnosis.limits.iter().skip(1).find(|next| next.resource != first.resource);
    match (next, first.gain) {
        (Some(next), Some(gain)) if gain >= LEAST_GAIN => format!(
            "{reached}. Without this limit, the next one would be {} at {}, \
             an estimated {gain:.1} times the rate ({})",
            article(next.resource),
            next.allows_bps,
            first.gain_sample()
        ),
        _ => reached,
    }
}

/// Returns the rate of the whole copy, with its ramp-up separately.
fn reached(whole: &StepReport) -> Option<String> {
    let rate = whole.throughput_bps?;
    let round = whole.median()?;
    Some(match (round.ramp_up_seconds, whole.median_mean()) {
        (Some(seconds), Some(mean)) => {
            format!("{rate} after a ramp-up of {seconds:.1} s ({mean} with the ramp-up)")
        }
        (None, Some(_)) => format!("{rate} with its ramp-up (too short for a steady rate)"),
        (_, None) => rate.to_string(),
    })
}

fn article(resource: Resource) -> String {
    match resource {
        Resource::SmallFiles
        | Resource::FileAllocation
        | Resource::Loss
        | Resource::Encryption
        | Resource::Contention => resource.to_string(),
        _ => format!("the {resource}"),
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::diagnosis::judge;
    use longhaul_core::result::FindingVerdict;

    use super::*;

    macro_rules! recorded {
        ($($name:literal),*) => {
            &[$(($name, include_str!(concat!(
                "../../../../longhaul-core/tests/fixtures/diagnoses/", $name, ".json"
            )))),*]
        };
    }

    const RECORDED: &[(&str, &str)] = recorded![
        "source-disk",
        "sink-disk",
        "sender-cpu",
        "receiver-cpu",
        "receiver-window",
        "sender-window",
        "link-rate",
        "loss-cubic",
        "loss-bbr",
        "tcp-memory",
        "tiny-files",
        "encryption",
        "shallow-queue",
        "policer"
    ];

    fn judged(text: &str) -> Diagnosis {
        let mut diagnosis = judge(serde_json::from_str(text).unwrap());
        complete(&mut diagnosis);
        diagnosis
    }

    fn recorded(name: &str) -> Diagnosis {
        judged(RECORDED.iter().find(|(other, _)| *other == name).unwrap().1)
    }

    #[test]
    fn every_recorded_diagnosis_gets_its_sentences() {
        for (name, text) in RECORDED {
            let diagnosis = judged(text);
            let rate = diagnosis.rate(DiagnosisStep::Whole).unwrap().to_string();
            let sentence = &diagnosis.sentence;
            let begins = sentence.strip_prefix(&format!("The copy reaches {rate}"));
            // The copies at a policer were too short for a steady rate.
            let begins = begins.is_some_and(|rest| {
                rest.trim_start_matches(" with its ramp-up (too short for a steady rate)")
                    .starts_with(", limited by ")
            });
            assert!(begins, "{name}: {sentence}");
            assert!(!diagnosis.sentence.ends_with('.'), "{name}");
            for limit in &diagnosis.limits {
                let sentence = &limit.sentence;
                assert!(sentence.len() > "limited by ".len() + 4, "{name}: {sentence}");
                assert!(!sentence.ends_with('.') && !sentence.contains("limited by limited"));
                let words = |cure: &longhaul_core::result::Cure| {
                    !cure.what.is_empty() && !cure.host.is_empty()
                };
                assert!(!limit.cures.is_empty() && limit.cures.iter().all(words), "{name}");
            }
            // The sentences are a function of the document.
            let mut again = diagnosis.clone();
            complete(&mut again);
            assert_eq!(again, diagnosis, "{name}");
        }
    }

    #[test]
    fn a_shallow_queue_is_named_with_its_rates() {
        let sentence = &recorded("shallow-queue").limits[0].sentence;
        for words in [
            "limited by a shallow queue",
            "carries 356 Mb/s or more",
            "drops set in between 78.8 Mb/s and 356 Mb/s, the queueing delay was at most 1.1 ms",
            "a test limited to 78.8 Mb/s retransmitted 0 of 11910 segments",
        ] {
            assert!(sentence.contains(words), "{words}: {sentence}");
        }
    }

    #[test]
    fn cures_have_the_present_and_the_wanted_value() {
        let diagnosis = recorded("receiver-window");
        let cure = &diagnosis.limits[0].cures[0];
        let finding = diagnosis.ends.of(End::Receiver).unwrap().finding("tcp_rmem").unwrap();
        assert_eq!(finding.verdict, FindingVerdict::Problem);
        assert_eq!((&cure.present, &cure.proposed), (&finding.present, &finding.wanted));
        assert!(cure.command.contains("net.ipv4.tcp_rmem"), "{cure:?}");
        let cures = &recorded("encryption").limits[0].cures;
        assert!(cures.iter().any(|cure| cure.command.contains("--cleartext")), "{cures:?}");
    }

    #[test]
    fn a_diagnosis_without_a_limit_says_so() {
        let mut diagnosis = recorded("link-rate");
        (diagnosis.limits, diagnosis.gaps) = (Vec::new(), Vec::new());
        complete(&mut diagnosis);
        let expected = "The limit of the copy is unknown: too little was measured";
        assert_eq!(diagnosis.sentence, expected);
    }
}
