//! Copies over a path that breaks: streams that are reset, damaged and frozen, sessions that are cut, a server that starts
//! anew. Every one of them ends whole, by the same call.
//!
//! The path is a proxy on loopback that strikes by counts of bytes, so that nothing depends on the clock but the waits
//! of the copy itself.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use lfn_core::session::{Ticket, Token};
use lfn_core::transfer::content::fill_random;
use lfn_core::transfer::digest::Digest;
use lfn_core::transfer::limit::{Extent, Look};
use lfn_core::transfer::raw::Raw;
use lfn_core::transfer::verdict::Allowed;
use lfn_core::units::{BitRate, Bytes};
use lfn_core::wire::copy::{From, To, Told};
use lfn_net::server::Config;
use lfn_net::server::admission::{Quotas, Share};
use lfn_net::service;
use lfn_net::session::Protection;
use lfn_net::session::dial::Target;
use lfn_net::session::identity::{Identity, new_token};
use lfn_net::transfer::{
    Connection, LocalDestination, LocalSource, Options, Outcome, Teller, TransferError, Watch, across, download, upload,
};
use socket2::SockRef;
use support::Served;
use tempfile::TempDir;

/// What the path does to a connection that has carried so many bytes one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Nothing,
    /// Both its ends are reset.
    Reset,
    /// A bit is turned over.
    Flip,
    /// From here on nothing passes, and nobody is told.
    Freeze,
}

/// A path to a server.
struct Way {
    port: u16,
    state: Arc<State>,
}

struct State {
    server: Mutex<SocketAddr>,
    fault: Fault,
    /// When it strikes, and how often still.
    at: u64,
    left: AtomicUsize,
    struck: AtomicUsize,
    /// All connections are reset when the path has carried so much, once.
    outage_at: AtomicU64,
    carried: AtomicU64,
    /// Everything takes its time, so that no stream is through before the control connection is there.
    slow: AtomicBool,
    /// Nothing is let in.
    down: AtomicBool,
    over: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
}

impl Way {
    fn new(server: u16, fault: Fault, at: u64, times: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State {
            server: Mutex::new(([127, 0, 0, 1], server).into()),
            fault,
            at,
            left: AtomicUsize::new(times),
            struck: AtomicUsize::new(0),
            outage_at: AtomicU64::new(u64::MAX),
            carried: AtomicU64::new(0),
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
                    Ok(far) if !shared.down.load(Ordering::SeqCst) => State::carry(&shared, near, far),
                    _ => reset(&near),
                }
            }
        });
        Way { port, state }
    }

    fn target(&self, ticket: &Ticket) -> Target {
        Target::new(Ticket { port: self.port, ..ticket.clone() }).unwrap()
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        self.state.over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        self.state.cut_all();
    }
}

impl State {
    fn carry(state: &Arc<State>, near: TcpStream, far: TcpStream) {
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
            let due = passed < self.at && self.at <= passed + read as u64;
            passed += read as u64;
            if due && self.strikes() {
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
            if self.carried.fetch_add(read as u64, Ordering::SeqCst) >= self.outage_at.load(Ordering::SeqCst) {
                self.outage_at.store(u64::MAX, Ordering::SeqCst);
                self.cut_all();
            }
            if self.slow.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(2));
            }
            to.write_all(&buffer[..read])?;
        }
    }

    fn strikes(&self) -> bool {
        let strikes = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        self.struck.fetch_add(usize::from(strikes), Ordering::SeqCst);
        strikes
    }

    fn cut_all(&self) {
        self.open.lock().unwrap().drain(..).for_each(|socket| reset(&socket));
    }
}

fn reset(socket: &TcpStream) {
    let _ = SockRef::from(socket).set_linger(Some(Duration::ZERO));
    let _ = socket.shutdown(Shutdown::Both);
}

/// A served root, a tree to copy, and a place for it.
struct Copies {
    near: TempDir,
    far: TempDir,
    served: Served,
}

impl Copies {
    fn new() -> Self {
        Copies::serving("read,write")
    }

