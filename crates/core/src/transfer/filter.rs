//! What of a tree is copied: rsync's include and exclude patterns, on the bytes of a path.
//!
//! The meaning is that of rsync(1), PATTERN MATCHING RULES: the first rule that matches decides, and what none matches is
//! included. A walker asks for a directory before it enters, and does not enter what is excluded. The path is the one
//! below the root of the transfer: `rsync src/ dst` has `a/b` where `rsync src dst` has `src/a/b`. Not here: rsync's
//! rules with a prefix (`+ `, `- `, `!`, merge files), which are refused so that nobody takes them for a pattern.
//!
//! A pattern is run as an automaton over the path, all its states at once (`wildcard`), so that the work is at
//! most the product of both lengths, whoever wrote the pattern.

use std::iter;

use serde::{Deserialize, Serialize};

use super::raw::Raw;
use super::wildcard::{Start, Wildcard};

/// Longest pattern.
pub const MAX_PATTERN: usize = 1024;

/// Most bytes of patterns in all, so that the work for one path is bounded too.
pub const MAX_RULES: usize = 64 * 1024;

/// Whether a rule's paths are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Copied.
    Include,
    /// Left out, a directory with all it holds.
    Exclude,
}

/// Why a pattern is no rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// Nothing between the quotes.
    #[error("empty pattern")]
    Empty,
    /// Too long to be meant.
    #[error("pattern of {0} bytes, at most {MAX_PATTERN} allowed")]
    TooLong(usize),
    /// No path has a NUL.
    #[error("pattern '{0}' contains NUL")]
    Nul(Raw),
    /// A rule in rsync's long form.
    #[error("pattern '{0}': rules with a prefix or '!' are not read here; '[{1}]' means the character")]
    Prefix(Raw, char),
    /// All together.
    #[error("patterns of more than {MAX_RULES} bytes in all")]
    TooMany,
}

/// Rules in the order they are asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<(Decision, Raw)>", into = "Vec<(Decision, Raw)>")]
pub struct Rules {
    rules: Vec<Rule>,
    bytes: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    decision: Decision,
    text: Raw,
    pattern: Pattern,
}

impl Rules {
    /// Adds a rule behind the others.
    pub fn push(&mut self, decision: Decision, pattern: &[u8]) -> Result<(), FilterError> {
        let bytes = self.bytes + pattern.len();
        if bytes > MAX_RULES {
            return Err(FilterError::TooMany);
        }
        self.rules.push(Rule { decision, text: pattern.into(), pattern: Pattern::new(pattern)? });
        self.bytes = bytes;
        Ok(())
    }

    /// Excludes that one path, whatever its bytes and the other rules.
    pub fn exclude_first(&mut self, path: &[u8]) -> Result<(), FilterError> {
        let wild = path.iter().any(|byte| b"*[?".contains(byte));
        let escaped = path.iter().flat_map(|byte| {
            let escape = wild && b"*[?\\".contains(byte);
            escape.then_some(b'\\').into_iter().chain([*byte])
        });
        let pattern: Vec<u8> = iter::once(b'/').chain(escaped).collect();
        self.push(Decision::Exclude, &pattern)?;
        self.rules.rotate_right(1);
        Ok(())
    }

    /// Whether there is no rule.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// What becomes of a path below the root of the transfer, without a slash at either end.
    pub fn decide(&self, path: &[u8], is_directory: bool) -> Decision {
        let rule = self.rules.iter().find(|rule| rule.pattern.matches(path, is_directory));
        rule.map_or(Decision::Include, |rule| rule.decision)
    }
}

impl TryFrom<Vec<(Decision, Raw)>> for Rules {
    type Error = FilterError;

    fn try_from(list: Vec<(Decision, Raw)>) -> Result<Self, FilterError> {
        let mut rules = Rules::default();
        list.iter().try_for_each(|(decision, pattern)| rules.push(*decision, pattern.as_bytes()))?;
        Ok(rules)
    }
}

