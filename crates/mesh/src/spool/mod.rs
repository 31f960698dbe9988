//! The spool of an agent: entries on disk until the hub acknowledges them.
//!
//! Entries are appended to segments, which are files named by the number of their first entry. An entry is a frame: its length,
//! a checksum and its JSON. [`Spool::append`] returns when the frame is on disk. After a crash, an incomplete frame at the end
//! of the last segment is cut off: its entry was never reported as stored. Acknowledged segments are deleted. Damaged entries
//! are counted ([`Spool::take_damage`]), the others are kept, and the damaged file is copied before it changes.
//!
//! [`Spool::reserve`] allocates disk space before a measurement, so that a full disk prevents a measurement and never loses
//! its entry.

mod error;
mod frame;
#[cfg(test)]
mod tests;

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock};

use crate::entry::Entry;
pub use error::SpoolError;
use frame::Frame;

/// Length of a segment after which the next one begins, bytes.
const SEGMENT_BYTES: u64 = 1 << 20;

/// File that has the number of the last acknowledged entry.
const ACKNOWLEDGED: &str = "acknowledged";

/// An entry in the spool.
#[derive(Debug, Clone, PartialEq)]
pub struct SpooledEntry {
    /// Number of the entry, from 1.
    pub number: u64,
    /// The entry as JSON.
    pub json: String,
}

/// A file of consecutive entries.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Segment {
    /// Number of the first entry.
    first: u64,
    path: PathBuf,
    /// Length of the complete frames, bytes.
    length: u64,
    /// Number of its entries, from 0.
    entries: u64,
}

/// The entries of an agent on disk. One process at a time uses a spool.
#[derive(Debug)]
pub struct Spool {
    directory: PathBuf,
    max_bytes: u64,
    /// Segments with entries that are not acknowledged, in order. New entries go to the last one.
    segments: Vec<Segment>,
    /// The last segment, open for writing.
    open: Option<File>,
    acknowledged: u64,
    next: u64,
    /// Disk space that measurements have reserved, bytes.
    reserved: u64,
    damage: Option<SpoolDamage>,
    _lock: File,
}

/// Damage that was found when the spool was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpoolDamage {
    /// Entries that are lost, at least.
    pub lost: u64,
    /// Copy of the damaged file.
    pub path: PathBuf,
}

