use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::thread::JoinHandle;
use std::time::Instant;

use lfn_core::transfer::blockset::BlockSet;
use lfn_core::transfer::digest::hash_block;
use lfn_core::transfer::entry::{Entry, Kind};
use lfn_core::wire::copy::{BlockHeader, MOST_UNSETTLED, MOST_UNSETTLED_BYTES};
use tempfile::TempDir;

use super::*;

/// What came of a stream.
type Blocks = Vec<(BlockHeader, Vec<u8>)>;

/// What came of each file: index of the block to its payloads.
type Files = HashMap<u32, BTreeMap<u64, Vec<Vec<u8>>>>;

const BLOCK: Bytes = Bytes(16 << 10);

/// A receiver that keeps everything: what was said to it, and what came over the streams.
struct Far {
    sending: Arc<Sender>,
    streams: Vec<JoinHandle<Blocks>>,
    entries: Vec<Entry>,
    listed: bool,
    sent: HashMap<u32, Digest>,
    compared: HashMap<u32, Digest>,
    left_out: Vec<lfn_core::transfer::entry::Name>,
    failed: Vec<Failure>,
}

impl Far {
    fn new(sources: Vec<Source>, wait: bool, streams: u16) -> Far {
        let how = Listing { keep: Keep { links: true, ..Keep::default() }, wait, ..Listing::default() };
        let sending = Sender::start(sources, how, BLOCK, Flow::default()).unwrap();
        let streams = (0..streams).map(|number| stream(&sending, number)).collect();
        let (entries, sent, compared, left_out, failed) = Default::default();
        Far { sending, streams, entries, listed: false, sent, compared, left_out, failed }
    }

    fn of(path: &Path, wait: bool) -> Far {
        Far::new(vec![Source::File { base: Arc::new(Base::Here), path: path.into() }], wait, 2)
    }

    /// Listens until `enough`.
    #[track_caller]
    fn until(&mut self, enough: impl Fn(&Far) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !enough(self) {
            assert!(Instant::now() < deadline, "{} entries, {:?}, {:?}", self.entries.len(), self.sent, self.failed);
            thread::sleep(Duration::from_millis(1));
            for word in self.sending.words() {
                self.hear(word);
            }
        }
    }

    fn hear(&mut self, word: FromSender) {
        match word {
            FromSender::List { first, entries } => {
                assert!(!self.listed && first as usize == self.entries.len());
                self.entries.extend(entries);
            }
            FromSender::Listed { entries, bytes, .. } => {
                let length = |entry: &Entry| if let Kind::File { length } = entry.kind { length.0 } else { 0 };
                let sum = self.entries.iter().map(length).sum();
                assert_eq!((entries as usize, bytes), (self.entries.len(), Bytes(sum)));
                self.listed = true;
            }
            FromSender::Sent { file, digest } => assert!(self.sent.insert(file, digest).is_none()),
            FromSender::Failed(failure) => self.failed.push(failure),
            FromSender::Digest { file, digest } => assert!(self.compared.insert(file, digest).is_none()),
            FromSender::LeftOut { names } => self.left_out.extend(names),
            FromSender::Alive(_) | FromSender::Lost { .. } => {}
        }
    }

    fn say(&self, message: FromReceiver) {
        self.sending.heard(message).unwrap();
    }

    fn number(&self, name: &str) -> u32 {
        self.entries.iter().position(|entry| entry.name.as_bytes() == name.as_bytes()).unwrap() as u32
    }

    /// Settles everything, and gives back what came.
    fn end(mut self) -> (Files, Ended) {
        let last = self.entries.len() as u64 - 1;
        self.say(FromReceiver::Settled { files: BlockSet::from_range(0, last) });
        let mut files = Files::new();
        // The streams end by themselves: everything is settled.
        for (header, payload) in std::mem::take(&mut self.streams).into_iter().flat_map(|s| s.join().unwrap()) {
            let Kind::File { length } = self.entries[header.file as usize].kind else { panic!("{header:?}") };
            let layout = Layout::new(length, BLOCK).unwrap();
            let block = layout.block_at(header.offset, header.length).unwrap();
            assert_eq!(hash_block(&layout, block, &payload), header.hash);
            files.entry(header.file).or_default().entry(block.index).or_default().push(payload);
        }
        assert!(!self.sending.moving() && self.sending.ended().is_none());
        let done = FromReceiver::Done { progress: Progress::default(), tally: Tally::default() };
        self.say(done);
        let ended = self.sending.ended().unwrap();
        (files, ended)
    }
}

