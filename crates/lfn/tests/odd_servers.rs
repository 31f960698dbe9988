//! Servers and files that say what no honest one says, seen from a terminal: what comes out there moves nothing, and
//! Ctrl-C is obeyed whatever the server does.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../../net/tests/between/mod.rs"]
#[allow(dead_code, reason = "shared with the tests of the sessions themselves, which use all of it")]
mod between;
mod support;

use std::fs;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use between::{Between, Fault, ODD, Point};
use serde_json::Value;
use support::server::{Server, kill, test, test_command, text};

fn port(server: &Server) -> u16 {
    let (_, behind) = server.ticket.rsplit_once(':').unwrap();
    behind.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}

fn at(between: &Between) -> String {
    format!("127.0.0.1:{}", between.port)
}

/// Nothing but what can be seen, and line ends.
fn is_plain(output: &Output) {
    for bytes in [&output.stdout, &output.stderr] {
        // What CSV ends its lines with.
        let text = String::from_utf8(bytes.clone()).unwrap().replace("\r\n", "\n");
        let odd =
            |c: &char| c.is_control() && *c != '\n' || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        assert_eq!(text.chars().find(odd), None, "{text:?}");
    }
}

#[test]
fn what_a_server_says_moves_no_terminal() {
    let server = Server::start(&["--insecure"]);
    for words in ["ready", "report"] {
        let between = Between::start(port(&server), Point::server(words), Fault::Odd);
        let output = test(&at(&between), &["--insecure", "--time", "300ms"]);
        assert!(between.struck() && output.status.success(), "{}", text(&output.stderr));
        is_plain(&output);
    }
    // A program is told all of it.
    let between = Between::start(port(&server), Point::server("report"), Fault::Odd);
    let output = test(&at(&between), &["--insecure", "--time", "300ms", "--json"]);
    is_plain(&output);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let version = document["runs"][0]["far"]["lfn_version"].as_str().unwrap();
    // But a name is no more than a part of a line.
    assert!(version.ends_with(&ODD.replace(['\n', '\r'], " ")), "{version:?}");
    for fault in [Fault::RefuseOddly, Fault::Other, Fault::Garble] {
        let between = Between::start(port(&server), Point::server("ready"), fault);
        let output = test(&at(&between), &["--insecure", "--time", "300ms"]);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
        assert_eq!(text(&output.stderr).lines().count(), 2, "{}", text(&output.stderr));
        is_plain(&output);
    }
}

/// Writes odd characters behind every text in a file that may hold any.
fn odden(value: &mut Value, name: &str) {
    const FREE: [&str; 12] = [
        "lfn_version",
        "host",
        "release",
        "congestion",
        "name",
        "kind",
        "message",
        "summary",
        "detail",
        "started",
        "version",
        "system_info",
    ];
    match value {
        // Of the two ends' names; elsewhere it is what an end did.
        Value::Object(hosts) if name == "hosts" => hosts.values_mut().for_each(|host| *host = ODD.into()),
        Value::String(text) if FREE.contains(&name) => *text += ODD,
        Value::Array(list) => list.iter_mut().for_each(|value| odden(value, name)),
        Value::Object(map) => map.iter_mut().for_each(|(name, value)| odden(value, name)),
        _ => {}
    }
}

#[test]
fn what_a_file_holds_moves_no_terminal() {
    let directory = tempfile::tempdir().unwrap();
    let ours = directory.path().join("ours\u{1b}[2J\u{202e}.json");
    let server = Server::start(&["--insecure"]);
    let host = format!("127.0.0.1:{}", port(&server));
    let measured = test(&host, &["--insecure", "--time", "300ms", "--save", ours.to_str().unwrap()]);
    assert!(measured.status.success(), "{}", text(&measured.stderr));
    let theirs = directory.path().join("theirs.json");
    fs::write(&theirs, include_str!("iperf3/results/312-tcp.client.json")).unwrap();
    for file in [&ours, &theirs] {
        let mut value: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
        odden(&mut value, "");
        fs::write(file, value.to_string()).unwrap();
    }
    let show = |words: &[&str]| support::lfn().arg("show").args([&ours, &theirs]).args(words).output().unwrap();
    for words in [&[][..], &["--json"], &["--csv"]] {
        let output = show(words);
        assert!(output.status.success(), "{}", text(&output.stderr));
        is_plain(&output);
    }
    let alone = support::lfn().arg("show").arg(&ours).output().unwrap();
    assert!(alone.status.success() && text(&alone.stdout).contains("goodput"), "{}", text(&alone.stderr));
    is_plain(&alone);
    fs::write(&ours, format!("{{\"schema\": \"{}\"}}", "\u{202e}\u{9b}")).unwrap();
    let refused = support::lfn().arg("show").arg(&ours).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    is_plain(&refused);
}

/// A test with a server that falls silent, under way.
fn silent(server: &Server, flags: &[&str]) -> (Between, Command) {
    let between = Between::start(port(server), Point::server("\"start_seconds\":0.3"), Fault::Stall);
    let mut command = test_command(&at(&between), &["--insecure", "--time", "60s", "--interval", "100ms"]);
    command.args(flags).stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    (between, command)
}

#[test]
fn the_first_interrupt_prints_what_there_is_within_seconds() {
    let server = Server::start(&["--insecure", "--max-sessions", "8"]);
    std::thread::scope(|scope| {
        for flags in
            [&["--pacing", "10mbit"][..], &["--reverse", "--pacing", "10mbit"], &["--udp", "--pacing", "1mbit"]]
        {
            let server = &server;
            scope.spawn(move || {
                let (between, mut command) = silent(server, flags);
                let child = command.spawn().unwrap();
                assert!(support::eventually(|| between.struck()));
                let begun = Instant::now();
                kill("INT", child.id());
                let output = child.wait_with_output().unwrap();
                let took = begun.elapsed();
                assert_eq!(output.status.code(), Some(130), "{flags:?}: {}", text(&output.stderr));
                assert!(took < Duration::from_secs(15), "{flags:?}: {took:?}");
                assert!(text(&output.stdout).contains("until it broke off"), "{flags:?}: {}", text(&output.stdout));
                assert!(text(&output.stderr).starts_with("lfn: no answer from the server"), "{}", text(&output.stderr));
            });
        }
    });
}

#[test]
fn the_second_interrupt_ends_the_command() {
    let server = Server::start(&["--insecure"]);
    let (between, mut command) = silent(&server, &["--pacing", "10mbit"]);
    let child = command.spawn().unwrap();
    assert!(support::eventually(|| between.struck()));
    kill("INT", child.id());
    // Two that come together may be seen as one.
    std::thread::sleep(Duration::from_millis(500));
    let begun = Instant::now();
    kill("INT", child.id());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    // It ended at once, and not because it had waited long enough.
    assert!(!text(&output.stdout).contains("until it broke off"), "{}", text(&output.stdout));
}
