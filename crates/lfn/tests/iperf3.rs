//! iperf3's protocol against Debian's iperf3, in both roles and every mode. What is counted must agree to the byte
//! wherever the protocol lets it; nothing here depends on how fast this machine is.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking, its helpers too")]

mod support;

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, ExitCode, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der, PublicKeyX509Der};
use aws_lc_rs::rsa::{KeySize, PrivateDecryptingKey};
use data_encoding::BASE64;
use lfn_core::iperf3::auth::{Claim, Users};
use lfn_core::iperf3::datagram::Width;
use lfn_core::iperf3::{End, Output as ServerOutput, Parameters, Protocol, Way};
use lfn_core::units::{BitRate, Bytes};
use lfn_core::wire::test::Direction;
use lfn_net::iperf3::client::{self, Outcome, Test};
use lfn_net::iperf3::rsa;
use serde_json::Value;
use support::server::{assert_refused, interrupted, kill, under_way};
use support::{Needs, eventually, stderr, stdout};
use tempfile::TempDir;

fn main() -> ExitCode {
    let iperf3 = Needs::Programs(&["iperf3", "timeout"]);
    support::run(&[
        ("stock_clients_agree_on_what_is_counted", iperf3, stock_clients_agree_on_what_is_counted),
        ("stock_clients_agree_on_what_is_timed", iperf3, stock_clients_agree_on_what_is_timed),
        ("stock_clients_send_and_take_datagrams", iperf3, stock_clients_send_and_take_datagrams),
        ("stock_clients_see_the_servers_output", iperf3, stock_clients_see_the_servers_output),
        ("stock_clients_show_who_they_are", iperf3, stock_clients_show_who_they_are),
        ("many_stock_clients_at_once_and_more_than_fit", iperf3, many_stock_clients_at_once_and_more_than_fit),
        ("limits_of_the_server_are_told_stock_clients", iperf3, limits_of_the_server_are_told_stock_clients),
        ("stock_servers_agree_on_what_is_counted", iperf3, stock_servers_agree_on_what_is_counted),
        ("stock_servers_agree_in_every_other_mode", iperf3, stock_servers_agree_in_every_other_mode),
        ("stock_servers_are_shown_interval_by_interval", iperf3, stock_servers_are_shown_interval_by_interval),
        ("stock_servers_take_the_flags_of_the_load", iperf3, stock_servers_take_the_flags_of_the_load),
        ("an_interrupt_ends_a_test_with_a_stock_server", iperf3, an_interrupt_ends_a_test_with_a_stock_server),
        ("stock_servers_are_told_who_comes", iperf3, stock_servers_are_told_who_comes),
        ("a_busy_stock_server_is_named", iperf3, a_busy_stock_server_is_named),
        ("both_of_our_ends_understand_each_other", Needs::Nothing, both_of_our_ends_understand_each_other),
        ("what_iperf3_cannot_carry_is_refused", Needs::Nothing, what_iperf3_cannot_carry_is_refused),
    ])
}

/// `lfn serve --iperf3` on free ports, stopped when dropped.
struct Server {
    child: Child,
    port: u16,
}

impl Server {
    fn start(flags: &[&str]) -> Server {
        let mut command = support::lfn();
        command.args(["serve", "--ephemeral", "--quiet", "--port", "0", "--bind", "127.0.0.1", "--iperf3=0", "--json"]);
        let mut child = command.args(flags).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let object: Value = serde_json::from_str(&line).unwrap();
        let address = object["iperf3"].as_str().unwrap();
        Server { child, port: address.rsplit_once(':').unwrap().1.parse().unwrap() }
    }

    /// A stock client's report, as JSON.
    fn stock(&self, flags: &str) -> Value {
        let output = stock(self.port, flags, &[]);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{flags}: {error}: {}", stdout(&output)))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn stock(port: u16, flags: &str, environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new("timeout");
    command.args(["60", "iperf3", "-c", "127.0.0.1", "-J", "-p", &port.to_string()]);
    command.args(flags.split_whitespace()).envs(environment.iter().copied()).output().unwrap()
}

/// A stock server for one test, which prints its report as JSON; stopped when dropped.
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

