//! The plan and the application of a mesh file.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use longhaul_fleet::api::{ApplyDocument, MeshText, PlanDocument, plan_document};
use longhaul_fleet::mesh::{MAX_TEXT_BYTES, Mesh, parse};

use super::access::Connection;
use crate::exit::{self, Coded};
use crate::output::{
    fleet_apply_text, fleet_plan_text, print_document, print_message, print_result,
};

#[derive(Debug, clap::Args)]
pub(super) struct PlanArgs {
    /// The mesh file
    #[arg(value_name = "MESH.TOML")]
    file: PathBuf,
    /// Do not compare it with the mesh of the hub, even if there is a login
    #[arg(long)]
    offline: bool,
    /// Print one JSON document, "longhaul.fleet-plan/1"
    #[arg(long)]
    json: bool,
}

impl PlanArgs {
    pub(super) fn run(self) -> Result<u8, Coded> {
        let (text, mesh) = read(&self.file)?;
        let hub = if self.offline { None } else { Connection::find()? };
        let compared = match hub {
            Some(hub) => compare(&hub, text)?,
            None => None,
        };
        let plan = compared.unwrap_or_else(|| plan_document(&mesh, None, 0));
        if self.json {
            print_document(&plan)?;
        } else {
            print_result(&fleet_plan_text(&plan))?;
        }
        Ok(exit::OK)
    }
}

/// Compares the mesh of the file with the text `text` with that of `hub`; `None` if this host has a login of a hub
/// that has ended.
fn compare(hub: &Connection, text: String) -> Result<Option<PlanDocument>, Coded> {
    match hub.post("/api/v1/mesh/plan", &MeshText { text, revision: None }) {
        // The file of a hub on this host remains when the hub has ended.
        Err(error) if error.code == exit::UNREACHABLE && hub.is_on_this_host() => {
            print_message(format_args!(
                "{:#}; the plan is not compared with the mesh of a hub",
                error.error
            ));
            Ok(None)
        }
        compared => compared.map(Some),
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct ApplyArgs {
    /// The mesh file
    #[arg(value_name = "MESH.TOML")]
    file: PathBuf,
    /// Apply only if the mesh of the hub still has this revision
    #[arg(long, value_name = "NUMBER")]
    revision: Option<u64>,
    /// Print one JSON document, "longhaul.fleet-apply/1"
    #[arg(long)]
    json: bool,
}

impl ApplyArgs {
    pub(super) fn run(self) -> Result<u8, Coded> {
        let (text, _) = read(&self.file)?;
        let request = MeshText { text, revision: self.revision };
        let done: ApplyDocument = Connection::of_user()?.post("/api/v1/mesh/apply", &request)?;
        if self.json {
            print_document(&done)?;
        } else {
            print_result(&fleet_apply_text(&done))?;
        }
        Ok(exit::OK)
    }
}

/// Reads and checks a mesh file.
fn read(path: &Path) -> Result<(String, Mesh), Coded> {
    let mut text = String::new();
    let limit = MAX_TEXT_BYTES as u64 + 1;
    let file =
        std::fs::File::open(path).and_then(|file| file.take(limit).read_to_string(&mut text));
    file.with_context(|| format!("cannot read {}", path.display()))
        .map_err(|error| Coded::new(exit::FILES, error))?;
    let mesh = parse(&text).map_err(|error| {
        let (line, column, fault) = (error.line, error.column, error.fault);
        Coded::new(exit::USAGE, anyhow!("{}:{line}:{column}: {fault}", path.display()))
    })?;
    Ok((text, mesh))
}
