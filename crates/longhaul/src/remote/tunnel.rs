//! Data connections through ssh, where its port alone is open: each is an ssh connection of its
//! own, so that each has a TCP window of its own.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::ssh::Rsh;

use crate::output::raw_output;

/// What is read and written at once at the far side.
const RELAY_BYTES: usize = 256 << 10;

/// The ssh processes of a copy's data connections; ended when it is dropped.
#[derive(Default)]
pub(super) struct Tunnels(Mutex<Vec<Child>>);

impl Tunnels {
    /// Opens one to `port` at the far side's loopback. ssh gets one end of a local connection as
    /// its standard input and output, and we have the other.
    pub(super) fn open(
        self: &Arc<Self>,
        rsh: &Rsh,
        destination: &str,
        far_longhaul: &str,
        port: u16,
    ) -> io::Result<TcpStream> {
        let (ours, theirs) = pair()?;
        let theirs = OwnedFd::from(theirs);
        let ssh = Command::new(&rsh.program)
            // A shared connection would share one window; this one is its own.
            .args(["-o", "ControlPath=none"])
            .args(&rsh.arguments)
            .args(["--", destination])
            .arg(format!("{far_longhaul} serve --relay {port}"))
            .stdin(Stdio::from(theirs.try_clone()?))
            .stdout(Stdio::from(theirs))
            .spawn()?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(ssh);
        Ok(ours)
    }
}

impl Drop for Tunnels {
    fn drop(&mut self) {
        for ssh in self.0.get_mut().unwrap_or_else(PoisonError::into_inner) {
            // Harmless when it has ended; its exit is collected either way.
            let _ = ssh.kill();
            let _ = ssh.wait();
        }
    }
}

/// Both ends of a connection within this host.
fn pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let ours = TcpStream::connect(listener.local_addr()?)?;
    loop {
        // Another program of this host may have been faster.
        let (theirs, peer) = listener.accept()?;
        if peer == ours.local_addr()? {
            ours.set_nodelay(true)?;
            theirs.set_nodelay(true)?;
            return Ok((ours, theirs));
        }
    }
}

/// `longhaul serve --relay PORT`: joins standard input and output to a port of this host's
/// loopback, until the port's side closes.
///
/// # Errors
/// Nothing listens there, or the connection breaks.
pub(crate) fn relay(port: u16) -> io::Result<()> {
    let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    let stream = |fd: std::os::fd::BorrowedFd<'_>| fd.try_clone_to_owned().map(std::fs::File::from);
    let (input, output) = (stream(io::stdin().as_fd())?, raw_output()?);
    let upward = socket.try_clone()?;
    // The process does not wait for it: the near side may hold its end open.
    thread::spawn(move || {
        let _ = pass(input, &upward);
        let _ = upward.shutdown(Shutdown::Write);
    });
    pass(&socket, output)
}

fn pass(mut from: impl Read, mut to: impl Write) -> io::Result<()> {
    let mut buffer = vec![0; RELAY_BYTES];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(got) => to.write_all(&buffer[..got])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
