//! How a copy ends once everything is settled: what is not listed goes, directories get their attributes, what has to be on
//! disk is waited for, and the sender is told.

use lfn_core::transfer::manner::Sync;
use lfn_core::wire::copy::{FromReceiver, Tally};
use rustix::fs::{Mode, OFlags, fsync, openat};
use rustix::io::Errno;

use super::super::TransferError;
use super::super::flow::lock;
use super::super::side::Ended;
use super::Receiver;
use super::directories::Directories;
use super::extra::Extras;
use super::tree::Tree;

impl Receiver {
    /// Everything is settled: directories get their attributes, and what has to be on disk is waited for.
    pub(super) fn finish(&self, directories: Directories, extras: Extras) -> Result<(), TransferError> {
        // Whoever comes next may take up what is half-done.
        self.graves.close(self);
        if let Some(tree) = self.tree().filter(|_| self.manner.delete) {
            extras.end(self, tree);
        }
        if let Some(tree) = self.tree().filter(|_| !self.manner.dry_run) {
            self.dress_all(directories.into_rest());
            self.while_busy(|| self.make_durable(tree))?;
        }
        if self.stopped() {
            return Ok(());
        }
        let path = self.tree().map(|tree| match self.table.name() {
            Some(name) => tree.show(&name),
            None => tree.shown().to_owned(),
        });
        let tally = Tally { unkept: self.dressing.unkept(), ..self.table.tally() };
        let digest = self.digest();
        let failures = self.table.failures();
        let (bytes, left_out) = (self.table.bytes(), self.table.left_out());
        *lock(&self.ended) = Some(Ended { tally, digest, path, bytes, failures, left_out });
        self.table.say(FromReceiver::Done { progress: self.flow.progress(), tally });
        Ok(())
    }

    /// Waits until names, what has no sync of its own, and what was there already are on disk: an earlier copy may have been
    /// ended while it waited for that.
    fn make_durable(&self, tree: &Tree) -> Result<(), TransferError> {
        let failed = |source| TransferError::File { doing: "write", path: tree.shown().to_owned(), source };
        let tally = self.table.tally();
        let alone = self.table.listed() <= 1 && tally.deleted == 0;
        match self.manner.fsync {
            Sync::None => Ok(()),
            _ if !tally.has_touched() => Ok(()),
            Sync::File if alone && self.sync_one(tree).map_err(|e| failed(e.into()))? => Ok(()),
            Sync::File | Sync::End => {
                if let Ok(directory) = tree.readable() {
                    self.devices.note(&directory.into()).map_err(failed)?;
                }
                self.devices.sync().map_err(failed)
            }
        }
    }

    /// The same of one entry, without the rest of its file system; false if that cannot be. Its name is on disk when its
    /// directory is; one that may not be read is left to the kernel.
    fn sync_one(&self, tree: &Tree) -> Result<bool, Errno> {
        let there = self.table.name().filter(|_| self.table.tally().skipped > 0);
        if let Some(place) = there.and_then(|name| tree.place(&name).ok()) {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            match openat(&place.directory, &place.name, flags, Mode::empty()) {
                Ok(file) => fsync(&file)?,
                Err(_) => return Ok(false),
            }
        }
        [tree.readable().ok(), tree.readable_above()].into_iter().flatten().try_for_each(fsync)?;
        Ok(true)
    }
}
