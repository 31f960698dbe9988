//! Selects the files to copy by rsync's include and exclude patterns, matched against the bytes of a path.
//!
//! The meaning is that of rsync(1), PATTERN MATCHING RULES: the first matching rule decides, and a path without a
//! matching rule is included. The directory walk checks a directory before it enters and does not enter an excluded
//! directory. The path is relative to the root of the transfer: `rsync src/ dst` has `a/b` where `rsync src dst` has
//! `src/a/b`. Rules with a prefix (`+ `, `- `, `!`, merge files) are not supported. They are rejected, so that they are
//! not mistaken for patterns.
//!
//! A pattern runs as an automaton over the path, with all its states at once (`wildcard`). The work is at most the
//! product of both lengths, also for a hostile pattern.

use std::iter;

use serde::{Deserialize, Serialize};

use super::byte_string::ByteString;
use super::wildcard::{MatchStart, Wildcard};

/// Maximum length of one pattern.
pub const MAX_PATTERN: usize = 1024;

/// Maximum bytes of all patterns together, which bounds the work for one path.
pub const MAX_RULE_BYTES: usize = 64 * 1024;

/// Effect of a filter rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    Include,
    /// Excludes a directory with all its contents.
    Exclude,
}

/// Reason why a pattern is no valid rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    #[error("empty pattern")]
    Empty,
    #[error("pattern of {0} bytes, at most {MAX_PATTERN} allowed")]
    TooLong(usize),
    #[error("pattern '{0}' contains NUL")]
    Nul(ByteString),
    #[error("pattern '{0}': rules with a prefix or '!' are not supported; write '[{1}]' for the character itself")]
    Prefix(ByteString, char),
    #[error("patterns of more than {MAX_RULE_BYTES} bytes in all")]
    TooMany,
}

/// Filter rules in the order of evaluation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<(Decision, ByteString)>", into = "Vec<(Decision, ByteString)>")]
pub struct FilterRules {
    rules: Vec<Rule>,
    bytes: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    decision: Decision,
    text: ByteString,
    pattern: Pattern,
}

impl FilterRules {
    /// Appends a rule after the existing rules.
    pub fn push(&mut self, decision: Decision, pattern: &[u8]) -> Result<(), FilterError> {
        let bytes = self.bytes + pattern.len();
        if bytes > MAX_RULE_BYTES {
            return Err(FilterError::TooMany);
        }
        self.rules.push(Rule { decision, text: pattern.into(), pattern: Pattern::new(pattern)? });
        self.bytes = bytes;
        Ok(())
    }

    /// Excludes exactly this path, with priority over all other rules. Special characters in the path are escaped.
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

    /// Reports whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Returns the decision for a path below the root of the transfer, without a slash at either end.
    pub fn decide(&self, path: &[u8], is_directory: bool) -> Decision {
        let rule = self.rules.iter().find(|rule| rule.pattern.matches(path, is_directory));
        rule.map_or(Decision::Include, |rule| rule.decision)
    }
}

impl TryFrom<Vec<(Decision, ByteString)>> for FilterRules {
    type Error = FilterError;

    fn try_from(list: Vec<(Decision, ByteString)>) -> Result<Self, FilterError> {
        let mut rules = FilterRules::default();
        list.iter().try_for_each(|(decision, pattern)| rules.push(*decision, pattern.as_bytes()))?;
        Ok(rules)
    }
}

impl From<FilterRules> for Vec<(Decision, ByteString)> {
    fn from(rules: FilterRules) -> Self {
        rules.rules.into_iter().map(|rule| (rule.decision, rule.text)).collect()
    }
}

/// One pattern in parsed form.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern {
    text: Text,
    /// The pattern ended in a slash.
    only_directories: bool,
    /// The pattern began with a slash.
    anchored: bool,
    /// Count of inner slashes. Without slashes and without `**`, only the last component is matched.
    slashes: usize,
    double_star: bool,
    /// Begins with `**`, which also matches no directory: the path gets a leading slash.
    double_star_first: bool,
    /// Ends in `***`, which also matches the directory itself: its path gets a trailing slash.
    triple_star_last: bool,
}

/// Without `*`, `?` and `[`, a pattern is literal, including backslashes.
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
            Text::Wild(wildcard) => self.matches_wildcard(wildcard, path, is_directory),
        }
    }

    fn matches_wildcard(&self, wildcard: &Wildcard, path: &[u8], is_directory: bool) -> bool {
        let before: &[u8] = if self.double_star_first { b"/" } else { b"" };
        let behind: &[u8] = if is_directory && self.triple_star_last { b"/" } else { b"" };
        let (path, start) = match (self.anchored, self.double_star) {
            (false, false) if self.slashes > 0 => match last_components(path, self.slashes + 1) {
                Some(end) => (end, MatchStart::PathStart),
                None => return false,
            },
            (false, true) if !self.double_star_first => (path, MatchStart::AfterAnySlash),
            _ => (path, MatchStart::PathStart),
        };
        wildcard.matches(before.iter().chain(path).chain(behind).copied(), start)
    }
}

/// Returns the last `count` components, if the path has as many.
fn last_components(path: &[u8], count: usize) -> Option<&[u8]> {
    let mut slashes = (0..path.len()).rev().filter(|at| path[*at] == b'/');
    match slashes.nth(count - 1) {
        Some(slash) => Some(&path[slash + 1..]),
        None => (path.iter().filter(|byte| **byte == b'/').count() + 1 == count).then_some(path),
    }
}

#[cfg(test)]
mod tests;
