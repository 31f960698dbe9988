//! The states of a test: one signed byte each on the control connection.

/// Where a test stands, as either side tells the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The server has all streams; the clocks start.
    TestStart,
    /// Data flows.
    TestRunning,
    /// The client has had enough.
    TestEnd,
    /// The server wants the client's parameters.
    ParamExchange,
    /// The server wants the client's streams.
    CreateStreams,
    /// The server was stopped.
    ServerTerminate,
    /// The client was stopped.
    ClientTerminate,
    /// Both tell their results, the client first.
    ExchangeResults,
    /// The server has the client's results.
    DisplayResults,
    /// Nothing has happened yet.
    IperfStart,
    /// The client says goodbye.
    IperfDone,
    /// The server is busy, or does not know the cookie.
    AccessDenied,
    /// The server cannot: two numbers follow, its own and the kernel's.
    ServerError,
}

const STATES: [(State, i8, &str); 13] = [
    (State::TestStart, 1, "test start"),
    (State::TestRunning, 2, "test running"),
    (State::TestEnd, 4, "test end"),
    (State::ParamExchange, 9, "parameter exchange"),
    (State::CreateStreams, 10, "create streams"),
    (State::ServerTerminate, 11, "server terminated"),
    (State::ClientTerminate, 12, "client terminated"),
    (State::ExchangeResults, 13, "exchange results"),
    (State::DisplayResults, 14, "display results"),
    (State::IperfStart, 15, "start"),
    (State::IperfDone, 16, "done"),
    (State::AccessDenied, -1, "access denied"),
    (State::ServerError, -2, "server error"),
];

/// A byte that is no state of iperf3's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{} is no state of iperf3's", *.0 as i8)]
pub struct UnknownState(pub u8);

impl State {
    /// The state of a byte.
    pub fn from_wire(byte: u8) -> Result<State, UnknownState> {
        let found = STATES.iter().find(|(_, number, _)| number.to_be_bytes() == [byte]);
        found.map(|&(state, ..)| state).ok_or(UnknownState(byte))
    }

    /// As a byte.
    pub fn wire(self) -> u8 {
        self.row().1.to_be_bytes()[0]
    }

    fn row(self) -> (State, i8, &'static str) {
        // Every variant is in the table: a test goes through them all.
        STATES.into_iter().find(|(state, ..)| *state == self).unwrap_or((self, 0, "?"))
    }
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.row().2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_a_state_or_refused_and_states_come_back() {
        let known = (0..=255).filter_map(|byte| Some((byte, State::from_wire(byte).ok()?))).collect::<Vec<_>>();
        assert_eq!(known.len(), 13);
        for (byte, state) in known {
            assert_eq!(state.wire(), byte, "{state}");
        }
        assert_eq!(State::AccessDenied.wire(), 0xff);
        assert_eq!(State::from_wire(0xfe), Ok(State::ServerError));
        assert_eq!(State::from_wire(200).unwrap_err().to_string(), "-56 is no state of iperf3's");
    }
}
