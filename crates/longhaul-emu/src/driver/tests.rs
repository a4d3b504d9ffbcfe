//! The driver over socket pairs, which preserve the boundaries of frames as devices do, in real
//! time.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use longhaul_core::plan::{LinkPlan, Side};
use longhaul_core::result::Traffic;
use longhaul_core::units::Bytes;

use super::{Driver, Intake, Lane, PacketMemory, SpinBudget};
use crate::device::PacketDevice;
use crate::link::LinkModel;
use crate::packet::test_frames::TestFrame;

const MS: Duration = Duration::from_millis(1);

impl PacketDevice for OwnedFd {
    fn readiness(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }

    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(self, buffer)?)
    }

    fn write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(rustix::io::writev(self, slices)?)
    }
}

/// Returns the host's end of a device, and the emulator's.
fn device() -> (UnixDatagram, Arc<OwnedFd>) {
    let (host, emulator) = UnixDatagram::pair().unwrap();
    emulator.set_nonblocking(true).unwrap();
    host.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    (host, Arc::new(OwnedFd::from(emulator)))
}

fn model(from: Side, delay: Duration) -> LinkModel {
    LinkModel::new(&LinkPlan::symmetric(delay * 2), from)
}

fn lane(from: Side, delay: Duration, source: &Arc<OwnedFd>, sink: &Arc<OwnedFd>) -> Lane {
    let devices: [Arc<dyn PacketDevice>; 2] = [source.clone(), sink.clone()];
    let memory = PacketMemory::of(Bytes::mib(64));
    Lane::new(from, devices, model(from, delay), Bytes::mib(64), &memory).unwrap()
}

/// Starts a driver with an intake per lane.
fn start(lanes: Vec<Lane>) -> Driver {
    let intakes = (0..lanes.len()).map(Intake::of).collect();
    Driver::start(lanes, intakes, SpinBudget::of(1)).unwrap()
}

fn receive(host: &UnixDatagram) -> Vec<u8> {
    let mut frame = vec![0; 70_000];
    let length = host.recv(&mut frame).unwrap();
    frame.truncate(length);
    frame
}

#[test]
fn frames_cross_unchanged_after_their_delay_and_are_counted() {
    let ((near, near_device), (far, far_device)) = (device(), device());
    let lanes = vec![
        lane(Side::Near, 20 * MS, &near_device, &far_device),
        lane(Side::Far, Duration::ZERO, &far_device, &near_device),
    ];
    let driver = start(lanes);
    let frame = TestFrame { payload: 20_000, segment: 1448, ..TestFrame::TCP }.frame();
    let sent = Instant::now();
    near.send(&frame).unwrap();
    let queued = loop {
        let queued = driver.snapshot().unwrap().lanes[0].queued;
        if queued.packets > 0 {
            break queued;
        }
        assert!(sent.elapsed() < Duration::from_secs(10), "it never entered");
    };
    let passed = Traffic { packets: 1, segments: 14, bytes: 20_000 + 14 * 52 };
    assert_eq!(queued, passed);
    assert_eq!(receive(&far), frame);
    assert!(sent.elapsed() >= 20 * MS);
    far.send(&frame).unwrap();
    assert_eq!(receive(&near), frame);

    let snapshot = driver.snapshot().unwrap();
    for lane in &snapshot.lanes {
        assert_eq!((lane.entered, lane.delivered), (passed, passed));
        assert!(lane.is_conserved());
        assert_eq!(lane.lateness.histogram.iter().map(|b| b.packets).sum::<u64>(), 1);
    }
    assert!(snapshot.processor.seconds > 0.02 && snapshot.processor.busy_seconds > 0.0);
}

#[test]
fn a_running_lane_takes_a_new_model() {
    let ((near, near_device), (far, far_device)) = (device(), device());
    let lanes = vec![lane(Side::Near, Duration::from_secs(3600), &near_device, &far_device)];
    let driver = start(lanes);
    let frame = TestFrame { payload: 100, ..TestFrame::TCP }.frame();
    near.send(&frame).unwrap();
    while driver.snapshot().unwrap().lanes[0].queued.packets == 0 {}
    driver.set(0, Bytes::mib(4), |model, _| {
        *model = self::model(Side::Near, Duration::ZERO);
    });
    driver.set(7, Bytes::mib(4), |_, _| panic!("there is no such lane"));
    let other = TestFrame { payload: 200, ..TestFrame::TCP }.frame();
    near.send(&other).unwrap();
    assert_eq!(receive(&far), other, "the first keeps its time");
    let lanes = driver.snapshot().unwrap().lanes;
    assert_eq!((lanes[0].delivered.packets, lanes[0].queued.packets), (1, 1));
}

