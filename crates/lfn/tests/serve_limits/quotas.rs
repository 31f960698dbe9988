//! Limits of a session, of a client and in total: rate, bytes, time, and permitted addresses.

use std::io::Read;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use lfn_base::units::BitRate;
use lfn_measure::proto::udp::datagram::DatagramHeader;
use lfn_results::measure::{ClientMessage, ServerMessage, TestLoad, TestRequest, UdpRequest};
use lfn_session::dial;
use lfn_session::wire::Request;
use serde_json::Value;

use crate::served::{Client, PATIENCE, Served};
use crate::support;
use crate::support::server::{assert_refused, text};

#[test]
fn rate_limit_holds_in_both_directions() {
    let server = Served::start(&["--max-rate", "80mbit"]);
    for flags in [&["--streams", "2"][..], &["--streams", "3", "--reverse"]] {
        let output = server.test(&[flags, &["--time", "1500ms", "--json"]].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let json: Value = serde_json::from_slice(&output.stdout).unwrap();
        let receiver = &json["runs"][0][json["runs"][0]["receiver"].as_str().unwrap()];
        let bytes = receiver["bytes"].as_u64().unwrap();
        // 10 MB/s for 1.5 s and the burst. A receiver that reads late may count earlier data.
        assert!((3_000_000..18_000_000).contains(&bytes), "{bytes}");
    }
    server.logged(&["opened", "granted_bits_per_second=80000000"]);
}

#[test]
fn used_up_quota_ends_session_with_next_time() {
    let server = Served::start(&["--client-bytes", "10MB", "--quota-window", "1h"]);
    let spent = server.test(&["--time", "30s"]);
    assert_refused(
        &spent,
        1,
        "the server's byte quota is exhausted: byte quota of this client: 0 B of 10 MB per 1 h left",
    );
    assert!(text(&spent.stderr).contains("--client-bytes of lfn serve sets the limit"), "{}", text(&spent.stderr));
    assert_refused(&server.test(&["--time", "1s"]), 1, "byte quota of this client: 0 B of 10 MB per 1 h left");
    server.logged(&["denied", "code=quota"]);
    let server = Served::start(&["--client-time", "2s"]);
    assert_refused(&server.test(&["--time", "3s"]), 1, "left, 3 s requested");
    assert!(server.test(&["--time", "1500ms"]).status.success());
    let counted = server.test(&["--count", "1000000000000", "--reverse"]);
    assert_refused(&counted, 1, "time quota of this client");
}

#[test]
fn datagrams_have_the_same_limits() {
    let server = Served::start(&["--max-rate", "8mbit", "--session-streams", "2", "--test-time", "2s"]);
    let udp = |flags: &[&str]| server.test(&[&["--udp", "--pacing", "40mbit"], flags].concat());
    for flags in [&["--time", "1s"][..], &["--time", "1s", "--reverse", "--streams", "2"]] {
        let output = udp(&[flags, &["--json"]].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let json: Value = serde_json::from_slice(&output.stdout).unwrap();
        let receiver = &json["runs"][0][json["runs"][0]["receiver"].as_str().unwrap()];
        let bytes = receiver["bytes"].as_u64().unwrap();
        // 1 MB/s for a second, and the burst.
        assert!((200_000..1_300_000).contains(&bytes), "{bytes}");
        assert_eq!(json["runs"][0]["far"]["rate_limit_bits_per_second"], 8_000_000);
        assert_eq!(json["runs"][0]["far"]["lfn_version"], json["origin"]["lfn_version"]);
    }
    assert_refused(&udp(&["--time", "1s", "--streams", "3"]), 1, "the server allows 2");
    assert_refused(&udp(&["--time", "3s"]), 1, "the server allows 2 s");
    // The request is known in advance, so a session waits if the rate is in use.
    let first = Client::begin(&server.ticket, &["--time", "2s"]);
    assert_refused(&udp(&["--time", "1s", "--no-wait"]), 1, "the server is full: 0 ahead in the queue, about ");
    assert!(first.end().status.success());
    let server = Served::start(&["--client-bytes", "1MB", "--quota-window", "1h"]);
    let spent = server.test(&["--udp", "--pacing", "80mbit", "--time", "20s"]);
    assert_refused(&spent, 1, "the server's byte quota is exhausted");
    let all = Served::start(&["--max-bytes", "1MB"]);
    let spent = all.test(&["--reverse", "--time", "20s"]);
    assert_refused(&spent, 1, "byte quota of all clients together");
    assert!(text(&spent.stderr).contains("--max-bytes of lfn serve sets the limit"), "{}", text(&spent.stderr));
    let server = Served::start(&["--client-time", "2s"]);
    let long = server.test(&["--udp", "--pacing", "1mbit", "--time", "3s"]);
    assert_refused(&long, 1, "left, 3 s requested");
}

/// The server reads only the granted rate. The rest overflows its buffer and counts as lost.
#[test]
fn datagrams_above_the_rate_are_not_read() {
    let server = Served::start(&["--max-rate", "8mbit"]);
    let (target, session) = (server.target(), dial::new_session_id().unwrap());
    let udp = UdpRequest { rate: BitRate(8_000_000), ..UdpRequest::default() };
    let load = TestLoad::TimeSeconds(Duration::from_secs(1));
    let request = TestRequest { load, udp: Some(Box::new(udp)), ..TestRequest::default() };
    let mut control = dial::open_control(&target, session, Request::Test(Box::new(request))).unwrap();
    let ServerMessage::Ready(ready) = control.recv(PATIENCE, "before the test").unwrap() else { panic!("not ready") };
    assert_eq!(ready.rate_limit, Some(BitRate(8_000_000)));
    let stream = dial::open_datagrams(&target, &**control.handle(), session, 0, PATIENCE).unwrap();
    control.send(&ClientMessage::Opened).unwrap();
    let began = Instant::now();
    let mut sent = 0;
    while began.elapsed() < Duration::from_secs(1) {
        let mut datagram = [0; 1000];
        DatagramHeader { tag: stream.tag(), sequence: sent, ..DatagramHeader::default() }.write(&mut datagram);
        // As fast as this host can send: on a busy host, a paced load might fit in the server's buffer.
        sent += u64::from(stream.socket().send(&datagram).is_ok());
    }
    control.send(&ClientMessage::Sent { datagrams: vec![sent] }).unwrap();
    let report = loop {
        if let ServerMessage::Report(report) = control.recv(PATIENCE, "after the test").unwrap() {
            break report;
        }
    };
    let granted = 1e6 * began.elapsed().as_secs_f64() + 200_000.0;
    assert!(report.bytes > 0 && (report.bytes as f64) < granted, "{} B, {granted} granted", report.bytes);
    let received = report.streams[0].udp.as_ref().unwrap().received.as_ref().unwrap();
    assert_eq!((received.datagrams + received.lost, received.lost > 0), (sent, true), "{received:?}");
}

#[test]
fn denied_addresses_are_closed_unread() {
    let server = Served::start(&["--deny", "127.0.0.0/8", "--metrics", "127.0.0.1:0"]);
    let mut socket = TcpStream::connect(server.address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(socket.read(&mut [0; 1]).unwrap_or(0), 0);
    assert_eq!(server.test(&["--time", "200ms"]).status.code(), Some(1));
    server.logged(&["refused", "reason=access"]);
    assert!(server.scrape()["lfn_connections_refused_total{reason=\"access\"}"] >= 2.0);
    let server = Served::start(&["--allow", "127.0.0.1", "--allow", "2001:db8::/32"]);
    assert!(server.test(&["--count", "1"]).status.success());
    let wrong = support::lfn().args(["serve", "--allow", "127.0.0.0/99"]).output().unwrap();
    assert_refused(&wrong, 2, "'127.0.0.0/99'");
}
