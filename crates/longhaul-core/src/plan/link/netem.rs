//! Reads the options of Linux's netem, as tc(8) takes them, into a direction of a link.
//!
//! The grammar, the units and the defaults are those of `tc/q_netem.c` in iproute2. An option
//! without an equivalent is an error: a link that differs silently would be worse.

use std::iter::Peekable;
use std::str::SplitWhitespace;
use std::time::Duration;

use super::error::OptionFault;
use super::{DelayDistribution, Jitter, LinkDirection, Loss, Probability, QueueLimit, Slots};
use crate::units::{Bytes, Rate};

type Words<'a> = Peekable<SplitWhitespace<'a>>;

const KNOWN: &str =
    "the options are delay, distribution, loss, corrupt, duplicate, rate, limit and slot";
const TIME: &str =
    "a time is a number with s, ms, us or ns: versions of tc differ in the unit of a bare number";
const PERCENT: &str = "a percentage is from 0% to 100%";
const RATE: &str = "a rate is a number with bit, kbit, mbit, gbit or tbit, or with bps and its multiples for bytes";
const COUNT: &str = "a number is missing or malformed";
const CORRELATION: &str = "the link has correlation only for loss: omit it";
const REORDER: &str =
    "netem sends these packets without delay; use the link's own option to hold packets back";
const ECN: &str = "netem marks instead of dropping; use the link's own options to mark";
const OTHER: &str = "this tc command does not contain 'netem'";
const SEED: &str = "the seed belongs to the link, not to a direction";
const CELLS: &str = "the link has no cells: give only an overhead from 0 to 1000 bytes per packet";
const SHAPES: &str = "the distributions are uniform, normal and pareto";
const NO_DELAY: &str = "a distribution needs a delay and its variation";
const SLOTS: &str =
    "a slot has a least and a longest time with units: slot 800us 1ms packets 32 bytes 64k";
const SLOT_SHAPES: &str =
    "the link has only uniform distributions of slots: give the least and the longest time";

/// The standard deviation of netem's Pareto distribution, before its table is cut off, in multiples
/// of the jitter: `netem/pareto.c` in iproute2 scales a variable with the standard deviation
/// sqrt(3)/2 by 4/3.
const PARETO_DEVIATION: f64 = 1.154_700_538_379_251_5;

/// The limit of netem if none is given, in packets.
const DEFAULT_LIMIT: u32 = 1000;

/// Applies the options of `line` to `link`: a whole command of tc, or its part after `netem`.
pub(super) fn apply(link: &mut LinkDirection, line: &str) -> Result<(), OptionFault> {
    let options = line.split_once("netem ").map_or(line, |(_, options)| options);
    let mut words = options.split_whitespace().peekable();
    if words.peek().is_none() {
        return Err(fault(line, KNOWN));
    }
    let mut limit = None;
    let (mut has_delay, mut has_rate) = (false, false);
    let mut shape = None;
    while let Some(word) = words.next() {
        let read = match word {
            "delay" | "latency" => delay(link, &mut words).map(|()| has_delay = true),
            "distribution" => next(&mut words, SHAPES).map(|name| shape = Some(name)),
            "loss" | "drop" => loss(link, &mut words),
            "corrupt" => share(&mut words).map(|share| link.corrupt = share),
            "duplicate" => share(&mut words).map(|share| link.duplicate = share),
            "rate" => rate(link, &mut words).map(|()| has_rate = true),
            "limit" => packets(&mut words).map(|packets| limit = Some(packets)),
            "slot" => slot(link, &mut words),
            "reorder" | "gap" => Err(fault(word, REORDER)),
            "ecn" => Err(fault(word, ECN)),
            "seed" => Err(fault(word, SEED)),
            "tc" | "qdisc" => Err(fault(word, OTHER)),
            other => Err(fault(other, KNOWN)),
        };
        read.map_err(|fault| naming(word, fault))?;
    }
    // tc accepts the options in any order.
    if let Some(shape) = shape {
        distribution(link, shape)?;
    }
    if has_rate && has_delay {
        // With a rate, netem adds each packet to the end of its queue, so no packet overtakes another
        // (`netem_enqueue` in net/sched/sch_netem.c).
        link.jitter = link.jitter.take().map(|jitter| Jitter { reorder: false, ..jitter });
    }
    let limit = limit.or(has_rate.then_some(DEFAULT_LIMIT));
    if let Some(limit) = limit.filter(|_| link.has_rate()) {
        link.queue = Some(QueueLimit::Segments(limit));
    }
    Ok(())
}

