//! A token lent for one upload: what it is good for, what it is not, and when it is over.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use lfn_core::session::{SessionId, Ticket, Token};
use lfn_core::transfer::entry::Modified;
use lfn_core::transfer::filter::{Decision, Rules};
use lfn_core::transfer::keep::Keep;
use lfn_core::transfer::manner::Manner;
use lfn_core::transfer::verdict::Allowed;
use lfn_core::units::{BitRate, Bytes};
use lfn_core::wire::copy::{CopyId, CopyRequest, From, FromReceiver, Job, Pick, To};
use lfn_core::wire::path::PathRequest;
use lfn_core::wire::third::{FromBorrower, FromLender, LendRequest};
use lfn_core::wire::{RefusalCode, Request};
use lfn_net::server::admission::{Ask, Entry, Quotas, Share};
use lfn_net::server::{Config, Connections};
use lfn_net::service;
use lfn_net::session::dial::{self, Target};
use lfn_net::session::{Control, SessionError};
use lfn_net::transfer::{LocalSource, Options, TransferError, Watch, across, upload};
use serde_json::Value;
use support::Served;

const PATIENCE: Duration = Duration::from_secs(60);

fn served(root: &Path, rights: &str) -> Served {
    let (root, rights) = (Some(root.to_owned()), rights.parse().unwrap());
    Served::start(Config { root, rights, ..support::config() }, service::serve)
}

fn to(path: &str) -> To {
    To::File { path: path.into(), allowed: Allowed::default(), single: true, keep: Keep::default() }
}

fn request(to: To) -> CopyRequest {
    let began = Modified::new(1_790_000_000, 0).unwrap();
    CopyRequest {
        job: Job::Put { to },
        streams: 1,
        block: Bytes(1024),
        congestion: None,
        pace: None,
        stream_secret: None,
        copy: Some(Box::new(CopyId { id: SessionId([7; 16]), began, since: None })),
        manner: Box::default(),
    }
}

/// For whatever the sender has.
fn any(to: To) -> LendRequest {
    LendRequest { to, manner: Box::default(), from: Vec::new(), pick: Pick::default(), since: None }
}

/// The session that lends, and where the token leads.
fn lend(served: &Served, to: To) -> Result<(Control, Target), SessionError> {
    lend_for(served, any(to)).map(|(control, target, _)| (control, target))
}

/// The same, and since when.
fn lend_for(served: &Served, request: LendRequest) -> Result<(Control, Target, Modified), SessionError> {
    let lend = Request::Lend(Box::new(request));
    let mut control = dial::control(&served.target(), dial::new_session_id()?, lend)?;
    let FromLender::Lent { token, port, fingerprint, since } = control.recv(PATIENCE, "before the token")?;
    assert_eq!((port, fingerprint), (served.ticket.port, served.ticket.fingerprint));
    assert!(!token.matches(&served.ticket.token));
    let target = Target::new(Ticket { host: "127.0.0.1".into(), port, token, fingerprint })?;
    Ok((control, target, since))
}

/// What the server says to this at first, or the code with which it refuses.
fn asked(target: &Target, request: Request) -> Result<Value, RefusalCode> {
    let mut control = dial::control(target, dial::new_session_id().unwrap(), request).unwrap();
    match control.recv::<Value>(PATIENCE, "before an answer") {
        Ok(answer) => Ok(answer),
        Err(SessionError::Refused(refusal)) => Err(refusal.code),
        Err(error) => panic!("{error}"),
    }
}

fn put(target: &Target, request: CopyRequest) -> Result<Value, RefusalCode> {
    asked(target, Request::Copy(request))
}

fn send(target: &Target, from: &Path, to: To, options: &Options) -> Result<u64, TransferError> {
    let watch = Watch {
        observer: &mut |_, _| {},
        change: &mut |_| {},
        connection: &mut |_| {},
        interrupted: &AtomicBool::new(false),
    };
    upload(target, &[LocalSource::File(from.to_owned())], to, options, watch).map(|outcome| outcome.bytes.0)
}

#[test]
fn a_whole_copy_comes_with_a_lent_token() {
    let place = tempfile::tempdir().unwrap();
    fs::create_dir(place.path().join("root")).unwrap();
    let source = place.path().join("source");
    let bytes: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).collect();
    fs::write(&source, &bytes).unwrap();
    let served = served(&place.path().join("root"), "read,write");
    let (_control, target) = lend(&served, to("there")).unwrap();
    assert_eq!(send(&target, &source, to("there"), &Options::default()).unwrap(), 12_000_000);
    assert!(fs::read(place.path().join("root/there")).unwrap() == bytes);
}