impl Spool {
    /// Opens or creates the spool in a directory. `max_bytes` limits its length on disk.
    pub fn open(directory: &Path, max_bytes: u64) -> Result<Self, SpoolError> {
        let failed = |source| SpoolError::Io { path: directory.to_owned(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
        let lock = lock(directory)?;
        let mut names: Vec<(u64, PathBuf)> =
            fs::read_dir(directory).map_err(failed)?.filter_map(|file| segment_name(&file.ok()?.path())).collect();
        names.sort();
        let first = names.first().map_or(1, |(first, _)| *first);
        // Without a number, the hub receives all entries of the spool again, and knows those that it has.
        let acknowledged = read_acknowledged(&directory.join(ACKNOWLEDGED))?.unwrap_or(first - 1);
        let (mut segments, mut damage) = (Vec::new(), None);
        for (first, path) in names {
            let (segment, lost) = recover(first, path)?;
            if lost > 0 {
                damage = Some(keep_copy(&segment.path, lost)?);
            }
            segments.push(segment);
        }
        let after_last = segments.last().map_or(1, |segment: &Segment| segment.first + segment.entries);
        let next = after_last.max(acknowledged + 1);
        if after_last < next {
            // A crash lost acknowledged entries. The numbers of the next entries continue in a new segment.
            for segment in segments.drain(..) {
                fs::remove_file(&segment.path).map_err(failed)?;
            }
        }
        let directory = directory.to_owned();
        let (open, reserved) = (None, 0);
        let mut spool =
            Spool { directory, max_bytes, segments, open, acknowledged, next, reserved, damage, _lock: lock };
        spool.delete_acknowledged()?;
        Ok(spool)
    }

    /// Returns the damage that was found when the spool was opened, once.
    pub fn take_damage(&mut self) -> Option<SpoolDamage> {
        self.damage.take()
    }

    /// Returns the number of entries that the hub has not acknowledged.
    pub fn pending(&self) -> u64 {
        self.next - 1 - self.acknowledged
    }

    /// Returns the number of entries that were ever appended.
    pub fn appended(&self) -> u64 {
        self.next - 1
    }

    /// Returns the number of the last acknowledged entry; 0 before the first one.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Appends an entry, and returns its number when it is on disk. The detail of an entry that is too long is omitted.
    pub fn append(&mut self, entry: &Entry) -> Result<u64, SpoolError> {
        let encode = |entry: &Entry| serde_json::to_vec(entry).map(|json| frame::encode(&json));
        let encoded = match encode(entry) {
            Ok(None) => encode(&Entry { detail: None, ..entry.clone() }),
            encoded => encoded,
        };
        let bytes = encoded.map_err(|error| self.failed(io::Error::other(error)))?.ok_or(SpoolError::TooLong)?;
        self.check_size(bytes.len() as u64)?;
        self.ready_segment()?;
        let written = self.write(&bytes);
        let number = self.next;
        match (written, self.segments.last_mut()) {
            (Ok(()), Some(segment)) => {
                segment.length += bytes.len() as u64;
                segment.entries += 1;
                self.next += 1;
                Ok(number)
            }
            (Ok(()), None) => Err(self.failed(io::Error::other("no segment"))),
            (Err(error), _) => {
                // The next entry must not follow a part of this one.
                self.open = None;
                self.truncate_last()?;
                Err(self.failed(error))
            }
        }
    }

    /// Allocates disk space for entries of this length before they are measured, next to the space that others have reserved.
    /// [`Spool::release`] ends the reservation.
    pub fn reserve(&mut self, bytes: u64) -> Result<(), SpoolError> {
        self.check_size(self.reserved + bytes)?;
        self.ready_segment()?;
        let end = self.segments.last().map_or(0, |segment| segment.length);
        if let Some(file) = &self.open {
            allocate(file, end, self.reserved + bytes).map_err(|error| self.failed(error))?;
        }
        self.reserved += bytes;
        Ok(())
    }

    /// Ends a reservation of this length.
    pub fn release(&mut self, bytes: u64) {
        self.reserved = self.reserved.saturating_sub(bytes);
    }

    /// Returns the first entries that are not acknowledged: at most `max_entries` of them, of about `max_bytes` together, and at
    /// least one if there is one.
    pub fn pending_entries(&self, max_entries: usize, max_bytes: usize) -> Result<Vec<SpooledEntry>, SpoolError> {
        let mut entries: Vec<SpooledEntry> = Vec::new();
        let mut total = 0;
        for segment in &self.segments {
            let mut reader = frame::Reader::open(&segment.path, segment.length)?;
            let mut number = segment.first;
            while let Some(Frame { json, .. }) = reader.next_frame()? {
                if let Some(json) = json.filter(|_| number > self.acknowledged) {
                    total += json.len();
                    if entries.len() == max_entries || (total > max_bytes && !entries.is_empty()) {
                        return Ok(entries);
                    }
                    let json = String::from_utf8(json)
                        .map_err(|_| SpoolError::Damaged { path: segment.path.clone(), offset: reader.offset() })?;
                    entries.push(SpooledEntry { number, json });
                }
                number += 1;
            }
        }
        Ok(entries)
    }

    /// Records that the hub has stored all entries up to `number`, and deletes what is no longer needed. Numbers beyond the last
    /// entry count as the last one.
    pub fn acknowledge(&mut self, number: u64) -> Result<(), SpoolError> {
        let number = number.min(self.next - 1);
        if number <= self.acknowledged {
            return Ok(());
        }
        write_acknowledged(&self.directory.join(ACKNOWLEDGED), number).map_err(|error| self.failed(error))?;
        self.acknowledged = number;
        self.delete_acknowledged()
    }

    /// Writes a frame and syncs it.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(file) = &mut self.open else { return Err(io::Error::other("no open segment")) };
        file.write_all(bytes)?;
        file.sync_data()
    }

    /// Opens the segment for the next entry.
    fn ready_segment(&mut self) -> Result<(), SpoolError> {
        let is_full = self.segments.last().is_none_or(|segment| segment.length >= SEGMENT_BYTES);
        if is_full {
            match self.new_segment() {
                // Space is reserved in the segment that is open: the entry of a measurement goes there.
                Err(_) if self.reserved > 0 && self.open.is_some() => {}
                created => created?,
            }
        }
        if self.open.is_none() {
            self.truncate_last()?;
        }
        Ok(())
    }

    /// Creates a segment for the next entries, with all space that is reserved.
    fn new_segment(&mut self) -> Result<(), SpoolError> {
        let path = self.directory.join(format!("{:020}.entries", self.next));
        let create = || -> io::Result<File> {
            let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
            let ready = allocate(&file, 0, self.reserved)
                // The name of the new file must survive a crash, too.
                .and_then(|()| File::open(&self.directory)?.sync_all());
            if ready.is_err() {
                fs::remove_file(&path)?;
            }
            ready.map(|()| file)
        };
        let file = create().map_err(|error| self.failed(error))?;
        self.segments.push(Segment { first: self.next, path, length: 0, entries: 0 });
        self.open = Some(file);
        Ok(())
    }

    /// Opens the last segment at the end of its complete frames, and cuts off what follows.
    fn truncate_last(&mut self) -> Result<(), SpoolError> {
        let Some(segment) = self.segments.last() else { return Ok(()) };
        let open = || -> io::Result<File> {
            let mut file = OpenOptions::new().write(true).open(&segment.path)?;
            file.set_len(segment.length)?;
            file.seek(SeekFrom::End(0))?;
            Ok(file)
        };
        self.open = Some(open().map_err(|error| self.failed(error))?);
        Ok(())
    }

    fn delete_acknowledged(&mut self) -> Result<(), SpoolError> {
        let done = |segment: &Segment| segment.first + segment.entries <= self.acknowledged + 1;
        // The last segment is open; a short one is kept for the next entries.
        while self.segments.first().is_some_and(done)
            && (self.segments.len() > 1 || self.segments[0].length >= SEGMENT_BYTES)
        {
            let segment = self.segments.remove(0);
            if self.segments.is_empty() {
                self.open = None;
            }
            fs::remove_file(&segment.path).map_err(|source| SpoolError::Io { path: segment.path, source })?;
        }
        Ok(())
    }

    /// Checks that the spool may grow by this length. The segment that is kept for the next entries must not fill a small spool
    /// for ever: without entries to send, the segment is deleted.
    fn check_size(&mut self, bytes: u64) -> Result<(), SpoolError> {
        if self.length() + bytes > self.max_bytes && self.pending() == 0 {
            self.open = None;
            for segment in self.segments.drain(..) {
                fs::remove_file(&segment.path).map_err(|source| SpoolError::Io { path: segment.path, source })?;
            }
        }
        if self.length() + bytes > self.max_bytes {
            return Err(SpoolError::TooLarge { path: self.directory.clone(), max: self.max_bytes });
        }
        Ok(())
    }

    /// Returns the length of all segments, bytes.
    fn length(&self) -> u64 {
        self.segments.iter().map(|segment| segment.length).sum()
    }

    fn failed(&self, error: io::Error) -> SpoolError {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => SpoolError::Full(self.directory.clone()),
            _ => SpoolError::Io { path: self.directory.clone(), source: error },
        }
    }
}

