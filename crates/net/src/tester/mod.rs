//! Placeholder head, replaced with the module.

use lfn_core::wire::test::TestRequest;

use crate::server::ServerSession;
use crate::session::SessionError;

/// The server's side.
pub(crate) fn serve(_session: &mut ServerSession, _request: &TestRequest) -> Result<(), SessionError> {
    Ok(())
}
