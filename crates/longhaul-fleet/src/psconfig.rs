//! The import of pSConfig templates (the JSON that perfSONAR's agents read) as mesh files.
//!
//! A mesh file expresses throughput, round-trip, latency and trace tasks between groups of the
//! types mesh and disjoint. All other parts are listed as omitted.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::net::IpAddr;

use longhaul_core::units::Rate;
use serde_json::{Map, Value};

/// The maximum number of bytes of a template.
pub const MAX_TEMPLATE_BYTES: usize = 4 << 20;
/// The maximum number of parts of each kind in a template.
const MOST_PARTS: usize = 2000;

/// A converted template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// The text of the mesh file.
    pub text: String,
    /// The parts that the mesh file does not express.
    pub left_out: Vec<LeftOut>,
}

/// A part of a template that the mesh file does not express.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// The place in the template, such as `tasks.daily`.
    pub path: String,
    /// The reason.
    pub reason: String,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.reason)
    }
}

/// An invalid template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// The text is not a JSON object.
    #[error("the template is not a JSON object: {0}")]
    Syntax(String),
    /// The template has more parts or bytes than the limit.
    #[error("the template is too large")]
    TooLarge,
    /// No host has an address.
    #[error("the template has no address that resolves")]
    NoHosts,
}

/// Converts the template `text`. pSConfig has no capacities: all interfaces get `capacity`. `resolve`
/// returns the address of a name.
///
/// # Errors
/// The text is not a template, or no address resolves.
pub fn import(
    text: &str,
    capacity: Rate,
    resolve: &dyn Fn(&str) -> Option<IpAddr>,
) -> Result<Imported, ImportError> {
    if text.len() > MAX_TEMPLATE_BYTES {
        return Err(ImportError::TooLarge);
    }
    let root: Value =
        serde_json::from_str(text).map_err(|error| ImportError::Syntax(error.to_string()))?;
    let Value::Object(root) = root else {
        return Err(ImportError::Syntax("it is another value".to_owned()));
    };
    let too_many = |part: &Value| part.as_object().is_some_and(|part| part.len() > MOST_PARTS);
    if root.values().any(too_many) {
        return Err(ImportError::TooLarge);
    }
    let mut import = Import { root, names: BTreeMap::new(), text: String::new(), left_out: vec![] };
    import.hosts(capacity, resolve)?;
    import.tasks();
    import.rest();
    Ok(Imported { text: import.text, left_out: import.left_out })
}

struct Import {
    root: Map<String, Value>,
    /// The host name per address name.
    names: BTreeMap<String, String>,
    text: String,
    left_out: Vec<LeftOut>,
}

impl Import {
    fn part(&self, kind: &str) -> Map<String, Value> {
        self.root.get(kind).and_then(Value::as_object).cloned().unwrap_or_default()
    }

    fn leave(&mut self, path: impl Into<String>, reason: impl Into<String>) {
        self.left_out.push(LeftOut { path: path.into(), reason: reason.into() });
    }

    fn hosts(
        &mut self,
        capacity: Rate,
        resolve: &dyn Fn(&str) -> Option<IpAddr>,
    ) -> Result<(), ImportError> {
        let mut used = BTreeSet::new();
        let mut addresses = BTreeSet::new();
        for (name, value) in self.part("addresses") {
            let path = format!("addresses.{name}");
            let address = value.get("address").and_then(Value::as_str).unwrap_or(&name);
            let Some(found) = resolve(address) else {
                self.leave(path, format!("'{address}' has no address"));
                continue;
            };
            if !addresses.insert(found) {
                self.leave(path, format!("another address is {found}, too"));
                continue;
            }
            let host = unique(&plain(&name), &mut used);
            let agent = !value.get("no-agent").and_then(Value::as_bool).unwrap_or(false);
            let _ = writeln!(self.text, "[hosts.{}]", quoted(&host));
            let _ = writeln!(self.text, "address = \"{found}\"\ncapacity = {}", capacity.bps());
            if !agent {
                let _ = writeln!(self.text, "agent = false");
            }
            let _ = writeln!(self.text);
            self.names.insert(name, host);
        }
        if self.names.is_empty() { Err(ImportError::NoHosts) } else { Ok(()) }
    }

