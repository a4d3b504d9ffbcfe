//! The bytes that begin each step of the control connection, and the cookie.

/// The length of the cookie that begins every TCP connection. Its last byte is zero.
pub const COOKIE_BYTES: usize = 37;

/// A state byte of the control connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i8)]
pub enum State {
    /// The server has all streams.
    TestStart = 1,
    /// The data begin.
    TestRunning = 2,
    /// The client ends the data.
    TestEnd = 4,
    /// The server asks for the parameters.
    ParamExchange = 9,
    /// The server waits for the streams.
    CreateStreams = 10,
    /// The server stops early.
    ServerTerminate = 11,
    /// The client stops early.
    ClientTerminate = 12,
    /// The server asks for the results.
    ExchangeResults = 13,
    /// The server has sent its results.
    DisplayResults = 14,
    /// The client has finished.
    Done = 16,
    /// The server is busy.
    AccessDenied = -1,
    /// The server reports an error: two numbers follow.
    ServerError = -2,
}

impl State {
    const ALL: [State; 12] = [
        State::TestStart,
        State::TestRunning,
        State::TestEnd,
        State::ParamExchange,
        State::CreateStreams,
        State::ServerTerminate,
        State::ClientTerminate,
        State::ExchangeResults,
        State::DisplayResults,
        State::Done,
        State::AccessDenied,
        State::ServerError,
    ];

    /// Returns the state of a byte.
    pub fn of(byte: u8) -> Option<Self> {
        State::ALL.into_iter().find(|state| state.byte() == byte)
    }

    /// Returns the byte of the state.
    pub fn byte(self) -> u8 {
        self as i8 as u8
    }
}

/// The numbers of errors that a server reports after [`State::ServerError`].
pub(super) mod code {
    /// Too many streams.
    pub(crate) const STREAMS: i32 = 6;
    /// The length of a write is out of range.
    pub(crate) const LENGTH: i32 = 7;
    /// The rate exceeds the server's limit.
    pub(crate) const RATE: i32 = 27;
    /// The test lasts longer than the server allows.
    pub(crate) const DURATION: i32 = 37;
    /// The parameters cannot be read.
    pub(crate) const PARAMETERS: i32 = 114;
    /// The user is not authorized.
    pub(crate) const AUTHENTICATION: i32 = 142;
    /// The test lasts longer than the server allows.
    pub(crate) const EXPIRED: i32 = 160;
    /// A stream cannot be created.
    pub(crate) const STREAM: i32 = 200;
}

/// Returns the number that both ends give to the stream with this index: 1, 3, 4, 5 and so on.
pub fn stream_id(index: usize) -> i64 {
    let index = i64::try_from(index).unwrap_or(i64::MAX - 2);
    if index == 0 { 1 } else { index + 2 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_is_the_state_that_it_came_from() {
        for state in State::ALL {
            assert_eq!(State::of(state.byte()), Some(state));
        }
        assert_eq!(State::AccessDenied.byte(), 0xff);
        assert_eq!((State::of(3), State::of(15), State::of(0x80)), (None, None, None));
    }

    #[test]
    fn the_second_stream_is_number_3() {
        assert_eq!([0, 1, 2, 127].map(stream_id), [1, 3, 4, 129]);
    }
}
