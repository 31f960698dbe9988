//! Copies on this host: same behaviour as from a server, and no process of the internal server remains.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{Pair, finish, text, wait_for, write};
use crate::support::eventually;
use crate::support::skip::{Missing, skip};

#[test]
fn local_copy_transfers_a_tree() {
    let pair = Pair::new();
    fs::create_dir_all(pair.near("runs/deep")).unwrap();
    for (name, length) in [("runs/a", 3_000_003), ("runs/deep/b", 10), ("runs/empty", 0)] {
        write(&pair.near(name), length);
    }
    std::os::unix::fs::symlink("a", pair.near("runs/link")).unwrap();
    let report = pair.copies(&["-a", "runs", "copies", "--manifest", "manifest"]);
    assert_eq!((&report["counts"]["files"], &report["protection"]), (&3.into(), &"clear".into()), "{report}");
    let (runs, copied) = (pair.near("runs"), pair.near("copies/runs"));
    let same = Command::new("diff").args(["-r", "--no-dereference"]).arg(runs).arg(copied).output().unwrap();
    assert!(same.status.success(), "{}", text(&same.stdout));
    assert_eq!(fs::read_to_string(pair.near("manifest")).unwrap().lines().count(), 3);
    let again = pair.copies(&["-a", "runs", "copies"]);
    assert_eq!((&again["counts"]["files"], &again["moved_bytes"]), (&0.into(), &0.into()), "{again}");
    write(&pair.near("copies/runs/more"), 1);
    pair.copies(&["-a", "--delete", "runs/", "copies/runs"]);
    assert!(!pair.near("copies/runs/more").exists());
    pair.copies(&["runs/a", "runs/deep/b", "copies"]);
    assert_eq!(fs::read(pair.near("copies/b")).unwrap(), fs::read(pair.near("runs/deep/b")).unwrap());
    pair.copies(&["random:1MB", "made"]);
    assert_eq!(fs::metadata(pair.near("made")).unwrap().len(), 1_000_000);
    pair.copies(&["zero:1MB", "null:"]);
}

#[test]
fn source_that_is_no_file_is_named_by_its_type() {
    let pair = Pair::new();
    std::os::unix::fs::symlink("gone", pair.near("link")).unwrap();
    std::os::unix::fs::symlink("gone", pair.far("link")).unwrap();
    let said = pair.refuses(&["link", "copy"], 1, "lfn: link is a symbolic link to a missing file");
    assert!(said.contains("hint: use --links (-l)"), "{said}");
    pair.refuses(&["far:link", "copy"], 1, "lfn: far:link is a symbolic link to a missing file");
    pair.copies(&["-l", "link", "copy"]);
    assert_eq!(fs::read_link(pair.near("copy")).unwrap(), Path::new("gone"));
    pair.refuses(&["gone", "copy"], 1, "gone: no such file or directory");
    pair.refuses(&["/proc/version", "version"], 1, "/proc/version: size is reported as 0 but reading returns data");
    write(&pair.near("a"), 10);
    let output = pair.copy(&["/proc/version", "a", "both"]);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(
        errors.contains("lfn: version: size is reported as 0 but reading returns data (a /proc or /sys file?) (/proc/version) (at the source)"),
        "{errors}"
    );
    assert!(pair.near("both/a").exists() && !pair.near("both/version").exists());
}

#[test]
fn copy_into_itself_is_refused() {
    let pair = Pair::new();
    fs::create_dir_all(pair.near("runs/deep")).unwrap();
    write(&pair.near("runs/a"), 10);
    for way in [["runs", "runs/deep"], ["runs/", "runs"], [".", "new"], ["runs/deep/..", "runs/deep/new"]] {
        pair.refuses(&way, 2, "cannot be copied into itself");
    }
    assert!(!pair.near("new").exists() && fs::read_dir(pair.near("runs")).unwrap().count() == 2);
    fs::write(pair.near("list"), "runs/a\n").unwrap();
    pair.copies(&["--files-from", "list", ".", "new"]);
    assert!(pair.near("new/runs/a").exists());
    pair.refuses(&["runs/none", "b"], 1, "runs/none: no such file");
}

