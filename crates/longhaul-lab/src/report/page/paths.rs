//! The section of the path surveys.

use maud::{Markup, html as markup};

use crate::archive::{Contents, Survey};

/// Returns the survey of each path before its first run; `None` for archives without surveys.
pub(super) fn section(contents: &Contents) -> Option<Markup> {
    if contents.surveys.is_empty() {
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
                tbody { @for survey in &contents.surveys { (line(survey)) } }
            }
        }
    })
}

fn line(survey: &Survey) -> Markup {
    let millis = |value: Option<f64>| value.map_or("-".to_owned(), |ms| format!("{ms:.2} ms"));
    let bytes = |value: Option<u32>| value.map_or("-".to_owned(), |bytes| bytes.to_string());
    let lost = survey.loss().map_or("-".to_owned(), |(of, lost)| format!("{lost} of {of}"));
    let ([small, full], [there, back]) = (survey.rtt_ms(), survey.mtu_bytes());
    markup! {
        tr {
            th scope="row" { (survey.path) }
            @match &survey.failure {
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
