//! The section that describes how to reproduce a matrix.

use longhaul_core::plan::MatrixPlan;
use maud::{Markup, html as markup};

use crate::archive::{Contents, Tool};
use crate::plan::fingerprint;
use crate::report::text::passes;

/// Returns everything that the figures depend on: host, network, data, tools, and the plan as a
/// file.
pub(super) fn section(contents: &Contents) -> Markup {
    let header = &contents.header;
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
                    (fact("longhaul", &header.program_version))
                    @for (name, value) in &header.facts { (fact(name, value)) }
                    (fact("Network", &header.network))
                    @if let Some(data) = data(contents) { (fact("Data", &data)) }
                    (fact("Plan", &plan))
                    @for tool in &contents.tools { (fact(&tool.name, &version(tool))) }
                }
            }
        }
        p {
            "The plan as it was run. Save it as FILE, and " code { "longhaul matrix FILE" } " repeats it in "
            "the same order. The exact commands are listed with the runs below."
        }
        details.more {
            summary { "The plan" }
            pre { (text(&header.plan)) }
        }
    }
}

fn data(contents: &Contents) -> Option<String> {
    let data = contents.header.data.as_ref()?;
    let files = if data.files == 1 { "1 file".into() } else { format!("{} files", data.files) };
    Some(format!("{} in {files}: {}", data.bytes, data.path))
}

/// Returns the plan as a plan file.
fn text(plan: &MatrixPlan) -> String {
    toml::to_string(plan).unwrap_or_else(|error| format!("# {error}"))
}

fn fact(name: &str, value: &str) -> Markup {
    markup! { tr { th scope="row" { (name) } td { (value) } } }
}

fn version(tool: &Tool) -> String {
    match (&tool.version, &tool.missing) {
        (Some(version), _) => version.clone(),
        (None, Some(program)) => format!("not installed ({program} not found)"),
        (None, None) => "not installed".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    #[test]
    fn the_plan_is_a_file_that_runs() {
        let plan = fixture::contents().header.plan;
        let again: MatrixPlan = toml::from_str(&text(&plan)).unwrap();
        assert_eq!(again, plan);
    }
}
