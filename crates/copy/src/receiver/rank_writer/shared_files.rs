//! The files that the lead has opened, as another rank sees them.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use lfn_base::units::Bytes;
use lfn_session::wire::copy::SharedFileId;
use lfn_session::wire::copy::blocks::Layout;
use lfn_session::wire::copy::blockset::BlockSet;
use lfn_session::wire::copy::entry::{Entry, EntryKind, Modified, Name};
use lfn_session::wire::copy::requested_entries::RequestedEntries;
use parking_lot::{Condvar, Mutex};

use crate::proto::file_assembly::AssemblyError;
use crate::receiver::inbox::POLL_INTERVAL;
use crate::receiver::start::Destination;
use crate::storage::{SharedPartial, Storage};
use crate::{SenderViolation, TransferError, UnrequestedKind};

/// Maximum number of files that are open at once. The sender shares fewer.
const MAX_FILES: usize = 128;

/// Maximum wait of a block for the message about its file.
const ANNOUNCEMENT_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum time until a file of another host appears. A network file system caches names that did not exist.
const APPEARANCE_TIMEOUT: Duration = Duration::from_secs(5);
const APPEARANCE_INTERVAL: Duration = Duration::from_millis(50);

/// The files that the lead has opened.
#[derive(Debug)]
pub(super) struct SharedFiles {
    block_size: Bytes,
    requested: Mutex<RequestedEntries>,
    destination: Destination,
    /// The destination, once it is open.
    storage: Mutex<Option<Arc<dyn Storage>>>,
    files: Mutex<FileTable>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct FileTable {
    open: HashMap<u32, Arc<LeadFile>>,
    /// Files that were open.
    closed: BlockSet,
}

/// A file that the lead has opened.
#[derive(Debug)]
pub(super) struct LeadFile {
    pub(super) number: u32,
    pub(super) layout: Layout,
    name: Name,
    identity: SharedFileId,
    partial: Mutex<Option<Arc<dyn SharedPartial>>>,
}

impl SharedFiles {
    pub(super) fn new(destination: Destination, requested: RequestedEntries, block_size: Bytes) -> Self {
        SharedFiles {
            block_size,
            requested: Mutex::new(requested),
            destination,
            storage: Mutex::default(),
            files: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Adds a file that the lead has opened.
    ///
    /// # Errors
    /// [`TransferError::Unrequested`] for a name that the request does not permit, and a violation for too many files.
    pub(super) fn add(
        &self,
        number: u32,
        name: Name,
        bytes: Bytes,
        identity: SharedFileId,
    ) -> Result<(), TransferError> {
        let kind = EntryKind::File { length: bytes };
        let entry = Entry::new(name.clone(), kind, 0, Modified::default());
        if !entry.is_ok_and(|entry| self.requested.lock().allows(&entry)) {
            return Err(TransferError::Unrequested { name: name.to_string(), kind: UnrequestedKind::Name });
        }
        let layout = Layout::new(bytes, self.block_size)?;
        let mut files = self.files.lock();
        if files.open.len() >= MAX_FILES || layout.blocks() < 2 {
            return Err(TransferError::SenderViolation(SenderViolation::UnexpectedRankMessage));
        }
        let file = LeadFile { number, layout, name, identity, partial: Mutex::default() };
        files.open.insert(number, Arc::new(file));
        self.changed.notify_all();
        Ok(())
    }

    /// Closes files. Threads that write to them finish their blocks.
    pub(super) fn close(&self, numbers: &BlockSet) {
        let mut files = self.files.lock();
        files.closed.union(numbers);
        files.open.retain(|number, _| !numbers.contains((*number).into()));
        self.changed.notify_all();
    }

    /// Waits for the message about a file. Returns `None` if the file needs no more blocks.
    ///
    /// # Errors
    /// [`AssemblyError::File`] if the message does not arrive, and [`TransferError::Interrupted`] if `is_stopped`.
    pub(super) fn wait_for(
        &self,
        number: u32,
        is_stopped: impl Fn() -> bool,
    ) -> Result<Option<Arc<LeadFile>>, TransferError> {
        let deadline = Instant::now() + ANNOUNCEMENT_TIMEOUT;
        let mut files = self.files.lock();
        loop {
            if let Some(file) = files.open.get(&number) {
                return Ok(Some(file.clone()));
            }
            if files.closed.contains(number.into()) {
                return Ok(None);
            }
            if is_stopped() {
                return Err(TransferError::Interrupted);
            }
            if Instant::now() > deadline {
                return Err(AssemblyError::File(number).into());
            }
            self.changed.wait_for(&mut files, POLL_INTERVAL);
        }
    }

    /// Returns the partial file of the lead, and opens it with the first block.
    pub(super) fn partial(
        &self,
        file: &LeadFile,
        is_stopped: impl Fn() -> bool,
    ) -> Result<Arc<dyn SharedPartial>, TransferError> {
        let mut partial = file.partial.lock();
        if let Some(open) = &*partial {
            return Ok(open.clone());
        }
        let deadline = Instant::now() + APPEARANCE_TIMEOUT;
        loop {
            let error = match self.open(file) {
                Ok(opened) => return Ok(partial.insert(opened).clone()),
                Err(error) => error,
            };
            if Instant::now() > deadline || is_stopped() {
                return Err(error);
            }
            thread::sleep(APPEARANCE_INTERVAL);
        }
    }

    fn open(&self, file: &LeadFile) -> Result<Arc<dyn SharedPartial>, TransferError> {
        let storage = self.storage()?;
        let path = || storage.display_name(&file.name);
        let opened = storage.open_shared(&file.name).map_err(|error| match error {
            TransferError::NotFound { .. } => TransferError::NotShared { path: path() },
            error => error,
        })?;
        // Two file systems may have the same inode number, but the marker is random.
        let SharedFileId { inode, marker } = &file.identity;
        let is_marked = marker.as_ref().is_none_or(|marker| storage.has_marker(marker));
        if opened.inode() != *inode || (inode.is_some() && marker.is_none()) || !is_marked {
            return Err(TransferError::NotShared { path: path() });
        }
        Ok(opened.into())
    }

    /// Returns the destination, and opens it with the first file: before, the lead may not have created it.
    fn storage(&self) -> Result<Arc<dyn Storage>, TransferError> {
        let mut storage = self.storage.lock();
        if let Some(open) = &*storage {
            return Ok(open.clone());
        }
        // As for a dry run, nothing is created.
        let opened = self.destination.for_existing_files().open(true, true)?;
        Ok(storage.insert(opened.into()).clone())
    }
}
