use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{fs, thread};

use lfn_session::DataStream;
use lfn_session::transport::Stream;
use lfn_session::transport::tcp::pair;
use lfn_session::wire::copy::blockset::BlockSet;
use lfn_session::wire::copy::digest::hash_block;
use lfn_session::wire::copy::entry::{Entry, EntryKind};
use lfn_session::wire::copy::options::Verify;
use lfn_session::wire::copy::preserve::Preserve;
use lfn_session::wire::copy::{
    BlockHeader, CopyTally, EntryFailure, FileBlocks, MAX_PENDING_BYTES, MAX_PENDING_ENTRIES,
};
use tempfile::TempDir;

use super::*;
use crate::base_dir::BaseDir;
use crate::storage::holes::digest_of;
use crate::work_meter::WorkMeter;

/// Blocks that a stream carried.
type ReceivedBlocks = Vec<(BlockHeader, Vec<u8>)>;

/// Payloads of each file, by the index of the block.
type ReceivedFiles = HashMap<u32, BTreeMap<u64, Vec<Vec<u8>>>>;

const BLOCK: Bytes = Bytes(16 << 10);

/// A receiver that keeps all messages and blocks.
struct TestReceiver {
    sender: Sender,
    streams: Vec<JoinHandle<ReceivedBlocks>>,
    entries: Vec<Entry>,
    listed: bool,
    sent: HashMap<u32, Digest>,
    compared: HashMap<u32, Digest>,
    excluded: Vec<lfn_session::wire::copy::entry::Name>,
    failed: Vec<EntryFailure>,
}

impl TestReceiver {
    fn new(sources: Vec<Source>, wait: bool, streams: u16) -> TestReceiver {
        TestReceiver::with_preserve(sources, Preserve { links: true, ..Preserve::default() }, wait, streams)
    }

    fn with_preserve(sources: Vec<Source>, preserve: Preserve, wait: bool, streams: u16) -> TestReceiver {
        let listing = Listing { preserve, wait_for_ready: wait, ..Listing::default() };
        let sender = Sender::start(sources, listing, BLOCK, StreamSet::default()).unwrap();
        let streams = (0..streams).map(|number| open_stream(&sender, number)).collect();
        let (entries, sent, compared, excluded, failed) = Default::default();
        TestReceiver { sender, streams, entries, listed: false, sent, compared, excluded, failed }
    }

    fn of_path(path: &Path, wait: bool) -> TestReceiver {
        TestReceiver::new(vec![Source::File { base: Arc::new(BaseDir::Local), path: path.into() }], wait, 2)
    }

    /// Receives messages until `enough` is true.
    #[track_caller]
    fn wait_until(&mut self, mut enough: impl FnMut(&mut TestReceiver) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !enough(self) {
            assert!(Instant::now() < deadline, "{} entries, {:?}, {:?}", self.entries.len(), self.sent, self.failed);
            thread::sleep(Duration::from_millis(1));
            for message in self.sender.take_messages(Instant::now()) {
                self.receive(message);
            }
        }
    }

    fn receive(&mut self, message: SenderMessage) {
        match message {
            SenderMessage::List { first, entries } => {
                assert!(!self.listed && first as usize == self.entries.len());
                self.entries.extend(entries);
            }
            SenderMessage::Listed { entries, bytes, .. } => {
                let length = |entry: &Entry| if let EntryKind::File { length } = entry.kind { length.0 } else { 0 };
                let sum = self.entries.iter().map(length).sum();
                assert_eq!((entries as usize, bytes), (self.entries.len(), Bytes(sum)));
                self.listed = true;
            }
            SenderMessage::Sent { file, digest } => assert!(self.sent.insert(file, digest).is_none()),
            SenderMessage::Failed(failure) | SenderMessage::Changed(failure) => self.failed.push(failure),
            SenderMessage::Digest { file, digest } => assert!(self.compared.insert(file, digest).is_none()),
            SenderMessage::Excluded { names } => self.excluded.extend(names),
            SenderMessage::Alive(_) | SenderMessage::Lost { .. } => {}
            other => panic!("a message for ranks: {other:?}"),
        }
    }

