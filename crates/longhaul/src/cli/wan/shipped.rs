//! The shipped topologies: published testbeds and typical distances.

/// A topology file that is part of the program.
pub(super) struct Shipped {
    pub(super) name: &'static str,
    pub(super) text: &'static str,
}

macro_rules! shipped {
    ($($name:literal),* $(,)?) => {
        [$(Shipped {
            name: $name,
            text: include_str!(concat!("../../../topologies/", $name, ".toml")),
        }),*]
    };
}

/// All shipped topologies.
pub(super) const SHIPPED: [Shipped; 12] = shipped![
    "lan",
    "man",
    "trans-us",
    "transatlantic",
    "satellite",
    "gsfc",
    "starlight",
    "arc",
    "sc10",
    "ultrascience",
    "sc10-4x10g",
    "sc10-12x10ge",
];

/// Returns the shipped topology `name`.
pub(super) fn find(name: &str) -> Option<&'static Shipped> {
    SHIPPED.iter().find(|shipped| shipped.name == name)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use super::super::topology_file::TopologyFile;
    use super::*;

    #[test]
    fn every_shipped_topology_is_valid_and_has_a_description() {
        for shipped in &SHIPPED {
            let file =
                TopologyFile::parse(shipped.name, Path::new("."), shipped.text, shipped.name);
            let file = file.unwrap_or_else(|error| panic!("{}: {error:#}", shipped.name));
            assert!(file.description.is_some(), "{}", shipped.name);
        }
    }

    #[test]
    fn the_rtts_are_the_published_ones() {
        let rtts = |name: &str| -> Vec<Duration> {
            let text = find(name).unwrap().text;
            let file = TopologyFile::parse(name, Path::new("."), text, name).unwrap();
            file.plan.links.iter().map(|link| link.plan.rtt()).collect()
        };
        let ms = |values: &[f64]| -> Vec<Duration> {
            values.iter().map(|ms| Duration::from_secs_f64(ms / 1e3)).collect()
        };
        assert_eq!(rtts("sc10"), ms(&[0.1, 17.0, 87.0, 35.0]));
        assert_eq!(rtts("satellite"), ms(&[1124.0]));
        // Light takes 4.9 us for a kilometer of fiber, and a mile has 1.609 km.
        for (rtt, miles) in rtts("ultrascience").iter().zip([0.2, 1400.0, 6600.0, 8600.0]) {
            let expected = 2.0 * miles * 1.609_344 * 4.9e-6;
            assert!((rtt.as_secs_f64() / expected - 1.0).abs() < 0.01, "{rtt:?} for {miles} miles");
        }
    }
}