fn fault(word: &str, accepted: &'static str) -> OptionFault {
    OptionFault::Word(word.to_owned(), accepted)
}

/// Returns the fault, with the name of the option `word` if its value is missing.
fn naming(word: &str, fault: OptionFault) -> OptionFault {
    match fault {
        OptionFault::Word(missing, accepted) if missing.is_empty() => {
            OptionFault::Word(word.to_owned(), accepted)
        }
        other => other,
    }
}

fn is_number(word: &&str) -> bool {
    word.starts_with(|first: char| first.is_ascii_digit() || first == '.')
}

fn next<'a>(words: &mut Words<'a>, accepted: &'static str) -> Result<&'a str, OptionFault> {
    words.next().ok_or(fault("", accepted))
}

/// Rejects a number that would be a correlation, except zero.
fn no_correlation(words: &mut Words) -> Result<(), OptionFault> {
    match words.next_if(is_number) {
        Some(word) if percent(word)?.get() > 0.0 => Err(fault(word, CORRELATION)),
        _ => Ok(()),
    }
}

/// netem delays by the uniform distribution if none is given, and lets packets overtake.
fn delay(link: &mut LinkDirection, words: &mut Words) -> Result<(), OptionFault> {
    link.delay_trace = None;
    link.delay = time(next(words, TIME)?)?;
    if let Some(word) = words.next_if(is_number) {
        let spread = Some(time(word)?).filter(|spread| !spread.is_zero());
        link.jitter = spread
            .map(|spread| Jitter { spread: DelayDistribution::Uniform { spread }, reorder: true });
    }
    no_correlation(words)
}

fn distribution(link: &mut LinkDirection, name: &str) -> Result<(), OptionFault> {
    let Some(Jitter { spread: DelayDistribution::Uniform { spread }, .. }) = link.jitter else {
        return Err(fault(name, NO_DELAY));
    };
    let spread = match name {
        "uniform" => DelayDistribution::Uniform { spread },
        "normal" => DelayDistribution::Normal { spread },
        "pareto" => DelayDistribution::Pareto { spread: spread.mul_f64(PARETO_DEVIATION) },
        _ => return Err(fault(name, SHAPES)),
    };
    link.jitter = Some(Jitter { spread, reorder: true });
    Ok(())
}

fn loss(link: &mut LinkDirection, words: &mut Words) -> Result<(), OptionFault> {
    let kind = words.next_if(|word| !is_number(word)).unwrap_or("random");
    link.loss = Some(match kind {
        "random" => {
            let rate = percent(next(words, PERCENT)?)?;
            match words.next_if(is_number).map(percent).transpose()? {
                Some(correlation) => Loss::Correlated { rate, correlation },
                None => Loss::Independent { rate },
            }
        }
        "gemodel" => chain(words, Loss::parse_gilbert_elliott)?,
        "state" => chain(words, Loss::parse_four_state)?,
        other => return Err(fault(other, "losses are random, state or gemodel")),
    });
    Ok(())
}

/// Reads the percentages of a chain.
fn chain(
    words: &mut Words,
    parse: fn(&str) -> Result<Loss, &'static str>,
) -> Result<Loss, OptionFault> {
    let mut shares = Vec::new();
    while let Some(word) = words.next_if(is_number) {
        shares.push(percent(word)?.get().to_string());
    }
    let text = shares.join(":");
    parse(&text).map_err(|accepted| fault(&text, accepted))
}

