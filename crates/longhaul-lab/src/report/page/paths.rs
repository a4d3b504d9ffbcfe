//! The section of the path measurements.

use maud::{Markup, html as markup};

use crate::archive::{Contents, PathRecord};

/// Returns the measurements of each path before its first run; `None` for archives without them.
pub(super) fn section(contents: &Contents) -> Option<Markup> {
    if contents.path_records.is_empty() {
        return None;
    }
    Some(markup! {
        p {
            "Measured with " code { "longhaul path" } " over a new path of each kind, with packets that may not be "
            "fragmented and one second of numbered probes in each direction."
        }
        div.scroll {
            table.small {
                thead { tr {
                    th { "Path" }
                    th.figure { "RTT, small" }
                    th.figure { "RTT, full-size" }
                    th.figure { "MTU forward" }
                    th.figure { "MTU reverse" }
                    th.figure { "Lost" }
                } }
                tbody { @for record in &contents.path_records { (line(record)) } }
            }
        }
    })
}

fn line(record: &PathRecord) -> Markup {
    let millis = |value: Option<f64>| value.map_or("-".to_owned(), |ms| format!("{ms:.2} ms"));
    let bytes = |value: Option<u32>| value.map_or("-".to_owned(), |bytes| bytes.to_string());
    let lost = record.loss().map_or("-".to_owned(), |(of, lost)| format!("{lost} of {of}"));
    let ([small, full], [there, back]) = (record.rtt_ms(), record.mtu_bytes());
    markup! {
        tr {
            th scope="row" { (record.path) }
            @match &record.failure {
                Some(reason) => td.wrap.bad colspan="5" { "not measured: " (reason) },
                None => {
                    td.figure { (millis(small)) }
                    td.figure { (millis(full)) }
                    td.figure { (bytes(there)) }
                    td.figure { (bytes(back)) }
                    td.figure { (lost) }
                }
            }
        }
    }
}
