//! A malicious server: nothing is written outside the destination, nothing false or unrequested gets a name there, and
//! the client always ends.
//!
//! These tests measure the memory of their process, so they are a program of their own.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use lfn_base::units::Bytes;
use lfn_copy::{CopyOptions, CopyOutcome, LocalDestination, TransferError, download};
use lfn_session::server::ServerSession;
use lfn_session::wire::Request;
use lfn_session::wire::copy::blocks::Layout;
use lfn_session::wire::copy::digest::{BlockHash, Digest, hash_block};
use lfn_session::wire::copy::entry::Name;
use lfn_session::wire::copy::filter::{Decision, FilterRules};
use lfn_session::wire::copy::options::{TransferOptions, Verify};
use lfn_session::wire::copy::overwrite::OverwritePolicy;
use lfn_session::wire::copy::preserve::Preserve;
use lfn_session::wire::copy::{
    BlockHeader, CopyJob, CopyRequest, MAX_PENDING_ENTRIES, ReceiverMessage, RemoteSource, Selection, SenderMessage,
};
use lfn_session::{DataStream, SessionError};
use serde_json::{Value, json};
use support::TestServer;

#[allow(dead_code, reason = "this program uses a part of it")]
#[path = "sessions/support/mod.rs"]
mod support;

const BLOCK: u64 = 1 << 20;
const TIMEOUT: Duration = Duration::from_secs(30);

/// Behaves according to the requested name.
fn malicious_service(session: &mut ServerSession, request: &Request) -> Result<(), SessionError> {
    let Request::Copy(CopyRequest { job: CopyJob::Get { from, .. }, .. }) = request else { panic!("{request:?}") };
    let [RemoteSource::File { path }] = from.as_slice() else { panic!("{from:?}") };
    let mut streams = session.data_streams(1, TIMEOUT)?;
    let stream = &mut streams[0];
    // With a slash at the end, any name may be listed.
    match path.to_string().trim_end_matches('/') {
        "field.nc" => {
            list(session, &[file(".bash_profile", 5)])?;
            send(stream, 0, 5, b"12345");
        }
        "runs" => list(session, &[directory(".")])?,
        "tree" => {
            list(session, &[directory("tree"), directory("tree/lib"), file("tree/lib/x.o", 5)])?;
            send(stream, 2, 5, b"12345");
        }
        "link" => list(session, &[link("link")])?,
        "names" => {
            let hard =
                json!({ "name": "d/b", "kind": { "hard_link": { "to": 1 } }, "mode": 0o644, "modified": [0, 0] });
            let mut first = file("d/a", 5);
            first["linked"] = true.into();
            list(session, &[directory("d"), first, hard])?;
            send(stream, 1, 5, b"12345");
        }
        "dots" => list(session, &[file("../escaped", 5)])?,
        "absolute" => list(session, &[file("/tmp/lfn-escaped", 5)])?,
        "middle" => list(session, &[file("a/../../escaped", 5)])?,
        "nul" => list(session, &[file("a\0b", 5)])?,
        "long" => list(session, &[file(&"n/".repeat(5000), 5)])?,
        "huge" => list(session, &[file("x", u64::MAX)])?,
        "set-id" => {
            let mut entry = file("x", 5);
            entry["mode"] = 0o6777.into();
            list(session, &[entry])?;
            send(stream, 0, 5, b"12345");
        }
        "through" => {
            list(session, &[link("l"), file("l/escaped", 5)])?;
            send(stream, 1, 5, b"12345");
        }
        "linked" => {
            let hard = json!({ "name": "h", "kind": { "hard_link": { "to": 7 } }, "mode": 0o644, "modified": [0, 0] });
            list(session, &[hard, file("ok", 5)])?;
            send(stream, 1, 5, b"12345");
        }
        "longer" => {
            list(session, &[file("x", 5)])?;
            send(stream, 0, 10, b"1234567890");
        }
        "unlisted" => {
            list(session, &[file("x", 5)])?;
            send(stream, 9, 5, b"12345");
        }
        "digest" => {
            list(session, &[file("x", BLOCK + 5)])?;
            send(stream, 0, BLOCK + 5, &vec![7; BLOCK as usize + 5]);
            session.control.send(&SenderMessage::Sent { file: 0, digest: Digest([9; 32]) })?;
        }
        "corrupt" => {
            list(session, &[file("x", 5)])?;
            let header = BlockHeader {
                file: 0,
                offset: 0,
                length: 5,
                hash: BlockHash([1; 32]),
                hole: None,
                verify: Verify::Blake3,
            };
            for _ in 0..8 {
                let _ = stream.write_all(&[&header.encode()[..], b"12345"].concat());
            }
        }
        "flood" => {
            let many: Vec<Value> = (0..MAX_PENDING_ENTRIES + 1).map(|n| file(&format!("{n}"), 5)).collect();
            for (at, part) in many.chunks(1000).enumerate() {
                let message = json!({ "sender": "list", "first": at * 1000, "entries": part });
                session.control.send(&message)?;
            }
        }
        "rich" => {
            // No block of these files arrives, so all entries stay unsettled.
            let value = "x".repeat(60_000);
            for n in 0..64 {
                let mut entry = file(&format!("{n}"), 5);
                let xattr = |x| json!({ "name": format!("user.{x}"), "value": value });
                entry["xattrs"] = (0..16).map(xattr).collect::<Vec<_>>().into();
                session.control.send(&json!({ "sender": "list", "first": n, "entries": [entry] }))?;
            }
        }
        "failures" => loop {
            let failure = json!({ "sender": "failed", "name": "x", "reason": "w".repeat(1000) });
            session.control.send(&failure)?;
        },
        "noise" => {
            list(session, &[file("x", 5)])?;
            let _ = stream.write_all(&[0xa5; 4096]);
        }
        other => panic!("{other}"),
    }
    // Wait until the client has closed the session.
    loop {
        session.control.recv::<ReceiverMessage>(TIMEOUT, "in a test")?;
    }
}

