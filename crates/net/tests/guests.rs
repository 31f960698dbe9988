//! What a client learns and can do at a root that it may not read, or not write: by every way it can think of.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use lfn_core::session::{Ticket, Token};
use lfn_core::transfer::blocks::Layout;
use lfn_core::transfer::digest::{Digest, hash_block};
use lfn_core::transfer::manner::Verify;
use lfn_core::transfer::verdict::Allowed;
use lfn_core::units::Bytes;
use lfn_core::wire::copy::{BlockHeader, From, FromReceiver, FromSender, Job, To};
use lfn_core::wire::{RefusalCode, Request};
use lfn_net::server::Config;
use lfn_net::server::tokens::file::{Kept, TokenFile};
use lfn_net::service;
use lfn_net::session::dial::{self, Target};
use lfn_net::session::{Control, DataStream, Protection, SessionError};
use serde_json::{Value, json};
use support::Served;

const BLOCK: u64 = 1024;
const PATIENCE: Duration = Duration::from_secs(60);

/// A server whose clients may do what `rights` says.
struct Root {
    place: tempfile::TempDir,
    served: Served,
}

impl Root {
    fn new(rights: &str) -> Self {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("root")).unwrap();
        // Two more that may do the same.
        let tokens = place.path().join("tokens.toml");
        for (name, bits) in [("a", 1), ("b", 2)] {
            let kept = Kept {
                hash: Token::from_bytes([bits; 16]).hash(),
                rights: rights.parse().unwrap(),
                root: None,
                rate: None,
                created: 0,
                expires: None,
            };
            TokenFile::change(&tokens, |file| file.tokens.insert(name.into(), kept)).unwrap();
        }
        Root { served: Root::serve(&place, rights), place }
    }

    fn serve(place: &tempfile::TempDir, rights: &str) -> Served {
        let (root, tokens) = (Some(place.path().join("root")), Some(place.path().join("tokens.toml")));
        let config = Config { root, rights: rights.parse().unwrap(), tokens, ..support::config() };
        Served::start(config, service::serve)
    }

    /// The same, after another start of the server.
    fn started_again(self, rights: &str) -> Self {
        let Root { place, served } = self;
        drop(served);
        Root { served: Root::serve(&place, rights), place }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join("root").join(name)
    }

    /// Everything below the root, and what the files hold.
    fn all(&self) -> Vec<(PathBuf, Option<Vec<u8>>)> {
        let mut all = Vec::new();
        let mut left = vec![self.path("")];
        while let Some(directory) = left.pop() {
            for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
                let path = entry.path();
                let is_file = entry.file_type().unwrap().is_file();
                all.push((
                    path.strip_prefix(self.path("")).unwrap().to_owned(),
                    is_file.then(|| fs::read(&path).unwrap()),
                ));
                if entry.file_type().unwrap().is_dir() {
                    left.push(path);
                }
            }
        }
        all.sort();
        all
    }

    /// As the bearer of the token of these bits; of the server's own, if there are none.
    fn target(&self, bits: Option<u8>) -> Target {
        let ticket = self.served.ticket.clone();
        Target::new(bits.map_or(ticket.clone(), |bits| Ticket { token: Token::from_bytes([bits; 16]), ..ticket }))
            .unwrap()
    }

    fn ask(&self, bits: Option<u8>, job: Job) -> (Control, DataStream) {
        let (target, session) = (self.target(bits), dial::new_session_id().unwrap());
        let request = support::copy_request(job, 1, BLOCK);
        let control = dial::control(&target, session, request).unwrap();
        (control, dial::data(&target, session, 0, Protection::Tls, None, |_| Ok(())).unwrap())
    }

    /// All that the server says to who lists these entries and sends nothing, up to the last word.
    fn hear(&self, job: Job, entries: &[Value]) -> Result<Vec<FromReceiver>, SessionError> {
        let (mut control, _stream) = self.ask(None, job);
        list(&mut control, entries);
        hear(&mut control)
    }
}

