//! What an earlier copy left, in order or not, and what the next one makes of it.

use std::os::unix::fs::FileExt;

use super::*;

/// A directory as a copy of `bytes` left it that was stopped after `blocks`, in order or not.
fn left(bytes: &[u8], blocks: &[u64], clean: bool) -> TempDir {
    left_by(Verify::Blake3, bytes, blocks, clean)
}

fn left_by(verify: Verify, bytes: &[u8], blocks: &[u64], clean: bool) -> TempDir {
    let place = TempDir::new().unwrap();
    let mut copy = Copy::checked_by(verify, place.path());
    copy.list(vec![file("a", bytes)]);
    let mut stream = copy.stream();
    blocks.iter().for_each(|index| stream.write_all(&block_by(verify, 0, bytes, *index)).unwrap());
    let journal = place.path().join(".a.lfn-journal");
    let wanted = blocks.len() * lfn_core::transfer::journal::RECORD;
    let deadline = Instant::now() + Duration::from_secs(30);
    let full = || {
        fs::read(&journal).is_ok_and(|journal| {
            journal.iter().position(|byte| *byte == b'\n').is_some_and(|line| journal.len() - line > wanted)
        })
    };
    while !full() {
        assert!(Instant::now() < deadline);
        thread::sleep(Duration::from_millis(1));
    }
    let noted = fs::read(&journal).unwrap();
    copy.receiving.close();
    assert_eq!(names(place.path()), [".a.lfn-journal", ".a.lfn-partial"]);
    assert!(fs::read(&journal).unwrap().len() > noted.len());
    if !clean {
        fs::write(&journal, noted).unwrap();
    }
    place
}

/// Goes on with what was left: which blocks are kept.
fn resume(place: &Path, bytes: &[u8], entry: Entry) -> (Vec<u64>, Tally) {
    let mut copy = Copy::into(place);
    copy.list(vec![entry]);
    // Without blocks nothing is said of them.
    copy.until("wants", |word| matches!(word, FromReceiver::Wants { up_to: 1 }).then_some(()));
    let have = copy.words.iter().any(|word| matches!(word, FromReceiver::Have { .. }));
    let kept = if have { copy.have(0) } else { Vec::new() };
    let mut stream = copy.stream();
    // One that is there may come all the same: it had left before.
    for index in (0..bytes.len().div_ceil(1024) as u64).filter(|index| *index == 0 || !kept.contains(index)) {
        stream.write_all(&block(0, bytes, index, false)).unwrap();
    }
    copy.sent(0, bytes);
    let ended = copy.end();
    assert_eq!(names(place), ["a"], "{:?}", ended.failures);
    assert_eq!(fs::read(place.join("a")).unwrap(), bytes);
    (kept, ended.tally)
}

#[test]
fn what_somebody_else_wrote_into_a_partial_file_is_sent_again() {
    let bytes: Vec<u8> = (0..4000_u32).map(|n| n as u8).collect();
    for clean in [true, false] {
        let place = left(&bytes, &[0, 1, 2], clean);
        let partial = fs::File::options().write(true).open(place.path().join(".a.lfn-partial")).unwrap();
        let before = partial.metadata().unwrap().modified().unwrap();
        partial.write_all_at(b"XXXX", 1500).unwrap();
        partial.set_modified(before).unwrap();
        assert_eq!(resume(place.path(), &bytes, file("a", &bytes)).0, [0, 2], "{clean}");
    }
}

#[test]
fn a_copy_goes_on_from_a_journal_cut_anywhere() {
    const RECORD: usize = lfn_core::transfer::journal::RECORD;
    let bytes = data(1, 6_500);
    let order = [2, 0, 5, 6];
    let source = left(&bytes, &order, false);
    let journal = fs::read(source.path().join(".a.lfn-journal")).unwrap();
    let line = journal.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    for records in 0..=order.len() {
        for torn in [0, 1, RECORD - 1] {
            let cut = line + records * RECORD + torn;
            if cut > journal.len() {
                continue;
            }
            let place = TempDir::new().unwrap();
            fs::copy(source.path().join(".a.lfn-partial"), place.path().join(".a.lfn-partial")).unwrap();
            fs::write(place.path().join(".a.lfn-journal"), &journal[..cut]).unwrap();
            let (kept, tally) = resume(place.path(), &bytes, file("a", &bytes));
            let mut wanted = order[..records].to_vec();
            wanted.sort_unstable();
            assert_eq!(kept, wanted, "{records} records and {torn} bytes");
            let length = |index: &u64| if *index == 6 { 6_500 - 6 * 1024 } else { 1024 };
            assert_eq!(tally.kept, Bytes(wanted.iter().map(length).sum()));
        }
    }
    // A line that is torn itself is of no use.
    let place = TempDir::new().unwrap();
    fs::copy(source.path().join(".a.lfn-partial"), place.path().join(".a.lfn-partial")).unwrap();
    fs::write(place.path().join(".a.lfn-journal"), &journal[..line - 1]).unwrap();
    assert_eq!(resume(place.path(), &bytes, file("a", &bytes)).0, [0u64; 0]);
}

