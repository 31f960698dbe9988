//! Output of `lfn copy`: names, progress, quiet, JSON of failures, hints for rsync's flags, and the number of streams.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Output, Stdio};
use std::time::Duration;

use lfn_base::path::PathProfile;
use lfn_base::units::BitRate;
use serde_json::Value;

use super::support::schema::{assert_valid, check_document};
use super::support::server::{Server, kill, text};
use super::{Pair, event_lines, finish, write};

/// Creates a tree with three files in two directories.
fn create_tree(pair: &Pair) {
    fs::create_dir_all(pair.near("tree/sub")).unwrap();
    for name in ["tree/a", "tree/b", "tree/sub/c"] {
        write(&pair.near(name), 1000);
    }
}

/// Returns the sorted lines on stdout that begin with an action.
fn actions(stdout: &[u8]) -> Vec<String> {
    let is_action = |line: &&str| {
        ["new ", "replace ", "delete ", "up-to-date ", "newer "].iter().any(|word| line.starts_with(word))
    };
    let mut lines: Vec<_> = text(stdout).lines().filter(is_action).map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn verbose_prints_the_name_of_each_copied_entry() {
    let pair = Pair::new();
    create_tree(&pair);
    let lines = |args: &[&str]| {
        let output = pair.copy(args);
        assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
        actions(&output.stdout)
    };
    let new = |names: &[&str]| names.iter().map(|name| format!("{:<12}{name}", "new")).collect::<Vec<_>>();
    for (from, to) in [("tree", "far:"), ("far:tree", "back"), ("tree", "local")] {
        if to != "far:" {
            fs::create_dir(pair.near(to)).unwrap();
        }
        assert_eq!(
            lines(&["-v", from, to]),
            new(&["tree/", "tree/a", "tree/b", "tree/sub/", "tree/sub/c"]),
            "{from} {to}"
        );
        assert!(lines(&["-v", from, to]).is_empty(), "{from} {to}");
        let same: Vec<_> = lines(&["-vv", from, to]);
        assert!(same.contains(&"up-to-date  tree/sub/c".to_owned()), "{from} {to}: {same:?}");
    }
    assert!(lines(&["tree/a", "far:b"]).is_empty());
    write(&pair.near("tree/a"), 1001);
    assert_eq!(lines(&["-v", "--force", "tree", "far:"]), ["replace     tree/a"]);
    // The lines of a manifest are events too, and are not printed.
    assert!(lines(&["--manifest", "m", "tree", "far:"]).is_empty());
    let output = pair.copy(&["-v", "--json", "tree", "far:again"]);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["entries"][0]["action"], "new", "{document}");
}

