//! The rule for words: no word of the list in `words.txt` is in a comment, a string literal or a Markdown file.

use anyhow::Context;
use regex::{Regex, RegexBuilder};

use super::{Finding, Rule};
use crate::source::{Text, Tree};

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

    /// Adds a finding for each listed word in `lines`, which are one text: a word can continue on the next line.
    fn search(&self, file: &str, lines: &[Text], findings: &mut Vec<Finding>) {
        let mut joined = String::new();
        let mut starts = Vec::new();
        for line in lines {
            starts.push(joined.len());
            joined.push_str(&line.text);
            joined.push(' ');
        }
        for (regex, words) in &self.entries {
            for found in regex.find_iter(&joined) {
                let line = &lines[starts.partition_point(|start| *start <= found.start()) - 1];
                let advice = format!("for \"{}\" write: {words}", found.as_str());
                let (file, text) = (file.to_owned(), line.text.clone());
                findings.push(Finding { rule: Rule::Word, file, line: line.line, text, advice });
            }
        }
    }
}

/// Checks all comments, string literals and Markdown paragraphs.
pub fn check(tree: &Tree, words: &WordList, findings: &mut Vec<Finding>) {
    for file in &tree.rust {
        for lines in file.comments.iter().map(|comment| &comment.lines).chain(&file.strings) {
            words.search(&file.path, lines, findings);
        }
    }
    for file in &tree.markdown {
        let lines: Vec<Text> =
            (1..).zip(file.text.lines()).map(|(line, text)| Text { line, text: text.into() }).collect();
        for paragraph in lines.split(|line| line.text.trim().is_empty()) {
            words.search(&file.path, paragraph, findings);
        }
    }
}
