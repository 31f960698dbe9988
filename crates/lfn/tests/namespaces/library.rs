//! A program with threads that uses the library: each thread calls one verb.

use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fs, thread};

use lfn_api::ErrorKind;
use lfn_api::copy::{CopyEvent, CopyRequest};
use lfn_api::documents::ServeDocument;
use lfn_api::emulate::{EmulateOptions, EmulateRequest, EmulateRequestError, EmulatedLinks};
use lfn_api::plan::{PlanRequest, RoundTrip};
use lfn_api::resolve::ServerResolver;
use lfn_api::serve::{Iperf3ServerOptions, ServeOptions, StampReflectorOptions};
use lfn_api::stamp::StampOptions;
use lfn_api::test::{Iperf3Limit, Iperf3Options, PathDiscovery, TcpOption, TestEvent, TestOptions, TestOptionsError};
use lfn_base::units::{BitRate, Bytes};
use lfn_measure::tester::TestProgress;
use lfn_results::evidence::EndReason;
use lfn_results::measure::{Mode, Modes, SocketRequest, TestDirection, TestLoad, TestRequest, UdpRequest};
use lfn_session::dial::BindAddress;
use lfn_session::limits::{ResourceLimits, ServerLimits};
use serde_json::Value;

use crate::support;
use crate::support::harness::{Needs, Test, Weight, tests_of};
use crate::support::schema::check_document;
use crate::support::{eventually, lfn_path};

/// Name of this module in the names of its tests and roles.
const MODULE: &str = "library";

pub fn tests() -> Vec<Test> {
    tests_of(
        MODULE,
        Weight::Waiting,
        &[
            ("verbs_run_on_threads_at_the_same_time", Needs::Namespaces, verbs_run_on_threads_at_the_same_time),
            (
                "errors_are_values_and_the_program_continues",
                Needs::Nothing,
                errors_are_values_and_the_program_continues,
            ),
            ("helper_replies_that_a_request_is_not_valid", Needs::Nothing, helper_replies_that_a_request_is_not_valid),
            ("contradictory_test_options_are_refused", Needs::Nothing, contradictory_test_options_are_refused),
            ("failed_test_returns_its_figures", Needs::Nothing, failed_test_returns_its_figures),
            ("stopped_test_returns_its_result", Needs::Nothing, stopped_test_returns_its_result),
            ("stamp_measures_a_reflector", Needs::Nothing, stamp_measures_a_reflector),
        ],
    )
}

#[track_caller]
fn assert_document(document: &impl serde::Serialize) -> Value {
    let value = serde_json::to_value(document).unwrap();
    check_document(&value).unwrap();
    value
}

fn plan() {
    let rate = Some(BitRate(135_000_000));
    let request = PlanRequest { rate, ..PlanRequest::new(RoundTrip::Time(Duration::from_millis(539))) };
    let plan = lfn_api::plan(&request).unwrap();
    assert_eq!(assert_document(&plan.document())["bdp_bytes"], 9_095_625);
}

fn emulate() {
    let links = EmulatedLinks::from_spec("rate=50mbit,rtt=20ms").unwrap();
    let request = EmulateRequest { calibrate: false, ..EmulateRequest::new(links, ["ping", "-c", "2", "far"]) };
    let options = EmulateOptions { program: lfn_path(), ..EmulateOptions::default() };
    let mut events = Vec::new();
    let result =
        lfn_api::emulate(&request, &options, &AtomicBool::new(false), &mut |event| events.push(event.clone())).unwrap();
    let document = assert_document(&result);
    assert_eq!(document["near"]["exited"], 0, "{document}");
    assert!(result.outcome.accuracy_report.paths[0].near_to_far.forwarded >= 2);
    assert!(!events.is_empty());
}

fn stopped_emulation() {
    assert_eq!(stop_emulation(":", "exec sleep 1000"), 15);
}

/// The command ignores SIGTERM, so the emulator kills the command 5 s later.
fn stubborn_emulation() {
    assert_eq!(stop_emulation("trap '' TERM", "while :; do sleep 1; done"), 9);
}

