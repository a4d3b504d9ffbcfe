//! The control connection as two state machines without I/O: received bytes become events.

use super::inbox::Inbox;
use super::parameters::{MOST_PARAMETERS, Parameters};
use super::results::{MOST_RESULTS, MOST_RESULTS_WITH_OUTPUT, Results};
use super::state::State;
use crate::error::Fault;

/// A state machine of one end of a control connection.
pub trait StateMachine {
    /// The events of this end.
    type Event;

    /// Adds received bytes.
    fn push(&mut self, bytes: &[u8]);

    /// Returns the next event; `None` until more bytes have arrived.
    ///
    /// # Errors
    /// The peer does not follow the protocol; the connection is of no further use.
    fn next(&mut self) -> Result<Option<Self::Event>, Fault>;

    /// Returns the event of a connection that the peer has closed; `None` if it may not close it
    /// now.
    fn closed(&mut self) -> Option<Self::Event> {
        None
    }
}

/// An event of a client.
#[derive(Debug, Clone, PartialEq)]
pub enum ClientEvent {
    /// The client has to send its parameters.
    SendParameters,
    /// The client has to open its streams.
    OpenStreams,
    /// The server has all streams.
    Start,
    /// The data begin.
    Run,
    /// The client has to send its results.
    SendResults,
    /// The results of the server.
    Results(Box<Results>),
    /// The client has to send [`State::Done`].
    Finish,
    /// The server is busy.
    Busy,
    /// The server reports an error.
    Error {
        /// The number of the error; `None` if the server sent none.
        code: Option<i32>,
        /// The number of the operating system's error.
        os_code: i32,
    },
    /// The server has stopped.
    Terminated,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientPhase {
    Greeting,
    Parameters,
    Streams,
    Starting,
    Running,
    Results,
    Displaying,
    Done,
    Error(Option<i32>),
}

/// The state machine of a client. The client sends the cookie first.
#[derive(Debug)]
pub struct ClientMachine {
    phase: ClientPhase,
    inbox: Inbox,
    streams: usize,
    most_results: u32,
}

impl ClientMachine {
    /// Creates the machine of a test with `streams` streams in all directions, which asks for the
    /// server's output if `output` is true.
    pub fn new(streams: usize, output: bool) -> Self {
        let most_results = if output { MOST_RESULTS_WITH_OUTPUT } else { MOST_RESULTS };
        let (phase, inbox) = (ClientPhase::Greeting, Inbox::default());
        ClientMachine { phase, inbox, streams, most_results }
    }

    fn state(&mut self, state: State) -> Result<ClientEvent, Fault> {
        use ClientPhase as P;
        let (phase, event) = match (self.phase, state) {
            (P::Greeting, State::ParamExchange) => (P::Parameters, ClientEvent::SendParameters),
            (P::Greeting, State::AccessDenied) => (P::Done, ClientEvent::Busy),
            (P::Parameters, State::CreateStreams) => (P::Streams, ClientEvent::OpenStreams),
            (P::Streams, State::TestStart) => (P::Starting, ClientEvent::Start),
            (P::Starting, State::TestRunning) => (P::Running, ClientEvent::Run),
            (P::Running, State::ExchangeResults) => (P::Results, ClientEvent::SendResults),
            (P::Displaying, State::DisplayResults) => (P::Done, ClientEvent::Finish),
            (_, State::ServerTerminate) => (P::Done, ClientEvent::Terminated),
            (_, state) => return Err(Fault::Unexpected((state as i8).into())),
        };
        self.phase = phase;
        Ok(event)
    }
}

impl StateMachine for ClientMachine {
    type Event = ClientEvent;

    fn push(&mut self, bytes: &[u8]) {
        self.inbox.push(bytes);
    }

    fn next(&mut self) -> Result<Option<ClientEvent>, Fault> {
        match self.phase {
            ClientPhase::Results => {
                let Some(document) = self.inbox.document(self.most_results)? else {
                    return Ok(None);
                };
                self.phase = ClientPhase::Displaying;
                let results = Results::read(&document, self.streams)?;
                return Ok(Some(ClientEvent::Results(Box::new(results))));
            }
            ClientPhase::Error(None) => {
                let code = self.inbox.number();
                if code.is_none() {
                    return Ok(None);
                }
                self.phase = ClientPhase::Error(code);
            }
            _ => {}
        }
        if let ClientPhase::Error(code) = self.phase {
            let Some(os_code) = self.inbox.number() else { return Ok(None) };
            self.phase = ClientPhase::Done;
            return Ok(Some(ClientEvent::Error { code, os_code }));
        }
        match self.inbox.state()? {
            None => Ok(None),
            Some(State::ServerError) => {
                self.phase = ClientPhase::Error(None);
                self.next()
            }
            Some(state) => self.state(state).map(Some),
        }
    }

