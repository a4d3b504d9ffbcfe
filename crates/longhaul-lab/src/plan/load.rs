use std::fs;
use std::path::Path;

use longhaul_core::plan::{MatrixPlan, Step};
use twox_hash::XxHash3_128;

use super::{Builtin, place};
use crate::drivers::Driver;
use crate::{LabError, Place};

/// Reads and checks the plan file at `path`.
///
/// # Errors
/// The file cannot be read, is not a plan, or is a plan that makes no sense.
pub fn load(path: &Path, drivers: &[Box<dyn Driver>]) -> Result<MatrixPlan, LabError> {
    let text = fs::read_to_string(path).map_err(LabError::file("read the plan", path))?;
    parse(&path.display().to_string(), &text, drivers)
}

/// Reads and checks a plan's text; `file` names it in errors.
///
/// # Errors
/// The text is not a plan, or is a plan that makes no sense.
pub fn parse(file: &str, text: &str, drivers: &[Box<dyn Driver>]) -> Result<MatrixPlan, LabError> {
    let plan: MatrixPlan = toml::from_str(text).map_err(|error| LabError::PlanSyntax {
        place: place::at_offset(file, text, error.span().map_or(0, |span| span.start)),
        message: error.message().trim().replace('\n', "; "),
    })?;
    check_at(&plan, drivers, |steps| place::of(file, text, steps))?;
    Ok(plan)
}

/// Checks a plan whose values came from elsewhere than a text, such as arguments.
///
/// # Errors
/// The plan makes no sense.
pub fn check(plan: &MatrixPlan, drivers: &[Box<dyn Driver>]) -> Result<(), LabError> {
    check_at(plan, drivers, |_| Place { file: format!("plan {}", plan.name), line_column: None })
}

fn check_at(
    plan: &MatrixPlan,
    drivers: &[Box<dyn Driver>],
    place: impl Fn(&[Step]) -> Place,
) -> Result<(), LabError> {
    plan.check().map_err(|fault| LabError::PlanFault { place: place(&fault.at()), fault })?;
    for (index, entry) in plan.entries.iter().enumerate() {
        let at = |key| place(&[Step::Key("entries"), Step::Index(index), Step::Key(key)]);
        let Some(driver) = drivers.iter().find(|driver| driver.name() == entry.tool) else {
            return Err(LabError::UnknownTool {
                place: at("tool"),
                tool: entry.tool.clone(),
                known: join(drivers.iter().map(|driver| driver.name())),
            });
        };
        if driver.workload() != entry.workload {
            return Err(LabError::WrongWorkload {
                place: at("workload"),
                tool: entry.tool.clone(),
                workload: entry.workload.label(),
            });
        }
    }
    Ok(())
}

/// Keeps only the entries that one of `wanted` names: by the row's name, by the tool
/// (`longhaul cp`), or by the program (`longhaul`).
///
/// # Errors
/// One of `wanted` names none.
pub fn select(plan: &mut MatrixPlan, wanted: &[String]) -> Result<(), LabError> {
    let names = |name: &str, entry: &longhaul_core::plan::Entry| {
        let program = entry.tool.split(' ').next();
        entry.label() == name || entry.tool == name || program == Some(name)
    };
    for name in wanted {
        if !plan.entries.iter().any(|entry| names(name, entry)) {
            return Err(LabError::UnknownEntry {
                wanted: name.clone(),
                known: join(plan.entries.iter().map(|entry| entry.label())),
            });
        }
    }
    plan.entries.retain(|entry| wanted.iter().any(|name| names(name, entry)));
    Ok(())
}

/// Sixteen hexadecimal digits that differ between different plans.
pub fn fingerprint(plan: &MatrixPlan) -> String {
    // A plan is numbers, texts and lists of them; writing it cannot fail.
    let text = serde_json::to_string(plan).unwrap_or_default();
    format!("{:016x}", XxHash3_128::oneshot(text.as_bytes()) as u64)
}

