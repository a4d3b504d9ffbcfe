//! The best setting of each tool on each path: the result of a search over options, streams and
//! windows.

use longhaul_core::plan::Condition;
use longhaul_core::units::Rate;

use crate::archive::Contents;
use crate::table::{Ratio, Table, TableRow};

/// The best of several rows of one tool with the same work.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Best<'a> {
    pub(crate) tool: &'a str,
    pub(crate) condition: &'a Condition,
    /// The first row of the tool with this work, which is its default.
    pub(crate) first: &'a TableRow,
    pub(crate) best: &'a TableRow,
    pub(crate) rate: Rate,
    /// The number of settings that were compared.
    pub(crate) settings: usize,
    /// The ratio of the best to the first row within passes; `None` if the first is the best, or if
    /// no pass has both.
    pub(crate) ratio: Option<Ratio>,
    /// The command of a run of the best row.
    pub(crate) command: &'a str,
}

impl Best<'_> {
    /// Returns whether the first setting is the best.
    pub(crate) fn is_first(&self) -> bool {
        self.best.label == self.first.label
    }

    /// Returns whether the interval of the ratio shows that the best setting is faster than the
    /// first.
    pub(crate) fn is_shown(&self) -> bool {
        self.ratio.and_then(|ratio| ratio.interval).is_some_and(|(low, _)| low > 1.0)
    }
}

/// Returns the best setting per tool, work and path, for tools with several settings, in the order
/// of the table.
///
/// The largest of several medians is biased upwards, and the more settings are compared the more.
/// The interval of its ratio does not allow for this choice; the report states this.
pub(crate) fn best<'a>(contents: &'a Contents, table: &'a Table) -> Vec<Best<'a>> {
    // Throughput beside other flows is not a setting's merit alone: a greedy tool would be the best.
    if contents.header.plan.recovery.is_some() {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (index, first) in table.rows.iter().enumerate() {
        let is_same = |row: &&TableRow| row.tool == first.tool && row.is_like(first);
        if table.rows[..index].iter().any(|row| is_same(&row)) {
            continue;
        }
        let all: Vec<&TableRow> = table.rows[index..].iter().filter(is_same).collect();
        if all.len() < 2 {
            continue;
        }
        for (column, condition) in table.conditions.iter().enumerate() {
            let measured = all.iter().filter_map(|row| Some((*row, row.cells[column].median_bps?)));
            let Some((best, rate)) = measured.clone().max_by_key(|(_, rate)| rate.bps()) else {
                continue;
            };
            let run = contents.runs.iter().find(|run| {
                run.label == best.label
                    && run.condition == *condition
                    && run.throughput_bps == Some(rate)
            });
            let any = || contents.runs.iter().find(|run| run.label == best.label);
            let ratio = (best.label != first.label)
                .then(|| Table::ratio(contents, (best, first), condition))
                .flatten();
            found.push(Best {
                tool: &first.tool,
                condition,
                first,
                best,
                rate,
                settings: measured.count(),
                ratio,
                command: run.or_else(any).map_or("", |run| run.near_command.as_str()),
            });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    /// Returns the sample with rsync as a second setting of scp.
    fn contents() -> Contents {
        let mut contents = fixture::contents();
        for entry in contents.header.plan.entries.iter_mut().filter(|e| e.tool == "rsync") {
            entry.label = Some(entry.label());
            entry.tool = "scp".into();
        }
        contents
    }

    #[test]
    fn the_best_of_two_settings_has_its_evidence() {
        let contents = contents();
        let table = Table::fold(&contents);
        let all = best(&contents, &table);
        // scp failed at 180 ms, so only one setting has a figure there.
        let settings: Vec<usize> = all.iter().map(|best| best.settings).collect();
        assert_eq!(settings, [2, 2, 2, 1]);
        assert!(all[0].best.label.starts_with("rsync") && all[0].first.label == "scp");
        let ratio = all[0].ratio.unwrap();
        assert!((ratio.median - 1.25).abs() < 0.01 && ratio.passes == 2, "{ratio:?}");
        assert!(!all[0].is_shown(), "two passes show nothing");
        assert_eq!(all[0].command, "rsync far");
    }

    #[test]
    fn tools_with_one_setting_are_not_listed() {
        let contents = fixture::contents();
        assert!(best(&contents, &Table::fold(&contents)).is_empty());
    }
}
