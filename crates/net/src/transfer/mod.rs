//! Placeholder head, replaced with the module.

use lfn_core::wire::copy::CopyRequest;

use crate::server::ServerSession;
use crate::session::SessionError;

/// The server's side.
pub(crate) fn serve(_session: &mut ServerSession, _request: &CopyRequest) -> Result<(), SessionError> {
    Ok(())
}
