//! The TCP load of `lfn test`, flag by flag: the kernel, the wire and the reports of both ends must show the requested
//! values. No test depends on the speed of the machine.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support;
use crate::support::harness::{Needs, Test, Weight, tests_of};
use crate::support::rate::Rate;
use crate::support::sandbox::{self, Running};
use crate::support::server::{Server, assert_refused, interrupted, kill, number, start_with_events, text};
use crate::support::skip::{Missing, skip};
use crate::support::{run_scenario, stderr, unwrapped};

/// Name of this module in the names of its tests and roles.
const MODULE: &str = "load";

/// Runs this program as a part of a test.
pub fn act(role: &str) {
    match role {
        "wire" => wire(),
        other => panic!("no role '{other}'"),
    }
}

pub fn tests() -> Vec<Test> {
    let wire = Needs::Programs(&["ip", "tcpdump"]);
    tests_of(
        MODULE,
        Weight::Loaded,
        &[
            ("socket_options_are_reported_by_both_ends", Needs::Nothing, socket_options_are_reported_by_both_ends),
            ("marks_and_segments_are_those_on_the_wire", wire, || run_scenario(MODULE, "wire")),
            ("streams_use_the_bound_addresses", Needs::Nothing, streams_use_the_bound_addresses),
            ("counted_tests_are_exact", Needs::Nothing, counted_tests_are_exact),
            ("bidirectional_test_is_two_complete_tests", Needs::Nothing, bidirectional_test_is_two_complete_tests),
            ("failed_direction_keeps_the_other_result", Needs::Nothing, failed_direction_keeps_the_other_result),
            ("streams_are_reported_in_order", Needs::Nothing, streams_are_reported_in_order),
            ("precision_stops_early_with_the_reason", Needs::Nothing, precision_stops_early_with_the_reason),
            ("data_check_passes_without_errors", Needs::Nothing, data_check_passes_without_errors),
            ("data_check_detects_hidden_corruption", Needs::Namespaces, data_check_detects_hidden_corruption),
            (
                "block_timings_reproduce_the_report_of_1995",
                Needs::Namespaces,
                block_timings_reproduce_the_report_of_1995,
            ),
            ("no_copy_mode_sends_the_same_bytes", Needs::Nothing, no_copy_mode_sends_the_same_bytes),
            ("multipath_tcp_fallback_is_reported", Needs::Nothing, multipath_tcp_fallback_is_reported),
            ("interrupt_prints_the_results_so_far", Needs::Nothing, interrupt_prints_the_results_so_far),
            ("killed_client_frees_its_slot", Needs::Nothing, killed_client_frees_its_slot),
            ("contradictory_settings_are_refused", Needs::Nothing, contradictory_settings_are_refused),
        ],
    )
}

fn streams<'a>(run: &'a Value, end: &str) -> &'a Vec<Value> {
    run[end]["streams"].as_array().unwrap()
}

/// Returns the value of a socket option in each stream of an end.
fn sockets(run: &Value, end: &str, field: &str) -> Vec<Value> {
    streams(run, end).iter().map(|stream| stream["socket"][field].clone()).collect()
}

fn socket_options_are_reported_by_both_ends() {
    let server = Server::start(&[]);
    let flags = ["--bytes", "3MB", "--streams", "2", "--mss", "1000", "--dscp", "AF21"];
    for direction in [&[][..], &["--reverse"]] {
        let flags = [&flags[..], direction, &["--congestion", "reno", "--pacing", "800mbit,400mbit"]].concat();
        let run = server.json(&flags);
        for end in ["near", "far"] {
            assert_eq!(sockets(&run, end, "dscp_granted"), [18, 18], "{end}");
            // Timestamps use twelve of 1000 bytes.
            assert_eq!(sockets(&run, end, "mss_granted_bytes"), [988, 988], "{end}");
            for asked_or_granted in ["requested", "granted"] {
                let field = format!("pacing_{asked_or_granted}_bits_per_second");
                let rates = sockets(&run, end, &field);
                assert!(rates.contains(&json!(800_000_000)) && rates.contains(&json!(400_000_000)), "{end} {rates:?}");
            }
        }
        assert_eq!(sockets(&run, run["sender"].as_str().unwrap(), "congestion"), ["reno", "reno"]);
        let page = unwrapped(&server.test(&flags));
        // The client requests the segment size for both ends.
        for words in ["paced at 800 Mb/s", "DSCP AF21", "MSS 1000 B requested"] {
            assert!(page.contains(words), "{words}: {page}");
        }
    }
    // Without `--pacing` the kernel does not pace, and no line shows a rate.
    let page = text(&server.test(&["--count", "10"]).stdout);
    assert!(!page.contains("options"), "{page}");
}

