//! A relay between the two ends of a copy that damages their messages.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::Script;
use crate::lock;

/// Bytes that pass at once on a data connection.
const CHUNK_BYTES: usize = 16 << 10;
/// The unit of places on a data connection.
const PLACE_BYTES: u64 = 32;

/// One fault on the path.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fault {
    way: FaultPlace,
    /// The message on a control channel, the place on a data connection.
    at: u64,
    what: FaultKind,
    amount: u8,
}

/// The channel of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FaultPlace {
    /// Messages of the client.
    FromClient,
    /// Messages of the server.
    FromServer,
    /// A data connection, by its number.
    Data(u32),
}

/// The kind of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FaultKind {
    /// A message is lost, or a bit of a block is changed.
    Spoil,
    /// A message comes twice, or bytes of a block.
    Repeat,
    /// A message comes after the next, or a block later.
    Delay,
    /// This connection ends, in the middle of a message.
    Cut,
    /// All connections end.
    CutAll,
    /// A message of before comes again.
    Replay,
}

impl Fault {
    pub(super) fn read(script: &mut Script<'_>) -> Self {
        let way = match script.below(5) {
            0 | 1 => FaultPlace::FromClient,
            2 | 3 => FaultPlace::FromServer,
            _ => FaultPlace::Data(script.below(3) as u32),
        };
        let at = match way {
            FaultPlace::Data(_) => u64::from(script.short()),
            _ => u64::from(script.byte() % 12),
        };
        let what = script.choose(&[
            FaultKind::Spoil,
            FaultKind::Repeat,
            FaultKind::Delay,
            FaultKind::Cut,
            FaultKind::CutAll,
            FaultKind::Replay,
        ]);
        Fault { way, at, what, amount: script.byte() }.bounded()
    }

    /// Replaces a fault that one end must wait for by another fault, in tests, because their time
    /// limits are those of the program.
    fn bounded(self) -> Self {
        let waits =
            matches!(self.what, FaultKind::Spoil | FaultKind::Delay) && self.is_of_messages();
        if cfg!(feature = "fuzzing") || !waits {
            self
        } else {
            Fault { what: FaultKind::Cut, ..self }
        }
    }

    /// Returns whether it changes messages, rather than only their delivery.
    pub(super) fn is_of_messages(&self) -> bool {
        !matches!(self.way, FaultPlace::Data(_))
            && !matches!(self.what, FaultKind::Cut | FaultKind::CutAll)
    }

    /// Returns whether it changes bytes of blocks, rather than only their number.
    pub(super) fn is_of_bytes(&self) -> bool {
        matches!(self.way, FaultPlace::Data(_))
            && !matches!(self.what, FaultKind::Cut | FaultKind::CutAll)
    }
}

/// All connections of one session, with the threads that pass bytes between them.
#[derive(Clone, Default)]
pub(super) struct Relay(Arc<State>);

#[derive(Default)]
struct State {
    faults: Vec<Fault>,
    sockets: Mutex<Vec<UnixStream>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// Both directions of a control channel at one end.
pub(super) struct Control {
    pub(super) reader: UnixStream,
    pub(super) writer: UnixStream,
}

impl Relay {
    pub(super) fn new(faults: Vec<Fault>) -> Self {
        Relay(Arc::new(State { faults, ..State::default() }))
    }

    /// Returns a control channel: the client's end and the server's.
    pub(super) fn control(&self) -> io::Result<(Control, Control)> {
        let (client, near) = self.pair()?;
        let (server, far) = self.pair()?;
        for (way, from, to) in
            [(FaultPlace::FromClient, &near, &far), (FaultPlace::FromServer, &far, &near)]
        {
            let (from, to) = (from.try_clone()?, to.try_clone()?);
            let (relay, faults) = (self.clone(), self.faults(way));
            self.spawn(move || {
                let _ = relay.pass_messages(&from, &to, &faults);
                shut(&[from, to]);
            });
        }
        let both = |socket: UnixStream| -> io::Result<Control> {
            Ok(Control { reader: socket.try_clone()?, writer: socket })
        };
        Ok((both(client)?, both(server)?))
    }

    /// Returns data connection `stream`: the client's end and the server's.
    pub(super) fn data(&self, stream: u32) -> io::Result<(TcpStream, TcpStream)> {
        let (client, near) = self.pair()?;
        let (server, far) = self.pair()?;
        let faults = self.faults(FaultPlace::Data(stream));
        // Blocks go one way only, and which one the faults need not know.
        for (from, to) in [(&near, &far), (&far, &near)] {
            let (from, to) = (from.try_clone()?, to.try_clone()?);
            let (relay, faults) = (self.clone(), faults.clone());
            self.spawn(move || {
                let ended = relay.pass_bytes(&from, &to, &faults);
                match ended {
                    Ok(()) => drop(to.shutdown(Shutdown::Write)),
                    Err(_) => shut(&[from, to]),
                }
            });
        }
        Ok((TcpStream::from(OwnedFd::from(client)), TcpStream::from(OwnedFd::from(server))))
    }

