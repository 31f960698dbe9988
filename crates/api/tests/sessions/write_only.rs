//! Write-only and create-only clients: every attempt to learn about files or to change them.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use lfn_api::service;
use lfn_session::dial::{self, Target};
use lfn_session::server::ServerConfig;
use lfn_session::server::tokens::file::{TokenFile, TokenRecord};
use lfn_session::wire::copy::digest::Digest;
use lfn_session::wire::copy::overwrite::OverwritePolicy;
use lfn_session::wire::copy::{CopyJob, ReceiverMessage, RemoteDestination, RemoteSource, SenderMessage};
use lfn_session::wire::{RefusalCode, Request};
use lfn_session::{Control, DataStream, Protection, SessionError, Ticket, Token};
use serde_json::{Value, json};

use crate::support::{self, TestServer, list};

const BLOCK: u64 = 1024;
const TIMEOUT: Duration = Duration::from_secs(60);

/// A server that gives its clients these rights.
struct WriteOnlyRoot {
    temp: tempfile::TempDir,
    served: TestServer,
}

/// Returns the result of a read; `None` if the file or directory has been removed.
fn unless_removed<T>(result: std::io::Result<T>) -> Option<T> {
    match result {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        other => Some(other.unwrap()),
    }
}

impl WriteOnlyRoot {
    fn new(rights: &str) -> Self {
        let temp = tempfile::tempdir().unwrap();
        fs::create_dir(temp.path().join("root")).unwrap();
        // Two more tokens with the same rights.
        let tokens = temp.path().join("tokens.toml");
        for (name, bits) in [("a", 1), ("b", 2)] {
            let record = TokenRecord {
                hash: Token::from_bytes([bits; 16]).hash(),
                rights: rights.parse().unwrap(),
                root: None,
                rate: None,
                created: 0,
                expires: None,
            };
            TokenFile::update(&tokens, |file| file.tokens.insert(name.into(), record)).unwrap();
        }
        WriteOnlyRoot { served: WriteOnlyRoot::serve(&temp, rights), temp }
    }

    fn serve(temp: &tempfile::TempDir, rights: &str) -> TestServer {
        let (root, tokens) = (Some(temp.path().join("root")), Some(temp.path().join("tokens.toml")));
        let config = ServerConfig { root, rights: rights.parse().unwrap(), token_file: tokens, ..support::config() };
        TestServer::start(config, service::new())
    }

    /// Restarts the server on the same root.
    fn restarted(self, rights: &str) -> Self {
        let WriteOnlyRoot { temp, served } = self;
        drop(served);
        WriteOnlyRoot { served: WriteOnlyRoot::serve(&temp, rights), temp }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.temp.path().join("root").join(name)
    }

    /// Returns all paths below the root, with the content of the files.
    fn contents(&self) -> Vec<(PathBuf, Option<Vec<u8>>)> {
        let mut all = Vec::new();
        let mut directories = vec![self.path("")];
        while let Some(directory) = directories.pop() {
            // The server removes files and directories at the same time.
            let Some(entries) = unless_removed(fs::read_dir(directory)) else { continue };
            for entry in entries.map(Result::unwrap) {
                let path = entry.path();
                let is_file = entry.file_type().unwrap().is_file();
                let content = if is_file { unless_removed(fs::read(&path)) } else { None };
                if is_file && content.is_none() {
                    continue;
                }
                all.push((path.strip_prefix(self.path("")).unwrap().to_owned(), content));
                if entry.file_type().unwrap().is_dir() {
                    directories.push(path);
                }
            }
        }
        all.sort();
        all
    }

    /// Returns the target for the token of these bits, or for the server's own token.
    fn target(&self, bits: Option<u8>) -> Target {
        let ticket = self.served.ticket.clone();
        Target::new(bits.map_or(ticket.clone(), |bits| Ticket { token: Token::from_bytes([bits; 16]), ..ticket }))
            .unwrap()
    }

    fn open_copy(&self, bits: Option<u8>, job: CopyJob) -> (Control, DataStream) {
        let (target, session) = (self.target(bits), dial::new_session_id().unwrap());
        let request = support::copy_request(job, 1, BLOCK);
        let control = dial::open_control(&target, session, request).unwrap();
        (control, dial::open_data(&target, session, 0, Protection::Tls, None, |_| Ok(())).unwrap())
    }

