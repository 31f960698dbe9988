//! Directories that get their attributes after the last write in them.
//!
//! The list visits a tree from the top. So the contents of a directory have the numbers from the directory's own number
//! to the first entry that is not below it. A directory is finished when the list has left it and none of these numbers
//! is unsettled. Only open directories and directories with unsettled contents are kept, however large the tree is.
//! Their total size is limited separately, because directories are settled as entries and no longer count against the
//! limit of the list.

use lfn_session::wire::copy::MAX_PENDING_BYTES;
use lfn_session::wire::copy::entry::{Entry, Name};

/// A directory without its final attributes.
#[derive(Debug)]
pub(super) struct PendingDirectory {
    pub(super) number: u32,
    pub(super) entry: Entry,
    /// This copy created the directory.
    pub(super) is_new: bool,
    /// The mode to restore later, if the directory had to be made writable.
    pub(super) previous_mode: Option<u32>,
}

/// Unfinished directories, in the order in which they get their attributes: inner directories first.
#[derive(Debug, Default)]
pub(super) struct PendingDirectories {
    /// The top directory waits until the end, because another source may write in it too.
    top: Option<PendingDirectory>,
    /// The directories that contain the current entry, each below the one before it.
    open: Vec<PendingDirectory>,
    /// The directories that the list has left, each with the number after its last entry.
    closed: Vec<(PendingDirectory, u32)>,
    /// Total size of the names and attributes, in bytes.
    weight: usize,
    /// Number of waiting directories at which the next check starts.
    next_check: usize,
}

/// Minimum number of waiting directories before a check.
const MIN_BEFORE_CHECK: usize = 64;

/// Maximum total size, in bytes: the same limit as for pending entries.
const MAX_WEIGHT: usize = MAX_PENDING_BYTES;

/// Bytes that each directory takes besides its name and attributes.
const DIRECTORY_OVERHEAD: usize = 256;

impl PendingDirectory {
    fn weight(&self) -> usize {
        weight(&self.entry)
    }
}

fn weight(entry: &Entry) -> usize {
    entry.weight() + DIRECTORY_OVERHEAD
}

impl PendingDirectories {
    /// Advances to the next entry of the list, and closes the directories that do not contain the entry.
    pub(super) fn advance_to(&mut self, number: u32, name: &Name) {
        while let Some(directory) = self.open.pop_if(|directory| !is_below(name, &directory.entry.name)) {
            self.closed.push((directory, number));
        }
    }

    /// Adds a directory that the list has reached.
    pub(super) fn push(&mut self, directory: PendingDirectory) {
        self.weight += directory.weight();
        if !directory.entry.name.is_root() {
            return self.open.push(directory);
        }
        // Each source may list the top directory. The last one counts.
        if let Some(earlier) = self.top.replace(directory) {
            self.weight -= earlier.weight();
            self.top.iter_mut().for_each(|top| {
                (top.is_new, top.previous_mode) =
                    (top.is_new || earlier.is_new, earlier.previous_mode.or(top.previous_mode))
            });
        }
    }

    /// Returns whether there is memory for one more directory.
    pub(super) fn has_room_for(&self, entry: &Entry) -> bool {
        self.weight + weight(entry) <= MAX_WEIGHT
    }

    /// Removes and returns the finished directories, if enough of them wait. `unsettled` returns whether any entry in a
    /// range of numbers is unsettled.
    pub(super) fn take_finished(&mut self, unsettled: impl Fn(u32, u32) -> bool) -> Vec<PendingDirectory> {
        if self.closed.len() < self.next_check.max(MIN_BEFORE_CHECK) {
            Vec::new()
        } else {
            self.take_finished_now(unsettled)
        }
    }

    /// Removes and returns the finished directories at once.
    pub(super) fn take_finished_now(&mut self, unsettled: impl Fn(u32, u32) -> bool) -> Vec<PendingDirectory> {
        let through = |(directory, end): &mut (PendingDirectory, u32)| !unsettled(directory.number, *end);
        // The order is correct: an unsettled entry keeps all directories around it waiting.
        let done: Vec<PendingDirectory> = self.closed.extract_if(.., through).map(|(directory, _)| directory).collect();
        self.next_check = 2 * self.closed.len();
        self.weight -= done.iter().map(PendingDirectory::weight).sum::<usize>();
        done
    }

    /// Returns all directories that are still waiting, inner ones first.
    pub(super) fn into_remaining(mut self) -> impl Iterator<Item = PendingDirectory> {
        let open = std::mem::take(&mut self.open);
        self.closed.into_iter().map(|(directory, _)| directory).chain(open.into_iter().rev()).chain(self.top)
    }
}

