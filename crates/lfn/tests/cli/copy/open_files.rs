//! A limit of open files that is too low for a copy, at either end.

use std::fs;
use std::process::{Command, Output, Stdio};

use super::{Pair, finish, write};
use crate::support::lfn_path;
use crate::support::server::{Server, text};

/// Returns a command of a shell that limits its open files first. It is `lfn` with these words.
fn limited(pair: &Pair, limits: &str, words: &str) -> Command {
    let mut command = pair.command(&[]);
    let environment: Vec<_> = command.get_envs().map(|(k, v)| (k.to_owned(), v.map(ToOwned::to_owned))).collect();
    let directory = pair.near("");
    command = Command::new("sh");
    command.args(["-c", &format!("{limits}; '{}' {words}", lfn_path().display())]).current_dir(directory);
    for (name, value) in environment {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(pair: &Pair, limits: &str, words: &str) -> Output {
    finish(limited(pair, limits, words).spawn().unwrap())
}

/// Runs the copy, asserts the error, and runs what the hint says.
#[track_caller]
fn refused_then_copied(pair: &Pair, limit: u64, words: &str, error: &str) {
    let output = run(pair, &format!("ulimit -n {limit}"), words);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{words}: {errors}");
    let lines: Vec<_> = errors.lines().collect();
    let [line, hint] = lines.as_slice() else { panic!("{words}: {errors}") };
    assert!(line.contains(error) && line.ends_with(&format!(" open files, the limit is {limit}")), "{errors}");
    let hint = hint.strip_prefix("hint: ").unwrap();
    let output = match hint.strip_prefix("lfn ") {
        Some(words) => run(pair, &format!("ulimit -n {limit}"), words),
        None if hint.starts_with("ulimit -n ") => run(pair, &format!("ulimit -n {limit}; {hint}"), words),
        // Only root can raise the limit.
        None => return assert!(hint.starts_with("sudo prlimit --pid $$ --nofile="), "{hint}"),
    };
    assert!(output.status.success(), "{hint}: {}", text(&output.stderr));
    assert!(output.stderr.is_empty(), "{hint}: {}", text(&output.stderr));
}

fn create_tree(pair: &Pair) {
    fs::create_dir_all(pair.near("tree/a/b/c")).unwrap();
    write(&pair.near("tree/large"), 20_000_000);
    (0..50).for_each(|number| drop(write(&pair.near(&format!("tree/a/b/c/{number}")), 1000)));
}

#[test]
fn low_limit_of_a_local_copy_is_reported_at_the_start() {
    let pair = Pair::new();
    create_tree(&pair);
    refused_then_copied(&pair, 64, "copy --streams 32 tree one", "the copy needs 163");
    refused_then_copied(&pair, 16, "copy tree two", "the copy needs 36");
    assert_eq!(fs::read_dir(pair.near("one/tree/a/b/c")).unwrap().count(), 50);
    // The number of streams that lfn chooses follows the limit.
    for limit in [36, 40, 64] {
        let output = run(&pair, &format!("ulimit -n {limit}"), &format!("copy tree at{limit}"));
        assert!(output.status.success() && output.stderr.is_empty(), "{limit}: {}", text(&output.stderr));
    }
}

#[test]
fn low_limit_of_an_upload_is_reported_at_the_start() {
    let pair = Pair::new();
    create_tree(&pair);
    refused_then_copied(&pair, 64, "copy --streams 32 tree far:one", "the copy needs 96");
    refused_then_copied(&pair, 64, "copy --streams 32 far:one/tree back", "the copy needs 160");
}

#[test]
fn server_with_too_few_open_files_refuses_the_copy() {
    let mut pair = Pair::serving(false);
    create_tree(&pair);
    let root = pair.far("");
    // All connections fit, and the files of an upload do not.
    pair.server = Server::start_limited("ulimit -n 270", &["--root", root.to_str().unwrap()]);
    let output = run(&pair, "true", "copy --streams 64 tree far:one");
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    let hint =
        errors.strip_prefix("lfn: the server needs 288 open files, the limit is 270\nhint: lfn ").expect(&errors);
    let output = run(&pair, "true", hint.trim_end());
    assert!(output.status.success() && output.stderr.is_empty(), "{hint}: {}", text(&output.stderr));
}

#[test]
fn server_needs_open_files_to_start() {
    let pair = Pair::new();
    let output = run(&pair, "ulimit -n 64", "serve --port 0 --bind 127.0.0.1 --ephemeral");
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.starts_with("lfn: the server needs 88 open files, the limit is 64\nhint: "), "{errors}");
}