    fn tasks(&mut self) {
        let (groups, tests, schedules) =
            (self.part("groups"), self.part("tests"), self.part("schedules"));
        let mut used = BTreeSet::new();
        let mut stamp = false;
        for (name, task) in self.part("tasks") {
            let path = format!("tasks.{name}");
            let of =
                |kind: &Map<String, Value>, key: &str| kind.get(task.get(key)?.as_str()?).cloned();
            if task.get("disabled").and_then(Value::as_bool).unwrap_or(false) {
                self.leave(path, "it is disabled");
                continue;
            }
            let (Some(group), Some(test)) = (of(&groups, "group"), of(&tests, "test")) else {
                self.leave(path, "its group or test does not exist");
                continue;
            };
            let Some(ends) = self.ends(&path, &group) else { continue };
            for key in ["archives", "contexts", "tools", "reference"] {
                if task.get(key).is_some() {
                    self.leave(format!("{path}.{key}"), "a mesh has none");
                }
            }
            let kind = test.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
            match kind.as_str() {
                "latencybg" | "latency" | "rtt" if !stamp => {
                    stamp = true;
                    let _ = writeln!(self.text, "[stamp]\n{ends}");
                }
                "latencybg" | "latency" | "rtt" => {
                    self.leave(path, "a mesh has one [stamp]; add the hosts of this task to it");
                }
                "throughput" | "trace" | "disk-to-disk" => {
                    let name = unique(&plain(&name), &mut used);
                    let schedule = of(&schedules, "schedule");
                    let settings = self.settings(&path, &kind, &test, schedule.as_ref());
                    let _ = writeln!(self.text, "[tests.{}]\n{settings}{ends}", quoted(&name));
                }
                other => self.leave(path, format!("a mesh has no test of the type '{other}'")),
            }
        }
    }

    /// Returns the settings of the pairs of a group.
    fn ends(&mut self, path: &str, group: &Value) -> Option<String> {
        let list = |key: &str| {
            let items = group.get(key)?.as_array()?;
            let name = |item: &Value| self.names.get(item.get("name")?.as_str()?).cloned();
            let names: Vec<String> = items.iter().filter_map(name).collect();
            let quoted: Vec<String> = names.iter().map(|name| text(name)).collect();
            (!names.is_empty()).then(|| format!("[{}]", quoted.join(", ")))
        };
        let kind = group.get("type").and_then(Value::as_str).unwrap_or_default();
        let ends = match kind {
            "mesh" => list("addresses").map(|hosts| format!("group = {hosts}\n")),
            "disjoint" => match (list("a-addresses"), list("b-addresses")) {
                (Some(from), Some(to)) => Some(format!("from = {from}\nto = {to}\n")),
                _ => None,
            },
            _ => None,
        };
        if ends.is_none() {
            self.leave(path, format!("its group of the type '{kind}' has no usable addresses"));
        } else {
            if kind == "disjoint"
                && !group.get("unidirectional").and_then(Value::as_bool).unwrap_or(false)
            {
                self.leave(path, "only the direction from a-addresses to b-addresses is imported");
            }
            for key in ["excludes", "excludes-self", "default-address-labels"] {
                if group.get(key).is_some() {
                    self.leave(format!("{path}.group.{key}"), "a mesh has no such setting");
                }
            }
        }
        ends
    }

    fn settings(
        &mut self,
        path: &str,
        kind: &str,
        test: &Value,
        schedule: Option<&Value>,
    ) -> String {
        let own = match kind {
            "throughput" => "throughput",
            "trace" => "path",
            _ => "copy",
        };
        let mut lines = format!("kind = \"{own}\"\n");
        let spec = test.get("spec").and_then(Value::as_object).cloned().unwrap_or_default();
        for (key, value) in &spec {
            let number = value.as_u64().or_else(|| value.as_str()?.parse().ok());
            let seconds = value.as_str().and_then(iso_seconds);
            let line = match (key.as_str(), own) {
                ("source" | "dest" | "destination", _) => continue,
                ("duration", "throughput") => {
                    seconds.map(|seconds| format!("seconds = {}", seconds.max(1)))
                }
                ("parallel", "throughput") => number.map(|count| format!("streams = {count}")),
                ("bandwidth", "throughput") => number.map(|rate| format!("rate = {rate}")),
                ("udp", "throughput") => value.as_bool().map(|udp| format!("udp = {udp}")),
                ("congestion", "throughput") => {
                    value.as_str().map(|name| format!("congestion = {}", text(name)))
                }
                _ => None,
            };
            match line {
                Some(line) => lines += &format!("{line}\n"),
                None => self.leave(format!("{path}.test.{key}"), "a mesh has no such setting"),
            }
        }
        let repeat = schedule.and_then(|schedule| schedule.get("repeat")?.as_str());
        match repeat.and_then(iso_seconds).filter(|every| *every > 0) {
            Some(every) => lines += &format!("every = {every}\n"),
            None if schedule.is_some() => {
                self.leave(format!("{path}.schedule"), "only 'repeat' is imported");
            }
            None => {}
        }
        lines
    }

