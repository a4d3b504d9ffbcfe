//! The channels of a copy between its ends: control messages and data connections.

use std::collections::HashSet;
use std::net::{Shutdown, TcpStream};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::plan::{CopyOptions, Protection};
use longhaul_core::units::Rate;
use longhaul_sys::tcp::SocketOptions;

use super::cancel::Cancel;
use super::data_connection::{BlockReceiver, BlockSender};
use super::watchdog::{SILENCE_LIMIT, TICK};
use crate::error::{EngineError, Result};
use crate::session::{
    ControlReceiver, ControlSender, DataAcceptor, DataDialer, KeyRate, SessionSecret,
};
use crate::{FUZZ_HASTE, lock};

/// The initial number of data connections, unless the user sets it.
///
/// Each connection doubles its window once per round trip. Over 90 ms, 10,000 small files took 3.7
/// s with two initial connections and 3.3 s with four (medians of three;
/// bench/runs/2026-11-21-epyc-2core/cp.md).
pub(super) const FIRST_STREAMS: u32 = 4;
/// The least share of a rate limit that a connection has, in bit/s: a block of 1 MiB takes a third
/// of a second.
const LEAST_SHARE_BPS: u64 = 25_000_000;
/// The maximum number of connections that are opened by measurement. Eight fill a path that drops
/// one segment in ten thousand, and each connection costs both ends two buffers.
pub(super) const MOST_STREAMS: u32 = 16;
/// The round-trip times from which on a copy begins with twice and with four times
/// [`FIRST_STREAMS`]: each doubling saves a round trip of slow start.
const LONG_PATHS: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(60)];
/// The first window of a connection whose receiver shows 64 KiB.
const FIRST_BYTES: u64 = 64 << 10;
/// The round trips of slow start after which fewer connections reach a known rate.
const STARTUP_TRIPS: u32 = 6;
/// The receive buffers of all first connections together that a sink provides before their data
/// arrive, and the most of one connection. The kernel's own start with 64 KiB, which is less than
/// the first window of a path with jumbo frames, and grow more slowly than the congestion window.
const RECEIVE_BYTES: u32 = 64 << 20;
const MOST_RECEIVE_BYTES: u32 = 8 << 20;
/// The unsent bytes that the kernel accepts from a sender (`TCP_NOTSENT_LOWAT`): so many that a 100
/// Gb/s path is busy between two wake-ups, and so few that a block is sent by the connection that
/// is ready first, and that a broken sender leaves little memory occupied.
const NOTSENT_LOWAT: u32 = 1 << 20;
/// The maximum number of data connections of one copy.
pub(super) const STREAM_LIMIT: u32 = 128;

/// The interval at which a server that waits for connections checks for the end of the copy. The
/// client waits until the server has noticed it.
const ACCEPT_CHECK: Duration = Duration::from_millis(20);

/// The time that a broken data connection waits for the reason on the control channel.
const REASON_GRACE: Duration = Duration::from_millis(2_000 / FUZZ_HASTE);

/// All data connections of a copy, from either end.
pub(super) struct Streams {
    first: Mutex<Vec<(u32, TcpStream)>>,
    more: ConnectionSource,
    secret: SessionSecret,
    /// The options that a client sets on a socket before it connects.
    prepare: SocketOptions,
    /// The rate that these connections share with others.
    rate: Option<Arc<KeyRate>>,
}

/// The origin of further connections.
pub(super) enum ConnectionSource {
    /// The client opens them.
    Dial(DataDialer),
    /// The server takes them.
    Accept(DataAcceptor),
}

/// The conditions under which connections are added to a copy.
pub(super) struct Growth<'a, O, W> {
    /// The number of connections that the copy begins with.
    pub(super) opened: u32,
    /// Ends all waits on the connections.
    pub(super) cancel: &'a Cancel,
    /// Returns whether the copy is over.
    pub(super) over: O,
    /// Returns the total number of connections that the copy requests.
    pub(super) wanted: W,
}

