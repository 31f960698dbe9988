//! A receiver against sockets of this host, fed with what a sender would say and send.

use std::fs;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::AtomicU16;
use std::thread;

use lfn_core::transfer::content::fill_random;
use lfn_core::transfer::digest::{BlockHash, Digest};
use lfn_core::transfer::entry::{Entry, Kind, Modified, Xattr};
use lfn_core::transfer::keep::LeftOut;
use lfn_core::transfer::manner::Verify;
use lfn_core::transfer::raw::Raw;
use lfn_core::wire::copy::{BlockHeader, Failure, MOST_UNSETTLED, Tally};
use lfn_core::wire::third::CarriedEnd;
use tempfile::TempDir;

use super::small::Small;
use super::*;

mod ground;
mod later;
mod order;
mod resume;
mod unknown;

const BLOCK: Bytes = Bytes(1024);

/// Otherwise none may be listed.
const LINKS: Keep =
    Keep { links: true, hard_links: true, modes: false, owners: false, xattrs: false, acls: false, sparse: false };

/// A copy under way, from the sender's side.
struct Copy {
    receiving: Arc<Receiver>,
    words: Vec<FromReceiver>,
    listed: u32,
    streams: AtomicU16,
}

impl Copy {
    fn start(aim: Aim) -> Self {
        Copy::synced(aim, Sync::File)
    }

    fn synced(aim: Aim, sync: Sync) -> Self {
        Copy::in_manner(aim, Manner { fsync: sync, ..Manner::default() })
    }

    fn in_manner(aim: Aim, manner: Manner) -> Self {
        Copy::in_blocks(aim, manner, BLOCK)
    }

    fn in_blocks(aim: Aim, manner: Manner, block: Bytes) -> Self {
        let receiving = Receiver::start(aim, manner, Teller::default(), None, block, Flow::default()).unwrap();
        Copy { receiving, words: Vec::new(), listed: 0, streams: AtomicU16::new(0) }
    }

    fn checked_by(verify: Verify, directory: &Path) -> Self {
        Copy::in_manner(aim(directory, Allowed::default()), Manner { verify, ..Manner::default() })
    }

    fn into(directory: &Path) -> Self {
        Copy::start(aim(directory, Allowed::default()))
    }

    fn stream(&self) -> TcpStream {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let far = DataStream::clear(self.streams.fetch_add(1, Ordering::SeqCst), listener.accept().unwrap().0);
        let receiving = self.receiving.clone();
        thread::spawn(move || receiving.run(far));
        near
    }

    fn list(&mut self, entries: Vec<Entry>) {
        let (first, count) = (self.listed, entries.len() as u32);
        self.receiving.heard(FromSender::List { first, entries }).unwrap();
        self.listed += count;
    }

    fn listed(&self) {
        self.receiving
            .heard(FromSender::Listed { entries: self.listed, bytes: Bytes(0), left_out: LeftOut::default() })
            .unwrap();
    }

    fn sent(&self, file: u32, bytes: &[u8]) {
        let digest = Digest(*blake3::hash(bytes).as_bytes());
        self.receiving.heard(FromSender::Sent { file, digest }).unwrap();
    }