    /// Lists the parts of the template that are never imported.
    fn rest(&mut self) {
        let known = ["addresses", "groups", "tests", "schedules", "tasks"];
        let others: Vec<String> =
            self.root.keys().filter(|key| !known.contains(&key.as_str())).cloned().collect();
        for key in others {
            self.leave(key, "a mesh has no such part");
        }
    }
}

/// Returns the whole seconds of an ISO 8601 duration.
fn iso_seconds(text: &str) -> Option<u64> {
    let span: jiff::Span = text.parse().ok()?;
    let days = jiff::SpanRelativeTo::days_are_24_hours();
    let seconds = span.total((jiff::Unit::Second, days)).ok()?;
    (0.0..=31_536_000.0).contains(&seconds).then_some(seconds as u64)
}

/// Returns `name` with only the characters of a name in a mesh.
fn plain(name: &str) -> String {
    let good = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    let plain: String = name.chars().map(good).take(60).collect();
    let plain = plain.trim_start_matches(['-', '_', '.']);
    if plain.is_empty() { "host".to_owned() } else { plain.to_owned() }
}

fn unique(name: &str, used: &mut BTreeSet<String>) -> String {
    let candidates = std::iter::once(name.to_owned()).chain((2..).map(|n| format!("{name}-{n}")));
    let free = candidates.filter(|name| name != "all").find(|name| !used.contains(name));
    let free = free.unwrap_or_default();
    used.insert(free.clone());
    free
}

/// Returns a key of a table.
fn quoted(name: &str) -> String {
    let bare = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    if name.bytes().all(bare) { name.to_owned() } else { text(name) }
}

/// Returns a string of TOML.
fn text(value: &str) -> String {
    toml::Value::String(value.to_owned()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mesh::parse;

    const TEMPLATE: &str = r#"{
        "addresses": {
            "lbl-pt1.es.net": {"address": "198.51.100.1"},
            "chic pt1": {"address": "198.51.100.2"},
            "lost": {"address": "nowhere.invalid"}
        },
        "groups": {
            "all": {"type": "mesh", "addresses": [{"name": "lbl-pt1.es.net"}, {"name": "chic pt1"}, {"name": "lost"}]},
            "odd": {"type": "list", "addresses": []}
        },
        "tests": {
            "bulk": {"type": "throughput", "spec": {"source": "{% address[0] %}", "dest": "{% address[1] %}",
                "duration": "PT20S", "parallel": 4, "ip-version": 4}},
            "ping": {"type": "latencybg", "spec": {}},
            "dns": {"type": "dns", "spec": {}}
        },
        "schedules": {"six": {"repeat": "PT6H", "sliprand": true}},
        "tasks": {
            "daily": {"group": "all", "test": "bulk", "schedule": "six", "archives": ["a"]},
            "loss": {"group": "all", "test": "ping"},
            "names": {"group": "all", "test": "dns"},
            "none": {"group": "odd", "test": "bulk"},
            "off": {"group": "all", "test": "bulk", "disabled": true}
        },
        "archives": {"a": {}}
    }"#;

    #[test]
    fn a_template_becomes_a_mesh_and_a_list_of_the_rest() {
        let resolve = |name: &str| name.parse().ok();
        let imported = import(TEMPLATE, Rate::from_bps(40_000_000_000), &resolve).unwrap();
        let mesh =
            parse(&imported.text).unwrap_or_else(|error| panic!("{error}\n{}", imported.text));
        let hosts: Vec<&str> = mesh.hosts.iter().map(|host| host.name.as_str()).collect();
        assert_eq!(hosts, ["chic-pt1", "lbl-pt1.es.net"]);
        let daily = &mesh.tests[0];
        assert_eq!(
            (daily.name.as_str(), daily.spec.seconds, daily.spec.streams),
            ("daily", 20, Some(4))
        );
        assert_eq!((daily.every_seconds, daily.pairs.len(), mesh.tests.len()), (21_600, 2, 1));
        assert_eq!(mesh.stamp.unwrap().pairs.len(), 2);
        let left: Vec<&str> = imported.left_out.iter().map(|left| left.path.as_str()).collect();
        for path in [
            "addresses.lost",
            "tasks.daily.archives",
            "tasks.daily.test.ip-version",
            "tasks.names",
            "tasks.none",
            "tasks.off",
            "archives",
        ] {
            assert!(left.contains(&path), "{path}: {left:?}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        let resolve = |_: &str| None;
        let import = |text: &str| import(text, Rate::from_bps(1), &resolve).unwrap_err();
        assert!(matches!(import("["), ImportError::Syntax(_)));
        assert!(matches!(import("[]"), ImportError::Syntax(_)));
        assert_eq!(import("{}"), ImportError::NoHosts);
        assert_eq!(import(&" ".repeat(MAX_TEMPLATE_BYTES + 1)), ImportError::TooLarge);
    }
}
