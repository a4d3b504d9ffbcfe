//! Tests of the reader of mesh files.

use super::*;
use crate::protocol::TestKind;

const GOOD: &str = r#"
name = "testbed"

[hosts.west]
site = "West"
address = "10.0.0.1"
interface = "eth0"
capacity = "10G"

[hosts.east]
address = "10.0.0.2"
capacity = "10G"
port = 6000

[hosts.anl]
interfaces = [
  { name = "eth0", address = "10.0.0.3", capacity = "100G" },
  { name = "eth1", address = "10.0.1.3", capacity = "40G" },
]

[hosts.iperf]
address = "10.0.0.9"
capacity = "1G"
agent = false

[groups]
core = ["west", "east", "anl"]
edge = "iperf"

[trunks.ocean]
capacity = "10G"
left = "west"
right = ["east", "anl"]

[tests.daily]
kind = "throughput"
group = "core"
seconds = 20
every = "6h"
expect = "9G"
warn = "90%"
fail = 0.4
turn = "3 of 5"

[tests.old]
kind = "iperf3"
from = "core"
to = "edge"
every = 0
priority = 9
udp = true
rate = "500M"

[stamp]
group = "core"
interval = "20ms"

[[maintenance]]
hosts = "core"
start = 2026-12-02T08:00:00Z
end = "2026-12-02T12:00:00+02:00"
reason = "fiber"

[[maintenance]]
hosts = ["west"]
start = 2026-12-01T08:00:00Z
end = 2026-12-01T10:00:00Z
"#;

#[test]
fn a_file_becomes_a_mesh_in_its_order() {
    let mesh = parse(GOOD).unwrap();
    let names: Vec<&str> = mesh.hosts.iter().map(|host| host.name.as_str()).collect();
    assert_eq!(names, ["west", "east", "anl", "iperf"]);
    let port = |host: usize, kind| mesh.hosts[host].server_port(kind);
    assert_eq!((port(0, TestKind::Throughput), port(1, TestKind::Path)), (5290, 6000));
    assert_eq!((port(3, TestKind::Iperf3), port(3, TestKind::Nuttcp)), (5201, 5000));
    assert_eq!(mesh.hosts[2].interface(Some("eth1")).unwrap().capacity_bps.bps(), 40_000_000_000);
    let daily = &mesh.tests[0];
    assert_eq!((daily.pairs.len(), daily.every_seconds, daily.slot_ms()), (6, 21_600, 25_000));
    assert_eq!(daily.judgement.warn_share, Some(0.9));
    assert_eq!((daily.judgement.bad, daily.judgement.of), (3, 5));
    let old = &mesh.tests[1];
    assert_eq!((old.spec.kind, old.spec.udp, old.every_seconds), (TestKind::Iperf3, true, 0));
    assert_eq!(old.pairs.len(), 3);
    assert_eq!(mesh.stamp.as_ref().unwrap().pairs.len(), 6);
    assert_eq!(mesh.maintenance[0].hosts, ["west"]);
    let window = &mesh.maintenance[1];
    assert_eq!(window.end_ms - window.start_ms, 2 * 3_600_000);
    assert!(mesh.maintenance_at("anl", window.start_ms).is_some());
    assert!(mesh.maintenance_at("anl", window.end_ms).is_none());
}

/// Asserts that the file with `from` replaced by `to` has an error of `wanted` in the line of `mark`.
fn refuses(from: &str, to: &str, mark: &str, wanted: impl Fn(&MeshFault) -> bool) {
    assert!(GOOD.contains(from), "{from}");
    let text = GOOD.replacen(from, to, 1);
    let error = parse(&text).unwrap_err();
    assert!(wanted(&error.fault), "{from} -> {to}: {error:?}");
    let before = &text[..text.find(mark).unwrap()];
    let line = before.matches('\n').count() + 1;
    assert_eq!(error.line, line, "{from} -> {to}: {error}");
    assert!(error.column >= 1);
}