/// Returns the complete payload packets in a capture: source port, TOS byte, payload length. tcpdump may still write.
fn packets(capture: &Path) -> Vec<(u16, u8, usize)> {
    let bytes = fs::read(capture).unwrap();
    let (mut rest, mut packets) = (bytes.get(24..).unwrap_or_default(), Vec::new());
    while let [_, _, _, _, _, _, _, _, a, b, c, d, _, _, _, _, ..] = rest {
        let length = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
        let Some(ip) = rest.get(16 + 14..16 + length) else { break };
        let tcp = &ip[usize::from(ip[0] & 15) * 4..];
        let payload = usize::from(u16::from_be_bytes([ip[2], ip[3]])) - (ip.len() - tcp.len());
        packets.push((u16::from_be_bytes([tcp[0], tcp[1]]), ip[1], payload - usize::from(tcp[12] >> 4) * 4));
        rest = &rest[16 + length..];
    }
    packets
}

fn wire() {
    sandbox::enter();
    // tcpdump drops its groups before it listens, which a user namespace of an ordinary user forbids.
    if fs::read_to_string("/proc/self/setgroups").unwrap().trim() == "deny" {
        return skip(
            "marks_and_segments_are_those_on_the_wire",
            &Missing::User("root, because tcpdump gives up its groups"),
        );
    }
    sandbox::up("lo");
    // Otherwise the kernel passes super-packets.
    let cut = ["link", "set", "lo", "gso_max_segs", "1"];
    assert!(Command::new("ip").args(cut).status().unwrap().success());
    let server = Server::start(&[]);
    let home = tempfile::tempdir().unwrap();
    for direction in [&[][..], &["--reverse"]] {
        let capture = home.path().join("capture");
        let mut command = Command::new("tcpdump");
        command.args(["-i", "lo", "-n", "-U", "-s", "96", "-Z", "root", "-B", "8192", "-w"]).arg(&capture).arg("tcp");
        let mut tcpdump = Running::start(&mut command);
        tcpdump.says("listening on lo");
        let flags = ["--bytes", "200kB", "--length", "50000", "--mss", "600", "--dscp", "EF"];
        let run = server.json(&[&flags[..], direction].concat());
        // tcpdump writes packets when it reads them, some time later.
        let port = |end: &str| {
            let address = run[end]["streams"][0]["socket"]["local_address"].as_str().unwrap();
            address.rsplit_once(':').unwrap().1.parse::<u16>().unwrap()
        };
        let sender = if direction.is_empty() { port("near") } else { port("far") };
        let stream = port("near");
        let whole = || {
            let load = packets(&capture).into_iter().filter(|(from, tos, _)| *from == sender && *tos == 0xb8);
            load.map(|(_, _, payload)| payload).sum::<usize>() >= 200_000
        };
        assert!(support::eventually(|| capture.exists() && whole()), "{:?}", packets(&capture).len());
        tcpdump.signal("INT");
        tcpdump.end();
        let seen = packets(&capture);
        let longest =
            seen.iter().filter(|(from, tos, _)| *from == sender && *tos == 0xb8).map(|(_, _, length)| *length);
        assert_eq!(longest.max(), Some(588), "{direction:?}");
        // Also packets with only acknowledgements, but not the handshake of a server that has no request yet.
        let marked = |from: u16| seen.iter().filter(|(port, tos, _)| *port == from && *tos == 0xb8).count();
        assert!(marked(stream) > 0 && marked(port("far")) > 0, "both ends are marked");
    }
}