/// Asserts that the copy exits with 1, prints these lines, and copies the rest.
#[track_caller]
fn assert_others_copied(pair: &Pair, args: &[&str], lines: &[&str]) {
    let output = pair.copy(args);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{args:?}: {errors}");
    assert!(
        lines.iter().all(|line| errors.lines().any(|error| error.starts_with(&format!("lfn: {line}")))),
        "{errors}"
    );
}

/// Returns all entries below a directory with their contents.
fn tree(top: &Path) -> Vec<(String, Option<Vec<u8>>)> {
    let mut all = Vec::new();
    let mut directories = vec![top.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()) {
            let name = entry.strip_prefix(top).unwrap().to_str().unwrap().to_owned();
            let is_directory = entry.symlink_metadata().unwrap().is_dir();
            all.push((name, (!is_directory).then(|| fs::read(&entry).unwrap_or_default())));
            directories.extend(is_directory.then_some(entry));
        }
    }
    all.sort();
    all
}

#[test]
fn destination_inside_the_source_is_skipped() {
    const ITSELF: &str = "is the destination of the copy: a directory cannot be copied into itself";
    let pair = Pair::new();
    fs::create_dir_all(pair.near("runs/deep/er")).unwrap();
    write(&pair.near("runs/a"), 10);
    write(&pair.near("runs/deep/er/b"), 20);
    std::os::unix::fs::symlink("runs/deep", pair.near("way")).unwrap();
    fs::write(pair.near("list"), "runs\n").unwrap();
    fs::write(pair.near("inside"), "runs/deep/er\nruns/a\n").unwrap();
    let deep = format!("runs/deep: {ITSELF}");
    // Repeated copies skip existing files, and the tree does not grow.
    for to in ["runs/deep", "way", "runs/deep"] {
        assert_others_copied(&pair, &["run*", to], &[&deep]);
        assert_others_copied(&pair, &["runs", "list", to], &[&deep]);
        assert_others_copied(&pair, &["--files-from", "list", ".", to], &[&deep]);
        // Its contents cannot be selected by name either.
        assert_others_copied(&pair, &["--files-from", "inside", ".", to], &["runs/deep/er: is the destination"]);
        let names: Vec<_> = tree(&pair.near("runs")).into_iter().map(|(name, _)| name).collect();
        let copied = ["deep/er", "deep/er/b", "deep/list", "deep/runs", "deep/runs/a"];
        assert_eq!(names, [&["a", "deep"], &copied[..]].concat());
    }
    // Destinations that the copy creates, with several sources and with one.
    assert_others_copied(&pair, &["run*", "list", "runs/new"], &[&format!("runs/new: {ITSELF}")]);
    assert!(pair.near("runs/new/runs/deep/er/b").exists() && !pair.near("runs/new/runs/new").exists());
    assert_others_copied(&pair, &["*", "runs/new"], &[&format!("runs/new: {ITSELF}")]);
    fs::remove_dir_all(pair.near("runs/new")).unwrap();
    fs::create_dir(pair.near("new")).unwrap();
    pair.refuses(&["new*", "new"], 1, "source and destination are the same");
    assert_others_copied(&pair, &["new", "runs", "new"], &[&format!("new: {ITSELF}")]);
    // An excluded destination causes no error.
    pair.copies(&["-a", "--exclude", "/new", "--exclude", "/way", "./", "new"]);
    pair.copies(&["-a", "--delete", "--exclude", "/new", "--exclude", "/way", "./", "new"]);
    assert!(pair.near("new/runs/deep/er/b").exists() && !pair.near("new/new").exists());
    // A dry run creates nothing and reports the same errors.
    assert_others_copied(&pair, &["--dry-run", "run*", "runs/deep"], &[&deep]);
}

