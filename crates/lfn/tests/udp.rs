//! `lfn test --udp`, `--ramp` and `--latency`: on loopback, and over emulated paths whose log says what became of each
//! datagram.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking, its helpers too")]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::process::ExitCode;

use serde_json::Value;
use support::Needs;
use support::server::{Server, assert_refused, interrupted, kill, number, text, under_way};

fn main() -> ExitCode {
    support::run(&[
        ("every_datagram_is_counted_with_and_without_gso", Needs::Nothing, every_datagram_is_counted),
        ("datagrams_leave_as_and_from_where_they_should", Needs::Nothing, datagrams_leave_as_they_should),
        ("an_interrupt_ends_datagrams_too", Needs::Nothing, an_interrupt_ends_datagrams_too),
        ("what_makes_no_sense_is_refused", Needs::Nothing, what_makes_no_sense_is_refused),
        ("probes_run_beside_tcp", Needs::Nothing, probes_run_beside_tcp),
        ("lost_and_doubled_datagrams_are_those_of_the_link", Needs::Namespaces, lost_and_doubled_datagrams),
        ("reordered_datagrams_are_not_lost", Needs::Namespaces, reordered_datagrams_are_not_lost),
        ("a_full_queue_is_what_the_probes_wait_in", Needs::Namespaces, a_full_queue_is_what_the_probes_wait_in),
        ("a_ramp_finds_the_capacity", Needs::Namespaces, a_ramp_finds_the_capacity),
        ("a_datagram_too_long_for_the_path_is_named", Needs::Namespaces, a_datagram_too_long_is_named),
    ])
}

fn received(run: &Value) -> &Value {
    let end = if run["direction"] == "forward" { "far" } else { "near" };
    &run[end]["streams"][0]["udp"]["received"]
}

fn sent(run: &Value) -> &Value {
    let end = if run["direction"] == "forward" { "near" } else { "far" };
    &run[end]["streams"][0]["udp"]["sent"]
}

fn every_datagram_is_counted() {
    let server = Server::start(&[]);
    let common = ["--udp", "--count", "3000", "--record", "400", "--pacing", "300mbit"];
    for flags in [&[][..], &["--no-gso"], &["--no-gro"], &["--no-gso", "--no-gro"], &["--reverse"]] {
        let run = server.json(&[&common[..], flags].concat());
        let (sent, received) = (sent(&run), received(&run));
        assert_eq!(number(&sent["datagrams"]), 3000, "{flags:?}");
        let (came, lost) = (number(&received["datagrams"]), number(&received["lost"]));
        assert_eq!(came + lost, 3000, "{flags:?}: {received}");
        // Loopback loses nothing but what the receiver's buffer has no room for.
        assert!(lost == 0 || number(&received["overflows"]) > 0, "{flags:?}: {received}");
        assert_eq!(number(&run["bytes"]), came * 400);
        let told: u64 = run["intervals"].as_array().unwrap().iter().map(|i| number(&i["bytes"])).sum();
        assert_eq!(told, came * 400, "{flags:?}: the intervals are the whole");
        assert!(number(&sent["burst_datagrams"]) > 1);
        assert_eq!(sent["gso"].as_bool().unwrap(), !flags.contains(&"--no-gso"), "{sent}");
    }
}

fn datagrams_leave_as_they_should() {
    let server = Server::start(&[]);
    let common = ["--udp", "--count", "300", "--record", "400", "--pacing", "50mbit", "--dscp", "CS1"];
    for (place, address) in [("127.0.0.9", "127.0.0.9:"), ("lo", "127.0.0.1:"), ("127.0.0.8%lo", "127.0.0.8:")] {
        let run = server.json(&[&common[..], &["--bind", place, "--streams", "2"]].concat());
        for end in ["near", "far"] {
            for stream in run[end]["streams"].as_array().unwrap() {
                assert_eq!(
                    (&stream["socket"]["dscp_asked"], &stream["socket"]["dscp_granted"]),
                    (&8.into(), &8.into())
                );
            }
        }
        let from = run["near"]["streams"][0]["socket"]["local_address"].as_str().unwrap();
        assert!(from.starts_with(address), "{place}: {from}");
    }
    let document = server.document(&[&common[..], &["--bidir"]].concat());
    let runs = document["runs"].as_array().unwrap();
    assert_eq!((&runs[0]["direction"], &runs[1]["direction"]), (&"forward".into(), &"reverse".into()));
    for run in runs {
        assert_eq!((number(&sent(run)["datagrams"]), &run["at_once"]), (300, &true.into()));
        assert_eq!(number(&received(run)["datagrams"]) + number(&received(run)["lost"]), 300);
    }
}

