//! The wire protocol: frames of the control channel, their messages, and the first bytes of a data
//! connection. `docs/design/wire.md` is the specification.
//!
//! The code does no I/O, except that frames are read from a `Read` and written to a `Write`. Every
//! length is bounded before memory is allocated, because a peer is hostile until it is
//! authenticated.

mod block;
pub mod copy;
mod datagram;
mod diagnose;
mod entry;
mod file_path;
mod frame;
mod hello;
mod opening;
mod path;
mod probe;
mod test;

pub use block::{
    BLOCK_HEADER_BYTES, BLOCK_LIMIT, BlockHeader, PACK_ENTRY_BYTES, PACK_FILES_LIMIT, PackEntry,
};
pub use datagram::{DATAGRAM_HEADER_BYTES, DatagramHeader, Greeting, GreetingKind};
pub use diagnose::{DIAGNOSE_LIMIT_SECONDS, DiagnoseEvent, DiagnoseOrder};
pub use file_path::FilePath;
pub use frame::{FRAME_LIMIT_BYTES, FrameError, read_frame, write_frame};
pub use hello::{DataHello, HELLO_BYTES, HelloError, MAC_BYTES, SessionId};
pub use opening::{
    AnyHello, FarReady, Hello, HostKey, HostKeys, PROTOCOL_VERSION, RefusalKind, Service, Welcome,
};
pub use path::{PathEvent, PathOrder};
pub use probe::{PROBE_BYTES, ProbeHeader, ProbeKind};
pub use test::{TARGET_LIMIT_BYTES, ThirdEvent, ThirdOrder};
pub use test::{TestEvent, TestOrder};
