//! Client of the facts: a session that requests the facts of the server, while those of this host are read.

use std::thread;

use lfn_results::evidence::PerEnd;
use lfn_results::host::facts::HostFacts;
use lfn_results::measure::Bounded;
use lfn_session::dial::{self, ServerConnection, Target};
use lfn_session::wire::facts::{FactsReply, FactsRequest};
use lfn_session::wire::{RefusalCode, Request};
use lfn_session::{Control, SessionError, queue};

use super::{Ends, of_this_host};

/// Reason for the missing facts of a server that does not know the request.
pub const EARLIER_VERSION: &str = "lfn on the server is too old to report facts";

/// Reads the facts of this host and of a server, with the interfaces and the routes between them.
///
/// The facts of the server are `None` if its version of lfn does not report them ([`EARLIER_VERSION`]).
pub fn of_both_ends(target: &Target) -> Result<PerEnd<Option<HostFacts>>, SessionError> {
    let connection = ServerConnection::connect(target)?;
    let ends = Ends::of(&**connection.handle());
    thread::scope(|scope| {
        let near = scope.spawn(|| of_this_host(ends));
        let far = match request(target, connection) {
            Ok(facts) => Some(facts),
            // The server could not parse the request.
            Err(SessionError::Refused(refusal)) if refusal.code == RefusalCode::BadMessage => None,
            Err(error) => return Err(error),
        };
        // A panic of the thread has already been reported on stderr.
        let near = near.join().unwrap_or_default();
        Ok(PerEnd { near: Some(near), far })
    })
}

/// Returns true if the server answers a new session. The answer fits into a small packet.
pub fn is_answered(target: &Target) -> bool {
    ServerConnection::connect(target).and_then(|connection| admitted(target, connection)).is_ok()
}

/// Requests the facts of the server in a session of their own.
fn request(target: &Target, connection: ServerConnection) -> Result<HostFacts, SessionError> {
    let mut control = admitted(target, connection)?;
    let Bounded(FactsReply { facts }) = control.recv(target.connect_timeout, "before the facts of its host")?;
    control.close();
    Ok(facts.bounded())
}

/// Opens a session of facts, and waits until the server admits the session.
fn admitted(target: &Target, connection: ServerConnection) -> Result<Control, SessionError> {
    let session = dial::new_session_id()?;
    let mut control = connection.open_control(target, session, Request::Facts(FactsRequest {}))?;
    control.allow_small_messages();
    // The session has no data streams, so a new session id has no effect.
    queue::wait_for_admission(&mut control, &target.queue, target.connect_timeout, None, || ())?;
    Ok(control)
}
