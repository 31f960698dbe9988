//! Directories that are to get their attributes once nothing is written in them any more.
//!
//! The list goes through a tree from above, so that what is in a directory has the numbers from its own to that of the
//! first entry that is not below it. When the list has left it, and none of these is unsettled, it is through. So no
//! more of them are held than are open or hold something unsettled, however large the tree. What they weigh is bounded
//! besides: they are settled as entries, and so no part of what the list may hold.

use lfn_core::transfer::entry::{Entry, Name};
use lfn_core::wire::copy::MOST_UNSETTLED_BYTES;
use rustix::fs::Mode;

use super::super::place::file_error;
use super::Receiver;
use super::attributes::Body;
use super::tree::Tree;

/// A directory that waits.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) number: u32,
    pub(super) entry: Entry,
    /// Made by this copy.
    pub(super) made: bool,
    /// The mode that it had, and is to have again, if it had to be opened to be written in.
    pub(super) was: Option<Mode>,
}

/// Directories in the order in which they get their attributes: what is inside of another before it.
#[derive(Debug, Default)]
pub(super) struct Directories {
    /// The top one, which waits for the end: another source may have something to write in it.
    top: Option<Directory>,
    /// Those the list is in, each below the one before it.
    open: Vec<Directory>,
    /// Those it has left, and the number behind their last entry.
    left: Vec<(Directory, u32)>,
    /// What all of them weigh.
    weight: usize,
    /// How many may wait before it is looked whether some are through.
    patience: usize,
}

/// How many wait at least.
const FEW: usize = 64;

/// Most that those that wait may weigh: as much as entries.
const MOST_WEIGHT: usize = MOST_UNSETTLED_BYTES;

/// What each of them takes besides its names and attributes.
const EACH: usize = 256;

impl Directory {
    fn weight(&self) -> usize {
        weight(&self.entry)
    }
}

fn weight(entry: &Entry) -> usize {
    entry.weight() + EACH
}

impl Directories {
    /// The list has come to an entry; leaves the directories that it is not below.
    pub(super) fn reach(&mut self, number: u32, name: &Name) {
        while let Some(directory) = self.open.pop_if(|directory| !is_below(name, &directory.entry.name)) {
            self.left.push((directory, number));
        }
    }

    /// The entry it has come to is a directory.
    pub(super) fn enter(&mut self, directory: Directory) {
        self.weight += directory.weight();
        if !directory.entry.name.is_root() {
            return self.open.push(directory);
        }
        // Each source may list the top, and the last one counts.
        if let Some(before) = self.top.replace(directory) {
            self.weight -= before.weight();
            self.top.iter_mut().for_each(|top| (top.made, top.was) = (top.made || before.made, before.was.or(top.was)));
        }
    }

    /// Whether one more of them may wait.
    pub(super) fn have_room_for(&self, entry: &Entry) -> bool {
        self.weight + weight(entry) <= MOST_WEIGHT
    }

    /// Those that are through, where it is time to look; `unsettled` tells whether anything from a number up to another is
    /// not settled.
    pub(super) fn through(&mut self, unsettled: impl Fn(u32, u32) -> bool) -> Vec<Directory> {
        if self.left.len() < self.patience.max(FEW) { Vec::new() } else { self.through_now(unsettled) }
    }

    /// The same, whether it is time or not.
    pub(super) fn through_now(&mut self, unsettled: impl Fn(u32, u32) -> bool) -> Vec<Directory> {
        let through = |(directory, end): &mut (Directory, u32)| !unsettled(directory.number, *end);
        // In order: one that waits keeps those around it waiting, since what it waits for is in them too.
        let done: Vec<Directory> = self.left.extract_if(.., through).map(|(directory, _)| directory).collect();
        self.patience = 2 * self.left.len();
        self.weight -= done.iter().map(Directory::weight).sum::<usize>();
        done
    }

    /// All that are left at the end.
    pub(super) fn into_rest(mut self) -> impl Iterator<Item = Directory> {
        let open = std::mem::take(&mut self.open);
        self.left.into_iter().map(|(directory, _)| directory).chain(open.into_iter().rev()).chain(self.top)
    }
}

impl Receiver {
    /// Opens a directory that is there, if it has to be written in; what cannot be opened is told of what is in it.
    pub(super) fn open_up(&self, tree: &Tree, entry: &Entry) -> Option<Mode> {
        tree.inside(&entry.name).ok().and_then(|inside| self.dressing.open_up(&inside, entry))
    }

    /// Gives directories their attributes, from within, lest one that may not be entered stands in the way.
    pub(super) fn dress_all(&self, directories: impl IntoIterator<Item = Directory>) {
        let Some(tree) = self.tree() else { return };
        for Directory { entry, made, was, .. } in directories {
            let dress = || {
                let inside = tree.inside(&entry.name)?;
                let dressed = self.dressing.dress(Body::Directory(&inside, made), &entry);
                let closed = was.map_or(Ok(()), |mode| self.dressing.close_again(&inside, mode));
                dressed.and(closed).map_err(|(doing, error)| file_error(doing, &tree.show(&entry.name), error))
            };
            if let Err(error) = self.on_disk(dress) {
                self.table.complain(&entry.name, &error);
            }
        }
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
            directories.enter(Directory { number, entry, made: true, was: None });
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

    /// Whatever a peer lists.
    #[test]
    fn one_top_waits_and_no_more_names_than_have_room() {
        let mut directories = Directories::default();
        let directory = |name: &str, made| {
            let entry = Entry::new(Name::new(name).unwrap(), Kind::Directory, 0o755, Modified::default()).unwrap();
            Directory { number: 0, entry, made, was: None }
        };
        for number in 0..1000 {
            directories.reach(number, &Name::new(".").unwrap());
            directories.enter(directory(".", number == 0));
        }
        assert_eq!(directories.weight, directory(".", true).weight());
        let long = |n: u32| directory(&format!("{n}{}", "/long".repeat(800)), false);
        let mut many = 0;
        while directories.have_room_for(&long(many).entry) {
            let next = long(many);
            directories.reach(many, &next.entry.name);
            directories.enter(next);
            many += 1;
        }
        assert!((5_000..10_000).contains(&many), "{many}");
        let rest: Vec<_> = directories.into_rest().collect();
        let top = rest.last().unwrap();
        assert!(rest.len() == many as usize + 1 && top.made && top.entry.name.is_root());
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
                directories.enter(Directory { number, entry, made: true, was: None });
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
