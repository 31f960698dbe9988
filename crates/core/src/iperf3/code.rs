//! Numbers of iperf3's errors, which a server sends after [`super::State::ServerError`].
//!
//! Only those a server can meet in a test are named; the words are ours, shown by our client for what a stock server
//! says. A stock client prints its own for what ours says.

/// The number of an error, as iperf3 counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code(pub i32);

impl Code {
    /// Longer than the server allows a test to be.
    pub const DURATION: Code = Code(5);
    /// More streams than are possible.
    pub const STREAMS: Code = Code(6);
    /// A block that is empty or too large.
    pub const BLOCK: Code = Code(7);
    /// Socket buffer too large.
    pub const BUFFER: Code = Code(8);
    /// Segment size too large.
    pub const MSS: Code = Code(10);
    /// Warm-up of an impossible length.
    pub const OMIT: Code = Code(11);
    /// Burst of an impossible size.
    pub const BURST: Code = Code(15);
    /// Datagram too small or too large.
    pub const DATAGRAM: Code = Code(20);
    /// Type of service that does not fit a byte.
    pub const TOS: Code = Code(21);
    /// More bits a second than the server allows.
    pub const RATE: Code = Code(27);
    /// The server would not run a test that long.
    pub const TOO_LONG: Code = Code(37);
    /// The control connection broke.
    pub const CLOSED: Code = Code(109);
    /// A message that makes no sense.
    pub const MESSAGE: Code = Code(110);
    /// The parameters were not understood.
    pub const PARAMETERS: Code = Code(114);
    /// The results were not understood.
    pub const RESULTS: Code = Code(117);
    /// The kernel did not take the segment size.
    pub const SET_MSS: Code = Code(123);
    /// The kernel did not take the buffer.
    pub const SET_BUFFER: Code = Code(124);
    /// No such transport.
    pub const PROTOCOL: Code = Code(131);
    /// The kernel did not take the congestion control.
    pub const CONGESTION: Code = Code(134);
    /// User or password is wrong, or the clocks differ.
    pub const AUTHENTICATION: Code = Code(142);
    /// Nothing came for too long.
    pub const SILENCE: Code = Code(144);
    /// The server ended a test that did not end.
    pub const EXPIRED: Code = Code(160);
    /// A stream could not be made.
    pub const STREAM: Code = Code(204);
    /// A stream with a number nobody gave out.
    pub const STREAM_ID: Code = Code(208);
}

const WORDS: [(Code, &str); 24] = [
    (Code::DURATION, "the test is longer than it allows"),
    (Code::STREAMS, "more streams than it allows"),
    (Code::BLOCK, "a record it does not take"),
    (Code::BUFFER, "a socket buffer it does not take"),
    (Code::MSS, "a segment size it does not take"),
    (Code::OMIT, "a warm-up it does not take"),
    (Code::BURST, "a burst it does not take"),
    (Code::DATAGRAM, "a datagram size it does not take"),
    (Code::TOS, "a type of service it does not take"),
    (Code::RATE, "a rate above its limit"),
    (Code::TOO_LONG, "the test is longer than it allows"),
    (Code::CLOSED, "its control connection broke"),
    (Code::MESSAGE, "a message it did not understand"),
    (Code::PARAMETERS, "it did not understand the parameters"),
    (Code::RESULTS, "it did not understand the results"),
    (Code::SET_MSS, "its kernel did not take the segment size"),
    (Code::SET_BUFFER, "its kernel did not take the socket buffer"),
    (Code::PROTOCOL, "it has no such transport"),
    (Code::CONGESTION, "its kernel has no such congestion control"),
    (Code::AUTHENTICATION, "it did not accept user and password"),
    (Code::SILENCE, "no data came for too long"),
    (Code::EXPIRED, "the test did not end in time"),
    (Code::STREAM, "a stream did not come"),
    (Code::STREAM_ID, "a stream has a number it does not know"),
];

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match WORDS.iter().find(|(code, _)| code == self) {
            Some((_, words)) => f.write_str(words),
            None => write!(f, "its error {}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_codes_have_words_and_others_their_number() {
        assert_eq!(Code::AUTHENTICATION.to_string(), "it did not accept user and password");
        assert_eq!(Code(-7).to_string(), "its error -7");
    }
}
