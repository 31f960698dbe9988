//! A file of several blocks while it is incomplete: `.NAME.lfn-partial`, and beside it the journal of what is in.
//!
//! The partial file is locked while a copy writes it. Each block is noted in the journal after it was written; a copy that
//! ends in order syncs the file and says so there, so that the next one believes the journal. Otherwise, or if the file
//! was changed since, the next one reads the noted blocks again and keeps those whose hash is right. A journal about another source, or without its
//! partial file, is of no use and is begun anew.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use lfn_core::transfer::blocks::{Block, Layout};
use lfn_core::transfer::digest::BlockHash;
use lfn_core::transfer::entry::{Entry, Modified};
use lfn_core::transfer::journal;
use lfn_core::transfer::manner::Verify;
use lfn_core::transfer::raw::Raw;
use lfn_core::units::Bytes;
use rustix::fs::{
    AtFlags, FallocateFlags, FileType, FlockOperation, Mode, OFlags, Stat, Timespec, Timestamps, UTIME_OMIT, fallocate,
    fchmod, flock, fstat, fstatvfs, fsync, ftruncate, futimens, openat, statat, unlinkat,
};
use rustix::io::Errno;

use super::super::TransferError;
use super::super::flow::{Activity, Flow, lock};
use super::super::guest::Guest;
use super::super::place::{inode, inode_of, only_regular};
use super::attributes::{Body, Dressing};
use super::journal::{Journal, Left, Noted};
use super::sparse::write_sparse;
use super::tree::{Place, is_newer, journal_name, partial_name};

/// The file while it is incomplete.
#[derive(Debug)]
pub(super) struct Partial {
    place: Place,
    name: OsString,
    file: File,
    how: How,
    journal: Mutex<Journal>,
    fate: AtomicU8,
}

/// How it is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct How {
    pub(super) verify: Verify,
    /// Zeros become holes.
    pub(super) sparse: bool,
    /// Room is made for the whole before anything comes.
    pub(super) reserve: bool,
}

/// To be gone on with; what every partial file is until something else is said.
const KEPT: u8 = 0;
/// Of no use to anyone.
const USELESS: u8 = 1;
/// Has its final name.
const PUBLISHED: u8 = 2;
/// As an earlier copy left it, and not looked through to the end: it stays as it is, with what its journal says of it.
const UNKNOWN: u8 = 3;

/// A partial file, and the blocks that an earlier copy left in it.
pub(super) type Opened = (Partial, Noted);

impl Partial {
    /// Whether an earlier copy left one there.
    pub(super) fn is_there(place: &Place) -> Result<bool, TransferError> {
        let beside = Place { name: partial_name(&place.name), ..place.clone() };
        Ok(beside.stat()?.is_some())
    }

    /// Opens and locks the partial file, with room for the whole; blocks that an earlier copy left are verified unless it
    /// ended in order. That is work of `flow`, and ends with it. `afford` is asked whether the file may have what it lacks,
    /// before it grows.
    pub(super) fn open(
        place: Place,
        entry: &Entry,
        layout: Layout,
        (how, afford): (How, &dyn Fn(Bytes) -> Result<(), TransferError>),
        flow: &Flow,
    ) -> Result<Opened, TransferError> {
        let (name, verify) = (partial_name(&place.name), how.verify);
        // Its owner must be able to go on with it.
        let file: File = lock_partial(&place, &name, entry.mode & 0o777 | 0o600)?.into();
        let source = place.guest.map_or_else(|| Raw::from(entry.name.as_bytes()), |guest| guest.source(entry));
        let facts = journal::Header { layout, modified: entry.modified, source, verify };
        let stat = fstat(&file).map_err(|e| place.error("read", e))?;
        let length = stat.st_size as u64;
        if length > 0 && is_another_guests(&place) {
            // It is neither gone on with nor begun anew.
            return Err(TransferError::Busy { path: place.shown });
        }
        let changed = changed_at(&stat).filter(|_| length == layout.bytes().0);
        let opened = Journal::open(&place, &journal_name(&place.name), &facts, changed);
        let (journal, left) = opened.inspect_err(|_| {
            if length == 0 {
                // Nobody can go on with it.
                let _ = unlinkat(&place.directory, &name, AtFlags::empty());
            }
        })?;
        journal.hold();
        let fate = if place.guest.is_some_and(|guest| !guest.resumes) { USELESS } else { KEPT };
        let first = if matches!(left, Left::Nothing) { fate } else { UNKNOWN };
        let partial = Partial { place, name, file, how, journal: Mutex::new(journal), fate: AtomicU8::new(first) };
        let kept = match left {
            Left::Nothing => {
                let make_room = || flow.spend(Activity::Disk, || partial.make_room(layout.bytes()));
                afford(layout.bytes()).and_then(|()| make_room()).map(|()| Vec::new())
            }
            Left::Synced(blocks) => Ok(blocks),
            // Whether it reached the disk, nothing can tell.
            Left::Written(_) | Left::Recut { synced: false, .. } if !verify.tells_apart() => {
                partial.renew(&[]).map(|()| Vec::new())
            }
            Left::Written(blocks) => partial.verify(&layout, verify, blocks, flow),
            Left::Recut { earlier, blocks, .. } => partial.recut((&earlier, &layout), verify, blocks, flow),
        };
        let kept = kept?;
        partial.fate.store(fate, Ordering::SeqCst);
        let there: u64 = kept.iter().filter_map(|(index, _)| layout.block(*index)).map(|b| u64::from(b.length)).sum();
        afford(Bytes(layout.bytes().0.saturating_sub(there)))?;
        Ok((partial, kept))
    }

