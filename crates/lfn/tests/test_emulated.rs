//! `lfn test` inside `lfn emulate`: each fault causes its finding, and a path without faults has none.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs;
use std::process::ExitCode;

use serde_json::Value;
use support::Needs;

const LIMITS: [&str; 4] = ["receive window", "send buffer", "kernel buffer limit", "no window scaling"];

fn main() -> ExitCode {
    support::run(&[
        ("fixed_window_is_found", Needs::Namespaces, fixed_window_is_found),
        ("window_above_the_kernel_limit_is_fixed", Needs::Namespaces, window_above_the_kernel_limit_is_fixed),
        ("small_send_buffer_is_found", Needs::Namespaces, small_send_buffer_is_found),
        ("missing_window_scaling_is_found", Needs::Namespaces, missing_window_scaling_is_found),
        ("reverse_direction_has_its_own_prediction", Needs::Namespaces, reverse_direction_has_its_own_prediction),
        ("healthy_paths_have_no_findings", Needs::Namespaces, healthy_paths_have_no_findings),
    ])
}

/// Half a BDP: a scale of 2, and half the goodput.
fn fixed_window_is_found() {
    for flags in [&["--window", "150000"][..], &["--window", "150000", "--reverse"]] {
        retry_up_to_3(flags, |run| first(run, "receive window") && run["window_scale"] == 2);
    }
}

/// Above net.core.rmem_max the server changes sysctls of its own namespace, although it is sandboxed.
fn window_above_the_kernel_limit_is_fixed() {
    let cap: u64 = fs::read_to_string("/proc/sys/net/core/rmem_max").unwrap().trim().parse().unwrap();
    let window = (cap + cap / 8).to_string();
    for flags in [&["--window", &window][..], &["--window", &window, "--reverse"]] {
        let run = emulated(flags);
        assert!(run["steady_goodput_bits_per_second"].as_f64().is_some_and(|rate| rate > 0.0), "{run}");
    }
}

fn small_send_buffer_is_found() {
    retry_up_to_3(&["--sndbuf", "60000"], |run| first(run, "send buffer"));
}

fn missing_window_scaling_is_found() {
    // The command is a shell of the emulated root, so the sysctl affects only this path.
    retry_up_to_3(&["NO_SCALE"], |run| {
        let cure = &run["findings"][0]["remedy"];
        first(run, "no window scaling")
            && *cure == serde_json::json!({ "command": "sysctl -w net.ipv4.tcp_window_scaling=1", "host": "near" })
    });
}

fn reverse_direction_has_its_own_prediction() {
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

fn healthy_paths_have_no_findings() {
    retry_up_to_3(&[], |run| !found(run).iter().any(|name| LIMITS.contains(&name.as_str())));
}

fn first(run: &Value, name: &str) -> bool {
    found(run).first().is_some_and(|first| first == name)
}

/// Returns the first run of `lfn test far` over a path of 60 ms and 40 Mb/s, whose BDP is 300 kB.
fn emulated(flags: &[&str]) -> Value {
    let mut command = support::lfn();
    command.args(["emulate", "--rtt", "60ms", "--rate", "40mbit", "--"]);
    let (flags, prelude) = match flags {
        ["NO_SCALE"] => (&[][..], "echo 0 > /proc/sys/net/ipv4/tcp_window_scaling; "),
        flags => (flags, ""),
    };
    command.args(["sh", "-c", &format!("{prelude}exec \"$0\" \"$@\"")]).arg(support::lfn_path());
    let output = command.args(["test", "far", "--json", "--time", "3s"]).args(flags).output().unwrap();
    // On a busy machine the emulation is not accurate, but the report exists.
    let mut document: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", support::stderr(&output)));
    document["runs"][0].take()
}

/// Returns the names of the findings in order.
fn found(run: &Value) -> Vec<String> {
    run["findings"].as_array().unwrap().iter().map(|finding| finding["name"].as_str().unwrap().to_owned()).collect()
}

/// Runs until `holds`, at most three times: other load on the machine can hide a fault, but not three times.
fn retry_up_to_3(flags: &[&str], holds: impl Fn(&Value) -> bool) {
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
