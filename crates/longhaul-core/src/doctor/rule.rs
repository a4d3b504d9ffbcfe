//! Rules and their results.

use super::{DiskFacts, HostFacts, InterfaceFacts, PathFacts, PciFacts, Seen, Target};
use crate::result::{Area, Finding, Measurement, Verdict};

/// One rule of the table.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// The name of the rule in documents, which never changes.
    pub name: &'static str,
    /// The area that the rule belongs to.
    pub area: Area,
    /// The subject of the rule, as text.
    pub title: &'static str,
    /// The function that applies the rule.
    pub judge: Judge,
}

/// The function that judges a subject, by the kind of subject.
#[derive(Debug, Clone, Copy)]
pub enum Judge {
    /// Applies once to the host.
    Host(fn(&HostFacts, &Target) -> Answer),
    /// Applies to the path to the named host.
    Path(fn(&PathFacts, &HostFacts, &Target) -> Answer),
    /// Applies to each interface.
    Interface(fn(&InterfaceFacts, &HostFacts, &Target) -> Answer),
    /// Applies to each interface and disk on PCI.
    Bus(fn(&PciFacts, &Target) -> Answer),
    /// Applies to the measurement with the rule's name.
    Measured(fn(&Measurement, &HostFacts, &Target) -> Answer),
    /// Applies to each directory.
    Disk(fn(&DiskFacts, &HostFacts, &Target) -> Answer),
}

/// The result of a rule: `None` if it does not apply, an error if a fact is unseen.
pub type Answer = Seen<Option<Judgement>>;

/// The judgement of a subject by a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    verdict: Verdict,
    seen: String,
    wanted: String,
    why: String,
    commands: Vec<String>,
}

/// The result of a rule that does not apply.
pub(super) const NOTHING: Answer = Ok(None);

/// Returns the judgement that the subject is in order.
pub(super) fn fine(seen: impl Into<String>) -> Judgement {
    Judgement::new(Verdict::Ok, seen)
}

/// Returns the judgement that the subject could be improved.
pub(super) fn advice(seen: impl Into<String>) -> Judgement {
    Judgement::new(Verdict::Advice, seen)
}

/// Returns the judgement that the subject prevents transfers at the target rate.
pub(super) fn problem(seen: impl Into<String>) -> Judgement {
    Judgement::new(Verdict::Problem, seen)
}

/// Returns the judgement that the subject does not report its state.
pub(super) fn unknown(seen: impl Into<String>) -> Judgement {
    Judgement::new(Verdict::Unseen, seen)
}

impl Judgement {
    fn new(verdict: Verdict, seen: impl Into<String>) -> Self {
        let (wanted, why) = (String::new(), String::new());
        Judgement { verdict, seen: seen.into(), wanted, why, commands: Vec::new() }
    }

    /// Sets the verdict.
    pub(super) fn judged(mut self, verdict: Verdict) -> Self {
        self.verdict = verdict;
        self
    }

    /// Sets the wanted value.
    pub(super) fn wanted(mut self, wanted: impl Into<String>) -> Self {
        self.wanted = wanted.into();
        self
    }

    /// Sets the reason, with its arithmetic.
    pub(super) fn why(mut self, why: impl Into<String>) -> Self {
        self.why = why.into();
        self
    }

    /// Adds a shell command that corrects the state.
    pub(super) fn run(mut self, command: impl Into<String>) -> Self {
        self.commands.push(command.into());
        self
    }

    /// Adds the command that sets the kernel setting `name` until the next boot.
    pub(super) fn set(self, name: &str, value: impl std::fmt::Display) -> Self {
        self.run(format!("sudo sysctl -w {name}='{value}'"))
    }

    /// Returns the judgement as a rule's result.
    pub(super) fn answer(self) -> Answer {
        Ok(Some(self))
    }

    pub(super) fn into_finding(self, rule: &Rule, subject: &str) -> Finding {
        let Judgement { verdict, seen, wanted, why, commands } = self;
        Finding {
            rule: rule.name.to_owned(),
            area: rule.area,
            subject: subject.to_owned(),
            title: rule.title.to_owned(),
            verdict,
            seen,
            wanted,
            why,
            // A subject that is in order needs no remedy.
            commands: if verdict == Verdict::Ok { Vec::new() } else { commands },
        }
    }
}
