//! Who finds no place: is told, waits for a turn and is served.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use lfn_core::iperf3::{End, Parameters};
use lfn_core::units::Bytes;
use lfn_core::wire::test::{Load, TestRequest};
use lfn_net::iperf3::client as iperf3;
use lfn_net::tester;
use serde_json::Value;

use crate::served::{Client, PATIENCE, Served};
use crate::support;
use crate::support::server::{assert_refused, text};

#[test]
fn who_finds_the_server_full_is_told_waits_and_is_served() {
    let server = Served::start(&["--max-sessions", "1", "--metrics", "127.0.0.1:0"]);
    let first = Client::begin(&server.ticket, &["--time", "3s"]);
    // Told at once, if it does not want to wait.
    let refused = server.test(&["--time", "200ms", "--no-wait"]);
    assert_refused(&refused, 1, "the server is full: 0 ahead in its queue, up to ");
    assert!(text(&refused.stderr).contains("hint: wait for a place with --wait "));
    let impatient = server.test(&["--time", "200ms", "--wait", "100ms"]);
    let stderr = text(&impatient.stderr);
    assert_eq!(impatient.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("lfn: the server is full, and was so for the 100 ms that were waited: 0 ahead"),
        "{stderr}"
    );
    // One that is killed while it waits leaves the queue.
    let mut gone = Client::spawn(&server.ticket, &["--time", "200ms"]);
    server.logged(&["queued", "asked_seconds=0.2"]);
    let waits = |many: f64| {
        (0..300).any(|_| {
            thread::sleep(Duration::from_millis(10));
            server.scrape()["lfn_sessions_queued"] == many
        })
    };
    assert!(waits(1.0), "one waits");
    gone.child.kill().unwrap();
    gone.child.wait().unwrap();
    assert!(waits(0.0), "it left");
    // Both ways, and a copy: served as if they had come later.
    for flags in [&["--count", "100", "--record", "10000"][..], &["--count", "100", "--record", "10000", "--reverse"]] {
        let output = server.test(&[flags, &["--json"]].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let json: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(json["runs"][0]["bytes"], 1_000_000);
    }
    assert!(first.end().status.success());
}

/// Of two directions neither has anything to show, and one says why.
#[test]
fn two_directions_that_find_no_place_have_no_figures() {
    let server = Served::start(&["--max-sessions", "1"]);
    let first = Client::begin(&server.ticket, &["--time", "2s"]);
    let output = server.test(&["--bidir", "--time", "200ms", "--no-wait", "--json"]);
    assert_refused(&output, 1, "the server is full: ");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["runs"], Value::Array(Vec::new()));
    assert!(document["error"]["message"].as_str().unwrap().starts_with("the server is full: "), "{document}");
    assert_eq!(document["unfinished"]["request"]["direction"], "forward", "the first of them: {document}");
    assert!(first.end().status.success());
}

#[test]
fn who_waits_for_its_own_clients_sessions_is_told_so() {
    let server = Served::start(&["--client-sessions", "1"]);
    let first = Client::begin(&server.ticket, &["--time", "2s"]);
    let own = "this client has all that the server allows one client at once";
    let refused = server.test(&["--time", "200ms", "--no-wait"]);
    assert_refused(&refused, 1, &format!("{own}: 0 ahead in its queue, up to "));
    let waited = server.test(&["--time", "200ms"]);
    assert!(waited.status.success());
    assert!(
        text(&waited.stderr).contains(&format!("lfn: {own}, waiting: 0 ahead, up to ")),
        "{}",
        text(&waited.stderr)
    );
    assert!(first.end().status.success());
}

/// Its client ends it, and may take its time.
#[test]
fn a_test_of_iperf3_counts_in_the_wait_with_all_it_may_take() {
    let server = Served::start(&["--max-sessions", "1", "--iperf3=0"]);
    let port = server.iperf3.unwrap().port();
    let parameters = Parameters { end: End::Time(Duration::from_secs(20)), ..Parameters::default() };
    let (stop, (begun, begins)) = (Arc::<AtomicBool>::default(), channel());
    let test = iperf3::Test {
        parameters,
        login: None,
        interval: Duration::from_secs(1),
        within: PATIENCE,
        queue: PATIENCE,
        from: Vec::new(),
        stop: stop.clone(),
    };
    let client = thread::spawn(move || {
        iperf3::run("127.0.0.1", port, &test, &mut |_| {
            let _ = begun.send(());
        })
    });
    begins.recv_timeout(PATIENCE).unwrap();
    let stderr = text(&server.test(&["--time", "200ms", "--no-wait"]).stderr);
    let told =
        stderr.split_once("the server is full: 0 ahead in its queue, up to ").unwrap_or_else(|| panic!("{stderr}"));
    let seconds: f64 = told.1.split(' ').next().unwrap().parse().unwrap();
    assert!((25.0..=51.0).contains(&seconds), "20 s, and 30 to end it: {stderr}");
    stop.store(true, Ordering::Relaxed);
    client.join().unwrap().unwrap();
}

