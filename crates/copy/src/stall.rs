//! A copy in which nothing moves although both sides are connected.

use std::time::Duration;

/// Maximum time in which nothing moves although both sides are connected. A server waits longer, so that the client,
/// which knows the near and the far end, reports the error.
pub(crate) const STALL_TIMEOUT: Duration = Duration::from_secs(60);
pub(super) const SERVER_EXTRA_TIMEOUT: Duration = Duration::from_secs(15);
