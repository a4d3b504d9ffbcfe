//! What the driver knows of a packet: how it would be cut into segments, and how to write some of
//! them.
//!
//! A frame is a virtio-net header and an IP packet, as a device with segmentation offload hands it
//! over; a *super-packet* stands for many TCP segments or UDP datagrams with one set of headers.
//! [`shape`] tells the link model what it stands for. [`cut`] makes one part of it: some
//! adjacent segments, treated alike, as rebuilt headers and slices of the frame's payload, which is
//! never copied. The rules are those of the kernel's own segmentation (`tcp_gso_segment` in
//! net/ipv4/tcp_offload.c, `__udp_gso_segment` in net/ipv4/udp_offload.c).
//!
//! Nothing here trusts a frame: one that is malformed, or of a kind not known here, counts as one
//! segment and is written as it was read, but for a changed bit if the link is to corrupt it.

mod checksum;
mod corrupt;
mod layout;
mod split;
mod vnet;

#[cfg(test)]
pub(crate) mod samples;
#[cfg(test)]
mod tests;

pub(crate) use layout::shape;
pub(crate) use split::cut;
