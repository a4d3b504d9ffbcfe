//! Packet sockets that receive and send all Ethernet frames of an interface, with a virtio-net
//! header.
//!
//! Constants and layouts: `include/uapi/linux/if_packet.h`. A frame is [`VNET_HEADER`] bytes of
//! `virtio_net_hdr`, the Ethernet header with its VLAN tags, and the packet, which may stand for
//! many segments. The kernel removes the outer VLAN tag of a received frame and reports it beside
//! the frame; the socket inserts it again. The socket needs `CAP_NET_RAW`.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use socket2::{Domain, Protocol, Socket, Type};

use crate::packet_socket::{
    ETHERNET, bind, kernel_drops, set_option as set, shift_offsets, write_packet,
};
use crate::tun::{MAX_FRAME, VNET_HEADER};

/// The longest Ethernet header that a frame of the largest size has: two addresses, four VLAN tags
/// and a type.
const LONGEST_LINK: usize = 30;

/// The largest frame in bytes.
pub const MAX_ETHERNET_FRAME: usize = MAX_FRAME + LONGEST_LINK;

/// The size of a VLAN tag.
const TAG: usize = 4;

/// The offset of a VLAN tag in a frame: behind the virtio-net header and two addresses.
const TAG_AT: usize = VNET_HEADER + 12;

/// `PACKET_IGNORE_OUTGOING`: the socket does not receive its own frames.
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;

/// The bytes that can wait in the socket for the reader, and for the interface: some milliseconds
/// at 100 Gb/s.
const BUFFER: libc::c_int = 64 << 20;

/// A non-blocking socket that receives and sends the Ethernet frames of one interface. The interface
/// is in promiscuous mode while the socket exists.
#[derive(Debug)]
pub struct EthernetSocket {
    socket: Socket,
    dropped: AtomicU64,
}

/// `struct tpacket_auxdata`.
#[repr(C)]
#[derive(Clone, Copy)]
struct AuxData {
    status: u32,
    length: u32,
    captured: u32,
    mac: u16,
    net: u16,
    vlan_tci: u16,
    vlan_protocol: u16,
}

impl EthernetSocket {
    /// The number of frames that one call of the kernel receives or sends.
    pub const BATCH: usize = 8;

