//! The list of exceptions: findings that stay, each with its reason.

use std::path::Path;

use anyhow::Context;
use serde::Deserialize;
use toml::Spanned;

use crate::rules::{Finding, Rule};

/// Minimum length of the text of an entry in characters, so that no entry covers all findings of a file.
const MIN_TEXT: usize = 3;

/// Path of the list from the root of the tree.
const LIST: &str = ".ci/style/exceptions.toml";

/// An entry of the list. It covers findings of one rule in one file whose text, without the advice, contains `text`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Exception {
    rule: Spanned<String>,
    file: String,
    text: String,
    #[serde(default)]
    reason: String,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct List {
    #[serde(default, rename = "exception")]
    exceptions: Vec<Exception>,
}

/// The list of exceptions, and which of them covered a finding.
pub struct Exceptions {
    entries: Vec<(Exception, usize)>,
    used: Vec<bool>,
}

impl Exceptions {
    /// Reads the list at `path`. A missing file is an empty list.
    pub fn read(path: &Path) -> anyhow::Result<Exceptions> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error).context(format!("cannot read {LIST}")),
        };
        let list: List = toml::from_str(&text).with_context(|| format!("cannot parse {LIST}"))?;
        let line = |exception: &Exception| text[..exception.rule.span().start].matches('\n').count() + 1;
        let entries: Vec<_> =
            list.exceptions.into_iter().map(|entry| (line(&entry), entry)).map(|(n, e)| (e, n)).collect();
        let used = vec![false; entries.len()];
        Ok(Exceptions { entries, used })
    }

    /// Reports whether an entry covers `finding`, and marks this entry as used. An entry without a reason covers nothing.
    pub fn cover(&mut self, finding: &Finding) -> bool {
        let mut is_covered = false;
        for ((entry, _), used) in self.entries.iter().zip(&mut self.used) {
            let is_match = entry.rule.get_ref() == finding.rule.name()
                && entry.file == finding.file
                && finding.text.contains(&entry.text)
                && entry.text.trim().chars().count() >= MIN_TEXT;
            *used |= is_match;
            is_covered |= is_match && !entry.reason.trim().is_empty();
        }
        is_covered
    }

    /// Returns a finding for each entry that has no reason or that covered nothing.
    pub fn unused(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for ((entry, line), used) in self.entries.iter().zip(&self.used) {
            let at = |rule, text: String| Finding { file: LIST.into(), line: *line, rule, text, advice: String::new() };
            if entry.reason.trim().is_empty() {
                findings.push(at(Rule::ExceptionWithoutReason, format!("{}: {}", entry.file, entry.text)));
            }
            if !used {
                findings.push(at(Rule::UnusedException, format!("{}: {}", entry.file, entry.text)));
            }
        }
        findings
    }
}
