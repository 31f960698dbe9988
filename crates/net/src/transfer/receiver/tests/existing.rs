//! Tests of changes to existing entries.

use rustix::fs::{FlockOperation, flock};

use super::*;

#[test]
fn attributes_and_deletions_count_as_progress() {
    let disk = |streams: &StreamSet| streams.progress().shares.disk;
    let temp = TempDir::new().unwrap();
    let mut copy = TestCopy::into(&temp.path().join("new"));
    let streams = copy.receiver.streams.clone();
    copy.list(vec![directory("."), directory("d")]);
    assert_eq!(disk(&streams), 0.0);
    copy.finish();
    assert!(disk(&streams) > 0.0);

    fs::create_dir(temp.path().join("old")).unwrap();
    fs::write(temp.path().join("old/a"), b"x").unwrap();
    let options = TransferOptions { delete: true, ..TransferOptions::default() };
    let mut copy = TestCopy::with_options(destination_in(temp.path(), OverwritePolicy::default()), options);
    let streams = copy.receiver.streams.clone();
    copy.list(vec![directory("."), directory("new")]);
    assert_eq!(copy.finish().tally.deleted, 3);
    assert!(disk(&streams) > 0.0 && names(temp.path()) == ["new"]);
}

#[test]
fn directory_replaces_a_file() {
    let force = OverwritePolicy { force: true, ..OverwritePolicy::default() };
    let temp = TempDir::new().unwrap();
    let path = |name: &str| temp.path().join(name);
    for name in ["a", "b", "c", "d"] {
        fs::write(path(name), name).unwrap();
    }
    // Leftovers of interrupted copies, and a partial file that another copy has locked.
    fs::write(path(".b.lfn-partial"), b"stale").unwrap();
    fs::create_dir(path(".c.lfn-replaced")).unwrap();
    let locked = fs::File::create(path(".d.lfn-partial")).unwrap();
    flock(&locked, FlockOperation::LockExclusive).unwrap();
    symlink("a", path("l")).unwrap();
    let mut copy = TestCopy::start(destination_in(temp.path(), force));
    copy.list(["a", "b", "c", "d", "l"].map(directory).into());
    let result = copy.finish();
    assert_eq!((result.tally.directories, failure(&result).name.to_string()), (4, "d".to_owned()));
    for name in ["a", "b", "c", "l"] {
        assert!(fs::symlink_metadata(path(name)).unwrap().is_dir(), "{name}");
    }
    assert_eq!(fs::read(path("d")).unwrap(), b"d");
    assert_eq!(names(temp.path()), [".d.lfn-partial", "a", "b", "c", "d", "l"]);
}
