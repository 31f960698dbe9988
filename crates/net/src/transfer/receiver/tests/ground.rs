//! What is done to what stands at the destination, and that it is seen as work.

use rustix::fs::{FlockOperation, flock};

use super::*;

#[test]
fn directories_that_get_their_attributes_and_what_is_removed_are_work() {
    let disk = |receiving: &Receiver| receiving.flow.progress().shares.disk;
    let place = TempDir::new().unwrap();
    let mut copy = Copy::into(&place.path().join("new"));
    let receiving = copy.receiving.clone();
    copy.list(vec![directory("."), directory("d")]);
    assert_eq!(disk(&receiving), 0.0);
    copy.end();
    assert!(disk(&receiving) > 0.0);

    let copy = Copy::into(place.path());
    fs::create_dir(place.path().join("old")).unwrap();
    fs::write(place.path().join("old/a"), b"x").unwrap();
    let tree = Tree::open(&Base::Here, place.path(), false, false).unwrap();
    let name = Name::new("old").unwrap();
    assert!(copy.receiving.make_way(&tree.place(&name).unwrap(), &name, true).unwrap());
    assert!(disk(&copy.receiving) > 0.0 && !place.path().join("old").exists());
    copy.receiving.close();
}

#[test]
fn a_file_gives_way_to_a_directory_that_is_made() {
    let force = Allowed { force: true, ..Allowed::default() };
    let place = TempDir::new().unwrap();
    let path = |name: &str| place.path().join(name);
    for name in ["a", "b", "c", "d"] {
        fs::write(path(name), name).unwrap();
    }
    // Left by copies that were ended midway, and held by one that is under way.
    fs::write(path(".b.lfn-partial"), b"stale").unwrap();
    fs::create_dir(path(".c.lfn-replaced")).unwrap();
    let held = fs::File::create(path(".d.lfn-partial")).unwrap();
    flock(&held, FlockOperation::LockExclusive).unwrap();
    symlink("a", path("l")).unwrap();
    let mut copy = Copy::start(aim(place.path(), force));
    copy.list(["a", "b", "c", "d", "l"].map(directory).into());
    let ended = copy.end();
    assert_eq!((ended.tally.directories, failure(&ended).name.to_string()), (4, "d".to_owned()));
    for name in ["a", "b", "c", "l"] {
        assert!(fs::symlink_metadata(path(name)).unwrap().is_dir(), "{name}");
    }
    assert_eq!(fs::read(path("d")).unwrap(), b"d");
    assert_eq!(names(place.path()), [".d.lfn-partial", "a", "b", "c", "d", "l"]);
}
