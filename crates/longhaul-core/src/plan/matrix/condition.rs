//! The conditions of a path.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::plan::link::{
    LINK_OPTIONS, LinkOptions, LinkPlan, LinkPlanError, Preset, Probability, ReadFile, derive_seed,
    fiber_delay,
};
use crate::plan::{TopologyLink, TopologyPlan};
use crate::units::{Rate, format_span, parse_span};

/// The options that set the length of a path; they exclude `rtt`.
pub(super) const LENGTHS: [&str; 4] = ["preset", "delay", "distance", "delay-trace"];

/// The property of a path that is no option of a link: the number of parallel links.
pub(super) const LINKS: &str = "links";

/// A path, which is a column of the matrix.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Condition {
    /// The round-trip time without load; zero if a file or a real path determines it.
    #[serde(rename = "rtt_ms", with = "milliseconds")]
    pub rtt: Duration,
    /// The link rate in each direction; `None` means no limit other than the machine.
    #[serde(rename = "rate_bps")]
    pub rate: Option<Rate>,
    /// The other link options by name (`loss`, `up-jitter`), as the plan has them, and `links`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, String>,
    /// The far host of a real path, which is not emulated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub real: Option<String>,
}

impl Condition {
    /// Creates an emulated path without impairments.
    pub fn new(rtt: Duration, rate: Option<Rate>) -> Self {
        Condition { rtt, rate, options: BTreeMap::new(), real: None }
    }

    /// Creates the path described by options that [`Conditions`](super::Conditions) has checked.
    pub(super) fn of(mut options: BTreeMap<String, String>) -> Self {
        let rate = options.remove("rate").and_then(|text| text.parse().ok());
        let given = options.remove("rtt").and_then(|text| parse_span(&text).ok());
        let rtt = given.unwrap_or_else(|| one_way(&options, "up-") + one_way(&options, "down-"));
        Condition { rtt, rate, options, real: None }
    }

    /// Returns the heading of the column: `90 ms`, or `90 ms, 10.0 Gb/s, loss 1e-4`.
    pub fn label(&self) -> String {
        if let Some(host) = &self.real {
            return host.clone();
        }
        let text = format_span(self.rtt);
        let unit = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
        let rtt = format!("{} {}", &text[..unit], &text[unit..]);
        let mut parts = match self.options.get("distance") {
            Some(distance) => vec![distance.clone()],
            None => vec![rtt],
        };
        parts.extend(self.rate.map(|rate| rate.to_string()));
        let others = self.options.iter().filter(|(name, _)| *name != "distance");
        parts.extend(others.map(|(name, value)| match (name.as_str(), value.as_str()) {
            (LINKS, "1") => "1 link".to_owned(),
            (LINKS, count) => format!("{count} parallel links"),
            _ => format!("{name} {value}"),
        }));
        parts.join(", ")
    }

    /// Returns the number of equal parallel links.
    pub fn links(&self) -> u32 {
        self.options.get(LINKS).and_then(|count| parse_links(count)).unwrap_or(1)
    }

    /// Returns the share of lost segments over both directions, 0 to 1; `None` if the plan states
    /// no loss.
    pub fn loss(&self) -> Option<f64> {
        self.share("loss")
    }

    /// Returns the probability that an option states, 0 to 1; `None` if the plan does not have the
    /// option.
    pub fn share(&self, option: &str) -> Option<f64> {
        let text = self.options.get(option)?;
        if text == "none" { Some(0.0) } else { text.parse::<Probability>().ok().map(f64::from) }
    }

    /// Returns the value of an option as the plan has it, or in the form that a plan would have.
    pub fn option(&self, name: &str) -> Option<String> {
        match name {
            "rtt" => Some(format_span(self.rtt)),
            "rate" => self.rate.map(|rate| rate.bps().to_string()),
            name => self.options.get(name).cloned(),
        }
    }

    /// Returns the topology to emulate: the sites `near` and `far`, and their links. Each of several
    /// parallel links has its own random decisions, whose seeds derive from `seed`.
    ///
    /// # Errors
    /// As for [`Condition::link`].
    pub fn topology(&self, seed: u64, read: ReadFile) -> Result<TopologyPlan, LinkPlanError> {
        let mut topology = TopologyPlan::pair(self.link(Some(seed), read)?);
        let links = self.links();
        if links > 1 {
            let one = topology.links.remove(0);
            topology.links.extend((1..=links).map(|number| {
                let name = format!("{}-{number}", one.name);
                let mut link = TopologyLink { name, ..one.clone() };
                link.plan.seed = Some(derive_seed(seed, &[&link.name]));
                link
            }));
        }
        Ok(topology)
    }

    /// Returns the link to emulate. `read` reads the files that options name, `seed` determines the
    /// random decisions.
    ///
    /// # Errors
    /// An invalid option; in a checked plan only a file that cannot be read.
    pub fn link(&self, seed: Option<u64>, read: ReadFile) -> Result<LinkPlan, LinkPlanError> {
        let mut options = LinkOptions::default();
        if !LENGTHS.iter().any(|name| self.options.contains_key(*name)) {
            options.set("rtt", format!("{}ns", self.rtt.as_nanos()))?;
        }
        if let Some(rate) = self.rate {
            options.set("rate", rate.bps().to_string())?;
        }
        for (name, value) in self.options.iter().filter(|(name, _)| *name != LINKS) {
            options.set(name, value.as_str())?;
        }
        let mut plan = options.plan(read)?;
        plan.seed = seed;
        Ok(plan)
    }
}

