//! Finds the tools of a plan, and detects changed tools.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use longhaul_core::plan::MatrixPlan;
use twox_hash::XxHash3_128;

use crate::archive::Tool;
use crate::drivers::{Detected, Driver};

/// Searches this host for the tools of a plan, with their versions and digests.
pub fn find_tools(plan: &MatrixPlan, drivers: &[Box<dyn Driver>]) -> Vec<Tool> {
    let wanted =
        |driver: &&dyn Driver| plan.entries.iter().any(|entry| entry.tool == driver.name());
    let found = |driver: &dyn Driver| {
        let name = driver.name().to_owned();
        match detect(driver, plan) {
            Detected::Installed { version } => {
                let program = driver.program();
                let digest = program.as_deref().and_then(digest);
                let program = program.map(|path| path.display().to_string());
                Tool { name, version: Some(version), missing: None, program, digest }
            }
            Detected::Missing { program } => {
                let missing = Some(program.to_owned());
                Tool { name, version: None, missing, program: None, digest: None }
            }
        }
    };
    drivers.iter().map(|driver| &**driver).filter(wanted).map(found).collect()
}

/// Searches this host for one tool, with the server programs that an emulated path needs.
pub fn detect(driver: &dyn Driver, plan: &MatrixPlan) -> Detected {
    if plan.real.is_some() { driver.detect_near() } else { driver.detect() }
}

/// Returns the first tool that differs from its description in the archive. A tool that is missing
/// now or in the archive does not count, because it affects no figure.
pub fn changed_tool<'a>(archived: &[Tool], now: &'a [Tool]) -> Option<&'a str> {
    let differs = |tool: &&Tool| {
        let before = archived.iter().find(|before| before.name == tool.name);
        before.is_some_and(|before| match (&before.digest, &tool.digest) {
            (Some(one), Some(other)) => one != other,
            _ => {
                before.version.is_some() && tool.version.is_some() && before.version != tool.version
            }
        })
    };
    now.iter().find(differs).map(|tool| tool.name.as_str())
}

/// Returns a digest of a file as sixteen hexadecimal digits; `None` if the file is unreadable.
pub fn digest(path: &Path) -> Option<String> {
    let mut file = File::open(path).ok()?;
    let mut hash = XxHash3_128::new();
    let mut block = vec![0; 1 << 20];
    loop {
        match file.read(&mut block).ok()? {
            0 => return Some(format!("{:016x}", hash.finish_128() as u64)),
            count => hash.write(&block[..count]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(version: &str, digest: Option<&str>) -> Tool {
        Tool {
            name: "scp".into(),
            version: Some(version.into()),
            missing: None,
            program: None,
            digest: digest.map(str::to_owned),
        }
    }

    #[test]
    fn another_binary_is_another_tool_whatever_its_version() {
        let before = [tool("9", Some("aa"))];
        let same = [tool("9", Some("aa"))];
        let other = [tool("9", Some("bb"))];
        assert_eq!(changed_tool(&before, &same), None);
        assert_eq!(changed_tool(&before, &other), Some("scp"));
        assert_eq!(changed_tool(&[tool("9", None)], &[tool("10", None)]), Some("scp"));
        assert_eq!(changed_tool(&[], &other), None);
    }

    #[test]
    fn a_digest_follows_the_contents() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("one"), dir.path().join("two"));
        std::fs::write(&one, "a").unwrap();
        std::fs::write(&two, "b").unwrap();
        assert_eq!(digest(&one), digest(&one));
        assert_ne!(digest(&one), digest(&two));
        assert_eq!(digest(dir.path().join("none").as_path()), None);
    }
}
