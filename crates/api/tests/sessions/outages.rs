//! Copies over a failing path: streams that are reset, damaged or frozen, sessions that are lost, and a server that
//! restarts. Each copy completes with a single call.
//!
//! The path is a proxy on loopback that injects faults at byte counts. So only the timeouts of the copy itself depend
//! on the clock.
#![allow(clippy::disallowed_types, reason = "the other end of the path uses plain sockets")]

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::{fs, thread};

use lfn_api::service;
use lfn_base::random_data::fill_random;
use lfn_base::units::{BitRate, Bytes};
use lfn_copy::{
    ConnectionEvent, CopyObserver, CopyOptions, CopyOutcome, EntryListener, LocalDestination, LocalSource,
    StallTimeouts, TransferError, download, third_party_copy, upload,
};
use lfn_results::evidence::ProgressSample;
use lfn_session::dial::Target;
use lfn_session::identity::{ServerIdentity, new_token};
use lfn_session::limits::{ResourceLimits, ServerLimits};
use lfn_session::server::ServerConfig;
use lfn_session::wire::copy::byte_string::ByteString;
use lfn_session::wire::copy::digest::Digest;
use lfn_session::wire::copy::overwrite::OverwritePolicy;
use lfn_session::wire::copy::progress::ListedTotals;
use lfn_session::wire::copy::{EntryEvent, RemoteDestination, RemoteSource};
use lfn_session::{Protection, Ticket, Token};
use socket2::SockRef;
use support::TestServer;
use tempfile::TempDir;

use crate::support;

/// A fault of a connection that has carried this number of bytes in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Nothing,
    /// Both ends of the connection are reset.
    Reset,
    /// One bit is inverted.
    Flip,
    /// No more bytes pass, and neither end gets an error.
    Freeze,
}

/// A path to a server.
struct FaultPath {
    port: u16,
    state: Arc<PathState>,
}

struct PathState {
    server: Mutex<SocketAddr>,
    fault: Fault,
    /// Number of bytes before the fault, and number of faults that remain.
    at_byte: u64,
    remaining: AtomicUsize,
    triggered: AtomicUsize,
    /// Number of bytes in total after which all connections are reset, once.
    outage_at: AtomicU64,
    relayed: AtomicU64,
    /// Relaying is slow, so that no stream finishes before the control connection is ready.
    slow: AtomicBool,
    /// New connections are reset.
    down: AtomicBool,
    over: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
}

impl FaultPath {
    fn new(server: u16, fault: Fault, at: u64, times: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(PathState {
            server: Mutex::new(([127, 0, 0, 1], server).into()),
            fault,
            at_byte: at,
            remaining: AtomicUsize::new(times),
            triggered: AtomicUsize::new(0),
            outage_at: AtomicU64::new(u64::MAX),
            relayed: AtomicU64::new(0),
            slow: AtomicBool::new(false),
            down: AtomicBool::new(false),
            over: AtomicBool::new(false),
            open: Mutex::default(),
        });
        let shared = state.clone();
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                if shared.over.load(Ordering::SeqCst) {
                    return;
                }
                let server = *shared.server.lock().unwrap();
                let far = TcpStream::connect(server);
                match far {
                    Ok(far) if !shared.down.load(Ordering::SeqCst) => PathState::relay(&shared, near, far),
                    _ => reset(&near),
                }
            }
        });
        FaultPath { port, state }
    }

    fn target(&self, ticket: &Ticket) -> Target {
        Target::new(Ticket { port: self.port, ..ticket.clone() }).unwrap()
    }
}

impl Drop for FaultPath {
    fn drop(&mut self) {
        self.state.over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        self.state.reset_all();
    }
}

impl PathState {
    fn relay(state: &Arc<PathState>, near: TcpStream, far: TcpStream) {
        let clones = [near.try_clone().unwrap(), far.try_clone().unwrap()];
        state.open.lock().unwrap().extend(clones);
        for (mut from, mut to) in [
            (near.try_clone().unwrap(), far.try_clone().unwrap()),
            (far.try_clone().unwrap(), near.try_clone().unwrap()),
        ] {
            let state = state.clone();
            thread::spawn(move || {
                if state.pump(&mut from, &mut to).is_err() {
                    reset(&from);
                    reset(&to);
                }
            });
        }
    }

