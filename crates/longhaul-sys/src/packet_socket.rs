//! Packet sockets with a virtio-net header: frames of an Ethernet device with unsplit
//! super-packets.
//!
//! Constants and layouts: `include/uapi/linux/if_packet.h`,
//! Documentation/networking/packet_mmap.rst. The socket hides the Ethernet header, so a frame
//! equals that of a TUN device (see [`crate::tun`]): [`VNET_HEADER`] bytes of `virtio_net_hdr`,
//! then the IP packet.
//!
//! The socket needs `CAP_NET_RAW` over the network namespace and no device node. Frames arrive
//! through a ring that the kernel fills, because the ordinary socket buffer, which an unprivileged
//! user cannot enlarge, holds only three super-packets. The ring's memory, [`RING_BYTES`], is
//! allocated at once.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use socket2::{Domain, Protocol, Socket, Type};

use crate::tun::{MAX_FRAME, VNET_HEADER};

/// The size of an Ethernet header in bytes: two addresses and a type.
pub(crate) const ETHERNET: usize = 14;

/// The size of a ring slot: the kernel's header, padding and the largest frame, in whole pages.
const PLACE: usize = (MAX_FRAME + ETHERNET + 512).next_multiple_of(4096);

/// The number of frames that can wait for the reader before the socket drops.
const PLACES: usize = 128;

/// The memory of one socket's ring in bytes.
pub const RING_BYTES: usize = PLACE * PLACES;

/// `PACKET_IGNORE_OUTGOING`: the socket does not receive its own frames.
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;

/// A non-blocking socket that receives and sends the frames of one interface. One thread may read
/// and one may write at a time.
#[derive(Debug)]
pub struct PacketSocket {
    socket: Socket,
    ring: Ring,
    /// The slot of the next frame to read.
    next: AtomicUsize,
    dropped: AtomicU64,
    /// The Ethernet address that is both destination and source of all frames.
    address: [u8; 6],
}

