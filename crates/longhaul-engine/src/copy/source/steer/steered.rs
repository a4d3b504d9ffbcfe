//! The data connections of a copy, the settings that change while it runs, and the report on the
//! path.

use std::collections::BTreeMap;
use std::net::{IpAddr, TcpStream};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use longhaul_core::result::{AddressReport, CopyPathReport, PathBefore};
use longhaul_core::units::{Bytes, Rate};
use longhaul_sys::tcp::{self, TcpInfo, set_max_pacing_rate, tcp_info};

use crate::lock;

/// The data connections, and the settings that the controllers have applied to them.
#[derive(Default)]
pub(in crate::copy::source) struct SteeredStreams {
    connections: Mutex<Vec<Connection>>,
    /// The total number of connections to open.
    wanted: AtomicU32,
    /// The congestion control that replaces the default of the kernel, if there is one.
    chosen: Mutex<Option<String>>,
    /// The changes so far, as sentences for the report.
    steps: Mutex<Vec<String>>,
    /// The highest rate of acknowledged bytes in bit/s; zero if it was not measured.
    peak_bps: AtomicU64,
    /// The rate in bit/s at which the path drops segments without a queue; zero if unknown.
    drops_at_bps: AtomicU64,
    /// The highest rate in bit/s at which the queue of the path overflowed; zero if it did not.
    overflows_at_bps: AtomicU64,
    /// The state of the path before the first data.
    before: OnceLock<PathBefore>,
}

/// The congestion control that repairs losses in place of BBR: the default of Linux.
const REPAIRING: &str = "cubic";

struct Connection {
    socket: TcpStream,
    /// The server's address that this connection uses.
    address: Option<IpAddr>,
    /// The congestion control that another one replaces until the losses of this connection are
    /// repaired.
    replaced: Option<String>,
}

impl SteeredStreams {
    /// Adds a connection. `opens_connections` is true if this host is the client.
    pub(in crate::copy::source) fn add(&self, socket: &TcpStream, opens_connections: bool) {
        if let Some(congestion) = lock(&self.chosen).as_deref() {
            // On failure this connection keeps the default of the kernel.
            let _ = set_congestion(socket, congestion);
        }
        if let Ok(info) = tcp_info(socket) {
            // Only the first connection counts: later ones share the path with data.
            let _ = self.before.set(PathBefore {
                rtt_ms: info.rtt.as_secs_f64() * 1e3,
                mtu_bytes: info.path_mtu,
                segment_bytes: info.send_mss,
                cwnd_bytes: Bytes::new(
                    u64::from(info.congestion_window_segments) * u64::from(info.send_mss),
                ),
            });
        }
        let address = if opens_connections { socket.peer_addr() } else { socket.local_addr() };
        // An IPv4-mapped IPv6 address counts as IPv4.
        let address = address.ok().map(|address| address.ip().to_canonical());
        let connection =
            socket.try_clone().map(|socket| Connection { socket, address, replaced: None });
        lock(&self.connections).extend(connection);
    }

    /// Returns the total number of connections to open.
    pub(in crate::copy::source) fn wanted(&self) -> u32 {
        self.wanted.load(Ordering::Relaxed)
    }

    pub(super) fn want(&self, streams: u32) {
        self.wanted.store(streams, Ordering::Relaxed);
    }

    /// Returns the present TCP state of the connections, in the order in which they were added.
    pub(super) fn tcp_infos(&self) -> Vec<TcpInfo> {
        // A socket always has this state.
        lock(&self.connections).iter().map(|c| tcp_info(&c.socket).unwrap_or_default()).collect()
    }

    /// Returns the report on the path. `tcp` is the TCP state of the connections at their end.
    pub(in crate::copy::source) fn report(&self, tcp: &[TcpInfo]) -> CopyPathReport {
        let sum = |of: fn(&TcpInfo) -> f64| tcp.iter().map(of).sum::<f64>();
        let share = |of, all: f64| if all > 0.0 { sum(of) / all } else { 0.0 };
        let busy = sum(|info| info.busy.as_secs_f64());
        let streams = lock(&self.connections).len() as u32;
        CopyPathReport {
            before: self.before.get().copied(),
            streams,
            congestion: self.congestion(),
            peak_bps: known(&self.peak_bps),
            drops_at_bps: known(&self.drops_at_bps),
            queue_overflows_at_bps: known(&self.overflows_at_bps),
            steps: lock(&self.steps).clone(),
            addresses: self.addresses(),
            loss: share(
                |info| info.retransmitted_bytes as f64,
                sum(|info| info.acked_bytes as f64),
            ),
            receive_window_limited: share(|info| info.receive_window_limited.as_secs_f64(), busy),
            send_buffer_limited: share(|info| info.send_buffer_limited.as_secs_f64(), busy),
        }
    }

