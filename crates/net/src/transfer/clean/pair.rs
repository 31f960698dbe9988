//! One partial file and its journal: what they are, whether a copy has them, and their end.
//!
//! A copy holds the lock of its partial file as long as it may write either. So whoever removes them takes that lock first,
//! looks again, and removes the journal before the file whose lock it holds: no copy can have begun to use either.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::time::{Duration, SystemTime};

use lfn_core::transfer::journal::{Header, Reader};
use lfn_core::transfer::leftover::{Foreign, JOURNAL, Leftover, PARTIAL, REPLACED, Rule, State, recognise};
use lfn_core::transfer::raw::Raw;
use lfn_core::units::Bytes;
use rustix::fs::{AtFlags, Dir, FlockOperation, Mode, OFlags, Stat, flock, fstat, openat, statat, unlinkat};
use rustix::io::Errno;

use super::super::TransferError;
use super::super::guest;
use super::super::place::kind_of;

/// `.STEM.lfn-partial` and `.STEM.lfn-journal` in a directory; either may be missing.
pub(super) struct Pair<'a> {
    pub(super) directory: &'a OwnedFd,
    pub(super) stem: &'a [u8],
}

/// What can be seen of both.
#[derive(Default)]
struct Facts {
    partial: Option<Stat>,
    journal: Option<Stat>,
    header: Option<Header>,
    /// By the journal.
    kept: Option<Bytes>,
    foreign: Option<Foreign>,
}

/// Called now and then; an error ends it.
type Tick<'a> = &'a mut dyn FnMut() -> Result<(), TransferError>;

/// Before it is known which directory it is in.
pub(super) struct Found {
    name: Vec<u8>,
    left: Leftover,
}

impl Found {
    /// With its whole path.
    pub(super) fn below(self, path: impl Fn(&[u8]) -> Vec<u8>) -> Leftover {
        Leftover { path: Raw(path(&self.name)), ..self.left }
    }
}

/// How far to go, and what stood in the way.
enum Lock {
    /// Held.
    Taken(OwnedFd),
    /// A copy has it.
    Busy,
}

