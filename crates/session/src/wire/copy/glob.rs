//! Splits a path with wildcards. The remote end expands the wildcards below its root, as a shell does.
//!
//! `*`, `?`, `[…]` and a backslash have the same meaning as in a filter, within one component. A name that begins with
//! a dot matches only a pattern that begins with a dot. A path without `*`, `?` and `[` is literal, including
//! backslashes. Expansion first looks for a file of that exact name, so that every name can be reached.

use super::wildcard::{MatchStart, Wildcard};

/// A component of a path with wildcards.
#[derive(Clone, Debug)]
pub enum PathPart {
    /// A literal name; empty before a leading slash and after a trailing slash.
    Name(Vec<u8>),
    Pattern(NamePattern),
}

/// A pattern for one path component.
#[derive(Clone, Debug)]
pub struct NamePattern {
    wildcard: Wildcard,
    matches_hidden: bool,
}

impl NamePattern {
    /// Reports whether a name matches the pattern.
    pub fn matches(&self, name: &[u8]) -> bool {
        (self.matches_hidden || !name.starts_with(b"."))
            && self.wildcard.matches(name.iter().copied(), MatchStart::PathStart)
    }
}

/// Reports whether a path contains wildcards.
pub fn is_pattern(path: &[u8]) -> bool {
    path.iter().any(|byte| b"*?[".contains(byte))
}

/// Splits a pattern into components. In components without wildcards, backslash escapes are removed.
pub fn split_pattern(path: &[u8]) -> impl Iterator<Item = PathPart> {
    path.split(|byte| *byte == b'/').map(|part| match is_pattern(part) {
        true if is_fully_escaped(part) => PathPart::Name(unescape(part)),
        true => {
            PathPart::Pattern(NamePattern { wildcard: Wildcard::new(part), matches_hidden: part.starts_with(b".") })
        }
        false => PathPart::Name(part.to_vec()),
    })
}

/// Reports whether every wildcard is escaped with a backslash.
fn is_fully_escaped(part: &[u8]) -> bool {
    let mut bytes = part.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => drop(bytes.next()),
            b'*' | b'?' | b'[' => return false,
            _ => {}
        }
    }
    true
}

fn unescape(part: &[u8]) -> Vec<u8> {
    let mut bytes = part.iter();
    let mut plain = Vec::with_capacity(part.len());
    while let Some(byte) = bytes.next() {
        plain.push(if *byte == b'\\' { *bytes.next().unwrap_or(byte) } else { *byte });
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, name: &str) -> bool {
        match split_pattern(pattern.as_bytes()).next() {
            Some(PathPart::Pattern(component)) => component.matches(name.as_bytes()),
            Some(PathPart::Name(own)) => own == name.as_bytes(),
            None => false,
        }
    }

    #[test]
    fn components_match_like_a_shell() {
        for (pattern, name) in
            [("*.nc", "a.nc"), ("[ab]?", "b1"), (".*", ".a"), ("a\\*", "a*"), ("\\[*", "[x"), ("a", "a")]
        {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("*.nc", ".a.nc"), ("*", ".a"), ("a\\*", "ab"), ("[ab]", "c"), ("?", ""), ("[a", "[a")]
        {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn split_keeps_slashes() {
        let names = |text: &str| -> Vec<String> {
            let split_pattern = split_pattern(text.as_bytes()).map(|part| match part {
                PathPart::Name(name) => String::from_utf8(name).unwrap(),
                PathPart::Pattern(_) => "*".into(),
            });
            split_pattern.collect()
        };
        assert_eq!(names("/a\\b/*/"), ["", "a\\b", "*", ""]);
        assert!(!is_pattern(b"a\\b") && is_pattern(b"a\\*"));
    }
}