    fn serving(rights: &str) -> Self {
        let (near, far) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let rights = rights.parse().unwrap();
        let config = Config { root: Some(far.path().to_owned()), rights, ..support::config() };
        Copies { served: Served::start(config, service::serve), near, far }
    }

    fn options(protection: Protection) -> Options {
        Options {
            streams: 3,
            block: Bytes(64 << 10),
            protection,
            patience: Duration::from_secs(60),
            ..Options::default()
        }
    }

    fn up(&self, path: &Way, options: &Options) -> Result<Outcome, TransferError> {
        let to =
            To::File { path: Raw::from(&b""[..]), allowed: Allowed::default(), single: false, keep: options.pick.keep };
        let from = [LocalSource::File(self.near.path().join("tree"))];
        upload(&path.target(&self.served.ticket), &from, to, options, watch(&AtomicBool::new(false)))
    }

    fn down(&self, path: &Way, options: &Options) -> Result<Outcome, TransferError> {
        let to = LocalDestination::File { path: self.near.path().to_owned(), allowed: Allowed::default() };
        let from = vec![From::File { path: "tree".into() }];
        download(&path.target(&self.served.ticket), from, &to, options, watch(&AtomicBool::new(false)))
    }
}

fn watch(interrupted: &AtomicBool) -> Watch<'_> {
    Watch {
        observer: Box::leak(Box::new(|_: &_, _: &_| {})),
        change: Box::leak(Box::new(|_: &_| {})),
        connection: Box::leak(Box::new(|_: &_| {})),
        interrupted,
    }
}

/// Two large files and many small ones, in two directories.
fn plant(root: &Path) -> BTreeMap<String, Vec<u8>> {
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
fn is_whole(root: &Path, files: &BTreeMap<String, Vec<u8>>, outcome: &Outcome) {
    for (name, bytes) in files {
        assert!(fs::read(root.join("tree").join(name)).unwrap() == *bytes, "{name}");
    }
    let all = fs::read_dir(root.join("tree")).unwrap().chain(fs::read_dir(root.join("tree/in")).unwrap()).count();
    assert_eq!(all, files.len() + 1, "something half-done is left");
    let tally = outcome.tally;
    assert_eq!((tally.files, tally.failed, tally.kept), (files.len() as u64, 0, Bytes(0)), "{tally:?}");
    assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);
}

/// Both ways, in the clear and inside TLS; tells what came of each.
fn each_way(fault: Fault, at: u64, times: usize, outage_at: u64, check: impl Fn(&Way, &Outcome)) {
    for protection in [Protection::Tls, Protection::Clear] {
        for up in [true, false] {
            let copies = Copies::new();
            let (from, to) = if up { (&copies.near, &copies.far) } else { (&copies.far, &copies.near) };
            let files = plant(from.path());
            let path = Way::new(copies.served.ticket.port, fault, at, times);
            path.state.outage_at.store(outage_at, Ordering::SeqCst);
            path.state.slow.store(outage_at < u64::MAX, Ordering::SeqCst);
            let mut options = Copies::options(protection);
            options.manner.digests = true;
            let digests: Arc<Mutex<Vec<(String, Digest)>>> = Arc::default();
            let (heard, void) = (digests.clone(), digests.clone());
            let take = move |told: &Told| {
                heard.lock().unwrap().extend(told.digest.map(|digest| (told.name.to_string(), digest)));
            };
            options.teller = Teller::new(take, move || void.lock().unwrap().clear());
            let outcome = if up { copies.up(&path, &options) } else { copies.down(&path, &options) };
            let outcome = outcome.unwrap_or_else(|error| panic!("{protection:?}, up {up}: {error}"));
            is_whole(to.path(), &files, &outcome);
            // Each file's digest once, however many sessions it took.
            let mut digests = digests.lock().unwrap().clone();
            digests.sort_by(|(a, _), (b, _)| a.cmp(b));
            let digest = |bytes: &[u8]| Digest(*blake3::hash(bytes).as_bytes());
            let wanted: Vec<_> = files.iter().map(|(name, bytes)| (format!("tree/{name}"), digest(bytes))).collect();
            assert!(digests == wanted, "{protection:?}, up {up}: {} digests of {}", digests.len(), wanted.len());
            check(&path, &outcome);
        }
    }
}

