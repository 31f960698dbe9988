//! `lfn test` inside `lfn emulate`: a fault that was made is the one that is found, and none where none was made.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs;
use std::process::ExitCode;

use serde_json::Value;
use support::Needs;

const LIMITS: [&str; 4] = ["receive window", "send buffer", "kernel cap", "window scale absent"];

fn main() -> ExitCode {
    support::run(&[
        ("a_held_window_is_found", Needs::Namespaces, a_held_window_is_found),
        ("a_window_above_the_kernels_cap_is_held", Needs::Namespaces, a_window_above_the_kernels_cap_is_held),
        ("a_small_send_buffer_is_found", Needs::Namespaces, a_small_send_buffer_is_found),
        ("without_window_scale_that_is_found", Needs::Namespaces, without_window_scale_that_is_found),
        ("the_way_back_is_predicted_by_its_own_link", Needs::Namespaces, the_way_back_is_predicted_by_its_own_link),
        ("nothing_is_found_where_nothing_is_wrong", Needs::Namespaces, nothing_is_found_where_nothing_is_wrong),
    ])
}

/// Half a BDP: a scale of 2, and half the path.
fn a_held_window_is_found() {
    for flags in [&["--window", "150000"][..], &["--window", "150000", "--reverse"]] {
        thrice(flags, |run| first(run, "receive window") && run["window_scale"] == 2);
    }
}

/// Above net.core.rmem_max the server changes sysctls of its own namespace, confined as it is.
fn a_window_above_the_kernels_cap_is_held() {
    let cap: u64 = fs::read_to_string("/proc/sys/net/core/rmem_max").unwrap().trim().parse().unwrap();
    let window = (cap + cap / 8).to_string();
    for flags in [&["--window", &window][..], &["--window", &window, "--reverse"]] {
        let run = emulated(flags);
        assert!(run["steady_goodput_bits_per_second"].as_f64().is_some_and(|rate| rate > 0.0), "{run}");
    }
}

fn a_small_send_buffer_is_found() {
    thrice(&["--sndbuf", "60000"], |run| first(run, "send buffer"));
}

fn without_window_scale_that_is_found() {
    // The command is the emulated root's shell, so that the sysctl is this path's alone.
    thrice(&["NO_SCALE"], |run| {
        let cure = &run["findings"][0]["cure"];
        first(run, "window scale absent")
            && *cure == serde_json::json!({ "command": "sysctl -w net.ipv4.tcp_window_scaling=1", "host": "near" })
    });
}

fn the_way_back_is_predicted_by_its_own_link() {
    let mut command = support::lfn();
    command
        .args(["emulate", "--rtt", "20ms", "--rate", "30mbit", "--return-rate", "6mbit", "--"])
        .arg(support::lfn_path());
    let output = command.args(["test", "far", "--json", "--time", "1s", "--both"]).output().unwrap();
    let document: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", support::stderr(&output)));
    let capacity = |run: usize| document["runs"][run]["path"]["capacity_bits_per_second"].clone();
    assert_eq!([capacity(0), capacity(1)], [30_000_000, 6_000_000]);
}

fn nothing_is_found_where_nothing_is_wrong() {
    thrice(&[], |run| !found(run).iter().any(|name| LIMITS.contains(&name.as_str())));
}

fn first(run: &Value, name: &str) -> bool {
    found(run).first().is_some_and(|first| first == name)
}

/// The first run of `lfn test far` over a path of 60 ms and 40 Mb/s, which BDP is 300 kB.
fn emulated(flags: &[&str]) -> Value {
    let mut command = support::lfn();
    command.args(["emulate", "--rtt", "60ms", "--rate", "40mbit", "--"]);
    let (flags, prelude) = match flags {
        ["NO_SCALE"] => (&[][..], "echo 0 > /proc/sys/net/ipv4/tcp_window_scaling; "),
        flags => (flags, ""),
    };
    command.args(["sh", "-c", &format!("{prelude}exec \"$0\" \"$@\"")]).arg(support::lfn_path());
    let output = command.args(["test", "far", "--json", "--time", "3s"]).args(flags).output().unwrap();
    // A busy machine makes an emulation that is not faithful; the report is there all the same.
    let mut document: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", support::stderr(&output)));
    document["runs"][0].take()
}

/// Names of the findings, the first one first.
fn found(run: &Value) -> Vec<String> {
    run["findings"].as_array().unwrap().iter().map(|finding| finding["name"].as_str().unwrap().to_owned()).collect()
}

/// Runs until `holds`, three times at most: what else the machine does can hide a fault, but not three times.
fn thrice(flags: &[&str], holds: impl Fn(&Value) -> bool) {
    let mut seen = Vec::new();
    for _ in 0..3 {
        let run = emulated(flags);
        if holds(&run) {
            return;
        }
        seen.push((found(&run), run["steady_goodput_bits_per_second"].clone()));
    }
    panic!("{flags:?}: {seen:?}");
}
