//! The differences of two meshes.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;

use crate::mesh::{Maintenance, Mesh, MeshHost, MeshTest, StampMesh, Trunk};

/// One difference. `Display` writes it as a line such as `~ test daily: every, pairs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The kind of the difference.
    pub kind: ChangeKind,
    /// The kind of the part: `mesh`, `host`, `group`, `trunk`, `test`, `stamp` or `maintenance`.
    pub part: &'static str,
    /// The name of the part.
    pub name: String,
    /// The settings that differ, if the part exists in both meshes.
    pub settings: Vec<&'static str>,
}

/// The kind of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// Only the new mesh has the part.
    Added,
    /// Only the old mesh has the part.
    Removed,
    /// Settings of the part differ.
    Changed,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = match self.kind {
            ChangeKind::Added => '+',
            ChangeKind::Removed => '-',
            ChangeKind::Changed => '~',
        };
        write!(f, "{sign} {} {}", self.part, self.name)?;
        match self.settings.as_slice() {
            [] => Ok(()),
            settings => write!(f, ": {}", settings.join(", ")),
        }
    }
}

/// Returns the differences of `new` from `old`; all parts of `new` are added if there is no `old`.
pub fn changes(old: Option<&Mesh>, new: &Mesh) -> Vec<Change> {
    let empty = Mesh::default();
    let old = old.unwrap_or(&empty);
    let mut found = Vec::new();
    if old.name != new.name && !old.hosts.is_empty() {
        let settings = vec!["name"];
        let name = new.name.clone();
        found.push(Change { kind: ChangeKind::Changed, part: "mesh", name, settings });
    }
    let add = &mut found;
    compare(add, "host", (&old.hosts, &new.hosts), |host| host.name.clone(), host_settings);
    let group = |group: &(String, Vec<String>)| group.0.clone();
    compare(add, "group", (&old.groups, &new.groups), group, |a, b| {
        differing([("hosts", a.1 != b.1)])
    });
    let trunk = |trunk: &Trunk| trunk.name.clone();
    compare(add, "trunk", (&old.trunks, &new.trunks), trunk, trunk_settings);
    compare(add, "test", (&old.tests, &new.tests), |test| test.name.clone(), test_settings);
    let stamps = [&old.stamp, &new.stamp].map(|stamp| stamp.iter().cloned().collect::<Vec<_>>());
    compare(add, "stamp", (&stamps[0], &stamps[1]), |_| "pairs".to_owned(), stamp_settings);
    compare(add, "maintenance", (&old.maintenance, &new.maintenance), window_name, |a, b| {
        differing([("end", a.end_ms != b.end_ms), ("reason", a.reason != b.reason)])
    });
    found
}

/// Returns the name of a maintenance window: its start and its hosts.
fn window_name(window: &Maintenance) -> String {
    let start = jiff::Timestamp::from_millisecond(window.start_ms);
    let start = start.map_or_else(|_| window.start_ms.to_string(), |start| start.to_string());
    format!("{start} {}", window.hosts.join(","))
}

/// Returns the ids of the tasks (`TEST/SOURCE/DESTINATION`) of `old` whose planned runs are not valid
/// in `new`: the task is gone, or its test or an end has other parameters.
pub fn outdated_tasks(old: &Mesh, new: &Mesh) -> BTreeSet<String> {
    let mut outdated = BTreeSet::new();
    for test in &old.tests {
        let kept = new.tests.iter().find(|other| other.name == test.name);
        let same = kept.is_some_and(|kept| {
            kept.spec == test.spec
                && kept.interface == test.interface
                && kept.margin_seconds == test.margin_seconds
                && kept.exclusive == test.exclusive
        });
        let pairs: BTreeSet<&(String, String)> =
            kept.map(|kept| kept.pairs.iter().collect()).unwrap_or_default();
        let moved = |name: &String| old.host(name) != new.host(name);
        for pair @ (source, destination) in &test.pairs {
            if !same || !pairs.contains(pair) || moved(source) || moved(destination) {
                outdated.insert(format!("{}/{source}/{destination}", test.name));
            }
        }
    }
    outdated
}

fn compare<T: PartialEq>(
    found: &mut Vec<Change>,
    part: &'static str,
    (old, new): (&[T], &[T]),
    name: impl Fn(&T) -> String,
    settings: impl Fn(&T, &T) -> Vec<&'static str>,
) {
    let mut add = |kind, name, settings| found.push(Change { kind, part, name, settings });
    let before: HashMap<String, &T> = old.iter().map(|one| (name(one), one)).collect();
    let after: HashSet<String> = new.iter().map(&name).collect();
    for name in old.iter().map(&name).filter(|name| !after.contains(name)) {
        add(ChangeKind::Removed, name, Vec::new());
    }
    for one in new {
        let name = name(one);
        match before.get(&name) {
            None => add(ChangeKind::Added, name, Vec::new()),
            Some(other) if *other != one => add(ChangeKind::Changed, name, settings(other, one)),
            Some(_) => {}
        }
    }
}

