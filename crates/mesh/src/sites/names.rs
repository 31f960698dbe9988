//! Names of the items of a sites file, and the look-up of names that other items refer to.

use std::collections::BTreeMap;

use super::error::Problem;
use super::limits::MAX_ITEMS;
use super::reader::{Located, Problems, Span, Table};

/// Names of one kind of item, with the line of each.
pub(super) struct Names {
    what: &'static str,
    lines: BTreeMap<String, usize>,
}

impl Names {
    pub(super) fn new(what: &'static str) -> Self {
        Names { what, lines: BTreeMap::new() }
    }

    /// Records a name. A name that is known already is a problem.
    pub(super) fn claim(&mut self, name: &Located<String>, problems: &mut Problems) {
        let line = problems.line(&name.span);
        match self.lines.get(&name.value) {
            Some(&first_line) => {
                let duplicate = Problem::Duplicate { what: self.what, name: name.value.clone(), first_line };
                problems.add(&name.span, duplicate);
            }
            None => _ = self.lines.insert(name.value.clone(), line),
        }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.lines.contains_key(name)
    }

    /// Returns the name if it is known; an unknown name is a problem.
    pub(super) fn look_up(&self, name: Located<String>, problems: &mut Problems) -> Option<String> {
        if self.has(&name.value) {
            return Some(name.value);
        }
        problems.add(&name.span, Problem::UnknownName { what: self.what, name: name.value });
        None
    }
}

/// Names that other items refer to.
pub(super) struct KnownNames {
    pub sites: Names,
    pub hosts: Names,
    pub groups: Names,
    pub operators: Names,
    pub bottlenecks: Names,
    pub circuits: Names,
}

impl KnownNames {
    /// Returns the name if it is a site or a host.
    pub(super) fn member(&self, name: Located<String>, problems: &mut Problems) -> Option<String> {
        if self.sites.has(&name.value) || self.hosts.has(&name.value) {
            return Some(name.value);
        }
        problems.add(&name.span, Problem::UnknownName { what: "site or host", name: name.value });
        None
    }

    /// Returns the pair if both names are sites or hosts.
    pub(super) fn member_pair(
        &self,
        [first, second]: [Located<String>; 2],
        problems: &mut Problems,
    ) -> Option<[String; 2]> {
        let first = self.member(first, problems);
        let second = self.member(second, problems);
        Some([first?, second?])
    }

    /// Returns the names that are sites; other names are problems.
    pub(super) fn site_names(&self, names: Vec<Located<String>>, problems: &mut Problems) -> Vec<String> {
        names.into_iter().filter_map(|name| self.sites.look_up(name, problems)).collect()
    }
}

/// Returns the tables of a key, at most [`MAX_ITEMS`].
pub(super) fn items<'a, 't>(
    root: &mut Table<'a, 't>,
    key: &'static str,
    name: &'static str,
    problems: &mut Problems,
) -> Vec<Table<'a, 't>> {
    let mut tables = root.tables(key, name, problems);
    if tables.len() > MAX_ITEMS {
        let (count, max) = (tables.len() as u64, MAX_ITEMS as u64);
        problems.add(&root.span_of(key), Problem::TooMany { what: name, count, max });
        tables.truncate(MAX_ITEMS);
    }
    tables
}

/// Position of a test in the file.
pub(super) struct TestPosition {
    pub span: Span,
    pub interval: Span,
}
