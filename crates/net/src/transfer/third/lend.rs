//! The receiving half of a copy between two far ends: a token that is good for one upload, as long as somebody asks for it.
//!
//! The upload itself is one like any other; that it is the one the token was lent for is looked at where rights are
//! (`server::connection`), and it ends as that of a revoked token does when the token is gone.

use std::time::{Duration, Instant};

use lfn_core::wire::copy::ALIVE_EVERY;
use lfn_core::wire::third::{FromBorrower, FromLender, LendRequest};

use crate::server::ServerSession;
use crate::session::SessionError;
use crate::transfer::place::now;
use crate::transfer::receiver::a_moment_before;

/// How often a wait looks up to see whether the session is to end.
const LOOK_UP: Duration = Duration::from_millis(100);

/// Lends the token and waits for the client to hang up; that its client may write was asked before.
pub(crate) fn lend(session: &mut ServerSession, request: &LendRequest) -> Result<(), SessionError> {
    const WAITING: &str = "while a token was lent to it";
    // One that is lent for a copy which has begun does not begin it anew.
    let since = request.since.unwrap_or_else(|| a_moment_before(now()));
    // Whatever ends the session takes the token along.
    let lent = session.lend(&LendRequest { since: Some(since), ..request.clone() })?;
    let port = session.control.socket().local_addr();
    let port = port.map_err(|source| SessionError::Io { peer: "the kernel", source })?.port();
    session.control.send(&FromLender::Lent { token: lent.token, port, fingerprint: session.fingerprint(), since })?;
    let silence = session.limits().silence.max(2 * ALIVE_EVERY);
    let mut heard = Instant::now();
    loop {
        session.check()?;
        match session.control.poll::<FromBorrower>(LOOK_UP, WAITING) {
            Ok(Some(FromBorrower::Alive)) => heard = Instant::now(),
            Ok(None) if heard.elapsed() > silence => {
                return Err(SessionError::Timeout { peer: "the client", after: silence, while_doing: WAITING });
            }
            Ok(None) => {}
            // The usual end.
            Err(SessionError::Closed { .. }) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}
