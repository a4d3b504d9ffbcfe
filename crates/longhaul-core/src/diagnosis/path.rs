//! The part between the disks: both hosts' processors and kernels, and the network.
//!
//! Three rungs speak of it: tests over one and several connections, each of which knows the
//! [reason](crate::result::Reason) for its rate, and a copy from memory to memory, which seals or
//! hashes and verifies besides. That the copy is slower than the test over as many connections,
//! with processors at their end, is sealing's doing.

use super::cause::{
    Cause, HOST_FULL, THROTTLED, WAITING_PERCENT, cpu_of, is_bound, name_of, round, thread_words,
    throttled, told,
};
use crate::result::{
    CopyEvidence, Diagnosis, End, EndReport, FlowFacts, Limit, Reason, Resource, Rung, RungRound,
};
use crate::units::Rate;

/// A sealed copy that is slower than a test by this factor pays for the sealing.
const SEALING_COSTS: f64 = 0.75;
/// The share of its threads' time that sealing or opening takes where it is most of the work.
const SEALING_SHARE: f64 = 0.5;
/// Others that use so much of the core are the limit, whatever the thread does.
const OTHERS_PERCENT: f64 = 40.0;
/// Segments sent again while a test runs evenly, in percent, that no congestion control leaves
/// unanswered: BBR takes 2 % in a round for congestion (draft-ietf-ccwg-bbr, BBR.LossThresh), and
/// its first version is slower for what is sent twice and for each round trip of repair.
const LOSSY_PERCENT: f64 = 0.3;
/// Tests that are as fast as each other by this factor, whatever they lose, are as fast as a link.
const AS_FAST: f64 = 1.15;
/// A thread that moves this part of what a core copies in memory has no other work than memory.
const MEMORY_BOUND: f64 = 0.4;
/// Windows and loss of a copy that are told of it (`copy/verdict.rs`).
const HELD: f64 = 0.5;
const LOSSY: f64 = 5e-4;

/// What limits the path, the tightest first.
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
    // A copy that changes its congestion control or opens more connections may do better.
    let reached = [Rung::Protected, Rung::Whole].map(|rung| diagnosis.rate(rung));
    let allows = reached.into_iter().flatten().max().unwrap_or(plain.allows);
    causes.push(Cause { allows, ..plain });
    causes
}

/// What most of the tests name, each round of both rungs having a vote: one of them may have met
/// something else on a host that others use too.
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
    // A queue is what a busy host makes as well: where it ties, the other says more.
    let weight = |one: &Cause| (votes(one), one.resource != Resource::LinkRate);
    // Of the same, the first: that over several connections.
    let found = named.iter().rev().max_by_key(|one| weight(one)).cloned();
    let rungs = [Rung::Memory, Rung::MemoryOne];
    let (rung, allows) = rungs.into_iter().find_map(|rung| Some((rung, diagnosis.rate(rung)?)))?;
    let found = found.or_else(|| by_the_copy(diagnosis))?;
    Some(Cause { allows, rung, ..found })
}

/// Of two ends whose processors are both short, the one whose threads wait less for a core while they
/// copy.
fn less_short_of_cores(diagnosis: &Diagnosis) -> Option<End> {
    let copies = [Rung::Protected, Rung::Whole].map(|rung| told(diagnosis, rung));
    let waited = |end| {
        let busiest = copies.iter().flatten().filter_map(|(_, copy)| of_end(copy, end).end.busiest);
        busiest.map(|thread| thread.waiting_percent).reduce(f64::max)
    };
    let (sender, receiver) = (waited(End::Sender)?, waited(End::Receiver)?);
    Some(if receiver > sender { End::Sender } else { End::Receiver })
}

/// A test: one round of one of its rungs.
struct Test<'a> {
    rung: Rung,
    round: &'a RungRound,
    reason: &'a Reason,
}

/// All tests, those over several connections first, the nearest to their median first.
fn tests(diagnosis: &Diagnosis) -> Vec<Test<'_>> {
    let mut tests = Vec::new();
    for rung in [Rung::Memory, Rung::MemoryOne] {
        let Some(report) = diagnosis.rung(rung) else { continue };
        let median = report.throughput_bps.unwrap_or_default().bps();
        let told = |round| Some(Test { rung, round, reason: round.reason.as_deref()? });
        let mut rounds: Vec<_> = report.rounds.iter().filter_map(told).collect();
        rounds.sort_by_key(|test| test.round.throughput_bps.bps().abs_diff(median));
        tests.extend(rounds);
    }
    tests
}

