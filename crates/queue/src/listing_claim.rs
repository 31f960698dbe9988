//! The claim to write the manifest, so that only one of many movers lists the sources.
//!
//! The claim is a value that its owner changes several times in each lease. A mover that sees no change for a whole
//! lease takes the claim over. The manifest itself is created atomically, so two owners do no damage.

use std::time::Duration;

use tokio::sync::oneshot;

use crate::store::{LISTER_KEY, QueueStore};

/// The claim to write the manifest. It is renewed until it is dropped.
#[derive(Debug)]
pub struct ListingClaim {
    _end: oneshot::Sender<()>,
}

impl ListingClaim {
    /// Starts the task that renews the claim. The task runs on the present runtime.
    pub(crate) fn start(store: QueueStore, mover: String, revision: u64, lease: Duration) -> Self {
        let (end, mut ended) = oneshot::channel();
        tokio::spawn(async move {
            let mut revision = revision;
            for round in 1_u64.. {
                tokio::select! {
                    _ = &mut ended => {
                        // A mover that was interrupted leaves the list to the next one.
                        let _ = store.bucket.delete_expect_revision(LISTER_KEY, Some(revision)).await;
                        return;
                    }
                    () = tokio::time::sleep(lease / 4) => {}
                }
                match store.update(LISTER_KEY, format!("{mover} {round}").into_bytes(), revision).await {
                    Ok(Some(next)) => revision = next,
                    // Another mover has taken the claim over.
                    Ok(None) => return,
                    Err(_) => {}
                }
            }
        });
        ListingClaim { _end: end }
    }
}
