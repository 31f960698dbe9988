//! States of a test: one signed byte each on the control connection.

/// State of a test, which one end reports to the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TestState {
    /// The server has all streams; the clocks start.
    TestStart,
    TestRunning,
    /// The client ends the test.
    TestEnd,
    /// The server requests the client's parameters.
    ParamExchange,
    /// The server requests the client's streams.
    CreateStreams,
    ServerTerminate,
    ClientTerminate,
    /// Both ends send their results, the client first.
    ExchangeResults,
    /// The server has the client's results.
    DisplayResults,
    IperfStart,
    IperfDone,
    /// The server is busy, or does not know the cookie.
    AccessDenied,
    /// The server failed: two numbers follow, its own and the kernel's.
    ServerError,
}

const STATES: [(TestState, i8, &str); 13] = [
    (TestState::TestStart, 1, "test start"),
    (TestState::TestRunning, 2, "test running"),
    (TestState::TestEnd, 4, "test end"),
    (TestState::ParamExchange, 9, "parameter exchange"),
    (TestState::CreateStreams, 10, "create streams"),
    (TestState::ServerTerminate, 11, "server terminated"),
    (TestState::ClientTerminate, 12, "client terminated"),
    (TestState::ExchangeResults, 13, "exchange results"),
    (TestState::DisplayResults, 14, "display results"),
    (TestState::IperfStart, 15, "start"),
    (TestState::IperfDone, 16, "done"),
    (TestState::AccessDenied, -1, "access denied"),
    (TestState::ServerError, -2, "server error"),
];

/// Error: a byte that is not a state of iperf3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{} is not an iperf3 state", *.0 as i8)]
pub struct UnknownState(pub u8);

impl TestState {
    /// Returns the state of a byte.
    pub fn from_wire(byte: u8) -> Result<TestState, UnknownState> {
        let found = STATES.iter().find(|(_, number, _)| number.to_be_bytes() == [byte]);
        found.map(|&(state, ..)| state).ok_or(UnknownState(byte))
    }

    /// Returns the byte of the state.
    pub fn wire(self) -> u8 {
        self.row().1.to_be_bytes()[0]
    }

    fn row(self) -> (TestState, i8, &'static str) {
        // Every variant is in the table; a test checks all of them.
        STATES.into_iter().find(|(state, ..)| *state == self).unwrap_or((self, 0, "?"))
    }
}

impl std::fmt::Display for TestState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.row().2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_a_state_or_an_error() {
        let known = (0..=255).filter_map(|byte| Some((byte, TestState::from_wire(byte).ok()?))).collect::<Vec<_>>();
        assert_eq!(known.len(), 13);
        for (byte, state) in known {
            assert_eq!(state.wire(), byte, "{state}");
        }
        assert_eq!(TestState::AccessDenied.wire(), 0xff);
        assert_eq!(TestState::from_wire(0xfe), Ok(TestState::ServerError));
        assert_eq!(TestState::from_wire(200).unwrap_err().to_string(), "-56 is not an iperf3 state");
    }
}