/// Returns a number of parallel links from 1 to 64; `None` for other texts.
pub(super) fn parse_links(text: &str) -> Option<u32> {
    text.parse().ok().filter(|count| (1..=64).contains(count))
}

/// Returns the one-way delay of one direction from `options`.
fn one_way(options: &BTreeMap<String, String>, direction: &str) -> Duration {
    let span = |text: &str| parse_span(text).ok();
    let said = |prefix: &str| {
        let get = |name: &str| options.get(&format!("{prefix}{name}")).map(String::as_str);
        get("delay")
            .and_then(span)
            .or_else(|| get("distance").and_then(fiber_delay))
            .or_else(|| get("preset").and_then(Preset::named).map(|preset| preset.rtt() / 2))
    };
    said(direction).or_else(|| said("")).unwrap_or_default()
}

/// Returns the position of a link option in the table of options; options for one direction follow
/// the others. Conditions are nested in this order, from the inside.
pub(super) fn place(option: &str) -> (usize, &str) {
    let (side, name) = match (option.strip_prefix("up-"), option.strip_prefix("down-")) {
        (Some(name), _) => ("up", name),
        (_, Some(name)) => ("down", name),
        _ => ("", option),
    };
    let index = LINK_OPTIONS.iter().position(|known| known.name == name);
    (index.unwrap_or(LINK_OPTIONS.len()), side)
}

mod milliseconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(d: &Duration, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_f64(d.as_nanos() as f64 / 1e6)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Duration, D::Error> {
        let ms = f64::deserialize(d)?;
        if !(0.0..=1e9).contains(&ms) {
            return Err(serde::de::Error::custom(format!("{ms} ms is out of range")));
        }
        // The time is rounded to whole nanoseconds, so that a written value is read back unchanged.
        Ok(Duration::from_nanos((ms * 1e6).round() as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::link::NO_FILES;

    fn of(pairs: &[(&str, &str)]) -> Condition {
        let text = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Condition::of(pairs.iter().map(text).collect())
    }

    #[test]
    fn options_become_a_link_and_a_heading() {
        let path = of(&[("rtt", "90ms"), ("rate", "10G"), ("loss", "1e-4"), ("up-jitter", "1ms")]);
        assert_eq!(path.label(), "90 ms, 10.0 Gb/s, loss 1e-4, up-jitter 1ms");
        assert_eq!(path.loss(), Some(1e-4));
        let link = path.link(Some(7), NO_FILES).unwrap();
        assert_eq!((link.rtt(), link.seed), (Duration::from_millis(90), Some(7)));
        assert!(link.up.loss.is_some() && link.up.jitter.is_some() && link.down.jitter.is_none());

        let far = of(&[("distance", "8600mi")]);
        assert_eq!((far.label().as_str(), far.rtt.as_millis()), ("8600mi", 135));
        assert_eq!(far.link(None, NO_FILES).unwrap().rtt(), far.rtt);
        assert_eq!(of(&[("delay", "5ms"), ("down-delay", "7ms")]).rtt.as_millis(), 12);
        assert_eq!(of(&[("preset", "wan")]).label(), "90 ms, preset wan");
    }

    #[test]
    fn parallel_links_differ_only_in_names_and_seeds() {
        let one = of(&[("rtt", "30ms"), ("rate", "1G"), ("links", "1")]);
        let read = NO_FILES;
        assert_eq!(one.topology(7, read).unwrap(), {
            TopologyPlan::pair(one.link(Some(7), read).unwrap())
        });
        let three = of(&[("rtt", "30ms"), ("rate", "1G"), ("links", "3")]);
        assert_eq!(three.label(), "30 ms, 1.00 Gb/s, 3 parallel links");
        let topology = three.topology(7, read).unwrap();
        topology.validate().unwrap();
        let names: Vec<&str> = topology.links.iter().map(|link| link.name.as_str()).collect();
        assert_eq!(names, ["link-1", "link-2", "link-3"]);
        let seeds: Vec<Option<u64>> = topology.links.iter().map(|link| link.plan.seed).collect();
        assert!(seeds[0] != seeds[1] && seeds[1] != seeds[2] && seeds[0] != seeds[2]);
        let again = three.topology(7, read).unwrap();
        assert_eq!(again, topology);
        assert!(topology.links.iter().all(|link| link.plan.up == one.link(None, read).unwrap().up));
    }

    #[test]
    fn the_first_version_had_only_two_fields() {
        let old = r#"{"rtt_ms":90.0,"rate_bps":2500000000}"#;
        let path: Condition = serde_json::from_str(old).unwrap();
        assert_eq!(path, of(&[("rtt", "90ms"), ("rate", "2.5G")]));
        assert_eq!(serde_json::to_string(&path).unwrap(), old);
    }
}
