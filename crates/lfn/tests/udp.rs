//! `lfn test --udp`, `--ramp` and `--latency`: on loopback, and over emulated paths whose log says what became of each
//! datagram.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking, its helpers too")]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::process::ExitCode;

use serde_json::Value;
use support::server::{Server, assert_refused, interrupted, kill, number, text, under_way};
use support::{Needs, unwrapped};

fn main() -> ExitCode {
    // Most of them wait for their path, or for the last datagrams.
    support::run_beside(
        4,
        &[
            ("every_datagram_is_counted_with_and_without_gso", Needs::Nothing, every_datagram_is_counted),
            ("datagrams_leave_as_and_from_where_they_should", Needs::Nothing, datagrams_leave_as_they_should),
            ("an_interrupt_ends_datagrams_too", Needs::Nothing, an_interrupt_ends_datagrams_too),
            ("an_interrupted_ramp_says_that_it_was_broken_off", Needs::Nothing, an_interrupted_ramp_says_so),
            ("a_ramp_that_failed_says_what_it_had_begun", Needs::Nothing, a_ramp_that_failed_says_what_it_had_begun),
            ("what_makes_no_sense_is_refused", Needs::Nothing, what_makes_no_sense_is_refused),
            ("probes_run_beside_tcp", Needs::Nothing, probes_run_beside_tcp),
            ("lost_and_doubled_datagrams_are_those_of_the_link", Needs::Namespaces, lost_and_doubled_datagrams),
            ("reordered_datagrams_are_not_lost", Needs::Namespaces, reordered_datagrams_are_not_lost),
            ("every_figure_is_that_of_the_links_log", Needs::Namespaces, figures_are_those_of_the_log),
            ("a_full_queue_is_what_the_probes_wait_in", Needs::Namespaces, a_full_queue_is_what_the_probes_wait_in),
            ("a_ramp_finds_the_capacity", Needs::Namespaces, a_ramp_finds_the_capacity),
            ("what_the_receiver_has_no_room_for_is_not_the_paths_loss", Needs::Nothing, a_receiver_overflows),
            ("a_sender_that_cannot_keep_its_rate_says_so", Needs::Nothing, a_sender_that_cannot_keep_its_rate),
            ("a_rate_beyond_the_servers_limit_is_shown_with_it", Needs::Nothing, a_limit_is_shown),
            ("both_hosts_are_told_and_a_set_rate_is_predicted", Needs::Namespaces, both_hosts_are_told),
            ("loss_of_the_path_is_found", Needs::Namespaces, loss_is_found),
            ("a_queue_of_the_senders_own_is_found", Needs::Programs(&["tc"]), an_own_queue_is_found),
            ("datagrams_leave_evenly_by_tcpdump", Needs::Programs(&["tcpdump"]), datagrams_leave_evenly),
            ("a_datagram_too_long_for_the_path_is_named", Needs::Namespaces, a_datagram_too_long_is_named),
        ],
    )
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

/// A step takes a minute here: whatever the machine, none was done.
fn an_interrupted_ramp_says_so() {
    let server = Server::start(&[]);
    let home = tempfile::tempdir().unwrap();
    for direction in [&[][..], &["--reverse"]] {
        let file = home.path().join("ramp.json");
        let saved = file.to_str().unwrap();
        let flags = [&["--ramp", "--ramp-step", "60s", "--save", saved], direction].concat();
        let (code, ..) = interrupted(under_way(&["test", &server.ticket], &flags), 1, |pid| kill("INT", pid));
        assert_eq!(code, Some(130));
        let shown = unwrapped(&support::lfn().args(["show", saved]).output().unwrap());
        assert!(shown.contains("ramp broken off before its first step was done"), "{shown}");
        assert!(shown.contains("1 Mb/s had been begun"), "{shown}");
        assert!(shown.contains("ended interrupted") && !shown.contains("at every rate"), "{shown}");
        let stored: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        let end = if direction.is_empty() { "near" } else { "far" };
        let ramp = &stored["runs"][0][end]["streams"][0]["udp"]["ramp"];
        assert_eq!(number(&ramp["begun_bits_per_second"]), 1_000_000, "{ramp}");
    }
}

/// The same, because the server is no more.
fn a_ramp_that_failed_says_what_it_had_begun() {
    let home = tempfile::tempdir().unwrap();
    for direction in [&[][..], &["--reverse"]] {
        let server = Server::start(&[]);
        let file = home.path().join("ramp.json");
        let saved = file.to_str().unwrap();
        let flags = [&["--ramp", "--ramp-step", "60s", "--save", saved], direction].concat();
        let child = under_way(&["test", &server.ticket], &flags);
        let (code, events, stderr) = interrupted(child, 1, |_| kill("KILL", server.child.id()));
        assert_eq!(code, Some(1), "{stderr}");
        let stored: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        let told = events.iter().find(|event| event["event"] == "step").unwrap();
        for ramp in [&stored["unfinished"]["ramp"], &told["ramp"]] {
            assert_eq!((number(&ramp["begun_bits_per_second"]), &ramp["steps"]), (1_000_000, &Value::Array(vec![])));
        }
        let shown = unwrapped(&support::lfn().args(["show", saved]).output().unwrap());
        assert!(shown.contains("ramp broken off before its first step was done"), "{shown}");
        assert!(shown.contains("1 Mb/s had been begun"), "{shown}");
    }
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
    assert_refused(&server.test(&["--udp", "--until", "2%"]), 2, "--until with --udp: it is of TCP");
    let blocks = server.test(&["--ramp", "--blocks"]);
    assert_refused(&blocks, 2, "--blocks with --ramp");
    assert!(support::stderr(&blocks).contains("hint: leave out --blocks, or --ramp"), "{}", support::stderr(&blocks));
    assert_refused(&server.test(&["--udp", "--mss", "1000"]), 2, "--mss is of TCP");
    assert_refused(&server.test(&["--udp", "--bind", "127.0.0.1,127.0.0.2"]), 2, "--bind with several places");
    assert_refused(&server.test(&["--udp", "--pacing", "fast"]), 2, "--pacing");
    assert_refused(&server.test(&["--udp", "--window", "1MiB"]), 2, "--window with --udp");
    assert_refused(&server.test(&["--udp", "--far-window", "1MiB"]), 2, "--far-window with --udp");
    assert_refused(&server.test(&["--udp", "--read", "1MiB"]), 2, "--read with --udp");
    assert_refused(&server.test(&["--udp", "--data", "zero"]), 2, "--data zero with --udp");
    for (flag, value) in [("--time", "5s"), ("--count", "5000"), ("--bytes", "5000"), ("--until", "2%")] {
        let output = server.test(&["--ramp", flag, value]);
        assert_refused(&output, 2, &format!("{flag} with --ramp"));
        assert!(support::stderr(&output).contains(&format!("hint: leave out {flag};")), "{}", support::stderr(&output));
    }
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

/// Everything at once, and each figure reckoned anew from what the link says it did with each datagram.
fn figures_are_those_of_the_log() {
    let path = ["--rtt", "20ms", "--rate", "1gbit", "--loss", "0.25", "--duplicate", "0.05", "--reorder", "0.1"];
    let path = [&path[..], &["--seed", "11"]].concat();
    let flags = ["--udp", "--count", "2000", "--record", "400", "--pacing", "4mbit", "--no-gso", "--no-gro"];
    let mut seen = Vec::new();
    for _ in 0..3 {
        let (run, log) = emulated(&path, &flags);
        let received = received(&run);
        let own = number(&received["overflows"]) + fates(&log).get("lost").copied().unwrap_or(0);
        if own > 0 {
            // What a busy machine lost itself is in no order that the log knows.
            seen.push(received.clone());
            continue;
        }
        let logged = Logged::of(&log, 2000);
        assert_eq!(number(&received["datagrams"]), logged.came, "{received}");
        assert_eq!(number(&received["lost"]), logged.bursts.iter().sum::<u64>(), "{received}");
        assert_eq!(number(&received["duplicates"]), logged.twice, "{received}");
        assert_eq!(counts(&received["loss_bursts"]), tallied(&logged.bursts), "{received}");
        assert_eq!(number(&received["longest_burst"]), logged.bursts.iter().copied().max().unwrap());
        assert!(logged.bursts.iter().any(|&burst| burst > 2) && logged.extents.len() > 50, "{received}");
        assert_eq!(number(&received["reordered"]), logged.extents.len() as u64, "{received}");
        assert_eq!(counts(&received["extents"]), tallied(&logged.extents), "{received}");
        return;
    }
    panic!("too busy a machine: {seen:#?}");
}

/// What became of the datagrams of a stream, by the link's log.
struct Logged {
    came: u64,
    twice: u64,
    /// Lengths of runs of numbers that never came.
    bursts: Vec<u64>,
    /// RFC 4737 §4.2: of each that came late, how many came between the first later one and it.
    extents: Vec<u64>,
}

impl Logged {
    fn of(log: &[Value], sent: u64) -> Logged {
        // The link numbers packets as they come to it, so in the order of their own numbers; it tells of them as they
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
            match arrivals.contains(&number) {
                true => bursts.extend(Some(std::mem::take(&mut run)).filter(|&run| run > 0)),
                false => run += 1,
            }
        }
        bursts.extend(Some(run).filter(|&run| run > 0));
        Logged { came: arrivals.len() as u64, twice, bursts, extents }
    }
}

/// How often each length came, of those short enough to be counted one by one.
fn tallied(lengths: &[u64]) -> BTreeMap<u64, u64> {
    let mut counts = BTreeMap::new();
    lengths.iter().filter(|&&length| length <= 16).for_each(|&length| *counts.entry(length).or_default() += 1);
    counts
}

fn counts(told: &Value) -> BTreeMap<u64, u64> {
    let exact = told.as_array().unwrap().iter().filter(|run| number(&run["to"]) <= 16);
    exact.map(|run| (number(&run["from"]), number(&run["count"]))).collect()
}

fn findings(run: &Value) -> Vec<&str> {
    run["findings"].as_array().unwrap().iter().map(|finding| finding["name"].as_str().unwrap()).collect()
}

fn a_receiver_overflows() {
    let server = Server::start(&[]);
    let flags = ["--udp", "--reverse", "--count", "20000", "--record", "1000", "--pacing", "2gbit", "--rcvbuf", "2048"];
    // Each alone, so that one overflow is one datagram.
    let flags = [&flags[..], &["--no-gro"]].concat();
    let run = server.json(&flags);
    let received = received(&run);
    // Loopback loses nothing itself: what is missing found no room.
    assert!(number(&received["overflows"]) > 100, "{received}");
    assert_eq!(number(&received["lost"]), number(&received["overflows"]), "{received}");
    assert_eq!(number(&received["lost"]) + number(&received["datagrams"]), 20_000);
    let found = findings(&run);
    assert!(found.contains(&"receiver overflow") && !found.contains(&"loss"), "{found:?}");
    let cure = run["findings"].as_array().unwrap().iter().find(|f| f["name"] == "receiver overflow").unwrap();
    assert!(cure["cure"]["command"].as_str().unwrap().contains("--rcvbuf"), "{cure}");
    let text = unwrapped(&server.test(&flags));
    assert!(text.contains("in the receiver's own buffer, not on the path"), "{text}");
}

fn a_sender_that_cannot_keep_its_rate() {
    let server = Server::start(&[]);
    let flags = ["--udp", "--time", "600ms", "--record", "1400", "--pacing", "2tbit"];
    let run = server.json(&flags);
    let sent = sent(&run);
    assert_eq!(number(&sent["asked_bits_per_second"]), 2_000_000_000_000);
    assert!(number(&sent["achieved_bits_per_second"]) < 1_000_000_000_000, "{sent}");
    assert!(sent["behind_share"].as_f64().unwrap() > 0.5 && sent["given_up_seconds"].as_f64().unwrap() > 0.0, "{sent}");
    assert!(findings(&run).contains(&"slow sender"), "{}", run["findings"]);
    let text = unwrapped(&server.test(&flags));
    assert!(text.contains("2 Tb/s asked") && text.contains("it could not keep the rate"), "{text}");
}

fn a_limit_is_shown() {
    let server = Server::start(&["--client-rate", "8mbit"]);
    for direction in [&[][..], &["--reverse"]] {
        let flags = [&["--udp", "--time", "1s", "--record", "1000", "--pacing", "50mbit"], direction].concat();
        let run = server.json(&flags);
        let sent = sent(&run);
        assert_eq!(number(&sent["asked_bits_per_second"]), 50_000_000, "{sent}");
        assert_eq!(number(&sent["limit_bits_per_second"]), 8_000_000, "{sent}");
        assert!(number(&sent["achieved_bits_per_second"]) < 12_000_000, "{sent}");
        assert_eq!(findings(&run).first(), Some(&"limited by the server"), "{}", run["findings"]);
        let text = unwrapped(&server.test(&flags));
        assert!(text.contains("50 Mb/s asked, 8 Mb/s allowed by the server"), "{text}");
        assert!(text.contains("which holds the test to 8 Mb/s"), "{text}");
    }
    // What the client asked for itself is no limit of the server's, whichever it has.
    for (server, udp) in [(&server, true), (&server, false), (&Server::start(&[]), true), (&Server::start(&[]), false)]
    {
        let flags = ["--reverse", "--time", "400ms", "--record", "1000", "--pacing", "4mbit", "--udp"];
        let flags = &flags[..if udp { 8 } else { 7 }];
        let run = server.json(flags);
        assert_eq!(run["far"]["rate_limit_bits_per_second"], Value::Null, "{flags:?}");
        assert!(!findings(&run).contains(&"limited by the server"), "{}", run["findings"]);
        assert!(!unwrapped(&server.test(flags)).contains("holds the test"), "{flags:?}");
    }
}

fn both_hosts_are_told() {
    let path = ["--rtt", "10ms", "--rate", "20mbit"];
    let mut seen = Vec::new();
    for _ in 0..3 {
        let (run, _) = emulated(&path, &["--udp", "--pacing", "8mbit", "--time", "2s", "--record", "1000"]);
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
        let within = number(&expected["least_bits_per_second"])..=number(&expected["most_bits_per_second"]);
        assert_eq!((&run["predicted"]["limited_by"], &run["retransmits"]), (&"asked rate".into(), &Value::Null));
        if within.contains(&goodput) && findings(&run).is_empty() {
            return;
        }
        seen.push((goodput, run["findings"].clone()));
    }
    panic!("{seen:#?}");
}

fn loss_is_found() {
    let path = ["--rtt", "10ms", "--rate", "20mbit", "--loss", "0.02"];
    let (run, _) = emulated(&path, &["--udp", "--pacing", "8mbit", "--count", "2000", "--record", "1000"]);
    assert!(findings(&run).contains(&"loss"), "{}", run["findings"]);
    // Half as much again as the path carries.
    let (run, _) = emulated(&path[..4], &["--udp", "--pacing", "30mbit", "--time", "2s", "--record", "1000"]);
    let loss = run["findings"].as_array().unwrap().iter().find(|finding| finding["name"] == "loss").unwrap();
    // 1000 of 1042 bytes.
    assert_eq!(number(&loss["predicted_goodput_bits_per_second"]), 20_000_000 * 1000 / 1042, "{loss}");
    assert_eq!(run["predicted"]["limited_by"], "capacity");
}

/// The sender's own interface is slower than what is sent by it.
fn an_own_queue_is_found() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("result.json");
    let script = format!(
        "tc qdisc add dev lfn0 root tbf rate 5mbit burst 4000 limit 6000 || exit 1; \
         exec '{}' test far --udp --pacing 20mbit --time 1s --record 1000 --no-gso --json > '{}'",
        support::lfn_path().display(),
        file.display()
    );
    let mut command = support::lfn();
    command.args(["emulate", "--rtt", "10ms", "--rate", "100mbit", "--", "sh", "-c", &script]);
    let output = command.env("PATH", support::path_with_servers()).output().unwrap();
    let document: Value = serde_json::from_str(&fs::read_to_string(file).unwrap())
        .unwrap_or_else(|error| panic!("{error}: {}", support::stderr(&output)));
    let run = &document["runs"][0];
    // It hears of each drop, and either waits and falls behind, or the drops are counted.
    let found = findings(run);
    assert!(found.contains(&"slow sender") || found.contains(&"local drops"), "{found:?} {}", run["near"]);
    assert!(!found.contains(&"loss"), "{found:?}");
    assert!(number(&sent(run)["queue_full"]) > 0, "{}", sent(run));
}

