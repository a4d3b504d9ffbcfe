//! The rows and cells of a matrix.

use super::conditions::same_value;
use super::{Condition, Constraint, Content, MatrixPlan, PlanEntry, PlannedWork};
use crate::units::Bytes;

/// A row of the matrix: an entry with one of its workloads and one of its settings.
#[derive(Debug, Clone, PartialEq)]
pub struct MatrixRow {
    /// The index of the plan's entry.
    pub entry: usize,
    /// The unique name: the entry's name with the properties that distinguish its rows.
    pub label: String,
    /// The scaled work; its content is never [`Content::Volume`].
    pub work: PlannedWork,
    /// The number of parallel streams; `None` means the tool's default.
    pub streams: Option<u32>,
    /// The window per stream; `None` means the tool's default.
    pub window: Option<Bytes>,
    /// The size of each write; `None` means the tool's default.
    pub message: Option<Bytes>,
    /// The number of simultaneous clients, at least 1.
    pub clients: u32,
    /// The congestion control of the flows beside the tool; `None` means the default of the host.
    pub beside_congestion: Option<String>,
}

impl MatrixRow {
    /// Returns whether a constraint matches the cell of this row and `condition`.
    pub(super) fn is_matched_by(
        &self,
        rule: &Constraint,
        entry: &PlanEntry,
        condition: &Condition,
    ) -> bool {
        let fits = |wanted: &[u32], has: Option<u32>| {
            wanted.is_empty() || has.is_some_and(|has| wanted.contains(&has))
        };
        (rule.tool.is_empty() || rule.tool.iter().any(|name| entry.is_called(name)))
            && (rule.workload.is_empty() || rule.workload.contains(&self.work.name))
            && fits(&rule.streams, self.streams)
            && (rule.windows.is_empty() || self.window.is_some_and(|w| rule.windows.contains(&w)))
            && (rule.messages.is_empty()
                || self.message.is_some_and(|size| rule.messages.contains(&size)))
            && fits(&rule.clients, Some(self.clients))
            && rule.path.iter().all(|(option, values)| {
                let has = condition.option(option);
                has.is_some_and(|has| values.iter().any(|value| same_value(option, value, &has)))
            })
    }
}

/// A cell of the table, by its row and column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PlanCell {
    /// The index into [`MatrixPlan::rows`].
    pub row: usize,
    /// The index into [`MatrixPlan::conditions`].
    pub condition: usize,
}

impl MatrixPlan {
    /// Returns the rows in the order of the table: by entry, then by workload, streams, windows,
    /// messages, clients and flows beside the tool. Unknown names of workloads produce no row.
    pub fn rows(&self) -> Vec<MatrixRow> {
        let mut rows = Vec::new();
        for (index, entry) in self.entries.iter().enumerate() {
            for name in &entry.workloads {
                let Some(work) = self.work(name) else { continue };
                let work = capped(work.scaled(self.scale), entry.size);
                self.settings_of(index, entry, &work, &mut rows);
            }
        }
        rows
    }

    fn settings_of(
        &self,
        index: usize,
        entry: &PlanEntry,
        work: &PlannedWork,
        rows: &mut Vec<MatrixRow>,
    ) {
        let streams = or_default(&entry.streams).into_iter();
        let with_windows = streams.flat_map(|streams| {
            or_default(&entry.windows).into_iter().map(move |window| (streams, window))
        });
        let with_messages = with_windows.flat_map(|(streams, window)| {
            or_default(&entry.messages).into_iter().map(move |message| (streams, window, message))
        });
        let with_clients = with_messages.flat_map(|(streams, window, message)| {
            or_default(&entry.clients)
                .into_iter()
                .map(move |clients| (streams, window, message, clients))
        });
        let congestions: Vec<&str> = entry.beside_congestion.iter().map(String::as_str).collect();
        for (streams, window, message, clients) in with_clients {
            for congestion in or_default(&congestions) {
                let mut label = vec![entry.label()];
                if entry.workloads.len() > 1 {
                    label.push(work.name.clone());
                }
                label.extend(streams.map(|count| counted(count, "stream")));
                label.extend(window.map(|window: Bytes| format!("window {window}")));
                label.extend(message.map(|size: Bytes| format!("message {size}")));
                label.extend(clients.map(|count| counted(count, "client")));
                label.extend(congestion.map(|name| entry.beside_label(Some(name))));
                rows.push(MatrixRow {
                    entry: index,
                    label: label.join(", "),
                    work: work.clone(),
                    streams,
                    window,
                    message,
                    clients: clients.unwrap_or(1),
                    beside_congestion: congestion.map(str::to_owned),
                });
            }
        }
    }

    /// Returns the cells that the constraints allow, row by row.
    pub fn cells(&self) -> Vec<PlanCell> {
        let (rows, conditions) = (self.rows(), self.conditions());
        let mut cells = Vec::new();
        for (row, this) in rows.iter().enumerate() {
            let entry = &self.entries[this.entry];
            for (condition, path) in conditions.iter().enumerate() {
                let named = |rules: &[Constraint]| {
                    rules.iter().any(|rule| this.is_matched_by(rule, entry, path))
                };
                let wanted = self.only.is_empty() || named(&self.only);
                if wanted && !named(&self.except) {
                    cells.push(PlanCell { row, condition });
                }
            }
        }
        cells
    }
}

/// Returns the values of a setting, or the tool's default.
fn or_default<T: Copy>(values: &[T]) -> Vec<Option<T>> {
    if values.is_empty() { vec![None] } else { values.iter().copied().map(Some).collect() }
}

fn counted(count: u32, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

/// Returns the work with created files no larger than the entry allows.
fn capped(work: PlannedWork, most: Option<Bytes>) -> PlannedWork {
    let content = match (work.content, most) {
        (Content::Files { files, size }, Some(most)) => {
            Content::Files { files, size: size.min(most) }
        }
        (content, _) => content,
    };
    PlannedWork { content, ..work }
}