    fn send(&mut self, message: ReceiverMessage) {
        self.sender.on_message(message, Instant::now()).unwrap();
    }

    fn number(&self, name: &str) -> u32 {
        self.entries.iter().position(|entry| entry.name.as_bytes() == name.as_bytes()).unwrap() as u32
    }

    /// Settles everything, and returns the received blocks.
    fn finish(mut self) -> (ReceivedFiles, CopyResult) {
        let last = self.entries.len() as u64 - 1;
        self.send(ReceiverMessage::Settled { files: BlockSet::from_range(0, last) });
        let mut files = ReceivedFiles::new();
        // The streams end by themselves, because everything is settled.
        for (header, payload) in std::mem::take(&mut self.streams).into_iter().flat_map(|s| s.join().unwrap()) {
            let EntryKind::File { length } = self.entries[header.file as usize].kind else { panic!("{header:?}") };
            let layout = Layout::new(length, BLOCK).unwrap();
            let block = layout.block_at(header.offset, header.length).unwrap();
            assert_eq!(hash_block(&layout, block, &payload), header.hash);
            files.entry(header.file).or_default().entry(block.index).or_default().push(payload);
        }
        assert!(!self.sender.should_be_moving() && self.sender.result().is_none());
        let done = ReceiverMessage::Done { progress: Box::default(), tally: CopyTally::default() };
        self.send(done);
        let result = self.sender.result().unwrap();
        (files, result)
    }
}

/// Opens a stream of `sender`, and reads the stream to its end.
fn open_stream(sender: &Sender, number: u16) -> JoinHandle<ReceivedBlocks> {
    let (local, mut remote) = pair();
    remote.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let worker = sender.stream_worker();
    thread::spawn(move || worker(DataStream::clear(number, Box::new(local))));
    thread::spawn(move || {
        let mut blocks = Vec::new();
        let mut header = [0; BlockHeader::LENGTH];
        loop {
            match remote.read_exact(&mut header) {
                Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => break,
                read => read.unwrap(),
            }
            let header = BlockHeader::decode(&header).unwrap();
            let length = if header.hole.is_some() { 0 } else { header.length };
            let mut payload = vec![0; length as usize];
            remote.read_exact(&mut payload).unwrap();
            blocks.push((header, payload));
        }
        blocks
    })
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 3 + at / 1021 + length) as u8).collect()
}

/// Creates directory `d` with small and large files.
fn create_tree() -> TempDir {
    let home = TempDir::new().unwrap();
    fs::create_dir_all(home.path().join("d/small")).unwrap();
    for number in 0..200 {
        fs::write(home.path().join(format!("d/small/{number}")), bytes(number * 11)).unwrap();
    }
    for (name, length) in [("large", 1_000_001), ("other", 65_536)] {
        fs::write(home.path().join("d").join(name), bytes(length)).unwrap();
    }
    home
}

fn joined(blocks: &BTreeMap<u64, Vec<Vec<u8>>>) -> Vec<u8> {
    assert!(blocks.values().all(|payloads| payloads.len() == 1));
    blocks.values().flatten().flatten().copied().collect()
}

fn digest(bytes: &[u8]) -> Digest {
    Digest(*blake3::hash(bytes).as_bytes())
}

