//! `lfn test --udp`, `--ramp` and `--latency` on loopback, and over emulated paths whose log has the outcome of each
//! datagram.

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value;

use crate::support;
use crate::support::harness::{Needs, Test, Weight, tests_of};
use crate::support::rate::{TWO_OF_THREE, undisturbed};
use crate::support::server::{
    Server, assert_refused, finding_names, interrupted, is_first_finding, kill, number, start_with_events, text,
};
use crate::support::skip::{Missing, skip};
use crate::support::unwrapped;

/// Name of this module in the names of its tests and roles.
const MODULE: &str = "udp";

pub fn tests() -> Vec<Test> {
    let mut tests = tests_of(
        MODULE,
        Weight::Waiting,
        &[
            (
                "every_datagram_is_counted_with_and_without_gso",
                Needs::Nothing,
                every_datagram_is_counted_with_and_without_gso,
            ),
            ("dscp_and_bind_apply_to_datagrams", Needs::Nothing, dscp_and_bind_apply_to_datagrams),
            ("interrupt_ends_a_udp_test", Needs::Nothing, interrupt_ends_a_udp_test),
            ("interrupted_ramp_reports_the_interrupt", Needs::Nothing, interrupted_ramp_reports_the_interrupt),
            ("failed_ramp_reports_its_current_step", Needs::Nothing, failed_ramp_reports_its_current_step),
            ("contradictory_flags_are_refused", Needs::Nothing, contradictory_flags_are_refused),
            ("latency_probes_run_during_a_tcp_test", Needs::Nothing, latency_probes_run_during_a_tcp_test),
            ("loss_and_duplicates_match_the_link", Needs::Namespaces, loss_and_duplicates_match_the_link),
            ("reordered_datagrams_are_not_lost", Needs::Namespaces, reordered_datagrams_are_not_lost),
            ("udp_figures_match_the_link_log", Needs::Namespaces, udp_figures_match_the_link_log),
            ("receive_buffer_loss_is_not_path_loss", Needs::Nothing, receive_buffer_loss_is_not_path_loss),
            ("slow_sender_is_reported", Needs::Nothing, slow_sender_is_reported),
            ("server_rate_limit_is_reported_for_udp", Needs::Nothing, server_rate_limit_is_reported_for_udp),
            ("path_loss_is_found_with_udp", Needs::Namespaces, path_loss_is_found_with_udp),
            ("full_sender_queue_is_found_with_udp", Needs::Programs(&["tc"]), full_sender_queue_is_found_with_udp),
            ("tcpdump_confirms_even_pacing", Needs::Programs(&["tcpdump"]), tcpdump_confirms_even_pacing),
            ("too_long_datagram_is_an_error", Needs::Namespaces, too_long_datagram_is_an_error),
        ],
    );
    tests.extend(tests_of(
        MODULE,
        Weight::Alone,
        &[
            ("latency_probes_measure_a_full_queue", Needs::Namespaces, latency_probes_measure_a_full_queue),
            ("ramp_finds_the_capacity", Needs::Namespaces, ramp_finds_the_capacity),
            (
                "udp_test_reports_both_hosts_and_prediction",
                Needs::Namespaces,
                udp_test_reports_both_hosts_and_prediction,
            ),
        ],
    ));
    tests
}

fn received(run: &Value) -> &Value {
    let end = if run["direction"] == "forward" { "far" } else { "near" };
    &run[end]["streams"][0]["udp"]["received"]
}

fn sent(run: &Value) -> &Value {
    let end = if run["direction"] == "forward" { "near" } else { "far" };
    &run[end]["streams"][0]["udp"]["sent"]
}

