//! Writes the records of a capture to the file.

use std::fs::File;
use std::io::{self, BufWriter, Write};

use longhaul_core::plan::Side;

use super::pcapng::{self, Packet};
use super::tap::{Event, Record};

/// The largest packet, as the file states it.
const LONGEST: u32 = 1 << 16;

/// The interfaces of the file, in order: per direction where packets arrive, leave and are dropped.
const INTERFACES: [&str; 6] = [
    "near-to-far arrived",
    "near-to-far left",
    "near-to-far dropped",
    "far-to-near arrived",
    "far-to-near left",
    "far-to-near dropped",
];

/// The file of a capture.
#[derive(Debug)]
pub(super) struct Writer<W: Write> {
    file: BufWriter<W>,
    records: u64,
    last_nanos: u64,
}

impl Writer<File> {
    /// Writes the beginning of the file.
    pub(super) fn begin(file: File) -> io::Result<Self> {
        Writer::to(file)
    }
}

impl<W: Write> Writer<W> {
    pub(super) fn to(file: W) -> io::Result<Self> {
        let mut file = BufWriter::with_capacity(1 << 18, file);
        let application = concat!("longhaul ", env!("CARGO_PKG_VERSION"));
        file.write_all(&pcapng::section(application))?;
        for name in INTERFACES {
            file.write_all(&pcapng::interface(name, LONGEST))?;
        }
        file.flush()?;
        Ok(Writer { file, records: 0, last_nanos: 0 })
    }

    pub(super) fn write(&mut self, record: &Record) -> io::Result<()> {
        let comment = record.comment();
        self.last_nanos = record.at.as_nanos() as u64;
        let direction = match record.from {
            Side::Near => 0,
            Side::Far => 1,
        };
        let place = match record.event {
            Event::Arrived => 0,
            Event::Left => 1,
            Event::Dropped(_) => 2,
        };
        let packet = Packet {
            interface: direction * 3 + place,
            nanos: self.last_nanos,
            bytes: &record.bytes,
            length: record.length,
            // The directions number their packets separately.
            id: record.number << 1 | u64::from(direction),
            comment: &comment,
        };
        self.file.write_all(&pcapng::packet(&packet))?;
        self.records += 1;
        Ok(())
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }

    /// Writes the end of the file, with the number of missing records, and returns the number of
    /// records.
    pub(super) fn finish(mut self, missed: u64) -> io::Result<u64> {
        self.file.write_all(&pcapng::statistics(0, self.last_nanos, missed))?;
        self.file.flush()?;
        Ok(self.records)
    }
}
