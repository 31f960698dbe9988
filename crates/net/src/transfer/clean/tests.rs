//! What is told to whom, and what stays, of pairs made by hand; a running copy's own are looked at in `lfn`'s tests.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs::{self, File};
use std::path::Path;
use std::time::SystemTime;

use lfn_core::transfer::blocks::Layout;
use lfn_core::transfer::digest::BlockHash;
use lfn_core::transfer::entry::Modified;
use lfn_core::transfer::journal::{Header, Record};
use lfn_core::transfer::leftover::State;
use lfn_core::transfer::manner::Verify;
use lfn_core::units::Bytes;

use super::*;

const DAY: Duration = Duration::from_secs(86_400);

fn journal(source: &[u8], length: u64, blocks: u64) -> Vec<u8> {
    let layout = Layout::new(Bytes(length), Bytes(1024)).unwrap();
    let header = Header { layout, modified: Modified::default(), source: source.into(), verify: Verify::default() };
    let (mut bytes, writer) = header.encode().unwrap();
    (0..blocks).for_each(|index| bytes.extend(writer.record(Record { index, hash: BlockHash([7; 32]) })));
    bytes
}

/// Writes a file that was written so long ago.
fn aged(path: &Path, bytes: &[u8], age: Duration) {
    fs::write(path, bytes).unwrap();
    File::open(path).unwrap().set_modified(SystemTime::now() - age).unwrap();
}

/// The two files of a copy of 5000 bytes, of which so many blocks are in.
fn left(directory: &Path, name: &str, blocks: u64, age: Duration) {
    fs::create_dir_all(directory).unwrap();
    aged(&directory.join(format!(".{name}.lfn-partial")), &[0; 5000], age);
    aged(&directory.join(format!(".{name}.lfn-journal")), &journal(name.as_bytes(), 5000, blocks), age);
}

fn look(base: &Base, place: &Path, older: Duration, remove: bool) -> Vec<(String, State, Option<String>)> {
    let mut all = Vec::new();
    let mut say = |seen: Option<Seen>| {
        if let Some(Seen::Left(left)) = seen {
            all.push((left.path.to_string(), left.state, left.why));
        }
        Ok(())
    };
    walk::walk(base, place, Rule { older, remove }, &mut say).unwrap();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

fn states(directory: &Path, older: Duration, remove: bool) -> Vec<(String, State)> {
    let root = Base::root(directory).unwrap();
    look(&root, Path::new(""), older, remove).into_iter().map(|(path, state, _)| (path, state)).collect()
}

fn is_there(path: &Path, name: &str) -> [bool; 2] {
    ["partial", "journal"].map(|end| path.join(format!(".{name}.lfn-{end}")).symlink_metadata().is_ok())
}

#[test]
fn only_what_is_old_enough_goes() {
    let home = tempfile::tempdir().unwrap();
    let deep = home.path().join("a/b/c");
    left(&deep, "old", 2, 2 * DAY);
    left(&deep, "new", 2, DAY / 2);
    let paths =
        |old: State, new: State| vec![("a/b/c/.new.lfn-partial".into(), new), ("a/b/c/.old.lfn-partial".into(), old)];
    assert_eq!(states(home.path(), DAY, false), paths(State::Stale, State::Fresh));
    assert_eq!(states(home.path(), Duration::ZERO, false), paths(State::Stale, State::Stale));
    assert_eq!([is_there(&deep, "old"), is_there(&deep, "new")], [[true; 2]; 2]);
    assert_eq!(states(home.path(), DAY, true), paths(State::Removed, State::Fresh));
    assert_eq!([is_there(&deep, "old"), is_there(&deep, "new")], [[false; 2], [true; 2]]);
    assert_eq!(states(home.path(), Duration::ZERO, true), [("a/b/c/.new.lfn-partial".into(), State::Removed)]);
    assert_eq!(fs::read_dir(&deep).unwrap().count(), 0);
}

/// A journal that goes on being written keeps its partial file, whatever the times of that say.
#[test]
fn the_younger_of_both_counts() {
    let home = tempfile::tempdir().unwrap();
    left(home.path(), "a", 1, 2 * DAY);
    aged(&home.path().join(".a.lfn-journal"), &journal(b"a", 5000, 2), DAY / 2);
    assert_eq!(states(home.path(), DAY, true), [(".a.lfn-partial".into(), State::Fresh)]);
}

#[test]
fn what_merely_has_such_a_name_stays() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    let old = 30 * DAY;
    aged(&at(".none.lfn-partial"), b"", old);
    aged(&at(".text.lfn-journal"), b"my diary\n", old);
    // Beside something that is not known to be a copy's.
    aged(&at(".empty.lfn-journal"), b"", old);
    aged(&at(".empty.lfn-partial"), b"x", old);
    left(home.path(), "length", 1, old);
    aged(&at(".length.lfn-partial"), &[1; 4999], old);
    // One letter of the description was changed: the check over it tells.
    left(home.path(), "meddled", 1, old);
    let meddled = String::from_utf8_lossy(&journal(b"meddled", 5000, 0)).replace("5000", "6000");
    aged(&at(".meddled.lfn-journal"), meddled.as_bytes(), old);
    // Torn in its first line, and of a later version.
    left(home.path(), "torn", 1, old);
    aged(&at(".torn.lfn-journal"), &journal(b"torn", 5000, 1)[..40], old);
    left(home.path(), "later", 1, old);
    aged(&at(".later.lfn-journal"), b"lfn-journal 2 {} 0\n", old);
    left(home.path(), "linked", 1, old);
    fs::hard_link(at(".linked.lfn-partial"), at("other name")).unwrap();
    aged(&at("elsewhere"), b"x", old);
    std::os::unix::fs::symlink("elsewhere", at(".link.lfn-partial")).unwrap();
    fs::create_dir_all(at(".directory.lfn-partial/x")).unwrap();
    let before = fs::read_dir(home.path()).unwrap().count();
    let seen = look(&Base::root(home.path()).unwrap(), Path::new(""), Duration::ZERO, true);
    assert!(seen.iter().all(|(_, state, why)| *state == State::Foreign && why.is_some()), "{seen:?}");
    assert_eq!(seen.len(), 9, "{seen:?}");
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), before);
}

