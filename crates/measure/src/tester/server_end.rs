//! End of a session at both servers of a test: those with TCP streams and those with datagrams.

use std::time::Instant;

use lfn_base::units::show_duration;
use lfn_results::measure::ClientMessage;
use lfn_session::SessionError;
use lfn_session::server::{ServerSession, SessionLimits};
use lfn_session::wire::{Refusal, RefusalCode};

use super::{TestError, clock};

/// Returns the refusal of a test that takes longer than the server allows.
pub(super) fn too_long_refusal(what: &str, limits: &SessionLimits) -> Refusal {
    let most = show_duration(limits.max_test_time);
    Refusal::new(RefusalCode::Limit, format!("{what}; the server allows {most}"))
        .hint(format!("use --time {} or less, or fewer records", limits.max_test_time.as_secs()))
}

/// Returns an error if the client was silent for too long; clients send a probe every second.
pub(super) fn check_silence(last_message_at: Instant, limits: &SessionLimits) -> Result<(), SessionError> {
    let (peer, while_doing) = ("the client", "during the test");
    if last_message_at.elapsed() > limits.silence_timeout + clock::PROBE_INTERVAL {
        Err(SessionError::Timeout { peer, after: limits.silence_timeout + clock::PROBE_INTERVAL, while_doing })
    } else {
        Ok(())
    }
}

/// Waits for the client to close the session, as it does after the report.
pub(super) fn wait_for_close(session: &mut ServerSession) -> Result<(), TestError> {
    let silence = session.limits().silence_timeout;
    let deadline = Instant::now() + silence;
    while Instant::now() < deadline {
        match session.control.poll::<ClientMessage>(silence, "after the test") {
            Ok(_) => {}
            Err(SessionError::Closed { .. }) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