impl Streams {
    /// Creates the connections, numbered from 0 in `first`, and the source of further ones.
    pub(super) fn new(
        first: Vec<TcpStream>,
        more: ConnectionSource,
        prepare: SocketOptions,
    ) -> Self {
        let secret = match &more {
            ConnectionSource::Dial(dialer) => dialer.secret().clone(),
            ConnectionSource::Accept(acceptor) => acceptor.secret().clone(),
        };
        let first = Mutex::new((0..).zip(first).collect());
        Streams { first, more, secret, prepare, rate: None }
    }

    /// Sets the rate that the connections share with others.
    pub(super) fn with_shared_rate(self, rate: Option<Arc<KeyRate>>) -> Self {
        Streams { rate, ..self }
    }

    /// Binds the connections to the session of `secret`, which the client has passed on.
    pub(super) fn of_session(self, secret: SessionSecret) -> Self {
        Streams { secret, ..self }
    }

    /// Returns whether the sockets are on the path itself, so that their TCP state describes it.
    pub(super) fn are_direct(&self) -> bool {
        match &self.more {
            ConnectionSource::Dial(dialer) => dialer.is_direct(),
            ConnectionSource::Accept(_) => true,
        }
    }

    /// Returns whether the other end is on this host, as far as addresses show.
    pub(super) fn is_within_host(&self) -> bool {
        let same = |socket: TcpStream| {
            let ends = (socket.local_addr().ok()?.ip(), socket.peer_addr().ok()?.ip());
            Some(ends.0 == ends.1)
        };
        self.are_direct() && self.first_socket().and_then(same) == Some(true)
    }

    /// Returns whether this end opens the connections.
    pub(super) fn opens_connections(&self) -> bool {
        matches!(self.more, ConnectionSource::Dial(_))
    }

    /// Lets `cancel` end all waits on the present connections.
    pub(super) fn arm(&self, cancel: &Cancel) -> Result<()> {
        lock(&self.first).iter().try_for_each(|(_, socket)| arm(cancel, socket))
    }

    /// Returns the socket of the first connection, whose addresses show the path.
    pub(super) fn first_socket(&self) -> Option<TcpStream> {
        lock(&self.first).first()?.1.try_clone().ok()
    }

    /// Returns the connections that the copy begins with; they can be taken once.
    pub(super) fn first(&self) -> Vec<(u32, TcpStream)> {
        std::mem::take(&mut lock(&self.first))
    }

    /// Returns the sending end of connection `stream`.
    pub(super) fn sender(
        &self,
        stream: u32,
        socket: TcpStream,
        protection: Protection,
    ) -> BlockSender {
        BlockSender::new(socket, &self.secret.stream_key(stream), protection)
            .with_shared_rate(self.rate.clone())
    }

    /// Returns the receiving end of connection `stream`.
    pub(super) fn receiver(
        &self,
        stream: u32,
        socket: TcpStream,
        protection: Protection,
    ) -> BlockReceiver {
        BlockReceiver::new(socket, &self.secret.stream_key(stream), protection)
            .with_shared_rate(self.rate.clone())
    }

    /// Passes further connections to `take` until the copy is over. A client opens all wanted
    /// connections at once, in one round trip, and none after a failure. A number that was used
    /// before is refused, because its key has been used as well.
    pub(super) fn more(
        &self,
        growth: Growth<'_, impl Fn() -> bool, impl Fn() -> u32>,
        mut take: impl FnMut(u32, TcpStream),
    ) {
        let Growth { opened, cancel, over, wanted } = growth;
        let mut next = opened;
        let mut used: HashSet<u32> = (0..opened).collect();
        let mut refused = false;
        while !over() {
            let arrived = match &self.more {
                ConnectionSource::Accept(acceptor) => {
                    acceptor.accept(ACCEPT_CHECK).into_iter().collect()
                }
                ConnectionSource::Dial(dialer) => {
                    let wanted = wanted().min(STREAM_LIMIT);
                    let opened = self.dial(dialer, next..wanted);
                    refused = opened.len() < wanted.saturating_sub(next) as usize;
                    next = next.max(wanted);
                    opened
                }
            };
            for (stream, socket) in arrived {
                if used.len() < STREAM_LIMIT as usize
                    && used.insert(stream)
                    && arm(cancel, &socket).is_ok()
                {
                    take(stream, socket);
                }
            }
            if refused {
                return;
            }
            if matches!(self.more, ConnectionSource::Dial(_)) {
                thread::park_timeout(TICK);
            }
        }
    }

