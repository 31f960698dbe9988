//! The search for entries that the source does not have (`--delete`). Entries are found while the list arrives, and
//! deleted after the copy.
//!
//! The list names a directory before its contents, and its contents before the entries that follow. So only the names
//! in the directories around the current entry are kept, 8 bytes for each. When the list leaves a directory, the names
//! at the destination that were not listed go to a spool, which is written to disk when it grows long. A name is
//! compared by a hash. If two hashes collide, an entry stays that could be deleted.
//!
//! If an entry of the source could not be listed or sent, nothing is deleted, as with rsync's `--delete-after`: an
//! entry that is missing from the list may still exist at the source. Nothing is deleted either if the spool is
//! incomplete. Partial files and journals belong to other copies and stay.

use std::collections::HashSet;
use std::fs::File;

use lfn_session::wire::copy::entry::{Entry, EntryKind, Name};
use lfn_session::wire::copy::filter::{Decision, FilterRules};

use super::case_folding::{FoldCollisions, accepts_other_spelling, fold_name};
use super::path_spool::PathSpool;
use crate::receiver::fingerprint::{Fingerprint, fingerprint};
use crate::receiver::report::{EntryReports, Report};
use crate::storage::{Existing, Metadata, ObjectKind, Storage};
use crate::{ForbiddenReason, TransferError};

/// Maximum number of names in memory, 8 bytes each: those in directories that are still being listed, and the
/// destination's own directories. With more names, nothing is deleted.
const MAX_NAMES: usize = 16 << 20;

/// Maximum number of remembered unlisted names (19 MiB). With more of them, the receiver no longer knows which names
/// the source lacks.
pub(in crate::receiver) const MAX_UNLISTED: usize = 1_800_000;

/// Returns the fingerprint of an object.
fn id_fingerprint(metadata: &Metadata) -> Fingerprint {
    let (device, number) = metadata.id;
    fingerprint(&[device.to_ne_bytes(), number.to_ne_bytes()].concat())
}

/// Returns whether the object has only one name. Each name of a hard-linked file is judged separately.
fn has_one_name(metadata: &Metadata) -> bool {
    metadata.links == 1 || metadata.kind == ObjectKind::Directory
}

/// The entries to delete, and the state of the search for them.
#[derive(Debug)]
pub(super) struct Deletions {
    levels: Vec<DirectoryNames>,
    /// Names from sources that were listed before the destination's own directory.
    early_names: Vec<Fingerprint>,
    /// Number of names in memory, and its maximum.
    name_count: usize,
    max_names: usize,
    /// The destination's own directories that the list has left. Only these may appear again, from another source.
    finished: HashSet<Fingerprint>,
    /// The reason to delete nothing, with the directory that caused it.
    aborted: Option<(Name, TransferError)>,
    /// Fingerprints of names that the source has but does not list.
    unlisted: HashSet<Fingerprint>,
    /// The list does not have every entry of the source, so an entry that is missing from it may still exist there.
    is_source_incomplete: bool,
    found: PathSpool,
}

/// A directory with an unfinished list of names.
#[derive(Debug)]
struct DirectoryNames {
    name: Name,
    names: Vec<Fingerprint>,
    /// Case-folded names, where they differ from the listed ones.
    folded: Vec<Fingerprint>,
    /// Objects that existed under listed names. A file system that changes names shows these objects under other names.
    objects: Vec<Fingerprint>,
}

impl DirectoryNames {
    /// Returns whether this name is another name of an object that a listed name had.
    fn has_object(&self, storage: &dyn Storage, name: &Name) -> bool {
        let Ok(Existing::Object(metadata)) = storage.stat(name) else { return false };
        has_one_name(&metadata) && self.objects.binary_search(&id_fingerprint(&metadata)).is_ok()
    }

    /// Returns whether this name is another spelling of a listed name, on a file system that treats both as equal.
    fn has_other_spelling(
        &self,
        storage: &dyn Storage,
        file_name: &[u8],
        collisions: &mut Option<FoldCollisions>,
    ) -> bool {
        let folded = fingerprint(&fold_name(file_name));
        let is_listed = [&self.names, &self.folded].iter().any(|all| all.binary_search(&folded).is_ok());
        is_listed
            && accepts_other_spelling(storage, &self.name, file_name)
            && !collisions.get_or_insert_with(|| FoldCollisions::of_directory(storage, &self.name)).contains(folded)
    }
}

impl Default for Deletions {
    fn default() -> Self {
        Deletions {
            levels: Vec::new(),
            early_names: Vec::new(),
            name_count: 0,
            max_names: MAX_NAMES,
            finished: HashSet::new(),
            aborted: None,
            unlisted: HashSet::new(),
            is_source_incomplete: false,
            found: PathSpool::default(),
        }
    }
}