fn streams_use_the_bound_addresses() {
    let server = Server::start(&[]);
    let from = |places: &str| {
        let run = server.json(&["--count", "10", "--streams", "3", "--bind", places]);
        let mut addresses: BTreeMap<u64, String> = BTreeMap::new();
        for stream in streams(&run, "near") {
            let address = stream["socket"]["local_address"].as_str().unwrap();
            addresses.insert(number(&stream["stream"]), address.rsplit_once(':').unwrap().0.to_owned());
        }
        addresses.into_values().collect::<Vec<_>>()
    };
    assert_eq!(from("127.0.0.5"), ["127.0.0.5"; 3]);
    assert_eq!(from("127.0.0.5,127.0.0.6"), ["127.0.0.5", "127.0.0.6", "127.0.0.5"]);
    assert_eq!(from("lo"), ["127.0.0.1"; 3]);
    assert_eq!(from("127.0.0.7%lo"), ["127.0.0.7"; 3]);
    assert_refused(&server.test(&["--bind", "192.0.2.77"]), 1, "192.0.2.77");
    assert_refused(&server.test(&["--bind", "no-such-if0"]), 1, "no-such-if0");
    assert_refused(&server.test(&["--bind", "no/interface"]), 2, "'no/interface'");
}

fn counted_tests_are_exact() {
    let server = Server::start(&[]);
    let cases: [(&[&str], u64); 5] = [
        (&["--bytes", "1"], 1),
        (&["--bytes", "10000001", "--streams", "3"], 10_000_001),
        (&["--bytes", "10000001", "--streams", "3", "--reverse"], 10_000_001),
        (&["--count", "7", "--length", "99999"], 699_993),
        (&["--count", "7", "--length", "99999", "--read-length", "1000", "--streams", "2", "--reverse"], 699_993),
    ];
    for (flags, bytes) in cases {
        let run = server.json(flags);
        for end in ["near", "far"] {
            assert_eq!(number(&run[end]["bytes"]), bytes, "{flags:?}");
            let sum = streams(&run, end).iter().map(|stream| number(&stream["bytes"])).sum::<u64>();
            assert_eq!(sum, bytes, "{flags:?}");
        }
        assert_eq!(run["ended"], "completed");
    }
}

fn bidirectional_test_is_two_complete_tests() {
    let server = Server::start(&[]);
    let document = server.document(&["--bidir", "--bytes", "30MB", "--streams", "2", "--interval", "10ms"]);
    let runs = document["runs"].as_array().unwrap();
    let directions: Vec<_> = runs.iter().map(|run| run["direction"].as_str().unwrap()).collect();
    assert_eq!(directions, ["forward", "reverse"]);
    for run in runs {
        assert_eq!((number(&run["near"]["bytes"]), number(&run["far"]["bytes"])), (30_000_000, 30_000_000));
        assert_eq!((&run["bidirectional"], streams(run, "near").len()), (&true.into(), 2));
    }
    // On the client's clock, each test starts before the other one ends.
    let document = server.document(&["--bidir", "--time", "1s"]);
    let span = |run: &Value| {
        let start = number(&run["near"]["started_nanoseconds"]);
        (start, start + (run["near"]["elapsed_seconds"].as_f64().unwrap() * 1e9) as u64)
    };
    let [one, two] = [0, 1].map(|n| span(&document["runs"][n]));
    assert!(one.0 < two.1 && two.0 < one.1, "{one:?} {two:?}");
    let page = text(&server.test(&["--bidir", "--time", "300ms"]).stdout);
    let places = |begins: &str| -> Vec<usize> {
        page.lines().enumerate().filter(|(_, line)| line.starts_with(begins)).map(|(place, _)| place).collect()
    };
    // One header for the lines of both, and the direction before each summary.
    assert_eq!(places("test ").len(), 1, "{page}");
    assert_eq!(page.lines().filter(|line| line.contains("goodput") && line.contains("resent")).count(), 1, "{page}");
    let words = page.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains(" at once: 300 ms of records of 120 KiB, 1 stream each way"), "{page}");
    let (forward, reverse, goodput) = (places("forward: "), places("reverse: "), places("goodput     "));
    assert_eq!((forward.len(), reverse.len(), goodput.len(), places("path ").len()), (1, 1, 2, 2), "{page}");
    assert!(forward[0] < goodput[0] && goodput[0] < reverse[0] && reverse[0] < goodput[1], "{page}");
    assert!(page.contains("\nreverse: 127.0.0.1 to "), "{page}");
}

