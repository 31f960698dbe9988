//! Tests of changes at the destination during a copy.

use super::*;

/// A hard link names the received file, even if another file has its name when the link is listed.
#[test]
fn hard_links_lead_to_the_received_file() {
    let temp = TempDir::new().unwrap();
    let mut copy = TestCopy::into(temp.path());
    let mut stream = copy.open_stream();
    let first = Entry { linked: true, ..file("a", b"one") };
    let large = data(3, 3_000);
    let second = Entry { linked: true, ..file("b", &large) };
    copy.list(vec![directory("."), first, second]);
    stream.write_all(&block(1, b"one", 0, false)).unwrap();
    for index in 0..3 {
        stream.write_all(&block(2, &large, index, false)).unwrap();
    }
    copy.send_digest(2, &large);
    for name in ["a", "b"] {
        copy.wait_for("settled", |_| temp.path().join(name).exists().then_some(()));
    }
    copy.list(vec![entry("a2", EntryKind::HardLink { to: 1 }), entry("b2", EntryKind::HardLink { to: 2 })]);
    for name in ["a", "b"] {
        copy.wait_for("the other name", |_| temp.path().join(format!("{name}2")).exists().then_some(()));
        fs::write(temp.path().join("new"), "another").unwrap();
        fs::rename(temp.path().join("new"), temp.path().join(name)).unwrap();
    }
    copy.list(vec![entry("a3", EntryKind::HardLink { to: 1 }), entry("b3", EntryKind::HardLink { to: 2 })]);
    let result = copy.finish();
    assert_eq!((result.tally.files, result.tally.links, result.tally.failed), (2, 2, 2), "{:?}", result.failures);
    assert!(result.failures.iter().all(|failure| failure.reason.contains("another file has replaced")));
    assert_eq!(names(temp.path()), ["a", "a2", "b", "b2"]);
    assert_eq!(fs::read(temp.path().join("a2")).unwrap(), b"one");
    assert_eq!(fs::read(temp.path().join("b2")).unwrap(), large);
}

/// The control thread empties the queue of events, so it would wait for itself.
#[test]
fn control_thread_does_not_wait_for_its_own_queue() {
    let options = TransferOptions { report_digests: true, ..TransferOptions::default() };
    let mut copy = TestCopy::with_options(Destination::Null, options);
    let mut stream = copy.open_stream();
    copy.wait_for("ready", |message| matches!(message, ReceiverMessage::Ready { .. }).then_some(()));
    let large = data(3, 3_000);
    copy.list(vec![file("large", &large)]);
    copy.list((0..5_000).map(|n| file(&n.to_string(), b"x")).collect());
    let blocks: Vec<_> = (0..3).flat_map(|index| block(0, &large, index, false)).collect();
    stream.write_all(&blocks).unwrap();
    let small: Vec<_> = (1..=5_000).flat_map(|file| block(file, b"x", 0, false)).collect();
    let writer = thread::spawn(move || stream.write_all(&small).map(|()| stream));
    // Nothing empties the queue of reports meanwhile, until it is full.
    let deadline = Instant::now() + Duration::from_secs(30);
    while copy.receiver.reporter.queued() < 4_096 {
        assert!(Instant::now() < deadline, "{}", copy.receiver.reporter.queued());
        thread::sleep(Duration::from_millis(1));
    }
    // This call would never return if it waited.
    copy.send_digest(0, &large);
    let result = copy.finish();
    assert_eq!((result.tally.files, result.tally.failed), (5_001, 0));
    drop(writer.join().unwrap());
}