#[test]
fn copy_onto_itself_is_refused() {
    use std::os::unix::fs::symlink;
    const SAME: &str = "source and destination are the same";
    let pair = Pair::new();
    fs::create_dir_all(pair.near("runs/deep")).unwrap();
    write(&pair.near("runs/a"), 3_000_000);
    write(&pair.near("runs/deep/b"), 20);
    fs::hard_link(pair.near("runs/a"), pair.near("runs/hard")).unwrap();
    symlink("a", pair.near("runs/soft")).unwrap();
    symlink("runs", pair.near("way")).unwrap();
    let before = tree(&pair.home.path().join("near"));
    let ways: [&[&str]; 12] = [
        &["runs/a", "runs/a"],
        &["runs/a", "runs"],
        &["runs/a", "runs/hard"],
        &["runs/hard", "runs/a"],
        &["runs/a", "way"],
        &["way/a", "runs/a"],
        &["runs/soft", "runs/a"],
        &["runs/soft", "way/"],
        &["way/", "./runs/deep/.."],
        &["ru*/", "way"],
        &["runs", "."],
        &["--delete", "runs/deep", "way"],
    ];
    for way in ways {
        for more in [&[][..], &["--force"], &["--update", "-a"], &["--checksum"]] {
            let (code, what) = if way == ["way/", "./runs/deep/.."] { (2, "into itself") } else { (1, SAME) };
            // With `--links`, a link is not a name of its target.
            if more.contains(&"-a") && way == ["runs/soft", "runs/a"] {
                continue;
            }
            let errors = pair.refuses(&[way, more].concat(), code, what);
            assert!(errors.contains("\nhint: "), "{errors}");
            assert!(tree(&pair.home.path().join("near")) == before, "{way:?} {more:?}");
        }
    }
    // A symbolic link at the destination is refused, whatever its target. In a tree, an identical file is up to date.
    pair.refuses(&["runs/a", "runs/soft"], 1, "symbolic link");
    pair.refuses(&["--files-from", "/dev/null", "runs", "way"], 1, SAME);
    fs::create_dir(pair.near("other")).unwrap();
    fs::hard_link(pair.near("runs/a"), pair.near("other/a")).unwrap();
    let report = pair.copies(&["-a", "runs/", "other"]);
    assert_eq!((&report["counts"]["skipped"], &report["moved_bytes"]), (&2.into(), &20.into()), "{report}");
    // The other sources are copied.
    assert_others_copied(&pair, &["other/a", "runs/deep/b", "runs/deep"], &[&format!("b: {SAME} (runs/deep/b)")]);
    assert_eq!(fs::metadata(pair.near("runs/deep/a")).unwrap().len(), 3_000_000);
}

#[test]
fn delete_never_deletes_a_source() {
    use std::os::unix::fs::symlink;
    let pair = Pair::new();
    fs::create_dir_all(pair.near("runs/deep/er/deep")).unwrap();
    fs::create_dir_all(pair.near("other/deep")).unwrap();
    for name in ["runs/a", "runs/deep/b", "runs/deep/er/c", "other/d", "file"] {
        write(&pair.near(name), 10);
    }
    symlink("runs/deep", pair.near("way")).unwrap();
    symlink("runs", pair.near("top")).unwrap();
    symlink("runs/deep/er", pair.near("er")).unwrap();
    write(&pair.near("other/runs"), 10);
    let before = tree(&pair.home.path().join("near"));
    let below = "is below the destination, where the copy would delete it";
    let ways: [&[&str]; 12] = [
        &["runs/deep/", "runs"],
        &["way/", "runs"],
        &["runs/deep/", "top"],
        &["way/er/", "top/"],
        &["run*/deep/", "runs"],
        &["runs/d*/", "runs"],
        // The destination runs/deep contains the source itself.
        &["runs/deep/er/deep", "runs"],
        &["er/deep", "top"],
        // Another source would delete or replace all other entries there.
        &["other/", "runs/deep/er", "runs"],
        &["other/deep", "runs/deep/er", "runs"],
        &["other/runs", "runs/deep/", "."],
        &["--dry-run", "runs/deep/", "runs"],
    ];
    for way in ways {
        let errors = pair.refuses(&[&["--delete"], way].concat(), 1, below);
        assert!(errors.contains("\nhint: omit --delete"), "{errors}");
        assert!(tree(&pair.home.path().join("near")) == before, "{way:?}");
    }
    // Names that a pattern hides still exist at the source, so nothing is deleted.
    assert_others_copied(
        &pair,
        &["--delete", "run*", "runs/deep"],
        &["runs/deep: is the destination", "skipped --delete"],
    );
    assert!(pair.near("runs/deep/b").exists() && pair.near("runs/deep/er/c").exists());
    // Only the source's own copy is examined here, so the source stays, as without --delete.
    let report = pair.copies(&["--delete", "runs/deep/er", "."]);
    assert_eq!((&report["counts"]["files"], &report["counts"]["deleted"]), (&1.into(), &0.into()), "{report}");
    let report = pair.copies(&["runs/deep/", "runs"]);
    assert!(report["counts"]["files"].as_u64() > Some(1), "{report}");
    assert!(pair.near("runs/deep/b").exists() && pair.near("runs/b").exists());
}

