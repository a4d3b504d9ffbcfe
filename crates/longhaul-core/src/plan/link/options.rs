//! The link options as text, by name, for both directions and for either.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::option_table::{Apply, LINK_OPTIONS};
use super::trace::ReadFile;
use super::{LinkDirection, LinkPlan, LinkPlanError};

const SEEDS: &str = "a seed is a whole number from 0 to 9007199254740991";

/// The options that say the same thing: at most one of each set can be given for one direction.
const EXCLUSIVE: [&[&str]; 4] = [
    &["preset", "rtt", "delay", "distance", "delay-trace"],
    &["rate", "rate-trace"],
    &["loss", "loss-pattern", "loss-trace"],
    &["loss-burst", "loss-pattern", "loss-trace"],
];

/// Link options that were given, and not yet a plan.
///
/// An option for one direction goes before that for both: `rate` and `up-rate` give up the latter
/// and down the former. The value `none` takes an option away. In a document it is a table of
/// names and values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LinkOptions {
    both: BTreeMap<&'static str, String>,
    up: BTreeMap<&'static str, String>,
    down: BTreeMap<&'static str, String>,
}

impl LinkOptions {
    /// Gives `option` the value `value`; `option` is a name, or a name after `up-` or `down-`.
    ///
    /// # Errors
    /// There is no such option.
    pub fn set(&mut self, option: &str, value: impl Into<String>) -> Result<(), LinkPlanError> {
        let named = |name: &str| LINK_OPTIONS.iter().find(|known| known.name == name);
        let (options, known) = match (option.strip_prefix("up-"), option.strip_prefix("down-")) {
            (Some(name), _) => (&mut self.up, named(name).filter(|known| known.per_direction)),
            (_, Some(name)) => (&mut self.down, named(name).filter(|known| known.per_direction)),
            _ => (&mut self.both, named(option)),
        };
        let known = known.ok_or_else(|| LinkPlanError::Unknown { option: option.to_owned() })?;
        options.insert(known.name, value.into());
        Ok(())
    }

    /// Whether no option was given.
    pub fn is_empty(&self) -> bool {
        self.both.is_empty() && self.up.is_empty() && self.down.is_empty()
    }

    /// The valid plan that the options describe; `read` reads the files that they name.
    ///
    /// # Errors
    /// The first option that makes no sense.
    pub fn plan(&self, read: ReadFile) -> Result<LinkPlan, LinkPlanError> {
        let mut plan = LinkPlan::symmetric(Duration::ZERO);
        if let Some(text) = self.both.get("mtu") {
            let range = "an MTU is from 576 to 65535 bytes";
            plan.mtu = text.parse().map_err(|_| LinkPlanError::value("mtu", text, range))?;
        }
        if let Some(text) = self.both.get("seed") {
            let seed = text.parse().ok().filter(|seed| *seed < 1 << 53);
            plan.seed = Some(seed.ok_or_else(|| LinkPlanError::value("seed", text, SEEDS))?);
        }
        self.change_directions(plan, read)
    }

    /// `plan` as changed by the options, for a link that is up.
    ///
    /// # Errors
    /// The first option that makes no sense or cannot be changed.
    pub fn change(&self, plan: &LinkPlan, read: ReadFile) -> Result<LinkPlan, LinkPlanError> {
        match ["mtu", "seed"].into_iter().find(|option| self.both.contains_key(option)) {
            Some(option) => Err(LinkPlanError::Fixed { option }),
            None => self.change_directions(plan.clone(), read),
        }
    }

    fn change_directions(
        &self,
        mut plan: LinkPlan,
        read: ReadFile,
    ) -> Result<LinkPlan, LinkPlanError> {
        for (prefix, options) in [("", &self.both), ("up-", &self.up), ("down-", &self.down)] {
            for set in EXCLUSIVE {
                let mut given = set.iter().filter(|name| options.contains_key(*name));
                if let (Some(one), Some(other)) = (given.next(), given.next()) {
                    let name = |option| format!("{prefix}{option}");
                    return Err(LinkPlanError::contradiction(&name(one), &name(other)));
                }
            }
        }
        self.apply(&mut plan.up, "up-", &self.up)?;
        self.apply(&mut plan.down, "down-", &self.down)?;
        if plan.up.has_rate() != plan.down.has_rate() {
            // What is said of the queues of both directions is meant for the one that has one.
            let (link, own) = if plan.up.has_rate() {
                (&mut plan.down, &self.down)
            } else {
                (&mut plan.up, &self.up)
            };
            self.forget_queue(link, own);
        }
        plan.load(read)?;
        plan.validate()?;
        Ok(plan)
    }

    /// Gives `link` the options for both directions and then its own.
    fn apply(
        &self,
        link: &mut LinkDirection,
        prefix: &str,
        own: &BTreeMap<&'static str, String>,
    ) -> Result<(), LinkPlanError> {
        for known in &LINK_OPTIONS {
            let Apply::Direction(apply) = known.apply else { continue };
            // The more special one replaces the general one, also where it is another of its set.
            let replaced = EXCLUSIVE.iter().any(|set| {
                set.contains(&known.name) && set.iter().any(|name| own.contains_key(name))
            });
            let general = self.both.get(known.name).filter(|_| !replaced).map(|text| ("", text));
            let special = own.get(known.name).map(|text| (prefix, text));
            for (prefix, text) in general.into_iter().chain(special) {
                apply(link, text.trim()).map_err(|accepted| {
                    LinkPlanError::value(&format!("{prefix}{}", known.name), text, accepted)
                })?;
            }
        }
        Ok(())
    }

    fn forget_queue(&self, link: &mut LinkDirection, own: &BTreeMap<&'static str, String>) {
        let general = |name| self.both.contains_key(name) && !own.contains_key(name);
        if general("queue") {
            link.queue = None;
        }
        if general("aqm") {
            link.aqm = None;
        }
        if general("cross") {
            link.cross = None;
        }
        if general("rate-layer") {
            link.overhead_bytes = 0;
        }
    }

    fn all(&self) -> impl Iterator<Item = (String, &String)> {
        [("", &self.both), ("up-", &self.up), ("down-", &self.down)].into_iter().flat_map(
            |(prefix, options)| {
                options.iter().map(move |(name, value)| (format!("{prefix}{name}"), value))
            },
        )
    }
}

impl Serialize for LinkOptions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.all())
    }
}

impl<'de> Deserialize<'de> for LinkOptions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(OptionTable)
    }
}

struct OptionTable;

impl<'de> Visitor<'de> for OptionTable {
    type Value = LinkOptions;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a table of link options")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<LinkOptions, A::Error> {
        let mut options = LinkOptions::default();
        while let Some((name, value)) = map.next_entry::<String, Scalar>()? {
            options.set(&name, value.text()).map_err(A::Error::custom)?;
        }
        Ok(options)
    }
}

/// A value as a document may write it.
#[derive(Deserialize)]
#[serde(untagged, expecting = "the value of a link option is a text or a number")]
enum Scalar {
    Whole(u64),
    Number(f64),
    Text(String),
}

impl Scalar {
    fn text(self) -> String {
        match self {
            Scalar::Whole(number) => number.to_string(),
            Scalar::Number(number) => number.to_string(),
            Scalar::Text(text) => text,
        }
    }
}