impl Deletions {
    /// Adds names that the source has but does not list.
    pub(super) fn add_unlisted(&mut self, names: Vec<Fingerprint>) {
        self.unlisted.extend(names);
        self.is_source_incomplete |= self.unlisted.len() >= MAX_UNLISTED;
    }

    /// Records that the list does not have every entry of the source.
    pub(super) fn set_source_incomplete(&mut self) {
        self.is_source_incomplete = true;
    }

    /// Takes the next entry of the list. Searches the directories that the list leaves.
    pub(super) fn advance(&mut self, search: &DeletionSearch<'_>, entry: &Entry) {
        let name = entry.name.as_bytes();
        while let Some(level) = self.levels.pop_if(|level| !contains(&level.name, name)) {
            self.finish_directory(search, level);
        }
        self.add_name(entry);
        if entry.kind != EntryKind::Directory || (entry.name.is_root() && !self.levels.is_empty()) {
            return;
        }
        if self.finished.contains(&fingerprint(relative_path(&entry.name))) {
            self.abort_forbidden(&entry.name, ForbiddenReason::DeletionFromSeveralSources);
        }
        let names = if entry.name.is_root() { std::mem::take(&mut self.early_names) } else { Vec::new() };
        self.levels.push(DirectoryNames { name: entry.name.clone(), names, folded: Vec::new(), objects: Vec::new() });
    }

    /// Adds the name of an entry to its directory.
    fn add_name(&mut self, entry: &Entry) {
        if !self.has_room(&entry.name) {
            return;
        }
        let (parent, last) = entry.name.split();
        let names = match self.levels.last_mut() {
            Some(level) if relative_path(&level.name) == parent => {
                let folded = fold_name(last);
                if folded != last {
                    level.folded.push(fingerprint(&folded));
                    self.name_count += 1;
                }
                &mut level.names
            }
            _ if parent.is_empty() && !entry.name.is_root() => &mut self.early_names,
            _ => return,
        };
        names.push(fingerprint(last));
        self.name_count += 1;
    }

    /// Excludes the existing entry of this name from deletion, whatever spelling the file system gives the name.
    pub(super) fn exclude(&mut self, name: &Name, metadata: &Metadata) {
        let (parent, _) = name.split();
        let Some(at) = self.levels.iter().rposition(|level| relative_path(&level.name) == parent) else { return };
        // Before a replacement, the other names of a hard-linked file must count separately: one of them may become the
        // only one.
        if has_one_name(metadata) && self.has_room(name) {
            self.levels[at].objects.push(id_fingerprint(metadata));
            self.name_count += 1;
        }
    }

    /// Returns whether one more name fits in memory. Without the name, entries of the source could be deleted.
    fn has_room(&mut self, name: &Name) -> bool {
        if self.name_count >= self.max_names {
            self.abort_forbidden(name, ForbiddenReason::TooManyNamesToDelete);
        }
        self.name_count < self.max_names
    }

    fn abort_forbidden(&mut self, name: &Name, reason: ForbiddenReason) {
        self.abort(name, TransferError::Forbidden { path: name.to_string(), reason });
    }

    fn abort(&mut self, name: &Name, error: TransferError) {
        self.aborted.get_or_insert_with(|| (name.clone(), error));
    }

    /// Adds the path of an entry to delete in `directory`.
    fn add_path(&mut self, directory: &Name, path: &[u8], open: impl FnOnce() -> Option<File>) {
        if self.aborted.is_some() {
            return;
        }
        if let Err(source) = self.found.push(path, open) {
            let (doing, path) = ("list the files to delete in", directory.to_string());
            self.abort(directory, TransferError::File { doing, path, source });
        }
    }

    /// Ends the search. Every entry of the list has its outcome now.
    pub(super) fn finish(mut self, search: &DeletionSearch<'_>) -> FoundDeletions {
        while let Some(level) = self.levels.pop() {
            self.finish_directory(search, level);
        }
        match self.aborted {
            Some((name, error)) => FoundDeletions::Aborted(name, error),
            None if self.is_source_incomplete => FoundDeletions::SourceIncomplete,
            None => FoundDeletions::Paths(self.found),
        }
    }

