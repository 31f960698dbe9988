//! Trees: many files at once, existing entries, failed entries, and a second run that resumes.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use super::{Pair, is_root, text, write};

/// Creates files of all lengths, odd names, empty and deep directories, and a link.
fn create_files(root: &Path) {
    for directory in ["a", "a/b", "a/b/c", "empty", "many"] {
        fs::create_dir_all(root.join(directory)).unwrap();
    }
    for (name, length) in [("zero", 0), ("one", 1), ("a/small", 1000), ("a/b/c/deep", 70_000), ("a/large", 5_000_001)] {
        write(&root.join(name), length);
    }
    for number in 0..300 {
        write(&root.join(format!("many/{number}")), number * 37);
    }
    write(&root.join(OsStr::from_bytes(b"odd \xff\n'\"\\ name")), 10);
    let old = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    fs::File::options().write(true).open(root.join("a/small")).unwrap().set_modified(old).unwrap();
    fs::set_permissions(root.join("one"), Permissions::from_mode(0o640)).unwrap();
    fs::set_permissions(root.join("a/large"), Permissions::from_mode(0o555)).unwrap();
}

/// Asserts with `diff` that two trees are equal.
#[track_caller]
fn same(one: &Path, other: &Path) {
    let output = Command::new("diff").args(["-r", "--no-dereference"]).args([one, other]).output().unwrap();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

#[test]
fn tree_is_copied_both_ways() {
    let pair = Pair::new();
    create_files(&pair.near("tree"));
    let up = pair.copies(&["tree", "far:", "--block-size", "64KiB"]);
    same(&pair.near("tree"), &pair.far("tree"));
    assert_eq!((&up["counts"]["files"], &up["counts"]["failed"]), (&306.into(), &0.into()), "{up}");
    let down = pair.copies(&["far:tree/", "back", "--block-size", "64KiB"]);
    same(&pair.near("tree"), &pair.near("back"));
    assert_eq!(down["bytes"], up["bytes"]);
    for name in ["one", "a/small", "a/large", "a/b/c/deep"] {
        let facts = |path: &Path| {
            let meta = fs::metadata(path).unwrap();
            (meta.mode() & 0o777, meta.mtime(), meta.mtime_nsec())
        };
        assert_eq!(facts(&pair.near("tree").join(name)), facts(&pair.near("back").join(name)), "{name}");
    }
    // Up-to-date files are not sent again.
    let again = pair.copies(&["far:tree/", "back"]);
    assert_eq!((&again["counts"]["files"], &again["counts"]["skipped"]), (&0.into(), &312.into()), "{again}");
    pair.assert_no_partial_files();
}

#[test]
fn trailing_slash_works_like_rsync() {
    let pair = Pair::new();
    fs::create_dir(pair.near("d")).unwrap();
    write(&pair.near("d/f"), 100);
    write(&pair.near("e"), 100);
    for (args, at) in [(["d", "far:one"], "one/d/f"), (["d/", "far:two"], "two/f"), (["d/.", "far:three"], "three/f")] {
        pair.copies(&args);
        assert!(pair.far(at).is_file(), "{args:?}");
    }
    pair.copies(&["d", "e", "far:four"]);
    assert!(pair.far("four/d/f").is_file() && pair.far("four/e").is_file());
}

#[test]
fn failed_entries_do_not_stop_the_copy() {
    let pair = Pair::new();
    create_files(&pair.near("tree"));
    assert!(Command::new("mkfifo").arg(pair.near("tree/pipe")).status().unwrap().success());
    // An empty directory would be replaced, as with rsync.
    fs::create_dir_all(pair.far("tree/one/in")).unwrap();
    fs::create_dir_all(pair.far("tree/a")).unwrap();
    fs::write(pair.far("tree/a/small"), "other").unwrap();
    if !is_root() {
        fs::set_permissions(pair.near("tree/zero"), Permissions::from_mode(0o000)).unwrap();
    }
    let output = pair.copy(&["tree", "far:"]);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    for what in ["1 device, FIFO or socket skipped", "tree/one: ", "tree/a/small: "] {
        assert_eq!(errors.matches(what).count(), 1, "{what}: {errors}");
    }
    assert_eq!(errors.lines().count(), if is_root() { 3 } else { 4 }, "{errors}");
    assert_eq!(fs::read(pair.far("tree/a/small")).unwrap(), b"other");
    assert_eq!(fs::read(pair.far("tree/a/large")).unwrap(), fs::read(pair.near("tree/a/large")).unwrap());
}

#[test]
fn links_are_stored_and_never_followed() {
    let pair = Pair::new();
    fs::create_dir(pair.near("d")).unwrap();
    symlink("/etc", pair.near("d/link")).unwrap();
    write(&pair.near("d/f"), 10);
    // A link in the place of a directory: entries below it must not be written to its target.
    fs::create_dir(pair.home.path().join("outside")).unwrap();
    fs::create_dir(pair.far("x")).unwrap();
    symlink(pair.home.path().join("outside"), pair.far("x/d")).unwrap();
    let output = pair.copy(&["d", "far:x"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert_eq!(fs::read_dir(pair.home.path().join("outside")).unwrap().count(), 0);
}
