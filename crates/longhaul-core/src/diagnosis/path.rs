//! Limits between the disks: processors and kernels of both hosts, and the network.
//!
//! Three steps measure this part: tests over one and over several connections, each with the
//! [reason](crate::result::Reason) for its rate, and a copy from memory to memory, which also
//! encrypts or hashes and verifies. If that copy is slower than a test over as many connections and
//! a processor is fully loaded, encryption is the limit.

use super::cause::{
    Cause, HOST_FULL, THROTTLED, WAITING_PERCENT, cpu_of, is_bound, round, round_with_account,
    throttled,
};
use crate::result::{
    CopyEvidence, Diagnosis, DiagnosisStep, End, EndReport, Evidence, Reason, Resource, StepRound,
    TestLimit,
};
use crate::units::Rate;

/// The relative rate below which an encrypted copy is limited by encryption.
const SEALING_COSTS: f64 = 0.75;
/// The share of a thread's time above which encryption or decryption is most of its work.
const SEALING_SHARE: f64 = 0.5;
/// The percentage of a core that other programs use above which they are the limit.
const OTHERS_PERCENT: f64 = 40.0;
/// The percentage of segments retransmitted during the steady part of a test above which every
/// congestion control slows down: BBR treats 2 % in a round as congestion (draft-ietf-ccwg-bbr,
/// BBR.LossThresh), and its first version loses rate by each retransmission and repair.
const LOSSY_PERCENT: f64 = 0.3;
/// The largest ratio of two tests that count as equally fast. Equally fast tests show a link's
/// rate, even with different losses.
const AS_FAST: f64 = 1.15;
/// The share of a core's memory copy rate above which a thread is limited by memory bandwidth.
const MEMORY_BOUND: f64 = 0.4;
/// The share of time or bytes above which a copy reports its windows or losses (`copy/verdict.rs`).
const HELD: f64 = 0.5;
const LOSSY: f64 = 5e-4;

/// Returns the limits of the path, the tightest first.
pub(super) fn causes(diagnosis: &Diagnosis) -> Vec<Cause> {
    let mut causes = Vec::new();
    let plain = plain(diagnosis);
    if let Some(sealing) = sealing(diagnosis, plain.as_ref()) {
        causes.push(sealing);
        causes.extend(plain);
        return causes;
    }
    let vague =
        |cause: &Cause| matches!(cause.resource, Resource::LinkRate | Resource::CongestionWindow);
    let plain = match plain {
        Some(plain) if !vague(&plain) => Some(plain),
        vague => starved(diagnosis).or(vague),
    };
    let Some(plain) = plain.or_else(|| by_the_copy(diagnosis)) else { return causes };
    // A copy that changes its congestion control or opens more connections may be faster.
    let reached = [DiagnosisStep::Protected, DiagnosisStep::Whole].map(|step| diagnosis.rate(step));
    let allows = reached.into_iter().flatten().max().unwrap_or(plain.allows);
    causes.push(Cause { allows, ..plain });
    causes
}

/// Returns the limit that most tests name. Each round of both steps has one vote, because a single
/// round may be disturbed by other load on a shared host.
fn plain(diagnosis: &Diagnosis) -> Option<Cause> {
    let tests = tests(diagnosis);
    let lossy = is_lossy(&tests);
    let mut named: Vec<Cause> =
        tests.iter().filter_map(|test| of_test(diagnosis, test, lossy)).collect();
    let names = |end| named.iter().any(|cause| cause.resource == cpu_of(end));
    if names(End::Sender)
        && names(End::Receiver)
        && let Some(other) = less_short_of_cores(diagnosis)
    {
        named.retain(|cause| cause.resource != cpu_of(other));
    }
    let votes = |one: &Cause| {
        let same = |other: &&Cause| (other.resource, other.end) == (one.resource, one.end);
        named.iter().filter(same).count()
    };
    // A busy host causes a queue, too, so in a tie the other limit is more informative.
    let weight = |one: &Cause| (votes(one), one.resource != Resource::LinkRate);
    // Of equal weights the first test wins, which used several connections.
    let found = named.iter().rev().max_by_key(|one| weight(one)).cloned();
    let steps = [DiagnosisStep::Memory, DiagnosisStep::MemoryOne];
    let (step, allows) = steps.into_iter().find_map(|step| Some((step, diagnosis.rate(step)?)))?;
    let found = found.or_else(|| by_the_copy(diagnosis))?;
    let of_the_path = matches!(
        found.resource,
        Resource::Loss | Resource::LinkRate | Resource::CongestionWindow | Resource::ShallowQueue
    );
    let rounds: Vec<_> = tests.iter().map(|test| (test.round, test.reason)).collect();
    let bounded = diagnosis.bounded.as_ref();
    let copied = super::shallow::drop_threshold_of_copies(&diagnosis.steps);
    let shallow = super::shallow::evidence(&rounds, bounded, copied);
    if let Some(evidence) = shallow.filter(|_| of_the_path) {
        let resource = Resource::ShallowQueue;
        return Some(Cause { resource, end: None, allows, step, by_quota: false, evidence });
    }
    // Loss in bursts that does not depend on the rate is not that of a queue.
    let resource = match found.resource {
        Resource::ShallowQueue if super::shallow::is_at_every_rate(&rounds, bounded) => {
            Resource::Loss
        }
        resource => resource,
    };
    Some(Cause { resource, allows, step, ..found })
}

