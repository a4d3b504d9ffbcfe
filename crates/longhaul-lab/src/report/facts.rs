use maud::{Markup, html as markup};

use super::text::passes;
use crate::archive::Contents;
use crate::plan::fingerprint;

/// What the figures depend on: host, network, data, tools, plan.
pub(super) fn facts(contents: &Contents) -> Markup {
    let header = &contents.header;
    let data = header.data.as_ref().map(|data| {
        let files = if data.files == 1 { "1 file".into() } else { format!("{} files", data.files) };
        format!("{} in {files}: {}", data.bytes, data.path)
    });
    let plan = format!(
        "{} (fingerprint {}), {}, order seeded with {}",
        header.plan.name,
        fingerprint(&header.plan),
        passes(&header.plan),
        header.plan.seed
    );
    markup! {
        div.scroll {
            table.facts {
                tbody {
                    @for (name, value) in &header.facts { (fact(name, value)) }
                    (fact("Network", &header.network))
                    @if let Some(data) = data { (fact("Data", &data)) }
                    (fact("Plan", &plan))
                    @for tool in &contents.tools {
                        (fact(&tool.name, &version(tool)))
                    }
                }
            }
        }
    }
}

fn fact(name: &str, value: &str) -> Markup {
    markup! { tr { th scope="row" { (name) } td { (value) } } }
}

fn version(tool: &crate::archive::Tool) -> String {
    match (&tool.version, &tool.missing) {
        (Some(version), _) => version.clone(),
        (None, Some(program)) => format!("not installed ({program} is not found)"),
        (None, None) => "not installed".to_owned(),
    }
}
