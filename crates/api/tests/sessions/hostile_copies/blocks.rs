//! Blocks and reports of lost blocks that are false, damaged or too many.

use std::fs;
use std::io::Write;

use lfn_base::units::Bytes;
use lfn_session::wire::RefusalCode;
use lfn_session::wire::copy::blocks::Layout;
use lfn_session::wire::copy::blockset::BlockSet;
use lfn_session::wire::copy::digest::{BlockHash, Digest, hash_block};
use lfn_session::wire::copy::options::Verify;
use lfn_session::wire::copy::overwrite::OverwritePolicy;
use lfn_session::wire::copy::preserve::Preserve;
use lfn_session::wire::copy::{BlockHeader, CopyJob, FileBlocks, ReceiverMessage, RemoteDestination, SenderMessage};
use lfn_session::{Control, DataStream};

use super::{BLOCK, CopyServer, TIMEOUT, block, file, finish, into, refusal, send};
use crate::support::list;

#[test]
fn false_headers_are_refused() {
    let served = CopyServer::new();
    let data = vec![7; 3000];
    let (good, _) = block(&data, 0);
    let violations: Vec<(&str, Vec<u8>, RefusalCode)> = vec![
        ("noise", vec![0xa5; 200], RefusalCode::BadMessage),
        ("another file", BlockHeader { file: 1, ..good }.encode().to_vec(), RefusalCode::BadMessage),
        ("beyond the end", BlockHeader { offset: 3 * BLOCK, ..good }.encode().to_vec(), RefusalCode::BadMessage),
        ("overflow", BlockHeader { offset: u64::MAX, ..good }.encode().to_vec(), RefusalCode::BadMessage),
        ("unaligned", BlockHeader { offset: 1, ..good }.encode().to_vec(), RefusalCode::BadMessage),
        ("too long", BlockHeader { length: u32::MAX, ..good }.encode().to_vec(), RefusalCode::BadMessage),
        ("empty", BlockHeader { length: 0, ..good }.encode().to_vec(), RefusalCode::BadMessage),
    ];
    for (what, bytes, code) in violations {
        let (mut control, mut streams) = served.put(3000);
        // The server may close the connection before it has read everything.
        let _ = streams[0].write_all(&bytes);
        let _ = streams[0].finish();
        assert_eq!(refusal(&mut control), code, "{what}");
    }
    served.assert_unharmed();
}

/// Hashes of blocks without neighbours are kept until the neighbours arrive. A sender that leaves gaps everywhere could
/// fill the memory of the server, with one header for each hole.
#[test]
fn number_of_tracked_gaps_is_bounded() {
    let served = CopyServer::new();
    let preserve = Preserve { sparse: true, ..Preserve::default() };
    let to = RemoteDestination::File { path: "a".into(), allowed: OverwritePolicy::default(), single: true, preserve };
    let (mut control, mut streams) = served.open_copy(CopyJob::Put { to }, 1, BLOCK);
    let layout = Layout::new(Bytes(1 << 30), Bytes(BLOCK)).unwrap();
    list(&mut control, &[file("x", 1 << 30)]);
    let zeros = [0; BLOCK as usize];
    for blocks in (0..layout.blocks()).step_by(2).take((1 << 18) + 1).collect::<Vec<_>>().chunks(512) {
        let headers = blocks.iter().flat_map(|index| {
            let block = layout.block(*index).unwrap();
            let (offset, length, hash) = (block.offset, block.length, hash_block(&layout, block, &zeros));
            BlockHeader { file: 0, offset, length, hash, hole: Some(0), verify: Verify::Blake3 }.encode()
        });
        // The server may have closed the stream.
        let _ = streams[0].write_all(&headers.collect::<Vec<_>>());
    }
    let (tally, failures) = finish(&mut control).unwrap();
    assert_eq!((tally.files, tally.failed), (0, 1));
    assert!(failures[0].reason.contains("non-contiguous blocks"), "{failures:?}");
    served.assert_unharmed();
}

#[test]
fn truncated_block_is_requested_again() {
    let served = CopyServer::new();
    let data = vec![7; 3000];
    let (mut control, mut streams) = served.put(3000);
    let write = |stream: &mut DataStream, index: u64, length: usize| {
        let (header, payload) = block(&data, index);
        stream.write_all(&header.encode()).unwrap();
        stream.write_all(&payload[..length.min(payload.len())]).unwrap();
    };
    write(&mut streams[1], 1, 1024);
    // In flight, block 1 would be missing too.
    wait_for_blocks(&mut control, 1, 1);
    write(&mut streams[0], 0, 1024);
    write(&mut streams[0], 2, 100);
    streams[0].finish().unwrap();
    assert_eq!(broken_stream(&mut control), 0);
    let all = FileBlocks { file: 0, blocks: BlockSet::from_range(0, 2) };
    control.send(&SenderMessage::Lost { stream: 0, blocks: vec![all], more: false, stalled: false }).unwrap();
    let missing = loop {
        if let ReceiverMessage::Missing { blocks } = control.recv(TIMEOUT, "in a test").unwrap() {
            break blocks;
        }
    };
    assert_eq!(missing, [FileBlocks { file: 0, blocks: BlockSet::from_range(2, 2) }]);
    write(&mut streams[1], 2, 1024);
    let digest = Digest(*blake3::hash(&data).as_bytes());
    control.send(&SenderMessage::Sent { file: 0, digest }).unwrap();
    assert_eq!(finish(&mut control).unwrap().0.files, 1);
    assert_eq!(fs::read(served.root.path().join("a")).unwrap(), data);
}

