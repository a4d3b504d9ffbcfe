//! Writes the records of a capture to the file.

use std::io::{self, BufWriter, Write};

use longhaul_core::plan::{Side, TopologyLink, TopologyPlan};

use super::pcapng::{self, Packet};
use super::tap::{Event, Record};
use crate::packet::Framing;

/// The largest packet, as the file states it.
const LONGEST: u32 = 1 << 16;

/// The points of a direction at which packets are captured, in the order of their interfaces.
const POINTS: [&str; 3] = ["arrived", "left", "dropped"];

/// The interfaces of a file.
#[derive(Debug)]
pub(super) struct Layout {
    framing: Framing,
    /// The names of the directions: of each link from the near end, and then from the far end.
    directions: Vec<String>,
}

impl Layout {
    /// Returns the interfaces for the links of a plan. If there are several links, their names precede
    /// the directions.
    pub(super) fn of(plan: &TopologyPlan, framing: Framing) -> Layout {
        let name = |link: &TopologyLink, from: &str, to: &str| match plan.links.len() {
            1 => format!("{from}-to-{to}"),
            _ => format!("{}: {from}-to-{to}", link.name),
        };
        let directions = |link: &TopologyLink| {
            [name(link, &link.near, &link.far), name(link, &link.far, &link.near)]
        };
        Layout { framing, directions: plan.links.iter().flat_map(directions).collect() }
    }
}

/// The file of a capture.
#[derive(Debug)]
pub(super) struct Writer<W: Write> {
    file: BufWriter<W>,
    framing: Framing,
    /// The number of captured directions.
    directions: u64,
    records: u64,
    last_nanos: u64,
}

impl<W: Write> Writer<W> {
    /// Writes the beginning of the file.
    pub(super) fn to(file: W, layout: Layout) -> io::Result<Self> {
        let Layout { framing, directions } = layout;
        let mut file = BufWriter::with_capacity(1 << 18, file);
        let application = concat!("longhaul ", env!("CARGO_PKG_VERSION"));
        file.write_all(&pcapng::section(application))?;
        for (direction, point) in
            directions.iter().flat_map(|direction| POINTS.map(|point| (direction, point)))
        {
            let name = format!("{direction} {point}");
            file.write_all(&pcapng::interface(&name, framing, LONGEST))?;
        }
        file.flush()?;
        Ok(Writer { file, framing, directions: directions.len() as u64, records: 0, last_nanos: 0 })
    }

    pub(super) fn write(&mut self, record: &Record) -> io::Result<()> {
        let comment = record.comment();
        self.last_nanos = record.at.as_nanos() as u64;
        let direction = 2 * record.direction.link
            + match record.direction.from {
                Side::Near => 0,
                Side::Far => 1,
            };
        let place = match record.event {
            Event::Arrived => 0,
            Event::Left => 1,
            Event::Dropped(_) => 2,
        };
        let packet = Packet {
            interface: direction * POINTS.len() as u32 + place,
            framing: self.framing,
            nanos: self.last_nanos,
            bytes: &record.bytes,
            length: record.length,
            // The directions number their packets separately.
            id: record.number * self.directions + u64::from(direction),
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
