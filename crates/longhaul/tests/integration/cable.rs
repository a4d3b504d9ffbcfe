//! A proxy between client and server that can freeze, cut and corrupt connections.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// A proxy that forwards every connection to a server. Its threads end with the process.
pub(crate) struct TcpProxy {
    pub(crate) port: u16,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    frozen: AtomicBool,
    /// The distance in bytes between flipped bits; 0 flips none.
    spoil_every: AtomicU64,
    corrupted_bits: AtomicU64,
    sockets: Mutex<Vec<TcpStream>>,
}

impl TcpProxy {
    pub(crate) fn to(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State::default());
        thread::spawn({
            let state = state.clone();
            move || {
                for near in listener.incoming().flatten() {
                    // If the server is down, the connection is closed.
                    let Ok(far) = TcpStream::connect(("127.0.0.1", server)) else { continue };
                    for socket in [&near, &far] {
                        state.sockets.lock().unwrap().push(socket.try_clone().unwrap());
                    }
                    for (from, to) in
                        [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)]
                    {
                        let state = state.clone();
                        thread::spawn(move || forward(&state, from, to));
                    }
                }
            }
        });
        TcpProxy { port, state }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("lh://127.0.0.1:{}/{path}", self.port)
    }

    /// Forwards nothing for `time`.
    pub(crate) fn freeze(&self, time: Duration) {
        self.state.frozen.store(true, Ordering::Relaxed);
        thread::sleep(time);
        self.state.frozen.store(false, Ordering::Relaxed);
    }

    /// Closes all connections.
    pub(crate) fn cut(&self) {
        for socket in self.state.sockets.lock().unwrap().drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Flips one bit in every `bytes` bytes of a connection.
    pub(crate) fn corrupt_every(&self, bytes: u64) {
        self.state.spoil_every.store(bytes, Ordering::Relaxed);
    }

    /// Returns the number of flipped bits.
    pub(crate) fn corrupted_bits(&self) -> u64 {
        self.state.corrupted_bits.load(Ordering::Relaxed)
    }
}

fn forward(state: &State, mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = vec![0; 64 << 10];
    let mut passed = 0;
    while let Ok(got @ 1..) = from.read(&mut buffer) {
        while state.frozen.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(5));
        }
        let every = state.spoil_every.load(Ordering::Relaxed);
        if every > 0 && passed / every != (passed + got as u64) / every {
            buffer[got / 2] ^= 4;
            state.corrupted_bits.fetch_add(1, Ordering::Relaxed);
        }
        passed += got as u64;
        if to.write_all(&buffer[..got]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}