impl From<Rules> for Vec<(Decision, Raw)> {
    fn from(rules: Rules) -> Self {
        rules.rules.into_iter().map(|rule| (rule.decision, rule.text)).collect()
    }
}

/// One pattern, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern {
    text: Text,
    /// Ended in a slash.
    only_directories: bool,
    /// Began with a slash.
    anchored: bool,
    /// Slashes inside; with none, and no `**`, only the last component is looked at.
    slashes: usize,
    double_star: bool,
    /// Begins with `**`, which stands for no directory too: the path gets a slash before it.
    double_star_first: bool,
    /// Ends in `***`, which matches the directory itself too: its path gets a slash behind it.
    triple_star_last: bool,
}

/// Without `*`, `?` and `[` a pattern is taken as it stands, backslashes and all.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Text {
    Literal(Vec<u8>),
    Wild(Wildcard),
}

impl Pattern {
    fn new(typed: &[u8]) -> Result<Self, FilterError> {
        match typed {
            [] => return Err(FilterError::Empty),
            long if long.len() > MAX_PATTERN => return Err(FilterError::TooLong(long.len())),
            nul if nul.contains(&0) => return Err(FilterError::Nul(nul.into())),
            [sign @ (b'+' | b'-'), b' ', ..] | [sign @ b'!', ..] => {
                return Err(FilterError::Prefix(typed.into(), char::from(*sign)));
            }
            _ => {}
        }
        let (body, only_directories) = match typed {
            [body @ .., b'/'] if !body.is_empty() => (body, true),
            body => (body, false),
        };
        let slashes = body.iter().filter(|byte| **byte == b'/').count();
        let wild = body.iter().any(|byte| b"*[?".contains(byte));
        let double_star = body.windows(2).any(|pair| pair == b"**");
        let (anchored, inner) = match body {
            [b'/', inner @ ..] => (true, inner),
            inner => (false, inner),
        };
        Ok(Pattern {
            text: if wild { Text::Wild(Wildcard::new(inner)) } else { Text::Literal(inner.to_vec()) },
            only_directories,
            anchored,
            slashes,
            double_star,
            double_star_first: body.starts_with(b"**"),
            triple_star_last: body.ends_with(b"***"),
        })
    }

    fn matches(&self, path: &[u8], is_directory: bool) -> bool {
        if path.is_empty() || (self.only_directories && !is_directory) {
            return false;
        }
        let by_component = self.slashes == 0 && !self.double_star;
        let path = if by_component { last_components(path, 1).unwrap_or(path) } else { path };
        match &self.text {
            Text::Literal(text) if self.anchored => path == text,
            Text::Literal(text) => {
                path.strip_suffix(text.as_slice()).is_some_and(|before| before.is_empty() || before.ends_with(b"/"))
            }
            Text::Wild(wildcard) => self.runs(wildcard, path, is_directory),
        }
    }

    fn runs(&self, wildcard: &Wildcard, path: &[u8], is_directory: bool) -> bool {
        let before: &[u8] = if self.double_star_first { b"/" } else { b"" };
        let behind: &[u8] = if is_directory && self.triple_star_last { b"/" } else { b"" };
        let (path, start) = match (self.anchored, self.double_star) {
            (false, false) if self.slashes > 0 => match last_components(path, self.slashes + 1) {
                Some(end) => (end, Start::Here),
                None => return false,
            },
            (false, true) if !self.double_star_first => (path, Start::AfterAnySlash),
            _ => (path, Start::Here),
        };
        wildcard.matches(before.iter().chain(path).chain(behind).copied(), start)
    }
}

/// The last so many components, if there are as many.
fn last_components(path: &[u8], count: usize) -> Option<&[u8]> {
    let mut slashes = (0..path.len()).rev().filter(|at| path[*at] == b'/');
    match slashes.nth(count - 1) {
        Some(slash) => Some(&path[slash + 1..]),
        None => (path.iter().filter(|byte| **byte == b'/').count() + 1 == count).then_some(path),
    }
}

#[cfg(test)]
mod tests;
