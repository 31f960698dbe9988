//! One bad example per rule: the check exits with 1 and prints the file, the line and the rule.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

/// A tree with the project's list of words and no other file.
fn tree() -> TempDir {
    let tree = tempfile::tempdir().unwrap();
    let words = Path::new(env!("CARGO_MANIFEST_DIR")).join("words.txt");
    write(&tree, ".ci/style/words.txt", &fs::read_to_string(words).unwrap());
    tree
}

fn write(tree: &TempDir, path: &str, text: &str) {
    let path = tree.path().join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn run(tree: &TempDir) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lfn-style")).arg(tree.path()).output().unwrap()
}

/// Writes one file and asserts that the check reports exactly the lines of `expected`, each `FILE:LINE: RULE`.
#[track_caller]
fn assert_findings(files: &[(&str, &str)], expected: &[&str]) {
    let tree = tree();
    for (path, text) in files {
        write(&tree, path, text);
    }
    let output = run(&tree);
    let text = String::from_utf8(output.stdout).unwrap();
    let places = |line: &str| line.splitn(4, ':').take(3).collect::<Vec<_>>().join(":");
    let found: Vec<String> = text.lines().filter(|line| line.splitn(4, ':').count() == 4).map(places).collect();
    assert_eq!(found, expected, "{text}");
    assert_eq!(output.status.code(), Some(i32::from(!expected.is_empty())), "{text}");
}

const LIB: &str = "crates/demo/src/lib.rs";

#[test]
fn a_plain_tree_passes() {
    let good = "/// Returns the number of bytes.\npub fn bytes() -> u64 { 0 }\n";
    assert_findings(&[(LIB, good), ("README.md", "# Demo\n\n[heading](#demo) and [file](README.md)\n")], &[]);
}

#[test]
fn a_doc_comment_opens_with_a_noun_or_verb() {
    let filler = "// The sender sends one block, and the receiver writes this block.\n".repeat(100);
    for word in ["What", "How", "Who", "Whose", "Of", "It", "They", "That", "Such", "Nor", "what", "`How`"] {
        let text = format!("/// {word} a peer sends is here.\nfn peer() {{}}\n{filler}");
        assert_findings(&[(LIB, &text)], &["crates/demo/src/lib.rs:1: doc-opener"]);
    }
}

#[test]
fn a_doc_comment_has_four_words() {
    for text in ["/// Its own number.\n", "/** Its number. */\n", "#[doc = \"Its number.\"]\n"] {
        assert_findings(&[(LIB, &format!("{text}fn number() {{}}\n"))], &["crates/demo/src/lib.rs:1: short-doc"]);
    }
    assert_findings(&[(LIB, "/// The number of bytes.\nfn number() {}\n")], &[]);
}

#[test]
fn public_types_and_functions_are_documented() {
    let text = "pub struct Peer;\nimpl Peer {\n    pub fn send(&self) {}\n}\npub fn dial() {}\n";
    let line = |number: usize| format!("crates/demo/src/lib.rs:{number}: missing-doc");
    assert_findings(&[(LIB, text)], &[&line(1), &line(3), &line(5)]);
}

#[test]
fn words_of_the_list_are_found_in_all_texts() {
    let text = "// The link is faithful here.\nfn f() -> &'static str {\n    \"the copy is faithful\"\n}\n";
    let expected = ["README.md:2: word", "crates/demo/src/lib.rs:1: word", "crates/demo/src/lib.rs:3: word"];
    assert_findings(&[(LIB, text), ("README.md", "Demo\nwhoever dials\n")], &expected);
}

#[test]
fn words_of_the_list_are_found_across_lines_and_behind_code() {
    let text =
        "fn f() {\n    let _ = \"http://a\"; // the link is faithful\n    // the file is left\n    // out here\n}\n";
    let line = |number: usize| format!("crates/demo/src/lib.rs:{number}: word");
    assert_findings(&[(LIB, text)], &[&line(2), &line(3)]);
    assert_findings(&[(LIB, ""), ("a.md", "The file is left\nout here.\n")], &["a.md:1: word"]);
}

#[test]
fn the_share_of_one_word_in_comments_is_limited() {
    let filler = "// The sender sends one block, and the receiver writes this block.\n".repeat(100);
    assert_findings(&[(LIB, &format!("// The peer checks what arrives.\n{filler}"))], &[]);
    let twice =
        format!("// The peer checks what arrives.\n// The peer drops what is late.\n// And what is long.\n{filler}");
    let line = |number: usize| format!("crates/demo/src/lib.rs:{number}: what-rate");
    assert_findings(&[(LIB, &twice)], &[&line(1), &line(2), &line(3)]);
}

#[test]
fn parameters_are_no_tuples() {
    for text in ["fn dial((host, port): (&str, u16)) {}\n", "fn dial(at: &(u8, u16)) {}\n"] {
        assert_findings(&[(LIB, text)], &["crates/demo/src/lib.rs:1: tuple-parameter"]);
    }
}