    /// The file.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// The directory it stands in.
    pub(super) fn directory(&self) -> &Arc<OwnedFd> {
        &self.place.directory
    }

    /// Whether it was begun at `since` or after it.
    pub(super) fn is_newer(&self, since: Modified) -> bool {
        is_newer(&self.file, OsStr::new(""), AtFlags::EMPTY_PATH, since)
    }

    /// Writes a block, and notes that it is there.
    pub(super) fn write(&self, block: Block, hash: BlockHash, bytes: &[u8]) -> Result<(), TransferError> {
        let failed = |source| TransferError::File { doing: "write", path: self.place.shown.clone(), source };
        let written = match self.how.sparse {
            true => write_sparse(&self.file, block.offset, bytes),
            false => self.file.write_all_at(bytes, block.offset),
        };
        written.map_err(failed)?;
        let noted = lock(&self.journal).note(block.index, hash);
        noted.map_err(|source| TransferError::File {
            doing: "write the journal of",
            path: self.place.shown.clone(),
            source,
        })
    }

    /// Sets what is kept of the source, before the file is synced.
    pub(super) fn dress(&self, entry: &Entry, dressing: &Dressing) -> Result<(), TransferError> {
        dressing.dress(Body::File(&self.file), entry).map_err(|(doing, e)| self.place.error(doing, e))
    }

    /// Gives the file its name; the journal has done its work.
    pub(super) fn publish(&self, replace: bool) -> Result<(), TransferError> {
        let beside = Place { name: self.name.clone(), ..self.place.clone() };
        if beside.stat()?.as_ref().map(inode) != inode_of(&self.file) {
            // Whatever stands there is not this copy's to remove.
            self.fate.store(UNKNOWN, Ordering::SeqCst);
            let why = "something else stands in the place of its partial file";
            return Err(TransferError::Forbidden { path: self.place.shown.clone(), why });
        }
        if let Err(error) = self.place.rename(&self.name, replace) {
            if matches!(error, TransferError::Exists { .. }) {
                // Another copy was first, and left nothing to go on with.
                self.condemn();
            }
            return Err(error);
        }
        self.fate.store(PUBLISHED, Ordering::SeqCst);
        self.remove(&journal_name(&self.place.name));
        Ok(())
    }

    /// Says that nobody can go on with it.
    pub(super) fn condemn(&self) {
        self.fate.store(USELESS, Ordering::SeqCst);
    }

    /// Reads the noted blocks again; the journal is begun anew if one of them is not what it says.
    fn verify(&self, layout: &Layout, verify: Verify, noted: Noted, flow: &Flow) -> Result<Noted, TransferError> {
        let many = noted.len();
        let mut kept = noted;
        self.keep_sound(layout, verify, &mut kept, flow)?;
        if kept.len() != many {
            self.renew(&kept)?;
        }
        Ok(kept)
    }

    /// The blocks that are there whole of a file that an earlier copy cut otherwise; the journal is begun anew with them.
    fn recut(
        &self,
        (earlier, layout): (&Layout, &Layout),
        verify: Verify,
        noted: Noted,
        flow: &Flow,
    ) -> Result<Noted, TransferError> {
        let mut sound = noted;
        self.keep_sound(earlier, verify, &mut sound, flow)?;
        let (mut kept, mut buffer) = (Vec::new(), Vec::new());
        for block in layout.within(earlier, sound.iter().map(|(index, _)| *index)) {
            if flow.is_stopped() {
                return Err(TransferError::Interrupted);
            }
            buffer.resize(block.length as usize, 0);
            kept.extend(self.hash(flow, (layout, block), verify, &mut buffer).map(|hash| (block.index, hash)));
        }
        self.renew(&kept)?;
        Ok(kept)
    }

