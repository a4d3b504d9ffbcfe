//! Samples until the end, and shows each sample.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use longhaul_watch::document::WatchDocument;
use longhaul_watch::{Sample, Sampler, Ticker};

use super::sinks::Sinks;
use crate::exit::{self, Coded};
use crate::output::{
    WatchTerminal, WatchView, failure_text, print_document, print_document_line, print_message,
    print_result, watch_lines,
};
use crate::signals::Interrupt;

/// The form in which samples are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Display {
    /// The terminal display.
    Terminal,
    /// Lines of text.
    Lines,
    /// A JSON document per line.
    Stream,
    /// One JSON document.
    Document,
    /// Nothing.
    Nothing,
}

impl Display {
    /// Returns whether the display shows TCP connections.
    pub(super) fn has_flows(self) -> bool {
        matches!(self, Display::Terminal | Display::Stream | Display::Document)
    }
}

/// A sampler with its outputs.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) sampler: Sampler,
    pub(super) sinks: Sinks,
    pub(super) interval: Duration,
    /// The number of samples; without end if `None`.
    pub(super) samples: Option<u64>,
    pub(super) display: Display,
    /// True after the first sample.
    pub(super) has_sampled: bool,
}

/// The longest time until the display notices a signal.
const NOTICE: Duration = Duration::from_millis(250);

/// Runs until the number of samples is reached, or a signal or a key ends it.
pub(super) fn run(mut live: Live, interrupt: &Interrupt) -> Result<(), Coded> {
    let shown = match live.display {
        Display::Terminal => live.show(interrupt),
        _ => live.print(interrupt),
    };
    // The record is complete even if the output failed.
    let finished = live.sinks.finish();
    shown?;
    Ok(finished?)
}

impl Live {
    /// Reads a sample and passes it to the outputs. A failure after the first sample is a sentence, and
    /// sampling continues.
    fn sample(&mut self) -> Result<(Option<Arc<Sample>>, Option<String>), Coded> {
        let sample = match self.sampler.sample() {
            Ok(sample) => Arc::new(sample),
            Err(error) if self.has_sampled => return Ok((None, Some(failure_text(&error)))),
            Err(error) => return Err(error.into()),
        };
        self.has_sampled = true;
        let failure = self.sinks.take(&sample);
        if let Some(left) = &mut self.samples {
            *left = left.saturating_sub(1);
        }
        Ok((Some(sample), failure))
    }

    fn is_done(&self) -> bool {
        self.samples == Some(0)
    }

    fn print(&mut self, interrupt: &Interrupt) -> Result<(), Coded> {
        if let Some(address) = self.sinks.metrics_address() {
            print_message(format_args!("metrics on http://{address}/metrics"));
        }
        let mut ticker = Ticker::new(self.interval);
        let mut reported = None;
        while !self.is_done() && ticker.wait(interrupt.flag()) {
            let is_first = !self.has_sampled;
            let (sample, failure) = self.sample()?;
            // A failure that lasts is one message.
            if failure.is_some() && failure != reported {
                failure.iter().for_each(print_message);
            }
            reported = failure;
            let Some(sample) = sample else { continue };
            match self.display {
                // The first sample has no traffic.
                Display::Stream if is_first => {}
                Display::Stream => print_document_line(&WatchDocument::new(&sample))?,
                Display::Document if self.is_done() => {
                    print_document(&WatchDocument::new(&sample))?;
                }
                Display::Lines => print_result(&watch_lines(&sample))?,
                Display::Document | Display::Nothing | Display::Terminal => {}
            }
        }
        Ok(())
    }

    fn show(&mut self, interrupt: &Interrupt) -> Result<(), Coded> {
        let host = |error| {
            Coded::new(exit::HOST, anyhow::Error::from(error).context("cannot use the terminal"))
        };
        let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        // https://no-color.org: set and not empty.
        let color = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let mut view = WatchView::new(&name, self.interval.as_secs_f64(), color);
        let mut terminal = WatchTerminal::open().map_err(host)?;
        let mut ticker = Ticker::new(self.interval);
        while !self.is_done() && !interrupt.flag().load(Ordering::Relaxed) {
            let now = Instant::now();
            let mut changed = false;
            if ticker.remaining(now).is_zero() {
                ticker.advance(now);
                let (sample, failure) = self.sample()?;
                sample.iter().for_each(|sample| view.push(sample));
                view.set_message(failure);
                changed = true;
            }
            if changed {
                terminal.draw(&view).map_err(host)?;
            }
            let limit = ticker.remaining(Instant::now()).min(NOTICE);
            let (key, happened) = terminal.wait(limit).map_err(host)?;
            if key.is_some_and(|key| !view.press(key)) {
                return Ok(());
            }
            if happened {
                terminal.draw(&view).map_err(host)?;
            }
        }
        Ok(())
    }
}