    fn closed(&mut self) -> Option<ClientEvent> {
        match self.phase {
            // Versions differ in the numbers that follow.
            ClientPhase::Error(code) => Some(ClientEvent::Error { code, os_code: 0 }),
            _ => None,
        }
    }
}

/// An event of a server.
#[derive(Debug, Clone, PartialEq)]
pub enum ServerEvent {
    /// The parameters of the client.
    Parameters(Box<Parameters>),
    /// The client has ended the data.
    End,
    /// The results of the client.
    Results(Box<Results>),
    /// The client has finished.
    Done,
    /// The client has stopped early.
    Terminated,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServerPhase {
    Parameters,
    Running,
    Results,
    Displaying,
    Done,
}

/// The state machine of a server, after the cookie.
#[derive(Debug)]
pub struct ServerMachine {
    phase: ServerPhase,
    inbox: Inbox,
    streams: usize,
}

impl Default for ServerMachine {
    fn default() -> Self {
        ServerMachine { phase: ServerPhase::Parameters, inbox: Inbox::default(), streams: 0 }
    }
}

impl StateMachine for ServerMachine {
    type Event = ServerEvent;

    fn push(&mut self, bytes: &[u8]) {
        self.inbox.push(bytes);
    }

    fn next(&mut self) -> Result<Option<ServerEvent>, Fault> {
        match self.phase {
            ServerPhase::Parameters => {
                let Some(document) = self.inbox.document(MOST_PARAMETERS)? else {
                    return Ok(None);
                };
                let parameters = Parameters::read(&document);
                self.streams = usize::try_from(parameters.parallel).unwrap_or(0).min(128) * 2;
                self.phase = ServerPhase::Running;
                Ok(Some(ServerEvent::Parameters(Box::new(parameters))))
            }
            ServerPhase::Results => {
                let Some(document) = self.inbox.document(MOST_RESULTS)? else { return Ok(None) };
                let results = Results::read(&document, self.streams)?;
                self.phase = ServerPhase::Displaying;
                Ok(Some(ServerEvent::Results(Box::new(results))))
            }
            phase => {
                let Some(state) = self.inbox.state()? else { return Ok(None) };
                let (phase, event) = match (phase, state) {
                    (ServerPhase::Running, State::TestEnd) => {
                        (ServerPhase::Results, ServerEvent::End)
                    }
                    (ServerPhase::Displaying, State::Done) => {
                        (ServerPhase::Done, ServerEvent::Done)
                    }
                    (_, State::ClientTerminate) => (ServerPhase::Done, ServerEvent::Terminated),
                    (_, state) => return Err(Fault::Unexpected((state as i8).into())),
                };
                self.phase = phase;
                Ok(Some(event))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(bytes: &[u8]) -> (Vec<ClientEvent>, Result<(), Fault>) {
        let mut machine = ClientMachine::new(1, false);
        let mut events = Vec::new();
        // One byte at a time.
        for byte in bytes {
            machine.push(&[*byte]);
            loop {
                match machine.next() {
                    Ok(Some(event)) => events.push(event),
                    Ok(None) => break,
                    Err(fault) => return (events, Err(fault)),
                }
            }
        }
        events.extend(machine.closed());
        (events, Ok(()))
    }

    #[test]
    fn a_busy_server_and_three_kinds_of_errors_are_recognized() {
        let last = |bytes: &[u8]| events(bytes).0.pop().unwrap();
        assert_eq!(last(&[0xff]), ClientEvent::Busy);
        let error = |code, os_code| ClientEvent::Error { code, os_code };
        assert_eq!(last(&[9, 0xfe]), error(None, 0));
        assert_eq!(last(&[9, 0xfe, 0, 0, 0, 142]), error(Some(142), 0));
        assert_eq!(last(&[9, 0xfe, 0, 0, 0, 142, 0, 0, 0, 4]), error(Some(142), 4));
        assert_eq!(last(&[9, 11]), ClientEvent::Terminated);
    }

    #[test]
    fn states_out_of_order_and_other_protocols_are_faults() {
        assert_eq!(events(&[10]).1, Err(Fault::Unexpected(10)));
        assert_eq!(events(&[9, 9]).1, Err(Fault::Unexpected(9)));
        assert_eq!(events(b"SSH-2.0-OpenSSH\r\n").1, Err(Fault::Unexpected(i32::from(b'S'))));
        let mut server = ServerMachine::default();
        server.push(b"GET / HTTP/1.1\r\n");
        assert!(matches!(server.next(), Err(Fault::TooLong { .. })));
    }
}
