//! Events of a running copy.

use lfn_copy::{ConnectionEvent, ListedTotals, StripeEvent, StripeReport};
use lfn_results::evidence::ProgressSample;
use lfn_session::wire::copy::stream_change::StreamChange;

/// Event of a running copy. The results of entries go to [`CopyRequest::entries`](super::CopyRequest::entries).
#[derive(Debug)]
pub enum CopyEvent<'a> {
    /// Progress, several times a second.
    Progress { totals: &'a ListedTotals, sample: &'a ProgressSample, stripes: &'a [StripeReport] },
    /// Change of the number of streams, with its reason.
    Streams(&'a StreamChange),
    /// Stripe that went down or works again.
    Stripe(&'a StripeEvent),
    /// Connection that was lost or restored.
    Connection(&'a ConnectionEvent<'a>),
}
