//! What comes when something else has happened meanwhile.

use super::*;

/// A hard link is made of the file that came, not of whatever stands under its name when the link is listed.
#[test]
fn other_names_are_of_the_file_that_came() {
    let place = TempDir::new().unwrap();
    let mut copy = Copy::into(place.path());
    let mut stream = copy.stream();
    let first = Entry { linked: true, ..file("a", b"one") };
    let large = data(3, 3_000);
    let second = Entry { linked: true, ..file("b", &large) };
    copy.list(vec![directory("."), first, second]);
    stream.write_all(&block(1, b"one", 0, false)).unwrap();
    for index in 0..3 {
        stream.write_all(&block(2, &large, index, false)).unwrap();
    }
    copy.sent(2, &large);
    for name in ["a", "b"] {
        copy.until("settled", |_| place.path().join(name).exists().then_some(()));
    }
    copy.list(vec![entry("a2", Kind::HardLink { to: 1 }), entry("b2", Kind::HardLink { to: 2 })]);
    for name in ["a", "b"] {
        copy.until("the other name", |_| place.path().join(format!("{name}2")).exists().then_some(()));
        fs::write(place.path().join("new"), "another").unwrap();
        fs::rename(place.path().join("new"), place.path().join(name)).unwrap();
    }
    copy.list(vec![entry("a3", Kind::HardLink { to: 1 }), entry("b3", Kind::HardLink { to: 2 })]);
    let ended = copy.end();
    assert_eq!((ended.tally.files, ended.tally.links, ended.tally.failed), (2, 2, 2), "{:?}", ended.failures);
    assert!(ended.failures.iter().all(|failure| failure.what.contains("something else stands there")));
    assert_eq!(names(place.path()), ["a", "a2", "b", "b2"]);
    assert_eq!(fs::read(place.path().join("a2")).unwrap(), b"one");
    assert_eq!(fs::read(place.path().join("b2")).unwrap(), large);
}

/// Whoever drains what is told would wait for itself for ever.
#[test]
fn the_conversation_does_not_wait_until_it_has_told() {
    let manner = Manner { digests: true, ..Manner::default() };
    let mut copy = Copy::in_manner(Aim::Null, manner);
    let mut stream = copy.stream();
    copy.until("ready", |word| matches!(word, FromReceiver::Ready { .. }).then_some(()));
    let large = data(3, 3_000);
    copy.list(vec![file("large", &large)]);
    copy.list((0..5_000).map(|n| file(&n.to_string(), b"x")).collect());
    let blocks: Vec<_> = (0..3).flat_map(|index| block(0, &large, index, false)).collect();
    stream.write_all(&blocks).unwrap();
    let small: Vec<_> = (1..=5_000).flat_map(|file| block(file, b"x", 0, false)).collect();
    let writer = thread::spawn(move || stream.write_all(&small).map(|()| stream));
    let started = Instant::now();
    // Nobody hears what is told meanwhile, until no more fits.
    while copy.receiving.table.tally().files < 4_096 {
        assert!(started.elapsed() < Duration::from_secs(30), "{:?}", copy.receiving.table.tally());
        thread::sleep(Duration::from_millis(1));
    }
    let (receiving, over) = (copy.receiving.clone(), Arc::new(AtomicBool::new(false)));
    let ended = over.clone();
    let watch = thread::spawn(move || {
        while !ended.load(Ordering::SeqCst) && started.elapsed() < Duration::from_secs(60) {
            thread::sleep(Duration::from_millis(10));
        }
        if !ended.load(Ordering::SeqCst) {
            receiving.flow.cut();
        }
    });
    copy.sent(0, &large);
    over.store(true, Ordering::SeqCst);
    watch.join().unwrap();
    let ended = copy.end();
    assert_eq!((ended.tally.files, ended.tally.failed), (5_001, 0));
    drop(writer.join().unwrap());
}