    /// Searches a directory with a complete list of names.
    fn finish_directory(&mut self, search: &DeletionSearch<'_>, mut level: DirectoryNames) {
        let path = relative_path(&level.name);
        self.name_count -= level.names.len() + level.folded.len() + level.objects.len();
        if !path.contains(&b'/') && self.has_room(&level.name) {
            self.name_count += usize::from(self.finished.insert(fingerprint(path)));
        }
        level.names.sort_unstable();
        level.folded.sort_unstable();
        level.objects.sort_unstable();
        if let Err(error) = self.scan_directory(search, &level) {
            search.reports.reports.send(Report::Failed { name: level.name, error });
        }
    }

    fn scan_directory(&mut self, search: &DeletionSearch<'_>, level: &DirectoryNames) -> Result<(), TransferError> {
        let storage = search.storage;
        // The directory could not be created, or this is a dry run.
        if !matches!(storage.stat(&level.name), Ok(Existing::Object(found)) if found.kind == ObjectKind::Directory) {
            return Ok(());
        }
        let mut collisions = None;
        for file_name in storage.list(&level.name)? {
            let file_name = file_name?;
            let path = join_path(relative_path(&level.name), &file_name);
            // The storage returned this name, so the name is valid unless it is too long for a list.
            let Ok(name) = Name::new(path.clone()) else { continue };
            if storage.is_reserved(&file_name)
                || level.names.binary_search(&fingerprint(&file_name)).is_ok()
                || level.has_object(storage, &name)
                || level.has_other_spelling(storage, &file_name, &mut collisions)
            {
                continue;
            }
            if !self.unlisted.contains(&fingerprint(&path)) && !search.is_protected(&name) {
                self.add_path(&level.name, &path, || storage.create_scratch_file(search.dry_run));
            }
        }
        Ok(())
    }
}

/// The destination as the search for entries to delete sees it.
pub(super) struct DeletionSearch<'a> {
    pub(super) storage: &'a dyn Storage,
    pub(super) reports: &'a EntryReports,
    pub(super) protect: &'a FilterRules,
    pub(super) dry_run: bool,
}

/// The result of the search.
#[derive(Debug)]
pub(super) enum FoundDeletions {
    /// The paths of the entries to delete.
    Paths(PathSpool),
    /// Nothing may be deleted, because the list does not have every entry of the source.
    SourceIncomplete,
    /// Nothing may be deleted, because the search failed in this directory.
    Aborted(Name, TransferError),
}

impl DeletionSearch<'_> {
    /// Returns whether an exclude rule protects the entry from deletion.
    fn is_protected(&self, name: &Name) -> bool {
        if self.protect.is_empty() {
            return false;
        }
        let existing = self.storage.stat(name);
        let is_directory = matches!(existing, Ok(Existing::Object(found)) if found.kind == ObjectKind::Directory);
        self.protect.decide(name.as_bytes(), is_directory) == Decision::Exclude
    }
}

/// Returns the path of a directory below the destination; empty for the destination itself.
fn relative_path(name: &Name) -> &[u8] {
    if name.is_root() { b"" } else { name.as_bytes() }
}

/// Returns whether `name` is in the directory, at any depth.
fn contains(directory: &Name, name: &[u8]) -> bool {
    directory.is_root() || name.strip_prefix(directory.as_bytes()).is_some_and(|rest| rest.starts_with(b"/"))
}

fn join_path(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() { name.to_vec() } else { [directory, b"/", name].concat() }
}

#[cfg(test)]
mod tests {
    use lfn_base::units::Bytes;
    use lfn_session::wire::copy::entry::Modified;

    use super::super::path_spool::SPOOL_MEMORY;
    use super::*;

    #[test]
    fn too_many_names_prevent_deletion() {
        let modified = Modified::new(0, 0).unwrap();
        let kind = || EntryKind::File { length: Bytes(1) };
        let file = |name: &str| Entry::new(Name::new(name).unwrap(), kind(), 0o644, modified).unwrap();
        let mut deletions = Deletions { max_names: 3, ..Deletions::default() };
        for name in ["a", "b", "c"] {
            deletions.add_name(&file(name));
        }
        assert!(deletions.aborted.is_none() && deletions.early_names.len() == 3);
        deletions.add_name(&file("d"));
        assert_eq!((deletions.aborted.unwrap().0.to_string(), deletions.early_names.len()), ("d".to_owned(), 3));
    }

    #[test]
    fn incomplete_spool_prevents_deletion() {
        let mut deletions = Deletions::default();
        let full = || Some(File::options().read(true).write(true).open("/dev/full").unwrap());
        let directory = Name::new("d").unwrap();
        for _ in 0..=SPOOL_MEMORY / 201 {
            assert!(deletions.aborted.is_none());
            deletions.add_path(&directory, &[b'k'; 200], full);
        }
        let (name, error) = deletions.aborted.unwrap();
        assert!(name == directory && error.is_out_of_space(), "{error}");
    }
}
