//! Lists of link options and their product.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::condition::{LENGTHS, LINKS, parse_links, place};
use super::entry::scalars;
use super::{Condition, MatrixFault};
use crate::plan::link::{LINK_OPTIONS, LinkOptions, LinkPlanError};
use crate::units::{Rate, format_span, parse_delay, parse_span};

/// Link options by name, each with a list of values; the conditions are their product.
///
/// Every option of an emulated link is accepted except `seed`, which is derived from the run, and
/// `links`, the number of equal parallel links.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Conditions {
    /// The options in the order of nesting, innermost first.
    axes: Vec<(String, Vec<String>)>,
}

impl Conditions {
    /// Creates the product of round-trip times and rates.
    pub fn new(rtt: &[Duration], rate: &[Rate]) -> Self {
        let mut conditions = Conditions::default();
        conditions.set("rtt", rtt.iter().map(|rtt| format_span(*rtt)).collect());
        if !rate.is_empty() {
            conditions.set("rate", rate.iter().map(|rate| rate.bps().to_string()).collect());
        }
        conditions
    }

    /// Sets the values of an option, replacing earlier ones.
    pub fn set(&mut self, option: &str, values: Vec<String>) {
        self.axes.retain(|(name, _)| name != option);
        self.axes.push((option.to_owned(), values));
        self.axes.sort_by(|(a, _), (b, _)| place(a).cmp(&place(b)));
    }

    /// Returns whether no option is given.
    pub fn is_empty(&self) -> bool {
        self.axes.is_empty()
    }

    /// Returns the given options with their values as written.
    pub fn axes(&self) -> impl Iterator<Item = (&str, &[String])> {
        self.axes.iter().map(|(name, values)| (name.as_str(), values.as_slice()))
    }

    /// Returns the product, with round-trip times innermost. Invalid values, which
    /// [`Conditions::check`] reports, are omitted.
    pub(super) fn product(&self) -> Vec<Condition> {
        let mut all = vec![BTreeMap::new()];
        for (name, values) in self.axes.iter().rev() {
            let with = |path: &BTreeMap<String, String>, value: &String| {
                let mut path = path.clone();
                path.insert(name.clone(), value.trim().to_owned());
                path
            };
            all = all.iter().flat_map(|path| values.iter().map(move |v| with(path, v))).collect();
        }
        all.into_iter().map(Condition::of).collect()
    }

    pub(super) fn check(&self) -> Result<(), MatrixFault> {
        let has = |name: &str| self.axes.iter().any(|(axis, _)| axis == name);
        let long = |name: &str| has(name) || has(&format!("up-{name}"));
        if let Some(other) = LENGTHS.iter().find(|name| has("rtt") && has(name)) {
            let reason = format!("rtt and {other} contradict each other: give only one of them");
            return Err(MatrixFault::Path { path: "rtt".into(), reason });
        }
        for (option, values) in &self.axes {
            if option == "seed" {
                return Err(MatrixFault::SeedAsCondition);
            }
            if values.is_empty() {
                return Err(match option.as_str() {
                    "rtt" => MatrixFault::NoRtt,
                    _ => MatrixFault::NoValues { option: option.clone() },
                });
            }
            for (index, value) in values.iter().enumerate() {
                check_value(option, value).map_err(|reason| {
                    let option = option.clone();
                    MatrixFault::Value { option, index, reason }
                })?;
                let same = |other: &String| same_value(option, other, value);
                if values[..index].iter().any(same) {
                    let (option, value) = (option.clone(), value.clone());
                    return Err(MatrixFault::ValueTwice { option, index, value });
                }
            }
        }
        // After the names, because a mistyped name is often the cause.
        if !has("rtt") && !LENGTHS.iter().any(|name| long(name)) {
            return Err(MatrixFault::NoRtt);
        }
        // Requirements between options are checked here, on their combinations. Files are read, and
        // their errors reported, when the paths are opened.
        for condition in self.product() {
            match condition.link(None, &|_| Err(std::io::ErrorKind::NotFound.into())) {
                Ok(_) | Err(LinkPlanError::Trace { .. }) => {}
                Err(error) => {
                    let (path, reason) = (condition.label(), plain(&error));
                    return Err(MatrixFault::Path { path, reason });
                }
            }
        }
        Ok(())
    }
}

/// Returns whether two texts give an option the same value.
pub(super) fn same_value(option: &str, one: &str, other: &str) -> bool {
    let spans = || Some(parse_span(one).ok()? == parse_span(other).ok()?);
    let rates = || Some(one.parse::<Rate>().ok()? == other.parse::<Rate>().ok()?);
    let same = match option {
        "rtt" | "delay" => spans(),
        "rate" => rates(),
        _ => None,
    };
    same.unwrap_or(one.trim() == other.trim())
}

