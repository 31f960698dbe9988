//! A partial file and its journal: whether they belong to a copy, whether a copy uses them, and their removal.
//!
//! A copy holds the lock of its partial file as long as it may write to either file. So the removal takes that lock
//! first, checks the files again, and removes the journal before the locked file. No copy can have started to use them
//! in between.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::time::Duration;

use lfn_base::units::Bytes;
use lfn_session::wire::copy::byte_string::ByteString;
use lfn_sys::clock;
use rustix::fs::{AtFlags, Dir, FlockOperation, Mode, OFlags, Stat, flock, fstat, openat, statat, unlinkat};
use rustix::io::Errno;

use super::super::base_dir::non_regular_kind;
use super::super::{TransferError, write_only};
use crate::proto::journal::{JournalHeader, JournalReader};
use crate::proto::leftover::{
    CleanRule, JOURNAL, Leftover, LeftoverState, NotRecognised, PARTIAL, REPLACED, recognise,
};

/// `.STEM.lfn-partial` and `.STEM.lfn-journal` in a directory. Either may be missing.
pub(super) struct LeftoverPair<'a> {
    pub(super) directory: &'a OwnedFd,
    pub(super) stem: &'a [u8],
}

/// Facts about both files.
#[derive(Default)]
struct PairInfo {
    partial: Option<Stat>,
    journal: Option<Stat>,
    header: Option<JournalHeader>,
    /// The received bytes, according to the journal.
    received: Option<Bytes>,
    not_recognised: Option<NotRecognised>,
}

/// Called regularly during long reads. An error ends the search.
type Tick<'a> = &'a mut dyn FnMut() -> Result<(), TransferError>;

/// A leftover without the path of its directory.
pub(super) struct FoundLeftover {
    name: Vec<u8>,
    leftover: Leftover,
}

impl FoundLeftover {
    /// Returns the leftover with its whole path.
    pub(super) fn with_path(self, path: impl Fn(&[u8]) -> Vec<u8>) -> Leftover {
        Leftover { path: ByteString(path(&self.name)), ..self.leftover }
    }
}

/// Result of an attempt to lock the partial file.
enum LockAttempt {
    Locked(OwnedFd),
    /// A copy uses the file.
    InUse,
}

