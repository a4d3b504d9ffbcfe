//! The types of a mesh.

use std::net::IpAddr;

use longhaul_core::units::Rate;
use serde::{Deserialize, Serialize};

use crate::protocol::{TestKind, TestSpec};

/// A validated mesh: every name in it refers to an existing host, and every test has pairs.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Mesh {
    /// The name of the mesh.
    pub name: String,
    /// The hosts in the order of the file.
    pub hosts: Vec<MeshHost>,
    /// The groups of hosts.
    pub groups: Vec<(String, Vec<String>)>,
    /// The shared trunks.
    pub trunks: Vec<Trunk>,
    /// The tests in the order of the file.
    pub tests: Vec<MeshTest>,
    /// The permanent STAMP measurements.
    pub stamp: Option<StampMesh>,
    /// The maintenance windows in the order of their starts.
    pub maintenance: Vec<Maintenance>,
}

/// A host of the mesh.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeshHost {
    /// The name, unique in the mesh.
    pub name: String,
    /// The location, such as a site or a city, as free text.
    pub site: Option<String>,
    /// False if the host has no agent and is only a destination of `iperf3` or `nuttcp`.
    pub agent: bool,
    /// The declared port; see [`server_port`](Self::server_port).
    pub port: Option<u16>,
    /// The interfaces; at least one.
    pub interfaces: Vec<MeshInterface>,
}

/// An interface of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeshInterface {
    /// The name of the interface at the host.
    pub name: String,
    /// The address that peers use.
    pub address: IpAddr,
    /// The capacity of each direction.
    pub capacity_bps: Rate,
}

/// A path segment that several pairs of hosts share. Its directions are separate resources.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trunk {
    /// The name, unique in the mesh.
    pub name: String,
    /// The capacity of each direction.
    pub capacity_bps: Rate,
    /// The hosts on one side.
    pub left: Vec<String>,
    /// The hosts on the other side.
    pub right: Vec<String>,
}

/// A test between pairs of hosts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MeshTest {
    /// The name, unique in the mesh.
    pub name: String,
    /// The parameters of a run.
    pub spec: TestSpec,
    /// The directed pairs (source, destination) in the order of the hosts.
    pub pairs: Vec<(String, String)>,
    /// The interface that the test uses at hosts with several; the first if `None`.
    pub interface: Option<String>,
    /// The time between two runs of a pair in seconds; 0 repeats the cycle without a pause.
    pub every_seconds: u32,
    /// The time that a run may take in addition to `spec.seconds`, in seconds.
    pub margin_seconds: u32,
    /// The priority: a higher one is planned first; 0 to 9.
    pub priority: u8,
    /// True if the test must not share an interface direction or trunk with another such test.
    pub exclusive: bool,
    /// The rules of the grid.
    pub judgement: Judgement,
}

/// The thresholds of a test or a STAMP mesh. A field is `None` if the mesh does not judge it.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Judgement {
    /// The expected throughput; the lowest capacity of the pair's path if `None`.
    pub expect_bps: Option<Rate>,
    /// A throughput below this share of the expected one is a warning; 0 to 1.
    pub warn_share: Option<f64>,
    /// A throughput below this share of the expected one is critical; 0 to 1.
    pub fail_share: Option<f64>,
    /// A loss share above this is a warning; 0 to 1.
    pub warn_loss: Option<f64>,
    /// A loss share above this is critical; 0 to 1.
    pub fail_loss: Option<f64>,
    /// A median round-trip time above this is a warning, in ms.
    pub warn_rtt_ms: Option<f64>,
    /// A median round-trip time above this is critical, in ms.
    pub fail_rtt_ms: Option<f64>,
    /// A path MTU below this is critical, in bytes.
    pub least_mtu: Option<u32>,
    /// The number of measurements among the last `of` that must be worse before a cell turns.
    pub bad: u32,
    /// The number of the last measurements that are considered; 1 to 100.
    pub of: u32,
}

/// The permanent STAMP measurements between hosts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StampMesh {
    /// The directed pairs (source, destination).
    pub pairs: Vec<(String, String)>,
    /// The interval between the packets of a pair in ms; 10 or more.
    pub interval_ms: u32,
    /// The UDP port of the reflectors.
    pub port: u16,
    /// The rules of the grid.
    pub judgement: Judgement,
}

/// A period in which no exclusive test runs at the hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Maintenance {
    /// The hosts.
    pub hosts: Vec<String>,
    /// The start, in ms since 1970.
    pub start_ms: i64,
    /// The end, in ms since 1970; exclusive.
    pub end_ms: i64,
    /// The reason, as free text.
    pub reason: String,
}

impl Mesh {
    /// Returns the host `name`.
    pub fn host(&self, name: &str) -> Option<&MeshHost> {
        self.hosts.iter().find(|host| host.name == name)
    }

    /// Returns the maintenance window of `host` at `at_ms`.
    pub fn maintenance_at(&self, host: &str, at_ms: i64) -> Option<&Maintenance> {
        self.maintenance.iter().find(|window| {
            (window.start_ms..window.end_ms).contains(&at_ms)
                && window.hosts.iter().any(|name| name == host)
        })
    }
}

impl MeshTest {
    /// Returns the time of one run with its margin, in ms.
    pub fn slot_ms(&self) -> i64 {
        (i64::from(self.spec.seconds) + i64::from(self.margin_seconds)) * 1000
    }
}

impl MeshHost {
    /// Returns the interface `name`, or the first one if the host has none of that name.
    pub fn interface(&self, name: Option<&str>) -> Option<&MeshInterface> {
        let named = name.and_then(|name| self.interfaces.iter().find(|one| one.name == name));
        named.or(self.interfaces.first())
    }

    /// Returns the first port of the servers of runs; simultaneous runs at one host use consecutive
    /// ports. Of a host without an agent, returns the port of its server of this `kind`.
    pub fn server_port(&self, kind: TestKind) -> u16 {
        self.port.unwrap_or(match (self.agent, kind) {
            (true, _) => 5290,
            // The defaults of the programs.
            (false, TestKind::Nuttcp) => 5000,
            (false, _) => 5201,
        })
    }
}
