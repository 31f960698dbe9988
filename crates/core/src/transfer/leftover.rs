//! What a copy that was cut left behind: how it is told from files that merely have such names, and when it may go.
//!
//! A name alone proves nothing. A journal is one if its first line is what only lfn writes: a description with a check over
//! it ([`super::journal`]). A partial file is one if such a journal stands beside it, and it has the length that the journal
//! gives it, or none yet. All else is somebody's file and stays. No file is opened here.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::journal::{Header, JournalError};
use super::raw::Raw;
use crate::units::Bytes;

/// The end of a partial file's name.
pub const PARTIAL: &str = ".lfn-partial";

/// The end of a journal's name.
pub const JOURNAL: &str = ".lfn-journal";

/// The end of the name of a file in whose place a directory is being put, or of that directory.
pub const REPLACED: &str = ".lfn-replaced";

/// Which of these a name is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// The file while it is incomplete.
    Partial,
    /// The list of the blocks that are in it.
    Journal,
    /// What stood where a directory is to be, or that directory.
    Replaced,
}

impl Beside {
    /// What `.NAME.lfn-partial` and the like are, and NAME.
    pub fn of(name: &[u8]) -> Option<(Beside, &[u8])> {
        let rest = name.strip_prefix(b".")?;
        let ends = [(Beside::Partial, PARTIAL), (Beside::Journal, JOURNAL), (Beside::Replaced, REPLACED)];
        let found = ends.into_iter().find_map(|(which, end)| Some((which, rest.strip_suffix(end.as_bytes())?)));
        found.filter(|(_, stem)| !stem.is_empty())
    }
}

/// Why what has such a name is not known to be a copy's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Foreign {
    /// A partial file by itself.
    #[error("no journal beside it")]
    NoJournal,
    /// What stands beside it is another program's, or damaged.
    #[error("{0}")]
    Journal(#[from] JournalError),
    /// Another program's, or of a copy that was cut while it began anew.
    #[error("{length} long, its journal is of a file of {said}")]
    Length {
        /// Of the partial file.
        length: Bytes,
        /// What the journal says.
        said: Bytes,
    },
    /// A link, a directory, a pipe …
    #[error("a {0}, not a file")]
    Kind(&'static str),
    /// A copy was killed while it put a directory in its place.
    #[error("a directory was to take its place: give it its name back, or remove it")]
    Replaced,
    /// Copies never give theirs a second one.
    #[error("it has another name too")]
    Linked,
}

/// Whether a journal and a partial file are a copy's own; either may be missing.
pub fn recognise(journal: Option<&Header>, partial: Option<Bytes>) -> Result<(), Foreign> {
    let header = journal.ok_or(Foreign::NoJournal)?;
    let said = header.layout.bytes();
    match partial {
        Some(length) if length != said && length != Bytes(0) => Err(Foreign::Length { length, said }),
        _ => Ok(()),
    }
}

/// When what is left may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// How long nothing was written to it.
    #[serde(rename = "older_seconds", with = "whole_seconds")]
    pub older: Duration,
    /// It is removed; else told only.
    pub remove: bool,
}

/// What one copy left of one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leftover {
    /// Of the partial file; of the journal where there is none.
    pub path: Raw,
    /// What the source was called where it came from, as the journal says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Raw>,
    /// Length of the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Bytes>,
    /// How much of it is there, by the journal.
    #[serde(default, rename = "kept_bytes", skip_serializing_if = "Option::is_none")]
    pub kept: Option<Bytes>,
    /// What partial file and journal take of the disk.
    #[serde(rename = "disk_bytes")]
    pub room: Bytes,
    /// Since it was written last.
    #[serde(rename = "age_seconds", with = "whole_seconds")]
    pub age: Duration,
    /// What becomes of it.
    pub state: State,
    /// Why it is foreign, or could not be removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// What becomes of something that is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// A copy writes to it.
    Busy,
    /// It was written not long ago: its copy may yet be gone on with.
    Fresh,
    /// It may go.
    Stale,
    /// It is gone.
    Removed,
    /// Not known to be a copy's: it stays.
    Foreign,
    /// It could not be looked at, or not be removed.
    Failed,
}