    /// Returns the number of connections and the acknowledged bytes per address of the server.
    fn addresses(&self) -> Vec<AddressReport> {
        let mut by_address: BTreeMap<IpAddr, (u32, u64)> = BTreeMap::new();
        for Connection { socket, address, .. } in lock(&self.connections).iter() {
            let (Some(address), Ok(info)) = (address, tcp_info(socket)) else { continue };
            let (streams, bytes) = by_address.entry(*address).or_default();
            *streams += 1;
            *bytes += info.acked_bytes;
        }
        by_address
            .into_iter()
            .map(|(address, (streams, bytes))| AddressReport {
                address,
                streams,
                bytes: Bytes::new(bytes),
            })
            .collect()
    }

    /// Returns the congestion control of the first connection, except for a repair.
    pub(super) fn congestion(&self) -> Option<String> {
        lock(&self.connections).first()?.congestion()
    }

    /// Lets the connection `number` repair its losses in slow start, until
    /// [`end_repair`](Self::end_repair). Returns whether it does.
    pub(super) fn repair_in_slow_start(&self, number: usize) -> bool {
        lock(&self.connections).get_mut(number).is_some_and(Connection::repair_in_slow_start)
    }

    /// Restores the congestion control of the connection `number`, if a repair has replaced it.
    pub(super) fn end_repair(&self, number: usize) {
        let mut connections = lock(&self.connections);
        let Some(connection) = connections.get_mut(number) else { return };
        if let Some(before) = connection.replaced.take() {
            // On failure the connection keeps the present one.
            let _ = set_congestion(&connection.socket, &before);
        }
    }

    /// Records a rate of acknowledged bytes over several round trips.
    pub(super) fn reached(&self, rate: Rate) {
        self.peak_bps.fetch_max(rate.bps(), Ordering::Relaxed);
    }

    /// Records the rate at which the path drops segments without a queue.
    pub(super) fn drops_at(&self, rate: Rate) {
        self.drops_at_bps.fetch_max(rate.bps(), Ordering::Relaxed);
    }

    /// Records the rate at which the queue of the path overflowed.
    pub(super) fn overflows_at(&self, rate: Rate) {
        self.overflows_at_bps.fetch_max(rate.bps(), Ordering::Relaxed);
    }

    /// Adds a sentence to the report.
    pub(super) fn note(&self, step: String) {
        lock(&self.steps).push(step);
    }

    /// Sets the maximum pacing rate of each connection to the user's limit, within which the
    /// [`RateGate`](crate::copy::rate_gate::RateGate) keeps their sum; `None` removes it.
    pub(super) fn pace_each(&self, limit: Option<Rate>) {
        set_pacing(&lock(&self.connections), limit);
    }

    /// Divides `rate` equally among all connections; `None` removes the pacing.
    pub(super) fn pace_together(&self, rate: Option<Rate>) {
        let connections = lock(&self.connections);
        let share = |rate: Rate| Rate::from_bps(rate.bps() / connections.len().max(1) as u64);
        set_pacing(&connections, rate.map(share));
    }

    /// Sets the congestion control of the present and later connections, and of those under repair
    /// after it. Returns whether every present connection accepts it.
    pub(super) fn use_congestion(&self, congestion: &str) -> bool {
        let mut connections = lock(&self.connections);
        let used = !connections.is_empty() && connections.iter_mut().all(|c| c.choose(congestion));
        if used {
            *lock(&self.chosen) = Some(congestion.to_owned());
        }
        used
    }
}

/// Sets the maximum pacing rate of each connection; `None` removes it.
fn set_pacing(connections: &[Connection], each: Option<Rate>) {
    let bytes_per_second = each.map_or(u64::MAX, |rate| rate.bytes_per_second().max(1));
    for connection in connections {
        // A closed connection needs no pacing.
        let _ = set_max_pacing_rate(&connection.socket, bytes_per_second);
    }
}

impl Connection {
    /// Returns the congestion control, except for a repair.
    fn congestion(&self) -> Option<String> {
        let present = || Some(tcp::granted(&self.socket).ok()?.congestion);
        self.replaced.clone().or_else(present)
    }

    /// Restarts slow start. Replaces BBR by [`REPAIRING`] until the repair ends. With another congestion
    /// control, starts BBR for an instant, which raises the slow-start threshold to its maximum. Returns
    /// whether the kernel accepts every change.
    fn repair_in_slow_start(&mut self) -> bool {
        let Ok(present) = tcp::granted(&self.socket).map(|granted| granted.congestion) else {
            return false;
        };
        if present.starts_with("bbr") {
            let replaces = set_congestion(&self.socket, REPAIRING);
            if replaces {
                self.replaced.get_or_insert(present);
            }
            return replaces;
        }
        if !set_congestion(&self.socket, "bbr") {
            return false;
        }
        let restored = set_congestion(&self.socket, &present);
        if !restored {
            // The end of the repair tries again.
            self.replaced.get_or_insert(present);
        }
        restored
    }