    /// Opens connections of these numbers at once, and returns those that could be.
    fn dial(&self, dialer: &DataDialer, numbers: Range<u32>) -> Vec<(u32, TcpStream)> {
        let prepare = |socket: &_| self.prepare.apply(socket).map_err(std::io::Error::other);
        let open = |stream| Some((stream, dialer.open(stream, prepare).ok()?));
        thread::scope(|scope| {
            let dialling: Vec<_> =
                numbers.map(|stream| scope.spawn(move || open(stream))).collect();
            dialling.into_iter().filter_map(|dial| dial.join().ok().flatten()).collect()
        })
    }
}

/// Returns the number of data connections that a copy begins with.
pub(super) fn first_streams(options: &CopyOptions) -> u32 {
    options.streams.unwrap_or(FIRST_STREAMS)
}

/// Returns `options` for a path with this round-trip time, over which an earlier copy reached the
/// rate `earlier`: with the number of data connections to begin with, unless the user has chosen it.
pub(super) fn options_for(
    options: &CopyOptions,
    rtt: Option<Duration>,
    earlier: Option<Rate>,
) -> CopyOptions {
    let free = options.streams.is_none() && options.rate_bps.is_none() && !options.nice;
    let first = match options.rate_bps.filter(|_| options.streams.is_none()) {
        Some(limit) => streams_below(limit),
        None => rtt.filter(|_| free).map_or(FIRST_STREAMS, |rtt| streams_for(rtt, earlier)),
    };
    let mut options = CopyOptions { earlier_bps: earlier, ..options.clone() };
    if first != FIRST_STREAMS {
        (options.streams, options.streams_may_grow) = (Some(first), true);
    }
    options
}

/// Returns the number of connections that share a rate limit. Each is paced at its share, and the
/// others are idle while one sends the last block: with four connections, a copy of three blocks of
/// 1 MiB at 2 Mb/s took twice its time.
fn streams_below(limit: Rate) -> u32 {
    let most = u64::from(FIRST_STREAMS);
    u32::try_from((limit.bps() / LEAST_SHARE_BPS).clamp(1, most)).unwrap_or(FIRST_STREAMS)
}

/// Returns the number of connections to begin with: slow start doubles the window of each once per
/// round trip, so twice as many save one. A path that is known to be slow needs fewer.
fn streams_for(rtt: Duration, earlier: Option<Rate>) -> u32 {
    let most = FIRST_STREAMS << LONG_PATHS.iter().filter(|long| rtt >= **long).count();
    let Some(rate) = earlier else { return most };
    let wanted = (rate.bdp(rtt).get() / FIRST_BYTES) >> STARTUP_TRIPS;
    let wanted = u32::try_from(wanted).unwrap_or(most);
    wanted.clamp(FIRST_STREAMS, most).next_power_of_two()
}

/// Returns the minimum receive buffer of each data connection of a sink.
pub(super) fn receive_bytes(options: &CopyOptions) -> u32 {
    (RECEIVE_BYTES / first_streams(options).max(1)).min(MOST_RECEIVE_BYTES)
}

/// Returns the options of a source's sockets.
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

