//! Errors of stripes in short.

use lfn_session::SessionError;

/// Returns the text of an error without the address, which the name of the stripe contains.
pub(crate) fn short_text(error: &SessionError) -> String {
    match error {
        SessionError::Unreachable { source, .. } | SessionError::Bind { source, .. } => source.to_string(),
        error => error.to_string(),
    }
}
