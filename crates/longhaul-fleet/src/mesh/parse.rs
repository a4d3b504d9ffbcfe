//! The reader of mesh files.

use super::error::{Fault, MeshError, MeshFault};
use super::hosts::{Names, read_groups, read_hosts, read_trunks};
use super::model::{Maintenance, Mesh};
use super::raw::{RawMaintenance, RawMesh, checked_name, in_order};
use super::{fit, test_table};

/// The maximum number of bytes of a mesh file.
pub const MAX_TEXT_BYTES: usize = 1 << 20;
/// The maximum number of pairs of all tests of a mesh.
pub const MAX_TASKS: usize = 100_000;
/// The maximum number of groups, of tests, and of maintenance windows. Each can name all hosts, so a
/// short text could otherwise need gigabytes.
pub const MAX_PARTS: usize = 1000;
/// The maximum number of trunks. Each pair of each test is compared with all of them.
pub const MAX_TRUNKS: usize = 200;

/// Reads and checks the text of a mesh file.
///
/// # Errors
/// The first error of the text, with its line and column.
pub fn parse(text: &str) -> Result<Mesh, MeshError> {
    parse_inner(text).map_err(|fault| fault.in_text(text))
}

fn parse_inner(text: &str) -> Result<Mesh, Fault> {
    if text.len() > MAX_TEXT_BYTES {
        let fault = MeshFault::TooLong { bytes: text.len(), most: MAX_TEXT_BYTES };
        return Err(Fault { offset: 0, fault });
    }
    let raw: RawMesh = toml::from_str(text).map_err(|error| {
        let message = error.message().trim().replace('\n', "; ");
        let offset = error.span().map_or(0, |span| span.start);
        Fault { offset, fault: MeshFault::Syntax(message) }
    })?;
    let mut mesh = Mesh {
        name: match &raw.name {
            Some(name) => checked_name("mesh", name)?,
            None => "mesh".to_owned(),
        },
        ..Mesh::default()
    };
    check_counts(&raw)?;
    mesh.hosts = read_hosts(&raw.hosts)?;
    let mut names = Names::new(&mesh.hosts);
    mesh.groups = read_groups(&raw.groups, &mut names)?;
    mesh.trunks = read_trunks(&raw.trunks, &names)?;
    mesh.maintenance = read_maintenance(&raw.maintenance, &names)?;
    let mut places = Vec::new();
    let mut pairs = 0;
    for (name, raw) in in_order(&raw.tests) {
        let test = test_table::read_test(name, raw, &mesh, &names)?;
        pairs += test.pairs.len();
        if pairs > MAX_TASKS {
            let count =
                MeshFault::Count { what: "pairs of tests", count: pairs, accepted: "1 to 100000" };
            return Err(Fault::at(&name.span(), count));
        }
        mesh.tests.push(test);
        places.push(fit::Places::new(name, raw));
    }
    if let Some(stamp) = &raw.stamp {
        mesh.stamp = Some(test_table::read_stamp(stamp, &mesh, &names)?);
    }
    fit::check(&mesh, &places)?;
    Ok(mesh)
}

/// Checks the numbers of the parts before any of them is read.
fn check_counts(raw: &RawMesh) -> Result<(), Fault> {
    let parts = [
        ("groups", raw.groups.len(), MAX_PARTS, "0 to 1000"),
        ("trunks", raw.trunks.len(), MAX_TRUNKS, "0 to 200"),
        ("tests", raw.tests.len(), MAX_PARTS, "0 to 1000"),
        ("maintenance windows", raw.maintenance.len(), MAX_PARTS, "0 to 1000"),
    ];
    match parts.into_iter().find(|(_, count, most, _)| count > most) {
        Some((what, count, _, accepted)) => {
            Err(Fault { offset: 0, fault: MeshFault::Count { what, count, accepted } })
        }
        None => Ok(()),
    }
}

fn read_maintenance(raw: &[RawMaintenance], names: &Names) -> Result<Vec<Maintenance>, Fault> {
    let mut windows: Vec<Maintenance> = Vec::new();
    for one in raw {
        let hosts = names.hosts_of(&one.hosts)?;
        let (start_ms, end_ms) = (one.start.get_ref().0, one.end.get_ref().0);
        if end_ms <= start_ms {
            return Err(Fault::at(&one.end.span(), MeshFault::EmptyWindow));
        }
        let touches = |one: &&Maintenance| start_ms < one.end_ms && one.start_ms < end_ms;
        for earlier in windows.iter().filter(touches) {
            if let Some(host) = hosts.iter().find(|host| earlier.hosts.contains(host)) {
                let fault = MeshFault::Overlap {
                    host: host.clone(),
                    start: time_text(earlier.start_ms),
                    end: time_text(earlier.end_ms),
                };
                return Err(Fault::at(&one.start.span(), fault));
            }
        }
        windows.push(Maintenance { hosts, start_ms, end_ms, reason: one.reason.clone() });
    }
    windows.sort_by_key(|window| window.start_ms);
    Ok(windows)
}

fn time_text(ms: i64) -> String {
    jiff::Timestamp::from_millisecond(ms).map_or_else(|_| ms.to_string(), |time| time.to_string())
}
