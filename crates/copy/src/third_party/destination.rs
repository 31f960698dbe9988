//! The destination of a third-party copy: issues a temporary token for one upload, valid while the client stays
//! connected.
//!
//! The upload itself is an ordinary one. Module `server::connection` checks that it is the upload for which the token
//! was issued. When the token expires, the upload ends like that of any revoked token.

use std::time::{Duration, Instant};

use lfn_session::SessionError;
use lfn_session::server::ServerSession;
use lfn_session::wire::copy::ALIVE_INTERVAL;
use lfn_session::wire::third_party::{OrchestratorMessage, TokenReply, TokenRequest};

use crate::base_dir::current_time;
use crate::receiver::subtract_clock_lag;

/// Interval at which a waiting session checks whether it must end.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Issues the token, and waits until the client disconnects. The caller has checked the right to write.
#[inline(never)]
pub fn serve_destination(session: &mut ServerSession, request: &TokenRequest) -> Result<(), SessionError> {
    const WHILE_ISSUED: &str = "while its temporary token was in use";
    // A token for a copy that has started before must not change its start time.
    let since = request.since.unwrap_or_else(|| subtract_clock_lag(current_time()));
    // The token is revoked at the end of the session, whatever the reason.
    let issued = session.issue_temporary_token(&TokenRequest { since: Some(since), ..request.clone() })?;
    let port = session.control.handle().local_address();
    let port = port.map_err(|source| SessionError::Io { peer: "the kernel", source })?.port();
    session.control.send(&TokenReply::Issued {
        token: issued.token,
        port,
        fingerprint: session.fingerprint(),
        since,
    })?;
    let silence = session.limits().silence_timeout.max(2 * ALIVE_INTERVAL);
    let mut last_received = Instant::now();
    loop {
        session.check()?;
        match session.control.poll::<OrchestratorMessage>(POLL_INTERVAL, WHILE_ISSUED) {
            Ok(Some(OrchestratorMessage::Alive)) => last_received = Instant::now(),
            Ok(None) if last_received.elapsed() > silence => {
                return Err(SessionError::Timeout { peer: "the client", after: silence, while_doing: WHILE_ISSUED });
            }
            Ok(None) => {}
            // The client disconnects at the end of the copy.
            Err(SessionError::Closed { .. }) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}