/// What tcpdump sees leave while datagrams are sent: seconds and payload bytes of each. `None` where it cannot run: it
/// gives up its groups before it listens, which a user namespace of an ordinary user forbids.
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
        eprintln!("SKIPPED: tcpdump, which cannot give up its groups here");
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

fn datagrams_leave_evenly() {
    // A datagram a millisecond.
    let Some((run, seen)) = captured("--pacing 8mbit --record 1000 --count 1500 --no-gso") else { return };
    assert_eq!((seen.len(), number(&sent(&run)["burst_datagrams"])), (1500, 1));
    let gaps: Vec<f64> = seen.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    assert!((0.0009..0.0015).contains(&mean), "a datagram every {mean} s");
    // One that was held up catches up at twice the rate and not at once.
    let close = gaps.iter().filter(|gap| **gap < 0.0003).count();
    assert!(close < gaps.len() / 10, "{close} of {} right behind the one before", gaps.len());

    // Bursts of 100 us, which the kernel cuts: tcpdump sees them whole.
    let Some((run, seen)) = captured("--pacing 400mbit --record 1000 --count 20000") else { return };
    let told = number(&sent(&run)["burst_datagrams"]);
    assert!((2..=10).contains(&told), "{told}");
    let longest = seen.iter().map(|(_, length)| *length).max().unwrap();
    assert!(longest <= told * 1000, "{longest} B at once, bursts of {told} told");
    assert_eq!(seen.iter().map(|(_, length)| length).sum::<u64>(), 20_000_000);
    let time = seen.last().unwrap().0 - seen[0].0;
    assert!(time > 0.35, "20000 datagrams in {time} s, 0.4 at the rate asked");
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