#[test]
fn tree_is_sent_completely_and_once() {
    let home = create_tree();
    let mut receiver = TestReceiver::of_path(&home.path().join("d"), false);
    receiver.wait_until(|receiver| receiver.listed && receiver.sent.len() == 2);
    receiver.send(ReceiverMessage::Ready {
        path: Some("there".into()),
        on_request: false,
        started_at: None,
        destination: None,
    });
    assert_eq!(receiver.sent[&receiver.number("d/large")], digest(&bytes(1_000_001)));
    assert_eq!(receiver.failed, []);
    // Files of one block need no `Sent` message.
    receiver.wait_until(|receiver| receiver.sender.streams().progress().bytes == receiver.sender.listed().bytes);
    let entries = receiver.entries.clone();
    let (files, result) = receiver.finish();
    assert_eq!(entries.len(), 204);
    for (number, entry) in (0..).zip(&entries) {
        let EntryKind::File { length } = entry.kind else { continue };
        let received = files.get(&number).map(joined).unwrap_or_default();
        assert!(received == bytes(length.0 as usize), "{}", entry.name);
    }
    assert_eq!((result.path.as_deref(), result.digest), (Some("there"), None));
}

/// Two streams send the hole in a few headers, and a lost stream does not cause more of them.
#[test]
fn hole_of_a_tebibyte_is_sent_in_few_headers() {
    const LENGTH: u64 = (1 << 40) + 5;
    let home = TempDir::new().unwrap();
    let path = home.path().join("sparse");
    let file = fs::File::options().create_new(true).read(true).write(true).open(&path).unwrap();
    file.set_len(LENGTH).unwrap();
    file.write_all_at(b"data", 1 << 30).unwrap();
    let preserve = Preserve { sparse: true, ..Preserve::default() };
    let source = Source::File { base: Arc::new(BaseDir::Local), path };
    let mut receiver = TestReceiver::with_preserve(vec![source], preserve, false, 2);
    let layout = Layout::new(Bytes(LENGTH), BLOCK).unwrap();
    receiver.wait_until(|receiver| receiver.sent.contains_key(&0));
    let all = BlockSet::from_range(0, layout.blocks() - 1);
    receiver.send(ReceiverMessage::Missing { blocks: vec![FileBlocks { file: 0, blocks: all }] });
    receiver.wait_until(|receiver| !receiver.sender.should_be_moving());
    let expected = digest_of(&file, layout, Verify::Blake3, &WorkMeter::default()).unwrap();
    assert_eq!(receiver.sent.get(&0).copied(), expected);
    receiver.send(ReceiverMessage::Settled { files: BlockSet::from_range(0, 0) });
    let sent: Vec<_> = receiver.streams.drain(..).flat_map(|stream| stream.join().unwrap()).collect();
    assert!(sent.len() < 400, "{} headers", sent.len());
    let mut bytes = 0;
    for (header, payload) in sent {
        let level = header.hole.map_or(0, u32::from);
        let subtree = layout.subtree_at(header.offset, header.length, level).unwrap();
        bytes += layout.subtree_bytes(subtree);
        let is_data = header.offset == 1 << 30;
        assert!(is_data == header.hole.is_none() && is_data == payload.starts_with(b"data"), "{header:?}");
    }
    assert_eq!(bytes, 2 * LENGTH);
}

