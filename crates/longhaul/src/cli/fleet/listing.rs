//! The state, the hosts and the runs of a fleet.

use longhaul_fleet::api::{HostsDocument, RunDocument, RunsDocument, StatusDocument};

use super::access::{Connection, plain};
use crate::exit::{self, Coded};
use crate::output::{
    fleet_hosts_text, fleet_run_text, fleet_runs_text, fleet_status_text, print_document,
    print_result,
};

#[derive(Debug, clap::Args)]
pub(super) struct StatusArgs {
    /// Print one JSON document, "longhaul.fleet-status/1"
    #[arg(long)]
    json: bool,
}

impl StatusArgs {
    pub(super) fn run(self) -> Result<u8, Coded> {
        let status: StatusDocument = Connection::of_user()?.get("/api/v1/status")?;
        if self.json {
            print_document(&status)?;
        } else {
            print_result(&fleet_status_text(&status))?;
        }
        Ok(exit::OK)
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct HostsArgs {
    /// Print one JSON document, "longhaul.fleet-hosts/1"
    #[arg(long)]
    json: bool,
}

impl HostsArgs {
    pub(super) fn run(self) -> Result<u8, Coded> {
        let hosts: HostsDocument = Connection::of_user()?.get("/api/v1/hosts")?;
        if self.json {
            print_document(&hosts)?;
        } else {
            print_result(&fleet_hosts_text(&hosts))?;
        }
        Ok(exit::OK)
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct RunsArgs {
    /// Print only this run, with its result document
    #[arg(value_name = "RUN", conflicts_with_all = ["test", "source", "destination", "state"])]
    run: Option<String>,
    /// Only runs of this test
    #[arg(long)]
    test: Option<String>,
    /// Only runs from this host
    #[arg(long, value_name = "HOST")]
    source: Option<String>,
    /// Only runs to this host
    #[arg(long, value_name = "HOST")]
    destination: Option<String>,
    /// Only runs in this state: planned, leased, running, finished, failed, missed or cancelled
    #[arg(long)]
    state: Option<String>,
    /// Number of runs, the latest first
    #[arg(long, value_name = "COUNT", default_value_t = 100,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
    /// Print one JSON document, "longhaul.fleet-runs/1"
    #[arg(long)]
    json: bool,
}

impl RunsArgs {
    pub(super) fn run(self) -> Result<u8, Coded> {
        let connection = Connection::of_user()?;
        if let Some(id) = &self.run {
            let run: RunDocument = connection.get(&format!("/api/v1/runs/{}", plain(id)?))?;
            if self.json {
                print_document(&run)?;
            } else {
                print_result(&fleet_run_text(&run))?;
            }
            return Ok(exit::OK);
        }
        let runs: RunsDocument = connection.get(&self.query()?)?;
        if self.json {
            print_document(&runs)?;
        } else {
            print_result(&fleet_runs_text(&runs))?;
        }
        Ok(exit::OK)
    }

    fn query(&self) -> Result<String, Coded> {
        let mut query = format!("/api/v1/runs?limit={}", self.limit);
        let filters = [
            ("test", &self.test),
            ("source", &self.source),
            ("destination", &self.destination),
            ("state", &self.state),
        ];
        for (name, value) in filters {
            if let Some(value) = value {
                query += &format!("&{name}={}", plain(value)?);
            }
        }
        Ok(query)
    }
}