/// While what the first source brings is under way, what it replaces still stands there.
#[test]
fn of_two_sources_of_one_name_the_first_stays() {
    let force = Allowed { force: true, ..Allowed::default() };
    for dry_run in [false, true] {
        let place = TempDir::new().unwrap();
        fs::write(place.path().join("x"), "old").unwrap();
        let manner = Manner { several: true, dry_run, ..Manner::default() };
        let mut copy = Copy::in_manner(aim(place.path(), force), manner);
        let mut stream = copy.stream();
        let large = data(3, 3_000);
        // The third is the first, named once more.
        copy.list(vec![file("x", &large), file("x", b"another"), file("x", &large), file("y", b"y")]);
        if !dry_run {
            for index in 0..3 {
                stream.write_all(&block(0, &large, index, false)).unwrap();
            }
            stream.write_all(&block(3, b"y", 0, false)).unwrap();
            copy.sent(0, &large);
        }
        let ended = copy.end();
        assert_eq!((ended.tally.failed, ended.tally.skipped), (1, 1), "{:?}", ended.tally);
        assert!(failure(&ended).what.contains("another source"), "{:?}", ended.failures);
        let there = fs::read(place.path().join("x")).unwrap();
        assert_eq!(there, if dry_run { b"old".to_vec() } else { large });
    }
}

/// A source that holds what a cut copy left in it.
#[test]
fn no_entry_takes_the_name_of_a_partial_file() {
    let place = TempDir::new().unwrap();
    fs::write(place.path().join("old"), "old").unwrap();
    let mut copy = Copy::start(aim(place.path(), Allowed { force: true, ..Allowed::default() }));
    let mut stream = copy.stream();
    let large = data(3, 3_000);
    copy.list(vec![file(".x.lfn-partial", b"half"), file("x", &large), directory(".y.LFN-JOURNAL")]);
    stream.write_all(&block(0, b"half", 0, false)).unwrap();
    for index in 0..3 {
        stream.write_all(&block(1, &large, index, false)).unwrap();
    }
    copy.sent(1, &large);
    let ended = copy.end();
    assert_eq!((ended.tally.files, ended.tally.failed), (1, 2), "{:?}", ended.tally);
    assert!(ended.failures.iter().all(|failure| failure.what.contains("kept for incomplete files")));
    assert_eq!(
        (names(place.path()), fs::read(place.path().join("x")).unwrap()),
        (vec!["old".into(), "x".into()], large)
    );
}

/// A copy of one file, `x`, of whose three blocks the first has come.
fn begun(place: &Path) -> (Copy, TcpStream, Vec<u8>) {
    let mut copy = Copy::into(place);
    let mut stream = copy.stream();
    let large = data(3, 3_000);
    copy.list(vec![file("x", &large)]);
    stream.write_all(&block(0, &large, 0, false)).unwrap();
    while !place.join(".x.lfn-journal").exists() {
        thread::sleep(Duration::from_millis(1));
    }
    (copy, stream, large)
}

/// Whatever took the name of the partial file meanwhile is neither published nor removed.
#[test]
fn only_the_file_that_came_is_named() {
    let place = TempDir::new().unwrap();
    let (copy, mut stream, large) = begun(place.path());
    let partial = place.path().join(".x.lfn-partial");
    fs::write(place.path().join("new"), "another").unwrap();
    fs::rename(place.path().join("new"), &partial).unwrap();
    for index in 1..3 {
        stream.write_all(&block(0, &large, index, false)).unwrap();
    }
    copy.sent(0, &large);
    let ended = copy.end();
    assert!(failure(&ended).what.contains("in the place of its partial file"), "{:?}", ended.failures);
    assert!(!place.path().join("x").exists());
    assert_eq!(fs::read(partial).unwrap(), b"another");
}

/// What a cut copy of a file left is in the way of no link.
#[test]
fn a_link_replaces_a_file_that_was_half_there() {
    let place = TempDir::new().unwrap();
    for name in ["x", ".x.lfn-partial", ".x.lfn-journal"] {
        fs::write(place.path().join(name), "old").unwrap();
    }
    let mut copy = Copy::start(aim(place.path(), Allowed { force: true, ..Allowed::default() }));
    copy.list(vec![link("x", "target")]);
    assert_eq!(copy.end().tally.links, 1);
    assert_eq!(
        (names(place.path()), fs::read_link(place.path().join("x")).unwrap()),
        (vec!["x".into()], "target".into())
    );
}