/// What a test names; `None` where nothing stands out.
fn of_test(diagnosis: &Diagnosis, test: &Test<'_>, lossy: Option<f64>) -> Option<Cause> {
    let Test { rung, round, reason } = *test;
    let allows = round.throughput_bps;
    let facts = &reason.facts;
    let cause =
        |resource, end, sentence: String| Some(Cause { resource, end, rung, allows, sentence });
    let said = || reason.sentence.trim_start_matches("limited by ").to_owned();
    if let Limit::TcpMemory = reason.limit {
        return cause(Resource::TcpMemory, reason.end, said());
    }
    for end in [End::Sender, End::Receiver] {
        let held = throttled(round, end);
        if held >= THROTTLED {
            let sentence = format!(
                "the {}'s processors: the quota of its control group holds the process back for \
                 {:.0} % of the time",
                name_of(end),
                100.0 * held
            );
            return cause(cpu_of(end), Some(end), sentence);
        }
    }
    match reason.limit {
        Limit::SenderCpu => cpu(diagnosis, End::Sender, reason, cause),
        Limit::ReceiverCpu => cpu(diagnosis, End::Receiver, reason, cause),
        Limit::HostDrops => cause(Resource::HostDrops, reason.end, said()),
        Limit::Loss => cause(Resource::Loss, None, said()),
        Limit::ReceiverWindow | Limit::SendBuffer | Limit::LinkRate | Limit::CongestionWindow
            if lossy.is_some() =>
        {
            cause(Resource::Loss, None, loss_words(lossy.unwrap_or_default(), facts))
        }
        Limit::ReceiverWindow => cause(Resource::ReceiverWindow, reason.end, said()),
        Limit::SendBuffer => cause(Resource::SenderWindow, reason.end, said()),
        Limit::LinkRate => cause(Resource::LinkRate, None, said()),
        Limit::CongestionWindow => cause(Resource::CongestionWindow, Some(End::Sender), said()),
        Limit::TcpMemory | Limit::Pacing | Limit::SendingProgram | Limit::Nothing => None,
    }
}

fn cpu(
    diagnosis: &Diagnosis,
    end: End,
    reason: &Reason,
    cause: impl Fn(Resource, Option<End>, String) -> Option<Cause>,
) -> Option<Cause> {
    let facts = reason.facts.end(end);
    let said = reason.sentence.trim_start_matches("limited by ").to_owned();
    if facts.load_percent() < facts.interrupts_percent {
        return cause(Resource::InterruptCpu, Some(end), said);
    }
    let own = facts.running_percent >= 80.0 && facts.core_others_percent < OTHERS_PERCENT;
    let copies = diagnosis.ends.of(end).and_then(|view| view.memory_copy_bps);
    if let Some(copies) = copies.filter(|_| own) {
        let one = reason.facts.throughput_bps.bps() / u64::from(reason.facts.streams.max(1));
        if one as f64 >= MEMORY_BOUND * copies.bps() as f64 {
            let sentence = format!(
                "the {}'s memory: a thread moves {}, where one core copies {copies} in memory and \
                 does nothing else",
                name_of(end),
                Rate::from_bps(one)
            );
            return cause(Resource::MemoryBandwidth, Some(end), sentence);
        }
    }
    cause(cpu_of(end), Some(end), said)
}

/// The loss of the path in percent, where it is more than a congestion control leaves unanswered and
/// not what a full link makes: that is less with one connection than with several, and all tests
/// are as fast as the link.
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

fn loss_words(percent: f64, facts: &FlowFacts) -> String {
    format!(
        "loss: {percent:.2} % of the segments were sent again, at which {} keeps its window at {} \
         against a bandwidth-delay product of {} ({} at {:.1} ms)",
        facts.congestion,
        facts.cwnd_bytes,
        facts.bandwidth_delay_bytes,
        facts.reference_bps,
        facts.rtt_min_ms
    )
}

