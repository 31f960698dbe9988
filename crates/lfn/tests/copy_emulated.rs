//! `lfn copy` inside `lfn emulate`: what it changes while it runs, because of the path it finds. Judged by what is told, not
//! by how fast it went.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs;
use std::process::ExitCode;

use serde_json::Value;
use support::Needs;

fn main() -> ExitCode {
    support::run(&[
        ("a_sender_that_loses_at_random_goes_on_under_bbr", Needs::Namespaces, a_sender_that_loses_at_random),
        ("a_congestion_control_that_was_asked_for_stays", Needs::Namespaces, what_was_asked_for_stays),
        ("streams_are_added_where_nothing_is_known", Needs::Namespaces, streams_are_added),
    ])
}

/// The plan of a path of which no loss is known wants CUBIC, at both ends, whatever this host's own is.
const LOSSY: [&str; 6] = ["--rtt", "200ms", "--rate", "50mbit", "--loss", "2%"];
const PLANNED: [&str; 4] = ["--rate", "50mbit", "--streams", "8"];

fn a_sender_that_loses_at_random() {
    let there = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap();
    if !there.split_whitespace().any(|name| name == "bbr") {
        println!("SKIPPED: the kernel has no bbr");
        return;
    }
    for way in [["zero:15MB", "far:null:"], ["far:zero:15MB", "null:"]] {
        thrice(&LOSSY, &[&way[..], &PLANNED].concat(), |copy| {
            let changed = changes(copy).find(|change| change["congestion"] == "bbr");
            changed.is_some_and(|change| {
                let reason = change["reason"].as_str().unwrap();
                reason.contains(" % of segments are sent again though no queue grows")
                    && copy["congestion"] == "bbr"
                    && copy["congestion_reason"] == reason
                    && copy["sockets"]["switched"] == true
            })
        });
    }
}

fn what_was_asked_for_stays() {
    let copy = copied(&LOSSY, &["zero:9MB", "far:null:", "--rate", "50mbit", "--streams", "8", "--congestion", "reno"]);
    assert!(copy["seconds"].as_f64().unwrap() > 6.0, "long enough to be judged: {copy}");
    assert_eq!((&copy["congestion"], changes(&copy).count()), (&"reno".into(), 0), "{copy}");
}

/// Losses keep each stream's window small, so that twice as many carry more.
fn streams_are_added() {
    let path = ["--rtt", "100ms", "--rate", "200mbit", "--loss", "1%"];
    thrice(&path, &["zero:10MB", "far:null:", "--congestion", "reno"], |copy| {
        let first = changes(copy).next();
        copy["streams_reason"].as_str().unwrap().starts_with("default")
            && first.is_some_and(|change| {
                change["streams"] == 8
                    && change["reason"].as_str().unwrap().starts_with("congestion window: 4 streams carry")
            })
    });
}

fn changes(copy: &Value) -> impl Iterator<Item = &Value> {
    copy["streams_changes"].as_array().unwrap().iter()
}

/// The report of a copy over a path that nobody told it of.
fn copied(path: &[&str], words: &[&str]) -> Value {
    let mut command = support::lfn();
    command.arg("emulate").args(path).args(["--", "sh", "-c", "unset LFN_PATH LFN_RETURN_PATH; exec \"$0\" \"$@\""]);
    let output = command.arg(support::lfn_path()).args(["copy", "--json"]).args(words).output().unwrap();
    // A busy machine makes an emulation that is not faithful; the report is there all the same.
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", support::stderr(&output)))
}

/// Copies until `holds`, three times at most: what else the machine does looks like a queue, but not three times.
fn thrice(path: &[&str], words: &[&str], holds: impl Fn(&Value) -> bool) {
    let mut seen = Vec::new();
    for _ in 0..3 {
        let copy = copied(path, words);
        if holds(&copy) {
            return;
        }
        seen.push([&copy["congestion"], &copy["sockets"], &copy["streams_changes"]].map(Value::clone));
    }
    panic!("{words:?}: {seen:?}");
}