/// While the first source's file is still arriving, the file to be replaced still exists.
#[test]
fn first_source_of_a_name_stays() {
    let force = OverwritePolicy { force: true, ..OverwritePolicy::default() };
    for dry_run in [false, true] {
        let temp = TempDir::new().unwrap();
        fs::write(temp.path().join("x"), "old").unwrap();
        let options = TransferOptions { multiple_sources: true, dry_run, ..TransferOptions::default() };
        let mut copy = TestCopy::with_options(destination_in(temp.path(), force), options);
        let mut stream = copy.open_stream();
        let large = data(3, 3_000);
        // The third entry is the first one again.
        copy.list(vec![file("x", &large), file("x", b"another"), file("x", &large), file("y", b"y")]);
        if !dry_run {
            for index in 0..3 {
                stream.write_all(&block(0, &large, index, false)).unwrap();
            }
            stream.write_all(&block(3, b"y", 0, false)).unwrap();
            copy.send_digest(0, &large);
        }
        let result = copy.finish();
        assert_eq!((result.tally.failed, result.tally.skipped), (1, 1), "{:?}", result.tally);
        assert!(failure(&result).reason.contains("another source"), "{:?}", result.failures);
        let content = fs::read(temp.path().join("x")).unwrap();
        assert_eq!(content, if dry_run { b"old".to_vec() } else { large });
    }
}

/// A source may contain the leftovers of an interrupted copy.
#[test]
fn entries_cannot_use_reserved_names() {
    let temp = TempDir::new().unwrap();
    fs::write(temp.path().join("old"), "old").unwrap();
    let mut copy =
        TestCopy::start(destination_in(temp.path(), OverwritePolicy { force: true, ..OverwritePolicy::default() }));
    let mut stream = copy.open_stream();
    let large = data(3, 3_000);
    copy.list(vec![file(".x.lfn-partial", b"half"), file("x", &large), directory(".y.LFN-JOURNAL")]);
    stream.write_all(&block(0, b"half", 0, false)).unwrap();
    for index in 0..3 {
        stream.write_all(&block(1, &large, index, false)).unwrap();
    }
    copy.send_digest(1, &large);
    let result = copy.finish();
    assert_eq!((result.tally.files, result.tally.failed), (1, 2), "{:?}", result.tally);
    assert!(result.failures.iter().all(|failure| failure.reason.contains("reserved for incomplete files")));
    assert_eq!((names(temp.path()), fs::read(temp.path().join("x")).unwrap()), (vec!["old".into(), "x".into()], large));
}

/// Starts a copy of one file, `x`. The first of its three blocks has arrived.
fn started_copy(temp: &Path) -> (TestCopy, TcpSocket, Vec<u8>) {
    let mut copy = TestCopy::into(temp);
    let mut stream = copy.open_stream();
    let large = data(3, 3_000);
    copy.list(vec![file("x", &large)]);
    stream.write_all(&block(0, &large, 0, false)).unwrap();
    while !temp.join(".x.lfn-journal").exists() {
        thread::sleep(Duration::from_millis(1));
    }
    (copy, stream, large)
}

/// Another file that took the partial name meanwhile is not published and not removed.
#[test]
fn only_the_received_file_is_published() {
    let temp = TempDir::new().unwrap();
    let (mut copy, mut stream, large) = started_copy(temp.path());
    let partial = temp.path().join(".x.lfn-partial");
    fs::write(temp.path().join("new"), "another").unwrap();
    fs::rename(temp.path().join("new"), &partial).unwrap();
    for index in 1..3 {
        stream.write_all(&block(0, &large, index, false)).unwrap();
    }
    copy.send_digest(0, &large);
    let result = copy.finish();
    assert!(failure(&result).reason.contains("replaced its partial file"), "{:?}", result.failures);
    assert!(!temp.path().join("x").exists());
    assert_eq!(fs::read(partial).unwrap(), b"another");
}

/// The leftovers of an interrupted copy do not block a link.
#[test]
fn symlink_replaces_a_partial_file() {
    let temp = TempDir::new().unwrap();
    for name in ["x", ".x.lfn-partial", ".x.lfn-journal"] {
        fs::write(temp.path().join(name), "old").unwrap();
    }
    let mut copy =
        TestCopy::start(destination_in(temp.path(), OverwritePolicy { force: true, ..OverwritePolicy::default() }));
    copy.list(vec![link("x", "target")]);
    assert_eq!(copy.finish().tally.links, 1);
    assert_eq!(
        (names(temp.path()), fs::read_link(temp.path().join("x")).unwrap()),
        (vec!["x".into()], "target".into())
    );
}

