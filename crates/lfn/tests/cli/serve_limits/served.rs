//! A server with a readable log and metrics, and clients for it.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use lfn_session::Ticket;
use lfn_session::dial::Target;
use lfn_session::queue::QueueOptions;
use serde_json::Value;

use crate::support;
use crate::support::schema::assert_valid;
use crate::support::server::{test, text};

pub const PATIENCE: Duration = Duration::from_secs(60);

/// A server with a readable log and metrics.
pub struct Served {
    pub child: Child,
    pub ticket: String,
    pub address: SocketAddr,
    pub metrics: Option<SocketAddr>,
    pub iperf3: Option<SocketAddr>,
    pub log: Receiver<String>,
}

impl Served {
    pub fn start(flags: &[&str]) -> Served {
        Served::run(support::lfn(), flags)
    }

    /// Runs `command` as `lfn`.
    pub fn run(mut command: Command, flags: &[&str]) -> Served {
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
        Served {
            child,
            ticket,
            address: address(&json["listen"]).unwrap(),
            metrics: address(&json["metrics"]),
            iperf3: address(&json["iperf3"]),
            log,
        }
    }

    pub fn test(&self, flags: &[&str]) -> Output {
        test(&self.ticket, flags)
    }

    pub fn target(&self) -> Target {
        let mut target = Target::new(self.ticket.parse::<Ticket>().unwrap()).unwrap();
        target.connect_timeout = PATIENCE;
        target.queue = QueueOptions { max_wait: PATIENCE, ..QueueOptions::default() };
        target
    }

    /// Returns the next line of the log that contains all of these parts.
    pub fn logged(&self, parts: &[&str]) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let line = self.log.recv_timeout(deadline.saturating_duration_since(Instant::now()));
            let line = line.unwrap_or_else(|_| panic!("never logged: {parts:?}"));
            if line.starts_with('{') {
                assert_valid("lfn.serve.log.1", &serde_json::from_str(&line).unwrap());
            }
            if parts.iter().all(|part| line.contains(part)) {
                return line;
            }
        }
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    pub fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("the server did not end")
    }

    /// Returns a figure of `/proc/PID/status`, for example `RssAnon:` in KiB.
    pub fn status(&self, field: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }

    /// Scrapes the metrics and parses them strictly.
    pub fn scrape(&self) -> HashMap<String, f64> {
        let (head, body) = self.http("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.contains("Content-Type: text/plain; version=0.0.4"), "{head}");
        parse_page(&body)
    }

    pub fn http(&self, request: &str) -> (String, String) {
        let mut socket = TcpStream::connect(self.metrics.unwrap()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        // Unread bytes of a too long header reset the connection after the answer.
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

/// A running client that has printed its first interval.
pub struct Client {
    pub child: Child,
    pub rest: Option<BufReader<std::process::ChildStdout>>,
}

impl Client {
    pub fn begin(ticket: &str, flags: &[&str]) -> Client {
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

    pub fn spawn(ticket: &str, flags: &[&str]) -> Client {
        let mut command = support::lfn();
        command.env("HOME", "/nonexistent").env_remove("XDG_CONFIG_HOME").env_remove("LFN_PATH");
        command.args(["test", ticket, "--interval", "100ms"]).args(flags);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let rest = child.stdout.take().map(BufReader::new);
        Client { child, rest }
    }

    /// Starts a client that keeps its place on the server until it is killed, however slow this host is.
    pub fn hold(ticket: &str) -> Client {
        Client::begin(ticket, &["--time", "60s"])
    }

    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn end(mut self) -> Output {
        let mut page = Vec::new();
        self.rest.take().unwrap().read_to_end(&mut page).unwrap();
        let output = self.child.wait_with_output().unwrap();
        Output { stdout: page, ..output }
    }
}

/// Parses the part of Prometheus's text format 0.0.4 that this server uses. Returns samples by name and labels. Panics
/// on anything else.
pub fn parse_page(page: &str) -> HashMap<String, f64> {
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
