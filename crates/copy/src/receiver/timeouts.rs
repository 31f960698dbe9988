//! Time limits of the receiver. Tests use shorter ones.

use std::time::Duration;

use lfn_session::DEAD_PEER_TIMEOUT;

/// Time limits of the receiver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceiverTimeouts {
    /// Maximum wait of a block for the list to reach its file.
    pub(super) unlisted_file: Duration,
    /// Maximum wait of a stream for a partial file to finish. A sender that exceeds the wait has started more files
    /// than it may.
    pub(super) free_partial: Duration,
    /// Maximum wait, for all files together, until another copy unlocks its partial files.
    pub(super) other_copy: Duration,
    /// Maximum wait without any progress for memory to hold one more unfinished directory. Nested directories wait for
    /// their contents.
    pub(super) directory_memory: Duration,
    /// Maximum time without any stream, after all streams were closed without an error. After that the sender has sent
    /// too little.
    pub(super) closed_streams: Duration,
    /// Maximum time without any stream after one broke. The sender may open another stream.
    pub(super) broken_stream: Duration,
    /// Maximum wait at the end until the threads have left every partial file in a state from which the next copy can
    /// resume.
    pub(super) close: Duration,
}

impl Default for ReceiverTimeouts {
    fn default() -> Self {
        ReceiverTimeouts {
            unlisted_file: DEAD_PEER_TIMEOUT,
            free_partial: DEAD_PEER_TIMEOUT,
            other_copy: Duration::from_secs(5),
            directory_memory: Duration::from_secs(20),
            closed_streams: Duration::from_secs(10),
            broken_stream: DEAD_PEER_TIMEOUT,
            close: Duration::from_secs(10),
        }
    }
}
