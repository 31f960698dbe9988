//! The destination of a copy within one host, which the walk does not enter.

use std::sync::{Arc, OnceLock};

use lfn_session::wire::copy::DestinationId;

use crate::storage::FileId;
use crate::this_host;

/// The destination that the receiver reports, once it is known. `None` on another host.
#[derive(Debug, Clone, Default)]
pub(super) struct DestinationSlot(Arc<OnceLock<Option<DestinationId>>>);

impl DestinationSlot {
    /// Sets the destination that the receiver reported.
    pub(super) fn set(&self, destination: Option<DestinationId>) {
        // The numbers of another kernel mean other directories. A second report is ignored.
        let _ = self.0.set(destination.filter(|destination| this_host::is_tagged(destination.host.as_ref())));
    }

    /// Returns whether the receiver has reported its destination.
    pub(super) fn is_known(&self) -> bool {
        self.0.get().is_some()
    }

    /// Returns the destination on this host.
    pub(super) fn get(&self) -> Option<&DestinationId> {
        self.0.get().and_then(Option::as_ref)
    }

    /// Returns whether the directory `name` of this identity is the destination. `parent` returns the identity of the
    /// directory that contains the name.
    pub(super) fn matches(&self, name: &[u8], id: FileId, parent: impl FnOnce() -> Option<FileId>) -> bool {
        let Some(destination) = self.get() else { return false };
        match &destination.single_name {
            None => id == destination.directory,
            Some(alone) => alone.as_bytes() == name && parent() == Some(destination.directory),
        }
    }
}