    fn choose(&mut self, congestion: &str) -> bool {
        match &mut self.replaced {
            Some(replaced) => {
                congestion.clone_into(replaced);
                true
            }
            None => set_congestion(&self.socket, congestion),
        }
    }
}

/// Sets the congestion control of a connection. Returns whether the kernel accepts it.
fn set_congestion(socket: &TcpStream, congestion: &str) -> bool {
    let options = tcp::SocketOptions {
        congestion: Some(congestion.to_owned()),
        ..tcp::SocketOptions::default()
    };
    options.apply(socket).is_ok()
}

/// Returns a rate that was recorded; `None` for zero.
fn known(bps: &AtomicU64) -> Option<Rate> {
    Some(bps.load(Ordering::Relaxed)).filter(|bps| *bps > 0).map(Rate::from_bps)
}

/// Converts bytes per second to a rate.
pub(super) fn rate_of(bytes_per_second: f64) -> Rate {
    Rate::from_bps((8.0 * bytes_per_second) as u64)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    fn connect(to: &str) -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind(to).unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    #[test]
    fn bytes_are_counted_per_address_of_the_server() {
        let (steered, served) = (SteeredStreams::default(), SteeredStreams::default());
        for (to, length) in [("127.0.0.1:0", 700), ("127.0.0.2:0", 5000), ("127.0.0.1:0", 300)] {
            let (mut near, mut far) = connect(to);
            steered.add(&near, true);
            served.add(&far, false);
            near.write_all(&vec![1; length]).unwrap();
            far.read_exact(&mut vec![0; length]).unwrap();
            // Carries the acknowledgement.
            far.write_all(&[2]).unwrap();
            near.read_exact(&mut [0]).unwrap();
        }
        let of = |address: &str, streams, bytes| AddressReport {
            address: address.parse().unwrap(),
            streams,
            bytes: Bytes::new(bytes),
        };
        // The kernel counts each SYN as a byte (RFC 9293).
        let reported = steered.report(&[]).addresses;
        assert_eq!(reported, [of("127.0.0.1", 2, 1002), of("127.0.0.2", 1, 5001)]);
        let seen = served.report(&[]).addresses;
        let addresses = |reported: &[AddressReport]| -> Vec<_> {
            reported.iter().map(|over| (over.address, over.streams)).collect()
        };
        assert_eq!(
            addresses(&seen),
            addresses(&reported),
            "client and server report the server's addresses"
        );
    }

    #[test]
    fn later_connections_use_the_chosen_congestion_control() {
        let steered = SteeredStreams::default();
        assert!(!steered.use_congestion("reno"), "there is no connection yet");
        let (first, _far) = connect("127.0.0.1:0");
        steered.add(&first, true);
        assert!(steered.use_congestion("reno"), "reno is in every kernel");
        assert!(!steered.use_congestion("no-such"));
        let (second, _far) = connect("127.0.0.1:0");
        steered.add(&second, true);
        assert_eq!(tcp::granted(&second).unwrap().congestion, "reno");
        assert_eq!(steered.congestion().as_deref(), Some("reno"));
    }

    #[test]
    fn a_repair_keeps_a_loss_based_congestion_control() {
        let steered = SteeredStreams::default();
        let (socket, _far) = connect("127.0.0.1:0");
        steered.add(&socket, true);
        assert!(steered.use_congestion("reno"));
        let has_bbr = steered.use_congestion("bbr") && steered.use_congestion("reno");
        assert_eq!(steered.repair_in_slow_start(0), has_bbr);
        assert!(!steered.repair_in_slow_start(1), "there is no second connection");
        assert_eq!(tcp::granted(&socket).unwrap().congestion, "reno");
        steered.end_repair(0);
        assert_eq!(tcp::granted(&socket).unwrap().congestion, "reno");
    }

    #[test]
    fn a_choice_during_a_repair_applies_after_it() {
        let steered = SteeredStreams::default();
        let (socket, _far) = connect("127.0.0.1:0");
        steered.add(&socket, true);
        // In place of BBR, which not every kernel has.
        assert!(steered.use_congestion("cubic"));
        lock(&steered.connections)[0].replaced = Some("bbr".to_owned());
        assert_eq!(steered.congestion().as_deref(), Some("bbr"), "the repair does not count");
        assert!(steered.use_congestion("reno"));
        assert_eq!(tcp::granted(&socket).unwrap().congestion, "cubic");
        steered.end_repair(0);
        assert_eq!(tcp::granted(&socket).unwrap().congestion, "reno");
    }
}
