//! The server's side of the control channel.

use super::{LineError, Lines};
use crate::nuttcp::{ParameterError, Parameters, Unsupported, Version};

/// The reason for which a server refuses a test. Its text is sent to the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The bytes are not lines.
    #[error(transparent)]
    Line(#[from] LineError),
    /// The first line is not `HELO nuttcp vX.Y.Z`.
    #[error("no nuttcp HELO message")]
    NoHello,
    /// The client's version is older than [`Version::OLDEST`].
    #[error("client version {0} is not supported, need >= {oldest}", oldest = Version::OLDEST)]
    TooOld(Version),
    /// The option line is invalid.
    #[error("error scanning parameters: {0}")]
    Parameters(#[from] ParameterError),
    /// The client requests a feature that this server does not have.
    #[error("this server does not support {}", unsupported(*.0))]
    Unsupported(Unsupported),
    /// The client sent bytes after its request.
    #[error("unexpected data on the control connection")]
    OutOfTurn,
}

fn unsupported(feature: Unsupported) -> &'static str {
    match feature {
        Unsupported::Traceroute => "traceroute",
        Unsupported::ThirdParty => "3rd party tests",
        Unsupported::Multicast => "multicast",
        Unsupported::Multilink => "address stride or multilink",
    }
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    Greeting,
    Waiting(Version),
    Requested,
}

/// The server's side of a control channel.
#[derive(Debug)]
pub struct Server {
    lines: Lines,
    state: State,
    output: String,
}

impl Default for Server {
    fn default() -> Self {
        Self { lines: Lines::default(), state: State::Greeting, output: String::new() }
    }
}

impl Server {
    /// Removes and returns the bytes to send.
    pub fn output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output).into_bytes()
    }

    /// Returns the version of the client, once known.
    #[must_use]
    pub fn peer(&self) -> Option<Version> {
        if let State::Waiting(peer) = self.state { Some(peer) } else { None }
    }

    /// Handles bytes from the client, and returns its request with its version.
    ///
    /// # Errors
    /// The request is invalid. The output then has the refusal.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<Option<(Parameters, Version)>, Refusal> {
        let request = self.handle(bytes);
        if let Err(refusal) = &request {
            self.refuse(&refusal.to_string());
        }
        request
    }

    fn handle(&mut self, bytes: &[u8]) -> Result<Option<(Parameters, Version)>, Refusal> {
        self.lines.push(bytes)?;
        while let Some(line) = self.lines.pop() {
            match self.state {
                State::Greeting => self.greet(&line)?,
                State::Waiting(_) => {
                    self.state = State::Requested;
                    let (parameters, version) = Parameters::parse(&line)?;
                    return match parameters.unsupported {
                        Some(feature) => Err(Refusal::Unsupported(feature)),
                        None => Ok(Some((parameters, version))),
                    };
                }
                State::Requested => return Err(Refusal::OutOfTurn),
            }
        }
        Ok(None)
    }

    fn greet(&mut self, line: &str) -> Result<(), Refusal> {
        let peer = super::parse_hello(line).ok_or(Refusal::NoHello)?;
        if peer < Version::OLDEST {
            return Err(Refusal::TooOld(peer));
        }
        self.output.push_str(&super::hello());
        self.state = State::Waiting(peer);
        Ok(())
    }

    /// Accepts the test.
    pub fn accept(&mut self) {
        self.print(&format!("OK v{}", Version::OURS));
    }

    /// Refuses the test with a reason of one line.
    pub fn refuse(&mut self, reason: &str) {
        self.print("KO");
        self.print(reason);
        self.print("KO");
    }

    /// Sends a line to the client. Bytes outside printable ASCII become `?`.
    pub fn print(&mut self, line: &str) {
        self.output.extend(line.chars().map(|c| if matches!(c, ' '..='~') { c } else { '?' }));
        self.output.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        let mut server = Server::default();
        server.receive(text.as_bytes()).unwrap_err();
        String::from_utf8(server.output()).unwrap()
    }

    #[test]
    fn other_clients_are_refused_with_a_reason() {
        assert_eq!(refusal("GET / HTTP/1.1\r\n"), "KO\nno nuttcp HELO message\nKO\n");
        assert_eq!(refusal("\x16\x03"), "KO\na line has the byte 0x16\nKO\n");
        let old = "KO\nclient version 5.1.0 is not supported, need >= 6.1.2\nKO\n";
        assert_eq!(refusal("HELO nuttcp v5.1.0\n"), old);
        let hello = "HELO nuttcp v8.2.2\n";
        let scan = "KO\nerror scanning parameters: the option line lacks vers\nKO\n";
        assert_eq!(refusal(&format!("{hello}buflen = 1\n")), format!("{hello}{scan}"));
    }

    #[test]
    fn a_client_that_adds_bytes_to_its_request_is_refused() {
        let mut server = Server::default();
        let line = Parameters::default().line(Version::OURS);
        let request = format!("HELO nuttcp v6.1.2\n{line}\n");
        let (parameters, version) = server.receive(request.as_bytes()).unwrap().unwrap();
        assert_eq!((parameters, version), (Parameters::default(), Version::OURS));
        assert_eq!(server.receive(b"more\n"), Err(Refusal::OutOfTurn));
    }

    #[test]
    fn text_for_a_client_is_printable() {
        let mut server = Server::default();
        server.print("a\nb\x1b[2Jé");
        assert_eq!(server.output(), b"a?b?[2J?\n");
    }
}