    /// Opens a socket on the interface with this index in the calling thread's network namespace.
    ///
    /// # Errors
    /// `PermissionDenied` without `CAP_NET_RAW` over the namespace; the interface does not exist.
    pub fn open(interface: u32) -> io::Result<Self> {
        // With protocol 0 the socket receives no frames before it is bound.
        let socket = Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(0)))?;
        socket.set_nonblocking(true)?;
        set(&socket, libc::SOL_PACKET, libc::PACKET_VNET_HDR, &1)?;
        set(&socket, libc::SOL_PACKET, libc::PACKET_AUXDATA, &1)?;
        set(&socket, libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, &1)?;
        // Root of the initial user namespace may exceed the host's limits.
        for (force, plain) in
            [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)]
        {
            set(&socket, libc::SOL_SOCKET, force, &BUFFER)
                .or_else(|_| set(&socket, libc::SOL_SOCKET, plain, &BUFFER))?;
        }
        let all = libc::packet_mreq {
            mr_ifindex: interface as libc::c_int,
            mr_type: libc::PACKET_MR_PROMISC as libc::c_ushort,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        set(&socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &all)?;
        bind(&socket, interface)?;
        Ok(EthernetSocket { socket, dropped: AtomicU64::new(0) })
    }

    /// Opens several sockets on an interface, to which the kernel assigns frames by the hash of their
    /// flow, which is the same in both directions of the flow.
    ///
    /// # Errors
    /// As for [`EthernetSocket::open`].
    pub fn open_queues(interface: u32, count: u32) -> io::Result<Vec<Self>> {
        /// `PACKET_FANOUT_HASH`, and `PACKET_FANOUT_FLAG_UNIQUEID`: the kernel chooses the group.
        const HASH: libc::c_int = 0;
        const UNIQUE: libc::c_int = 0x2000;
        let sockets = (0..count).map(|_| EthernetSocket::open(interface));
        let sockets = sockets.collect::<io::Result<Vec<_>>>()?;
        let [first, others @ ..] = &sockets[..] else { return Ok(sockets) };
        if others.is_empty() {
            return Ok(sockets);
        }
        set(&first.socket, libc::SOL_PACKET, libc::PACKET_FANOUT, &((HASH | UNIQUE) << 16))?;
        let group: libc::c_int =
            crate::socket::get(&first.socket, libc::SOL_PACKET, libc::PACKET_FANOUT)?;
        for other in others {
            set(
                &other.socket,
                libc::SOL_PACKET,
                libc::PACKET_FANOUT,
                &(group & 0xffff | HASH << 16),
            )?;
        }
        Ok(sockets)
    }

    /// Reads one frame into `buffer`, which must have space for [`MAX_ETHERNET_FRAME`], and returns
    /// its length.
    ///
    /// # Errors
    /// `WouldBlock` if no frame waits; `Interrupted` if the kernel could not pass a frame on, which
    /// counts as dropped, or if the interface is down; any other error if the interface no longer
    /// exists.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut length = [0];
        self.read_many(&mut [buffer], &mut length)?;
        Ok(length[0])
    }

    /// Reads at least one frame, and those that wait behind it, each into one of `buffers`, of which it
    /// uses at most [`EthernetSocket::BATCH`]. Stores the lengths and returns the number of frames.
    ///
    /// # Errors
    /// As for [`EthernetSocket::read`].
    pub fn read_many(&self, buffers: &mut [&mut [u8]], lengths: &mut [usize]) -> io::Result<usize> {
        let most = buffers.len().min(lengths.len()).min(Self::BATCH);
        let mut tags = [None; Self::BATCH];
        let received = receive(&self.socket, &mut buffers[..most], lengths, &mut tags);
        let received = received.map_err(|error| self.explain(error))?;
        let frames = buffers.iter_mut().zip(lengths.iter_mut()).zip(tags).take(received);
        for ((frame, length), tag) in frames {
            if let Some(aux) = tag.filter(|_| *length >= TAG_AT) {
                insert_tag(frame, *length, &aux);
                *length += TAG;
            }
        }
        Ok(received)
    }

    /// Returns the error of a read as [`EthernetSocket::read`] documents it.
    fn explain(&self, error: io::Error) -> io::Error {
        match error.raw_os_error() {
            // A super-packet of a kind that the header cannot describe, such as a tunnel's.
            Some(libc::EINVAL) => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
                io::ErrorKind::Interrupted.into()
            }
            // Reported once when the interface goes down; it may come up again.
            Some(libc::ENETDOWN) => io::ErrorKind::Interrupted.into(),
            _ => error,
        }
    }

    /// Sends one frame, the concatenation of `slices`.
    ///
    /// # Errors
    /// The frame is malformed or longer than the interface's MTU, the interface is down, or the
    /// socket's buffer is full.
    pub fn write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(rustix::io::writev(&self.socket, slices)?)
    }

    /// Sends at least the first of some frames, and returns how many were sent.
    ///
    /// # Errors
    /// As for [`EthernetSocket::write`], of the first frame.
    pub fn write_many(&self, frames: &[&[u8]]) -> io::Result<usize> {
        let mut parts = [EMPTY_PART; Self::BATCH];
        let mut messages = [EMPTY_MESSAGE; Self::BATCH];
        let count = frames.len().min(Self::BATCH);
        for (index, frame) in frames.iter().take(count).enumerate() {
            parts[index] =
                libc::iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() };
            messages[index].msg_hdr.msg_iov = &raw mut parts[index];
            messages[index].msg_hdr.msg_iovlen = 1;
        }
        let socket = self.socket.as_raw_fd();
        // SAFETY: each of the `count` messages points to its element of `parts`, and that to a frame.
        // The kernel only reads the frame; it, `parts` and `messages` live across the call.
        let sent = unsafe { libc::sendmmsg(socket, messages.as_mut_ptr(), count as _, 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as usize) }
    }

    /// Removes the Ethernet header without VLAN tags from the frame in `frame`, and returns the
    /// length of the rest: a virtio-net header and the packet.
    pub fn strip(frame: &mut [u8]) -> usize {
        let Some(rest) = frame.len().checked_sub(VNET_HEADER + ETHERNET) else { return 0 };
        frame.copy_within(VNET_HEADER + ETHERNET.., VNET_HEADER);
        shift_offsets(frame, -(ETHERNET as i16));
        VNET_HEADER + rest
    }

    /// Sends an IP packet with its virtio-net header, the concatenation of `slices`, in a frame
    /// between two addresses. The first slice contains at least the virtio-net header.
    ///
    /// # Errors
    /// As for [`EthernetSocket::write`].
    pub fn write_packet(
        &self,
        slices: &[IoSlice<'_>],
        to: [u8; 6],
        from: [u8; 6],
    ) -> io::Result<usize> {
        write_packet(&self.socket, slices, to, from)
    }

    /// Returns the number of frames that the socket dropped because its buffer was full, or because
    /// the kernel could not pass them on.
    pub fn dropped(&self) -> u64 {
        let new = kernel_drops(&self.socket);
        self.dropped.fetch_add(new, Ordering::Relaxed) + new
    }
}

