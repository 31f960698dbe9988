//! Tests of a receiver that writes to a storage in memory: no file system is involved.

use lfn_session::wire::copy::blocks::Subtree;
use lfn_session::wire::copy::digest::HashTree;

use super::*;
use crate::proto::zeros::{hash_zeros, split_hole};
use crate::storage::memory::MemoryStorage;

fn into_memory(storage: &MemoryStorage) -> Destination {
    let storage = Box::new(storage.clone());
    Destination::Opened { storage, overwrite: OverwritePolicy::default(), preserve: LINKS }
}

fn read_file(storage: &MemoryStorage, name: &str) -> Vec<u8> {
    let file = storage.open_file(&Name::new(name).unwrap()).unwrap();
    let mut bytes = vec![0; file.metadata().unwrap().length.0 as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

#[test]
fn tree_is_copied_into_memory() {
    let (storage, small, large) = (MemoryStorage::default(), data(1, 700), data(2, 3_000));
    let entries = || vec![directory("d"), file("d/small", &small), file("d/large", &large), link("d/l", "small")];
    let mut copy = TestCopy::start(into_memory(&storage));
    copy.list(entries());
    let mut stream = copy.open_stream();
    stream.write_all(&block(1, &small, 0, false)).unwrap();
    (0..3).for_each(|index| stream.write_all(&block(2, &large, index, false)).unwrap());
    copy.send_digest(2, &large);
    let tally = copy.finish().tally;
    assert_eq!((tally.directories, tally.files, tally.links, tally.failed), (1, 2, 1, 0));
    assert_eq!((read_file(&storage, "d/small"), read_file(&storage, "d/large")), (small.clone(), large.clone()));
    // The next copy finds everything up to date.
    let mut again = TestCopy::start(into_memory(&storage));
    again.list(entries());
    assert_eq!(again.finish().tally.skipped, 4);
}

fn into_sparse(storage: &MemoryStorage) -> Destination {
    let (storage, preserve) = (Box::new(storage.clone()), Preserve { sparse: true, ..LINKS });
    Destination::Opened { storage, overwrite: OverwritePolicy::default(), preserve }
}

/// Returns the header of a hole.
fn hole_header(layout: &Layout, hole: Subtree, verify: Verify) -> Vec<u8> {
    let (block, hash) = (layout.block(hole.first).unwrap(), hash_zeros(layout, verify, hole));
    let (offset, length, level) = (block.offset, block.length, hole.level as u8);
    BlockHeader { file: 0, offset, length, hash, hole: Some(level), verify }.encode().to_vec()
}

/// No byte of the hole is written, read or sent, and no block is handled by itself.
#[test]
fn hole_of_a_tebibyte_costs_nothing() {
    const LENGTH: u64 = 1 << 40;
    let (storage, block) = (MemoryStorage::default(), Bytes(1 << 20));
    let layout = Layout::new(Bytes(LENGTH), block).unwrap();
    let mut copy = TestCopy::with_block_size(into_sparse(&storage), TransferOptions::default(), block);
    copy.list(vec![entry("hole", EntryKind::File { length: Bytes(LENGTH) })]);
    let mut stream = copy.open_stream();
    let holes: Vec<Subtree> = split_hole(layout, Verify::Blake3, 0, layout.blocks() - 1).collect();
    assert_eq!(holes.len(), 2);
    let mut tree = HashTree::new(layout);
    for hole in holes {
        stream.write_all(&hole_header(&layout, hole, Verify::Blake3)).unwrap();
        assert!(tree.insert_subtree(hole, hash_zeros(&layout, Verify::Blake3, hole)));
    }
    let digest = tree.digest().unwrap();
    copy.receiver.on_message(SenderMessage::Sent { file: 0, digest }, Instant::now()).unwrap();
    let streams = copy.receiver.streams.clone();
    assert_eq!(copy.finish().tally.files, 1);
    assert_eq!((streams.not_needed(), streams.progress().bytes), (Bytes(LENGTH), Bytes(0)));
    let file = storage.open_file(&Name::new("hole").unwrap()).unwrap();
    assert_eq!((file.metadata().unwrap().length, file.next_data(0).unwrap()), (Bytes(LENGTH), None));
}

/// A hole fills exactly the blocks that are missing, whether they arrived, exist, or are claimed.
#[test]
fn hole_meets_blocks_of_an_earlier_copy() {
    let (storage, mut bytes) = (MemoryStorage::default(), data(2, 9 * 1_024 + 100));
    bytes[..8 * 1_024].fill(0);
    let layout = Layout::new(Bytes(bytes.len() as u64), BLOCK).unwrap();
    let mut copy = TestCopy::start(into_sparse(&storage));
    copy.list(vec![file("a", &bytes)]);
    let mut stream = copy.open_stream();
    stream.write_all(&block(0, &bytes, 3, false)).unwrap();
    stream.write_all(&hole_header(&layout, Subtree { first: 4, level: 2 }, Verify::Blake3)).unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while copy.receiver.streams.not_needed() < Bytes(4_096) || copy.receiver.streams.meter().is_delayed() {
        assert!(Instant::now() < deadline);
        thread::sleep(Duration::from_millis(1));
    }
    copy.receiver.close();
    let mut again = TestCopy::start(into_sparse(&storage));
    again.list(vec![file("a", &bytes)]);
    let kept = again.resumed_blocks(0);
    assert_eq!(kept, [3, 4, 5, 6, 7]);
    let mut stream = again.open_stream();
    // The sender does not know yet which blocks exist.
    stream.write_all(&hole_header(&layout, Subtree { first: 0, level: 3 }, Verify::Blake3)).unwrap();
    (8..10).for_each(|index| stream.write_all(&block(0, &bytes, index, false)).unwrap());
    again.send_digest(0, &bytes);
    let tally = again.finish().tally;
    assert_eq!((tally.files, tally.resumed_bytes), (1, Bytes(5 * 1_024)));
    assert!(read_file(&storage, "a") == bytes);
}

#[test]
fn invalid_holes_are_refused() {
    let bytes = vec![0; 10 * 1_024];
    let layout = Layout::new(Bytes(bytes.len() as u64), BLOCK).unwrap();
    let valid = Subtree { first: 4, level: 2 };
    let with = |change: &dyn Fn(&mut BlockHeader)| {
        let mut header: [u8; BlockHeader::LENGTH] = hole_header(&layout, valid, Verify::Blake3).try_into().unwrap();
        let mut decoded = BlockHeader::decode(&header).unwrap();
        change(&mut decoded);
        header = decoded.encode();
        let mut copy = TestCopy::start(into_sparse(&MemoryStorage::default()));
        copy.list(vec![file("a", &bytes)]);
        copy.finish_list();
        copy.open_stream().write_all(&header).unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let failed = copy.receiver.take_messages(Instant::now()).into_iter().find_map(|message| match message {
                ReceiverMessage::Failed(failure) => Some(failure.reason),
                _ => None,
            });
            if let Some(error) = failed.or_else(|| Some(copy.receiver.streams.take_error()?.to_string())) {
                copy.receiver.close();
                return error;
            }
            assert!(Instant::now() < deadline);
            thread::sleep(Duration::from_millis(1));
        }
    };
    for level in [3, 4, 53, 63, 64, 255] {
        assert!(with(&|header| header.hole = Some(level)).contains("not a block"), "{level}");
    }
    assert!(with(&|header| header.offset = 5 * 1_024).contains("not a block"));
    assert!(with(&|header| header.length = 1_000).contains("not a block"));
    assert!(with(&|header| header.hash.0[0] ^= 1).contains("not that of zeros"));
}

#[test]
fn interrupted_copy_into_memory_resumes() {
    let (storage, large) = (MemoryStorage::default(), data(2, 3_000));
    let mut copy = TestCopy::start(into_memory(&storage));
    copy.list(vec![file("large", &large)]);
    let mut stream = copy.open_stream();
    (0..2).for_each(|index| stream.write_all(&block(0, &large, index, false)).unwrap());
    let deadline = Instant::now() + Duration::from_secs(30);
    while copy.receiver.streams.progress().bytes < Bytes(2_048) || copy.receiver.streams.meter().is_delayed() {
        assert!(Instant::now() < deadline);
        thread::sleep(Duration::from_millis(1));
    }
    copy.receiver.close();
    let mut again = TestCopy::start(into_memory(&storage));
    again.list(vec![file("large", &large)]);
    let kept = again.resumed_blocks(0);
    let mut stream = again.open_stream();
    (0..3).filter(|index| !kept.contains(index)).for_each(|index| {
        stream.write_all(&block(0, &large, index, false)).unwrap();
    });
    again.send_digest(0, &large);
    assert_eq!(again.finish().tally.files, 1);
    assert!(!kept.is_empty() && read_file(&storage, "large") == large);
}