/// Stops an emulation between two parts of its command. Returns the signal that ended the command.
fn stop_emulation(before: &str, after: &str) -> Value {
    let home = tempfile::tempdir().unwrap();
    let started = home.path().join("started");
    let script = format!("{before}; touch {}; {after}", started.display());
    let links = EmulatedLinks::from_spec("rate=50mbit,rtt=20ms").unwrap();
    let request = EmulateRequest { calibrate: false, ..EmulateRequest::new(links, ["sh", "-c", &script]) };
    let options = EmulateOptions { program: lfn_path(), ..EmulateOptions::default() };
    let stop = AtomicBool::new(false);
    let result = thread::scope(|scope| {
        scope.spawn(|| {
            assert!(eventually(|| started.exists()));
            stop.store(true, Ordering::Relaxed);
        });
        lfn_api::emulate(&request, &options, &stop, &mut |_| {})
    });
    assert_document(&result.unwrap())["near"]["killed"].clone()
}

/// Limits for the sessions of this test.
fn limits() -> ServerLimits {
    let resources = ResourceLimits { sessions: 16, streams: 256, rate: None, bytes: None, time: None, queue: 16 };
    ServerLimits {
        total: resources,
        client: resources,
        clients: 16,
        session_streams: 64,
        test_time: Duration::from_secs(60),
        quota_window: Duration::from_secs(3600),
    }
}

fn local_server(root: &Path) -> lfn_api::serve::RunningServer {
    let bind = Some("127.0.0.1".parse().unwrap());
    let options = ServeOptions {
        bind,
        port: 0,
        root: Some(root.to_owned()),
        iperf3: Some(Iperf3ServerOptions { port: 0, users: None, json_output: false }),
        stamp: Some(StampReflectorOptions { port: 0, key: None, is_stateful: true }),
        metrics: Some("127.0.0.1:0".parse().unwrap()),
        ..ServeOptions::new(limits())
    };
    lfn_api::serve(&options, |_| {}).unwrap()
}

/// Copies a file to the server and back, over a ticket.
fn copy(ticket: &str, home: &Path) {
    let (source, back) = (home.join("field.nc"), home.join("back.nc"));
    fs::write(&source, vec![7; 3_000_000]).unwrap();
    let remote = ticket.replace('#', "/field.nc#");
    let resolver = ServerResolver::default();
    for places in [[source.clone().into_os_string(), remote.clone().into()], [remote.into(), back.clone().into()]] {
        let request = CopyRequest { places: places.to_vec(), ..CopyRequest::default() };
        let mut updates = 0;
        let mut count = |event: &CopyEvent<'_>| updates += usize::from(matches!(event, CopyEvent::Progress { .. }));
        let result = lfn_api::copy(&request, &resolver, &Arc::default(), &mut count).unwrap();
        assert_eq!((result.outcome.bytes, result.outcome.tally.files), (Bytes(3_000_000), 1));
        assert_document(&result.document());
        assert!(result.prepared.choice.streams > 0 && updates > 0);
    }
    assert_eq!(fs::read(&source).unwrap(), fs::read(&back).unwrap());
}

/// Options of a test of this duration.
fn timed(server: &str, milliseconds: u64) -> TestOptions {
    let load = TestLoad::TimeSeconds(Duration::from_millis(milliseconds));
    let request = TestRequest { load, interval: Duration::from_millis(100), ..TestRequest::default() };
    TestOptions { request, ..TestOptions::new(server) }
}

const BOTH: [TestDirection; 2] = [TestDirection::Forward, TestDirection::Reverse];