fn file(name: &str, length: u64) -> Value {
    json!({ "name": name, "kind": { "file": { "length": length } }, "mode": 0o644, "modified": [0, 0] })
}

fn directory(name: &str) -> Value {
    json!({ "name": name, "kind": "directory", "mode": 0o755, "modified": [0, 0] })
}

fn link(name: &str) -> Value {
    json!({ "name": name, "kind": { "symlink": { "target": "../outside" } }, "mode": 0o777, "modified": [0, 0] })
}

fn list(session: &mut ServerSession, entries: &[Value]) -> Result<(), SessionError> {
    session.control.send(&json!({ "sender": "list", "first": 0, "entries": entries }))?;
    session.control.send(&SenderMessage::Listed {
        entries: entries.len() as u32,
        bytes: Bytes(0),
        skipped: Default::default(),
    })
}

/// Sends blocks with valid hashes. The client may have closed the stream.
fn send(stream: &mut DataStream, file: u32, length: u64, data: &[u8]) {
    let layout = Layout::new(Bytes(length), Bytes(BLOCK)).unwrap();
    for index in 0..layout.blocks() {
        let block = layout.block(index).unwrap();
        let payload = &data[block.offset as usize..][..block.length as usize];
        let hash = hash_block(&layout, block, payload);
        let header =
            BlockHeader { file, offset: block.offset, length: block.length, hash, hole: None, verify: Verify::Blake3 };
        let _ = stream.write_all(&[&header.encode()[..], payload].concat());
    }
}

