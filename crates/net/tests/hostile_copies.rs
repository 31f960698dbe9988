//! A client that holds the ticket and means no good: whatever it sends, the server refuses and goes on serving.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::thread;
use std::time::{Duration, Instant};

use lfn_core::session::SessionId;
use lfn_core::transfer::blocks::Layout;
use lfn_core::transfer::blockset::BlockSet;
use lfn_core::transfer::digest::{BlockHash, Digest, hash_block};
use lfn_core::transfer::keep::{Keep, LeftOut};
use lfn_core::transfer::manner::Verify;
use lfn_core::transfer::verdict::Allowed;
use lfn_core::units::Bytes;
use lfn_core::wire::RefusalCode;
use lfn_core::wire::copy::{BlockHeader, Failure, From, FromReceiver, FromSender, Job, Part, Pick, Tally, To};
use lfn_net::server::Config;
use lfn_net::server::admission::{Quotas, Share};
use lfn_net::service;
use lfn_net::session::dial::{self, Target};
use lfn_net::session::{Control, DataStream, Protection, SessionError};
use serde_json::{Value, json};
use support::Served;

const BLOCK: u64 = 1024;
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that copies go to, and where they go.
struct Copies {
    target: Target,
    root: tempfile::TempDir,
    served: Served,
}

impl Copies {
    fn new() -> Self {
        Copies::over(tempfile::tempdir().unwrap(), None)
    }

    /// One that lets a client move so many bytes.
    fn over(root: tempfile::TempDir, bytes: Option<u64>) -> Self {
        let client = Share { bytes: bytes.map(Bytes), ..Quotas::default().client };
        let quotas = Quotas { client, ..Quotas::default() };
        let config = Config { root: Some(root.path().to_owned()), quotas, ..support::config() };
        let served = Served::start(config, service::serve);
        Copies { target: served.target(), root, served }
    }

    /// The same files at a server that lets a client move so many bytes.
    fn served_anew(self, bytes: Option<u64>) -> Self {
        let Copies { root, served, .. } = self;
        drop(served);
        Copies::over(root, bytes)
    }

