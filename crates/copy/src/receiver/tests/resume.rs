//! Tests of resuming an earlier copy, which ended cleanly or not.

use std::os::unix::fs::FileExt;

use super::*;

/// Creates a directory in which a copy of `bytes` was interrupted after `blocks`, with a clean journal or not.
fn interrupted_copy(bytes: &[u8], blocks: &[u64], clean: bool) -> TempDir {
    interrupted_copy_with(Verify::Blake3, bytes, blocks, clean)
}

fn interrupted_copy_with(verify: Verify, bytes: &[u8], blocks: &[u64], clean: bool) -> TempDir {
    let temp = TempDir::new().unwrap();
    let mut copy = TestCopy::with_verify(verify, temp.path());
    copy.list(vec![file("a", bytes)]);
    let mut stream = copy.open_stream();
    blocks.iter().for_each(|index| stream.write_all(&block_with(verify, 0, bytes, *index)).unwrap());
    let journal = temp.path().join(".a.lfn-journal");
    let needed = blocks.len() * crate::proto::journal::RECORD_BYTES;
    let deadline = Instant::now() + Duration::from_secs(30);
    let full = || {
        fs::read(&journal).is_ok_and(|journal| {
            journal.iter().position(|byte| *byte == b'\n').is_some_and(|line| journal.len() - line > needed)
        })
    };
    while !full() {
        assert!(Instant::now() < deadline);
        thread::sleep(Duration::from_millis(1));
    }
    let recorded = fs::read(&journal).unwrap();
    copy.receiver.close();
    assert_eq!(names(temp.path()), [".a.lfn-journal", ".a.lfn-partial"]);
    assert!(fs::read(&journal).unwrap().len() > recorded.len());
    if !clean {
        fs::write(&journal, recorded).unwrap();
    }
    temp
}

/// Resumes the copy. Returns the blocks that were kept.
fn resume(temp: &Path, bytes: &[u8], entry: Entry) -> (Vec<u64>, CopyTally) {
    let mut copy = TestCopy::into(temp);
    copy.list(vec![entry]);
    // Without kept blocks, there is no `Have` message.
    copy.wait_for("request", |message| matches!(message, ReceiverMessage::Request { up_to: 1 }).then_some(()));
    let have = copy.messages.iter().any(|message| matches!(message, ReceiverMessage::Have { .. }));
    let kept = if have { copy.resumed_blocks(0) } else { Vec::new() };
    let mut stream = copy.open_stream();
    // A kept block may arrive in spite of this: it was in flight already.
    for index in (0..bytes.len().div_ceil(1024) as u64).filter(|index| *index == 0 || !kept.contains(index)) {
        stream.write_all(&block(0, bytes, index, false)).unwrap();
    }
    copy.send_digest(0, bytes);
    let result = copy.finish();
    assert_eq!(names(temp), ["a"], "{:?}", result.failures);
    assert_eq!(fs::read(temp.join("a")).unwrap(), bytes);
    (kept, result.tally)
}

#[test]
fn changed_partial_data_is_sent_again() {
    let bytes: Vec<u8> = (0..4000_u32).map(|n| n as u8).collect();
    for clean in [true, false] {
        let temp = interrupted_copy(&bytes, &[0, 1, 2], clean);
        let partial = fs::File::options().write(true).open(temp.path().join(".a.lfn-partial")).unwrap();
        let before = partial.metadata().unwrap().modified().unwrap();
        partial.write_all_at(b"XXXX", 1500).unwrap();
        partial.set_modified(before).unwrap();
        assert_eq!(resume(temp.path(), &bytes, file("a", &bytes)).0, [0, 2], "{clean}");
    }
}