    fn pump(&self, from: &mut TcpStream, to: &mut TcpStream) -> io::Result<()> {
        let (mut buffer, mut passed) = ([0; 4096], 0);
        loop {
            let read = from.read(&mut buffer)?;
            if read == 0 {
                return to.shutdown(Shutdown::Write);
            }
            let due = passed < self.at_byte && self.at_byte <= passed + read as u64;
            passed += read as u64;
            if due && self.triggers() {
                match self.fault {
                    Fault::Nothing => {}
                    Fault::Reset => return Err(io::ErrorKind::ConnectionReset.into()),
                    Fault::Flip => buffer[read / 2] ^= 4,
                    Fault::Freeze => loop {
                        thread::sleep(Duration::from_millis(20));
                        if self.over.load(Ordering::SeqCst) {
                            return Ok(());
                        }
                    },
                }
            }
            if self.relayed.fetch_add(read as u64, Ordering::SeqCst) >= self.outage_at.load(Ordering::SeqCst) {
                self.outage_at.store(u64::MAX, Ordering::SeqCst);
                self.reset_all();
            }
            if self.slow.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(2));
            }
            to.write_all(&buffer[..read])?;
        }
    }

    fn triggers(&self) -> bool {
        let triggers =
            self.remaining.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        self.triggered.fetch_add(usize::from(triggers), Ordering::SeqCst);
        triggers
    }

    fn reset_all(&self) {
        self.open.lock().unwrap().drain(..).for_each(|socket| reset(&socket));
    }
}

fn reset(socket: &TcpStream) {
    let _ = SockRef::from(socket).set_linger(Some(Duration::ZERO));
    let _ = socket.shutdown(Shutdown::Both);
}

/// A server with its root, and a local directory for the copy.
struct CopySetup {
    near: TempDir,
    far: TempDir,
    served: TestServer,
}

impl CopySetup {
    fn new() -> Self {
        CopySetup::with_rights("read,write")
    }

    fn with_rights(rights: &str) -> Self {
        let (near, far) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let rights = rights.parse().unwrap();
        let config = ServerConfig { root: Some(far.path().to_owned()), rights, ..support::config() };
        CopySetup { served: TestServer::start(config, service::new()), near, far }
    }

    fn options(protection: Protection) -> CopyOptions {
        CopyOptions {
            streams: 3,
            block: Bytes(64 << 10),
            protection,
            retry_for: Duration::from_secs(60),
            ..CopyOptions::default()
        }
    }

    fn upload(&self, path: &FaultPath, options: &CopyOptions) -> Result<CopyOutcome, TransferError> {
        let to = RemoteDestination::File {
            path: ByteString::from(&b""[..]),
            allowed: OverwritePolicy::default(),
            single: false,
            preserve: options.selection.preserve,
        };
        let from = [LocalSource::File(self.near.path().join("tree"))];
        upload(&path.target(&self.served.ticket), &from, to, options, idle_observer(&AtomicBool::new(false)))
    }

    fn download(&self, path: &FaultPath, options: &CopyOptions) -> Result<CopyOutcome, TransferError> {
        let to = LocalDestination::File { path: self.near.path().to_owned(), allowed: OverwritePolicy::default() };
        let from = vec![RemoteSource::File { path: "tree".into() }];
        download(&path.target(&self.served.ticket), from, &to, options, idle_observer(&AtomicBool::new(false)))
    }
}

fn idle_observer(interrupted: &AtomicBool) -> CopyObserver<'_> {
    CopyObserver {
        observer: Box::leak(Box::new(|_: &_, _: &_| {})),
        change: Box::leak(Box::new(|_: &_| {})),
        connection: Box::leak(Box::new(|_: &_| {})),
        interrupted,
    }
}

