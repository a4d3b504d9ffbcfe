use std::sync::Arc;
use std::time::Duration;

use longhaul_core::plan::CopyOptions;
use longhaul_sys::tcp::SocketOptions;

use super::cancel::Cancel;
use super::pool::{PACK_BYTES, Pool, Pools};
use super::source::{FIRST_STREAMS, MOST_STREAMS};
use super::stream::RECEIVE_SLACK;
use super::streams::Streams;
use crate::HASTE;
use crate::error::{EngineError, Result};
use crate::session::{ControlReceiver, ControlSender};

/// How long the other side may be silent: it sends a sign of life every second or sooner.
/// Shorter cuts TCP survives by itself; after it the copy goes on over new connections.
pub(super) const SILENCE_LIMIT: Duration = Duration::from_millis(20_000 / HASTE);
/// How often an end looks whether it should stop, and tells the other how far it is.
pub(super) const TICK: Duration = Duration::from_millis(200 / HASTE);
/// How long a broken data connection waits for the control channel to say why.
const REASON_GRACE: Duration = Duration::from_millis(2_000 / HASTE);
/// Unsent bytes that the kernel takes from a sender before it lets it wait. Enough to keep a
/// 100 Gb/s path busy between two wake-ups, little enough that a block goes to whichever
/// connection is ready for it and that a dying sender leaves no memory behind.
const NOTSENT_LOWAT: u32 = 1 << 20;
/// Buffers of one end: enough for every stage to have some in hand.
const POOL_BUFFERS_BASE: usize = 16;
/// Buffers added for each connection: one in its hands, one on the way to it.
const POOL_BUFFERS_PER_STREAM: usize = 2;
/// Buffers of a pack besides one in the hands of each connection: each reader or writer has one, and
/// one is ready for it.
const PACK_BUFFERS_BASE: usize = 8;
/// Most bytes of all buffers of an end: twelve of the largest blocks. What is on the path is in the
/// kernel's socket buffers, which follow the rate and the round trip by themselves; these bridge a
/// disk that stalls, at 10 Gb/s for 160 ms.
const POOL_BYTES: usize = 192 << 20;

/// Both channels of a copy, from either end.
pub(super) struct Link {
    pub(super) sender: ControlSender,
    pub(super) receiver: ControlReceiver,
    pub(super) streams: Streams,
}

impl Link {
    /// Lets `cancel` end everything that waits on this link.
    pub(super) fn arm(&self, cancel: &Cancel) -> Result<()> {
        self.streams.arm(cancel)?;
        cancel.on_cancel(self.receiver.closer());
        self.receiver.set_timeout(Some(SILENCE_LIMIT))
    }
}

/// The buffers of an end with these options.
pub(super) fn pools(options: &CopyOptions) -> Pools {
    let streams = options.streams.unwrap_or(MOST_STREAMS);
    let block = options.block_bytes.get() as usize;
    let count = POOL_BUFFERS_BASE + POOL_BUFFERS_PER_STREAM * streams as usize;
    // Blocks that come in order wait for each other: each connection needs its own, however large.
    let most = if options.tree.ordered { count } else { POOL_BYTES / block };
    let packs = || {
        let count = PACK_BUFFERS_BASE + streams as usize;
        Pool::new(count, PACK_BYTES + RECEIVE_SLACK)
    };
    Pools {
        blocks: Pool::new(count.min(most), block + RECEIVE_SLACK),
        packs: (block > PACK_BYTES).then(packs),
    }
}

/// Data connections that a copy begins with.
pub(super) fn first_streams(options: &CopyOptions) -> u32 {
    options.streams.unwrap_or(FIRST_STREAMS)
}

/// What a source sets on its sockets.
pub(super) fn socket_options(options: &CopyOptions) -> SocketOptions {
    SocketOptions {
        max_pacing_bytes_per_second: options
            .rate_bps
            .map(|rate| (rate.bytes_per_second() / u64::from(first_streams(options))).max(1)),
        notsent_lowat_bytes: Some(NOTSENT_LOWAT),
        nodelay: true,
        ..SocketOptions::default()
    }
}

/// Fails the copy because data connection `stream` broke, unless the other side says a better
/// reason on the control channel first.
pub(super) fn data_failed(cancel: &Arc<Cancel>, stream: u32, source: std::io::Error) {
    let deadline = std::time::Instant::now() + REASON_GRACE;
    let over = || cancel.is_set() || cancel.is_released();
    while !over() && std::time::Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    cancel.fail(EngineError::Data { stream, source });
}
