//! Checks the names that a sender lists against the names that were requested.
//!
//! Without this check, a hostile sender decides which names are written: it lists `.bash_profile` where a data file was
//! requested (CVE-2019-6111 of scp, CVE-2022-29154 of rsync). The entries of a valid list depend on the sender's files.
//! This module only knows which names the request permits, in any order. Names below a requested directory are the
//! sender's own choice.

use std::collections::HashSet;
use std::iter;

use super::entry::{Entry, EntryKind, Name};
use super::filter::{Decision, FilterRules};
use super::glob::{NamePattern, PathPart, is_pattern, split_pattern};
use crate::wire::copy::entry::final_name;
use crate::wire::copy::{RemoteSource, Selection};

/// Maximum parent directories of an entry that are checked against the filter rules although the list did not contain
/// them. A list that names each directory before its contents has none.
const MAX_UNLISTED_PARENTS: usize = 64;

/// The requested names, and the directory that the list has reached.
#[derive(Debug)]
pub struct RequestedEntries {
    /// The contents of a directory were requested: any name is allowed.
    contents: bool,
    source_names: HashSet<Vec<u8>>,
    patterns: Vec<NamePattern>,
    /// Names of generated files (`random:`, `zero:`).
    generated: Vec<&'static [u8]>,
    names: Option<NameList>,
    rules: FilterRules,
    last_directory: LastDirectory,
}
#[derive(Debug)]
struct NameList {
    all: HashSet<Vec<u8>>,
    /// Sorted by component: each directory before its contents.
    sorted: Vec<Name>,
    max_depth: usize,
}

/// The most recent directory of the list. Its ancestors of at least `source_end` bytes were requested too.
#[derive(Debug, Default)]
struct LastDirectory {
    path: Vec<u8>,
    source_end: usize,
}

impl RequestedEntries {
    /// Creates the check for one request.
    pub fn new(from: &[RemoteSource], selection: &Selection) -> Self {
        let mut requested = RequestedEntries {
            contents: false,
            source_names: HashSet::new(),
            patterns: Vec::new(),
            generated: Vec::new(),
            names: None,
            rules: selection.rules.clone(),
            last_directory: LastDirectory::default(),
        };
        for source in from {
            match source {
                RemoteSource::Random { .. } => requested.generated.push(b"random"),
                RemoteSource::Zero { .. } => requested.generated.push(b"zero"),
                RemoteSource::File { path } if selection.names.is_none() => requested.add_path(path.as_bytes()),
                // With `--files-from`, neither the name of the source nor the names that it matches are listed.
                RemoteSource::File { .. } => {}
            }
        }
        if let Some(names) = &selection.names {
            requested.contents = names.iter().any(Name::is_root);
            requested.names = Some(NameList::of(names));
        }
        requested
    }

    /// Adds a source as typed. Wildcards in a source first match a file of that exact name.
    fn add_path(&mut self, path: &[u8]) {
        self.add_source(final_name(path));
        if is_pattern(path) {
            match split_pattern(path).last() {
                Some(PathPart::Pattern(pattern)) => self.patterns.push(pattern),
                Some(PathPart::Name(name)) => self.add_source(final_name(&name)),
                None => {}
            }
        }
    }

    fn add_source(&mut self, name: Option<&[u8]>) {
        match name {
            Some(name) => drop(self.source_names.insert(name.to_vec())),
            None => self.contents = true,
        }
    }

    /// Reports whether the request permits the next entry of the list.
    pub fn allows(&mut self, entry: &Entry) -> bool {
        let (name, is_directory) = (entry.name.as_bytes(), entry.kind == EntryKind::Directory);
        if entry.name.is_root() {
            return self.contents;
        }
        let is_file = matches!(entry.kind, EntryKind::File { .. });
        if is_file && self.generated.contains(&name) {
            // Filter rules do not apply to generated files.
            return true;
        }
        self.allows_path(name, is_directory)
            // Filter rules do not apply to the parent directories of a listed name.
            || (is_directory && self.names.as_ref().is_some_and(|names| names.has_names_below(&entry.name)))
    }

