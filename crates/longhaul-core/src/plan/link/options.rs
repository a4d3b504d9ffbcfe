//! The link options as text, by name, for both directions or for one.

use std::collections::BTreeMap;
use std::time::Duration;

use super::error::OptionFault;
use super::option_table::{Apply, LINK_OPTIONS};
use super::trace::ReadFile;
use super::{LinkDirection, LinkPlan, LinkPlanError};

const SEEDS: &str = "a seed is a whole number from 0 to 9007199254740991";

/// Sets of options with the same purpose: at most one of each set can be given per direction.
const EXCLUSIVE: [&[&str]; 5] = [
    &["preset", "rtt", "delay", "distance", "delay-trace", "replay"],
    &["rate", "rate-trace"],
    &["loss", "loss-ge", "loss-state", "loss-pattern", "loss-trace"],
    &["loss-burst", "loss-ge", "loss-state", "loss-pattern", "loss-trace"],
    &["loss-burst", "loss-correlation"],
];

/// Link options as text, before they become a plan.
///
/// An option for one direction takes precedence over the same option for both: with `rate` and
/// `up-rate`, up gets the value of `up-rate` and down that of `rate`. The value `none` removes an
/// option. In a document the options are a table of names and values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LinkOptions {
    both: BTreeMap<&'static str, String>,
    up: BTreeMap<&'static str, String>,
    down: BTreeMap<&'static str, String>,
}

impl LinkOptions {
    /// Returns whether `option` is the name of an option, optionally after `up-` or `down-`.
    pub fn knows(option: &str) -> bool {
        LinkOptions::default().set(option, "").is_ok()
    }

    /// Sets `option` to `value`; `option` is a name, optionally after `up-` or `down-`.
    ///
    /// # Errors
    /// The option is unknown.
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

    /// Returns whether an option for both directions was given, by name.
    pub fn has(&self, option: &str) -> bool {
        self.both.contains_key(option)
    }

    /// Returns whether no option was given.
    pub fn is_empty(&self) -> bool {
        self.both.is_empty() && self.up.is_empty() && self.down.is_empty()
    }

    /// Returns the valid plan of the options; `read` reads the files that the options name.
    ///
    /// # Errors
    /// The first invalid option.
    pub fn plan(&self, read: ReadFile) -> Result<LinkPlan, LinkPlanError> {
        let mut plan = LinkPlan::symmetric(Duration::ZERO);
        if let Some(text) = self.both.get("mtu") {
            let range = "an MTU is from 576 to 65535 bytes";
            plan.mtu = text.parse().map_err(|_| LinkPlanError::value("mtu", text, range))?;
        }
        if let Some(text) = self.both.get("queues") {
            plan.queues = text
                .parse()
                .map_err(|_| LinkPlanError::value("queues", text, "from 1 to 64 queues"))?;
        }
        if let Some(text) = self.both.get("seed") {
            let seed = text.parse().ok().filter(|seed| *seed < 1 << 53);
            plan.seed = Some(seed.ok_or_else(|| LinkPlanError::value("seed", text, SEEDS))?);
        }
        self.change_directions(plan, read)
    }

