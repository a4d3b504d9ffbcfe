//! A source whose messages and blocks a test sends: its control channel and its data connection.

use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use longhaul_core::plan::CopyOptions;
use longhaul_core::units::Bytes;
use longhaul_core::wire::FilePath;
use longhaul_core::wire::copy::{
    CopyKey, CopyReply, CopyRequest, Entry, EntryKind, SinkMessage, SourceMessage, Top,
};

use super::{CopySetup, options};
use crate::copy::data_connection::BlockSender;
use crate::session::{ControlReceiver, ControlSender};

pub(super) struct Speaker {
    pub(super) sender: ControlSender,
    pub(super) receiver: ControlReceiver,
    pub(super) blocks: BlockSender,
    socket: TcpStream,
}

impl Speaker {
    /// Starts a copy to the server's directory in blocks of `block` bytes.
    pub(super) fn new(world: &CopySetup, block: u64) -> Self {
        Speaker::to(world, block, ".")
    }

    /// Starts a copy to the directory `target`.
    pub(super) fn to(world: &CopySetup, block: u64, target: &str) -> Self {
        let options = CopyOptions { block_bytes: Bytes::new(block), ..options() };
        Speaker::with(world, &options, target)
    }

    /// Starts a copy with these options.
    pub(super) fn with(world: &CopySetup, options: &CopyOptions, target: &str) -> Self {
        let (sender, mut receiver, dialer) = world.session().split();
        let request = CopyRequest::Receive {
            key: CopyKey::new(4),
            target: FilePath::new(target).unwrap(),
            top: Top::Several,
            options: CopyOptions { streams: Some(1), ..options.clone() },
        };
        sender.send(&request).unwrap();
        let socket = dialer.open(0, |_| Ok(())).unwrap();
        let (again, key) = (socket.try_clone().unwrap(), dialer.secret().stream_key(0));
        let blocks = BlockSender::new(again, &key, options.protection);
        assert!(matches!(receiver.receive().unwrap(), CopyReply::Ready { .. }));
        receiver.set_timeout(Some(Duration::from_secs(30))).unwrap();
        Speaker { sender, receiver, blocks, socket }
    }

    /// Announces one entry of this kind and the end of the entries.
    pub(super) fn announce(&self, kind: EntryKind) {
        let entry = Entry::new(FilePath::new("f").unwrap(), kind, 0o644);
        self.sender.send(&SourceMessage::Entries(vec![entry])).unwrap();
        self.sender.send(&SourceMessage::End { entries: 1 }).unwrap();
    }

    /// Sends the block at `offset` of `data`.
    pub(super) fn send(&mut self, data: &[u8], offset: usize, block: usize) {
        let mut bytes = data[offset..data.len().min(offset + block)].to_vec();
        self.blocks.send(0, offset as u64, &mut bytes).unwrap();
    }

    /// Sends the first `pieces` pieces of a block, and closes the data connection for writing.
    pub(super) fn send_part(&mut self, offset: u64, length: usize, pieces: usize) {
        let (socket, mut filled) = (&self.socket, 0);
        let sent = self.blocks.send_in_pieces((0, offset, length), |_, piece| {
            piece.fill(0xee);
            filled += 1;
            if filled > pieces {
                socket.shutdown(Shutdown::Write).unwrap();
            }
            true
        });
        assert!(sent.is_err(), "the connection was closed");
    }

    /// Sends a block as a source that can read only its first `pieces` pieces, so that its check
    /// fails.
    pub(super) fn send_unreadable(&mut self, offset: u64, length: usize, pieces: usize) {
        let mut filled = 0;
        let fill = |_: usize, piece: &mut [u8]| {
            piece.fill(0xee);
            filled += 1;
            filled <= pieces
        };
        self.blocks.send_in_pieces((0, offset, length), fill).unwrap();
    }

    /// Waits until `reached` returns true for the written, checked and kept bytes that the sink
    /// reports.
    pub(super) fn wait_for(&mut self, reached: impl Fn(u64, u64, u64) -> bool) {
        loop {
            let message = self.receiver.receive().expect("the session lasts");
            if let SinkMessage::Progress { written_bytes, checked_bytes, kept_bytes, .. } = message
                && reached(written_bytes.get(), checked_bytes.get(), kept_bytes.get())
            {
                return;
            }
        }
    }

    /// Waits until the sink reports at least `bytes` kept bytes.
    pub(super) fn wait_for_kept(&mut self, bytes: u64) {
        self.wait_for(|_, _, kept| kept >= bytes);
    }

    /// Waits until the sink requests the block at `expected` again.
    pub(super) fn wait_for_resend(&mut self, expected: u64) {
        loop {
            match self.receiver.receive().expect("the session lasts") {
                SinkMessage::Resend { id: 0, offset } => return assert_eq!(offset, expected),
                SinkMessage::Abort { reason, .. } => panic!("{reason}"),
                _ => {}
            }
        }
    }

    /// Waits for the decision on the file. Returns the ranges of blocks that the sink has, each as
    /// (first block, number of blocks).
    pub(super) fn held(&mut self) -> Vec<(u64, u64)> {
        loop {
            if let SinkMessage::Wanted { held, .. } = self.receiver.receive().unwrap() {
                return held[0].blocks.clone().unwrap();
            }
        }
    }

    /// Waits for the last message of the sink.
    pub(super) fn end(mut self) -> SinkMessage {
        loop {
            let message = self.receiver.receive().expect("the session ends with a message");
            if matches!(message, SinkMessage::Finished(_) | SinkMessage::Abort { .. }) {
                return message;
            }
        }
    }
}