fn join<T: AsRef<str>>(names: impl Iterator<Item = T>) -> String {
    names.map(|name| name.as_ref().to_owned()).collect::<Vec<_>>().join(", ")
}

impl Builtin {
    /// The plan.
    ///
    /// # Errors
    /// None for the drivers that ship; a laboratory with other drivers may lack a tool.
    pub fn plan(self, drivers: &[Box<dyn Driver>]) -> Result<MatrixPlan, LabError> {
        parse(self.name(), self.text(), drivers)
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::plan::Workload;
    use longhaul_core::units::Bytes;

    use super::*;
    use crate::drivers;

    fn read(text: &str) -> Result<MatrixPlan, LabError> {
        parse("my.toml", text, &drivers::all(Path::new("longhaul")))
    }

    const GOOD: &str = r#"name = "mine"
[conditions]
rtt = ["0ms", "90ms"]
rate = ["10G"]
[disk]
size = "2GiB"
[[entries]]
tool = "scp"
workload = "disk"
"#;

    #[test]
    fn the_built_in_plans_are_plans() {
        let all = drivers::all(Path::new("longhaul"));
        let quick = Builtin::Quick.plan(&all).unwrap();
        let default = Builtin::Default.plan(&all).unwrap();
        let labels = |plan: &MatrixPlan| plan.entries.iter().map(|e| e.label()).collect::<Vec<_>>();
        assert_eq!(labels(&quick), labels(&default));
        assert_eq!(quick.disk.size, Bytes::gib(1));
        assert_eq!((quick.conditions().len(), quick.repeats, default.repeats), (4, 1, 3));
        assert!(quick.has(Workload::Memory) && quick.has(Workload::Disk));
        assert_ne!(fingerprint(&quick), fingerprint(&default));
    }

    #[test]
    fn an_error_names_line_and_column() {
        for (from, to, expected) in [
            ("\"90ms\"", "\"90 parsecs\"", "my.toml:3:7: '90 parsecs' has the unknown unit"),
            ("\"90ms\"", "\"0ms\"", "my.toml:3:15: the round-trip time 0ms is listed twice"),
            ("\"10G\"", "\"0\"", "my.toml:4:9: a link rate of 0"),
            ("\"2GiB\"", "0", "my.toml:6:8: disk.size is 0"),
            ("\"scp\"", "\"scpp\"", "my.toml:8:8: there is no driver for the tool 'scpp'"),
            ("\"disk\"", "\"memory\"", "my.toml:9:12: scp does not do"),
            ("\"disk\"", "\"disc\"", "my.toml:9:12: unknown variant `disc`"),
            ("size =", "syze =", "my.toml:6:1: unknown field `syze`"),
            ("[disk]", "[disk", "my.toml:5:"),
            ("name =", "repeats = 0\nname =", "my.toml:1:11: repeats is 0"),
        ] {
            let error = read(&GOOD.replace(from, to)).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
            assert!(!error.contains('\n'), "{error}");
        }
        assert!(read(GOOD).is_ok());
    }

    #[test]
    fn entries_are_selected_by_row_tool_or_program() {
        let all = drivers::all(Path::new("longhaul"));
        let quick = Builtin::Quick.plan(&all).unwrap();
        for (wanted, rows) in [
            (vec!["longhaul"], 3),
            (vec!["longhaul cp"], 2),
            (vec!["longhaul cp --cleartext", "scp"], 2),
        ] {
            let mut some = quick.clone();
            let wanted: Vec<String> = wanted.into_iter().map(str::to_owned).collect();
            select(&mut some, &wanted).unwrap();
            assert_eq!(some.entries.len(), rows, "{wanted:?}");
        }
        let error = select(&mut quick.clone(), &["ftp".into()]).unwrap_err().to_string();
        assert!(error.starts_with("the plan has no entry called 'ftp'; it has: longhaul test,"));
    }
}
