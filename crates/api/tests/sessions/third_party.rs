//! Temporary tokens for one upload: permitted uses, refused uses, and expiry.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use std::{fs, thread};

use lfn_api::service;
use lfn_base::units::{BitRate, Bytes};
use lfn_copy::{CopyObserver, CopyOptions, LocalSource, TransferError, third_party_copy, upload};
use lfn_session::dial::{self, Target};
use lfn_session::limits::admission::AdmissionOutcome;
use lfn_session::limits::connection_table::ConnectionLimits;
use lfn_session::limits::{ResourceLimits, ResourceRequest, ServerLimits};
use lfn_session::server::ServerConfig;
use lfn_session::wire::copy::entry::Modified;
use lfn_session::wire::copy::filter::{Decision, FilterRules};
use lfn_session::wire::copy::options::TransferOptions;
use lfn_session::wire::copy::overwrite::OverwritePolicy;
use lfn_session::wire::copy::preserve::Preserve;
use lfn_session::wire::copy::{
    CopyId, CopyJob, CopyRequest, ReceiverMessage, RemoteDestination, RemoteSource, Selection,
};
use lfn_session::wire::disk::DiskRequest;
use lfn_session::wire::facts::FactsRequest;
use lfn_session::wire::path::PathRequest;
use lfn_session::wire::third_party::{OrchestratorMessage, TokenReply, TokenRequest};
use lfn_session::wire::{RefusalCode, Request};
use lfn_session::{Control, SessionError, SessionId, Ticket, Token};
use serde_json::Value;
use support::TestServer;

use crate::support;

const TIMEOUT: Duration = Duration::from_secs(60);

fn served(root: &Path, rights: &str) -> TestServer {
    let (root, rights) = (Some(root.to_owned()), rights.parse().unwrap());
    TestServer::start(ServerConfig { root, rights, ..support::config() }, service::new())
}

fn to(path: &str) -> RemoteDestination {
    RemoteDestination::File {
        path: path.into(),
        allowed: OverwritePolicy::default(),
        single: true,
        preserve: Preserve::default(),
    }
}

fn request(to: RemoteDestination) -> CopyRequest {
    let began = Modified::new(1_790_000_000, 0).unwrap();
    CopyRequest {
        job: CopyJob::Put { to },
        streams: 1,
        block: Bytes(1024),
        congestion: None,
        pace: None,
        stream_secret: None,
        stripes: 0,
        copy: Some(Box::new(CopyId { id: SessionId([7; 16]), began, since: None })),
        rank: None,
        transfer_options: Box::default(),
    }
}

/// Returns a request for a token that permits any source.
fn token_request(to: RemoteDestination) -> TokenRequest {
    TokenRequest {
        to,
        transfer_options: Box::default(),
        from: Vec::new(),
        selection: Selection::default(),
        since: None,
    }
}

/// Returns the session that issued the token, and the target for its use.
fn issue_token(served: &TestServer, to: RemoteDestination) -> Result<(Control, Target), SessionError> {
    issue_token_for(served, token_request(to)).map(|(control, target, _)| (control, target))
}

/// Same as above, with the start time of the copy.
fn issue_token_for(served: &TestServer, request: TokenRequest) -> Result<(Control, Target, Modified), SessionError> {
    let request = Request::IssueToken(Box::new(request));
    let mut control = dial::open_control(&served.target(), dial::new_session_id()?, request)?;
    let TokenReply::Issued { token, port, fingerprint, since } = control.recv(TIMEOUT, "before the token")?;
    assert_eq!((port, fingerprint), (served.ticket.port, served.ticket.fingerprint));
    assert!(!token.matches(&served.ticket.token));
    let target = Target::new(Ticket { host: "127.0.0.1".into(), port, token, fingerprint })?;
    Ok((control, target, since))
}

/// Returns the server's first answer, or the code of its refusal.
fn first_answer(target: &Target, request: Request) -> Result<Value, RefusalCode> {
    let mut control = dial::open_control(target, dial::new_session_id().unwrap(), request).unwrap();
    match control.recv::<Value>(TIMEOUT, "before an answer") {
        Ok(answer) => Ok(answer),
        Err(SessionError::Refused(refusal)) => Err(refusal.code),
        Err(error) => panic!("{error}"),
    }
}

