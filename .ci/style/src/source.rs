//! The files of a tree as the rules read them: comments, string literals and items with their line numbers.

use std::path::Path;

use anyhow::Context;
use proc_macro2::{LineColumn, TokenStream, TokenTree};
use walkdir::WalkDir;

/// One line of text of a comment, a string literal or a Markdown file.
#[derive(Debug, Clone)]
pub struct Text {
    pub line: usize,
    pub text: String,
}

/// A run of comment lines of one kind.
#[derive(Debug)]
pub struct Comment {
    pub is_doc: bool,
    pub lines: Vec<Text>,
}

/// A Rust file, parsed.
pub struct RustFile {
    /// Path from the root, with `/`.
    pub path: String,
    /// Name of the crate: the directory below `crates`, else the first directory.
    pub package: String,
    /// Whether the file is a test program or its support, not a part of a library or binary.
    pub is_test: bool,
    pub comments: Vec<Comment>,
    /// String literals, each with its lines.
    pub strings: Vec<Vec<Text>>,
    pub lines: Vec<String>,
    pub syntax: syn::File,
}

/// A Markdown file, not parsed.
pub struct MarkdownFile {
    /// Path from the root, with `/`.
    pub path: String,
    pub text: String,
}

/// All files of a tree that the rules look at.
pub struct Tree {
    pub rust: Vec<RustFile>,
    pub markdown: Vec<MarkdownFile>,
    pub root: std::path::PathBuf,
}

impl Tree {
    /// Reads all `.rs` and `.md` files below `root`, except `target`, `.git` and fuzzing corpora.
    pub fn read(root: &Path) -> anyhow::Result<Tree> {
        let mut tree = Tree { rust: Vec::new(), markdown: Vec::new(), root: root.to_path_buf() };
        let is_skipped = |name: &str| matches!(name, "target" | ".git" | "corpus");
        let walk = WalkDir::new(root).sort_by_file_name().into_iter();
        for entry in walk.filter_entry(|entry| !entry.file_name().to_str().is_some_and(is_skipped)) {
            let entry = entry.context("cannot list the tree")?;
            let Some(extension) = entry.path().extension().filter(|_| entry.file_type().is_file()) else { continue };
            let path = entry.path().strip_prefix(root)?.to_string_lossy().replace('\\', "/");
            let read = || std::fs::read_to_string(entry.path()).with_context(|| format!("cannot read {path}"));
            match extension.to_str() {
                Some("rs") => {
                    let text = read()?;
                    tree.rust.push(RustFile::parse(path, &text)?);
                }
                Some("md") => {
                    let text = read()?;
                    tree.markdown.push(MarkdownFile { path, text });
                }
                _ => {}
            }
        }
        Ok(tree)
    }
}

impl RustFile {
    fn parse(path: String, text: &str) -> anyhow::Result<RustFile> {
        let syntax = syn::parse_file(text).with_context(|| format!("cannot parse {path}"))?;
        let tokens: TokenStream = text.parse().map_err(|error| anyhow::anyhow!("cannot parse {path}: {error}"))?;
        let mut literals = Literals::default();
        literals.collect(tokens);
        let mut parts = path.split('/');
        let package = match (parts.next(), parts.next()) {
            (Some("crates"), Some(name)) => name.to_owned(),
            (first, _) => first.unwrap_or_default().to_owned(),
        };
        let is_test = path.split('/').any(|part| part == "tests") || path.ends_with("/tests.rs");
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let mut comments = comments(&lines);
        comments.extend(literals.trailing_comments(&lines));
        Ok(RustFile { comments, strings: literals.strings, lines, syntax, package, is_test, path })
    }
}

/// Marks that begin a comment line, and the words of a doc attribute.
const MARKS: [&str; 6] = ["//!", "///", "//", "/**", "/*!", "#[doc = \""];

/// Returns the comments on lines of their own.
fn comments(lines: &[String]) -> Vec<Comment> {
    let mut comments: Vec<Comment> = Vec::new();
    let mut last = (0, "");
    for (index, line) in lines.iter().enumerate() {
        let trimmed = line.trim_start();
        let Some(mark) = MARKS.into_iter().find(|mark| trimmed.starts_with(mark)) else { continue };
        let text = trimmed[mark.len()..].trim_end_matches(['*', '/', '"', ']']).trim().to_owned();
        let text = Text { line: index + 1, text };
        match comments.last_mut().filter(|_| last == (index, mark)) {
            Some(comment) => comment.lines.push(text),
            None => comments.push(Comment { is_doc: mark != "//", lines: vec![text] }),
        }
        last = (index + 1, mark);
    }
    comments
}

/// The literals of a file: the lines of all strings, those of macros and attributes included, and the places of all
/// literals, in which `//` is no comment. Doc comments are not included.
#[derive(Default)]
struct Literals {
    strings: Vec<Vec<Text>>,
    /// First and last place of each literal: line from 1, column from 0.
    places: Vec<(LineColumn, LineColumn)>,
}

impl Literals {
    fn collect(&mut self, tokens: TokenStream) {
        let mut is_doc = false;
        for token in tokens {
            match token {
                TokenTree::Group(group) => self.collect(group.stream()),
                TokenTree::Ident(ident) => is_doc = ident == "doc",
                TokenTree::Punct(_) => {}
                TokenTree::Literal(literal) => {
                    let source = literal.to_string();
                    let (start, end) = (literal.span().start(), literal.span().end());
                    self.places.push((start, end));
                    if !is_doc && source.trim_start_matches(['b', 'c', 'r', '#']).starts_with('"') {
                        let lines = source.split('\n').enumerate();
                        let text = |text: &str| text.trim().trim_end_matches('\\').trim_end().to_owned();
                        self.strings
                            .push(lines.map(|(n, line)| Text { line: start.line + n, text: text(line) }).collect());
                    }
                    is_doc = false;
                }
            }
        }
    }

    /// Returns the comments behind code.
    fn trailing_comments<'a>(&'a self, lines: &'a [String]) -> impl Iterator<Item = Comment> + 'a {
        lines.iter().enumerate().filter_map(|(index, line)| {
            let is_code = !line.trim_start().starts_with('/');
            let column = line.match_indices("// ").map(|(at, _)| at).find(|at| {
                let place = LineColumn { line: index + 1, column: line[..*at].chars().count() };
                !self.places.iter().any(|(start, end)| *start <= place && place < *end)
            })?;
            let text = Text { line: index + 1, text: line[column + 2..].trim().to_owned() };
            is_code.then(|| Comment { is_doc: false, lines: vec![text] })
        })
    }
}
