//! The table of link options and their effect on a direction.

use std::time::Duration;

use super::capacity::RATE_LAYER_FORM;
use super::class::parse_classes;
use super::error::OptionFault;
use super::option_value::{NONE, delay, named, optional, probability, set_delay};
use super::preset::DISTANCE_EXAMPLE;
use super::{
    Aqm, CrossTraffic, ETHERNET_OVERHEAD, LinkClass, LinkDirection, Loss, Outage, Policer, Preset,
    QueueLimit, Reorder, SegmentSet, Slots, fiber_delay, netem,
};

/// A link option with its name and help text.
#[derive(Debug, Clone, Copy)]
pub struct LinkOption {
    /// The name without dashes.
    pub name: &'static str,
    /// The placeholder of the value in a help text.
    pub value: &'static str,
    /// The description in a help text, one line.
    pub help: &'static str,
    /// True if the option can be set for one direction, as `up-NAME` or `down-NAME`.
    pub per_direction: bool,
    pub(super) apply: Apply,
}

/// The effect of an option.
#[derive(Debug, Clone, Copy)]
pub(super) enum Apply {
    /// Changes a direction.
    Direction(fn(&mut LinkDirection, &str) -> Result<(), OptionFault>),
    Mtu,
    Queues,
    Seed,
}

const RATE: &str = "a rate from 1 kb/s, such as 10G or 2.5M (bit/s), or none";

