//! The log and the metrics.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::Value;

use super::served::{PATIENCE, Served};
use crate::support::{self, eventually};

#[test]
fn json_log_and_metrics_agree() {
    let server = Served::start(&["--log-format", "json", "--metrics", "127.0.0.1:0"]);
    assert!(server.test(&["--count", "100", "--length", "10000"]).status.success());
    assert!(server.test(&["--count", "50", "--length", "10000", "--reverse", "--streams", "2"]).status.success());
    let lines: Vec<Value> = ["opened", "ended", "opened", "ended"]
        .iter()
        .map(|event| serde_json::from_str(&server.logged(&[&format!("\"event\":\"{event}\"")])).unwrap())
        .collect();
    let [opened, ended, _, reverse] = &lines[..] else { panic!("{lines:?}") };
    for line in &lines {
        let time = line["time"].as_str().unwrap();
        assert!(time.len() == 24 && time.ends_with('Z') && time.as_bytes()[10] == b'T', "{time}");
        assert_eq!((&line["level"], &line["verb"]), (&"info".into(), &"test".into()));
        assert_eq!(line["session"].as_str().unwrap().len(), 32, "{line}");
    }
    assert_eq!((&opened["requested_streams"], &opened["requested_bytes"]), (&1.into(), &1_000_000.into()));
    assert_eq!((&ended["session"], &ended["bytes"]), (&opened["session"], &1_000_000.into()));
    assert_eq!(reverse["bytes"], 500_000);
    // The log shows only the address of an unauthenticated client, and does not repeat its text.
    let mut stranger = TcpStream::connect(server.address).unwrap();
    stranger.write_all(b"GET / HTTP/1.1\r\n\r\n\x1b[2J").unwrap();
    let refused: Value = serde_json::from_str(&server.logged(&["\"refused\""])).unwrap();
    assert_eq!(
        (&refused["reason"], &refused["client"]),
        (&"hello".into(), &stranger.local_addr().unwrap().to_string().into())
    );
    let samples = server.scrape();
    assert_eq!(samples["lfn_sessions_total{verb=\"test\",result=\"ok\"}"], 2.0);
    assert_eq!(samples["lfn_payload_bytes_total{direction=\"received\"}"], 1_000_000.0);
    assert_eq!(samples["lfn_payload_bytes_total{direction=\"sent\"}"], 500_000.0);
    assert_eq!(samples["lfn_connections_refused_total{reason=\"hello\"}"], 1.0);
    assert_eq!((samples["lfn_sessions_running"], samples["lfn_sessions_queued"]), (0.0, 0.0));
    assert!(samples["lfn_connections_total"] >= 6.0 && samples["process_resident_memory_bytes"] > 1e6);
    assert!(samples["process_open_fds"] > 3.0 && samples["process_threads"] >= 3.0);
}

#[test]
fn metrics_have_the_ranks_of_all_copies() {
    let server = Served::start(&["--metrics", "127.0.0.1:0"]);
    assert_eq!(server.scrape()["lfn_rank_bytes_total"], 0.0);
    let null = server.ticket.replace('#', "/null:#");
    let ranks = ["0/2", "1/2"].map(|rank| {
        let mut command = support::lfn();
        command.args(["copy", "--quiet", "--rank", rank, "random:3000000", &null]).spawn().unwrap()
    });
    ranks.into_iter().for_each(|mut rank| assert!(rank.wait().unwrap().success()));
    assert!(eventually(|| server.scrape()["lfn_rank_bytes_total"] == 3_000_000.0));
    let samples = server.scrape();
    assert_eq!((samples["lfn_rank_copies"], samples["lfn_ranks{state=\"connected\"}"]), (0.0, 0.0));
}

#[test]
fn metrics_clients_are_bounded() {
    let server = Served::start(&["--metrics", "127.0.0.1:0"]);
    assert!(server.http("GET / HTTP/1.1\r\n\r\n").0.starts_with("HTTP/1.1 404 "));
    assert!(server.http("POST /metrics HTTP/1.1\r\n\r\n").0.starts_with("HTTP/1.1 405 "));
    assert!(server.http("nonsense\r\n\r\n").0.starts_with("HTTP/1.1 400 "));
    assert!(server.http(&format!("GET /metrics HTTP/1.1\r\nX: {}", "x".repeat(5000))).0.starts_with("HTTP/1.1 431 "));
    // Four silent connections stay open. A new request replaces the oldest.
    let idle: Vec<TcpStream> = (0..4).map(|_| TcpStream::connect(server.metrics.unwrap()).unwrap()).collect();
    assert!(server.scrape()["process_threads"] >= 3.0);
    let mut oldest = &idle[0];
    oldest.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(oldest.read(&mut [0; 1]).unwrap_or(0), 0, "closed at once");
}
