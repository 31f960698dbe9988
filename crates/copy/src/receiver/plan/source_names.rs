//! Detects names that several sources of one copy share (`a/x b/x dst`). Equal directories are merged. For other
//! entries the first one stays, and the second fails unless its size and time are equal.
//!
//! The names are remembered, instead of looked up at the destination. There, a file may still be incomplete, or may
//! have existed before the copy.

use std::collections::hash_map::Entry as MapEntry;
use std::collections::{HashMap, HashSet};

use lfn_session::wire::copy::entry::{Entry, EntryKind};
use lfn_session::wire::copy::overwrite::OverwritePolicy;

use crate::ForbiddenReason;
use crate::receiver::fingerprint::{Fingerprint, fingerprint};

/// Maximum number of remembered names (17 MiB).
const MAX_NAMES: usize = 1 << 19;

/// The names that the sources of a copy have listed so far.
#[derive(Debug)]
pub(super) struct SourceNames {
    /// The copy has, or may have, more than one source.
    has_several: bool,
    max_names: usize,
    /// Entries that are not directories.
    entries: HashMap<Fingerprint, FirstEntry>,
    /// The destination's own directories. Below a directory that is listed twice, any name may be listed twice.
    directories: HashSet<Fingerprint>,
    overlap: bool,
}

/// The first entry of a name.
#[derive(Debug, PartialEq, Eq)]
struct FirstEntry {
    number: u32,
    fingerprint_of_entry: u32,
}

/// The entry that another source listed under the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EarlierEntry {
    /// No entry, or a directory where the new entry is a directory too.
    Free,
    Same,
    Different,
    /// Unknown, because there were more names than can be remembered.
    Unknown,
}

impl SourceNames {
    /// Creates an empty set, for a copy with one source or with several.
    pub(super) fn new(has_several: bool) -> Self {
        SourceNames {
            has_several,
            max_names: MAX_NAMES,
            entries: HashMap::new(),
            directories: HashSet::new(),
            overlap: false,
        }
    }

    /// Adds the next entry of the list. Returns the earlier entry of the same name.
    pub(super) fn add(&mut self, number: u32, entry: &Entry) -> EarlierEntry {
        if !self.has_several || entry.name.is_root() {
            return EarlierEntry::Free;
        }
        let (name, at_top) = (fingerprint(entry.name.as_bytes()), !entry.name.as_bytes().contains(&b'/'));
        if entry.kind == EntryKind::Directory {
            if self.entries.contains_key(&name) {
                return EarlierEntry::Different;
            }
            if at_top {
                self.overlap |= self.directories.len() >= self.max_names || !self.directories.insert(name);
            }
            return EarlierEntry::Free;
        }
        if self.directories.contains(&name) {
            return EarlierEntry::Different;
        }
        let (full, fingerprint_of_entry) = (self.entries.len() >= self.max_names, entry_fingerprint(entry));
        match self.entries.entry(name) {
            MapEntry::Occupied(first) if first.get().is_same(entry, fingerprint_of_entry) => EarlierEntry::Same,
            MapEntry::Occupied(_) => EarlierEntry::Different,
            MapEntry::Vacant(_) if full && (at_top || self.overlap) => EarlierEntry::Unknown,
            MapEntry::Vacant(_) if full => EarlierEntry::Free,
            MapEntry::Vacant(free) => {
                free.insert(FirstEntry { number, fingerprint_of_entry });
                EarlierEntry::Free
            }
        }
    }

    /// Returns whether an existing directory may contain entries of another source of this copy.
    pub(super) fn may_overlap(&self) -> bool {
        self.overlap
    }
}

impl FirstEntry {
    fn is_same(&self, entry: &Entry, fingerprint_of_entry: u32) -> bool {
        match entry.kind {
            // A hard-linked file that is listed twice becomes a hard link to itself.
            EntryKind::HardLink { to } if to == self.number => true,
            _ => self.fingerprint_of_entry == fingerprint_of_entry,
        }
    }
}

