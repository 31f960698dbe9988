//! `--clean`: files of interrupted copies on this host, and which of them are deleted.

use std::fs::{self, File};
use std::path::Path;
use std::process::Output;
use std::time::{Duration, SystemTime};

use lfn_base::units::Bytes;
use lfn_copy::proto::journal::JournalHeader;
use lfn_session::wire::copy::blocks::Layout;
use lfn_session::wire::copy::entry::Modified;
use lfn_session::wire::copy::options::Verify;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::schema::check_document;
use crate::support::server::text;
use crate::{Pair, event_lines, finish, names, wait_for};

/// Creates the files of a copy of 5000 bytes that was interrupted three days ago, before it received a block.
pub fn left(directory: &Path, name: &str) {
    fs::create_dir_all(directory).unwrap();
    let layout = Layout::new(Bytes(5000), Bytes(1 << 20)).unwrap();
    let header =
        JournalHeader { layout, modified: Modified::default(), source: name.into(), verify: Verify::default() };
    for (end, bytes) in [("partial", vec![0; 5000]), ("journal", header.encode().unwrap().0)] {
        let path = directory.join(format!(".{name}.lfn-{end}"));
        fs::write(&path, bytes).unwrap();
        File::open(&path).unwrap().set_modified(SystemTime::now() - Duration::from_secs(3 * 86_400)).unwrap();
    }
}

/// Returns the found files and the document.
#[track_caller]
fn json(output: &Output) -> (Vec<Value>, Value) {
    let document: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)));
    assert_eq!(document["schema"], "lfn.clean/3");
    check_document(&document).unwrap();
    (document["files"].as_array().unwrap().clone(), document)
}

#[test]
fn ndjson_prints_one_line_per_file_and_the_counts() {
    let pair = Pair::new();
    (0..3).for_each(|n| left(&pair.near("in"), &format!("f{n}")));
    let report = pair.near("found.json");
    let flags = ["--clean", "in", "--output", "ndjson", "--report", report.to_str().unwrap()];
    let lines = event_lines("lfn.clean.event.3", &pair.copy(&flags));
    let (counts, files) = lines.split_last().unwrap();
    assert_eq!((files.len(), &counts["counts"]["stale"]), (3, &3.into()), "{lines:?}");
    assert!(counts.get("files").is_none(), "{counts}");
    let document: Value = serde_json::from_slice(&fs::read(&report).unwrap()).unwrap();
    assert_eq!(document["files"].as_array().unwrap(), files);
}

#[test]
fn clean_lists_and_force_deletes_stale_files() {
    let pair = Pair::new();
    let side = pair.near("in/deep");
    (0..150).for_each(|n| left(&side, &format!("f{n}")));
    fs::write(side.join(".diary.lfn-journal"), "dear diary").unwrap();
    let listed = pair.copy(&["--clean", "in"]);
    let lines = text(&listed.stdout);
    assert_eq!(listed.status.code(), Some(0), "{}", text(&listed.stderr));
    assert_eq!(lines.lines().count(), 152, "{lines}");
    let stale = "stale         in/deep/.f7.lfn-partial: 0 B of 5 kB of f7, written 3 days ago\n";
    assert!(lines.contains(stale), "{lines}");
    assert!(lines.contains("unrecognised  in/deep/.diary.lfn-journal: ") && lines.contains("not a journal"), "{lines}");
    assert!(lines.ends_with(" on disk), 1 unrecognised\n") && lines.contains("\n150 stale ("), "{lines}");
    assert_eq!(text(&listed.stderr), "hint: run the same command with --force to delete the stale files\n");
    // A dry run only lists.
    assert_eq!(json(&pair.copy(&["--clean", "in", "--force", "-n", "--json"])).1["counts"]["stale"], 150);
    let (_, younger) = json(&pair.copy(&["--clean", "in", "--force", "--older-than", "4d", "--json"]));
    assert_eq!(younger["counts"]["recent"], 150, "{younger}");
    assert_eq!(fs::read_dir(&side).unwrap().count(), 301);
    let (gone, counts) = json(&pair.copy(&["--clean", "in", "--force", "--json"]));
    assert_eq!((gone.len(), &counts["counts"]["removed"]), (151, &Value::from(150)), "{counts}");
    assert_eq!(names(&side), [".diary.lfn-journal"]);
    fs::remove_file(pair.near("in/deep/.diary.lfn-journal")).unwrap();
    assert_eq!(text(&pair.copy(&["--clean"]).stdout), "no files of interrupted copies found\n");
}