/// Creates two large files and many small ones, in two directories.
fn create_tree(root: &Path) -> BTreeMap<String, Vec<u8>> {
    fs::create_dir_all(root.join("tree/in")).unwrap();
    let sizes = [("big", 6 << 20), ("in/large", 700_001)].into_iter().map(|(name, size)| (name.to_owned(), size));
    let small = (0..300).map(|n| (format!("in/{n}"), 1000 + n));
    let write = |(name, size): (String, usize)| {
        let mut bytes = vec![0; size];
        fill_random(size as u64, 0, &mut bytes);
        fs::write(root.join("tree").join(&name), &bytes).unwrap();
        (name, bytes)
    };
    sizes.chain(small).map(write).collect()
}

#[track_caller]
fn assert_complete(root: &Path, files: &BTreeMap<String, Vec<u8>>, outcome: &CopyOutcome) {
    for (name, bytes) in files {
        assert!(fs::read(root.join("tree").join(name)).unwrap() == *bytes, "{name}");
    }
    let all = fs::read_dir(root.join("tree")).unwrap().chain(fs::read_dir(root.join("tree/in")).unwrap()).count();
    assert_eq!(all, files.len() + 1, "something half-done is left");
    let tally = outcome.tally;
    assert_eq!((tally.files, tally.failed, tally.resumed_bytes), (files.len() as u64, 0, Bytes(0)), "{tally:?}");
    assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);
}

/// Tests each case on a thread of its own, because the cases mostly wait.
fn at_once<T: Send, const N: usize>(cases: [T; N], test: impl Fn(T) + Sync) {
    thread::scope(|scope| {
        let test = &test;
        for case in cases {
            scope.spawn(move || test(case));
        }
    });
}

/// Copies in both directions, with and without encryption, and checks each result.
fn for_each_direction(
    fault: Fault,
    at: u64,
    times: usize,
    outage_at: u64,
    check: impl Fn(&FaultPath, &CopyOutcome) + Sync,
) {
    let cases =
        [(Protection::Tls, true), (Protection::Tls, false), (Protection::Clear, true), (Protection::Clear, false)];
    let copy = |(protection, up)| {
        let copies = CopySetup::new();
        let (from, to) = if up { (&copies.near, &copies.far) } else { (&copies.far, &copies.near) };
        let files = create_tree(from.path());
        let path = FaultPath::new(copies.served.ticket.port, fault, at, times);
        path.state.outage_at.store(outage_at, Ordering::SeqCst);
        path.state.slow.store(outage_at < u64::MAX, Ordering::SeqCst);
        let mut options = CopySetup::options(protection);
        options.transfer_options.report_digests = true;
        let digests: Arc<Mutex<Vec<(String, Digest)>>> = Arc::default();
        let (received, reset) = (digests.clone(), digests.clone());
        let notify = move |event: &EntryEvent| {
            received.lock().unwrap().extend(event.digest.map(|digest| (event.name.to_string(), digest)));
        };
        options.listener = EntryListener::new(notify, move || reset.lock().unwrap().clear(), |_| ());
        let outcome = if up { copies.upload(&path, &options) } else { copies.download(&path, &options) };
        let outcome = outcome.unwrap_or_else(|error| panic!("{protection:?}, up {up}: {error}"));
        assert_complete(to.path(), &files, &outcome);
        // Each file's digest is reported once, over any number of sessions.
        let mut digests = digests.lock().unwrap().clone();
        digests.sort_by(|(a, _), (b, _)| a.cmp(b));
        let digest = |bytes: &[u8]| Digest(*blake3::hash(bytes).as_bytes());
        let expected: Vec<_> = files.iter().map(|(name, bytes)| (format!("tree/{name}"), digest(bytes))).collect();
        assert!(digests == expected, "{protection:?}, up {up}: {} digests of {}", digests.len(), expected.len());
        check(&path, &outcome);
    };
    // A copy with an outage mostly waits. Without one, the copies would change the times of each other's faults.
    if outage_at < u64::MAX {
        at_once(cases, copy);
    } else {
        cases.into_iter().for_each(copy);
    }
}

#[test]
fn reset_streams_are_replaced() {
    for_each_direction(Fault::Reset, 500_000, 5, u64::MAX, |path, outcome| {
        assert_eq!(path.state.triggered.load(Ordering::SeqCst), 5);
        // A new stream is rejected until the server has noticed the end of the old one, so the number of replaced
        // streams has no fixed limit: it depends on the load of the machine. `stream_pool` tests the redial delay.
        assert!(outcome.reconnects == 0 && outcome.replaced >= 3, "{}", outcome.replaced);
    });
}

