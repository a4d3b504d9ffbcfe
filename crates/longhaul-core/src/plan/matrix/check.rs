//! The validation of a matrix plan.

use super::{MatrixFault, MatrixPlan, PlanEntry, RealPath};
use crate::units::Bytes;

/// The maximum number of parallel streams or clients of a row; a larger number is a typing error.
const MOST_STREAMS: u64 = 1024;
const MOST_CLIENTS: u64 = 1024;
/// The largest window, 4 GiB; TCP's own maximum is 1 GiB (RFC 7323).
const MOST_WINDOW: u64 = 4 << 30;
/// The largest size of each write, 1 GiB; a larger size is a typing error.
const MOST_MESSAGE: u64 = 1 << 30;

impl MatrixPlan {
    /// Checks everything that does not depend on the machine or the tools.
    ///
    /// # Errors
    /// The first error, in the order of the document.
    pub fn check(&self) -> Result<(), MatrixFault> {
        if self.name.trim().is_empty() {
            return Err(MatrixFault::NoName);
        }
        if !(1..=1000).contains(&self.repeats) {
            return Err(MatrixFault::Repeats { repeats: self.repeats });
        }
        if let Some(target) = &self.precision {
            if !(target.share > 0.0 && target.share <= 1.0) {
                return Err(MatrixFault::Share { share: target.share });
            }
            if !(6..=1000).contains(&target.at_most) {
                return Err(MatrixFault::AtMost { passes: target.at_most });
            }
        }
        if !(self.scale > 0.0 && self.scale <= 1000.0) {
            return Err(MatrixFault::Scale { scale: self.scale });
        }
        if self.limit_seconds == Some(0) {
            return Err(MatrixFault::NoLimit);
        }
        self.check_paths()?;
        self.check_works()?;
        self.check_entries()?;
        self.check_rules()
    }

    fn check_paths(&self) -> Result<(), MatrixFault> {
        let Some(real) = &self.real else { return self.conditions.check() };
        // The host is an argument of ssh, which would interpret a leading dash as an option.
        let odd = |c: char| c.is_whitespace() || c.is_control();
        if real.far.is_empty() || real.far.starts_with('-') || real.far.contains(odd) {
            return Err(MatrixFault::RealFar { far: real.far.clone() });
        }
        if !RealPath::is_plain(real.directory()) {
            return Err(MatrixFault::RealDirectory { directory: real.directory().to_owned() });
        }
        if self.conditions.is_empty() { Ok(()) } else { Err(MatrixFault::RealConditions) }
    }

    fn check_works(&self) -> Result<(), MatrixFault> {
        if !(1..=86_400).contains(&self.memory.seconds) {
            return Err(MatrixFault::Seconds { seconds: self.memory.seconds });
        }
        if self.memory.omit_seconds > 3600 {
            return Err(MatrixFault::Omit { seconds: self.memory.omit_seconds });
        }
        if self.disk.size.get() == 0 {
            return Err(MatrixFault::NoSize);
        }
        if let Some(times) = self.recovery {
            let all =
                [("before_seconds", times.before_seconds), ("after_seconds", times.after_seconds)];
            if let Some(&(setting, seconds)) = all.iter().find(|(_, s)| !(2..=3600).contains(s)) {
                return Err(MatrixFault::Recovery { setting, seconds });
            }
        }
        for (index, work) in self.workloads.iter().enumerate() {
            if self.workloads[..index].iter().any(|other| other.name == work.name) {
                return Err(MatrixFault::WorkTwice { index, name: work.name.clone() });
            }
        }
        Ok(())
    }

    fn check_entries(&self) -> Result<(), MatrixFault> {
        if self.entries.is_empty() {
            return Err(MatrixFault::NoEntries);
        }
        for (index, entry) in self.entries.iter().enumerate() {
            self.check_entry(index, entry)?;
        }
        let rows = self.rows();
        for (number, row) in rows.iter().enumerate() {
            if rows[..number].iter().any(|other| other.label == row.label) {
                return Err(MatrixFault::LabelTwice { index: row.entry, label: row.label.clone() });
            }
        }
        Ok(())
    }

