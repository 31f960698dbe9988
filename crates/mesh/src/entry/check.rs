//! Bounds of an entry from another host or from a file.

use super::{Entry, EntryKind};

/// Maximum length of the name of a host, bytes.
const MAX_NAME: usize = 63;

/// Maximum length of a text, bytes.
const MAX_TEXT: usize = 2_000;

/// Maximum hops of a path.
const MAX_HOPS: usize = 64;

/// Maximum findings of a load.
const MAX_FINDINGS: usize = 30;

/// Maximum number of conditions.
const MAX_CONDITIONS: usize = 100;

/// Maximum length of a condition or of its name, bytes.
const MAX_CONDITION: usize = 300;

/// Maximum depth of lists and objects in a detail, so that every reader of JSON can read an entry.
const MAX_DEPTH: usize = 100;

/// The last second of the year 9999, since 1970.
const MAX_SECONDS: u64 = 253_402_300_799;

/// Reasons why an entry is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    #[error("'{0}' is not the name of a host: use 1 to {MAX_NAME} letters, digits, '.', '-' and '_'")]
    Name(String),
    #[error("{0} is longer than permitted")]
    TooLong(&'static str),
    #[error("the time is after the year 9999")]
    Time,
    #[error("{lost} of {packets} packets lost")]
    Loss { packets: u64, lost: u64 },
    #[error("a hop, a condition or the name of a finding has a control character, or the name of a condition has '='")]
    Characters,
    #[error("the detail is nested more than {MAX_DEPTH} levels deep")]
    Depth,
    #[error("a host has no {0} to itself")]
    SameHost(&'static str),
}

impl Entry {
    /// Checks names, lengths and counts, so that a file or an agent cannot fill the archive with one entry.
    pub fn check(&self) -> Result<(), EntryError> {
        for name in [&self.from, &self.to] {
            let is_name = (1..=MAX_NAME).contains(&name.len())
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
            if !is_name {
                return Err(EntryError::Name(name.chars().filter(|c| !c.is_control()).take(MAX_NAME).collect()));
            }
        }
        if self.from == self.to && self.kind != EntryKind::Counters {
            return Err(EntryError::SameHost("path"));
        }
        if self.time.as_secs() > MAX_SECONDS {
            return Err(EntryError::Time);
        }
        let too_long = [
            ("the name of the test", self.test.len() > MAX_NAME),
            ("the list of hops", self.hops.len() > MAX_HOPS || self.hops.iter().any(|hop| hop.len() > MAX_CONDITION)),
            ("the verdict", self.verdict.len() > MAX_TEXT),
            ("the error", self.error.as_ref().is_some_and(|error| error.len() > MAX_TEXT)),
            ("the list of findings", self.findings.len() > MAX_FINDINGS || self.findings.iter().any(is_long)),
            (
                "the list of conditions",
                self.conditions.len() > MAX_CONDITIONS
                    || self
                        .conditions
                        .iter()
                        .any(|(key, value)| key.len() > MAX_CONDITION || value.len() > MAX_CONDITION),
            ),
        ];
        if let Some((what, _)) = too_long.into_iter().find(|(_, is_long)| *is_long) {
            return Err(EntryError::TooLong(what));
        }
        let is_one_line = |text: &String| !text.chars().any(char::is_control);
        let lists_fit = self.hops.iter().all(is_one_line)
            && self.findings.iter().all(|finding| is_one_line(&finding.name))
            && self.conditions.iter().all(|(key, value)| is_one_line(key) && is_one_line(value) && !key.contains('='));
        if !lists_fit {
            return Err(EntryError::Characters);
        }
        if self.detail.as_ref().is_some_and(|detail| detail.depth() > MAX_DEPTH) {
            return Err(EntryError::Depth);
        }
        match (self.packets, self.lost_packets) {
            (Some(packets), Some(lost)) if lost > packets => Err(EntryError::Loss { packets, lost }),
            _ => Ok(()),
        }
    }
}

impl Entry {
    /// Cuts texts and lists of a measurement to the bounds of [`Entry::check`].
    pub fn truncate(&mut self) {
        truncate(&mut self.verdict, MAX_TEXT);
        if let Some(error) = &mut self.error {
            truncate(error, MAX_TEXT);
        }
        self.hops.truncate(MAX_HOPS);
        self.findings.truncate(MAX_FINDINGS);
        for finding in &mut self.findings {
            truncate(&mut finding.summary, MAX_TEXT);
            truncate(&mut finding.remedy, MAX_TEXT);
        }
        self.conditions.retain(|key, _| !key.contains('=') && key.len() <= MAX_CONDITION);
        for value in self.conditions.values_mut() {
            value.retain(|c| !c.is_control());
            truncate(value, MAX_CONDITION);
        }
        while self.conditions.len() > MAX_CONDITIONS {
            self.conditions.pop_last();
        }
    }
}

/// Cuts a text to a number of bytes, at the end of a character.
fn truncate(text: &mut String, length: usize) {
    let end = (0..=length.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text.truncate(end.unwrap_or(0));
}

fn is_long(finding: &super::EntryFinding) -> bool {
    finding.name.len() > MAX_NAME || finding.summary.len() > MAX_TEXT || finding.remedy.len() > MAX_TEXT
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::entry::RawJson;

    #[test]
    fn entries_beyond_the_bounds_are_refused() {
        let good = Entry::new(EntryKind::Load, "a", "b", Duration::from_secs(1));
        assert_eq!(good.check(), Ok(()));
        let long = |length| "x".repeat(length);
        let bad = [
            Entry { from: "a b".into(), ..good.clone() },
            Entry { from: "<b>".into(), ..good.clone() },
            Entry { to: String::new(), ..good.clone() },
            Entry { to: "a".into(), ..good.clone() },
            Entry { time: Duration::from_secs(MAX_SECONDS + 1), ..good.clone() },
            Entry { verdict: long(MAX_TEXT + 1), ..good.clone() },
            Entry { hops: vec![String::new(); MAX_HOPS + 1], ..good.clone() },
            Entry { conditions: [("k".to_owned(), long(MAX_CONDITION + 1))].into(), ..good.clone() },
            Entry { conditions: [("k=".to_owned(), "v".to_owned())].into(), ..good.clone() },
            Entry { hops: vec!["192.0.2.1\n".into()], ..good.clone() },
            Entry { packets: Some(1), lost_packets: Some(2), ..good.clone() },
            Entry { detail: RawJson::parse("[".repeat(101) + &"]".repeat(101)), ..good.clone() },
        ];
        for entry in bad {
            assert!(entry.check().is_err(), "{entry:?}");
        }
        assert_eq!(Entry { kind: EntryKind::Counters, to: "a".into(), ..good }.check(), Ok(()));
    }
}
