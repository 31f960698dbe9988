//! What a server's quota of bytes has to do with files: one that is wanted is counted with all that it lacks before room
//! is made for it, so that no file grows longer than the quota could pay for.
//!
//! What is set aside here is taken nowhere: bytes are paid for as they come, holes as if they had come. It may so be spent
//! all the same before a file is whole, by others or by blocks that came twice, and then ends the session.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use lfn_core::transfer::blocks::Block;
use lfn_core::units::Bytes;

use super::super::TransferError;
use super::super::flow::lock;
use super::Receiver;
use super::item::Item;

/// What was set aside since the session began, less what failed and did not come; none where no bytes are counted.
#[derive(Debug)]
pub(super) struct SetAside(Option<Mutex<u64>>);

/// What of it is one file's and has not come.
#[derive(Debug, Default)]
pub(super) struct Own(AtomicU64);

impl SetAside {
    /// Nothing yet.
    pub(super) fn new(counts: bool) -> Self {
        SetAside(counts.then(Mutex::default))
    }

    /// Whether bytes are counted. Then no room is reserved: whoever leaves a file after its first block, time and again, has
    /// paid for no more than that.
    pub(super) fn counts(&self) -> bool {
        self.0.is_some()
    }
}

impl Receiver {
    /// Sets aside what a file lacks, in the place of what was set aside for it before.
    pub(super) fn set_aside(&self, item: &Item, lacking: Bytes) -> Result<(), TransferError> {
        let Some(all) = &self.set_aside.0 else { return Ok(()) };
        let mut all = lock(all);
        let before = item.set_aside.0.load(Ordering::SeqCst);
        let now = (*all - before).saturating_add(lacking.0);
        if lacking.0 > before {
            let affords = self.flow.affords(Bytes(now), lacking);
            affords.map_err(|denied| TransferError::Quota { path: item.entry.name.to_string(), denied })?;
        }
        *all = now;
        item.set_aside.0.store(lacking.0, Ordering::SeqCst);
        Ok(())
    }

    /// A block of it came.
    pub(super) fn has_come(&self, item: &Item, block: Block) {
        let Some(all) = &self.set_aside.0 else { return };
        let _all = lock(all);
        let left = item.set_aside.0.load(Ordering::SeqCst).saturating_sub(block.length.into());
        item.set_aside.0.store(left, Ordering::SeqCst);
    }

    /// No more of it will come.
    pub(super) fn give_up(&self, item: &Item) {
        let Some(all) = &self.set_aside.0 else { return };
        let mut all = lock(all);
        *all = all.saturating_sub(item.set_aside.0.swap(0, Ordering::SeqCst));
    }
}
