//! An intake: reads the packets of a device and passes each to one of the lanes that start there.

use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::carrier::Carrier;
use super::lane::Lane;
use super::steering::Steering;
use super::timeline::Timeline;
use crate::link::LinkTime;

/// Reads the packets of a device and passes each to one of the lanes that start there.
#[derive(Debug)]
pub(crate) struct Intake {
    /// The lanes, by index. The first one reads.
    lanes: Range<usize>,
    steering: Option<Steering>,
}

impl Intake {
    /// Creates the intake of a single lane.
    pub(crate) fn of(lane: usize) -> Self {
        Intake { lanes: lane..lane + 1, steering: None }
    }

    /// Creates the intake of parallel lanes, between which `steering` chooses.
    pub(crate) fn parallel(lanes: Range<usize>, steering: Steering) -> Self {
        Intake { lanes, steering: Some(steering) }
    }

    /// Returns the device to wait on for packets, or `None` if the device no longer exists.
    pub(super) fn source<'a>(&self, lanes: &'a [Lane]) -> Option<BorrowedFd<'a>> {
        lanes.get(self.lanes.start)?.source()
    }

    /// Changes the state of a link (by index among the parallel ones).
    pub(super) fn steer(&mut self, link: usize, change: impl FnOnce(&mut Carrier)) {
        if let Some(steering) = &mut self.steering {
            steering.set(link, change);
        }
    }

    /// Reads a waiting packet, if there is one, and passes it to its lane. Returns the expected
    /// duration of its departure. The packet is assumed to have entered `waited` ago.
    pub(super) fn admit(
        &mut self,
        lanes: &mut [Lane],
        clock: impl Fn() -> LinkTime,
        waited: Duration,
        timeline: &mut Timeline,
    ) -> Option<Duration> {
        let (reader, others) = lanes.get_mut(self.lanes.clone())?.split_first_mut()?;
        let arrival = reader.read(clock, waited, timeline)?;
        let choice = match &mut self.steering {
            Some(steering) => steering.choose(reader.landed(&arrival), arrival.at),
            None => 0,
        };
        match choice.checked_sub(1).and_then(|other| others.get_mut(other)) {
            Some(other) => {
                reader.hand_over(other);
                Some(other.accept(&arrival))
            }
            None => Some(reader.accept(&arrival)),
        }
    }
}
