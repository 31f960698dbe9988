//! Each fault causes its finding as the first finding. Healthy paths have no findings, and their goodput is within the
//! predicted interval. The tests use real kernels over emulated paths and loopback.
//!
//! Other load on the machine can hide a fault, so two of three runs must find each fault. On a healthy path, no
//! accurate run may have a finding. Windows, buffers and window scale are in `test_emulated`. `results::diagnose` tests
//! the rules on recorded evidence.

use std::process::Output;
use std::thread;

use serde_json::Value;

use crate::support;
use crate::support::harness::{Needs, Test, Weight, tests_of};
use crate::support::rate::{Rate, TWO_OF_THREE};
use crate::support::server::{Server, finding_names, is_first_finding};
use crate::support::skip::{Missing, skip};
use crate::support::stderr;

/// Name of this module in the names of its tests and roles.
const MODULE: &str = "findings";

pub fn tests() -> Vec<Test> {
    let mut tests = tests_of(
        MODULE,
        Weight::Loaded,
        &[
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
    );
    let healthy = ("healthy_paths_have_no_findings", Needs::Namespaces, healthy_paths_have_no_findings as fn());
    tests.extend(tests_of(MODULE, Weight::Alone, &[healthy]));
    tests
}

/// The last path is that of the tests of windows and buffers.
fn healthy_paths_have_no_findings() {
    thread::scope(|scope| {
        for (capacity, rtt) in [("50mbit", "20ms"), ("20mbit", "60ms"), ("40mbit", "60ms")] {
            scope.spawn(move || healthy(capacity, rtt));
        }
    });
}

/// Runs in which the machine was fast enough, and that have no finding and the predicted goodput.
const HEALTHY: Rate = Rate { required: 2, runs: 5 };

/// Accurate runs of one path that may have a finding. A rule that fires in 2 % of healthy runs then fails this test in
/// 1 % of its executions, and a rule that fires in half of them in all but 1 of 150.
const PERMITTED_FALSE: usize = 1;

/// Requires that at most [`PERMITTED_FALSE`] accurate run has a finding, and that two of five are accurate and have the
/// predicted goodput. A run is not accurate if it reports this itself: an inaccurate emulation, or a CPU limit. This
/// test fails if a rule reports a missing fault (competing traffic, queueing, small MTU, slow start, a slow
/// application, CPU), and if the prediction is wrong by a factor of 2 or by a tenth.
fn healthy(capacity: &str, rtt: &str) {
    let what = format!("healthy path of {capacity} and {rtt}");
    let outputs: Vec<_> =
        (0..HEALTHY.runs).map(|_| emulation(&["--rate", capacity, "--rtt", rtt], "", &["--time", "8s"])).collect();
    let is_busy = |output: &Output| {
        output.status.code() == Some(INACCURATE) || finding_names(&run_of(output)).contains(&"CPU-bound")
    };
    let accurate: Vec<_> =
        outputs.iter().filter(|output| !is_busy(output)).map(|output| Measured(run_of(output))).collect();
    let wrong: Vec<_> = accurate.iter().filter(|run| !finding_names(&run.0).is_empty()).collect();
    println!("{what}: {} of {} accurate runs have findings, permitted {PERMITTED_FALSE}", wrong.len(), accurate.len());
    assert!(wrong.len() <= PERMITTED_FALSE, "{what}: {wrong:#?}");
    let rate = |value: &Value| value.as_u64().unwrap();
    HEALTHY.judge(&what, accurate, |Measured(run)| {
        let expected = &run["expected"];
        let range = rate(&expected["min_bits_per_second"])..=rate(&expected["max_bits_per_second"]);
        range.contains(&rate(&run["steady_goodput_bits_per_second"]))
    });
}

/// A token bucket slower than the path on the sender's own interface, with a very short queue.
fn local_qdisc_drops_are_found() {
    let fault = "tc qdisc add dev lfn0 root tbf rate 15mbit burst 4000 limit 6000 || exit 1; ";
    require(
        "tbf",
        || emulated(PATH, fault, &["--time", "2s"]),
        |run| {
            is_first_finding(run, "local drops")
                && run["findings"][0]["remedy"]["command"] == "tc qdisc replace dev lfn0 root fq"
        },
    );
}

/// About twenty segments are lost in this time. With a longer path or less loss it can be one segment, which is no
/// finding.
fn path_loss_is_found() {
    let path = ["--rate", "40mbit", "--rtt", "20ms", "--loss", "1%"];
    require(
        "loss",
        || emulated(&path, "", &["--time", "3s", "--interval", "500ms", "--congestion", "reno"]),
        |run| {
            let is_loss = is_first_finding(run, "random loss") || is_first_finding(run, "loss");
            is_loss && run["findings"][0]["evidence"]["lost_share"].as_f64().unwrap() > 0.003
        },
    );
}

/// A queue of ten BDPs, and a window of six: the queue never overflows.
fn standing_queue_is_found() {
    let path = [PATH, &["--queue", "10bdp"]].concat();
    let flags = ["--time", "4s", "--interval", "500ms", "--congestion", "reno", "--window", "1800000"];
    require("queue", || emulated(&path, "", &flags), |run| is_first_finding(run, "queueing"));
}

/// On a longer path, the growth of the congestion window would be the first finding of a test of 3 s.
fn small_mtu_is_found() {
    let path = ["--rate", "40mbit", "--rtt", "20ms", "--path-mtu", "1200"];
    require("mtu", || emulated(&path, "", &["--time", "3s"]), |run| is_first_finding(run, "small MTU"));
}

/// The route sets another congestion control than the requested one.
fn congestion_control_of_route_is_found() {
    let available = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_allowed_congestion_control").unwrap();
    let Some(other) = available.split_whitespace().find(|name| *name != "reno") else {
        return skip("congestion_control_of_route_is_found", &Missing::Feature("congestion control other than reno"));
    };
    let fault = format!(
        "ip route show dev lfn0 | while read -r net rest; do \
           ip route replace \"$net\" dev lfn0 congctl {other} || exit 1; done; "
    );
    require(
        "congctl",
        || emulated(PATH, &fault, &["--time", "2s", "--congestion", "reno"]),
        |run| is_first_finding(run, "congestion control") && run["findings"][0]["evidence"]["in_use"] == other,
    );
}

/// Another test runs over the same interface at the same time.
fn competing_traffic_is_found() {
    let fault = "\"$0\" test far --time 4s --json >/dev/null 2>&1 & sleep 0.5; ";
    require(
        "competing",
        || emulated(PATH, fault, &["--time", "3s", "--interval", "500ms"]),
        |run| is_first_finding(run, "competing traffic"),
    );
}

/// Stops the process for most of the time, as a slow disk does. The buffers have a fixed size, because growing buffers
/// would hide this.
const STOPPING: &str = "( sleep 0.5; for i in 1 2 3 4 5 6; do kill -STOP $$; sleep 0.5; kill -CONT $$; \
                        sleep 0.05; done ) & ";

fn slow_sending_application_is_found() {
    let flags = ["--time", "3500ms", "--interval", "250ms", "--near-sndbuf", "600000"];
    require("writer", || emulated(PATH, STOPPING, &flags), |run| is_first_finding(run, "slow sending application"));
}

fn slow_receiving_application_is_found() {
    let flags = ["--time", "3500ms", "--interval", "250ms", "--reverse", "--near-rcvbuf", "600000"];
    require("reader", || emulated(PATH, STOPPING, &flags), |run| is_first_finding(run, "slow receiving application"));
}

/// Both ends of a loopback test share one processor.
fn cpu_limit_is_found() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
    let processor = allowed.split([',', '-']).next().unwrap();
    let pinned = || support::lfn_after(&["taskset", "-c", processor]);
    let server = Server::start_command(pinned(), &[]);
    let test = || {
        let mut command = pinned();
        command.args(["test", &server.ticket, "--json", "--time", "2s"]).env("HOME", "/nonexistent");
        run_of(&command.output().unwrap())
    };
    require("processor", test, |run| is_first_finding(run, "CPU-bound"));
}

/// A BDP of 300 kB.
const PATH: &[&str] = &["--rate", "40mbit", "--rtt", "60ms"];

/// Exit code of an emulation that was not accurate.
const INACCURATE: i32 = 4;

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

/// Measures three times, and requires the finding at least twice: other load on the machine can hide one.
fn require(what: &str, measure: impl Fn() -> Value + Sync, holds: impl Fn(&Value) -> bool) {
    let holds_in = |run: &Measured| holds(&run.0);
    TWO_OF_THREE.require(what, || Measured(measure()), holds_in);
}

/// A run of a test, which prints the figures that explain a failure.
struct Measured(Value);

impl std::fmt::Debug for Measured {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let summaries = self.0["findings"].as_array().unwrap().iter().map(|finding| finding["summary"].to_string());
        let goodput = self.0["steady_goodput_bits_per_second"].to_string();
        f.debug_tuple("Measured")
            .field(&finding_names(&self.0))
            .field(&summaries.collect::<Vec<_>>())
            .field(&goodput)
            .finish()
    }
}