    fn names(&self) -> Vec<String> {
        let names = fs::read_dir(self.root.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn ask(&self, job: Job, streams: u16, block: u64) -> (Control, Vec<DataStream>) {
        let (session, control) = self.ask_only(job, streams, block);
        let open = |n| self.stream(session, n, Protection::Tls);
        (control, (0..streams.min(4)).map(open).collect())
    }

    fn stream(&self, session: SessionId, number: u16, protection: Protection) -> DataStream {
        dial::data(&self.target, session, number, protection, None, |_| Ok(())).unwrap()
    }

    fn ask_only(&self, job: Job, streams: u16, block: u64) -> (SessionId, Control) {
        let session = dial::new_session_id().unwrap();
        let request = support::copy_request(job, streams, block);
        (session, dial::control(&self.target, session, request).unwrap())
    }

    /// Asks for a place for one file of that length, and lists it.
    fn put(&self, bytes: u64) -> (Control, Vec<DataStream>) {
        let (mut control, streams) = self.ask(to("a"), 2, BLOCK);
        list(&mut control, &[file("x", bytes)]);
        (control, streams)
    }

    /// Nothing was published, and the server still takes an honest copy.
    #[track_caller]
    fn is_unharmed(&self) {
        let deadline = Instant::now() + PATIENCE;
        // What came whole before the lie is kept for the next copy, under no final name.
        let names = || fs::read_dir(self.root.path()).unwrap().map(|entry| entry.unwrap().file_name());
        while names().any(|name| name != ".a.lfn-partial" && name != ".a.lfn-journal") {
            assert!(Instant::now() < deadline, "{:?}", names().collect::<Vec<_>>());
            thread::sleep(Duration::from_millis(5));
        }
        let data = vec![7; 3000];
        let (mut control, mut streams) = self.put(3000);
        for index in 0..3 {
            let (header, payload) = block(&data, index);
            streams[0].write_all(&header.encode()).unwrap();
            streams[0].write_all(&payload).unwrap();
        }
        let digest = Digest(*blake3::hash(&data).as_bytes());
        control.send(&FromSender::Sent { file: 0, digest }).unwrap();
        let (tally, failures) = last_word(&mut control).unwrap();
        assert_eq!((tally.files, failures.as_slice()), (1, &[][..]));
        assert_eq!(fs::read(self.root.path().join("a")).unwrap(), data);
        fs::remove_file(self.root.path().join("a")).unwrap();
    }
}

fn block(data: &[u8], index: u64) -> (BlockHeader, Vec<u8>) {
    let layout = Layout::new(Bytes(data.len() as u64), Bytes(BLOCK)).unwrap();
    let block = layout.block(index).unwrap();
    let payload = data[block.offset as usize..][..block.length as usize].to_vec();
    let hash = hash_block(&layout, block, &payload);
    (
        BlockHeader { file: 0, offset: block.offset, length: block.length, hash, hole: false, verify: Verify::Blake3 },
        payload,
    )
}

fn to(path: &str) -> Job {
    let allowed = Allowed { force: true, ..Allowed::default() };
    Job::Put { to: To::File { path: path.into(), allowed, single: true, keep: Keep::default() } }
}

/// An entry as a peer may write it, whatever it says.
fn file(name: &str, length: u64) -> Value {
    json!({ "name": name, "kind": { "file": { "length": length } }, "mode": 0o644, "modified": [0, 0] })
}

/// Lists entries and says that these are all; the server may have hung up.
fn list(control: &mut Control, entries: &[Value]) {
    let _ = control.send(&json!({ "sender": "list", "first": 0, "entries": entries }));
    let _ = control.send(&FromSender::Listed {
        entries: entries.len() as u32,
        bytes: Bytes(0),
        left_out: LeftOut::default(),
    });
}

/// What `Done` tells, with the failures before it, or why there is none.
fn last_word(control: &mut Control) -> Result<(Tally, Vec<Failure>), SessionError> {
    let mut failures = Vec::new();
    loop {
        match control.recv(PATIENCE, "in a test")? {
            FromReceiver::Done { tally, .. } => return Ok((tally, failures)),
            FromReceiver::Failed(failure) => failures.push(failure),
            _ => {}
        }
    }
}

#[track_caller]
fn refusal(control: &mut Control) -> RefusalCode {
    match last_word(control) {
        Err(SessionError::Refused(refusal)) => refusal.code,
        other => panic!("{other:?}"),
    }
}

#[test]
fn headers_that_lie_are_refused() {
    let served = Copies::new();
    let data = vec![7; 3000];
    let (good, _) = block(&data, 0);
    let lies: Vec<(&str, Vec<u8>, RefusalCode)> = vec![
        ("noise", vec![0xa5; 200], RefusalCode::BadMessage),
        ("another file", BlockHeader { file: 1, ..good }.encode().to_vec(), RefusalCode::BadMessage),
        ("beyond the end", BlockHeader { offset: 3 * BLOCK, ..good }.encode().to_vec(), RefusalCode::BadMessage),
        ("overflow", BlockHeader { offset: u64::MAX, ..good }.encode().to_vec(), RefusalCode::BadMessage),
        ("unaligned", BlockHeader { offset: 1, ..good }.encode().to_vec(), RefusalCode::BadMessage),
        ("too long", BlockHeader { length: u32::MAX, ..good }.encode().to_vec(), RefusalCode::BadMessage),
        ("empty", BlockHeader { length: 0, ..good }.encode().to_vec(), RefusalCode::BadMessage),
    ];
    for (what, bytes, code) in lies {
        let (mut control, mut streams) = served.put(3000);
        // The server may be done with it before it has all of it.
        let _ = streams[0].write_all(&bytes);
        let _ = streams[0].finish();
        assert_eq!(refusal(&mut control), code, "{what}");
    }
    served.is_unharmed();
}

/// Hashes of blocks without neighbours are remembered until those come: a sender that leaves all of them out could have
/// a server remember as much as it likes, for a header each where the blocks are holes.
#[test]
fn blocks_that_leave_gaps_everywhere_are_not_all_remembered() {
    let served = Copies::new();
    let keep = Keep { sparse: true, ..Keep::default() };
    let to = To::File { path: "a".into(), allowed: Allowed::default(), single: true, keep };
    let (mut control, mut streams) = served.ask(Job::Put { to }, 1, BLOCK);
    let layout = Layout::new(Bytes(1 << 30), Bytes(BLOCK)).unwrap();
    list(&mut control, &[file("x", 1 << 30)]);
    let zeros = [0; BLOCK as usize];
    for blocks in (0..layout.blocks()).step_by(2).take((1 << 18) + 1).collect::<Vec<_>>().chunks(512) {
        let headers = blocks.iter().flat_map(|index| {
            let block = layout.block(*index).unwrap();
            let (offset, length, hash) = (block.offset, block.length, hash_block(&layout, block, &zeros));
            BlockHeader { file: 0, offset, length, hash, hole: true, verify: Verify::Blake3 }.encode()
        });
        // The server may have enough of it.
        let _ = streams[0].write_all(&headers.collect::<Vec<_>>());
    }
    let (tally, failures) = last_word(&mut control).unwrap();
    assert_eq!((tally.files, tally.failed), (0, 1));
    assert!(failures[0].what.contains("scattered"), "{failures:?}");
    served.is_unharmed();
}

/// The number of the stream that the server says is over.
#[track_caller]
fn broken(control: &mut Control) -> u16 {
    loop {
        if let FromReceiver::Broken { stream, .. } = control.recv(PATIENCE, "in a test").unwrap() {
            return stream;
        }
    }
}

#[test]
fn a_block_cut_short_is_asked_for_again() {
    let served = Copies::new();
    let data = vec![7; 3000];
    let (mut control, mut streams) = served.put(3000);
    let write = |stream: &mut DataStream, index: u64, length: usize| {
        let (header, payload) = block(&data, index);
        stream.write_all(&header.encode()).unwrap();
        stream.write_all(&payload[..length.min(payload.len())]).unwrap();
    };
    write(&mut streams[1], 1, 1024);
    write(&mut streams[0], 0, 1024);
    write(&mut streams[0], 2, 100);
    streams[0].finish().unwrap();
    assert_eq!(broken(&mut control), 0);
    let all = Part { file: 0, blocks: BlockSet::from_range(0, 2) };
    control.send(&FromSender::Lost { stream: 0, blocks: vec![all], more: false, stalled: false }).unwrap();
    let missing = loop {
        if let FromReceiver::Missing { blocks } = control.recv(PATIENCE, "in a test").unwrap() {
            break blocks;
        }
    };
    // Block 1 may still have been on its way over the other stream.
    let lacks = |index| missing.iter().any(|part| part.blocks.contains(index));
    assert!(!lacks(0) && lacks(2), "{missing:?}");
    if !lacks(1) {
        write(&mut streams[1], 2, 1024);
    } else {
        return;
    }
    let digest = Digest(*blake3::hash(&data).as_bytes());
    control.send(&FromSender::Sent { file: 0, digest }).unwrap();
    assert_eq!(last_word(&mut control).unwrap().0.files, 1);
    assert_eq!(fs::read(served.root.path().join("a")).unwrap(), data);
}

#[test]
fn what_cannot_have_been_lost_is_refused() {
    let served = Copies::new();
    let lost = |file, last| {
        let part = Part { file, blocks: BlockSet::from_range(0, last) };
        FromSender::Lost { stream: 1, blocks: vec![part], more: false, stalled: false }
    };
    for message in [lost(5, 0), lost(0, u64::MAX - 2)] {
        let (mut control, _streams) = served.put(3000);
        control.send(&message).unwrap();
        assert_eq!(refusal(&mut control), RefusalCode::BadMessage, "{message:?}");
    }
    served.is_unharmed();
}

#[test]
fn a_damaged_block_is_asked_for_again_but_not_for_ever() {
    let served = Copies::new();
    let data = vec![7; 3000];
    let (good, payload) = block(&data, 0);
    let damaged = [&BlockHeader { hash: BlockHash([1; 32]), ..good }.encode()[..], &payload].concat();
    let (mut control, mut streams) = served.put(3000);
    let mut asked = 0;
    streams[0].write_all(&damaged).unwrap();
    let failure = loop {
        match control.recv(PATIENCE, "in a test").unwrap() {
            FromReceiver::Again { file: 0, index: 0 } => {
                asked += 1;
                streams[0].write_all(&damaged).unwrap();
            }
            FromReceiver::Failed(failure) => break failure,
            _ => {}
        }
    };
    assert!((1..10).contains(&asked), "{asked}");
    assert_eq!(failure.file, Some(0));
    assert_eq!(last_word(&mut control).unwrap().0.failed, 1);
    served.is_unharmed();
}

#[test]
fn requests_that_cannot_be_meant_are_refused() {
    let served = Copies::new();
    let get = |from| Job::Get { from: vec![from], pick: Pick::default() };
    let cases = [
        (to("a"), 1, 3, RefusalCode::Limit),
        (to("a"), 1, u64::MAX, RefusalCode::Limit),
        (to("a"), 0, BLOCK, RefusalCode::Limit),
        (to("a"), u16::MAX, BLOCK, RefusalCode::Limit),
        (to("../a"), 1, BLOCK, RefusalCode::Forbidden),
        (to("/etc/a"), 1, BLOCK, RefusalCode::Forbidden),
        (to("a\0b"), 1, BLOCK, RefusalCode::Io),
        (to(&"x/".repeat(4000)), 1, BLOCK, RefusalCode::Io),
        (to(&"x".repeat(300)), 1, BLOCK, RefusalCode::Io),
        (get(From::File { path: "../etc/passwd".into() }), 1, BLOCK, RefusalCode::Forbidden),
        (get(From::Zero { bytes: Bytes(u64::MAX) }), 1, BLOCK, RefusalCode::Limit),
    ];
    for (job, streams, block, code) in cases {
        let what = format!("{job:?}").chars().take(100).collect::<String>();
        let (mut control, _streams) = served.ask(job, streams, block);
        assert_eq!(refusal(&mut control), code, "{what}");
    }
    served.is_unharmed();
}

#[test]
fn entries_that_cannot_be_meant_are_refused() {
    let served = Copies::new();
    let long = "x".repeat(300);
    for entry in [
        file("../a", 1),
        file("..", 1),
        file("/etc/passwd", 1),
        file("a\0b", 1),
        file("a//b", 1),
        file("", 1),
        file(&long, 1),
        file("a", u64::MAX),
        json!({ "name": "a", "kind": "device", "mode": 0o644, "modified": [0, 0] }),
        json!({ "name": "a", "kind": "directory", "mode": 0o104644, "modified": [0, 0] }),
    ] {
        let (mut control, _streams) = served.ask(to(""), 1, BLOCK);
        list(&mut control, std::slice::from_ref(&entry));
        assert_eq!(refusal(&mut control), RefusalCode::BadMessage, "{entry}");
    }
    // What only the disk can refuse is said of the file.
    let (mut control, _streams) = served.ask(to(""), 1, BLOCK);
    list(&mut control, &[file("a", 1 << 53)]);
    let (header, payload) = block(&[7; 3000], 0);
    let mut stream = { _streams }.remove(0);
    stream.write_all(&header.encode()).unwrap();
    stream.write_all(&payload).unwrap();
    let (tally, failures) = last_word(&mut control).unwrap();
    assert_eq!((tally.failed, failures.len(), failures[0].full), (1, 1, true), "{failures:?}");
    served.is_unharmed();
}

#[test]
fn a_digest_that_lies_publishes_nothing() {
    let served = Copies::new();
    let data = vec![7; 3000];
    let (mut control, mut streams) = served.put(3000);
    for index in 0..3 {
        let (header, payload) = block(&data, index);
        streams[1].write_all(&header.encode()).unwrap();
        streams[1].write_all(&payload).unwrap();
    }
    control.send(&FromSender::Sent { file: 0, digest: Digest([0; 32]) }).unwrap();
    assert_eq!(last_word(&mut control).unwrap().0.failed, 1);
    served.is_unharmed();
}

#[test]
fn a_receiver_that_lies_is_refused() {
    let served = Copies::new();
    let lies = [
        FromReceiver::Wants { up_to: 1000 },
        FromReceiver::Have { file: 1000, blocks: BlockSet::from_range(0, 0) },
        FromReceiver::Have { file: 0, blocks: BlockSet::from_range(0, u64::MAX >> 1) },
        FromReceiver::Again { file: 0, index: u64::MAX },
        FromReceiver::Settled { files: BlockSet::from_range(0, 1000) },
    ];
    for lie in lies {
        let from = vec![From::Zero { bytes: Bytes(1 << 40) }];
        let (mut control, _streams) = served.ask(Job::Get { from, pick: Pick::default() }, 2, BLOCK);
        // It has listed, and something is there to be lied about.
        while !matches!(control.recv(PATIENCE, "in a test").unwrap(), FromSender::Listed { .. }) {}
        control.send(&lie).unwrap();
        let code = loop {
            match control.recv::<FromSender>(PATIENCE, "in a test") {
                Ok(_) => {}
                Err(SessionError::Refused(refusal)) => break refusal.code,
                Err(other) => panic!("{other:?}"),
            }
        };
        assert_eq!(code, RefusalCode::BadMessage, "{lie:?}");
    }
    served.is_unharmed();
}

#[test]
fn streams_of_refused_sessions_take_no_places() {
    let served = Copies::new();
    // More than a server parks (Limits::sessions × 4), their streams after the refusal.
    for _ in 0..80 {
        let session = dial::new_session_id().unwrap();
        let job = Job::Get { from: vec![From::File { path: "missing".into() }], pick: Pick::default() };
        let request = support::copy_request(job, 1, BLOCK);
        let mut control = dial::control(&served.target, session, request).unwrap();
        assert_eq!(refusal(&mut control), RefusalCode::NotFound);
        drop(dial::data(&served.target, session, 0, Protection::Tls, None, |_| Ok(())));
    }
    served.is_unharmed();
}

fn into(sparse: bool) -> Job {
    let keep = Keep { sparse, ..Keep::default() };
    Job::Put { to: To::File { path: "".into(), allowed: Allowed::default(), single: false, keep } }
}

/// A block of the file of that number; one that is a hole without its payload.
fn send(stream: &mut DataStream, number: u32, data: &[u8], (index, hole): (u64, bool)) {
    let (header, payload) = block(data, index);
    stream.write_all(&BlockHeader { file: number, hole, ..header }.encode()).unwrap();
    if !hole {
        stream.write_all(&payload).unwrap();
    }
}

/// All of it, to the receiver's last word.
fn send_all(control: &mut Control, stream: &mut DataStream, data: &[u8], hole: bool) -> (Tally, Vec<Failure>) {
    (0..(data.len() as u64).div_ceil(BLOCK)).for_each(|index| send(stream, 0, data, (index, hole)));
    control.send(&FromSender::Sent { file: 0, digest: Digest(*blake3::hash(data).as_bytes()) }).unwrap();
    last_word(control).unwrap()
}

#[test]
fn no_file_grows_longer_than_a_quota_could_pay_for() {
    for sparse in [false, true] {
        let served = Copies::over(tempfile::tempdir().unwrap(), Some(4000));
        let (mut control, mut streams) = served.ask(into(sparse), 1, BLOCK);
        let fits = vec![7; 3000];
        list(&mut control, &[file("fits", 3000), file("huge", 1 << 40), file("more", 1001), file("small", 1000)]);
        let mut failed = Vec::new();
        while failed.len() < 2 {
            if let FromReceiver::Failed(failure) = control.recv(PATIENCE, "in a test").unwrap() {
                failed.push((failure.name.to_string(), failure.what, failure.full));
            }
        }
        let says = |asked: &str| format!("1 kB of the 4 kB in 24 h that this client may move are left, {asked}");
        let huge = ("huge".to_owned(), says("1 TiB asked for"), true);
        assert_eq!(failed, [huge, ("more".to_owned(), says("1.001 kB asked for"), true)]);
        assert_eq!(served.names(), [""; 0]);
        // A block of it is dropped.
        send(&mut streams[0], 3, &[7; 1000], (0, false));
        let (tally, _) = send_all(&mut control, &mut streams[0], &fits, false);
        assert_eq!((tally.files, tally.failed, served.names()), (2, 2, vec!["fits".to_owned(), "small".to_owned()]));
        assert_eq!(fs::read(served.root.path().join("fits")).unwrap(), fits);
    }
}

#[test]
fn what_is_left_after_its_first_block_takes_the_room_of_that_alone() {
    let served = Copies::over(tempfile::tempdir().unwrap(), Some(100 << 20));
    let (mut control, mut streams) = served.ask(into(false), 1, BLOCK);
    list(&mut control, &[file("x", 64 << 20)]);
    send(&mut streams[0], 0, &vec![7; 64 << 20], (5, false));
    let partial = || fs::metadata(served.root.path().join(".x.lfn-partial"));
    support::wait_until(|| partial().is_ok_and(|partial| partial.len() == 64 << 20 && partial.blocks() > 0));
    assert!(partial().unwrap().blocks() * 512 < 1 << 20, "{:?}", partial());
}

#[test]
fn a_hole_is_paid_for_as_if_it_were_sent() {
    let served = Copies::over(tempfile::tempdir().unwrap(), Some(4096));
    for (name, blocks, fits) in [("x", 3, true), ("y", 2, false), ("z", 1, true), ("w", 1, false)] {
        let (session, mut control) = served.ask_only(into(true), 1, BLOCK);
        let zeros = vec![0; blocks * BLOCK as usize];
        // With nothing left it is not let in.
        list(&mut control, &[file(name, zeros.len() as u64)]);
        if name == "w" {
            assert_eq!(refusal(&mut control), RefusalCode::Quota);
            break;
        }
        let mut stream = served.stream(session, 0, Protection::Tls);
        let (tally, failures) =
            if fits { send_all(&mut control, &mut stream, &zeros, true) } else { last_word(&mut control).unwrap() };
        assert_eq!((tally.files, failures.len()), (u64::from(fits), usize::from(!fits)), "{name}: {failures:?}");
        drop((control, stream));
        support::wait_until(|| served.served.admission.running() == 0);
    }
    assert_eq!(served.names(), ["x", "z"]);
}

#[test]
fn a_quota_that_is_spent_midway_leaves_what_the_same_copy_goes_on_from() {
    let served = Copies::over(tempfile::tempdir().unwrap(), Some(4000));
    let data = vec![7; 3000];
    let (mut control, mut streams) = served.ask(into(false), 1, BLOCK);
    list(&mut control, &[file("x", 3000)]);
    // What comes damaged is paid for too.
    send(&mut streams[0], 0, &data, (0, false));
    let (header, payload) = block(&data, 1);
    for _ in 0..2 {
        streams[0].write_all(&BlockHeader { hash: BlockHash([1; 32]), ..header }.encode()).unwrap();
        streams[0].write_all(&payload).unwrap();
    }
    send(&mut streams[0], 0, &data, (2, false));
    assert_eq!(refusal(&mut control), RefusalCode::Quota);
    drop((control, streams));
    support::wait_until(|| served.served.admission.running() == 0);
    assert_eq!(served.names(), [".x.lfn-journal", ".x.lfn-partial"]);
    // What is there already needs none. Where less is left than the rest, it stays as it is.
    let mut served = served;
    for (left, goes_on) in [(1900, false), (2000, true)] {
        served = served.served_anew(Some(left));
        let (mut control, mut streams) = served.ask(into(false), 1, BLOCK);
        list(&mut control, &[file("x", 3000)]);
        if !goes_on {
            let (tally, failures) = last_word(&mut control).unwrap();
            assert_eq!((tally.failed, failures[0].full), (1, true), "{failures:?}");
            assert!(failures[0].what.ends_with("are left, 1.976 kB asked for"), "{failures:?}");
            assert_eq!(served.names(), [".x.lfn-journal", ".x.lfn-partial"]);
            continue;
        }
        let have = loop {
            match control.recv(PATIENCE, "in a test").unwrap() {
                FromReceiver::Have { blocks, .. } => break blocks,
                FromReceiver::Failed(failure) => panic!("{failure:?}"),
                _ => {}
            }
        };
        assert_eq!(have, BlockSet::from_range(0, 0));
        [1, 2].iter().for_each(|index| send(&mut streams[0], 0, &data, (*index, false)));
        control.send(&FromSender::Sent { file: 0, digest: Digest(*blake3::hash(&data).as_bytes()) }).unwrap();
        assert_eq!(last_word(&mut control).unwrap().0.files, 1);
    }
    assert_eq!(fs::read(served.root.path().join("x")).unwrap(), data);
}

/// `-p` gives the bits as they are, whatever the umask, and no file its owner's power.
#[test]
fn no_peer_makes_a_file_that_runs_as_another() {
    for (modes, file_bits, directory_bits) in [(true, 0o1777, 0o1777), (false, 0, 0)] {
        let served = Copies::new();
        let keep = Keep { modes, ..Keep::default() };
        let to = To::File { path: "".into(), allowed: Allowed::default(), single: false, keep };
        let (mut control, _streams) = served.ask(Job::Put { to }, 1, BLOCK);
        let mut entries = [file("f", 0), file("d", 0)];
        entries[1]["kind"] = json!("directory");
        entries.iter_mut().for_each(|entry| entry["mode"] = json!(0o7777));
        list(&mut control, &entries);
        assert_eq!(last_word(&mut control).unwrap().0.failed, 0);
        for (name, bits) in [("f", file_bits), ("d", directory_bits)] {
            let mode = fs::metadata(served.root.path().join(name)).unwrap().mode() & 0o7777;
            // Without it a umask may have taken of the lower bits.
            assert!(if modes { mode == bits } else { mode & 0o7000 == 0 }, "{name} {modes}: {mode:o}");
        }
    }
}