    /// Lists these entries, sends no data, and returns all messages of the server up to the last one.
    fn run_copy(&self, job: CopyJob, entries: &[Value]) -> Result<Vec<ReceiverMessage>, SessionError> {
        let (mut control, _stream) = self.open_copy(None, job);
        list(&mut control, entries);
        collect_messages(&mut control)
    }
}

fn collect_messages(control: &mut Control) -> Result<Vec<ReceiverMessage>, SessionError> {
    let mut messages = Vec::new();
    loop {
        match control.recv(TIMEOUT, "in a test")? {
            ReceiverMessage::Alive(_) | ReceiverMessage::Received { .. } => {}
            ReceiverMessage::Done { tally, .. } => {
                messages.push(ReceiverMessage::Done { progress: Default::default(), tally });
                return Ok(messages);
            }
            other => messages.push(other),
        }
    }
}

fn to(path: &str, allowed: OverwritePolicy) -> CopyJob {
    let preserve = lfn_session::wire::copy::preserve::Preserve { links: true, ..Default::default() };
    CopyJob::Put { to: RemoteDestination::File { path: path.into(), allowed, single: false, preserve } }
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

/// Sends the first `blocks` blocks of a file, without waiting.
fn send(control: &mut Control, stream: &mut DataStream, data: &[u8], blocks: u64) {
    for index in 0..blocks {
        let (header, payload) = support::block(data, index, BLOCK);
        stream.write_all(&header.encode()).unwrap();
        stream.write_all(&payload).unwrap();
    }
    if blocks == (data.len() as u64).div_ceil(BLOCK) {
        control.send(&SenderMessage::Sent { file: 0, digest: Digest(*blake3::hash(data).as_bytes()) }).unwrap();
    }
}

#[test]
fn write_only_client_learns_only_that_a_name_exists() {
    let root = WriteOnlyRoot::new("write,test");
    fs::write(root.path("x"), "0123456789").unwrap();
    let modified = fs::metadata(root.path("x")).unwrap().modified().unwrap();
    let modified = modified.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() as i64;
    symlink("x", root.path("y")).unwrap();
    fs::create_dir(root.path("z")).unwrap();
    let before = root.contents();
    let force = OverwritePolicy { force: true, ..OverwritePolicy::default() };
    let messages = |name: &str, length, modified, allowed| {
        let messages = root.run_copy(to("", allowed), &[file(name, length, modified)]).unwrap();
        // Messages about different names must be equal.
        format!("{messages:?}").replace(&format!("\"{name}\""), "NAME")
    };
    let expected = messages("x", 10, modified, OverwritePolicy::default());
    assert!(expected.contains("in use") && !expected.contains("10"), "{expected}");
    for allowed in [
        OverwritePolicy::default(),
        OverwritePolicy { update: true, ..OverwritePolicy::default() },
        OverwritePolicy { checksum: true, ..OverwritePolicy::default() },
    ] {
        for (length, modified) in [(10, modified), (10, 0), (10, i64::from(u32::MAX)), (0, 0), (11, modified)] {
            assert_eq!(messages("x", length, modified, allowed), expected, "{length} {modified} {allowed:?}");
        }
        // A link and a directory are existing names too.
        for name in ["y", "z"] {
            assert_eq!(messages(name, 10, 0, allowed), expected, "{name} {allowed:?}");
        }
        // The target of a link is not compared.
        for target in ["x", "elsewhere"] {
            let link = entry("y", json!({ "symlink": { "target": target } }), 0);
            let messages = root.run_copy(to("", allowed), &[link]).unwrap();
            assert_eq!(format!("{messages:?}").replace("\"y\"", "NAME"), expected, "{target}");
        }
    }
    // With `force`, a directory is refused like a file that cannot be replaced, and only when the file would replace
    // it.
    let refused_directory = messages("z", 0, 0, force);
    assert!(refused_directory.contains("in use"), "{refused_directory}");
    let delete = OverwritePolicy { delete: true, ..OverwritePolicy::default() };
    assert_eq!(refused(root.run_copy(to("", delete), &[file("w", 0, 0)])), RefusalCode::Forbidden);
    for from in ["", "x", "none", "../tokens.toml"] {
        let (mut control, _stream) = root.open_copy(
            None,
            CopyJob::Get {
                from: vec![RemoteSource::File { path: from.into() }],
                selection: lfn_session::wire::copy::Selection {
                    preserve: lfn_session::wire::copy::preserve::Preserve { links: true, ..Default::default() },
                    ..Default::default()
                },
            },
        );
        assert_eq!(refused(control.recv::<SenderMessage>(TIMEOUT, "in a test")), RefusalCode::Forbidden, "{from}");
    }
    assert_eq!(root.contents(), before);
    // Permitted writes succeed.
    let messages = root.run_copy(to("", force), &[file("x", 0, 0), file("new", 0, 0)]).unwrap();
    assert!(matches!(messages.last(), Some(ReceiverMessage::Done { tally, .. }) if tally.files == 2), "{messages:?}");
    assert_eq!(fs::read(root.path("x")).unwrap(), b"");
}

/// The object may be the destination itself, in its path, or in the place of a directory of the source.
#[test]
fn kind_of_an_object_in_the_path_is_hidden() {
    let root = WriteOnlyRoot::new("write");
    let kinds = ["f1", "l1", "dangling", "outside", "fifo"];
    fs::write(root.path("f1"), "x").unwrap();
    for (link, target) in [("l1", "f1"), ("dangling", "nowhere"), ("outside", "/etc")] {
        symlink(target, root.path(link)).unwrap();
    }
    rustix::fs::mkfifoat(rustix::fs::CWD, root.path("fifo"), rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    let before = root.contents();
    let answer = |path: &str, single, entries: &[Value], kind: &str| {
        let (path, preserve) = (path.into(), Default::default());
        let to = RemoteDestination::File { path, allowed: OverwritePolicy::default(), single, preserve };
        format!("{:?}", root.run_copy(CopyJob::Put { to }, entries)).replace(kind, "NAME")
    };
    for (path, single) in [("NAME", false), ("NAME/below", false), ("NAME/below", true)] {
        // Below a link to nothing, the answer is that of a free name.
        let kinds = kinds.map(|kind| if kind == "dangling" { "f1" } else { kind });
        let answers = kinds.map(|kind| answer(&path.replace("NAME", kind), single, &[file("x", 0, 0)], kind));
        assert!(answers[0].contains("in use"), "{path}: {}", answers[0]);
        assert!(answers.iter().all(|answer| *answer == answers[0]), "{path}: {answers:?}");
    }
    let directory = |kind: &str| entry(kind, json!("directory"), 0);
    let answers = kinds.map(|kind| answer("", false, &[directory(kind)], kind));
    assert!(answers[0].contains("in use"), "{}", answers[0]);
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    assert_eq!(root.contents(), before);
}

/// Only a copy within one host needs the identity of the destination directory.
#[test]
fn write_only_client_does_not_learn_the_directory_id() {
    let root = WriteOnlyRoot::new("write");
    fs::write(root.path("taken"), "x").unwrap();
    for name in ["taken", "free"] {
        let (path, allowed, preserve) = (name.into(), OverwritePolicy::default(), Default::default());
        let job = CopyJob::Put { to: RemoteDestination::File { path, allowed, single: true, preserve } };
        let Request::Copy(mut request) = support::copy_request(job, 1, BLOCK) else { panic!() };
        request.transfer_options.same_host = true;
        let (target, session) = (root.target(None), dial::new_session_id().unwrap());
        let mut control = dial::open_control(&target, session, Request::Copy(request)).unwrap();
        list(&mut control, &[file(name, 1, 0)]);
        match control.recv(TIMEOUT, "in a test").unwrap() {
            ReceiverMessage::Ready { destination, .. } => assert_eq!(destination, None, "{name}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn only_the_same_token_resumes_a_partial_file() {
    let root = WriteOnlyRoot::new("write");
    let data = vec![7; 3000];
    let job = || to("", OverwritePolicy::default());
    let (mut control, mut stream) = root.open_copy(Some(1), job());
    list(&mut control, &[file("big", 3000, 5)]);
    send(&mut control, &mut stream, &data, 2);
    let partial = root.path(".big.lfn-partial");
    let first = || {
        fs::File::open(&partial).and_then(|file| {
            let mut data_now = vec![0; 2048];
            file.read_exact_at(&mut data_now, 0).map(|()| data_now)
        })
    };
    support::wait_until(|| first().is_ok_and(|data_now| data_now == data[..2048]));
    drop((control, stream));
    support::wait_until(|| root.served.admission.running() == 0);
    let journal = fs::read(root.path(".big.lfn-journal")).unwrap();
    // Another token with the same file attributes: it learns nothing and cannot damage the file.
    for modified in [5, 6] {
        let (mut control, _stream) = root.open_copy(Some(2), job());
        list(&mut control, &[file("big", 3000, modified)]);
        let messages = collect_messages(&mut control).unwrap();
        assert!(!messages.iter().any(|message| matches!(message, ReceiverMessage::Have { .. })), "{messages:?}");
        assert!(
            matches!(messages.last(), Some(ReceiverMessage::Done { tally, .. }) if tally.failed == 1),
            "{messages:?}"
        );
    }
    // A reserved name does not help either.
    for name in [".big.lfn-partial", ".big.lfn-journal", ".other.lfn-journal"] {
        let force = OverwritePolicy { force: true, ..OverwritePolicy::default() };
        let messages = root.run_copy(to("", force), &[file(name, 0, 0)]).unwrap();
        assert!(
            matches!(messages.last(), Some(ReceiverMessage::Done { tally, .. }) if tally.failed == 1),
            "{messages:?}"
        );
    }
    assert_eq!((first().unwrap(), fs::read(root.path(".big.lfn-journal")).unwrap()), (data[..2048].to_vec(), journal));
    // The token that left the file: two blocks need not be sent again, even after a restart of the server.
    let root = root.restarted("write");
    let (mut control, mut stream) = root.open_copy(Some(1), job());
    list(&mut control, &[file("big", 3000, 5)]);
    let have = loop {
        match control.recv(TIMEOUT, "in a test").unwrap() {
            ReceiverMessage::Have { blocks, .. } => break blocks,
            ReceiverMessage::Failed(failure) => panic!("{failure:?}"),
            _ => {}
        }
    };
    assert_eq!(have.ranges().collect::<Vec<_>>(), [(0, 1)]);
    send(&mut control, &mut stream, &data, 3);
    collect_messages(&mut control).unwrap();
    assert_eq!(fs::read(root.path("big")).unwrap(), data);
}

#[test]
fn create_only_area_hides_and_keeps_its_contents() {
    let (empty, full) = (WriteOnlyRoot::new("create"), WriteOnlyRoot::new("create"));
    fs::create_dir(full.path("dir")).unwrap();
    fs::write(full.path("dir/y"), "y").unwrap();
    fs::write(full.path("x"), "x").unwrap();
    symlink("/", full.path("out")).unwrap();
    let before = full.contents();
    let everything = OverwritePolicy { force: true, delete: true, update: false, checksum: false };
    let directory = |name: &str| entry(name, json!("directory"), 0);
    let jobs = [
        (to("", OverwritePolicy::default()), vec![file("x", 0, 0), file("new", 0, 0)]),
        (to("", everything), vec![directory("dir"), file("dir/y", 0, 0), file("x", 0, 0)]),
        (to("dir", everything), vec![file("y", 0, 0)]),
        (to("out", everything), vec![file("etc", 0, 0)]),
        (to("", everything), vec![file(".x.lfn-partial", 0, 0)]),
    ];
    for (job, entries) in jobs {
        let (one, other) = (empty.run_copy(job.clone(), &entries), full.run_copy(job.clone(), &entries));
        assert_eq!(format!("{one:?}"), format!("{other:?}"), "{job:?}");
    }
    for path in ["..", "../x", "/etc", "dir/../../x", "dir/y/z"] {
        let (one, other) = (
            empty.run_copy(to(path, everything), &[file("y", 0, 0)]),
            full.run_copy(to(path, everything), &[file("y", 0, 0)]),
        );
        assert_eq!(format!("{one:?}"), format!("{other:?}"), "{path}");
    }
    support::wait_until(|| full.served.admission.running() == 0);
    let after = full.contents();
    assert!(before.iter().all(|entry| after.contains(entry)), "{after:?}");
    // Each of four copies has its own directory. Failed copies leave nothing.
    let left: Vec<_> = after.iter().filter(|(path, _)| !before.iter().any(|(old, _)| old == path)).collect();
    let tops = left.iter().filter(|(path, _)| path.components().count() == 1);
    assert!(tops.clone().all(|(path, _)| path.to_string_lossy().contains("Z-ticket-")), "{left:?}");
    assert_eq!(tops.count(), 4, "{left:?}");
    assert!(left.iter().all(|(path, _)| !path.to_string_lossy().contains("lfn-partial")), "{left:?}");
}

#[test]
fn create_only_area_removes_unfinished_files() {
    let root = WriteOnlyRoot::new("create");
    let (mut control, mut stream) = root.open_copy(Some(1), to("", OverwritePolicy::default()));
    list(&mut control, &[file("big", 3000, 5)]);
    send(&mut control, &mut stream, &[7; 3000], 2);
    support::wait_until(|| root.contents().iter().any(|(path, _)| path.ends_with(".big.lfn-journal")));
    assert!(root.contents().iter().any(|(path, _)| path.to_string_lossy().contains("Z-a-")), "{:?}", root.contents());
    drop((control, stream));
    support::wait_until(|| root.contents().is_empty());
    let (mut control, _stream) = root.open_copy(
        Some(1),
        CopyJob::Get {
            from: vec![RemoteSource::File { path: "".into() }],
            selection: lfn_session::wire::copy::Selection {
                preserve: lfn_session::wire::copy::preserve::Preserve { links: true, ..Default::default() },
                ..Default::default()
            },
        },
    );
    assert_eq!(refused(control.recv::<SenderMessage>(TIMEOUT, "in a test")), RefusalCode::Forbidden);
}

#[test]
fn read_only_root_does_not_change() {
    let root = WriteOnlyRoot::new("read");
    fs::write(root.path("x"), "x").unwrap();
    let before = (root.contents(), fs::metadata(root.path("")).unwrap().modified().unwrap());
    let everything = OverwritePolicy { force: true, delete: true, update: true, checksum: true };
    for path in ["", "x", "new", "new/"] {
        assert_eq!(refused(root.run_copy(to(path, everything), &[file("x", 0, 0)])), RefusalCode::Forbidden, "{path}");
    }
    assert_eq!(
        refused(root.run_copy(CopyJob::Put { to: RemoteDestination::Null }, &[file("x", 0, 0)])),
        RefusalCode::Forbidden
    );
    let (mut control, _stream) = root.open_copy(
        None,
        CopyJob::Get { from: vec![RemoteSource::File { path: "x".into() }], selection: Default::default() },
    );
    assert!(matches!(control.recv(TIMEOUT, "in a test").unwrap(), SenderMessage::List { .. }));
    assert_eq!((root.contents(), fs::metadata(root.path("")).unwrap().modified().unwrap()), before);
    assert!(Path::new(&root.path("x")).exists());
}

/// After a power loss, the journal names no owner, so the file has none.
#[test]
fn partial_file_without_a_journal_is_replaced() {
    let root = WriteOnlyRoot::new("write");
    let data = vec![7; 3000];
    for (name, journal) in [("a", Some("")), ("b", Some("{\"torn")), ("c", None)] {
        let left = |suffix: &str| root.path(&format!(".{name}.lfn-{suffix}"));
        fs::write(left("partial"), [0; 3000]).unwrap();
        journal.iter().for_each(|journal| fs::write(left("journal"), journal).unwrap());
        let (mut control, mut stream) = root.open_copy(Some(1), to("", OverwritePolicy::default()));
        list(&mut control, &[file(name, 3000, 5)]);
        send(&mut control, &mut stream, &data, 3);
        let messages = collect_messages(&mut control).unwrap();
        assert!(
            matches!(messages.last(), Some(ReceiverMessage::Done { tally, .. }) if tally.files == 1),
            "{name}: {messages:?}"
        );
        assert_eq!(fs::read(root.path(name)).unwrap(), data);
    }
    // A journal that cannot be read may belong to another token.
    fs::write(root.path(".d.lfn-partial"), [0; 3000]).unwrap();
    symlink("elsewhere", root.path(".d.lfn-journal")).unwrap();
    let messages = root.run_copy(to("", OverwritePolicy::default()), &[file("d", 3000, 5)]).unwrap();
    assert!(matches!(messages.last(), Some(ReceiverMessage::Done { tally, .. }) if tally.failed == 1), "{messages:?}");
    assert_eq!(fs::read(root.path(".d.lfn-partial")).unwrap(), [0; 3000]);
}