/// Returns whether `name` is in `directory`, at any depth.
pub(super) fn is_below(name: &Name, directory: &Name) -> bool {
    let is_subpath = |rest: &[u8]| rest.starts_with(b"/");
    (directory.is_root() && !name.is_root())
        || name.as_bytes().strip_prefix(directory.as_bytes()).is_some_and(is_subpath)
}

#[cfg(test)]
mod tests {
    use lfn_session::wire::copy::byte_string::ByteString;
    use lfn_session::wire::copy::entry::{EntryKind, Modified, Xattr};

    use super::*;

    fn names(directories: impl IntoIterator<Item = PendingDirectory>) -> Vec<String> {
        directories.into_iter().map(|directory| directory.entry.name.to_string()).collect()
    }

    #[test]
    fn finished_directories_free_memory() {
        let rich = |name: &str| {
            let mut entry =
                Entry::new(Name::new(name).unwrap(), EntryKind::Directory, 0o755, Modified::default()).unwrap();
            let value = ByteString(vec![0; 65_000]);
            entry.xattrs =
                (0..16).map(|n| Xattr { name: format!("user.{n}").as_str().into(), value: value.clone() }).collect();
            entry
        };
        let mut directories = PendingDirectories::default();
        let mut number = 0;
        while directories.has_room_for(&rich("next")) {
            let entry = rich(&format!("d{number}"));
            directories.advance_to(number, &entry.name);
            directories.push(PendingDirectory { number, entry, is_new: true, previous_mode: None });
            number += 1;
        }
        assert!((20..=32).contains(&number), "{number} mebibytes");
        let plain = Entry::new(Name::new("p").unwrap(), EntryKind::Directory, 0o755, Modified::default()).unwrap();
        assert!(directories.has_room_for(&plain));
        directories.advance_to(number, &plain.name);
        assert!(directories.take_finished(|_, _| false).is_empty(), "it is not time to look");
        assert_eq!(directories.take_finished_now(|from, _| from > 0).len(), 1);
        assert!(directories.has_room_for(&rich("next")));
    }

    /// A hostile peer may list any number of them.
    #[test]
    fn number_of_waiting_names_is_bounded() {
        let mut directories = PendingDirectories::default();
        let directory = |name: &str, is_new| {
            let entry = Entry::new(Name::new(name).unwrap(), EntryKind::Directory, 0o755, Modified::default()).unwrap();
            PendingDirectory { number: 0, entry, is_new, previous_mode: None }
        };
        for number in 0..1000 {
            directories.advance_to(number, &Name::new(".").unwrap());
            directories.push(directory(".", number == 0));
        }
        assert_eq!(directories.weight, directory(".", true).weight());
        let long = |n: u32| directory(&format!("{n}{}", "/long".repeat(800)), false);
        let mut many = 0;
        while directories.has_room_for(&long(many).entry) {
            let next = long(many);
            directories.advance_to(many, &next.entry.name);
            directories.push(next);
            many += 1;
        }
        assert!((5_000..10_000).contains(&many), "{many}");
        let rest: Vec<_> = directories.into_remaining().collect();
        let top = rest.last().unwrap();
        assert!(rest.len() == many as usize + 1 && top.is_new && top.entry.name.is_root());
    }

    #[test]
    fn only_unsettled_directories_wait() {
        let mut directories = PendingDirectories::default();
        let mut number = 0;
        let mut list = |directories: &mut PendingDirectories, path: &str| {
            let name = Name::new(path).unwrap();
            directories.advance_to(number, &name);
            if path.ends_with('d') || path == "." {
                let entry = Entry::new(name, EntryKind::Directory, 0o755, Modified::default()).unwrap();
                directories.push(PendingDirectory { number, entry, is_new: true, previous_mode: None });
            }
            number += 1;
        };
        list(&mut directories, ".");
        list(&mut directories, "td");
        let mut done = Vec::new();
        let mut max_waiting = 0;
        for n in 0..10_000 {
            list(&mut directories, &format!("td/{n}d"));
            list(&mut directories, &format!("td/{n}d/x"));
            // The file in the eleventh directory never arrives.
            let unsettled = |from: u32, to: u32| (from..to).contains(&23);
            done.extend(names(directories.take_finished(unsettled)));
            max_waiting = max_waiting.max(directories.closed.len());
        }
        assert!(max_waiting <= MIN_BEFORE_CHECK + 1, "{max_waiting}");
        assert!(done.len() > 9_000 && !done.contains(&"td/10d".into()), "{}", done.len());
        let rest = names(directories.into_remaining());
        assert_eq!(
            (rest.first().unwrap().as_str(), &rest[rest.len() - 2..]),
            ("td/10d", &["td".to_owned(), ".".into()][..])
        );
        assert_eq!(done.len() + rest.len(), 10_002);
    }
}