#[test]
fn damaged_data_is_sent_again() {
    for_each_direction(Fault::Flip, 500_000, 5, u64::MAX, |path, outcome| {
        let triggered = path.state.triggered.load(Ordering::SeqCst) as u64;
        assert!(triggered >= 2 && outcome.reconnects == 0, "{triggered}");
        // Without encryption, the damage may hit a payload. Then only its block is sent again.
        assert!(
            u64::from(outcome.replaced) + outcome.tally.resent_blocks >= triggered,
            "{triggered}, {:?}",
            outcome.tally
        );
    });
}

#[test]
fn frozen_stream_is_replaced() {
    let copies = CopySetup::new();
    let files = create_tree(copies.near.path());
    let path = FaultPath::new(copies.served.ticket.port, Fault::Freeze, 500_000, 1);
    let stall_timeouts = StallTimeouts { stream: Duration::from_secs(2), ..StallTimeouts::default() };
    let options = CopyOptions { stall_timeouts, ..CopySetup::options(Protection::Tls) };
    let outcome = copies.upload(&path, &options).unwrap();
    assert_complete(copies.far.path(), &files, &outcome);
    assert_eq!((outcome.reconnects, outcome.replaced), (0, 1));
}

#[test]
fn streams_that_all_freeze_are_reported_as_a_stall() {
    let stall = |up: bool| {
        let copies = CopySetup::new();
        let from = if up { &copies.near } else { &copies.far };
        fs::create_dir(from.path().join("tree")).unwrap();
        fs::write(from.path().join("tree/big"), vec![7; 6 << 20]).unwrap();
        // Less than one block, and more than the control messages.
        let path = FaultPath::new(copies.served.ticket.port, Fault::Freeze, 60_000, usize::MAX);
        let stall_timeouts =
            StallTimeouts { copy: Duration::from_secs(3), stream: Duration::from_secs(1), ..StallTimeouts::default() };
        let options = CopyOptions { stall_timeouts, ..CopySetup::options(Protection::Clear) };
        let started = Instant::now();
        let error = if up { copies.upload(&path, &options) } else { copies.download(&path, &options) }.unwrap_err();
        assert!(started.elapsed() < Duration::from_secs(50), "up {up}: {:?}", started.elapsed());
        assert!(matches!(error, TransferError::Stalled { .. }) && error.is_resumable(), "up {up}: {error}");
        assert!(error.to_string().contains("the network does not deliver data"), "up {up}: {error}");
    };
    thread::scope(|scope| {
        for up in [true, false] {
            scope.spawn(move || stall(up));
        }
    });
}

#[test]
fn lost_session_is_resumed() {
    // Early in the copy, and after many files have their names.
    at_once([3 << 20, 7_000_000], |outage_at| {
        for_each_direction(Fault::Nothing, 0, 0, outage_at, |_, outcome| {
            assert_eq!(outcome.reconnects, 1);
            assert_eq!((outcome.tally.skipped, outcome.tally.directories), (0, 2), "{:?}", outcome.tally);
            assert!(outcome.outage_time > Duration::ZERO);
        });
    });
}

