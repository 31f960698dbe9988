//! Clients with a good ticket that say too much, or read and write next to nothing: they cost the server bounded memory, and
//! others nothing.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::fs;
use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use lfn_core::transfer::digest::BlockHash;
use lfn_core::transfer::manner::Verify;
use lfn_core::units::Bytes;
use lfn_core::wire::copy::{BlockHeader, From, FromReceiver, Job, To};
use lfn_net::server::Config;
use lfn_net::server::admission::{Quotas, Share};
use lfn_net::service;
use lfn_net::session::dial::{self, Target};
use lfn_net::session::{Control, DataStream, Protection};
use lfn_net::transfer::{LocalSource, Options, upload};
use serde_json::{Value, json};
use support::Served;

const PATIENCE: Duration = Duration::from_secs(60);

/// Memory is that of the whole process: one test at a time looks at it.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn ask(target: &Target, job: Job) -> (Control, DataStream) {
    let session = dial::new_session_id().unwrap();
    let request = support::copy_request(job, 1, 1 << 20);
    let control = dial::control(target, session, request).unwrap();
    (control, dial::data(target, session, 0, Protection::Tls, None, |_| Ok(())).unwrap())
}

fn put() -> Job {
    Job::Put { to: To::Null }
}

fn file(name: &str, length: u64) -> Value {
    json!({ "name": name, "kind": { "file": { "length": length } }, "mode": 0o644, "modified": [0, 0] })
}

/// A copy that means well.
#[track_caller]
fn honest(served: &Served) {
    let options = Options { streams: 2, ..Options::default() };
    let outcome =
        upload(&served.target(), &[LocalSource::Random(Bytes(5 << 20))], To::Null, &options, support::watch());
    assert_eq!(outcome.unwrap().bytes, Bytes(5 << 20));
}

/// Of this process.
fn resident() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    pages.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

/// Has `hostile` at a server that has served before; fails where that made it hold more than `most` bytes, or where nobody
/// else is served beside it.
#[track_caller]
fn holds_at_most<T>(most: u64, hostile: impl FnOnce(&Served) -> T) {
    let _alone = alone();
    let served = Served::start(support::config(), service::serve);
    honest(&served);
    let before = resident();
    let _connected = hostile(&served);
    honest(&served);
    let grown = resident().saturating_sub(before);
    assert!(grown < most, "{grown} bytes more");
}

#[test]
fn failures_without_end_are_counted_and_not_kept() {
    // 160 MB of them.
    holds_at_most(64 << 20, |served| {
        let (mut control, stream) = ask(&served.target(), put());
        let what = "w".repeat(4000);
        for said in 0..20_000_u32 {
            control.send(&json!({ "sender": "failed", "name": format!("{said}"), "what": what })).unwrap();
            // Of numbers that were never listed, too.
            control.send(&json!({ "sender": "failed", "file": said, "name": "x", "what": what })).unwrap();
        }
        (control, stream)
    });
}

/// A message may be 4 MiB long.
#[test]
fn failures_of_many_words_are_cut_short() {
    holds_at_most(64 << 20, |served| {
        let from = vec![From::Zero { bytes: Bytes(1 << 40) }];
        let (mut control, stream) = ask(&served.target(), Job::Get { from, pick: Default::default() });
        let what = "w".repeat(1 << 20);
        for _ in 0..200 {
            control.send(&json!({ "receiver": "failed", "name": "x", "what": what })).unwrap();
        }
        (control, stream)
    });
}

/// Its quota of time, as its token's end, is looked at between its words.
#[test]
fn who_never_stops_talking_is_ended_all_the_same() {
    let _alone = alone();
    let client = Share { time: Some(Duration::from_secs(1)), ..Quotas::default().client };
    let quotas = Quotas { client, ..Quotas::default() };
    let served = Served::start(Config { quotas, ..support::config() }, service::serve);
    let from = vec![From::Zero { bytes: Bytes(1 << 40) }];
    let (mut control, _stream) = ask(&served.target(), Job::Get { from, pick: Default::default() });
    let words = vec![json!({ "receiver": "taken", "streams": [] }); 100];
    let started = Instant::now();
    while words.iter().all(|word| control.send(word).is_ok()) {
        assert!(started.elapsed() < PATIENCE, "it is still heard");
    }
}

#[test]
fn long_names_of_files_that_are_there_are_not_kept_without_end() {
    const ENTRIES: usize = 30_000;
    // 4,000 bytes each, 120 MB of them.
    let name = |number: usize| format!("{}{number:010}", "directory/".repeat(399));
    holds_at_most(80 << 20, |served| {
        let (mut control, stream) = ask(&served.target(), put());
        for first in (0..ENTRIES).step_by(500) {
            let entries: Vec<Value> = (first..first + 500).map(|n| file(&name(n), 0)).collect();
            control.send(&json!({ "sender": "list", "first": first, "entries": entries })).unwrap();
            // What is settled is heard, so that no more wait than may.
            let mut settled = 0;
            while settled < 500 {
                if let FromReceiver::Settled { files } = control.recv(PATIENCE, "in a test").unwrap() {
                    settled += files.ranges().map(|(first, last)| last - first + 1).sum::<u64>();
                }
            }
        }
        (control, stream)
    });
}

#[test]
fn those_who_read_or_write_next_to_nothing_keep_nobody_waiting() {
    let _alone = alone();
    let served = Served::start(support::config(), service::serve);
    let target = served.target();
    honest(&served);
    let before = resident();
    // Never read what they asked for: neither data nor messages.
    let random = || Job::Get { from: vec![From::Random { bytes: Bytes(1 << 40) }], pick: Default::default() };
    let deaf: Vec<_> = (0..3).map(|_| ask(&target, random())).collect();
    // Announce a block, and send a byte of it now and then.
    let mut slow: Vec<_> = (0..3).map(|_| ask(&target, put())).collect();
    let header = BlockHeader {
        file: 0,
        offset: 0,
        length: 1 << 20,
        hash: BlockHash([0; 32]),
        hole: false,
        verify: Verify::Blake3,
    };
    for (control, stream) in &mut slow {
        control.send(&json!({ "sender": "list", "first": 0, "entries": [file("x", 1 << 20)] })).unwrap();
        stream.write_all(&header.encode()).unwrap();
    }
    for _ in 0..10 {
        for (_, stream) in &mut slow {
            stream.write_all(&[0]).unwrap();
        }
        honest(&served);
        thread::sleep(Duration::from_millis(50));
    }
    let grown = resident().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes more");
    // Once they are gone so is all that they held.
    drop((deaf, slow));
    let deadline = Instant::now() + PATIENCE;
    while served.admission.running() > 0 {
        assert!(Instant::now() < deadline, "{} still run", served.admission.running());
        thread::sleep(Duration::from_millis(20));
    }
}
