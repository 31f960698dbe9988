//! The rule for words: none of the list in `words.txt` stands in a comment, a string literal or a Markdown file.

use anyhow::Context;
use regex::{Regex, RegexBuilder};

use super::{Finding, Rule};
use crate::source::Tree;

/// The words to avoid, each with the words to use.
pub struct WordList {
    entries: Vec<(Regex, String)>,
}

impl WordList {
    /// Reads one entry a line: a regular expression, ` -> `, and the words to use. Lines that begin with `#` are comments.
    pub fn parse(text: &str) -> anyhow::Result<WordList> {
        let mut entries = Vec::new();
        for (index, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let at = || format!("words.txt:{}", index + 1);
            let (pattern, advice) = line.split_once(" -> ").with_context(|| format!("{}: no ' -> '", at()))?;
            let pattern = format!(r"\b(?:{})\b", pattern.trim());
            let regex = RegexBuilder::new(&pattern).case_insensitive(true).build().with_context(at)?;
            entries.push((regex, advice.trim().to_owned()));
        }
        Ok(WordList { entries })
    }

    /// Returns each listed word in `text` with the words to use.
    fn search<'a>(&'a self, text: &'a str) -> impl Iterator<Item = String> + 'a {
        self.entries.iter().filter_map(move |(regex, advice)| {
            let word = regex.find(text)?.as_str();
            Some(format!("\"{word}\" (write: {advice}) in: {}", text.trim()))
        })
    }
}

/// Checks all comments, string literals and Markdown lines.
pub fn check(tree: &Tree, words: &WordList, findings: &mut Vec<Finding>) {
    let mut search = |file: &str, line: usize, text: &str| {
        findings.extend(words.search(text).map(|text| Finding { rule: Rule::Word, file: file.to_owned(), line, text }));
    };
    for file in &tree.rust {
        for text in file.comments.iter().flat_map(|comment| &comment.lines).chain(&file.strings) {
            search(&file.path, text.line, &text.text);
        }
    }
    for file in &tree.markdown {
        for (index, text) in file.text.lines().enumerate() {
            search(&file.path, index + 1, text);
        }
    }
}
