//! Checks the sender's list against the request: unrequested names and links are refused.
//!
//! An honest sender never lists such an entry by mistake, so the entry ends the whole copy.

use lfn_core::transfer::entry::{Entry, EntryKind};
use lfn_core::transfer::preserve::Preserve;
use lfn_core::transfer::requested_entries::RequestedEntries;

use super::super::stream_set::lock;
use super::super::{TransferError, UnrequestedKind};
use super::Receiver;

impl Receiver {
    /// Accepts only requested entries from now on.
    pub(crate) fn accept_only(&self, requested: RequestedEntries) {
        *lock(&self.requested) = Some(requested);
    }

    /// Checks the next part of the list.
    ///
    /// # Errors
    /// [`TransferError::Unrequested`] for the first entry that was not requested.
    pub(super) fn check_requested(&self, entries: &[Entry]) -> Result<(), TransferError> {
        let mut requested = lock(&self.requested);
        for entry in entries {
            let has = requested.as_mut().is_none_or(|requested| requested.allows(entry));
            let kind = match (&entry.kind, self.preserve) {
                _ if !has => UnrequestedKind::Name,
                (EntryKind::Symlink { .. }, Some(Preserve { links: false, .. })) => UnrequestedKind::SymbolicLink,
                (EntryKind::HardLink { .. }, Some(Preserve { hard_links: false, .. })) => UnrequestedKind::HardLink,
                _ => continue,
            };
            return Err(TransferError::Unrequested { name: entry.name.to_string(), kind });
        }
        Ok(())
    }
}
