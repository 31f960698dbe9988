//! `--dry-run` and `--delete` beside rsync's on the same trees: what would be done, and what is left afterwards.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use super::support::server::text;
use super::{Pair, names, write};

/// A line of what would be done: a word and a path.
type Plan = BTreeSet<(String, String)>;

fn dated(path: &Path, length: usize, seconds: u64) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    write(path, length);
    File::open(path).unwrap().set_modified(UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
}

/// What the source has, and what stood at the destination before: the same, other, older, newer, more of it.
fn plant(source: &Path, there: &Path) {
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

/// What rsync would do, or does, with trees of this host; directories that only get a time are left out.
fn rsync(flags: &[&str], source: &str, destination: &Path) -> Plan {
    let output =
        Command::new("rsync").args(["-rltp", "--itemize-changes"]).args(flags).arg(source).arg(destination).output();
    let output = output.expect("rsync is needed for this test: apt-get install rsync");
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

fn plan(told: &str) -> Plan {
    let told = told.lines().take_while(|line| !line.starts_with("dry run") && !line.contains(" goodput "));
    told.map(|line| (line[..8].trim_end().to_owned(), line[8..].to_owned())).collect()
}

/// Everything in a tree, with what is in it and when it was changed.
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

/// A pair with the two trees, planted for an upload or a download, and the places as `lfn copy` takes them.
fn pair(up: bool) -> (Pair, [&'static str; 2]) {
    let pair = Pair::new();
    let (source, there) = if up { (pair.near("src"), pair.far("dst")) } else { (pair.far("src"), pair.near("dst")) };
    plant(&source, &there);
    (pair, if up { ["src/", "far:dst"] } else { ["far:src/", "dst"] })
}

fn ends(pair: &Pair, up: bool) -> (String, std::path::PathBuf) {
    let (source, there) = if up { (pair.near("src"), pair.far("dst")) } else { (pair.far("src"), pair.near("dst")) };
    (format!("{}/", source.display()), there)
}

#[test]
fn a_dry_run_tells_what_rsync_would_do_and_does_nothing() {
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
            let mut told = plan(&text(&output.stdout));
            // rsync says nothing of files that it leaves because they are newer.
            told.retain(|(word, _)| word != "newer");
            let mut expected = rsync(theirs, &source, &there);
            if ours.contains(&"here") {
                // rsync lists directories that it then cannot remove, because something in them is excluded.
                for kept in ["d/e/gone too/deep/", "zz/only/"] {
                    assert!(expected.remove(&("delete".into(), kept.into())));
                }
            }
            if ours.contains(&"--checksum") {
                // Here only the time differs, which is no reason to send; rsync lists it as an attribute.
                assert!(!expected.contains(&("replace".into(), "older".into())));
            }
            assert_eq!(told, std::mem::take(&mut expected), "{up} {ours:?}");
        }
        assert_eq!(everything(pair.home.path()), before);
        assert!(!pair.copy(&["-n", "--links", from, to]).status.success(), "what differs would be refused");
    }
}

#[test]
fn a_dry_run_makes_no_destination() {
    let pair = Pair::new();
    dated(&pair.near("src/d/a"), 5, 1000);
    let output = pair.copy(&["-n", "src", "far:new"]);
    let told = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let expected = [
        "new     src/",
        "new     src/d/",
        "new     src/d/a",
        "dry run, nothing was written: 5 B of 5 B in files to copy",
    ];
    assert_eq!(told.lines().take(4).collect::<Vec<_>>(), expected, "{told}");
    assert!(!pair.far("new").exists());
    // One file takes the name itself.
    let told = text(&pair.copy(&["-n", "--json", "src/d/a", "far:b"]).stdout);
    let lines: Vec<serde_json::Value> = told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0], serde_json::json!({"name": "b", "kind": "file", "fate": "new", "bytes": 5}));
    assert_eq!((lines.len(), &lines[1]["dry_run"], &lines[1]["tally"]["files"]), (2, &true.into(), &1.into()));
    assert!(!pair.far("b").exists());
}