fn differing<const N: usize>(settings: [(&'static str, bool); N]) -> Vec<&'static str> {
    settings.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
}

fn host_settings(old: &MeshHost, new: &MeshHost) -> Vec<&'static str> {
    differing([
        ("site", old.site != new.site),
        ("agent", old.agent != new.agent),
        ("port", old.port != new.port),
        ("interfaces", old.interfaces != new.interfaces),
    ])
}

fn trunk_settings(old: &Trunk, new: &Trunk) -> Vec<&'static str> {
    differing([
        ("capacity", old.capacity_bps != new.capacity_bps),
        ("left", old.left != new.left),
        ("right", old.right != new.right),
    ])
}

fn stamp_settings(old: &StampMesh, new: &StampMesh) -> Vec<&'static str> {
    differing([
        ("pairs", old.pairs != new.pairs),
        ("interval", old.interval_ms != new.interval_ms),
        ("port", old.port != new.port),
        ("thresholds", old.judgement != new.judgement),
    ])
}

fn test_settings(old: &MeshTest, new: &MeshTest) -> Vec<&'static str> {
    let (was, is) = (&old.spec, &new.spec);
    differing([
        ("kind", was.kind != is.kind),
        ("seconds", was.seconds != is.seconds),
        ("streams", was.streams != is.streams),
        ("rate", was.rate_bps != is.rate_bps),
        ("udp", was.udp != is.udp),
        ("congestion", was.congestion != is.congestion),
        ("bytes", was.bytes != is.bytes),
        ("pairs", old.pairs != new.pairs),
        ("interface", old.interface != new.interface),
        ("every", old.every_seconds != new.every_seconds),
        ("margin", old.margin_seconds != new.margin_seconds),
        ("priority", old.priority != new.priority),
        ("exclusive", old.exclusive != new.exclusive),
        ("thresholds", old.judgement != new.judgement),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mesh::parse;

    const MESH: &str = "[hosts.a]\naddress=\"10.0.0.1\"\ncapacity=\"1G\"\n\
        [hosts.b]\naddress=\"10.0.0.2\"\ncapacity=\"1G\"\n\
        [hosts.c]\naddress=\"10.0.0.3\"\ncapacity=\"1G\"\n\
        [tests.t]\nkind=\"throughput\"\nseconds=10\n[tests.u]\nkind=\"path\"\n";

    fn lines(old: Option<&str>, new: &str) -> Vec<String> {
        let old = old.map(|text| parse(text).unwrap());
        changes(old.as_ref(), &parse(new).unwrap()).iter().map(Change::to_string).collect()
    }

    #[test]
    fn only_differences_are_listed() {
        assert!(lines(Some(MESH), MESH).is_empty());
        assert_eq!(lines(None, MESH), ["+ host a", "+ host b", "+ host c", "+ test t", "+ test u"]);
        let changed = MESH.replace("seconds=10", "seconds=20\nevery=\"1h\"\nfrom=\"a\"\nto=\"b\"");
        assert_eq!(lines(Some(MESH), &changed), ["~ test t: seconds, pairs, every"]);
        let removed = MESH.replace("[tests.u]\nkind=\"path\"\n", "[stamp]\n");
        assert_eq!(lines(Some(MESH), &removed), ["- test u", "+ stamp pairs"]);
    }

    #[test]
    fn only_affected_tasks_are_outdated() {
        let old = parse(MESH).unwrap();
        assert!(outdated_tasks(&old, &old).is_empty());
        let moved = parse(&MESH.replace("10.0.0.3", "10.0.0.4")).unwrap();
        let outdated = outdated_tasks(&old, &moved);
        assert_eq!(outdated.len(), 8);
        assert!(outdated.contains("t/a/c") && !outdated.contains("t/a/b"));
        let longer = parse(&MESH.replace("seconds=10", "seconds=11")).unwrap();
        assert_eq!(outdated_tasks(&old, &longer).len(), 6);
        let rarer = parse(&MESH.replace("seconds=10", "seconds=10\nevery=\"9h\"")).unwrap();
        assert!(outdated_tasks(&old, &rarer).is_empty());
    }
}