impl EarlierEntry {
    /// Returns the reason to refuse an entry, if there is one.
    pub(super) fn refusal(self, allowed: OverwritePolicy) -> Option<ForbiddenReason> {
        match self {
            EarlierEntry::Different => Some(ForbiddenReason::SameNameInEarlierSource),
            EarlierEntry::Unknown if allowed.may_replace() => Some(ForbiddenReason::TooManySourceNames),
            EarlierEntry::Free | EarlierEntry::Same | EarlierEntry::Unknown => None,
        }
    }
}

/// Returns a fingerprint that differs between different entries of the same name.
fn entry_fingerprint(entry: &Entry) -> u32 {
    let kind = match &entry.kind {
        EntryKind::File { length } => [b"f".as_slice(), &length.0.to_le_bytes()].concat(),
        EntryKind::Symlink { target } => [b"s", target.as_bytes()].concat(),
        EntryKind::HardLink { to } => [b"h".as_slice(), &to.to_le_bytes()].concat(),
        EntryKind::Directory => Vec::new(),
    };
    let (seconds, nanoseconds) = match entry.kind {
        EntryKind::File { .. } => (entry.modified.seconds(), entry.modified.nanoseconds()),
        _ => (0, 0),
    };
    let fingerprint_of_entry = [kind.as_slice(), &seconds.to_le_bytes(), &nanoseconds.to_le_bytes()].concat();
    // 32 bits are enough to distinguish two entries of the same name.
    fingerprint(&fingerprint_of_entry) as u32
}

#[cfg(test)]
mod tests {
    use lfn_base::units::Bytes;
    use lfn_session::wire::copy::entry::{Modified, Name};

    use super::*;

    fn entry(name: &str, kind: EntryKind, seconds: i64) -> Entry {
        Entry::new(Name::new(name).unwrap(), kind, 0o644, Modified::new(seconds, 0).unwrap()).unwrap()
    }

    fn file(name: &str, length: u64, seconds: i64) -> Entry {
        entry(name, EntryKind::File { length: Bytes(length) }, seconds)
    }

    #[test]
    fn first_entry_of_a_name_stays() {
        let mut sources = SourceNames::new(true);
        let directory = |name| entry(name, EntryKind::Directory, 1);
        for (number, first) in [file("x", 1, 1), directory("d"), file("d/y", 1, 1)].iter().enumerate() {
            assert_eq!(sources.add(number as u32, first), EarlierEntry::Free);
        }
        assert!(!sources.may_overlap());
        assert_eq!(sources.add(3, &directory("d")), EarlierEntry::Free);
        assert!(sources.may_overlap());
        assert_eq!(sources.add(4, &file("d/y", 1, 1)), EarlierEntry::Same);
        for other in [file("x", 1, 2), file("d/y", 2, 1), file("d", 1, 1), directory("x"), directory("d/y")] {
            assert_eq!(sources.add(5, &other), EarlierEntry::Different, "{}", other.name);
        }
        // The same file, listed again, is another name of itself.
        assert_eq!(sources.add(6, &entry("x", EntryKind::HardLink { to: 0 }, 1)), EarlierEntry::Same);
        assert_eq!(sources.add(7, &entry("d/y", EntryKind::HardLink { to: 0 }, 1)), EarlierEntry::Different);
        assert_eq!(SourceNames::new(false).add(0, &file("x", 1, 1)), EarlierEntry::Free);
    }

    #[test]
    fn unknown_names_are_not_replaced() {
        let mut sources = SourceNames { max_names: 1, ..SourceNames::new(true) };
        assert_eq!(sources.add(0, &file("d/x", 1, 1)), EarlierEntry::Free);
        assert_eq!(sources.add(1, &file("d/y", 1, 1)), EarlierEntry::Free);
        assert_eq!(sources.add(2, &file("y", 1, 1)), EarlierEntry::Unknown);
        let force = OverwritePolicy { force: true, ..OverwritePolicy::default() };
        assert!(
            EarlierEntry::Unknown.refusal(OverwritePolicy::default()).is_none()
                && EarlierEntry::Unknown.refusal(force).is_some()
        );
    }
}