    /// Ends all connections.
    pub(super) fn cut(&self) {
        shut(&lock(&self.0.sockets));
    }

    /// Ends all connections and waits for their threads.
    pub(super) fn finish(self) {
        self.cut();
        let threads = std::mem::take(&mut *lock(&self.0.threads));
        threads.into_iter().for_each(|thread| thread.join().expect("a relay does not panic"));
        lock(&self.0.sockets).clear();
    }

    /// Returns a pair of sockets, of which the second one belongs to this relay.
    fn pair(&self) -> io::Result<(UnixStream, UnixStream)> {
        let (end, ours) = UnixStream::pair()?;
        lock(&self.0.sockets).push(ours.try_clone()?);
        Ok((end, ours))
    }

    fn faults(&self, way: FaultPlace) -> Vec<Fault> {
        let mut faults: Vec<_> =
            self.0.faults.iter().copied().filter(|fault| fault.way == way).collect();
        faults.sort_by_key(|fault| fault.at);
        faults
    }

    pub(super) fn spawn(&self, run: impl FnOnce() + Send + 'static) {
        lock(&self.0.threads).push(thread::spawn(run));
    }

    fn pass_messages(
        &self,
        mut from: &UnixStream,
        mut to: &UnixStream,
        faults: &[Fault],
    ) -> io::Result<()> {
        let (mut late, mut past) = (None::<Vec<u8>>, Vec::<Vec<u8>>::new());
        for number in 0.. {
            let mut message = vec![0; 4];
            from.read_exact(&mut message)?;
            let length = u32::from_be_bytes([message[0], message[1], message[2], message[3]]);
            message.resize(4 + length as usize, 0);
            from.read_exact(&mut message[4..])?;
            let fault = faults.iter().find(|fault| fault.at == number);
            match fault.map(|fault| (fault.what, usize::from(fault.amount))) {
                None => to.write_all(&message)?,
                Some((FaultKind::Spoil, _)) => {}
                Some((FaultKind::Repeat, _)) => to.write_all(&message.repeat(2))?,
                Some((FaultKind::Delay, _)) => {
                    late = Some(message);
                    continue;
                }
                Some((FaultKind::Cut, amount)) => {
                    to.write_all(&message[..amount % message.len()])?;
                    return Ok(());
                }
                Some((FaultKind::CutAll, _)) => {
                    self.cut();
                    return Ok(());
                }
                Some((FaultKind::Replay, amount)) => {
                    to.write_all(&message)?;
                    if !past.is_empty() {
                        to.write_all(&past[amount % past.len()])?;
                    }
                }
            }
            past.push(message);
            if let Some(late) = late.take() {
                to.write_all(&late)?;
            }
        }
        Ok(())
    }

    fn pass_bytes(
        &self,
        mut from: &UnixStream,
        mut to: &UnixStream,
        faults: &[Fault],
    ) -> io::Result<()> {
        let (mut chunk, mut passed) = (vec![0; CHUNK_BYTES], 0_u64);
        loop {
            let got = match from.read(&mut chunk)? {
                0 => return Ok(()),
                got => got,
            };
            let mut bytes = chunk[..got].to_vec();
            let within =
                |fault: &&Fault| (passed..passed + got as u64).contains(&(fault.at * PLACE_BYTES));
            for fault in faults.iter().filter(within) {
                let at = (fault.at * PLACE_BYTES - passed) as usize;
                let at = at.min(bytes.len().saturating_sub(1));
                match fault.what {
                    FaultKind::Spoil => bytes[at] ^= fault.amount.max(1),
                    FaultKind::Repeat => bytes.insert(at, fault.amount),
                    FaultKind::Replay => drop(bytes.remove(at)),
                    FaultKind::Delay => {
                        thread::sleep(Duration::from_millis(u64::from(fault.amount) / 8));
                    }
                    FaultKind::Cut => {
                        to.write_all(&bytes[..at])?;
                        return Err(io::ErrorKind::ConnectionReset.into());
                    }
                    FaultKind::CutAll => {
                        self.cut();
                        return Ok(());
                    }
                }
                if bytes.is_empty() {
                    break;
                }
            }
            passed += got as u64;
            to.write_all(&bytes)?;
        }
    }
}

fn shut(sockets: &[UnixStream]) {
    for socket in sockets {
        let _ = socket.shutdown(Shutdown::Both);
    }
}
