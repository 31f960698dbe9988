//! Tests of a receiver over local sockets, with the messages and blocks of a sender.

use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicU16, Ordering};
use std::{fs, thread};

use lfn_base::random_data::fill_random;
use lfn_session::DataStream;
use lfn_session::transport::tcp::{TcpSocket, pair};
use lfn_session::wire::copy::blocks::Layout;
use lfn_session::wire::copy::byte_string::ByteString;
use lfn_session::wire::copy::digest::{BlockHash, Digest};
use lfn_session::wire::copy::entry::{Entry, EntryKind, Modified, Name, Xattr};
use lfn_session::wire::copy::options::{FsyncPolicy, TransferOptions, Verify};
use lfn_session::wire::copy::overwrite::OverwritePolicy;
use lfn_session::wire::copy::preserve::SkippedEntries;
use lfn_session::wire::copy::{BlockHeader, CopyEnd, CopyTally, EntryFailure, MAX_PENDING_ENTRIES};
use tempfile::TempDir;

use super::*;
use crate::base_dir::BaseDir;
use crate::entry_listener::EntryListener;

mod concurrent_changes;
mod delete_limits;
mod existing;
mod protocol_order;
mod resume;
mod storages;

const BLOCK: Bytes = Bytes(1024);

/// Preserves links: without this, no links may be listed.
const LINKS: Preserve =
    Preserve { links: true, hard_links: true, modes: false, owners: false, xattrs: false, acls: false, sparse: false };

/// A running copy, from the sender's side.
struct TestCopy {
    receiver: Receiver,
    messages: Vec<ReceiverMessage>,
    listed: u32,
    streams: AtomicU16,
}

impl TestCopy {
    fn start(destination: Destination) -> Self {
        TestCopy::with_fsync(destination, FsyncPolicy::File)
    }

    fn with_fsync(destination: Destination, sync: FsyncPolicy) -> Self {
        TestCopy::with_options(destination, TransferOptions { fsync: sync, ..TransferOptions::default() })
    }

    fn with_options(destination: Destination, options: TransferOptions) -> Self {
        TestCopy::with_block_size(destination, options, BLOCK)
    }

    fn with_block_size(destination: Destination, options: TransferOptions, block: Bytes) -> Self {
        TestCopy::with_receiver(destination, receiver_options(options, block))
    }

    fn with_receiver(destination: Destination, options: ReceiverOptions) -> Self {
        let receiver = Receiver::start(destination, options, StreamSet::default()).unwrap();
        TestCopy { receiver, messages: Vec::new(), listed: 0, streams: AtomicU16::new(0) }
    }

    fn with_verify(verify: Verify, directory: &Path) -> Self {
        TestCopy::with_options(
            destination_in(directory, OverwritePolicy::default()),
            TransferOptions { verify, ..TransferOptions::default() },
        )
    }

    fn into(directory: &Path) -> Self {
        TestCopy::start(destination_in(directory, OverwritePolicy::default()))
    }

    fn open_stream(&self) -> TcpSocket {
        let (near, far) = pair();
        let far = DataStream::clear(self.streams.fetch_add(1, Ordering::SeqCst), Box::new(far));
        let worker = self.receiver.stream_worker();
        thread::spawn(move || worker(far));
        near
    }

    fn list(&mut self, entries: Vec<Entry>) {
        let (first, count) = (self.listed, entries.len() as u32);
        self.receiver.on_message(SenderMessage::List { first, entries }, Instant::now()).unwrap();
        self.listed += count;
    }

    fn finish_list(&mut self) {
        self.receiver
            .on_message(
                SenderMessage::Listed { entries: self.listed, bytes: Bytes(0), skipped: SkippedEntries::default() },
                Instant::now(),
            )
            .unwrap();
    }

    fn send_digest(&mut self, file: u32, bytes: &[u8]) {
        let digest = Digest(*blake3::hash(bytes).as_bytes());
        self.receiver.on_message(SenderMessage::Sent { file, digest }, Instant::now()).unwrap();
    }