/// Returns the end whose threads wait less for a core during a copy, of two ends that both lack
/// processor time.
fn less_short_of_cores(diagnosis: &Diagnosis) -> Option<End> {
    let copies = [DiagnosisStep::Protected, DiagnosisStep::Whole]
        .map(|step| round_with_account(diagnosis, step));
    let waited = |end| {
        let busiest = copies.iter().flatten().filter_map(|(_, copy)| of_end(copy, end).end.busiest);
        busiest.map(|thread| thread.waiting_percent).reduce(f64::max)
    };
    let (sender, receiver) = (waited(End::Sender)?, waited(End::Receiver)?);
    Some(if receiver > sender { End::Sender } else { End::Receiver })
}

/// A test: one round of one of its steps.
struct Test<'a> {
    step: DiagnosisStep,
    round: &'a StepRound,
    reason: &'a Reason,
}

/// Returns all tests, those over several connections first, sorted by distance from their median.
fn tests(diagnosis: &Diagnosis) -> Vec<Test<'_>> {
    let mut tests = Vec::new();
    for step in [DiagnosisStep::Memory, DiagnosisStep::MemoryOne] {
        let Some(report) = diagnosis.step(step) else { continue };
        let median = report.throughput_bps.unwrap_or_default().bps();
        let test = |round| Some(Test { step, round, reason: round.reason.as_deref()? });
        let mut rounds: Vec<_> = report.rounds.iter().filter_map(test).collect();
        rounds.sort_by_key(|test| test.round.throughput_bps.bps().abs_diff(median));
        tests.extend(rounds);
    }
    tests
}

/// Returns the limit that a test names; `None` if it names none.
fn of_test(diagnosis: &Diagnosis, test: &Test<'_>, lossy: Option<f64>) -> Option<Cause> {
    let Test { step, round, reason } = *test;
    let allows = round.throughput_bps;
    let cause = |resource, end, evidence| {
        Some(Cause { resource, end, step, allows, by_quota: false, evidence })
    };
    let test = || Evidence::Test { step, round: round.number };
    let named = |resource, end| cause(resource, end, test());
    let cpu = |end| {
        let (resource, evidence) = cpu(diagnosis, end, reason);
        cause(resource, Some(end), evidence.unwrap_or_else(test))
    };
    if let TestLimit::TcpMemory = reason.limit {
        return named(Resource::TcpMemory, reason.end);
    }
    for end in [End::Sender, End::Receiver] {
        let quota = throttled(round, end);
        if quota >= THROTTLED {
            let evidence = Evidence::Throttled { throttled_percent: 100.0 * quota };
            let named = cause(cpu_of(end), Some(end), evidence)?;
            return Some(Cause { by_quota: true, ..named });
        }
    }
    match (reason.limit, lossy) {
        (TestLimit::SenderCpu, _) => cpu(End::Sender),
        (TestLimit::ReceiverCpu, _) => cpu(End::Receiver),
        (TestLimit::HostDrops, _) => named(Resource::HostDrops, reason.end),
        (TestLimit::Loss, _) => named(Resource::Loss, None),
        (TestLimit::ShallowQueue, _) => named(Resource::ShallowQueue, None),
        (
            TestLimit::ReceiverWindow
            | TestLimit::SendBuffer
            | TestLimit::LinkRate
            | TestLimit::CongestionWindow,
            Some(loss_percent),
        ) => {
            let evidence = Evidence::TestLoss { step, round: round.number, loss_percent };
            cause(Resource::Loss, None, evidence)
        }
        (TestLimit::ReceiverWindow, None) => named(Resource::ReceiverWindow, reason.end),
        (TestLimit::SendBuffer, None) => named(Resource::SenderWindow, reason.end),
        (TestLimit::LinkRate, None) => named(Resource::LinkRate, None),
        (TestLimit::CongestionWindow, None) => named(Resource::CongestionWindow, Some(End::Sender)),
        (
            TestLimit::TcpMemory
            | TestLimit::Pacing
            | TestLimit::SendingProgram
            | TestLimit::Nothing,
            _,
        ) => None,
    }
}