/// The names that a write-only client sent are no secret. Other names are.
#[test]
fn verbose_works_with_a_write_only_server() {
    let mut pair = Pair::new();
    create_tree(&pair);
    let root = pair.home.path().join("far");
    pair.server = Server::start(&["--root", root.to_str().unwrap(), "--write-only"]);
    let output = pair.copy(&["-v", "tree", "far:"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(actions(&output.stdout).len(), 5, "{}", text(&output.stdout));
    fs::write(pair.far("tree/a"), "other").unwrap();
    let output = pair.copy(&["-v", "--force", "tree", "far:"]);
    assert!(!text(&output.stdout).contains("replace"), "{}", text(&output.stdout));
    assert_eq!(pair.copy(&["-vv", "tree", "far:"]).status.code(), Some(1));
}

#[test]
fn quiet_prints_errors_only() {
    let pair = Pair::new();
    create_tree(&pair);
    std::os::unix::fs::symlink("a", pair.near("tree/link")).unwrap();
    for args in [&["-q", "tree", "far:"][..], &["-q", "tree", "far:"], &["--quiet", "-n", "tree", "far:new"]] {
        let output = pair.copy(args);
        assert!(output.status.success() && output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}");
    }
    let output = pair.copy(&["-q", "missing", "far:"]);
    assert!(text(&output.stderr).starts_with("lfn: missing: no such file") && output.stdout.is_empty(), "{output:?}");
    // The requested result is printed.
    assert_eq!(pair.copies(&["-q", "tree", "far:"])["counts"]["files"], 0);
}

#[test]
fn progress_is_printed_without_a_terminal() {
    let pair = Pair::new();
    write(&pair.near("field.nc"), 3_000_000);
    let output = pair.copy(&["--progress", "field.nc", "far:"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let errors = text(&output.stderr);
    let last = errors.lines().last().unwrap_or_default();
    assert!(last.starts_with("100 %  field.nc  ") && last.contains("3 of 3 MB"), "{errors}");
    assert!(!errors.contains('\r') && text(&output.stdout).contains("3 MB in "), "{output:?}");
    // Without the flag there is none.
    assert!(pair.copy(&["field.nc", "far:b"]).stderr.is_empty());
}

#[test]
fn rsync_flags_get_the_equivalent() {
    let pair = Pair::new();
    write(&pair.near("a"), 10);
    for (flags, hint) in [
        (&["-r"][..], "directories are always copied"),
        (&["-az"], "lfn does not compress"),
        (&["-P"], "use --progress; interrupted copies always resume"),
        (&["-e", "ssh -p 2222"], "use --ssh COMMAND"),
        (&["--rsh=ssh"], "use --ssh COMMAND"),
        (&["--bwlimit=1000"], "use --rate RATE"),
        (&["--rsync-path", "/opt/rsync"], "use --remote-lfn PATH"),
        (&["-t"], "modification times are always preserved"),
        (&["--partial"], "always resume"),
        (&["--stats"], "use --json"),
    ] {
        let errors = pair.refuses(&[flags, &["a", "far:"]].concat(), 2, "unexpected argument");
        assert!(errors.contains(&format!("hint: {hint}")) || errors.contains(hint), "{flags:?}: {errors}");
    }
}

#[test]
fn early_failure_prints_a_json_result() {
    let pair = Pair::new();
    write(&pair.near("a"), 10);
    for (args, code, error) in [
        (&["nosuch", "far:"][..], 1, "nosuch: no such file or directory"),
        (&["a", "nohost.invalid:"], 1, "nohost.invalid"),
        (&["a", "far"], 2, "'far' is a saved name"),
        (&["only"], 2, "only one place"),
        (&["a", "far:a", "--rate", "5bit"], 2, "--rate 5 b/s is too low"),
    ] {
        for format in ["--json", "--output=ndjson"] {
            let output = pair.copy(&[args, &[format]].concat());
            assert_eq!(output.status.code(), Some(code), "{args:?}: {}", text(&output.stderr));
            let result: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{args:?}: {e}"));
            assert_eq!((&result["schema"], &result["exit_code"]), (&"lfn.copy/3".into(), &code.into()), "{result}");
            check_document(&result).unwrap();
            assert_valid("lfn.copy.event.3", &result);
            assert!(result["error"].as_str().unwrap().contains(error), "{result}");
            assert_eq!(result["sources"][0], args[0]);
            assert!(text(&output.stderr).starts_with("lfn: "), "{}", text(&output.stderr));
        }
    }
    // A copy with a report prints no second document.
    fs::create_dir(pair.far("a")).unwrap();
    let output = pair.copy(&["a", "far:b/", "--json"]);
    assert!(output.status.success());
    write(&pair.far("b/a"), 20);
    let output = pair.copy(&["a", "far:b/", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), report["failures"].as_array().unwrap().len()), (Some(1), 1), "{report}");
    check_document(&report).unwrap();
}

/// Returns the names of the events in their order, without repetitions.
fn event_names(lines: &[Value]) -> Vec<&str> {
    let mut names: Vec<_> = lines.iter().filter_map(|line| line["event"].as_str()).collect();
    names.dedup();
    names
}

#[test]
fn each_line_of_ndjson_has_a_schema() {
    let pair = Pair::new();
    create_tree(&pair);
    fs::write(pair.near("tree/b\n"), "2").unwrap();
    for (args, entries) in [(&["-n"][..], 6), (&["-v", "--rate", "100mbit"], 6), (&[], 0)] {
        let output = pair.copy(&[args, &["tree", "far:", "--output", "ndjson"]].concat());
        let lines = event_lines("lfn.copy.event.3", &output);
        let results = lines.iter().filter(|line| line.get("action").is_some()).count();
        assert_eq!((output.status.code(), results), (Some(0), entries), "{lines:?}");
        assert_eq!(lines.last().unwrap()["schema"], "lfn.copy/3");
    }
}

#[test]
fn interrupted_copy_has_events_and_a_document() {
    let pair = Pair::new();
    let mut child = pair.command(&["random:1TiB", "far:null:", "--output", "ndjson"]).spawn().unwrap();
    let mut first = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut first).unwrap();
    kill("INT", child.id());
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    let output = Output { stdout: (first + &rest).into_bytes(), ..child.wait_with_output().unwrap() };
    let lines = event_lines("lfn.copy.event.3", &output);
    assert!(event_names(&lines).contains(&"progress"), "{lines:?}");
    let last = lines.last().unwrap();
    assert_eq!((output.status.code(), &last["exit_code"]), (Some(130), &130.into()), "{last}");
    check_document(last).unwrap();
}

#[test]
fn lost_connection_is_an_event() {
    let mut pair = Pair::new();
    let args = ["random:1TiB", "far:null:", "--output", "ndjson", "--retry-for", "1s"];
    let mut child = pair.command(&args).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut all = String::new();
    stdout.read_line(&mut all).unwrap();
    pair.server.child.kill().unwrap();
    stdout.read_to_string(&mut all).unwrap();
    let output = Output { stdout: all.into_bytes(), ..child.wait_with_output().unwrap() };
    let lines = event_lines("lfn.copy.event.3", &output);
    assert!(event_names(&lines).contains(&"disconnected"), "{lines:?}");
    assert!(lines.last().unwrap()["error"].is_string(), "{lines:?}");
}

#[test]
fn invalid_copy_document_names_its_field() {
    let pair = Pair::new();
    let mut report = pair.copies(&["zero:1000", "far:null:"]);
    report["counts"]["files"] = "one".into();
    let fault = check_document(&report).unwrap_err();
    assert!(fault.contains("lfn.copy.3") && fault.contains("/counts/files"), "{fault}");
}

#[test]
fn wrong_values_have_exact_errors_and_hints() {
    let pair = Pair::new();
    write(&pair.near("a"), 300_000);
    write(&pair.far("a"), 300_001);
    for (args, code, error, hint) in [
        (&["a", "far:a"][..], 1, "a file of 300,001 B exists, the source has 300,000 B", ""),
        (&["a", "far:b", "--rate", "10MB"], 2, "lfn: --rate: '10MB': unknown unit 'MB'", "hint: "),
        (
            &["a", "far:b", "--manifest", "far:copy/M"],
            2,
            "must be a file on this host",
            "lfn copy a far:b --manifest M",
        ),
        (&["a", "far:b", "--manifest", "none/M"], 1, "cannot write the manifest none/M", "--manifest /tmp/M"),
        (&["missing", "far:b"], 1, "lfn: missing: no such file", "hint: check the spelling: ls .\n"),
        (&["a", "me@there"], 2, "'me@there' names a host for ssh", "did you mean me@there:?"),
    ] {
        let errors = pair.refuses(args, code, error);
        assert!(errors.contains(hint) && !errors.contains("os error"), "{errors}");
    }
    let output = pair.copy(&["-n", "--delete", "a", "far:"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    fs::create_dir(pair.near("d")).unwrap();
    fs::create_dir(pair.far("d")).unwrap();
    write(&pair.far("d/old"), 1);
    let output = pair.copy(&["-n", "--delete", "d/", "far:d"]);
    assert!(text(&output.stdout).contains("1 would be deleted"), "{}", text(&output.stdout));
}

/// The reason compares the printed prediction with fewer streams, for the bytes that were sent.
#[test]
fn small_copy_over_a_long_path_uses_few_streams() {
    let pair = Pair::new();
    write(&pair.near("a"), 3_000_000);
    fs::create_dir(pair.near("tree")).unwrap();
    for number in 0..30 {
        write(&pair.near(&format!("tree/{number}")), 100_000);
    }
    let path = PathProfile::new(BitRate(135_000_000), Duration::from_millis(539));
    let path = serde_json::to_string(&path).unwrap();
    for args in [["a", "far:"], ["tree", "far:"], ["far:random:3MB", "null:"], ["random:3MB", "far:null:"]] {
        let mut command = pair.command(&[&args[..], &["--json"]].concat());
        command.env("LFN_EMULATED", "1").env("LFN_PATH", &path).env("LFN_RETURN_PATH", &path);
        let report = super::report_of(&args, &finish(command.spawn().unwrap()));
        assert_eq!(report["streams"], 16, "{args:?}: {report}");
        let reason = report["streams_reason"].as_str().unwrap();
        let predicted =
            lfn_base::units::show_duration(Duration::from_secs_f64(report["predicted"]["seconds"].as_f64().unwrap()));
        assert!(reason.starts_with("the maximum for 3 MB; ") && reason.ends_with(" with 4"), "{reason}");
        assert!(reason.contains(&format!("{predicted} instead of ")), "{reason}: {predicted}");
    }
    // The size of a download is unknown at the start. The list adds streams.
    let mut command = pair.command(&["far:tree", "back", "--json"]);
    command.env("LFN_EMULATED", "1").env("LFN_PATH", &path).env("LFN_RETURN_PATH", &path);
    let report = super::report_of(&[], &finish(command.spawn().unwrap()));
    assert!(report["streams"].as_u64().unwrap() <= 16, "{report}");
}

/// Without a terminal the summary is not wrapped, unless COLUMNS asks for it. Words are never broken.
#[test]
fn summary_wraps_between_words() {
    let pair = Pair::new();
    for columns in [80, 50] {
        let mut command = pair.command(&["random:3MB", "far:null:", "--rate", "1gbit"]);
        let output = finish(command.env("COLUMNS", columns.to_string()).stdin(Stdio::null()).spawn().unwrap());
        let stdout = text(&output.stdout);
        for line in stdout.lines().filter(|line| !line.contains("blake3") && line.trim().len() != 64) {
            assert!(line.chars().count() <= columns, "{columns}: {stdout}");
        }
        assert!(output.status.success() && stdout.contains("3 MB in ") && stdout.contains("predicted: "), "{stdout}");
    }
}