fn list(control: &mut Control, entries: &[Value]) {
    let _ = control.send(&json!({ "sender": "list", "first": 0, "entries": entries }));
    let _ = control.send(&FromSender::Listed {
        entries: entries.len() as u32,
        bytes: Bytes(0),
        left_out: Default::default(),
    });
}

fn hear(control: &mut Control) -> Result<Vec<FromReceiver>, SessionError> {
    let mut heard = Vec::new();
    loop {
        match control.recv(PATIENCE, "in a test")? {
            FromReceiver::Alive(_) | FromReceiver::Taken { .. } => {}
            FromReceiver::Done { tally, .. } => {
                heard.push(FromReceiver::Done { progress: Default::default(), tally });
                return Ok(heard);
            }
            other => heard.push(other),
        }
    }
}

fn to(path: &str, allowed: Allowed) -> Job {
    let keep = lfn_core::transfer::keep::Keep { links: true, ..Default::default() };
    Job::Put { to: To::File { path: path.into(), allowed, single: false, keep } }
}

fn entry(name: &str, kind: Value, modified: i64) -> Value {
    json!({ "name": name, "kind": kind, "mode": 0o755, "modified": [modified, 0] })
}

fn file(name: &str, length: u64, modified: i64) -> Value {
    entry(name, json!({ "file": { "length": length } }), modified)
}

fn refused<T: std::fmt::Debug>(result: Result<T, SessionError>) -> RefusalCode {
    match result {
        Err(SessionError::Refused(refusal)) => refusal.code,
        other => panic!("{other:?}"),
    }
}

/// Sends a file of three blocks, or the first `blocks` of it; nothing of it is waited for.
fn send(control: &mut Control, stream: &mut DataStream, data: &[u8], blocks: u64) {
    let layout = Layout::new(Bytes(data.len() as u64), Bytes(BLOCK)).unwrap();
    for index in 0..blocks {
        let block = layout.block(index).unwrap();
        let payload = &data[block.offset as usize..][..block.length as usize];
        let hash = hash_block(&layout, block, payload);
        let header = BlockHeader {
            file: 0,
            offset: block.offset,
            length: block.length,
            hash,
            hole: false,
            verify: Verify::Blake3,
        };
        stream.write_all(&header.encode()).unwrap();
        stream.write_all(payload).unwrap();
    }
    if blocks == layout.blocks() {
        control.send(&FromSender::Sent { file: 0, digest: Digest(*blake3::hash(data).as_bytes()) }).unwrap();
    }
}