/// All link options. An option that depends on another one, such as the burst length on the loss
/// rate, follows it. Options that set a whole path come first.
pub static LINK_OPTIONS: [LinkOption; 35] = [
    direction(
        "netem",
        "LINE",
        "The options of a 'tc qdisc add ... netem ...' line, or of its part after 'netem'",
        netem::apply,
    ),
    direction(
        "preset",
        "PATH",
        "The round trip of lan (0.1 ms), man (15), wan (90), transatlantic (180) or satellite (1124 ms)",
        |link, text| {
            if text == NONE {
                return set_delay(link, Duration::ZERO);
            }
            let preset = Preset::named(text).ok_or(Preset::FORM)?;
            set_delay(link, preset.rtt() / 2)
        },
    ),
    LinkOption {
        per_direction: false,
        ..direction(
            "rtt",
            "TIME",
            "Round-trip time, split evenly between the directions",
            |link, text| set_delay(link, delay(text)? / 2),
        )
    },
    direction("delay", "TIME", "One-way delay of each direction", |link, text| {
        set_delay(link, delay(text)?)
    }),
    direction(
        "distance",
        "LENGTH",
        "One-way delay of a length of fiber, such as 8600mi or 1400km",
        |link, text| {
            let delay = if text == NONE { Some(Duration::ZERO) } else { fiber_delay(text) };
            set_delay(link, delay.ok_or(DISTANCE_EXAMPLE)?)
        },
    ),
    direction(
        "delay-trace",
        "FILE",
        "One-way delay over time: lines of 'TIME DELAY'",
        |link, text| {
            link.delay = Duration::ZERO;
            (link.replay, link.replayed_rates) = (None, None);
            link.delay_trace = named(text);
            Ok(())
        },
    ),
    direction(
        "replay",
        "FILE",
        "Delay, loss, reordering and capacity of a path that 'longhaul path --record' recorded",
        |link, text| {
            link.delay = Duration::ZERO;
            link.delay_trace = None;
            if link.replayed_rates.is_some() {
                link.forget_rate();
            }
            link.replay = named(text);
            Ok(())
        },
    ),
    direction(
        "jitter",
        "SPREAD[:DIST]",
        "Vary the delay: 1ms:normal, :uniform or :pareto, or file:PATH; ':reorder' lets segments overtake",
        |link, text| {
            link.jitter = optional(text, str::parse)?;
            Ok(())
        },
    ),
    direction(
        "reorder",
        "P[:EXTENT]",
        "Hold segments back until 3 (or EXTENT) later ones have left, or for a time such as 5ms",
        |link, text| {
            link.reorder = optional(text, str::parse)?.filter(|r: &Reorder| !r.rate.is_zero());
            Ok(())
        },
    ),
    direction(
        "rate",
        "RATE",
        "Capacity, such as 10G (bit/s); without it, as fast as this machine forwards",
        |link, text| {
            let rate = optional(text, |text| text.parse().map_err(|_| RATE))?;
            link.forget_rate();
            link.rate_bps = rate;
            Ok(())
        },
    ),
    direction(
        "rate-trace",
        "FILE",
        "Capacity over time: lines of 'TIME RATE', or Mahimahi's format",
        |link, text| {
            link.forget_rate();
            link.rate_trace = named(text);
            Ok(())
        },
    ),
    direction(
        "rate-layer",
        "LAYER",
        "Layer of the rate: ip, wire (38 more bytes per packet) or wire:BYTES",
        |link, text| {
            link.overhead_bytes = match text.split_once(':') {
                None if text == "ip" || text == NONE => 0,
                None if text == "wire" => ETHERNET_OVERHEAD,
                Some(("wire", bytes)) => bytes.parse().map_err(|_| RATE_LAYER_FORM)?,
                _ => return Err(RATE_LAYER_FORM.into()),
            };
            Ok(())
        },
    ),
    direction(
        "queue",
        "LIMIT",
        "Limit of the queue, such as 64MiB, 50ms or 1000p (packets); by default the bytes of one round trip",
        |link, text| {
            link.queue = optional(text, |text| text.parse::<QueueLimit>())?;
            Ok(())
        },
    ),
    direction(
        "aqm",
        "KIND",
        "Manage the queue by codel, fq-codel, pie, dualpi2 (each with :TARGET) or red:MIN:MAX[:P]; marks where ECN allows",
        |link, text| {
            link.aqm = optional(text, |text| text.parse::<Aqm>())?;
            Ok(())
        },
    ),
    direction(
        "cross",
        "RATE[:BURST]",
        "Other traffic in the queue, as mean rate and mean burst size, such as 2G:256KiB",
        |link, text| {
            link.cross = optional(text, |text| text.parse::<CrossTraffic>())?;
            Ok(())
        },
    ),
    direction(
        "police",
        "RATE:BURST",
        "Drop packets that exceed a token bucket, such as 1G:4MB, without a queue",
        |link, text| {
            link.police = optional(text, |text| text.parse::<Policer>())?;
            Ok(())
        },
    ),
    direction("loss", "P", "Share of lost segments, such as 1e-4 or 0.01%", |link, text| {
        let rate = probability(text)?;
        link.loss = match link.loss.take() {
            _ if rate.is_zero() => None,
            Some(Loss::Bursty { mean_burst_segments, .. }) => {
                Some(Loss::Bursty { rate, mean_burst_segments })
            }
            Some(Loss::Correlated { correlation, .. }) => {
                Some(Loss::Correlated { rate, correlation })
            }
            _ => Some(Loss::Independent { rate }),
        };
        Ok(())
    }),
    direction("loss-burst", "MEAN", "Lose segments in bursts of this mean length", |link, text| {
        const FORM: &str = "the mean length of a burst is from 1 to 1e9 segments";
        let rate = link.loss.as_ref().and_then(Loss::rate);
        let mean: Option<f64> = optional(text, |text| text.parse().map_err(|_| FORM))?;
        link.loss = match (rate, mean) {
            (None, None) => return Ok(()),
            (None, Some(_)) => return Err(OptionFault::Needs("loss")),
            (Some(rate), None) => Some(Loss::Independent { rate }),
            (Some(rate), Some(mean_burst_segments)) => {
                Some(Loss::Bursty { rate, mean_burst_segments })
            }
        };
        Ok(())
    }),
    direction(
        "loss-correlation",
        "P",
        "Correlation of successive random numbers, as netem computes it",
        |link, text| {
            let rate = link.loss.as_ref().and_then(Loss::rate);
            link.loss = match (rate, probability(text)?) {
                (None, p) if p.is_zero() => return Ok(()),
                (None, _) => return Err(OptionFault::Needs("loss")),
                (Some(rate), p) if p.is_zero() => Some(Loss::Independent { rate }),
                (Some(rate), correlation) => Some(Loss::Correlated { rate, correlation }),
            };
            Ok(())
        },
    ),
    direction(
        "loss-ge",
        "P[:R[:1-H[:1-K]]]",
        "Lose segments by a Gilbert-Elliott channel: P to bad, P to good, loss in bad, loss in good",
        |link, text| {
            link.loss = optional(text, Loss::parse_gilbert_elliott)?;
            Ok(())
        },
    ),
    direction(
        "loss-state",
        "P13[:P31[:P32[:P23[:P14]]]]",
        "Lose segments by netem's chain of four states",
        |link, text| {
            link.loss = optional(text, Loss::parse_four_state)?;
            Ok(())
        },
    ),
    direction(
        "loss-pattern",
        "LIST",
        "Lose these segments, counted from 1: 3,17,100-105, or of every 1000: 5-9/1000",
        |link, text| {
            let set: Option<SegmentSet> =
                optional(text, |text| text.parse().map_err(|_| SegmentSet::FORM))?;
            link.loss = set.map(|segments| Loss::Pattern { segments });
            Ok(())
        },
    ),
    direction(
        "loss-trace",
        "FILE",
        "Lose the segments marked 1 in a file of 0 and 1, repeatedly",
        |link, text| {
            link.loss = named(text).map(Loss::Trace);
            Ok(())
        },
    ),
    direction(
        "ber",
        "P",
        "Bit-error rate, such as 1e-12: a segment with a wrong bit is dropped",
        |link, text| {
            link.bit_errors = probability(text)?;
            Ok(())
        },
    ),
    direction(
        "corrupt",
        "P",
        "Share of segments damaged so that TCP and UDP drop them",
        |link, text| {
            link.corrupt = probability(text)?;
            Ok(())
        },
    ),
    direction(
        "corrupt-silent",
        "P",
        "Share of segments damaged with a matching checksum",
        |link, text| {
            link.corrupt_silent = probability(text)?;
            Ok(())
        },
    ),
    direction("duplicate", "P", "Share of segments that arrive twice", |link, text| {
        link.duplicate = probability(text)?;
        Ok(())
    }),
    direction("mark", "P", "Share of ECN-capable segments that the link marks CE", |link, text| {
        link.mark_ce = probability(text)?;
        Ok(())
    }),
    direction(
        "slot",
        "TIME[-TIME][:N[:BYTES]]",
        "Deliver in slots at this interval or a random one, at most N segments and BYTES per slot",
        |link, text| {
            link.slots = optional(text, |text| text.parse::<Slots>())?;
            Ok(())
        },
    ),
    direction(
        "outage",
        "START+LENGTH[/EVERY]",
        "Take the link down once or periodically: 10s+2s, 10s+500ms/30s, several with commas",
        |link, text| {
            link.outages = optional(text, Outage::parse_list)?.unwrap_or_default();
            Ok(())
        },
    ),
    direction(
        "priority",
        "N",
        "Precedence in the queue, from 0 (default, last) to 7 (first); for a class",
        |link, text| {
            const FORM: &str = "a priority is from 0 to 7, and the highest is served first";
            link.priority = optional(text, |text| text.parse().map_err(|_| FORM))?.unwrap_or(0);
            Ok(())
        },
    ),
    direction(
        "class",
        "MATCH",
        "Packets to treat differently, such as 'dscp 46'; the link options after it are those of the class",
        |link, text| {
            let classes = optional(text, parse_classes)?.unwrap_or_default();
            let class =
                |(matches, options)| LinkClass { matches, options, link: LinkDirection::default() };
            link.classes = classes.into_iter().map(class).collect();
            Ok(())
        },
    ),
    LinkOption {
        name: "mtu",
        value: "BYTES",
        help: "Largest IP packet, 576 to 65535 bytes; 9000 by default",
        per_direction: false,
        apply: Apply::Mtu,
    },
    LinkOption {
        name: "queues",
        value: "N",
        help: "Number of queues of the interfaces, each with a thread per direction; 1 by default",
        per_direction: false,
        apply: Apply::Queues,
    },
    LinkOption {
        name: "seed",
        value: "N",
        help: "Seed of all random decisions; random by default, and stated in the report",
        per_direction: false,
        apply: Apply::Seed,
    },
];

const fn direction(
    name: &'static str,
    value: &'static str,
    help: &'static str,
    apply: fn(&mut LinkDirection, &str) -> Result<(), OptionFault>,
) -> LinkOption {
    LinkOption { name, value, help, per_direction: true, apply: Apply::Direction(apply) }
}
