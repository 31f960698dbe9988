//! Clients of a full server: they get a message, wait in the queue, and are served.

use std::io::{self, BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use lfn_base::units::Bytes;
use lfn_measure::iperf3::client as iperf3;
use lfn_measure::proto::iperf3::{Parameters, TestEnd};
use lfn_measure::tester;
use lfn_results::measure::{TestLoad, TestRequest};
use serde_json::Value;

use super::served::{Client, PATIENCE, Served};
use crate::support::server::{assert_refused, text};
use crate::support::skip::skip;
use crate::support::{self, eventually, missing_program};

#[test]
fn client_of_a_full_server_waits_and_is_served() {
    let server = Served::start(&["--max-sessions", "1", "--metrics", "127.0.0.1:0"]);
    let first = Client::hold(&server.ticket);
    // With `--no-wait` the client gets an error at once.
    let refused = server.test(&["--time", "200ms", "--no-wait"]);
    assert_refused(&refused, 1, "the server is full: 0 ahead in the queue, about ");
    assert!(text(&refused.stderr).contains("hint: wait in the queue: --wait "));
    let impatient = server.test(&["--time", "200ms", "--wait", "100ms"]);
    let stderr = text(&impatient.stderr);
    assert_eq!(impatient.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("lfn: the server is full; gave up after waiting 100 ms: 0 ahead"), "{stderr}");
    // A waiting client that is killed leaves the queue.
    let gone = Client::spawn(&server.ticket, &["--time", "200ms"]);
    server.logged(&["queued", "requested_seconds=0.2"]);
    let waits = |many: f64| eventually(|| server.scrape()["lfn_sessions_queued"] == many);
    assert!(waits(1.0), "one waits");
    gone.kill();
    assert!(waits(0.0), "it left");
    // Both directions are served as if they had arrived later.
    let counted = ["--count", "100", "--length", "10000", "--json"];
    let waiting =
        [&counted[..], &[&counted[..], &["--reverse"]].concat()].map(|flags| Client::spawn(&server.ticket, flags));
    assert!(waits(2.0), "both wait");
    first.kill();
    for client in waiting {
        let output = client.end();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let json: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(json["runs"][0]["bytes"], 1_000_000);
    }
}

/// Neither direction has a result, and one reports the reason.
#[test]
fn refused_bidirectional_test_has_no_figures() {
    let server = Served::start(&["--max-sessions", "1"]);
    let first = Client::hold(&server.ticket);
    let output = server.test(&["--bidir", "--time", "200ms", "--no-wait", "--json"]);
    assert_refused(&output, 1, "the server is full: ");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["runs"], Value::Array(Vec::new()));
    assert!(document["error"]["message"].as_str().unwrap().starts_with("the server is full: "), "{document}");
    assert_eq!(document["unfinished"]["request"]["direction"], "forward", "the first of them: {document}");
    first.kill();
}

#[test]
fn limit_per_client_is_named_while_waiting() {
    let server = Served::start(&["--client-sessions", "1"]);
    let first = Client::hold(&server.ticket);
    let own = "this client has reached its limit on the server";
    let refused = server.test(&["--time", "200ms", "--no-wait"]);
    assert_refused(&refused, 1, &format!("{own}: 0 ahead in the queue, about "));
    let mut waiting = Client::spawn(&server.ticket, &["--time", "200ms"]);
    let message = first_line(&mut waiting.child);
    assert!(message.contains(&format!("lfn: {own}, waiting about ")), "{message}");
    first.kill();
    assert!(waiting.end().status.success());
}

/// The client ends its test, and may take some time.
#[test]
fn iperf3_test_counts_in_the_estimate() {
    let server = Served::start(&["--max-sessions", "1", "--iperf3=0"]);
    let port = server.iperf3.unwrap().port();
    let parameters = Parameters { end: TestEnd::Time(Duration::from_secs(20)), ..Parameters::default() };
    let (stop, (begun, begins)) = (Arc::<AtomicBool>::default(), channel());
    let test = iperf3::IperfTest {
        parameters,
        login: None,
        interval: Duration::from_secs(1),
        step_timeout: PATIENCE,
        queue_timeout: PATIENCE,
        bind_addresses: Vec::new(),
        stop: stop.clone(),
    };
    let client = thread::spawn(move || {
        iperf3::run("127.0.0.1", port, &test, &mut |_| {
            let _ = begun.send(());
        })
    });
    begins.recv_timeout(PATIENCE).unwrap();
    let stderr = text(&server.test(&["--time", "200ms", "--no-wait"]).stderr);
    let reported =
        stderr.split_once("the server is full: 0 ahead in the queue, about ").unwrap_or_else(|| panic!("{stderr}"));
    let seconds: f64 = reported.1.split(' ').next().unwrap().parse().unwrap();
    assert!((25.0..=51.0).contains(&seconds), "20 s, and 30 to end it: {stderr}");
    stop.store(true, Ordering::Relaxed);
    client.join().unwrap().unwrap();
}