    /// Leaves those of the noted blocks that are what they were; one that cannot be read is one that was not left.
    fn keep_sound(&self, layout: &Layout, verify: Verify, noted: &mut Noted, flow: &Flow) -> Result<(), TransferError> {
        let mut buffer = vec![0; layout.block_size().min(layout.bytes()).0 as usize];
        noted.retain(|(index, hash)| {
            let Some(block) = layout.block(*index).filter(|_| !flow.is_stopped()) else { return false };
            self.hash(flow, (layout, block), verify, &mut buffer[..block.length as usize]) == Some(*hash)
        });
        if flow.is_stopped() { Err(TransferError::Interrupted) } else { Ok(()) }
    }

    /// Reads a block that is there and hashes it; nothing if it cannot be read. Of a large file there are hours of
    /// that: block by block it is work that is seen.
    fn hash(
        &self,
        flow: &Flow,
        (layout, block): (&Layout, Block),
        verify: Verify,
        buffer: &mut [u8],
    ) -> Option<BlockHash> {
        flow.spend(Activity::Disk, || self.file.read_exact_at(buffer, block.offset)).ok()?;
        Some(flow.spend(Activity::Hash, || verify.hash(layout, block, buffer)))
    }

    /// Begins the journal anew, with these blocks.
    fn renew(&self, kept: &[(u64, BlockHash)]) -> Result<(), TransferError> {
        let renewed = lock(&self.journal).renew(kept);
        let path = || self.place.shown.clone();
        renewed.map_err(|source| TransferError::File { doing: "write the journal of", path: path(), source })
    }

    /// Empties the file and gives it its length; that is reserved too, so that a full disk fails before a byte has moved.
    fn make_room(&self, bytes: Bytes) -> Result<(), TransferError> {
        let failed = |e| self.place.error("write", e);
        ftruncate(&self.file, 0).map_err(failed)?;
        if self.how.sparse {
            return ftruncate(&self.file, bytes.0).map_err(failed);
        }
        let no_space = |available| TransferError::NoSpace { path: self.place.shown.clone(), needed: bytes, available };
        // Asked first: a tmpfs would fill itself up before it refuses.
        let available = available(&self.file);
        if available.is_some_and(|available| available < bytes) {
            return Err(no_space(available.unwrap_or_default()));
        }
        if !self.how.reserve {
            return ftruncate(&self.file, bytes.0).map_err(failed);
        }
        match fallocate(&self.file, FallocateFlags::empty(), 0, bytes.0) {
            Ok(()) => Ok(()),
            // By its length a later copy knows that the file is the journal's.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => ftruncate(&self.file, bytes.0).map_err(failed),
            Err(Errno::NOSPC | Errno::DQUOT) => Err(no_space(available.unwrap_or_default())),
            Err(error) => Err(failed(error)),
        }
    }

    fn remove(&self, name: &OsStr) {
        let _ = unlinkat(&self.place.directory, name, AtFlags::empty());
    }
}

impl Drop for Partial {
    /// Whoever wrote to it is through: nothing is noted that is not written.
    fn drop(&mut self) {
        let mut journal = lock(&self.journal);
        journal.let_go();
        match self.fate.load(Ordering::SeqCst) {
            PUBLISHED | UNKNOWN => {}
            // The kernel tells once that something did not reach the disk, and shows it whole all the same: who lets that go
            // by believes it for ever.
            KEPT if journal.blocks() > 0 && fsync(&self.file).is_ok() => {
                // If that fails, the next copy verifies what it finds.
                if let Some(changed) = fstat(&self.file).ok().as_ref().and_then(changed_at) {
                    let _ = journal.close(changed);
                }
            }
            _ => {
                // Still locked: they are this copy's own, the journal as long as the partial file has its name.
                self.remove(&journal_name(&self.place.name));
                self.remove(&self.name);
            }
        }
    }
}

/// Whether a partial file there is held only until it is on disk: the copy that wrote it is over.
pub(super) fn is_let_go(place: &Place) -> bool {
    Journal::is_let_go(place, &journal_name(&place.name))
}

/// Whether a partial file there is none of this guest's, if whoever copies is one. What a crash left without a journal that
/// says whose it is, nobody can go on with: it is as good as nothing.
pub(super) fn is_another_guests(place: &Place) -> bool {
    let owns = |guest: &Guest| match Journal::source(place, &journal_name(&place.name)) {
        Ok(source) => source.is_none_or(|source| guest.owns(&source)),
        Err(_) => false,
    };
    place.guest.as_ref().is_some_and(|guest| !owns(guest))
}

