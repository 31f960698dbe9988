//! Events of a running copy.

use lfn_copy::{ConnectionEvent, ListedTotals, StripeEvent, StripeReport};
use lfn_results::evidence::ProgressSample;
use lfn_session::wire::copy::stream_change::StreamChange;

/// State of the queue that this copy shares with other movers.
#[derive(Clone, Debug)]
pub struct QueueProgress {
    /// Name of the queue.
    pub name: String,
    /// Entries in the manifest, and those that are complete.
    pub entries: u64,
    pub done: u64,
    /// Entries that failed so far.
    pub failed: u64,
    /// This mover waits for parts that other movers hold.
    pub is_waiting: bool,
}

/// Event of a running copy. The results of entries go to [`CopyRequest::entries`](super::CopyRequest::entries).
#[derive(Debug)]
pub enum CopyEvent<'a> {
    /// Progress, several times a second.
    Progress { totals: &'a ListedTotals, sample: &'a ProgressSample, stripes: &'a [StripeReport] },
    /// Change of the number of streams, with its reason.
    Streams(&'a StreamChange),
    /// Stripe that went down or works again.
    Stripe(&'a StripeEvent),
    /// State of the queue, several times a second.
    Queue(&'a QueueProgress),
    /// Connection that was lost or restored.
    Connection(&'a ConnectionEvent<'a>),
}
