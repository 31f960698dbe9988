//! A client that holds the ticket and means no good: whatever it sends, the server refuses and goes on serving.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::fs;
use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use lfn_core::transfer::blocks::Layout;
use lfn_core::transfer::digest::{BlockHash, Digest, hash_block};
use lfn_core::units::Bytes;
use lfn_core::wire::copy::{BlockHeader, CopyRequest, From, FromReceiver, FromSender, Job, Offer, Progress, To};
use lfn_core::wire::{RefusalCode, Request};
use lfn_net::server::Config;
use lfn_net::service;
use lfn_net::session::dial::{self, Target};
use lfn_net::session::{Control, DataStream, Protection, SessionError};
use support::Served;

const BLOCK: u64 = 1024;
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that copies go to, and where they go.
struct Copies {
    target: Target,
    root: tempfile::TempDir,
    _served: Served,
}

impl Copies {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let config = Config { root: Some(root.path().to_owned()), ..support::config() };
        let served = Served::start(config, service::serve);
        Copies { target: served.target(), root, _served: served }
    }

    fn ask(&self, job: Job, streams: u16, block: u64) -> (Control, Vec<DataStream>) {
        let session = dial::new_session_id().unwrap();
        let request = CopyRequest { job, streams, block: Bytes(block), congestion: None };
        let control = dial::control(&self.target, session, Request::Copy(request)).unwrap();
        let open = |n| dial::data(&self.target, session, n, Protection::Clear, None, |_| Ok(())).unwrap();
        (control, (0..streams.min(4)).map(open).collect())
    }

    fn put(&self, bytes: u64) -> (Control, Vec<DataStream>) {
        let to = To::File { path: "a".into(), force: false };
        self.ask(Job::Put { offer: Offer { name: String::new(), bytes: Bytes(bytes) }, to }, 2, BLOCK)
    }

    /// Nothing was published, and the server still takes an honest copy.
    #[track_caller]
    fn is_unharmed(&self) {
        let deadline = Instant::now() + PATIENCE;
        while fs::read_dir(self.root.path()).unwrap().next().is_some() {
            assert!(Instant::now() < deadline, "something is left in the root");
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
        control.send(&FromSender::Sent { digest, progress: Progress::default() }).unwrap();
        assert_eq!(last_word(&mut control).unwrap(), digest);
        assert_eq!(fs::read(self.root.path().join("a")).unwrap(), data);
        fs::remove_file(self.root.path().join("a")).unwrap();
    }
}

fn block(data: &[u8], index: u64) -> (BlockHeader, Vec<u8>) {
    let layout = Layout::new(Bytes(data.len() as u64), Bytes(BLOCK)).unwrap();
    let block = layout.block(index).unwrap();
    let payload = data[block.offset as usize..][..block.length as usize].to_vec();
    let hash = hash_block(&layout, block, &payload);
    (BlockHeader { file: 0, offset: block.offset, length: block.length, hash }, payload)
}