/// Write-only clients resume too: with the files of their own copy, or in the directory of the create-only copy.
#[test]
fn lost_write_only_session_is_resumed() {
    let cases = [
        ("write", Protection::Tls),
        ("write", Protection::Clear),
        ("create", Protection::Tls),
        ("create", Protection::Clear),
    ];
    at_once(cases, |(rights, protection)| {
        let copies = CopySetup::with_rights(rights);
        let files = create_tree(copies.near.path());
        std::os::unix::fs::symlink("big", copies.near.path().join("tree/link")).unwrap();
        let path = FaultPath::new(copies.served.ticket.port, Fault::Nothing, 0, 0);
        path.state.outage_at.store(3 << 20, Ordering::SeqCst);
        path.state.slow.store(true, Ordering::SeqCst);
        let mut options = CopySetup::options(protection);
        options.selection.preserve.links = true;
        let outcome = copies.upload(&path, &options).unwrap_or_else(|error| panic!("{rights} {protection:?}: {error}"));
        let tally = outcome.tally;
        assert_eq!((outcome.reconnects, tally.failed), (1, 0), "{rights}: {tally:?}, {:?}", outcome.failures);
        assert_eq!((tally.files, tally.links), (files.len() as u64, 1), "{rights}: {tally:?}");
        let tops: Vec<_> = fs::read_dir(copies.far.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(tops.len(), 1, "{rights}: {tops:?}");
        let root = if rights == "create" { &tops[0] } else { copies.far.path() };
        for (name, bytes) in &files {
            assert!(fs::read(root.join("tree").join(name)).unwrap() == *bytes, "{rights}: {name}");
        }
        let all = fs::read_dir(root.join("tree")).unwrap().chain(fs::read_dir(root.join("tree/in")).unwrap());
        assert_eq!(all.count(), files.len() + 2, "something half-done is left");
    });
}

/// A server behind a path, which may restart with the same identity on another port.
struct Restartable {
    path: FaultPath,
    keys: TempDir,
    token: Token,
    root: TempDir,
    served: Option<TestServer>,
}

impl Restartable {
    fn new() -> Self {
        let (keys, root) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let path = FaultPath::new(0, Fault::Nothing, 0, 0);
        let mut end = Restartable { path, keys, token: new_token().unwrap(), root, served: None };
        end.start();
        end
    }

    fn start(&mut self) {
        drop(self.served.take());
        let (identity, token) = (ServerIdentity::load_or_create(self.keys.path()).unwrap(), Some(self.token));
        let root = Some(self.root.path().to_owned());
        // The rate limit keeps data to copy when the fault occurs.
        let client = ResourceLimits { rate: Some(BitRate(40_000_000)), ..ServerLimits::default().client };
        let limits = ServerLimits { client, ..ServerLimits::default() };
        let config = ServerConfig { identity, token, root, allow_third_party: true, limits, ..support::config() };
        let served = TestServer::start(config, service::new());
        *self.path.state.server.lock().unwrap() = ([127, 0, 0, 1], served.ticket.port).into();
        self.served = Some(served);
    }

    fn target(&self) -> Target {
        self.path.target(&self.served.as_ref().unwrap().ticket)
    }
}

/// The client asks both servers again, whichever was lost, and the copy resumes.
#[test]
fn third_party_copy_resumes_after_losing_either_end() {
    at_once([(0, false), (0, true), (1, false), (1, true)], |(lost_end, restarts)| {
        let mut ends = [Restartable::new(), Restartable::new()];
        let files = create_tree(ends[0].root.path());
        let targets = [ends[0].target(), ends[1].target()];
        let mut once = true;
        let mut observer = |_: &ListedTotals, sample: &ProgressSample| {
            if sample.bytes > Bytes(1 << 20) && std::mem::take(&mut once) {
                if restarts { ends[lost_end].start() } else { ends[lost_end].path.state.reset_all() }
            }
        };
        let interrupted = AtomicBool::new(false);
        let observer = CopyObserver { observer: &mut observer, ..idle_observer(&interrupted) };
        let to = RemoteDestination::File {
            path: "".into(),
            allowed: OverwritePolicy::default(),
            single: false,
            preserve: Default::default(),
        };
        let from = vec![RemoteSource::File { path: "tree".into() }];
        let outcome =
            third_party_copy(&targets[0], from, &targets[1], to, &CopySetup::options(Protection::Tls), observer);
        let outcome = outcome.unwrap_or_else(|error| panic!("{lost_end} {restarts}: {error}"));
        assert!(!once && outcome.reconnects > 0, "{lost_end} {restarts}: {outcome:?}");
        assert_complete(ends[1].root.path(), &files, &outcome);
    });
}

#[test]
fn retry_time_limits_a_long_outage() {
    let copies = CopySetup::new();
    create_tree(copies.near.path());
    let path = FaultPath::new(copies.served.ticket.port, Fault::Nothing, 0, 0);
    path.state.outage_at.store(1 << 20, Ordering::SeqCst);
    path.state.slow.store(true, Ordering::SeqCst);
    let patience = Duration::from_secs(2);
    let state = path.state.clone();
    let mut lost = |connection: &ConnectionEvent<'_>| {
        if let ConnectionEvent::Lost { .. } = connection {
            state.down.store(true, Ordering::SeqCst);
        }
    };
    let interrupted = AtomicBool::new(false);
    let observer = CopyObserver { connection: &mut lost, ..idle_observer(&interrupted) };
    let to = RemoteDestination::File {
        path: ByteString::from(&b""[..]),
        allowed: OverwritePolicy::default(),
        single: false,
        preserve: Default::default(),
    };
    let from = [LocalSource::File(copies.near.path().join("tree"))];
    let options = CopyOptions { retry_for: patience, ..CopySetup::options(Protection::Tls) };
    let started = Instant::now();
    let error = upload(&path.target(&copies.served.ticket), &from, to, &options, observer).unwrap_err();
    assert!(matches!(error, TransferError::Lost { after, .. } if after >= patience), "{error}");
    assert!(error.is_resumable() && started.elapsed() < Duration::from_secs(30));
    // The same command resumes when the path is up again.
    path.state.down.store(false, Ordering::SeqCst);
    let outcome = copies.upload(&path, &options).unwrap();
    assert_eq!((outcome.tally.failed, outcome.tally.entries()), (0, 304), "{:?}", outcome.tally);
}

