use std::collections::HashMap;

use lfn_session::wire::copy::digest::hash_block;
use proptest::prelude::*;

use super::*;

const BLOCK: u64 = 1024;

/// Actions of a receiver and a few streams.
#[derive(Debug, Clone)]
enum Act {
    List(Option<u64>),
    Assign(usize, usize),
    Hash,
    Done(usize),
    Have(u32, u64, u64),
    Resend(u32, u64),
    Settle(u32, u32),
    Fail(u32),
    Request(u32),
}

fn act() -> impl Strategy<Value = Act> {
    let length = prop_oneof![Just(0), 1..BLOCK, Just(BLOCK), BLOCK..9 * BLOCK];
    prop_oneof![
        4 => proptest::option::weighted(0.9, length).prop_map(Act::List),
        8 => (0usize..4, 0usize..4000).prop_map(|(stream, room)| Act::Assign(stream, room)),
        2 => Just(Act::Hash),
        8 => (0usize..4).prop_map(Act::Done),
        2 => (0u32..40, 0u64..9, 0u64..5).prop_map(|(file, first, more)| Act::Have(file, first, first + more)),
        2 => (0u32..40, 0u64..9).prop_map(|(file, index)| Act::Resend(file, index)),
        1 => (0u32..40, 0u32..4).prop_map(|(first, more)| Act::Settle(first, first + more)),
        1 => (0u32..40).prop_map(Act::Fail),
        2 => (0u32..40).prop_map(Act::Request),
    ]
}

/// Expected state, kept as simply as possible: the blocks of each unfinished file that wait to be sent or hashed.
#[derive(Default)]
struct Model {
    lengths: Vec<Option<u64>>,
    settled: BTreeSet<u32>,
    to_send: BTreeSet<(u32, u64)>,
    to_hash: BTreeSet<(u32, u64)>,
    hashed: HashMap<u32, BTreeSet<u64>>,
    requested: u32,
}

impl Model {
    fn blocks(&self, file: u32) -> Option<u64> {
        let length = self.lengths.get(file as usize)?;
        (!self.settled.contains(&file)).then(|| length.unwrap_or(0).div_ceil(BLOCK))
    }

    fn is_file(&self, file: u32) -> bool {
        self.lengths.get(file as usize).is_some_and(Option::is_some)
    }

    fn settle(&mut self, file: u32) {
        self.settled.insert(file);
        self.to_send.retain(|(other, _)| *other != file);
        self.to_hash.retain(|(other, _)| *other != file);
    }
}

fn data(file: u32, length: u64) -> Vec<u8> {
    (0..length).map(|i| (i / 7 + u64::from(file)) as u8).collect()
}

struct Trial {
    scheduler: BlockScheduler<u32>,
    model: Model,
    /// Assigned work of four streams and of one thread that only hashes.
    hands: Vec<Vec<BlockTask<u32>>>,
}

impl Trial {
    fn new(asks: bool) -> Self {
        let mut deck = BlockScheduler::new(Bytes(BLOCK));
        deck.set_wait_for_requests(asks);
        let model = Model { requested: if asks { 0 } else { u32::MAX }, ..Model::default() };
        Trial { scheduler: deck, model, hands: vec![Vec::new(); 5] }
    }