#[test]
fn a_lent_token_is_good_for_one_copy_to_one_place() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("secret"), "secret").unwrap();
    let served = served(place.path(), "test,read,write");
    let (_control, target) = lend(&served, to("there")).unwrap();
    let refused = Err(RefusalCode::Forbidden);
    assert_eq!(put(&target, request(to("elsewhere"))), refused);
    assert_eq!(put(&target, request(To::Null)), refused);
    let allowed = Allowed { force: true, ..Allowed::default() };
    let over = To::File { path: "there".into(), allowed, single: true, keep: Keep::default() };
    assert_eq!(put(&target, request(over)), refused);
    let manner = Box::new(Manner { dry_run: true, ..Manner::default() });
    assert_eq!(put(&target, CopyRequest { manner, ..request(to("there")) }), refused);
    assert_eq!(put(&target, CopyRequest { copy: None, ..request(to("there")) }), refused);
    let get = Job::Get { from: vec![From::File { path: "secret".into() }], pick: Pick::default() };
    assert_eq!(put(&target, CopyRequest { job: get, ..request(to("there")) }), refused);
    assert_eq!(asked(&target, Request::Path(PathRequest::default())), refused);
    let again = Request::Lend(Box::new(any(to("there"))));
    assert_eq!(asked(&target, again), refused);
    // None of that has used it up; the first copy that is the right one does.
    assert!(put(&target, request(to("there"))).is_ok());
    assert!(put(&target, request(to("there"))).is_ok(), "another session of the same copy");
    let mut other = request(to("there"));
    other.copy.as_mut().unwrap().id = SessionId([8; 16]);
    assert_eq!(put(&target, other), refused);
}

