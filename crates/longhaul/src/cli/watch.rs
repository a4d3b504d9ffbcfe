//! `longhaul watch`: turns arguments into a sampler and its outputs, or draws the page of a record.

mod live;
mod sinks;

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::anyhow;
use jiff::tz::TimeZone;
use longhaul_core::units::parse_span;
use longhaul_watch::metrics::DEFAULT_PORT;
use longhaul_watch::page::{PageOptions, page, write_page};
use longhaul_watch::record::{Record, Recorder};
use longhaul_watch::{Sampler, SamplerOptions, WatchError};

use self::live::Display;
use self::sinks::Sinks;
use crate::exit::{self, Coded};
use crate::output::output_is_terminal;
use crate::signals::Interrupt;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Without options the terminal shows the interfaces, their graphs, the cores and the \
                  fastest TCP connections; '?' lists the keys. If standard output is not a terminal, \
                  each sample is a line per interface. IN is received, OUT is sent. Exit codes: 0 done \
                  or interrupted, 2 invalid arguments, 5 a record or page cannot be read or written, 6 \
                  the counters of the kernel or the address for metrics are unavailable."
)]
pub(super) struct Args {
    /// Time between two samples, from 100ms to 60s
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,
    /// Interface to watch; may be repeated [default: all]
    #[arg(short, long, value_name = "IF")]
    interface: Vec<String>,
    /// Print one JSON document about one interval, "longhaul.watch/1"
    #[arg(long, conflicts_with = "json_stream")]
    json: bool,
    /// Print one JSON document per line and sample, "longhaul.watch/1"
    #[arg(long)]
    json_stream: bool,
    /// Serve the counters to Prometheus [default: port 9210 of all addresses]
    #[arg(long, value_name = "[ADDR:]PORT", num_args = 0..=1, default_missing_value = "9210",
          value_parser = metrics_address)]
    metrics: Option<SocketAddr>,
    /// Record the interfaces in this directory [default: longhaul/watch in XDG_STATE_HOME or
    /// ~/.local/state]
    #[arg(long, value_name = "DIR")]
    record: Option<Option<PathBuf>>,
    /// Write a page with daily, weekly, monthly and yearly graphs of the record; with --record, every
    /// five minutes
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Directory of the record for --html [default: as for --record]
    #[arg(long, value_name = "DIR", requires = "html", conflicts_with = "record")]
    from: Option<PathBuf>,
    /// Stop after this number of samples
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    samples: Option<u64>,
    /// Show nothing, only record or serve
    #[arg(short, long, conflicts_with_all = ["json", "json_stream"])]
    quiet: bool,
}

/// The number of TCP connections in a sample.
const FLOWS: usize = 20;

impl Args {
    pub(super) fn run(self) -> Result<u8, Coded> {
        if let (Some(file), None) = (&self.html, &self.record) {
            let dir = record_dir(self.from.as_deref())?;
            draw_page(&dir, file)?;
            return Ok(exit::OK);
        }
        let interrupt = Interrupt::install().map_err(|error| Coded::new(exit::HOST, error))?;
        let display = self.display();
        let sampler = Sampler::new(SamplerOptions {
            interfaces: self.interface.clone(),
            interval: self.interval,
            flows: if display.has_flows() { FLOWS } else { 0 },
            host: true,
            ..SamplerOptions::default()
        })?;
        let sinks = self.sinks()?;
        // The first sample has no traffic.
        let samples =
            if self.json { Some(2) } else { self.samples.map(|count| count.saturating_add(1)) };
        let live = live::Live {
            sampler,
            sinks,
            interval: self.interval,
            samples,
            display,
            has_sampled: false,
        };
        live::run(live, &interrupt)?;
        Ok(exit::OK)
    }

    fn display(&self) -> Display {
        let other = self.metrics.is_some() || self.record.is_some();
        match () {
            () if self.json => Display::Document,
            () if self.json_stream => Display::Stream,
            () if self.quiet => Display::Nothing,
            () if output_is_terminal() => Display::Terminal,
            () if other => Display::Nothing,
            () => Display::Lines,
        }
    }

    fn sinks(&self) -> Result<Sinks, Coded> {
        let mut sinks = Sinks::default();
        if let Some(dir) = &self.record {
            let dir = record_dir(dir.as_deref())?;
            let mut recorder = Recorder::open(&dir)?;
            // The user named it.
            if !self.interface.is_empty() {
                recorder.include_loopback();
            }
            sinks.record(recorder, &dir, self.html.as_deref());
        }
        if let Some(address) = self.metrics {
            sinks.serve_on(address)?;
        }
        Ok(sinks)
    }
}

/// Returns `dir`, or the default directory of records.
fn record_dir(dir: Option<&Path>) -> Result<PathBuf, Coded> {
    if let Some(dir) = dir {
        return Ok(dir.to_owned());
    }
    // XDG Base Directory Specification: a relative path is invalid and is ignored.
    let variable =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|dir| dir.is_absolute());
    let state = variable("XDG_STATE_HOME")
        .or_else(|| variable("HOME").map(|home| home.join(".local/state")))
        .ok_or_else(|| {
            let error = anyhow!(
                "no directory for the record; set HOME, or name one with --record or --from"
            );
            Coded::new(exit::USAGE, error)
        })?;
    Ok(state.join("longhaul/watch"))
}

/// Draws the record in `dir` into `file`.
fn draw_page(dir: &Path, file: &Path) -> Result<(), WatchError> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let options = PageOptions {
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        now: i64::try_from(now).unwrap_or(i64::MAX),
        time_zone: TimeZone::system(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    write_page(file, &page(&Record::open(dir)?, &options)?)
}

fn interval(text: &str) -> Result<Duration, String> {
    let span = parse_span(text).map_err(|error| error.to_string())?;
    let allowed = Duration::from_millis(100)..=Duration::from_secs(60);
    if allowed.contains(&span) { Ok(span) } else { Err("must be from 100ms to 60s".to_owned()) }
}

/// Parses `PORT`, `ADDR` or `ADDR:PORT`. Without an address it is the unspecified one, for all addresses.
fn metrics_address(text: &str) -> Result<SocketAddr, String> {
    let all = IpAddr::from(Ipv6Addr::UNSPECIFIED);
    let port = text.parse().map(|port| SocketAddr::new(all, port)).ok();
    let address =
        || text.parse().map(|address: IpAddr| SocketAddr::new(address, DEFAULT_PORT)).ok();
    let both = || text.parse::<SocketAddr>().ok();
    port.or_else(address)
        .or_else(both)
        .ok_or_else(|| "must be a port, an IP address, or both such as 192.0.2.1:9210".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_metrics() {
        let parse = |text| metrics_address(text).map(|address| address.to_string());
        assert_eq!(parse("9210").unwrap(), "[::]:9210");
        assert_eq!(parse("192.0.2.1").unwrap(), "192.0.2.1:9210");
        assert_eq!(parse("192.0.2.1:80").unwrap(), "192.0.2.1:80");
        assert_eq!(parse("[2001:db8::1]:80").unwrap(), "[2001:db8::1]:80");
        assert!(parse("host:80").is_err() && parse("70000").is_err() && parse("").is_err());
    }

    #[test]
    fn intervals_are_bounded() {
        assert_eq!(interval("100ms").unwrap(), Duration::from_millis(100));
        assert!(interval("99ms").is_err() && interval("61s").is_err() && interval("x").is_err());
    }
}