    fn act(&mut self, act: Act) -> Result<(), TestCaseError> {
        let Trial { scheduler: deck, model, hands } = self;
        let listed = model.lengths.len() as u32;
        match act {
            Act::List(length) => {
                let number = deck.add_entry(100, length.map(|length| (Bytes(length), listed * 3))).unwrap();
                prop_assert_eq!(number, listed);
                model.lengths.push(length);
                model.to_send.extend((0..length.unwrap_or(0).div_ceil(BLOCK)).map(|index| (number, index)));
            }
            Act::Assign(hand, room) if hands[hand].is_empty() => {
                let may: Vec<_> = model.to_send.iter().filter(|(f, _)| *f < model.requested).copied().collect();
                prop_assert_eq!(deck.has_blocks_to_send(), !may.is_empty());
                let pieces = deck.next_blocks(room, BlockFilter::ALL);
                prop_assert_eq!(pieces.is_empty(), may.is_empty());
                let dealt: Vec<_> = pieces.iter().map(|piece| (piece.file, piece.block.index)).collect();
                prop_assert!(may.starts_with(&dealt), "{:?} of {:?}", dealt, may);
                let bytes: usize = pieces.iter().map(|p| BlockHeader::LENGTH + p.block.length as usize).sum();
                prop_assert!(pieces.len() == 1 || bytes <= room);
                prop_assert!(pieces.len() == 1 || pieces.iter().all(|piece| piece.layout.blocks() == 1));
                prop_assert!(pieces.iter().all(|piece| piece.send && piece.source == piece.file * 3));
                dealt.iter().for_each(|block| assert!(model.to_send.remove(block)));
                hands[hand] = pieces;
            }
            Act::Hash if hands[4].is_empty() => {
                let piece = deck.next_hash_block();
                prop_assert_eq!(piece.is_none(), model.to_hash.is_empty());
                if let Some(piece) = piece {
                    prop_assert!(!piece.send && model.to_hash.remove(&(piece.file, piece.block.index)));
                    hands[4].push(piece);
                }
            }
            Act::Done(hand) => {
                // The hashing thread finishes together with the last stream.
                let both = if hand == 3 { vec![3, 4] } else { vec![hand] };
                let pieces = both.into_iter().flat_map(|hand| std::mem::take(&mut hands[hand])).collect::<Vec<_>>();
                pieces.iter().try_for_each(|piece| done(deck, model, piece))?;
            }
            Act::Have(file, first, last) => {
                let result = deck.skip_blocks(file, &BlockSet::from_range(first, last));
                prop_assert_eq!(result.is_ok(), is_consistent(model, file, last));
                for index in first..=last {
                    if result.is_ok() && model.to_send.remove(&(file, index)) {
                        model.to_hash.insert((file, index));
                    }
                }
            }
            Act::Resend(file, index) => {
                let result = deck.resend(file, index, index);
                prop_assert_eq!(result.is_ok(), is_consistent(model, file, index));
                if result.is_ok() && !model.settled.contains(&file) {
                    model.to_hash.remove(&(file, index));
                    model.to_send.insert((file, index));
                }
            }
            Act::Settle(first, last) => {
                let result = deck.settle(&BlockSet::from_range(first.into(), last.into()));
                prop_assert_eq!(result.is_ok(), last < listed);
                (first..=last).filter(|_| result.is_ok()).for_each(|file| model.settle(file));
            }
            Act::Fail(file) => {
                let result = deck.fail(file);
                prop_assert_eq!(result.ok(), (file < listed).then(|| !model.settled.contains(&file)));
                if file < listed {
                    model.settle(file);
                }
            }
            Act::Request(up_to) => {
                prop_assert_eq!(deck.request_up_to(up_to).is_ok(), up_to <= listed);
                if up_to <= listed {
                    model.requested = model.requested.max(up_to);
                }
            }
            Act::Assign(..) | Act::Hash => {}
        }
        let unsettled = model.lengths.len() - model.settled.len();
        prop_assert_eq!(deck.pending_entries(), unsettled);
        prop_assert_eq!((deck.pending_size.entries(), deck.pending_size.bytes()), (unsettled, 100 * unsettled));
        Ok(())
    }
}

fn is_consistent(model: &Model, file: u32, index: u64) -> bool {
    let listed = (file as usize) < model.lengths.len();
    listed && (model.settled.contains(&file) || model.is_file(file) && model.blocks(file).is_some_and(|n| index < n))
}

