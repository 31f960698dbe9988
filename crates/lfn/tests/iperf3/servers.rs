//! `lfn test` with stock iperf3 servers.

use std::fs;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lfn_base::units::{BitRate, Bytes};
use lfn_measure::iperf3::client::{self, IperfOutcome};
use lfn_measure::proto::iperf3::datagram::CounterWidth;
use lfn_measure::proto::iperf3::{LoadDirection, Parameters, ServerOutput, TestEnd};
use lfn_results::iperf3_report::LoadProtocol;
use lfn_results::measure::TestDirection;
use serde_json::Value;

use crate::keys::Keys;
use crate::support::server::{interrupted, kill, start_with_events};
use crate::support::{self, eventually, stderr, stdout};
use crate::{bytes, lfn_json, lfn_test, test};

pub fn stock_servers_agree_on_counts() {
    for flags in
        [&["-k", "20", "-l", "100000"][..], &["-k", "20", "-l", "100000", "-P", "3"], &["-k", "7", "-l", "1000"]]
    {
        let server = StockServer::start(&["-J"]);
        let run = lfn_json(server.port, flags);
        let report = server.report();
        let wanted: u64 = flags[1].parse::<u64>().unwrap() * flags[3].parse::<u64>().unwrap();
        assert_eq!(run["near"]["bytes"], wanted, "{flags:?}");
        assert_eq!(run["far"]["bytes"], wanted, "{flags:?}");
        assert_eq!(bytes(&report, "sum_received"), wanted, "{flags:?}");
        // The time that the server gets to read its remaining data does not count.
        let (ours, its) = (&run["far"]["elapsed_seconds"], &report["end"]["sum_received"]["seconds"]);
        assert!(ours.as_f64().unwrap() < its.as_f64().unwrap(), "{ours} and {its}");
    }
    let server = StockServer::start(&["-J"]);
    let run = lfn_json(server.port, &["-k", "20", "-l", "100000", "-R"]);
    let report = server.report();
    // The client sends until the server confirms enough data.
    assert_eq!(run["far"]["bytes"], report["end"]["sum_sent"]["bytes"]);
    let (got, sent) = (run["near"]["bytes"].as_u64().unwrap(), run["far"]["bytes"].as_u64().unwrap());
    assert!((2_000_000..=sent).contains(&got), "{got} of {sent}");
    assert_eq!(run["far"]["kernel"], Value::Null);
    assert!(run["near"]["streams"][0]["tcp_info"].is_object());
}

pub fn stock_servers_agree_in_every_other_mode() {
    let second = TestEnd::Time(Duration::from_secs(1));
    let base = Parameters { end: second, length: Bytes(10_000), ..Parameters::default() };
    let (outcome, report) = drive(
        Parameters { direction: LoadDirection::Both, streams: 2, rate: Some(BitRate(20_000_000)), ..base.clone() },
        &[],
    );
    let directions: Vec<TestDirection> = outcome.runs.iter().map(|run| run.request.direction).collect();
    assert_eq!(directions, [TestDirection::Forward, TestDirection::Reverse]);
    assert_eq!(outcome.runs[0].far.bytes, bytes(&report, "sum_received"));
    assert_eq!(outcome.runs[1].far.bytes, bytes(&report, "sum_sent_bidir_reverse"));
    assert!(outcome.runs[1].near.bytes > 0);

    let omit = Parameters { omit: Duration::from_secs(1), rate: Some(BitRate(8_000_000)), ..base.clone() };
    let (outcome, _) = drive(omit, &[]);
    let run = &outcome.runs[0];
    assert!(run.near.bytes < 2_000_000 && run.near.elapsed < Duration::from_millis(1900), "{:?}", run.near.elapsed);

    let all = Parameters {
        end: TestEnd::Blocks(100),
        zero_copy: true,
        no_delay: true,
        mss: Some(1000),
        window: Some(Bytes(200_000)),
        congestion: Some("reno".into()),
        tos: Some(0x10),
        pacing: Some(BitRate(1_000_000_000)),
        server_output: true,
        ..base.clone()
    };
    let (outcome, report) = drive(all, &[]);
    assert_eq!((outcome.runs[0].far.bytes, bytes(&report, "sum_received")), (1_000_000, 1_000_000));
    assert_eq!(outcome.runs[0].iperf3.as_ref().unwrap().far_congestion.as_deref(), Some("reno"));
    assert!(matches!(outcome.output, Some(ServerOutput::Json(_))), "{:?}", outcome.output);
    let socket = outcome.runs[0].near.streams[0].socket.as_ref().unwrap();
    assert_eq!((socket.congestion.as_str(), socket.sndbuf_granted_bytes), ("reno", Bytes(200_000)));

    let udp = Parameters { protocol: LoadProtocol::Udp, length: Bytes(1000), rate: Some(BitRate(2_000_000)), ..base };
    for (way, width) in [
        (LoadDirection::Forward, CounterWidth::Narrow),
        (LoadDirection::Reverse, CounterWidth::Wide),
        (LoadDirection::Both, CounterWidth::Narrow),
    ] {
        let (outcome, _) = drive(Parameters { direction: way, width, streams: 2, ..udp.clone() }, &[]);
        for run in &outcome.runs {
            let remarks = run.iperf3.as_ref().unwrap();
            let stream = &remarks.streams[0];
            let (sent, lost) = (stream.datagrams.unwrap(), stream.lost_datagrams.unwrap());
            assert!(sent > 0 && lost <= sent && stream.received_bytes <= stream.sent_bytes, "{way:?}: {stream:?}");
            assert_eq!(stream.sent_bytes, sent * 1000, "{way:?}");
            assert_eq!(remarks.retransmits, None);
            assert!(run.sender().bytes >= run.receiver().bytes);
        }
    }
}

