//! Clients with a valid ticket that send too much, or read and write almost nothing. They cost the server only bounded
//! memory, and do not affect other clients.
//!
//! These tests measure the memory of their process, so they are a program of their own.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::io::Write;
use std::time::{Duration, Instant};
use std::{fs, thread};

use lfn_api::service;
use lfn_base::units::Bytes;
use lfn_copy::{CopyOptions, LocalSource, upload};
use lfn_session::dial::{self, Target};
use lfn_session::limits::{ResourceLimits, ServerLimits};
use lfn_session::server::ServerConfig;
use lfn_session::wire::copy::digest::BlockHash;
use lfn_session::wire::copy::options::Verify;
use lfn_session::wire::copy::{BlockHeader, CopyJob, ReceiverMessage, RemoteDestination, RemoteSource};
use lfn_session::{Control, DataStream, Protection};
use parking_lot::Mutex;
use serde_json::{Value, json};
use support::TestServer;

#[allow(dead_code, reason = "this program uses a part of it")]
#[path = "sessions/support/mod.rs"]
mod support;

const TIMEOUT: Duration = Duration::from_secs(60);

/// The tests measure the memory of the whole process, so only one of them runs at a time.
static EXCLUSIVE: Mutex<()> = Mutex::new(());

fn open_copy(target: &Target, job: CopyJob) -> (Control, DataStream) {
    let session = dial::new_session_id().unwrap();
    let request = support::copy_request(job, 1, 1 << 20);
    let control = dial::open_control(target, session, request).unwrap();
    (control, dial::open_data(target, session, 0, Protection::Tls, None, |_| Ok(())).unwrap())
}

fn put() -> CopyJob {
    CopyJob::Put { to: RemoteDestination::Null }
}

fn file(name: &str, length: u64) -> Value {
    json!({ "name": name, "kind": { "file": { "length": length } }, "mode": 0o644, "modified": [0, 0] })
}

/// Runs an ordinary copy.
#[track_caller]
fn assert_honest_copy_works(served: &TestServer) {
    let options = CopyOptions { streams: 2, ..CopyOptions::default() };
    let outcome = upload(
        &served.target(),
        &[LocalSource::Random(Bytes(5 << 20))],
        RemoteDestination::Null,
        &options,
        support::observer(),
    );
    assert_eq!(outcome.unwrap().bytes, Bytes(5 << 20));
}

/// Returns the resident memory of this process, in bytes.
fn resident() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    pages.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

/// Runs `hostile` at a server that has served a client before. Fails if the memory grows by `max_growth` bytes or more,
/// or if another client is not served meanwhile.
#[track_caller]
fn assert_memory_growth_below<T>(max_growth: u64, hostile: impl FnOnce(&TestServer) -> T) {
    let _alone = EXCLUSIVE.lock();
    let served = TestServer::start(support::config(), service::new());
    assert_honest_copy_works(&served);
    let before = resident();
    let _connected = hostile(&served);
    assert_honest_copy_works(&served);
    let grown = resident().saturating_sub(before);
    assert!(grown < max_growth, "{grown} bytes more");
}

#[test]
fn endless_failures_use_bounded_memory() {
    // These are 160 MB of failures.
    assert_memory_growth_below(64 << 20, |served| {
        let (mut control, stream) = open_copy(&served.target(), put());
        let what = "w".repeat(4000);
        for number in 0..20_000_u32 {
            control.send(&json!({ "sender": "failed", "name": format!("{number}"), "reason": what })).unwrap();
            // Also for numbers that were never listed.
            control.send(&json!({ "sender": "failed", "file": number, "name": "x", "reason": what })).unwrap();
        }
        (control, stream)
    });
}

/// The maximum length of a message is 4 MiB.
#[test]
fn long_failure_texts_are_truncated() {
    assert_memory_growth_below(64 << 20, |served| {
        let from = vec![RemoteSource::Zero { bytes: Bytes(1 << 40) }];
        let (mut control, stream) = open_copy(&served.target(), CopyJob::Get { from, selection: Default::default() });
        let what = "w".repeat(1 << 20);
        for _ in 0..200 {
            control.send(&json!({ "receiver": "failed", "name": "x", "reason": what })).unwrap();
        }
        (control, stream)
    });
}

/// The time quota, like the expiry of a token, is checked between messages.
#[test]
fn time_quota_ends_a_client_that_keeps_sending() {
    let _alone = EXCLUSIVE.lock();
    let client = ResourceLimits { time: Some(Duration::from_secs(1)), ..ServerLimits::default().client };
    let limits = ServerLimits { client, ..ServerLimits::default() };
    let served = TestServer::start(ServerConfig { limits, ..support::config() }, service::new());
    let from = vec![RemoteSource::Zero { bytes: Bytes(1 << 40) }];
    let (mut control, _stream) = open_copy(&served.target(), CopyJob::Get { from, selection: Default::default() });
    let messages = vec![json!({ "receiver": "received", "streams": [] }); 100];
    let started = Instant::now();
    while messages.iter().all(|message| control.send(message).is_ok()) {
        assert!(started.elapsed() < TIMEOUT, "it is still heard");
    }
}

#[test]
fn names_of_settled_files_use_bounded_memory() {
    const ENTRIES: usize = 30_000;
    // 4,000 bytes each, 120 MB in total.
    let name = |number: usize| format!("{}{number:010}", "directory/".repeat(399));
    assert_memory_growth_below(80 << 20, |served| {
        let (mut control, stream) = open_copy(&served.target(), put());
        for first in (0..ENTRIES).step_by(500) {
            let entries: Vec<Value> = (first..first + 500).map(|n| file(&name(n), 0)).collect();
            control.send(&json!({ "sender": "list", "first": first, "entries": entries })).unwrap();
            // Wait for settled entries, so that the number of pending ones stays below the limit.
            let mut settled = 0;
            while settled < 500 {
                if let ReceiverMessage::Settled { files } = control.recv(TIMEOUT, "in a test").unwrap() {
                    settled += files.ranges().map(|(first, last)| last - first + 1).sum::<u64>();
                }
            }
        }
        (control, stream)
    });
}

#[test]
fn slow_clients_do_not_delay_others() {
    let _alone = EXCLUSIVE.lock();
    let served = TestServer::start(support::config(), service::new());
    let target = served.target();
    assert_honest_copy_works(&served);
    let before = resident();
    // These clients never read the requested data or messages.
    let random =
        || CopyJob::Get { from: vec![RemoteSource::Random { bytes: Bytes(1 << 40) }], selection: Default::default() };
    let not_reading: Vec<_> = (0..3).map(|_| open_copy(&target, random())).collect();
    // These clients announce a block and send one byte of it from time to time.
    let mut slow: Vec<_> = (0..3).map(|_| open_copy(&target, put())).collect();
    let header = BlockHeader {
        file: 0,
        offset: 0,
        length: 1 << 20,
        hash: BlockHash([0; 32]),
        hole: None,
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
        assert_honest_copy_works(&served);
        thread::sleep(Duration::from_millis(50));
    }
    let grown = resident().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes more");
    // All memory is freed when they disconnect.
    drop((not_reading, slow));
    let deadline = Instant::now() + TIMEOUT;
    while served.admission.running() > 0 {
        assert!(Instant::now() < deadline, "{} still run", served.admission.running());
        thread::sleep(Duration::from_millis(20));
    }
}