fn share(words: &mut Words) -> Result<Probability, OptionFault> {
    let share = percent(next(words, PERCENT)?)?;
    no_correlation(words)?;
    Ok(share)
}

fn rate(link: &mut LinkDirection, words: &mut Words) -> Result<(), OptionFault> {
    link.forget_rate();
    link.rate_bps = Some(bits_per_second(next(words, RATE)?)?);
    let signed = |word: &&str| is_number(word) || word.starts_with('-');
    if let Some(word) = words.next_if(signed) {
        link.overhead_bytes = word.parse().map_err(|_| fault(word, CELLS))?;
    }
    // The size of a cell and its overhead; zero means that there are no cells.
    for _ in 0..2 {
        if let Some(word) = words.next_if(signed).filter(|word| *word != "0") {
            return Err(fault(word, CELLS));
        }
    }
    Ok(())
}

fn slot(link: &mut LinkDirection, words: &mut Words) -> Result<(), OptionFault> {
    if words.next_if_eq(&"distribution").is_some() {
        return Err(fault("slot distribution", SLOT_SHAPES));
    }
    let least = slot_time(words.next_if(is_number).ok_or(fault("slot", SLOTS))?)?;
    let most = words.next_if(is_number).map(slot_time).transpose()?.unwrap_or(least);
    let segments = words.next_if_eq(&"packets").map(|_| count(words)).transpose()?;
    let bytes = words.next_if_eq(&"bytes").map(|_| size(words)).transpose()?;
    // netem takes zero as no limit.
    link.slots = Some(Slots {
        least,
        most,
        segments: segments.filter(|segments| *segments > 0),
        bytes: bytes.filter(|bytes| bytes.get() > 0),
    });
    Ok(())
}

/// Reads a time of a slot.
fn slot_time(word: &str) -> Result<Duration, OptionFault> {
    time(word).map_err(|_| fault(word, SLOTS))
}

/// Reads a number of packets, which has the units of a size.
fn packets(words: &mut Words) -> Result<u32, OptionFault> {
    let word = words.peek().copied().unwrap_or_default();
    u32::try_from(size(words)?.get()).map_err(|_| fault(word, COUNT))
}

/// Splits a word into its number and its unit in lower case.
fn number(word: &str) -> Option<(f64, String)> {
    let end = word.find(|c: char| c.is_ascii_alphabetic() || c == '%').unwrap_or(word.len());
    let (number, unit) = word.split_at(end);
    let number = number.parse().ok().filter(|number: &f64| *number >= 0.0)?;
    Some((number, unit.to_ascii_lowercase()))
}

/// Reads a time. A number without a unit is in microseconds for `get_time`, which older versions of tc
/// use, and in nanoseconds for `get_time64`, which newer versions use (lib/utils_math.c).
fn time(word: &str) -> Result<Duration, OptionFault> {
    let seconds = number(word).and_then(|(number, unit)| {
        let scale = match unit.as_str() {
            "s" | "sec" | "secs" => 1.0,
            "ms" | "msec" | "msecs" => 1e-3,
            "us" | "usec" | "usecs" => 1e-6,
            "ns" | "nsec" | "nsecs" => 1e-9,
            "" if number == 0.0 => 0.0,
            _ => return None,
        };
        Duration::try_from_secs_f64(number * scale).ok()
    });
    seconds.ok_or_else(|| fault(word, TIME))
}

/// Reads a percentage, with or without its sign.
fn percent(word: &str) -> Result<Probability, OptionFault> {
    let share = number(word).filter(|(_, unit)| matches!(unit.as_str(), "" | "%"));
    share
        .and_then(|(number, _)| Probability::try_from(number / 100.0).ok())
        .ok_or_else(|| fault(word, PERCENT))
}

