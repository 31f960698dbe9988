//! What a list may hold: whoever receives names from another host holds each of them against what was asked of it.
//!
//! Otherwise a hostile sender decides which names are written, and lists `.bash_profile` where a file of data was asked for
//! (CVE-2019-6111 of scp, CVE-2022-29154 of rsync). What a sender makes of a request depends on what is there; here is only what
//! it may make of it, whatever is there, in whatever order it is listed. What a sender lists below such names is its own
//! affair.

use std::collections::HashSet;
use std::iter;

use super::entry::{Entry, Kind, Name};
use super::filter::{Decision, Rules};
use super::glob::{Component, Part, is_pattern, parts};
use super::location::own_name;
use crate::wire::copy::{From, Pick};

/// Most directories on the way to an entry that rules are asked about though the list did not come through them. One that
/// names each directory before what is in it has none.
const MOST_SKIPPED: usize = 64;

/// What was asked for, and how far the list has come.
#[derive(Debug)]
pub struct Asked {
    /// What is in some directory, whatever its names.
    contents: bool,
    /// Names of sources.
    own: HashSet<Vec<u8>>,
    /// What others may be called.
    patterns: Vec<Component>,
    /// Files that are made on the spot.
    made: Vec<&'static [u8]>,
    names: Option<Names>,
    rules: Rules,
    last: Passed,
}

/// Names from a list (`--files-from`).
#[derive(Debug)]
struct Names {
    all: HashSet<Vec<u8>>,
    /// Each directory before what is in it.
    sorted: Vec<Name>,
    /// Components of the longest way to one.
    deepest: usize,
}

/// The directory that was passed last; those on the way to it that have at least `from` bytes were asked for too.
#[derive(Debug, Default)]
struct Passed {
    path: Vec<u8>,
    from: usize,
}

impl Asked {
    /// What may come of a request.
    pub fn of(from: &[From], pick: &Pick) -> Self {
        let mut asked = Asked {
            contents: false,
            own: HashSet::new(),
            patterns: Vec::new(),
            made: Vec::new(),
            names: None,
            rules: pick.rules.clone(),
            last: Passed::default(),
        };
        for source in from {
            match source {
                From::Random { .. } => asked.made.push(b"random"),
                From::Zero { .. } => asked.made.push(b"zero"),
                From::File { path } if pick.names.is_none() => asked.path(path.as_bytes()),
                // Neither its name is listed then, nor what it may be a pattern of.
                From::File { .. } => {}
            }
        }
        if let Some(names) = &pick.names {
            asked.contents = names.iter().any(Name::is_root);
            asked.names = Some(Names::of(names));
        }
        asked
    }

    /// A source, as it was typed: first of all the one of that very name.
    fn path(&mut self, path: &[u8]) {
        self.source(own_name(path));
        if is_pattern(path) {
            match parts(path).last() {
                Some(Part::Pattern(pattern)) => self.patterns.push(pattern),
                Some(Part::Name(name)) => self.source(own_name(&name)),
                None => {}
            }
        }
    }

    fn source(&mut self, name: Option<&[u8]>) {
        match name {
            Some(name) => drop(self.own.insert(name.to_vec())),
            None => self.contents = true,
        }
    }

    /// Whether the next entry of the list was asked for.
    pub fn has(&mut self, entry: &Entry) -> bool {
        let (name, is_directory) = (entry.name.as_bytes(), entry.kind == Kind::Directory);
        if entry.name.is_root() {
            return self.contents;
        }
        let is_file = matches!(entry.kind, Kind::File { .. });
        if is_file && self.made.contains(&name) {
            // No rule is asked about it.
            return true;
        }
        self.has_path(name, is_directory)
            // Nor about a directory on the way to a name.
            || (is_directory && self.names.as_ref().is_some_and(|names| names.lead_through(&entry.name)))
    }

    fn has_path(&mut self, name: &[u8], is_directory: bool) -> bool {
        let parent = name.iter().rposition(|byte| *byte == b'/').map_or(&name[..0], |slash| &name[..slash]);
        let above = self.last.shared_with(parent);
        let start = if above == Some(parent.len()) { None } else { self.start(name) };
        let Some(from) = above.map(|above| above + 1).max(start) else { return false };
        if !self.rules.is_empty() {
            let mut skipped = 0;
            let include = |end: usize| {
                skipped += 1;
                let is_directory = end < name.len() || is_directory;
                skipped <= MOST_SKIPPED && self.rules.decide(&name[..end], is_directory) == Decision::Include
            };
            if !ends(name).filter(|end| *end >= from).all(include) {
                return false;
            }
        }
        let directory = if is_directory { name } else { parent };
        if directory.len() >= from {
            let from = if above.is_some_and(|above| above + 1 == from) { self.last.from } else { from };
            self.last.pass(directory, from);
        }
        true
    }

    /// The length of the source that an entry is, or is below; of several the longest.
    fn start(&self, name: &[u8]) -> Option<usize> {
        let named = self.names.as_ref().and_then(|names| names.above(name));
        let first = ends(name).next()?;
        let own = &name[..first];
        let may_be = || self.contents || self.own.contains(own) || self.patterns.iter().any(|known| known.matches(own));
        named.or_else(|| may_be().then_some(first))
    }
}

impl Names {
    fn of(names: &[Name]) -> Self {
        let mut sorted = names.to_vec();
        sorted.sort_unstable_by(|a, b| a.components().cmp(b.components()));
        let deepest = names.iter().map(|name| name.components().count()).max().unwrap_or_default();
        Names { all: names.iter().map(|name| name.as_bytes().to_vec()).collect(), sorted, deepest }
    }

    /// The length of the longest name that this one is, or is below.
    fn above(&self, name: &[u8]) -> Option<usize> {
        ends(name).take(self.deepest).filter(|end| self.all.contains(&name[..*end])).last()
    }

    /// Whether a directory is on the way to one of them.
    fn lead_through(&self, directory: &Name) -> bool {
        let behind = self.sorted.partition_point(|name| name.components().cmp(directory.components()).is_le());
        let next = self.sorted.get(behind).and_then(|name| name.as_bytes().strip_prefix(directory.as_bytes()));
        next.is_some_and(|rest| rest.starts_with(b"/"))
    }
}

impl Passed {
    /// How much of the way to `directory` was passed, if any of it was.
    fn shared_with(&self, directory: &[u8]) -> Option<usize> {
        let same = iter::zip(&self.path, directory).take_while(|(a, b)| a == b).count();
        let ends_in = |path: &[u8]| path.get(same).is_none_or(|byte| *byte == b'/');
        let whole = match ends_in(&self.path) && ends_in(directory) {
            true => same,
            false => directory[..same].iter().rposition(|byte| *byte == b'/')?,
        };
        (whole > 0 && whole >= self.from).then_some(whole)
    }

    fn pass(&mut self, directory: &[u8], from: usize) {
        if self.path != directory {
            self.path.clear();
            self.path.extend_from_slice(directory);
        }
        self.from = from;
    }
}

/// Where the directories on the way to a name end, and the name itself.
fn ends(name: &[u8]) -> impl Iterator<Item = usize> {
    let slashes = name.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    slashes.chain(iter::once(name.len()))
}

#[cfg(test)]
mod tests;
