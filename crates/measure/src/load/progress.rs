//! Progress of a sender that waits: the bytes that the receiving kernel acknowledged.

use lfn_session::transport::Handle;

/// Acknowledged bytes of a stream at the last look.
#[derive(Debug, Default)]
pub(super) struct AckProgress {
    acked_bytes: u64,
}

impl AckProgress {
    /// Returns whether more bytes are acknowledged than at the last call. A stream without kernel counters never grows.
    pub(super) fn has_grown(&mut self, stream: &dyn Handle) -> bool {
        let acked = stream.info().and_then(|info| info.acked_bytes).unwrap_or(0);
        let before = std::mem::replace(&mut self.acked_bytes, acked);
        acked > before
    }
}