fn done(deck: &mut BlockScheduler<u32>, model: &mut Model, piece: &BlockTask<u32>) -> Result<(), TestCaseError> {
    let file = piece.file;
    let bytes = data(file, model.lengths[file as usize].unwrap());
    let block = &bytes[piece.block.offset as usize..][..piece.block.length as usize];
    let digest = deck.record_hash(piece, hash_block(&piece.layout, piece.block, block));
    let Some(blocks) = model.blocks(file) else {
        prop_assert_eq!(digest, None);
        return Ok(());
    };
    let hashed = model.hashed.entry(file).or_default();
    let last = hashed.insert(piece.block.index) && hashed.len() as u64 == blocks;
    let whole = Digest(*blake3::hash(&bytes).as_bytes());
    // A single block returns the digest each time. Of several blocks, only the last one does.
    prop_assert_eq!(digest, (last || blocks == 1).then_some(whole));
    Ok(())
}

proptest! {
    /// Streams run at any pace; the receiver has, requests, misses, finishes and fails any blocks. Each block is
    /// assigned once, in order, and again only on request. A block that the receiver has is hashed once. The digest is
    /// that of the source.
    #[test]
    fn every_block_is_assigned_once(asks: bool, acts in proptest::collection::vec(act(), 0..250)) {
        let mut trial = Trial::new(asks);
        for act in acts {
            trial.act(act)?;
        }
        // Finish: everything is requested, and four streams run until nothing is left.
        let listed = trial.model.lengths.len() as u32;
        trial.act(Act::Request(listed))?;
        for hand in (0..4).cycle() {
            trial.act(Act::Done(hand))?;
            trial.act(Act::Assign(hand, 3000))?;
            trial.act(Act::Hash)?;
            if trial.hands.iter().all(Vec::is_empty) {
                break;
            }
        }
        prop_assert!(trial.model.to_send.is_empty() && trial.model.to_hash.is_empty());
        for file in 0..listed {
            let blocks = trial.model.blocks(file).unwrap_or(0);
            prop_assert!(blocks == 0 || trial.model.hashed[&file].len() as u64 == blocks);
        }
        prop_assert!(!trial.scheduler.is_finished() && trial.scheduler.finish() == Err(ScheduleError::DoneBeforeListComplete));
        trial.scheduler.finish_list();
        prop_assert_eq!(trial.scheduler.is_finished(), trial.model.settled.len() == listed as usize);
        if let Some(last) = listed.checked_sub(1) {
            trial.scheduler.settle(&BlockSet::from_range(0, last.into())).unwrap();
        }
        prop_assert!(trial.scheduler.is_finished());
        prop_assert_eq!(trial.scheduler.skip_ranges, 0);
    }
}

#[test]
fn small_files_are_grouped() {
    let mut deck = BlockScheduler::new(Bytes(BLOCK));
    for length in [100, 0, 100, 3000, 100, 100] {
        deck.add_entry(0, Some((Bytes(length), ()))).unwrap();
    }
    let mut dealt = || -> Vec<(u32, u64)> {
        deck.next_blocks(1024, BlockFilter::ALL).iter().map(|piece| (piece.file, piece.block.index)).collect()
    };
    assert_eq!(dealt(), [(0, 0), (2, 0)]);
    assert_eq!([dealt(), dealt(), dealt()], [[(3, 0)], [(3, 1)], [(3, 2)]]);
    assert_eq!(dealt(), [(4, 0), (5, 0)]);
    assert_eq!(dealt(), []);
}

/// The first file waits until a started file finishes, and the started files wait for their lost blocks.
#[test]
fn lost_blocks_are_sent_while_file_limit_is_reached() {
    let mut deck = BlockScheduler::new(Bytes(BLOCK));
    deck.set_wait_for_requests(true);
    for number in 0..=MAX_OPEN_FILES as u32 {
        deck.add_entry(0, Some((Bytes(2 * BLOCK), number))).unwrap();
    }
    deck.finish_list();
    deck.digests_first(&BlockSet::from_range(0, 0)).unwrap();
    deck.request_up_to(MAX_OPEN_FILES as u32 + 1).unwrap();
    while !deck.next_blocks(BLOCK as usize, BlockFilter::ALL).is_empty() {}
    (1..=MAX_OPEN_FILES as u32).for_each(|file| deck.resend(file, 1, 1).unwrap());
    deck.send_files(&BlockSet::from_range(0, 0)).unwrap();
    let mut dealt = Vec::new();
    while deck.has_blocks_to_send() {
        let piece = &deck.next_blocks(BLOCK as usize, BlockFilter::ALL)[0];
        dealt.push(piece.file);
        if piece.file > 0 {
            deck.settle(&BlockSet::from_range(piece.file.into(), piece.file.into())).unwrap();
        }
    }
    let mut all = dealt.clone();
    all.sort_unstable();
    // As soon as one file finishes, the first file may start.
    assert_eq!(all, [vec![0, 0], (1..=MAX_OPEN_FILES as u32).collect()].concat(), "{dealt:?}");
}