#[test]
fn a_public_type_name_occurs_once_in_a_crate() {
    let text = "/// A peer of this session.\npub struct Peer;\n";
    let expected = ["crates/demo/src/a.rs:2: duplicate-type", "crates/demo/src/b.rs:2: duplicate-type"];
    assert_findings(&[("crates/demo/src/a.rs", text), ("crates/demo/src/b.rs", text)], &expected);
    assert_findings(&[("crates/one/src/lib.rs", text), ("crates/two/src/lib.rs", text)], &[]);
}

#[test]
fn a_test_name_has_at_most_60_characters() {
    let name = |length: usize| "a".repeat(length);
    let text = format!("#[test]\nfn {}() {{}}\n#[test]\nfn {}() {{}}\n", name(60), name(61));
    assert_findings(&[(LIB, &text)], &["crates/demo/src/lib.rs:4: long-test-name"]);
    let text = format!("#[test] fn {}() {{}}\n\n#[tokio::test]\n// slow\nasync fn {}() {{}}\n", name(61), name(62));
    let line = |number: usize| format!("crates/demo/src/lib.rs:{number}: long-test-name");
    assert_findings(&[(LIB, &text)], &[&line(1), &line(5)]);
    let trial = format!("fn {}() {{}}\n", name(61));
    assert_findings(&[("crates/demo/tests/trial.rs", &trial)], &["crates/demo/tests/trial.rs:1: long-test-name"]);
}

#[test]
fn a_flag_has_help() {
    let text = "#[derive(clap::Args)]\nstruct Flags {\n    #[arg(long)]\n    rate: u64,\n    /// Send for this long\n    time: u64,\n    #[arg(long, help = \"\")]\n    size: u64,\n}\n";
    let line = |number: usize| format!("crates/demo/src/lib.rs:{number}: flag-without-help");
    assert_findings(&[(LIB, text)], &[&line(4), &line(8)]);
}

#[test]
fn a_link_leads_to_a_file_and_a_heading() {
    let text = "# Demo\n\n[gone](gone.md)\n\n[no heading](#nowhere)\n\n[elsewhere](https://example.org/)\n";
    let expected = ["README.md:3: broken-link", "README.md:5: broken-link"];
    assert_findings(&[(LIB, ""), ("README.md", text)], &expected);
    let page = "# Page\n\n[anchor](../README.md#nowhere)\n\n[good](../README.md#demo)\n\n[outside](../../x.md)\n";
    let expected = ["doc/page.md:3: broken-link", "doc/page.md:7: broken-link"];
    assert_findings(&[(LIB, ""), ("README.md", "# Demo\n"), ("doc/page.md", page)], &expected);
}

/// Runs the check over one bad file and the list of exceptions `list`. Returns the exit code and the output.
fn run_with_exceptions(list: &str) -> (Option<i32>, String) {
    let tree = tree();
    write(&tree, LIB, "/// Its number.\nfn number() {}\n");
    write(&tree, ".ci/style/exceptions.toml", list);
    let output = run(&tree);
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

const EXCEPTION: &str = "[[exception]]\nrule = \"short-doc\"\nfile = \"crates/demo/src/lib.rs\"\n";

#[test]
fn an_exception_covers_a_finding() {
    let (code, text) = run_with_exceptions(&format!("{EXCEPTION}text = \"Its number\"\nreason = \"an example\"\n"));
    assert_eq!(code, Some(0), "{text}");
}

#[test]
fn an_exception_needs_a_reason() {
    for reason in ["", "reason = \"  \"\n"] {
        let (code, text) = run_with_exceptions(&format!("{EXCEPTION}text = \"Its number\"\n{reason}"));
        assert_eq!(code, Some(1), "{text}");
        assert!(text.contains(".ci/style/exceptions.toml:2: exception-without-reason"), "{text}");
        assert!(text.contains("crates/demo/src/lib.rs:1: short-doc"), "{text}");
    }
}

#[test]
fn an_exception_matches_a_finding() {
    let (code, text) = run_with_exceptions(&format!("{EXCEPTION}text = \"Another\"\nreason = \"an example\"\n"));
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains(".ci/style/exceptions.toml:2: unused-exception"), "{text}");
}

#[test]
fn an_exception_names_the_offending_text() {
    for text in ["write:", " "] {
        let (code, text) = run_with_exceptions(&format!("{EXCEPTION}text = \"{text}\"\nreason = \"an example\"\n"));
        assert_eq!(code, Some(1), "{text}");
    }
}

#[test]
fn a_tree_without_sources_is_an_error() {
    assert_eq!(run(&tree()).status.code(), Some(2));
}

#[test]
fn a_file_that_cannot_be_parsed_is_an_error() {
    let tree = tree();
    write(&tree, LIB, "fn (");
    let output = run(&tree);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("cannot parse crates/demo/src/lib.rs"));
}
