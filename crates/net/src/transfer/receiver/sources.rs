//! Whether several sources bring the same name (`a/x b/x dst`): of two directories one is made, of anything else the first
//! stays, and the second fails unless it is the same by its length and time.
//!
//! What came first is remembered by its name, and not looked for at the destination: it may be under way still, or have
//! been there before the copy.

use std::collections::hash_map::Entry as Slot;
use std::collections::{HashMap, HashSet};

use lfn_core::transfer::entry::{Entry, Kind};
use lfn_core::transfer::verdict::Allowed;

use super::extra::{Fingerprint, fingerprint};

/// Most names that are remembered, 17 MiB of them.
const MOST: usize = 1 << 19;

/// What is known of the sources of a copy.
#[derive(Debug)]
pub(super) struct Sources {
    /// There is more than one, or may be.
    several: bool,
    most: usize,
    /// What is no directory.
    named: HashMap<Fingerprint, First>,
    /// The destination's own directories: below one that comes twice anything may.
    directories: HashSet<Fingerprint>,
    meet: bool,
}

/// The entry that brought a name.
#[derive(Debug, PartialEq, Eq)]
struct First {
    number: u32,
    facts: u32,
}

/// What another source of the copy has brought under the name of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Before {
    /// Nothing, or a directory where this is one too.
    Nothing,
    /// The same.
    Same,
    /// Something else.
    Another,
    /// It may be anything: there were more names than are remembered.
    Unknown,
}

impl Sources {
    /// Of a copy that has one source, or several.
    pub(super) fn of(several: bool) -> Self {
        Sources { several, most: MOST, named: HashMap::new(), directories: HashSet::new(), meet: false }
    }

    /// Takes the next entry of the list.
    pub(super) fn pass(&mut self, number: u32, entry: &Entry) -> Before {
        if !self.several || entry.name.is_root() {
            return Before::Nothing;
        }
        let (name, at_top) = (fingerprint(entry.name.as_bytes()), !entry.name.as_bytes().contains(&b'/'));
        if entry.kind == Kind::Directory {
            if self.named.contains_key(&name) {
                return Before::Another;
            }
            if at_top {
                self.meet |= self.directories.len() >= self.most || !self.directories.insert(name);
            }
            return Before::Nothing;
        }
        if self.directories.contains(&name) {
            return Before::Another;
        }
        let (full, facts) = (self.named.len() >= self.most, facts(entry));
        match self.named.entry(name) {
            Slot::Occupied(first) if first.get().is_same(entry, facts) => Before::Same,
            Slot::Occupied(_) => Before::Another,
            Slot::Vacant(_) if full && (at_top || self.meet) => Before::Unknown,
            Slot::Vacant(_) if full => Before::Nothing,
            Slot::Vacant(free) => {
                free.insert(First { number, facts });
                Before::Nothing
            }
        }
    }

    /// Whether a directory that stands there may hold what another source of this copy has brought.
    pub(super) fn meet(&self) -> bool {
        self.meet
    }
}

impl First {
    fn is_same(&self, entry: &Entry, facts: u32) -> bool {
        match entry.kind {
            // A file with other names that is listed twice becomes a name of its own.
            Kind::HardLink { to } if to == self.number => true,
            _ => self.facts == facts,
        }
    }
}

impl Before {
    /// Why an entry has no place, if it has none.
    pub(super) fn objection(self, allowed: Allowed) -> Option<&'static str> {
        match self {
            Before::Another => Some("another source of this copy brings it too, and came first"),
            Before::Unknown if allowed.replaces() => {
                Some("the sources have more names than are remembered: copy them one after the other")
            }
            Before::Nothing | Before::Same | Before::Unknown => None,
        }
    }
}

/// What tells an entry from another of its name.
fn facts(entry: &Entry) -> u32 {
    let kind = match &entry.kind {
        Kind::File { length } => [b"f".as_slice(), &length.0.to_le_bytes()].concat(),
        Kind::Symlink { target } => [b"s", target.as_bytes()].concat(),
        Kind::HardLink { to } => [b"h".as_slice(), &to.to_le_bytes()].concat(),
        Kind::Directory => Vec::new(),
    };
    let (seconds, nanoseconds) = match entry.kind {
        Kind::File { .. } => (entry.modified.seconds(), entry.modified.nanoseconds()),
        _ => (0, 0),
    };
    let facts = [kind.as_slice(), &seconds.to_le_bytes(), &nanoseconds.to_le_bytes()].concat();
    // Half of it is enough of two entries of one name.
    fingerprint(&facts) as u32
}

#[cfg(test)]
mod tests {
    use lfn_core::transfer::entry::{Modified, Name};
    use lfn_core::units::Bytes;

    use super::*;

    fn entry(name: &str, kind: Kind, seconds: i64) -> Entry {
        Entry::new(Name::new(name).unwrap(), kind, 0o644, Modified::new(seconds, 0).unwrap()).unwrap()
    }

    fn file(name: &str, length: u64, seconds: i64) -> Entry {
        entry(name, Kind::File { length: Bytes(length) }, seconds)
    }

    #[test]
    fn the_first_of_a_name_stays() {
        let mut sources = Sources::of(true);
        let directory = |name| entry(name, Kind::Directory, 1);
        for (number, first) in [file("x", 1, 1), directory("d"), file("d/y", 1, 1)].iter().enumerate() {
            assert_eq!(sources.pass(number as u32, first), Before::Nothing);
        }
        assert!(!sources.meet());
        assert_eq!(sources.pass(3, &directory("d")), Before::Nothing);
        assert!(sources.meet());
        assert_eq!(sources.pass(4, &file("d/y", 1, 1)), Before::Same);
        for other in [file("x", 1, 2), file("d/y", 2, 1), file("d", 1, 1), directory("x"), directory("d/y")] {
            assert_eq!(sources.pass(5, &other), Before::Another, "{}", other.name);
        }
        // The same file once more is another name of itself.
        assert_eq!(sources.pass(6, &entry("x", Kind::HardLink { to: 0 }, 1)), Before::Same);
        assert_eq!(sources.pass(7, &entry("d/y", Kind::HardLink { to: 0 }, 1)), Before::Another);
        assert_eq!(Sources::of(false).pass(0, &file("x", 1, 1)), Before::Nothing);
    }

    #[test]
    fn what_is_not_remembered_is_replaced_by_nothing() {
        let mut sources = Sources { most: 1, ..Sources::of(true) };
        assert_eq!(sources.pass(0, &file("d/x", 1, 1)), Before::Nothing);
        assert_eq!(sources.pass(1, &file("d/y", 1, 1)), Before::Nothing);
        assert_eq!(sources.pass(2, &file("y", 1, 1)), Before::Unknown);
        let force = Allowed { force: true, ..Allowed::default() };
        assert!(Before::Unknown.objection(Allowed::default()).is_none() && Before::Unknown.objection(force).is_some());
    }
}
