//! Rules for comments: the first word, the length, and the word "what".

use super::{Finding, MAX_WHAT_RATE, Measures, Rule};
use crate::source::{RustFile, Tree};

/// Words that no doc comment begins with: a doc comment begins with a noun or a verb.
const BAD_OPENERS: [&str; 12] =
    ["What", "How", "Who", "Whoever", "Whom", "Whose", "Of", "It", "They", "That", "Such", "Nor"];

/// Minimum number of words in a doc comment outside of test programs.
const MIN_WORDS: usize = 4;

/// Checks the comments of all Rust files.
pub fn check(tree: &Tree, measures: &mut Measures, findings: &mut Vec<Finding>) {
    let mut whats = Vec::new();
    for file in &tree.rust {
        for comment in &file.comments {
            let words = || comment.lines.iter().flat_map(|line| line.text.split_whitespace());
            measures.comment_words += words().count();
            for line in &comment.lines {
                let count = line.text.split(|c: char| !c.is_alphanumeric()).filter(|word| is_what(word)).count();
                measures.whats += count;
                if count > 0 {
                    whats.push(finding(file, Rule::WhatRate, line.line, &line.text));
                }
            }
            if !comment.is_doc {
                continue;
            }
            measures.docs += 1;
            let Some(first) = comment.lines.iter().find(|line| !line.text.is_empty()) else { continue };
            if opens_badly(&first.text) {
                measures.doc_openers += 1;
                findings.push(finding(file, Rule::DocOpener, first.line, &first.text));
            }
            if !file.is_test && words().count() < MIN_WORDS {
                measures.short_docs += 1;
                findings.push(finding(file, Rule::ShortDoc, first.line, &first.text));
            }
        }
    }
    if measures.what_rate() > MAX_WHAT_RATE {
        findings.append(&mut whats);
    }
}

fn finding(file: &RustFile, rule: Rule, line: usize, text: &str) -> Finding {
    Finding { rule, file: file.path.clone(), line, text: text.to_owned(), advice: String::new() }
}

fn is_what(word: &str) -> bool {
    word.eq_ignore_ascii_case("what")
}

fn opens_badly(text: &str) -> bool {
    let text = text.trim_start_matches(|c: char| !c.is_alphanumeric());
    let word = text.split(|c: char| !c.is_alphabetic()).next().unwrap_or_default();
    BAD_OPENERS.iter().any(|bad| bad.eq_ignore_ascii_case(word))
}
