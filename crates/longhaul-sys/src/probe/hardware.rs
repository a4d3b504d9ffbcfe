//! The hardware timestamps of network interfaces: whether an interface gives them, and the conversion
//! of its clock to `CLOCK_REALTIME`.
//!
//! Structures are those of linux/ethtool.h, linux/net_tstamp.h and linux/ptp_clock.h.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use longhaul_core::result::NoHardware;
use socket2::{Domain, Socket, Type};

use crate::ethtool;
use crate::interface::request;

/// The maximum number of interfaces whose clocks are kept.
const MOST_CLOCKS: usize = 16;
/// The number of readings of a clock, of which the one with the shortest duration counts.
const READINGS: usize = 5;
/// The largest difference of the speeds of two clocks; a larger one is a step.
const MOST_DRIFT: f64 = 1e-3;

/// A time of the clock of a network interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HardwareTime {
    /// The kernel's index of the interface.
    pub interface: u32,
    /// The time of its clock in nanoseconds.
    pub nanos: u64,
}

/// The timestamps that a driver offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Offered {
    modes: u32,
    clock: i32,
    departures: u32,
    arrivals: u32,
}

/// The timestamps that are switched on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Enabled {
    departures: u32,
    arrivals: u32,
}

impl Offered {
    fn of(fields: [u32; 10]) -> Self {
        let [modes, clock, departures, _, _, _, arrivals, ..] = fields;
        Offered { modes, clock: clock as i32, departures, arrivals }
    }

    /// Returns the number of the clock whose times all datagrams have. `enabled` is `None` if the
    /// driver does not report the setting.
    fn clock(self, enabled: Option<Enabled>) -> Result<u32, NoHardware> {
        const NEEDED: u32 = libc::SOF_TIMESTAMPING_TX_HARDWARE
            | libc::SOF_TIMESTAMPING_RX_HARDWARE
            | libc::SOF_TIMESTAMPING_RAW_HARDWARE;
        let clock = u32::try_from(self.clock).map_err(|_| NoHardware::Unsupported)?;
        if self.modes & NEEDED != NEEDED || self.departures & 1 << libc::HWTSTAMP_TX_ON == 0 {
            return Err(NoHardware::Unsupported);
        }
        if self.arrivals & 1 << libc::HWTSTAMP_FILTER_ALL == 0 {
            return Err(NoHardware::OnlyPtp);
        }
        match enabled {
            Some(Enabled { departures, arrivals })
                if departures != libc::HWTSTAMP_TX_ON || arrivals != libc::HWTSTAMP_FILTER_ALL =>
            {
                Err(NoHardware::Disabled)
            }
            _ => Ok(clock),
        }
    }
}

/// Returns the number of the hardware clock of interface `name`, if the interface stamps all
/// datagrams with it.
///
/// # Errors
/// The reason why the kernel's timestamps are to be used.
pub fn hardware_clock(name: &str) -> Result<u32, NoHardware> {
    let fields = ethtool::timestamps(name).map_err(|_| NoHardware::Unsupported)?;
    let clock = Offered::of(fields).clock(enabled(name).ok())?;
    DeviceClock::open(clock).map_err(|_| NoHardware::ClockUnreadable)?;
    Ok(clock)
}

fn enabled(name: &str) -> io::Result<Enabled> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    let mut config = libc::hwtstamp_config { flags: 0, tx_type: 0, rx_filter: 0 };
    let mut request = request(name)?;
    request.ifr_ifru.ifru_data = (&raw mut config).cast();
    // The type of a request differs between the C libraries of GNU and musl.
    #[allow(clippy::unnecessary_cast)]
    // SAFETY: the kernel writes a `hwtstamp_config`, to which `request` points, during the call.
    let code =
        unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGHWTSTAMP as _, &raw mut request) };
    if code < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Enabled { departures: config.tx_type as u32, arrivals: config.rx_filter as u32 })
}

/// The clocks of the interfaces of the calling thread's network namespace.
#[derive(Debug, Default)]
pub struct HardwareClocks {
    known: Vec<(u32, Option<DeviceClock>)>,
}

impl HardwareClocks {
    /// Opens the clocks of all interfaces that stamp all datagrams.
    #[must_use]
    pub fn of_all_interfaces() -> Self {
        let named = interfaces().into_iter().filter_map(|(index, name)| {
            let clock = DeviceClock::open(hardware_clock(&name).ok()?).ok()?;
            Some((index, Some(clock)))
        });
        HardwareClocks { known: named.take(MOST_CLOCKS).collect() }
    }

