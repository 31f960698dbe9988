//! A server that means its client no good: whatever it lists or sends, nothing is written outside the destination, nothing
//! wrong and nothing that was not asked for gets a name there, and the client comes to an end.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use lfn_core::transfer::blocks::Layout;
use lfn_core::transfer::digest::{BlockHash, Digest, hash_block};
use lfn_core::transfer::entry::Name;
use lfn_core::transfer::filter::{Decision, Rules};
use lfn_core::transfer::keep::Keep;
use lfn_core::transfer::manner::{Manner, Verify};
use lfn_core::transfer::verdict::Allowed;
use lfn_core::units::Bytes;
use lfn_core::wire::Request;
use lfn_core::wire::copy::{BlockHeader, CopyRequest, From, FromReceiver, FromSender, Job, MOST_UNSETTLED, Pick};
use lfn_net::server::ServerSession;
use lfn_net::session::{DataStream, SessionError};
use lfn_net::transfer::{LocalDestination, Options, Outcome, TransferError, download};
use serde_json::{Value, json};
use support::Served;

const BLOCK: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(30);

/// Does what the client asks for by name.
fn evil(session: &mut ServerSession, request: &Request) -> Result<(), SessionError> {
    let Request::Copy(CopyRequest { job: Job::Get { from, .. }, .. }) = request else { panic!("{request:?}") };
    let [From::File { path }] = from.as_slice() else { panic!("{from:?}") };
    let mut streams = session.data_streams(1, PATIENCE)?;
    let stream = &mut streams[0];
    // With a slash behind it any name may be listed.
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
            session.control.send(&FromSender::Sent { file: 0, digest: Digest([9; 32]) })?;
        }
        "corrupt" => {
            list(session, &[file("x", 5)])?;
            let header = BlockHeader {
                file: 0,
                offset: 0,
                length: 5,
                hash: BlockHash([1; 32]),
                hole: false,
                verify: Verify::Blake3,
            };
            for _ in 0..8 {
                let _ = stream.write_all(&[&header.encode()[..], b"12345"].concat());
            }
        }
        "flood" => {
            let many: Vec<Value> = (0..MOST_UNSETTLED + 1).map(|n| file(&format!("{n}"), 5)).collect();
            for (at, part) in many.chunks(1000).enumerate() {
                let said = json!({ "sender": "list", "first": at * 1000, "entries": part });
                session.control.send(&said)?;
            }
        }
        "rich" => {
            // Nothing of them ever comes: all stay unsettled.
            let value = "x".repeat(60_000);
            for n in 0..64 {
                let mut entry = file(&format!("{n}"), 5);
                let xattr = |x| json!({ "name": format!("user.{x}"), "value": value });
                entry["xattrs"] = (0..16).map(xattr).collect::<Vec<_>>().into();
                session.control.send(&json!({ "sender": "list", "first": n, "entries": [entry] }))?;
            }
        }
        "failures" => loop {
            let failure = json!({ "sender": "failed", "name": "x", "what": "w".repeat(1000) });
            session.control.send(&failure)?;
        },
        "noise" => {
            list(session, &[file("x", 5)])?;
            let _ = stream.write_all(&[0xa5; 4096]);
        }
        other => panic!("{other}"),
    }
    // Until the client is through with us.
    loop {
        session.control.recv::<FromReceiver>(PATIENCE, "in a test")?;
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
    session.control.send(&FromSender::Listed {
        entries: entries.len() as u32,
        bytes: Bytes(0),
        left_out: Default::default(),
    })
}

/// Sends blocks whose hashes are right. The client may have hung up.
fn send(stream: &mut DataStream, file: u32, length: u64, data: &[u8]) {
    let layout = Layout::new(Bytes(length), Bytes(BLOCK)).unwrap();
    for index in 0..layout.blocks() {
        let block = layout.block(index).unwrap();
        let payload = &data[block.offset as usize..][..block.length as usize];
        let hash = hash_block(&layout, block, payload);
        let header =
            BlockHeader { file, offset: block.offset, length: block.length, hash, hole: false, verify: Verify::Blake3 };
        let _ = stream.write_all(&[&header.encode()[..], payload].concat());
    }
}