/// The copy that wrote the file is over and waits for a slow disk. It does not count as a running copy.
#[test]
fn waits_for_a_partial_file_that_is_being_flushed() {
    let temp = TempDir::new().unwrap();
    let locked = fs::File::create(temp.path().join(".x.lfn-partial")).unwrap();
    locked.lock().unwrap();
    fs::write(temp.path().join(".x.lfn-journal"), "").unwrap();
    let other_copy = Duration::from_millis(100);
    let destination = destination_in(temp.path(), OverwritePolicy::default());
    let mut copy = TestCopy::with_receiver(destination, impatient(other_copy));
    let large = data(3, 3_000);
    copy.list(vec![file("x", &large)]);
    thread::sleep(5 * other_copy);
    drop(locked);
    let mut stream = copy.open_stream();
    for index in 0..3 {
        stream.write_all(&block(0, &large, index, false)).unwrap();
    }
    copy.send_digest(0, &large);
    let result = copy.finish();
    assert_eq!((result.tally.files, result.failures), (1, Vec::new()));
}

/// Only the digest of the complete source decides about a file that another copy has written meanwhile.
#[test]
fn file_of_another_copy_is_compared_by_its_digest() {
    for is_equal in [true, false] {
        let temp = TempDir::new().unwrap();
        let (large, path) = (data(3, 3_000), temp.path().join(".x.lfn-partial"));
        let locked = fs::File::create(&path).unwrap();
        locked.lock().unwrap();
        let overwrite = OverwritePolicy { checksum: true, ..OverwritePolicy::default() };
        let mut copy = TestCopy::start(destination_in(temp.path(), overwrite));
        copy.list(vec![file("x", &large)]);
        let mut stream = copy.open_stream();
        (0..3).for_each(|index| stream.write_all(&block(0, &large, index, false)).unwrap());
        thread::sleep(Duration::from_millis(100));
        // The control thread is not blocked while a stream waits for the other copy.
        copy.send_digest(0, &large);
        let other = if is_equal { large.clone() } else { data(4, 3_000) };
        create_file(temp.path(), &file("x", &large), &other);
        fs::remove_file(path).unwrap();
        drop(locked);
        let tally = copy.finish().tally;
        let outcomes = (tally.files, tally.skipped, tally.failed);
        assert_eq!(outcomes, if is_equal { (0, 1, 0) } else { (1, 0, 0) });
        assert!(fs::read(temp.path().join("x")).unwrap() == large);
    }
}

#[test]
fn null_destination_accepts_holes() {
    let mut copy = TestCopy::start(Destination::Null);
    let zeros = vec![0; 1500];
    copy.list(vec![file("holes", &zeros)]);
    let mut stream = copy.open_stream();
    let layout = Layout::new(Bytes(1500), BLOCK).unwrap();
    for index in 0..2 {
        let block = layout.block(index).unwrap();
        let verify = Verify::Blake3;
        let hash = verify.hash(&layout, block, &zeros[..block.length as usize]);
        let header = BlockHeader { file: 0, offset: block.offset, length: block.length, hash, hole: Some(0), verify };
        stream.write_all(&header.encode()).unwrap();
    }
    copy.send_digest(0, &zeros);
    assert_eq!(copy.finish().tally.files, 1);
}

/// The sender waits for the answer of the comparison.
#[test]
fn file_deleted_after_comparison_is_sent() {
    let temp = TempDir::new().unwrap();
    let bytes = data(1, 600);
    fs::write(temp.path().join("a"), data(2, 600)).unwrap();
    let mut copy =
        TestCopy::start(destination_in(temp.path(), OverwritePolicy { checksum: true, ..OverwritePolicy::default() }));
    copy.list(vec![file("a", &bytes)]);
    copy.wait_for("the question", |message| matches!(message, ReceiverMessage::Digests { .. }).then_some(()));
    fs::remove_file(temp.path().join("a")).unwrap();
    let digest = Digest(*blake3::hash(&bytes).as_bytes());
    copy.receiver.on_message(SenderMessage::Digest { file: 0, digest }, Instant::now()).unwrap();
    copy.wait_for("that the file is needed", |message| matches!(message, ReceiverMessage::Send { .. }).then_some(()));
    copy.open_stream().write_all(&block(0, &bytes, 0, false)).unwrap();
    assert_eq!(copy.finish().tally.failed, 0);
    assert_eq!(fs::read(temp.path().join("a")).unwrap(), bytes);
}