fn put(target: &Target, request: CopyRequest) -> Result<Value, RefusalCode> {
    first_answer(target, Request::Copy(request))
}

fn upload_file(
    target: &Target,
    from: &Path,
    to: RemoteDestination,
    options: &CopyOptions,
) -> Result<u64, TransferError> {
    let observer = CopyObserver {
        observer: &mut |_, _| {},
        change: &mut |_| {},
        connection: &mut |_| {},
        interrupted: &AtomicBool::new(false),
    };
    upload(target, &[LocalSource::File(from.to_owned())], to, options, observer).map(|outcome| outcome.bytes.0)
}

#[test]
fn temporary_token_allows_a_complete_copy() {
    let temp = tempfile::tempdir().unwrap();
    fs::create_dir(temp.path().join("root")).unwrap();
    let source = temp.path().join("source");
    let bytes: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).collect();
    fs::write(&source, &bytes).unwrap();
    let served = served(&temp.path().join("root"), "read,write");
    let (_control, target) = issue_token(&served, to("there")).unwrap();
    assert_eq!(upload_file(&target, &source, to("there"), &CopyOptions::default()).unwrap(), 12_000_000);
    assert!(fs::read(temp.path().join("root/there")).unwrap() == bytes);
}

#[test]
fn temporary_token_is_bound_to_one_copy() {
    let temp = tempfile::tempdir().unwrap();
    fs::write(temp.path().join("secret"), "secret").unwrap();
    let served = served(temp.path(), "test,read,write");
    let (_control, target) = issue_token(&served, to("there")).unwrap();
    let refused = Err(RefusalCode::Forbidden);
    assert_eq!(put(&target, request(to("elsewhere"))), refused);
    assert_eq!(put(&target, request(RemoteDestination::Null)), refused);
    let allowed = OverwritePolicy { force: true, ..OverwritePolicy::default() };
    let over = RemoteDestination::File { path: "there".into(), allowed, single: true, preserve: Preserve::default() };
    assert_eq!(put(&target, request(over)), refused);
    let transfer_options = Box::new(TransferOptions { dry_run: true, ..TransferOptions::default() });
    assert_eq!(put(&target, CopyRequest { transfer_options, ..request(to("there")) }), refused);
    assert_eq!(put(&target, CopyRequest { copy: None, ..request(to("there")) }), refused);
    let get =
        CopyJob::Get { from: vec![RemoteSource::File { path: "secret".into() }], selection: Selection::default() };
    assert_eq!(put(&target, CopyRequest { job: get, ..request(to("there")) }), refused);
    assert_eq!(first_answer(&target, Request::Path(PathRequest::default())), refused);
    assert_eq!(first_answer(&target, Request::Facts(FactsRequest::default())), refused);
    assert_eq!(first_answer(&target, Request::Disk(DiskRequest::default())), refused);
    let again = Request::IssueToken(Box::new(token_request(to("there"))));
    assert_eq!(first_answer(&target, again), refused);
    // These attempts do not use up the token. The first valid copy does.
    assert!(put(&target, request(to("there"))).is_ok());
    assert!(put(&target, request(to("there"))).is_ok(), "another session of the same copy");
    let mut other = request(to("there"));
    other.copy.as_mut().unwrap().id = SessionId([8; 16]);
    assert_eq!(put(&target, other), refused);
}