impl Pair<'_> {
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

    /// Whether the partial file is there.
    pub(super) fn has_partial(&self) -> bool {
        self.stat(PARTIAL).is_ok_and(|stat| stat.is_some())
    }

    /// What a directory was to take the place of, if that stands aside; or the directory, if that is empty still.
    pub(super) fn replaced(&self, rule: Rule) -> Option<Found> {
        let stat = self.stat(REPLACED).ok()??;
        let facts = Facts { partial: Some(stat), ..Facts::default() };
        let (name, mut left) = (self.name(REPLACED), facts.leftover());
        if !self.is_empty_directory() {
            left.why = Some(Foreign::Replaced.to_string());
            return Some(Found { name, left });
        }
        left.state = match State::of(false, true, left.age, rule.older) {
            State::Stale if rule.remove => match unlinkat(self.directory, &name, AtFlags::REMOVEDIR) {
                Ok(()) => State::Removed,
                Err(error) => {
                    left.why = Some(std::io::Error::from(error).to_string());
                    State::Failed
                }
            },
            state => state,
        };
        Some(Found { name, left })
    }

    /// Says what it is, and removes it if that is asked for and it may go; nothing if both are gone.
    pub(super) fn look(&self, rule: Rule, tick: Tick<'_>) -> Result<Option<Found>, TransferError> {
        let (facts, error) = match self.facts(tick)? {
            Ok(facts) => (facts, None),
            Err(error) => (Facts::default(), Some(error)),
        };
        if error.is_none() && facts.partial.is_none() && facts.journal.is_none() {
            return Ok(None);
        }
        let name = self.name(if facts.journal.is_some() && facts.partial.is_none() { JOURNAL } else { PARTIAL });
        let mut left = facts.leftover();
        let state = error.map_or_else(|| self.state(&facts, &left, rule), Err);
        let state = match state {
            Ok(State::Stale) if rule.remove => self.remove(rule, tick)?,
            state => state,
        };
        left.state = state.unwrap_or(State::Failed);
        left.why = match (state, &facts.foreign) {
            (Err(error), _) => Some(std::io::Error::from(error).to_string()),
            (Ok(State::Foreign), Some(foreign)) => Some(foreign.to_string()),
            _ => None,
        };
        Ok(Some(Found { name, left }))
    }

    fn state(&self, facts: &Facts, left: &Leftover, rule: Rule) -> Result<State, Errno> {
        let busy = match &facts.partial {
            // Shared, so that two who look do not take each other for a copy.
            Some(stat) if kind_of(stat).is_none() => {
                matches!(self.lock(OFlags::RDONLY, FlockOperation::NonBlockingLockShared)?, Lock::Busy)
            }
            _ => false,
        };
        Ok(State::of(busy, facts.foreign.is_none(), left.age, rule.older))
    }

    /// Locks the partial file; `flags` may make one where there is none.
    fn lock(&self, flags: OFlags, how: FlockOperation) -> Result<Lock, Errno> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match openat(self.directory, self.name(PARTIAL), flags, Mode::from_raw_mode(0o600)) {
            // A copy has just begun it, or ended.
            Err(Errno::EXIST | Errno::NOENT) => return Ok(Lock::Busy),
            opened => opened?,
        };
        match flock(&file, how) {
            Err(Errno::WOULDBLOCK) => return Ok(Lock::Busy),
            locked => locked?,
        }
        // Between open and lock a copy may have published it, and another begun a new one.
        let ours = fstat(&file)?;
        match self.stat(PARTIAL)? {
            Some(named) if (named.st_dev, named.st_ino) == (ours.st_dev, ours.st_ino) => Ok(Lock::Taken(file)),
            _ => Ok(Lock::Busy),
        }
    }

    /// Removes both, if they are still what they were once the lock is held.
    fn remove(&self, rule: Rule, tick: Tick<'_>) -> Result<Result<State, Errno>, TransferError> {
        // A journal by itself has no lock until there is a partial file, which a copy would make too.
        let made = !self.has_partial();
        let new = if made { OFlags::CREATE | OFlags::EXCL } else { OFlags::empty() };
        let lock = |access| self.lock(access | new, FlockOperation::NonBlockingLockExclusive);
        // One that has its source's mode already may not be written; over NFS only what may be is locked so.
        let lock = match lock(OFlags::RDWR) {
            Err(Errno::ACCESS) => lock(OFlags::RDONLY),
            locked => locked,
        };
        let lock = match lock {
            Ok(Lock::Taken(lock)) => lock,
            Ok(Lock::Busy) => return Ok(Ok(State::Busy)),
            Err(error) => return Ok(Err(error)),
        };
        let unlink = |suffix: &str| match unlinkat(self.directory, self.name(suffix), AtFlags::empty()) {
            Err(Errno::NOENT) => Ok(()),
            result => result,
        };
        let removed = match self.facts(tick) {
            Err(error) => Err(error),
            Ok(Err(error)) => Ok(Err(error)),
            Ok(Ok(facts)) => {
                // The one that was made just now says nothing of age.
                let facts = if made { Facts { partial: None, ..facts } } else { facts };
                match State::of(false, facts.foreign.is_none(), facts.age(), rule.older) {
                    State::Stale => Ok(unlink(JOURNAL).and_then(|()| unlink(PARTIAL)).map(|()| State::Removed)),
                    state => Ok(Ok(state)),
                }
            }
        };
        if made {
            let _ = unlink(PARTIAL);
        }
        drop(lock);
        removed
    }

    fn facts(&self, tick: Tick<'_>) -> Result<Result<Facts, Errno>, TransferError> {
        let stats = self.stat(PARTIAL).and_then(|partial| Ok((partial, self.stat(JOURNAL)?)));
        let (partial, journal) = match stats {
            Ok(stats) => stats,
            Err(error) => return Ok(Err(error)),
        };
        let mut facts = Facts { partial, journal, ..Facts::default() };
        let odd = [&facts.partial, &facts.journal].into_iter().flatten().find_map(|stat| match kind_of(stat) {
            Some(kind) => Some(Foreign::Kind(kind)),
            None => (stat.st_nlink > 1).then_some(Foreign::Linked),
        });
        if odd.is_some() {
            facts.foreign = odd;
            return Ok(Ok(facts));
        }
        let read = match facts.journal {
            Some(_) => self.read_journal(tick)?,
            None => Ok(Err(Foreign::NoJournal)),
        };
        let described = match read {
            Ok(described) => described,
            Err(error) => return Ok(Err(error)),
        };
        let length = facts.partial.as_ref().map(|stat| Bytes(stat.st_size as u64));
        facts.foreign = match described {
            Ok((header, kept)) => {
                let known = recognise(Some(&header), length);
                (facts.header, facts.kept) = (Some(header), Some(kept));
                known.err()
            }
            // Of a copy that was cut before it wrote a word: nothing is in it that could be another's.
            Err(_) if facts.is_empty() => None,
            Err(foreign) => Some(foreign),
        };
        Ok(Ok(facts))
    }

    /// Whether what stands aside is a directory that holds nothing.
    pub(super) fn is_empty_directory(&self) -> bool {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let entries = openat(self.directory, self.name(REPLACED), flags, Mode::empty()).and_then(Dir::read_from);
        entries.is_ok_and(|mut entries| {
            entries.all(|entry| entry.is_ok_and(|entry| matches!(entry.file_name().to_bytes(), b"." | b"..")))
        })
    }

    /// What the journal is about, and how much of that is in; what stands behind its good part does not matter here.
    #[expect(clippy::type_complexity, reason = "what ends the walk, what cannot be read, what is none, what it says")]
    fn read_journal(&self, tick: Tick<'_>) -> Result<Result<Result<(Header, Bytes), Foreign>, Errno>, TransferError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let mut file: File = match openat(self.directory, self.name(JOURNAL), flags, Mode::empty()) {
            Ok(file) => file.into(),
            Err(Errno::NOENT) => return Ok(Ok(Err(Foreign::NoJournal))),
            Err(error) => return Ok(Err(error)),
        };
        let (mut reader, mut buffer, mut blocks) = (Reader::default(), vec![0; 64 << 10], 0_u64);
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
                let kept = blocks.saturating_mul(layout.block_size().0).min(layout.bytes().0);
                Ok((ending.header, Bytes(kept)))
            }
            // Without its first line; also an empty one.
            Err(error) => Err(Foreign::from(error)),
        }))
    }
}

impl Facts {
    /// Since either was written last.
    fn age(&self) -> Duration {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let times = [&self.partial, &self.journal].into_iter().flatten().map(|stat| stat.st_mtime);
        let written = times.max().and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or_default();
        Duration::from_secs(now.as_secs().saturating_sub(written))
    }

    /// Whether there is a journal, and neither it nor the partial file has anything in it.
    fn is_empty(&self) -> bool {
        self.journal.is_some() && [&self.partial, &self.journal].into_iter().flatten().all(|stat| stat.st_size == 0)
    }

    fn leftover(&self) -> Leftover {
        let room = [&self.partial, &self.journal].into_iter().flatten().map(|stat| 512 * stat.st_blocks as u64).sum();
        let header = self.header.as_ref().filter(|_| self.foreign.is_none());
        Leftover {
            path: Raw::default(),
            // What a guest called it is not known here.
            source: header.map(|header| header.source.clone()).filter(|source| !guest::is_tag(source)),
            bytes: header.map(|header| header.layout.bytes()),
            kept: self.kept.filter(|_| header.is_some()),
            room: Bytes(room),
            age: self.age(),
            state: State::Foreign,
            why: None,
        }
    }
}
