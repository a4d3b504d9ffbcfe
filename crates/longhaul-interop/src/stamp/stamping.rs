//! The times at which packets leave and arrive: the network interface's where it gives them, otherwise
//! the kernel's.

use std::net::IpAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use longhaul_core::result::NoHardware;
use longhaul_sys::probe::{
    HardwareClocks, HardwareTime, Stamped, hardware_clock, now_nanos, prepare_hardware_stamps,
};
use longhaul_sys::route::route_to;

/// The time of a departure or an arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketTime {
    /// The time in nanoseconds since 1970.
    pub at_nanos: u64,
    /// True if the network interface measured the time, false if the kernel did.
    pub by_hardware: bool,
}

/// The timestamps of a socket.
#[derive(Debug)]
pub(super) struct Stamping {
    clocks: Result<HardwareClocks, NoHardware>,
}

impl Stamping {
    /// Uses the interface through which `socket` sends to `target`.
    pub(super) fn for_target(socket: impl AsFd, target: IpAddr) -> Self {
        let route = route_to(target).map_err(|_| NoHardware::Unsupported);
        let used = route.and_then(|route| hardware_clock(&route.interface));
        Self::prepare(socket, used.map(|_| HardwareClocks::default()))
    }

    /// Uses every interface of this host.
    pub(super) fn of_all_interfaces(socket: impl AsFd) -> Self {
        let clocks = HardwareClocks::of_all_interfaces();
        Self::prepare(
            socket,
            Some(clocks).filter(|clocks| !clocks.is_empty()).ok_or(NoHardware::Unsupported),
        )
    }

    fn prepare(socket: impl AsFd, clocks: Result<HardwareClocks, NoHardware>) -> Self {
        let prepared = |clocks| match prepare_hardware_stamps(socket) {
            Ok(()) => Ok(clocks),
            Err(_) => Err(NoHardware::Unsupported),
        };
        Stamping { clocks: clocks.and_then(prepared) }
    }

    /// Returns the reason why hardware timestamps are not used.
    pub(super) fn no_hardware(&self) -> Option<NoHardware> {
        self.clocks.as_ref().err().copied()
    }

    /// Returns the time of a departure; `None` if neither the interface nor the kernel has one.
    pub(super) fn departure(
        &mut self,
        kernel: u64,
        hardware: Option<HardwareTime>,
    ) -> Option<PacketTime> {
        let clocks = self.clocks.as_mut().ok();
        let by_interface = hardware.zip(clocks).and_then(|(time, clocks)| clocks.unix_nanos(time));
        match (by_interface, kernel) {
            (Some(at_nanos), _) => Some(PacketTime { at_nanos, by_hardware: true }),
            (None, 0) => None,
            (None, at_nanos) => Some(PacketTime { at_nanos, by_hardware: false }),
        }
    }

    /// Returns the time of an arrival.
    pub(super) fn arrival(&mut self, arrived: &Stamped) -> PacketTime {
        let found = self.departure(arrived.received.at_nanos, arrived.hardware);
        found.unwrap_or_else(|| PacketTime { at_nanos: now_nanos(), by_hardware: false })
    }

    /// Follows the clocks of the interfaces; to be called every second. Returns the largest error of
    /// their conversion to the host's clock.
    pub(super) fn renew(&mut self) -> Duration {
        self.clocks.as_mut().map_or(Duration::ZERO, |clocks| {
            clocks.renew();
            Duration::from_nanos(clocks.error_nanos())
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use longhaul_sys::probe::prepare_stamped;

    use super::*;

    #[test]
    fn loopback_has_the_times_of_the_kernel() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        prepare_stamped(&socket, false).unwrap();
        let mut stamping = Stamping::for_target(&socket, [127, 0, 0, 1].into());
        assert_eq!(stamping.no_hardware(), Some(NoHardware::Unsupported));
        let unknown = Some(HardwareTime { interface: 1, nanos: 7 });
        let kernel = PacketTime { at_nanos: 5, by_hardware: false };
        assert_eq!(stamping.departure(5, unknown), Some(kernel));
        assert_eq!(stamping.departure(0, unknown), None);
        assert_eq!(stamping.renew(), Duration::ZERO);
    }

    #[test]
    fn a_time_without_the_clock_of_its_interface_is_the_kernels() {
        let mut stamping = Stamping { clocks: Ok(HardwareClocks::default()) };
        let unknown = Some(HardwareTime { interface: u32::MAX, nanos: 7 });
        let kernel = PacketTime { at_nanos: 5, by_hardware: false };
        assert_eq!(stamping.departure(5, unknown), Some(kernel));
        assert_eq!(stamping.no_hardware(), None);
    }
}