#[test]
fn resume_from_a_journal_truncated_anywhere() {
    const RECORD: usize = crate::proto::journal::RECORD_BYTES;
    let bytes = data(1, 6_500);
    let order = [2, 0, 5, 6];
    let source = interrupted_copy(&bytes, &order, false);
    let journal = fs::read(source.path().join(".a.lfn-journal")).unwrap();
    let line = journal.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    for records in 0..=order.len() {
        for torn in [0, 1, RECORD - 1] {
            let cut = line + records * RECORD + torn;
            if cut > journal.len() {
                continue;
            }
            let temp = TempDir::new().unwrap();
            fs::copy(source.path().join(".a.lfn-partial"), temp.path().join(".a.lfn-partial")).unwrap();
            fs::write(temp.path().join(".a.lfn-journal"), &journal[..cut]).unwrap();
            let (kept, tally) = resume(temp.path(), &bytes, file("a", &bytes));
            let mut needed = order[..records].to_vec();
            needed.sort_unstable();
            assert_eq!(kept, needed, "{records} records and {torn} bytes");
            let length = |index: &u64| if *index == 6 { 6_500 - 6 * 1024 } else { 1024 };
            assert_eq!(tally.resumed_bytes, Bytes(needed.iter().map(length).sum()));
        }
    }
    // An incomplete header is useless.
    let temp = TempDir::new().unwrap();
    fs::copy(source.path().join(".a.lfn-partial"), temp.path().join(".a.lfn-partial")).unwrap();
    fs::write(temp.path().join(".a.lfn-journal"), &journal[..line - 1]).unwrap();
    assert_eq!(resume(temp.path(), &bytes, file("a", &bytes)).0, [0u64; 0]);
}

#[test]
fn blocks_are_verified_unless_the_journal_is_clean() {
    let bytes = data(1, 4_096);
    let damage = |temp: &TempDir| {
        let path = temp.path().join(".a.lfn-partial");
        let mut partial = fs::read(&path).unwrap();
        partial[1024] ^= 1;
        fs::write(&path, partial).unwrap();
    };
    let temp = interrupted_copy(&bytes, &[0, 1, 3], false);
    damage(&temp);
    assert_eq!(resume(temp.path(), &bytes, file("a", &bytes)).0, [0, 3]);
    let temp = interrupted_copy(&bytes, &[0, 1, 3], true);
    assert_eq!(resume(temp.path(), &bytes, file("a", &bytes)).0, [0, 1, 3]);
    // A source with another time, and a partial file that does not match the journal.
    let temp = interrupted_copy(&bytes, &[0, 1, 3], true);
    let newer = Entry { modified: Modified::new(1_000_000_001, 0).unwrap(), ..file("a", &bytes) };
    assert_eq!(resume(temp.path(), &bytes, newer).0, [0u64; 0]);
    let temp = interrupted_copy(&bytes, &[0, 1, 3], true);
    fs::write(temp.path().join(".a.lfn-partial"), b"").unwrap();
    assert_eq!(resume(temp.path(), &bytes, file("a", &bytes)).0, [0u64; 0]);
}

#[test]
fn resume_with_another_block_size() {
    let bytes = data(1, 6_500);
    for verify in [Verify::Blake3, Verify::Xxh3, Verify::Off] {
        for clean in [true, false] {
            let temp = interrupted_copy_with(verify, &bytes, &[0, 1, 2, 5, 6], clean);
            let have = |block: u64, blocks: &[u64]| {
                let options = TransferOptions { verify, ..TransferOptions::default() };
                let mut copy = TestCopy::with_block_size(
                    destination_in(temp.path(), OverwritePolicy::default()),
                    options,
                    Bytes(block),
                );
                copy.list(vec![file("a", &bytes)]);
                copy.wait_for("request", |message| {
                    matches!(message, ReceiverMessage::Request { up_to: 1 }).then_some(())
                });
                let has_message = copy.messages.iter().any(|message| matches!(message, ReceiverMessage::Have { .. }));
                let have = if has_message { copy.resumed_blocks(0) } else { Vec::new() };
                assert_eq!(have, blocks, "{verify} {clean} {block}");
                copy.receiver.close();
            };
            if !clean && verify == Verify::Off {
                have(2048, &[]);
                continue;
            }
            have(2048, &[0, 3]);
            have(1024, &[0, 1, 6]);
        }
    }
    // A changed block is not kept.
    let temp = interrupted_copy(&bytes, &[0, 1, 2, 3], true);
    let partial = fs::File::options().write(true).open(temp.path().join(".a.lfn-partial")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&partial, b"spoilt", 3000).unwrap();
    let mut copy = TestCopy::with_block_size(
        destination_in(temp.path(), OverwritePolicy::default()),
        TransferOptions::default(),
        Bytes(2048),
    );
    copy.list(vec![file("a", &bytes)]);
    assert_eq!(copy.resumed_blocks(0), [0]);
    copy.receiver.close();
}

