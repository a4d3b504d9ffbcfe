//! The client's side of the control channel.

use super::{LineError, Lines};
use crate::nuttcp::{Feature, Interval, Parameters, ServerReport, Version};

/// The maximum number of lines of a refusal.
const MOST_REASONS: usize = 8;

/// An event on the control channel of a client.
#[derive(Debug, Clone, PartialEq)]
pub enum ClientEvent {
    /// The server accepts the test, and prepares the data connections.
    Accepted(Version),
    /// The server's line of one interval, and its figures.
    Interval(String, Box<Interval>),
    /// The server printed the last interval.
    IntervalsOver,
    /// A warning or an error of the server.
    Notice(String),
    /// The server closed the channel after its report.
    Finished(Box<ServerReport>),
}

/// The failure of a control channel.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The bytes are not lines.
    #[error(transparent)]
    Line(#[from] LineError),
    /// The peer is not a nuttcp server.
    #[error("unexpected answer {0:?} instead of a version of nuttcp")]
    NotNuttcp(String),
    /// The server's version is older than [`Version::OLDEST`].
    #[error("the server has version {0}")]
    TooOld(Version),
    /// The server lacks an option of the test.
    #[error("version {peer} lacks {feature:?}")]
    Lacks {
        /// The option.
        feature: Feature,
        /// The version of the server.
        peer: Version,
    },
    /// The server refuses the test.
    #[error("the server refuses: {}", reason.join("; "))]
    Refused {
        /// The version of the server, if it stated one.
        peer: Option<Version>,
        /// The lines that the server printed.
        reason: Vec<String>,
    },
    /// The server answered the option line with another line than `OK` or `KO`.
    #[error("unexpected answer {line:?}")]
    Unexpected {
        /// The version of the server.
        peer: Version,
        /// The line.
        line: String,
    },
    /// The server closed the channel before it accepted the test.
    #[error("the server closed the control connection")]
    Closed {
        /// The version of the server, if it stated one.
        peer: Option<Version>,
    },
}

/// The state of a channel.
#[derive(Debug)]
enum State {
    /// The client has sent its version.
    Greeting,
    /// The client has sent the option line.
    Asking(Version),
    /// The server prints the reason for a refusal.
    Refusing(Option<Version>, Vec<String>),
    /// The test runs, or the server prints its report.
    Running(Version),
}

/// The client's side of a control channel.
#[derive(Debug)]
pub struct Client {
    parameters: Parameters,
    lines: Lines,
    state: State,
    report: ServerReport,
    output: String,
}

impl Client {
    /// Creates the client of a test. Its first output states the version.
    #[must_use]
    pub fn new(parameters: Parameters) -> Self {
        let output = super::hello();
        let (lines, state, report) = (Lines::default(), State::Greeting, ServerReport::default());
        Self { parameters, lines, state, report, output }
    }