    fn check_entry(&self, index: usize, entry: &PlanEntry) -> Result<(), MatrixFault> {
        let label = entry.label();
        let missing = entry.workloads.iter().find(|name| self.work(name).is_none());
        if let Some(name) = missing.cloned().or(entry.workloads.is_empty().then(String::new)) {
            let own = self.workloads.iter().map(|work| work.name.as_str());
            let known = own.chain(["memory", "disk"]).collect::<Vec<_>>().join(", ");
            return Err(MatrixFault::NoWork { index, name, known });
        }
        if entry.size.is_some_and(|size| size.get() == 0) {
            return Err(MatrixFault::EntrySize { index, label });
        }
        let bad = |text: &String| text.is_empty() || text.contains(['\0', '\n', '\r']);
        if let Some(option) = entry.options.iter().position(bad) {
            return Err(MatrixFault::Option { index, option, label });
        }
        // The name is an argument of the command that starts the flows.
        let is_name = |name: &str| {
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
            (1..=15).contains(&name.len()) && name.chars().all(plain)
        };
        let wrong = |name: &&String| entry.beside == 0 || !is_name(name.as_str());
        if let Some(name) = entry.beside_congestion.iter().find(wrong).cloned() {
            return Err(MatrixFault::BesideCongestion { index, label, name });
        }
        let counts = |values: &[u32]| values.iter().map(|value| u64::from(*value)).collect();
        let sizes = |values: &[Bytes]| values.iter().map(|size| size.get()).collect();
        let settings: [(&'static str, Vec<u64>, u64); 4] = [
            ("streams", counts(&entry.streams), MOST_STREAMS),
            ("windows_bytes", sizes(&entry.windows), MOST_WINDOW),
            ("messages_bytes", sizes(&entry.messages), MOST_MESSAGE),
            ("clients", counts(&entry.clients), MOST_CLIENTS),
        ];
        for (setting, values, most) in settings {
            if let Some(&value) = values.iter().find(|value| !(1..=most).contains(*value)) {
                return Err(MatrixFault::Setting { index, setting, label, value, most });
            }
        }
        Ok(())
    }

    fn check_rules(&self) -> Result<(), MatrixFault> {
        let (rows, conditions) = (self.rows(), self.conditions());
        for (list, rules) in [("only", &self.only), ("except", &self.except)] {
            for (index, rule) in rules.iter().enumerate() {
                if rule.is_empty() {
                    return Err(MatrixFault::RuleEmpty { list, index });
                }
                let used = rows.iter().any(|row| {
                    let entry = &self.entries[row.entry];
                    conditions.iter().any(|path| row.is_matched_by(rule, entry, path))
                });
                if !used {
                    return Err(MatrixFault::RuleUnused { list, index });
                }
            }
        }
        if self.cells().is_empty() { Err(MatrixFault::NoCells) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::plan::{Conditions, Constraint, DocumentStep, FlowTimes, PlannedWork, Precision};

    fn plan() -> MatrixPlan {
        let mut plan = MatrixPlan::named("two");
        let rtt = [Duration::ZERO, Duration::from_millis(90)];
        plan.conditions = Conditions::new(&rtt, &[]);
        plan.entries = vec![PlanEntry::new("iperf3", "memory"), PlanEntry::new("scp", "disk")];
        plan
    }

    fn rule(json: &str) -> Constraint {
        serde_json::from_str(json).unwrap()
    }

    fn work(json: &str) -> PlannedWork {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn an_error_has_its_reason_and_place() {
        type Break = fn(&mut MatrixPlan);
        const BESIDE: &str = "entries.0.beside_congestion";
        fn one_second() -> FlowTimes {
            FlowTimes { after_seconds: 1, ..FlowTimes::default() }
        }
        fn real(plan: &mut MatrixPlan, text: &str) {
            plan.real = Some(serde_json::from_str(text).unwrap());
        }
        let cases: [(Break, &str); 23] = [
            (|p| p.repeats = 0, "repeats"),
            (|p| p.precision = Some(Precision::new(0.0, 30)), "precision.share"),
            (|p| p.precision = Some(Precision::new(0.05, 5)), "precision.at_most"),
            (|p| p.scale = 0.0, "scale"),
            (|p| p.conditions.set("rtt", vec![]), "conditions.rtt"),
            (|p| p.conditions.set("rtt", vec!["0s".into(), "0".into()]), "conditions.rtt.1"),
            (|p| p.conditions.set("loss", vec!["0".into(), "x".into()]), "conditions.loss.1"),
            (|p| real(p, r#"{"far": "-oProxyCommand=x"}"#), "real.far"),
            (|p| real(p, r#"{"far": "h", "directory": "~/my data"}"#), "real.directory"),
            (|p| p.memory.seconds = 0, "memory.seconds"),
            (|p| p.workloads = vec![work(r#"{"name":"a","size":1}"#); 2], "workloads.1.name"),
            (|p| p.entries[1] = p.entries[0].clone(), "entries.1"),
            (|p| p.entries[1].workloads = vec!["tape".into()], "entries.1.workload"),
            (|p| p.entries[0].streams = vec![1, 0], "entries.0.streams"),
            (|p| p.entries[0].messages = vec![Bytes::new(0)], "entries.0.messages_bytes"),
            (|p| p.conditions.set("links", vec!["1".into(), "65".into()]), "conditions.links.1"),
            (|p| p.entries[0].options = vec!["-Z".into(), String::new()], "entries.0.options.1"),
            (|p| p.recovery = Some(one_second()), "recovery.after_seconds"),
            (|p| p.entries[0].beside_congestion = vec!["bbr".into()], BESIDE),
            (
                |p| {
                    p.entries[0].beside = 1;
                    p.entries[0].beside_congestion = vec!["--json".into()];
                },
                BESIDE,
            ),
            (|p| p.only = vec![Constraint::default()], "only.0"),
            (|p| p.except = vec![rule(r#"{"tool": "spc"}"#)], "except.0"),
            (|p| p.except = vec![rule(r#"{"path": {"rtt": ["0", "90ms"]}}"#)], "entries"),
        ];
        assert_eq!(plan().check(), Ok(()));
        for (spoil, at) in cases {
            let mut spoiled = plan();
            spoil(&mut spoiled);
            let fault = spoiled.check().unwrap_err();
            let steps: Vec<String> = fault
                .at()
                .iter()
                .map(|step| match step {
                    DocumentStep::Key(key) => key.to_string(),
                    DocumentStep::Index(index) => index.to_string(),
                })
                .collect();
            assert_eq!(steps.join("."), at, "{fault}");
        }
    }

    #[test]
    fn rows_are_workloads_by_settings_and_constraints_thin_them() {
        let mut plan = plan();
        plan.workloads = vec![
            work(r#"{"name": "16@16", "files": 16, "size": "1MiB"}"#),
            work(r#"{"name": "one", "size": "16MiB"}"#),
        ];
        plan.entries[1].workloads = vec!["one".into(), "16@16".into()];
        plan.entries[0].streams = vec![1, 4];
        plan.entries[0].windows = vec![Bytes::mib(4)];
        let labels: Vec<String> = plan.rows().into_iter().map(|row| row.label).collect();
        assert_eq!(
            labels,
            [
                "iperf3, 1 stream, window 4.00 MiB",
                "iperf3, 4 streams, window 4.00 MiB",
                "scp, one",
                "scp, 16@16"
            ]
        );
        assert_eq!(plan.cells().len(), 8);
        let mut beside = plan.clone();
        beside.entries[1].beside = 1;
        beside.entries[1].beside_congestion = vec!["cubic".into(), "bbr".into()];
        let labels: Vec<String> = beside.rows().into_iter().map(|row| row.label).collect();
        assert_eq!(labels[2..4], ["scp, one, beside 1 cubic flow", "scp, one, beside 1 bbr flow"]);
        plan.except = vec![rule(r#"{"tool": "scp", "path": {"rtt": "0.09s"}}"#)];
        assert_eq!(plan.cells().len(), 6);
        plan.only = vec![rule(r#"{"workload": ["one"]}"#), rule(r#"{"streams": 4}"#)];
        let cells: Vec<(usize, usize)> =
            plan.cells().iter().map(|cell| (cell.row, cell.condition)).collect();
        assert_eq!(cells, [(1, 0), (1, 1), (2, 0)]);
        plan.check().unwrap();
    }
}