fn an_interrupt_ends_datagrams_too() {
    let server = Server::start(&[]);
    let load = ["--udp", "--time", "60s", "--pacing", "20mbit", "--record", "400"];
    let ramp = ["--ramp", "--ramp-step", "60s"];
    for flags in [&load[..], &[&load[..], &["--reverse"]].concat(), &ramp, &[&ramp[..], &["--reverse"]].concat()] {
        let child = under_way(&["test", &server.ticket], flags);
        let begun = std::time::Instant::now();
        let (code, events, stderr) = interrupted(child, 1, |pid| kill("INT", pid));
        assert_eq!(code, Some(130), "{flags:?}: {stderr}");
        assert!(begun.elapsed().as_secs() < 40, "{flags:?}");
        let run = &events.last().unwrap()["result"]["runs"][0];
        assert_eq!(run["ended"], "interrupted", "{flags:?}: {stderr}");
        let (sent, received) = (number(&sent(run)["datagrams"]), received(run));
        // What was on its way is waited for.
        assert_eq!(number(&received["datagrams"]) + number(&received["lost"]), sent, "{flags:?}");
        assert!(sent > 0 && number(&run["bytes"]) > 0, "{flags:?}");
    }
    server.json(&["--udp", "--count", "10"]);
}

fn what_makes_no_sense_is_refused() {
    let server = Server::start(&[]);
    assert_refused(&server.test(&["--no-gso"]), 2, "--no-gso without --udp");
    let several = ["--udp", "--pacing", "5mbit,6mbit"];
    assert_refused(&server.test(&several), 2, "--pacing with several rates");
    assert_refused(&server.test(&["--udp", "--record", "10"]), 2, "datagrams of 10 B");
    assert_refused(&server.test(&["--udp", "--congestion", "reno"]), 2, "--congestion with --udp");
    assert_refused(&server.test(&["--ramp", "--streams", "2"]), 2, "a ramp over 2 streams");
    assert_refused(&server.test(&["--latency=1ms"]), 2, "a probe every 1 ms");
    assert_refused(&server.test(&["--udp", "--until", "2%"]), 2, "--until are of TCP");
    assert_refused(&server.test(&["--udp", "--mss", "1000"]), 2, "--mss is of TCP");
    assert_refused(&server.test(&["--udp", "--bind", "127.0.0.1,127.0.0.2"]), 2, "--bind with several places");
    assert_refused(&server.test(&["--udp", "--pacing", "fast"]), 2, "--pacing");
}

fn probes_run_beside_tcp() {
    let server = Server::start(&[]);
    let run = server.json(&["--time", "500ms", "--latency=10ms"]);
    let latency = &run["latency"];
    assert_eq!(latency["transport"], "udp");
    assert!(number(&latency["idle"]["sent"]) >= 5 && number(&latency["loaded"]["sent"]) >= 5, "{latency}");
    for part in ["idle", "loaded"] {
        let rtt = |name: &str| latency[part]["rtt"][name].as_f64().unwrap();
        assert!(rtt("min_seconds") > 0.0 && rtt("min_seconds") <= rtt("p50_seconds"), "{latency}");
        assert!(rtt("p50_seconds") <= rtt("p99_seconds") && rtt("p99_seconds") <= rtt("max_seconds"), "{latency}");
    }
    assert_eq!(server.json(&["--time", "200ms"])["latency"], Value::Null);
}

/// The first run of `lfn test far` over a path, and the lines of its log in which datagrams of load go forward.
fn emulated(path: &[&str], flags: &[&str]) -> (Value, Vec<Value>) {
    let home = tempfile::tempdir().unwrap();
    let log = home.path().join("log.jsonl");
    let mut command = support::lfn();
    command.arg("emulate").args(path).arg("--log").arg(&log).arg("--").arg(support::lfn_path());
    let output = command.args(["test", "far", "--json"]).args(flags).output().unwrap();
    let mut document: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", support::stderr(&output)));
    let lines = fs::read_to_string(log).unwrap();
    let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let load = lines.filter(|line| line["protocol"] == "udp" && line["direction"] == "near_to_far");
    // A hello is shorter than any load here.
    let load = load.filter(|line| number(&line["bytes"]) > 200 * number(&line["count"]));
    (document["runs"][0].take(), load.collect())
}