fn failed_direction_keeps_the_other_result() {
    // There is room for one of the two tests.
    let server = Server::start(&["--max-sessions", "1"]);
    let begun = Instant::now();
    let output = server.test(&["--bidir", "--time", "60s", "--no-wait", "--json"]);
    assert!(begun.elapsed() < Duration::from_secs(40), "the other does not go on alone");
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let error = document["error"]["message"].as_str().unwrap();
    assert!(error.contains("the server is full"), "{error}");
    let runs = document["runs"].as_array().unwrap();
    // The other test was running, or had not started yet.
    assert!(runs.len() <= 1, "{document}");
    for run in runs {
        assert_eq!(run["ended"], "interrupted", "{document}");
        assert_ne!(
            run["direction"], document["unfinished"]["request"]["direction"],
            "which of them failed is reported"
        );
        assert!(run["far"]["kernel"].is_object(), "both ends of the other are reported");
    }
    // A waiting test would run after the other one, which was not requested.
    let output = server.test(&["--bidir", "--time", "500ms"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("did not run at the same time"), "{}", stderr(&output));
}

/// Sixteen streams dial at once in different threads, so their order is random.
fn streams_are_reported_in_order() {
    let server = Server::start(&[]);
    let numbers = |streams: &Value| -> Vec<u64> {
        streams.as_array().unwrap().iter().map(|stream| number(&stream["stream"])).collect()
    };
    let all: Vec<u64> = (0..16).collect();
    for direction in [&[][..], &["--reverse"]] {
        let run = server.json(&[&["--streams", "16", "--time", "300ms", "--interval", "100ms"], direction].concat());
        for end in ["near", "far"] {
            assert_eq!(numbers(&run[end]["streams"]), all, "{end}");
            let last = run[end]["intervals"].as_array().unwrap().last().unwrap();
            assert_eq!(numbers(&last["streams"]), all, "{end}");
        }
    }
}

fn precision_stops_early_with_the_reason() {
    let server = Server::start(&[]);
    // A paced test soon reaches its precision. The machine may disturb it for a while, but not for a minute.
    let flags = ["--precision", "5%", "--pacing", "80mbit", "--interval", "200ms", "--length", "8192"];
    for direction in [&[][..], &["--reverse"]] {
        let run = server.json(&[&flags[..], direction].concat());
        assert_eq!(run["ended"], "converged", "{}", run["estimate"]);
        assert!(run["elapsed_seconds"].as_f64().unwrap() < 55.0);
        let known = &run["estimate"];
        assert!(known["half_width"].as_f64().unwrap() <= 0.051, "{known}");
        assert!(number(&known["blocks"]) >= 15, "{known}");
        let goodput = known["goodput_bits_per_second"].as_f64().unwrap();
        assert!((40e6..88e6).contains(&goodput), "{goodput}");
    }
    let page = unwrapped(&server.test(&flags));
    assert!(
        page.contains("the goodput has the requested confidence interval") && page.contains("% (95 %), from "),
        "{page}"
    );
    // Each of two parallel tests is a load for the other, so both run until both reach the precision.
    let document = server.document(&[&flags[..], &["--bidir"]].concat());
    let runs = document["runs"].as_array().unwrap();
    for run in runs {
        assert_eq!(run["ended"], "converged", "{}", run["estimate"]);
    }
    let [forward, reverse] = [0, 1].map(|n| runs[n]["elapsed_seconds"].as_f64().unwrap());
    assert!((forward - reverse).abs() < 2.0, "{forward} {reverse}");
    // A test that ends earlier does not wait for the precision.
    let short = server.json(&["--precision", "5%", "--time", "300ms"]);
    assert_eq!(short["ended"], "completed");
    assert_refused(&server.test(&["--precision", "0.01%"]), 2, "--precision");
}

/// Returns the checked and the wrong bytes of the receiver's streams.
fn checked(run: &Value) -> (u64, u64) {
    let streams = streams(run, run["receiver"].as_str().unwrap());
    let sum = |field: &str| streams.iter().map(|stream| number(&stream["check"][field])).sum::<u64>();
    (sum("checked_bytes"), sum("wrong_bytes"))
}

fn data_check_passes_without_errors() {
    let server = Server::start(&[]);
    let common = ["--check-data", "--bytes", "5000001", "--length", "30011", "--streams", "2"];
    for flags in [&[][..], &["--reverse"], &["--data", "zero"], &["--read-length", "977"]] {
        // Exit code 0, as for every test with JSON here.
        let run = server.json(&[&common[..], flags].concat());
        assert_eq!(checked(&run), (5_000_001, 0), "{flags:?}");
    }
    let page = unwrapped(&server.test(&common));
    assert!(page.contains("all 5000001 bytes are correct"), "{page}");
    let run = server.json(&["--bytes", "1000"]);
    assert_eq!(run["far"]["streams"][0]["check"], Value::Null);
    assert_refused(&server.test(&["--check-data", "--no-copy"]), 2, "--no-copy");
}

/// Runs `lfn test far` over a path.
fn emulated(path: &[&str], flags: &[&str]) -> Output {
    let mut command = support::lfn();
    command.arg("emulate").args(path).arg("--").arg(support::lfn_path());
    command.args(["test", "far"]).args(flags).output().unwrap()
}

fn data_check_detects_hidden_corruption() {
    // Some changed packets may belong to the control connection, which then ends the test.
    let mut results = Vec::new();
    for seed in ["1", "2", "3", "4"] {
        let path = ["--rtt", "4ms", "--rate", "200mbit", "--corrupt-hidden", "1e-3", "--seed", seed];
        let output = emulated(&path, &["--check-data", "--bytes", "9MB", "--mss", "1000", "--json"]);
        let run = serde_json::from_slice(&output.stdout).ok().map(|mut document: Value| document["runs"][0].take());
        let Some(run) = run.filter(|run| run["far"].is_object()) else {
            results.push(Err(stderr(&output)));
            continue;
        };
        let (looked_at, wrong) = checked(&run);
        assert_eq!(looked_at, 9_000_000, "TCP did not notice");
        // One bit per packet, so one byte per packet.
        assert!((1..100).contains(&wrong), "{wrong}");
        let first = run["far"]["streams"][0]["check"]["first_wrong_offset"].as_u64();
        assert!(first.is_some_and(|first| first < 9_000_000), "{first:?}");
        // An inaccurate emulation has the same exit code.
        assert_eq!(output.status.code(), Some(4));
        results.push(Ok(wrong));
    }
    Rate { required: 2, runs: 4 }.judge("corruption in the data only", results, Result::is_ok);
}

fn block_timings_reproduce_the_report_of_1995() {
    // One block of 64 KiB takes 5.2 ms at 100 Mb/s, and 40 blocks take at most 13 round trips of slow start.
    let path = ["--rtt", "60ms", "--rate", "100mbit"];
    for direction in [&[][..], &["--reverse"]] {
        let flags = ["--block-timing", "--count", "40", "--length", "65536", "--json"];
        let output = emulated(&path, &[&flags[..], direction].concat());
        let mut document: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(&output)));
        let run = document["runs"][0].take();
        let blocks = &run["blocks"];
        assert_eq!(blocks["blocks"], 40, "{direction:?}");
        let delay = blocks["first_delay_seconds"].as_f64().unwrap();
        // One one-way delay, and more than one round trip of slow start. A busy machine is slower.
        assert!((0.08..2.0).contains(&delay), "{direction:?}: {delay}");
        let rate = |name: &str| blocks[format!("{name}_bits_per_second")].as_f64().unwrap();
        assert!(rate("slowest") < rate("fastest"), "{blocks}");
        assert!(rate("with_delay") < rate("without_delay"), "{blocks}");
        let time = run["bytes"].as_f64().unwrap() * 8.0 / rate("with_delay");
        assert!(time > delay && time < delay + run["elapsed_seconds"].as_f64().unwrap() + 0.06, "{blocks}");
        let rest = (run["bytes"].as_f64().unwrap() - 65536.0) * 8.0 / rate("without_delay");
        assert!((time - delay - rest).abs() < 1e-3, "the two rates differ by the first delay alone: {blocks}");
        // The timings of the sender.
        let written = &run[run["sender"].as_str().unwrap()]["streams"][0]["blocks"];
        assert_eq!((number(&written["blocks"]), number(&written["bytes"])), (40, 40 * 65536));
    }
    let page = unwrapped(&emulated(&path, &["--block-timing", "--count", "10"]));
    assert!(page.contains("write times 10 blocks") && page.contains("without"), "{page}");
}