#[test]
fn sender_may_send_only_requested_files() {
    let temp = tempfile::tempdir().unwrap();
    let (root, source) = (temp.path().join("root"), temp.path().join("source"));
    fs::create_dir_all(root.join("d")).unwrap();
    fs::create_dir(&source).unwrap();
    for name in ["field.nc", ".profile", "x.o"] {
        fs::write(source.join(name), "new").unwrap();
    }
    fs::write(root.join("d/.profile"), "mine").unwrap();
    let served = served(&root, "read,write");
    let allowed = OverwritePolicy { force: true, ..OverwritePolicy::default() };
    let to = RemoteDestination::File { path: "d".into(), allowed, single: false, preserve: Preserve::default() };
    let mut rules = FilterRules::default();
    rules.push(Decision::Exclude, b"*.o").unwrap();
    let selection = Selection { rules, ..Selection::default() };
    let issue = || {
        let from = vec![RemoteSource::File { path: "runs/*.[nco]*".into() }];
        let request = TokenRequest { from, selection: selection.clone(), ..token_request(to.clone()) };
        issue_token_for(&served, request).unwrap()
    };
    for name in [".profile", "x.o"] {
        let (_control, target, _) = issue();
        let error = upload_file(&target, &source.join(name), to.clone(), &CopyOptions::default()).unwrap_err();
        assert!(error.to_string().contains(&format!("lists {name}, which was not requested")), "{error}");
    }
    let (_control, target, _) = issue();
    upload_file(&target, &source.join("field.nc"), to, &CopyOptions::default()).unwrap();
    let mut names: Vec<_> = fs::read_dir(root.join("d")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, [".profile", "field.nc"]);
    assert_eq!(fs::read(root.join("d/.profile")).unwrap(), b"mine");
}

/// Entries that are newer than the start time count as written by this copy, and are deleted without --force.
#[test]
fn sender_cannot_choose_an_earlier_start_time() {
    let temp = tempfile::tempdir().unwrap();
    let served = served(temp.path(), "read,write");
    let start_of = |target: &Target, since: Option<Modified>| {
        let mut request = request(to("there"));
        request.copy.as_mut().unwrap().since = since;
        serde_json::from_value::<Modified>(put(target, request).unwrap()["started_at"].clone()).unwrap()
    };
    let long_ago = Modified::new(1_000_000_000, 0).unwrap();
    let (_control, target, since) = issue_token_for(&served, token_request(to("there"))).unwrap();
    assert_eq!(start_of(&target, Some(long_ago)), since);
    let later = Modified::new(since.seconds() + 1, 0).unwrap();
    assert_eq!(start_of(&target, Some(later)), later);
    assert!(start_of(&target, None) >= since);
    // A client that asks for another token gives the time of the first one.
    let again = TokenRequest { since: Some(long_ago), ..token_request(to("there")) };
    let (_control, target, since) = issue_token_for(&served, again).unwrap();
    assert_eq!((since, start_of(&target, Some(long_ago))), (long_ago, long_ago));
}

#[test]
fn temporary_token_needs_the_write_right() {
    let temp = tempfile::tempdir().unwrap();
    let served = served(temp.path(), "read,test");
    let Err(SessionError::Refused(refusal)) = issue_token(&served, to("there")) else { panic!("issued") };
    assert_eq!(refusal.code, RefusalCode::Forbidden);
    let stranger = Target::new(Ticket { token: Token::from_bytes([3; 16]), ..served.ticket.clone() }).unwrap();
    let request = Request::IssueToken(Box::new(token_request(RemoteDestination::Null)));
    assert_eq!(first_answer(&stranger, request), Err(RefusalCode::WrongToken));
}

#[test]
fn copy_ends_with_the_session_of_its_token() {
    let temp = tempfile::tempdir().unwrap();
    fs::create_dir(temp.path().join("root")).unwrap();
    let source = temp.path().join("source");
    fs::File::create(&source).unwrap().set_len(1 << 30).unwrap();
    let served = served(&temp.path().join("root"), "write,read");
    let (control, target) = issue_token(&served, to("there")).unwrap();
    // The copy takes an hour unless it is stopped.
    let options = CopyOptions { pace: Some(BitRate(2_000_000)), retry_for: TIMEOUT, ..CopyOptions::default() };
    let sending = thread::spawn({
        let target = target.clone();
        move || upload_file(&target, &source, to("there"), &options)
    });
    let opened = || served.log.lock().iter().any(|line| line.starts_with("Opened") && line.contains("\"copy\""));
    let until = Instant::now() + TIMEOUT;
    while !opened() {
        assert!(Instant::now() < until, "no copy began");
        thread::sleep(Duration::from_millis(10));
    }
    drop(control);
    let error = sending.join().unwrap().unwrap_err();
    assert!(error.to_string().contains("the client that started this copy"), "{error}");
    assert_eq!(put(&target, request(to("there"))), Err(RefusalCode::WrongToken));
}