#[test]
fn of_a_write_only_root_one_learns_that_a_name_is_taken_and_no_more() {
    let root = Root::new("write,test");
    fs::write(root.path("x"), "0123456789").unwrap();
    let modified = fs::metadata(root.path("x")).unwrap().modified().unwrap();
    let modified = modified.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() as i64;
    symlink("x", root.path("y")).unwrap();
    fs::create_dir(root.path("z")).unwrap();
    let before = root.all();
    let force = Allowed { force: true, ..Allowed::default() };
    let heard = |name: &str, length, modified, allowed| {
        let heard = root.hear(to("", allowed), &[file(name, length, modified)]).unwrap();
        // What was said of one name is held against what was said of another.
        format!("{heard:?}").replace(&format!("\"{name}\""), "NAME")
    };
    let expected = heard("x", 10, modified, Allowed::default());
    assert!(expected.contains("taken") && !expected.contains("10"), "{expected}");
    for allowed in [
        Allowed::default(),
        Allowed { update: true, ..Allowed::default() },
        Allowed { checksum: true, ..Allowed::default() },
    ] {
        for (length, modified) in [(10, modified), (10, 0), (10, i64::from(u32::MAX)), (0, 0), (11, modified)] {
            assert_eq!(heard("x", length, modified, allowed), expected, "{length} {modified} {allowed:?}");
        }
        // A link and a directory are names that are taken, too.
        for name in ["y", "z"] {
            assert_eq!(heard(name, 10, 0, allowed), expected, "{name} {allowed:?}");
        }
        // The target of a link is not compared.
        for target in ["x", "elsewhere"] {
            let link = entry("y", json!({ "symlink": { "target": target } }), 0);
            let heard = root.hear(to("", allowed), &[link]).unwrap();
            assert_eq!(format!("{heard:?}").replace("\"y\"", "NAME"), expected, "{target}");
        }
    }
    assert_eq!(heard("z", 10, 0, force), expected, "a directory");
    let delete = Allowed { delete: true, ..Allowed::default() };
    assert_eq!(refused(root.hear(to("", delete), &[file("w", 0, 0)])), RefusalCode::Forbidden);
    for from in ["", "x", "none", "../tokens.toml"] {
        let (mut control, _stream) = root.ask(
            None,
            Job::Get {
                from: vec![From::File { path: from.into() }],
                pick: lfn_core::wire::copy::Pick {
                    keep: lfn_core::transfer::keep::Keep { links: true, ..Default::default() },
                    ..Default::default()
                },
            },
        );
        assert_eq!(refused(control.recv::<FromSender>(PATIENCE, "in a test")), RefusalCode::Forbidden, "{from}");
    }
    assert_eq!(root.all(), before);
    // What one may do is done.
    let heard = root.hear(to("", force), &[file("x", 0, 0), file("new", 0, 0)]).unwrap();
    assert!(matches!(heard.last(), Some(FromReceiver::Done { tally, .. }) if tally.files == 2), "{heard:?}");
    assert_eq!(fs::read(root.path("x")).unwrap(), b"");
}