/// Tests the lines of both directions, and of datagrams that this end receives. For other datagrams a note says that
/// there are no lines.
pub fn stock_server_tests_show_intervals() {
    let unreported = "does not report its intervals";
    for (flags, forward, reverse) in [
        (&["--bidir", "-b", "20mbit"][..], true, true),
        (&["-u", "-b", "10mbit", "-R"], false, true),
        (&["-u", "-b", "10mbit"], false, false),
        (&["-u", "-b", "10mbit", "--bidir"], false, true),
    ] {
        let server = StockServer::start(&[]);
        let output = lfn_test(server.port, &[flags, &["-t", "1", "--interval", "250ms"]].concat());
        assert!(output.status.success(), "{flags:?}: {}", stderr(&output));
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text.matches("seconds ").count(), 1, "one head: {text}");
        let at_once = flags.contains(&"--bidir");
        let lines = |direction: &str| {
            let of = |line: &&str| line.trim_start().starts_with("0.") && (!at_once || line.ends_with(direction));
            text.lines().filter(of).count()
        };
        assert!((lines("forward") >= 3) == (forward || (!at_once && reverse)), "{flags:?}: {text}");
        assert!((lines("reverse") >= 3) == reverse, "{flags:?}: {text}");
        assert_eq!(text.contains(unreported), flags.contains(&"-u") && (at_once || !reverse), "{flags:?}: {text}");
    }
}

pub fn stock_servers_accept_the_load_flags() {
    let server = StockServer::start(&["-J"]);
    let flags = "--bytes 2000001 --mss 1000 --dscp EF --bind 127.0.0.4,127.0.0.5 --no-copy --pacing 400mbit -P 3";
    let run = lfn_json(server.port, &flags.split(' ').collect::<Vec<_>>());
    let report = server.report();
    assert_eq!((&run["near"]["bytes"], &run["far"]["bytes"]), (&2_000_001.into(), &2_000_001.into()));
    assert_eq!(bytes(&report, "sum_received"), 2_000_001);
    assert_eq!(report["start"]["test_start"]["tos"], 184, "EF");
    for (stream, place) in run["near"]["streams"].as_array().unwrap().iter().zip(["4:", "5:", "4:"]) {
        let socket = &stream["socket"];
        assert_eq!((&socket["mss_granted_bytes"], &socket["dscp_granted"]), (&988.into(), &46.into()));
        assert_eq!(socket["pacing_granted_bits_per_second"], 400_000_000);
        assert!(socket["local_address"].as_str().unwrap().starts_with(&format!("127.0.0.{place}")), "{socket}");
    }
    // The server's mode is unknown.
    assert_eq!((&run["near"]["mode"], &run["far"]["mode"]), (&"no_copy".into(), &Value::Null));

    let server = StockServer::start(&["-J"]);
    let output = lfn_test(server.port, &["--json", "--bidir", "-t", "1s", "-P", "2"]);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(&output)));
    let (report, runs) = (server.report(), document["runs"].as_array().unwrap());
    assert_eq!((&runs[0]["direction"], &runs[1]["direction"]), (&"forward".into(), &"reverse".into()));
    assert!(runs.iter().all(|run| run["bidirectional"] == true && run["near"]["bytes"].as_u64() > Some(0)));
    assert_eq!(runs[0]["far"]["bytes"], report["end"]["sum_received"]["bytes"]);
    assert_eq!(runs[1]["far"]["bytes"], report["end"]["sum_sent_bidir_reverse"]["bytes"]);

    let server = StockServer::start(&["-J"]);
    let run = lfn_json(server.port, &["-R", "-t", "1s", "--pacing", "8mbit"]);
    // A busy machine may have sent less, but not twice as much.
    assert!((1..2_500_000).contains(&run["near"]["bytes"].as_u64().unwrap()), "{}", run["near"]["bytes"]);

    // The server listens for plain TCP only.
    let server = StockServer::start(&["-J"]);
    let run = lfn_json(server.port, &["--mptcp", "--bytes", "1MB"]);
    assert_eq!(run["far"]["bytes"], 1_000_000);
    let socket = &run["near"]["streams"][0]["socket"];
    assert_eq!((&socket["mptcp_requested"], &socket["mptcp_subflows"]), (&true.into(), &Value::Null));
}

