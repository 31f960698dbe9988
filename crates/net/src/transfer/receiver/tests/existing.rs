//! Tests of changes to existing entries.

use rustix::fs::{FlockOperation, flock};

use super::*;

#[test]
fn attributes_and_deletions_count_as_progress() {
    let disk = |receiver: &Receiver| receiver.streams.progress().shares.disk;
    let temp = TempDir::new().unwrap();
    let mut copy = TestCopy::into(&temp.path().join("new"));
    let receiver = copy.receiver.clone();
    copy.list(vec![directory("."), directory("d")]);
    assert_eq!(disk(&receiver), 0.0);
    copy.finish();
    assert!(disk(&receiver) > 0.0);

    let copy = TestCopy::into(temp.path());
    fs::create_dir(temp.path().join("old")).unwrap();
    fs::write(temp.path().join("old/a"), b"x").unwrap();
    let tree = DestinationTree::open(&BaseDir::Local, temp.path(), false, false).unwrap();
    let name = Name::new("old").unwrap();
    assert!(copy.receiver.clear_directory(&tree.locate(&name).unwrap(), &name, true).unwrap());
    assert!(disk(&copy.receiver) > 0.0 && !temp.path().join("old").exists());
    copy.receiver.close();
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
