//! What a sender may not do, and when a receiver need not move.

use lfn_core::transfer::blockset::BlockSet;
use lfn_core::wire::copy::Part;

use super::*;

#[test]
fn a_sender_that_does_not_keep_to_the_order_is_refused() {
    let place = TempDir::new().unwrap();
    let copy = Copy::into(place.path());
    let said = |message| copy.receiving.heard(message).unwrap_err().to_string();
    let list = |first, count: u32| FromSender::List {
        first,
        entries: (0..count).map(|n| file(&n.to_string(), b"x")).collect(),
    };
    assert!(said(list(1, 1)).contains("leaves out"));
    assert!(said(list(0, MOST_UNSETTLED + 1)).contains("may wait"));
    let rich = Copy::into(place.path());
    rich.receiving.flow.cut();
    let mut entry = file("rich", b"x");
    entry.xattrs = vec![Xattr { name: "user.a".into(), value: Raw(vec![b'x'; 60_000]) }; 17];
    // The register has stopped: nothing is settled.
    let error = (0..40).find_map(|number| {
        let listed = rich.receiving.heard(FromSender::List { first: number, entries: vec![entry.clone()] });
        listed.err().map(|error| (number, error.to_string()))
    });
    let (number, error) = error.unwrap();
    assert!((25..=32).contains(&number) && error.contains("attributes than may wait"), "{number}: {error}");
    assert!(
        said(FromSender::Listed { entries: 1, bytes: Bytes(0), left_out: LeftOut::default() }).contains("complete")
    );
    copy.listed();
    assert!(said(list(0, 1)).contains("complete"));
    copy.receiving.close();
    let broken = |bytes: &[u8], block: Vec<u8>| {
        let mut copy = Copy::into(place.path());
        copy.list(vec![file("a", bytes)]);
        copy.listed();
        let mut stream = copy.stream();
        stream.write_all(&block).unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(error) = copy.receiving.flow.take_failure() {
                copy.receiving.close();
                return error.to_string();
            }
            assert!(Instant::now() < deadline);
            thread::sleep(Duration::from_millis(1));
        }
    };
    let bytes = data(1, 3_000);
    assert!(broken(&bytes, block(1, &bytes, 0, false)).contains("file 1, which is not listed"));
    assert!(broken(&bytes[..2_500], block(0, &bytes, 2, false)).contains("no block"));
    let twice = [block(0, &bytes, 1, false), block(0, &bytes, 1, false)].concat();
    assert!(broken(&bytes, twice).contains("twice"));
    let long = BlockHeader {
        file: 0,
        offset: 0,
        length: u32::MAX,
        hash: BlockHash([0; 32]),
        hole: false,
        verify: Verify::Blake3,
    };
    assert!(broken(&bytes, long.encode().to_vec()).contains("no block"));
}

/// Each file takes room, though no block of it is named.
#[test]
fn what_may_be_lost_is_bounded() {
    let copy = Copy::start(Aim::Null);
    let none = || vec![Part { file: 0, blocks: BlockSet::default() }; 16_384];
    let lost = || FromSender::Lost { stream: 7, blocks: none(), more: true, stalled: false };
    let refused = (0..64).find_map(|_| copy.receiving.heard(lost()).err());
    assert!(refused.unwrap().to_string().contains("more was lost"));
    copy.receiving.close();
}

#[test]
fn while_a_disk_syncs_nothing_has_to_move() {
    let place = TempDir::new().unwrap();
    let copy = Copy::into(place.path());
    let receiving = &copy.receiving;
    let deadline = Instant::now() + Duration::from_secs(30);
    while !receiving.moving() {
        assert!(Instant::now() < deadline, "with a list to come it waits for that");
    }
    assert!(!receiving.while_busy(|| receiving.moving() || receiving.moving()));
    assert!(receiving.moving());
    receiving.close();
}

/// A header of zeros that are not sent, in a file of so many blocks.
fn hole(bytes: u64, block: Bytes, index: u64) -> [u8; BlockHeader::LENGTH] {
    let layout = Layout::new(Bytes(bytes), block).unwrap();
    let block = layout.block(index).unwrap();
    let hash = Verify::Blake3.hash(&layout, block, &vec![0; block.length as usize]);
    let (offset, length) = (block.offset, block.length);
    BlockHeader { file: 0, offset, length, hash, hole: true, verify: Verify::Blake3 }.encode()
}

fn sparse(directory: &Path) -> Aim {
    let (base, keep) = (Base::Here, Keep { sparse: true, ..Keep::default() });
    Aim::Path { base, path: directory.into(), allowed: Allowed::default(), single: false, keep }
}

#[test]
fn a_hole_is_passed_over_once() {
    let place = TempDir::new().unwrap();
    let mut copy = Copy::start(sparse(place.path()));
    copy.list(vec![file("a", &[0; 3_000])]);
    copy.listed();
    let mut stream = copy.stream();
    let receiving = copy.receiving.clone();
    (0..2).for_each(|index| stream.write_all(&hole(3_000, BLOCK, index)).unwrap());
    let bytes = [0; 3_000];
    stream.write_all(&block(0, &bytes, 2, false)).unwrap();
    copy.sent(0, &bytes);
    assert_eq!(copy.ended().tally.files, 1);
    assert_eq!((receiving.listed().passed, receiving.flow.progress().bytes), (Bytes(2_048), Bytes(952)));
}

/// One read brings all of them, and each takes long to look through.
#[test]
fn holes_that_came_are_not_worked_off_when_the_copy_is_over() {
    const MANY: u64 = 1_000;
    let (place, block) = (TempDir::new().unwrap(), Bytes(16 << 20));
    let mut copy = Copy::in_blocks(sparse(place.path()), Manner { verify: Verify::Off, ..Manner::default() }, block);
    copy.list(vec![entry("a", Kind::File { length: Bytes(MANY * block.0) })]);
    let mut stream = copy.stream();
    let header = |index: u64| {
        let (hash, offset, length) = (BlockHash([0; 32]), index * block.0, block.0 as u32);
        BlockHeader { file: 0, offset, length, hash, hole: true, verify: Verify::Off }.encode()
    };
    stream.write_all(&(0..MANY).flat_map(header).collect::<Vec<_>>()).unwrap();
    let noted = || {
        let journal = fs::read(place.path().join(".a.lfn-journal")).unwrap_or_default();
        let line = journal.iter().position(|byte| *byte == b'\n').unwrap_or(journal.len());
        (journal.len() - line) / lfn_core::transfer::journal::RECORD
    };
    let deadline = Instant::now() + Duration::from_secs(30);
    while noted() == 0 {
        assert!(Instant::now() < deadline);
        thread::sleep(Duration::from_millis(1));
    }
    copy.receiving.close();
    let threads = copy.receiving.threads.load(Ordering::SeqCst);
    assert!(threads == 0 && noted() < MANY as usize, "{threads} threads, {} blocks", noted());
}