fn no_copy_mode_sends_the_same_bytes() {
    let server = Server::start(&[]);
    let cases: [(&str, &str, &str, &str); 3] = [
        ("--no-copy", "no_copy", "no_copy", "sent (sendfile) and received (MSG_TRUNC)"),
        ("--near-no-copy", "no_copy", "copying", "(sendfile); received with copies"),
        ("--far-no-copy", "copying", "no_copy", "(MSG_TRUNC); sent with copies"),
    ];
    for (flag, near, far, says) in cases {
        let flags = [flag, "--bytes", "7000001", "--streams", "2", "--length", "30011"];
        for direction in [&[][..], &["--reverse"]] {
            let run = server.json(&[&flags[..], direction].concat());
            assert_eq!((&run["near"]["mode"], &run["far"]["mode"]), (&near.into(), &far.into()), "{flag}");
            for end in ["near", "far"] {
                assert_eq!(number(&run[end]["bytes"]), 7_000_001, "{flag} {direction:?}");
            }
            // The kernel also counts the hello of a stream and its end.
            let receiver = run["receiver"].as_str().unwrap();
            let came = streams(&run, receiver).iter().map(|stream| number(&stream["tcp_info"]["received_bytes"]));
            assert!((7_000_001..=7_000_001 + 2 * 57).contains(&came.sum::<u64>()), "{flag} {direction:?}");
        }
        let page = unwrapped(&server.test(&flags));
        assert!(page.contains(says), "{flag}: {page}");
    }
    let run = server.json(&["--bytes", "1000"]);
    assert_eq!((&run["near"]["mode"], &run["far"]["mode"]), (&"copying".into(), &"copying".into()));
}