#[test]
fn copies_wait_in_the_same_queue() {
    let server = Served::start(&["--max-sessions", "1"]);
    let first = Client::hold(&server.ticket);
    let null = server.ticket.replace('#', "/null:#");
    let random = server.ticket.replace('#', "/random:3000000#");
    let mut copies = [["random:3000000", null.as_str()], [random.as_str(), "null:"]].map(|places| {
        let mut command = support::lfn();
        command.arg("copy").args(places).arg("--json").stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    });
    for copy in &mut copies {
        let message = first_line(copy);
        assert!(message.contains("the server is full, waiting "), "{message}");
    }
    first.kill();
    for copy in copies {
        let output = copy.wait_with_output().unwrap();
        assert!(output.status.success());
        let json: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(json["bytes"], 3_000_000, "{json}");
    }
}

#[test]
fn two_hundred_clients_are_all_served() {
    let server = Served::start(&["--quiet"]);
    let (target, test) = (server.target(), counted(1));
    let served = thread::scope(|scope| {
        let clients: Vec<_> = (0..200).map(|_| scope.spawn(|| tester::run(&target, &test, &mut |_| {}))).collect();
        clients.into_iter().map(|client| client.join().unwrap().unwrap().far.bytes).sum::<u64>()
    });
    assert_eq!(served, 200 * test.request.record.0);
}

#[test]
fn short_queue_serves_or_refuses_every_client() {
    let server = Served::start(&["--quiet", "--max-sessions", "2", "--max-queue", "20"]);
    // Both places are in use until the queue is full.
    let holders = [0, 1].map(|_| Client::hold(&server.ticket));
    let (target, test, refused) = (server.target(), counted(1), AtomicUsize::new(0));
    let run = || {
        let result = tester::run(&target, &test, &mut |_| {});
        refused.fetch_add(usize::from(result.is_err()), Ordering::Relaxed);
        result
    };
    let results: Vec<_> = thread::scope(|scope| {
        let clients: Vec<_> = (0..200).map(|_| scope.spawn(run)).collect();
        eventually(|| refused.load(Ordering::Relaxed) == 180);
        holders.into_iter().for_each(Client::kill);
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 20);
    for refused in results.iter().filter_map(|result| result.as_ref().err()) {
        assert!(refused.to_string().contains("the server is full, and 20 sessions"), "{refused}");
        assert!(refused.hint().is_some_and(|hint| hint.starts_with("try again ")), "{refused}");
    }
}

/// Set `TEST_LFN_CLIENTS=200` for a manual run. Stock clients wait for a minute, and each is a process with as much CPU
/// time as it gets.
#[test]
fn many_iperf3_clients_are_served_or_get_busy() {
    if let Some(missing) = missing_program(&["iperf3"]) {
        return skip("many_iperf3_clients_are_served_or_get_busy", &missing);
    }
    let many: usize = std::env::var("TEST_LFN_CLIENTS").map_or(24, |many| many.parse().unwrap());
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
    println!("{served} of {many} served, the others reported");
    assert!(served >= many.min(24), "{served} of {many}");
}

/// Waits for the first message of a program. Later messages are discarded.
fn first_line(child: &mut Child) -> String {
    let (mut messages, mut line) = (BufReader::new(child.stderr.take().unwrap()), String::new());
    messages.read_line(&mut line).unwrap();
    thread::spawn(move || io::copy(&mut messages, &mut io::sink()));
    line
}

fn counted(records: u64) -> tester::Test {
    let request = TestRequest { load: TestLoad::Records(records), record: Bytes(1000), ..TestRequest::default() };
    tester::Test {
        request,
        near_socket: Default::default(),
        path: None,
        tuned: false,
        round_to_rtt: false,
        target_precision: None,
        omit: None,
        stop: Default::default(),
    }
}
