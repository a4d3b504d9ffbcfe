//! Files of measured delays.

use std::time::Duration;

use super::{LinkPlan, Trace, TraceError};
use crate::units::parse_span;

/// Measured delays, one per line, such as `1.5ms`; a number without unit is seconds.
#[derive(Debug, Clone, PartialEq)]
pub struct DelaySamples(Vec<Duration>);

impl DelaySamples {
    /// Returns the delays in the order of the file; at least one.
    pub fn values(&self) -> &[Duration] {
        &self.0
    }

    /// Returns the largest delay.
    pub fn longest(&self) -> Duration {
        self.0.iter().copied().max().unwrap_or_default()
    }
}

impl Trace for DelaySamples {
    fn parse(text: &str) -> Result<Self, TraceError> {
        let span = |(line, content)| {
            parse_span(content)
                .ok()
                .filter(|span| *span <= LinkPlan::MAX_DELAY)
                .ok_or(TraceError::Line { line, expected: "a delay of at most 30s, such as 1.5ms" })
        };
        let samples = super::trace::lines(text).map(span).collect::<Result<Vec<_>, _>>()?;
        if samples.is_empty() { Err(TraceError::Empty) } else { Ok(DelaySamples(samples)) }
    }

    fn entries(&self) -> u64 {
        self.0.len() as u64
    }
}