#[test]
fn what_is_left_is_verified_unless_the_copy_ended_in_order() {
    let bytes = data(1, 4_096);
    let spoil = |place: &TempDir| {
        let path = place.path().join(".a.lfn-partial");
        let mut partial = fs::read(&path).unwrap();
        partial[1024] ^= 1;
        fs::write(&path, partial).unwrap();
    };
    let place = left(&bytes, &[0, 1, 3], false);
    spoil(&place);
    assert_eq!(resume(place.path(), &bytes, file("a", &bytes)).0, [0, 3]);
    let place = left(&bytes, &[0, 1, 3], true);
    assert_eq!(resume(place.path(), &bytes, file("a", &bytes)).0, [0, 1, 3]);
    // A source of another time, and a partial file that is not the journal's.
    let place = left(&bytes, &[0, 1, 3], true);
    let newer = Entry { modified: Modified::new(1_000_000_001, 0).unwrap(), ..file("a", &bytes) };
    assert_eq!(resume(place.path(), &bytes, newer).0, [0u64; 0]);
    let place = left(&bytes, &[0, 1, 3], true);
    fs::write(place.path().join(".a.lfn-partial"), b"").unwrap();
    assert_eq!(resume(place.path(), &bytes, file("a", &bytes)).0, [0u64; 0]);
}

#[test]
fn blocks_of_another_size_are_kept_where_they_are_there_whole() {
    let bytes = data(1, 6_500);
    for verify in [Verify::Blake3, Verify::Xxh3, Verify::Off] {
        for clean in [true, false] {
            let place = left_by(verify, &bytes, &[0, 1, 2, 5, 6], clean);
            let have = |block: u64, blocks: &[u64]| {
                let manner = Manner { verify, ..Manner::default() };
                let mut copy = Copy::in_blocks(aim(place.path(), Allowed::default()), manner, Bytes(block));
                copy.list(vec![file("a", &bytes)]);
                copy.until("wants", |word| matches!(word, FromReceiver::Wants { up_to: 1 }).then_some(()));
                let said = copy.words.iter().any(|word| matches!(word, FromReceiver::Have { .. }));
                let have = if said { copy.have(0) } else { Vec::new() };
                assert_eq!(have, blocks, "{verify} {clean} {block}");
                copy.receiving.close();
            };
            if !clean && verify == Verify::Off {
                have(2048, &[]);
                continue;
            }
            have(2048, &[0, 3]);
            have(1024, &[0, 1, 6]);
        }
    }
    // Nor is one kept that is not what it was.
    let place = left(&bytes, &[0, 1, 2, 3], true);
    let partial = fs::File::options().write(true).open(place.path().join(".a.lfn-partial")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&partial, b"spoilt", 3000).unwrap();
    let mut copy = Copy::in_blocks(aim(place.path(), Allowed::default()), Manner::default(), Bytes(2048));
    copy.list(vec![file("a", &bytes)]);
    assert_eq!(copy.have(0), [0]);
    copy.receiving.close();
}

/// Otherwise what nobody has looked at would be believed by the next copy.
#[test]
fn a_look_through_that_is_broken_off_changes_nothing() {
    let bytes = data(1, 4_096);
    let place = left(&bytes, &[0, 1, 3], false);
    let partial = fs::File::options().write(true).open(place.path().join(".a.lfn-partial")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&partial, b"spoilt", 1024).unwrap();
    let journal = || fs::read(place.path().join(".a.lfn-journal")).unwrap();
    let noted = journal();
    for block in [1024, 2048] {
        let tree = super::super::tree::Tree::open(&Base::Here, place.path(), false, false).unwrap();
        let at = tree.place(&Name::new("a").unwrap()).unwrap();
        let layout = Layout::new(Bytes(4_096), Bytes(block)).unwrap();
        let how = partial::How { verify: Verify::Blake3, sparse: false, reserve: true };
        let flow = Flow::default();
        flow.cut();
        let opened = partial::Partial::open(at, &file("a", &bytes), layout, (how, &|_| Ok(())), &flow);
        assert!(matches!(opened, Err(TransferError::Interrupted)));
        assert_eq!((journal(), names(place.path()).len()), (noted.clone(), 2), "{block}");
    }
    assert_eq!(resume(place.path(), &bytes, file("a", &bytes)).0, [0, 3]);
}

