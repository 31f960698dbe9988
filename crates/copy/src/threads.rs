//! Threads of a copy.

use std::thread;

use lfn_session::SessionError;

use super::TransferError;

/// Starts a thread. It ends by itself when its copy ends.
///
/// # Errors
/// [`SessionError::Io`] if the kernel refuses the thread.
pub(super) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), TransferError> {
    let spawned = thread::Builder::new().name(name.into()).spawn(work);
    spawned.map(drop).map_err(|source| SessionError::Io { peer: "the kernel", source }.into())
}
