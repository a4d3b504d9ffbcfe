//! The attacked server.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

/// A server process; killed when dropped.
pub(crate) struct Server {
    pub(crate) process: Child,
    pub(crate) port: u16,
    panic: Arc<Mutex<Option<String>>>,
}

impl Server {
    pub(crate) fn start(mut command: Command) -> std::io::Result<Self> {
        let mut process = command.stderr(Stdio::piped()).spawn()?;
        let stderr = process.stderr.take().expect("it is piped");
        let mut lines = BufReader::new(stderr).lines();
        let mut port = None;
        while port.is_none() {
            let Some(line) = lines.next() else { break };
            port = line?.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        }
        // The pipe is drained, so that the server never blocks.
        let panic = Arc::new(Mutex::new(None));
        std::thread::spawn({
            let panic = panic.clone();
            move || {
                for line in lines.map_while(Result::ok).filter(|line| line.contains("panicked")) {
                    *panic.lock().unwrap_or_else(PoisonError::into_inner) = Some(line);
                }
            }
        });
        let port = port.ok_or_else(|| std::io::Error::other("the server does not listen"))?;
        Ok(Server { process, port, panic })
    }

    /// Returns the reason why the server has crashed or ended, if it has.
    pub(crate) fn fault(&mut self) -> Option<String> {
        let panic = self.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        match self.process.try_wait() {
            Ok(None) => panic,
            ended => Some(format!("the server has ended: {ended:?} {panic:?}")),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
