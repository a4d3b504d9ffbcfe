//! Captures the packets of links with their fates in a pcapng file.
//!
//! A [`Tap`] in each lane copies the beginning of every packet into a bounded queue, and a thread
//! writes the queue to the file. The link never waits for the file: records that do not fit in the
//! queue are counted and missing, and an error of the file ends the capture.
//!
//! docs/design/capture.md describes the content of the file.

mod pcapng;
mod tap;
#[cfg(test)]
mod tests;
mod writer;

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use longhaul_core::plan::{Side, TopologyPlan};

use self::tap::{CapturedDirection, Record};
pub(crate) use self::tap::{Cause, PacketAtPoint, Tap};
use self::writer::Layout;
use crate::packet::Framing;

/// The maximum number of records that wait for the file. A record has at most 400 bytes.
const QUEUE: usize = 1 << 15;

/// A capture in progress. Dropping it ends the file without waiting for the queue.
#[derive(Debug)]
pub struct Capture {
    records: SyncSender<Record>,
    missed: Arc<AtomicU64>,
    thread: JoinHandle<io::Result<u64>>,
}

/// The result of a capture.
#[derive(Debug)]
pub struct Captured {
    /// The records in the file; an arrival and a departure are two records.
    pub records: u64,
    /// The records that are missing because the file was too slow.
    pub missed: u64,
}

impl Capture {
    /// Begins a capture of the links of `plan` in an empty file, a pipe or a device.
    ///
    /// # Errors
    /// The file cannot be written, or there is no thread for it.
    pub fn start(file: File, plan: &TopologyPlan) -> io::Result<Capture> {
        Capture::begin(file, Layout::of(plan, Framing::Ip))
    }

    /// Begins a capture of a bridge, with the Ethernet headers of its frames.
    ///
    /// # Errors
    /// As for [`Capture::start`].
    pub fn start_ethernet(file: File, plan: &TopologyPlan) -> io::Result<Capture> {
        Capture::begin(file, Layout::of(plan, Framing::Ethernet))
    }

    fn begin(file: File, layout: Layout) -> io::Result<Capture> {
        let mut writer = writer::Writer::to(file, layout)?;
        let (records, waiting) = sync_channel::<Record>(QUEUE);
        let missed = Arc::new(AtomicU64::new(0));
        let count = missed.clone();
        let thread = std::thread::Builder::new().name("capture".into()).spawn(move || {
            // The queue is flushed when it is empty, so that readers see recent packets.
            while let Ok(record) = waiting.recv() {
                writer.write(&record)?;
                while let Ok(record) = waiting.try_recv() {
                    writer.write(&record)?;
                }
                writer.flush()?;
            }
            writer.finish(count.load(Ordering::Relaxed))
        })?;
        Ok(Capture { records, missed, thread })
    }

    /// Returns the tap of the direction from `from` of a link (by index).
    pub(crate) fn tap(&self, link: usize, from: Side) -> Tap {
        let direction = CapturedDirection { link: link as u32, from };
        Tap::new(direction, self.records.clone(), self.missed.clone())
    }

    /// Returns whether the file is still written.
    pub fn is_running(&self) -> bool {
        !self.thread.is_finished()
    }

    /// Waits until the queue is written. The links must have ended, because their taps feed it.
    ///
    /// # Errors
    /// The file could not be written, for example because the disk is full. The file has the
    /// records until then.
    pub fn finish(self) -> io::Result<Captured> {
        drop(self.records);
        let records = self.thread.join().map_err(|_| io::Error::other("its thread panicked"))??;
        Ok(Captured { records, missed: self.missed.load(Ordering::Relaxed) })
    }
}
