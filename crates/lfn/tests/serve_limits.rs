//! `lfn serve` under clients that ask for much, mean no good or come in crowds; how it stops; what it tells.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use lfn_core::session::Ticket;
use lfn_core::units::Bytes;
use lfn_core::wire::Request;
use lfn_core::wire::copy::{CopyRequest, Job, Offer, To};
use lfn_core::wire::test::{Load, TestRequest};
use lfn_net::session::dial::{self, Target};
use lfn_net::session::queue::Patience;
use lfn_net::session::{Control, DataStream, Protection};
use lfn_net::tester;
use serde_json::Value;
use support::server::{assert_refused, test, text};

const PATIENCE: Duration = Duration::from_secs(60);

/// A server whose log and metrics can be read.
struct Served {
    child: Child,
    ticket: String,
    address: SocketAddr,
    metrics: Option<SocketAddr>,
    log: Receiver<String>,
}

impl Served {
    fn start(flags: &[&str]) -> Served {
        Served::run(support::lfn(), flags)
    }

    /// `command` becomes `lfn`.
    fn run(mut command: Command, flags: &[&str]) -> Served {
        command.args(["serve", "--ephemeral", "--port", "0", "--bind", "127.0.0.1", "--json"]).args(flags);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let (sender, log) = channel();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let json: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line:?}"));
        let address = |value: &Value| value.as_str().map(|text| text.parse().unwrap());
        let ticket = json["ticket"].as_str().unwrap().to_owned();
        Served { child, ticket, address: address(&json["listen"]).unwrap(), metrics: address(&json["metrics"]), log }
    }

    fn test(&self, flags: &[&str]) -> Output {
        test(&self.ticket, flags)
    }

    fn target(&self) -> Target {
        let mut target = Target::new(self.ticket.parse::<Ticket>().unwrap()).unwrap();
        target.within = PATIENCE;
        target.patience = Patience { most: PATIENCE, ..Patience::default() };
        target
    }

    /// The next line of the log that has all of these in it.
    fn logged(&self, parts: &[&str]) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let line = self.log.recv_timeout(deadline.saturating_duration_since(Instant::now()));
            let line = line.unwrap_or_else(|_| panic!("never logged: {parts:?}"));
            if parts.iter().all(|part| line.contains(part)) {
                return line;
            }
        }
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("the server did not end")
    }

    /// A figure of `/proc/PID/status`, such as `VmRSS:` in KiB.
    fn status(&self, field: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }

    /// What a scrape shows, read strictly.
    fn scrape(&self) -> HashMap<String, f64> {
        let (head, body) = self.http("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.contains("Content-Type: text/plain; version=0.0.4"), "{head}");
        parse_page(&body)
    }

    fn http(&self, request: &str) -> (String, String) {
        let mut socket = TcpStream::connect(self.metrics.unwrap()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        // What was not read of a head too long resets the connection behind the answer.
        let _ = socket.read_to_end(&mut answer);
        let answer = text(&answer);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer:?}"));
        (head.to_owned() + "\r\n", body.to_owned())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client under way, once it prints its first interval.
struct Client {
    child: Child,
    rest: Option<BufReader<std::process::ChildStdout>>,
}

impl Client {
    fn begin(ticket: &str, flags: &[&str]) -> Client {
        let mut client = Client::spawn(ticket, flags);
        let mut out = client.rest.take().unwrap();
        let mut line = String::new();
        while !line.contains("0.0-") {
            line.clear();
            assert!(out.read_line(&mut line).unwrap() > 0, "the test did not begin");
        }
        client.rest = Some(out);
        client
    }

    fn spawn(ticket: &str, flags: &[&str]) -> Client {
        let mut command = support::lfn();
        command.env("HOME", "/nonexistent").env_remove("XDG_CONFIG_HOME").env_remove("LFN_PATH");
        command.args(["test", ticket, "--interval", "100ms"]).args(flags);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let rest = child.stdout.take().map(BufReader::new);
        Client { child, rest }
    }

    fn end(mut self) -> Output {
        let mut page = Vec::new();
        self.rest.take().unwrap().read_to_end(&mut page).unwrap();
        let output = self.child.wait_with_output().unwrap();
        Output { stdout: page, ..output }
    }
}

/// Prometheus's text format 0.0.4, as far as this server uses it; anything else panics. Samples by name and labels.
fn parse_page(page: &str) -> HashMap<String, f64> {
    let name = |text: &str| {
        let first = text.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_' || c == ':');
        assert!(first && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':'), "name {text:?}");
    };
    let (mut samples, mut family, mut helped) = (HashMap::new(), None::<&str>, Vec::new());
    assert!(page.ends_with('\n'));
    for line in page.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (named, words) = help.split_once(' ').expect("a help text");
            name(named);
            assert!(!words.is_empty() && !helped.contains(&named), "{line}");
            helped.push(named);
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (named, kind) = kind.split_once(' ').expect("a type");
            assert_eq!(helped.last(), Some(&named), "help and type stand together");
            assert!(["counter", "gauge"].contains(&kind), "{line}");
            assert_eq!(kind == "counter", named.ends_with("_total"), "{line}");
            family = Some(named);
        } else {
            let (series, value) = line.rsplit_once(' ').expect("a sample");
            let (named, labels) = series
                .split_once('{')
                .map_or((series, ""), |(named, rest)| (named, rest.strip_suffix('}').expect("labels are closed")));
            assert_eq!(Some(named), family, "{line}");
            for label in labels.split(',').filter(|label| !label.is_empty()) {
                let (key, quoted) = label.split_once("=\"").expect("a label");
                name(key);
                assert!(quoted.ends_with('"') && quoted.matches('"').count() == 1, "{line}");
            }
            let value: f64 = value.parse().unwrap();
            assert!(value.is_finite() && value >= 0.0, "{line}");
            assert!(samples.insert(series.to_owned(), value).is_none(), "{line} twice");
        }
    }
    samples
}

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
    assert!(stderr.contains("lfn: the server was full for the 100 ms that were waited: 0 ahead"), "{stderr}");
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

