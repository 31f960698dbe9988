//! `lfn test` from outside: the binary with a real `lfn serve` on loopback. The counts of both ends must agree, and no
//! test depends on the speed of the machine.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support;
use crate::support::server::{Server, assert_refused, number, test, test_command, text};
use crate::support::skip::{Missing, skip};

#[test]
fn counted_test_moves_every_byte() {
    let server = Server::start(&[]);
    for flags in [&["--streams", "1"][..], &["--streams", "3"], &["--streams", "2", "--reverse"]] {
        let json = server.json(&[flags, &["--count", "1001", "--length", "10007"]].concat());
        let bytes = 1001 * 10007;
        assert_eq!(number(&json["bytes"]), bytes, "{flags:?}");
        for end in ["near", "far"] {
            let end = &json[end];
            assert_eq!(number(&end["bytes"]), bytes);
            let sum = |list: &Value| list.as_array().unwrap().iter().map(|part| number(&part["bytes"])).sum::<u64>();
            assert_eq!((sum(&end["streams"]), sum(&end["intervals"])), (bytes, bytes), "{flags:?}");
        }
        let (sender, receiver) = (json["sender"].as_str().unwrap(), json["receiver"].as_str().unwrap());
        assert_eq!((sender, receiver), if flags.len() == 3 { ("far", "near") } else { ("near", "far") });
        let kernel = |end: &str, field: &str| -> u64 {
            json[end]["streams"].as_array().unwrap().iter().map(|stream| number(&stream["tcp_info"][field])).sum()
        };
        // The kernel counts the same bytes, plus the hello of a sending client and the end of the stream.
        let streams = json[receiver]["streams"].as_array().unwrap().len() as u64;
        let hellos = if sender == "near" { 56 * streams } else { 0 };
        let beyond = kernel(receiver, "received_bytes") - bytes - hellos;
        assert!(beyond <= streams, "{flags:?}: {beyond} bytes too many");
    }
}

#[test]
fn json_has_both_ends_and_units_in_names() {
    let server = Server::start(&[]);
    let document = server.document(&["--time", "600ms", "--interval", "100ms", "--streams", "2", "--rate", "100gbit"]);
    assert_eq!(document["schema"], "lfn.test/3");
    assert_eq!(document["runs"].as_array().unwrap().len(), 1);
    let json = &document["runs"][0];
    assert_eq!(json["direction"], "forward");
    assert!(number(&json["goodput_bits_per_second"]) > 0);
    assert!(json["base_rtt_seconds"].as_f64().unwrap() > 0.0);
    assert!(json["bdp_bytes"].is_u64() && json["predicted"]["goodput_bits_per_second"].is_u64());
    for end in ["near", "far"] {
        let intervals = json[end]["intervals"].as_array().unwrap();
        assert!(intervals.len() >= 2, "{intervals:?}");
        for interval in intervals {
            let streams = interval["streams"].as_array().unwrap();
            assert_eq!(streams.len(), 2);
            for field in ["rtt_seconds", "cwnd_segments", "snd_wscale", "busy_seconds", "rcv_wnd_bytes"] {
                assert!(streams[0]["tcp_info"][field].is_number(), "{field}");
            }
        }
        assert!(json[end]["cpu"]["system_seconds"].is_number());
        assert!(json[end]["kernel"]["tcp_rmem_bytes"][2].is_u64());
        let socket = &json[end]["streams"][0]["socket"];
        assert!(socket["sndbuf_granted_bytes"].is_u64() && socket["congestion"].is_string());
    }
    assert!(json["findings"].is_array());
    let both = server.document(&["--time", "200ms", "--both"]);
    let directions: Vec<_> = both["runs"].as_array().unwrap().iter().map(|run| run["direction"].clone()).collect();
    assert_eq!(directions, ["forward", "reverse"]);
}

#[test]
fn buffers_are_requested_per_end() {
    let server = Server::start(&[]);
    let flags = ["--near-sndbuf", "50000", "--far-rcvbuf", "60000", "--count", "10", "--congestion", "reno"];
    let json = server.json(&flags);
    let socket = |end: &str| json[end]["streams"][0]["socket"].clone();
    assert_eq!(
        (&socket("near")["sndbuf_requested_bytes"], &socket("near")["sndbuf_granted_bytes"]),
        (&50000.into(), &50000.into())
    );
    assert_eq!(
        (&socket("far")["rcvbuf_requested_bytes"], &socket("far")["rcvbuf_granted_bytes"]),
        (&60000.into(), &60000.into())
    );
    assert_eq!(socket("near")["rcvbuf_requested_bytes"], Value::Null);
    assert_eq!(socket("far")["sndbuf_requested_bytes"], Value::Null);
    assert_eq!(socket("near")["congestion_requested"], "reno");
    // Set before listen, so the scale in the server's answer is that of 60000 bytes.
    assert_eq!(json["window_scale"], 0);
}

