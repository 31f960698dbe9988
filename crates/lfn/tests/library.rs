//! A program with threads that uses the library: each thread calls one verb.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::fs;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use lfn_api::ErrorKind;
use lfn_api::copy::{CopyEvent, CopyRequest};
use lfn_api::documents::ServeDocument;
use lfn_api::emulate::{EmulateOptions, EmulateRequest, EmulateRequestError, EmulatedLinks};
use lfn_api::plan::{PlanRequest, RoundTrip};
use lfn_api::resolve::ServerResolver;
use lfn_api::serve::{Iperf3Options, ServeOptions, StampOptions};
use lfn_api::test::TestOptions;
use lfn_core::limits::{ResourceLimits, ServerLimits};
use lfn_core::units::{BitRate, Bytes};
use lfn_core::wire::measure::{TestDirection, TestLoad, TestRequest};
use serde_json::Value;
use support::schema::check_document;
use support::{Needs, eventually, lfn_path};

fn main() -> ExitCode {
    support::run(&[
        ("verbs_run_on_threads_at_the_same_time", Needs::Namespaces, verbs_run_on_threads_at_the_same_time),
        ("errors_are_values_and_the_program_continues", Needs::Nothing, errors_are_values_and_the_program_continues),
    ])
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
    let home = tempfile::tempdir().unwrap();
    let started = home.path().join("started");
    let script = format!("touch {}; exec sleep 1000", started.display());
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
    assert_eq!(assert_document(&result.unwrap())["near"]["killed"], 15);
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
        iperf3: Some(Iperf3Options { port: 0, users: None, json_output: false }),
        stamp: Some(StampOptions { port: 0, key: None, is_stateful: true }),
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
        let events = Arc::new(AtomicUsize::new(0));
        let seen = events.clone();
        let count = move |_: &CopyEvent<'_>| {
            seen.fetch_add(1, Ordering::Relaxed);
        };
        let result = lfn_api::copy(&request, &resolver, &Arc::default(), count).unwrap();
        assert_eq!((result.outcome.bytes, result.outcome.tally.files), (Bytes(3_000_000), 1));
        assert_document(&result.document());
        assert!(result.prepared.choice.streams > 0 && events.load(Ordering::Relaxed) > 0);
    }
    assert_eq!(fs::read(&source).unwrap(), fs::read(&back).unwrap());
}

/// Tests the path to the server in both directions.
fn test(ticket: &str) {
    let request = TestRequest { load: TestLoad::TimeSeconds(Duration::from_millis(300)), ..TestRequest::default() };
    let directions = vec![TestDirection::Forward, TestDirection::Reverse];
    let options = TestOptions { request, directions, ..TestOptions::new(ticket) };
    let mut events = 0;
    let measured = lfn_api::test(&options, &ServerResolver::default(), &Arc::default(), &mut |_| events += 1).unwrap();
    let document = assert_document(&measured);
    assert_eq!(document["runs"].as_array().unwrap().len(), 2, "{document}");
    assert!(events > 0);
}

fn show() {
    let results = ["312-tcp.client.json", "321-reverse.client.json"];
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/iperf3/results");
    let shown = lfn_api::show(&results.map(|name| directory.join(name))).unwrap();
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
        for verb in [plan, show, emulate, stopped_emulation] {
            scope.spawn(verb);
        }
        scope.spawn(|| copy(&ticket, home.path()));
        scope.spawn(|| test(&ticket));
    });
    let ServeDocument { listen, iperf3, metrics, stamp, .. } = server.document().clone();
    let ports = [Some(listen), iperf3, metrics].map(Option::unwrap);
    assert!(ports.iter().all(|port| TcpStream::connect(port).is_ok()));
    server.stop().unwrap();
    assert!(ports.iter().all(|port| TcpStream::connect(port).is_err()));
    assert!(UdpSocket::bind(stamp.unwrap()).is_ok(), "the reflector has closed its socket");
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
    let stamp = Some(StampOptions { port: 0, key: Some("/nonexistent".into()), is_stateful: true });
    let keyless = ServeOptions { port: 0, stamp, ..ServeOptions::new(limits()) };
    assert_eq!(lfn_api::serve(&keyless, |_| {}).unwrap_err().kind(), ErrorKind::Usage);
    let none = TestOptions { directions: Vec::new(), ..TestOptions::new("far.example") };
    assert!(lfn_api::test(&none, &ServerResolver::default(), &Arc::default(), &mut |_| {}).is_err());
    let missing = CopyRequest { places: vec!["/nonexistent/a".into(), "lfn://x".into()], ..CopyRequest::default() };
    let error = lfn_api::copy(&missing, &ServerResolver::default(), &Arc::default(), |_| {}).unwrap_err();
    assert!(error.hint().is_some(), "{error}");
    plan();
}