#[test]
fn clean_keeps_files_of_a_running_copy() {
    let pair = Pair::new();
    File::create(pair.near("big")).unwrap().set_len(1 << 30).unwrap();
    let far = pair.far("");
    let all = ["--clean", far.to_str().unwrap(), "--older-than", "0s", "--force", "--json"];
    let child = pair.command(&["big", "far:a"]).spawn().unwrap();
    wait_for("a block", || fs::metadata(pair.far(".a.lfn-journal")).is_ok_and(|journal| journal.len() > 500));
    let pid = Pid::from_child(&child);
    // The copy must not end before it is examined.
    kill_process(pid, Signal::STOP).unwrap();
    let (seen, _) = json(&pair.copy(&all));
    assert_eq!((seen.len(), &seen[0]["state"], &seen[0]["source"]), (1, &"in_use".into(), &"big".into()), "{seen:?}");
    kill_process(pid, Signal::CONT).unwrap();
    assert_eq!(finish(child).status.code(), Some(0));
    assert_eq!(fs::metadata(pair.far("a")).unwrap().len(), 1 << 30);
    // A copy that was just interrupted is recent as soon as the server has noticed.
    let child = pair.command(&["big", "far:b"]).spawn().unwrap();
    wait_for("a block", || fs::metadata(pair.far(".b.lfn-journal")).is_ok_and(|journal| journal.len() > 500));
    kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
    finish(child);
    let b = pair.far("b");
    let state = || json(&pair.copy(&["--clean", b.to_str().unwrap(), "--force", "--json"])).0[0]["state"].clone();
    wait_for("the server to let go", || state() == "recent");
    let (seen, last) = json(&pair.copy(&all));
    assert_eq!(
        (&seen[0]["state"], seen[0]["received_bytes"].as_u64() > Some(0)),
        (&"removed".into(), true),
        "{seen:?}"
    );
    assert!(last["counts"]["removed_disk_bytes"].as_u64() > Some(0), "{last}");
    assert_eq!(names(&pair.home.path().join("far")), ["a"]);
}

/// An unreadable place does not affect the others.
#[test]
fn clean_continues_after_an_error_at_one_place() {
    let pair = Pair::new();
    left(&pair.near("in"), "a");
    left(&pair.near("also"), "b");
    let (found, last) = json(&pair.copy(&["--clean", "none", "in", "neither", "also", "--json"]));
    let stale: Vec<_> = found.iter().map(|line| line["path"].as_str().unwrap()).collect();
    assert_eq!(stale, ["in/.a.lfn-partial", "also/.b.lfn-partial"], "{found:?}");
    assert_eq!((&last["counts"]["stale"], &last["errors"]), (&2.into(), &2.into()), "{last}");
}

/// A full disk leaves an empty journal.
#[test]
fn clean_deletes_an_empty_journal() {
    let pair = Pair::new();
    let journal = pair.near(".a.lfn-journal");
    File::create(&journal).unwrap();
    let (_, last) = json(&pair.copy(&["--clean", "--force", "--older-than", "0s", ".", "--json"]));
    assert_eq!((&last["counts"]["removed"], journal.exists()), (&1.into(), false), "{last}");
}

#[test]
fn clean_refuses_contradictory_flags() {
    let pair = Pair::new();
    for (args, code, what) in [
        (&["--clean", "null:"][..], 2, "null:: --clean needs a directory"),
        (&["--clean", "none"], 1, "none: no such file"),
        (&["--clean", "far:x"], 2, "far:x: --clean works on this host only"),
        (&["--clean", ".", "me@there:x"], 2, "me@there:x: --clean works on this host only"),
    ] {
        pair.refuses(args, code, what);
    }
    for args in [
        &["--clean", "--delete", "."][..],
        &["--older-than", "1d", "a", "b"],
        &["--clean", "--older-than", "1", "."],
        &[],
        &["a"],
    ] {
        let output = pair.copy(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", text(&output.stderr));
    }
}

#[test]
fn remote_clean_is_refused_with_a_command_for_that_host() {
    let pair = Pair::new();
    for (place, hint) in [
        ("me@there:runs/2026", "ssh me@there lfn copy --clean runs/2026"),
        ("there:~/runs", "ssh there lfn copy --clean runs"),
        ("[fe80::1]:", "ssh fe80::1 lfn copy --clean ."),
        ("there:two words", r"ssh there 'lfn copy --clean '\''two words'\'''"),
        ("far:runs", "run lfn copy --clean on the host of the server, in the directory that it serves"),
    ] {
        let errors = pair.refuses(&["--clean", place], 2, "--clean works on this host only");
        assert_eq!(errors.lines().last(), Some(&*format!("hint: {hint}")), "{place}");
    }
}