#[test]
fn window_is_fixed_with_its_scale() {
    let server = Server::start(&[]);
    for (window, scale, flags) in
        [(65_535, 0, &[][..]), (262_144, 3, &["--reverse"]), (1 << 20, 5, &[]), (3_000_000, 6, &["--streams", "2"])]
    {
        let text = window.to_string();
        let json = server.json(&[&["--window", &text, "--time", "400ms"], flags].concat());
        assert_eq!(json["window_scale"], scale, "{window}");
        let sender = json["sender"].as_str().unwrap();
        for stream in json[sender]["streams"].as_array().unwrap() {
            let offered = number(&stream["tcp_info"]["snd_wnd_bytes"]);
            // Rounded up to the scale, and not more.
            assert!(offered <= window + (1 << scale), "{offered} offered, {window} asked");
        }
    }
}

#[test]
fn limited_buffer_is_a_finding_with_its_sysctl() {
    let server = Server::start(&[]);
    let most: u64 = std::fs::read_to_string("/proc/sys/net/core/rmem_max").unwrap().trim().parse().unwrap();
    if most >= 1 << 30 {
        return skip("limited_buffer_is_a_finding_with_its_sysctl", &Missing::Feature("net.core.rmem_max below 1 GiB"));
    }
    let json = server.json(&["--rcvbuf", &(most + 4096).to_string(), "--time", "200ms"]);
    // The largest gain comes first. On loopback, this buffer does not limit the test, so its finding is the last one.
    let cap = json["findings"].as_array().unwrap().last().expect("a finding");
    assert_eq!((&cap["name"], &cap["gain_bits_per_second"]), (&"kernel buffer limit".into(), &0.into()), "{json}");
    assert_eq!(cap["remedy"]["command"], format!("sysctl -w net.core.rmem_max={}", most + 4096));
    assert_eq!(cap["evidence"]["granted_bytes"], most);
}