#[test]
fn streams_that_are_reset_are_replaced() {
    each_way(Fault::Reset, 500_000, 5, u64::MAX, |path, outcome| {
        assert_eq!(path.state.struck.load(Ordering::SeqCst), 5);
        // A new stream may come before the server has noticed that the old one is gone, and be sent away.
        assert!(outcome.reconnects == 0 && (3..20).contains(&outcome.replaced), "{}", outcome.replaced);
    });
}

#[test]
fn what_a_path_damages_comes_again() {
    each_way(Fault::Flip, 500_000, 5, u64::MAX, |path, outcome| {
        let struck = path.state.struck.load(Ordering::SeqCst) as u64;
        assert!(struck >= 2 && outcome.reconnects == 0, "{struck}");
        // In the clear it may have been a payload: then its block alone comes again.
        assert!(u64::from(outcome.replaced) + outcome.tally.again >= struck, "{struck}, {:?}", outcome.tally);
    });
}

/// Takes some ten seconds: so long nothing may be taken off a stream.
#[test]
fn a_stream_that_freezes_is_replaced() {
    let copies = Copies::new();
    let files = plant(copies.near.path());
    let path = Way::new(copies.served.ticket.port, Fault::Freeze, 500_000, 1);
    let outcome = copies.up(&path, &Copies::options(Protection::Tls)).unwrap();
    is_whole(copies.far.path(), &files, &outcome);
    assert_eq!((outcome.reconnects, outcome.replaced), (0, 1));
}

/// Takes a minute, as long as nothing may come though the far end is there.
#[test]
fn streams_that_freeze_one_after_the_other_are_a_stall_and_said_to_be_one() {
    let stall = |up: bool| {
        let copies = Copies::new();
        let from = if up { &copies.near } else { &copies.far };
        fs::create_dir(from.path().join("tree")).unwrap();
        fs::write(from.path().join("tree/big"), vec![7; 6 << 20]).unwrap();
        // Less than a block, and more than is said beside it.
        let path = Way::new(copies.served.ticket.port, Fault::Freeze, 60_000, usize::MAX);
        let (options, begun) = (Copies::options(Protection::Clear), Instant::now());
        let error = if up { copies.up(&path, &options) } else { copies.down(&path, &options) }.unwrap_err();
        assert!(begun.elapsed() < Duration::from_secs(100), "up {up}: {:?}", begun.elapsed());
        assert!(matches!(error, TransferError::Stalled { .. }) && error.is_resumable(), "up {up}: {error}");
        assert!(error.to_string().contains("the network does not carry what is sent"), "up {up}: {error}");
    };
    thread::scope(|scope| {
        for up in [true, false] {
            scope.spawn(move || stall(up));
        }
    });
}

#[test]
fn a_session_that_is_cut_is_followed_by_another() {
    // Early, and when many files have their names.
    for outage_at in [3 << 20, 7_000_000] {
        each_way(Fault::Nothing, 0, 0, outage_at, |_, outcome| {
            assert_eq!(outcome.reconnects, 1);
            assert_eq!((outcome.tally.skipped, outcome.tally.directories), (0, 2), "{:?}", outcome.tally);
            assert!(outcome.without > Duration::ZERO);
        });
    }
}