#[test]
fn a_dry_run_sees_what_stands_where_the_destination_is_to_be_made() {
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
fn after_delete_the_trees_are_as_rsync_leaves_them() {
    for up in [true, false] {
        let (pair, [from, to]) = pair(up);
        let (source, there) = ends(&pair, up);
        // Another copy's, which stay.
        dated(&there.join("d/.x.lfn-partial"), 5, 1);
        dated(&there.join("d/.x.lfn-journal"), 5, 1);
        let rival = pair.near("rival");
        assert!(Command::new("cp").arg("-a").arg(&there).arg(&rival).status().unwrap().success());
        let deleted = rsync(&["-n", "--delete", "--exclude=.*.lfn-*", "--exclude=zz"], &source, &there).into_iter();
        let deleted: Plan = deleted.filter(|(word, _)| word == "delete").collect();
        rsync(&["--delete", "--exclude=.*.lfn-*", "--exclude=zz"], &source, &rival);
        let output = pair.copy(&["--links", "--delete", "-v", "--exclude", "zz", from, to]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let told = text(&output.stdout);
        assert_eq!(plan(&told), deleted, "{told}");
        assert!(told.contains(&format!("{} deleted", deleted.len())), "{told}");
        assert_eq!(everything(&there), everything(&rival));
        assert!(Path::new("/etc/passwd").exists());
    }
}

#[test]
fn nothing_is_deleted_that_the_source_may_still_have() {
    let pair = Pair::new();
    dated(&pair.near("src/a"), 5, 1000);
    dated(&pair.far("src/extra/b"), 5, 1000);
    // A link that is left out is there all the same.
    symlink("a", pair.near("src/link")).unwrap();
    symlink("a", pair.far("src/link")).unwrap();
    // So is what is never copied.
    for root in [pair.near("src/fifo"), pair.far("src/fifo")] {
        rustix::fs::mkfifoat(rustix::fs::CWD, &root, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    }
    let output = pair.copy(&["--delete", "src", "missing", "far:"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("nothing was deleted"), "{}", text(&output.stderr));
    assert!(pair.far("src/extra/b").exists() && pair.far("src/a").exists());
    // Files by themselves say nothing of the directory they go to.
    assert_eq!(pair.copies(&["--delete", "src/a", "far:src"])["tally"]["deleted"], 0);
    // A directory that comes from two sources is not whole in either.
    dated(&pair.near("other/src/c"), 5, 1000);
    let output = pair.copy(&["--delete", "src", "other/src", "far:"]);
    assert!(text(&output.stderr).contains("several sources"), "{}", text(&output.stderr));
    assert!(pair.far("src/extra/b").exists() && pair.far("src/c").exists());
    assert_eq!(pair.copies(&["--delete", "src", "far:"])["tally"]["deleted"], 3);
    assert!(!pair.far("src/extra").exists() && pair.far("src/link").is_symlink() && pair.far("src/fifo").exists());
    let list = pair.near("list");
    fs::write(&list, "a\n").unwrap();
    pair.refuses(&["--delete", "--files-from", "list", "src/", "far:src"], 2, "--delete with --files-from");
}

/// Things that are no directories, where directories stand: full ones, empty ones, one that an exclude keeps.
fn plant_in_the_way(source: &Path, there: &Path) {
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
fn a_directory_gives_way_where_it_does_for_rsync() {
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
            plant_in_the_way(Path::new(&source), &there);
            let rival = pair.near("rival");
            assert!(Command::new("cp").arg("-a").arg(&there).arg(&rival).status().unwrap().success());
            let before = everything(&there);
            let [from, to] = if up { ["src/", "far:dst"] } else { ["far:src/", "dst"] };
            let tried = pair.copy(&[flags, &["--links", "-n", from, to]].concat());
            assert_eq!(tried.status.code(), Some(i32::from(!done)), "{flags:?}: {}", text(&tried.stderr));
            assert_eq!(everything(&there), before, "{flags:?}");
            if done {
                // Where something gives way, rsync says that it is new.
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
fn more_patterns_than_a_request_holds_are_told_before_anything_moves() {
    let pair = Pair::new();
    dated(&pair.near("src/a"), 5, 1000);
    dated(&pair.far("dst/extra"), 5, 1000);
    let rules = |many| (0..many).map(|n| format!("a pattern of some length {n}\n")).collect::<String>();
    fs::write(pair.near("many"), rules(5000)).unwrap();
    pair.refuses(&["--delete", "--exclude-from", "many", "src/", "far:dst"], 2, "patterns of more than 65536 bytes");
    fs::write(pair.near("rules"), rules(2000)).unwrap();
    let told = pair.refuses(&["--delete", "--exclude-from", "rules", "src/", "far:dst"], 1, "patterns and names of ");
    assert!(told.contains("more than the 61440 B") && told.contains("hint: "), "{told}");
    assert!(!pair.far("dst/a").exists() && pair.far("dst/extra").exists());
    // Asked at this end alone they are as many as they like.
    pair.copies(&["--exclude-from", "rules", "src/", "far:dst"]);
    assert!(pair.far("dst/a").exists());
}

/// The directory that `b/` stands for comes in the list behind what else goes there.
#[test]
fn what_other_sources_bring_is_not_deleted() {
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

/// Sources that bring one name as different things: what the first has brought stays, and the other is told.
#[test]
fn what_one_source_brings_is_not_replaced_by_another() {
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
            // Once more it is the same, though what the first brings is there already.
            let again = pair.copy(&[flags, &[&first, "big", &second, "far:"]].concat());
            assert_eq!(again.status.code(), Some(1), "{what}");
            assert!(fs::read(pair.far(there)).is_ok_and(|there| there == *brought), "{what}");
        }
    }
}

#[test]
fn a_manifest_at_the_destination_is_not_deleted() {
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
        // By a link from elsewhere too: what it leads to is the manifest.
        std::os::unix::fs::symlink(&manifest_at, pair.near("by-link")).unwrap();
        pair.copies(&["--delete", "--exclude", "by-link", "--manifest", "by-link", source, to]);
        assert_eq!(fs::read_to_string(&manifest_at).unwrap().lines().count(), 2, "{manifest}");
        let gone = to.starts_with("dst");
        assert!([pair.near("dst/d/old"), pair.near("dst/d/Mx")].iter().all(|path| path.exists() != gone), "{manifest}");
    }
}

/// Of two names of a file one is replaced: by then the other is the only one.
#[test]
fn another_name_of_a_file_that_is_replaced_goes_too() {
    let pair = Pair::new();
    fs::create_dir(pair.near("s")).unwrap();
    dated(&pair.near("s/x"), 20, 2000);
    dated(&pair.far("x"), 10, 1000);
    fs::hard_link(pair.far("x"), pair.far("y")).unwrap();
    let report = pair.copies(&["s/", "far:", "--delete"]);
    assert_eq!((names(&pair.far("")), &report["tally"]["deleted"]), (vec!["x".to_owned()], &1.into()), "{report}");
}
