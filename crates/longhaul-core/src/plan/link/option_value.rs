//! The values of link options: how their text is read.

use std::time::Duration;

use super::error::OptionFault;
use super::{LinkDirection, Probability, Trace, TraceFile};
use crate::units::{UnitError, parse_delay};

const SPAN: &str = "a time of at most 30s, such as 90ms or 1.5s";

/// The value that removes an option.
pub(super) const NONE: &str = "none";

/// Parses a delay; [`NONE`] is zero.
pub(super) fn delay(text: &str) -> Result<Duration, OptionFault> {
    if text == NONE {
        return Ok(Duration::ZERO);
    }
    parse_delay(text).map_err(|error| match error {
        UnitError::NoUnit { .. } => OptionFault::NoUnit,
        _ => SPAN.into(),
    })
}

/// Sets a constant delay.
pub(super) fn set_delay(link: &mut LinkDirection, delay: Duration) -> Result<(), OptionFault> {
    link.delay_trace = None;
    (link.replay, link.replayed_rates) = (None, None);
    link.delay = delay;
    Ok(())
}

/// Parses a probability; [`NONE`] is zero.
pub(super) fn probability(text: &str) -> Result<Probability, &'static str> {
    optional(text, |text| text.parse().map_err(|_| Probability::RANGE))
        .map(Option::unwrap_or_default)
}

/// Names a file, except with [`NONE`].
pub(super) fn named<T: Trace>(text: &str) -> Option<TraceFile<T>> {
    (text != NONE).then(|| TraceFile::named(text))
}

/// Parses a value that [`NONE`] removes.
pub(super) fn optional<T>(
    text: &str,
    parse: impl FnOnce(&str) -> Result<T, &'static str>,
) -> Result<Option<T>, &'static str> {
    if text == NONE { Ok(None) } else { parse(text).map(Some) }
}