/// The digest of `Done`, or why there is none.
fn last_word(control: &mut Control) -> Result<Digest, SessionError> {
    loop {
        match control.recv(PATIENCE, "in a test")? {
            FromReceiver::Done { digest, .. } => return Ok(digest),
            FromReceiver::Ready { .. } | FromReceiver::Alive(_) => {}
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
    let (good, payload) = block(&data, 0);
    let lies: Vec<(&str, Vec<u8>, RefusalCode)> = vec![
        ("noise", vec![0xa5; 200], RefusalCode::BadMessage),
        ("another file", BlockHeader { file: 1, ..good }.encode().to_vec(), RefusalCode::BadMessage),
        ("beyond the end", BlockHeader { offset: 3 * BLOCK, ..good }.encode().to_vec(), RefusalCode::BadMessage),
        ("overflow", BlockHeader { offset: u64::MAX, ..good }.encode().to_vec(), RefusalCode::BadMessage),
        ("unaligned", BlockHeader { offset: 1, ..good }.encode().to_vec(), RefusalCode::BadMessage),
        ("too long", BlockHeader { length: u32::MAX, ..good }.encode().to_vec(), RefusalCode::BadMessage),
        ("empty", BlockHeader { length: 0, ..good }.encode().to_vec(), RefusalCode::BadMessage),
        (
            "corrupt",
            [&BlockHeader { hash: BlockHash([1; 32]), ..good }.encode()[..], &payload].concat(),
            RefusalCode::Corrupt,
        ),
        ("twice", [&good.encode()[..], &payload, &good.encode()[..], &payload].concat(), RefusalCode::BadMessage),
        ("cut short", [&good.encode()[..], &payload[..100]].concat(), RefusalCode::Io),
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

#[test]
fn requests_that_cannot_be_meant_are_refused() {
    let served = Copies::new();
    let put = |bytes, path: &str, name: &str| Job::Put {
        offer: Offer { name: name.into(), bytes: Bytes(bytes) },
        to: To::File { path: path.into(), force: true },
    };
    let cases = [
        (put(u64::MAX, "a", ""), 1, BLOCK, RefusalCode::Limit),
        (put(1 << 62, "a", ""), 1, BLOCK, RefusalCode::NoSpace),
        (put(1, "a", ""), 1, 3, RefusalCode::Limit),
        (put(1, "a", ""), 1, u64::MAX, RefusalCode::Limit),
        (put(1, "a", ""), 0, BLOCK, RefusalCode::Limit),
        (put(1, "a", ""), u16::MAX, BLOCK, RefusalCode::Limit),
        (put(1, "", "../a"), 1, BLOCK, RefusalCode::Forbidden),
        (put(1, "", ".."), 1, BLOCK, RefusalCode::Forbidden),
        (put(1, "", "/etc/passwd"), 1, BLOCK, RefusalCode::Forbidden),
        (put(1, "", "a/b"), 1, BLOCK, RefusalCode::Forbidden),
        (put(1, "", "a\0b"), 1, BLOCK, RefusalCode::Forbidden),
        (put(1, "a\0b", ""), 1, BLOCK, RefusalCode::Io),
        (put(1, &"x/".repeat(4000), ""), 1, BLOCK, RefusalCode::Io),
        (put(1, &"x".repeat(300), ""), 1, BLOCK, RefusalCode::Io),
        (Job::Get { from: From::File { path: "../etc/passwd".into() } }, 1, BLOCK, RefusalCode::Forbidden),
        (Job::Get { from: From::File { path: String::new() } }, 1, BLOCK, RefusalCode::Forbidden),
        (Job::Get { from: From::Zero { bytes: Bytes(u64::MAX) } }, 1, BLOCK, RefusalCode::Limit),
    ];
    for (job, streams, block, code) in cases {
        let what = format!("{job:?}");
        let (mut control, _streams) = served.ask(job, streams, block);
        assert_eq!(refusal(&mut control), code, "{what}");
    }
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
    control.send(&FromSender::Sent { digest: Digest([0; 32]), progress: Progress::default() }).unwrap();
    assert_eq!(refusal(&mut control), RefusalCode::Corrupt);
    served.is_unharmed();
}

#[test]
fn a_receiver_that_lies_is_refused() {
    let served = Copies::new();
    let get = || Job::Get { from: From::Zero { bytes: Bytes(1 << 40) } };
    let (mut control, _streams) = served.ask(get(), 2, BLOCK);
    control.send(&FromReceiver::Done { digest: Digest([0; 32]), progress: Progress::default() }).unwrap();
    let code = loop {
        match control.recv::<FromSender>(PATIENCE, "in a test") {
            Ok(_) => {}
            Err(SessionError::Refused(refusal)) => break refusal.code,
            Err(other) => panic!("{other:?}"),
        }
    };
    assert_eq!(code, RefusalCode::BadMessage);
    served.is_unharmed();
}

#[test]
fn streams_of_refused_sessions_take_no_places() {
    let served = Copies::new();
    // More than a server parks (Limits::sessions × 4), their streams after the refusal.
    for _ in 0..80 {
        let session = dial::new_session_id().unwrap();
        let job = Job::Get { from: From::File { path: "missing".into() } };
        let request = CopyRequest { job, streams: 1, block: Bytes(BLOCK), congestion: None };
        let mut control = dial::control(&served.target, session, Request::Copy(request)).unwrap();
        assert_eq!(refusal(&mut control), RefusalCode::NotFound);
        drop(dial::data(&served.target, session, 0, Protection::Clear, None, |_| Ok(())));
    }
    served.is_unharmed();
}
