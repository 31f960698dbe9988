//! A fault is made, and the finding that names it comes first; on healthy paths there is none, and what was measured lies
//! in the interval that was predicted. Real kernels over emulated paths and on loopback.
//!
//! What else the machine does can hide a fault, so each is measured up to three times; on a healthy path nothing may look
//! like one in any run that can be judged. Windows, buffers and window scale are in `test_emulated`; the rules themselves
//! are tested on recorded evidence in `core::diagnose`.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::io::{BufRead, BufReader};
use std::process::{ExitCode, Output, Stdio};

use serde_json::Value;
use support::{Needs, stderr};

fn main() -> ExitCode {
    // Most of the time each of them waits for a path of its own: the quickest of them moves 50 Mb/s.
    support::run_beside(
        4,
        &[
            ("a_healthy_path_has_no_findings", Needs::Namespaces, a_healthy_path_has_no_findings),
            ("a_longer_healthy_path_has_none_either", Needs::Namespaces, a_longer_healthy_path_has_none_either),
            ("drops_by_the_own_qdisc_are_found", Needs::Programs(&["tc"]), drops_by_the_own_qdisc_are_found),
            ("loss_on_the_path_is_found", Needs::Namespaces, loss_on_the_path_is_found),
            ("a_standing_queue_is_found", Needs::Namespaces, a_standing_queue_is_found),
            ("a_small_mtu_is_found", Needs::Namespaces, a_small_mtu_is_found),
            ("a_route_that_overrides_is_found", Needs::Programs(&["ip"]), a_route_that_overrides_is_found),
            ("competing_traffic_is_found", Needs::Namespaces, competing_traffic_is_found),
            ("a_writer_that_stops_is_found", Needs::Namespaces, a_writer_that_stops_is_found),
            ("a_reader_that_stops_is_found", Needs::Namespaces, a_reader_that_stops_is_found),
            ("too_little_processor_is_found", Needs::Programs(&["taskset"]), too_little_processor_is_found),
        ],
    )
}

/// Nothing found at all, and measured as predicted. A finding is a false one, and fails, unless the run itself says that
/// the machine was too busy to judge by it: an emulation that was not faithful, a processor that was the limit. Seen to
/// fail where a rule names what is not there (competing traffic, queueing, small MTU, start-up share, a slow application, a
/// processor), and where the prediction is off by half, by double or by a tenth.
fn a_healthy_path_has_no_findings() {
    healthy("50mbit", "20ms");
}

fn a_longer_healthy_path_has_none_either() {
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
        let (least, most) = (rate(&expected["least_bits_per_second"]), rate(&expected["most_bits_per_second"]));
        seen.push((measured, least, most, found.clone()));
        found.is_empty() && (least..=most).contains(&measured)
    });
    assert!(healthy, "{capacity} {rtt}: {seen:#?}");
}

/// A token bucket of less than the path on the sender's own interface, with hardly any queue.
fn drops_by_the_own_qdisc_are_found() {
    let fault = "tc qdisc add dev lfn0 root tbf rate 15mbit burst 4000 limit 6000 || exit 1; ";
    thrice(
        "tbf",
        || emulated(PATH, fault, &["--time", "2s"]),
        |run| first(run, "local drops") && run["findings"][0]["cure"]["command"] == "tc qdisc replace dev lfn0 root fq",
    );
}

/// Some twenty segments are lost in that time: with a longer path or less loss it can be one, which is no finding.
fn loss_on_the_path_is_found() {
    let path = ["--rate", "40mbit", "--rtt", "20ms", "--loss", "1%"];
    thrice(
        "loss",
        || emulated(&path, "", &["--time", "3s", "--interval", "500ms", "--congestion", "reno"]),
        |run| first(run, "loss") && run["findings"][0]["evidence"]["lost_share"].as_f64().unwrap() > 0.003,
    );
}