/// Waits for the report of a broken stream, and returns its number.
#[track_caller]
fn broken_stream(control: &mut Control) -> u16 {
    loop {
        if let ReceiverMessage::Broken { stream, .. } = control.recv(TIMEOUT, "in a test").unwrap() {
            return stream;
        }
    }
}

/// Waits until the server has accepted this number of blocks of a stream.
#[track_caller]
fn wait_for_blocks(control: &mut Control, stream: u16, blocks: u64) {
    let has_arrived = |message: &ReceiverMessage| match message {
        ReceiverMessage::Received { streams, .. } => {
            streams.iter().any(|received| (received.stream, received.blocks) == (stream, blocks))
        }
        _ => false,
    };
    while !has_arrived(&control.recv(TIMEOUT, "in a test").unwrap()) {}
}

#[test]
fn loss_of_an_unlisted_file_is_refused() {
    let served = CopyServer::new();
    let (mut control, _streams) = served.put(3000);
    control.send(&lost(5, 0)).unwrap();
    assert_eq!(refusal(&mut control), RefusalCode::BadMessage);
    served.assert_unharmed();
}

#[test]
fn lost_blocks_behind_the_end_are_ignored() {
    let served = CopyServer::new();
    let data = vec![7; 3000];
    let (mut control, mut streams) = served.put(3000);
    (0..3).for_each(|index| send(&mut streams[0], 0, &data, index, false));
    control.send(&lost(0, u64::MAX - 2)).unwrap();
    let digest = Digest(*blake3::hash(&data).as_bytes());
    control.send(&SenderMessage::Sent { file: 0, digest }).unwrap();
    assert_eq!(finish(&mut control).unwrap().0.files, 1);
    assert_eq!(fs::read(served.root.path().join("a")).unwrap(), data);
}

/// A block that is reported as lost many times is requested once.
#[test]
fn repeated_losses_need_little_memory() {
    let served = CopyServer::new();
    let (mut control, mut streams) = served.open_copy(into(true), 1, BLOCK);
    list(&mut control, &[file("x", 4000 * BLOCK)]);
    let data = vec![0; 4000 * BLOCK as usize];
    (0..4000).step_by(2).for_each(|index| send(&mut streams[0], 0, &data, index, true));
    wait_for_blocks(&mut control, 0, 2000);
    let part = FileBlocks { file: 0, blocks: BlockSet::from_range(0, 3999) };
    let blocks = vec![part; 500];
    control.send(&SenderMessage::Lost { stream: 77, blocks, more: false, stalled: false }).unwrap();
    let (mut requested, mut alive) = (0, 0);
    while alive < 3 {
        match control.recv(TIMEOUT, "in a test").unwrap() {
            ReceiverMessage::Missing { blocks } => {
                requested += blocks.iter().map(|part| part.blocks.len()).sum::<u64>();
            }
            ReceiverMessage::Alive(_) if requested > 0 => alive += 1,
            _ => {}
        }
    }
    assert_eq!(requested, 2000);
}

/// Reports that blocks 0 to `last` of a file are lost with stream 1.
fn lost(file: u32, last: u64) -> SenderMessage {
    let part = FileBlocks { file, blocks: BlockSet::from_range(0, last) };
    SenderMessage::Lost { stream: 1, blocks: vec![part], more: false, stalled: false }
}

#[test]
fn damaged_block_is_requested_again_at_most_10_times() {
    let served = CopyServer::new();
    let data = vec![7; 3000];
    let (good, payload) = block(&data, 0);
    let damaged = [&BlockHeader { hash: BlockHash([1; 32]), ..good }.encode()[..], &payload].concat();
    let (mut control, mut streams) = served.put(3000);
    let mut requests = 0;
    streams[0].write_all(&damaged).unwrap();
    let failure = loop {
        match control.recv(TIMEOUT, "in a test").unwrap() {
            ReceiverMessage::Resend { file: 0, index: 0 } => {
                requests += 1;
                streams[0].write_all(&damaged).unwrap();
            }
            ReceiverMessage::Failed(failure) => break failure,
            _ => {}
        }
    };
    assert!((1..10).contains(&requests), "{requests}");
    assert_eq!(failure.file, Some(0));
    assert_eq!(finish(&mut control).unwrap().0.failed, 1);
    served.assert_unharmed();
}

#[test]
fn false_digest_publishes_nothing() {
    let served = CopyServer::new();
    let data = vec![7; 3000];
    let (mut control, mut streams) = served.put(3000);
    for index in 0..3 {
        let (header, payload) = block(&data, index);
        streams[1].write_all(&header.encode()).unwrap();
        streams[1].write_all(&payload).unwrap();
    }
    control.send(&SenderMessage::Sent { file: 0, digest: Digest([0; 32]) }).unwrap();
    assert_eq!(finish(&mut control).unwrap().0.failed, 1);
    served.assert_unharmed();
}