#[test]
fn unknown_names_are_errors_with_their_place() {
    let unknown = |fault: &MeshFault| matches!(fault, MeshFault::UnknownHost { .. });
    refuses(r#"core = ["west", "#, r#"core = ["wst", "#, "core =", unknown);
    refuses("to = \"edge\"", "to = \"nowhere\"", "to = \"nowhere", unknown);
    refuses("hosts = [\"west\"]", "hosts = [\"wast\"]", "hosts = [\"wast", unknown);
    let error = parse(&GOOD.replace("right = [\"east\"", "right = [\"eats\"")).unwrap_err();
    let MeshFault::UnknownHost { near, .. } = &error.fault else { panic!("{error}") };
    assert_eq!(near.as_deref(), Some("east"));
    let syntax = |fault: &MeshFault| matches!(fault, MeshFault::Syntax(_));
    refuses("seconds = 20", "second = 20", "second = 20", syntax);
    refuses("kind = \"iperf3\"", "kind = \"ping\"", "kind = \"ping", syntax);
    refuses("warn = \"90%\"", "warn = \"190%\"", "warn = \"190", syntax);
    refuses("[hosts.west]", "[hosts.west", "[hosts.west", syntax);
}

#[test]
fn values_that_cannot_be_are_errors() {
    let twice = |fault: &MeshFault| matches!(fault, MeshFault::Twice { .. });
    refuses("10.0.0.2", "10.0.0.1", "10.0.0.1\"\ncapacity = \"10G\"\nport", twice);
    refuses("core = ", "west = ", "west = ", twice);
    refuses("right = [\"east\"", "right = [\"west\"", "right = [\"west", twice);
    let name = |fault: &MeshFault| matches!(fault, MeshFault::Name { .. });
    refuses("[hosts.west]", "[hosts.\"<b>west\"]", "<b>west", name);
    let range = |fault: &MeshFault| matches!(fault, MeshFault::OutOfRange { .. });
    refuses("turn = \"3 of 5\"", "turn = \"6 of 5\"", "turn =", range);
    refuses("priority = 9", "priority = 10", "priority =", range);
    refuses("interval = \"20ms\"", "interval = \"2ms\"", "interval =", range);
    refuses("capacity = \"1G\"", "capacity = 0", "capacity = 0", range);
    refuses("every = \"6h\"", "every = \"1500ms\"", "every =", range);
    let needs = |fault: &MeshFault| matches!(fault, MeshFault::Needs { .. });
    refuses("from = \"core\"\n", "", "[tests.old]", needs);
    refuses("capacity = \"1G\"\n", "", "[hosts.iperf]", needs);
    let agent = |fault: &MeshFault| matches!(fault, MeshFault::NoAgent { .. });
    refuses("kind = \"iperf3\"", "kind = \"throughput\"", "[tests.old]", agent);
}

#[test]
fn a_mesh_that_cannot_run_is_refused() {
    let capacity = |fault: &MeshFault| matches!(fault, MeshFault::Capacity { .. });
    refuses("expect = \"9G\"", "expect = \"11G\"", "expect =", capacity);
    refuses("rate = \"500M\"", "rate = \"2G\"", "rate =", capacity);
    let cycle = |fault: &MeshFault| matches!(fault, MeshFault::Cycle { .. });
    refuses("every = \"6h\"", "every = \"45s\"", "every =", cycle);
    let overload = |fault: &MeshFault| matches!(fault, MeshFault::Overload { .. });
    let full = "every = \"75s\"\n[tests.more]\nkind = \"throughput\"\nevery = \"30s\"\n\
                from = \"west\"\nto = \"east\"\nseconds = 20\n[tests.daily2]\nkind = \"path\"\n\
                every = \"1h\"\ngroup = \"core\"";
    refuses("every = \"6h\"\n", &format!("{full}\n"), "every = \"30s\"", overload);
    let overlap = |fault: &MeshFault| matches!(fault, MeshFault::Overlap { .. });
    refuses(
        "start = 2026-12-01T08:00:00Z\nend = 2026-12-01T10:00:00Z",
        "start = 2026-12-02T09:59:00Z\nend = 2026-12-02T11:00:00Z",
        "start = 2026-12-02T09:59:00Z",
        overlap,
    );
    let empty = |fault: &MeshFault| matches!(fault, MeshFault::EmptyWindow);
    let (end, start) = ("end = 2026-12-01T10:00:00Z", "end = 2026-12-01T08:00:00Z");
    refuses(end, start, start, empty);
    let family = |fault: &MeshFault| matches!(fault, MeshFault::Family { .. });
    refuses("\"10.0.0.2\"", "\"fd00::2\"", "[tests.daily]", family);
}

#[test]
fn a_short_text_cannot_need_gigabytes() {
    let hosts: String = (0..1000u16)
        .map(|at| {
            let [high, low] = at.to_be_bytes();
            format!("[hosts.h{at}]\naddress = \"10.0.{high}.{low}\"\ncapacity = \"1G\"\n")
        })
        .collect();
    let groups = |count: usize| -> String {
        let group = |at| format!("g{at} = [\"all\"]\n");
        std::iter::once("[groups]\n".to_owned()).chain((0..count).map(group)).collect()
    };
    let trunk = |at| format!("[trunks.t{at}]\ncapacity = \"1G\"\nleft = \"h0\"\nright = \"h1\"\n");
    let window = |at: usize| {
        let time = |second: usize| format!("2026-12-01T{:02}:{:02}:00Z", second / 60, second % 60);
        format!("[[maintenance]]\nhosts = \"all\"\nstart = {}\nend = {}\n", time(at), time(at + 1))
    };
    let of = |text: String| parse(&format!("{hosts}{text}"));
    assert_eq!(of(groups(MAX_PARTS)).unwrap().groups.len(), MAX_PARTS);
    assert_eq!(of((0..MAX_PARTS).map(window).collect()).unwrap().maintenance.len(), MAX_PARTS);
    for (what, text) in [
        ("groups", groups(MAX_PARTS + 1)),
        ("trunks", (0..=MAX_TRUNKS).map(trunk).collect()),
        ("maintenance windows", (0..=MAX_PARTS).map(window).collect()),
    ] {
        let fault = of(text).unwrap_err().fault;
        assert!(matches!(fault, MeshFault::Count { what: one, .. } if one == what), "{fault}");
    }
}

#[test]
fn a_mesh_survives_its_document() {
    let mesh = parse(GOOD).unwrap();
    let text = serde_json::to_string(&mesh).unwrap();
    assert_eq!(serde_json::from_str::<Mesh>(&text).unwrap(), mesh);
}
