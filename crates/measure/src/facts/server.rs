//! Server of a facts session.

use lfn_session::SessionError;
use lfn_session::server::ServerSession;
use lfn_session::wire::facts::FactsReply;

use super::{Ends, of_this_host};

/// Serves one facts session: sends the facts of this host, with the interface and the route to the client.
#[inline(never)]
pub fn serve(session: &mut ServerSession) -> Result<(), SessionError> {
    let facts = of_this_host(Ends::of(&**session.control.handle()));
    session.control.send(&FactsReply { facts })
}
