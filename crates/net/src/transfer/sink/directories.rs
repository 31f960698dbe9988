//! Directories that are to get their attributes once nothing is written in them any more.
//!
//! The list goes through a tree from above, so that what is in a directory has the numbers from its own to that of the first
//! entry that is not below it. When the list has left it, and none of these is unsettled, it is through. So no more
//! of them are held than are open or hold something unsettled, however large the tree. Their extended attributes are bounded
//! besides: they are settled as entries, and so no part of what the list may hold.

use lfn_core::transfer::entry::{Entry, Name};
use lfn_core::wire::copy::MOST_UNSETTLED_BYTES;

/// A directory that waits.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) number: u32,
    pub(super) entry: Entry,
    /// Made by this copy.
    pub(super) made: bool,
}

/// Directories in the order in which they get their attributes: what is inside of another before it.
#[derive(Debug, Default)]
pub(super) struct Directories {
    /// Those the list is in, each below the one before it.
    open: Vec<Directory>,
    /// Those it has left, and the number behind their last entry.
    left: Vec<(Directory, u32)>,
    /// What the extended attributes of all of them weigh.
    weight: usize,
    /// How many may wait before it is looked whether some are through.
    patience: usize,
}

/// How many wait at least.
const FEW: usize = 64;

/// Most that the extended attributes of those that wait may weigh: as much as those of entries.
const MOST_WEIGHT: usize = MOST_UNSETTLED_BYTES;

impl Directories {
    /// The list has come to an entry; leaves the directories that it is not below.
    pub(super) fn reach(&mut self, number: u32, name: &Name) {
        while let Some(directory) = self.open.pop_if(|directory| !is_below(name, &directory.entry.name)) {
            self.left.push((directory, number));
        }
    }

    /// The entry it has come to is a directory.
    pub(super) fn enter(&mut self, directory: Directory) {
        self.weight += directory.entry.xattrs_weight();
        self.open.push(directory);
    }

    /// Whether one more of them may wait.
    pub(super) fn have_room_for(&self, entry: &Entry) -> bool {
        let weight = entry.xattrs_weight();
        weight == 0 || self.weight + weight <= MOST_WEIGHT
    }

    /// Those that are through, where it is time to look; `unsettled` tells whether anything from a number up to another is
    /// not settled. The top waits for the end: another source may have something to write in it.
    pub(super) fn through(&mut self, unsettled: impl Fn(u32, u32) -> bool) -> Vec<Directory> {
        if self.left.len() < self.patience.max(FEW) { Vec::new() } else { self.through_now(unsettled) }
    }

    /// The same, whether it is time or not.
    pub(super) fn through_now(&mut self, unsettled: impl Fn(u32, u32) -> bool) -> Vec<Directory> {
        let through = |(directory, end): &mut (Directory, u32)| {
            !directory.entry.name.is_root() && !unsettled(directory.number, *end)
        };
        // In order: one that waits keeps those around it waiting, since what it waits for is in them too.
        let done: Vec<Directory> = self.left.extract_if(.., through).map(|(directory, _)| directory).collect();
        self.patience = 2 * self.left.len();
        self.weight -= done.iter().map(|directory| directory.entry.xattrs_weight()).sum::<usize>();
        done
    }

    /// All that are left at the end.
    pub(super) fn into_rest(mut self) -> impl Iterator<Item = Directory> {
        let open = std::mem::take(&mut self.open);
        self.left.into_iter().map(|(directory, _)| directory).chain(open.into_iter().rev())
    }
}

/// Whether the one is in the other, however deep.
pub(super) fn is_below(name: &Name, directory: &Name) -> bool {
    let below = |rest: &[u8]| rest.starts_with(b"/");
    (directory.is_root() && !name.is_root()) || name.as_bytes().strip_prefix(directory.as_bytes()).is_some_and(below)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lfn_core::transfer::entry::{Kind, Modified, Xattr};
    use lfn_core::transfer::raw::Raw;

    fn names(directories: impl IntoIterator<Item = Directory>) -> Vec<String> {
        directories.into_iter().map(|directory| directory.entry.name.to_string()).collect()
    }

    #[test]
    fn their_attributes_are_bounded_and_those_that_are_through_make_room() {
        let rich = |name: &str| {
            let mut entry = Entry::new(Name::new(name).unwrap(), Kind::Directory, 0o755, Modified::default()).unwrap();
            let value = Raw(vec![0; 65_000]);
            entry.xattrs =
                (0..16).map(|n| Xattr { name: format!("user.{n}").as_str().into(), value: value.clone() }).collect();
            entry
        };
        let mut directories = Directories::default();
        let mut number = 0;
        while directories.have_room_for(&rich("next")) {
            let entry = rich(&format!("d{number}"));
            directories.reach(number, &entry.name);
            directories.enter(Directory { number, entry, made: true });
            number += 1;
        }
        assert!((20..=32).contains(&number), "{number} mebibytes");
        let plain = Entry::new(Name::new("p").unwrap(), Kind::Directory, 0o755, Modified::default()).unwrap();
        assert!(directories.have_room_for(&plain));
        directories.reach(number, &plain.name);
        assert!(directories.through(|_, _| false).is_empty(), "it is not time to look");
        assert_eq!(directories.through_now(|from, _| from > 0).len(), 1);
        assert!(directories.have_room_for(&rich("next")));
    }

    #[test]
    fn no_more_wait_than_hold_something_unsettled() {
        let mut directories = Directories::default();
        let mut number = 0;
        let mut come = |directories: &mut Directories, path: &str| {
            let name = Name::new(path).unwrap();
            directories.reach(number, &name);
            if path.ends_with('d') || path == "." {
                let entry = Entry::new(name, Kind::Directory, 0o755, Modified::default()).unwrap();
                directories.enter(Directory { number, entry, made: true });
            }
            number += 1;
        };
        come(&mut directories, ".");
        come(&mut directories, "td");
        let mut done = Vec::new();
        let mut most = 0;
        for n in 0..10_000 {
            come(&mut directories, &format!("td/{n}d"));
            come(&mut directories, &format!("td/{n}d/x"));
            // The file in the eleventh never comes.
            let unsettled = |from: u32, to: u32| (from..to).contains(&23);
            done.extend(names(directories.through(unsettled)));
            most = most.max(directories.left.len());
        }
        assert!(most <= FEW + 1, "{most}");
        assert!(done.len() > 9_000 && !done.contains(&"td/10d".into()), "{}", done.len());
        let rest = names(directories.into_rest());
        assert_eq!(
            (rest.first().unwrap().as_str(), &rest[rest.len() - 2..]),
            ("td/10d", &["td".to_owned(), ".".into()][..])
        );
        assert_eq!(done.len() + rest.len(), 10_002);
    }
}