impl LeftoverPair<'_> {
    fn name(&self, suffix: &str) -> Vec<u8> {
        [b".", self.stem, suffix.as_bytes()].concat()
    }

    fn stat(&self, suffix: &str) -> Result<Option<Stat>, Errno> {
        match statat(self.directory, self.name(suffix), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns whether the partial file exists.
    pub(super) fn has_partial(&self) -> bool {
        self.stat(PARTIAL).is_ok_and(|stat| stat.is_some())
    }

    /// Cleans an entry that a directory was to replace. If it is the new directory and still empty, the rule applies;
    /// otherwise the entry is only reported.
    pub(super) fn clean_replaced(&self, rule: CleanRule) -> Option<FoundLeftover> {
        let stat = self.stat(REPLACED).ok()??;
        let info = PairInfo { partial: Some(stat), ..PairInfo::default() };
        let (name, mut left) = (self.name(REPLACED), info.leftover());
        if !self.is_empty_directory() {
            left.reason = Some(NotRecognised::Replaced.to_string());
            return Some(FoundLeftover { name, leftover: left });
        }
        left.state = match LeftoverState::classify(false, true, left.age, rule.min_age) {
            LeftoverState::Stale if rule.remove => match unlinkat(self.directory, &name, AtFlags::REMOVEDIR) {
                Ok(()) => LeftoverState::Removed,
                Err(error) => {
                    left.reason = Some(std::io::Error::from(error).to_string());
                    LeftoverState::Failed
                }
            },
            state => state,
        };
        Some(FoundLeftover { name, leftover: left })
    }

    /// Reports the pair, and removes it if the rule requires this. Returns `None` if both files are gone.
    pub(super) fn clean(&self, rule: CleanRule, tick: Tick<'_>) -> Result<Option<FoundLeftover>, TransferError> {
        let (info, error) = match self.read_info(tick)? {
            Ok(info) => (info, None),
            Err(error) => (PairInfo::default(), Some(error)),
        };
        if error.is_none() && info.partial.is_none() && info.journal.is_none() {
            return Ok(None);
        }
        let name = self.name(if info.journal.is_some() && info.partial.is_none() { JOURNAL } else { PARTIAL });
        let mut left = info.leftover();
        let state = error.map_or_else(|| self.classify(&info, &left, rule), Err);
        let state = match state {
            Ok(LeftoverState::Stale) if rule.remove => self.remove(rule, tick)?,
            state => state,
        };
        left.state = state.unwrap_or(LeftoverState::Failed);
        left.reason = match (state, &info.not_recognised) {
            (Err(error), _) => Some(std::io::Error::from(error).to_string()),
            (Ok(LeftoverState::Unrecognised), Some(not_recognised)) => Some(not_recognised.to_string()),
            _ => None,
        };
        Ok(Some(FoundLeftover { name, leftover: left }))
    }

    fn classify(&self, info: &PairInfo, left: &Leftover, rule: CleanRule) -> Result<LeftoverState, Errno> {
        let busy = match &info.partial {
            // A shared lock: two searches must not take each other for a copy.
            Some(stat) if non_regular_kind(stat).is_none() => {
                matches!(self.lock(OFlags::RDONLY, FlockOperation::NonBlockingLockShared)?, LockAttempt::InUse)
            }
            _ => false,
        };
        Ok(LeftoverState::classify(busy, info.not_recognised.is_none(), left.age, rule.min_age))
    }

    /// Locks the partial file. `flags` may create a missing file.
    fn lock(&self, flags: OFlags, operation: FlockOperation) -> Result<LockAttempt, Errno> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match openat(self.directory, self.name(PARTIAL), flags, Mode::from_raw_mode(0o600)) {
            // A copy has just started or finished.
            Err(Errno::EXIST | Errno::NOENT) => return Ok(LockAttempt::InUse),
            opened => opened?,
        };
        match flock(&file, operation) {
            Err(Errno::WOULDBLOCK) => return Ok(LockAttempt::InUse),
            locked => locked?,
        }
        // Between open and lock, a copy may have published the file and another copy created a new one.
        let locked_stat = fstat(&file)?;
        match self.stat(PARTIAL)? {
            Some(named) if (named.st_dev, named.st_ino) == (locked_stat.st_dev, locked_stat.st_ino) => {
                Ok(LockAttempt::Locked(file))
            }
            _ => Ok(LockAttempt::InUse),
        }
    }

    /// Removes both files, if they still match the rule after the lock.
    fn remove(&self, rule: CleanRule, tick: Tick<'_>) -> Result<Result<LeftoverState, Errno>, TransferError> {
        // A journal without a partial file has no lock. Create the partial file, as a copy would do.
        let created = !self.has_partial();
        let new = if created { OFlags::CREATE | OFlags::EXCL } else { OFlags::empty() };
        let lock = |access| self.lock(access | new, FlockOperation::NonBlockingLockExclusive);
        // A partial file may have the final mode of its source, without write access. NFS locks a file exclusively only
        // with write access.
        let lock = match lock(OFlags::RDWR) {
            Err(Errno::ACCESS) => lock(OFlags::RDONLY),
            locked => locked,
        };
        let lock = match lock {
            Ok(LockAttempt::Locked(lock)) => lock,
            Ok(LockAttempt::InUse) => return Ok(Ok(LeftoverState::InUse)),
            Err(error) => return Ok(Err(error)),
        };
        let unlink = |suffix: &str| match unlinkat(self.directory, self.name(suffix), AtFlags::empty()) {
            Err(Errno::NOENT) => Ok(()),
            result => result,
        };
        let removed = match self.read_info(tick) {
            Err(error) => Err(error),
            Ok(Err(error)) => Ok(Err(error)),
            Ok(Ok(info)) => {
                // The file that was just created must not affect the age.
                let info = if created { PairInfo { partial: None, ..info } } else { info };
                match LeftoverState::classify(false, info.not_recognised.is_none(), info.age(), rule.min_age) {
                    LeftoverState::Stale => {
                        Ok(unlink(JOURNAL).and_then(|()| unlink(PARTIAL)).map(|()| LeftoverState::Removed))
                    }
                    state => Ok(Ok(state)),
                }
            }
        };
        if created {
            let _ = unlink(PARTIAL);
        }
        drop(lock);
        removed
    }

    fn read_info(&self, tick: Tick<'_>) -> Result<Result<PairInfo, Errno>, TransferError> {
        let stats = self.stat(PARTIAL).and_then(|partial| Ok((partial, self.stat(JOURNAL)?)));
        let (partial, journal) = match stats {
            Ok(stats) => stats,
            Err(error) => return Ok(Err(error)),
        };
        let mut info = PairInfo { partial, journal, ..PairInfo::default() };
        let unusual =
            [&info.partial, &info.journal].into_iter().flatten().find_map(|stat| match non_regular_kind(stat) {
                Some(kind) => Some(NotRecognised::Kind(kind.word())),
                None => (stat.st_nlink > 1).then_some(NotRecognised::Linked),
            });
        if unusual.is_some() {
            info.not_recognised = unusual;
            return Ok(Ok(info));
        }
        let read = match info.journal {
            Some(_) => self.read_journal(tick)?,
            None => Ok(Err(NotRecognised::NoJournal)),
        };
        let described = match read {
            Ok(described) => described,
            Err(error) => return Ok(Err(error)),
        };
        let length = info.partial.as_ref().map(|stat| Bytes(stat.st_size as u64));
        info.not_recognised = match described {
            Ok((header, received)) => {
                let known = recognise(Some(&header), length);
                info.header = Some(header);
                info.received = Some(received);
                known.err()
            }
            // The copy was interrupted before its first write, so the files cannot contain data of another program.
            Err(_) if info.is_empty() => None,
            Err(not_recognised) => Some(not_recognised),
        };
        Ok(Ok(info))
    }

    /// Returns whether the replaced entry is an empty directory.
    pub(super) fn is_empty_directory(&self) -> bool {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let entries = openat(self.directory, self.name(REPLACED), flags, Mode::empty()).and_then(Dir::read_from);
        entries.is_ok_and(|mut entries| {
            entries.all(|entry| entry.is_ok_and(|entry| matches!(entry.file_name().to_bytes(), b"." | b"..")))
        })
    }

    /// Reads the header of the journal and counts its records. Damaged records at the end do not matter here.
    #[expect(
        clippy::type_complexity,
        reason = "three levels of errors: the search ends, the file cannot be read, the file is no journal"
    )]
    fn read_journal(
        &self,
        tick: Tick<'_>,
    ) -> Result<Result<Result<(JournalHeader, Bytes), NotRecognised>, Errno>, TransferError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let mut file: File = match openat(self.directory, self.name(JOURNAL), flags, Mode::empty()) {
            Ok(file) => file.into(),
            Err(Errno::NOENT) => return Ok(Ok(Err(NotRecognised::NoJournal))),
            Err(error) => return Ok(Err(error)),
        };
        let (mut reader, mut buffer, mut blocks) = (JournalReader::default(), vec![0; 64 << 10], 0_u64);
        loop {
            tick()?;
            let read = match file.read(&mut buffer) {
                Ok(read) => read,
                Err(error) => return Ok(Err(Errno::from_io_error(&error).unwrap_or(Errno::IO))),
            };
            match reader.feed(&buffer[..read], |_| blocks += 1) {
                Ok(true) if read > 0 => {}
                Ok(_) => break,
                Err(error) => return Ok(Ok(Err(error.into()))),
            }
        }
        Ok(Ok(match reader.finish() {
            Ok(ending) => {
                let layout = ending.header.layout;
                let received = blocks.saturating_mul(layout.block_size().0).min(layout.bytes().0);
                Ok((ending.header, Bytes(received)))
            }
            // The journal is empty, or its header is incomplete.
            Err(error) => Err(NotRecognised::from(error)),
        }))
    }
}