fn multipath_tcp_fallback_is_reported() {
    let server = Server::start(&[]);
    let has_it = fs::read_to_string("/proc/sys/net/mptcp/enabled").is_ok_and(|text| text.trim() == "1");
    for direction in [&[][..], &["--reverse"]] {
        let flags = [&["--mptcp", "--bytes", "20MB", "--streams", "2"], direction].concat();
        if !has_it {
            let output = server.test(&flags);
            assert!(!output.status.success() && stderr(&output).contains("hint: "), "{}", stderr(&output));
            continue;
        }
        let run = server.json(&flags);
        for end in ["near", "far"] {
            assert_eq!(number(&run[end]["bytes"]), 20_000_000);
            assert_eq!(sockets(&run, end, "mptcp_requested"), [true, true]);
            assert_eq!(sockets(&run, end, "mptcp_subflows"), [0, 0], "{end}");
        }
        // The figures of one subflow are no evidence for the whole connection.
        let names = |run: &Value| run["findings"].to_string();
        assert!(!names(&run).contains("slow sending application"), "{}", names(&run));
        assert!(unwrapped(&server.test(&flags)).contains("Multipath TCP, 0 more subflows"));
    }
    assert_eq!(sockets(&server.json(&["--count", "1"]), "near", "mptcp_subflows"), [Value::Null]);
}