/// A stream of `sending`, and whoever reads it to its end.
fn stream(sending: &Arc<Sender>, number: u16) -> JoinHandle<Blocks> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut theirs = listener.accept().unwrap().0;
    theirs.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let sending = sending.clone();
    thread::spawn(move || sending.run(DataStream::clear(number, ours)));
    thread::spawn(move || {
        let mut blocks = Vec::new();
        let mut header = [0; BlockHeader::LENGTH];
        loop {
            match theirs.read_exact(&mut header) {
                Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => break,
                read => read.unwrap(),
            }
            let header = BlockHeader::decode(&header).unwrap();
            let mut payload = vec![0; header.length as usize];
            theirs.read_exact(&mut payload).unwrap();
            blocks.push((header, payload));
        }
        blocks
    })
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 3 + at / 1021 + length) as u8).collect()
}

/// `d` with small files and large ones.
fn plant() -> TempDir {
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
fn a_tree_goes_out_whole_and_once() {
    let home = plant();
    let mut far = Far::of(&home.path().join("d"), false);
    far.until(|far| far.listed && far.sent.len() == 2);
    far.say(FromReceiver::Ready { path: Some("there".into()), asks: false, since: None, ground: None });
    assert_eq!(far.sent[&far.number("d/large")], digest(&bytes(1_000_001)));
    assert_eq!(far.failed, []);
    // Small ones are not said; they are known by their blocks.
    far.until(|far| far.sending.flow().progress().bytes == far.sending.listed().bytes);
    let entries = far.entries.clone();
    let (files, ended) = far.end();
    assert_eq!(entries.len(), 204);
    for (number, entry) in (0..).zip(&entries) {
        let Kind::File { length } = entry.kind else { continue };
        let there = files.get(&number).map(joined).unwrap_or_default();
        assert!(there == bytes(length.0 as usize), "{}", entry.name);
    }
    assert_eq!((ended.path.as_deref(), ended.digest), (Some("there"), None));
}

#[test]
fn what_the_receiver_has_or_skips_is_not_sent_and_what_it_misses_is_sent_again() {
    let home = plant();
    let mut far = Far::of(&home.path().join("d"), true);
    far.until(|far| far.listed);
    far.say(FromReceiver::Ready { path: None, asks: true, since: None, ground: None });
    let (large, other, small) = (far.number("d/large"), far.number("d/other"), far.number("d/small/7"));
    far.say(FromReceiver::Have { file: large, blocks: [0, 1, 2, 40].into_iter().collect() });
    far.say(FromReceiver::Settled { files: BlockSet::from_range(other.into(), other.into()) });
    thread::sleep(Duration::from_millis(30));
    assert_eq!(far.sending.flow().progress().bytes, Bytes(0), "nothing is wanted yet");
    assert!(!far.sending.moving());
    far.say(FromReceiver::Wants { up_to: small + 1 });
    // The whole of it was read, though not all was sent.
    far.until(|far| far.sent.contains_key(&large));
    assert_eq!(far.sent[&large], digest(&bytes(1_000_001)));
    // And all of it has left.
    far.until(|far| !far.sending.moving());
    for (file, index) in [(large, 5), (small, 0)] {
        far.say(FromReceiver::Again { file, index });
    }
    let before = small + 1;
    let entries = far.entries.clone();
    far.until(|far| !far.sending.moving());
    let (files, _) = far.end();
    assert_eq!(files[&large].keys().copied().collect::<Vec<_>>(), (3..62).filter(|n| *n != 40).collect::<Vec<_>>());
    assert!(files[&large].iter().all(|(index, payloads)| payloads.len() == if *index == 5 { 2 } else { 1 }));
    assert_eq!(files[&small][&0], [bytes(77), bytes(77)]);
    assert!(!files.contains_key(&other) && files.keys().all(|file| *file < before));
    let wanted = (0..before).zip(&entries).filter(|(_, e)| matches!(e.kind, Kind::File { length } if length.0 > 0));
    assert_eq!(files.len(), wanted.count() - 1, "all that is wanted but the one that is settled");
}

#[test]
fn a_source_that_changes_fails_and_the_others_go_on() {
    let home = plant();
    let at = |name: &str| home.path().join("d").join(name);
    fs::create_dir(at("swapped")).unwrap();
    fs::write(at("swapped/f"), bytes(100)).unwrap();
    let mut far = Far::of(&at(""), true);
    far.until(|far| far.listed);
    fs::File::options().write(true).open(at("large")).unwrap().set_len(500_000).unwrap();
    fs::write(at("small/5"), bytes(56)).unwrap();
    fs::remove_file(at("small/6")).unwrap();
    fs::rename(at("other"), at("small/6")).unwrap();
    // The same file behind a link to where it went: not followed, wherever it leads.
    fs::rename(at("swapped"), home.path().join("away")).unwrap();
    symlink(home.path().join("away"), at("swapped")).unwrap();
    far.say(FromReceiver::Ready { path: None, asks: false, since: None, ground: None });
    far.until(|far| far.failed.len() == 5 && !far.sending.moving());
    let mut failed: Vec<_> = far.failed.iter().map(|f| (f.name.to_string(), f.what.as_str())).collect();
    failed.sort();
    let names = ["large", "other", "small/5", "small/6", "swapped/f"];
    assert_eq!(failed, names.map(|name| (name.to_owned(), "changed while it was copied")));
    assert!(far.failed.iter().all(|f| f.file == Some(far.number(&f.name.to_string()))));
    assert!(far.sent.is_empty());
    let (wrong, right) = (names.map(|name| far.number(name)), far.number("small/199"));
    let (files, ended) = far.end();
    assert!(wrong.iter().all(|number| !files.contains_key(number)));
    assert_eq!((joined(&files[&right]), files.len(), ended.failures.len()), (bytes(199 * 11), 197, 5));
}

#[test]
fn no_block_of_another_file_of_the_same_length_and_time_is_joined_to_it() {
    let home = plant();
    let large = home.path().join("d/large");
    let mut far = Far::of(&large, false);
    far.until(|far| far.listed && far.sent.len() == 1);
    let other = home.path().join("other");
    fs::write(&other, vec![0; 1_000_001]).unwrap();
    let modified = fs::metadata(&large).unwrap().modified().unwrap();
    fs::File::options().write(true).open(&other).unwrap().set_modified(modified).unwrap();
    fs::rename(&other, &large).unwrap();
    far.say(FromReceiver::Again { file: 0, index: 3 });
    far.until(|far| far.failed.len() == 1);
    assert_eq!((far.failed[0].file, far.failed[0].what.as_str()), (Some(0), "changed while it was copied"));
    let (files, _) = far.end();
    assert_eq!(joined(&files[&0]), bytes(1_000_001));
}

#[test]
fn the_list_is_never_further_ahead_than_allowed() {
    let sources = (0..MOST_UNSETTLED + 10).map(|_| Source::Zero { bytes: Bytes(0) }).collect();
    let mut far = Far::new(sources, false, 1);
    far.until(|far| far.entries.len() == MOST_UNSETTLED as usize);
    thread::sleep(Duration::from_millis(30));
    assert_eq!(far.sending.words(), []);
    far.say(FromReceiver::Settled { files: [0, 5, 6].into_iter().collect() });
    far.until(|far| far.entries.len() == MOST_UNSETTLED as usize + 3);
    thread::sleep(Duration::from_millis(30));
    assert_eq!(far.sending.words(), []);
    far.say(FromReceiver::Settled { files: BlockSet::from_range(0, 100) });
    far.until(|far| far.listed);
    let many = u64::from(MOST_UNSETTLED) + 10;
    assert_eq!(far.sending.listed(), Extent { entries: many, settled: 101, complete: true, ..Extent::default() });
    far.end();
}

#[test]
fn the_list_is_never_heavier_than_allowed() {
    let home = TempDir::new().unwrap();
    let deep = home.path().join("t").join(vec!["n".repeat(250); 14].join("/"));
    fs::create_dir_all(&deep).unwrap();
    let many = MOST_UNSETTLED_BYTES / 3514;
    (0..many + 500).for_each(|n| fs::write(deep.join(format!("{n:06}")), []).unwrap());
    let mut far = Far::of(&home.path().join("t"), false);
    let weight = |far: &Far| far.entries.iter().map(Entry::weight).sum::<usize>();
    far.until(|far| weight(far) + 4096 > MOST_UNSETTLED_BYTES);
    thread::sleep(Duration::from_millis(30));
    assert_eq!(far.sending.words(), []);
    let before = far.entries.len();
    assert!(weight(&far) <= MOST_UNSETTLED_BYTES && before < many + 15, "{before}");
    // What one file gives free is enough for one file.
    far.say(FromReceiver::Settled { files: BlockSet::from_range(20, 20) });
    far.until(|far| far.entries.len() == before + 1);
    far.say(FromReceiver::Settled { files: BlockSet::from_range(0, before as u64) });
    far.until(|far| far.listed);
    assert_eq!(far.entries.len(), many + 500 + 15);
}

#[test]
fn one_file_has_a_digest_and_may_be_made_here() {
    for length in [0, 1, 16 << 10, 100_000] {
        let mut far = Far::new(vec![Source::Random { seed: 3, bytes: Bytes(length) }], false, 2);
        far.until(|far| far.listed && !far.sending.moving() && far.sending.flow().progress().bytes.0 == length);
        let (files, ended) = far.end();
        let sent = files.get(&0).map(joined).unwrap_or_default();
        assert_eq!((sent.len() as u64, ended.digest), (length, Some(digest(&sent))));
    }
}

#[test]
fn what_the_receiver_cannot_mean_ends_the_copy() {
    let home = plant();
    let mut far = Far::new(vec![Source::File { base: Arc::new(Base::Here), path: home.path().join("d") }], true, 0);
    far.until(|far| far.listed);
    let directory = far.number("d");
    let large = far.number("d/large");
    let set = |index| BlockSet::from_range(index, index);
    for message in [
        FromReceiver::Settled { files: set(204) },
        FromReceiver::Wants { up_to: 205 },
        FromReceiver::Have { file: 204, blocks: set(0) },
        FromReceiver::Have { file: large, blocks: set(62) },
        FromReceiver::Again { file: directory, index: 0 },
        FromReceiver::Again { file: large, index: u64::MAX },
    ] {
        let error = far.sending.heard(message.clone()).unwrap_err();
        assert!(matches!(error, TransferError::Deck(_)), "{message:?}: {error}");
    }
    let sources = (0..MOST_UNSETTLED + 1).map(|_| Source::Zero { bytes: Bytes(0) }).collect();
    let far = Far::new(sources, false, 0);
    let early = FromReceiver::Done { progress: Progress::default(), tally: Tally::default() };
    assert!(far.sending.heard(early).is_err());
}

/// An inode is used again once its file is gone: what has it then is another file, whatever that had.
#[test]
fn what_has_the_inode_of_an_earlier_file_is_no_name_of_it() {
    let home = TempDir::new().unwrap();
    let at = |name: &str| home.path().join(name);
    fs::write(at("a"), "old").unwrap();
    let modified = fs::metadata(at("a")).unwrap().modified().unwrap();
    ["b", "c", "d"].iter().for_each(|name| fs::hard_link(at("a"), at(name)).unwrap());
    let how = Listing { keep: Keep { hard_links: true, ..Keep::default() }, ..Listing::default() };
    let shared = Shared::new(BLOCK, &how, Flow::default());
    let walks = ["a", "b", "c", "d"].into_iter().map(|name| {
        if name == "c" {
            // Longer than the tick of a file system's clock.
            thread::sleep(Duration::from_millis(20));
            fs::write(at("a"), "new").unwrap();
            fs::File::options().write(true).open(at("a")).unwrap().set_modified(modified).unwrap();
        }
        Walk::new(Source::File { base: Arc::new(Base::Here), path: at(name) }, how.clone())
    });
    shared.list(walks);
    let state = lock(&shared.state);
    let Some(FromSender::List { entries, .. }) = state.outbox.front() else { panic!() };
    let kinds: Vec<_> = entries.iter().map(|entry| entry.kind.clone()).collect();
    let (file, link) = (|length| Kind::File { length: Bytes(length) }, |to| Kind::HardLink { to });
    assert_eq!(kinds, [file(3), link(0), file(3), link(2)]);
}

#[test]
fn to_list_is_work_of_the_disk() {
    let home = plant();
    let mut far = Far::of(&home.path().join("d"), true);
    far.until(|far| far.listed);
    assert!(far.sending.flow().progress().shares.disk > 0.0);
}

#[test]
fn what_cannot_be_had_is_an_error_alone_and_a_failure_among_others() {
    let gone = || Source::File { base: Arc::new(Base::Here), path: "/no/such/file".into() };
    let start = |sources, block| Sender::start(sources, Listing::default(), block, Flow::default()).map(drop);
    assert!(matches!(start(vec![gone()], BLOCK), Err(TransferError::NotFound { path }) if path == "/no/such/file"));
    assert!(matches!(start(vec![gone()], Bytes(1000)), Err(TransferError::Layout(_))));
    let mut far = Far::new(vec![gone(), Source::Zero { bytes: Bytes(5) }], false, 1);
    far.until(|far| far.listed);
    assert_eq!(far.entries.len(), 1);
    let failed = far.failed.iter().map(|f| (f.file, f.name.to_string(), f.what.clone())).collect::<Vec<_>>();
    assert_eq!(failed, [(None, "file".into(), "no such file or directory (/no/such/file)".into())]);
}