#[test]
fn number_of_resumed_blocks_is_bounded() {
    // The bound is 1,000 in tests.
    let bytes = data(1, 1_100 * 1024);
    let temp = interrupted_copy(&bytes, &(0..1_100).collect::<Vec<_>>()[..1_099], true);
    let (kept, tally) = resume(temp.path(), &bytes, file("a", &bytes));
    assert_eq!((kept.len(), tally.resumed_bytes), (1_000, Bytes(1_000 * 1024)));
}

/// Otherwise a copy that reads old blocks for more than 15 minutes would count as stalled, every time.
#[test]
fn verification_counts_as_progress() {
    let bytes = data(1, 4_096);
    for block in [1024, 2048] {
        let temp = interrupted_copy(&bytes, &[0, 1, 3], false);
        let mut copy = TestCopy::with_block_size(
            destination_in(temp.path(), OverwritePolicy::default()),
            TransferOptions::default(),
            Bytes(block),
        );
        copy.list(vec![file("a", &bytes)]);
        copy.resumed_blocks(0);
        let shares = copy.receiver.streams.progress().shares;
        assert!(shares.disk > 0.0 && shares.hash > 0.0, "{shares:?}");
        copy.receiver.close();
    }
}

#[test]
fn blocks_of_another_hash_are_not_trusted() {
    let bytes = data(1, 4_000);
    let kinds = [Verify::Blake3, Verify::Xxh3, Verify::Off];
    for (before, now) in kinds.into_iter().flat_map(|before| kinds.map(|now| (before, now))) {
        for clean in [true, false] {
            let temp = interrupted_copy_with(before, &bytes, &[0, 2], clean);
            if !clean {
                // A crash may leave zeros.
                let partial = fs::File::options().write(true).open(temp.path().join(".a.lfn-partial")).unwrap();
                std::os::unix::fs::FileExt::write_all_at(&partial, &[0; 1024], 2048).unwrap();
            }
            let mut copy = TestCopy::with_verify(now, temp.path());
            copy.list(vec![file("a", &bytes)]);
            copy.wait_for("request", |message| matches!(message, ReceiverMessage::Request { up_to: 1 }).then_some(()));
            let have = copy.messages.iter().any(|message| matches!(message, ReceiverMessage::Have { .. }));
            let kept = if have { copy.resumed_blocks(0) } else { Vec::new() };
            let expected: &[u64] = match (before == now, clean) {
                (true, true) => &[0, 2],
                (true, false) if now != Verify::Off => &[0],
                _ => &[],
            };
            assert_eq!(kept, expected, "{before} {now} {clean}");
            let mut stream = copy.open_stream();
            for index in (0..4).filter(|index| !kept.contains(index)) {
                stream.write_all(&block_with(now, 0, &bytes, index)).unwrap();
            }
            // The sender's digest covers the same block hashes.
            let mut tree = lfn_session::wire::copy::digest::HashTree::new(Layout::new(Bytes(4000), BLOCK).unwrap());
            for index in 0..4 {
                let block = block_with(now, 0, &bytes, index);
                let mut hash = [0; 32];
                hash.copy_from_slice(&block[20..52]);
                tree.insert(index, BlockHash(hash));
            }
            copy.receiver
                .on_message(SenderMessage::Sent { file: 0, digest: tree.digest().unwrap() }, Instant::now())
                .unwrap();
            let result = copy.finish();
            assert_eq!((names(temp.path()), result.tally.failed), (vec!["a".to_owned()], 0), "{:?}", result.failures);
            assert_eq!(fs::read(temp.path().join("a")).unwrap(), bytes);
            assert_eq!(result.digest.is_some(), now == Verify::Blake3);
        }
    }
}

