//! The packet devices at the two ends of a link.
//!
//! The preferred device is a TUN device. If the user may not open one, the site gets one end of a
//! veth pair, and the emulator opens a packet socket on the other end, in a separate network
//! namespace. A pair needs no device node and no permission beyond a user namespace. Both kinds
//! pass super-packets unsplit and use the same frame: a virtio-net header, then the IP packet.

use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};

use longhaul_sys::ethernet_socket::EthernetSocket;
use longhaul_sys::interface::{self, Interface};
use longhaul_sys::namespace::{self, NetworkNamespace};
use longhaul_sys::packet_socket::PacketSocket;
use longhaul_sys::tun::{self, Tun, TunOffloads};

use crate::EmuError;
use crate::packet::Framing;
use crate::privilege::{namespaces_error, tun_error};

/// The largest number of frames that a device reads or writes at once.
pub(crate) const MOST_FRAMES: usize = EthernetSocket::BATCH;

/// The longest frame that shares a call with others. Super-packets save less, and several of them do not
/// stay in the processor's cache between the read and the write.
pub(crate) const LONGEST_SHARED: usize = 16 << 10;

/// One end of a link, as a lane uses it. Reads do not block.
pub(crate) trait PacketDevice: fmt::Debug + Send + Sync {
    /// Returns a descriptor that is readable when a frame waits.
    fn readiness(&self) -> BorrowedFd<'_>;

    /// Reads one frame into `buffer`, which must have space for any frame, and returns its length.
    ///
    /// # Errors
    /// `WouldBlock` and `Interrupted` mean that no frame was read this time. Any other error means
    /// that the device no longer exists.
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Writes one frame, the concatenation of `slices`.
    ///
    /// # Errors
    /// The device rejected the frame.
    fn write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Returns the number of frames, from 1 to [`MOST_FRAMES`], that it reads or writes at once for less
    /// than it takes for each of them.
    fn batch(&self) -> usize {
        1
    }

    /// Reads at least one frame, and those that wait behind it, each into one of `buffers`. Stores their
    /// lengths and returns their number.
    ///
    /// # Errors
    /// As for [`PacketDevice::read`].
    fn read_many(&self, buffers: &mut [&mut [u8]], lengths: &mut [usize]) -> io::Result<usize> {
        read_first(self, buffers, lengths)
    }

    /// Writes at least the first of `frames`, and returns how many were written.
    ///
    /// # Errors
    /// The device rejected the first frame.
    fn write_many(&self, frames: &[&[u8]]) -> io::Result<usize> {
        write_first(self, frames)
    }

    /// Returns the link-layer header of the frames, which is the same at both ends of a link.
    fn framing(&self) -> Framing {
        Framing::Ip
    }

    /// Returns the number of frames that the device dropped unread, in addition to those that its
    /// interface counts.
    fn dropped(&self) -> u64 {
        0
    }
}

/// Reads a frame into the first of `buffers`.
fn read_first<D: PacketDevice + ?Sized>(
    device: &D,
    buffers: &mut [&mut [u8]],
    lengths: &mut [usize],
) -> io::Result<usize> {
    let (Some(buffer), Some(length)) = (buffers.first_mut(), lengths.first_mut()) else {
        return Err(io::ErrorKind::WouldBlock.into());
    };
    *length = device.read(buffer)?;
    Ok(1)
}

/// Writes the first of `frames`.
fn write_first<D: PacketDevice + ?Sized>(device: &D, frames: &[&[u8]]) -> io::Result<usize> {
    device.write(&[IoSlice::new(frames.first().copied().unwrap_or_default())]).map(|_| 1)
}

/// The kind of the sites' ends of links.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Medium {
    /// TUN devices if possible, otherwise pairs of interfaces: the fastest.
    #[default]
    Tun,
    /// Pairs of Ethernet interfaces, between whose outer ends the emulator forwards frames as a
    /// [`Bridge`](crate::Bridge) does, with the same sockets.
    Bridge,
}

/// A site's end of a link. Dropping it removes the interface.
#[derive(Debug)]
pub(crate) enum Device {
    Tun(Tun),
    Packet(PacketSocket),
    Ethernet(EthernetSocket),
    /// The network card of a virtual machine.
    Guest(Box<dyn PacketDevice>),
}

impl Device {
    /// Returns the kinds of super-packet that the device accepts.
    pub(crate) fn offloads(&self) -> TunOffloads {
        match self {
            Device::Tun(tun) => tun.offloads(),
            // All segmentation features of veth (drivers/net/veth.c) are in software.
            Device::Packet(_) | Device::Ethernet(_) | Device::Guest(_) => {
                TunOffloads { tcp: true, udp: true }
            }
        }
    }
}

