//! Dispatch of a session's request to the service that answers it.

use lfn_copy::RankGroups;
use lfn_measure::{facts, path, tester};
use lfn_session::SessionError;
use lfn_session::server::ServerSession;
use lfn_session::wire::Request;

/// Returns the service of one server. It owns the state that several sessions share.
pub fn new() -> impl Fn(&mut ServerSession, &Request) -> Result<(), SessionError> + Send + Sync + 'static {
    let groups = RankGroups::default();
    move |session, request| serve(session, request, &groups)
}

/// Runs the service for `request` until it ends.
///
/// No service is inlined here: the stack of a session would have room for the state of all of them.
fn serve(session: &mut ServerSession, request: &Request, groups: &RankGroups) -> Result<(), SessionError> {
    match request {
        Request::Test(request) => tester::serve(session, request),
        Request::Copy(request) => lfn_copy::serve(session, request, groups),
        Request::IssueToken(request) => lfn_copy::third_party::serve_destination(session, request),
        Request::Send(request) => lfn_copy::third_party::serve_source(session, request),
        Request::Path(_) => path::serve(session),
        Request::Facts(_) => facts::serve(session),
        Request::Addresses(_) => lfn_copy::serve_addresses(session),
        Request::Disk(request) => lfn_copy::disk::serve(session, request),
    }
}
