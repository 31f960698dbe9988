//! `--dry-run` and `--delete` compared with rsync on the same trees: the planned actions and the resulting trees.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use super::{Pair, event_lines, names, write};
use crate::support::missing_program;
use crate::support::server::text;
use crate::support::skip::skip;

/// Lines of a dry run: word and path.
type Plan = BTreeSet<(String, String)>;

fn dated(path: &Path, length: usize, seconds: u64) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    write(path, length);
    File::open(path).unwrap().set_modified(UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
}

/// Creates the source, and a destination with equal, different, older, newer and additional entries.
fn create_files(source: &Path, there: &Path) {
    for (name, length, seconds) in
        [("same", 10, 1000), ("longer", 20, 1000), ("older", 10, 2000), ("newer", 10, 1000), ("new file", 5, 1000)]
    {
        dated(&source.join(name), length, seconds);
        dated(&source.join("d/e").join(name), length, seconds);
    }
    dated(&source.join("fresh/deep/down/a"), 3, 1000);
    dated(&source.join("large"), 3_000_000, 1000);
    symlink("same", source.join("link")).unwrap();
    symlink("same", source.join("moved")).unwrap();
    fs::create_dir(source.join("hollow")).unwrap();
    for (name, length, seconds) in
        [("same", 10, 1000), ("longer", 10, 1000), ("older", 10, 1000), ("newer", 10, 2000), ("gone", 7, 1000)]
    {
        dated(&there.join(name), length, seconds);
        dated(&there.join("d/e").join(name), length, seconds);
    }
    dated(&there.join("d/e/gone too/deep/x"), 1, 1);
    dated(&there.join("d/e/gone too/deep/y"), 1, 1);
    dated(&there.join("d.before"), 1, 1);
    dated(&there.join("d/zz"), 1, 1);
    dated(&there.join("zz/only/here"), 1, 1);
    symlink("same", there.join("link")).unwrap();
    symlink("elsewhere", there.join("moved")).unwrap();
    symlink("/etc/passwd", there.join("out")).unwrap();
    symlink("/etc", there.join("d/etc")).unwrap();
}

/// Returns the actions of rsync on local trees. Directories that only get a time are omitted.
fn rsync(flags: &[&str], source: &str, destination: &Path) -> Plan {
    let mut command = Command::new("rsync");
    let output =
        command.args(["-rltp", "--itemize-changes"]).args(flags).arg(source).arg(destination).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let words = |line: &str| {
        let (what, path) = line.split_once(' ')?;
        let path = path.trim_start().split(" -> ").next()?;
        let word = match what.as_bytes() {
            b"*deleting" => "delete",
            [b'.', ..] => return None,
            [_, _, b'+', ..] => "new",
            [_, b'L' | b'f', ..] => "replace",
            _ => return None,
        };
        (path != "./").then(|| (word.to_owned(), path.to_owned()))
    };
    text(&output.stdout).lines().filter_map(words).collect()
}

fn plan(reported: &str) -> Plan {
    let reported = reported.lines().take_while(|line| !line.starts_with("dry run") && !line.contains(" goodput "));
    reported.map(|line| (line[..12].trim_end().to_owned(), line[12..].to_owned())).collect()
}

/// Returns all entries of a tree with content and modification time.
fn everything(root: &Path) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    let mut paths = vec![root.to_owned()];
    while let Some(path) = paths.pop() {
        let facts = path.symlink_metadata().unwrap();
        let relative = path.strip_prefix(root).unwrap().display().to_string();
        if facts.is_symlink() {
            all.insert(format!("{relative} -> {}", fs::read_link(&path).unwrap().display()));
        } else if facts.is_dir() {
            all.insert(format!("{relative}/"));
            paths.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else {
            let digest = blake3::hash(&fs::read(&path).unwrap());
            all.insert(format!("{relative} {} {} {digest}", facts.len(), facts.mtime()));
        }
    }
    all
}