/// Who may not look goes on all the same: with what the copy wrote itself, in the one directory it has in a drop box.
#[test]
fn a_guests_session_that_is_cut_is_followed_by_another() {
    for rights in ["write", "drop"] {
        for protection in [Protection::Tls, Protection::Clear] {
            let copies = Copies::serving(rights);
            let files = plant(copies.near.path());
            std::os::unix::fs::symlink("big", copies.near.path().join("tree/link")).unwrap();
            let path = Way::new(copies.served.ticket.port, Fault::Nothing, 0, 0);
            path.state.outage_at.store(3 << 20, Ordering::SeqCst);
            path.state.slow.store(true, Ordering::SeqCst);
            let mut options = Copies::options(protection);
            options.pick.keep.links = true;
            let outcome = copies.up(&path, &options).unwrap_or_else(|error| panic!("{rights} {protection:?}: {error}"));
            let tally = outcome.tally;
            assert_eq!((outcome.reconnects, tally.failed), (1, 0), "{rights}: {tally:?}, {:?}", outcome.failures);
            assert_eq!((tally.files, tally.links), (files.len() as u64, 1), "{rights}: {tally:?}");
            let tops: Vec<_> = fs::read_dir(copies.far.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
            assert_eq!(tops.len(), 1, "{rights}: {tops:?}");
            let root = if rights == "drop" { &tops[0] } else { copies.far.path() };
            for (name, bytes) in &files {
                assert!(fs::read(root.join("tree").join(name)).unwrap() == *bytes, "{rights}: {name}");
            }
            let all = fs::read_dir(root.join("tree")).unwrap().chain(fs::read_dir(root.join("tree/in")).unwrap());
            assert_eq!(all.count(), files.len() + 2, "something half-done is left");
        }
    }
}

/// The other end of a path, which may start anew: as itself, at another port.
struct Restartable {
    path: Way,
    keys: TempDir,
    token: Token,
    root: TempDir,
    served: Option<Served>,
}

impl Restartable {
    fn new() -> Self {
        let (keys, root) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let path = Way::new(0, Fault::Nothing, 0, 0);
        let mut end = Restartable { path, keys, token: new_token().unwrap(), root, served: None };
        end.start();
        end
    }

    fn start(&mut self) {
        drop(self.served.take());
        let (identity, token) = (Identity::load_or_create(self.keys.path()).unwrap(), Some(self.token));
        let root = Some(self.root.path().to_owned());
        // So that something is left to be moved when it is struck.
        let client = Share { rate: Some(BitRate(40_000_000)), ..Quotas::default().client };
        let quotas = Quotas { client, ..Quotas::default() };
        let config = Config { identity, token, root, third_party: true, quotas, ..support::config() };
        let served = Served::start(config, service::serve);
        *self.path.state.server.lock().unwrap() = ([127, 0, 0, 1], served.ticket.port).into();
        self.served = Some(served);
    }

    fn target(&self) -> Target {
        self.path.target(&self.served.as_ref().unwrap().ticket)
    }
}

/// The client asks both ends again, whichever was lost to it, and they go on with what there is.
#[test]
fn a_copy_between_two_others_goes_on_when_either_is_lost() {
    for (struck, restarts) in [(0, false), (0, true), (1, false), (1, true)] {
        let mut ends = [Restartable::new(), Restartable::new()];
        let files = plant(ends[0].root.path());
        let targets = [ends[0].target(), ends[1].target()];
        let mut once = true;
        let mut observer = |_: &Extent, look: &Look| {
            if look.bytes > Bytes(1 << 20) && std::mem::take(&mut once) {
                if restarts { ends[struck].start() } else { ends[struck].path.state.cut_all() }
            }
        };
        let interrupted = AtomicBool::new(false);
        let watch = Watch { observer: &mut observer, ..watch(&interrupted) };
        let to = To::File { path: "".into(), allowed: Allowed::default(), single: false, keep: Default::default() };
        let from = vec![From::File { path: "tree".into() }];
        let outcome = across((&targets[0], from), (&targets[1], to), &Copies::options(Protection::Tls), watch);
        let outcome = outcome.unwrap_or_else(|error| panic!("{struck} {restarts}: {error}"));
        assert!(!once && outcome.reconnects > 0, "{struck} {restarts}: {outcome:?}");
        is_whole(ends[1].root.path(), &files, &outcome);
    }
}

#[test]
fn a_path_that_stays_down_ends_the_copy_when_patience_is_over() {
    let copies = Copies::new();
    plant(copies.near.path());
    let path = Way::new(copies.served.ticket.port, Fault::Nothing, 0, 0);
    path.state.outage_at.store(1 << 20, Ordering::SeqCst);
    path.state.slow.store(true, Ordering::SeqCst);
    let patience = Duration::from_secs(2);
    let state = path.state.clone();
    let mut lost = |connection: &Connection<'_>| {
        if let Connection::Lost { .. } = connection {
            state.down.store(true, Ordering::SeqCst);
        }
    };
    let interrupted = AtomicBool::new(false);
    let watch = Watch { connection: &mut lost, ..watch(&interrupted) };
    let to =
        To::File { path: Raw::from(&b""[..]), allowed: Allowed::default(), single: false, keep: Default::default() };
    let from = [LocalSource::File(copies.near.path().join("tree"))];
    let options = Options { patience, ..Copies::options(Protection::Tls) };
    let started = Instant::now();
    let error = upload(&path.target(&copies.served.ticket), &from, to, &options, watch).unwrap_err();
    assert!(matches!(error, TransferError::Lost { after, .. } if after >= patience), "{error}");
    assert!(error.is_resumable() && started.elapsed() < Duration::from_secs(30));
    // The same command goes on when it is up again.
    path.state.down.store(false, Ordering::SeqCst);
    let outcome = copies.up(&path, &options).unwrap();
    assert_eq!((outcome.tally.failed, outcome.tally.entries()), (0, 304), "{:?}", outcome.tally);
}

