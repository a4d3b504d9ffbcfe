//! The CPUs of a test's threads.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::plan::PlanError;

/// The CPUs on which the threads that move bytes run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// On a host with several NUMA nodes the threads run near the stream's network interface, but
    /// not on the CPUs of its interrupts. On other hosts the scheduler decides.
    #[default]
    Auto,
    /// The scheduler decides.
    Free,
    /// The streams use these CPUs in turn.
    On {
        /// The CPUs at the client; `None` lets the scheduler decide.
        client: Option<CpuList>,
        /// The CPUs at the server.
        server: Option<CpuList>,
    },
}

/// CPUs by the kernel's numbers, in the given order: `0`, `0-3`, `0-3+8+10`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct CpuList(Vec<u32>);

impl CpuList {
    /// The highest CPU number plus one: `CONFIG_NR_CPUS` is at most 8192 (arch/x86/Kconfig).
    pub const END: u32 = 8192;
    const ACCEPTED: &'static str = "CPU numbers and ranges below 8192 such as 0, 0-3 or 0-3+8";

    /// Creates a list; `None` if it is empty or a number is out of range.
    pub fn new(cpus: Vec<u32>) -> Option<Self> {
        let good = !cpus.is_empty()
            && cpus.len() <= Self::END as usize
            && cpus.iter().all(|cpu| *cpu < Self::END);
        good.then_some(CpuList(cpus))
    }

    /// Returns the CPUs, at least one.
    pub fn cpus(&self) -> &[u32] {
        &self.0
    }

    /// Returns the CPU of stream `stream`.
    pub fn of_stream(&self, stream: usize) -> u32 {
        self.0[stream % self.0.len()]
    }
}

impl FromStr for CpuList {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        let bad = || PlanError::OutOfRange {
            field: "CPU list",
            value: format!("'{text}'"),
            accepted: Self::ACCEPTED,
        };
        let number = |text: &str| text.parse().ok().filter(|cpu: &u32| *cpu < Self::END);
        let mut cpus = Vec::new();
        for item in text.split('+') {
            let (first, last) = item.split_once('-').unwrap_or((item, item));
            let (first, last) =
                number(first).zip(number(last)).filter(|(a, b)| a <= b).ok_or_else(bad)?;
            cpus.extend(first..=last);
            // The length is bounded because a list may repeat CPUs.
            if cpus.len() > Self::END as usize {
                return Err(bad());
            }
        }
        CpuList::new(cpus).ok_or_else(bad)
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = &self.0[..];
        while let Some(&first) = rest.first() {
            let run = rest.iter().zip(first..).take_while(|(cpu, next)| *cpu == next).count();
            if rest.len() < self.0.len() {
                f.write_str("+")?;
            }
            match run {
                1 => write!(f, "{first}")?,
                _ => write!(f, "{first}-{}", rest[run - 1])?,
            }
            rest = &rest[run..];
        }
        Ok(())
    }
}

impl From<CpuList> for String {
    fn from(list: CpuList) -> Self {
        list.to_string()
    }
}

impl TryFrom<String> for CpuList {
    type Error = PlanError;

    fn try_from(text: String) -> Result<Self, PlanError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_written() {
        for text in ["0", "0-3", "0-3+8", "7+5+0-1"] {
            assert_eq!(text.parse::<CpuList>().unwrap().to_string(), text);
        }
        let list: CpuList = "4-5+9".parse().unwrap();
        assert_eq!(list.cpus(), [4, 5, 9]);
        assert_eq!((list.of_stream(2), list.of_stream(3)), (9, 4));
    }

    #[test]
    fn malformed_and_long_lists_are_refused() {
        let monster = vec!["0-8191"; 100].join("+");
        for text in ["", "a", "3-1", "0-", "8192", "0,1", "-1", "0-99999999", monster.as_str()] {
            assert!(text.parse::<CpuList>().is_err(), "{text}");
        }
        assert!(serde_json::from_str::<CpuList>(r#""9000""#).is_err());
    }
}
