//! Reading a device: an intake passes each packet to a lane, which steering chooses by the flow.

use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use longhaul_core::plan::FlowHash;

use super::carrier::Carrier;
use super::lane::Lane;
use super::timeline::Timeline;
use crate::link::LinkTime;
use crate::packet;

/// Chooses one of several parallel links for each packet, by a hash of its flow.
///
/// With n links, the packets of a flow with hash h use link h mod n. If routers see that link as
/// down, they use the link with the number (h / n) mod m of the m links that are up. Flows on other
/// links therefore stay there. If every link is down, link h mod n loses the packet.
#[derive(Debug, Clone)]
pub(crate) struct Steering {
    hash: FlowHash,
    carriers: Vec<Carrier>,
    /// The links that are up.
    up: Vec<usize>,
    /// The time until which `up` is valid; `None` if no change is known.
    valid_until: Option<LinkTime>,
}

impl Steering {
    /// Creates the choice between links with these states, of which there is at least one.
    pub(crate) fn new(hash: FlowHash, carriers: Vec<Carrier>) -> Self {
        let valid_until = Some(LinkTime::default());
        Steering { hash, carriers, up: Vec::new(), valid_until }
    }

    /// Changes the state of a link (by index) from now on.
    pub(super) fn set(&mut self, link: usize, change: impl FnOnce(&mut Carrier)) {
        if let Some(carrier) = self.carriers.get_mut(link) {
            change(carrier);
        }
        self.valid_until = Some(LinkTime::default());
    }

    /// Returns the index of the link for the packet in `frame` that enters at `now`.
    pub(super) fn choose(&mut self, frame: &[u8], now: LinkTime) -> usize {
        if self.valid_until.is_some_and(|until| until <= now) {
            self.update(now);
        }
        if self.carriers.len() < 2 {
            return 0;
        }
        let hash = packet::flow_hash(frame, self.hash) as usize;
        let (own, rest) = (hash % self.carriers.len(), hash / self.carriers.len());
        if self.up.contains(&own) {
            return own;
        }
        let other = rest.checked_rem(self.up.len()).and_then(|at| self.up.get(at));
        other.copied().unwrap_or(own)
    }

    fn update(&mut self, now: LinkTime) {
        self.up.clear();
        self.valid_until = None;
        for (link, carrier) in self.carriers.iter().enumerate() {
            let (down, change) = carrier.state(now);
            if !down {
                self.up.push(link);
            }
            self.valid_until = [self.valid_until, change].into_iter().flatten().min();
        }
    }
}

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

    /// Returns whether packets have been read that [`Intake::admit`] has not admitted.
    pub(super) fn has_more(&self, lanes: &[Lane]) -> bool {
        lanes.get(self.lanes.start).is_some_and(Lane::has_more)
    }

    /// Changes the state of a link (by index among the parallel ones).
    pub(super) fn steer(&mut self, link: usize, change: impl FnOnce(&mut Carrier)) {
        if let Some(steering) = &mut self.steering {
            steering.set(link, change);
        }
    }

    /// Reads a waiting packet, if there is one, and passes it to its lane. Returns the expected
    /// duration of its departure. The packet is assumed to have entered `waited` ago. `now` is the
    /// time, which becomes that of the read.
    pub(super) fn admit(
        &mut self,
        lanes: &mut [Lane],
        (now, waited): (&mut LinkTime, Duration),
        clock: impl Fn() -> LinkTime,
        timeline: &mut Timeline,
    ) -> Option<Duration> {
        let (reader, others) = lanes.get_mut(self.lanes.clone())?.split_first_mut()?;
        let arrival = reader.read((now, waited), clock, timeline)?;
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use longhaul_core::plan::LinkPlan;

    use super::*;
    use crate::packet::test_frames::TestFrame;

    const HOLD: Duration = Duration::from_millis(50);

    fn steering(links: usize) -> Steering {
        let plan = LinkPlan::symmetric(Duration::ZERO);
        Steering::new(FlowHash::Ports, vec![Carrier::new(&plan, HOLD); links])
    }

    /// Returns the frames of 64 flows that differ in the source port, as a kernel numbers them.
    fn flows() -> Vec<Vec<u8>> {
        let frame = |flow: u16| {
            let mut frame = TestFrame { payload: 100, ..TestFrame::TCP }.frame();
            let port = 40_000 + 2 * flow;
            let at = longhaul_sys::tun::VNET_HEADER + 20;
            frame[at..at + 2].copy_from_slice(&port.to_be_bytes());
            frame
        };
        (0..64).map(frame).collect()
    }

    fn choices(steering: &mut Steering, now: LinkTime) -> Vec<usize> {
        flows().iter().map(|frame| steering.choose(frame, now)).collect()
    }

    #[test]
    fn flows_spread_evenly_and_each_stays_on_its_link() {
        let mut steering = steering(4);
        let first = choices(&mut steering, LinkTime::default());
        for link in 0..4 {
            assert_eq!(first.iter().filter(|choice| **choice == link).count(), 16);
        }
        assert_eq!(choices(&mut steering, LinkTime::from_nanos(1 << 40)), first);
    }

    #[test]
    fn only_the_flows_of_a_failed_link_move_after_the_hold_time_and_return() {
        let mut steering = steering(4);
        let at = |ms: u64| LinkTime::from_nanos(ms * 1_000_000);
        let before = choices(&mut steering, at(0));
        steering.set(2, |carrier| carrier.force(at(100), true));
        assert_eq!(choices(&mut steering, at(149)), before, "not noticed yet");
        let after = choices(&mut steering, at(150));
        let mut moved = [0; 4];
        for (before, after) in before.iter().zip(&after) {
            assert!(*after != 2 && (*before == 2 || before == after));
            moved[*after] += usize::from(*before == 2);
        }
        assert!(moved[0] > 0 && moved[1] > 0 && moved[3] > 0, "{moved:?}");
        steering.set(2, |carrier| carrier.force(at(300), false));
        assert_eq!(choices(&mut steering, at(349)), after);
        assert_eq!(choices(&mut steering, at(350)), before);
    }

    #[test]
    fn without_a_link_that_is_up_the_own_link_loses_the_packet() {
        let mut steering = steering(2);
        let before = choices(&mut steering, LinkTime::default());
        for link in 0..2 {
            steering.set(link, |carrier| carrier.force(LinkTime::default(), true));
        }
        assert_eq!(choices(&mut steering, LinkTime::default() + HOLD), before);
    }
}