fn every_datagram_is_counted_with_and_without_gso() {
    let server = Server::start(&[]);
    let common = ["--udp", "--count", "3000", "--length", "400", "--pacing", "300mbit"];
    for flags in [&[][..], &["--no-gso"], &["--no-gro"], &["--no-gso", "--no-gro"], &["--reverse"]] {
        let run = server.json(&[&common[..], flags].concat());
        let (sent, received) = (sent(&run), received(&run));
        assert_eq!(number(&sent["datagrams"]), 3000, "{flags:?}");
        let (came, lost) = (number(&received["datagrams"]), number(&received["lost"]));
        assert_eq!(came + lost, 3000, "{flags:?}: {received}");
        // Loopback loses only datagrams that overflow the receive buffer.
        assert!(lost == 0 || number(&received["overflows"]) > 0, "{flags:?}: {received}");
        assert_eq!(number(&run["bytes"]), came * 400);
        let reported: u64 = run["intervals"].as_array().unwrap().iter().map(|i| number(&i["bytes"])).sum();
        assert_eq!(reported, came * 400, "{flags:?}: the intervals are the whole");
        assert!(number(&sent["burst_datagrams"]) > 1);
        assert_eq!(sent["gso"].as_bool().unwrap(), !flags.contains(&"--no-gso"), "{sent}");
    }
}