impl PacketDevice for Device {
    fn readiness(&self) -> BorrowedFd<'_> {
        match self {
            Device::Tun(tun) => tun.as_fd(),
            Device::Packet(socket) => socket.as_fd(),
            Device::Ethernet(socket) => socket.as_fd(),
            Device::Guest(edge) => edge.readiness(),
        }
    }

    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Device::Tun(tun) => Ok(rustix::io::read(tun, buffer)?),
            Device::Packet(socket) => socket.read(buffer),
            Device::Ethernet(socket) => socket.read(buffer),
            Device::Guest(edge) => edge.read(buffer),
        }
    }

    fn write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Device::Tun(tun) => Ok(rustix::io::writev(tun, slices)?),
            Device::Packet(socket) => socket.write(slices),
            Device::Ethernet(socket) => socket.write(slices),
            Device::Guest(edge) => edge.write(slices),
        }
    }

    fn batch(&self) -> usize {
        match self {
            Device::Ethernet(socket) => PacketDevice::batch(socket),
            Device::Tun(_) | Device::Packet(_) | Device::Guest(_) => 1,
        }
    }

    fn read_many(&self, buffers: &mut [&mut [u8]], lengths: &mut [usize]) -> io::Result<usize> {
        match self {
            Device::Ethernet(socket) => socket.read_many(buffers, lengths),
            Device::Tun(_) | Device::Packet(_) | Device::Guest(_) => {
                read_first(self, buffers, lengths)
            }
        }
    }

    fn write_many(&self, frames: &[&[u8]]) -> io::Result<usize> {
        match self {
            Device::Ethernet(socket) => socket.write_many(frames),
            Device::Tun(_) | Device::Packet(_) | Device::Guest(_) => write_first(self, frames),
        }
    }

    fn framing(&self) -> Framing {
        match self {
            Device::Tun(_) | Device::Packet(_) | Device::Guest(_) => Framing::Ip,
            Device::Ethernet(_) => Framing::Ethernet,
        }
    }

    fn dropped(&self) -> u64 {
        match self {
            Device::Tun(_) => 0,
            Device::Packet(socket) => socket.dropped(),
            Device::Ethernet(socket) => socket.dropped(),
            Device::Guest(edge) => edge.dropped(),
        }
    }
}

/// Creates the devices of a site, as TUN devices if possible.
#[derive(Debug)]
pub(crate) struct DeviceMaker {
    method: Method,
}

#[derive(Debug)]
enum Method {
    Tun,
    Pair {
        /// The namespace of the emulator's ends of the pairs.
        emulator_side: NetworkNamespace,
        site: NetworkNamespace,
        /// The error of the attempt to open the TUN device; `None` for [`Medium::Bridge`].
        closed: Option<io::Error>,
    },
}

impl DeviceMaker {
    /// The Ethernet address of the site's end of every pair, used as source and destination of all
    /// its frames. The second bit marks it as locally administered (IEEE 802).
    const ADDRESS: [u8; 6] = [2, 0, 0, 0, 0, 1];

    /// Moves the calling thread into new namespaces for a site, ready to create devices there. The
    /// network namespace is `network` if given.
    ///
    /// # Errors
    /// The user may not create namespaces or enter the given one.
    pub(crate) fn enter_site(
        network: Option<&NetworkNamespace>,
        medium: Medium,
    ) -> Result<Self, EmuError> {
        let enter = || match network {
            None => namespace::enter_site_namespaces(),
            Some(network) => network.enter().and_then(|()| namespace::enter_local_namespaces()),
        };
        let closed = match medium {
            Medium::Tun => tun::open().err(),
            Medium::Bridge => None,
        };
        let method = match (medium, closed) {
            (Medium::Tun, None) => {
                enter().map_err(namespaces_error)?;
                Method::Tun
            }
            (_, closed) => {
                let emulator_side = NetworkNamespace::enter_new().map_err(namespaces_error)?;
                enter().map_err(namespaces_error)?;
                let site = NetworkNamespace::current().map_err(namespaces_error)?;
                Method::Pair { emulator_side, site, closed }
            }
        };
        Ok(DeviceMaker { method })
    }

    /// Creates interface `name` in the site, for packets of up to `mtu` bytes, and returns its queues.
    /// The interface is down.
    ///
    /// # Errors
    /// Neither method works. The error is that of the TUN device, because an administrator can give
    /// users access to it.
    pub(crate) fn make(&self, name: &str, mtu: u32, queues: u32) -> Result<Vec<Device>, EmuError> {
        match &self.method {
            Method::Tun => {
                let queues = Tun::create_queues(name, queues).map_err(tun_error)?;
                Ok(queues.into_iter().map(Device::Tun).collect())
            }
            Method::Pair { emulator_side, site, closed } => {
                let hold = |name: &str| match closed {
                    Some(_) if queues == 1 => hold(name),
                    // The ring of a packet socket has one queue.
                    Some(_) => Err(io::ErrorKind::Unsupported.into()),
                    None => hold_frames(name, queues),
                };
                let held =
                    interface::create_pair(name, name, emulator_side.as_fd(), mtu, Self::ADDRESS)
                        .and_then(|()| {
                            emulator_side.enter()?;
                            let device = hold(name);
                            site.enter()?;
                            device
                        });
                held.map_err(|error| match closed {
                    Some(closed) => {
                        let code = closed.raw_os_error();
                        tun_error(code.map_or(closed.kind().into(), io::Error::from_raw_os_error))
                    }
                    None => EmuError::Interface { interface: name.to_owned(), source: error },
                })
            }
        }
    }
}

/// Opens a socket on the emulator's end of a pair. The calling thread must be in the namespace of
/// that end.
fn hold(name: &str) -> io::Result<Vec<Device>> {
    let index = bring_up(name)?;
    Ok(vec![Device::Packet(PacketSocket::open(index, DeviceMaker::ADDRESS)?)])
}

/// The same with the socket of a bridge.
fn hold_frames(name: &str, queues: u32) -> io::Result<Vec<Device>> {
    let sockets = EthernetSocket::open_queues(bring_up(name)?, queues)?;
    Ok(sockets.into_iter().map(Device::Ethernet).collect())
}

/// Brings the emulator's end of a pair up, and returns its index.
fn bring_up(name: &str) -> io::Result<u32> {
    let interface = Interface::named(name)?;
    // Only the socket may send here: IPv6 would add packets of the kernel.
    let quiet = format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6");
    let _ = std::fs::write(quiet, "1");
    // The interface comes up first: a socket on an interface that is down starts with a pending
    // error.
    interface.up()?;
    Ok(interface.index())
}
