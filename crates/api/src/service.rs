//! Dispatch of a session's request to the service that answers it.

use std::sync::Arc;

use lfn_copy::RankGroups;
use lfn_measure::{facts, path, tester};
use lfn_mesh::hub::Hub;
use lfn_session::SessionError;
use lfn_session::server::ServerSession;
use lfn_session::wire::{Refusal, RefusalCode, Request};

/// Returns the service of one server. It owns the state that several sessions share.
pub fn new() -> impl Fn(&mut ServerSession, &Request) -> Result<(), SessionError> + Send + Sync + 'static {
    let groups = RankGroups::default();
    move |session, request| serve(session, request, &groups)
}

/// Returns the service of a hub, which serves agents only.
pub fn of_hub(
    hub: Arc<Hub>,
) -> impl Fn(&mut ServerSession, &Request) -> Result<(), SessionError> + Send + Sync + 'static {
    move |session, request| match request {
        Request::Mesh(_) => hub.serve(session),
        _ => Err(only_a_hub()),
    }
}

/// Refuses tests and copies at a hub.
fn only_a_hub() -> SessionError {
    let refusal =
        Refusal::new(RefusalCode::Forbidden, "this server is the hub of a mesh: it serves no tests and no copies");
    SessionError::Refused(refusal.hint("start a server for tests and copies on another port: lfn serve --port 7323"))
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
        Request::Mesh(_) => not_a_hub(),
        Request::Couple(_) => not_a_component(),
    }
}

/// Refuses an agent: only a hub has an archive.
fn not_a_hub() -> Result<(), SessionError> {
    let refusal = Refusal::new(RefusalCode::Forbidden, "this server is not the hub of a mesh");
    Err(SessionError::Refused(refusal.hint("start the hub there: lfn mesh hub SITES")))
}

/// Refuses a component of a coupling: its partner listens with a server of its own.
fn not_a_component() -> Result<(), SessionError> {
    let refusal = Refusal::new(RefusalCode::Forbidden, "this server is not a component of a coupling");
    Err(SessionError::Refused(refusal.hint("start the partner there: lfn couple run FILE COMPONENT --listen -- CMD")))
}