    /// Listens until one of the words is the one waited for.
    fn until<T>(&mut self, what: &str, wanted: impl Fn(&FromReceiver) -> Option<T>) -> T {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(found) = self.words.iter().find_map(&wanted) {
                return found;
            }
            let error = self.receiving.flow.take_failure();
            assert!(error.is_none() && Instant::now() < deadline, "{what}: {error:?}, {:?}", self.words);
            self.words.extend(self.receiving.words());
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn end(self) -> Ended {
        self.listed();
        self.ended()
    }

    fn ended(mut self) -> Ended {
        let tally = self.until("done", |word| match word {
            FromReceiver::Done { tally, .. } => Some(*tally),
            _ => None,
        });
        let ended = self.receiving.ended().unwrap();
        assert_eq!(ended.tally, tally);
        let settled = self.words.iter().map(|word| match word {
            FromReceiver::Settled { files } => files.len(),
            _ => 0,
        });
        assert_eq!(settled.sum::<u64>(), u64::from(self.listed));
        self.receiving.close();
        ended
    }

    fn have(&mut self, file: u32) -> Vec<u64> {
        self.until("have", |word| match word {
            FromReceiver::Have { file: about, blocks } if *about == file => {
                Some(blocks.ranges().flat_map(|(first, last)| first..=last).collect())
            }
            _ => None,
        })
    }
}

fn aim(path: &Path, allowed: Allowed) -> Aim {
    Aim::Path { base: Base::Here, path: path.into(), allowed, single: false, keep: LINKS }
}

fn entry(name: &str, kind: Kind) -> Entry {
    Entry::new(Name::new(name).unwrap(), kind, 0o640, Modified::new(1_000_000_000, 5_000).unwrap()).unwrap()
}

fn file(name: &str, bytes: &[u8]) -> Entry {
    entry(name, Kind::File { length: Bytes(bytes.len() as u64) })
}

fn directory(name: &str) -> Entry {
    Entry { mode: 0o750, ..entry(name, Kind::Directory) }
}

fn link(name: &str, target: &str) -> Entry {
    entry(name, Kind::Symlink { target: target.into() })
}

/// A file as it is there once its entry has been copied, or seems to have been.
fn plant(directory: &Path, entry: &Entry, bytes: &[u8]) {
    let path = directory.join(entry.name.to_string());
    fs::write(&path, bytes).unwrap();
    super::partial::keep_time(fs::File::options().write(true).open(path).unwrap(), entry).unwrap();
}

fn data(seed: u64, length: usize) -> Vec<u8> {
    let mut data = vec![0; length];
    fill_random(seed, 0, &mut data);
    data
}

/// One block as it stands on a stream; `damage` is done to it after it was hashed.
fn block(file: u32, bytes: &[u8], index: u64, damage: bool) -> Vec<u8> {
    let mut message = block_by(Verify::Blake3, file, bytes, index);
    if damage {
        *message.last_mut().unwrap() ^= 1;
    }
    message
}

fn block_by(verify: Verify, file: u32, bytes: &[u8], index: u64) -> Vec<u8> {
    let layout = Layout::new(Bytes(bytes.len() as u64), BLOCK).unwrap();
    let block = layout.block(index).unwrap();
    let payload = &bytes[block.offset as usize..][..block.length as usize];
    let hash = verify.hash(&layout, block, payload);
    let header = BlockHeader { file, offset: block.offset, length: block.length, hash, hole: false, verify };
    let mut message = header.encode().to_vec();
    message.extend_from_slice(payload);
    message
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn failure(ended: &Ended) -> &Failure {
    assert_eq!(ended.failures.len(), 1, "{:?}", ended.failures);
    &ended.failures[0]
}

/// Many small files in their directories, and what their blocks are when they stand behind each other.
fn many(directory: &str, first: u32) -> (Vec<Vec<u8>>, Vec<Entry>, Vec<Vec<u8>>) {
    let contents: Vec<Vec<u8>> = (0..600).map(|n| data(n, (n as usize * 37) % 1025)).collect();
    let named = contents.iter().enumerate().map(|(n, bytes)| file(&format!("{directory}/{n}"), bytes));
    let entries = named.collect();
    let full = contents.iter().enumerate().filter(|(_, bytes)| !bytes.is_empty());
    let blocks = full.map(|(n, bytes)| block(first + n as u32, bytes, 0, false)).collect();
    (contents, entries, blocks)
}

#[test]
fn a_tree_of_small_files_comes_as_it_was() {
    for sync in [Sync::File, Sync::End, Sync::None] {
        let place = TempDir::new().unwrap();
        let top = place.path().join("new");
        let mut copy = Copy::synced(aim(&top, Allowed::default()), sync);
        let (mut one, mut two) = (copy.stream(), copy.stream());
        let (contents, mut files, blocks) = many("d/e", 4);
        files[1].mode = 0o6755;
        files[2].linked = true;
        // Blocks that come before their entries wait for them.
        let (left, right) = blocks.split_at(blocks.len() / 2);
        let (left, right) = (left.concat(), right.concat());
        let writer = thread::spawn(move || two.write_all(&right).map(|()| two));
        let early = thread::spawn(move || one.write_all(&left).map(|()| one));
        let closed = Entry { mode: 0o555, ..directory("d/e") };
        copy.list(vec![directory("."), directory("d"), link("d/l", "../nowhere"), closed]);
        copy.list(files);
        // Its file may not be there yet.
        copy.list(vec![entry("d/h", Kind::HardLink { to: 6 }), entry("d/i", Kind::HardLink { to: 9_999 })]);
        let _streams = (writer.join().unwrap().unwrap(), early.join().unwrap().unwrap());
        let ended = copy.end();
        let tally =
            Tally { files: 600, directories: 3, links: 2, failed: 1, bytes: Bytes(304_150), ..Tally::default() };
        assert_eq!(ended.tally, tally, "{:?}", ended.failures);
        assert_eq!((failure(&ended).file, failure(&ended).name.to_string()), (Some(605), "d/i".into()));
        for (n, bytes) in contents.iter().enumerate() {
            let path = top.join(format!("d/e/{n}"));
            assert_eq!(&fs::read(&path).unwrap(), bytes, "{n}");
            let facts = fs::metadata(&path).unwrap();
            assert_eq!((facts.mtime(), facts.mtime_nsec()), (1_000_000_000, 5_000));
            // Never more than was asked for, whatever the umask; no set-id bits.
            assert_eq!(facts.mode() & 0o7777 & !if n == 1 { 0o755 } else { 0o640 }, 0);
        }
        assert_eq!(names(&top.join("d/e")).len(), 600);
        assert_eq!(names(&top.join("d")), ["e", "h", "l"]);
        assert_eq!(fs::read_link(top.join("d/l")).unwrap(), Path::new("../nowhere"));
        let inode = |path: &str| fs::metadata(top.join(path)).unwrap().ino();
        assert_eq!(inode("d/h"), inode("d/e/2"));
        for (path, mode) in [("", 0o750), ("d", 0o750), ("d/e", 0o555)] {
            let facts = fs::metadata(top.join(path)).unwrap();
            assert_eq!((facts.mtime(), facts.mode() & 0o7777 & !mode), (1_000_000_000, 0), "{path}");
        }
        fs::set_permissions(top.join("d/e"), fs::Permissions::from_mode(0o755)).unwrap();
    }
}

#[test]
fn a_large_file_comes_in_any_order_and_takes_the_name_of_the_path() {
    let place = TempDir::new().unwrap();
    let to = place.path().join("x");
    let path = to.clone();
    let mut copy = Copy::start(Aim::Path {
        base: Base::Here,
        path,
        allowed: Allowed::default(),
        single: true,
        keep: Keep::default(),
    });
    let asks = copy.until("ready", |word| match word {
        FromReceiver::Ready { asks, .. } => Some(*asks),
        _ => None,
    });
    assert!(!asks);
    let bytes = data(1, 10_000);
    copy.list(vec![file("own", &bytes)]);
    copy.listed();
    let mut streams = [copy.stream(), copy.stream()];
    // Its digest may come before its last block.
    copy.sent(0, &bytes);
    for index in [9, 3, 4, 0, 1, 8, 7, 2, 5, 6] {
        streams[index as usize % 2].write_all(&block(0, &bytes, index, false)).unwrap();
    }
    let ended = copy.ended();
    assert_eq!(ended.digest, Some(Digest(*blake3::hash(&bytes).as_bytes())));
    assert_eq!((ended.tally.files, ended.bytes), (1, Bytes(10_000)));
    assert_eq!(ended.path.as_deref(), to.to_str());
    assert_eq!(fs::read(&to).unwrap(), bytes);
    assert_eq!((names(place.path()), fs::metadata(&to).unwrap().mtime()), (vec!["x".to_owned()], 1_000_000_000));
}

#[test]
fn what_is_more_than_a_file_makes_a_directory_of_the_name() {
    let place = TempDir::new().unwrap();
    for (name, entries) in [("tree", vec![directory("d")]), ("files", vec![file("a", &[]), file("b", &[])])] {
        let path = place.path().join(name);
        let aim = Aim::Path {
            base: Base::Here,
            path: path.clone(),
            allowed: Allowed::default(),
            single: true,
            keep: Keep::default(),
        };
        let mut copy = Copy::start(aim);
        let wanted: Vec<_> = entries.iter().map(|entry| entry.name.to_string()).collect();
        copy.list(entries);
        assert_eq!(copy.end().tally.failed, 0);
        assert_eq!(names(&path), wanted);
    }
    let path = place.path().join("nothing");
    let copy = Copy::start(Aim::Path {
        base: Base::Here,
        path,
        allowed: Allowed::default(),
        single: true,
        keep: Keep::default(),
    });
    assert_eq!(copy.end().tally, Tally::default());
    assert_eq!(names(place.path()), ["files", "tree"]);
}

#[test]
fn nothing_is_kept_of_null() {
    let mut copy = Copy::start(Aim::Null);
    let bytes = data(1, 3_000);
    copy.list(vec![file("large", &bytes), file("small", &bytes[..10]), directory("d"), file("empty", &[])]);
    let mut stream = copy.stream();
    (0..3).for_each(|index| stream.write_all(&block(0, &bytes, index, false)).unwrap());
    stream.write_all(&block(1, &bytes[..10], 0, false)).unwrap();
    copy.sent(0, &bytes);
    assert_eq!(copy.end().tally, Tally { files: 3, directories: 1, bytes: Bytes(3010), ..Tally::default() });
}

#[test]
fn damaged_blocks_are_asked_for_again_and_a_hopeless_file_fails_alone() {
    let place = TempDir::new().unwrap();
    let mut copy = Copy::into(place.path());
    let (large, small) = (data(1, 3_000), data(2, 500));
    copy.list(vec![file("large", &large), file("small", &small), file("bad", &small), file("worse", &large)]);
    let mut stream = copy.stream();
    for (damage, index) in [(true, 0), (false, 1), (true, 0), (false, 0), (false, 2)] {
        stream.write_all(&block(0, &large, index, damage)).unwrap();
        stream.write_all(&block(3, &large, index, true)).unwrap();
    }
    stream.write_all(&block(1, &small, 0, true)).unwrap();
    stream.write_all(&block(1, &small, 0, false)).unwrap();
    (0..3).for_each(|_| stream.write_all(&block(2, &small, 0, true)).unwrap());
    copy.sent(0, &large);
    let again = copy.until("again", |word| match word {
        FromReceiver::Again { file: 1, index } => Some(*index),
        _ => None,
    });
    assert_eq!(again, 0);
    let ended = copy.end();
    // Of the fourth file: blocks 0 and 1 once each, and block 0 twice more, the third time for good.
    assert_eq!(
        ended.tally,
        Tally { files: 2, failed: 2, again: 2 + 1 + 2 + 3, bytes: Bytes(3500), ..Tally::default() }
    );
    assert!(ended.failures.iter().all(|failure| failure.what.contains("corrupt")), "{:?}", ended.failures);
    assert_eq!(fs::read(place.path().join("large")).unwrap(), large);
    assert_eq!(names(place.path()), ["large", "small"]);
}

#[test]
fn a_digest_that_is_another_leaves_nothing() {
    let place = TempDir::new().unwrap();
    let mut copy = Copy::into(place.path());
    let bytes = data(1, 3_000);
    copy.list(vec![file("a", &bytes)]);
    let mut stream = copy.stream();
    (0..3).for_each(|index| stream.write_all(&block(0, &bytes, index, false)).unwrap());
    copy.sent(0, b"another");
    let ended = copy.end();
    assert!(failure(&ended).what.contains("digest"), "{:?}", ended.failures);
    assert!(names(place.path()).is_empty());
}

#[test]
fn two_copies_do_not_write_one_file() {
    let place = TempDir::new().unwrap();
    let bytes = data(1, 3_000);
    let mut first = Copy::into(place.path());
    first.list(vec![file("a", &bytes)]);
    let mut stream = first.stream();
    stream.write_all(&block(0, &bytes, 0, false)).unwrap();
    let journal = place.path().join(".a.lfn-journal");
    while !journal.exists() {
        thread::sleep(Duration::from_millis(1));
    }
    let mut second = Copy::into(place.path());
    second.list(vec![file("a", &bytes)]);
    let ended = second.end();
    assert!(failure(&ended).what.contains("another copy"), "{:?}", ended.failures);
    (1..3).for_each(|index| stream.write_all(&block(0, &bytes, index, false)).unwrap());
    first.sent(0, &bytes);
    assert_eq!(first.end().tally.files, 1);
    assert_eq!(names(place.path()), ["a"]);
}

#[test]
fn what_is_there_already_is_skipped_refused_or_replaced() {
    let (old, new) = (data(1, 700), data(2, 900));
    let force = Allowed { force: true, ..Allowed::default() };
    let update = Allowed { update: true, ..Allowed::default() };
    for (allowed, replaced, kept) in [(Allowed::default(), 0, 3), (force, 3, 0), (update, 2, 1)] {
        let place = TempDir::new().unwrap();
        let path = |name: &str| place.path().join(name);
        let set_time = |name: &str, seconds| {
            let file = fs::File::options().write(true).open(path(name)).unwrap();
            file.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
        };
        for (name, seconds) in [("same", 1_000_000_000), ("older", 999_999_999), ("newer", 1_000_000_001)] {
            fs::write(path(name), if name == "same" { &new } else { &old }).unwrap();
            set_time(name, seconds);
        }
        fs::create_dir(path("directory")).unwrap();
        fs::write(path("directory/x"), b"x").unwrap();
        symlink("older", path("link")).unwrap();
        let mut copy = Copy::start(aim(place.path(), allowed));
        let asked = copy.until("ready", |word| match word {
            FromReceiver::Ready { asks, .. } => Some(*asks),
            _ => None,
        });
        assert!(asked);
        let same = Entry { modified: Modified::new(1_000_000_000, 0).unwrap(), ..file("same", &new) };
        let taken = file("directory", &new);
        copy.list(vec![
            same,
            file("older", &new),
            file("newer", &new),
            file("link", &new),
            taken,
            directory("directory"),
        ]);
        copy.until("wants", |word| matches!(word, FromReceiver::Wants { up_to: 6 }).then_some(()));
        let mut stream = copy.stream();
        for number in 0..5 {
            stream.write_all(&block(number, &new, 0, false)).unwrap();
        }
        let ended = copy.end();
        // The directory that is there already is skipped, and never gives way to a file.
        let refused = if allowed == Allowed::default() { 3 } else { 0 };
        let skipped = 2 + if allowed == update { 1 } else { 0 };
        let bytes = ended.tally.bytes;
        let skipped_bytes = Bytes((skipped - 1) * new.len() as u64);
        let tally = Tally { files: replaced, skipped, skipped_bytes, failed: refused + 1, bytes, ..Tally::default() };
        assert_eq!(ended.tally, tally, "{allowed:?}: {:?}", ended.failures);
        let is_old = |name: &&str| fs::read(path(name)).unwrap() == old;
        assert_eq!(["older", "newer", "link"].iter().copied().filter(is_old).count(), kept, "{allowed:?}");
        assert_eq!(fs::symlink_metadata(path("link")).unwrap().is_symlink(), replaced == 0);
        assert_eq!(names(place.path()), ["directory", "link", "newer", "older", "same"]);
    }
}

#[test]
fn no_link_leads_out() {
    let (place, outside) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let root = || Base::root(place.path()).unwrap();
    fs::create_dir(place.path().join("in")).unwrap();
    symlink(outside.path(), place.path().join("in/there")).unwrap();
    let small = data(1, 100);
    let large = data(2, 2_000);
    let force = Allowed { force: true, ..Allowed::default() };
    let mut copy =
        Copy::start(Aim::Path { base: root(), path: "in".into(), allowed: force, single: false, keep: LINKS });
    let target = outside.path().to_str().unwrap();
    // One that was there, one that comes with the copy, and one that takes a directory's place meanwhile.
    copy.list(vec![file("there/a", &small), link("new", target), file("new/a", &small), file("new/b", &large)]);
    copy.list(vec![directory("new/d"), directory("swapped"), directory("swapped/deep")]);
    copy.until("settled", |word| match word {
        FromReceiver::Settled { files } => files.contains(6).then_some(()),
        _ => None,
    });
    fs::rename(place.path().join("in/swapped"), place.path().join("in/moved")).unwrap();
    symlink(outside.path(), place.path().join("in/swapped")).unwrap();
    fs::create_dir(outside.path().join("deep")).unwrap();
    copy.list(vec![file("swapped/a", &small), file("swapped/deep/a", &small), file("fine", &small)]);
    let mut stream = copy.stream();
    for number in [0, 2, 7, 8, 9] {
        stream.write_all(&block(number, &small, 0, false)).unwrap();
    }
    stream.write_all(&block(3, &large, 0, false)).unwrap();
    let ended = copy.end();
    assert_eq!(names(outside.path()), ["deep"], "{:?}", ended.failures);
    assert!(names(&outside.path().join("deep")).is_empty());
    assert_eq!(fs::read(place.path().join("in/fine")).unwrap(), small);
    assert!(ended.tally.failed >= 4, "{:?}", ended.failures);
    for path in ["..", "../x", "in/there", "in/there/x", "/tmp"] {
        let aim = Aim::Path { base: root(), path: path.into(), allowed: force, single: true, keep: Keep::default() };
        let receiving =
            Receiver::start(aim, Manner::default(), Teller::default(), None, BLOCK, Flow::default()).unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        let error = loop {
            if let Some(error) = receiving.flow.take_failure() {
                break error;
            }
            assert!(Instant::now() < deadline, "{path}");
            thread::sleep(Duration::from_millis(1));
        };
        assert!(error.to_string().contains("leads out"), "{path}: {error}");
    }
}

#[test]
fn what_cannot_be_made_fails_by_itself() {
    let place = TempDir::new().unwrap();
    let mut copy = Copy::into(place.path());
    let (small, large) = (data(1, 100), data(2, 2_000));
    let long = "n".repeat(255);
    let other = format!("{}m", "n".repeat(254));
    copy.list(vec![file(&long, &small), file(&other, &large), file("missing/a", &small), file("missing/b", &large)]);
    copy.list(vec![
        file("f", &small),
        file("f/a", &small),
        link("f/l", "x"),
        directory("missing/d"),
        file("gone", &large),
    ]);
    let mut stream = copy.stream();
    for (number, bytes) in [(0, &small), (1, &large), (2, &small), (3, &large), (4, &small), (5, &small), (8, &large)] {
        stream.write_all(&block(number, bytes, 0, false)).unwrap();
    }
    stream.write_all(&block(1, &large, 1, false)).unwrap();
    copy.sent(1, &large);
    let end = CarriedEnd::Sender;
    let gone = Failure { file: Some(8), name: Name::new("gone").unwrap(), what: "changed".into(), full: false, end };
    copy.receiving.heard(FromSender::Failed(gone.clone())).unwrap();
    let ended = copy.end();
    assert_eq!(
        ended.tally,
        Tally { files: 3, failed: 6, bytes: Bytes(2200), ..Tally::default() },
        "{:?}",
        ended.failures
    );
    assert!(ended.failures.contains(&gone));
    let mut there = names(place.path());
    there.retain(|name| !name.starts_with(".gone"));
    assert_eq!(there, ["f".to_owned(), other, long]);
}

#[test]
fn a_file_system_without_nameless_files_is_served_too() {
    let place = TempDir::new().unwrap();
    let tree = Tree::open(&Base::Here, place.path(), false, false).unwrap();
    let entry = file("a", b"new");
    let made = |replace| {
        let small = Small::beside(tree.place(&entry.name).unwrap(), entry.mode).unwrap();
        small.file().write_all(b"new").unwrap();
        assert_eq!(names(place.path())[0], ".a.lfn-partial");
        small.name(replace)
    };
    fs::write(place.path().join(".a.lfn-partial"), b"stale").unwrap();
    made(false).unwrap();
    assert!(matches!(made(false), Err(TransferError::Exists { .. })));
    assert_eq!(names(place.path()), ["a"]);
    made(true).unwrap();
    assert_eq!((names(place.path()), fs::read(place.path().join("a")).unwrap()), (vec!["a".to_owned()], b"new".into()));
}