    /// Collects messages until `needed` accepts one.
    fn wait_for<T>(&mut self, what: &str, needed: impl Fn(&ReceiverMessage) -> Option<T>) -> T {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(found) = self.messages.iter().find_map(&needed) {
                return found;
            }
            let error = self.receiver.streams.take_error();
            assert!(error.is_none() && Instant::now() < deadline, "{what}: {error:?}, {:?}", self.messages);
            self.messages.extend(self.receiver.take_messages(Instant::now()));
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn finish(mut self) -> CopyResult {
        self.finish_list();
        self.result()
    }

    fn result(mut self) -> CopyResult {
        let tally = self.wait_for("done", |message| match message {
            ReceiverMessage::Done { tally, .. } => Some(*tally),
            _ => None,
        });
        let result = self.receiver.result().unwrap();
        assert_eq!(result.tally, tally);
        let settled = self.messages.iter().map(|message| match message {
            ReceiverMessage::Settled { files } => files.len(),
            _ => 0,
        });
        assert_eq!(settled.sum::<u64>(), u64::from(self.listed));
        self.receiver.close();
        result
    }

    fn resumed_blocks(&mut self, file: u32) -> Vec<u64> {
        self.wait_for("have", |message| match message {
            ReceiverMessage::Have { file: about, blocks } if *about == file => {
                Some(blocks.ranges().flat_map(|(first, last)| first..=last).collect())
            }
            _ => None,
        })
    }
}

fn receiver_options(transfer: TransferOptions, block_size: Bytes) -> ReceiverOptions {
    let (listener, timeouts) = (EntryListener::default(), ReceiverTimeouts::default());
    ReceiverOptions { transfer, listener, since: None, block_size, timeouts, ranks: ReceiverRanks::None }
}

/// Returns options with this maximum wait for another copy.
fn impatient(other_copy: Duration) -> ReceiverOptions {
    let timeouts = ReceiverTimeouts { other_copy, ..ReceiverTimeouts::default() };
    ReceiverOptions { timeouts, ..receiver_options(TransferOptions::default(), BLOCK) }
}

fn destination_in(path: &Path, overwrite: OverwritePolicy) -> Destination {
    Destination::Path {
        base: BaseDir::Local,
        path: path.into(),
        overwrite,
        single: false,
        preserve: LINKS,
        write_only: None,
    }
}

fn entry(name: &str, kind: EntryKind) -> Entry {
    Entry::new(Name::new(name).unwrap(), kind, 0o640, Modified::new(1_000_000_000, 5_000).unwrap()).unwrap()
}

fn file(name: &str, bytes: &[u8]) -> Entry {
    entry(name, EntryKind::File { length: Bytes(bytes.len() as u64) })
}

fn directory(name: &str) -> Entry {
    Entry { mode: 0o750, ..entry(name, EntryKind::Directory) }
}

fn link(name: &str, target: &str) -> Entry {
    entry(name, EntryKind::Symlink { target: target.into() })
}

/// Creates a file that looks as if its entry had been copied.
fn create_file(directory: &Path, entry: &Entry, bytes: &[u8]) {
    let path = directory.join(entry.name.to_string());
    fs::write(&path, bytes).unwrap();
    let since_epoch = Duration::new(entry.modified.seconds() as u64, entry.modified.nanoseconds());
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(std::time::UNIX_EPOCH + since_epoch).unwrap();
}

fn data(seed: u64, length: usize) -> Vec<u8> {
    let mut data = vec![0; length];
    fill_random(seed, 0, &mut data);
    data
}

/// Returns one block as a stream carries it; with `damage` it is damaged after hashing.
fn block(file: u32, bytes: &[u8], index: u64, damage: bool) -> Vec<u8> {
    let mut message = block_with(Verify::Blake3, file, bytes, index);
    if damage {
        *message.last_mut().unwrap() ^= 1;
    }
    message
}

fn block_with(verify: Verify, file: u32, bytes: &[u8], index: u64) -> Vec<u8> {
    let layout = Layout::new(Bytes(bytes.len() as u64), BLOCK).unwrap();
    let block = layout.block(index).unwrap();
    let payload = &bytes[block.offset as usize..][..block.length as usize];
    let hash = verify.hash(&layout, block, payload);
    let header = BlockHeader { file, offset: block.offset, length: block.length, hash, hole: None, verify };
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

fn failure(result: &CopyResult) -> &EntryFailure {
    assert_eq!(result.failures.len(), 1, "{:?}", result.failures);
    &result.failures[0]
}

/// Returns the contents, entries and blocks of many small files.
fn many_files(directory: &str, first: u32) -> (Vec<Vec<u8>>, Vec<Entry>, Vec<Vec<u8>>) {
    let contents: Vec<Vec<u8>> = (0..600).map(|n| data(n, (n as usize * 37) % 1025)).collect();
    let named = contents.iter().enumerate().map(|(n, bytes)| file(&format!("{directory}/{n}"), bytes));
    let entries = named.collect();
    let full = contents.iter().enumerate().filter(|(_, bytes)| !bytes.is_empty());
    let blocks = full.map(|(n, bytes)| block(first + n as u32, bytes, 0, false)).collect();
    (contents, entries, blocks)
}

#[test]
fn small_files_arrive_unchanged() {
    for sync in [FsyncPolicy::File, FsyncPolicy::End, FsyncPolicy::None] {
        let temp = TempDir::new().unwrap();
        let top = temp.path().join("new");
        let mut copy = TestCopy::with_fsync(destination_in(&top, OverwritePolicy::default()), sync);
        let (mut one, mut two) = (copy.open_stream(), copy.open_stream());
        let (contents, mut files, blocks) = many_files("d/e", 4);
        files[1].mode = 0o6755;
        files[2].linked = true;
        // Blocks that arrive before their entries must wait.
        let (left, right) = blocks.split_at(blocks.len() / 2);
        let (left, right) = (left.concat(), right.concat());
        let writer = thread::spawn(move || two.write_all(&right).map(|()| two));
        let early = thread::spawn(move || one.write_all(&left).map(|()| one));
        let closed = Entry { mode: 0o555, ..directory("d/e") };
        copy.list(vec![directory("."), directory("d"), link("d/l", "../nowhere"), closed]);
        copy.list(files);
        // The linked file may not exist yet.
        copy.list(vec![entry("d/h", EntryKind::HardLink { to: 6 }), entry("d/i", EntryKind::HardLink { to: 9_999 })]);
        let _streams = (writer.join().unwrap().unwrap(), early.join().unwrap().unwrap());
        let result = copy.finish();
        let tally = CopyTally {
            files: 600,
            directories: 3,
            links: 2,
            failed: 1,
            bytes: Bytes(304_150),
            ..CopyTally::default()
        };
        assert_eq!(result.tally, tally, "{:?}", result.failures);
        assert_eq!((failure(&result).file, failure(&result).name.to_string()), (Some(605), "d/i".into()));
        for (n, bytes) in contents.iter().enumerate() {
            let path = top.join(format!("d/e/{n}"));
            assert_eq!(&fs::read(&path).unwrap(), bytes, "{n}");
            let metadata = fs::metadata(&path).unwrap();
            assert_eq!((metadata.mtime(), metadata.mtime_nsec()), (1_000_000_000, 5_000));
            // The mode has no more bits than requested, whatever the umask, and no set-id bits.
            assert_eq!(metadata.mode() & 0o7777 & !if n == 1 { 0o755 } else { 0o640 }, 0);
        }
        assert_eq!(names(&top.join("d/e")).len(), 600);
        assert_eq!(names(&top.join("d")), ["e", "h", "l"]);
        assert_eq!(fs::read_link(top.join("d/l")).unwrap(), Path::new("../nowhere"));
        let inode = |path: &str| fs::metadata(top.join(path)).unwrap().ino();
        assert_eq!(inode("d/h"), inode("d/e/2"));
        for (path, mode) in [("", 0o750), ("d", 0o750), ("d/e", 0o555)] {
            let metadata = fs::metadata(top.join(path)).unwrap();
            assert_eq!((metadata.mtime(), metadata.mode() & 0o7777 & !mode), (1_000_000_000, 0), "{path}");
        }
        fs::set_permissions(top.join("d/e"), fs::Permissions::from_mode(0o755)).unwrap();
    }
}

#[test]
fn blocks_of_a_large_file_arrive_in_any_order() {
    let temp = TempDir::new().unwrap();
    let to = temp.path().join("x");
    let path = to.clone();
    let mut copy = TestCopy::start(Destination::Path {
        base: BaseDir::Local,
        path,
        overwrite: OverwritePolicy::default(),
        single: true,
        preserve: Preserve::default(),
        write_only: None,
    });
    let on_request = copy.wait_for("ready", |message| match message {
        ReceiverMessage::Ready { on_request, .. } => Some(*on_request),
        _ => None,
    });
    assert!(!on_request);
    let bytes = data(1, 10_000);
    copy.list(vec![file("own", &bytes)]);
    copy.finish_list();
    let mut streams = [copy.open_stream(), copy.open_stream()];
    // The digest may arrive before the last block.
    copy.send_digest(0, &bytes);
    for index in [9, 3, 4, 0, 1, 8, 7, 2, 5, 6] {
        streams[index as usize % 2].write_all(&block(0, &bytes, index, false)).unwrap();
    }
    let result = copy.result();
    assert_eq!(result.digest, Some(Digest(*blake3::hash(&bytes).as_bytes())));
    assert_eq!((result.tally.files, result.bytes), (1, Bytes(10_000)));
    assert_eq!(result.path.as_deref(), to.to_str());
    assert_eq!(fs::read(&to).unwrap(), bytes);
    assert_eq!((names(temp.path()), fs::metadata(&to).unwrap().mtime()), (vec!["x".to_owned()], 1_000_000_000));
}

#[test]
fn several_entries_create_a_directory() {
    let temp = TempDir::new().unwrap();
    for (name, entries) in [("tree", vec![directory("d")]), ("files", vec![file("a", &[]), file("b", &[])])] {
        let path = temp.path().join(name);
        let destination = Destination::Path {
            base: BaseDir::Local,
            path: path.clone(),
            overwrite: OverwritePolicy::default(),
            single: true,
            preserve: Preserve::default(),
            write_only: None,
        };
        let mut copy = TestCopy::start(destination);
        let needed: Vec<_> = entries.iter().map(|entry| entry.name.to_string()).collect();
        copy.list(entries);
        assert_eq!(copy.finish().tally.failed, 0);
        assert_eq!(names(&path), needed);
    }
    let path = temp.path().join("nothing");
    let copy = TestCopy::start(Destination::Path {
        base: BaseDir::Local,
        path,
        overwrite: OverwritePolicy::default(),
        single: true,
        preserve: Preserve::default(),
        write_only: None,
    });
    assert_eq!(copy.finish().tally, CopyTally::default());
    assert_eq!(names(temp.path()), ["files", "tree"]);
}

#[test]
fn null_destination_stores_nothing() {
    let mut copy = TestCopy::start(Destination::Null);
    let bytes = data(1, 3_000);
    copy.list(vec![file("large", &bytes), file("small", &bytes[..10]), directory("d"), file("empty", &[])]);
    let mut stream = copy.open_stream();
    (0..3).for_each(|index| stream.write_all(&block(0, &bytes, index, false)).unwrap());
    stream.write_all(&block(1, &bytes[..10], 0, false)).unwrap();
    copy.send_digest(0, &bytes);
    assert_eq!(copy.finish().tally, CopyTally { files: 3, directories: 1, bytes: Bytes(3010), ..CopyTally::default() });
}

#[test]
fn damaged_blocks_are_requested_again() {
    let temp = TempDir::new().unwrap();
    let mut copy = TestCopy::into(temp.path());
    let (large, small) = (data(1, 3_000), data(2, 500));
    copy.list(vec![file("large", &large), file("small", &small), file("bad", &small), file("worse", &large)]);
    let mut stream = copy.open_stream();
    for (damage, index) in [(true, 0), (false, 1), (true, 0), (false, 0), (false, 2)] {
        stream.write_all(&block(0, &large, index, damage)).unwrap();
        stream.write_all(&block(3, &large, index, true)).unwrap();
    }
    stream.write_all(&block(1, &small, 0, true)).unwrap();
    stream.write_all(&block(1, &small, 0, false)).unwrap();
    (0..3).for_each(|_| stream.write_all(&block(2, &small, 0, true)).unwrap());
    copy.send_digest(0, &large);
    let again = copy.wait_for("again", |message| match message {
        ReceiverMessage::Resend { file: 1, index } => Some(*index),
        _ => None,
    });
    assert_eq!(again, 0);
    let result = copy.finish();
    // The last file: blocks 0 and 1 once each, then block 0 twice more. The third failure of block 0 is final.
    assert_eq!(
        result.tally,
        CopyTally { files: 2, failed: 2, resent_blocks: 2 + 1 + 2 + 3, bytes: Bytes(3500), ..CopyTally::default() }
    );
    assert!(result.failures.iter().all(|failure| failure.reason.contains("corrupt")), "{:?}", result.failures);
    assert_eq!(fs::read(temp.path().join("large")).unwrap(), large);
    assert_eq!(names(temp.path()), ["large", "small"]);
}

#[test]
fn digest_mismatch_leaves_no_file() {
    let temp = TempDir::new().unwrap();
    let mut copy = TestCopy::into(temp.path());
    let bytes = data(1, 3_000);
    copy.list(vec![file("a", &bytes)]);
    let mut stream = copy.open_stream();
    (0..3).for_each(|index| stream.write_all(&block(0, &bytes, index, false)).unwrap());
    copy.send_digest(0, b"another");
    let result = copy.finish();
    assert!(failure(&result).reason.contains("digest"), "{:?}", result.failures);
    assert!(names(temp.path()).is_empty());
}

#[test]
fn two_copies_cannot_write_one_file() {
    let temp = TempDir::new().unwrap();
    let bytes = data(1, 3_000);
    let mut first = TestCopy::into(temp.path());
    first.list(vec![file("a", &bytes)]);
    let mut stream = first.open_stream();
    stream.write_all(&block(0, &bytes, 0, false)).unwrap();
    let journal = temp.path().join(".a.lfn-journal");
    while !journal.exists() {
        thread::sleep(Duration::from_millis(1));
    }
    let mut second = TestCopy::with_receiver(
        destination_in(temp.path(), OverwritePolicy::default()),
        impatient(Duration::from_millis(100)),
    );
    second.list(vec![file("a", &bytes)]);
    let result = second.finish();
    assert!(failure(&result).reason.contains("another copy"), "{:?}", result.failures);
    (1..3).for_each(|index| stream.write_all(&block(0, &bytes, index, false)).unwrap());
    first.send_digest(0, &bytes);
    assert_eq!(first.finish().tally.files, 1);
    assert_eq!(names(temp.path()), ["a"]);
}

#[test]
fn existing_entries_follow_the_overwrite_policy() {
    let (old, new) = (data(1, 700), data(2, 900));
    let force = OverwritePolicy { force: true, ..OverwritePolicy::default() };
    let update = OverwritePolicy { update: true, ..OverwritePolicy::default() };
    for (allowed, replaced, kept) in [(OverwritePolicy::default(), 0, 3), (force, 3, 0), (update, 2, 1)] {
        let temp = TempDir::new().unwrap();
        let path = |name: &str| temp.path().join(name);
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
        let mut copy = TestCopy::start(destination_in(temp.path(), allowed));
        let asked = copy.wait_for("ready", |message| match message {
            ReceiverMessage::Ready { on_request, .. } => Some(*on_request),
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
        copy.wait_for("request", |message| matches!(message, ReceiverMessage::Request { up_to: 6 }).then_some(()));
        let mut stream = copy.open_stream();
        for number in 0..5 {
            stream.write_all(&block(number, &new, 0, false)).unwrap();
        }
        let result = copy.finish();
        // The existing directory is skipped. A file never replaces a directory with contents.
        let refused = if allowed == OverwritePolicy::default() { 3 } else { 0 };
        let skipped = 2 + if allowed == update { 1 } else { 0 };
        let bytes = result.tally.bytes;
        let skipped_bytes = Bytes((skipped - 1) * new.len() as u64);
        let tally =
            CopyTally { files: replaced, skipped, skipped_bytes, failed: refused + 1, bytes, ..CopyTally::default() };
        assert_eq!(result.tally, tally, "{allowed:?}: {:?}", result.failures);
        let is_old = |name: &&str| fs::read(path(name)).unwrap() == old;
        assert_eq!(["older", "newer", "link"].iter().copied().filter(is_old).count(), kept, "{allowed:?}");
        assert_eq!(fs::symlink_metadata(path("link")).unwrap().is_symlink(), replaced == 0);
        assert_eq!(names(temp.path()), ["directory", "link", "newer", "older", "same"]);
    }
}

/// Blocks of an unreadable file are kept for the next copy, those of a changed file are not.
#[test]
fn changed_file_is_not_resumed() {
    for message in [SenderMessage::Failed, SenderMessage::Changed] {
        let temp = TempDir::new().unwrap();
        let mut copy = TestCopy::into(temp.path());
        let large = data(1, 2_000);
        copy.list(vec![file("large", &large)]);
        let mut stream = copy.open_stream();
        stream.write_all(&block(0, &large, 0, false)).unwrap();
        // A partial file without a block is not kept.
        let partial = temp.path().join(".large.lfn-partial");
        while !fs::read(&partial).is_ok_and(|bytes| bytes.starts_with(&large[..16])) {
            thread::sleep(Duration::from_millis(1));
        }
        let (name, reason) = (Name::new("large").unwrap(), "failed".into());
        let failure = EntryFailure { file: Some(0), name, reason, disk_full: false, end: CopyEnd::Sender };
        let message = message(failure);
        let is_kept = matches!(message, SenderMessage::Failed(_));
        copy.receiver.on_message(message, Instant::now()).unwrap();
        // The end of the copy would end the file before its failure is handled, and keep its blocks.
        let deadline = Instant::now() + Duration::from_secs(60);
        while !is_kept && partial.exists() {
            assert!(Instant::now() < deadline);
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(copy.finish().tally.failed, 1);
        assert_eq!(names(temp.path()).len(), if is_kept { 2 } else { 0 }, "{:?}", names(temp.path()));
    }
}

#[test]
fn one_failed_entry_does_not_stop_the_copy() {
    let temp = TempDir::new().unwrap();
    let mut copy = TestCopy::into(temp.path());
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
    let mut stream = copy.open_stream();
    for (number, bytes) in [(0, &small), (1, &large), (2, &small), (3, &large), (4, &small), (5, &small), (8, &large)] {
        stream.write_all(&block(number, bytes, 0, false)).unwrap();
    }
    stream.write_all(&block(1, &large, 1, false)).unwrap();
    copy.send_digest(1, &large);
    let end = CopyEnd::Sender;
    let gone = EntryFailure {
        file: Some(8),
        name: Name::new("gone").unwrap(),
        reason: "changed".into(),
        disk_full: false,
        end,
    };
    copy.receiver.on_message(SenderMessage::Failed(gone.clone()), Instant::now()).unwrap();
    let result = copy.finish();
    assert_eq!(
        result.tally,
        CopyTally { files: 3, failed: 6, bytes: Bytes(2200), ..CopyTally::default() },
        "{:?}",
        result.failures
    );
    assert!(result.failures.contains(&gone));
    let mut existing = names(temp.path());
    existing.retain(|name| !name.starts_with(".gone"));
    assert_eq!(existing, ["f".to_owned(), other, long]);
}
