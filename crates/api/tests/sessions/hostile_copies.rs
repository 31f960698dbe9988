//! A malicious client with a valid ticket: the server refuses everything false and continues to serve.

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};
use std::{fs, thread};

use lfn_api::service;
use lfn_base::units::Bytes;
use lfn_session::dial::{self, Target};
use lfn_session::limits::{ResourceLimits, ServerLimits};
use lfn_session::server::ServerConfig;
use lfn_session::wire::RefusalCode;
use lfn_session::wire::copy::blocks::Layout;
use lfn_session::wire::copy::blockset::BlockSet;
use lfn_session::wire::copy::digest::{BlockHash, Digest, hash_block};
use lfn_session::wire::copy::options::Verify;
use lfn_session::wire::copy::overwrite::OverwritePolicy;
use lfn_session::wire::copy::preserve::{Preserve, SkippedEntries};
use lfn_session::wire::copy::{
    BlockHeader, CopyJob, CopyTally, EntryFailure, FileBlocks, ReceiverMessage, RemoteDestination, RemoteSource,
    Selection, SenderMessage,
};
use lfn_session::{Control, DataStream, Protection, SessionError, SessionId};
use serde_json::{Value, json};
use support::TestServer;

use crate::support;

const BLOCK: u64 = 1024;
const TIMEOUT: Duration = Duration::from_secs(60);

/// A server for copies, with its root directory.
struct CopyServer {
    target: Target,
    root: tempfile::TempDir,
    served: TestServer,
}

impl CopyServer {
    fn new() -> Self {
        CopyServer::with_quota(tempfile::tempdir().unwrap(), None)
    }

    /// Starts a server with this byte quota for each client.
    fn with_quota(root: tempfile::TempDir, bytes: Option<u64>) -> Self {
        let client = ResourceLimits { bytes: bytes.map(Bytes), ..ServerLimits::default().client };
        let limits = ServerLimits { client, ..ServerLimits::default() };
        let config = ServerConfig { root: Some(root.path().to_owned()), limits, ..support::config() };
        let served = TestServer::start(config, service::serve);
        CopyServer { target: served.target(), root, served }
    }

    /// Restarts the server with the same files and another quota.
    fn restarted(self, bytes: Option<u64>) -> Self {
        let CopyServer { root, served, .. } = self;
        drop(served);
        CopyServer::with_quota(root, bytes)
    }