#[test]
fn copies_wait_in_the_same_queue() {
    let server = Served::start(&["--max-sessions", "1"]);
    let first = Client::begin(&server.ticket, &["--time", "2s"]);
    let null = server.ticket.replace('#', "/null:#");
    let random = server.ticket.replace('#', "/random:3000000#");
    let copies = [["random:3000000", null.as_str()], [random.as_str(), "null:"]].map(|places| {
        let mut command = support::lfn();
        command.arg("copy").args(places).arg("--json").stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    });
    for _ in 0..2 {
        server.logged(&["queued", "verb=copy"]);
    }
    for copy in copies {
        let output = copy.wait_with_output().unwrap();
        let stderr = text(&output.stderr);
        assert!(output.status.success(), "{stderr}");
        assert!(stderr.contains("the server is full, waiting: "), "{stderr}");
        let json: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(json["bytes"], 3_000_000, "{json}");
    }
    assert!(first.end().status.success());
}

#[test]
fn two_hundred_clients_at_once_are_all_served() {
    let server = Served::start(&["--quiet"]);
    let (target, test) = (server.target(), counted(1));
    let served = thread::scope(|scope| {
        let clients: Vec<_> = (0..200).map(|_| scope.spawn(|| tester::run(&target, &test, &mut |_| {}))).collect();
        clients.into_iter().map(|client| client.join().unwrap().unwrap().far.bytes).sum::<u64>()
    });
    assert_eq!(served, 200 * test.request.record.0);
}

#[test]
fn two_hundred_clients_at_a_short_queue_are_served_or_told_when() {
    let server = Served::start(&["--quiet", "--max-sessions", "2", "--queue", "20"]);
    let (target, test) = (server.target(), counted(1));
    let results: Vec<_> = thread::scope(|scope| {
        let clients: Vec<_> = (0..200).map(|_| scope.spawn(|| tester::run(&target, &test, &mut |_| {}))).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    let served = results.iter().filter(|result| result.is_ok()).count();
    assert!(served >= 20, "{served}");
    for refused in results.iter().filter_map(|result| result.as_ref().err()) {
        assert!(refused.to_string().contains("the server is full, and 20 sessions"), "{refused}");
        assert!(refused.hint().is_some_and(|hint| hint.starts_with("try again ")), "{refused}");
    }
}

/// By hand 200 (`LFN_CLIENTS=200`); stock clients wait for a minute, and each takes a process and as much processor time
/// as it can get.
#[test]
fn a_crowd_of_stock_iperf3_clients_is_served_or_told_that_the_server_is_busy() {
    if Command::new("iperf3").arg("--version").output().is_err() {
        assert!(std::env::var_os("CI").is_none(), "iperf3 is missing");
        return eprintln!("SKIPPED: iperf3 is missing");
    }
    let many: usize = std::env::var("LFN_CLIENTS").map_or(24, |many| many.parse().unwrap());
    let server = Served::start(&["--quiet", "--iperf3=0", "--max-sessions", "4", "--client-sessions", "4"]);
    let port = server.iperf3.unwrap().port().to_string();
    let clients: Vec<_> = (0..many)
        .map(|number| {
            let mut command = Command::new("iperf3");
            command.args(["-c", "127.0.0.1", "-p", &port, "-n", "100K", "-J"]);
            command.args(if number % 2 == 0 { &["-R"][..] } else { &[] });
            command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
        })
        .collect();
    let mut served = 0;
    for client in clients {
        let output = client.wait_with_output().unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        match report["error"].as_str() {
            None => served += usize::from(report["end"]["sum_received"]["bytes"].as_u64().unwrap() >= 100 << 10),
            Some(error) => assert!(error.contains("busy"), "{report}"),
        }
    }
    println!("{served} of {many} served, the others told");
    assert!(served >= many.min(24), "{served} of {many}");
}

fn counted(records: u64) -> tester::Test {
    let request = TestRequest { load: Load::Records(records), record: Bytes(1000), ..TestRequest::default() };
    tester::Test {
        request,
        near: Default::default(),
        path: None,
        whole_round_trips: false,
        until: None,
        omit: None,
        stop: Default::default(),
    }
}