#[test]
fn table_has_one_line_per_interval() {
    let server = Server::start(&[]);
    let output = server.test(&["--time", "1s", "--interval", "200ms", "--both"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let page = text(&output.stdout);
    let rows = page.lines().filter(|line| line.trim_start().starts_with(|c: char| c.is_ascii_digit())).count();
    assert!(rows >= 4, "{page}");
    assert_eq!(page.lines().filter(|line| line.starts_with("goodput     ")).count(), 2, "{page}");
    for line in page.lines().filter(|line| !line.starts_with("goodput") && !line.starts_with("also")) {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

#[test]
fn nettest_layout_has_three_lines() {
    let server = Server::start(&[]);
    let output = server.test(&["--output", "nettest", "--count", "100", "--length", "30000"]);
    let page = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let lines: Vec<&str> = page.lines().collect();
    assert!(page.contains("Transfer: 100*30000 bytes from "), "{page}");
    let head = lines.iter().position(|line| line.contains("Kbyte   Mbit(K^2) mbit(1+E6)")).unwrap();
    for (line, name) in lines[head + 1..].iter().zip(["write", "read", "r/w"]) {
        let fields: Vec<&str> = line.split_whitespace().filter(|field| *field != "(").collect();
        assert_eq!((fields[0], fields.len()), (name, 9), "{line}");
        assert!(line.starts_with(&format!("{name:>7} ")) && line.matches("%)").count() == 2, "{line}");
    }
    assert_eq!(lines.len(), head + 4);
}

#[test]
fn ticket_can_come_from_stdin_or_file() {
    let server = Server::start(&[]);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("far.ticket");
    std::fs::write(&file, format!("{}\n", server.ticket)).unwrap();
    let at_file = format!("@{}", file.display());
    let from_stdin = |mut command: Command| command.stdin(std::fs::File::open(&file).unwrap()).output().unwrap();
    let flags = ["--count", "3", "--json"];
    for output in [from_stdin(test_command("-", &flags)), test(&at_file, &flags)] {
        assert!(output.status.success(), "{}", text(&output.stderr));
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(document["origin"]["hosts"]["far"], "127.0.0.1");
    }
    let copy = |to: &str| {
        let mut command = support::lfn();
        command.env("HOME", "/nonexistent").env_remove("XDG_CONFIG_HOME").args(["copy", "zero:1000", to]);
        from_stdin(command)
    };
    for to in ["@-:null:", &format!("{at_file}:null:")] {
        let output = copy(to);
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    std::fs::write(&file, format!("\n \r\n  {}\r\nhunter2\n", server.ticket)).unwrap();
    let output = test(&at_file, &flags);
    assert!(output.status.success(), "blank lines: {}", text(&output.stderr));
    std::fs::write(&file, "\n\n").unwrap();
    assert_refused(&test(&at_file, &flags), 2, "far.ticket contains no ticket");
    // A file without a ticket may contain another secret.
    std::fs::write(&file, "\nhunter2\n").unwrap();
    let output = test(&at_file, &flags);
    assert_refused(&output, 2, "far.ticket, line 2: not a ticket");
    assert!(!text(&output.stderr).contains("hunter2"));
    assert_refused(&test("@/no/such/file", &flags), 1, "@/no/such/file: ");
}

#[test]
fn contradictory_flags_are_refused_before_dialling() {
    let cases: [(&[&str], &str); 18] = [
        (&["--time", "0"], "--time"),
        (&["--time", "-5"], "'-5'"),
        (&["--time", "1e300"], "too large"),
        (&["--time", "soon"], "'soon'"),
        (&["--count", "0"], "--count"),
        (&["--count", "-1"], "'-1'"),
        (&["--count", "99999999999999999999999"], "--count"),
        (&["--count", "18446744073709551615"], "18446744073709551615 records"),
        (&["--time", "5", "--count", "5"], "cannot be combined"),
        (&["--length", "0"], "record size of 0 B"),
        (&["--length", "1TB"], "record size of 1 TB"),
        (&["--streams", "0"], "'0'"),
        (&["--streams", "257"], "'257'"),
        (&["--window", "0"], "receive window of 0 B"),
        (&["--window", "2GiB"], "receive window of 2 GiB"),
        (&["--sndbuf", "0"], "socket buffer"),
        (&["--rate", "10MB/s"], "unknown unit"),
        (&["--omit", "10s"], "--omit"),
    ];
    for (flags, says) in cases {
        assert_refused(&test("lfn://nowhere", flags), 2, says);
    }
    let alone = support::lfn().arg("test").output().unwrap();
    assert_refused(&alone, 2, "<HOST>");
    assert!(text(&alone.stderr).contains("hint: run `lfn serve` on the other host"), "{}", text(&alone.stderr));
    // A flag with another name in iperf3 is refused with the name here.
    let zerocopy = test("lfn://nowhere", &["-Z"]);
    assert_refused(&zerocopy, 2, "'-Z'");
    assert!(text(&zerocopy.stderr).contains("hint: use --near-no-copy"));
}

#[test]
fn unreachable_or_untrusted_server_is_named() {
    let server = Server::start(&[]);
    let damaged = server.ticket.replace("lfn://", "lfn://A");
    assert_refused(&test(&damaged, &[]), 2, "token");
    // A different token in the correct form.
    let (token, rest) = server.ticket["lfn://".len()..].split_once('@').unwrap();
    let flipped = if token.starts_with('A') { "B" } else { "A" };
    let wrong = format!("lfn://{flipped}{}@{rest}", &token[1..]);
    assert_refused(&test(&wrong, &["--time", "200ms"]), 1, "does not know the ticket's token");
    // A different key.
    let (before, fingerprint) = server.ticket.split_once('#').unwrap();
    let flipped = if fingerprint.starts_with('A') { "B" } else { "A" };
    let wrong = format!("{before}#{flipped}{}", &fingerprint[1..]);
    assert_refused(&test(&wrong, &["--time", "200ms"]), 1, "does not match the ticket");
    let unknown = server.ticket.replace("127.0.0.1", "no-such-host.invalid");
    assert_refused(&test(&unknown, &[]), 1, "unknown host 'no-such-host.invalid'");
    assert_refused(&test("no-such-name", &[]), 1, "unknown host 'no-such-name'");
    let ticket = server.ticket.clone();
    drop(server);
    assert_refused(&test(&ticket, &["--time", "200ms"]), 1, "cannot reach 127.0.0.1");
}

#[test]
fn early_failures_print_a_result_in_json() {
    let output = test("no-such-name", &["--json"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&document["schema"], &document["runs"]), (&"lfn.test/3".into(), &serde_json::json!([])));
    assert!(document["error"]["message"].as_str().unwrap().contains("unknown host 'no-such-name'"), "{document}");
    let compared = test("no-such-name", &["--json", "--compare", "--rate", "1gbit"]);
    let document: Value = serde_json::from_slice(&compared.stdout).unwrap();
    assert_eq!((&document["schema"], &document["comparisons"]), (&"lfn.test.compare/1".into(), &serde_json::json!([])));
    assert!(document["error"]["message"].is_string(), "{document}");
}

#[test]
fn tuning_needs_a_capacity_and_fitting_flags() {
    let server = Server::start(&[]);
    assert_refused(&server.test(&["--tuned"]), 2, "--tuned needs the capacity of the path");
    assert_refused(&server.test(&["--compare"]), 2, "--compare needs the capacity of the path");
    let compare = ["--compare", "--rate", "1gbit"];
    for other in [&["--tuned"][..], &["--path"], &["--udp"], &["--bidir"]] {
        assert_refused(&server.test(&[&compare[..], other].concat()), 2, "cannot be used with");
    }
    for (flags, name) in [(["--stamp", "127.0.0.1"], "--stamp"), (["--iperf3", "127.0.0.1"], "--iperf3")] {
        let output = support::lfn().arg("test").args(flags).args(compare).output().unwrap();
        assert_refused(&output, 2, name);
    }
}

#[test]
fn a_finding_repeats_the_test_with_its_flags() {
    let server = Server::start(&[]);
    let most: u64 = std::fs::read_to_string("/proc/sys/net/core/wmem_max").unwrap().trim().parse().unwrap();
    let output = server.test(&["-t", "300ms", "--rate", "100gbit", "--sndbuf", &(most + 4096).to_string(), "-P", "2"]);
    let page = text(&output.stdout);
    let hints: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("hint: lfn test ")).collect();
    for hint in hints {
        assert!(hint.contains("-t 300ms") || hint.contains("--time"), "{page}");
        // The remedy of a busy CPU is another number of streams.
        let has_streams = hint.contains(" -P 2") || hint.contains("--streams");
        assert!(hint.contains("--rate 100gbit") && has_streams, "{page}");
    }
    assert!(!page.contains("   (on "), "a hint is a shell command: {page}");
}

#[test]
fn server_limits_are_reported() {
    let server = Server::start(&["--session-streams", "2", "--test-time", "1s"]);
    let busy = ["--time", "200ms"];
    assert_refused(&server.test(&[&busy[..], &["--streams", "3"]].concat()), 1, "the server allows 2");
    assert_refused(&server.test(&["--time", "2s"]), 1, "the server allows 1 s");
    let output = server.test(&["--count", "1", "--congestion", "nosuch", "--reverse"]);
    assert_refused(&output, 1, "congestion control 'nosuch' is not available");
    // The server still works.
    server.json(&["--count", "10"]);
    let full = Server::start(&["--max-sessions", "1"]);
    let mut first = support::lfn();
    let mut first = first.args(["test", &full.ticket, "--time", "30s"]).stdout(Stdio::piped()).spawn().unwrap();
    // The test runs when it prints its first interval.
    let mut lines = BufReader::new(first.stdout.take().unwrap()).lines();
    while !lines.next().unwrap().unwrap().contains("0.0-") {}
    let second = full.test(&[&busy[..], &["--no-wait"]].concat());
    first.kill().unwrap();
    first.wait().unwrap();
    assert_refused(&second, 1, "the server is full");
}

#[test]
fn killed_server_ends_the_test_in_bounded_time() {
    for flags in [&["--time", "60s"][..], &["--time", "60s", "--reverse"], &["--count", "1000000000000"]] {
        let mut server = Server::start(&[]);
        let mut command = support::lfn();
        command.args(["test", &server.ticket, "--interval", "100ms"]).args(flags);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        while !lines.next().unwrap().unwrap().contains("0.0-") {}
        server.child.kill().unwrap();
        let killed = Instant::now();
        // The pipe must be read to its end, or the client would block.
        lines.for_each(drop);
        let output = child.wait_with_output().unwrap();
        assert!(killed.elapsed() < Duration::from_secs(45), "{flags:?}");
        assert_refused(&output, 1, "the server closed the connection");
    }
}

#[test]
fn missing_evidence_is_printed_only_if_it_is_missing() {
    let server = Server::start(&["--iperf3=0", "--json"]);
    let said: Value = serde_json::from_str(&server.ticket).unwrap();
    let (ticket, address) = (said["ticket"].as_str().unwrap(), said["iperf3"].as_str().unwrap());
    for flags in [&["--time", "2s"][..], &["--time", "2s", "--udp"]] {
        let printed = text(&test(ticket, flags).stdout);
        assert!(printed.contains("goodput") && !printed.contains("not examined"), "{flags:?}: {printed}");
    }
    // An iperf3 server does not report its threads, its interface and its kernel.
    let output = support::lfn().args(["test", "--iperf3", address, "--time", "1s"]).output().unwrap();
    let printed = text(&output.stdout);
    assert!(printed.contains("not examined with an iperf3 server: "), "{printed}");
}
