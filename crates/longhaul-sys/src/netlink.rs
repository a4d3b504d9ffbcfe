//! Requests and queries over `netlink(7)`, one at a time. The kernel acknowledges each request.
//!
//! Layouts: `include/uapi/linux/netlink.h` and `rtnetlink.h`. Unlike some older ioctls, every
//! request is permitted to root of the user namespace that owns the network namespace.

use std::io::{self, Read, Write};

use socket2::{Domain, Protocol, Socket, Type};

/// The size of `struct nlmsghdr` in bytes.
const HEADER: usize = 16;

/// A netlink socket in the network namespace of its creation.
#[derive(Debug)]
pub(crate) struct Netlink {
    socket: Socket,
}

impl Netlink {
    /// Opens a socket to a netlink family, usually `NETLINK_ROUTE`.
    pub(crate) fn open(family: libc::c_int) -> io::Result<Self> {
        let family = Protocol::from(family);
        let socket = Socket::new(Domain::from(libc::AF_NETLINK), Type::RAW, Some(family))?;
        Ok(Netlink { socket })
    }

    /// Sends a request and returns the kernel's acknowledgement or error.
    pub(crate) fn request(&self, request: Request) -> io::Result<()> {
        let mut socket = &self.socket;
        socket.write_all(&request.finish())?;
        let mut answer = [0; 1024];
        let length = socket.read(&mut answer)?;
        acknowledged(&answer[..length])
    }

    /// Sends a query and returns the messages of the answer without their headers.
    pub(crate) fn answers(&self, request: Request) -> io::Result<Vec<Vec<u8>>> {
        let mut found = Vec::new();
        self.visit(request, |message| found.push(message.to_vec()))?;
        Ok(found)
    }

    /// Sends a query and passes each message of the answer, without its header, to `each`.
    pub(crate) fn visit(&self, request: Request, mut each: impl FnMut(&[u8])) -> io::Result<()> {
        let mut socket = &self.socket;
        socket.write_all(&request.finish())?;
        // A dump fills buffers of up to 32 KiB (net/netlink/af_netlink.c).
        let mut buffer = vec![0; 32 << 10];
        loop {
            let length = socket.read(&mut buffer)?;
            let mut rest = &buffer[..length];
            while let Some((kind, message, after)) = next_message(rest) {
                match i32::from(kind) {
                    libc::NLMSG_DONE => return Ok(()),
                    libc::NLMSG_ERROR => return acknowledged(rest),
                    _ => each(message),
                }
                rest = after;
            }
        }
    }
}

/// Returns the type and content of the first message, and the bytes after it.
fn next_message(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = u32::from_ne_bytes(*bytes.first_chunk()?) as usize;
    let kind = u16::from_ne_bytes(*bytes.get(4..)?.first_chunk()?);
    let message = bytes.get(HEADER..length)?;
    Some((kind, message, bytes.get(length.next_multiple_of(4)..).unwrap_or_default()))
}

/// Iterates over the attributes in `bytes` with their types.
pub(crate) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(*bytes.first_chunk()?));
        let kind = u16::from_ne_bytes(*bytes.get(2..)?.first_chunk()?);
        let content = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        // The two highest bits are flags of the encoding (NLA_TYPE_MASK).
        Some((kind & 0x3fff, content))
    })
}

/// Returns the content of the first attribute of type `kind`.
pub(crate) fn attribute(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(found, _)| *found == kind).map(|(_, content)| content)
}

/// A request under construction: the header, a fixed structure, then attributes.
#[derive(Debug)]
pub(crate) struct Request {
    bytes: Vec<u8>,
}

impl Request {
    /// Creates a request of type `kind` (`RTM_...`). `flags` are added to the flags of every
    /// request.
    pub(crate) fn new(kind: u16, flags: libc::c_int, structure: &[u8]) -> Self {
        let flags = (flags | libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
        let mut bytes = vec![0; 4];
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        // Sequence number and port stay zero because only one request is pending at a time.
        bytes.resize(HEADER, 0);
        bytes.extend(structure);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        Request { bytes }
    }

    /// Adds an attribute.
    pub(crate) fn with(mut self, kind: u16, content: &[u8]) -> Self {
        append(&mut self.bytes, kind, content);
        self
    }

    fn finish(mut self) -> Vec<u8> {
        let length = self.bytes.len() as u32;
        self.bytes[..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes
    }
}

/// Attributes inside an attribute, after a fixed structure.
#[derive(Debug)]
pub(crate) struct NestedAttributes {
    bytes: Vec<u8>,
}

impl NestedAttributes {
    pub(crate) fn new(structure: &[u8]) -> Self {
        NestedAttributes { bytes: structure.to_vec() }
    }

    /// Adds an attribute.
    pub(crate) fn with(mut self, kind: u16, content: &[u8]) -> Self {
        append(&mut self.bytes, kind, content);
        self
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Appends an attribute, padded to a multiple of four bytes.
fn append(bytes: &mut Vec<u8>, kind: u16, content: &[u8]) {
    bytes.extend((4 + content.len() as u16).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(content);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

/// Returns the error in an `NLMSG_ERROR` message; zero is an acknowledgement.
fn acknowledged(answer: &[u8]) -> io::Result<()> {
    match answer.get(HEADER..).and_then(|rest| rest.first_chunk()) {
        None => Err(io::ErrorKind::UnexpectedEof.into()),
        Some(code) => match i32::from_ne_bytes(*code) {
            0 => Ok(()),
            code => Err(io::Error::from_raw_os_error(-code)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_laid_out_in_words() {
        let request = Request::new(libc::RTM_SETLINK, 0, &[7; 16])
            .with(libc::IFLA_IFNAME, b"wan0\0")
            .with(libc::IFLA_TXQLEN, &0x0102_0304u32.to_ne_bytes());
        let bytes = request.finish();
        assert_eq!(bytes.len(), 16 + 16 + 12 + 8);
        assert_eq!(bytes[..4], 52u32.to_ne_bytes());
        assert_eq!(bytes[32..36], [9u16.to_ne_bytes(), 3u16.to_ne_bytes()].concat());
        assert_eq!(bytes[36..44], *b"wan0\0\0\0\0");
        assert_eq!(bytes[48..], 0x0102_0304u32.to_ne_bytes());
    }

    #[test]
    fn attributes_are_found_again() {
        let bytes = NestedAttributes::new(&[]).with(3, b"wan0\0").with(1 | 0x8000, &[7]);
        let found: Vec<_> = attributes(bytes.bytes()).collect();
        assert_eq!(found, [(3, &b"wan0\0"[..]), (1, &[7])]);
        assert_eq!(attribute(bytes.bytes(), 1), Some(&[7][..]));
        // The attribute is truncated, or has a length of zero.
        assert_eq!(attributes(&bytes.bytes()[..7]).count(), 0);
        assert_eq!(attributes(&[0; 8]).count(), 0);
        assert!(next_message(&[9; 12]).is_none());
    }

    #[test]
    fn an_answer_is_an_acknowledgement_or_an_error() {
        let answer = |code: i32| [&[0; HEADER][..], &code.to_ne_bytes()].concat();
        assert!(acknowledged(&answer(0)).is_ok());
        let refused = acknowledged(&answer(-libc::EPERM)).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EPERM));
        assert!(acknowledged(&[0; 7]).is_err());
    }
}
