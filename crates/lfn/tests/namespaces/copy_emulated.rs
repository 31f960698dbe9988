//! `lfn copy` inside `lfn emulate`: changes during the copy because of the path. The tests check the report, not the
//! speed.

use std::fs;

use serde_json::Value;

use crate::support;
use crate::support::harness::{Needs, Test, Weight, tests_of};
use crate::support::rate::TWO_OF_THREE;
use crate::support::skip::{Missing, skip};

/// Name of this module in the names of its tests and roles.
const MODULE: &str = "copy_emulated";

pub fn tests() -> Vec<Test> {
    tests_of(
        MODULE,
        Weight::Loaded,
        &[
            ("sender_with_random_loss_switches_to_bbr", Needs::Namespaces, sender_with_random_loss_switches_to_bbr),
            ("requested_congestion_control_stays", Needs::Namespaces, requested_congestion_control_stays),
            ("streams_are_added_on_an_unknown_path", Needs::Namespaces, streams_are_added_on_an_unknown_path),
            ("copy_names_the_token_bucket", Needs::Namespaces, copy_names_the_token_bucket),
            ("copy_names_the_receive_window", Needs::Namespaces, copy_names_the_receive_window),
        ],
    )
}

/// If no loss is known, the plan selects CUBIC at both ends, whatever the host's default.
const LOSSY: [&str; 6] = ["--rtt", "200ms", "--rate", "50mbit", "--loss", "2%"];
const PLANNED: [&str; 4] = ["--rate", "50mbit", "--streams", "8"];

fn sender_with_random_loss_switches_to_bbr() {
    let there = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap();
    if !there.split_whitespace().any(|name| name == "bbr") {
        return skip("sender_with_random_loss_switches_to_bbr", &Missing::Feature("BBR"));
    }
    for way in [["zero:15MB", "far:null:"], ["far:zero:15MB", "null:"]] {
        require(&LOSSY, &[&way[..], &PLANNED].concat(), |copy| {
            let changed = changes(copy).find(|change| change["congestion"] == "bbr");
            changed.is_some_and(|change| {
                let reason = change["reason"].as_str().unwrap();
                reason.contains(" % of segments are retransmitted although no queue grows")
                    && copy["congestion"] == "bbr"
                    && copy["congestion_reason"] == reason
                    && copy["sockets"]["switched_to_bbr"] == true
            })
        });
    }
}

fn requested_congestion_control_stays() {
    let copy = copied(&LOSSY, &["zero:9MB", "far:null:", "--rate", "50mbit", "--streams", "8", "--congestion", "reno"]);
    assert!(copy["seconds"].as_f64().unwrap() > 6.0, "long enough to be judged: {copy}");
    assert_eq!((&copy["congestion"], changes(&copy).count()), (&"reno".into(), 0), "{copy}");
}

/// Losses keep the window of each stream small, so that twice as many streams carry more.
fn streams_are_added_on_an_unknown_path() {
    let path = ["--rtt", "100ms", "--rate", "200mbit", "--loss", "1%"];
    require(&path, &["zero:10MB", "far:null:", "--congestion", "reno"], |copy| {
        let first = changes(copy).next();
        copy["streams_reason"].as_str().unwrap().starts_with("default")
            && first.is_some_and(|change| {
                change["streams"] == 8
                    && change["reason"].as_str().unwrap().starts_with("congestion window: 4 streams carry")
            })
    });
}

/// The sockets of the copy show the constant rate of a token bucket. Without trains of datagrams, its drops and its delay
/// look alike over several streams.
fn copy_names_the_token_bucket() {
    let path = ["--rtt", "40ms", "--rate", "100mbit", "--policer", "20mbit:75000B"];
    TWO_OF_THREE.require(
        "policer",
        || found(&path, "\"$0\" copy --json --congestion cubic zero:25MB far:null:"),
        |copy| ["policer", "shaper"].contains(&first_finding(copy)),
    );
}

/// The receiver reports its kernel, so that the remedy has the sysctl and the host.
fn copy_names_the_receive_window() {
    let path = ["--rtt", "40ms", "--rate", "100mbit"];
    let script = "echo '4096 65536 131072' > /proc/sys/net/ipv4/tcp_rmem && exec \"$0\" copy --json --streams 1 \
                  far:zero:12MB null:";
    TWO_OF_THREE.require(
        "receive window",
        || found(&path, script),
        |copy| {
            let remedy = &copy["findings"][0]["remedy"];
            first_finding(copy) == "receive window"
                && remedy["command"].as_str().is_some_and(|command| command.starts_with("sysctl -w net.ipv4.tcp_rmem="))
                && remedy["host"] == "near"
        },
    );
}

/// Returns the report of a script over a path that the copy knows.
fn found(path: &[&str], script: &str) -> Value {
    let mut command = support::lfn();
    command.arg("emulate").args(path).args(["--", "sh", "-c", script]).arg(support::lfn_path());
    let output = command.output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", support::stderr(&output)))
}

/// Returns the name of the first finding; empty if there is none.
fn first_finding(copy: &Value) -> &str {
    copy["findings"][0]["name"].as_str().unwrap_or_default()
}

fn changes(copy: &Value) -> impl Iterator<Item = &Value> {
    copy["streams_changes"].as_array().unwrap().iter()
}

/// Returns the report of a copy over a path that the copy does not know.
fn copied(path: &[&str], words: &[&str]) -> Value {
    let mut command = support::lfn();
    command.arg("emulate").args(path).args(["--", "sh", "-c", "unset LFN_PATH LFN_RETURN_PATH; exec \"$0\" \"$@\""]);
    let output = command.arg(support::lfn_path()).args(["copy", "--json"]).args(words).output().unwrap();
    // On a busy machine the emulation is not accurate, but the report exists.
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", support::stderr(&output)))
}

/// Requires a result of two of three copies: other load on the machine can look like a queue.
fn require(path: &[&str], words: &[&str], holds: impl Fn(&Value) -> bool + Sync) {
    let measure = || {
        let copy = copied(path, words);
        let figures = [&copy["congestion"], &copy["sockets"], &copy["streams_changes"]].map(Value::clone);
        (holds(&copy), figures)
    };
    TWO_OF_THREE.require(&words.join(" "), measure, |(holds, _)| *holds);
}