/// The sender waits for the receiver's first message, and the receiver waits for the sender to start.
#[test]
fn local_copy_starts_without_waiting() {
    let pair = Pair::new();
    write(&pair.near("a"), 10);
    let seconds = |_| pair.copies(&["a", "b", "--force"])["seconds"].as_f64().unwrap();
    let least = (0..5).map(seconds).fold(f64::MAX, f64::min);
    assert!(least < 0.9, "{least}");
}

#[test]
fn missing_loopback_is_reported() {
    let pair = Pair::new();
    write(&pair.near("a"), 10);
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--net"]).arg(crate::support::lfn_path()).args(["copy", "a", "b"]);
    let output = command.current_dir(pair.near("")).output().unwrap();
    let errors = text(&output.stderr);
    if errors.starts_with("unshare: ") {
        return skip("missing_loopback_is_reported", &Missing::Feature("namespaces"));
    }
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.starts_with("lfn: this host cannot reach itself at 127.0.0.1:"), "{errors}");
    assert!(errors.ends_with("\nhint: enable the loopback interface: ip link set lo up\n"), "{errors}");
    assert!(!pair.near("b").exists());
}

/// Returns the child process of `parent`.
fn child_of(parent: u32) -> Option<u32> {
    let numbers = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_child = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let behind_name = stat.rsplit(')').next().unwrap_or_default();
        behind_name.split_whitespace().nth(1) == Some(&parent.to_string())
    };
    numbers.into_iter().find(is_child)
}

#[test]
fn killed_local_copy_resumes_and_leaves_no_process() {
    let pair = Pair::new();
    fs::File::create(pair.near("big")).unwrap().set_len(2 << 30).unwrap();
    let journal = pair.near(".b.lfn-journal");
    let mut child = pair.command(&["big", "b"]).spawn().unwrap();
    wait_for("a block", || fs::metadata(&journal).is_ok_and(|journal| journal.len() > 1000));
    let other = child_of(child.id()).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(eventually(|| !Path::new(&format!("/proc/{other}")).exists()));
    let report = pair.copies(&["big", "b"]);
    assert!(report["counts"]["resumed_bytes"].as_u64() > Some(0), "{report}");
    assert_eq!(fs::metadata(pair.near("b")).unwrap().len(), 2 << 30);
    // An interrupt ends both processes in an orderly way.
    fs::remove_file(pair.near("b")).unwrap();
    let child = pair.command(&["big", "b"]).spawn().unwrap();
    wait_for("a block", || fs::metadata(&journal).is_ok_and(|journal| journal.len() > 1000));
    let other = child_of(child.id()).unwrap();
    crate::support::server::kill("INT", child.id());
    let output = finish(child);
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    assert!(eventually(|| !Path::new(&format!("/proc/{other}")).exists()));
}
