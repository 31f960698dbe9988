//! Tests with pairs of files made by hand. The tests of `lfn` cover pairs of running copies.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime};

use lfn_base::units::Bytes;
use lfn_session::wire::copy::blocks::{Layout, Subtree};
use lfn_session::wire::copy::digest::BlockHash;
use lfn_session::wire::copy::entry::Modified;
use lfn_session::wire::copy::options::Verify;

use super::*;
use crate::proto::journal::{JournalHeader, JournalRecord};
use crate::proto::leftover::LeftoverState;

const DAY: Duration = Duration::from_secs(86_400);

fn journal(source: &[u8], length: u64, blocks: u64) -> Vec<u8> {
    let layout = Layout::new(Bytes(length), Bytes(1024)).unwrap();
    let header =
        JournalHeader { layout, modified: Modified::default(), source: source.into(), verify: Verify::default() };
    let (mut bytes, writer) = header.encode().unwrap();
    (0..blocks).for_each(|index| {
        bytes.extend(writer.record(JournalRecord { subtree: Subtree::of_block(index), hash: BlockHash([7; 32]) }))
    });
    bytes
}

/// Writes a file with this age.
fn create_aged_file(path: &Path, bytes: &[u8], age: Duration) {
    fs::write(path, bytes).unwrap();
    File::open(path).unwrap().set_modified(SystemTime::now() - age).unwrap();
}

/// Creates both files of a copy of 5,000 bytes with this number of blocks.
fn create_leftover(directory: &Path, name: &str, blocks: u64, age: Duration) {
    fs::create_dir_all(directory).unwrap();
    create_aged_file(&directory.join(format!(".{name}.lfn-partial")), &[0; 5000], age);
    create_aged_file(&directory.join(format!(".{name}.lfn-journal")), &journal(name.as_bytes(), 5000, blocks), age);
}

/// Cleans `place` below `home`, and returns the found files with their paths relative to `home`.
fn clean(home: &Path, place: &str, rule: CleanRule) -> Vec<(String, LeftoverState, Option<String>)> {
    let mut all = Vec::new();
    let mut add = |event| {
        let CleanEvent::Leftover(left) = event else { panic!("{event:?}") };
        let path = left.path.to_string().strip_prefix(home.to_str().unwrap()).unwrap()[1..].to_owned();
        all.push((path, left.state, left.reason));
    };
    clean_local(&[home.join(place)], rule, &AtomicBool::new(false), &mut add).unwrap();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

fn states(directory: &Path, min_age: Duration, remove: bool) -> Vec<(String, LeftoverState)> {
    clean(directory, "", CleanRule { min_age, remove }).into_iter().map(|(path, state, _)| (path, state)).collect()
}

fn exist(path: &Path, name: &str) -> [bool; 2] {
    ["partial", "journal"].map(|end| path.join(format!(".{name}.lfn-{end}")).symlink_metadata().is_ok())
}

#[test]
fn only_old_leftovers_are_removed() {
    let home = tempfile::tempdir().unwrap();
    let deep = home.path().join("a/b/c");
    create_leftover(&deep, "old", 2, 2 * DAY);
    create_leftover(&deep, "new", 2, DAY / 2);
    let paths = |old: LeftoverState, new: LeftoverState| {
        vec![("a/b/c/.new.lfn-partial".into(), new), ("a/b/c/.old.lfn-partial".into(), old)]
    };
    assert_eq!(states(home.path(), DAY, false), paths(LeftoverState::Stale, LeftoverState::Recent));
    assert_eq!(states(home.path(), Duration::ZERO, false), paths(LeftoverState::Stale, LeftoverState::Stale));
    assert_eq!([exist(&deep, "old"), exist(&deep, "new")], [[true; 2]; 2]);
    assert_eq!(states(home.path(), DAY, true), paths(LeftoverState::Removed, LeftoverState::Recent));
    assert_eq!([exist(&deep, "old"), exist(&deep, "new")], [[false; 2], [true; 2]]);
    assert_eq!(states(home.path(), Duration::ZERO, true), [("a/b/c/.new.lfn-partial".into(), LeftoverState::Removed)]);
    assert_eq!(fs::read_dir(&deep).unwrap().count(), 0);
}

/// A journal that is still being written protects its partial file, whatever the age of that file.
#[test]
fn newer_of_both_files_counts() {
    let home = tempfile::tempdir().unwrap();
    create_leftover(home.path(), "a", 1, 2 * DAY);
    create_aged_file(&home.path().join(".a.lfn-journal"), &journal(b"a", 5000, 2), DAY / 2);
    assert_eq!(states(home.path(), DAY, true), [(".a.lfn-partial".into(), LeftoverState::Recent)]);
}

#[test]
fn unrecognised_files_stay() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    let old = 30 * DAY;
    create_aged_file(&at(".none.lfn-partial"), b"", old);
    create_aged_file(&at(".text.lfn-journal"), b"my diary\n", old);
    // Next to a file that is not recognised as a copy's.
    create_aged_file(&at(".empty.lfn-journal"), b"", old);
    create_aged_file(&at(".empty.lfn-partial"), b"x", old);
    create_leftover(home.path(), "length", 1, old);
    create_aged_file(&at(".length.lfn-partial"), &[1; 4999], old);
    // One character of the header was changed, and its check value does not match.
    create_leftover(home.path(), "meddled", 1, old);
    let changed = String::from_utf8_lossy(&journal(b"meddled", 5000, 0)).replace("5000", "6000");
    create_aged_file(&at(".meddled.lfn-journal"), changed.as_bytes(), old);
    // An incomplete header, and a header of a later version.
    create_leftover(home.path(), "torn", 1, old);
    create_aged_file(&at(".torn.lfn-journal"), &journal(b"torn", 5000, 1)[..40], old);
    create_leftover(home.path(), "later", 1, old);
    create_aged_file(&at(".later.lfn-journal"), b"lfn-journal 2 {} 0\n", old);
    create_leftover(home.path(), "linked", 1, old);
    fs::hard_link(at(".linked.lfn-partial"), at("other name")).unwrap();
    create_aged_file(&at("elsewhere"), b"x", old);
    std::os::unix::fs::symlink("elsewhere", at(".link.lfn-partial")).unwrap();
    fs::create_dir_all(at(".directory.lfn-partial/x")).unwrap();
    let before = fs::read_dir(home.path()).unwrap().count();
    let found = clean(home.path(), "", CleanRule { min_age: Duration::ZERO, remove: true });
    assert!(found.iter().all(|(_, state, why)| *state == LeftoverState::Unrecognised && why.is_some()), "{found:?}");
    assert_eq!(found.len(), 9, "{found:?}");
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), before);
}