#[test]
fn existing_blocks_are_skipped_and_missing_ones_resent() {
    let home = create_tree();
    let mut receiver = TestReceiver::of_path(&home.path().join("d"), true);
    receiver.wait_until(|receiver| receiver.listed);
    receiver.send(ReceiverMessage::Ready { path: None, on_request: true, started_at: None, destination: None });
    let (large, other, small) = (receiver.number("d/large"), receiver.number("d/other"), receiver.number("d/small/7"));
    receiver.send(ReceiverMessage::Have { file: large, blocks: [0, 1, 2, 40].into_iter().collect() });
    receiver.send(ReceiverMessage::Settled { files: BlockSet::from_range(other.into(), other.into()) });
    thread::sleep(Duration::from_millis(30));
    assert_eq!(receiver.sender.streams().progress().bytes, Bytes(0), "no block is requested yet");
    assert!(!receiver.sender.should_be_moving());
    receiver.send(ReceiverMessage::Request { up_to: small + 1 });
    // The sender reads the whole file, although it does not send all blocks.
    receiver.wait_until(|receiver| receiver.sent.contains_key(&large));
    assert_eq!(receiver.sent[&large], digest(&bytes(1_000_001)));
    // Wait until all blocks are sent.
    receiver.wait_until(|receiver| !receiver.sender.should_be_moving());
    for (file, index) in [(large, 5), (small, 0)] {
        receiver.send(ReceiverMessage::Resend { file, index });
    }
    let before = small + 1;
    let entries = receiver.entries.clone();
    receiver.wait_until(|receiver| !receiver.sender.should_be_moving());
    let (files, _) = receiver.finish();
    assert_eq!(files[&large].keys().copied().collect::<Vec<_>>(), (3..62).filter(|n| *n != 40).collect::<Vec<_>>());
    assert!(files[&large].iter().all(|(index, payloads)| payloads.len() == if *index == 5 { 2 } else { 1 }));
    assert_eq!(files[&small][&0], [bytes(77), bytes(77)]);
    assert!(!files.contains_key(&other) && files.keys().all(|file| *file < before));
    let wanted =
        (0..before).zip(&entries).filter(|(_, e)| matches!(e.kind, EntryKind::File { length } if length.0 > 0));
    assert_eq!(files.len(), wanted.count() - 1, "all requested files except the settled one");
}

#[test]
fn changed_sources_fail_and_the_others_continue() {
    let home = create_tree();
    let at = |name: &str| home.path().join("d").join(name);
    fs::create_dir(at("swapped")).unwrap();
    fs::write(at("swapped/f"), bytes(100)).unwrap();
    let mut receiver = TestReceiver::of_path(&at(""), true);
    receiver.wait_until(|receiver| receiver.listed);
    fs::File::options().write(true).open(at("large")).unwrap().set_len(500_000).unwrap();
    fs::write(at("small/5"), bytes(56)).unwrap();
    fs::remove_file(at("small/6")).unwrap();
    fs::rename(at("other"), at("small/6")).unwrap();
    // The file exists behind a link to its new directory. The link must not be followed.
    fs::rename(at("swapped"), home.path().join("away")).unwrap();
    symlink(home.path().join("away"), at("swapped")).unwrap();
    receiver.send(ReceiverMessage::Ready { path: None, on_request: false, started_at: None, destination: None });
    receiver.wait_until(|receiver| receiver.failed.len() == 5 && !receiver.sender.should_be_moving());
    let mut failed: Vec<_> = receiver.failed.iter().map(|f| (f.name.to_string(), f.reason.as_str())).collect();
    failed.sort();
    let names = ["large", "other", "small/5", "small/6", "swapped/f"];
    assert_eq!(failed, names.map(|name| (name.to_owned(), "changed during the copy")));
    assert!(receiver.failed.iter().all(|f| f.file == Some(receiver.number(&f.name.to_string()))));
    assert!(receiver.sent.is_empty());
    let (wrong, right) = (names.map(|name| receiver.number(name)), receiver.number("small/199"));
    let (files, result) = receiver.finish();
    assert!(wrong.iter().all(|number| !files.contains_key(number)));
    assert_eq!((joined(&files[&right]), files.len(), result.failures.len()), (bytes(199 * 11), 197, 5));
}

#[test]
fn blocks_of_a_replaced_file_are_not_mixed() {
    let home = create_tree();
    let large = home.path().join("d/large");
    let mut receiver = TestReceiver::of_path(&large, false);
    receiver.wait_until(|receiver| receiver.listed && receiver.sent.len() == 1);
    let other = home.path().join("other");
    fs::write(&other, vec![0; 1_000_001]).unwrap();
    let modified = fs::metadata(&large).unwrap().modified().unwrap();
    fs::File::options().write(true).open(&other).unwrap().set_modified(modified).unwrap();
    fs::rename(&other, &large).unwrap();
    receiver.send(ReceiverMessage::Resend { file: 0, index: 3 });
    receiver.wait_until(|receiver| receiver.failed.len() == 1);
    assert_eq!((receiver.failed[0].file, receiver.failed[0].reason.as_str()), (Some(0), "changed during the copy"));
    let (files, _) = receiver.finish();
    assert_eq!(joined(&files[&0]), bytes(1_000_001));
}

