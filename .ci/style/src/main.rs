//! The style check: reads the Rust sources and Markdown files of a tree and reports names and texts that are not plain.
//!
//! `lfn-style [ROOT]` prints `FILE:LINE: RULE: TEXT` for every finding and a table of measures. The exit code is 0
//! without findings, 1 with findings, and 2 if the tree cannot be read. Exceptions stand in `.ci/style/exceptions.toml`
//! below ROOT, words in `.ci/style/words.txt`.
#![forbid(unsafe_code)]

mod exceptions;
mod rules;
mod source;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;

use exceptions::Exceptions;
use rules::Measures;
use source::Tree;

fn main() -> ExitCode {
    let root = PathBuf::from(std::env::args_os().nth(1).unwrap_or_else(|| ".".into()));
    match check(&root) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(count) => {
            eprintln!("style: {count} findings; the rules are in CONTRIBUTING.md");
            ExitCode::from(1)
        }
        Err(error) => {
            eprintln!("style: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Prints every finding below `root` and the measures. Returns the number of findings.
fn check(root: &std::path::Path) -> anyhow::Result<usize> {
    let folder = root.join(".ci/style");
    let words = std::fs::read_to_string(folder.join("words.txt")).context("cannot read .ci/style/words.txt")?;
    let tree = Tree::read(root)?;
    anyhow::ensure!(!tree.rust.is_empty(), "no Rust file below {}", root.display());
    let mut exceptions = Exceptions::read(&folder.join("exceptions.toml"))?;
    let mut measures = Measures::default();
    let found = rules::apply(&tree, &rules::WordList::parse(&words)?, &mut measures)?;
    let mut findings: Vec<_> = found.into_iter().filter(|finding| !exceptions.cover(finding)).collect();
    findings.extend(exceptions.unused());
    for finding in &findings {
        println!("{finding}");
    }
    println!("{measures}");
    Ok(findings.len())
}
