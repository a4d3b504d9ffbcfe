//! TUN devices with a virtio-net header and segmentation offload.
//!
//! Constants and layouts: `include/uapi/linux/if_tun.h`, `include/uapi/linux/virtio_net.h`,
//! `drivers/net/tun.c`. Each read and each write transfers one packet of up to [`MAX_FRAME`] bytes:
//! [`VNET_HEADER`] bytes of `virtio_net_hdr`, then the IP packet, which with offload may stand for
//! many segments.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

/// The size of `struct virtio_net_hdr`, which precedes each packet, in bytes.
pub const VNET_HEADER: usize = 10;

/// The largest frame: the header and the largest IP packet. A shorter buffer would truncate a
/// packet without an error.
pub const MAX_FRAME: usize = VNET_HEADER + 65_535;

/// The path of the TUN device node.
pub const DEVICE: &str = "/dev/net/tun";

/// The super-packets that `TUNSETOFFLOAD` enabled. Results record them, because a kernel without
/// super-packets moves far fewer bytes per system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TunOffloads {
    /// TCP super-packets over IPv4 and IPv6, including those with ECN.
    pub tcp: bool,
    /// UDP super-packets (Linux 6.2 and later).
    pub udp: bool,
}

/// An open, non-blocking TUN queue. The kernel removes the device with its last handle.
#[derive(Debug)]
pub struct Tun {
    fd: OwnedFd,
    offloads: TunOffloads,
}

impl Tun {
    /// Creates device `name` in the calling thread's network namespace.
    ///
    /// # Errors
    /// `NotFound` or `ENODEV`: [`DEVICE`] is missing or has no driver. `PermissionDenied`: it may
    /// not be opened, or the thread lacks `CAP_NET_ADMIN` over the namespace. `InvalidInput`: the
    /// name is too long.
    pub fn create(name: &str) -> io::Result<Self> {
        Tun::attach(name, 0)
    }

    /// Creates device `name` with several queues, to which the kernel assigns flows by their hash. A
    /// flow of packets written to a queue comes back in the queue with the same index.
    ///
    /// # Errors
    /// As for [`Tun::create`].
    pub fn create_queues(name: &str, count: u32) -> io::Result<Vec<Self>> {
        match count {
            1 => Ok(vec![Tun::create(name)?]),
            _ => (0..count).map(|_| Tun::attach(name, libc::IFF_MULTI_QUEUE)).collect(),
        }
    }

    /// Opens a queue of device `name`, which is created if it does not exist.
    fn attach(name: &str, flags: libc::c_int) -> io::Result<Self> {
        let mut request = crate::interface::request(name)?;
        let fd: OwnedFd = open()?.into();
        request.ifr_ifru.ifru_flags =
            (libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR | flags) as libc::c_short;
        // SAFETY: TUNSETIFF reads and writes one ifreq, which lives across the call.
        check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })?;
        let header = VNET_HEADER as libc::c_int;
        // SAFETY: TUNSETVNETHDRSZ reads one int, which lives across the call.
        check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETVNETHDRSZ, &raw const header) })?;
        let offloads = negotiate(&fd);
        Ok(Tun { fd, offloads })
    }

    /// Returns the offloads that the kernel enabled.
    pub fn offloads(&self) -> TunOffloads {
        self.offloads
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Creates the TAP device `name`, which exists until it is removed.
///
/// # Errors
/// As for [`Tun::create`]; `EBUSY` if an interface of this name exists.
pub fn create_tap(name: &str) -> io::Result<()> {
    let fd: OwnedFd = open()?.into();
    let mut request = crate::interface::request(name)?;
    let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR | libc::IFF_TUN_EXCL;
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes one ifreq, which lives across the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })?;
    // SAFETY: TUNSETPERSIST takes the flag by value and accesses no memory.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETPERSIST, 1 as libc::c_ulong) })
}

/// Opens [`DEVICE`] without creating an interface, to test whether the device is usable.
///
/// # Errors
/// As for [`Tun::create`].
pub fn open() -> io::Result<File> {
    File::options().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(DEVICE)
}

/// Enables as many offloads as the kernel supports. An unknown bit fails the whole call, and both
/// USO bits must be set together.
fn negotiate(fd: &OwnedFd) -> TunOffloads {
    // Since Linux 6.2; older headers lack the names.
    const TUN_F_USO4: libc::c_uint = 0x20;
    const TUN_F_USO6: libc::c_uint = 0x40;
    // TCP offload includes ECN; without it the kernel splits super-packets that carry CWR.
    let tcp = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
    let set = |mask: libc::c_uint| {
        // SAFETY: TUNSETOFFLOAD takes the mask by value and accesses no memory.
        unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(mask)) == 0 }
    };
    if set(tcp | TUN_F_USO4 | TUN_F_USO6) {
        TunOffloads { tcp: true, udp: true }
    } else {
        TunOffloads { tcp: set(tcp), udp: false }
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