#[test]
fn number_of_pending_entries_is_bounded() {
    let sources = (0..MAX_PENDING_ENTRIES + 10).map(|_| Source::Zero { bytes: Bytes(0) }).collect();
    let mut receiver = TestReceiver::new(sources, false, 1);
    receiver.wait_until(|receiver| receiver.entries.len() == MAX_PENDING_ENTRIES as usize);
    thread::sleep(Duration::from_millis(30));
    assert_eq!(receiver.sender.take_messages(Instant::now()), []);
    receiver.send(ReceiverMessage::Settled { files: [0, 5, 6].into_iter().collect() });
    receiver.wait_until(|receiver| receiver.entries.len() == MAX_PENDING_ENTRIES as usize + 3);
    thread::sleep(Duration::from_millis(30));
    assert_eq!(receiver.sender.take_messages(Instant::now()), []);
    receiver.send(ReceiverMessage::Settled { files: BlockSet::from_range(0, 100) });
    receiver.wait_until(|receiver| receiver.listed);
    let count = u64::from(MAX_PENDING_ENTRIES) + 10;
    assert_eq!(
        receiver.sender.listed(),
        ListedTotals { entries: count, finished: 101, complete: true, ..ListedTotals::default() }
    );
    receiver.finish();
}

#[test]
fn size_of_pending_entries_is_bounded() {
    let home = TempDir::new().unwrap();
    let deep = home.path().join("t").join(vec!["n".repeat(250); 14].join("/"));
    fs::create_dir_all(&deep).unwrap();
    let count = MAX_PENDING_BYTES / 3514;
    (0..count + 500).for_each(|n| fs::write(deep.join(format!("{n:06}")), []).unwrap());
    let mut receiver = TestReceiver::of_path(&home.path().join("t"), false);
    let weight = |receiver: &TestReceiver| receiver.entries.iter().map(Entry::weight).sum::<usize>();
    receiver.wait_until(|receiver| weight(receiver) + 4096 > MAX_PENDING_BYTES);
    thread::sleep(Duration::from_millis(30));
    assert_eq!(receiver.sender.take_messages(Instant::now()), []);
    let before = receiver.entries.len();
    assert!(weight(&receiver) <= MAX_PENDING_BYTES && before < count + 15, "{before}");
    // Settling one file frees enough room for one file.
    receiver.send(ReceiverMessage::Settled { files: BlockSet::from_range(20, 20) });
    receiver.wait_until(|receiver| receiver.entries.len() == before + 1);
    receiver.send(ReceiverMessage::Settled { files: BlockSet::from_range(0, before as u64) });
    receiver.wait_until(|receiver| receiver.listed);
    assert_eq!(receiver.entries.len(), count + 500 + 15);
}

#[test]
fn single_generated_file_has_a_digest() {
    for length in [0, 1, 16 << 10, 100_000] {
        let mut receiver = TestReceiver::new(vec![Source::Random { seed: 3, bytes: Bytes(length) }], false, 2);
        receiver.wait_until(|receiver| {
            receiver.listed
                && !receiver.sender.should_be_moving()
                && receiver.sender.streams().progress().bytes.0 == length
        });
        let (files, result) = receiver.finish();
        let sent = files.get(&0).map(joined).unwrap_or_default();
        assert_eq!((sent.len() as u64, result.digest), (length, Some(digest(&sent))));
    }
}

