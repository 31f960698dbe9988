//! What an `lfn` server does with an open session: one line a verb.

use lfn_core::wire::Request;

use crate::server::ServerSession;
use crate::session::SessionError;
use crate::{path, tester, transfer};

/// Serves `request` to its end.
pub fn serve(session: &mut ServerSession, request: &Request) -> Result<(), SessionError> {
    match request {
        Request::Test(request) => tester::serve(session, request),
        Request::Copy(request) => transfer::serve(session, request),
        Request::Clean(request) => transfer::clean::serve(session, request),
        Request::Lend(request) => transfer::third::lend(session, request),
        Request::Send(request) => transfer::third::carry(session, request),
        Request::Path(_) => path::serve(session),
    }
}
