//! Each fault causes its finding as the first finding. Healthy paths have no findings, and their goodput is within the
//! predicted interval. The tests use real kernels over emulated paths and loopback.
//!
//! Other load on the machine can hide a fault, so each is measured up to three times. On a healthy path, no accurate
//! run may have a finding. Windows, buffers and window scale are in `test_emulated`. `lfn_results::diagnose` tests the rules
//! on recorded evidence.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::io::{BufRead, BufReader};
use std::process::{ExitCode, Output, Stdio};

use serde_json::Value;
use support::{Needs, stderr};

fn main() -> ExitCode {
    // Each test mostly waits for its own path: the fastest of them moves 50 Mb/s.
    support::run_parallel(
        4,
        &[
            ("healthy_path_has_no_findings", Needs::Namespaces, healthy_path_has_no_findings),
            ("longer_healthy_path_has_no_findings", Needs::Namespaces, longer_healthy_path_has_no_findings),
            ("local_qdisc_drops_are_found", Needs::Programs(&["tc"]), local_qdisc_drops_are_found),
            ("path_loss_is_found", Needs::Namespaces, path_loss_is_found),
            ("standing_queue_is_found", Needs::Namespaces, standing_queue_is_found),
            ("small_mtu_is_found", Needs::Namespaces, small_mtu_is_found),
            ("congestion_control_of_route_is_found", Needs::Programs(&["ip"]), congestion_control_of_route_is_found),
            ("competing_traffic_is_found", Needs::Namespaces, competing_traffic_is_found),
            ("slow_sending_application_is_found", Needs::Namespaces, slow_sending_application_is_found),
            ("slow_receiving_application_is_found", Needs::Namespaces, slow_receiving_application_is_found),
            ("cpu_limit_is_found", Needs::Programs(&["taskset"]), cpu_limit_is_found),
        ],
    )
}

/// Asserts no findings and a goodput as predicted. Any finding fails the test, unless the run itself reports that the
/// machine was too busy: an inaccurate emulation, or a CPU limit. This test fails if a rule reports a missing fault
/// (competing traffic, queueing, small MTU, slow start, a slow application, CPU), and if the prediction is wrong by a
/// factor of 2 or by a tenth.
fn healthy_path_has_no_findings() {
    healthy("50mbit", "20ms");
}

fn longer_healthy_path_has_no_findings() {
    healthy("20mbit", "60ms");
}

fn healthy(capacity: &str, rtt: &str) {
    let mut seen = Vec::new();
    let healthy = (0..5).any(|_| {
        let output = emulation(&["--rate", capacity, "--rtt", rtt], "", &["--time", "4s"]);
        let run = run_of(&output);
        let found = found(&run);
        let busy = output.status.code() == Some(NOT_FAITHFUL) || found.iter().any(|name| name == "CPU-bound");
        assert!(found.is_empty() || busy, "{capacity} {rtt}: {:#}", run["findings"]);
        let rate = |value: &Value| value.as_u64().unwrap();
        let measured = rate(&run["steady_goodput_bits_per_second"]);
        let expected = &run["expected"];
        let (least, most) = (rate(&expected["min_bits_per_second"]), rate(&expected["max_bits_per_second"]));
        seen.push((measured, least, most, found.clone()));
        found.is_empty() && (least..=most).contains(&measured)
    });
    assert!(healthy, "{capacity} {rtt}: {seen:#?}");
}

/// A token bucket slower than the path on the sender's own interface, with a very short queue.
fn local_qdisc_drops_are_found() {
    let fault = "tc qdisc add dev lfn0 root tbf rate 15mbit burst 4000 limit 6000 || exit 1; ";
    retry_up_to_3(
        "tbf",
        || emulated(PATH, fault, &["--time", "2s"]),
        |run| {
            first(run, "local drops") && run["findings"][0]["remedy"]["command"] == "tc qdisc replace dev lfn0 root fq"
        },
    );
}

/// About twenty segments are lost in this time. With a longer path or less loss it can be one segment, which is no
/// finding.
fn path_loss_is_found() {
    let path = ["--rate", "40mbit", "--rtt", "20ms", "--loss", "1%"];
    retry_up_to_3(
        "loss",
        || emulated(&path, "", &["--time", "3s", "--interval", "500ms", "--congestion", "reno"]),
        |run| first(run, "loss") && run["findings"][0]["evidence"]["lost_share"].as_f64().unwrap() > 0.003,
    );
}

/// A queue of ten BDPs, and a sender that fills it.
fn standing_queue_is_found() {
    let path = [PATH, &["--queue", "10bdp"]].concat();
    retry_up_to_3(
        "queue",
        || emulated(&path, "", &["--time", "3s", "--interval", "500ms", "--congestion", "reno"]),
        |run| found(run).iter().any(|name| name == "queueing"),
    );
}

fn small_mtu_is_found() {
    let path = [PATH, &["--path-mtu", "1200"]].concat();
    retry_up_to_3(
        "mtu",
        || emulated(&path, "", &["--time", "2s"]),
        |run| found(run).iter().any(|name| name == "small MTU"),
    );
}

