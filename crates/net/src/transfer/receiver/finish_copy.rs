//! The end of a copy after every entry is settled: deletes unlisted entries, sets the attributes of directories,
//! flushes to disk, and reports the result to the sender.

use lfn_core::transfer::options::FsyncPolicy;
use lfn_core::wire::copy::{CopyTally, ReceiverMessage};
use rustix::fs::{Mode, OFlags, fsync, openat};
use rustix::io::Errno;

use super::super::TransferError;
use super::super::role::CopyResult;
use super::super::stream_set::lock;
use super::Receiver;
use super::delete::Deletions;
use super::directories::PendingDirectories;
use super::tree::DestinationTree;

impl Receiver {
    /// Finishes a copy after all its entries are settled.
    pub(super) fn finish(&self, directories: PendingDirectories, deletions: Deletions) -> Result<(), TransferError> {
        // The next copy may resume the partial files.
        self.deferred_close.close(self);
        if let Some(tree) = self.tree().filter(|_| self.options.delete) {
            deletions.run(self, tree);
        }
        if let Some(tree) = self.tree().filter(|_| !self.options.dry_run) {
            self.apply_directory_attributes(directories.into_remaining());
            self.while_blocked_on_disk(|| self.make_durable(tree))?;
        }
        if self.is_stopped() {
            return Ok(());
        }
        let path = self.tree().map(|tree| match self.table.single_file_name() {
            Some(name) => tree.display_name(&name),
            None => tree.display_path().to_owned(),
        });
        let tally = CopyTally { not_preserved: self.attributes.unpreserved(), ..self.table.tally() };
        let digest = self.digest();
        let failures = self.table.failures();
        let (bytes, left_out) = (self.table.listed_bytes(), self.table.skipped_entries());
        *lock(&self.result) = Some(CopyResult { tally, digest, path, bytes, failures, skipped: left_out });
        self.table.queue_message(ReceiverMessage::Done { progress: self.streams.progress(), tally });
        Ok(())
    }

    /// Flushes names, files without a sync of their own, and files that existed before. An earlier copy may have been
    /// interrupted while it waited for the last of these.
    fn make_durable(&self, tree: &DestinationTree) -> Result<(), TransferError> {
        let failed = |source| TransferError::File { doing: "write", path: tree.display_path().to_owned(), source };
        let tally = self.table.tally();
        let is_single_entry = self.table.listed_count() <= 1 && tally.deleted == 0;
        match self.options.fsync {
            FsyncPolicy::None => Ok(()),
            _ if !tally.has_touched() => Ok(()),
            FsyncPolicy::File if is_single_entry && self.sync_one(tree).map_err(|e| failed(e.into()))? => Ok(()),
            FsyncPolicy::File | FsyncPolicy::End => {
                if let Ok(directory) = tree.open_readable() {
                    self.file_systems.add(&directory.into()).map_err(failed)?;
                }
                self.file_systems.sync().map_err(failed)
            }
        }
    }

    /// Flushes one entry without the rest of its file system. Returns false if that is impossible. Syncing the
    /// directory flushes the name; a directory that this user may not read is left to the kernel.
    fn sync_one(&self, tree: &DestinationTree) -> Result<bool, Errno> {
        let existing = self.table.single_file_name().filter(|_| self.table.tally().skipped > 0);
        if let Some(location) = existing.and_then(|name| tree.locate(&name).ok()) {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            match openat(&location.directory, &location.name, flags, Mode::empty()) {
                Ok(file) => fsync(&file)?,
                Err(_) => return Ok(false),
            }
        }
        [tree.open_readable().ok(), tree.open_readable_parent()].into_iter().flatten().try_for_each(fsync)?;
        Ok(true)
    }
}
