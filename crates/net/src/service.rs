//! Dispatch of a session's request to the service that answers it.

use lfn_core::wire::Request;

use crate::server::ServerSession;
use crate::session::SessionError;
use crate::{path, tester, transfer};

/// Runs the service for `request` until it ends.
pub fn serve(session: &mut ServerSession, request: &Request) -> Result<(), SessionError> {
    match request {
        Request::Test(request) => tester::serve(session, request),
        Request::Copy(request) => transfer::serve(session, request),
        Request::IssueToken(request) => transfer::third_party::serve_destination(session, request),
        Request::Send(request) => transfer::third_party::serve_source(session, request),
        Request::Path(_) => path::serve(session),
    }
}