    fn names(&self) -> Vec<String> {
        let names = fs::read_dir(self.root.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn open_copy(&self, job: CopyJob, streams: u16, block: u64) -> (Control, Vec<DataStream>) {
        let (session, control) = self.open_control(job, streams, block);
        let open = |n| self.stream(session, n, Protection::Tls);
        (control, (0..streams.min(4)).map(open).collect())
    }

    fn stream(&self, session: SessionId, number: u16, protection: Protection) -> DataStream {
        dial::open_data(&self.target, session, number, protection, None, |_| Ok(())).unwrap()
    }

    fn open_control(&self, job: CopyJob, streams: u16, block: u64) -> (SessionId, Control) {
        let session = dial::new_session_id().unwrap();
        let request = support::copy_request(job, streams, block);
        (session, dial::open_control(&self.target, session, request).unwrap())
    }

    /// Requests a copy of one file, and lists it with this length.
    fn put(&self, bytes: u64) -> (Control, Vec<DataStream>) {
        let (mut control, streams) = self.open_copy(to("a"), 2, BLOCK);
        list(&mut control, &[file("x", bytes)]);
        (control, streams)
    }

    /// Asserts that nothing was published, and that the server still accepts an ordinary copy.
    #[track_caller]
    fn assert_unharmed(&self) {
        let deadline = Instant::now() + TIMEOUT;
        // Valid blocks before the violation are kept for the next copy, without a final name.
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
        control.send(&SenderMessage::Sent { file: 0, digest }).unwrap();
        let (tally, failures) = finish(&mut control).unwrap();
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
        BlockHeader { file: 0, offset: block.offset, length: block.length, hash, hole: None, verify: Verify::Blake3 },
        payload,
    )
}

fn to(path: &str) -> CopyJob {
    let allowed = OverwritePolicy { force: true, ..OverwritePolicy::default() };
    CopyJob::Put {
        to: RemoteDestination::File { path: path.into(), allowed, single: true, preserve: Preserve::default() },
    }
}

/// Returns an entry, which need not be valid.
fn file(name: &str, length: u64) -> Value {
    json!({ "name": name, "kind": { "file": { "length": length } }, "mode": 0o644, "modified": [0, 0] })
}

/// Lists entries and marks the list as complete. The server may have closed the connection.
fn list(control: &mut Control, entries: &[Value]) {
    let _ = control.send(&json!({ "sender": "list", "first": 0, "entries": entries }));
    let _ = control.send(&SenderMessage::Listed {
        entries: entries.len() as u32,
        bytes: Bytes(0),
        skipped: SkippedEntries::default(),
    });
}

/// Returns the tally of `Done` with the failures before it, or the error.
fn finish(control: &mut Control) -> Result<(CopyTally, Vec<EntryFailure>), SessionError> {
    let mut failures = Vec::new();
    loop {
        match control.recv(TIMEOUT, "in a test")? {
            ReceiverMessage::Done { tally, .. } => return Ok((tally, failures)),
            ReceiverMessage::Failed(failure) => failures.push(failure),
            _ => {}
        }
    }
}

#[track_caller]
fn refusal(control: &mut Control) -> RefusalCode {
    match finish(control) {
        Err(SessionError::Refused(refusal)) => refusal.code,
        other => panic!("{other:?}"),
    }
}

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

/// Waits for the report of a broken stream, and returns its number.
#[track_caller]
fn broken_stream(control: &mut Control) -> u16 {
    loop {
        if let ReceiverMessage::Broken { stream, .. } = control.recv(TIMEOUT, "in a test").unwrap() {
            return stream;
        }
    }
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
    // Block 1 may still be in flight on the other stream.
    let is_missing = |index| missing.iter().any(|part| part.blocks.contains(index));
    assert!(!is_missing(0) && is_missing(2), "{missing:?}");
    if !is_missing(1) {
        write(&mut streams[1], 2, 1024);
    } else {
        return;
    }
    let digest = Digest(*blake3::hash(&data).as_bytes());
    control.send(&SenderMessage::Sent { file: 0, digest }).unwrap();
    assert_eq!(finish(&mut control).unwrap().0.files, 1);
    assert_eq!(fs::read(served.root.path().join("a")).unwrap(), data);
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
    let arrived = |message: &ReceiverMessage| match message {
        ReceiverMessage::Received { streams, .. } => streams.iter().any(|stream| stream.blocks == 2000),
        _ => false,
    };
    while !arrived(&control.recv(TIMEOUT, "in a test").unwrap()) {}
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
fn invalid_requests_are_refused() {
    let served = CopyServer::new();
    let get = |from| CopyJob::Get { from: vec![from], selection: Selection::default() };
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
        (get(RemoteSource::File { path: "../etc/passwd".into() }), 1, BLOCK, RefusalCode::Forbidden),
        (get(RemoteSource::Zero { bytes: Bytes(u64::MAX) }), 1, BLOCK, RefusalCode::Limit),
    ];
    for (job, streams, block, code) in cases {
        let what = format!("{job:?}").chars().take(100).collect::<String>();
        let (mut control, _streams) = served.open_copy(job, streams, block);
        assert_eq!(refusal(&mut control), code, "{what}");
    }
    served.assert_unharmed();
}

#[test]
fn invalid_entries_are_refused() {
    let served = CopyServer::new();
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
        let (mut control, _streams) = served.open_copy(to(""), 1, BLOCK);
        list(&mut control, std::slice::from_ref(&entry));
        assert_eq!(refusal(&mut control), RefusalCode::BadMessage, "{entry}");
    }
    // An error that only the disk can find is a failure of this file.
    let (mut control, _streams) = served.open_copy(to(""), 1, BLOCK);
    list(&mut control, &[file("a", 1 << 53)]);
    let (header, payload) = block(&[7; 3000], 0);
    let mut stream = { _streams }.remove(0);
    stream.write_all(&header.encode()).unwrap();
    stream.write_all(&payload).unwrap();
    let (tally, failures) = finish(&mut control).unwrap();
    assert_eq!((tally.failed, failures.len(), failures[0].disk_full), (1, 1, true), "{failures:?}");
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

#[test]
fn false_receiver_messages_are_refused() {
    let served = CopyServer::new();
    let violations = [
        ReceiverMessage::Request { up_to: 1000 },
        ReceiverMessage::Have { file: 1000, blocks: BlockSet::from_range(0, 0) },
        ReceiverMessage::Have { file: 0, blocks: BlockSet::from_range(0, u64::MAX >> 1) },
        ReceiverMessage::Resend { file: 0, index: u64::MAX },
        ReceiverMessage::Settled { files: BlockSet::from_range(0, 1000) },
    ];
    for violation in violations {
        let from = vec![RemoteSource::Zero { bytes: Bytes(1 << 40) }];
        let (mut control, _streams) =
            served.open_copy(CopyJob::Get { from, selection: Selection::default() }, 2, BLOCK);
        // Wait for the complete list, so that the message refers to listed entries.
        while !matches!(control.recv(TIMEOUT, "in a test").unwrap(), SenderMessage::Listed { .. }) {}
        control.send(&violation).unwrap();
        let code = loop {
            match control.recv::<SenderMessage>(TIMEOUT, "in a test") {
                Ok(_) => {}
                Err(SessionError::Refused(refusal)) => break refusal.code,
                Err(other) => panic!("{other:?}"),
            }
        };
        assert_eq!(code, RefusalCode::BadMessage, "{violation:?}");
    }
    served.assert_unharmed();
}

#[test]
fn streams_of_refused_sessions_use_no_slots() {
    let served = CopyServer::new();
    // These are more streams than a server keeps without a session (four times its sessions), each opened after the
    // refusal.
    for _ in 0..80 {
        let session = dial::new_session_id().unwrap();
        let job =
            CopyJob::Get { from: vec![RemoteSource::File { path: "missing".into() }], selection: Selection::default() };
        let request = support::copy_request(job, 1, BLOCK);
        let mut control = dial::open_control(&served.target, session, request).unwrap();
        assert_eq!(refusal(&mut control), RefusalCode::NotFound);
        drop(dial::open_data(&served.target, session, 0, Protection::Tls, None, |_| Ok(())));
    }
    served.assert_unharmed();
}

fn into(sparse: bool) -> CopyJob {
    let preserve = Preserve { sparse, ..Preserve::default() };
    CopyJob::Put {
        to: RemoteDestination::File { path: "".into(), allowed: OverwritePolicy::default(), single: false, preserve },
    }
}

/// Sends a block of a file; a hole is sent without its payload.
fn send(stream: &mut DataStream, number: u32, data: &[u8], index: u64, hole: bool) {
    let (header, payload) = block(data, index);
    stream.write_all(&BlockHeader { file: number, hole: hole.then_some(0), ..header }.encode()).unwrap();
    if !hole {
        stream.write_all(&payload).unwrap();
    }
}

/// Sends all blocks, and returns the tally and the failures.
fn send_all(control: &mut Control, stream: &mut DataStream, data: &[u8], hole: bool) -> (CopyTally, Vec<EntryFailure>) {
    (0..(data.len() as u64).div_ceil(BLOCK)).for_each(|index| send(stream, 0, data, index, hole));
    control.send(&SenderMessage::Sent { file: 0, digest: Digest(*blake3::hash(data).as_bytes()) }).unwrap();
    finish(control).unwrap()
}

#[test]
fn file_larger_than_the_quota_is_refused() {
    for sparse in [false, true] {
        let served = CopyServer::with_quota(tempfile::tempdir().unwrap(), Some(4000));
        let (mut control, mut streams) = served.open_copy(into(sparse), 1, BLOCK);
        let fits = vec![7; 3000];
        list(&mut control, &[file("fits", 3000), file("huge", 1 << 40), file("more", 1001), file("small", 1000)]);
        let mut failed = Vec::new();
        while failed.len() < 2 {
            if let ReceiverMessage::Failed(failure) = control.recv(TIMEOUT, "in a test").unwrap() {
                failed.push((failure.name.to_string(), failure.reason, failure.disk_full));
            }
        }
        let message = |requested: &str| format!("byte quota of this client: 1 kB of 4 kB per 24 h left, {requested}");
        let huge = ("huge".to_owned(), message("1 TiB requested"), true);
        assert_eq!(failed, [huge, ("more".to_owned(), message("1.001 kB requested"), true)]);
        assert_eq!(served.names(), [""; 0]);
        // Blocks of a refused file are dropped.
        send(&mut streams[0], 3, &[7; 1000], 0, false);
        let (tally, _) = send_all(&mut control, &mut streams[0], &fits, false);
        assert_eq!((tally.files, tally.failed, served.names()), (2, 2, vec!["fits".to_owned(), "small".to_owned()]));
        assert_eq!(fs::read(served.root.path().join("fits")).unwrap(), fits);
    }
}

#[test]
fn abandoned_file_uses_only_the_space_of_its_blocks() {
    let served = CopyServer::with_quota(tempfile::tempdir().unwrap(), Some(100 << 20));
    let (mut control, mut streams) = served.open_copy(into(false), 1, BLOCK);
    list(&mut control, &[file("x", 64 << 20)]);
    send(&mut streams[0], 0, &vec![7; 64 << 20], 5, false);
    let partial = || fs::metadata(served.root.path().join(".x.lfn-partial"));
    support::wait_until(|| partial().is_ok_and(|partial| partial.len() == 64 << 20 && partial.blocks() > 0));
    assert!(partial().unwrap().blocks() * 512 < 1 << 20, "{:?}", partial());
}

#[test]
fn holes_count_against_the_quota() {
    let served = CopyServer::with_quota(tempfile::tempdir().unwrap(), Some(4096));
    for (name, blocks, fits) in [("x", 3, true), ("y", 2, false), ("z", 1, true), ("w", 1, false)] {
        let (session, mut control) = served.open_control(into(true), 1, BLOCK);
        let zeros = vec![0; blocks * BLOCK as usize];
        // A client without any quota left is not admitted.
        list(&mut control, &[file(name, zeros.len() as u64)]);
        if name == "w" {
            assert_eq!(refusal(&mut control), RefusalCode::Quota);
            break;
        }
        let mut stream = served.stream(session, 0, Protection::Tls);
        let (tally, failures) =
            if fits { send_all(&mut control, &mut stream, &zeros, true) } else { finish(&mut control).unwrap() };
        assert_eq!((tally.files, failures.len()), (u64::from(fits), usize::from(!fits)), "{name}: {failures:?}");
        drop((control, stream));
        support::wait_until(|| served.served.admission.running() == 0);
    }
    assert_eq!(served.names(), ["x", "z"]);
}

#[test]
fn copy_resumes_after_the_quota_was_exhausted() {
    let served = CopyServer::with_quota(tempfile::tempdir().unwrap(), Some(4000));
    let data = vec![7; 3000];
    let (mut control, mut streams) = served.open_copy(into(false), 1, BLOCK);
    list(&mut control, &[file("x", 3000)]);
    // Damaged blocks count against the quota too.
    send(&mut streams[0], 0, &data, 0, false);
    let (header, payload) = block(&data, 1);
    for _ in 0..2 {
        streams[0].write_all(&BlockHeader { hash: BlockHash([1; 32]), ..header }.encode()).unwrap();
        streams[0].write_all(&payload).unwrap();
    }
    send(&mut streams[0], 0, &data, 2, false);
    assert_eq!(refusal(&mut control), RefusalCode::Quota);
    drop((control, streams));
    support::wait_until(|| served.served.admission.running() == 0);
    assert_eq!(served.names(), [".x.lfn-journal", ".x.lfn-partial"]);
    // Existing blocks need no quota. With less quota than the missing bytes, the files stay unchanged.
    let mut served = served;
    for (left, resumes) in [(1900, false), (2000, true)] {
        served = served.restarted(Some(left));
        let (mut control, mut streams) = served.open_copy(into(false), 1, BLOCK);
        list(&mut control, &[file("x", 3000)]);
        if !resumes {
            let (tally, failures) = finish(&mut control).unwrap();
            assert_eq!((tally.failed, failures[0].disk_full), (1, true), "{failures:?}");
            assert!(failures[0].reason.ends_with("left, 1.976 kB requested"), "{failures:?}");
            assert_eq!(served.names(), [".x.lfn-journal", ".x.lfn-partial"]);
            continue;
        }
        let have = loop {
            match control.recv(TIMEOUT, "in a test").unwrap() {
                ReceiverMessage::Have { blocks, .. } => break blocks,
                ReceiverMessage::Failed(failure) => panic!("{failure:?}"),
                _ => {}
            }
        };
        assert_eq!(have, BlockSet::from_range(0, 0));
        [1, 2].iter().for_each(|index| send(&mut streams[0], 0, &data, *index, false));
        control.send(&SenderMessage::Sent { file: 0, digest: Digest(*blake3::hash(&data).as_bytes()) }).unwrap();
        assert_eq!(finish(&mut control).unwrap().0.files, 1);
    }
    assert_eq!(fs::read(served.root.path().join("x")).unwrap(), data);
}

/// `-p` sets the mode bits regardless of the umask, but never set-id bits.
#[test]
fn peer_cannot_create_set_id_files() {
    for (modes, file_bits, directory_bits) in [(true, 0o1777, 0o1777), (false, 0, 0)] {
        let served = CopyServer::new();
        let preserve = Preserve { modes, ..Preserve::default() };
        let to =
            RemoteDestination::File { path: "".into(), allowed: OverwritePolicy::default(), single: false, preserve };
        let (mut control, _streams) = served.open_copy(CopyJob::Put { to }, 1, BLOCK);
        let mut entries = [file("f", 0), file("d", 0)];
        entries[1]["kind"] = json!("directory");
        entries.iter_mut().for_each(|entry| entry["mode"] = json!(0o7777));
        list(&mut control, &entries);
        assert_eq!(finish(&mut control).unwrap().0.failed, 0);
        for (name, bits) in [("f", file_bits), ("d", directory_bits)] {
            let mode = fs::metadata(served.root.path().join(name)).unwrap().mode() & 0o7777;
            // Without `-p`, the umask may have cleared some of the lower bits.
            assert!(if modes { mode == bits } else { mode & 0o7000 == 0 }, "{name} {modes}: {mode:o}");
        }
    }
}
