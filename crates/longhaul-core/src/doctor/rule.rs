//! Rules, the target that they judge a host against, and their results.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{DiskFacts, FactResult, HostFacts, InterfaceFacts, PathFacts, PciFacts};
use crate::result::{
    Area, DoctorTarget, Finding, FindingValue, FindingVerdict, Measurement, TargetSource,
};
use crate::units::{Bytes, Rate};

/// One rule of the table.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// The name of the rule in documents, which never changes.
    pub name: &'static str,
    /// The area that the rule belongs to.
    pub area: Area,
    /// The cases that the rule distinguishes.
    pub cases: &'static [&'static str],
    /// The function that applies the rule.
    pub judge: Judge,
}

/// The function that judges a subject, by the kind of subject.
#[derive(Debug, Clone, Copy)]
pub enum Judge {
    /// Applies once to the host.
    Host(fn(&HostFacts, &Target) -> RuleAnswer),
    /// Applies to the path to the named host.
    Path(fn(&PathFacts, &HostFacts, &Target) -> RuleAnswer),
    /// Applies to each interface.
    Interface(fn(&InterfaceFacts, &HostFacts, &Target) -> RuleAnswer),
    /// Applies to each interface and disk on PCI.
    Bus(fn(&PciFacts, &Target) -> RuleAnswer),
    /// Applies to the measurement with the rule's name.
    Measured(fn(&Measurement, &HostFacts, &Target) -> RuleAnswer),
    /// Applies to each directory.
    Disk(fn(&DiskFacts, &HostFacts, &Target) -> RuleAnswer),
}

/// The result of a rule: `None` if it does not apply, an error if a fact is unseen.
pub type RuleAnswer = FactResult<Option<RuleJudgement>>;

/// The judgement of a subject by a rule: a case of the rule with its values.
#[derive(Debug, Clone, PartialEq)]
pub struct RuleJudgement {
    verdict: FindingVerdict,
    case: &'static str,
    values: BTreeMap<String, FindingValue>,
}

/// The cases of every rule whose fact is unseen. Those of a missing privilege begin with
/// [`Finding::DENIED`].
pub const UNSEEN_CASES: &[&str] =
    &["denied", "denied_net_admin", "denied_sys_admin", "denied_file", "absent", "unreadable"];

/// The result of a rule that does not apply.
pub(super) const NOTHING: RuleAnswer = Ok(None);

/// Returns the judgement that the subject is in order.
pub(super) fn fine(case: &'static str) -> RuleJudgement {
    judged(FindingVerdict::Ok, case)
}

/// Returns the judgement that the subject could be improved.
pub(super) fn advice(case: &'static str) -> RuleJudgement {
    judged(FindingVerdict::Advice, case)
}

/// Returns the judgement that the subject prevents transfers at the target rate.
pub(super) fn problem(case: &'static str) -> RuleJudgement {
    judged(FindingVerdict::Problem, case)
}

/// Returns the judgement that the subject does not report its state.
pub(super) fn unknown(case: &'static str) -> RuleJudgement {
    judged(FindingVerdict::Unseen, case)
}

/// Returns a judgement.
pub(super) fn judged(verdict: FindingVerdict, case: &'static str) -> RuleJudgement {
    RuleJudgement { verdict, case, values: BTreeMap::new() }
}

impl RuleJudgement {
    /// Adds a value. Its name ends in its unit.
    pub(super) fn with(mut self, name: &str, value: impl Into<FindingValue>) -> Self {
        self.values.insert(name.to_owned(), value.into());
        self
    }

    /// Adds a value if there is one.
    pub(super) fn with_any(self, name: &str, value: Option<impl Into<FindingValue>>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// Adds a time.
    pub(super) fn with_ms(self, name: &str, time: Duration) -> Self {
        self.with(name, time.as_secs_f64() * 1e3)
    }

    /// Adds the figures of the target.
    pub(super) fn for_target(self, target: &Target) -> Self {
        self.with("target_bps", target.rate)
            .with_ms("target_rtt_ms", target.rtt)
            .with("bdp_bytes", target.bdp())
    }

    /// Returns the judgement as a rule's result.
    pub(super) fn answer(self) -> RuleAnswer {
        Ok(Some(self))
    }

    pub(super) fn into_finding(self, rule: &Rule, subject: &str) -> Finding {
        let RuleJudgement { verdict, case, values } = self;
        debug_assert!(
            rule.cases.contains(&case) || UNSEEN_CASES.contains(&case),
            "{}: {case}",
            rule.name
        );
        Finding {
            rule: rule.name.to_owned(),
            area: rule.area,
            subject: subject.to_owned(),
            verdict,
            case: case.to_owned(),
            values,
            title: String::new(),
            present: String::new(),
            wanted: String::new(),
            why: String::new(),
            commands: Vec::new(),
        }
    }
}

/// The rate and round-trip time that a host must support.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    /// The rate that transfers must reach.
    pub rate: Rate,
    /// The origin of the rate.
    pub rate_from: TargetSource,
    /// The round-trip time of the path.
    pub rtt: Duration,
    /// The origin of the round-trip time.
    pub rtt_from: TargetSource,
    /// The host at the other end, if one was named.
    pub to: Option<String>,
    /// The port of `longhaul serve`.
    pub port: u16,
}

impl Target {
    /// The rate assumed if neither the user nor an interface provides one.
    pub const ASSUMED_RATE: Rate = Rate::from_bps(10_000_000_000);
    /// The round-trip time assumed by default: across a continent and back.
    pub const ASSUMED_RTT: Duration = Duration::from_millis(100);

    /// Returns the bandwidth-delay product.
    pub fn bdp(&self) -> Bytes {
        self.rate.bdp(self.rtt)
    }

    /// Returns the part of the rate that one of `sharers` devices must carry.
    pub fn share(&self, sharers: u32) -> Rate {
        Rate::from_bps(self.rate.bps() / u64::from(sharers.max(1)))
    }

    /// Returns whether the target rate is `gigabits` Gb/s or more.
    pub fn is_at_least(&self, gigabits: u64) -> bool {
        self.rate.bps() >= gigabits * 1_000_000_000
    }

    /// Returns the target as the report's type.
    pub fn to_report(&self) -> DoctorTarget {
        DoctorTarget {
            rate_bps: self.rate,
            rate_from: self.rate_from,
            rtt_ms: self.rtt.as_secs_f64() * 1e3,
            rtt_from: self.rtt_from,
            bdp_bytes: self.bdp(),
            to: self.to.clone(),
            port: self.port,
        }
    }
}