/// A crash tears the records behind the first line: that line still tells whose it is.
#[test]
fn torn_records_and_missing_halves_are_still_a_copys_own() {
    let home = tempfile::tempdir().unwrap();
    left(home.path(), "torn", 0, 2 * DAY);
    let mut torn = journal(b"torn", 5000, 3);
    torn.truncate(torn.len() - 10);
    aged(&home.path().join(".torn.lfn-journal"), &torn, 2 * DAY);
    aged(&home.path().join(".alone.lfn-journal"), &journal(b"alone", 5000, 1), 2 * DAY);
    left(home.path(), "begun", 0, 2 * DAY);
    aged(&home.path().join(".begun.lfn-partial"), b"", 2 * DAY);
    // Cut before its first word.
    aged(&home.path().join(".void.lfn-journal"), b"", 2 * DAY);
    let all = [".alone.lfn-journal", ".begun.lfn-partial", ".torn.lfn-partial", ".void.lfn-journal"];
    assert_eq!(states(home.path(), DAY, true), all.map(|name| (name.to_owned(), State::Removed)));
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
}

#[test]
fn what_is_locked_stays_however_old() {
    let home = tempfile::tempdir().unwrap();
    left(home.path(), "a", 1, 9 * DAY);
    let held = File::open(home.path().join(".a.lfn-partial")).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    for remove in [false, true] {
        assert_eq!(states(home.path(), Duration::ZERO, remove), [(".a.lfn-partial".into(), State::Busy)]);
    }
    assert_eq!(is_there(home.path(), "a"), [true; 2]);
    drop(held);
    assert_eq!(states(home.path(), Duration::ZERO, true), [(".a.lfn-partial".into(), State::Removed)]);
}

#[test]
fn no_link_leads_below_a_place_or_out_of_the_root() {
    let home = tempfile::tempdir().unwrap();
    let (root, outside) = (home.path().join("root"), home.path().join("outside"));
    fs::create_dir(&root).unwrap();
    left(&outside, "a", 1, 9 * DAY);
    std::os::unix::fs::symlink("../outside", root.join("out")).unwrap();
    std::os::unix::fs::symlink(".", root.join("round")).unwrap();
    assert_eq!(states(&root, Duration::ZERO, true), []);
    let base = Base::root(&root).unwrap();
    for place in ["out", "../outside", outside.to_str().unwrap(), "../outside/a"] {
        let rule = Rule { older: Duration::ZERO, remove: true };
        let walked = walk::walk(&base, Path::new(place), rule, &mut |seen| panic!("{seen:?}"));
        assert!(walked.is_err(), "{place}");
    }
    assert_eq!(is_there(&outside, "a"), [true; 2]);
    // By the name of the file itself.
    left(&root, "b", 1, 9 * DAY);
    let seen = look(&base, Path::new("b"), Duration::ZERO, false);
    assert_eq!(seen, [(".b.lfn-partial".to_owned(), State::Stale, None)]);
}

/// What a copy leaves that is killed while a directory takes the place of a file.
#[test]
fn halves_of_a_replacement_are_told_and_only_what_holds_nothing_goes() {
    let home = tempfile::tempdir().unwrap();
    fs::create_dir(home.path().join(".empty.lfn-replaced")).unwrap();
    // A directory of somebody's, in which one may be.
    fs::create_dir_all(home.path().join(".full.lfn-replaced/.deep.lfn-replaced")).unwrap();
    fs::write(home.path().join(".full.lfn-replaced/x"), b"").unwrap();
    aged(&home.path().join(".file.lfn-replaced"), b"what was there", 9 * DAY);
    let file = (".file.lfn-replaced".to_owned(), State::Foreign);
    let all = |first| {
        let deep = ".full.lfn-replaced/.deep.lfn-replaced";
        [(".empty.lfn-replaced".to_owned(), first), file.clone(), (deep.to_owned(), first)]
    };
    assert_eq!(states(home.path(), DAY, true), all(State::Fresh));
    assert_eq!(states(home.path(), Duration::ZERO, false), all(State::Stale));
    assert_eq!(states(home.path(), Duration::ZERO, true), all(State::Removed));
    assert_eq!(states(home.path(), Duration::ZERO, true), [file]);
    assert_eq!(fs::read(home.path().join(".file.lfn-replaced")).unwrap(), b"what was there");
    // By the name that it had.
    let seen = look(&Base::root(home.path()).unwrap(), Path::new("file"), Duration::ZERO, false);
    assert!(matches!(&seen[..], [(_, State::Foreign, Some(_))]), "{seen:?}");
}