    /// Returns whether no clock is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Returns a time of an interface in nanoseconds of `CLOCK_REALTIME`; `None` if its clock cannot
    /// be read.
    pub fn unix_nanos(&mut self, time: HardwareTime) -> Option<u64> {
        let found = self.known.iter().position(|(interface, _)| *interface == time.interface);
        let index = match found {
            Some(index) => index,
            None if self.known.len() == MOST_CLOCKS => return None,
            None => {
                self.known.push((time.interface, DeviceClock::of_interface(time.interface).ok()));
                self.known.len() - 1
            }
        };
        let clock = self.known[index].1.as_ref()?;
        u64::try_from(clock.pairing.unix(i64::try_from(time.nanos).ok()?)).ok()
    }

    /// Reads the clocks again, so that the conversion follows their drift and steps. Call it every
    /// second.
    pub fn renew(&mut self) {
        self.known
            .retain_mut(|(_, clock)| clock.as_mut().is_some_and(|clock| clock.renew().is_ok()));
    }

    /// Returns the largest error of the conversion in nanoseconds at the time of the last reading.
    #[must_use]
    pub fn error_nanos(&self) -> u64 {
        let clocks = self.known.iter().filter_map(|(_, clock)| clock.as_ref());
        clocks.map(|clock| clock.pairing.error.unsigned_abs()).max().unwrap_or(0)
    }
}

/// The clock of an interface.
#[derive(Debug)]
struct DeviceClock {
    device: File,
    pairing: Pairing,
}

impl DeviceClock {
    fn of_interface(index: u32) -> io::Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
        let name = rustix::net::netdevice::index_to_name(&socket, index)?;
        let offered = Offered::of(ethtool::timestamps(&name)?);
        Self::open(offered.clock(None).map_err(|_| io::ErrorKind::Unsupported)?)
    }

    fn open(number: u32) -> io::Result<Self> {
        let device = File::open(format!("/dev/ptp{number}"))?;
        let pairing = read(&device)?;
        Ok(DeviceClock { device, pairing })
    }

    fn renew(&mut self) -> io::Result<()> {
        self.pairing = read(&self.device)?.after(self.pairing);
        Ok(())
    }
}

/// Returns the indices and names of all interfaces.
fn interfaces() -> Vec<(u32, String)> {
    let mut found = Vec::new();
    // SAFETY: the list is null, or ends with a null name and is freed once.
    unsafe {
        let head = libc::if_nameindex();
        let mut entry = head;
        while !entry.is_null() && !(*entry).if_name.is_null() {
            let name = std::ffi::CStr::from_ptr((*entry).if_name);
            found.extend(name.to_str().ok().map(|name| ((*entry).if_index, name.to_owned())));
            entry = entry.add(1);
        }
        if !head.is_null() {
            libc::if_freenameindex(head);
        }
    }
    found
}

