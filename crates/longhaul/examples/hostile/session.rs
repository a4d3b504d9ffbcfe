//! One hostile client from its connection to its end.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use longhaul_core::plan::Protection;
use longhaul_core::wire::{BlockHeader, Hello, PROTOCOL_VERSION, PackEntry, Service};
use longhaul_engine::copy::BlockSender;
use longhaul_engine::session::{
    ConfigDir, ConnectOptions, ControlReceiver, ControlSender, DataDialer, Family, HostPolicy,
    HostPort, Identity, connect_unasked,
};
use serde_json::Value;

use crate::dice::Dice;
use crate::mutate::{frame, mutated};
use crate::orders::{Orders, orders};

const SERVICES: [Service; 5] =
    [Service::Copy, Service::Test, Service::ThirdParty, Service::Path, Service::Diagnose];
/// The time for which a client waits for a message.
const PATIENCE: Duration = Duration::from_millis(80);
/// The largest number of repetitions of a message.
const FLOOD: usize = 400;

/// The identity of a hostile client.
pub(crate) struct ClientIdentity<'a> {
    pub(crate) server: &'a HostPort,
    pub(crate) config: &'a ConfigDir,
    pub(crate) identity: &'a Identity,
}

/// Runs a session and returns the number of sent messages.
pub(crate) fn run(dice: &mut Dice, who: &ClientIdentity<'_>) -> u64 {
    if dice.chance(4) {
        return without_tls(dice, who.server);
    }
    let options = ConnectOptions {
        identity: who.identity,
        config: who.config,
        policy: HostPolicy::RefuseChanged,
        family: Family::Any,
        local: None,
    };
    let Ok(session) = connect_unasked(who.server, &options) else { return 1 };
    let (sender, receiver, dialer) = session.split();
    let mut foe = HostileClient { dice, sender, receiver, dialer, sent: 0, spoil: 0 };
    foe.spoil = *foe.dice.choose(&[0, 10, 30, 60, 100]);
    foe.speak();
    foe.sent
}

/// Sends random bytes, the start of a TLS handshake, or the start of a data connection.
fn without_tls(dice: &mut Dice, server: &HostPort) -> u64 {
    let Ok(mut socket) = TcpStream::connect((server.host.as_str(), server.port)) else { return 0 };
    let first: &[u8] = match dice.below(4) {
        0 => &[0x16, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3],
        1 => b"LHD1",
        2 => b"GET / HTTP/1.1\r\n\r\n",
        _ => &[],
    };
    let length = dice.below(2000);
    let _ = socket.write_all(&[first, &dice.bytes(length)].concat());
    if dice.chance(50) {
        let _ = socket.shutdown(Shutdown::Write);
        let _ = socket.set_read_timeout(Some(PATIENCE));
        let _ = socket.read(&mut [0; 64]);
    }
    1
}

/// A hostile client on an open control channel.
struct HostileClient<'a> {
    dice: &'a mut Dice,
    sender: ControlSender,
    receiver: ControlReceiver,
    dialer: DataDialer,
    sent: u64,
    /// The percentage of mutated messages.
    spoil: u64,
}