#[test]
fn the_rate_is_kept_both_ways_whatever_the_client_does() {
    let server = Served::start(&["--max-rate", "80mbit"]);
    for flags in [&["--streams", "2"][..], &["--streams", "3", "--reverse"]] {
        let output = server.test(&[flags, &["--time", "1500ms", "--json"]].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let json: Value = serde_json::from_slice(&output.stdout).unwrap();
        let receiver = &json["runs"][0][json["runs"][0]["receiver"].as_str().unwrap()];
        let bytes = receiver["bytes"].as_u64().unwrap();
        // 10 MB/s for 1.5 s and the burst; a receiver that reads late may find more of what came before.
        assert!((3_000_000..18_000_000).contains(&bytes), "{bytes}");
    }
    server.logged(&["opened", "granted_bits_per_second=80000000"]);
}

#[test]
fn spent_quotas_end_a_session_and_say_when_there_is_more() {
    let server = Served::start(&["--client-bytes", "10MB", "--quota-window", "1h"]);
    assert_refused(&server.test(&["--time", "30s"]), 1, "the quota of bytes is spent");
    assert_refused(&server.test(&["--time", "1s"]), 1, "0 B of the 10 MB in 60 min 00 s that this client may move");
    server.logged(&["denied", "code=limit"]);
    let server = Served::start(&["--client-time", "2s"]);
    assert_refused(&server.test(&["--time", "3s"]), 1, "that this client may use are left, 3 s asked for");
    assert!(server.test(&["--time", "1500ms"]).status.success());
    let counted = server.test(&["--count", "1000000000000", "--reverse"]);
    assert_refused(&counted, 1, "that this client may use are left");
}

#[test]
fn addresses_that_may_not_connect_are_closed_unread() {
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

#[test]
fn a_file_holds_any_flag_and_is_told_from_what_is_typed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("serve.toml");
    let write = |text: &str| {
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let file =
        write("# limits\nmax-streams = 2\nmax-test-time = \"5s\"\nallow = [\"127.0.0.1\", \"::1\"]\nquiet = true\n");
    let server = Served::start(&["--config", &file, "--max-test-time", "1s"]);
    assert_refused(&server.test(&["--streams", "3"]), 1, "the server allows 2");
    assert_refused(&server.test(&["--time", "2s"]), 1, "the server allows 1 s");
    assert!(server.test(&["--count", "1"]).status.success());
    for (text, line, says) in [
        ("port = 0\nmax-session = 3\n", 2, "unknown key 'max-session'"),
        ("\n\nmax-rate = \"fast\"\n", 3, "max-rate: invalid value 'fast'"),
        ("max-streams = 0\n", 1, "max-streams: invalid value '0'"),
        ("quiet = 1\n", 1, "quiet: true or false"),
        ("allow = [1.5]\n", 1, "allow: invalid value '1.5'"),
        ("max-streams = 1979-05-27\n", 1, "max-streams: datetime is no value"),
        ("port = 0\nport = 1\n", 2, "duplicate key"),
        ("port = \n", 1, "line 1"),
        ("config = \"other.toml\"\n", 1, "unknown key 'config'"),
    ] {
        let output = support::lfn().args(["serve", "--ephemeral", "--config", &write(text)]).output().unwrap();
        assert_refused(&output, 2, says);
        assert!(text_of(&output).contains(&format!("serve.toml, line {line}: ")), "{}", text_of(&output));
    }
    let missing = support::lfn().args(["serve", "--config", "/nonexistent.toml"]).output().unwrap();
    assert_refused(&missing, 1, "--config /nonexistent.toml");
}

fn text_of(output: &Output) -> String {
    text(&output.stderr)
}

#[test]
fn a_stop_lets_sessions_finish_and_nobody_in() {
    let mut server = Served::start(&["--max-sessions", "1", "--drain", "50s"]);
    let running = Client::begin(&server.ticket, &["--time", "2s"]);
    let waiting = Client::spawn(&server.ticket, &["--time", "1s"]);
    server.logged(&["queued"]);
    server.signal(rustix::process::Signal::TERM);
    server.logged(&["stopping", "running=1", "drain_seconds=50"]);
    let stderr = text(&waiting.end().stderr);
    assert!(stderr.contains("lfn: the server is stopping\nhint: try again when it runs again"), "{stderr}");
    assert_refused(&server.test(&["--time", "200ms"]), 1, "the server is stopping");
    let finished = running.end();
    assert!(finished.status.success(), "{}", text(&finished.stderr));
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn sessions_that_take_too_long_are_cut_with_a_word() {
    let mut server = Served::start(&["--drain", "300ms"]);
    let forward = Client::begin(&server.ticket, &["--time", "60s"]);
    let reverse = Client::begin(&server.ticket, &["--time", "60s", "--reverse"]);
    server.signal(rustix::process::Signal::INT);
    for client in [forward, reverse] {
        assert_refused(&client.end(), 1, "the server was stopped: sessions under way were ended after the 300 ms");
    }
    server.logged(&["cut", "sessions=2"]);
    assert_eq!(server.wait().code(), Some(130));
    // A second signal does not wait.
    let mut server = Served::start(&["--drain", "50s"]);
    let client = Client::begin(&server.ticket, &["--time", "60s"]);
    server.signal(rustix::process::Signal::TERM);
    server.logged(&["stopping"]);
    let asked = Instant::now();
    server.signal(rustix::process::Signal::TERM);
    assert_refused(&client.end(), 1, "sessions under way were ended at once");
    assert_eq!(server.wait().code(), Some(0));
    assert!(asked.elapsed() < Duration::from_secs(40), "{:?}", asked.elapsed());
}

#[test]
fn the_log_is_json_a_line_and_the_metrics_agree_with_it() {
    let server = Served::start(&["--log", "json", "--metrics", "127.0.0.1:0"]);
    assert!(server.test(&["--count", "100", "--record", "10000"]).status.success());
    assert!(server.test(&["--count", "50", "--record", "10000", "--reverse", "--streams", "2"]).status.success());
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
    assert_eq!((&opened["asked_streams"], &opened["asked_bytes"]), (&1.into(), &1_000_000.into()));
    assert_eq!((&ended["session"], &ended["bytes"]), (&opened["session"], &1_000_000.into()));
    assert_eq!(reverse["bytes"], 500_000);
    // A stranger is not known by more than its address, and what it says is not repeated as it was said.
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
fn whoever_scrapes_is_bounded_too() {
    let server = Served::start(&["--metrics", "127.0.0.1:0"]);
    assert!(server.http("GET / HTTP/1.1\r\n\r\n").0.starts_with("HTTP/1.1 404 "));
    assert!(server.http("POST /metrics HTTP/1.1\r\n\r\n").0.starts_with("HTTP/1.1 405 "));
    assert!(server.http("nonsense\r\n\r\n").0.starts_with("HTTP/1.1 400 "));
    assert!(server.http(&format!("GET /metrics HTTP/1.1\r\nX: {}", "x".repeat(5000))).0.starts_with("HTTP/1.1 431 "));
    // Four that say nothing hold all places, for five seconds.
    let idle: Vec<TcpStream> = (0..4).map(|_| TcpStream::connect(server.metrics.unwrap()).unwrap()).collect();
    let mut fifth = TcpStream::connect(server.metrics.unwrap()).unwrap();
    fifth.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(fifth.read(&mut [0; 1]).unwrap_or(0), 0, "closed at once");
    drop(idle);
    let answered = (0..500).any(|_| {
        thread::sleep(Duration::from_millis(20));
        std::panic::catch_unwind(|| server.scrape()).is_ok()
    });
    assert!(answered, "their places come back");
}

#[test]
fn systemd_is_told_of_the_start_of_life_and_of_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut command = support::lfn();
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "400000");
    let mut server = Served::run(command, &[]);
    let told = || {
        let mut buffer = [0; 512];
        let length = socket.recv(&mut buffer).unwrap();
        text(&buffer[..length])
    };
    let ready = told();
    assert!(ready.starts_with("READY=1\nSTATUS=serving on 127.0.0.1:"), "{ready}");
    for _ in 0..3 {
        assert_eq!(told(), "WATCHDOG=1\n");
    }
    let client = Client::begin(&server.ticket, &["--time", "1500ms"]);
    server.signal(rustix::process::Signal::TERM);
    while !told().starts_with("STOPPING=1\n") {}
    assert!(client.end().status.success());
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn ten_thousand_connections_cost_what_a_thousand_may_and_honest_ones_are_served() {
    let many = connections_possible().min(10_000);
    let server = Served::start(&["--quiet", "--metrics", "127.0.0.1:0"]);
    let open: Vec<TcpStream> = (0..many).filter_map(|_| TcpStream::connect(server.address).ok()).collect();
    assert!(open.len() * 10 > many * 9, "{} of {many}", open.len());
    // Some of them say a little, and again a little.
    for mut socket in open.iter().rev().take(500) {
        let _ = socket.write_all(&[22, 3, 1, 2, 0, 1]);
    }
    assert!(server.test(&["--count", "10"]).status.success());
    let samples = server.scrape();
    assert!(samples["lfn_connections_open"] <= 4096.0 && samples["lfn_connections_unknown"] <= 1024.0, "{samples:?}");
    assert!(server.status("Threads:") <= 4096, "{}", server.status("Threads:"));
    assert!(server.status("VmHWM:") < 256 * 1024, "{} KiB", server.status("VmHWM:"));
    assert!(server.test(&["--count", "10", "--reverse"]).status.success());
}

/// As many connections as this process may have files for, once it has asked for as many as it may.
fn connections_possible() -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    getrlimit(Resource::Nofile).current.unwrap_or(1 << 20).saturating_sub(200) as usize
}

#[test]
fn a_server_with_few_files_neither_spins_nor_dies() {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 48; exec \"$0\" \"$@\""]).arg(support::lfn_path());
    let server = Served::run(command, &["--quiet"]);
    let crowd: Vec<TcpStream> = (0..300).filter_map(|_| TcpStream::connect(server.address).ok()).collect();
    thread::sleep(Duration::from_millis(300));
    let before = processor_time(server.child.id());
    thread::sleep(Duration::from_secs(1));
    let spent = processor_time(server.child.id()) - before;
    assert!(spent < Duration::from_millis(500), "{spent:?} in a second of nothing to do");
    drop(crowd);
    assert!(server.test(&["--count", "10"]).status.success());
}

