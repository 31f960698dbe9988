//! Errors of both clients of a test: those with TCP streams and those with datagrams.

use std::io;
use std::time::{Duration, Instant};

use lfn_results::measure::ServerMessage;
use lfn_session::{Control, SessionError};

use super::TestError;

/// Waits briefly for the server's refusal, which explains the failure of a stream better than the local error.
pub(super) fn server_reason(control: &mut Control, rtt: Duration, error: TestError) -> TestError {
    let deadline = Instant::now() + Duration::from_secs(1) + 2 * rtt;
    while Instant::now() < deadline {
        let left = deadline.saturating_duration_since(Instant::now());
        if let Err(refusal) = control.poll::<ServerMessage>(left, "during the test") {
            return refusal.into();
        }
    }
    error
}

/// Returns the error of a message that the protocol does not allow now.
pub(super) fn unexpected_message() -> TestError {
    let source = io::Error::new(io::ErrorKind::InvalidData, "unexpected message");
    SessionError::Io { peer: "the server", source }.into()
}