#[test]
fn no_more_blocks_are_gone_on_with_than_a_bound() {
    // In a test it is a thousand.
    let bytes = data(1, 1_100 * 1024);
    let place = left(&bytes, &(0..1_100).collect::<Vec<_>>()[..1_099], true);
    let (kept, tally) = resume(place.path(), &bytes, file("a", &bytes));
    assert_eq!((kept.len(), tally.kept), (1_000, Bytes(1_000 * 1024)));
}

/// Otherwise a copy of which more is to be read than a quarter of an hour takes would be given up as stalled, every time.
#[test]
fn to_look_through_what_was_left_is_work_that_is_seen() {
    let bytes = data(1, 4_096);
    for block in [1024, 2048] {
        let place = left(&bytes, &[0, 1, 3], false);
        let mut copy = Copy::in_blocks(aim(place.path(), Allowed::default()), Manner::default(), Bytes(block));
        copy.list(vec![file("a", &bytes)]);
        copy.have(0);
        let shares = copy.receiving.flow.progress().shares;
        assert!(shares.disk > 0.0 && shares.hash > 0.0, "{shares:?}");
        copy.receiving.close();
    }
}

#[test]
fn blocks_kept_under_another_hash_are_not_trusted() {
    let bytes = data(1, 4_000);
    let kinds = [Verify::Blake3, Verify::Xxh3, Verify::Off];
    for (before, now) in kinds.into_iter().flat_map(|before| kinds.map(|now| (before, now))) {
        for clean in [true, false] {
            let place = left_by(before, &bytes, &[0, 2], clean);
            if !clean {
                // What a crash may leave.
                let partial = fs::File::options().write(true).open(place.path().join(".a.lfn-partial")).unwrap();
                std::os::unix::fs::FileExt::write_all_at(&partial, &[0; 1024], 2048).unwrap();
            }
            let mut copy = Copy::checked_by(now, place.path());
            copy.list(vec![file("a", &bytes)]);
            copy.until("wants", |word| matches!(word, FromReceiver::Wants { up_to: 1 }).then_some(()));
            let have = copy.words.iter().any(|word| matches!(word, FromReceiver::Have { .. }));
            let kept = if have { copy.have(0) } else { Vec::new() };
            let expected: &[u64] = match (before == now, clean) {
                (true, true) => &[0, 2],
                (true, false) if now != Verify::Off => &[0],
                _ => &[],
            };
            assert_eq!(kept, expected, "{before} {now} {clean}");
            let mut stream = copy.stream();
            for index in (0..4).filter(|index| !kept.contains(index)) {
                stream.write_all(&block_by(now, 0, &bytes, index)).unwrap();
            }
            // Joined of the same blocks in the same way.
            let mut tree = lfn_core::transfer::digest::HashTree::new(Layout::new(Bytes(4000), BLOCK).unwrap());
            for index in 0..4 {
                let block = block_by(now, 0, &bytes, index);
                let mut hash = [0; 32];
                hash.copy_from_slice(&block[20..52]);
                tree.insert(index, BlockHash(hash));
            }
            copy.receiving.heard(FromSender::Sent { file: 0, digest: tree.digest().unwrap() }).unwrap();
            let ended = copy.end();
            assert_eq!((names(place.path()), ended.tally.failed), (vec!["a".to_owned()], 0), "{:?}", ended.failures);
            assert_eq!(fs::read(place.path().join("a")).unwrap(), bytes);
            assert_eq!(ended.digest.is_some(), now == Verify::Blake3);
        }
    }
}