/// Creates a pair with the two trees for an upload or a download. Returns also the arguments for `lfn copy`.
fn pair(up: bool) -> (Pair, [&'static str; 2]) {
    let pair = Pair::new();
    let (source, there) = if up { (pair.near("src"), pair.far("dst")) } else { (pair.far("src"), pair.near("dst")) };
    create_files(&source, &there);
    (pair, if up { ["src/", "far:dst"] } else { ["far:src/", "dst"] })
}

fn ends(pair: &Pair, up: bool) -> (String, std::path::PathBuf) {
    let (source, there) = if up { (pair.near("src"), pair.far("dst")) } else { (pair.far("src"), pair.near("dst")) };
    (format!("{}/", source.display()), there)
}

#[test]
fn dry_run_matches_rsync_and_changes_nothing() {
    if let Some(missing) = missing_program(&["rsync"]) {
        return skip("dry_run_matches_rsync_and_changes_nothing", &missing);
    }
    for up in [true, false] {
        let (pair, [from, to]) = pair(up);
        let (source, there) = ends(&pair, up);
        let before = everything(pair.home.path());
        for (ours, theirs) in [
            (&["-n", "--links", "--delete"][..], &["-n", "--delete"][..]),
            (&["-n", "--links", "--force"], &["-n"]),
            (&["-n", "--links", "-u"], &["-n", "-u"]),
            (&["-n", "--links", "--delete", "--checksum"], &["-n", "--delete", "--checksum"]),
            (
                &["-n", "--links", "--delete", "--exclude", "gone*", "--exclude", "/d/zz", "--exclude", "same"],
                &["-n", "--delete", "--exclude=gone*", "--exclude=/d/zz", "--exclude=same"],
            ),
            (
                &["-n", "--links", "--delete", "--exclude", "y", "--exclude", "here"],
                &["-n", "--delete", "--exclude=y", "--exclude=here"],
            ),
        ] {
            let output = pair.copy(&[ours, &[from, to]].concat());
            assert!(output.status.success(), "{}", text(&output.stderr));
            let mut reported = plan(&text(&output.stdout));
            // rsync does not list files that it skips because they are newer.
            reported.retain(|(word, _)| word != "newer");
            let mut expected = rsync(theirs, &source, &there);
            if ours.contains(&"here") {
                // rsync lists directories that it cannot remove because an excluded entry is in them.
                for kept in ["d/e/gone too/deep/", "zz/only/"] {
                    assert!(expected.remove(&("delete".into(), kept.into())));
                }
            }
            if ours.contains(&"--checksum") {
                // Only the time differs here, so the file is not sent. rsync lists the time as an attribute.
                assert!(!expected.contains(&("replace".into(), "older".into())));
            }
            assert_eq!(reported, std::mem::take(&mut expected), "{up} {ours:?}");
        }
        assert_eq!(everything(pair.home.path()), before);
        assert!(!pair.copy(&["-n", "--links", from, to]).status.success(), "what differs would be refused");
    }
}

#[test]
fn dry_run_creates_no_destination() {
    let pair = Pair::new();
    dated(&pair.near("src/d/a"), 5, 1000);
    let output = pair.copy(&["-n", "src", "far:new"]);
    let reported = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let expected = [
        "new         src/",
        "new         src/d/",
        "new         src/d/a",
        "dry run, nothing written: 5 B of 5 B to copy",
    ];
    assert_eq!(reported.lines().take(4).collect::<Vec<_>>(), expected, "{reported}");
    assert!(!pair.far("new").exists());
    // A single file gets the destination name itself.
    let entry = serde_json::json!({"name": "b", "kind": "file", "action": "new", "bytes": 5});
    let document = pair.copy(&["-n", "--json", "src/d/a", "far:b"]).stdout;
    let document: serde_json::Value = serde_json::from_slice(&document).unwrap();
    assert_eq!(document["entries"], serde_json::json!([entry]));
    let lines = event_lines("lfn.copy.event.3", &pair.copy(&["-n", "--output", "ndjson", "src/d/a", "far:b"]));
    let (report, events) = lines.split_last().unwrap();
    assert!(events.contains(&entry), "{events:?}");
    assert_eq!((&report["dry_run"], &report["counts"]["files"]), (&true.into(), &1.into()));
    assert!(report.get("entries").is_none());
    assert!(!pair.far("b").exists());
}

#[test]
fn dry_run_reports_a_file_at_the_destination() {
    let pair = Pair::new();
    dated(&pair.near("src/a"), 5, 1000);
    dated(&pair.near("b"), 5, 1000);
    for there in [pair.far("file"), pair.near("file")] {
        dated(&there, 5, 1000);
    }
    symlink("nowhere", pair.far("dangling")).unwrap();
    symlink("nowhere", pair.near("dangling")).unwrap();
    for sources in [&["src"][..], &["src/"], &["src/a", "b"]] {
        for to in ["far:file", "file", "far:dangling", "dangling"] {
            let args = [sources, &[to]].concat();
            let codes = [&["-n"][..], &[]].map(|flags| pair.copy(&[flags, &args].concat()).status.code());
            assert_eq!(codes, [Some(1); 2], "{args:?}");
        }
    }
}

#[test]
fn delete_leaves_the_same_tree_as_rsync() {
    if let Some(missing) = missing_program(&["rsync"]) {
        return skip("delete_leaves_the_same_tree_as_rsync", &missing);
    }
    for up in [true, false] {
        let (pair, [from, to]) = pair(up);
        let (source, there) = ends(&pair, up);
        // Partial files of another copy stay.
        dated(&there.join("d/.x.lfn-partial"), 5, 1);
        dated(&there.join("d/.x.lfn-journal"), 5, 1);
        let rival = pair.near("rival");
        assert!(Command::new("cp").arg("-a").arg(&there).arg(&rival).status().unwrap().success());
        let deleted = rsync(&["-n", "--delete", "--exclude=.*.lfn-*", "--exclude=zz"], &source, &there).into_iter();
        let deleted: Plan = deleted.filter(|(word, _)| word == "delete").collect();
        rsync(&["--delete", "--exclude=.*.lfn-*", "--exclude=zz"], &source, &rival);
        let output = pair.copy(&["--links", "--delete", "-v", "--exclude", "zz", from, to]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let reported = text(&output.stdout);
        let reported_deletions: Plan = plan(&reported).into_iter().filter(|(word, _)| word == "delete").collect();
        assert_eq!(reported_deletions, deleted, "{reported}");
        assert!(reported.contains(&format!("{} deleted", deleted.len())), "{reported}");
        assert_eq!(everything(&there), everything(&rival));
        assert!(Path::new("/etc/passwd").exists());
    }
}

#[test]
fn delete_keeps_files_the_source_may_have() {
    let pair = Pair::new();
    dated(&pair.near("src/a"), 5, 1000);
    dated(&pair.far("src/extra/b"), 5, 1000);
    // A skipped link still exists at the source.
    symlink("a", pair.near("src/link")).unwrap();
    symlink("a", pair.far("src/link")).unwrap();
    // A special file also exists there, although it is never copied.
    for root in [pair.near("src/fifo"), pair.far("src/fifo")] {
        rustix::fs::mkfifoat(rustix::fs::CWD, &root, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    }
    let output = pair.copy(&["--delete", "src", "missing", "far:"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("skipped --delete"), "{}", text(&output.stderr));
    assert!(pair.far("src/extra/b").exists() && pair.far("src/a").exists());
    // Single files cause no deletions in their directory.
    assert_eq!(pair.copies(&["--delete", "src/a", "far:src"])["counts"]["deleted"], 0);
    // A directory from two sources is incomplete in each of them.
    dated(&pair.near("other/src/c"), 5, 1000);
    let output = pair.copy(&["--delete", "src", "other/src", "far:"]);
    assert!(text(&output.stderr).contains("several sources"), "{}", text(&output.stderr));
    assert!(pair.far("src/extra/b").exists() && pair.far("src/c").exists());
    assert_eq!(pair.copies(&["--delete", "src", "far:"])["counts"]["deleted"], 3);
    assert!(!pair.far("src/extra").exists() && pair.far("src/link").is_symlink() && pair.far("src/fifo").exists());
    let list = pair.near("list");
    fs::write(&list, "a\n").unwrap();
    pair.refuses(
        &["--delete", "--files-from", "list", "src/", "far:src"],
        2,
        "--delete cannot be combined with --files-from",
    );
}

/// Puts other entries in the place of directories: full, empty, and with an excluded entry.
fn create_conflicts(source: &Path, there: &Path) {
    for name in ["full", "empty", "kept", "plain"] {
        dated(&source.join(name), 10, 1000);
    }
    symlink("plain", source.join("link")).unwrap();
    for name in ["full/a", "full/d/e/b", "link/a", "kept/stays", "kept/goes", "plain"] {
        dated(&there.join(name), 10, 1000);
    }
    fs::create_dir_all(there.join("empty")).unwrap();
    fs::create_dir_all(there.join("full/d/hollow")).unwrap();
    symlink("/etc", there.join("full/etc")).unwrap();
}

#[test]
fn directory_is_replaced_where_rsync_replaces_it() {
    if let Some(missing) = missing_program(&["rsync"]) {
        return skip("directory_is_replaced_where_rsync_replaces_it", &missing);
    }
    for up in [true, false] {
        for (flags, done) in [
            (&["--delete"][..], true),
            (&["--delete", "--exclude", "stays"], false),
            (&["--delete", "--exclude", "stays", "--exclude", "/kept"], true),
            (&[], false),
            (&["--exclude", "/full", "--exclude", "/kept", "--exclude", "/link"], true),
        ] {
            let pair = Pair::new();
            let (source, there) = ends(&pair, up);
            create_conflicts(Path::new(&source), &there);
            let rival = pair.near("rival");
            assert!(Command::new("cp").arg("-a").arg(&there).arg(&rival).status().unwrap().success());
            let before = everything(&there);
            let [from, to] = if up { ["src/", "far:dst"] } else { ["far:src/", "dst"] };
            let tried = pair.copy(&[flags, &["--links", "-n", from, to]].concat());
            assert_eq!(tried.status.code(), Some(i32::from(!done)), "{flags:?}: {}", text(&tried.stderr));
            assert_eq!(everything(&there), before, "{flags:?}");
            if done {
                // rsync lists replaced entries as new.
                let word = |word: String| if word == "new" { "replace".to_owned() } else { word };
                let theirs = rsync(&[flags, &["-n"]].concat(), &source, &rival).into_iter();
                let expected: Plan = theirs.map(|(said, path)| (word(said), path)).collect();
                assert_eq!(plan(&text(&tried.stdout)), expected, "{flags:?}");
            }
            let output = pair.copy(&[flags, &["--links", from, to]].concat());
            assert_eq!(output.status.code(), Some(i32::from(!done)), "{flags:?}: {}", text(&output.stderr));
            let theirs = Command::new("rsync").arg("-rltp").args(flags).arg(&source).arg(&rival).output().unwrap();
            assert_eq!(theirs.status.code(), Some(if done { 0 } else { 23 }), "{flags:?}: {}", text(&theirs.stderr));
            assert_eq!(everything(&there), everything(&rival), "{flags:?}");
            assert!(Path::new("/etc/passwd").exists());
        }
    }
}

#[test]
fn too_many_delete_patterns_fail_before_data_moves() {
    let pair = Pair::new();
    dated(&pair.near("src/a"), 5, 1000);
    dated(&pair.far("dst/extra"), 5, 1000);
    let rules = |many| (0..many).map(|n| format!("a pattern of some length {n}\n")).collect::<String>();
    fs::write(pair.near("many"), rules(5000)).unwrap();
    pair.refuses(&["--delete", "--exclude-from", "many", "src/", "far:dst"], 2, "patterns of more than 65536 bytes");
    fs::write(pair.near("rules"), rules(2000)).unwrap();
    let reported =
        pair.refuses(&["--delete", "--exclude-from", "rules", "src/", "far:dst"], 1, "the patterns and names need ");
    assert!(reported.contains("at most 61440 B") && reported.contains("hint: "), "{reported}");
    assert!(!pair.far("dst/a").exists() && pair.far("dst/extra").exists());
    // Patterns that are only used at this end have no limit.
    pair.copies(&["--exclude-from", "rules", "src/", "far:dst"]);
    assert!(pair.far("dst/a").exists());
}

/// The contents of `b/` come after other entries for this directory in the list.
#[test]
fn delete_keeps_files_of_other_sources() {
    let pair = Pair::new();
    for name in ["near/a/x", "near/b/y", "near/f", "far/dst/old"] {
        let path = pair.home.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, name).unwrap();
    }
    for sources in [["a", "f", "b/"], ["b/", "f", "a"]] {
        fs::write(pair.far("dst/old"), b"old").unwrap();
        pair.copies(&[&["--delete"], &sources[..], &["far:dst"]].concat());
        let there: BTreeSet<_> = names(&pair.far("dst")).into_iter().collect();
        assert_eq!(there, ["a", "f", "y"].map(String::from).into(), "{sources:?}");
        assert!(pair.far("dst/a/x").exists());
    }
}

/// Two sources have one name for different entries. The first is copied and the other is reported.
#[test]
fn first_of_two_conflicting_sources_wins() {
    for flags in [&["--delete"][..], &["--update"], &["--force"], &["--delete", "--links", "--manifest", "m"]] {
        for (first, second) in [("a", "b"), ("b", "a"), ("a", "c"), ("b", "c")] {
            let pair = Pair::new();
            for n in 0..20 {
                fs::create_dir_all(pair.near("big")).unwrap();
                write(&pair.near("big").join(n.to_string()), 10);
            }
            for side in ["a", "b", "c"] {
                fs::create_dir_all(pair.near(side)).unwrap();
            }
            fs::create_dir(pair.near("a/x")).unwrap();
            let kept = write(&pair.near("a/x/keep"), 100);
            let own = write(&pair.near("b/x"), 200);
            fs::write(pair.near("c/x"), "another").unwrap();
            let (first, second) = (format!("{first}/x"), format!("{second}/x"));
            let output = pair.copy(&[flags, &[&first, "big", &second, "far:"]].concat());
            let what = format!("{flags:?} {first} {second}: {}{}", text(&output.stdout), text(&output.stderr));
            assert_eq!(output.status.code(), Some(1), "{what}");
            assert!(text(&output.stderr).lines().any(|line| line.starts_with("lfn: x: ")), "{what}");
            let (there, brought) = if first == "a/x" { ("x/keep", &kept) } else { ("x", &own) };
            assert!(fs::read(pair.far(there)).is_ok_and(|there| there == *brought), "{what}");
            // A repeated copy has the same result, although the first entry is up to date.
            let again = pair.copy(&[flags, &[&first, "big", &second, "far:"]].concat());
            assert_eq!(again.status.code(), Some(1), "{what}");
            assert!(fs::read(pair.far(there)).is_ok_and(|there| there == *brought), "{what}");
        }
    }
}

#[test]
fn delete_keeps_the_manifest() {
    for (source, to, manifest) in [
        ("far:src/", "dst", "dst/M*[x]"),
        ("src/", "dst", "dst/d/M"),
        ("far:src", ".", "src/M"),
        ("src/", "dst/d", "M"),
    ] {
        let pair = Pair::new();
        for root in [pair.near("src"), pair.far("src")] {
            dated(&root.join("a"), 5, 1000);
            dated(&root.join("d/b"), 5, 1000);
        }
        dated(&pair.near("dst/d/old"), 5, 1000);
        dated(&pair.near("dst/d/Mx"), 5, 1000);
        let manifest_at = pair.near(manifest);
        for _ in 0..2 {
            pair.copies(&["--delete", "--manifest", manifest, source, to]);
            assert_eq!(fs::read_to_string(&manifest_at).unwrap().lines().count(), 2, "{manifest}");
        }
        // A link to the manifest from elsewhere also names the manifest.
        std::os::unix::fs::symlink(&manifest_at, pair.near("by-link")).unwrap();
        pair.copies(&["--delete", "--exclude", "by-link", "--manifest", "by-link", source, to]);
        assert_eq!(fs::read_to_string(&manifest_at).unwrap().lines().count(), 2, "{manifest}");
        let gone = to.starts_with("dst");
        assert!([pair.near("dst/d/old"), pair.near("dst/d/Mx")].iter().all(|path| path.exists() != gone), "{manifest}");
    }
}

#[test]
fn delete_keeps_the_directory_of_the_report() {
    let pair = Pair::new();
    dated(&pair.near("src/a"), 5, 1000);
    fs::create_dir_all(pair.near("dst/logs")).unwrap();
    for _ in 0..2 {
        let _ = fs::remove_file(pair.near("dst/logs/run.json"));
        dated(&pair.near("dst/surplus"), 5, 1000);
        pair.copies(&["--delete", "--report", "dst/logs/run.json", "src/", "dst"]);
        let report = fs::read_to_string(pair.near("dst/logs/run.json")).unwrap();
        assert!(serde_json::from_str::<serde_json::Value>(&report).unwrap()["schema"].is_string(), "{report}");
        assert!(!pair.near("dst/surplus").exists(), "surplus files are still deleted");
    }
}

/// One of two hard links is replaced. The other one is then the only link.
#[test]
fn delete_removes_other_links_of_a_replaced_file() {
    let pair = Pair::new();
    fs::create_dir(pair.near("s")).unwrap();
    dated(&pair.near("s/x"), 20, 2000);
    dated(&pair.far("x"), 10, 1000);
    fs::hard_link(pair.far("x"), pair.far("y")).unwrap();
    let report = pair.copies(&["s/", "far:", "--delete"]);
    assert_eq!((names(&pair.far("")), &report["counts"]["deleted"]), (vec!["x".to_owned()], &1.into()), "{report}");
}

#[test]
fn delete_at_a_server_of_this_host_keeps_sources() {
    let pair = Pair::new();
    fs::create_dir_all(pair.far("runs/deep")).unwrap();
    for name in ["runs/a", "runs/deep/b"] {
        write(&pair.far(name), 10);
    }
    let (deep, new) = (pair.far("runs/deep"), pair.far("runs/deep/new"));
    let (deep, new) = (deep.to_str().unwrap(), new.to_str().unwrap());
    let own = "a directory cannot be copied into itself";
    pair.refuses(&["--delete", "far:runs/", deep], 1, own);
    pair.refuses(&["--delete", "far:runs/", new], 1, own);
    pair.refuses(&["--delete", &format!("{deep}/"), "far:runs"], 1, "where the copy would delete it");
    let kept: BTreeSet<_> = names(&pair.far("runs")).into_iter().collect();
    assert_eq!(kept, BTreeSet::from(["a".to_owned(), "deep".to_owned()]));
    assert_eq!(names(&pair.far("runs/deep")), ["b"]);
}