    /// Returns `plan` changed by the options, for a running link.
    ///
    /// # Errors
    /// The first option that is invalid or cannot be changed.
    pub fn change(&self, plan: &LinkPlan, read: ReadFile) -> Result<LinkPlan, LinkPlanError> {
        let given = |option: &&'static str| {
            [&self.both, &self.up, &self.down].iter().any(|options| options.contains_key(*option))
        };
        match ["mtu", "queues", "seed", "class"].into_iter().find(given) {
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
            // An option for the queues of both directions applies to the direction that has a
            // queue.
            let (link, own) = if plan.up.has_rate() {
                (&mut plan.down, &self.down)
            } else {
                (&mut plan.up, &self.up)
            };
            self.forget_queue(link, own);
        }
        resolve_classes(&mut plan.up)?;
        resolve_classes(&mut plan.down)?;
        plan.load(read)?;
        plan.validate()?;
        Ok(plan)
    }

    /// Applies the options for both directions to `link`, and then the options for this direction.
    fn apply(
        &self,
        link: &mut LinkDirection,
        prefix: &str,
        own: &BTreeMap<&'static str, String>,
    ) -> Result<(), LinkPlanError> {
        for known in &LINK_OPTIONS {
            let Apply::Direction(apply) = known.apply else { continue };
            // An option for this direction replaces all general options of its set.
            let replaced = EXCLUSIVE.iter().any(|set| {
                set.contains(&known.name) && set.iter().any(|name| own.contains_key(name))
            });
            let general = self.both.get(known.name).filter(|_| !replaced).map(|text| ("", text));
            let special = own.get(known.name).map(|text| (prefix, text));
            for (prefix, text) in general.into_iter().chain(special) {
                apply(link, text.trim())
                    .map_err(|fault| refused(fault, prefix, known.name, text))?;
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

    /// Returns the options with their prefixes.
    pub(super) fn all(&self) -> impl Iterator<Item = (String, &String)> {
        [("", &self.both), ("up-", &self.up), ("down-", &self.down)].into_iter().flat_map(
            |(prefix, options)| {
                options.iter().map(move |(name, value)| (format!("{prefix}{name}"), value))
            },
        )
    }
}

/// Returns the error of an option that cannot be applied.
fn refused(fault: OptionFault, prefix: &str, name: &'static str, text: &str) -> LinkPlanError {
    let option = format!("{prefix}{name}");
    match fault {
        OptionFault::Value(accepted) => LinkPlanError::value(&option, text, accepted),
        OptionFault::Word(word, accepted) => LinkPlanError::value(&option, word, accepted),
        OptionFault::NoUnit => LinkPlanError::NoUnit { option, value: text.to_owned() },
        OptionFault::Needs(needs) => LinkPlanError::Needs { option: name, needs },
    }
}

/// Sets the properties of the classes of `link`: those of `link`, changed by their own options.
fn resolve_classes(link: &mut LinkDirection) -> Result<(), LinkPlanError> {
    let mut classes = std::mem::take(&mut link.classes);
    for class in &mut classes {
        class.link = link.clone();
        if class.has_own_queue() {
            (class.link.queue, class.link.aqm, class.link.cross) = (None, None, None);
        }
        let known = |name: &String| {
            let options = LINK_OPTIONS.iter().filter(|known| known.per_direction);
            options.into_iter().any(|known| known.name == name && name != "class")
        };
        if let Some(option) = class.options.keys().find(|name| !known(name)) {
            return Err(LinkPlanError::Unknown { option: option.clone() });
        }
        for known in &LINK_OPTIONS {
            let Apply::Direction(apply) = known.apply else { continue };
            let Some(text) = class.options.get(known.name) else { continue };
            apply(&mut class.link, text.trim())
                .map_err(|fault| refused(fault, "", known.name, text))?;
        }
    }
    link.classes = classes;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{Aqm, Loss, NO_FILES, QueueLimit};
    use super::*;
    use crate::units::{Bytes, Rate};

    fn options(pairs: &[(&str, &str)]) -> Result<LinkOptions, LinkPlanError> {
        let mut options = LinkOptions::default();
        pairs.iter().try_for_each(|(name, value)| options.set(name, *value))?;
        Ok(options)
    }

    fn plan(pairs: &[(&str, &str)]) -> Result<LinkPlan, LinkPlanError> {
        options(pairs)?.plan(&|path| match path {
            "rate.txt" => Ok(Box::new(&b"0 10M\n5s 20M\n"[..])),
            "empty.txt" => Ok(Box::new(&b"# nothing\n"[..])),
            _ => Err(std::io::ErrorKind::NotFound.into()),
        })
    }

    #[test]
    fn the_special_goes_before_the_general_and_builds_on_it() {
        let plan = plan(&[
            ("preset", "satellite"),
            ("up-delay", "5ms"),
            ("loss", "1e-3"),
            ("down-loss-burst", "4"),
            ("down-rate", "1G"),
            ("queue", "50ms"),
            ("down-aqm", "codel"),
        ])
        .unwrap();
        assert_eq!((plan.up.delay.as_millis(), plan.down.delay.as_millis()), (5, 562));
        assert!(matches!(plan.up.loss, Some(Loss::Independent { .. })));
        assert!(matches!(plan.down.loss, Some(Loss::Bursty { mean_burst_segments: 4.0, .. })));
        // Up has no rate, so the option for the queues of both directions applies to down.
        let limit = QueueLimit::Time(Duration::from_millis(50));
        assert_eq!((plan.up.queue, plan.down.queue), (None, Some(limit)));
        assert!(matches!(plan.down.aqm, Some(Aqm::Codel { .. })));
        let rate = Rate::from_bps(8_000_000_000);
        assert_eq!(limit.bytes(rate, Bytes::new(9000)), Bytes::new(50_000_000));
        let packets = "7p".parse::<QueueLimit>().unwrap();
        assert_eq!(packets.bytes(rate, Bytes::new(9000)), Bytes::new(63_000));
    }

    #[test]
    fn each_refusal_names_the_option_and_what_it_takes() {
        for (pairs, says) in [
            (&[("loss", "1.5")][..], "loss cannot be '1.5': a probability is from 0 to 1"),
            (&[("down-mark", "-0.1")], "down-mark cannot be '-0.1'"),
            (&[("loss", "0.9"), ("loss-burst", "2")], "with loss-burst B at most B/(1+B)"),
            (&[("loss-burst", "3")], "loss-burst needs loss"),
            (
                &[("loss", "0.1"), ("loss-burst", "0.5")],
                "loss-burst cannot be '0.5': the mean length",
            ),
            (&[("loss", "0.1"), ("loss-pattern", "3")], "loss and loss-pattern contradict"),
            (&[("up-rate", "1G"), ("up-rate-trace", "rate.txt")], "up-rate and up-rate-trace"),
            (&[("distance", "10km"), ("rtt", "1ms")], "rtt and distance contradict"),
            (&[("rate", "0")], "a rate of 0.00 b/s is below"),
            (&[("queue", "50ms")], "queue needs rate"),
            (&[("rate", "1G"), ("queue", "0")], "queue cannot be '0 B'"),
            (&[("rate", "1G"), ("queue", "2h")], "queue cannot be '2h'"),
            (&[("rate", "1G"), ("cross", "2G")], "cross cannot be '2.00 Gb/s'"),
            (&[("rate", "1G"), ("rate-layer", "wire:5000")], "rate-layer cannot be 'wire:5000'"),
            (&[("rate", "1G"), ("aqm", "red")], "aqm cannot be 'red'"),
            (&[("rate", "1G"), ("aqm", "red:9ms:3ms")], "aqm cannot be 'red'"),
            (&[("rate", "1G"), ("aqm", "red:3ms:9kB")], "aqm cannot be 'red'"),
            (&[("rate", "1G"), ("queue", "0p")], "queue cannot be '0p'"),
            (&[("police", "1G")], "police cannot be '1G'"),
            (&[("police", "1G:4kB")], "police cannot be '1.00 Gb/s:3.91 KiB'"),
            (&[("slot", "3ms-1ms")], "slot cannot be '3ms-1ms'"),
            (&[("slot", "3ms:0")], "slot cannot be '3ms-3ms:0'"),
            (&[("ber", "2")], "ber cannot be '2'"),
            (&[("loss-ge", "0.1:2")], "loss-ge cannot be '0.1:2'"),
            (&[("loss-ge", "0.1:0.1:0:0:0")], "loss-ge cannot be"),
            (&[("loss-state", "0.6:0.3:0.1:0.5:0.5")], "loss-state cannot be '0.6 and 0.5'"),
            (&[("loss-correlation", "0.3")], "loss-correlation needs loss"),
            (&[("loss", "0.1"), ("loss-ge", "0.1")], "loss and loss-ge contradict"),
            (&[("netem", "delay 1ms gravity")], "netem cannot be 'gravity'"),
            (&[("jitter", "20s")], "jitter cannot be '20s'"),
            (&[("reorder", "0.1:0")], "reorder cannot be '0.1:0'"),
            (&[("outage", "5s+0s")], "outage cannot be '5s+0ms'"),
            (&[("loss-trace", "gone.txt")], "loss-trace gone.txt: the file cannot be read"),
            (&[("rate-trace", "empty.txt")], "rate-trace empty.txt: the file has no entries"),
            (&[("class", "vlan 3")], "class cannot be 'vlan 3'"),
            (&[("class", "tcp: gravity 3")], "there is no link option 'gravity'"),
            (&[("class", "tcp: delay 3")], "delay = 3 has no unit"),
            (&[("class", "tcp: queue 3ms")], "queue needs rate"),
            (&[("class", "tcp: priority 3")], "priority needs rate"),
            (&[("rate", "1G"), ("class", "tcp: priority 9")], "priority cannot be '9'"),
            (
                &[("rate", "1G"), ("aqm", "fq-codel"), ("class", "tcp: priority 3")],
                "priority and aqm contradict",
            ),
            (&[("rate", "1G"), ("aqm", "fq-codel"), ("cross", "1M")], "cross and aqm contradict"),
            (&[("rate", "1G"), ("aqm", "dualpi2:0s")], "aqm cannot be 'dualpi2:0ms'"),
            (&[("queues", "many")], "queues cannot be 'many'"),
            (&[("queues", "99")], "queues cannot be '99'"),
            (&[("queues", "2"), ("up-rate", "1G")], "queues and rate contradict"),
            (&[("queues", "2"), ("loss-pattern", "3")], "queues and loss-pattern contradict"),
            (&[("queues", "2"), ("class", "tcp: delay 3ms")], "queues and class contradict"),
            (&[("seed", "-1")], "seed cannot be '-1'"),
            (&[("up-seed", "1")], "there is no link option 'up-seed'"),
            (&[("gravity", "1")], "there is no link option 'gravity'"),
        ] {
            let error = plan(pairs).unwrap_err().to_string();
            assert!(error.starts_with(says) || error.contains(says), "{pairs:?}: {error}");
        }
    }

    #[test]
    fn a_running_link_takes_changes_and_none_takes_an_option_away() {
        for name in ["rtt", "delay", "distance", "preset"] {
            let removed = plan(&[(name, "none")]).unwrap();
            assert_eq!(removed.rtt(), Duration::ZERO, "{name}");
        }
        let before = plan(&[("rtt", "20ms"), ("rate", "1G"), ("queue", "5ms"), ("loss", "0.1")]);
        let changes =
            options(&[("up-rate", "2G"), ("queue", "none"), ("loss", "none"), ("delay", "7ms")]);
        let after = changes.unwrap().change(before.as_ref().unwrap(), NO_FILES).unwrap();
        assert_eq!(after.up.rate_bps, Some(Rate::from_bps(2_000_000_000)));
        assert_eq!(after.down.rate_bps, Some(Rate::from_bps(1_000_000_000)));
        assert_eq!((after.up.queue, &after.down.loss), (None, &None));
        assert_eq!(after.rtt(), Duration::from_millis(14));
        let fixed = options(&[("mtu", "1500")]).unwrap();
        let error = fixed.change(&after, NO_FILES).unwrap_err().to_string();
        assert!(error.contains("mtu of a running link cannot be changed"), "{error}");
    }
}