/// Each session is let in and cut before anything comes of it.
#[test]
fn sessions_that_get_nowhere_use_up_the_patience() {
    let copies = Copies::new();
    for number in 0..300 {
        fs::create_dir_all(copies.near.path().join("tree").join(format!("{number:0200}"))).unwrap();
    }
    let path = Way::new(copies.served.ticket.port, Fault::Reset, 8_000, usize::MAX);
    let patience = Duration::from_secs(3);
    let options = Options { patience, ..Copies::options(Protection::Tls) };
    let started = Instant::now();
    let error = copies.up(&path, &options).unwrap_err();
    assert!(matches!(error, TransferError::Lost { after, .. } if after >= patience), "{error}");
    assert!(started.elapsed() < Duration::from_secs(60) && path.state.struck.load(Ordering::SeqCst) > 2);
}

#[test]
fn streams_that_always_break_end_the_copy_with_the_reason() {
    let copies = Copies::new();
    plant(copies.near.path());
    // No block of 64 KiB gets through; the list does.
    let path = Way::new(copies.served.ticket.port, Fault::Reset, 60_000, usize::MAX);
    let options = Options { streams: 1, block: Bytes(1 << 20), ..Copies::options(Protection::Clear) };
    let started = Instant::now();
    let error = copies.up(&path, &options).unwrap_err();
    assert!(matches!(error, TransferError::Fruitless { .. }), "{error}");
    assert!(error.to_string().contains("in a row") && started.elapsed() < Duration::from_secs(90), "{error}");
}

/// What the kernels at both ends hold has not come, and is not told.
#[test]
fn how_far_an_upload_is_is_what_arrived() {
    let client = Share { rate: Some(BitRate(16_000_000)), ..Quotas::default().client };
    let config = Config { quotas: Quotas { client, ..Quotas::default() }, ..support::config() };
    let served = Served::start(config, service::serve);
    let (mut looks, mut ahead) = (0, Bytes(0));
    let mut observer = |_: &Extent, look: &Look| {
        // Of 2 MB/s, and what may pass at once.
        let granted = 2_000_000 * look.at.as_millis() as u64 / 1000 + 1_000_000;
        looks += 1;
        ahead = ahead.max(Bytes(look.bytes.0.saturating_sub(granted)));
    };
    let interrupted = AtomicBool::new(false);
    let watch = Watch { observer: &mut observer, ..watch(&interrupted) };
    let from = [LocalSource::Zero(Bytes(6_000_000))];
    let outcome = upload(&served.target(), &from, To::Null, &Copies::options(Protection::Clear), watch).unwrap();
    assert_eq!(outcome.look.bytes, Bytes(6_000_000));
    assert!(looks > 5 && ahead == Bytes(0), "{looks}, {ahead}");
}
