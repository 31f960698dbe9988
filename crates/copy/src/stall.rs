//! Time-outs of copies and streams in which nothing moves although both sides are connected.

use std::time::Duration;

/// Default of [`StallTimeouts::copy`]; a server adds [`SERVER_EXTRA_TIMEOUT`].
pub(crate) const STALL_TIMEOUT: Duration = Duration::from_secs(60);

/// Default of [`StallTimeouts::stream`], for any path up to a round trip of 500 ms.
pub(crate) const STREAM_STALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Additional time of a server, so that the client, which knows the near and the far end, reports the error.
pub(super) const SERVER_EXTRA_TIMEOUT: Duration = Duration::from_secs(15);

/// Time-outs of a side that is connected. Tests use short ones.
#[derive(Clone, Copy, Debug)]
pub struct StallTimeouts {
    /// Maximum time in which nothing moves.
    pub copy: Duration,
    /// Maximum time in which none of the bytes in flight of a stream arrive. Then another stream replaces it.
    pub stream: Duration,
}

impl Default for StallTimeouts {
    fn default() -> Self {
        StallTimeouts { copy: STALL_TIMEOUT, stream: STREAM_STALL_TIMEOUT }
    }
}