#[test]
fn impossible_requests_end_the_copy() {
    let home = create_tree();
    let mut receiver =
        TestReceiver::new(vec![Source::File { base: Arc::new(BaseDir::Local), path: home.path().join("d") }], true, 0);
    receiver.wait_until(|receiver| receiver.listed);
    let directory = receiver.number("d");
    let large = receiver.number("d/large");
    let set = |index| BlockSet::from_range(index, index);
    for message in [
        ReceiverMessage::Settled { files: set(204) },
        ReceiverMessage::Request { up_to: 205 },
        ReceiverMessage::Have { file: 204, blocks: set(0) },
        ReceiverMessage::Have { file: large, blocks: set(62) },
        ReceiverMessage::Resend { file: directory, index: 0 },
        ReceiverMessage::Resend { file: large, index: u64::MAX },
    ] {
        let error = receiver.sender.on_message(message.clone(), Instant::now()).unwrap_err();
        assert!(matches!(error, TransferError::Schedule(_)), "{message:?}: {error}");
    }
    let sources = (0..MAX_PENDING_ENTRIES + 1).map(|_| Source::Zero { bytes: Bytes(0) }).collect();
    let mut receiver = TestReceiver::new(sources, false, 0);
    let early = ReceiverMessage::Done { progress: Box::default(), tally: CopyTally::default() };
    assert!(receiver.sender.on_message(early, Instant::now()).is_err());
}

/// An inode number is used again after a deletion, so it may belong to another file.
#[test]
fn reused_inode_is_not_a_hard_link() {
    let home = TempDir::new().unwrap();
    let at = |name: &str| home.path().join(name);
    fs::write(at("a"), "old").unwrap();
    let modified = fs::metadata(at("a")).unwrap().modified().unwrap();
    ["b", "c", "d"].iter().for_each(|name| fs::hard_link(at("a"), at(name)).unwrap());
    let listing = Listing { preserve: Preserve { hard_links: true, ..Preserve::default() }, ..Listing::default() };
    let shared = Shared::new(BLOCK, &listing, StreamSet::default());
    let walks = ["a", "b", "c", "d"].into_iter().map(|name| {
        if name == "c" {
            // Longer than the clock resolution of a file system.
            thread::sleep(Duration::from_millis(20));
            fs::write(at("a"), "new").unwrap();
            fs::File::options().write(true).open(at("a")).unwrap().set_modified(modified).unwrap();
        }
        Walk::new(Source::File { base: Arc::new(BaseDir::Local), path: at(name) }, listing.clone())
    });
    shared.list(walks);
    let state = shared.state.lock();
    let Some(SenderMessage::List { entries, .. }) = state.outbox.front() else { panic!() };
    let kinds: Vec<_> = entries.iter().map(|entry| entry.kind.clone()).collect();
    let (file, link) = (|length| EntryKind::File { length: Bytes(length) }, |to| EntryKind::HardLink { to });
    assert_eq!(kinds, [file(3), link(0), file(3), link(2)]);
}

#[test]
fn listing_counts_as_disk_work() {
    let home = create_tree();
    let mut receiver = TestReceiver::of_path(&home.path().join("d"), true);
    receiver.wait_until(|receiver| receiver.listed);
    assert!(receiver.sender.streams().progress().shares.disk > 0.0);
}

#[test]
fn missing_source_fails_the_copy_only_if_it_is_alone() {
    let missing = || Source::File { base: Arc::new(BaseDir::Local), path: "/no/such/file".into() };
    let start = |sources, block| Sender::start(sources, Listing::default(), block, StreamSet::default()).map(drop);
    assert!(
        matches!(start(vec![missing()], BLOCK), Err(TransferError::SourceNotFound { path }) if path == "/no/such/file")
    );
    assert!(matches!(start(vec![missing()], Bytes(1000)), Err(TransferError::Layout(_))));
    let mut receiver = TestReceiver::new(vec![missing(), Source::Zero { bytes: Bytes(5) }], false, 1);
    receiver.wait_until(|receiver| receiver.listed);
    assert_eq!(receiver.entries.len(), 1);
    let failed = receiver.failed.iter().map(|f| (f.file, f.name.to_string(), f.reason.clone())).collect::<Vec<_>>();
    assert_eq!(failed, [(None, "file".into(), "no such file or directory (/no/such/file)".into())]);
}
