//! This process: its invocation for result documents, and its state for the service manager.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, SystemTime};
use std::{env, io};

use longhaul_core::result::Invocation;

/// Returns the invocation of this process, which began `elapsed` ago.
pub(crate) fn invocation(elapsed: Duration) -> Invocation {
    let began = SystemTime::now().checked_sub(elapsed).unwrap_or(SystemTime::UNIX_EPOCH);
    let began = jiff::Timestamp::try_from(began).unwrap_or_default();
    let node = rustix::system::uname();
    Invocation {
        started_at: format!("{began:.3}"),
        host: node.nodename().to_string_lossy().into_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect(),
    }
}

/// Sends `state`, such as `READY=1`, to the manager that started this process, if any. Errors are
/// ignored, because the server works without a manager.
pub(crate) fn notify(state: &str) {
    if let Some(path) = env::var_os("NOTIFY_SOCKET") {
        let _ = send(&path, state);
    }
}

fn send(path: &OsStr, state: &str) -> io::Result<()> {
    let address = match path.as_bytes() {
        // An abstract name begins with '@' in the variable and with zero on the socket.
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(path)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_precedes_now() {
        let found = invocation(Duration::from_secs(3600));
        let began: jiff::Timestamp = found.started_at.parse().unwrap();
        let ago = jiff::Timestamp::now().as_second() - began.as_second();
        assert!((3599..3700).contains(&ago), "{ago}");
        assert!(found.started_at.ends_with('Z') && found.started_at.contains('.'));
        assert!(!found.host.is_empty() && !found.command.is_empty());
    }

    #[test]
    fn named_and_abstract_sockets_receive_the_state() {
        let name = format!("longhaul-notify-{}", std::process::id());
        let file = env::temp_dir().join(&name);
        let named = UnixDatagram::bind(&file).unwrap();
        let address = SocketAddr::from_abstract_name(name.as_bytes()).unwrap();
        let hidden = UnixDatagram::bind_addr(&address).unwrap();
        send(file.as_os_str(), "READY=1").unwrap();
        send(OsStr::new(&format!("@{name}")), "STOPPING=1").unwrap();
        let mut buffer = [0; 32];
        let length = named.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"READY=1");
        let length = hidden.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"STOPPING=1");
        std::fs::remove_file(&file).unwrap();
        assert!(send(file.as_os_str(), "READY=1").is_err());
    }
}