/// Returns the resource of a test that the CPU of `end` limits, and its evidence if it is not the
/// reason of the test.
fn cpu(diagnosis: &Diagnosis, end: End, reason: &Reason) -> (Resource, Option<Evidence>) {
    let facts = reason.facts.end(end);
    if facts.load_percent() < facts.interrupts_percent {
        return (Resource::InterruptCpu, None);
    }
    match memory(diagnosis, end, reason) {
        Some(evidence) => (Resource::MemoryBandwidth, Some(evidence)),
        None => (cpu_of(end), None),
    }
}

/// Returns the evidence that a thread of `end` is limited by the bandwidth of the memory.
fn memory(diagnosis: &Diagnosis, end: End, reason: &Reason) -> Option<Evidence> {
    let facts = reason.facts.end(end);
    let busy = facts.running_percent >= 80.0 && facts.core_others_percent < OTHERS_PERCENT;
    let copy_bps = diagnosis.ends.of(end)?.memory_copy_bps.filter(|_| busy)?;
    let streams = u64::from(reason.facts.streams.max(1));
    let thread_bps = Rate::from_bps(reason.facts.throughput_bps.bps() / streams);
    let fast = thread_bps.bps() as f64 >= MEMORY_BOUND * copy_bps.bps() as f64;
    fast.then_some(Evidence::MemoryCopy { thread_bps, copy_bps })
}