pub fn interrupt_ends_a_test_with_a_stock_server() {
    for flags in [&["-t", "60s"][..], &["--bytes", "1TB", "-R"]] {
        let server = StockServer::start(&["-J"]);
        let address = format!("127.0.0.1:{}", server.port);
        let (code, events, said) =
            interrupted(start_with_events(&["test", "--iperf3", &address], flags), 1, |pid| kill("INT", pid));
        assert_eq!(code, Some(130), "{flags:?}: {said}");
        let run = &events.last().unwrap()["result"]["runs"][0];
        assert_eq!(run["ended"], "interrupted", "{flags:?}");
        assert!(run["bytes"].as_u64() > Some(0), "{flags:?}");
        // The test ended normally for the server.
        assert_eq!(server.report()["error"], Value::Null, "{flags:?}");
    }
}

pub fn stock_servers_authenticate_the_client() {
    let keys = Keys::new();
    let (users, key, public) = (keys.path("users"), keys.path("private"), keys.path("public"));
    let flags = ["-k", "10", "--iperf3-user", "mario", "--iperf3-rsa-public-key", &public, "--iperf3-pkcs1"];
    for (password, good) in [("rossi", true), ("verdi", false)] {
        let server = StockServer::start(&["-J", "--rsa-private-key-path", &key, "--authorized-users-path", &users]);
        let mut command = support::lfn();
        command.env("HOME", "/nonexistent").env("IPERF3_PASSWORD", password);
        command.args(["test", "--iperf3", &format!("127.0.0.1:{}", server.port)]).args(flags);
        let output = command.output().unwrap();
        assert_eq!(output.status.success(), good, "{}", stderr(&output));
        if !good {
            let text = stderr(&output);
            assert!(text.contains("did not accept user and password") && text.contains("\nhint: "), "{text}");
        }
    }
}

pub fn busy_stock_server_is_named() {
    let server = StockServer::start(&["-J"]);
    let first = test(Parameters { end: TestEnd::Time(Duration::from_secs(30)), ..Parameters::default() });
    let (port, running) = (server.port, std::sync::mpsc::channel());
    std::thread::spawn(move || {
        // The client ends when the server ends.
        let _ = client::run("127.0.0.1", port, &first, &mut |_| {
            let _ = running.0.send(());
        });
    });
    running.1.recv_timeout(Duration::from_secs(60)).unwrap();
    running.1.recv_timeout(Duration::from_secs(60)).unwrap();
    let output = lfn_test(server.port, &["-t", "1s"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("busy with another test") && stderr(&output).contains("\nhint: "));
    drop(server);
}

/// Runs one test with the library. Returns its outcome and the report of a stock server.
fn drive(parameters: Parameters, server: &[&str]) -> (IperfOutcome, Value) {
    let server = StockServer::start(&[&["-J"], server].concat());
    let test = test(parameters);
    let mut intervals = 0;
    let outcome = client::run("127.0.0.1", server.port, &test, &mut |_| intervals += 1);
    let outcome = outcome.unwrap_or_else(|error| panic!("{:?}: {error}", test.parameters));
    assert!(intervals > 1, "progress was reported");
    (outcome, server.report())
}

/// A stock server for one test, which prints its report as JSON. Stopped on drop.
struct StockServer {
    child: Option<Child>,
    port: u16,
}

impl StockServer {
    fn start(flags: &[&str]) -> StockServer {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new("iperf3");
        command.args(["-s", "-1", "-p", &port.to_string()]).args(flags);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let server = StockServer { child: Some(child), port };
        assert!(eventually(|| listens(port)), "iperf3 -s does not listen");
        server
    }

    /// Returns the report of the server after its test.
    fn report(mut self) -> Value {
        let output = self.child.take().unwrap().wait_with_output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", stdout(&output)))
    }
}

impl Drop for StockServer {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Returns whether the kernel's table has a listener on this TCP port. A connection would count as a client.
fn listens(port: u16) -> bool {
    let entry = format!(":{port:04X}");
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().filter_map(|file| fs::read_to_string(file).ok()).any(|table| {
        table.lines().any(|line| {
            let mut words = line.split_whitespace().skip(1);
            words.next().is_some_and(|local| local.ends_with(&entry)) && words.nth(1) == Some("0A")
        })
    })
}