/// Locks the partial name for a small file, which uses it for a moment; what an earlier copy left there goes.
pub(super) fn take_partial_name(place: &Place, mode: u32) -> Result<OwnedFd, TransferError> {
    let name = partial_name(&place.name);
    let stale = lock_partial(place, &name, mode)?;
    let length = fstat(&stale).map_err(|e| place.error("read", e))?.st_size;
    if length > 0 && is_another_guests(place) {
        return Err(TransferError::Busy { path: place.shown.clone() });
    }
    unlinkat(&place.directory, &name, AtFlags::empty()).map_err(|e| place.error("create", e))?;
    let _ = unlinkat(&place.directory, journal_name(&place.name), AtFlags::empty());
    Ok(stale)
}

/// Sets the time of change, and leaves that of the last reading.
pub(super) fn keep_time(file: impl AsFd, entry: &Entry) -> Result<(), Errno> {
    futimens(file, &times(entry))
}

/// The times of an entry, for the kernel.
pub(super) fn times(entry: &Entry) -> Timestamps {
    modified_at(entry.modified)
}

/// The time of change, for the kernel; that of the last reading is left.
pub(super) fn modified_at(modified: Modified) -> Timestamps {
    let modified = Timespec { tv_sec: modified.seconds(), tv_nsec: i64::from(modified.nanoseconds()) };
    Timestamps { last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT }, last_modification: modified }
}

/// When anything about a file was changed last.
fn changed_at(stat: &Stat) -> Option<Modified> {
    Modified::new(stat.st_ctime, u32::try_from(stat.st_ctime_nsec).ok()?).ok()
}

/// Opens a file beside the destination and locks it; what an earlier copy left there is taken over.
pub(super) fn lock_partial(place: &Place, name: &OsStr, mode: u32) -> Result<OwnedFd, TransferError> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(mode & 0o777);
    // Between open and lock another copy may publish or remove the file: then it is no longer the one of that name.
    for _ in 0..16 {
        let file = match openat(&place.directory, name, flags, mode) {
            Err(Errno::ACCESS) if reopen(place, name)? => continue,
            // A copy was killed before it could give the link its name.
            Err(Errno::LOOP) if is_symlink(place, name) => {
                unlinkat(&place.directory, name, AtFlags::empty()).map_err(|e| place.error("create", e))?;
                continue;
            }
            opened => opened.map_err(|e| place.error("create", e))?,
        };
        lock_open(&file, place)?;
        let ours = fstat(&file).map_err(|e| place.error("create", e))?;
        match statat(&place.directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(named) if inode(&named) == inode(&ours) => {
                if named.st_nlink > 1 && !has_journal(place) {
                    // The same of another name of a file. What is in it has that.
                    unlinkat(&place.directory, name, AtFlags::empty()).map_err(|e| place.error("create", e))?;
                    continue;
                }
                only_one(&file, place)?;
                return Ok(file);
            }
            _ => continue,
        }
    }
    Err(TransferError::Busy { path: place.shown.clone() })
}

fn is_symlink(place: &Place, name: &OsStr) -> bool {
    statat(&place.directory, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
}

fn has_journal(place: &Place) -> bool {
    statat(&place.directory, journal_name(&place.name), AtFlags::SYMLINK_NOFOLLOW).err() != Some(Errno::NOENT)
}

fn lock_open(file: &OwnedFd, place: &Place) -> Result<(), TransferError> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => Err(TransferError::Busy { path: place.shown.clone() }),
        Err(error) => Err(place.error("lock the partial file of", error)),
    }
}

/// Lets its owner write again to a partial file that has the mode of its source already: the copy was ended while it
/// put it on disk. False if it is not that which forbids it.
fn reopen(place: &Place, name: &OsStr) -> Result<bool, TransferError> {
    const OWNERS: u32 = 0o600;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = openat(&place.directory, name, flags, Mode::empty()) else { return Ok(false) };
    // A copy that is about to name it holds it.
    lock_open(&file, place)?;
    only_one(&file, place)?;
    let mode = fstat(&file).map_err(|e| place.error("create", e))?.st_mode & 0o777;
    Ok(mode & OWNERS != OWNERS && fchmod(&file, Mode::from_raw_mode(mode | OWNERS)).is_ok())
}

/// A file that is written to in the dark must have no other name.
pub(super) fn only_one(file: &OwnedFd, place: &Place) -> Result<(), TransferError> {
    let stat = fstat(file).map_err(|e| place.error("create", e))?;
    only_regular(&stat, &format!("the partial file of {}", place.shown))?;
    if stat.st_nlink == 1 {
        return Ok(());
    }
    let why = "its partial file has another name too: remove one of them";
    Err(TransferError::Forbidden { path: place.shown.clone(), why })
}

/// What an ordinary user may still write; `None` where the file system does not say.
fn available(file: impl AsFd) -> Option<Bytes> {
    let stat = fstatvfs(file).ok()?;
    (stat.f_blocks > 0).then(|| Bytes(stat.f_bavail.saturating_mul(stat.f_frsize)))
}