/// Returns whether an option accepts a value, regardless of other options.
fn check_value(option: &str, value: &str) -> Result<(), String> {
    if option == "rtt" {
        let span = parse_delay(value).map_err(|error| error.to_string())?;
        if span > Duration::from_secs(10) {
            let span = format_span(span);
            return Err(format!("a round-trip time of {span} exceeds the maximum of 10 s"));
        }
    }
    if option == "rate" && value != "none" {
        value.parse::<Rate>().map_err(|error| error.to_string())?;
    }
    if option == LINKS {
        let count = parse_links(value.trim()).map(|_| ());
        return count.ok_or_else(|| format!("links cannot be '{value}'; it must be 1 to 64"));
    }
    let mut single = LinkOptions::default();
    single.set(option, value).map_err(|error| {
        let known = LINK_OPTIONS.iter().map(|option| option.name).chain([LINKS]);
        let known = known.collect::<Vec<_>>().join(", ");
        format!("{}; known options: {known}", plain(&error))
    })?;
    match single.plan(&|_| Err(std::io::ErrorKind::NotFound.into())) {
        Err(
            error @ (LinkPlanError::Value { .. }
            | LinkPlanError::NoUnit { .. }
            | LinkPlanError::Rate { .. }
            | LinkPlanError::Delay { .. }),
        ) => Err(plain(&error)),
        // The option may need another option, which has its own list of values.
        _ => Ok(()),
    }
}

/// Formats an error of a link option for a plan file, in which options have no dashes.
fn plain(error: &LinkPlanError) -> String {
    error.to_string().replace("--", "")
}

impl Serialize for Conditions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.axes.iter().map(|(name, values)| (name, values)))
    }
}

impl<'de> Deserialize<'de> for Conditions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Axes)
    }
}

struct Axes;

impl<'de> Visitor<'de> for Axes {
    type Value = Conditions;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table of link options, each with a list of values")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Conditions, A::Error> {
        let mut conditions = Conditions::default();
        while let Some((name, Values(values))) = map.next_entry::<String, Values>()? {
            // The first version used the name `rate_bps`, with an empty list for a plan without
            // rates.
            let name = if name == "rate_bps" { "rate" } else { &name };
            if !(name == "rate" && values.is_empty()) {
                conditions.set(name, values);
            }
        }
        Ok(conditions)
    }
}

struct Values(Vec<String>);

impl<'de> Deserialize<'de> for Values {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        scalars(deserializer).map(Values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(json: &str) -> Conditions {
        serde_json::from_str(json).unwrap()
    }

    fn labels(conditions: &Conditions) -> Vec<String> {
        conditions.product().iter().map(Condition::label).collect()
    }

    #[test]
    fn paths_are_the_product_with_round_trip_times_innermost() {
        let two = of(r#"{"rate": ["10G", "1G"], "rtt": ["0ms", "90ms"]}"#);
        assert_eq!(
            labels(&two),
            ["0 ms, 10.0 Gb/s", "90 ms, 10.0 Gb/s", "0 ms, 1.00 Gb/s", "90 ms, 1.00 Gb/s"]
        );
        let loss = of(r#"{"rtt": "90ms", "mtu": 1500, "loss": [0, 1e-4]}"#);
        assert_eq!(labels(&loss), ["90 ms, loss 0, mtu 1500", "90 ms, loss 0.0001, mtu 1500"]);
        assert_eq!(loss.check(), Ok(()));
        let text = serde_json::to_string(&loss).unwrap();
        assert_eq!(of(&text), loss);
        let old = of(r#"{"rtt": ["0ms", "90ms"], "rate_bps": []}"#);
        assert_eq!(old, Conditions::new(&[Duration::ZERO, Duration::from_millis(90)], &[]));
        let old = of(r#"{"rtt": ["0ms"], "rate_bps": [2500000000]}"#);
        assert_eq!(labels(&old), ["0 ms, 2.50 Gb/s"]);
    }

    #[test]
    fn an_option_of_no_link_is_refused() {
        for (json, says) in [
            (r#"{"loss": ["0.1"]}"#, "conditions.rtt is empty"),
            (r#"{"rtt": []}"#, "conditions.rtt is empty"),
            (r#"{"rtt": ["1s"], "loss": []}"#, "conditions.loss is empty"),
            (r#"{"rtt": ["1s", "1000ms"]}"#, "rtt has 1000ms twice"),
            (r#"{"rtt": ["11s"]}"#, "a round-trip time of 11s exceeds"),
            (r#"{"rtt": ["1s"], "rate": ["10M", "0"]}"#, "a rate of 0.00 b/s is below"),
            (r#"{"rtt": ["1s"], "loss": ["2"]}"#, "loss cannot be '2': a probability is"),
            (r#"{"rtt": ["1s"], "gravity": ["2"]}"#, "there is no link option 'gravity'; known"),
            (r#"{"rtt": ["1s"], "queue": ["5ms"]}"#, "queue needs rate"),
            (r#"{"rtt": ["1s"], "distance": ["5km"]}"#, "contradict each other"),
            (r#"{"rtt": ["1s"], "seed": [1]}"#, "seed"),
            (r#"{"rtt": ["1s"], "links": [1, 0]}"#, "links cannot be '0'; it must be 1 to 64"),
        ] {
            let error = of(json).check().unwrap_err().to_string();
            assert!(error.contains(says), "{json}: {error}");
        }
        let good = r#"{"distance": ["5km", "8600mi"], "loss": ["1e-3"], "loss-burst": [3]}"#;
        assert_eq!(of(good).check(), Ok(()));
    }
}
