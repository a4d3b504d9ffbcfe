//! `-`: standard input as a source and standard output as a target, and the options that exclude
//! them.

use std::io::IsTerminal;

use anyhow::anyhow;
use longhaul_core::plan::{CopyPlan, Location};

use super::Args;
use crate::exit::{self, Coded};
use crate::output::output_is_terminal;

fn usage<T>(text: String) -> Result<T, Coded> {
    Err(Coded::new(exit::USAGE, anyhow!(text)))
}

impl Args {
    /// Returns whether standard output has the data, so that results go to standard error.
    pub(super) fn to_stdout(&self) -> bool {
        self.places.len() > 1 && self.places.last() == Some(&Location::Standard)
    }

    /// Rejects options that standard input and output do not support.
    pub(super) fn check_standard(
        &self,
        sources: &[Location],
        target: &Location,
    ) -> Result<(), Coded> {
        let input = sources.iter().filter(|source| **source == Location::Standard).count();
        let listed = self.files_from.as_deref().is_some_and(|list| list == "-");
        if input + usize::from(listed) + self.filters.stdin_readers() > 1 {
            return usage("standard input ('-') can be used only once".to_owned());
        }
        let (what, other) = match (input, target) {
            (0, Location::Standard) => ("standard output accepts one file", &sources[0]),
            (0, _) => return Ok(()),
            _ => ("standard input is one file", target),
        };
        if sources.len() > 1 {
            return usage(format!("{what} only"));
        }
        if matches!(other, Location::Zero | Location::Standard) {
            return usage(
                "cannot copy from memory or standard input to standard output; use head or cat"
                    .to_owned(),
            );
        }
        let flags = [
            (self.recursive, "-r"),
            (self.archive, "-a"),
            (self.update, "--update"),
            (self.dry_run, "--dry-run"),
            (self.delete, "--delete"),
            (self.manifest.is_some(), "--manifest"),
            (self.files_from.is_some(), "--files-from"),
        ];
        // A target file has a name, so a manifest can be written beside it.
        let fits = |flag: &str| input > 0 && flag == "--manifest";
        match flags.iter().find(|(given, flag)| *given && !fits(flag)) {
            Some((_, flag)) => usage(format!("{what} without metadata; remove {flag}")),
            None => Ok(()),
        }
    }

    /// Rejects a terminal as standard input or output.
    pub(super) fn check_terminals(plan: &CopyPlan) -> Result<(), Coded> {
        if plan.sources.contains(&Location::Standard) && std::io::stdin().is_terminal() {
            return usage("standard input is a terminal; use a pipe or redirection".to_owned());
        }
        if plan.target == Location::Standard && output_is_terminal() {
            return usage("standard output is a terminal; use a pipe or redirection".to_owned());
        }
        Ok(())
    }
}