/// Each session is admitted and lost before any progress.
#[test]
fn sessions_without_progress_count_as_outage() {
    let copies = CopySetup::new();
    for number in 0..300 {
        fs::create_dir_all(copies.near.path().join("tree").join(format!("{number:0200}"))).unwrap();
    }
    let path = FaultPath::new(copies.served.ticket.port, Fault::Reset, 8_000, usize::MAX);
    let patience = Duration::from_secs(3);
    let options = CopyOptions { retry_for: patience, ..CopySetup::options(Protection::Tls) };
    let started = Instant::now();
    let error = copies.upload(&path, &options).unwrap_err();
    assert!(matches!(error, TransferError::Lost { after, .. } if after >= patience), "{error}");
    assert!(started.elapsed() < Duration::from_secs(60) && path.state.triggered.load(Ordering::SeqCst) > 2);
}

#[test]
fn repeated_stream_failures_end_the_copy() {
    let copies = CopySetup::new();
    create_tree(copies.near.path());
    // No block of 64 KiB arrives, but the list does.
    let path = FaultPath::new(copies.served.ticket.port, Fault::Reset, 60_000, usize::MAX);
    let options = CopyOptions { streams: 1, block: Bytes(1 << 20), ..CopySetup::options(Protection::Clear) };
    let started = Instant::now();
    let error = copies.upload(&path, &options).unwrap_err();
    assert!(matches!(error, TransferError::RepeatedStreamFailures { .. }), "{error}");
    assert!(error.to_string().contains("in succession") && started.elapsed() < Duration::from_secs(90), "{error}");
}

/// Data in the buffers of both kernels has not arrived, so it is not reported.
#[test]
fn upload_progress_counts_received_bytes() {
    let client = ResourceLimits { rate: Some(BitRate(16_000_000)), ..ServerLimits::default().client };
    let config = ServerConfig { limits: ServerLimits { client, ..ServerLimits::default() }, ..support::config() };
    let served = TestServer::start(config, service::new());
    let (mut samples, mut ahead) = (0, Bytes(0));
    let mut observer = |_: &ListedTotals, sample: &ProgressSample| {
        // The rate limit of 2 MB/s, plus the initial burst.
        let allowed = 2_000_000 * sample.at.as_millis() as u64 / 1000 + 1_000_000;
        samples += 1;
        ahead = ahead.max(Bytes(sample.bytes.0.saturating_sub(allowed)));
    };
    let interrupted = AtomicBool::new(false);
    let observer = CopyObserver { observer: &mut observer, ..idle_observer(&interrupted) };
    let from = [LocalSource::Zero(Bytes(6_000_000))];
    let outcome =
        upload(&served.target(), &from, RemoteDestination::Null, &CopySetup::options(Protection::Clear), observer)
            .unwrap();
    assert_eq!(outcome.sample.bytes, Bytes(6_000_000));
    assert!(samples > 5 && ahead == Bytes(0), "{samples}, {ahead}");
}
