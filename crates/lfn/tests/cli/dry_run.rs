//! `lfn emulate --dry-run` run as a user runs it. It needs no namespaces, root or clock, so the results are exact.

use std::process::Output;

use serde_json::Value;

use crate::support;
use crate::support::{stderr, stdout};

fn lfn(arguments: &str) -> Output {
    support::lfn().args(["emulate", "--dry-run"]).args(arguments.split_whitespace()).output().unwrap()
}

fn json(arguments: &str) -> Value {
    let output = lfn(&format!("{arguments} --json"));
    assert!(output.status.success(), "{arguments}: {}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn figure(run: &Value, key: &str) -> f64 {
    let value = key.split('.').fold(run, |value, part| &value[part]);
    value.as_f64().unwrap_or_else(|| panic!("{key} is {value}"))
}

fn near(run: &Value, key: &str, expected: f64, tolerance: f64) {
    let got = figure(run, key);
    assert!((got / expected - 1.0).abs() <= tolerance, "{key}: {got} instead of {expected}");
}

#[test]
fn acts_transfer_takes_the_predicted_time() {
    let run = json("--rtt 539ms --rate 135mbit --size 100MB --seed 1");
    assert_eq!(run["schema"], "lfn.dry-run/2");
    assert_eq!(run["complete"], true);
    near(&run, "simulated.seconds", figure(&run, "predicted.seconds"), 0.005);
    // 135 Mb/s × 1448/1514 after start-up.
    near(&run, "simulated.steady_goodput_bits_per_second", 129.11e6, 0.001);
    // A full queue of one BDP takes half a second.
    near(&run, "queueing_delay.max_seconds", 0.539, 0.01);
    assert_eq!(run["forward"]["dropped_packets"]["queue"], run["senders"]["retransmitted_segments"]);
    let held = json("--rtt 539ms --rate 135mbit --size 100MB --seed 1 --window 4547813");
    assert_eq!(held["predicted"]["limited_by"], "receive window");
    near(&held, "simulated.seconds", figure(&held, "predicted.seconds"), 0.005);
    assert_eq!(held["senders"]["retransmitted_segments"], 0);
}

/// 6.25 GB in flight: no machine here carries this, and one TCP connection cannot either.
#[test]
fn dry_run_simulates_a_path_of_100_gbit() {
    let link = "--rtt 500ms --rate 100gbit --seed 1";
    let one = json(&format!("{link} --size 100GB"));
    assert_eq!(one["predicted"]["limited_by"], "receive window");
    // The maximum window is 1,073,725,440 B every 500 ms.
    near(&one, "simulated.steady_goodput_bits_per_second", 17.18e9, 0.03);
    let eight = json(&format!("{link} --size 1TB --streams 8"));
    near(&eight, "simulated.steady_goodput_bits_per_second", 95.64e9, 0.005);
    assert!(figure(&eight, "steps") < 3e6, "{}", eight["steps"]);
}

#[test]
fn same_seed_gives_the_same_result() {
    let link = "--rtt 90ms --rate 1gbit --loss 1e-3 --jitter normal:1ms --size 20MB";
    let run = |seed: u32| stdout(&lfn(&format!("{link} --seed {seed} --json")));
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}

#[test]
fn every_impairment_and_profile_can_be_simulated() {
    for settings in [
        "--forward-loss gilbert:p=0.01:r=0.3",
        "--aqm codel",
        "--aqm fq-codel --ecn on --streams 4",
        "--aqm red --ecn on",
        "--policer 40mbit:200KB",
        "--shaper 40mbit:200KB",
        "--outage every:5s:200ms",
        "--path-mtu 1400",
        "--jitter 5ms:reorder",
        "--reorder 1%:3",
        "--duplicate 1%",
        "--corrupt 0.1%",
        "--queue 100p",
        "--return-rate 500kbit",
        "--congestion reno",
        "--congestion bbr",
    ] {
        let run = json(&format!("--rtt 40ms --rate 50mbit --size 5MB --seed 3 {settings}"));
        assert_eq!(run["complete"], true, "{settings}");
        // No case is as fast as the line, and none is slower than a tenth of it.
        assert!(figure(&run, "simulated.goodput_bits_per_second") < 50e6, "{settings}");
        assert!(figure(&run, "simulated.goodput_bits_per_second") > 2e6, "{settings}");
    }
    for profile in ["acts", "geo", "starlink", "dsl", "lte", "lossy-wifi"] {
        let run = json(&format!("--profile {profile} --size 2MB --seed 1"));
        assert_eq!(run["complete"], true, "{profile}");
    }
    let row = json("--link rate=100mbit,rtt=20ms --link rate=10mbit,rtt=500ms --size 5MB --seed 1");
    assert!(figure(&row, "simulated.goodput_bits_per_second") < 10e6);
}

#[test]
fn loss_bursts_do_not_starve_a_flow() {
    // 20 MB take 8 s without loss. With certain loss in a burst counted in packets, the flow needed minutes or never
    // ended.
    for seed in 1..=12 {
        let run = json(&format!("--profile lossy-wifi --size 20MB --seed {seed}"));
        assert_eq!(run["complete"], true, "seed {seed}");
        let seconds = figure(&run, "simulated.seconds");
        assert!((10.0..60.0).contains(&seconds), "seed {seed}: {seconds} s");
    }
    let calm = json("--profile lossy-wifi --jitter none --loss none --duplicate none --size 5MB --seed 1");
    assert!(figure(&calm, "simulated.utilisation") > 0.8);
}

#[test]
fn page_compares_simulation_with_prediction() {
    let output = lfn("--rtt 20ms --rate 100mbit --size 10MB --loss 1e-3 --seed 5");
    assert!(output.status.success(), "{}", stderr(&output));
    let page = stdout(&output);
    for word in ["simulated", "predicted", "10 MB", "cubic", "limited by loss", "retransmitted", "by loss", "seed 5"] {
        assert!(page.contains(word), "'{word}' is not in {page}");
    }
    assert!(page.lines().all(|line| line.chars().count() <= 80), "{page}");
}

#[test]
fn endless_transfer_is_a_failure_with_reason() {
    for (settings, said) in
        [("--loss 100%", "no answer to seven SYNs"), ("--path-mtu 1000:black-hole", "15 consecutive timeouts")]
    {
        let output = lfn(&format!("--rtt 20ms --rate 100mbit --size 10MB {settings}"));
        assert_eq!(output.status.code(), Some(1), "{settings}");
        assert!(stderr(&output).contains(said), "{settings}: {}", stderr(&output));
        assert!(stdout(&output).contains("dropped"), "{settings}: {}", stdout(&output));
    }
}

#[test]
fn contradictory_flags_are_refused_with_a_hint() {
    let link = "--rtt 539ms --rate 135mbit";
    let cases = [
        (format!("{link} --size 0"), "--size must be at least 1 B"),
        (format!("{link} --size lots"), "lots"),
        (format!("{link} --size -1"), "-1"),
        (format!("{link} --size 1000TB"), "too large for a dry run"),
        (format!("{link} --streams 0"), "--streams 0"),
        (format!("{link} --streams 5000"), "--streams 5000"),
        (format!("{link} --window 2GB"), "1,073,725,440 B"),
        (format!("{link} --window 100"), "smaller than one segment"),
        (format!("{link} --congestion vegas"), "vegas"),
        (format!("{link} --size 1MB -- true"), "--dry-run"),
        (format!("{link} --parallel rate=1mbit,rtt=1ms"), "--parallel"),
        ("--rate 135mbit".to_owned(), "--rtt"),
        ("--rtt 10s --rate 10tbit --jitter 5ms --size 1GB".to_owned(), "a dry run with jitter can keep"),
    ];
    for (arguments, named) in cases {
        let output = lfn(&arguments);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments}: {said}");
        assert!(said.contains(named) && said.contains("hint: "), "{arguments}: {said}");
        assert!(!said.contains("panicked"), "{said}");
    }
    let output = support::lfn().args("emulate --size 1GB --rtt 1ms --rate 1mbit -- true".split(' ')).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}