    fn allows_path(&mut self, name: &[u8], is_directory: bool) -> bool {
        let parent = name.iter().rposition(|byte| *byte == b'/').map_or(&name[..0], |slash| &name[..slash]);
        let above = self.last_directory.common_ancestor(parent);
        let start = if above == Some(parent.len()) { None } else { self.source_end(name) };
        let Some(from) = above.map(|above| above + 1).max(start) else { return false };
        if !self.rules.is_empty() {
            let mut skipped = 0;
            let include = |end: usize| {
                skipped += 1;
                let is_directory = end < name.len() || is_directory;
                skipped <= MAX_UNLISTED_PARENTS && self.rules.decide(&name[..end], is_directory) == Decision::Include
            };
            if !component_ends(name).filter(|end| *end >= from).all(include) {
                return false;
            }
        }
        let directory = if is_directory { name } else { parent };
        if directory.len() >= from {
            let from = if above.is_some_and(|above| above + 1 == from) { self.last_directory.source_end } else { from };
            self.last_directory.set(directory, from);
        }
        true
    }

    /// Returns the length of the source that this entry is, or is below. If several match, the longest.
    fn source_end(&self, name: &[u8]) -> Option<usize> {
        let named = self.names.as_ref().and_then(|names| names.longest_prefix(name));
        let first = component_ends(name).next()?;
        let own = &name[..first];
        let may_be =
            || self.contents || self.source_names.contains(own) || self.patterns.iter().any(|known| known.matches(own));
        named.or_else(|| may_be().then_some(first))
    }
}

impl NameList {
    fn of(names: &[Name]) -> Self {
        let mut sorted = names.to_vec();
        sorted.sort_unstable_by(|a, b| a.components().cmp(b.components()));
        let deepest = names.iter().map(|name| name.components().count()).max().unwrap_or_default();
        NameList { all: names.iter().map(|name| name.as_bytes().to_vec()).collect(), sorted, max_depth: deepest }
    }

    /// Returns the length of the longest listed name that this name is, or is below.
    fn longest_prefix(&self, name: &[u8]) -> Option<usize> {
        component_ends(name).take(self.max_depth).filter(|end| self.all.contains(&name[..*end])).last()
    }

    /// Reports whether the directory is a parent of a listed name.
    fn has_names_below(&self, directory: &Name) -> bool {
        let behind = self.sorted.partition_point(|name| name.components().cmp(directory.components()).is_le());
        let next = self.sorted.get(behind).and_then(|name| name.as_bytes().strip_prefix(directory.as_bytes()));
        next.is_some_and(|rest| rest.starts_with(b"/"))
    }
}

impl LastDirectory {
    /// Returns the length of the common ancestor of `directory` and the last directory, if the ancestor was requested.
    fn common_ancestor(&self, directory: &[u8]) -> Option<usize> {
        let same = iter::zip(&self.path, directory).take_while(|(a, b)| a == b).count();
        let ends_in = |path: &[u8]| path.get(same).is_none_or(|byte| *byte == b'/');
        let whole = match ends_in(&self.path) && ends_in(directory) {
            true => same,
            false => directory[..same].iter().rposition(|byte| *byte == b'/')?,
        };
        (whole > 0 && whole >= self.source_end).then_some(whole)
    }

    fn set(&mut self, directory: &[u8], from: usize) {
        if self.path != directory {
            self.path.clear();
            self.path.extend_from_slice(directory);
        }
        self.source_end = from;
    }
}

/// Returns the end positions of all parent directories of a name, then the length of the name.
fn component_ends(name: &[u8]) -> impl Iterator<Item = usize> {
    let slashes = name.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    slashes.chain(iter::once(name.len()))
}

#[cfg(test)]
mod tests;