fn dscp_and_bind_apply_to_datagrams() {
    let server = Server::start(&[]);
    let common = ["--udp", "--count", "300", "--length", "400", "--pacing", "50mbit", "--dscp", "CS1"];
    for (place, address) in [("127.0.0.9", "127.0.0.9:"), ("lo", "127.0.0.1:"), ("127.0.0.8%lo", "127.0.0.8:")] {
        let run = server.json(&[&common[..], &["--bind", place, "--streams", "2"]].concat());
        for end in ["near", "far"] {
            for stream in run[end]["streams"].as_array().unwrap() {
                assert_eq!(
                    (&stream["socket"]["dscp_requested"], &stream["socket"]["dscp_granted"]),
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
        assert_eq!((number(&sent(run)["datagrams"]), &run["bidirectional"]), (300, &true.into()));
        assert_eq!(number(&received(run)["datagrams"]) + number(&received(run)["lost"]), 300);
    }
}

fn interrupt_ends_a_udp_test() {
    let server = Server::start(&[]);
    let load = ["--udp", "--time", "60s", "--pacing", "20mbit", "--length", "400"];
    let ramp = ["--ramp", "--ramp-step-time", "60s"];
    for flags in [&load[..], &[&load[..], &["--reverse"]].concat(), &ramp, &[&ramp[..], &["--reverse"]].concat()] {
        let child = start_with_events(&["test", &server.ticket], flags);
        let begun = std::time::Instant::now();
        let (code, events, stderr) = interrupted(child, 1, |pid| kill("INT", pid));
        assert_eq!(code, Some(130), "{flags:?}: {stderr}");
        assert!(begun.elapsed().as_secs() < 40, "{flags:?}");
        let run = &events.last().unwrap()["result"]["runs"][0];
        assert_eq!(run["ended"], "interrupted", "{flags:?}: {stderr}");
        let (sent, received) = (number(&sent(run)["datagrams"]), received(run));
        // Datagrams in flight are counted.
        assert_eq!(number(&received["datagrams"]) + number(&received["lost"]), sent, "{flags:?}");
        assert!(sent > 0 && number(&run["bytes"]) > 0, "{flags:?}");
    }
    server.json(&["--udp", "--count", "10"]);
}

/// A step takes a minute here, so none completes on any machine.
fn interrupted_ramp_reports_the_interrupt() {
    let server = Server::start(&[]);
    let home = tempfile::tempdir().unwrap();
    for direction in [&[][..], &["--reverse"]] {
        let file = home.path().join("ramp.json");
        let saved = file.to_str().unwrap();
        let flags = [&["--ramp", "--ramp-step-time", "60s", "--report", saved], direction].concat();
        let (code, ..) = interrupted(start_with_events(&["test", &server.ticket], &flags), 1, |pid| kill("INT", pid));
        assert_eq!(code, Some(130));
        let shown = unwrapped(&support::lfn().args(["show", saved]).output().unwrap());
        assert!(shown.contains("ramp ended early before the end of its first step"), "{shown}");
        assert!(shown.contains("the step at 1 Mb/s is unfinished"), "{shown}");
        assert!(shown.contains("ended interrupted") && !shown.contains("at every rate"), "{shown}");
        let stored: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        let end = if direction.is_empty() { "near" } else { "far" };
        let ramp = &stored["runs"][0][end]["streams"][0]["udp"]["ramp"];
        assert_eq!(number(&ramp["unfinished_step_bits_per_second"]), 1_000_000, "{ramp}");
    }
}

/// The same ramp fails because the server is killed.
fn failed_ramp_reports_its_current_step() {
    let home = tempfile::tempdir().unwrap();
    for direction in [&[][..], &["--reverse"]] {
        let server = Server::start(&[]);
        let file = home.path().join("ramp.json");
        let saved = file.to_str().unwrap();
        let flags = [&["--ramp", "--ramp-step-time", "60s", "--report", saved], direction].concat();
        let child = start_with_events(&["test", &server.ticket], &flags);
        let (code, events, stderr) = interrupted(child, 1, |_| kill("KILL", server.child.id()));
        assert_eq!(code, Some(1), "{stderr}");
        let stored: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        let reported = events.iter().find(|event| event["event"] == "step").unwrap();
        for ramp in [&stored["unfinished"]["ramp"], &reported["ramp"]] {
            assert_eq!(
                (number(&ramp["unfinished_step_bits_per_second"]), &ramp["steps"]),
                (1_000_000, &Value::Array(vec![]))
            );
        }
        let shown = unwrapped(&support::lfn().args(["show", saved]).output().unwrap());
        assert!(shown.contains("ramp ended early before the end of its first step"), "{shown}");
        assert!(shown.contains("the step at 1 Mb/s is unfinished"), "{shown}");
    }
}

fn contradictory_flags_are_refused() {
    let server = Server::start(&[]);
    assert_refused(&server.test(&["--no-gso"]), 2, "--no-gso needs --udp");
    let several = ["--udp", "--pacing", "5mbit,6mbit"];
    assert_refused(&server.test(&several), 2, "--pacing with several rates");
    assert_refused(&server.test(&["--udp", "--length", "10"]), 2, "datagrams of 10 B");
    assert_refused(&server.test(&["--udp", "--congestion", "reno"]), 2, "--congestion with --udp");
    assert_refused(&server.test(&["--ramp", "--streams", "2"]), 2, "a ramp over 2 streams");
    assert_refused(&server.test(&["--latency=1ms"]), 2, "probe interval of 1 ms");
    assert_refused(&server.test(&["--udp", "--precision", "2%"]), 2, "--precision with --udp: only TCP");
    let blocks = server.test(&["--ramp", "--block-timing"]);
    assert_refused(&blocks, 2, "--block-timing with --ramp");
    assert!(support::stderr(&blocks).contains("hint: remove --block-timing or --ramp"), "{}", support::stderr(&blocks));
    assert_refused(&server.test(&["--udp", "--mss", "1000"]), 2, "--mss with --udp: only TCP");
    assert_refused(&server.test(&["--udp", "--bind", "127.0.0.1,127.0.0.2"]), 2, "--bind with several addresses");
    assert_refused(&server.test(&["--udp", "--pacing", "fast"]), 2, "--pacing");
    assert_refused(&server.test(&["--udp", "--window", "1MiB"]), 2, "--window with --udp");
    assert_refused(&server.test(&["--udp", "--far-window", "1MiB"]), 2, "--far-window with --udp");
    assert_refused(&server.test(&["--udp", "--read-length", "1MiB"]), 2, "--read-length with --udp");
    assert_refused(&server.test(&["--udp", "--data", "zero"]), 2, "--data zero with --udp");
    for (flag, value) in [("--time", "5s"), ("--count", "5000"), ("--bytes", "5000"), ("--precision", "2%")] {
        let output = server.test(&["--ramp", flag, value]);
        assert_refused(&output, 2, &format!("{flag} with --ramp"));
        assert!(support::stderr(&output).contains(&format!("hint: remove {flag};")), "{}", support::stderr(&output));
    }
}

fn latency_probes_run_during_a_tcp_test() {
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

/// Returns the first run of `lfn test far` over a path, and the log lines of forward load datagrams.
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
    // A hello is shorter than every load datagram here.
    let load = load.filter(|line| number(&line["bytes"]) > 200 * number(&line["count"]));
    (document["runs"][0].take(), load.collect())
}

fn outcomes(log: &[Value]) -> BTreeMap<String, u64> {
    let mut outcomes = BTreeMap::new();
    for line in log {
        *outcomes.entry(line["outcome"].as_str().unwrap().to_owned()).or_default() += number(&line["count"]);
    }
    outcomes
}

fn loss_and_duplicates_match_the_link() {
    let path = ["--rtt", "20ms", "--rate", "1gbit", "--loss", "0.05", "--duplicate", "0.03", "--seed", "7"];
    let (run, log) = emulated(&path, &["--udp", "--count", "2000", "--length", "400", "--pacing", "8mbit"]);
    let (received, outcomes) = (received(&run), outcomes(&log));
    let of = |outcome: &str| outcomes.get(outcome).copied().unwrap_or(0);
    assert_eq!(number(&sent(&run)["datagrams"]), 2000);
    // The log also has datagrams that a busy machine lost itself.
    let own = number(&received["overflows"]);
    assert_eq!(number(&received["lost"]), of("drop") + of("lost") + own, "{outcomes:?} {received}");
    assert!(of("drop") > 50, "{outcomes:?}");
    assert_eq!(number(&received["duplicates"]), of("duplicate"), "{outcomes:?} {received}");
    let bursts = received["loss_bursts"].as_array().unwrap();
    let in_bursts: u64 = bursts.iter().map(|run| number(&run["from"]) * number(&run["count"])).sum();
    assert_eq!(in_bursts, number(&received["lost"]), "short bursts are counted one by one");
}

fn reordered_datagrams_are_not_lost() {
    let path = ["--rtt", "20ms", "--rate", "1gbit", "--reorder", "0.1", "--seed", "3"];
    let (run, _) = emulated(&path, &["--udp", "--count", "1000", "--length", "400", "--pacing", "8mbit"]);
    let received = received(&run);
    assert_eq!(number(&received["lost"]), number(&received["overflows"]), "{received}");
    assert!(number(&received["reordered"]) > 30, "{received}");
    let extents = received["reordering_extents"].as_array().unwrap();
    let late: u64 = extents.iter().map(|extent| number(&extent["count"])).sum();
    assert_eq!(late, number(&received["reordered"]));
}

/// Uses all impairments at once, and recomputes each figure from the link's log.
fn udp_figures_match_the_link_log() {
    let path = ["--rtt", "20ms", "--rate", "1gbit", "--loss", "0.25", "--duplicate", "0.05", "--reorder", "0.1"];
    let path = [&path[..], &["--seed", "11"]].concat();
    let flags = ["--udp", "--count", "2000", "--length", "400", "--pacing", "4mbit", "--no-gso", "--no-gro"];
    let (run, log) = undisturbed("figures against the log", 3, || {
        let (run, log) = emulated(&path, &flags);
        // Datagrams that a busy machine lost itself have no order in the log.
        let own = number(&received(&run)["overflows"]) + outcomes(&log).get("lost").copied().unwrap_or(0);
        if own == 0 { Ok((run, log)) } else { Err(format!("{own} datagrams lost by the machine")) }
    });
    let (received, logged) = (received(&run), Logged::of(&log, 2000));
    assert_eq!(number(&received["datagrams"]), logged.came, "{received}");
    assert_eq!(number(&received["lost"]), logged.bursts.iter().sum::<u64>(), "{received}");
    assert_eq!(number(&received["duplicates"]), logged.twice, "{received}");
    assert_eq!(counts(&received["loss_bursts"]), tallied(&logged.bursts), "{received}");
    assert_eq!(number(&received["max_loss_burst"]), logged.bursts.iter().copied().max().unwrap());
    assert!(logged.bursts.iter().any(|&burst| burst > 2) && logged.extents.len() > 50, "{received}");
    assert_eq!(number(&received["reordered"]), logged.extents.len() as u64, "{received}");
    assert_eq!(counts(&received["reordering_extents"]), tallied(&logged.extents), "{received}");
}

/// Outcomes of the datagrams of a stream, from the link's log.
struct Logged {
    came: u64,
    twice: u64,
    /// Lengths of runs of lost numbers.
    bursts: Vec<u64>,
    /// RFC 4737 §4.2: for each reordered datagram, the number of arrivals between the first later one and it.
    extents: Vec<u64>,
}

impl Logged {
    fn of(log: &[Value], sent: u64) -> Logged {
        // The link numbers packets when they arrive, so in the order of their own numbers. It logs them when they
        // leave.
        let mut ids: Vec<u64> = log.iter().map(|line| number(&line["id"])).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len() as u64, sent);
        let of = |line: &Value| ids.binary_search(&number(&line["id"])).unwrap() as u64;
        let left = log.iter().filter(|line| line["left_seconds"].is_number());
        let mut order: Vec<(f64, u64)> = left.map(|line| (line["left_seconds"].as_f64().unwrap(), of(line))).collect();
        order.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (mut arrivals, mut extents, mut twice) = (Vec::new(), Vec::new(), 0);
        for &(_, number) in &order {
            if arrivals.contains(&number) {
                twice += 1;
                continue;
            }
            if let Some(first_later) = arrivals.iter().position(|&before| before > number) {
                extents.push((arrivals.len() - first_later) as u64);
            }
            arrivals.push(number);
        }
        let (mut bursts, mut run) = (Vec::new(), 0);
        for number in 0..sent {
            if arrivals.contains(&number) {
                bursts.extend(Some(std::mem::take(&mut run)).filter(|&run| run > 0));
            } else {
                run += 1;
            }
        }
        bursts.extend(Some(run).filter(|&run| run > 0));
        Logged { came: arrivals.len() as u64, twice, bursts, extents }
    }
}

/// Returns the frequency of each length that is short enough to be counted separately.
fn tallied(lengths: &[u64]) -> BTreeMap<u64, u64> {
    let mut counts = BTreeMap::new();
    lengths.iter().filter(|&&length| length <= 16).for_each(|&length| *counts.entry(length).or_default() += 1);
    counts
}

fn counts(reported: &Value) -> BTreeMap<u64, u64> {
    let exact = reported.as_array().unwrap().iter().filter(|run| number(&run["to"]) <= 16);
    exact.map(|run| (number(&run["from"]), number(&run["count"]))).collect()
}

fn receive_buffer_loss_is_not_path_loss() {
    let server = Server::start(&[]);
    // No machine can send at this rate, so the order of two findings is known.
    let flags = ["--udp", "--reverse", "--count", "20000", "--length", "1000", "--pacing", "2tbit", "--rcvbuf", "2048"];
    // Single datagrams, so that one overflow is one datagram.
    let flags = [&flags[..], &["--no-gro"]].concat();
    let run = server.json(&flags);
    let received = received(&run);
    // Loopback itself loses nothing: missing datagrams overflowed the buffer.
    assert!(number(&received["overflows"]) > 100, "{received}");
    assert_eq!(number(&received["lost"]), number(&received["overflows"]), "{received}");
    assert_eq!(number(&received["lost"]) + number(&received["datagrams"]), 20_000);
    assert_eq!(finding_names(&run), ["slow sender", "receiver overflow"], "{}", run["findings"]);
    let finding = &run["findings"][1];
    assert!(finding["remedy"]["command"].as_str().unwrap().contains("--rcvbuf"), "{finding}");
    let text = unwrapped(&server.test(&flags));
    assert!(text.contains("in the receiver's own buffer, not on the path"), "{text}");
}

fn slow_sender_is_reported() {
    let server = Server::start(&[]);
    let flags = ["--udp", "--time", "600ms", "--length", "1400", "--pacing", "2tbit"];
    let run = server.json(&flags);
    let sent = sent(&run);
    assert_eq!(number(&sent["requested_bits_per_second"]), 2_000_000_000_000);
    assert!(number(&sent["achieved_bits_per_second"]) < 1_000_000_000_000, "{sent}");
    assert!(
        sent["behind_schedule_share"].as_f64().unwrap() > 0.5 && sent["skipped_seconds"].as_f64().unwrap() > 0.0,
        "{sent}"
    );
    assert_eq!(finding_names(&run).first(), Some(&"slow sender"), "{}", run["findings"]);
    let text = unwrapped(&server.test(&flags));
    assert!(text.contains("2 Tb/s requested") && text.contains("the sender could not keep the rate"), "{text}");
}

fn server_rate_limit_is_reported_for_udp() {
    let server = Server::start(&["--client-rate", "8mbit"]);
    for direction in [&[][..], &["--reverse"]] {
        let flags = [&["--udp", "--time", "1s", "--length", "1000", "--pacing", "50mbit"], direction].concat();
        let run = server.json(&flags);
        let sent = sent(&run);
        assert_eq!(number(&sent["requested_bits_per_second"]), 50_000_000, "{sent}");
        assert_eq!(number(&sent["limit_bits_per_second"]), 8_000_000, "{sent}");
        assert!(number(&sent["achieved_bits_per_second"]) < 12_000_000, "{sent}");
        assert_eq!(finding_names(&run).first(), Some(&"limited by the server"), "{}", run["findings"]);
        let text = unwrapped(&server.test(&flags));
        assert!(text.contains("50 Mb/s requested, 8 Mb/s allowed by the server"), "{text}");
        assert!(text.contains("limits the test to 8 Mb/s"), "{text}");
    }
    // A rate requested by the client is not a limit of the server, with or without a server limit.
    for (server, udp) in [(&server, true), (&server, false), (&Server::start(&[]), true), (&Server::start(&[]), false)]
    {
        let flags = ["--reverse", "--time", "400ms", "--length", "1000", "--pacing", "4mbit", "--udp"];
        let flags = &flags[..if udp { 8 } else { 7 }];
        let run = server.json(flags);
        assert_eq!(run["far"]["rate_limit_bits_per_second"], Value::Null, "{flags:?}");
        assert!(!finding_names(&run).contains(&"limited by the server"), "{}", run["findings"]);
        assert!(!unwrapped(&server.test(flags)).contains("limits the test"), "{flags:?}");
    }
}

fn udp_test_reports_both_hosts_and_prediction() {
    let path = ["--rtt", "10ms", "--rate", "20mbit"];
    let flags = ["--udp", "--pacing", "8mbit", "--time", "2s", "--length", "1000"];
    let measure = || {
        let (run, _) = emulated(&path, &flags);
        for end in ["near", "far"] {
            let host = &run[end]["host"];
            assert_eq!(host["interface"]["name"], "lfn0", "{host}");
            assert!(host["processors"].as_array().is_some_and(|all| !all.is_empty()), "{host}");
            let counter = if end == "near" { "Udp.OutDatagrams" } else { "Udp.InDatagrams" };
            assert!(number(&host["counters"][counter]) > 10, "{host}");
            assert!(run[end]["streams"][0]["thread"].is_object() && run[end]["intervals"][0]["host"].is_object());
            let packets = if end == "near" { "sent_packets" } else { "received_packets" };
            assert!(number(&host["interface"][packets]) > 10, "{host}");
        }
        let (goodput, expected) = (number(&run["goodput_bits_per_second"]), &run["expected"]);
        let within = number(&expected["min_bits_per_second"])..=number(&expected["max_bits_per_second"]);
        assert_eq!((&run["predicted"]["limited_by"], &run["retransmits"]), (&"requested rate".into(), &Value::Null));
        (within.contains(&goodput), goodput, run["findings"].clone())
    };
    TWO_OF_THREE.require_serial("prediction, and no finding", measure, |(is_within, _, findings)| {
        *is_within && findings.as_array().is_some_and(Vec::is_empty)
    });
}

/// A busy sender can be the first finding in one of three runs.
fn path_loss_is_found_with_udp() {
    let path = ["--rtt", "10ms", "--rate", "20mbit", "--loss", "0.02"];
    let flags = ["--udp", "--pacing", "8mbit", "--count", "2000", "--length", "1000"];
    TWO_OF_THREE.require("loss", || emulated(&path, &flags).0, |run| is_first_finding(run, "loss"));
    // 1.5 times the rate of the path.
    let path = ["--rtt", "10ms", "--rate", "8mbit"];
    let flags = ["--udp", "--pacing", "12mbit", "--time", "2s", "--length", "1000"];
    let measure = || {
        let (run, _) = emulated(&path, &flags);
        (run["findings"].clone(), run["predicted"]["limited_by"].clone())
    };
    TWO_OF_THREE.require("loss at the capacity", measure, |(findings, limited_by)| {
        // On a busy machine, the sender is a finding too, and comes first.
        let named = |name: &str| findings.as_array()?.iter().find(|finding| finding["name"] == name);
        let is_first = findings[0]["name"] == "loss" || findings[0]["name"] == "slow sender";
        // 1000 of 1042 bytes.
        let goodput = named("loss").map(|finding| &finding["predicted_goodput_bits_per_second"]);
        is_first && goodput == Some(&(8_000_000_u64 * 1000 / 1042).into()) && *limited_by == "capacity"
    });
}

/// The sender's interface is slower than the sending rate.
fn full_sender_queue_is_found_with_udp() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("result.json");
    let script = format!(
        "tc qdisc add dev lfn0 root tbf rate 5mbit burst 4000 limit 6000 || exit 1; \
         exec '{}' test far --udp --pacing 20mbit --time 1s --length 1000 --no-gso --json > '{}'",
        support::lfn_path().display(),
        file.display()
    );
    let mut command = support::lfn();
    command.args(["emulate", "--rtt", "10ms", "--rate", "100mbit", "--", "sh", "-c", &script]);
    let output = command.env("PATH", support::path_with_servers()).output().unwrap();
    let document: Value = serde_json::from_str(&fs::read_to_string(file).unwrap())
        .unwrap_or_else(|error| panic!("{error}: {}", support::stderr(&output)));
    let run = &document["runs"][0];
    // The sender waits after a drop and falls behind, or the drops are counted.
    let found = finding_names(run);
    assert!(matches!(found.first(), Some(&("slow sender" | "local drops"))), "{found:?} {}", run["near"]);
    assert!(!found.contains(&"loss"), "{found:?}");
    assert!(number(&sent(run)["queue_full"]) > 0, "{}", sent(run));
}

/// Returns the packets that tcpdump captures while datagrams are sent: time in seconds and payload bytes. Returns
/// `None` if tcpdump cannot run: it drops its groups before it listens, which a user namespace of an ordinary user
/// forbids.
fn captured(flags: &str) -> Option<(Value, Vec<(f64, u64)>)> {
    let home = tempfile::tempdir().unwrap();
    let (packets, result) = (home.path().join("packets"), home.path().join("result.json"));
    let script = format!(
        "[ \"$(cat /proc/self/setgroups)\" = deny ] && exit 7; \
         tcpdump -n -tt -l -B 8192 -i lfn0 'udp dst port 7323 and greater 300' > '{packets}' 2>'{packets}.err' & pid=$!; \
         until grep -q listening '{packets}.err'; do sleep 0.05; done; \
         '{lfn}' test far --udp --json {flags} > '{result}'; status=$?; sleep 0.5; kill -INT $pid; wait $pid; exit $status",
        packets = packets.display(),
        lfn = support::lfn_path().display(),
        result = result.display()
    );
    let mut command = support::lfn();
    command.args(["emulate", "--rtt", "10ms", "--rate", "2gbit", "--", "sh", "-c", &script]);
    let output = command.env("PATH", support::path_with_servers()).output().unwrap();
    if output.status.code() == Some(7) {
        skip("tcpdump_confirms_even_pacing", &Missing::User("root, because tcpdump gives up its groups"));
        return None;
    }
    let document = fs::read_to_string(result).unwrap();
    let mut document: Value =
        serde_json::from_str(&document).unwrap_or_else(|error| panic!("{error}: {}", support::stderr(&output)));
    let lines = fs::read_to_string(packets).unwrap();
    let packet = |line: &str| {
        let (at, length) = (line.split(' ').next()?, line.rsplit_once("length ")?.1);
        Some((at.parse().ok()?, length.trim().parse().ok()?))
    };
    Some((document["runs"][0].take(), lines.lines().filter_map(packet).collect()))
}

fn tcpdump_confirms_even_pacing() {
    // One datagram per millisecond.
    let Some((run, seen)) = captured("--pacing 8mbit --length 1000 --count 1500 --no-gso") else { return };
    assert_eq!((seen.len(), number(&sent(&run)["burst_datagrams"])), (1500, 1));
    let gaps: Vec<f64> = seen.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    assert!((0.0009..0.0015).contains(&mean), "a datagram every {mean} s");
    // A late sender catches up at twice the rate, not at once.
    let close = gaps.iter().filter(|gap| **gap < 0.0003).count();
    assert!(close < gaps.len() / 10, "{close} of {} right behind the one before", gaps.len());

    // Bursts of 100 µs, which the kernel splits. tcpdump captures them whole.
    let Some((run, seen)) = captured("--pacing 400mbit --length 1000 --count 20000") else { return };
    let reported = number(&sent(&run)["burst_datagrams"]);
    assert!((2..=10).contains(&reported), "{reported}");
    let longest = seen.iter().map(|(_, length)| *length).max().unwrap();
    assert!(longest <= reported * 1000, "{longest} B at once, bursts of {reported} reported");
    assert_eq!(seen.iter().map(|(_, length)| length).sum::<u64>(), 20_000_000);
    let time = seen.last().unwrap().0 - seen[0].0;
    assert!(time > 0.35, "20000 datagrams in {time} s, 0.4 at the rate asked");
}

fn latency_probes_measure_a_full_queue() {
    // 125 kB at 10 Mb/s are 100 ms.
    let path = ["--rtt", "20ms", "--rate", "10mbit", "--queue", "125kB"];
    let flags = ["--udp", "--pacing", "14mbit", "--time", "2s", "--latency", "--length", "1200"];
    let measure = || emulated(&path, &flags).0["latency"].take();
    TWO_OF_THREE.require_serial("latency of a full queue", measure, |latency| {
        let rtt = |part: &str, name: &str| latency[part]["rtt"][name].as_f64().unwrap_or(f64::NAN);
        let (idle, loaded) = (rtt("idle", "min_seconds"), rtt("loaded", "p50_seconds"));
        (0.019..0.04).contains(&idle)
            && (0.09..0.17).contains(&loaded)
            && latency["buffer_delay_percent"].as_f64().unwrap() > 100.0
    });
}

fn ramp_finds_the_capacity() {
    let path = ["--rtt", "10ms", "--rate", "20mbit", "--queue", "60kB"];
    let ramp = undisturbed("ramp to the capacity", 3, || {
        let (run, _) = emulated(&path, &["--ramp", "--ramp-step-time", "300ms", "--length", "1200"]);
        let ramp = run["near"]["streams"][0]["udp"]["ramp"].clone();
        // The sender of a busy machine reports that it cannot send at the rate of the next step.
        if ramp["sender_limit"] == true { Err(ramp.to_string()) } else { Ok(ramp) }
    });
    let rate = |name: &str| ramp[name].as_f64().unwrap();
    let (highest, failed) = (rate("highest_passed_bits_per_second"), rate("lowest_failed_bits_per_second"));
    // Packets of 1228 B with 1200 B of payload, in Ethernet frames.
    assert!((16e6..20.5e6).contains(&highest), "{ramp}");
    // The steps between 16 and 32 Mb/s approach the capacity from both sides.
    assert!(highest < failed && failed < 1.025 * highest, "{ramp}");
}

fn too_long_datagram_is_an_error() {
    let mut command = support::lfn();
    command.args(["emulate", "--rtt", "10ms", "--rate", "100mbit", "--"]).arg(support::lfn_path());
    let output = command.args(["test", "far", "--udp", "--length", "2000", "--time", "1s"]).output().unwrap();
    let said = text(&output.stderr);
    assert!(said.contains("datagrams of 2000 B do not fit the path MTU of 1500 B"), "{said}");
    assert!(said.contains("hint: use --length 1472, or --fragment"), "{said}");
    assert_eq!(output.status.code(), Some(1));
}