    /// What it has to say, when its test is over.
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

/// Whether somebody listens on a TCP port, by the kernel's table: a connection would be taken for a client.
fn listens(port: u16) -> bool {
    let entry = format!(":{port:04X}");
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().filter_map(|file| fs::read_to_string(file).ok()).any(|table| {
        table.lines().any(|line| {
            let mut words = line.split_whitespace().skip(1);
            words.next().is_some_and(|local| local.ends_with(&entry)) && words.nth(1) == Some("0A")
        })
    })
}

/// `lfn test --iperf3` with nothing of the surroundings.
fn lfn_test(port: u16, flags: &[&str]) -> Output {
    let mut command = support::lfn();
    command.env("HOME", "/nonexistent").env_remove("XDG_CONFIG_HOME").env_remove("LFN_PATH").env_remove("LFN_EMULATED");
    command.args(["test", "--iperf3", &format!("127.0.0.1:{port}")]).args(flags).output().unwrap()
}

fn lfn_json(port: u16, flags: &[&str]) -> Value {
    let output = lfn_test(port, &[flags, &["--json"]].concat());
    assert!(output.status.success(), "{flags:?}: {}", stderr(&output));
    let mut document: Value = serde_json::from_slice(&output.stdout).unwrap();
    document["runs"][0].take()
}

fn bytes(report: &Value, sum: &str) -> u64 {
    report["end"][sum]["bytes"].as_u64().unwrap_or_else(|| panic!("no bytes in {sum}: {}", report["end"]))
}

fn without_error(report: &Value, flags: &str) {
    assert_eq!(report["error"], Value::Null, "{flags}");
}

fn stock_clients_agree_on_what_is_counted() {
    let server = Server::start(&[]);
    let least = 2_000_000;
    for flags in [
        "-n 2000000",
        "-k 20",
        "-n 2000000 -P 3",
        "-n 2000000 -R",
        "-n 2000000 -R -P 2",
        "-n 2000000 -R -Z",
        "-n 2000000 -Z -N -M 1000 -l 50K -w 200K -C reno -S 0x10",
        "-n 2000000 --repeating-payload",
    ] {
        let report = server.stock(flags);
        without_error(&report, flags);
        let (sent, received) = (bytes(&report, "sum_sent"), bytes(&report, "sum_received"));
        assert_eq!(sent, received, "{flags}");
        assert!(received >= least, "{flags}: {received}");
    }
}

fn stock_clients_agree_on_what_is_timed() {
    let server = Server::start(&[]);
    for flags in ["-t 1", "-t 1 -P 3"] {
        let report = server.stock(flags);
        without_error(&report, flags);
        // What was still on its way is waited for.
        assert_eq!(bytes(&report, "sum_sent"), bytes(&report, "sum_received"), "{flags}");
    }
    let both = server.stock("-t 1 --bidir -P 2");
    without_error(&both, "--bidir");
    assert_eq!(bytes(&both, "sum_sent"), bytes(&both, "sum_received"));
    for report in [&both, &server.stock("-t 1 -R -b 8M")] {
        let suffix = if report["end"]["sum_sent_bidir_reverse"].is_object() { "_bidir_reverse" } else { "" };
        let (sent, received) = (format!("sum_sent{suffix}"), format!("sum_received{suffix}"));
        assert!(bytes(report, &received) > 0 && bytes(report, &sent) >= bytes(report, &received), "{suffix}");
    }
    let paced = server.stock("-t 1 -R -b 8M -l 10K");
    // A busy machine may have sent less; nothing makes it send twice as much.
    assert!(bytes(&paced, "sum_sent") < 2_000_000, "{}", paced["end"]["sum_sent"]);
    let omitted = server.stock("-t 1 -O 1");
    without_error(&omitted, "-O");
    let seconds = omitted["end"]["sum_received"]["seconds"].as_f64().unwrap();
    assert!((0.5..1.9).contains(&seconds), "the warm-up is not counted: {seconds}");
}

fn stock_clients_send_and_take_datagrams() {
    let server = Server::start(&[]);
    for flags in [
        "-u -n 200000 -b 4M -l 1000",
        "-u -k 200 -b 4M -l 1000 --udp-counters-64bit",
        "-u -t 1 -b 1M -l 1000 -R -P 2",
        "-u -t 1 -b 1M -l 1000 --bidir --udp-counters-64bit",
        "-u -t 1 -b 1M -l 1000 -R --repeating-payload",
    ] {
        let report = server.stock(flags);
        without_error(&report, flags);
        for suffix in ["", "_bidir_reverse"] {
            let sum = &report["end"][format!("sum_received{suffix}")];
            if sum.is_null() {
                continue;
            }
            let (sent, received) =
                (bytes(&report, &format!("sum_sent{suffix}")), bytes(&report, &format!("sum_received{suffix}")));
            assert!(received > 0 && received <= sent, "{flags}: {received} of {sent}");
            let reverse = flags.contains("-R") || !suffix.is_empty();
            // At the end of a reverse test some may be on their way; else what is not lost is there.
            if !reverse && report["end"]["sum"]["lost_packets"] == 0 {
                assert_eq!(received, sent, "{flags}");
            }
        }
    }
}

fn stock_clients_see_the_servers_output() {
    let report = Server::start(&[]).stock("-t 1 -P 2 --get-server-output --title evening");
    let text = report["server_output_text"].as_str().unwrap();
    assert!(text.starts_with("Accepted connection from 127.0.0.1") && text.contains("receiver"), "{text}");
    assert_eq!(text.matches("connected to").count(), 2, "{text}");
    let report = Server::start(&["--iperf3-json"]).stock("-n 2000000 -R --get-server-output");
    let output = &report["server_output_json"];
    assert_eq!(output["end"]["streams"][0]["sender"]["bytes"], bytes(&report, "sum_sent"));
    assert!(output["intervals"].is_array() && output["start"]["cookie"].as_str().unwrap().len() == 36, "{output}");
}

/// A server's keys and the users that may come, as files.
struct Keys {
    directory: TempDir,
}

impl Keys {
    fn new() -> Keys {
        let directory = TempDir::new().unwrap();
        let key = PrivateDecryptingKey::generate(KeySize::Rsa2048).unwrap();
        let private = AsDer::<Pkcs8V1Der<'_>>::as_der(&key).unwrap();
        let public = AsDer::<PublicKeyX509Der<'_>>::as_der(&key.public_key()).unwrap();
        let pem = |label: &str, der: &[u8]| {
            let text = BASE64.encode(der);
            let lines: Vec<&str> = text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
            format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
        };
        let claim = Claim { user: "mario".into(), password: "rossi".into(), time: 0 };
        let users = Users::line("mario", &rsa::hash(&claim));
        for (name, text) in [
            ("private", pem("PRIVATE KEY", private.as_ref())),
            ("public", pem("PUBLIC KEY", public.as_ref())),
            ("users", users),
        ] {
            fs::write(directory.path().join(name), text).unwrap();
        }
        Keys { directory }
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().unwrap().to_owned()
    }
}

fn stock_clients_show_who_they_are() {
    let keys = Keys::new();
    let (users, key, public) = (keys.path("users"), keys.path("private"), keys.path("public"));
    // Debian's 3.12 knows the older padding alone.
    let server = Server::start(&["--iperf3-users", &users, "--iperf3-key", &key, "--iperf3-pkcs1"]);
    let flags = format!("-n 1000000 --username mario --rsa-public-key-path {public}");
    let report = |server: &Server, flags: &str, password: &str| -> Value {
        let output = stock(server.port, flags, &[("IPERF3_PASSWORD", password)]);
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let good = report(&server, &flags, "rossi");
    without_error(&good, &flags);
    assert_eq!(bytes(&good, "sum_sent"), bytes(&good, "sum_received"));
    let refused = |report: &Value| {
        let error = report["error"].as_str().unwrap_or_default();
        assert!(error.contains("authorization"), "{error}");
    };
    refused(&report(&server, &flags, "verdi"));
    refused(&report(&server, &flags.replace("mario", "luigi"), "rossi"));
    refused(&report(&server, "-n 1000000", ""));
    let strict = Server::start(&["--iperf3-users", &users, "--iperf3-key", &key]);
    refused(&report(&strict, &flags, "rossi"));
}

fn many_stock_clients_at_once_and_more_than_fit() {
    let server = Server::start(&["--max-sessions", "4", "--client-sessions", "4"]);
    let reports: Vec<Value> = std::thread::scope(|scope| {
        let flags = |n: u32| ["-n 1M", "-n 1M -R", "-u -n 100K -b 10M -l 1000"][n as usize % 3];
        let server = &server;
        let clients: Vec<_> = (0..10).map(|n| scope.spawn(move || server.stock(flags(n)))).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    for report in reports {
        without_error(&report, "one of ten");
        assert!(bytes(&report, "sum_received") > 0);
    }
}

fn limits_of_the_server_are_told_stock_clients() {
    let server = Server::start(&["--max-test-time", "5s", "--max-streams", "2", "--deny", "192.0.2.0/24"]);
    for (flags, says) in [("-t 20", "test duration too long"), ("-t 1 -P 3", "number of parallel streams too large")] {
        let report = server.stock(flags);
        assert!(report["error"].as_str().is_some_and(|error| error.contains(says)), "{flags}: {report}");
    }
    let denied = Server::start(&["--deny", "127.0.0.0/8"]);
    assert!(denied.stock("-n 1M")["error"].is_string());
    // None of this harmed it.
    without_error(&server.stock("-n 1M"), "-n 1M");
}

fn stock_servers_agree_on_what_is_counted() {
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
        // The time the server was given to read what it had is not its time.
        let (ours, its) = (&run["far"]["elapsed_seconds"], &report["end"]["sum_received"]["seconds"]);
        assert!(ours.as_f64().unwrap() < its.as_f64().unwrap(), "{ours} and {its}");
    }
    let server = StockServer::start(&["-J"]);
    let run = lfn_json(server.port, &["-k", "20", "-l", "100000", "-R"]);
    let report = server.report();
    // It sends until it hears that this was enough.
    assert_eq!(run["far"]["bytes"], report["end"]["sum_sent"]["bytes"]);
    let (got, sent) = (run["near"]["bytes"].as_u64().unwrap(), run["far"]["bytes"].as_u64().unwrap());
    assert!((2_000_000..=sent).contains(&got), "{got} of {sent}");
    assert_eq!(run["far"]["kernel"], Value::Null);
    assert!(run["near"]["streams"][0]["tcp_info"].is_object());
}

/// One test by the library, beside the report of a stock server.
fn drive(parameters: Parameters, server: &[&str]) -> (Outcome, Value) {
    let server = StockServer::start(&[&["-J"], server].concat());
    let test = test(parameters);
    let mut intervals = 0;
    let outcome = client::run("127.0.0.1", server.port, &test, &mut |_| intervals += 1);
    let outcome = outcome.unwrap_or_else(|error| panic!("{:?}: {error}", test.parameters));
    assert!(intervals > 1, "progress was told");
    (outcome, server.report())
}

fn test(parameters: Parameters) -> Test {
    let within = Duration::from_secs(30);
    let interval = Duration::from_millis(200);
    Test { parameters, login: None, interval, within, queue: within, from: Vec::new(), stop: Arc::default() }
}

fn stock_servers_agree_in_every_other_mode() {
    let second = End::Time(Duration::from_secs(1));
    let base = Parameters { end: second, length: Bytes(10_000), ..Parameters::default() };
    let (outcome, report) =
        drive(Parameters { way: Way::Both, streams: 2, rate: Some(BitRate(20_000_000)), ..base.clone() }, &[]);
    let directions: Vec<Direction> = outcome.runs.iter().map(|(run, _)| run.request.direction).collect();
    assert_eq!(directions, [Direction::Forward, Direction::Reverse]);
    assert_eq!(outcome.runs[0].0.far.bytes, bytes(&report, "sum_received"));
    assert_eq!(outcome.runs[1].0.far.bytes, bytes(&report, "sum_sent_bidir_reverse"));
    assert!(outcome.runs[1].0.near.bytes > 0);

    let omit = Parameters { omit: Duration::from_secs(1), rate: Some(BitRate(8_000_000)), ..base.clone() };
    let (outcome, _) = drive(omit, &[]);
    let (run, _) = &outcome.runs[0];
    assert!(run.near.bytes < 2_000_000 && run.near.elapsed < Duration::from_millis(1900), "{:?}", run.near.elapsed);

    let all = Parameters {
        end: End::Blocks(100),
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
    assert_eq!((outcome.runs[0].0.far.bytes, bytes(&report, "sum_received")), (1_000_000, 1_000_000));
    assert_eq!(outcome.runs[0].1.far_congestion.as_deref(), Some("reno"));
    assert!(matches!(outcome.output, Some(ServerOutput::Json(_))), "{:?}", outcome.output);
    let socket = outcome.runs[0].0.near.streams[0].socket.as_ref().unwrap();
    assert_eq!((socket.congestion.as_str(), socket.sndbuf_granted_bytes), ("reno", Bytes(200_000)));

    let udp = Parameters { protocol: Protocol::Udp, length: Bytes(1000), rate: Some(BitRate(2_000_000)), ..base };
    for (way, width) in [(Way::Forward, Width::Narrow), (Way::Reverse, Width::Wide), (Way::Both, Width::Narrow)] {
        let (outcome, _) = drive(Parameters { way, width, streams: 2, ..udp.clone() }, &[]);
        for (run, remarks) in &outcome.runs {
            let stream = &remarks.streams[0];
            let (sent, lost) = (stream.datagrams.unwrap(), stream.lost_datagrams.unwrap());
            assert!(sent > 0 && lost <= sent && stream.received_bytes <= stream.sent_bytes, "{way:?}: {stream:?}");
            assert_eq!(stream.sent_bytes, sent * 1000, "{way:?}");
            assert_eq!(remarks.retransmits, None);
            assert!(run.sender().bytes >= run.receiver().bytes);
        }
    }
}

/// Lines of both directions, and of datagrams that this end receives; of others it is said that there are none.
fn stock_servers_are_shown_interval_by_interval() {
    let untold = "does not tell what arrived in which interval";
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
        assert_eq!(text.contains(untold), flags.contains(&"-u") && (at_once || !reverse), "{flags:?}: {text}");
    }
}

fn stock_servers_take_the_flags_of_the_load() {
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
    // What the server made of it is not told.
    assert_eq!((&run["near"]["mode"], &run["far"]["mode"]), (&"no_copy".into(), &Value::Null));

    let server = StockServer::start(&["-J"]);
    let output = lfn_test(server.port, &["--json", "--bidir", "-t", "1s", "-P", "2"]);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(&output)));
    let (report, runs) = (server.report(), document["runs"].as_array().unwrap());
    assert_eq!((&runs[0]["direction"], &runs[1]["direction"]), (&"forward".into(), &"reverse".into()));
    assert!(runs.iter().all(|run| run["at_once"] == true && run["near"]["bytes"].as_u64() > Some(0)));
    assert_eq!(runs[0]["far"]["bytes"], report["end"]["sum_received"]["bytes"]);
    assert_eq!(runs[1]["far"]["bytes"], report["end"]["sum_sent_bidir_reverse"]["bytes"]);

    let server = StockServer::start(&["-J"]);
    let run = lfn_json(server.port, &["-R", "-t", "1s", "--pacing", "8mbit"]);
    // A busy machine may have sent less; nothing makes it send twice as much.
    assert!((1..2_500_000).contains(&run["near"]["bytes"].as_u64().unwrap()), "{}", run["near"]["bytes"]);

    // It listens for plain TCP alone.
    let server = StockServer::start(&["-J"]);
    let run = lfn_json(server.port, &["--mptcp", "--bytes", "1MB"]);
    assert_eq!(run["far"]["bytes"], 1_000_000);
    let socket = &run["near"]["streams"][0]["socket"];
    assert_eq!((&socket["mptcp_asked"], &socket["mptcp_subflows"]), (&true.into(), &Value::Null));
}

fn an_interrupt_ends_a_test_with_a_stock_server() {
    for flags in [&["-t", "60s"][..], &["--bytes", "1TB", "-R"]] {
        let server = StockServer::start(&["-J"]);
        let address = format!("127.0.0.1:{}", server.port);
        let (code, events, said) =
            interrupted(under_way(&["test", "--iperf3", &address], flags), 1, |pid| kill("INT", pid));
        assert_eq!(code, Some(130), "{flags:?}: {said}");
        let run = &events.last().unwrap()["result"]["runs"][0];
        assert_eq!(run["ended"], "interrupted", "{flags:?}");
        assert!(run["bytes"].as_u64() > Some(0), "{flags:?}");
        // It ended as after any test.
        assert_eq!(server.report()["error"], Value::Null, "{flags:?}");
    }
}

fn stock_servers_are_told_who_comes() {
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

fn a_busy_stock_server_is_named() {
    let server = StockServer::start(&["-J"]);
    let first = test(Parameters { end: End::Time(Duration::from_secs(30)), ..Parameters::default() });
    let (port, running) = (server.port, std::sync::mpsc::channel());
    std::thread::spawn(move || {
        // It ends when the server does.
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

fn both_of_our_ends_understand_each_other() {
    let server = Server::start(&[]);
    for way in [Way::Forward, Way::Reverse, Way::Both] {
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            let parameters = Parameters {
                way,
                protocol,
                end: End::Blocks(50),
                length: Bytes(1000),
                streams: 2,
                rate: (protocol == Protocol::Udp).then_some(BitRate(4_000_000)),
                server_output: true,
                ..Parameters::default()
            };
            let outcome = client::run("127.0.0.1", server.port, &test(parameters), &mut |_| {}).unwrap();
            assert!(matches!(outcome.output, Some(ServerOutput::Text(_))));
            for (run, _) in outcome.runs {
                assert!(run.receiver().bytes <= run.sender().bytes, "{way:?} {protocol:?}");
                if way == Way::Forward && protocol == Protocol::Tcp {
                    assert_eq!((run.near.bytes, run.far.bytes), (50_000, 50_000));
                }
            }
        }
    }
    let run = lfn_json(server.port, &["-k", "20", "-l", "100000", "-R"]);
    assert_eq!((&run["near"]["bytes"], &run["far"]["bytes"]), (&2_000_000.into(), &2_000_000.into()));
    for flags in [&["--udp", "--pacing", "2mbit", "-t", "1s"][..], &["--udp", "--pacing", "2mbit", "-t", "1s", "-R"]] {
        let run = lfn_json(server.port, flags);
        let stream = &run["iperf3"]["streams"][0];
        assert!(stream["datagrams"].as_u64().unwrap() > 0 && stream["lost_datagrams"].is_u64(), "{stream}");
        assert_eq!(run["iperf3"]["protocol"], "udp");
        // Of a path that nobody told the rate of nothing is predicted, and of a busy host something may be found.
        assert_eq!(run["predicted"], Value::Null);
        let page = lfn_test(server.port, flags);
        assert!(stdout(&page).contains("datagrams lost"), "{}", stdout(&page));
    }
    let run = lfn_json(server.port, &["--udp", "--pacing", "2mbit", "-t", "1s", "--rate", "1gbit"]);
    assert_eq!(
        (&run["predicted"]["limited_by"], &run["predicted"]["goodput_bits_per_second"]),
        (&"asked rate".into(), &2_000_000.into())
    );
    // Datagrams go as they are sent; what the conversation takes afterwards is no time of theirs.
    assert_eq!(run["far"]["elapsed_seconds"], run["near"]["elapsed_seconds"]);
    // Far more than any machine sends.
    let run = lfn_json(server.port, &["--udp", "--pacing", "100gbit", "-P", "4", "-t", "1s"]);
    let causes: Vec<_> =
        run["findings"].as_array().unwrap().iter().map(|found| found["name"].as_str().unwrap()).collect();
    assert!(causes.contains(&"slow sender"), "{causes:?}");
    let output = lfn_test(server.port, &["-t", "1s", "--interval", "200ms", "--iperf3-server-output"]);
    let page = stdout(&output);
    assert!(output.status.success(), "{}", stderr(&output));
    for words in ["goodput", "buffers unknown", "iperf3 does not tell", "server output:", "Accepted connection"] {
        assert!(page.contains(words), "{words}: {page}");
    }
}

fn what_iperf3_cannot_carry_is_refused() {
    let cases: [(&[&str], &str); 7] = [
        (&["--streams", "200"], "200 streams"),
        (&["--near-sndbuf", "50000"], "buffers of one end alone"),
        (&["--sndbuf", "50000", "--rcvbuf", "60000"], "several sizes"),
        (&["--time", "1500ms"], "no whole seconds"),
        (&["--iperf3-user", "mario"], "--iperf3-rsa-public-key"),
        (&["--iperf3-user", "mario", "--iperf3-rsa-public-key", "/nonexistent"], "/nonexistent"),
        (&["far"], "cannot be used with"),
    ];
    for (flags, says) in cases {
        let output = lfn_test(1, flags);
        let text = stderr(&output);
        assert!(!output.status.success() && text.contains(says) && text.contains("hint: "), "{flags:?}: {text}");
    }
    let cannot = [
        (&["--near-no-copy"][..], "no copying at one end alone"),
        (&["--until", "2%"], "an end found in the figures"),
        (&["--check"], "payload of our own kind"),
        (&["--blocks"], "payload of our own kind"),
        (&["--latency"], "probes"),
        (&["--pacing", "1mbit,2mbit"], "another option for each stream"),
    ];
    for (flags, says) in cannot {
        assert_refused(&lfn_test(1, flags), 2, &format!("--iperf3: {says}"));
    }
    assert_refused(&lfn_test(1, &["--bind", "192.0.2.7"]), 1, "192.0.2.7");
    let mut command = support::lfn();
    let output = command.args(["serve", "--ephemeral", "--iperf3", "--iperf3-users", "/nonexistent"]).output().unwrap();
    assert!(!output.status.success() && stderr(&output).contains("iperf3-key"), "{}", stderr(&output));
}
