//! Renders the difference of two matrices as text.

use longhaul_core::plan::Condition;

use super::text::{align, gbps, join};
use crate::change::{ChangedCell, TableComparison};

/// Renders a change as text: each cell has the later median and its ratio to the earlier median.
pub fn change_text(change: &TableComparison) -> String {
    let mut head = vec!["Tool".to_owned(), "Type".to_owned()];
    head.extend(change.conditions.iter().map(Condition::label));
    let mut table = vec![head];
    for row in &change.rows {
        let mut line = vec![row.label.clone(), row.workload.label().to_owned()];
        line.extend(row.cells.iter().map(|changed| changed.as_ref().map_or("-".into(), cell)));
        table.push(line);
    }
    let mut lines = align(&table, change.conditions.len());
    lines.push(String::new());
    lines.push(
        "Gb/s, and the ratio to the earlier median; *: the 95 % intervals do not overlap, ?: too few runs to \
         decide (six of each needed)."
            .to_owned(),
    );
    let named = [("Only in the later", &change.added), ("Only in the earlier", &change.gone)];
    for (what, labels) in named.into_iter().filter(|(_, labels)| !labels.is_empty()) {
        lines.push(format!("{what}: {}.", labels.join(", ")));
    }
    for difference in &change.differences {
        lines.push(format!("Differs: {difference}"));
    }
    lines.push(String::new());
    join(&lines)
}

fn cell(cell: &ChangedCell) -> String {
    let mark = match cell.apart {
        Some(true) => "*",
        Some(false) => " ",
        None => "?",
    };
    format!("{} x{:.2}{mark}", gbps(cell.now_bps), cell.ratio)
}

#[cfg(test)]
mod tests {
    use longhaul_core::units::Rate;

    use super::*;
    use crate::report::fixture;
    use crate::table::Table;

    #[test]
    fn a_table_of_what_changed() {
        let contents = fixture::contents();
        let table = Table::fold(&contents);
        let mut later = fixture::contents();
        later.header.program_version = "0.2.0".into();
        later.header.plan.entries.remove(0);
        for run in &mut later.runs {
            run.throughput_bps = run.throughput_bps.map(|rate| Rate::from_bps(rate.bps() / 4 * 5));
        }
        let now = Table::fold(&later);
        let change = TableComparison::between((&contents.header, &table), (&later.header, &now));
        insta::assert_snapshot!(change_text(&change));
    }
}
