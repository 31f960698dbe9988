//! The end of a needed file: complete, failed, or given up by its sender.
//!
//! The thread that finds a file finished sets `is_over`, so that no other thread finishes it again. A complete file
//! goes to the commit queue, which syncs and renames files in batches, or is renamed at once. Its outcome is reported
//! after that.

use std::fs::File;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use lfn_core::transfer::entry::{Entry, Name};
use lfn_core::transfer::options::FsyncPolicy;
use lfn_core::units::Bytes;
use lfn_core::wire::copy::EntryAction;
use rustix::fs::Stat;

use super::super::TransferError;
use super::super::base_dir::inode_of;
use super::super::stream_set::lock;
use super::Receiver;
use super::commit::CompletedFile;
use super::entry::{EntryOutcome, FileState, NeededFile};
use super::partial_file::PartialFile;
use super::single_block_file::SingleBlockFile;
use super::tree::DestinationTree;

/// Partial files that no thread writes to any more. A thread that may wait for a disk closes them later.
#[derive(Debug, Default)]
pub(super) struct DeferredClose {
    waiting: Mutex<Vec<Arc<PartialFile>>>,
    /// Locked while files are closed.
    pub(super) closing: Mutex<()>,
}

impl DeferredClose {
    /// Adds a file, without waiting for a thread that closes others.
    fn add(&self, partial: Option<Arc<PartialFile>>) {
        lock(&self.waiting).extend(partial);
    }

    /// Closes all files. Returns after files that another thread is closing are closed too.
    pub(super) fn close(&self, receiver: &Receiver) {
        let _closing = lock(&self.closing);
        let waiting = std::mem::take(&mut *lock(&self.waiting));
        if !waiting.is_empty() {
            receiver.do_disk_work(|| drop(waiting));
        }
    }
}

impl Receiver {
    /// Finishes a file that misses no blocks. A file of several blocks also needs the sender's digest.
    pub(super) fn try_complete(&self, needed: &Arc<NeededFile>, may_wait: bool) {
        let mut state = lock(&needed.state);
        let Some(digest) = state.assembly.digest().filter(|_| !state.is_over) else { return };
        match state.source_digest {
            Some(sent) if sent != digest => {
                if let Some(partial) = &state.partial {
                    partial.discard_on_close();
                }
                // The sender's digest covers all its data, and each block that arrived matched its hash. So if blocks
                // were kept from an earlier copy, those blocks are the wrong ones.
                let error = match state.assembly.existing().is_empty() {
                    true => TransferError::Digest { sent, received: digest },
                    false => TransferError::SourceReplaced,
                };
                drop(state);
                self.fail_file(needed, error);
            }
            None if needed.layout.blocks() > 1 => {}
            _ => {
                state.is_over = true;
                let partial = self.take_partial(&mut state);
                drop(state);
                if let Some(partial) = &partial {
                    self.note_inode(needed, partial.file());
                }
                match partial {
                    None => self.settle_file(needed, Ok(())),
                    Some(partial) => {
                        self.commits.push(needed.clone(), CompletedFile::MultiBlock(partial), || {
                            may_wait && !self.is_stopped()
                        });
                    }
                }
            }
        }
    }

    pub(super) fn complete_single_block(&self, needed: &Arc<NeededFile>, small: SingleBlockFile) {
        lock(&needed.state).is_over = true;
        self.note_inode(needed, small.file());
        match self.options.fsync {
            FsyncPolicy::None => self.settle_file(needed, small.publish(needed.replace)),
            // The whole file system is synced at the end.
            FsyncPolicy::End
                if self.file_systems.add(small.file()).is_ok_and(|(_, file_system)| file_system.has_syncfs) =>
            {
                self.settle_file(needed, small.publish(needed.replace));
            }
            FsyncPolicy::File | FsyncPolicy::End => {
                self.commits.push(needed.clone(), CompletedFile::SingleBlock(small), || !self.is_stopped());
            }
        }
    }

    /// Remembers the inode for later hard links, whatever file has this name by then.
    fn note_inode(&self, needed: &NeededFile, file: &File) {
        if let Some(inode) = inode_of(file).filter(|_| needed.entry.linked) {
            self.table.update_link_info(needed.number, |info| info.inode = Some(inode));
        }
    }