/// Of the process so far, in user and system mode.
fn processor_time(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    // utime and stime, proc_pid_stat(5), in ticks of 10 ms.
    Duration::from_millis(10 * (fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()))
}

#[test]
fn a_client_that_never_reads_and_one_that_lies_about_lengths_cost_their_own_session() {
    let server = Served::start(&["--metrics", "127.0.0.1:0"]);
    let target = server.target();
    // Never reads: the server fills the buffers of a reverse test and its control connection's, and goes on.
    let request = TestRequest {
        direction: lfn_core::wire::test::Direction::Reverse,
        interval: Duration::from_millis(10),
        ..TestRequest::default()
    };
    let deaf = hold(&target, Request::Test(Box::new(request)));
    // Announces a file of 4 EiB, a message of 4 GiB, and sends neither.
    let offer = Offer { name: "x".into(), bytes: Bytes(1 << 62) };
    let request =
        CopyRequest { job: Job::Put { offer, to: To::Null }, streams: 1, block: Bytes(1 << 20), congestion: None };
    let liar = hold(&target, Request::Copy(request));
    let mut raw = TcpStream::connect(server.address).unwrap();
    raw.write_all(&[22, 3, 3, 0xff, 0xff, 1, 0xff, 0xff, 0xff]).unwrap();
    for _ in 0..3 {
        assert!(server.test(&["--count", "10"]).status.success());
    }
    assert!(server.status("VmHWM:") < 128 * 1024, "{} KiB", server.status("VmHWM:"));
    drop((deaf, liar, raw));
    let freed = (0..500).any(|_| {
        thread::sleep(Duration::from_millis(20));
        server.scrape()["lfn_sessions_running"] == 0.0
    });
    assert!(freed, "their places come back");
}

