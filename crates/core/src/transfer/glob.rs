//! A path with wildcards, as a shell would expand it; the far end does, under its root.
//!
//! `*`, `?`, `[…]` and a backslash mean what they mean in a filter, inside one component; a name that begins with a dot is
//! matched only where the pattern begins with one. A path without `*`, `?` and `[` is a path, backslashes and all. Who
//! expands it looks for a file of that very name first, so that every name can be reached.

use super::wildcard::{Start, Wildcard};

/// A component of a pattern.
#[derive(Clone, Debug)]
pub enum Part {
    /// To be taken as it stands; empty before a leading slash and behind a trailing one.
    Name(Vec<u8>),
    /// To be matched.
    Pattern(Component),
}

/// What names are held against.
#[derive(Clone, Debug)]
pub struct Component {
    wildcard: Wildcard,
    hidden: bool,
}

impl Component {
    /// Whether a name matches.
    pub fn matches(&self, name: &[u8]) -> bool {
        (self.hidden || !name.starts_with(b".")) && self.wildcard.matches(name.iter().copied(), Start::Here)
    }
}

/// Whether a path has wildcards.
pub fn is_pattern(path: &[u8]) -> bool {
    path.iter().any(|byte| b"*?[".contains(byte))
}

/// The components of a pattern. Those without a wildcard lose the backslashes that keep wildcards from being ones.
pub fn parts(path: &[u8]) -> impl Iterator<Item = Part> {
    path.split(|byte| *byte == b'/').map(|part| match is_pattern(part) {
        true if escaped(part) => Part::Name(plain(part)),
        true => Part::Pattern(Component { wildcard: Wildcard::new(part), hidden: part.starts_with(b".") }),
        false => Part::Name(part.to_vec()),
    })
}

/// Whether a backslash stands before every wildcard.
fn escaped(part: &[u8]) -> bool {
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

fn plain(part: &[u8]) -> Vec<u8> {
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
        match parts(pattern.as_bytes()).next() {
            Some(Part::Pattern(component)) => component.matches(name.as_bytes()),
            Some(Part::Name(own)) => own == name.as_bytes(),
            None => false,
        }
    }

    #[test]
    fn components_match_as_in_a_shell() {
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
    fn a_path_keeps_its_slashes() {
        let names = |text: &str| -> Vec<String> {
            let parts = parts(text.as_bytes()).map(|part| match part {
                Part::Name(name) => String::from_utf8(name).unwrap(),
                Part::Pattern(_) => "*".into(),
            });
            parts.collect()
        };
        assert_eq!(names("/a\\b/*/"), ["", "a\\b", "*", ""]);
        assert!(!is_pattern(b"a\\b") && is_pattern(b"a\\*"));
    }
}
