//! Data connections through ssh, for hosts that accept only ssh. Each data connection is a separate
//! ssh connection, and so has a separate TCP window.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use crate::output::raw_output;

/// The buffer size of the relay.
const RELAY_BYTES: usize = 256 << 10;

/// The ssh processes of the data connections of a copy. Dropping it ends them.
#[derive(Default)]
pub(super) struct Tunnels(Mutex<Vec<Child>>);

impl Tunnels {
    /// Opens a connection to `port` on the loopback interface of the remote host. One end of a
    /// local connection is standard input and output of `ssh`; the caller gets the other end.
    pub(super) fn open(
        self: &Arc<Self>,
        mut ssh: Command,
        destination: &str,
        far_longhaul: &str,
        port: u16,
    ) -> io::Result<TcpStream> {
        let (ours, theirs) = pair()?;
        let theirs = OwnedFd::from(theirs);
        let ssh = ssh
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
            // Harmless if ssh has ended. The wait collects its exit status.
            let _ = ssh.kill();
            let _ = ssh.wait();
        }
    }
}

/// Returns both ends of a TCP connection within this host.
fn pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let ours = TcpStream::connect(listener.local_addr()?)?;
    loop {
        // Another program on this host may connect first.
        let (theirs, peer) = listener.accept()?;
        if peer == ours.local_addr()? {
            ours.set_nodelay(true)?;
            theirs.set_nodelay(true)?;
            return Ok((ours, theirs));
        }
    }
}

/// Runs `longhaul serve --relay PORT`: connects standard input and output to a port on the loopback
/// interface, until the port closes the connection.
///
/// # Errors
/// The port is closed, or the connection breaks.
pub(crate) fn relay(port: u16) -> io::Result<()> {
    let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    let stream = |fd: std::os::fd::BorrowedFd<'_>| fd.try_clone_to_owned().map(std::fs::File::from);
    let (input, output) = (stream(io::stdin().as_fd())?, raw_output()?);
    let upward = socket.try_clone()?;
    // The process does not wait for this thread: the client may keep its end open.
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