/// Tests the path to the server in both directions, in series and at the same time.
fn test(ticket: &str) {
    for bidirectional in [false, true] {
        let options = TestOptions { directions: BOTH.to_vec(), bidirectional, ..timed(ticket, 300) };
        let mut events = Vec::new();
        let mut on_event = |event: &TestEvent<'_>| events.push(event_name(event));
        let measured = lfn_api::test(&options, &ServerResolver::default(), &Arc::default(), &mut on_event).unwrap();
        let document = assert_document(&measured);
        let runs: Vec<_> = measured.runs.iter().map(|run| (run.direction, run.evidence.bidirectional)).collect();
        assert_eq!(runs, BOTH.map(|direction| (direction, bidirectional)), "{document}");
        assert!(!document["origin"].to_string().contains(ticket), "a ticket is a secret");
        assert_eq!(events[..3], ["started", "server found", "begin"]);
        assert_eq!(events.iter().filter(|event| **event == "end").count(), 2);
    }
}

fn event_name(event: &TestEvent<'_>) -> &'static str {
    match event {
        TestEvent::Started(_) => "started",
        TestEvent::ServerFound(_) => "server found",
        TestEvent::Begin { .. } => "begin",
        TestEvent::Progress { .. } => "progress",
        TestEvent::End { .. } => "end",
    }
}

/// Compares the settings of this host with those of the plan.
fn compare(ticket: &str) {
    let options = TestOptions { rate: Some(BitRate(1_000_000_000)), ..timed(ticket, 300) };
    let compared = lfn_api::test::compare(&options, &ServerResolver::default(), &Arc::default(), &mut |_| {}).unwrap();
    assert_document(&compared);
    let [pair] = &compared.comparisons[..] else { panic!("{compared:?}") };
    assert!(!pair.now.evidence.is_tuned() && pair.tuned.as_ref().unwrap().evidence.is_tuned());
}

fn show() {
    let results = ["312-tcp.client.json", "321-reverse.client.json"];
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/iperf3/results");
    let shown = lfn_api::show(&results.map(|name| directory.join(name))).unwrap();
    let lfn_api::show::Shown::Tests(shown) = shown else { panic!("{shown:?}") };
    assert_eq!(assert_document(&shown.comparison)["results"].as_array().unwrap().len(), 2);
}

fn verbs_run_on_threads_at_the_same_time() {
    let home = tempfile::tempdir().unwrap();
    let root = home.path().join("served");
    fs::create_dir(&root).unwrap();
    let server = local_server(&root);
    let ticket = server.document().ticket.clone();
    assert_document(server.document());
    thread::scope(|scope| {
        for verb in [plan, show, emulate, stopped_emulation, stubborn_emulation] {
            scope.spawn(verb);
        }
        scope.spawn(|| copy(&ticket, home.path()));
        scope.spawn(|| test(&ticket));
        scope.spawn(|| compare(&ticket));
    });
    let ServeDocument { listen, iperf3, metrics, stamp, .. } = server.document().clone();
    let ports = [Some(listen), iperf3, metrics].map(Option::unwrap);
    assert!(ports.iter().all(|port| TcpStream::connect(port).is_ok()));
    server.stop().unwrap();
    assert!(ports.iter().all(|port| TcpStream::connect(port).is_err()));
    assert!(UdpSocket::bind(stamp.unwrap()).is_ok(), "the reflector has closed its socket");
}

/// The helper replies to the pipe of its caller, here a file.
fn helper_replies_that_a_request_is_not_valid() {
    let replies = tempfile::NamedTempFile::new().unwrap();
    let output = support::lfn().arg(lfn_api::emulate::HELPER_COMMAND).arg(replies.path()).output().unwrap();
    assert!(!output.status.success());
    let reply = fs::read_to_string(replies.path()).unwrap();
    assert!(reply.starts_with("{\"Failed\":\"the request is not valid"), "{reply}");
}

fn errors_are_values_and_the_program_continues() {
    let no_capacity = PlanRequest::new(RoundTrip::Time(Duration::from_millis(1)));
    assert!(lfn_api::plan(&no_capacity).unwrap_err().to_string().contains("capacity"));
    assert!(lfn_api::show(&["/nonexistent".into()]).unwrap_err().hint().is_some());
    let links = EmulatedLinks::from_spec("rate=50mbit,rtt=20ms").unwrap();
    let request = EmulateRequest { log: Some("/nonexistent/log.jsonl".into()), ..EmulateRequest::new(links, ["true"]) };
    let options = EmulateOptions { program: lfn_path(), ..EmulateOptions::default() };
    let error = lfn_api::emulate(&request, &options, &AtomicBool::new(false), &mut |_| {}).unwrap_err();
    assert!(matches!(error, EmulateRequestError::Log(_)), "{error}");
    let exposed = ServeOptions { port: 0, insecure: true, ..ServeOptions::new(limits()) };
    assert!(lfn_api::serve(&exposed, |_| {}).unwrap_err().to_string().contains("--insecure"));
    let missing = ServeOptions { root: Some("/nonexistent".into()), ..ServeOptions::new(limits()) };
    assert!(lfn_api::serve(&missing, |_| {}).unwrap_err().hint().is_some());
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let metrics = Some(taken.local_addr().unwrap());
    let occupied = ServeOptions { port: 0, metrics, ..ServeOptions::new(limits()) };
    assert!(lfn_api::serve(&occupied, |_| {}).unwrap_err().to_string().contains("metrics"));
    let stamp = Some(StampReflectorOptions { port: 0, key: Some("/nonexistent".into()), is_stateful: true });
    let keyless = ServeOptions { port: 0, stamp, ..ServeOptions::new(limits()) };
    assert_eq!(lfn_api::serve(&keyless, |_| {}).unwrap_err().kind(), ErrorKind::Usage);
    let none = TestOptions { directions: Vec::new(), ..TestOptions::new("far.example") };
    assert!(lfn_api::test(&none, &ServerResolver::default(), &Arc::default(), &mut |_| {}).is_err());
    let missing = CopyRequest { places: vec!["/nonexistent/a".into(), "lfn://x".into()], ..CopyRequest::default() };
    let error = lfn_api::copy(&missing, &ServerResolver::default(), &Arc::default(), &mut |_| {}).unwrap_err();
    assert!(error.hint().is_some(), "{error}");
    plan();
}

/// Returns the error of options that are refused before anything is dialled.
#[track_caller]
fn refused(options: &TestOptions) -> TestOptionsError {
    let mut events = 0;
    let failure =
        lfn_api::test(options, &ServerResolver::default(), &Arc::default(), &mut |_| events += 1).unwrap_err();
    assert!(failure.document.is_none() && failure.kind() == ErrorKind::Usage && events == 0, "{failure}");
    match failure.error {
        lfn_api::test::TestVerbError::Options(error) => error,
        error => panic!("{error}"),
    }
}

fn contradictory_test_options_are_refused() {
    let of = || timed("far.example", 300);
    let one_direction = TestOptions { bidirectional: true, ..of() };
    assert!(matches!(refused(&one_direction), TestOptionsError::NotBothDirections));
    let tuned = TestOptions { tuned: true, ..of() };
    assert!(matches!(refused(&tuned), TestOptionsError::UnknownCapacity));
    let long_omit = TestOptions { omit: Some(Duration::from_secs(1)), ..of() };
    assert!(matches!(refused(&long_omit), TestOptionsError::OmitTooLong(_)));
    let window = SocketRequest { window: Some(Bytes(65_536)), ..SocketRequest::default() };
    let multipath = TestOptions { near_socket: SocketRequest { mptcp: true, ..window.clone() }, ..of() };
    assert!(matches!(refused(&multipath), TestOptionsError::Multipath(TcpOption::Window)));
    let udp = TestRequest { udp: Some(Box::new(UdpRequest::default())), ..of().request };
    let datagrams = TestOptions { request: udp.clone(), near_socket: window, ..of() };
    assert!(matches!(refused(&datagrams), TestOptionsError::Datagrams(TcpOption::Window)));
    let planned = TestOptions { request: udp, tuned: true, rate: Some(BitRate(1_000_000)), ..of() };
    assert!(matches!(refused(&planned), TestOptionsError::PlanForDatagrams));
    let from_interface = TestOptions {
        path: Some(PathDiscovery::default()),
        bind_addresses: vec![BindAddress { address: None, interface: Some("lo".to_owned()) }],
        ..of()
    };
    assert!(matches!(refused(&from_interface), TestOptionsError::PathFromInterface));
    let iperf3 = TestOptions { iperf3: Some(Iperf3Options::default()), ..of() };
    assert!(matches!(refused(&iperf3), TestOptionsError::Iperf3(Iperf3Limit::FractionalTime)));
    let compared = TestOptions { directions: BOTH.to_vec(), bidirectional: true, ..of() };
    let failure =
        lfn_api::test::compare(&compared, &ServerResolver::default(), &Arc::default(), &mut |_| {}).unwrap_err();
    assert!(failure.document.is_none() && failure.kind() == ErrorKind::Usage, "{failure}");
    let no_copy = TestRequest { check: true, modes: Modes { near: Mode::NoCopy, far: Mode::NoCopy }, ..of().request };
    assert!(matches!(refused(&TestOptions { request: no_copy, ..of() }), TestOptionsError::Request(_)));
}

/// Reports whether the event is an interval of a running test.
fn is_interval(event: &TestEvent<'_>) -> bool {
    matches!(event, TestEvent::Progress { progress: TestProgress::Near(_) | TestProgress::Far(_), .. })
}

/// The server is killed in the middle of a test, in one direction and in both.
fn failed_test_returns_its_figures() {
    for (directions, bidirectional) in [(vec![TestDirection::Reverse], false), (BOTH.to_vec(), true)] {
        let mut server = support::server::Server::start(&[]);
        let options = TestOptions { directions, bidirectional, ..timed(&server.ticket, 60_000) };
        let stop = Arc::new(AtomicBool::new(false));
        let failure = lfn_api::test(&options, &ServerResolver::default(), &stop, &mut |event| {
            if is_interval(event) {
                let _ = server.child.kill();
            }
        })
        .unwrap_err();
        assert!(failure.kind() == ErrorKind::Failed && failure.hint().is_some(), "{failure}");
        assert!(!stop.load(Ordering::Relaxed), "the flag of the caller stays as it is");
        let measured = failure.document.unwrap();
        let document = assert_document(&measured);
        assert_eq!(measured.error.unwrap().message, lfn_api::error_text::error_chain(&failure.error));
        let unfinished = measured.unfinished.unwrap();
        assert!(measured.runs.is_empty() && unfinished.handshake_rtt.is_some(), "{document}");
    }
}

fn stopped_test_returns_its_result() {
    let server = support::server::Server::start(&[]);
    for bidirectional in [false, true] {
        let options = TestOptions { directions: BOTH.to_vec(), bidirectional, ..timed(&server.ticket, 60_000) };
        let stop = Arc::new(AtomicBool::new(false));
        let measured = lfn_api::test(&options, &ServerResolver::default(), &stop, &mut |event| {
            if is_interval(event) {
                stop.store(true, Ordering::Relaxed);
            }
        })
        .unwrap();
        assert_document(&measured);
        // The second direction of a series does not start.
        assert_eq!(measured.runs.len(), if bidirectional { 2 } else { 1 });
        assert_eq!(measured.runs[0].evidence.ended, EndReason::Interrupted);
    }
}

fn stamp_measures_a_reflector() {
    let server = support::server::Server::start(&["--stamp=0", "--json"]);
    let said: Value = serde_json::from_str(&server.ticket).unwrap();
    let address = said["stamp"].as_str().unwrap();
    let options = StampOptions { count: 5, interval: Duration::from_millis(1), ..StampOptions::new(address) };
    let measured = lfn_api::stamp(&options, &AtomicBool::new(false), &mut |_, _| {}).unwrap();
    assert_document(&measured);
    assert_eq!((measured.report.sent, measured.report.lost), (5, 0));
}