/// What comes of asking for `what`, and what is in the destination then.
fn fetch(what: &str) -> (Result<Outcome, TransferError>, Vec<String>) {
    let place = tempfile::tempdir().unwrap();
    let (to, outside) = (place.path().join("to"), place.path().join("outside"));
    fs::create_dir(&to).unwrap();
    fs::create_dir(&outside).unwrap();
    let served = Served::start(support::config(), evil);
    let from = vec![From::File { path: format!("{what}/").as_str().into() }];
    let keep = Keep { links: true, hard_links: true, ..Keep::default() };
    let pick = Pick { keep, ..Pick::default() };
    let options = Options { streams: 1, pick, ..Options::default() };
    let destination = LocalDestination::File { path: to.clone(), allowed: Allowed::default() };
    let started = Instant::now();
    let outcome = download(&served.target(), from, &destination, &options, support::watch());
    assert!(started.elapsed() < PATIENCE * 2, "{what}: {:?}", started.elapsed());
    assert_eq!(names(&outside), [""; 0], "{what}");
    assert_eq!(names(place.path()), ["outside", "to"], "{what}");
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
fn names_that_lead_out_end_the_copy() {
    for what in ["dots", "absolute", "middle", "nul", "long", "huge"] {
        let (outcome, there) = fetch(what);
        assert!(outcome.is_err(), "{what}: {outcome:?}");
        assert_eq!(there, [""; 0], "{what}");
    }
}

/// What is there is neither replaced nor deleted, and nothing is added to it, whatever the client lets be done.
#[test]
fn names_that_were_not_asked_for_end_the_copy() {
    let mut rules = Rules::default();
    rules.push(Decision::Exclude, b"*.o").unwrap();
    let (none, without_objects) = (Pick::default(), Pick { rules, ..Pick::default() });
    let named = Pick { names: Some(vec![Name::new("d/c").unwrap()]), ..Pick::default() };
    let linked = Pick { names: Some(vec![Name::new("d").unwrap()]), ..Pick::default() };
    let cases = [
        ("field.nc", &none, ".bash_profile"),
        ("runs", &none, "."),
        ("tree", &without_objects, "tree/lib/x.o"),
        ("link", &none, "link as a symbolic link"),
        ("names", &named, "d/a"),
        ("names", &linked, "d/b as another name of a file"),
    ];
    for (asked, pick, listed) in cases {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join(".bash_profile"), "mine").unwrap();
        let served = Served::start(support::config(), evil);
        let from = vec![From::File { path: asked.into() }];
        let allowed = Allowed { force: true, delete: true, ..Allowed::default() };
        let manner = Manner { delete: true, ..Manner::default() };
        let options = Options { streams: 1, pick: pick.clone(), manner, ..Options::default() };
        let destination = LocalDestination::File { path: place.path().to_owned(), allowed };
        let error = download(&served.target(), from, &destination, &options, support::watch()).unwrap_err();
        assert_eq!(error.to_string(), format!("the sender lists {listed}, which was not asked for"));
        assert_eq!(names(place.path()), [".bash_profile"], "{listed}");
        assert_eq!(fs::read(place.path().join(".bash_profile")).unwrap(), b"mine");
    }
}

#[test]
fn a_file_does_not_go_through_a_link_that_came_before_it() {
    let (outcome, there) = fetch("through");
    let outcome = outcome.unwrap();
    assert_eq!((outcome.tally.links, outcome.tally.failed), (1, 1), "{:?}", outcome.failures);
    assert_eq!(there, ["l"]);
    // Of a file that is not there no other name is made.
    let (outcome, there) = fetch("linked");
    assert_eq!((outcome.unwrap().tally.failed, there), (1, vec!["ok".to_owned()]));
}

#[test]
fn no_file_becomes_set_id() {
    use std::os::unix::fs::PermissionsExt;
    let place = tempfile::tempdir().unwrap();
    let served = Served::start(support::config(), evil);
    let destination = LocalDestination::File { path: place.path().to_owned(), allowed: Allowed::default() };
    let options = Options { streams: 1, ..Options::default() };
    let from = vec![From::File { path: "set-id/".into() }];
    // It may be refused, too; it must not be there with those bits.
    let _ = download(&served.target(), from, &destination, &options, support::watch());
    for name in names(place.path()) {
        let mode = fs::metadata(place.path().join(&name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o7000, 0, "{name}");
    }
}

#[test]
fn bytes_and_digests_that_are_not_what_was_listed_get_no_name() {
    for what in ["longer", "unlisted", "noise", "corrupt", "digest"] {
        let (outcome, there) = fetch(what);
        let failed = outcome.as_ref().map_or(true, |outcome| outcome.tally.failed == 1);
        assert!(failed, "{what}: {outcome:?}");
        assert!(!there.contains(&"x".to_owned()), "{what}: {there:?}");
    }
}

#[test]
fn lists_and_failures_without_end_are_bounded() {
    let (outcome, _) = fetch("flood");
    assert!(outcome.unwrap_err().to_string().contains("lists more entries than may wait"));
    let (outcome, _) = fetch("rich");
    assert!(outcome.unwrap_err().to_string().contains("more attributes than may wait"));
    let before = resident();
    let place = tempfile::tempdir().unwrap();
    let served = Served::start(support::config(), evil);
    let destination = LocalDestination::File { path: place.path().to_owned(), allowed: Allowed::default() };
    let options = Options { streams: 1, ..Options::default() };
    let interrupted = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_secs(2));
            interrupted.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        let watch = support::until(&interrupted);
        let from = vec![From::File { path: "failures".into() }];
        download(&served.target(), from, &destination, &options, watch).unwrap_err();
    });
    let grown = resident().saturating_sub(before);
    assert!(grown < 100 << 20, "{grown} bytes more than before");
}

/// Of this process.
fn resident() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    pages.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 4096
}