impl HostileClient<'_> {
    fn speak(&mut self) {
        let among = if self.dice.chance(60) { 1 } else { SERVICES.len() };
        let service = *self.dice.choose(&SERVICES[..among]);
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let hello = Hello { protocol: PROTOCOL_VERSION, version, service };
        let hello = serde_json::to_value(hello).expect("a hello is written");
        // Rarely, because most of the protocol follows.
        let spoilt = self.dice.chance(5);
        if !self.send(&hello, spoilt) || self.dice.chance(3) {
            return;
        }
        if self.dice.chance(60) && !self.receives() {
            return;
        }
        let orders = orders(self.dice, service);
        let mut request = orders.request.clone();
        if self.dice.chance(5) {
            // The request of another service.
            let other = *self.dice.choose(&SERVICES);
            request = crate::orders::orders(self.dice, other).then;
        }
        if !self.say(&request) {
            return;
        }
        let connections = self.connections(&orders);
        if self.dice.chance(85) {
            self.receives();
        }
        self.follow(&orders, connections);
        match self.dice.below(4) {
            0 => std::thread::sleep(Duration::from_millis(self.dice.next() % 50)),
            1 => while self.receives() && self.dice.chance(70) {},
            _ => {}
        }
    }

    /// Sends the messages and blocks after the answer to the request.
    fn follow(&mut self, orders: &Orders, connections: Vec<TcpStream>) {
        let mut then = orders.then.clone();
        if then.len() > 1 && self.dice.chance(15) {
            let (one, other) = (self.dice.below(then.len()), self.dice.below(then.len()));
            then.swap(one, other);
        }
        // Half of the messages precede the blocks.
        let middle = then.len().div_ceil(2);
        if !self.say(&then[..middle]) {
            return;
        }
        let kept = self.blocks(orders, connections);
        self.say(&then[middle..]);
        if self.dice.chance(30) {
            self.receives();
        }
        drop(kept);
    }

    /// Sends messages in order, some of them changed, repeated or omitted. Returns false if the
    /// server has closed the connection.
    fn say(&mut self, messages: &[Value]) -> bool {
        for message in messages {
            let times = match self.dice.below(100) {
                0..3 => 0,
                3..8 => 2,
                8..12 => self.dice.below(FLOOD),
                _ => 1,
            };
            for _ in 0..times {
                let spoilt = self.dice.chance(self.spoil);
                if !self.send(message, spoilt) {
                    return false;
                }
            }
        }
        true
    }

    fn send(&mut self, message: &Value, spoilt: bool) -> bool {
        let bytes = if spoilt { mutated(self.dice, message) } else { frame(message) };
        let sent = self.sender.send_bytes(&bytes).is_ok();
        self.sent += u64::from(sent);
        sent
    }

    /// Returns whether the server sent a message in time.
    fn receives(&mut self) -> bool {
        let _ = self.receiver.set_timeout(Some(PATIENCE));
        self.receiver.receive::<Value>().is_ok()
    }

    /// Opens the data connections of the request, or others.
    fn connections(&mut self, orders: &Orders) -> Vec<TcpStream> {
        let numbers: Vec<u32> = match self.dice.below(10) {
            0 => Vec::new(),
            1 => vec![0, 0, 0],
            2 => vec![self.dice.next() as u32, u32::MAX],
            3 => (0..20).collect(),
            _ => (0..orders.streams).collect(),
        };
        let open = |number| self.dialer.open(number, |_| Ok(())).ok();
        let opened: Vec<_> = numbers.into_iter().filter_map(open).collect();
        self.sent += opened.len() as u64;
        opened
    }

    /// Sends blocks, packs, false headers and random bytes. Returns the connections that stay open.
    fn blocks(&mut self, orders: &Orders, connections: Vec<TcpStream>) -> Vec<TcpStream> {
        let mut kept = Vec::new();
        for (number, socket) in (0..).zip(connections) {
            let _ = socket.set_write_timeout(Some(PATIENCE));
            let _ = socket.set_read_timeout(Some(PATIENCE));
            kept.extend(socket.try_clone());
            match self.dice.below(8) {
                0 => {
                    let length = self.dice.below(3000);
                    let _ = (&socket).write_all(&self.dice.bytes(length));
                    self.sent += 1;
                }
                1 => drop(socket.shutdown(Shutdown::Write)),
                2 => {
                    let _ = (&socket).read(&mut [0; 4096]);
                }
                3 => kept.clear(),
                _ => self.blocks_on(orders, number, socket),
            }
        }
        kept
    }

    fn blocks_on(&mut self, orders: &Orders, number: u32, socket: TcpStream) {
        let protection = if self.dice.chance(95) { orders.protection } else { Protection::Bare };
        let key = self.dialer.secret().stream_key(number);
        let mut blocks = BlockSender::new(socket, &key, protection);
        for (id, size) in (0..).zip(&orders.uploads) {
            let sent = match self.dice.below(10) {
                0 => self.send_false_header(&mut blocks),
                1 => blocks.send(self.dice.next() % 9, 0, &mut vec![1; 1 + self.dice.below(9000)]),
                _ => honest(&mut blocks, id, *size, orders.block_bytes),
            };
            if sent.is_err() {
                return;
            }
            self.sent += 1;
        }
        if self.dice.chance(50) {
            let _ = blocks.finish();
            self.sent += 1;
        }
    }

    /// Sends a signed header or table with false values.
    fn send_false_header(&mut self, blocks: &mut BlockSender) -> std::io::Result<()> {
        let big = self.dice.next() >> self.dice.below(64);
        let length = (self.dice.next() >> self.dice.below(64)) as u32;
        let header = match self.dice.below(3) {
            0 => BlockHeader::Block { file: big, offset: (self.dice.next() % 9) << 12, length },
            1 => BlockHeader::Block { file: 0, offset: big, length },
            _ => BlockHeader::Pack { files: 1 + self.dice.below(4) as u32, length },
        };
        let files = 1 + self.dice.below(4);
        let table: Vec<u8> = (0..files)
            .flat_map(|file| {
                PackEntry { file: file as u64, length: length / files as u32 }.encode()
            })
            .collect();
        let mut payload = vec![3; self.dice.below(5000)];
        blocks.send_unchecked(&header.encode(), &table, &mut payload)
    }
}

/// Sends all bytes of a file, as a source does.
fn honest(blocks: &mut BlockSender, file: u64, size: u64, block: u64) -> std::io::Result<()> {
    if size < block.min(1 << 20) {
        let entry = PackEntry { file, length: size as u32 };
        return blocks.send_pack(&[entry], &mut vec![b'h'; size as usize]);
    }
    let mut offset = 0;
    while offset < size {
        let length = block.min(size - offset);
        blocks.send(file, offset, &mut vec![b'h'; length as usize])?;
        offset += length;
    }
    Ok(())
}