/// The copy that wrote it is over, and its disk slow: that is no other copy under way.
#[test]
fn a_partial_file_that_is_only_put_on_disk_is_waited_for() {
    let place = TempDir::new().unwrap();
    let held = fs::File::create(place.path().join(".x.lfn-partial")).unwrap();
    held.lock().unwrap();
    fs::write(place.path().join(".x.lfn-journal"), "").unwrap();
    let mut copy = Copy::into(place.path());
    let large = data(3, 3_000);
    copy.list(vec![file("x", &large)]);
    thread::sleep(arrive::OTHERS_WAIT + Duration::from_millis(500));
    drop(held);
    let mut stream = copy.stream();
    for index in 0..3 {
        stream.write_all(&block(0, &large, index, false)).unwrap();
    }
    copy.sent(0, &large);
    let ended = copy.end();
    assert_eq!((ended.tally.files, ended.failures), (1, Vec::new()));
}

/// What a file has left when its sender gives it up is put on disk, for as long as that takes: the conversation goes on.
#[test]
fn nobody_who_hears_that_files_failed_waits_for_a_disk() {
    let place = TempDir::new().unwrap();
    let (mut copy, _stream, _) = begun(place.path());
    let receiving = copy.receiving.clone();
    let closing = lock(&receiving.graves.closing);
    let (name, end) = (Name::new("x").unwrap(), CarriedEnd::Sender);
    let gone = Failure { file: Some(0), name, what: "changed".into(), full: false, end };
    copy.receiving.heard(FromSender::Failed(gone)).unwrap();
    copy.listed();
    copy.until("settled", |word| matches!(word, FromReceiver::Settled { .. }).then_some(()));
    // And nobody hears that it is over before the next copy may have what is left.
    thread::sleep(Duration::from_millis(100));
    assert!(copy.receiving.ended().is_none());
    drop(closing);
    assert_eq!(copy.ended().tally.failed, 1);
}

#[test]
fn a_hole_is_as_good_as_its_zeros_where_nothing_is_kept() {
    let mut copy = Copy::start(Aim::Null);
    let zeros = vec![0; 1500];
    copy.list(vec![file("holes", &zeros)]);
    let mut stream = copy.stream();
    let layout = Layout::new(Bytes(1500), BLOCK).unwrap();
    for index in 0..2 {
        let block = layout.block(index).unwrap();
        let verify = Verify::Blake3;
        let hash = verify.hash(&layout, block, &zeros[..block.length as usize]);
        let header = BlockHeader { file: 0, offset: block.offset, length: block.length, hash, hole: true, verify };
        stream.write_all(&header.encode()).unwrap();
    }
    copy.sent(0, &zeros);
    assert_eq!(copy.end().tally.files, 1);
}

/// Its sender has it wait until the receiver has told whether it differs.
#[test]
fn a_file_that_is_gone_when_it_was_compared_is_sent_all_the_same() {
    let place = TempDir::new().unwrap();
    let bytes = data(1, 600);
    fs::write(place.path().join("a"), data(2, 600)).unwrap();
    let mut copy = Copy::start(aim(place.path(), Allowed { checksum: true, ..Allowed::default() }));
    copy.list(vec![file("a", &bytes)]);
    copy.until("the question", |word| matches!(word, FromReceiver::Digests { .. }).then_some(()));
    fs::remove_file(place.path().join("a")).unwrap();
    let digest = Digest(*blake3::hash(&bytes).as_bytes());
    copy.receiving.heard(FromSender::Digest { file: 0, digest }).unwrap();
    copy.until("that it is wanted", |word| matches!(word, FromReceiver::Send { .. }).then_some(()));
    copy.stream().write_all(&block(0, &bytes, 0, false)).unwrap();
    assert_eq!(copy.end().tally.failed, 0);
    assert_eq!(fs::read(place.path().join("a")).unwrap(), bytes);
}