/// Sealing or hashing, where a copy from memory to memory is slower for it.
fn sealing(diagnosis: &Diagnosis, plain: Option<&Cause>) -> Option<Cause> {
    let sealed = diagnosis.rate(Rung::Protected)?;
    let test = diagnosis.rate(Rung::Memory)?;
    if sealed.bps() as f64 >= SEALING_COSTS * test.bps() as f64 {
        return None;
    }
    // Whoever lacks a core for sealing lacks it for everything.
    let reason = round(diagnosis, Rung::Memory).and_then(|round| round.reason.as_deref());
    let others = |end| {
        reason.is_some_and(|reason| reason.facts.end(end).core_others_percent >= OTHERS_PERCENT)
    };
    // Nor is it sealing that makes a copy suffer more from a window or from loss than a test does.
    let other = [
        Resource::TcpMemory,
        Resource::ReceiverWindow,
        Resource::SenderWindow,
        Resource::Loss,
        Resource::HostDrops,
    ];
    if plain.is_some_and(|plain| other.contains(&plain.resource)) {
        return None;
    }
    let (measured, copy) = told(diagnosis, Rung::Protected)?;
    let (end, share) = busiest_end(copy, measured)?;
    let held_by_quota = throttled(measured, end) >= THROTTLED;
    // A quota is its group's own, however many others the core has.
    if others(end) && !held_by_quota {
        return None;
    }
    let work = match end {
        End::Sender => "sealing takes",
        End::Receiver => "opening what is sealed takes",
    };
    let how = match (held_by_quota, of_end(copy, end).end.busiest) {
        (true, _) => "the quota of its control group holds it back".to_owned(),
        (false, Some(thread)) => thread_words(&thread),
        (false, None) => "its processors are full".to_owned(),
    };
    let sentence = format!(
        "encryption on the processors of the {}: from memory to memory a copy moves {sealed}, a \
         test over as many connections that does not encrypt {test}; {work} {:.0} % of the time of \
         the threads at the connections, and {how}",
        name_of(end),
        100.0 * share,
    );
    let (resource, rung) = (Resource::Encryption, Rung::Protected);
    Some(Cause { resource, end: Some(end), rung, allows: sealed, sentence })
}

fn of_end(copy: &CopyEvidence, end: End) -> &EndReport {
    match end {
        End::Sender => &copy.source,
        End::Receiver => &copy.sink,
    }
}

/// The end whose processors are at their end in a copy, and the share of the time that sealing or
/// opening takes there.
fn busiest_end(copy: &CopyEvidence, round: &RungRound) -> Option<(End, f64)> {
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
    // A quota is at one end; where both are full, the one that seals or opens more.
    let weight = |held: f64, share: f64| held + share;
    let most = with_share.max_by(|a, b| weight(a.1, a.2).total_cmp(&weight(b.1, b.2)));
    most.map(|(end, _, share)| (end, share))
}

/// An end whose threads wait for a core for most of a copy from memory to memory: what then looks
/// like a slow link is a host that does not come by.
fn starved(diagnosis: &Diagnosis) -> Option<Cause> {
    let rung = Rung::Protected;
    let (round, copy) = told(diagnosis, rung)?;
    let waiting = |end| {
        let thread = of_end(copy, end).end.busiest?;
        (thread.waiting_percent >= WAITING_PERCENT).then_some((end, thread))
    };
    let ends = [End::Sender, End::Receiver].into_iter().filter_map(waiting);
    let (end, thread) = ends.max_by(|a, b| a.1.waiting_percent.total_cmp(&b.1.waiting_percent))?;
    let sentence = format!("the {}'s processors: {}", name_of(end), thread_words(&thread));
    let allows = round.throughput_bps;
    Some(Cause { resource: cpu_of(end), end: Some(end), rung, allows, sentence })
}

/// What a copy from memory to memory, or the whole, says of the path, where no test could.
fn by_the_copy(diagnosis: &Diagnosis) -> Option<Cause> {
    let rungs = [Rung::Protected, Rung::Whole];
    let (rung, (round, copy)) =
        rungs.into_iter().find_map(|rung| Some((rung, told(diagnosis, rung)?)))?;
    let path = &copy.path;
    let percent = |share: f64| format!("{:.0} % of the time", 100.0 * share);
    let bound = |end: End| {
        let thread = of_end(copy, end).end.busiest.filter(is_bound);
        thread.map(|thread| (end, thread))
    };
    let (resource, end, sentence) = if path.receive_window_limited >= HELD {
        let words = format!("the sink's window, {}", percent(path.receive_window_limited));
        (Resource::ReceiverWindow, Some(End::Receiver), words)
    } else if path.send_buffer_limited >= HELD {
        let words = format!("the source's send buffer, {}", percent(path.send_buffer_limited));
        (Resource::SenderWindow, Some(End::Sender), words)
    } else if path.loss >= LOSSY {
        let words = format!("loss: {:.3} % of the bytes were sent again", 100.0 * path.loss);
        (Resource::Loss, None, words)
    } else if let Some((end, thread)) = bound(End::Receiver).or_else(|| bound(End::Sender)) {
        let words = format!("the {}'s processors: {}", name_of(end), thread_words(&thread));
        (cpu_of(end), Some(end), words)
    } else {
        let rate = round.throughput_bps;
        (Resource::LinkRate, None, format!("the path, which carries {rate} for a copy"))
    };
    Some(Cause { resource, end, rung, allows: round.throughput_bps, sentence })
}