#[test]
fn skip_ranges_are_limited() {
    let mut deck = BlockScheduler::new(Bytes(BLOCK));
    deck.add_entry(0, Some((Bytes(BLOCK << 21), ()))).unwrap();
    let every_second = |first: u64| (0..1 << 15).map(|n| first + 2 * n).collect::<BlockSet>();
    for part in 0..16 {
        deck.skip_blocks(0, &every_second(part << 16)).unwrap();
    }
    assert_eq!(deck.skip_ranges, MAX_SKIP_RANGES);
    deck.fail(0).unwrap();
    assert_eq!(deck.skip_ranges, 0);
    assert_eq!(deck.add_entry(0, Some((Bytes(u64::MAX), ()))), Err(LayoutError::File(Bytes(u64::MAX))));
}

#[test]
fn digest_is_compared_before_sending() {
    let mut deck = BlockScheduler::new(Bytes(BLOCK));
    deck.set_wait_for_requests(true);
    for (number, length) in [3 * BLOCK, 10, 20].into_iter().enumerate() {
        deck.add_entry(0, Some((Bytes(length), number as u32))).unwrap();
    }
    deck.finish_list();
    deck.digests_first(&BlockSet::from_range(0, 1)).unwrap();
    deck.request_up_to(3).unwrap();
    let digests = |deck: &mut BlockScheduler<u32>| {
        let mut digests = Vec::new();
        while let Some(piece) = deck.next_hash_block() {
            let bytes = &data(piece.file, 3 * BLOCK)[piece.block.offset as usize..][..piece.block.length as usize];
            let digest = deck.record_hash(&piece, hash_block(&piece.layout, piece.block, bytes));
            digests.extend(digest.map(|digest| (piece.file, digest)));
        }
        digests
    };
    // Files are not sent while their digests are compared.
    assert_eq!(deck.next_blocks(9000, BlockFilter::ALL).iter().map(|piece| piece.file).collect::<Vec<_>>(), [2]);
    assert!(
        deck.next_blocks(9000, BlockFilter::ALL).is_empty()
            && deck.is_digest_only(0)
            && deck.is_digest_only(1)
            && !deck.is_digest_only(2)
    );
    let expected = |file, length| (file, Digest(*blake3::hash(&data(file, length)).as_bytes()));
    assert_eq!(digests(&mut deck), [expected(0, 3 * BLOCK), expected(1, 10)]);
    // One of the two files differs at the receiver.
    deck.settle(&BlockSet::from_range(1, 1)).unwrap();
    deck.send_files(&BlockSet::from_range(0, 1)).unwrap();
    deck.send_files(&BlockSet::from_range(2, 2)).unwrap();
    assert!(!deck.is_digest_only(0));
    let mut sent = Vec::new();
    while let [piece] = deck.next_blocks(9000, BlockFilter::ALL).as_slice() {
        let bytes = &data(0, 3 * BLOCK)[piece.block.offset as usize..][..piece.block.length as usize];
        sent.push((piece.file, piece.block.index));
        let digest = deck.record_hash(piece, hash_block(&piece.layout, piece.block, bytes));
        assert_eq!(digest.is_some(), piece.block.index == 2);
    }
    assert_eq!(sent, [(0, 0), (0, 1), (0, 2)]);
    let unknown = BlockSet::from_range(0, 7);
    assert!(deck.digests_first(&unknown).is_err() && deck.send_files(&unknown).is_err());
}
