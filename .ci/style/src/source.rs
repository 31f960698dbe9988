//! The files of a tree as the rules read them: comments, string literals and items with their line numbers.

use std::path::Path;

use anyhow::Context;
use proc_macro2::{TokenStream, TokenTree};
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
    pub strings: Vec<Text>,
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
        let mut strings = Vec::new();
        collect_strings(tokens, &mut strings);
        let mut parts = path.split('/');
        let package = match (parts.next(), parts.next()) {
            (Some("crates"), Some(name)) => name.to_owned(),
            (first, _) => first.unwrap_or_default().to_owned(),
        };
        let is_test = path.split('/').any(|part| part == "tests") || path.ends_with("/tests.rs");
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        Ok(RustFile { comments: comments(&lines), strings, lines, syntax, package, is_test, path })
    }
}

/// Returns the comments that stand on lines of their own.
fn comments(lines: &[String]) -> Vec<Comment> {
    let mut comments: Vec<Comment> = Vec::new();
    let mut last = (0, "");
    for (index, line) in lines.iter().enumerate() {
        let trimmed = line.trim_start();
        let Some(mark) = ["//!", "///", "//"].into_iter().find(|mark| trimmed.starts_with(mark)) else { continue };
        let text = Text { line: index + 1, text: trimmed[mark.len()..].trim().to_owned() };
        match comments.last_mut().filter(|_| last == (index, mark)) {
            Some(comment) => comment.lines.push(text),
            None => comments.push(Comment { is_doc: mark != "//", lines: vec![text] }),
        }
        last = (index + 1, mark);
    }
    comments
}

/// Collects the lines of all string literals, those of macros and attributes included, but not doc comments.
fn collect_strings(tokens: TokenStream, strings: &mut Vec<Text>) {
    let mut is_doc = false;
    for token in tokens {
        match token {
            TokenTree::Group(group) => collect_strings(group.stream(), strings),
            TokenTree::Ident(ident) => is_doc = ident == "doc",
            TokenTree::Punct(_) => {}
            TokenTree::Literal(literal) => {
                let source = literal.to_string();
                if !is_doc && (source.starts_with('"') || source.starts_with("r\"") || source.starts_with("r#")) {
                    let first = literal.span().start().line;
                    let lines = source.split('\n').enumerate();
                    strings.extend(lines.map(|(index, text)| Text { line: first + index, text: text.to_owned() }));
                }
                is_doc = false;
            }
        }
    }
}
