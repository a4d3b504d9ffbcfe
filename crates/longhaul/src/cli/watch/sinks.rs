//! The outputs of samples besides the display: the record with its page, and the metrics.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_watch::metrics::MetricsServer;
use longhaul_watch::record::Recorder;
use longhaul_watch::{Sample, WatchError};

use super::draw_page;
use crate::output::failure_text;

/// The time between two drawings of the page: the shortest bin.
const DRAW: Duration = Duration::from_secs(300);

/// The outputs. Each is optional.
#[derive(Debug, Default)]
pub(super) struct Sinks {
    recorder: Option<Recorder>,
    page: Option<Page>,
    metrics: Option<MetricsServer>,
}

/// The page of the record.
#[derive(Debug)]
struct Page {
    dir: PathBuf,
    file: PathBuf,
    drawn: Option<Instant>,
}

impl Sinks {
    /// Passes the samples to `recorder`, whose directory is `dir`, and draws the page into `file`.
    pub(super) fn record(&mut self, recorder: Recorder, dir: &Path, file: Option<&Path>) {
        self.recorder = Some(recorder);
        self.page =
            file.map(|file| Page { dir: dir.to_owned(), file: file.to_owned(), drawn: None });
    }

    /// Serves metrics on `address`; on IPv4 only if the host has no IPv6.
    pub(super) fn serve_on(&mut self, address: SocketAddr) -> Result<(), WatchError> {
        let any = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), address.port());
        self.metrics = Some(match MetricsServer::start(address) {
            Err(WatchError::Listen { source, .. })
                if address.ip().is_unspecified()
                    && source.raw_os_error()
                        == Some(rustix::io::Errno::AFNOSUPPORT.raw_os_error()) =>
            {
                MetricsServer::start(any)?
            }
            started => started?,
        });
        Ok(())
    }

    /// Returns the address of the metrics.
    pub(super) fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().map(MetricsServer::address)
    }

    /// Passes a sample to the outputs. Returns the sentence of a failure, after which sampling continues.
    pub(super) fn take(&mut self, sample: &Arc<Sample>) -> Option<String> {
        if let Some(metrics) = &self.metrics {
            metrics.publish(sample.clone());
        }
        let mut failed = None;
        if let Some(recorder) = &mut self.recorder {
            failed = recorder.push(sample).err();
        }
        let due = |page: &&mut Page| page.drawn.is_none_or(|drawn| drawn.elapsed() >= DRAW);
        if let Some(page) = self.page.as_mut().filter(due) {
            page.drawn = Some(Instant::now());
            failed = failed.or(draw_page(&page.dir, &page.file).err());
        }
        failed.map(|error| failure_text(&error))
    }

    /// Writes pending data.
    pub(super) fn finish(mut self) -> Result<(), WatchError> {
        if let Some(mut recorder) = self.recorder.take() {
            recorder.finish()?;
        }
        match &self.page {
            Some(page) => draw_page(&page.dir, &page.file),
            None => Ok(()),
        }
    }
}
