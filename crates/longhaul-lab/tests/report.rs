//! Reports of every kind of plan, from archives that a model made. The pages stay in the build's
//! directory for tests, for inspection.

mod synthetic;

use std::fs;
use std::path::{Path, PathBuf};

use longhaul_core::plan::MatrixPlan;
use longhaul_lab::archive::Contents;
use longhaul_lab::plan::SHIPPED;
use longhaul_lab::table::Table;
use longhaul_lab::{drivers, plan, report};

fn parse(text: &str) -> MatrixPlan {
    plan::parse("test", text, &drivers::all(Path::new("longhaul"))).unwrap()
}

/// Writes the report of `contents`; its directory, and the names of its figures.
fn written(name: &str, contents: &Contents) -> (PathBuf, Vec<String>) {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("report").join(name);
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).unwrap();
    report::write(&dir, contents, &Table::fold(contents)).unwrap();
    let figures = fs::read_dir(dir.join("figures")).unwrap();
    let mut figures: Vec<String> = figures
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .map(|name| name.trim_end_matches(".svg").to_owned())
        .collect();
    figures.sort();
    (dir, figures)
}

const TOOLS: &str = r#"
[[entries]]
tool = "longhaul cp"
workloads = ["16", "32", "64", "128"]
[[entries]]
tool = "globus-url-copy"
workloads = ["16", "32", "64", "128"]
[[entries]]
tool = "rsync"
workloads = ["16", "32", "64", "128"]
[[entries]]
tool = "scp"
workloads = ["16", "32", "64", "128"]
"#;

#[test]
fn the_published_matrix_has_its_figures() {
    let mut text = String::from(
        "name = \"sc10\"\nabout = \"Large files over wide areas\"\nrepeats = 3\nscale = 0.01\n\
         [conditions]\nrtt = [\"0ms\", \"15ms\", \"90ms\", \"180ms\"]\n",
    );
    for gigabytes in [16, 32, 64, 128] {
        text += &format!("[[workloads]]\nname = \"{gigabytes}\"\nsize = \"{gigabytes}GB\"\n");
    }
    text += TOOLS;
    text += "[[entries]]\ntool = \"iperf3\"\nworkload = \"memory\"\n\
             [[entries]]\ntool = \"nuttcp\"\nworkload = \"memory\"\n";
    let (dir, figures) = written("sc10", &synthetic::contents(parse(&text)));
    assert_eq!(figures, ["cpu-disk", "cpu-memory", "rtt", "size", "time-disk", "time-memory"]);
    let page = fs::read_to_string(dir.join("report.html")).unwrap();
    assert!(page.contains("P1 nuttcp, P2 nuttcp"), "published figures beside 0 ms");
}

#[test]
fn loss_distance_and_repeats_have_their_figures() {
    let loss = parse(
        "name = \"loss\"\nrepeats = 3\n[conditions]\nrtt = [\"15ms\", \"90ms\"]\n\
         loss = [0, \"1e-6\", \"1e-5\", \"1e-4\", \"1e-3\"]\n\
         [[entries]]\ntool = \"iperf3\"\nworkload = \"memory\"\n\
         [[entries]]\ntool = \"longhaul test\"\nworkload = \"memory\"\nstreams = [1, 8]\n",
    );
    let (_, figures) = written("loss", &synthetic::contents(loss));
    assert_eq!(
        figures,
        ["cpu-memory", "loss", "rtt", "scale-factor-streams", "streams", "time-memory"]
    );

    let distance = parse(
        "name = \"distance\"\nrepeats = 12\n[conditions]\nrate = \"10G\"\n\
         distance = [\"0.2mi\", \"1400mi\", \"6600mi\", \"8600mi\"]\n\
         [[entries]]\ntool = \"iperf3\"\nworkload = \"memory\"\n\
         [[entries]]\ntool = \"longhaul test\"\nworkload = \"memory\"\n",
    );
    let (dir, figures) = written("distance", &synthetic::contents(distance));
    assert_eq!(figures, ["cpu-memory", "distance", "stability", "time-memory"]);
    let page = fs::read_to_string(dir.join("report.html")).unwrap();
    for said in ["Decrease, Mb/s per mile", "Standard deviation, Mb/s", "ib_rdma-bw"] {
        assert!(page.contains(said), "{said}");
    }
}

#[test]
fn streams_and_windows_are_a_surface_and_clients_scale() {
    let surface = parse(
        "name = \"streams-windows\"\nrepeats = 1\n[conditions]\nrtt = \"90ms\"\n\
         [[entries]]\ntool = \"iperf3\"\nworkload = \"memory\"\nstreams = [1, 2, 4, 8, 16]\n\
         windows = [\"256KiB\", \"1MiB\", \"4MiB\", \"16MiB\", \"64MiB\"]\n",
    );
    let (_, figures) = written("surface", &synthetic::contents(surface));
    assert!(figures.contains(&"surface-1".to_owned()), "{figures:?}");
    assert!(!figures.contains(&"streams".to_owned()), "{figures:?}");

    let scaling = parse(
        "name = \"scaling\"\nrepeats = 6\n[conditions]\nrtt = [\"0ms\", \"90ms\"]\n\
         [[workloads]]\nname = \"file\"\nsize = \"256MiB\"\n\
         [[entries]]\ntool = \"scp\"\nworkload = \"file\"\nclients = [1, 2, 4, 8]\n\
         [[entries]]\ntool = \"rsync\"\nworkload = \"file\"\nclients = [1, 2, 4, 8]\n",
    );
    let (dir, figures) = written("scaling", &synthetic::contents(scaling));
    assert!(figures.contains(&"scale-factor-clients".to_owned()), "{figures:?}");
    let page = fs::read_to_string(dir.join("report.html")).unwrap();
    assert!(page.contains("<td class=\"figure\">0.87</td>"), "Fermilab's factor");
}

#[test]
fn every_shipped_plan_has_a_report() {
    let all = drivers::all(Path::new("longhaul"));
    for shipped in &SHIPPED {
        let plan = shipped.plan(&all).unwrap();
        let labels: Vec<String> = plan.entries.iter().map(|entry| entry.label()).collect();
        let (dir, figures) = written(&format!("plan-{}", shipped.name), &synthetic::contents(plan));
        assert!(!figures.is_empty(), "{} has no figure", shipped.name);
        let page = fs::read_to_string(dir.join("report.html")).unwrap();
        let first = labels[0].split(' ').next().unwrap();
        assert!(page.contains(first), "{}: no {first}", shipped.name);
    }
}

#[test]
fn the_figures_stay_as_they_were_looked_at() {
    let small = parse(
        "name = \"small\"\nrepeats = 2\n[conditions]\nrtt = [\"0ms\", \"90ms\"]\n\
         [[entries]]\ntool = \"iperf3\"\nworkload = \"memory\"\n\
         [[entries]]\ntool = \"longhaul test\"\nworkload = \"memory\"\n",
    );
    let (dir, figures) = written("small", &synthetic::contents(small));
    for figure in figures {
        let svg = fs::read_to_string(dir.join("figures").join(format!("{figure}.svg"))).unwrap();
        insta::assert_snapshot!(figure, svg);
    }
}