#[test]
fn a_sender_brings_what_it_was_asked_for_and_nothing_else() {
    let place = tempfile::tempdir().unwrap();
    let (root, source) = (place.path().join("root"), place.path().join("source"));
    fs::create_dir_all(root.join("d")).unwrap();
    fs::create_dir(&source).unwrap();
    for name in ["field.nc", ".profile", "x.o"] {
        fs::write(source.join(name), "new").unwrap();
    }
    fs::write(root.join("d/.profile"), "mine").unwrap();
    let served = served(&root, "read,write");
    let allowed = Allowed { force: true, ..Allowed::default() };
    let to = To::File { path: "d".into(), allowed, single: false, keep: Keep::default() };
    let mut rules = Rules::default();
    rules.push(Decision::Exclude, b"*.o").unwrap();
    let pick = Pick { rules, ..Pick::default() };
    let lent = || {
        let from = vec![From::File { path: "runs/*.[nco]*".into() }];
        let request = LendRequest { from, pick: pick.clone(), ..any(to.clone()) };
        lend_for(&served, request).unwrap()
    };
    for name in [".profile", "x.o"] {
        let (_control, target, _) = lent();
        let error = send(&target, &source.join(name), to.clone(), &Options::default()).unwrap_err();
        assert!(error.to_string().contains(&format!("lists {name}, which was not asked for")), "{error}");
    }
    let (_control, target, _) = lent();
    send(&target, &source.join("field.nc"), to, &Options::default()).unwrap();
    let mut there: Vec<_> = fs::read_dir(root.join("d")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    there.sort();
    assert_eq!(there, [".profile", "field.nc"]);
    assert_eq!(fs::read(root.join("d/.profile")).unwrap(), b"mine");
}

/// What is newer is taken for this copy's own, and goes without --force.
#[test]
fn a_sender_does_not_choose_since_when_a_copy_is_under_way() {
    let place = tempfile::tempdir().unwrap();
    let served = served(place.path(), "read,write");
    let said = |target: &Target, since: Option<Modified>| {
        let mut request = request(to("there"));
        request.copy.as_mut().unwrap().since = since;
        serde_json::from_value::<Modified>(put(target, request).unwrap()["since"].clone()).unwrap()
    };
    let long_ago = Modified::new(1_000_000_000, 0).unwrap();
    let (_control, target, since) = lend_for(&served, any(to("there"))).unwrap();
    assert_eq!(said(&target, Some(long_ago)), since);
    let later = Modified::new(since.seconds() + 1, 0).unwrap();
    assert_eq!(said(&target, Some(later)), later);
    assert!(said(&target, None) >= since);
    // Whoever borrows again says when the first token was lent.
    let again = LendRequest { since: Some(long_ago), ..any(to("there")) };
    let (_control, target, since) = lend_for(&served, again).unwrap();
    assert_eq!((since, said(&target, Some(long_ago))), (long_ago, long_ago));
}

#[test]
fn who_may_not_write_lends_nothing() {
    let place = tempfile::tempdir().unwrap();
    let served = served(place.path(), "read,test");
    let Err(SessionError::Refused(refusal)) = lend(&served, to("there")) else { panic!("lent") };
    assert_eq!(refusal.code, RefusalCode::Forbidden);
    let stranger = Target::new(Ticket { token: Token::from_bytes([3; 16]), ..served.ticket.clone() }).unwrap();
    let wish = Request::Lend(Box::new(any(To::Null)));
    assert_eq!(asked(&stranger, wish), Err(RefusalCode::WrongToken));
}

#[test]
fn a_copy_ends_with_the_session_that_lent_its_token() {
    let place = tempfile::tempdir().unwrap();
    fs::create_dir(place.path().join("root")).unwrap();
    let source = place.path().join("source");
    fs::File::create(&source).unwrap().set_len(1 << 30).unwrap();
    let served = served(&place.path().join("root"), "write,read");
    let (control, target) = lend(&served, to("there")).unwrap();
    // An hour, if nobody ends it.
    let options = Options { pace: Some(BitRate(2_000_000)), patience: PATIENCE, ..Options::default() };
    let sending = thread::spawn({
        let target = target.clone();
        move || send(&target, &source, to("there"), &options)
    });
    let opened =
        || served.log.lock().unwrap().iter().any(|line| line.starts_with("Opened") && line.contains("\"copy\""));
    let until = Instant::now() + PATIENCE;
    while !opened() {
        assert!(Instant::now() < until, "no copy began");
        thread::sleep(Duration::from_millis(10));
    }
    drop(control);
    let ended = sending.join().unwrap().unwrap_err();
    assert!(ended.to_string().contains("whoever asked for this copy"), "{ended}");
    assert_eq!(put(&target, request(to("there"))), Err(RefusalCode::WrongToken));
}

#[test]
fn who_says_nothing_is_lent_nothing_any_more() {
    let place = tempfile::tempdir().unwrap();
    let mut config = Config { root: Some(place.path().to_owned()), ..support::config() };
    config.connections.silence = Duration::from_millis(10);
    let served = Served::start(config, service::serve);
    let (mut control, _) = lend(&served, To::Null).unwrap();
    control.send(&FromBorrower::Alive).unwrap();
    let ended = control.recv::<FromReceiver>(PATIENCE, "before the end").unwrap_err();
    assert!(matches!(&ended, SessionError::Refused(refusal) if refusal.code == RefusalCode::Timeout), "{ended}");
}

/// Otherwise the copy would wait for the session that lends for it, and that for the copy.
#[test]
fn what_lends_takes_no_quota_from_the_copy() {
    let root = tempfile::tempdir().unwrap();
    let all = Share { sessions: 1, rate: Some(BitRate(8_000_000)), ..Quotas::default().all };
    let quotas = Quotas { all, client: all, clients: 1, ..Quotas::default() };
    let config = Config { root: Some(root.path().to_owned()), quotas, ..support::config() };
    let served = Served::start(config, service::serve);
    let (_control, target) = lend(&served, to("a")).unwrap();
    assert!(put(&target, request(to("a"))).is_ok());
}

/// Each of the three says all the time that it is there, and hears it of the others.
#[test]
fn a_copy_between_two_others_may_last_longer_than_any_silence() {
    let connections = || Connections { silence: Duration::from_secs(1), ..Connections::default() };
    let sender = Config { third_party: true, connections: connections(), ..support::config() };
    let sender = Served::start(sender, service::serve);
    let client = Share { rate: Some(BitRate(16_000_000)), ..Quotas::default().client };
    let quotas = Quotas { client, ..Quotas::default() };
    let receiver = Config { quotas, connections: connections(), ..support::config() };
    let receiver = Served::start(receiver, service::serve);
    let bytes = Bytes(10_000_000);
    let (from, to) = ((&sender.target(), vec![From::Zero { bytes }]), (&receiver.target(), To::Null));
    let outcome = across(from, to, &Options::default(), support::watch()).unwrap();
    assert_eq!((outcome.bytes, outcome.tally.failed), (bytes, 0));
    assert!(outcome.elapsed > Duration::from_secs(4), "{:?}", outcome.elapsed);
}

/// Otherwise the receiver would take its token back before the copy begins.
#[test]
fn what_is_lent_stays_so_while_the_sender_has_the_copy_wait_for_its_turn() {
    let all = Share { sessions: 1, ..Quotas::default().all };
    let quotas = Quotas { all, ..Quotas::default() };
    let sender = Config { third_party: true, quotas, ..support::config() };
    let sender = Served::start(sender, service::serve);
    let connections = Connections { silence: Duration::from_secs(1), ..Connections::default() };
    let receiver = Served::start(Config { connections, ..support::config() }, service::serve);
    let taken = sender.admission.enter([127, 0, 0, 2].into(), Ask { streams: 1, ..Ask::default() });
    assert!(matches!(taken, Entry::Granted(_)));
    let bytes = Bytes(1000);
    let outcome = thread::scope(|scope| {
        scope.spawn(move || {
            thread::sleep(Duration::from_secs(4));
            drop(taken);
        });
        let (from, to) = ((&sender.target(), vec![From::Zero { bytes }]), (&receiver.target(), To::Null));
        across(from, to, &Options::default(), support::watch())
    });
    assert_eq!(outcome.unwrap().bytes, bytes);
}
