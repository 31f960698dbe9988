//! Tests of protocol violations by the sender, and of times without progress.

use lfn_session::wire::copy::FileBlocks;
use lfn_session::wire::copy::blockset::BlockSet;

use super::*;

fn error_of(copy: &mut TestCopy, message: SenderMessage) -> String {
    copy.receiver.on_message(message, Instant::now()).unwrap_err().to_string()
}

#[test]
fn messages_out_of_order_are_refused() {
    let temp = TempDir::new().unwrap();
    let mut copy = TestCopy::into(temp.path());
    let list = |first, count: u32| SenderMessage::List {
        first,
        entries: (0..count).map(|n| file(&n.to_string(), b"x")).collect(),
    };
    assert!(error_of(&mut copy, list(1, 1)).contains("skips entries"));
    assert!(error_of(&mut copy, list(0, MAX_PENDING_ENTRIES + 1)).contains("more pending entries"));
    let mut rich = TestCopy::into(temp.path());
    rich.receiver.streams.shut_down();
    let mut entry = file("rich", b"x");
    entry.xattrs = vec![Xattr { name: "user.a".into(), value: ByteString(vec![b'x'; 60_000]) }; 17];
    // The planner has stopped, so nothing is settled.
    let error = (0..40).find_map(|number| {
        let listed = rich
            .receiver
            .on_message(SenderMessage::List { first: number, entries: vec![entry.clone()] }, Instant::now());
        listed.err().map(|error| (number, error.to_string()))
    });
    let (number, error) = error.unwrap();
    assert!((25..=32).contains(&number) && error.contains("attributes than allowed"), "{number}: {error}");
    assert!(
        error_of(&mut copy, SenderMessage::Listed { entries: 1, bytes: Bytes(0), skipped: SkippedEntries::default() })
            .contains("complete")
    );
    copy.finish_list();
    assert!(error_of(&mut copy, list(0, 1)).contains("complete"));
    copy.receiver.close();
    let error_after = |bytes: &[u8], block: Vec<u8>| {
        let mut copy = TestCopy::into(temp.path());
        copy.list(vec![file("a", bytes)]);
        copy.finish_list();
        let mut stream = copy.open_stream();
        stream.write_all(&block).unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(error) = copy.receiver.streams.take_error() {
                copy.receiver.close();
                return error.to_string();
            }
            assert!(Instant::now() < deadline);
            thread::sleep(Duration::from_millis(1));
        }
    };
    let bytes = data(1, 3_000);
    assert!(error_after(&bytes, block(1, &bytes, 0, false)).contains("file 1, which is not listed"));
    assert!(error_after(&bytes[..2_500], block(0, &bytes, 2, false)).contains("not a block"));
    let twice = [block(0, &bytes, 1, false), block(0, &bytes, 1, false)].concat();
    assert!(error_after(&bytes, twice).contains("twice"));
    let long = BlockHeader {
        file: 0,
        offset: 0,
        length: u32::MAX,
        hash: BlockHash([0; 32]),
        hole: None,
        verify: Verify::Blake3,
    };
    assert!(error_after(&bytes, long.encode().to_vec()).contains("not a block"));
}

/// Each file takes memory, even without blocks.
#[test]
fn number_of_lost_blocks_is_bounded() {
    let mut copy = TestCopy::start(Destination::Null);
    let none = || vec![FileBlocks { file: 0, blocks: BlockSet::default() }; 16_384];
    let lost = || SenderMessage::Lost { stream: 7, blocks: none(), more: true, stalled: false };
    let refused = (0..64).find_map(|_| copy.receiver.on_message(lost(), Instant::now()).err());
    assert!(refused.unwrap().to_string().contains("more lost blocks"));
    copy.receiver.close();
}

#[test]
fn disk_sync_is_not_a_stall() {
    let temp = TempDir::new().unwrap();
    let mut copy = TestCopy::into(temp.path());
    let receiver = &mut copy.receiver;
    let deadline = Instant::now() + Duration::from_secs(30);
    while !receiver.should_be_moving() {
        assert!(Instant::now() < deadline, "with a list to come it waits for that");
    }
    let meter = receiver.streams.meter().clone();
    assert!(!meter.while_blocked(|| receiver.should_be_moving() || receiver.should_be_moving()));
    assert!(receiver.should_be_moving());
    receiver.close();
}

/// Returns the header of a hole.
fn hole(bytes: u64, block: Bytes, index: u64) -> [u8; BlockHeader::LENGTH] {
    let layout = Layout::new(Bytes(bytes), block).unwrap();
    let block = layout.block(index).unwrap();
    let hash = Verify::Blake3.hash(&layout, block, &vec![0; block.length as usize]);
    let (offset, length) = (block.offset, block.length);
    BlockHeader { file: 0, offset, length, hash, hole: Some(0), verify: Verify::Blake3 }.encode()
}

fn sparse(directory: &Path) -> Destination {
    let (base, preserve) = (BaseDir::Local, Preserve { sparse: true, ..Preserve::default() });
    Destination::Path {
        base,
        path: directory.into(),
        overwrite: OverwritePolicy::default(),
        single: false,
        preserve,
        write_only: None,
    }
}

#[test]
fn hole_is_counted_once() {
    let temp = TempDir::new().unwrap();
    let mut copy = TestCopy::start(sparse(temp.path()));
    copy.list(vec![file("a", &[0; 3_000])]);
    copy.finish_list();
    let mut stream = copy.open_stream();
    let streams = copy.receiver.streams.clone();
    (0..2).for_each(|index| stream.write_all(&hole(3_000, BLOCK, index)).unwrap());
    let bytes = [0; 3_000];
    stream.write_all(&block(0, &bytes, 2, false)).unwrap();
    copy.send_digest(0, &bytes);
    assert_eq!(copy.result().tally.files, 1);
    assert_eq!((streams.not_needed(), streams.progress().bytes), (Bytes(2_048), Bytes(952)));
}

/// One read returns all of them, and each takes long to process.
#[test]
fn queued_holes_are_dropped_at_the_end() {
    const MANY: u64 = 1_000;
    let (temp, block) = (TempDir::new().unwrap(), Bytes(16 << 20));
    let mut copy = TestCopy::with_block_size(
        sparse(temp.path()),
        TransferOptions { verify: Verify::Off, ..TransferOptions::default() },
        block,
    );
    copy.list(vec![entry("a", EntryKind::File { length: Bytes(MANY * block.0) })]);
    let mut stream = copy.open_stream();
    let header = |index: u64| {
        let (hash, offset, length) = (BlockHash([0; 32]), index * block.0, block.0 as u32);
        BlockHeader { file: 0, offset, length, hash, hole: Some(0), verify: Verify::Off }.encode()
    };
    stream.write_all(&(0..MANY).flat_map(header).collect::<Vec<_>>()).unwrap();
    let recorded = || {
        let journal = fs::read(temp.path().join(".a.lfn-journal")).unwrap_or_default();
        let line = journal.iter().position(|byte| *byte == b'\n').unwrap_or(journal.len());
        (journal.len() - line) / crate::proto::journal::RECORD_BYTES
    };
    let deadline = Instant::now() + Duration::from_secs(30);
    while recorded() == 0 {
        assert!(Instant::now() < deadline);
        thread::sleep(Duration::from_millis(1));
    }
    copy.receiver.close();
    let streams = copy.receiver.streams.len();
    assert!(streams == 0 && recorded() < MANY as usize, "{streams} streams, {} blocks", recorded());
}
