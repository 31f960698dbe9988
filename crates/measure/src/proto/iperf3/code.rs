//! Numbers of iperf3's errors. A server sends one after [`super::TestState::ServerError`].
//!
//! Only the numbers that a server can cause in a test have names. The texts are lfn's own: its client prints them for a
//! stock server's errors. A stock client prints its own texts for the errors of lfn's server.

/// An error number of iperf3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorCode(pub i32);

impl ErrorCode {
    /// The test is longer than the server allows.
    pub const DURATION: ErrorCode = ErrorCode(5);
    pub const STREAMS: ErrorCode = ErrorCode(6);
    /// The block is empty or too large.
    pub const BLOCK: ErrorCode = ErrorCode(7);
    pub const BUFFER: ErrorCode = ErrorCode(8);
    pub const MSS: ErrorCode = ErrorCode(10);
    /// Invalid length of the warm-up.
    pub const OMIT: ErrorCode = ErrorCode(11);
    pub const BURST: ErrorCode = ErrorCode(15);
    pub const DATAGRAM: ErrorCode = ErrorCode(20);
    /// The type of service does not fit a byte.
    pub const TOS: ErrorCode = ErrorCode(21);
    /// The rate is above the server's limit.
    pub const RATE: ErrorCode = ErrorCode(27);
    /// The server does not run a test of this duration.
    pub const TOO_LONG: ErrorCode = ErrorCode(37);
    pub const CLOSED: ErrorCode = ErrorCode(109);
    pub const MESSAGE: ErrorCode = ErrorCode(110);
    pub const PARAMETERS: ErrorCode = ErrorCode(114);
    pub const RESULTS: ErrorCode = ErrorCode(117);
    /// The kernel rejected the segment size.
    pub const SET_MSS: ErrorCode = ErrorCode(123);
    /// The kernel rejected the buffer size.
    pub const SET_BUFFER: ErrorCode = ErrorCode(124);
    pub const PROTOCOL: ErrorCode = ErrorCode(131);
    /// The kernel rejected the congestion control.
    pub const CONGESTION: ErrorCode = ErrorCode(134);
    /// User or password is wrong, or the clocks differ.
    pub const AUTHENTICATION: ErrorCode = ErrorCode(142);
    /// No data arrived for too long.
    pub const SILENCE: ErrorCode = ErrorCode(144);
    /// The server ended a test that exceeded its time.
    pub const EXPIRED: ErrorCode = ErrorCode(160);
    pub const STREAM: ErrorCode = ErrorCode(204);
    /// The server does not know the number of a stream.
    pub const STREAM_ID: ErrorCode = ErrorCode(208);
}

const DESCRIPTIONS: [(ErrorCode, &str); 24] = [
    (ErrorCode::DURATION, "the test is longer than the server allows"),
    (ErrorCode::STREAMS, "more streams than the server allows"),
    (ErrorCode::BLOCK, "the server does not accept the block size"),
    (ErrorCode::BUFFER, "the server does not accept the socket buffer size"),
    (ErrorCode::MSS, "the server does not accept the segment size"),
    (ErrorCode::OMIT, "the server does not accept the warm-up time"),
    (ErrorCode::BURST, "the server does not accept the burst size"),
    (ErrorCode::DATAGRAM, "the server does not accept the datagram size"),
    (ErrorCode::TOS, "the server does not accept the type of service"),
    (ErrorCode::RATE, "the rate is above the server's limit"),
    (ErrorCode::TOO_LONG, "the test is longer than the server allows"),
    (ErrorCode::CLOSED, "the server lost the control connection"),
    (ErrorCode::MESSAGE, "the server did not understand a message"),
    (ErrorCode::PARAMETERS, "the server did not understand the parameters"),
    (ErrorCode::RESULTS, "the server did not understand the results"),
    (ErrorCode::SET_MSS, "the server's kernel rejected the segment size"),
    (ErrorCode::SET_BUFFER, "the server's kernel rejected the socket buffer size"),
    (ErrorCode::PROTOCOL, "the server does not have this transport"),
    (ErrorCode::CONGESTION, "the server's kernel does not have this congestion control"),
    (ErrorCode::AUTHENTICATION, "the server did not accept user and password"),
    (ErrorCode::SILENCE, "the server received no data for too long"),
    (ErrorCode::EXPIRED, "the test did not end in time"),
    (ErrorCode::STREAM, "a stream did not reach the server"),
    (ErrorCode::STREAM_ID, "the server does not know the number of a stream"),
];

impl std::fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match DESCRIPTIONS.iter().find(|(code, _)| code == self) {
            Some((_, words)) => f.write_str(words),
            None => write!(f, "iperf3 error {}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_codes_have_texts() {
        assert_eq!(ErrorCode::AUTHENTICATION.to_string(), "the server did not accept user and password");
        assert_eq!(ErrorCode(-7).to_string(), "iperf3 error -7");
    }
}