impl PacketSocket {
    /// Opens a socket on the interface with this index in the calling thread's network namespace.
    /// Its frames have `address` as Ethernet source and destination.
    ///
    /// # Errors
    /// `PermissionDenied` without `CAP_NET_RAW` over the namespace; the interface does not exist;
    /// the ring cannot be allocated.
    pub fn open(interface: u32, address: [u8; 6]) -> io::Result<Self> {
        // With protocol 0 the socket receives no frames before the ring exists.
        let socket = Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(0)))?;
        socket.set_nonblocking(true)?;
        set(&socket, libc::PACKET_VNET_HDR, &1)?;
        set(&socket, libc::PACKET_VERSION, &(libc::tpacket_versions::TPACKET_V2 as libc::c_int))?;
        set(&socket, PACKET_IGNORE_OUTGOING, &1)?;
        // Best effort: without this option each frame takes the lock of a queueing discipline.
        let _ = set(&socket, libc::PACKET_QDISC_BYPASS, &1);
        let _ = socket.set_send_buffer_size(4 << 20);
        let ring = Ring::map(&socket)?;
        bind(&socket, interface)?;
        let (next, dropped) = (AtomicUsize::new(0), AtomicU64::new(0));
        Ok(PacketSocket { socket, ring, next, dropped, address })
    }

    /// Reads one frame without its Ethernet header into `buffer`, which must have space for
    /// [`MAX_FRAME`], and returns its length.
    ///
    /// # Errors
    /// `WouldBlock` if no frame waits; `NetworkDown` if the interface no longer exists.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let place = self.next.load(Ordering::Relaxed);
        let Some(frame) = self.ring.frame(place) else {
            // The socket's error reports an interface that was removed or is down.
            return Err(self.socket.take_error()?.unwrap_or(io::ErrorKind::WouldBlock.into()));
        };
        let length = frame.len().saturating_sub(ETHERNET).min(buffer.len());
        let copied = match frame.split_at_checked(VNET_HEADER) {
            Some((header, rest)) if rest.len() >= ETHERNET && length >= VNET_HEADER => {
                let header = moved(header, -(ETHERNET as i16));
                buffer[..VNET_HEADER].copy_from_slice(&header);
                buffer[VNET_HEADER..length]
                    .copy_from_slice(&rest[ETHERNET..][..length - VNET_HEADER]);
                Ok(length)
            }
            _ => Err(io::ErrorKind::Interrupted.into()),
        };
        self.ring.give_back(place);
        self.next.store((place + 1) % PLACES, Ordering::Relaxed);
        copied
    }

    /// Sends one frame, the concatenation of `slices`. The first slice contains at least the
    /// virtio-net header.
    ///
    /// # Errors
    /// The frame is malformed, the interface is down, or the socket's buffer is full.
    pub fn write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        write_packet(&self.socket, slices, self.address, self.address)
    }

    /// Returns the number of frames that the socket dropped because its ring was full.
    pub fn dropped(&self) -> u64 {
        let new = kernel_drops(&self.socket);
        self.dropped.fetch_add(new, Ordering::Relaxed) + new
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Sends an IP packet with its virtio-net header, the concatenation of `slices`, in an Ethernet frame
/// between two addresses. The first slice contains at least the virtio-net header.
pub(crate) fn write_packet(
    socket: &Socket,
    slices: &[IoSlice<'_>],
    to: [u8; 6],
    from: [u8; 6],
) -> io::Result<usize> {
    let first = slices.first().ok_or(io::ErrorKind::InvalidInput)?;
    let (header, rest) = first.split_at_checked(VNET_HEADER).ok_or(io::ErrorKind::InvalidInput)?;
    let mut head = [0; VNET_HEADER + ETHERNET];
    head[..VNET_HEADER].copy_from_slice(&moved(header, ETHERNET as i16));
    head[VNET_HEADER..][..6].copy_from_slice(&to);
    head[VNET_HEADER + 6..][..6].copy_from_slice(&from);
    let version = [rest].into_iter().chain(slices[1..].iter().map(|slice| &slice[..]));
    let version = version.flatten().next().map_or(0, |byte| byte >> 4);
    let kind = if version == 6 { libc::ETH_P_IPV6 } else { libc::ETH_P_IP } as u16;
    head[VNET_HEADER + 12..].copy_from_slice(&kind.to_be_bytes());
    let mut frame = [IoSlice::new(&[]); 8];
    (frame[0], frame[1]) = (IoSlice::new(&head), IoSlice::new(rest));
    for (place, slice) in frame[2..].iter_mut().zip(&slices[1..]) {
        *place = IoSlice::new(slice);
    }
    Ok(rustix::io::writev(socket, &frame)?)
}

/// Returns the virtio-net header for a packet that starts `by` bytes later in the frame.
fn moved(header: &[u8], by: i16) -> [u8; VNET_HEADER] {
    let mut moved: [u8; VNET_HEADER] = header.first_chunk().copied().unwrap_or_default();
    shift_offsets(&mut moved, by);
    moved
}

/// Changes a frame's virtio-net header for a packet that starts `by` bytes later in the frame.
pub(crate) fn shift_offsets(header: &mut [u8], by: i16) {
    const NEEDS_CSUM: u8 = 1;
    // The offsets to move are `hdr_len` and `csum_start`, each if it is set.
    let (has_length, has_checksum) = (header[2..4] != [0, 0], header[0] & NEEDS_CSUM != 0);
    let mut shift = |at: usize| {
        let value = u16::from_ne_bytes([header[at], header[at + 1]]).wrapping_add_signed(by);
        header[at..at + 2].copy_from_slice(&value.to_ne_bytes());
    };
    if has_length {
        shift(2);
    }
    if has_checksum {
        shift(6);
    }
}

/// The memory into which the kernel writes frames: slots with a `tpacket2_hdr` at their start.
#[derive(Debug)]
struct Ring {
    start: NonNull<u8>,
}

// SAFETY: the mapping belongs to this value only, and the status of each slot orders the kernel's
// accesses.
unsafe impl Send for Ring {}
// SAFETY: as above; a slot is read only while its status assigns it to the program.
unsafe impl Sync for Ring {}

impl Ring {
    fn map(socket: &Socket) -> io::Result<Self> {
        let request = libc::tpacket_req {
            tp_block_size: PLACE as libc::c_uint,
            tp_block_nr: PLACES as libc::c_uint,
            tp_frame_size: PLACE as libc::c_uint,
            tp_frame_nr: PLACES as libc::c_uint,
        };
        set(socket, libc::PACKET_RX_RING, &request)?;
        // SAFETY: a new mapping of the socket's ring, of the requested size, overlaps nothing.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                RING_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                socket.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the range is the new mapping, and the hint changes no contents.
        unsafe { libc::madvise(start, RING_BYTES, libc::MADV_DONTFORK) };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Ring { start })
    }

    fn header(&self, place: usize) -> NonNull<libc::tpacket2_hdr> {
        debug_assert!(place < PLACES);
        // SAFETY: the slot lies within the mapping, which is page-aligned as the slots are.
        unsafe { self.start.add(place % PLACES * PLACE).cast() }
    }

    fn status(&self, place: usize) -> &AtomicU32 {
        // SAFETY: the status is an aligned u32 within the mapping, and both sides change it only as
        // one word.
        unsafe { AtomicU32::from_ptr(&raw mut (*self.header(place).as_ptr()).tp_status) }
    }

    /// Returns the frame in slot `place`, starting with the virtio-net header; `None` while the
    /// slot belongs to the kernel.
    fn frame(&self, place: usize) -> Option<&[u8]> {
        if self.status(place).load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: the slot belongs to the program until it is released, so its header does not
        // change.
        let header = unsafe { self.header(place).as_ref() };
        let start = usize::from(header.tp_mac).saturating_sub(VNET_HEADER);
        let length = (header.tp_snaplen as usize + VNET_HEADER).min(PLACE.saturating_sub(start));
        // SAFETY: start and length lie within the slot for any header, and the slot does not change
        // while it belongs to the program.
        Some(unsafe {
            std::slice::from_raw_parts(self.header(place).as_ptr().cast::<u8>().add(start), length)
        })
    }

    fn give_back(&self, place: usize) {
        self.status(place).store(libc::TP_STATUS_KERNEL, Ordering::Release);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by map and no slice of it outlives self.
        unsafe { libc::munmap(self.start.as_ptr().cast(), RING_BYTES) };
    }
}

/// Binds a packet socket to all frames of the interface with this index.
pub(crate) fn bind(socket: &Socket, interface: u32) -> io::Result<()> {
    bind_type(socket, interface, libc::ETH_P_ALL as u16)
}

/// Binds a packet socket to the frames with this type of the interface with this index.
pub(crate) fn bind_type(socket: &Socket, interface: u32, ether_type: u16) -> io::Result<()> {
    // SAFETY: all zeroes is a valid sockaddr_ll.
    let mut to: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    to.sll_family = libc::AF_PACKET as u16;
    to.sll_protocol = ether_type.to_be();
    to.sll_ifindex = interface as libc::c_int;
    let size = size_of_val(&to) as libc::socklen_t;
    // SAFETY: the address is a sockaddr_ll of this size that lives across the call.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const to).cast(), size) })
}

/// Returns the number of frames that the kernel dropped since the last call because the socket was
/// full.
pub(crate) fn kernel_drops(socket: &Socket) -> u64 {
    let mut counts = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
    let mut size = size_of_val(&counts) as libc::socklen_t;
    // SAFETY: `counts` is valid for writing `size` bytes. Reading resets the kernel's count.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            (&raw mut counts).cast(),
            &raw mut size,
        )
    };
    if result == 0 { u64::from(counts.tp_drops) } else { 0 }
}

/// Sets an option of `SOL_PACKET`.
fn set<T>(socket: &Socket, option: libc::c_int, value: &T) -> io::Result<()> {
    set_option(socket, libc::SOL_PACKET, option, value)
}

/// Sets a socket option whose type is `T`.
pub(crate) fn set_option<T>(
    socket: &Socket,
    level: libc::c_int,
    option: libc::c_int,
    value: &T,
) -> io::Result<()> {
    let size = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads `size` bytes of `value`, which lives across the call; every caller
    // passes the type of the option.
    check(unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, std::ptr::from_ref(value).cast(), size)
    })
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