fn fates(log: &[Value]) -> BTreeMap<String, u64> {
    let mut fates = BTreeMap::new();
    for line in log {
        *fates.entry(line["fate"].as_str().unwrap().to_owned()).or_default() += number(&line["count"]);
    }
    fates
}

fn lost_and_doubled_datagrams() {
    let path = ["--rtt", "20ms", "--rate", "1gbit", "--loss", "0.05", "--duplicate", "0.03", "--seed", "7"];
    let (run, log) = emulated(&path, &["--udp", "--count", "2000", "--record", "400", "--pacing", "8mbit"]);
    let (received, fates) = (received(&run), fates(&log));
    let of = |fate: &str| fates.get(fate).copied().unwrap_or(0);
    assert_eq!(number(&sent(&run)["datagrams"]), 2000);
    // What the machine itself lost, if it was that busy, is in the log too.
    let own = number(&received["overflows"]);
    assert_eq!(number(&received["lost"]), of("drop") + of("lost") + own, "{fates:?} {received}");
    assert!(of("drop") > 50, "{fates:?}");
    assert_eq!(number(&received["duplicates"]), of("duplicate"), "{fates:?} {received}");
    let bursts = received["loss_bursts"].as_array().unwrap();
    let in_bursts: u64 = bursts.iter().map(|run| number(&run["from"]) * number(&run["count"])).sum();
    assert_eq!(in_bursts, number(&received["lost"]), "short bursts are counted one by one");
}

fn reordered_datagrams_are_not_lost() {
    let path = ["--rtt", "20ms", "--rate", "1gbit", "--reorder", "0.1", "--seed", "3"];
    let (run, _) = emulated(&path, &["--udp", "--count", "1000", "--record", "400", "--pacing", "8mbit"]);
    let received = received(&run);
    assert_eq!(number(&received["lost"]), number(&received["overflows"]), "{received}");
    assert!(number(&received["reordered"]) > 30, "{received}");
    let extents = received["extents"].as_array().unwrap();
    let late: u64 = extents.iter().map(|extent| number(&extent["count"])).sum();
    assert_eq!(late, number(&received["reordered"]));
}

fn a_full_queue_is_what_the_probes_wait_in() {
    // 125 kB at 10 Mb/s are 100 ms.
    let path = ["--rtt", "20ms", "--rate", "10mbit", "--queue", "125kB"];
    let mut seen = Vec::new();
    for _ in 0..3 {
        let (run, _) =
            emulated(&path, &["--udp", "--pacing", "14mbit", "--time", "2s", "--latency", "--record", "1200"]);
        let rtt = |part: &str, name: &str| run["latency"][part]["rtt"][name].as_f64().unwrap_or(f64::NAN);
        let (idle, loaded) = (rtt("idle", "min_seconds"), rtt("loaded", "p50_seconds"));
        if (0.019..0.04).contains(&idle) && (0.09..0.17).contains(&loaded) {
            assert!(run["latency"]["buffer_delay_percent"].as_f64().unwrap() > 100.0);
            return;
        }
        seen.push(run["latency"].clone());
    }
    panic!("{seen:#?}");
}

fn a_ramp_finds_the_capacity() {
    let path = ["--rtt", "10ms", "--rate", "20mbit", "--queue", "60kB"];
    let mut seen = Vec::new();
    for _ in 0..3 {
        let (run, _) = emulated(&path, &["--ramp", "--ramp-step", "300ms", "--record", "1200"]);
        let ramp = run["near"]["streams"][0]["udp"]["ramp"].clone();
        let highest = ramp["highest_bits_per_second"].as_u64().unwrap_or(0) as f64;
        // 1200 B of payload in packets of 1228 B and their frames.
        if (16e6..20.5e6).contains(&highest) && ramp["onset_bits_per_second"].as_u64().is_some() {
            return;
        }
        seen.push(ramp);
    }
    panic!("{seen:#?}");
}

fn a_datagram_too_long_is_named() {
    let mut command = support::lfn();
    command.args(["emulate", "--rtt", "10ms", "--rate", "100mbit", "--"]).arg(support::lfn_path());
    let output = command.args(["test", "far", "--udp", "--record", "2000", "--time", "1s"]).output().unwrap();
    let said = text(&output.stderr);
    assert!(said.contains("datagrams of 2000 B do not fit the path MTU of 1500 B"), "{said}");
    assert!(said.contains("hint: use --record 1472, or --fragment"), "{said}");
    assert_eq!(output.status.code(), Some(1));
}