/// Names given before their bytes were on disk may stand for zeros once the host has been started anew.
#[test]
fn what_an_earlier_session_named_unsynced_comes_again_after_a_power_loss() {
    for (fsync, since, again) in [
        (Sync::End, Modified::new(1, 0).unwrap(), true),
        (Sync::None, Modified::new(1, 0).unwrap(), true),
        (Sync::File, Modified::new(1, 0).unwrap(), false),
        (Sync::End, a_moment_before(now()), false),
    ] {
        let place = TempDir::new().unwrap();
        let bytes = data(1, 600);
        let entry = file("a", &bytes);
        plant(place.path(), &entry, &[0; 600]);
        let (aim, manner) = (aim(place.path(), Allowed::default()), Manner { fsync, ..Manner::default() });
        let flow = Flow::default();
        let receiving = Receiver::start(aim, manner, Teller::default(), Some(since), BLOCK, flow).unwrap();
        let mut copy = Copy { receiving, words: Vec::new(), listed: 0, streams: AtomicU16::new(0) };
        copy.list(vec![entry]);
        if again {
            copy.until("wants", |word| matches!(word, FromReceiver::Wants { up_to: 1 }).then_some(()));
            copy.stream().write_all(&block(0, &bytes, 0, false)).unwrap();
        }
        assert_eq!(copy.end().tally.failed, 0);
        assert_eq!(fs::read(place.path().join("a")).unwrap() == bytes, again, "{fsync:?}");
    }
}

/// Nothing tells a source of the same length and time from the one before, until its digest comes.
#[test]
fn blocks_of_a_source_that_looked_the_same_are_not_gone_on_with_twice() {
    let (before, after): (Vec<u8>, Vec<u8>) = ((0..4000_u32).map(|n| n as u8).collect(), vec![7; 4000]);
    let place = left(&before, &[0, 1], true);
    let mut copy = Copy::into(place.path());
    copy.list(vec![file("a", &after)]);
    assert_eq!(copy.have(0), [0, 1]);
    let mut stream = copy.stream();
    [2, 3].into_iter().for_each(|index| stream.write_all(&block(0, &after, index, false)).unwrap());
    copy.sent(0, &after);
    let ended = copy.end();
    assert_eq!(ended.tally.failed, 1);
    assert!(ended.failures[0].what.contains("not what an earlier copy had begun"), "{:?}", ended.failures);
    // The next one begins it anew.
    assert_eq!(names(place.path()), [""; 0]);
}

/// A copy was killed before it could give a link the name of what it replaces.
#[test]
fn links_of_a_partial_name_give_way() {
    let bytes = vec![1; 4000];
    for hard in [false, true] {
        let place = TempDir::new().unwrap();
        let partial = place.path().join(".a.lfn-partial");
        if hard {
            fs::write(place.path().join("other"), "whole").unwrap();
            fs::hard_link(place.path().join("other"), &partial).unwrap();
        } else {
            std::os::unix::fs::symlink("other", &partial).unwrap();
        }
        let mut copy = Copy::into(place.path());
        copy.list(vec![file("a", &bytes)]);
        copy.until("wants", |word| matches!(word, FromReceiver::Wants { up_to: 1 }).then_some(()));
        let mut stream = copy.stream();
        (0..4).for_each(|index| stream.write_all(&block(0, &bytes, index, false)).unwrap());
        copy.sent(0, &bytes);
        assert_eq!(copy.end().tally.failed, 0);
        assert_eq!(fs::read(place.path().join("a")).unwrap(), bytes);
        assert!(!partial.exists() && !partial.is_symlink());
        assert_eq!(fs::read(place.path().join("other")).ok(), hard.then(|| b"whole".to_vec()));
    }
}

/// It was killed after a name was given and before it had removed what is of no use then.
#[test]
fn what_a_copy_leaves_beside_what_has_its_name_goes() {
    let (bytes, place) = (vec![1; 4000], TempDir::new().unwrap());
    let entries = || vec![directory("d"), file("x", &bytes)];
    let mut copy = Copy::into(place.path());
    copy.list(entries());
    let mut stream = copy.stream();
    (0..4).for_each(|index| stream.write_all(&block(1, &bytes, index, false)).unwrap());
    copy.sent(1, &bytes);
    assert_eq!(copy.end().tally.failed, 0);
    fs::write(place.path().join(".d.lfn-replaced"), "what d took the place of").unwrap();
    fs::write(place.path().join(".x.lfn-journal"), "").unwrap();
    let mut copy = Copy::into(place.path());
    copy.list(entries());
    assert_eq!(copy.end().tally.skipped, 2);
    let mut all = names(place.path());
    all.sort();
    assert_eq!(all, ["d", "x"]);
}