/// A crash may damage the records. The header still identifies the owner.
#[test]
fn damaged_records_and_single_files_are_recognised() {
    let home = tempfile::tempdir().unwrap();
    create_leftover(home.path(), "torn", 0, 2 * DAY);
    let mut torn = journal(b"torn", 5000, 3);
    torn.truncate(torn.len() - 10);
    create_aged_file(&home.path().join(".torn.lfn-journal"), &torn, 2 * DAY);
    create_aged_file(&home.path().join(".alone.lfn-journal"), &journal(b"alone", 5000, 1), 2 * DAY);
    create_leftover(home.path(), "begun", 0, 2 * DAY);
    create_aged_file(&home.path().join(".begun.lfn-partial"), b"", 2 * DAY);
    // Interrupted before the first write.
    create_aged_file(&home.path().join(".void.lfn-journal"), b"", 2 * DAY);
    let all = [".alone.lfn-journal", ".begun.lfn-partial", ".torn.lfn-partial", ".void.lfn-journal"];
    assert_eq!(states(home.path(), DAY, true), all.map(|name| (name.to_owned(), LeftoverState::Removed)));
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
}

#[test]
fn locked_files_stay() {
    let home = tempfile::tempdir().unwrap();
    create_leftover(home.path(), "a", 1, 9 * DAY);
    let locked = File::open(home.path().join(".a.lfn-partial")).unwrap();
    rustix::fs::flock(&locked, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    for remove in [false, true] {
        assert_eq!(states(home.path(), Duration::ZERO, remove), [(".a.lfn-partial".into(), LeftoverState::InUse)]);
    }
    assert_eq!(exist(home.path(), "a"), [true; 2]);
    drop(locked);
    assert_eq!(states(home.path(), Duration::ZERO, true), [(".a.lfn-partial".into(), LeftoverState::Removed)]);
}

#[test]
fn symlinks_are_not_followed() {
    let home = tempfile::tempdir().unwrap();
    let (root, outside) = (home.path().join("root"), home.path().join("outside"));
    fs::create_dir(&root).unwrap();
    create_leftover(&outside, "a", 1, 9 * DAY);
    std::os::unix::fs::symlink("../outside", root.join("out")).unwrap();
    std::os::unix::fs::symlink(".", root.join("round")).unwrap();
    assert_eq!(states(&root, Duration::ZERO, true), []);
    assert_eq!(exist(&outside, "a"), [true; 2]);
    // By the name of the file itself.
    create_leftover(&root, "b", 1, 9 * DAY);
    let found = clean(&root, "b", CleanRule { min_age: Duration::ZERO, remove: false });
    assert_eq!(found, [(".b.lfn-partial".to_owned(), LeftoverState::Stale, None)]);
}

/// A copy was killed while it replaced a file by a directory.
#[test]
fn only_empty_replacement_directories_are_removed() {
    let home = tempfile::tempdir().unwrap();
    fs::create_dir(home.path().join(".empty.lfn-replaced")).unwrap();
    // A user's directory, which may contain an empty one.
    fs::create_dir_all(home.path().join(".full.lfn-replaced/.deep.lfn-replaced")).unwrap();
    fs::write(home.path().join(".full.lfn-replaced/x"), b"").unwrap();
    create_aged_file(&home.path().join(".file.lfn-replaced"), b"what was there", 9 * DAY);
    let file = (".file.lfn-replaced".to_owned(), LeftoverState::Unrecognised);
    let all = |first| {
        let deep = ".full.lfn-replaced/.deep.lfn-replaced";
        [(".empty.lfn-replaced".to_owned(), first), file.clone(), (deep.to_owned(), first)]
    };
    assert_eq!(states(home.path(), DAY, true), all(LeftoverState::Recent));
    assert_eq!(states(home.path(), Duration::ZERO, false), all(LeftoverState::Stale));
    assert_eq!(states(home.path(), Duration::ZERO, true), all(LeftoverState::Removed));
    assert_eq!(states(home.path(), Duration::ZERO, true), [file]);
    assert_eq!(fs::read(home.path().join(".file.lfn-replaced")).unwrap(), b"what was there");
    // By the name that the file had.
    let found = clean(home.path(), "file", CleanRule { min_age: Duration::ZERO, remove: false });
    assert!(matches!(&found[..], [(_, LeftoverState::Unrecognised, Some(_))]), "{found:?}");
}