/// Locks the spool against other processes.
fn lock(directory: &Path) -> Result<File, SpoolError> {
    let path = directory.join("lock");
    let failed = |source| SpoolError::Io { path: path.clone(), source };
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path).map_err(failed)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(rustix::io::Errno::WOULDBLOCK) => Err(SpoolError::InUse(directory.to_owned())),
        locked => locked.map(|()| file).map_err(|error| failed(error.into())),
    }
}

/// Allocates disk space without changing the length of the file.
fn allocate(file: &File, start: u64, bytes: u64) -> io::Result<()> {
    match fallocate(file, FallocateFlags::KEEP_SIZE, start, bytes.max(1)) {
        // Some file systems have no preallocation. An entry that does not fit is then reported by `append`.
        Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
        allocated => Ok(allocated?),
    }
}

/// Writes the number of the last acknowledged entry over the old one: a full disk has no space for a second file. The number is
/// written twice, so that a torn write is found.
fn write_acknowledged(path: &Path, number: u64) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
    file.write_all(format!("{number:020} {number:020}\n").as_bytes())?;
    file.sync_data()
}

/// Reads the number of the last acknowledged entry: 0 without a file, and `None` from a damaged file.
fn read_acknowledged(path: &Path) -> Result<Option<u64>, SpoolError> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(64).read_to_end(&mut bytes));
    match read {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Some(0)),
        Err(source) => return Err(SpoolError::Io { path: path.to_owned(), source }),
        Ok(_) => {}
    }
    let text = str::from_utf8(&bytes).unwrap_or_default();
    let numbers = text.trim_end().split_once(' ').filter(|(first, second)| first == second);
    Ok(numbers.and_then(|(number, _)| number.parse().ok()))
}

/// Copies a damaged segment, and returns its damage.
fn keep_copy(segment: &Path, lost: u64) -> Result<SpoolDamage, SpoolError> {
    let path = segment.with_extension("damaged");
    fs::copy(segment, &path).map_err(|source| SpoolError::Io { path: path.clone(), source })?;
    Ok(SpoolDamage { lost, path })
}

/// Returns the number of the first entry of a segment, if the file is one.
fn segment_name(path: &Path) -> Option<(u64, PathBuf)> {
    let number = path.file_name()?.to_str()?.strip_suffix(".entries")?;
    Some((number.parse().ok()?, path.to_owned()))
}

/// Counts the frames of a segment, and its lost entries. An incomplete frame at the end was never reported as stored, and is not
/// lost.
fn recover(first: u64, path: PathBuf) -> Result<(Segment, u64), SpoolError> {
    let size = fs::metadata(&path).map_err(|source| SpoolError::Io { path: path.clone(), source })?.len();
    let mut reader = frame::Reader::open(&path, size)?;
    let mut segment = Segment { first, path, length: 0, entries: 0 };
    let mut lost = 0;
    loop {
        match reader.next_frame() {
            // The last frame was not written completely.
            Ok(Some(Frame { json: None, end })) if end == size => return Ok((segment, lost)),
            Ok(Some(Frame { json, end })) => {
                segment.length = end;
                segment.entries += 1;
                lost += u64::from(json.is_none());
            }
            Ok(None) => return Ok((segment, lost)),
            Err(SpoolError::Damaged { offset, .. }) => {
                // With a damaged length, the entries after it are not found again.
                let failed = |source| SpoolError::Io { path: segment.path.clone(), source };
                let bytes = fs::read(&segment.path).map_err(failed)?;
                let rest = usize::try_from(offset).ok().and_then(|offset| bytes.get(offset..)).unwrap_or_default();
                return Ok((segment, lost + u64::from(frame::has_frame_after_start(rest))));
            }
            Err(error) => return Err(error),
        }
    }
}