fn interrupt_prints_the_results_so_far() {
    let server = Server::start(&[]);
    let cases: [(&[&str], u64); 5] = [
        (&["--time", "60s"], 1),
        (&["--count", "1000000000", "--reverse"], 1),
        (&["--time", "60s", "--precision", "0.1%", "--no-copy"], 1),
        (&["--time", "60s", "--bidir"], 2),
        // The second of two tests does not start.
        (&["--time", "60s", "--both"], 1),
    ];
    for (flags, directions) in cases {
        let mut stopped = None;
        let child = start_with_events(&["test", &server.ticket], flags);
        let (code, events, stderr) = interrupted(child, directions, |pid| {
            stopped = Some(Instant::now());
            kill("INT", pid);
        });
        assert!(stopped.unwrap().elapsed() < Duration::from_secs(30), "{flags:?}");
        assert_eq!(code, Some(130), "{flags:?}: {stderr}");
        let end = events.last().unwrap();
        let runs = end["result"]["runs"].as_array().unwrap_or_else(|| panic!("{flags:?}: {end}"));
        assert_eq!(runs.len() as u64, directions, "{flags:?}");
        for run in runs {
            assert_eq!(run["ended"], "interrupted", "{flags:?}");
            assert!(number(&run["bytes"]) > 0 && number(&run["goodput_bits_per_second"]) > 0, "{flags:?}");
            assert!(run["far"]["streams"][0]["tcp_info"].is_object(), "the far end's report is there");
        }
    }
    // The server still works: the next client is served.
    server.json(&["--count", "10"]);
}

fn killed_client_frees_its_slot() {
    let server = Server::start(&["--max-sessions", "1"]);
    for flags in [&["--time", "60s"][..], &["--time", "60s", "--reverse"], &["--time", "60s", "--mptcp"]] {
        if flags.contains(&"--mptcp") && !Path::new("/proc/sys/net/mptcp/enabled").exists() {
            skip("killed_client_frees_its_slot", &Missing::Feature("Multipath TCP"));
            continue;
        }
        let child = start_with_events(&["test", &server.ticket], flags);
        let (code, _, _) = interrupted(child, 1, |pid| kill("KILL", pid));
        assert_eq!(code, None, "{flags:?}");
        // Waits in the queue until the server has noticed.
        let begun = Instant::now();
        let run = server.json(&["--count", "10", "--length", "1000", "--wait", "60s"]);
        assert_eq!((number(&run["bytes"]), begun.elapsed() < Duration::from_secs(40)), (10_000, true), "{flags:?}");
    }
}

fn contradictory_settings_are_refused() {
    let cases: [(&[&str], &str); 12] = [
        (&["--mptcp", "--window", "1MB"], "--window with --mptcp"),
        (&["--mptcp", "--pacing", "1mbit"], "--pacing with --mptcp"),
        (&["--mss", "40"], "MSS of 40 B"),
        (&["--mss", "40000"], "MSS of 40 kB"),
        (&["--dscp", "64"], "'64'"),
        (&["--dscp", "EE"], "'EE'"),
        (&["--pacing", "1kbit"], "pacing rate of 1 kb/s"),
        (&["--bytes", "0"], "load of 0 B"),
        (&["--read-length", "0"], "read size of 0 B"),
        (&["--precision", "200%"], "--precision"),
        (&["--udp", "--mptcp"], "TCP"),
        (&["--udp", "--no-copy"], "--no-copy"),
    ];
    for (flags, says) in cases {
        assert_refused(&support::server::test("lfn://nowhere", flags), 2, says);
    }
    let endless = support::server::test("lfn://nowhere", &["-t", "0"]);
    assert_refused(&endless, 2, "--time: the time must be above zero");
    assert!(stderr(&endless).contains("hint: give the maximum time, such as --time 1h"), "{}", stderr(&endless));
    // The error names the flag that needs another value.
    let many = support::server::test("lfn://nowhere", &["--time", "24h", "--streams", "16"]);
    assert_refused(&many, 2, "samples are allowed");
    assert!(stderr(&many).contains("hint: use --interval 1383ms or more"), "{}", stderr(&many));
}
