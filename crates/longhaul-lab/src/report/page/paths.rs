use maud::{Markup, html as markup};

use crate::archive::{Contents, Survey};

/// What each path was like before its first run; nothing in archives that do not tell.
pub(super) fn section(contents: &Contents) -> Option<Markup> {
    if contents.surveys.is_empty() {
        return None;
    }
    Some(markup! {
        p {
            "By " code { "longhaul path" } " over a fresh path of each kind: packets that may not be "
            "fragmented, and a second of numbered probes each way."
        }
        div.scroll {
            table.small {
                thead { tr {
                    th { "Path" }
                    th.figure { "RTT, small" }
                    th.figure { "RTT, full-size" }
                    th.figure { "MTU there" }
                    th.figure { "MTU back" }
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