impl AsFd for EthernetSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Inserts the VLAN tag of a received frame of this length.
fn insert_tag(frame: &mut [u8], length: usize, aux: &AuxData) {
    const VLAN: u16 = 0x8100;
    let has_protocol = aux.status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
    let protocol = if has_protocol { aux.vlan_protocol } else { VLAN };
    frame.copy_within(TAG_AT..length, TAG_AT + TAG);
    frame[TAG_AT..TAG_AT + 2].copy_from_slice(&protocol.to_be_bytes());
    frame[TAG_AT + 2..TAG_AT + TAG].copy_from_slice(&aux.vlan_tci.to_be_bytes());
    shift_offsets(frame, TAG as i16);
}

const EMPTY_PART: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
// SAFETY: all zeroes is a valid mmsghdr.
const EMPTY_MESSAGE: libc::mmsghdr = unsafe { std::mem::zeroed() };

/// The space for one control record, aligned as the kernel requires.
type Control = [u64; 8];

/// Receives a frame into each of `buffers`, whose last bytes it leaves for a VLAN tag, with the
/// kernel's records about frames with a tag. Returns the number of frames.
fn receive(
    socket: &Socket,
    buffers: &mut [&mut [u8]],
    lengths: &mut [usize],
    tags: &mut [Option<AuxData>; EthernetSocket::BATCH],
) -> io::Result<usize> {
    let mut controls: [Control; EthernetSocket::BATCH] = Default::default();
    let mut parts = [EMPTY_PART; EthernetSocket::BATCH];
    let mut messages = [EMPTY_MESSAGE; EthernetSocket::BATCH];
    let count = buffers.len().min(EthernetSocket::BATCH);
    for (index, buffer) in buffers.iter_mut().take(count).enumerate() {
        parts[index] = libc::iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: buffer.len().saturating_sub(TAG),
        };
        let message = &mut messages[index].msg_hdr;
        message.msg_iov = &raw mut parts[index];
        message.msg_iovlen = 1;
        message.msg_control = controls[index].as_mut_ptr().cast();
        message.msg_controllen = size_of::<Control>() as _;
    }
    let none = std::ptr::null_mut();
    // SAFETY: each of the `count` messages describes a buffer and a control record, which live across
    // the call and belong to no other message.
    let received =
        unsafe { libc::recvmmsg(socket.as_raw_fd(), messages.as_mut_ptr(), count as _, 0, none) };
    if received < 0 {
        return Err(io::Error::last_os_error());
    }
    let received = received as usize;
    for (index, message) in messages.iter().take(received).enumerate() {
        lengths[index] = message.msg_len as usize;
        // SAFETY: the kernel has received this message into its element of `controls`, which lives.
        tags[index] = unsafe { tag(&message.msg_hdr) };
    }
    Ok(received)
}

/// Returns the kernel's record about a received frame with a VLAN tag.
///
/// # Safety
/// The control buffer of the message is alive and aligned, and the kernel has filled it and set its
/// length.
unsafe fn tag(message: &libc::msghdr) -> Option<AuxData> {
    // SAFETY: the caller guarantees that the control buffer is alive and filled.
    let first = unsafe { libc::CMSG_FIRSTHDR(message) };
    // SAFETY: a header that is not null lies within the control buffer.
    let header = unsafe { first.as_ref() }?;
    // SAFETY: CMSG_LEN only computes a number.
    let wanted = unsafe { libc::CMSG_LEN(size_of::<AuxData>() as libc::c_uint) } as usize;
    #[allow(clippy::unnecessary_cast, reason = "the type of the length depends on the C library")]
    let is_aux = header.cmsg_level == libc::SOL_PACKET
        && header.cmsg_type == libc::PACKET_AUXDATA
        && header.cmsg_len as usize >= wanted;
    // SAFETY: the record has the size of AuxData, which is plain data.
    let aux = is_aux.then(|| unsafe { libc::CMSG_DATA(first).cast::<AuxData>().read_unaligned() });
    aux.filter(|aux| aux.status & libc::TP_STATUS_VLAN_VALID != 0)
}