/// Downloads this case. Returns the result, and the names in the destination.
fn download_case(what: &str) -> (Result<CopyOutcome, TransferError>, Vec<String>) {
    let temp = tempfile::tempdir().unwrap();
    let (to, outside) = (temp.path().join("to"), temp.path().join("outside"));
    fs::create_dir(&to).unwrap();
    fs::create_dir(&outside).unwrap();
    let served = TestServer::start(support::config(), malicious_service);
    let from = vec![RemoteSource::File { path: format!("{what}/").as_str().into() }];
    let preserve = Preserve { links: true, hard_links: true, ..Preserve::default() };
    let selection = Selection { preserve, ..Selection::default() };
    let options = CopyOptions { streams: 1, selection, ..CopyOptions::default() };
    let destination = LocalDestination::File { path: to.clone(), allowed: OverwritePolicy::default() };
    let started = Instant::now();
    let outcome = download(&served.target(), from, &destination, &options, support::observer());
    assert!(started.elapsed() < TIMEOUT * 2, "{what}: {:?}", started.elapsed());
    assert_eq!(names(&outside), [""; 0], "{what}");
    assert_eq!(names(temp.path()), ["outside", "to"], "{what}");
    assert!(!Path::new("/tmp/lfn-escaped").exists());
    (outcome, names(&to))
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn names_outside_the_destination_end_the_copy() {
    for what in ["dots", "absolute", "middle", "nul", "long", "huge"] {
        let (outcome, names_now) = download_case(what);
        assert!(outcome.is_err(), "{what}: {outcome:?}");
        assert_eq!(names_now, [""; 0], "{what}");
    }
}

/// Existing files are not replaced or deleted, and nothing is added, whatever the client permits.
#[test]
fn unrequested_names_end_the_copy() {
    let mut rules = FilterRules::default();
    rules.push(Decision::Exclude, b"*.o").unwrap();
    let (none, without_objects) = (Selection::default(), Selection { rules, ..Selection::default() });
    let named = Selection { names: Some(vec![Name::new("d/c").unwrap()]), ..Selection::default() };
    let linked = Selection { names: Some(vec![Name::new("d").unwrap()]), ..Selection::default() };
    let cases = [
        ("field.nc", &none, ".bash_profile"),
        ("runs", &none, "."),
        ("tree", &without_objects, "tree/lib/x.o"),
        ("link", &none, "link as a symbolic link"),
        ("names", &named, "d/a"),
        ("names", &linked, "d/b as a hard link"),
    ];
    for (requested, selection, listed) in cases {
        let temp = tempfile::tempdir().unwrap();
        fs::write(temp.path().join(".bash_profile"), "mine").unwrap();
        let served = TestServer::start(support::config(), malicious_service);
        let from = vec![RemoteSource::File { path: requested.into() }];
        let allowed = OverwritePolicy { force: true, delete: true, ..OverwritePolicy::default() };
        let transfer_options = TransferOptions { delete: true, ..TransferOptions::default() };
        let options =
            CopyOptions { streams: 1, selection: selection.clone(), transfer_options, ..CopyOptions::default() };
        let destination = LocalDestination::File { path: temp.path().to_owned(), allowed };
        let error = download(&served.target(), from, &destination, &options, support::observer()).unwrap_err();
        assert_eq!(error.to_string(), format!("the sender lists {listed}, which was not requested"));
        assert_eq!(names(temp.path()), [".bash_profile"], "{listed}");
        assert_eq!(fs::read(temp.path().join(".bash_profile")).unwrap(), b"mine");
    }
}

#[test]
fn file_is_not_written_through_a_copied_link() {
    let (outcome, names_now) = download_case("through");
    let outcome = outcome.unwrap();
    assert_eq!((outcome.tally.links, outcome.tally.failed), (1, 1), "{:?}", outcome.failures);
    assert_eq!(names_now, ["l"]);
    // No hard link is created to a missing file.
    let (outcome, names_now) = download_case("linked");
    assert_eq!((outcome.unwrap().tally.failed, names_now), (1, vec!["ok".to_owned()]));
}

#[test]
fn downloaded_file_is_not_set_id() {
    use std::os::unix::fs::PermissionsExt;
    let temp = tempfile::tempdir().unwrap();
    let served = TestServer::start(support::config(), malicious_service);
    let destination = LocalDestination::File { path: temp.path().to_owned(), allowed: OverwritePolicy::default() };
    let options = CopyOptions { streams: 1, ..CopyOptions::default() };
    let from = vec![RemoteSource::File { path: "set-id/".into() }];
    // The file may be refused too, but must not get these mode bits.
    let _ = download(&served.target(), from, &destination, &options, support::observer());
    for name in names(temp.path()) {
        let mode = fs::metadata(temp.path().join(&name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o7000, 0, "{name}");
    }
}

#[test]
fn unexpected_data_is_not_published() {
    for what in ["longer", "unlisted", "noise", "corrupt", "digest"] {
        let (outcome, names_now) = download_case(what);
        let failed = outcome.as_ref().map_or(true, |outcome| outcome.tally.failed == 1);
        assert!(failed, "{what}: {outcome:?}");
        assert!(!names_now.contains(&"x".to_owned()), "{what}: {names_now:?}");
    }
}

#[test]
fn endless_lists_and_failures_are_bounded() {
    let (outcome, _) = download_case("flood");
    assert!(outcome.unwrap_err().to_string().contains("lists more pending entries than allowed"));
    let (outcome, _) = download_case("rich");
    assert!(outcome.unwrap_err().to_string().contains("attributes than allowed"));
    let before = resident();
    let temp = tempfile::tempdir().unwrap();
    let served = TestServer::start(support::config(), malicious_service);
    let destination = LocalDestination::File { path: temp.path().to_owned(), allowed: OverwritePolicy::default() };
    let options = CopyOptions { streams: 1, ..CopyOptions::default() };
    let interrupted = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_secs(2));
            interrupted.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        let observer = support::interruptible_observer(&interrupted);
        let from = vec![RemoteSource::File { path: "failures".into() }];
        download(&served.target(), from, &destination, &options, observer).unwrap_err();
    });
    let grown = resident().saturating_sub(before);
    assert!(grown < 100 << 20, "{grown} bytes more than before");
}

/// Returns the resident memory of this process, in bytes.
fn resident() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    pages.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 4096
}