/// A session with its one data stream, of which neither end hears anything more.
fn hold(target: &Target, request: Request) -> (Control, DataStream) {
    let session = dial::new_session_id().unwrap();
    let control = dial::control(target, session, request).unwrap();
    (control, dial::data(target, session, 0, Protection::Clear, None, |_| Ok(())).unwrap())
}

/// `LFN_SESSIONS` says how many; `bench/serve-idle` asks for a thousand in a release build.
#[test]
fn idle_sessions_cost_little() {
    let many: usize = std::env::var("LFN_SESSIONS").map_or(200, |many| many.parse().unwrap());
    connections_possible();
    let limits = ["--max-sessions", "100000", "--client-sessions", "100000", "--max-clients", "100000"];
    let more = ["--all-streams", "100000", "--client-streams", "100000", "--quiet", "--client-queue", "100000"];
    for (kind, flags) in [("running", &limits[..]), ("queued", &["--max-sessions", "1", "--queue", "100000"])] {
        let server = Served::start(&[flags, &more, &["--metrics", "127.0.0.1:0"]].concat());
        let target = server.target();
        let empty = server.status("VmRSS:");
        let request = || {
            let load = Load::TimeSeconds(Duration::from_secs(3600));
            Request::Test(Box::new(TestRequest { load, interval: Duration::from_secs(3600), ..TestRequest::default() }))
        };
        let sessions: Vec<_> = (0..many).map(|_| hold(&target, request())).collect();
        let arrived = (0..1000).any(|_| {
            thread::sleep(Duration::from_millis(20));
            let samples = server.scrape();
            samples["lfn_sessions_running"] + samples["lfn_sessions_queued"] == many as f64
        });
        assert!(arrived, "{many} sessions are there");
        thread::sleep(Duration::from_millis(500));
        let (resident, threads) = (server.status("VmRSS:"), server.status("Threads:"));
        println!("{many} sessions {kind}: {resident} KiB resident ({empty} before), {threads} threads");
        assert!(resident < 64 * 1024 * (many as u64).div_ceil(1000), "{resident} KiB for {many} sessions {kind}");
        drop(sessions);
    }
}