/// Reads a rate (`get_rate64` in tc/tc_util.c): `bps` counts bytes, and `i` means powers of 1024.
fn bits_per_second(word: &str) -> Result<Rate, OptionFault> {
    let rate = number(word).and_then(|(number, unit)| {
        let (prefix, bits) = match unit.strip_suffix("bps") {
            Some(prefix) => (prefix, 8.0),
            None => (unit.strip_suffix("bit").unwrap_or(&unit), 1.0),
        };
        let power = match prefix.trim_end_matches('i') {
            "" => 0,
            "k" => 1,
            "m" => 2,
            "g" => 3,
            "t" => 4,
            _ => return None,
        };
        let base: f64 = if prefix.ends_with('i') { 1024.0 } else { 1000.0 };
        Some(Rate::from_bps((number * bits * base.powi(power)).round() as u64))
    });
    rate.ok_or_else(|| fault(word, RATE))
}

fn count(words: &mut Words) -> Result<u32, OptionFault> {
    let word = next(words, COUNT)?;
    word.parse().map_err(|_| fault(word, COUNT))
}

/// Reads a size (`get_size` in lib/utils_math.c), whose prefixes are powers of 1024.
fn size(words: &mut Words) -> Result<Bytes, OptionFault> {
    let word = next(words, COUNT)?;
    let size = number(word).and_then(|(number, unit)| {
        let scale = match unit.as_str() {
            "" | "b" => 1.0,
            "k" | "kb" => 1024.0,
            "m" | "mb" => 1_048_576.0,
            "g" | "gb" => 1_073_741_824.0,
            "kbit" => 128.0,
            "mbit" => 131_072.0,
            "gbit" => 134_217_728.0,
            _ => return None,
        };
        Some(Bytes::new((number * scale) as u64))
    });
    size.ok_or_else(|| fault(word, COUNT))
}

#[cfg(test)]
mod tests {
    use super::super::{LinkOptions, LinkPlan, NO_FILES};
    use super::*;

    fn plan(line: &str) -> Result<LinkPlan, String> {
        let mut options = LinkOptions::default();
        options.set("up-netem", line).unwrap();
        options.plan(NO_FILES).map_err(|error| error.to_string())
    }

    #[track_caller]
    fn same(line: &str, options: &[(&str, &str)]) {
        let mut ours = LinkOptions::default();
        for (name, value) in options {
            ours.set(&format!("up-{name}"), *value).unwrap();
        }
        assert_eq!(plan(line).unwrap(), ours.plan(NO_FILES).unwrap(), "{line}");
    }

    #[test]
    fn a_line_has_the_meaning_that_tc_gives_it() {
        same("tc qdisc add dev eth0 root netem delay 100ms", &[("delay", "100ms")]);
        same("latency 1000us limit 50000", &[("delay", "1ms")]);
        same("delay 5msec 0", &[("delay", "5ms")]);
        same("delay 100ms 10ms", &[("delay", "100ms"), ("jitter", "10ms:uniform:reorder")]);
        same(
            "delay 100ms 10ms distribution normal loss 1%",
            &[("delay", "100ms"), ("jitter", "10ms:normal:reorder"), ("loss", "0.01")],
        );
        same(
            "delay 100ms 30ms distribution pareto",
            &[("delay", "100ms"), ("jitter", "34.641016ms:pareto:reorder")],
        );
        same("loss 0.3% 25%", &[("loss", "0.3%"), ("loss-correlation", "25%")]);
        same("loss random 10", &[("loss", "0.1")]);
        same("loss gemodel 1% 10% 70% 0.1%", &[("loss-ge", "0.01:0.1:0.7:0.001")]);
        same("loss gemodel 2%", &[("loss-ge", "0.02:0.98:1:0")]);
        same("loss state 1% 30% 5% 50% 0.5%", &[("loss-state", "0.01:0.3:0.05:0.5:0.005")]);
        same("loss state 3%", &[("loss-state", "0.03:0.97:0:1:0")]);
        same("duplicate 1% corrupt 0.1%", &[("duplicate", "0.01"), ("corrupt", "0.001")]);
        same("rate 5mbit", &[("rate", "5M"), ("queue", "1000p")]);
        same(
            "rate 1mbps 20 limit 30",
            &[("rate", "8M"), ("rate-layer", "wire:20"), ("queue", "30p")],
        );
        same(
            "delay 10ms 2ms rate 5mbit",
            &[("delay", "10ms"), ("jitter", "2ms:uniform"), ("rate", "5M"), ("queue", "1000p")],
        );
        same("rate 1Mibit", &[("rate", "1048576"), ("queue", "1000p")]);
        same("slot 800us 1ms packets 32 bytes 64k", &[("slot", "800us-1ms:32:64KiB")]);
        same("slot 10ms", &[("slot", "10ms")]);
        same(
            "distribution normal delay 100ms 10ms 0%",
            &[("delay", "100ms"), ("jitter", "10ms:normal:reorder")],
        );
        same("delay 20ms 0ms", &[("delay", "20ms")]);
        same("rate 5mbit 0 0 0 limit 2k", &[("rate", "5M"), ("queue", "2048p")]);
        same("duplicate 1% 0%", &[("duplicate", "0.01")]);
    }

