//! Time-outs of copies and streams in which nothing moves although both sides are connected.

use std::time::Duration;

use lfn_session::DEAD_PEER_TIMEOUT;

/// Default time without progress of the copy, [`StallTimeouts::copy`].
pub(crate) const STALL_TIMEOUT: Duration = Duration::from_secs(60);

/// Default time without progress of one stream, [`StallTimeouts::stream`].
pub(crate) const STREAM_STALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Time without progress of one stream of several stripes. It exceeds four retransmission time-outs in succession,
/// from 200 ms, and the time in which one of four streams may get nothing on a full link of 20 Mb/s.
const STRIPE_STALL_TIMEOUT: Duration = Duration::from_secs(4);

/// Time without a message over the control connection of a copy with stripes. The other end sends one each second.
const STRIPE_SILENCE_TIMEOUT: Duration = Duration::from_secs(10);

/// Additional time of a server, so that the client, which knows the near and the far end, reports the error.
pub(super) const SERVER_EXTRA_TIMEOUT: Duration = Duration::from_secs(15);

/// Time-outs of a side that is connected. Tests use short ones.
#[derive(Clone, Copy, Debug)]
pub struct StallTimeouts {
    /// Maximum time in which nothing moves.
    pub copy: Duration,
    /// Maximum time in which none of the bytes in flight of a stream arrive. Then another stream replaces it.
    pub stream: Duration,
    /// Maximum time without a message from the other end.
    pub silence: Duration,
}

impl StallTimeouts {
    /// Short time-outs for a copy with several paths: another path carries the blocks of a silent one.
    pub const STRIPES: StallTimeouts =
        StallTimeouts { copy: STALL_TIMEOUT, stream: STRIPE_STALL_TIMEOUT, silence: STRIPE_SILENCE_TIMEOUT };
}

impl Default for StallTimeouts {
    fn default() -> Self {
        StallTimeouts { copy: STALL_TIMEOUT, stream: STREAM_STALL_TIMEOUT, silence: DEAD_PEER_TIMEOUT }
    }
}
