//! Servers and files with text that no honest server sends, seen on a terminal: no text controls the terminal, and
//! Ctrl-C works in every case.

#[path = "../../../api/tests/sessions/fault_proxy/mod.rs"]
#[allow(dead_code, reason = "shared with the tests of the sessions themselves, which use all of it")]
mod fault_proxy;

use std::fs;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use fault_proxy::{CONTROL_CHARACTERS, Fault, FaultPoint, FaultProxy};
use serde_json::Value;

use crate::support;
use crate::support::server::{Server, kill, test, test_command, text};

fn port(server: &Server) -> u16 {
    let (_, behind) = server.ticket.rsplit_once(':').unwrap();
    behind.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}

fn at(proxy: &FaultProxy) -> String {
    format!("127.0.0.1:{}", proxy.port)
}

/// Asserts that the output has only visible characters and line ends.
fn is_plain(output: &Output) {
    for bytes in [&output.stdout, &output.stderr] {
        // CSV has this line end.
        let text = String::from_utf8(bytes.clone()).unwrap().replace("\r\n", "\n");
        let odd =
            |c: &char| c.is_control() && *c != '\n' || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        assert_eq!(text.chars().find(odd), None, "{text:?}");
    }
}

#[test]
fn server_text_cannot_control_the_terminal() {
    let server = Server::start(&["--insecure"]);
    for words in ["ready", "report"] {
        let proxy = FaultProxy::start(port(&server), FaultPoint::server(words), Fault::ControlCharacters);
        let output = test(&at(&proxy), &["--insecure", "--time", "300ms"]);
        assert!(proxy.was_triggered() && output.status.success(), "{}", text(&output.stderr));
        is_plain(&output);
    }
    // JSON contains the complete text.
    let proxy = FaultProxy::start(port(&server), FaultPoint::server("report"), Fault::ControlCharacters);
    let output = test(&at(&proxy), &["--insecure", "--time", "300ms", "--json"]);
    is_plain(&output);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let version = document["runs"][0]["far"]["lfn_version"].as_str().unwrap();
    // In text output a name stays within its line.
    assert!(version.ends_with(&CONTROL_CHARACTERS.replace(['\n', '\r'], " ")), "{version:?}");
    for fault in [Fault::RefuseWithControlCharacters, Fault::Meaningless, Fault::Garble] {
        let proxy = FaultProxy::start(port(&server), FaultPoint::server("ready"), fault);
        let output = test(&at(&proxy), &["--insecure", "--time", "300ms"]);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
        assert_eq!(text(&output.stderr).lines().count(), 2, "{}", text(&output.stderr));
        is_plain(&output);
    }
}

/// Appends odd characters to every text in a file that allows any text.
fn append_odd_text(value: &mut Value, name: &str) {
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
        // Only for the names of the two ends; elsewhere the object is a report of an end.
        Value::Object(hosts) if name == "hosts" => {
            hosts.values_mut().for_each(|host| *host = CONTROL_CHARACTERS.into())
        }
        Value::String(text) if FREE.contains(&name) => *text += CONTROL_CHARACTERS,
        Value::Array(list) => list.iter_mut().for_each(|value| append_odd_text(value, name)),
        Value::Object(map) => map.iter_mut().for_each(|(name, value)| append_odd_text(value, name)),
        _ => {}
    }
}

#[test]
fn file_text_cannot_control_the_terminal() {
    let directory = tempfile::tempdir().unwrap();
    let ours = directory.path().join("ours\u{1b}[2J\u{202e}.json");
    let server = Server::start(&["--insecure"]);
    let host = format!("127.0.0.1:{}", port(&server));
    let measured = test(&host, &["--insecure", "--time", "300ms", "--report", ours.to_str().unwrap()]);
    assert!(measured.status.success(), "{}", text(&measured.stderr));
    let theirs = directory.path().join("theirs.json");
    fs::write(&theirs, include_str!("../iperf3/results/312-tcp.client.json")).unwrap();
    for file in [&ours, &theirs] {
        let mut value: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
        append_odd_text(&mut value, "");
        fs::write(file, value.to_string()).unwrap();
    }
    let show = |words: &[&str]| support::lfn().arg("show").args([&ours, &theirs]).args(words).output().unwrap();
    for words in [&[][..], &["--json"], &["--output", "csv"]] {
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

/// Starts a test with a server that becomes silent.
fn silent(server: &Server, flags: &[&str]) -> (FaultProxy, Command) {
    let point = FaultPoint::server("\"message\":\"interval\"").after(3);
    let proxy = FaultProxy::start(port(server), point, Fault::Stall);
    let mut command = test_command(&at(&proxy), &["--insecure", "--time", "60s", "--interval", "100ms"]);
    command.args(flags).stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    (proxy, command)
}

#[test]
fn first_interrupt_prints_results_within_seconds() {
    let server = Server::start(&["--insecure", "--max-sessions", "8"]);
    std::thread::scope(|scope| {
        for flags in
            [&["--pacing", "10mbit"][..], &["--reverse", "--pacing", "10mbit"], &["--udp", "--pacing", "1mbit"]]
        {
            let server = &server;
            scope.spawn(move || {
                let (proxy, mut command) = silent(server, flags);
                let child = command.spawn().unwrap();
                assert!(support::eventually(|| proxy.was_triggered()));
                let begun = Instant::now();
                kill("INT", child.id());
                let output = child.wait_with_output().unwrap();
                let took = begun.elapsed();
                assert_eq!(output.status.code(), Some(130), "{flags:?}: {}", text(&output.stderr));
                assert!(took < Duration::from_secs(15), "{flags:?}: {took:?}");
                assert!(text(&output.stdout).contains("until the failure"), "{flags:?}: {}", text(&output.stdout));
                assert!(text(&output.stderr).starts_with("lfn: no answer from the server"), "{}", text(&output.stderr));
            });
        }
    });
}

#[test]
fn second_interrupt_ends_the_command() {
    let server = Server::start(&["--insecure"]);
    let (proxy, mut command) = silent(&server, &["--pacing", "10mbit"]);
    let child = command.spawn().unwrap();
    assert!(support::eventually(|| proxy.was_triggered()));
    kill("INT", child.id());
    // Two interrupts at once may count as one.
    std::thread::sleep(Duration::from_millis(500));
    let begun = Instant::now();
    kill("INT", child.id());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    // The test ended at once, and not because of its timeout.
    assert!(!text(&output.stdout).contains("until the failure"), "{}", text(&output.stdout));
}
