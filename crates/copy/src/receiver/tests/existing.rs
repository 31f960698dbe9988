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

#[test]
fn symlinks_cannot_lead_out_of_the_root() {
    let (temp, outside) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let root = || BaseDir::root(temp.path()).unwrap();
    fs::create_dir(temp.path().join("in")).unwrap();
    symlink(outside.path(), temp.path().join("in/there")).unwrap();
    let small = data(1, 100);
    let large = data(2, 2_000);
    let force = OverwritePolicy { force: true, ..OverwritePolicy::default() };
    let mut copy = TestCopy::start(Destination::Path {
        base: root(),
        path: "in".into(),
        overwrite: force,
        single: false,
        preserve: LINKS,
        write_only: None,
    });
    let target = outside.path().to_str().unwrap();
    // One link existed before, one arrives with the copy, and one replaces a directory meanwhile.
    copy.list(vec![file("there/a", &small), link("new", target), file("new/a", &small), file("new/b", &large)]);
    copy.list(vec![directory("new/d"), directory("swapped"), directory("swapped/deep")]);
    copy.wait_for("settled", |message| match message {
        ReceiverMessage::Settled { files } => files.contains(6).then_some(()),
        _ => None,
    });
    fs::rename(temp.path().join("in/swapped"), temp.path().join("in/moved")).unwrap();
    symlink(outside.path(), temp.path().join("in/swapped")).unwrap();
    fs::create_dir(outside.path().join("deep")).unwrap();
    copy.list(vec![file("swapped/a", &small), file("swapped/deep/a", &small), file("fine", &small)]);
    let mut stream = copy.open_stream();
    for number in [0, 2, 7, 8, 9] {
        stream.write_all(&block(number, &small, 0, false)).unwrap();
    }
    stream.write_all(&block(3, &large, 0, false)).unwrap();
    let result = copy.finish();
    assert_eq!(names(outside.path()), ["deep"], "{:?}", result.failures);
    assert!(names(&outside.path().join("deep")).is_empty());
    assert_eq!(fs::read(temp.path().join("in/fine")).unwrap(), small);
    assert!(result.tally.failed >= 4, "{:?}", result.failures);
    for path in ["..", "../x", "in/there", "in/there/x", "/tmp"] {
        let destination = Destination::Path {
            base: root(),
            path: path.into(),
            overwrite: force,
            single: true,
            preserve: Preserve::default(),
            write_only: None,
        };
        let options = receiver_options(TransferOptions::default(), BLOCK);
        let receiver = Receiver::start(destination, options, StreamSet::default()).unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        let error = loop {
            if let Some(error) = receiver.streams.take_error() {
                break error;
            }
            assert!(Instant::now() < deadline, "{path}");
            thread::sleep(Duration::from_millis(1));
        };
        assert!(error.to_string().contains("leads out"), "{path}: {error}");
    }
}