    /// Removes and returns the bytes to send.
    pub fn output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output).into_bytes()
    }

    /// Returns the version of the server, once known.
    #[must_use]
    pub fn peer(&self) -> Option<Version> {
        match &self.state {
            State::Greeting => None,
            State::Refusing(peer, _) => *peer,
            State::Asking(peer) | State::Running(peer) => Some(*peer),
        }
    }

    /// Handles bytes from the server, and returns the events in their order.
    ///
    /// # Errors
    /// The server is not nuttcp, lacks an option or refuses the test.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<Vec<ClientEvent>, ClientError> {
        self.lines.push(bytes)?;
        let mut events = Vec::new();
        while let Some(line) = self.lines.pop() {
            events.extend(self.line(line)?);
        }
        Ok(events)
    }

    /// Handles the end of the server's bytes.
    ///
    /// # Errors
    /// The server has not accepted the test.
    pub fn end(&mut self) -> Result<ClientEvent, ClientError> {
        match &mut self.state {
            State::Running(_) => {
                Ok(ClientEvent::Finished(Box::new(std::mem::take(&mut self.report))))
            }
            State::Refusing(peer, reason) => {
                Err(ClientError::Refused { peer: *peer, reason: std::mem::take(reason) })
            }
            State::Greeting => Err(ClientError::Closed { peer: None }),
            State::Asking(peer) => Err(ClientError::Closed { peer: Some(*peer) }),
        }
    }

    fn line(&mut self, line: String) -> Result<Option<ClientEvent>, ClientError> {
        match &mut self.state {
            State::Greeting => self.greeting(line).map(|()| None),
            State::Asking(peer) => {
                let peer = *peer;
                self.answer(line, peer)
            }
            State::Refusing(peer, reason)
                if line.starts_with("KO") || reason.len() == MOST_REASONS =>
            {
                Err(ClientError::Refused { peer: *peer, reason: std::mem::take(reason) })
            }
            State::Refusing(_, reason) => {
                reason.push(line);
                Ok(None)
            }
            State::Running(_) => Ok(self.running(line)),
        }
    }

    /// Handles the server's version: sends the option line if the server has all options.
    fn greeting(&mut self, line: String) -> Result<(), ClientError> {
        if line.starts_with("KO") {
            self.state = State::Refusing(None, Vec::new());
            return Ok(());
        }
        let peer = super::parse_hello(&line).ok_or(ClientError::NotNuttcp(line))?;
        if peer < Version::OLDEST {
            return Err(ClientError::TooOld(peer));
        }
        if let Some(feature) = self.parameters.lacking(peer) {
            return Err(ClientError::Lacks { feature, peer });
        }
        self.output = self.parameters.line(peer);
        self.output.push('\n');
        self.state = State::Asking(peer);
        Ok(())
    }

    fn answer(&mut self, line: String, peer: Version) -> Result<Option<ClientEvent>, ClientError> {
        if line.starts_with("KO") {
            self.state = State::Refusing(Some(peer), Vec::new());
            return Ok(None);
        }
        let Some(version) = line.strip_prefix("OK ") else {
            return Err(ClientError::Unexpected { peer, line });
        };
        self.state = State::Running(peer);
        Ok(Some(ClientEvent::Accepted(Version::parse(version).unwrap_or(peer))))
    }

    fn running(&mut self, line: String) -> Option<ClientEvent> {
        if line == "DONE" {
            return Some(ClientEvent::IntervalsOver);
        }
        if let Some(interval) = Interval::parse(&line) {
            return Some(ClientEvent::Interval(line, Box::new(interval)));
        }
        self.report.add(&line);
        let notice = ["Warning", "Error"].into_iter().any(|word| line.contains(word));
        notice.then_some(ClientEvent::Notice(line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn greeted(parameters: Parameters, version: &str) -> Result<Client, ClientError> {
        let mut client = Client::new(parameters);
        assert_eq!(client.output(), b"HELO nuttcp v8.2.2\n");
        client.receive(format!("HELO nuttcp v{version}\n").as_bytes())?;
        Ok(client)
    }

    #[test]
    fn another_protocol_is_recognized() {
        let answer = |text: &[u8]| Client::new(Parameters::default()).receive(text).unwrap_err();
        let ssh = "SSH-2.0-OpenSSH_9.2p1 Debian-2";
        assert_eq!(answer(format!("{ssh}\r\n").as_bytes()), ClientError::NotNuttcp(ssh.to_owned()));
        assert_eq!(answer(&[255; 10]), ClientError::Line(LineError::Byte(255)));
        assert_eq!(answer(&[b'x'; 5000]), ClientError::Line(LineError::Long));
        let mut silent = Client::new(Parameters::default());
        assert_eq!(silent.end(), Err(ClientError::Closed { peer: None }));
    }

    #[test]
    fn an_option_that_the_server_lacks_is_refused_before_the_request() {
        let jitter = Parameters { jitter: 4, udp: true, ..Parameters::default() };
        let peer = Version::new(6, 1, 2);
        let lacks = greeted(jitter.clone(), "6.1.2").unwrap_err();
        assert_eq!(lacks, ClientError::Lacks { feature: Feature::Jitter, peer });
        assert!(greeted(jitter, "7.0.1").is_ok());
        let old = greeted(Parameters::default(), "5.3.1").unwrap_err();
        assert_eq!(old, ClientError::TooOld(Version::new(5, 3, 1)));
    }

    #[test]
    fn a_refusal_has_its_reason_and_an_end() {
        let mut client = greeted(Parameters::default(), "8.2.2").unwrap();
        let refused = client.receive(b"KO\nnuttcp: invalid port\nport = 7\nKO\n").unwrap_err();
        let reason = vec!["nuttcp: invalid port".to_owned(), "port = 7".to_owned()];
        let peer = Some(Version::OURS);
        assert_eq!(refused, ClientError::Refused { peer, reason });

        let mut client = greeted(Parameters::default(), "8.2.2").unwrap();
        let endless = client.receive(format!("KO\n{}", "why\n".repeat(100)).as_bytes());
        assert!(matches!(endless, Err(ClientError::Refused { reason, .. }) if reason.len() == 8));

        let mut client = greeted(Parameters::default(), "8.2.2").unwrap();
        assert_eq!(client.receive(b"KO\nbusy\n"), Ok(vec![]));
        let reason = vec!["busy".to_owned()];
        assert_eq!(client.end(), Err(ClientError::Refused { peer, reason }));
    }

    #[test]
    fn notices_and_the_report_are_kept_within_bounds() {
        let mut client = greeted(Parameters::default(), "8.2.2").unwrap();
        let events = client.receive(b"OK v8.2.2\nnuttcp-r: Warning: small window\n").unwrap();
        let notice = ClientEvent::Notice("nuttcp-r: Warning: small window".to_owned());
        assert_eq!(events, [ClientEvent::Accepted(Version::OURS), notice]);
        for _ in 0..100 {
            client.receive("nuttcp-r: more\n".repeat(10).as_bytes()).unwrap();
        }
        let ClientEvent::Finished(report) = client.end().unwrap() else { panic!("no report") };
        assert_eq!(report.lines.len(), 64);
    }
}