/// Only the two ends of one host need to know which directory it is that is written to, and whether the name is taken.
#[test]
fn of_a_write_only_root_nobody_is_told_which_directory_it_is() {
    let root = Root::new("write");
    fs::write(root.path("taken"), "x").unwrap();
    for name in ["taken", "free"] {
        let (path, allowed, keep) = (name.into(), Allowed::default(), Default::default());
        let job = Job::Put { to: To::File { path, allowed, single: true, keep } };
        let Request::Copy(mut request) = support::copy_request(job, 1, BLOCK) else { panic!() };
        request.manner.here = true;
        let (target, session) = (root.target(None), dial::new_session_id().unwrap());
        let mut control = dial::control(&target, session, Request::Copy(request)).unwrap();
        list(&mut control, &[file(name, 1, 0)]);
        match control.recv(PATIENCE, "in a test").unwrap() {
            FromReceiver::Ready { ground, .. } => assert_eq!(ground, None, "{name}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_partial_file_goes_on_with_the_token_that_left_it_and_no_other() {
    let root = Root::new("write");
    let data = vec![7; 3000];
    let job = || to("", Allowed::default());
    let (mut control, mut stream) = root.ask(Some(1), job());
    list(&mut control, &[file("big", 3000, 5)]);
    send(&mut control, &mut stream, &data, 2);
    let partial = root.path(".big.lfn-partial");
    let first = || {
        fs::File::open(&partial).and_then(|file| {
            let mut there = vec![0; 2048];
            file.read_exact_at(&mut there, 0).map(|()| there)
        })
    };
    support::wait_until(|| first().is_ok_and(|there| there == data[..2048]));
    drop((control, stream));
    support::wait_until(|| root.served.admission.running() == 0);
    let journal = fs::read(root.path(".big.lfn-journal")).unwrap();
    // Another token, the same facts: neither told what is there nor able to spoil it.
    for modified in [5, 6] {
        let (mut control, _stream) = root.ask(Some(2), job());
        list(&mut control, &[file("big", 3000, modified)]);
        let heard = hear(&mut control).unwrap();
        assert!(!heard.iter().any(|word| matches!(word, FromReceiver::Have { .. })), "{heard:?}");
        assert!(matches!(heard.last(), Some(FromReceiver::Done { tally, .. }) if tally.failed == 1), "{heard:?}");
    }
    // Nor by giving it a name that is kept for such files.
    for name in [".big.lfn-partial", ".big.lfn-journal", ".other.lfn-journal"] {
        let force = Allowed { force: true, ..Allowed::default() };
        let heard = root.hear(to("", force), &[file(name, 0, 0)]).unwrap();
        assert!(matches!(heard.last(), Some(FromReceiver::Done { tally, .. }) if tally.failed == 1), "{heard:?}");
    }
    assert_eq!((first().unwrap(), fs::read(root.path(".big.lfn-journal")).unwrap()), (data[..2048].to_vec(), journal));
    // Its own: two blocks need not come again, whatever became of the server meanwhile.
    let root = root.started_again("write");
    let (mut control, mut stream) = root.ask(Some(1), job());
    list(&mut control, &[file("big", 3000, 5)]);
    let have = loop {
        match control.recv(PATIENCE, "in a test").unwrap() {
            FromReceiver::Have { blocks, .. } => break blocks,
            FromReceiver::Failed(failure) => panic!("{failure:?}"),
            _ => {}
        }
    };
    assert_eq!(have.ranges().collect::<Vec<_>>(), [(0, 1)]);
    send(&mut control, &mut stream, &data, 3);
    hear(&mut control).unwrap();
    assert_eq!(fs::read(root.path("big")).unwrap(), data);
}

#[test]
fn a_drop_box_says_the_same_whatever_is_in_it_and_loses_nothing() {
    let (empty, full) = (Root::new("drop"), Root::new("drop"));
    fs::create_dir(full.path("dir")).unwrap();
    fs::write(full.path("dir/y"), "y").unwrap();
    fs::write(full.path("x"), "x").unwrap();
    symlink("/", full.path("out")).unwrap();
    let before = full.all();
    let everything = Allowed { force: true, delete: true, update: false, checksum: false };
    let directory = |name: &str| entry(name, json!("directory"), 0);
    let jobs = [
        (to("", Allowed::default()), vec![file("x", 0, 0), file("new", 0, 0)]),
        (to("", everything), vec![directory("dir"), file("dir/y", 0, 0), file("x", 0, 0)]),
        (to("dir", everything), vec![file("y", 0, 0)]),
        (to("out", everything), vec![file("etc", 0, 0)]),
        (to("", everything), vec![file(".x.lfn-partial", 0, 0)]),
    ];
    for (job, entries) in jobs {
        let (one, other) = (empty.hear(job.clone(), &entries), full.hear(job.clone(), &entries));
        assert_eq!(format!("{one:?}"), format!("{other:?}"), "{job:?}");
    }
    for path in ["..", "../x", "/etc", "dir/../../x", "dir/y/z"] {
        let (one, other) =
            (empty.hear(to(path, everything), &[file("y", 0, 0)]), full.hear(to(path, everything), &[file("y", 0, 0)]));
        assert_eq!(format!("{one:?}"), format!("{other:?}"), "{path}");
    }
    support::wait_until(|| full.served.admission.running() == 0);
    let after = full.all();
    assert!(before.iter().all(|entry| after.contains(entry)), "{after:?}");
    // What was left is in directories of their own, four of them; of what failed nothing is left.
    let left: Vec<_> = after.iter().filter(|(path, _)| !before.iter().any(|(old, _)| old == path)).collect();
    let tops = left.iter().filter(|(path, _)| path.components().count() == 1);
    assert!(tops.clone().all(|(path, _)| path.to_string_lossy().contains("Z-ticket-")), "{left:?}");
    assert_eq!(tops.count(), 4, "{left:?}");
    assert!(left.iter().all(|(path, _)| !path.to_string_lossy().contains("lfn-partial")), "{left:?}");
}

#[test]
fn what_was_not_finished_in_a_drop_box_is_gone_and_cannot_be_fetched() {
    let root = Root::new("drop");
    let (mut control, mut stream) = root.ask(Some(1), to("", Allowed::default()));
    list(&mut control, &[file("big", 3000, 5)]);
    send(&mut control, &mut stream, &[7; 3000], 2);
    support::wait_until(|| root.all().iter().any(|(path, _)| path.ends_with(".big.lfn-journal")));
    assert!(root.all().iter().any(|(path, _)| path.to_string_lossy().contains("Z-a-")), "{:?}", root.all());
    drop((control, stream));
    support::wait_until(|| root.all().is_empty());
    let (mut control, _stream) = root.ask(
        Some(1),
        Job::Get {
            from: vec![From::File { path: "".into() }],
            pick: lfn_core::wire::copy::Pick {
                keep: lfn_core::transfer::keep::Keep { links: true, ..Default::default() },
                ..Default::default()
            },
        },
    );
    assert_eq!(refused(control.recv::<FromSender>(PATIENCE, "in a test")), RefusalCode::Forbidden);
}

#[test]
fn nothing_changes_at_a_root_that_may_only_be_read() {
    let root = Root::new("read");
    fs::write(root.path("x"), "x").unwrap();
    let before = (root.all(), fs::metadata(root.path("")).unwrap().modified().unwrap());
    let everything = Allowed { force: true, delete: true, update: true, checksum: true };
    for path in ["", "x", "new", "new/"] {
        assert_eq!(refused(root.hear(to(path, everything), &[file("x", 0, 0)])), RefusalCode::Forbidden, "{path}");
    }
    assert_eq!(refused(root.hear(Job::Put { to: To::Null }, &[file("x", 0, 0)])), RefusalCode::Forbidden);
    let (mut control, _stream) =
        root.ask(None, Job::Get { from: vec![From::File { path: "x".into() }], pick: Default::default() });
    assert!(matches!(control.recv(PATIENCE, "in a test").unwrap(), FromSender::List { .. }));
    assert_eq!((root.all(), fs::metadata(root.path("")).unwrap().modified().unwrap()), before);
    assert!(Path::new(&root.path("x")).exists());
}

/// As after a loss of power: the journal says nothing, so it is nobody's.
#[test]
fn what_a_crash_left_without_a_journal_stands_in_no_guests_way() {
    let root = Root::new("write");
    let data = vec![7; 3000];
    for (name, journal) in [("a", Some("")), ("b", Some("{\"torn")), ("c", None)] {
        let left = |suffix: &str| root.path(&format!(".{name}.lfn-{suffix}"));
        fs::write(left("partial"), [0; 3000]).unwrap();
        journal.iter().for_each(|journal| fs::write(left("journal"), journal).unwrap());
        let (mut control, mut stream) = root.ask(Some(1), to("", Allowed::default()));
        list(&mut control, &[file(name, 3000, 5)]);
        send(&mut control, &mut stream, &data, 3);
        let heard = hear(&mut control).unwrap();
        assert!(
            matches!(heard.last(), Some(FromReceiver::Done { tally, .. }) if tally.files == 1),
            "{name}: {heard:?}"
        );
        assert_eq!(fs::read(root.path(name)).unwrap(), data);
    }
    // A journal that cannot be looked at may be somebody's.
    fs::write(root.path(".d.lfn-partial"), [0; 3000]).unwrap();
    symlink("elsewhere", root.path(".d.lfn-journal")).unwrap();
    let heard = root.hear(to("", Allowed::default()), &[file("d", 3000, 5)]).unwrap();
    assert!(matches!(heard.last(), Some(FromReceiver::Done { tally, .. }) if tally.failed == 1), "{heard:?}");
    assert_eq!(fs::read(root.path(".d.lfn-partial")).unwrap(), [0; 3000]);
}