/// Starts a copy of the file `x` that the planner has decided to create, and creates another file of this name.
fn copy_with_appeared_file(temp: &Path, bytes: &[u8], existing: &[u8], overwrite: OverwritePolicy) -> CopyResult {
    let mut copy = TestCopy::start(destination_in(temp, overwrite));
    let entry = file("x", bytes);
    copy.list(vec![entry.clone()]);
    let deadline = Instant::now() + Duration::from_secs(30);
    while copy.receiver.assembler.needed_file(0).is_none() {
        assert!(Instant::now() < deadline);
        thread::sleep(Duration::from_millis(1));
    }
    create_file(temp, &entry, existing);
    let mut stream = copy.open_stream();
    for index in 0..bytes.len().div_ceil(1024) as u64 {
        stream.write_all(&block(0, bytes, index, false)).unwrap();
    }
    copy.send_digest(0, bytes);
    copy.finish()
}

/// A second copy of the same source has written the file meanwhile.
#[test]
fn equal_file_that_appears_meanwhile_is_up_to_date() {
    for length in [600, 3_000] {
        let (temp, bytes) = (TempDir::new().unwrap(), data(1, length));
        let result = copy_with_appeared_file(temp.path(), &bytes, &bytes, OverwritePolicy::default());
        assert_eq!((result.tally.skipped, result.tally.failed), (1, 0), "{length}: {:?}", result.failures);
        assert_eq!((names(temp.path()), fs::read(temp.path().join("x")).unwrap()), (vec!["x".into()], bytes));
    }
}

#[test]
fn other_file_that_appears_meanwhile_follows_the_policy() {
    let force = OverwritePolicy { force: true, ..OverwritePolicy::default() };
    let checksum = OverwritePolicy { checksum: true, ..OverwritePolicy::default() };
    for length in [600, 3_000] {
        let bytes = data(1, length);
        for (policy, existing) in [(force, data(2, 10)), (checksum, data(2, length))] {
            let temp = TempDir::new().unwrap();
            let result = copy_with_appeared_file(temp.path(), &bytes, &existing, policy);
            assert_eq!((result.tally.files, result.tally.failed), (1, 0), "{policy:?}: {:?}", result.failures);
            assert_eq!(fs::read(temp.path().join("x")).unwrap(), bytes);
        }
        let temp = TempDir::new().unwrap();
        let result = copy_with_appeared_file(temp.path(), &bytes, &data(2, 10), OverwritePolicy::default());
        assert!(failure(&result).reason.contains("a file of 10 B exists"), "{:?}", result.failures);
        assert_eq!(fs::read(temp.path().join("x")).unwrap(), data(2, 10));
    }
}

/// Two copies of one source run at the same time. The second waits for the partial file of the first.
#[test]
fn second_copy_of_the_same_source_succeeds() {
    let temp = TempDir::new().unwrap();
    let (first, mut stream, large) = started_copy(temp.path());
    let mut second = TestCopy::into(temp.path());
    second.list(vec![file("x", &large)]);
    let mut second_stream = second.open_stream();
    second_stream.write_all(&block(0, &large, 0, false)).unwrap();
    for index in 1..3 {
        stream.write_all(&block(0, &large, index, false)).unwrap();
    }
    let mut first = first;
    first.send_digest(0, &large);
    assert_eq!(first.finish().tally.files, 1);
    let result = second.finish();
    assert_eq!((result.tally.skipped, result.tally.failed), (1, 0), "{:?}", result.failures);
    assert_eq!((names(temp.path()), fs::read(temp.path().join("x")).unwrap()), (vec!["x".into()], large));
}
