//! Digests of existing files at the destination, for comparison with the source or for a manifest.
//!
//! One thread reads and hashes, in parallel to the streams and to the sender's own hashing. The planner gives it one
//! file at a time.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};

use lfn_session::wire::copy::blocks::Layout;
use lfn_session::wire::copy::digest::Digest;
use lfn_session::wire::copy::entry::Name;
use lfn_session::wire::copy::options::Verify;

use super::inbox::POLL_INTERVAL;
use super::plan_event::PlanInbox;
use crate::TransferError;
use crate::storage::Storage;
use crate::storage::holes::digest_of;
use crate::work_meter::WorkMeter;

/// An existing file to hash.
#[derive(Debug)]
pub(super) struct DigestJob {
    pub(super) number: u32,
    pub(super) name: Name,
    pub(super) layout: Layout,
}

/// Hashes existing files until the planner ends or the copy is stopped.
pub(super) fn run(
    jobs: &Receiver<DigestJob>,
    storage: &Arc<dyn Storage>,
    verify: Verify,
    planner: &PlanInbox,
    meter: &WorkMeter,
) {
    while !meter.is_stopped() {
        match jobs.recv_timeout(POLL_INTERVAL) {
            Ok(DigestJob { number, name, layout }) => {
                let digest = meter.while_blocked(|| compute(storage.as_ref(), &name, layout, verify, meter));
                planner.existing_digest(number, digest);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// Reads an existing file and returns its digest.
///
/// # Errors
/// [`TransferError::SourceChanged`] if the file does not have the length of `layout`.
pub(super) fn compute(
    storage: &dyn Storage,
    name: &Name,
    layout: Layout,
    verify: Verify,
    meter: &WorkMeter,
) -> Result<Digest, TransferError> {
    let file = storage.open_file(name)?;
    let failed = |source| TransferError::File { doing: "read", path: storage.display_name(name), source };
    let digest = digest_of(&*file, layout, verify, meter)
        .map_err(|error| if meter.is_stopped() { TransferError::Interrupted } else { failed(error) })?;
    // The file may have changed its length since the planner looked at it.
    let is_other_length = file.metadata().map_err(failed)?.length != layout.bytes();
    digest.filter(|_| !is_other_length).ok_or_else(|| TransferError::SourceChanged { path: storage.display_name(name) })
}