    /// Settles a complete file after its rename.
    pub(super) fn settle_file(&self, needed: &NeededFile, named: Result<(), TransferError>) {
        let done = self.outcome_of(needed, named);
        self.table.settle(needed.number, &needed.entry.name, done);
    }

    /// Settles many complete files after their renames.
    pub(super) fn settle_files(&self, all: Vec<(Arc<NeededFile>, Result<(), TransferError>)>) {
        let (items, named): (Vec<_>, Vec<_>) = all.into_iter().unzip();
        let done: Vec<_> = items.iter().zip(named).map(|(needed, named)| self.outcome_of(needed, named)).collect();
        self.table.settle_all(items.iter().zip(done).map(|(needed, done)| (needed.number, &needed.entry.name, done)));
    }

    fn outcome_of(&self, needed: &NeededFile, named: Result<(), TransferError>) -> EntryOutcome {
        let state = lock(&needed.state);
        let block = |index| needed.layout.block(index).map_or(0, |block| u64::from(block.length));
        let kept: u64 = state.assembly.existing().ranges().flat_map(|(first, last)| first..=last).map(block).sum();
        let digest = state.assembly.digest();
        let is_own_partial = state.is_own_partial;
        drop(state);
        let kept = if is_own_partial { 0 } else { kept };
        match (named, digest) {
            (Ok(()), Some(digest)) => {
                if self.options.report_digests {
                    let action = if needed.replace { EntryAction::Replace } else { EntryAction::New };
                    self.report_existing(needed.number, &needed.entry, action, digest);
                }
                self.report_written(&needed.entry, needed.replace);
                self.note_written_file(&needed.entry.name);
                EntryOutcome::File { digest, kept: Bytes(kept), bytes: needed.layout.bytes() }
            }
            (Ok(()), None) => EntryOutcome::Failed(TransferError::Incomplete),
            (Err(error), _) => EntryOutcome::Failed(error),
        }
    }

    /// Reports a copied entry. Write-only clients must not learn whether another object had the name before.
    pub(super) fn report_written(&self, entry: &Entry, replace: bool) {
        let is_write_only = self.tree().is_some_and(|tree| tree.write_only().is_some());
        let action = if replace && !is_write_only { EntryAction::Replace } else { EntryAction::New };
        self.report_entry(entry, action);
    }

    /// Remembers a file that a write-only client wrote, so that a later session of the same copy may recognise it.
    pub(super) fn note_written_file(&self, name: &Name) {
        let (Some(written), Some(tree)) = (self.written_files.get(), self.tree()) else { return };
        if let Ok(Some(stat)) = tree.locate(name).and_then(|location| location.stat()) {
            written.add(&stat);
        }
    }

    /// Returns whether this write-only client's copy wrote the existing entry. In a create-only area, no other files
    /// exist.
    pub(super) fn is_own_write_only(&self, tree: &DestinationTree, stat: Option<&Stat>) -> bool {
        let (Some(write_only), Some(stat)) = (tree.write_only(), stat) else { return false };
        !write_only.keeps_partial_files || self.written_files.get().is_some_and(|written| written.contains(stat))
    }

    /// Fails one file. The copy continues with the other files.
    pub(super) fn fail_file(&self, needed: &NeededFile, error: TransferError) {
        let mut state = lock(&needed.state);
        if state.is_over {
            return;
        }
        state.is_over = true;
        let partial = self.take_partial(&mut state);
        drop(state);
        // Closing the file flushes its blocks to disk.
        self.do_disk_work(|| drop(partial));
        self.release_quota(needed);
        self.table.settle(needed.number, &needed.entry.name, EntryOutcome::Failed(error));
    }

    /// Gives up a file that the sender cannot send. Returns its name if the file had no outcome before.
    pub(super) fn cancel_file(&self, number: u32) -> Option<Name> {
        let needed = self.table.needed_file(number)?;
        let mut state = lock(&needed.state);
        if state.is_over {
            return None;
        }
        state.is_over = true;
        let partial = self.take_partial(&mut state);
        drop(state);
        self.release_quota(&needed);
        self.deferred_close.add(partial);
        Some(needed.entry.name.clone())
    }

    /// Takes the partial file of a file that is over.
    fn take_partial(&self, state: &mut FileState) -> Option<Arc<PartialFile>> {
        let partial = state.partial.take();
        if partial.is_some() {
            self.open_partials.fetch_sub(1, Ordering::SeqCst);
        }
        partial
    }
}
