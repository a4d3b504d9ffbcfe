use super::{DiskFacts, HostFacts, InterfaceFacts, PathFacts, PciFacts, Seen, Target};
use crate::result::{Area, Finding, Measurement, Verdict};

/// One rule of the table.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// Its name in documents, which stays.
    pub name: &'static str,
    /// What it is about.
    pub area: Area,
    /// What it looks at, in words.
    pub title: &'static str,
    /// Looks and says.
    pub judge: Judge,
}

/// What a rule is put to, once or for each of them.
#[derive(Debug, Clone, Copy)]
pub enum Judge {
    /// The host.
    Host(fn(&HostFacts, &Target) -> Answer),
    /// The way to the host named.
    Path(fn(&PathFacts, &HostFacts, &Target) -> Answer),
    /// Each interface.
    Interface(fn(&InterfaceFacts, &HostFacts, &Target) -> Answer),
    /// Each interface and disk that is on PCI.
    Bus(fn(&PciFacts, &Target) -> Answer),
    /// What the active part measured under the rule's name.
    Measured(fn(&Measurement, &HostFacts, &Target) -> Answer),
    /// Each directory.
    Disk(fn(&DiskFacts, &HostFacts, &Target) -> Answer),
}

/// What a rule says; nothing where it does not apply, and an error where a fact it asks for was
/// not seen.
pub type Answer = Seen<Option<Said>>;

/// What a rule says of a thing that it saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    verdict: Verdict,
    seen: String,
    wanted: String,
    why: String,
    commands: Vec<String>,
}

/// The rule has nothing to say here.
pub(super) const NOTHING: Answer = Ok(None);

/// It is as it should be.
pub(super) fn fine(seen: impl Into<String>) -> Said {
    Said::new(Verdict::Ok, seen)
}

/// It may be better.
pub(super) fn advice(seen: impl Into<String>) -> Said {
    Said::new(Verdict::Advice, seen)
}

/// It keeps transfers from the target.
pub(super) fn problem(seen: impl Into<String>) -> Said {
    Said::new(Verdict::Problem, seen)
}

/// It does not say.
pub(super) fn unknown(seen: impl Into<String>) -> Said {
    Said::new(Verdict::Unseen, seen)
}

impl Said {
    fn new(verdict: Verdict, seen: impl Into<String>) -> Self {
        let (wanted, why) = (String::new(), String::new());
        Said { verdict, seen: seen.into(), wanted, why, commands: Vec::new() }
    }

    /// As `verdict`.
    pub(super) fn judged(mut self, verdict: Verdict) -> Self {
        self.verdict = verdict;
        self
    }

    /// The value wanted.
    pub(super) fn wanted(mut self, wanted: impl Into<String>) -> Self {
        self.wanted = wanted.into();
        self
    }

    /// Why, with the arithmetic.
    pub(super) fn why(mut self, why: impl Into<String>) -> Self {
        self.why = why.into();
        self
    }

    /// Another line of shell that cures it.
    pub(super) fn run(mut self, command: impl Into<String>) -> Self {
        self.commands.push(command.into());
        self
    }

    /// Cured by kernel setting `name`, until the next start.
    pub(super) fn set(self, name: &str, value: impl std::fmt::Display) -> Self {
        self.run(format!("sudo sysctl -w {name}='{value}'"))
    }

    /// As a rule's answer.
    pub(super) fn said(self) -> Answer {
        Ok(Some(self))
    }

    pub(super) fn into_finding(self, rule: &Rule, subject: &str) -> Finding {
        let Said { verdict, seen, wanted, why, commands } = self;
        Finding {
            rule: rule.name.to_owned(),
            area: rule.area,
            subject: subject.to_owned(),
            title: rule.title.to_owned(),
            verdict,
            seen,
            wanted,
            why,
            // What is in order needs no cure.
            commands: if verdict == Verdict::Ok { Vec::new() } else { commands },
        }
    }
}
