//! Events of a running copy.

use lfn_copy::{ConnectionEvent, ListedTotals};
use lfn_results::evidence::ProgressSample;
use lfn_session::wire::copy::stream_change::StreamChange;

/// Event of a running copy. The results of entries go to [`CopyRequest::entries`](super::CopyRequest::entries).
#[derive(Debug)]
pub enum CopyEvent<'a> {
    /// Progress, several times a second.
    Progress { totals: &'a ListedTotals, sample: &'a ProgressSample },
    /// Change of the number of streams, with its reason.
    Streams(&'a StreamChange),
    /// Connection that was lost or restored.
    Connection(&'a ConnectionEvent<'a>),
}
