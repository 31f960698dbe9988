//! How a file that is wanted ends: whole, failed, or given up by its sender.
//!
//! Whoever finds that a file has no more to come ends it, and nobody does so twice: that is what `over` says. One that is
//! whole goes to the group that is put on disk and named together, or is named at once; what became of it is said then.

use std::fs::File;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use lfn_core::transfer::entry::Name;
use lfn_core::transfer::manner::Sync;
use lfn_core::units::Bytes;
use lfn_core::wire::copy::Fate;
use rustix::fs::Stat;

use super::super::TransferError;
use super::super::flow::lock;
use super::super::place::inode_of;
use super::Receiver;
use super::group::Whole;
use super::item::{Done, Item, State};
use super::partial::Partial;
use super::small::Small;
use super::tree::Tree;

/// Partial files that nobody writes to any more, to be closed by a thread that may wait for a disk.
#[derive(Debug, Default)]
pub(super) struct Graves {
    waiting: Mutex<Vec<Arc<Partial>>>,
    /// Held while some are closed.
    pub(super) closing: Mutex<()>,
}

impl Graves {
    /// Adds one; waits for nobody who closes others.
    fn add(&self, partial: Option<Arc<Partial>>) {
        lock(&self.waiting).extend(partial);
    }

    /// Closes all of them; those that another thread is closing are closed then too.
    pub(super) fn close(&self, receiving: &Receiver) {
        let _closing = lock(&self.closing);
        let waiting = std::mem::take(&mut *lock(&self.waiting));
        if !waiting.is_empty() {
            receiving.on_disk(|| drop(waiting));
        }
    }
}

impl Receiver {
    /// Ends a file that has no more to come: a large one once the sender has said its digest.
    pub(super) fn try_complete(&self, item: &Arc<Item>, may_wait: bool) {
        let mut state = lock(&item.state);
        let Some(digest) = state.intake.digest().filter(|_| !state.over) else { return };
        match state.sent {
            Some(sent) if sent != digest => {
                if let Some(partial) = &state.partial {
                    partial.condemn();
                }
                // The sender's digest is of all that it has, and each block that came was what it said of it.
                let error = match state.intake.kept().is_empty() {
                    true => TransferError::Digest { sent, received: digest },
                    false => TransferError::KeptOfAnother,
                };
                drop(state);
                self.fail(item, error);
            }
            None if item.layout.blocks() > 1 => {}
            _ => {
                state.over = true;
                let partial = self.take_partial(&mut state);
                drop(state);
                if let Some(partial) = &partial {
                    self.note_file(item, partial.file());
                }
                match partial {
                    None => self.settle(item, Ok(())),
                    Some(partial) => {
                        self.group.push(item.clone(), Whole::Large(partial), || may_wait && !self.stopped());
                    }
                }
            }
        }
    }

    pub(super) fn whole_small(&self, item: &Arc<Item>, small: Small) {
        lock(&item.state).over = true;
        self.note_file(item, small.file());
        match self.manner.fsync {
            Sync::None => self.settle(item, small.name(item.replace)),
            // Its file system is put on disk as a whole at the end.
            Sync::End if self.devices.note(small.file()).is_ok_and(|(_, device)| device.syncs) => {
                self.settle(item, small.name(item.replace));
            }
            Sync::File | Sync::End => {
                self.group.push(item.clone(), Whole::Small(small), || !self.stopped());
            }
        }
    }

    /// Remembers which file it is, whatever will stand under its name, if it has other names.
    fn note_file(&self, item: &Item, file: &File) {
        if let Some(inode) = inode_of(file).filter(|_| item.entry.linked) {
            self.table.note(item.number, |note| note.inode = Some(inode));
        }
    }

    /// What became of a file that was whole.
    pub(super) fn settle(&self, item: &Item, named: Result<(), TransferError>) {
        let done = self.done(item, named);
        self.table.settle(item.number, &item.entry.name, done);
    }

    /// The same of many.
    pub(super) fn settle_all(&self, all: Vec<(Arc<Item>, Result<(), TransferError>)>) {
        let (items, named): (Vec<_>, Vec<_>) = all.into_iter().unzip();
        let done: Vec<_> = items.iter().zip(named).map(|(item, named)| self.done(item, named)).collect();
        self.table.settle_all(items.iter().zip(done).map(|(item, done)| (item.number, &item.entry.name, done)));
    }

    fn done(&self, item: &Item, named: Result<(), TransferError>) -> Done {
        let state = lock(&item.state);
        let block = |index| item.layout.block(index).map_or(0, |block| u64::from(block.length));
        let kept: u64 = state.intake.kept().ranges().flat_map(|(first, last)| first..=last).map(block).sum();
        let digest = state.intake.digest();
        let ours = state.ours;
        drop(state);
        let kept = if ours { 0 } else { kept };
        match (named, digest) {
            (Ok(()), Some(digest)) => {
                if self.manner.digests {
                    let fate = if item.replace { Fate::Replace } else { Fate::New };
                    self.tell_there(item.number, &item.entry, fate, digest);
                }
                self.note_written(&item.entry.name);
                Done::File { digest, kept: Bytes(kept), bytes: item.layout.bytes() }
            }
            (Ok(()), None) => Done::Failed(TransferError::Incomplete),
            (Err(error), _) => Done::Failed(error),
        }
    }

    /// Remembers what a guest has written, so that a later session of the same copy knows it again.
    pub(super) fn note_written(&self, name: &Name) {
        let (Some(written), Some(tree)) = (self.written.get(), self.tree()) else { return };
        if let Ok(Some(stat)) = tree.place(name).and_then(|place| place.stat()) {
            written.note(&stat);
        }
    }

    /// Whether what stands there was written by this copy of a guest: in a drop box there is nothing else.
    pub(super) fn is_guests_own(&self, tree: &Tree, stat: Option<&Stat>) -> bool {
        let (Some(guest), Some(stat)) = (tree.guest(), stat) else { return false };
        !guest.resumes || self.written.get().is_some_and(|written| written.has(stat))
    }

    /// A file that cannot be had; the rest goes on.
    pub(super) fn fail(&self, item: &Item, error: TransferError) {
        let mut state = lock(&item.state);
        if state.over {
            return;
        }
        state.over = true;
        let partial = self.take_partial(&mut state);
        drop(state);
        // What came of it is put on disk.
        self.on_disk(|| drop(partial));
        self.give_up(item);
        self.table.settle(item.number, &item.entry.name, Done::Failed(error));
    }

    /// Gives up a file that its sender cannot send; tells its name if nothing had become of it.
    pub(super) fn unsent(&self, number: u32) -> Option<Name> {
        let item = self.table.get(number)?;
        let mut state = lock(&item.state);
        if state.over {
            return None;
        }
        state.over = true;
        let partial = self.take_partial(&mut state);
        drop(state);
        self.give_up(&item);
        self.graves.add(partial);
        Some(item.entry.name.clone())
    }

    /// Takes the partial file from a file that is over.
    fn take_partial(&self, state: &mut State) -> Option<Arc<Partial>> {
        let partial = state.partial.take();
        if partial.is_some() {
            self.partials.fetch_sub(1, Ordering::SeqCst);
        }
        partial
    }
}