/// Room for ten times what the path holds, and a sender that uses it.
fn a_standing_queue_is_found() {
    let path = [PATH, &["--queue", "10bdp"]].concat();
    thrice(
        "queue",
        || emulated(&path, "", &["--time", "3s", "--interval", "500ms", "--congestion", "reno"]),
        |run| found(run).iter().any(|name| name == "queueing"),
    );
}

fn a_small_mtu_is_found() {
    let path = [PATH, &["--path-mtu", "1200"]].concat();
    thrice("mtu", || emulated(&path, "", &["--time", "2s"]), |run| found(run).iter().any(|name| name == "small MTU"));
}

/// The route says another one than is asked for.
fn a_route_that_overrides_is_found() {
    let available = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_allowed_congestion_control").unwrap();
    let Some(other) = available.split_whitespace().find(|name| *name != "reno") else {
        return eprintln!("skipped: this kernel has no congestion control but reno");
    };
    let fault = format!(
        "ip route show dev lfn0 | while read -r net rest; do \
           ip route replace \"$net\" dev lfn0 congctl {other} || exit 1; done; "
    );
    thrice(
        "congctl",
        || emulated(PATH, &fault, &["--time", "2s", "--congestion", "reno"]),
        |run| {
            let evidence = &run["findings"].as_array().unwrap().iter().find(|f| f["name"] == "congestion control");
            evidence.is_some_and(|finding| finding["evidence"]["in_use"] == other)
        },
    );
}

/// Another test over the same interface at the same time.
fn competing_traffic_is_found() {
    let fault = "\"$0\" test far --time 4s --json >/dev/null 2>&1 & sleep 0.5; ";
    thrice(
        "competing",
        || emulated(PATH, fault, &["--time", "3s", "--interval", "500ms"]),
        |run| first(run, "competing traffic"),
    );
}

/// Stopped for most of the time, as by a disk that does not deliver. Buffers that grow beyond what it moves meanwhile
/// would hide that: they are set.
const STOPPING: &str = "( sleep 0.5; for i in 1 2 3 4 5 6; do kill -STOP $$; sleep 0.5; kill -CONT $$; \
                        sleep 0.05; done ) & ";

fn a_writer_that_stops_is_found() {
    let flags = ["--time", "3500ms", "--interval", "250ms", "--near-sndbuf", "600000"];
    thrice("writer", || emulated(PATH, STOPPING, &flags), |run| first(run, "slow sending application"));
}

fn a_reader_that_stops_is_found() {
    let flags = ["--time", "3500ms", "--interval", "250ms", "--reverse", "--near-rcvbuf", "600000"];
    thrice("reader", || emulated(PATH, STOPPING, &flags), |run| first(run, "slow receiving application"));
}

/// Both ends of a loopback share one processor.
fn too_little_processor_is_found() {
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
    let result = std::panic::catch_unwind(|| thrice("processor", test, |run| first(run, "CPU-bound")));
    let _ = server.kill();
    let _ = server.wait();
    result.unwrap();
}

/// A BDP of 300 kB.
const PATH: &[&str] = &["--rate", "40mbit", "--rtt", "60ms"];

/// Exit code of an emulation that says of itself that it was not faithful.
const NOT_FAITHFUL: i32 = 4;

/// The first run of `lfn test far` over an emulated path, after `fault` was made in a shell on its near side.
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

/// A busy machine makes an emulation that is not faithful; the report is there all the same.
fn run_of(output: &Output) -> Value {
    let document: Result<Value, _> = serde_json::from_slice(&output.stdout);
    document.unwrap_or_else(|_| panic!("{}", stderr(output)))["runs"][0].take()
}

fn first(run: &Value, name: &str) -> bool {
    found(run).first().is_some_and(|first| first == name)
}

/// Names of the findings, the first one first.
fn found(run: &Value) -> Vec<String> {
    run["findings"].as_array().unwrap().iter().map(|finding| finding["name"].as_str().unwrap().to_owned()).collect()
}

/// Measures until `holds`, three times at most.
fn thrice(what: &str, measure: impl Fn() -> Value, holds: impl Fn(&Value) -> bool) {
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
