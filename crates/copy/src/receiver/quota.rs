//! Reservation of a server's byte quota. All missing bytes of a needed file are reserved before space is allocated, so
//! that no file can exceed the quota.
//!
//! A reservation does not use up the quota. Bytes are charged as they arrive, and holes as if they had arrived. So
//! other files, or blocks that arrive twice, can use up the quota before a file is complete. This ends the session.

use std::sync::atomic::{AtomicU64, Ordering};

use lfn_base::units::Bytes;
use lfn_session::wire::copy::entry::Name;
use parking_lot::Mutex;

use crate::TransferError;
use crate::stream_set::StreamSet;

/// The bytes reserved since the session began, without those of failed files that did not arrive. `None` without a
/// quota.
#[derive(Debug)]
pub(super) struct QuotaReservation(Option<Mutex<u64>>);

/// The reserved bytes of one file that have not arrived yet.
#[derive(Debug, Default)]
pub(super) struct FileReservation(AtomicU64);

impl QuotaReservation {
    /// Creates an empty reservation.
    pub(super) fn new(is_enabled: bool) -> Self {
        QuotaReservation(is_enabled.then(Mutex::default))
    }

    /// Returns whether the session has a byte quota. With a quota, no disk space is reserved: a client could leave many
    /// files after their first block, and pay for no more than these blocks.
    pub(super) fn is_enabled(&self) -> bool {
        self.0.is_some()
    }

    /// Reserves the missing bytes of a file. Replaces an earlier reservation for the same file.
    ///
    /// # Errors
    /// [`TransferError::Quota`] if the quota is too small.
    pub(super) fn reserve(
        &self,
        file: &FileReservation,
        name: &Name,
        lacking: Bytes,
        streams: &StreamSet,
    ) -> Result<(), TransferError> {
        let Some(all) = &self.0 else { return Ok(()) };
        let mut all = all.lock();
        let before = file.0.load(Ordering::SeqCst);
        let now = (*all - before).saturating_add(lacking.0);
        if lacking.0 > before {
            let affords = streams.check_affordable(Bytes(now), lacking);
            affords.map_err(|denied| TransferError::Quota { path: name.to_string(), denied })?;
        }
        *all = now;
        file.0.store(lacking.0, Ordering::SeqCst);
        Ok(())
    }

    /// Releases the reservation of blocks that have arrived.
    pub(super) fn release_arrived(&self, file: &FileReservation, arrived: Bytes) {
        let Some(all) = &self.0 else { return };
        let _all = all.lock();
        let remaining = file.0.load(Ordering::SeqCst).saturating_sub(arrived.0);
        file.0.store(remaining, Ordering::SeqCst);
    }

    /// Releases the reservation of a file that receives no more blocks.
    pub(super) fn release(&self, file: &FileReservation) {
        let Some(all) = &self.0 else { return };
        let mut all = all.lock();
        *all = all.saturating_sub(file.0.swap(0, Ordering::SeqCst));
    }
}