#[test]
fn silent_client_loses_its_temporary_token() {
    let temp = tempfile::tempdir().unwrap();
    let mut config = ServerConfig { root: Some(temp.path().to_owned()), ..support::config() };
    config.connection_limits.silence_timeout = Duration::from_millis(10);
    let served = TestServer::start(config, service::new());
    let (mut control, _) = issue_token(&served, RemoteDestination::Null).unwrap();
    control.send(&OrchestratorMessage::Alive).unwrap();
    let error = control.recv::<ReceiverMessage>(TIMEOUT, "before the end").unwrap_err();
    assert!(matches!(&error, SessionError::Refused(refusal) if refusal.code == RefusalCode::Timeout), "{error}");
}

/// Otherwise the copy would wait for the session of its token, and that session for the copy.
#[test]
fn token_session_uses_no_quota() {
    let root = tempfile::tempdir().unwrap();
    let total = ResourceLimits { sessions: 1, rate: Some(BitRate(8_000_000)), ..ServerLimits::default().total };
    let limits = ServerLimits { total, client: total, clients: 1, ..ServerLimits::default() };
    let config = ServerConfig { root: Some(root.path().to_owned()), limits, ..support::config() };
    let served = TestServer::start(config, service::new());
    let (_control, target) = issue_token(&served, to("a")).unwrap();
    assert!(put(&target, request(to("a"))).is_ok());
}

/// All three send keep-alive messages to each other.
#[test]
fn third_party_copy_outlasts_the_silence_timeout() {
    let connections = || ConnectionLimits { silence_timeout: Duration::from_secs(1), ..ConnectionLimits::default() };
    let sender = ServerConfig { allow_third_party: true, connection_limits: connections(), ..support::config() };
    let sender = TestServer::start(sender, service::new());
    let client = ResourceLimits { rate: Some(BitRate(16_000_000)), ..ServerLimits::default().client };
    let limits = ServerLimits { client, ..ServerLimits::default() };
    let receiver = ServerConfig { limits, connection_limits: connections(), ..support::config() };
    let receiver = TestServer::start(receiver, service::new());
    let bytes = Bytes(10_000_000);
    let (source, destination) = (sender.target(), receiver.target());
    let from = vec![RemoteSource::Zero { bytes }];
    let outcome = third_party_copy(
        &source,
        from,
        &destination,
        RemoteDestination::Null,
        &CopyOptions::default(),
        support::observer(),
    )
    .unwrap();
    assert_eq!((outcome.bytes, outcome.tally.failed), (bytes, 0));
    assert!(outcome.elapsed > Duration::from_secs(4), "{:?}", outcome.elapsed);
}

/// Otherwise the receiver would revoke the token before the copy starts.
#[test]
fn token_stays_valid_while_the_copy_is_queued() {
    let total = ResourceLimits { sessions: 1, ..ServerLimits::default().total };
    let limits = ServerLimits { total, ..ServerLimits::default() };
    let sender = ServerConfig { allow_third_party: true, limits, ..support::config() };
    let sender = TestServer::start(sender, service::new());
    let connections = ConnectionLimits { silence_timeout: Duration::from_secs(1), ..ConnectionLimits::default() };
    let receiver =
        TestServer::start(ServerConfig { connection_limits: connections, ..support::config() }, service::new());
    let slot =
        sender.admission.request([127, 0, 0, 2].into(), ResourceRequest { streams: 1, ..ResourceRequest::default() });
    assert!(matches!(slot, AdmissionOutcome::Granted(_)));
    let bytes = Bytes(1000);
    let outcome = thread::scope(|scope| {
        scope.spawn(move || {
            thread::sleep(Duration::from_secs(4));
            drop(slot);
        });
        let (source, destination) = (sender.target(), receiver.target());
        let from = vec![RemoteSource::Zero { bytes }];
        let options = CopyOptions::default();
        third_party_copy(&source, from, &destination, RemoteDestination::Null, &options, support::observer())
    });
    assert_eq!(outcome.unwrap().bytes, bytes);
}