impl State {
    /// Of something that is there, by what was seen of it.
    pub fn of(busy: bool, recognised: bool, age: Duration, older: Duration) -> State {
        match (busy, recognised) {
            // One that was just begun has no journal yet.
            (true, _) => State::Busy,
            (false, false) => State::Foreign,
            (false, true) if age < older => State::Fresh,
            (false, true) => State::Stale,
        }
    }

    /// As it stands before a path.
    pub fn word(self) -> &'static str {
        match self {
            State::Busy => "busy",
            State::Fresh => "fresh",
            State::Stale => "stale",
            State::Removed => "removed",
            State::Foreign => "foreign",
            State::Failed => "failed",
        }
    }
}

/// How many of each, and what they take of the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// A copy writes to them.
    pub busy: u64,
    /// Written not long ago.
    pub fresh: u64,
    /// To be removed, if that is asked for.
    pub stale: u64,
    /// Gone.
    pub removed: u64,
    /// Not known to be a copy's.
    pub foreign: u64,
    /// Could not be looked at, or not be removed.
    pub failed: u64,
    /// What the stale ones take.
    pub stale_disk_bytes: Bytes,
    /// What the removed ones took.
    pub removed_disk_bytes: Bytes,
}

impl Counts {
    /// Takes one more.
    pub fn add(&mut self, left: &Leftover) {
        let add = |sum: &mut Bytes| *sum = Bytes(sum.0.saturating_add(left.room.0));
        let count = match left.state {
            State::Busy => &mut self.busy,
            State::Fresh => &mut self.fresh,
            State::Stale => {
                add(&mut self.stale_disk_bytes);
                &mut self.stale
            }
            State::Removed => {
                add(&mut self.removed_disk_bytes);
                &mut self.removed
            }
            State::Foreign => &mut self.foreign,
            State::Failed => &mut self.failed,
        };
        *count += 1;
    }
}

/// A time as a whole number of seconds.
mod whole_seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(time.as_secs())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_secs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfer::blocks::Layout;
    use crate::transfer::entry::Modified;
    use crate::transfer::manner::Verify;

    fn header(bytes: u64) -> Header {
        let layout = Layout::new(Bytes(bytes), Bytes(1024)).unwrap();
        Header { layout, modified: Modified::default(), source: "a".into(), verify: Verify::default() }
    }

    #[test]
    fn names_are_taken_apart() {
        assert_eq!(Beside::of(b".a.lfn-partial"), Some((Beside::Partial, &b"a"[..])));
        assert_eq!(Beside::of(b"..b.lfn-journal"), Some((Beside::Journal, &b".b"[..])));
        assert_eq!(Beside::of(b".c.lfn-replaced"), Some((Beside::Replaced, &b"c"[..])));
        for other in ["a.lfn-partial", ".lfn-partial", ".a.lfn-partial2", ".a.lfn-new", ".", ""] {
            assert_eq!(Beside::of(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn a_partial_file_is_known_by_its_journal_alone() {
        let header = header(5000);
        for (journal, partial, known) in [
            (Some(&header), Some(5000), true),
            (Some(&header), Some(0), true),
            (Some(&header), None, true),
            (Some(&header), Some(4999), false),
            (None, Some(5000), false),
            (None, Some(0), false),
        ] {
            assert_eq!(recognise(journal, partial.map(Bytes)).is_ok(), known, "{partial:?}");
        }
    }

    #[test]
    fn only_what_is_known_and_old_and_nobodys_is_stale() {
        let (day, hour) = (Duration::from_secs(86_400), Duration::from_secs(3600));
        for (busy, recognised, age, older, state) in [
            (false, true, day, day, State::Stale),
            (false, true, Duration::ZERO, Duration::ZERO, State::Stale),
            (false, true, hour, day, State::Fresh),
            (true, true, day, hour, State::Busy),
            (true, false, day, hour, State::Busy),
            (false, false, day, hour, State::Foreign),
        ] {
            assert_eq!(State::of(busy, recognised, age, older), state);
        }
    }
}
