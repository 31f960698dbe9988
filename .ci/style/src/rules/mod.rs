//! The rules. Each is a function from the files to findings and knows nothing of the others.

mod comments;
mod items;
mod markdown;
mod words;

use std::fmt;

use crate::source::Tree;

pub use words::WordList;

/// Maximum number of the word "what" in 10,000 words of comments.
const MAX_WHAT_RATE: f64 = 20.0;

/// A rule, named in findings and in exceptions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    DocOpener,
    ShortDoc,
    MissingDoc,
    Word,
    WhatRate,
    TupleParameter,
    DuplicateType,
    LongTestName,
    FlagWithoutHelp,
    BrokenLink,
    ExceptionWithoutReason,
    UnusedException,
}

impl Rule {
    /// Returns the name that findings print and exceptions use.
    pub fn name(self) -> &'static str {
        match self {
            Rule::DocOpener => "doc-opener",
            Rule::ShortDoc => "short-doc",
            Rule::MissingDoc => "missing-doc",
            Rule::Word => "word",
            Rule::WhatRate => "what-rate",
            Rule::TupleParameter => "tuple-parameter",
            Rule::DuplicateType => "duplicate-type",
            Rule::LongTestName => "long-test-name",
            Rule::FlagWithoutHelp => "flag-without-help",
            Rule::BrokenLink => "broken-link",
            Rule::ExceptionWithoutReason => "exception-without-reason",
            Rule::UnusedException => "unused-exception",
        }
    }
}

/// A place that breaks a rule.
#[derive(Debug)]
pub struct Finding {
    pub rule: Rule,
    /// Path from the root of the tree.
    pub file: String,
    pub line: usize,
    /// The text that breaks the rule.
    pub text: String,
    /// The reason, or the words to use instead. Empty if the rule says enough.
    pub advice: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.file, self.line, self.rule.name(), self.text)?;
        if self.advice.is_empty() { Ok(()) } else { write!(f, " ({})", self.advice) }
    }
}

/// Counts over the whole tree, before exceptions.
#[derive(Debug, Default)]
pub struct Measures {
    docs: usize,
    doc_openers: usize,
    short_docs: usize,
    comment_words: usize,
    whats: usize,
    tests: usize,
    long_test_names: usize,
    public_types: usize,
    duplicate_types: usize,
}

impl fmt::Display for Measures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "doc comments: {}, bad openers {}, too short {}", self.docs, self.doc_openers, self.short_docs)?;
        writeln!(f, "comment words: {}, \"what\" per 10,000: {:.1}", self.comment_words, self.what_rate())?;
        writeln!(f, "test functions: {}, names too long {}", self.tests, self.long_test_names)?;
        write!(f, "public types: {}, duplicates in a crate {}", self.public_types, self.duplicate_types)
    }
}

impl Measures {
    /// Returns the number of the word "what" in 10,000 words of comments.
    fn what_rate(&self) -> f64 {
        1e4 * self.whats as f64 / self.comment_words.max(1) as f64
    }
}

/// Applies all rules to `tree` and fills `measures`. The findings are sorted by file and line.
pub fn apply(tree: &Tree, words: &WordList, measures: &mut Measures) -> anyhow::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    comments::check(tree, measures, &mut findings);
    words::check(tree, words, &mut findings);
    items::check(tree, measures, &mut findings);
    markdown::check_links(tree, &mut findings)?;
    findings.sort_by(|a, b| (&a.file, a.line, a.rule.name()).cmp(&(&b.file, b.line, b.rule.name())));
    findings.dedup_by(|a, b| (&a.file, a.line, a.rule, &a.text) == (&b.file, b.line, b.rule, &b.text));
    Ok(findings)
}