/// The route sets another congestion control than the requested one.
fn congestion_control_of_route_is_found() {
    let available = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_allowed_congestion_control").unwrap();
    let Some(other) = available.split_whitespace().find(|name| *name != "reno") else {
        return eprintln!("skipped: this kernel has no congestion control but reno");
    };
    let fault = format!(
        "ip route show dev lfn0 | while read -r net rest; do \
           ip route replace \"$net\" dev lfn0 congctl {other} || exit 1; done; "
    );
    retry_up_to_3(
        "congctl",
        || emulated(PATH, &fault, &["--time", "2s", "--congestion", "reno"]),
        |run| {
            let evidence = &run["findings"].as_array().unwrap().iter().find(|f| f["name"] == "congestion control");
            evidence.is_some_and(|finding| finding["evidence"]["in_use"] == other)
        },
    );
}

/// Another test runs over the same interface at the same time.
fn competing_traffic_is_found() {
    let fault = "\"$0\" test far --time 4s --json >/dev/null 2>&1 & sleep 0.5; ";
    retry_up_to_3(
        "competing",
        || emulated(PATH, fault, &["--time", "3s", "--interval", "500ms"]),
        |run| first(run, "competing traffic"),
    );
}

/// Stops the process for most of the time, as a slow disk does. The buffers have a fixed size, because growing buffers
/// would hide this.
const STOPPING: &str = "( sleep 0.5; for i in 1 2 3 4 5 6; do kill -STOP $$; sleep 0.5; kill -CONT $$; \
                        sleep 0.05; done ) & ";

fn slow_sending_application_is_found() {
    let flags = ["--time", "3500ms", "--interval", "250ms", "--near-sndbuf", "600000"];
    retry_up_to_3("writer", || emulated(PATH, STOPPING, &flags), |run| first(run, "slow sending application"));
}

fn slow_receiving_application_is_found() {
    let flags = ["--time", "3500ms", "--interval", "250ms", "--reverse", "--near-rcvbuf", "600000"];
    retry_up_to_3("reader", || emulated(PATH, STOPPING, &flags), |run| first(run, "slow receiving application"));
}

/// Both ends of a loopback test share one processor.
fn cpu_limit_is_found() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
    let processor = allowed.split([',', '-']).next().unwrap();
    let pinned = || support::lfn_after(&["taskset", "-c", processor]);
    let mut serve = pinned();
    serve.args(["serve", "--ephemeral", "--quiet", "--port", "0", "--bind", "127.0.0.1"]);
    let mut server = serve.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut ticket = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut ticket).unwrap();
    let test = || {
        let mut command = pinned();
        command.args(["test", ticket.trim(), "--json", "--time", "2s"]).env("HOME", "/nonexistent");
        run_of(&command.output().unwrap())
    };
    let result = std::panic::catch_unwind(|| retry_up_to_3("processor", test, |run| first(run, "CPU-bound")));
    let _ = server.kill();
    let _ = server.wait();
    result.unwrap();
}

/// A BDP of 300 kB.
const PATH: &[&str] = &["--rate", "40mbit", "--rtt", "60ms"];

/// Exit code of an emulation that was not accurate.
const NOT_FAITHFUL: i32 = 4;

/// Returns the first run of `lfn test far` over an emulated path, after a shell on its near side created `fault`.
fn emulated(path: &[&str], fault: &str, flags: &[&str]) -> Value {
    run_of(&emulation(path, fault, flags))
}

fn emulation(path: &[&str], fault: &str, flags: &[&str]) -> Output {
    let mut command = support::lfn();
    command.arg("emulate").args(path).args(["--", "sh", "-c", &format!("{fault}exec \"$0\" \"$@\"")]);
    command.env("PATH", support::path_with_servers());
    command.arg(support::lfn_path()).args(["test", "far", "--json"]).args(flags);
    command.output().unwrap()
}

/// On a busy machine the emulation is not accurate, but the report exists.
fn run_of(output: &Output) -> Value {
    let document: Result<Value, _> = serde_json::from_slice(&output.stdout);
    document.unwrap_or_else(|_| panic!("{}", stderr(output)))["runs"][0].take()
}

fn first(run: &Value, name: &str) -> bool {
    found(run).first().is_some_and(|first| first == name)
}

/// Returns the names of the findings in order.
fn found(run: &Value) -> Vec<String> {
    run["findings"].as_array().unwrap().iter().map(|finding| finding["name"].as_str().unwrap().to_owned()).collect()
}

/// Measures until `holds`, at most three times.
fn retry_up_to_3(what: &str, measure: impl Fn() -> Value, holds: impl Fn(&Value) -> bool) {
    let mut seen = Vec::new();
    for _ in 0..3 {
        let run = measure();
        if holds(&run) {
            return;
        }
        let summaries = run["findings"].as_array().unwrap().iter().map(|finding| finding["summary"].clone());
        seen.push((found(&run), summaries.collect::<Vec<_>>(), run["steady_goodput_bits_per_second"].clone()));
    }
    panic!("{what}: {seen:#?}");
}
