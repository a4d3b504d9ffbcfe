//! The file of `--pcap`, with the packets of a link or topology.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::Context;
use longhaul_core::plan::TopologyPlan;
use longhaul_emu::{Capture, Captured};

use crate::output::print_message;

/// A file that was created for a capture.
#[derive(Debug)]
pub(super) struct PacketFile {
    file: File,
    path: PathBuf,
}

/// A capture in progress.
#[derive(Debug)]
pub(super) struct RunningCapture {
    capture: Capture,
    path: PathBuf,
}

impl PacketFile {
    /// Creates the file, so that an error is reported before anything is started.
    pub(super) fn create(path: &Path) -> anyhow::Result<PacketFile> {
        let file = File::create(path).with_context(|| unwritable(path))?;
        Ok(PacketFile { file, path: path.to_owned() })
    }

    /// Begins a capture of the packets of a plan's links.
    pub(super) fn start(self, plan: &TopologyPlan) -> anyhow::Result<RunningCapture> {
        self.begin(|file| Capture::start(file, plan))
    }

    /// Begins a capture of the Ethernet frames of a bridge.
    pub(super) fn start_ethernet(self, plan: &TopologyPlan) -> anyhow::Result<RunningCapture> {
        self.begin(|file| Capture::start_ethernet(file, plan))
    }

    fn begin(
        self,
        start: impl FnOnce(File) -> std::io::Result<Capture>,
    ) -> anyhow::Result<RunningCapture> {
        let capture = start(self.file).with_context(|| unwritable(&self.path))?;
        Ok(RunningCapture { capture, path: self.path })
    }
}

fn unwritable(path: &Path) -> String {
    format!("cannot write the packets to {}", path.display())
}

impl RunningCapture {
    /// Returns the capture, for the links.
    pub(super) fn capture(&self) -> &Capture {
        &self.capture
    }

    /// Ends the capture after its links have ended. An error of its file did not affect the links, so
    /// it is only a warning.
    pub(super) fn end(self) {
        let path = self.path.display();
        match self.capture.finish() {
            Ok(Captured { missed: 0, .. }) => {}
            Ok(Captured { records, missed }) => print_message(format_args!(
                "warning: {path} has {records} records and lacks {missed}, because the file was \
                 too slow"
            )),
            Err(error) => print_message(format_args!(
                "warning: the capture in {path} ended early, and the link continued: {error}"
            )),
        }
    }
}
