//! Ends directories and the copy.
//!
//! Directories get their attributes after the last write in them. After every entry has its outcome, the planner
//! deletes unlisted entries, ends the remaining directories, flushes to disk, and reports the end.

use std::time::{Duration, Instant};

use lfn_session::wire::copy::entry::Entry;
use lfn_session::wire::copy::options::FsyncPolicy;

use super::Planner;
use super::directories::PendingDirectory;
use crate::receiver::report::Report;
use crate::storage::SyncScope;
use crate::{ForbiddenReason, TransferError};

impl Planner {
    /// Waits until there is memory for one more unfinished directory. Directories finish when all their contents have
    /// arrived.
    pub(super) fn wait_for_directory_memory(&mut self, entry: &Entry) -> Result<(), TransferError> {
        let streams = self.setup.streams.clone();
        let received = || streams.progress().bytes;
        let (mut bytes, mut started) = (received(), Instant::now());
        while !self.directories.has_room_for(entry) && !self.is_stopped() {
            if received() != bytes {
                (bytes, started) = (received(), Instant::now());
            }
            if started.elapsed() >= self.setup.timeouts.directory_memory {
                let reason = ForbiddenReason::TooManyDirectories;
                return Err(TransferError::Forbidden { path: self.storage().display_name(&entry.name), reason });
            }
            let entries = &self.entries;
            let finished = self.directories.take_finished_now(|from, to| entries.has_unsettled(from, to));
            if finished.is_empty() {
                streams.meter().while_blocked(|| self.wait_for_events(Duration::from_millis(10)));
            }
            self.finish_directories(finished);
        }
        Ok(())
    }

    /// Sets the attributes of directories, inner ones first, so that a closed directory does not block the path to
    /// another one.
    pub(super) fn finish_directories(&self, directories: impl IntoIterator<Item = PendingDirectory>) {
        let meter = self.setup.streams.meter();
        for PendingDirectory { entry, is_new, previous_mode, .. } in directories {
            let finished = meter.do_disk_work(|| self.storage().finish_directory(&entry, is_new, previous_mode));
            if let Err(error) = finished {
                self.report(Report::Failed { name: entry.name, error });
            }
        }
    }

    /// Ends a copy whose entries all have their outcome.
    pub(super) fn finish(mut self) -> Result<(), TransferError> {
        if self.setup.options.delete {
            self.run_deletions();
        }
        if !self.setup.options.dry_run {
            let remaining: Vec<_> = std::mem::take(&mut self.directories).into_remaining().collect();
            self.finish_directories(remaining);
            self.setup.streams.meter().while_blocked(|| self.make_durable())?;
        }
        if self.is_stopped() {
            return Ok(());
        }
        let storage = self.storage();
        let single_file = self.totals.first_file.as_ref().filter(|_| self.entries.listed == 1);
        let path = storage.top().display_path.map(|top| single_file.map_or(top, |name| storage.display_name(name)));
        let unpreserved = storage.unpreserved();
        self.report(Report::Finished { path, unpreserved });
        Ok(())
    }

    /// Flushes names, files without a sync of their own, and files that existed before. An earlier copy may have been
    /// interrupted while it waited for the last of these.
    fn make_durable(&self) -> Result<(), TransferError> {
        let has_touched = self.totals.has_touched || self.totals.deleted > 0;
        let is_single_entry = self.entries.listed <= 1 && self.totals.deleted == 0;
        match self.setup.options.fsync {
            FsyncPolicy::None => Ok(()),
            _ if !has_touched => Ok(()),
            FsyncPolicy::File if is_single_entry => {
                let existing = self.totals.first_file.as_ref().filter(|_| self.totals.has_skipped);
                self.storage().sync(SyncScope::OneEntry { existing })
            }
            FsyncPolicy::File | FsyncPolicy::End => self.storage().sync(SyncScope::Everything),
        }
    }
}
