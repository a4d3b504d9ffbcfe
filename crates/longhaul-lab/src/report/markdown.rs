//! Renders the table as Markdown.

use longhaul_core::plan::Condition;

use super::flow;
use super::text::{
    cell, guarantees, headline, join, legend, references, repeat_warnings, repeats, sync,
};
use crate::archive::Contents;
use crate::table::Table;

/// Renders the table as Markdown for an issue, a wiki or a README.
pub fn markdown(contents: &Contents, table: &Table) -> String {
    let mut lines = vec![escape(&headline(contents)), String::new()];
    let conditions: Vec<String> = table.conditions.iter().map(Condition::label).collect();
    let mut head = vec!["Tool".to_owned(), "Type".to_owned()];
    head.extend(conditions);
    head.extend(["E V S".to_owned(), "Sync".to_owned()]);
    let rule = (0..head.len()).map(|column| {
        let is_text = column < 2 || column == head.len() - 2;
        (if is_text { "---" } else { "---:" }).to_owned()
    });
    lines.extend([row(head.iter().map(|name| escape(name))), row(rule)]);
    for entry in &table.rows {
        let label = format!("{}{}", escape(&entry.label), references(&entry.notes));
        let mut fields = vec![label, entry.workload.label().to_owned()];
        fields.extend(entry.cells.iter().map(cell));
        fields.extend([guarantees(entry), sync(entry)]);
        lines.push(row(fields.into_iter()));
    }
    lines.extend([String::new(), legend(table).replace('\n', " ")]);
    for (number, note) in (1..).zip(&table.notes) {
        lines.extend([String::new(), format!("[{number}] {}", escape(note))]);
    }
    let flows = flow::lines(contents, table);
    if !flows.is_empty() {
        let rule = |place: usize| (if place < 2 { "---" } else { "---:" }).to_owned();
        let heads = flow::HEADS.map(str::to_owned).into_iter();
        lines.extend([String::new(), row(heads), row((0..flow::HEADS.len()).map(rule))]);
        for fields in flows {
            let names = fields[..2].iter().map(|name| escape(name));
            lines.push(row(names.chain(fields[2..].iter().cloned())));
        }
        lines.extend([String::new(), flow::MEANING.to_owned()]);
    }
    let repeats = repeats(table).into_iter();
    for sentence in repeats.chain(repeat_warnings(table)) {
        lines.extend([String::new(), escape(&sentence)]);
    }
    lines.push(String::new());
    join(&lines)
}

fn row(fields: impl Iterator<Item = String>) -> String {
    format!("| {} |", fields.collect::<Vec<_>>().join(" | "))
}

/// Escapes text from the user.
fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        if "\\`*_<>|[]&".contains(c) {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    #[test]
    fn the_table_in_markdown() {
        let contents = fixture::contents();
        insta::assert_snapshot!(markdown(&contents, &Table::fold(&contents)));
    }
}
