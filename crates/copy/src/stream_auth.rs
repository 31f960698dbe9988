//! Authentication of unencrypted data streams at the server.

use lfn_session::wire::seal::{Seal, StreamSecret};
use lfn_session::{DataStream, Protection, SessionId};

use super::TransferError;

/// Adds authentication to an unencrypted stream, so that its headers can only come from the client or from this server.
pub(crate) fn authenticate_stream(
    mut stream: DataStream,
    secret: Option<&StreamSecret>,
    scope: SessionId,
) -> Result<DataStream, TransferError> {
    if stream.protection() == Protection::Clear {
        let secret = secret.ok_or(TransferError::MissingStreamSecret)?;
        stream.set_seal(Seal::new(secret, scope, stream.stream()));
    }
    Ok(stream)
}