/// Reads a hardware clock and `CLOCK_REALTIME` at the same time.
fn read(device: &File) -> io::Result<Pairing> {
    // SAFETY: a C structure for which all zeroes is valid.
    let mut offsets: libc::ptp_sys_offset_extended = unsafe { std::mem::zeroed() };
    offsets.n_samples = READINGS as libc::c_uint;
    // The type of a request differs between the C libraries of GNU and musl.
    #[allow(clippy::unnecessary_cast)]
    let code = libc::PTP_SYS_OFFSET_EXTENDED as _;
    // SAFETY: the kernel reads and writes the structure of this request during the call.
    if unsafe { libc::ioctl(device.as_raw_fd(), code, &raw mut offsets) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let nanos = |time: libc::ptp_clock_time| time.sec * 1_000_000_000 + i64::from(time.nsec);
    let readings = offsets.ts.iter().take(READINGS).map(|reading| reading.map(nanos));
    narrowest(readings).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Returns the reading with the shortest duration. A reading has the system's clock before, the
/// hardware clock, and the system's clock after, in nanoseconds.
fn narrowest(readings: impl Iterator<Item = [i64; 3]>) -> Option<Pairing> {
    let valid = readings.filter(|[before, _, after]| before <= after);
    let [before, device, after] = valid.min_by_key(|[before, _, after]| after - before)?;
    let error = (after - before).div_euclid(2);
    Some(Pairing { device, offset: before + error - device, drift: 0.0, error })
}

/// Two clocks at one time, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Pairing {
    /// The hardware clock.
    device: i64,
    /// The system's clock minus the hardware clock.
    offset: i64,
    /// The change of the offset per nanosecond of the hardware clock.
    drift: f64,
    /// The largest error of the offset.
    error: i64,
}

impl Pairing {
    /// Returns this reading with the drift since the reading `earlier`.
    fn after(self, earlier: Pairing) -> Self {
        let drift = (self.offset - earlier.offset) as f64 / (self.device - earlier.device) as f64;
        let steady = drift.abs() < MOST_DRIFT && self.device > earlier.device;
        Pairing { drift: if steady { drift } else { 0.0 }, ..self }
    }

    /// Returns the system's time at a time of the hardware clock.
    fn unix(self, device: i64) -> i64 {
        let since = device.saturating_sub(self.device);
        device.saturating_add(self.offset).saturating_add((since as f64 * self.drift) as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Modes, clock, departures and arrivals, as `ethtool -T` shows them.
    const ALL_PACKETS: [u32; 4] = [0x5f, 0, 0b11, 0b11];
    const SECOND_CLOCK: [u32; 4] = [0x5d, 2, 0b11, 0b11];
    const ONLY_PTP: [u32; 4] = [0x5f, 1, 0b11, 0x1ff9];
    const NO_HARDWARE: [u32; 4] = [0x1a, u32::MAX, 0, 0];

    fn offered([modes, clock, departures, arrivals]: [u32; 4]) -> Offered {
        Offered::of([modes, clock, departures, 7, 7, 7, arrivals, 7, 7, 7])
    }

    #[test]
    fn only_an_interface_that_stamps_all_datagrams_is_used() {
        let on = Some(Enabled { departures: 1, arrivals: 1 });
        assert_eq!(offered(ALL_PACKETS).clock(on), Ok(0));
        assert_eq!(offered(SECOND_CLOCK).clock(on), Ok(2));
        assert_eq!(
            offered(SECOND_CLOCK).clock(None),
            Ok(2),
            "the driver does not report the setting"
        );
        assert_eq!(offered(ONLY_PTP).clock(on), Err(NoHardware::OnlyPtp));
        assert_eq!(offered(NO_HARDWARE).clock(on), Err(NoHardware::Unsupported));
        for off in [(0, 0), (1, 0), (0, 1), (1, libc::HWTSTAMP_FILTER_PTP_V2_EVENT)] {
            let off = Some(Enabled { departures: off.0, arrivals: off.1 });
            assert_eq!(offered(ALL_PACKETS).clock(off), Err(NoHardware::Disabled));
        }
        // A driver without times of departures, and one without raw times.
        assert_eq!(offered([0x5e, 0, 0b11, 0b11]).clock(on), Err(NoHardware::Unsupported));
        assert_eq!(offered([0x1f, 0, 0b11, 0b11]).clock(on), Err(NoHardware::Unsupported));
        assert_eq!(offered([0x5f, 0, 0b01, 0b11]).clock(on), Err(NoHardware::Unsupported));
    }

    #[test]
    fn loopback_has_no_hardware_timestamps() {
        assert_eq!(hardware_clock("lo"), Err(NoHardware::Unsupported));
        assert_eq!(hardware_clock("no-such-if"), Err(NoHardware::Unsupported));
        assert!(interfaces().iter().any(|(_, name)| name == "lo"));
        let mut clocks = HardwareClocks::default();
        assert!(clocks.is_empty());
        for interface in 0..100 {
            assert_eq!(clocks.unix_nanos(HardwareTime { interface, nanos: 5 }), None);
        }
        assert_eq!(clocks.known.len(), MOST_CLOCKS);
        clocks.renew();
        assert_eq!((clocks.known.len(), clocks.error_nanos()), (0, 0));
    }

    #[test]
    fn the_shortest_reading_pairs_the_clocks() {
        let readings = [[1000, 50, 1100], [2000, 1030, 2020], [3000, 9999, 2999]];
        let found = narrowest(readings.into_iter()).unwrap();
        assert_eq!((found.device, found.offset, found.error), (1030, 980, 10));
        assert_eq!(narrowest([[5, 1, 4]].into_iter()), None);
    }

    #[test]
    fn the_conversion_follows_the_drift_of_the_clock() {
        const SECOND: i64 = 1_000_000_000;
        let pairing = |device, offset| Pairing { device, offset, drift: 0.0, error: 10 };
        let first = pairing(5 * SECOND, 1000);
        assert_eq!(first.unix(6 * SECOND), 6 * SECOND + 1000);
        // 20 ppm.
        let second = pairing(6 * SECOND, 21_000).after(first);
        assert_eq!(second.unix(6 * SECOND + SECOND / 2), 6 * SECOND + SECOND / 2 + 31_000);
        assert_eq!(second.unix(6 * SECOND - SECOND / 2), 6 * SECOND - SECOND / 2 + 11_000);
        // A step of either clock is not drift.
        let stepped = pairing(7 * SECOND, SECOND).after(second);
        assert_eq!(stepped.unix(8 * SECOND), 9 * SECOND);
        assert_eq!(pairing(SECOND, 0).after(second).drift, 0.0);
        assert_eq!(pairing(6 * SECOND, 21_000).after(second).drift, 0.0);
        assert_eq!(stepped.unix(i64::MAX), i64::MAX);
    }
}