#[test]
fn a_lane_whose_device_is_gone_lets_the_others_run() {
    let ((near, near_device), (far, far_device)) = (device(), device());
    let (other, other_device) = device();
    drop(other);
    let lanes = vec![
        lane(Side::Far, Duration::ZERO, &other_device, &near_device),
        lane(Side::Near, MS, &near_device, &far_device),
        lane(Side::Near, MS, &near_device, &other_device),
    ];
    let driver = start(lanes);
    let frame = TestFrame { payload: 100, ..TestFrame::TCP }.frame();
    // Either of the two lanes that read this device may read the packet.
    for _ in 0..8 {
        near.send(&frame).unwrap();
    }
    let deadline = Instant::now() + Duration::from_secs(10);
    let lanes = loop {
        let lanes = driver.snapshot().unwrap().lanes;
        let passed = |at: usize| lanes[at].delivered + lanes[at].dropped.refused;
        if (passed(1) + passed(2)).packets == 8 {
            break lanes;
        }
        assert!(Instant::now() < deadline, "{lanes:?}");
    };
    assert!(lanes[1].delivered.packets > 0 && lanes[2].dropped.refused.packets > 0);
    assert_eq!(receive(&far), frame);
    assert!(lanes.iter().all(|lane| lane.is_conserved()));
}

/// A device that passes several frames at once, and refuses to write frames of this length. It counts
/// the reads and writes of several frames.
#[derive(Debug)]
struct Batched {
    device: OwnedFd,
    refused: usize,
    reads: AtomicUsize,
    writes: AtomicUsize,
}

impl Batched {
    fn new(device: &OwnedFd, refused: usize) -> Arc<Batched> {
        let device = device.try_clone().unwrap();
        Arc::new(Batched { device, refused, reads: 0.into(), writes: 0.into() })
    }
}

impl PacketDevice for Batched {
    fn readiness(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }

    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.device.read(buffer)
    }

    fn write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let length: usize = slices.iter().map(|slice| slice.len()).sum();
        if length == self.refused {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.device.write(slices)
    }

    fn batch(&self) -> usize {
        4
    }

    fn read_many(&self, buffers: &mut [&mut [u8]], lengths: &mut [usize]) -> io::Result<usize> {
        let mut count = 0;
        for (buffer, length) in buffers.iter_mut().zip(lengths) {
            match self.read(buffer) {
                Ok(read) => *length = read,
                Err(error) if count == 0 => return Err(error),
                Err(_) => break,
            }
            count += 1;
        }
        self.reads.fetch_add(usize::from(count > 1), Ordering::Relaxed);
        Ok(count)
    }

    fn write_many(&self, frames: &[&[u8]]) -> io::Result<usize> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        for (count, frame) in frames.iter().enumerate() {
            match self.write(&[IoSlice::new(frame)]) {
                Err(error) if count == 0 => return Err(error),
                Err(_) => return Ok(count),
                Ok(_) => {}
            }
        }
        Ok(frames.len())
    }
}

#[test]
fn frames_that_a_device_passes_at_once_keep_their_order_and_are_counted() {
    // A socket pair holds ten datagrams.
    const FRAMES: usize = 9;
    let ((near, near_device), (far, far_device)) = (device(), device());
    let frame = |number: usize| {
        // Two of the frames are refused, and one is a super-packet.
        let payload = if number == 3 || number == 6 { 999 } else { 100 + number };
        let mut frame = TestFrame { payload, ..TestFrame::TCP };
        if number == 5 {
            (frame.payload, frame.segment) = (3000, 1448);
        }
        frame.frame()
    };
    let source = Batched::new(&near_device, usize::MAX);
    let sink = Batched::new(&far_device, frame(3).len());
    let devices: [Arc<dyn PacketDevice>; 2] = [source.clone(), sink.clone()];
    let memory = PacketMemory::of(Bytes::mib(64));
    let model = model(Side::Near, Duration::ZERO);
    // Frames that wait before the lane starts are read at once, and are due at once.
    for number in 0..FRAMES {
        near.send(&frame(number)).unwrap();
    }
    let lane = Lane::new(Side::Near, devices, model, Bytes::mib(64), &memory).unwrap();
    let driver = start(vec![lane]);
    for number in (0..FRAMES).filter(|number| *number != 3 && *number != 6) {
        assert_eq!(receive(&far), frame(number), "{number}");
    }
    let deadline = Instant::now() + Duration::from_secs(10);
    let lane = loop {
        let lane = driver.snapshot().unwrap().lanes.remove(0);
        if lane.queued.is_none() {
            break lane;
        }
        assert!(Instant::now() < deadline, "{lane:?}");
    };
    assert_eq!((lane.entered.packets, lane.delivered.packets), (FRAMES as u64, FRAMES as u64 - 2));
    assert_eq!(lane.dropped.refused.packets, 2);
    assert!(lane.is_conserved(), "{lane:?}");
    let [reads, writes] = [&source.reads, &sink.writes].map(|count| count.load(Ordering::Relaxed));
    assert!(reads > 0 && writes > 0, "{reads} reads and {writes} writes of several frames");
}