impl PairInfo {
    /// Returns the time since the last write to either file.
    fn age(&self) -> Duration {
        let now = clock::since_1970();
        let times = [&self.partial, &self.journal].into_iter().flatten().map(|stat| stat.st_mtime);
        let written = times.max().and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or_default();
        Duration::from_secs(now.as_secs().saturating_sub(written))
    }

    /// Returns whether a journal exists, and both files are empty.
    fn is_empty(&self) -> bool {
        self.journal.is_some() && [&self.partial, &self.journal].into_iter().flatten().all(|stat| stat.st_size == 0)
    }

    fn leftover(&self) -> Leftover {
        let disk_usage =
            [&self.partial, &self.journal].into_iter().flatten().map(|stat| 512 * stat.st_blocks as u64).sum();
        let header = self.header.as_ref().filter(|_| self.not_recognised.is_none());
        Leftover {
            path: ByteString::default(),
            // The source name of a write-only client is not known here.
            source: header.map(|header| header.source.clone()).filter(|source| !write_only::is_tag(source)),
            bytes: header.map(|header| header.layout.bytes()),
            received: self.received.filter(|_| header.is_some()),
            disk_usage: Bytes(disk_usage),
            age: self.age(),
            state: LeftoverState::Unrecognised,
            reason: None,
        }
    }
}