/// Returns the path's loss in percent if it exceeds the loss that a congestion control tolerates
/// and is not caused by a full link. A full link loses less with one connection than with several,
/// and all tests reach the rate of the link.
fn is_lossy(tests: &[Test<'_>]) -> Option<f64> {
    let losses = tests.iter().map(|test| test.round.late_loss_percent.unwrap_or(0.0));
    let least = losses.reduce(f64::min)?;
    let rates = || tests.iter().map(|test| test.round.throughput_bps.bps() as f64);
    let (low, high) = (rates().reduce(f64::min)?, rates().reduce(f64::max)?);
    let dropped = tests.iter().all(|test| {
        let facts = &test.reason.facts;
        let drops = facts.sender.drops.max(facts.receiver.drops);
        drops > 0 && drops as f64 >= facts.retransmits as f64 / 2.0
    });
    (least >= LOSSY_PERCENT && high > AS_FAST * low && !dropped).then_some(least)
}

/// Returns encryption or hashing as the limit if a copy from memory to memory is slower because of
/// it.
fn sealing(diagnosis: &Diagnosis, plain: Option<&Cause>) -> Option<Cause> {
    let sealed = diagnosis.rate(DiagnosisStep::Protected)?;
    let test = diagnosis.rate(DiagnosisStep::Memory)?;
    if sealed.bps() as f64 >= SEALING_COSTS * test.bps() as f64 {
        return None;
    }
    // If other programs use the core, encryption is not the limit: all work of the thread waits.
    let reason = round(diagnosis, DiagnosisStep::Memory).and_then(|round| round.reason.as_deref());
    let others = |end| {
        reason.is_some_and(|reason| reason.facts.end(end).core_others_percent >= OTHERS_PERCENT)
    };
    // A copy that suffers more than a test from a window or from loss is not limited by encryption
    // either.
    let other = [
        Resource::TcpMemory,
        Resource::ReceiverWindow,
        Resource::SenderWindow,
        Resource::Loss,
        Resource::ShallowQueue,
        Resource::HostDrops,
    ];
    if plain.is_some_and(|plain| other.contains(&plain.resource)) {
        return None;
    }
    let (measured, copy) = round_with_account(diagnosis, DiagnosisStep::Protected)?;
    let (end, share) = busiest_end(copy, measured)?;
    let held_by_quota = throttled(measured, end) >= THROTTLED;
    // A quota applies to the control group of the process, independent of the core's other load.
    if others(end) && !held_by_quota {
        return None;
    }
    let evidence = Evidence::Encryption {
        copy_bps: sealed,
        test_bps: test,
        sealing_percent: 100.0 * share,
        throttled: held_by_quota,
        thread: of_end(copy, end).end.busiest,
    };
    let (resource, step) = (Resource::Encryption, DiagnosisStep::Protected);
    Some(Cause { resource, end: Some(end), step, allows: sealed, by_quota: false, evidence })
}

fn of_end(copy: &CopyEvidence, end: End) -> &EndReport {
    match end {
        End::Sender => &copy.source,
        End::Receiver => &copy.sink,
    }
}

/// Returns the end whose processors are fully loaded in a copy, and the share of time that
/// encryption or decryption takes there.
fn busiest_end(copy: &CopyEvidence, round: &StepRound) -> Option<(End, f64)> {
    let share = |end| match end {
        End::Sender => copy.source.stages.seal,
        End::Receiver => copy.sink.stages.verify,
    };
    let bound = |end| {
        let report = of_end(copy, end);
        let full = report.end.host_busy.is_some_and(|busy| busy >= HOST_FULL);
        let sealing = share(end).is_some_and(|share| share >= SEALING_SHARE);
        throttled(round, end) >= THROTTLED
            || full
            || sealing
            || report.end.busiest.is_some_and(|thread| is_bound(&thread))
    };
    let ends = [End::Sender, End::Receiver].into_iter().filter(|end| bound(*end));
    let with_share = ends.map(|end| (end, throttled(round, end), share(end).unwrap_or(0.0)));
    // A quota applies to one end. If both ends are fully loaded, the end that spends more time on
    // encryption counts.
    let weight = |held: f64, share: f64| held + share;
    let most = with_share.max_by(|a, b| weight(a.1, a.2).total_cmp(&weight(b.1, b.2)));
    most.map(|(end, _, share)| (end, share))
}

/// Returns an end whose threads wait for a core during most of a copy from memory to memory;
/// without this check the limit would look like a slow link.
fn starved(diagnosis: &Diagnosis) -> Option<Cause> {
    let step = DiagnosisStep::Protected;
    let (round, copy) = round_with_account(diagnosis, step)?;
    let waiting = |end| {
        let thread = of_end(copy, end).end.busiest?;
        (thread.waiting_percent >= WAITING_PERCENT).then_some((end, thread))
    };
    let ends = [End::Sender, End::Receiver].into_iter().filter_map(waiting);
    let (end, thread) = ends.max_by(|a, b| a.1.waiting_percent.total_cmp(&b.1.waiting_percent))?;
    let (allows, evidence) = (round.throughput_bps, Evidence::BusyThread { thread });
    Some(Cause { resource: cpu_of(end), end: Some(end), step, allows, by_quota: false, evidence })
}

/// Returns the limit that a copy from memory to memory, or the whole copy, names for the path if no
/// test could run.
fn by_the_copy(diagnosis: &Diagnosis) -> Option<Cause> {
    let steps = [DiagnosisStep::Protected, DiagnosisStep::Whole];
    let (step, (round, copy)) =
        steps.into_iter().find_map(|step| Some((step, round_with_account(diagnosis, step)?)))?;
    let path = &copy.path;
    let bound = |end: End| {
        let thread = of_end(copy, end).end.busiest.filter(is_bound);
        thread.map(|thread| (end, thread))
    };
    let full = |share: f64| Evidence::FullWindow { full_percent: 100.0 * share };
    let (resource, end, evidence) = if path.receive_window_limited >= HELD {
        (Resource::ReceiverWindow, Some(End::Receiver), full(path.receive_window_limited))
    } else if path.send_buffer_limited >= HELD {
        (Resource::SenderWindow, Some(End::Sender), full(path.send_buffer_limited))
    } else if path.loss >= LOSSY {
        (Resource::Loss, None, Evidence::CopyLoss { loss_percent: 100.0 * path.loss })
    } else if let Some((end, thread)) = bound(End::Receiver).or_else(|| bound(End::Sender)) {
        (cpu_of(end), Some(end), Evidence::BusyThread { thread })
    } else {
        (Resource::LinkRate, None, Evidence::Path { rate_bps: round.throughput_bps })
    };
    Some(Cause { resource, end, step, allows: round.throughput_bps, by_quota: false, evidence })
}