    #[test]
    fn a_line_changes_only_what_it_contains_on_a_running_link() {
        let before = plan("rate 5mbit limit 30 loss 1%").unwrap();
        let change = |line: &str| {
            let mut options = LinkOptions::default();
            options.set("up-netem", line).unwrap();
            options.change(&before, NO_FILES).unwrap()
        };
        let mut expected = before.clone();
        expected.up.delay = Duration::from_millis(10);
        assert_eq!(change("delay 10ms"), expected);
        let changed = change("limit 40").up;
        assert_eq!((changed.queue, changed.loss), (Some(QueueLimit::Segments(40)), before.up.loss));
    }

    #[test]
    fn an_option_without_an_equivalent_is_an_error_that_names_the_word() {
        for (line, word, says) in [
            ("delay 100ms 10ms 25%", "25%", "correlation only for loss"),
            ("delay 10ms reorder 25% 50%", "reorder", "hold packets back"),
            ("loss 1% ecn", "ecn", "netem marks"),
            ("tc qdisc add dev eth0 root tbf rate 1mbit", "tc", "does not contain 'netem'"),
            ("rate 5mbit 20 100 5", "100", "no cells"),
            ("rate 5mbit -20", "-20", "no cells"),
            ("rate fast", "fast", "a rate is"),
            ("slot distribution pareto 1ms 1ms", "slot distribution", "only uniform"),
            ("slot 800 1000", "800", "with units"),
            ("delay 10ms reorder 25% gap 5", "reorder", "hold packets back"),
            ("gap 5", "gap", "hold packets back"),
            ("bursting 1ms", "bursting", "the options are delay"),
            ("corrupt 1% 5%", "5%", "correlation only for loss"),
            ("duplicate 1% 5%", "5%", "correlation only for loss"),
            (
                "delay 10ms 1ms distribution experimental",
                "experimental",
                "uniform, normal and pareto",
            ),
            ("rate 50%", "50%", "a rate is"),
            ("distribution normal", "normal", "needs a delay"),
            (
                "delay 10ms 1ms distribution paretonormal",
                "paretonormal",
                "uniform, normal and pareto",
            ),
            ("loss state 60% 30% 0% 50% 50%", "0.6 and 0.5", "P13 + P14"),
            ("loss 120%", "120%", "from 0% to 100%"),
            ("delay", "delay", "ms, us or ns"),
            ("delay 1000", "1000", "unit of a bare number"),
            ("delay 1ms 1000", "1000", "unit of a bare number"),
            ("delay 1ms loss", "loss", "from 0% to 100%"),
            ("limit", "limit", "missing"),
            ("delay 1ms 1ms distribution", "distribution", "uniform, normal and pareto"),
            ("", "", "the options are delay"),
            ("delay ten", "ten", "ms, us or ns"),
            ("limit -1", "-1", "malformed"),
            ("gravity 9.81", "gravity", "the options are delay"),
            ("seed 5", "seed", "belongs to the link"),
        ] {
            let error = plan(line).unwrap_err();
            assert!(
                error.contains(&format!("'{word}'")) && error.contains(says),
                "{line}: {error}"
            );
        }
    }
}