/// A file that got its name before a sync may contain zeros after a restart of the host.
#[test]
fn unsynced_files_are_sent_again_after_a_power_loss() {
    for (fsync, since, again) in [
        (FsyncPolicy::End, Modified::new(1, 0).unwrap(), true),
        (FsyncPolicy::None, Modified::new(1, 0).unwrap(), true),
        (FsyncPolicy::File, Modified::new(1, 0).unwrap(), false),
        (FsyncPolicy::End, subtract_clock_lag(crate::base_dir::now()), false),
    ] {
        let temp = TempDir::new().unwrap();
        let bytes = data(1, 600);
        let entry = file("a", &bytes);
        create_file(temp.path(), &entry, &[0; 600]);
        let (destination, options) = (
            destination_in(temp.path(), OverwritePolicy::default()),
            TransferOptions { fsync, ..TransferOptions::default() },
        );
        let options = ReceiverOptions { since: Some(since), ..receiver_options(options, BLOCK) };
        let mut copy = TestCopy::with_receiver(destination, options);
        copy.list(vec![entry]);
        if again {
            copy.wait_for("request", |message| matches!(message, ReceiverMessage::Request { up_to: 1 }).then_some(()));
            copy.open_stream().write_all(&block(0, &bytes, 0, false)).unwrap();
        }
        assert_eq!(copy.finish().tally.failed, 0);
        assert_eq!(fs::read(temp.path().join("a")).unwrap() == bytes, again, "{fsync:?}");
    }
}

/// Only the digest shows that another source has the same length and time.
#[test]
fn wrong_resumed_blocks_are_discarded() {
    let (before, after): (Vec<u8>, Vec<u8>) = ((0..4000_u32).map(|n| n as u8).collect(), vec![7; 4000]);
    let temp = interrupted_copy(&before, &[0, 1], true);
    let mut copy = TestCopy::into(temp.path());
    copy.list(vec![file("a", &after)]);
    assert_eq!(copy.resumed_blocks(0), [0, 1]);
    let mut stream = copy.open_stream();
    [2, 3].into_iter().for_each(|index| stream.write_all(&block(0, &after, index, false)).unwrap());
    copy.send_digest(0, &after);
    let result = copy.finish();
    assert_eq!(result.tally.failed, 1);
    assert!(result.failures[0].reason.contains("source was replaced by a different file"), "{:?}", result.failures);
    // The next copy starts from the beginning.
    assert_eq!(names(temp.path()), [""; 0]);
}

/// A copy was killed before it could rename a link.
#[test]
fn links_of_a_partial_name_are_replaced() {
    let bytes = vec![1; 4000];
    for hard in [false, true] {
        let temp = TempDir::new().unwrap();
        let partial = temp.path().join(".a.lfn-partial");
        if hard {
            fs::write(temp.path().join("other"), "whole").unwrap();
            fs::hard_link(temp.path().join("other"), &partial).unwrap();
        } else {
            std::os::unix::fs::symlink("other", &partial).unwrap();
        }
        let mut copy = TestCopy::into(temp.path());
        copy.list(vec![file("a", &bytes)]);
        copy.wait_for("request", |message| matches!(message, ReceiverMessage::Request { up_to: 1 }).then_some(()));
        let mut stream = copy.open_stream();
        (0..4).for_each(|index| stream.write_all(&block(0, &bytes, index, false)).unwrap());
        copy.send_digest(0, &bytes);
        assert_eq!(copy.finish().tally.failed, 0);
        assert_eq!(fs::read(temp.path().join("a")).unwrap(), bytes);
        assert!(!partial.exists() && !partial.is_symlink());
        assert_eq!(fs::read(temp.path().join("other")).ok(), hard.then(|| b"whole".to_vec()));
    }
}

/// The copy was killed after the rename, and before it removed the leftovers.
#[test]
fn leftovers_of_renamed_files_are_removed() {
    let (bytes, temp) = (vec![1; 4000], TempDir::new().unwrap());
    let entries = || vec![directory("d"), file("x", &bytes)];
    let mut copy = TestCopy::into(temp.path());
    copy.list(entries());
    let mut stream = copy.open_stream();
    (0..4).for_each(|index| stream.write_all(&block(1, &bytes, index, false)).unwrap());
    copy.send_digest(1, &bytes);
    assert_eq!(copy.finish().tally.failed, 0);
    fs::write(temp.path().join(".d.lfn-replaced"), "replaced by d").unwrap();
    fs::write(temp.path().join(".x.lfn-journal"), "").unwrap();
    let mut copy = TestCopy::into(temp.path());
    copy.list(entries());
    assert_eq!(copy.finish().tally.skipped, 2);
    let mut all = names(temp.path());
    all.sort();
    assert_eq!(all, ["d", "x"]);
}