fn arm(cancel: &Cancel, socket: &TcpStream) -> Result<()> {
    let socket = socket.try_clone().map_err(|source| EngineError::System {
        operation: "share a data connection between threads",
        source,
    })?;
    cancel.on_cancel(move || {
        let _ = socket.shutdown(Shutdown::Both);
    });
    Ok(())
}

/// Both channels of a copy, from either end.
pub(super) struct Channels {
    pub(super) sender: ControlSender,
    pub(super) receiver: ControlReceiver,
    pub(super) streams: Streams,
}

impl Channels {
    /// Lets `cancel` end everything that waits on this link.
    pub(super) fn arm(&self, cancel: &Cancel) -> Result<()> {
        self.streams.arm(cancel)?;
        cancel.on_cancel(self.receiver.closer());
        self.receiver.set_timeout(Some(SILENCE_LIMIT))
    }
}

/// Fails the copy because data connection `stream` broke, unless the peer reports a better
/// reason on the control channel first.
pub(super) fn data_failed(cancel: &Arc<Cancel>, stream: u32, source: std::io::Error) {
    let deadline = Instant::now() + REASON_GRACE;
    let over = || cancel.is_set() || cancel.is_released();
    while !over() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(10));
    }
    cancel.fail(EngineError::Data { stream, source });
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(count: u64) -> Option<Duration> {
        Some(Duration::from_millis(count))
    }

    fn first(options: &CopyOptions, rtt: Option<Duration>, earlier: Option<u64>) -> u32 {
        let options = options_for(options, rtt, earlier.map(Rate::from_bps));
        first_streams(&options)
    }

    #[test]
    fn the_round_trip_suggests_the_number_of_connections() {
        let free = CopyOptions::default();
        let of = |rtt| first(&free, rtt, None);
        assert_eq!(
            [None, ms(0), ms(19), ms(20), ms(59), ms(60), ms(600)].map(of),
            [4, 4, 4, 8, 8, 16, 16]
        );
    }

    #[test]
    fn a_path_that_is_known_to_be_slow_gets_fewer() {
        let free = CopyOptions::default();
        let of = |rate| first(&free, ms(90), Some(rate));
        let rates = [0, 1_000_000, 1_000_000_000, 2_000_000_000, 8_000_000_000, u64::MAX];
        assert_eq!(rates.map(of), [4, 4, 4, 8, 16, 16]);
    }

    #[test]
    fn the_users_choice_stands() {
        let chosen = CopyOptions { streams: Some(3), ..CopyOptions::default() };
        assert_eq!(first(&chosen, ms(180), Some(10_000_000_000)), 3);
        let limited = CopyOptions { rate_bps: Some(Rate::from_bps(1)), ..CopyOptions::default() };
        assert_eq!(first(&limited, ms(180), None), 1);
        let nice = CopyOptions { nice: true, ..CopyOptions::default() };
        assert_eq!(first(&nice, ms(180), None), FIRST_STREAMS);
    }

    #[test]
    fn a_low_rate_limit_has_few_connections() {
        let of = |bps| {
            let rate = Some(Rate::from_bps(bps));
            first(&CopyOptions { rate_bps: rate, ..CopyOptions::default() }, ms(90), None)
        };
        assert_eq!(
            [1, 49_999_999, 50_000_000, 99_999_999, 100_000_000, u64::MAX].map(of),
            [1, 1, 2, 3, 4, 4]
        );
        let within_a_host =
            CopyOptions { rate_bps: Some(Rate::from_bps(1)), ..CopyOptions::default() };
        assert_eq!(first(&within_a_host, None, None), 1);
    }

    #[test]
    fn the_receive_buffers_are_bounded_together() {
        for streams in 1..=STREAM_LIMIT {
            let options = CopyOptions { streams: Some(streams), ..CopyOptions::default() };
            let each = receive_bytes(&options);
            assert!(each <= MOST_RECEIVE_BYTES && each * streams <= RECEIVE_BYTES);
            assert!(u64::from(each) >= FIRST_BYTES);
        }
    }
}
