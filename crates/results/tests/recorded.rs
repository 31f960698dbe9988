//! Findings on recorded evidence: results of tests and copies over emulated paths and loopback. Each recorded result has
//! the findings that were reported after the load. The diagnosis must find the same causes in the same order.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeMap;
use std::time::Duration;

use lfn_base::units::{BitRate, Bytes};
use lfn_results::diagnose::bottleneck::CopyBottleneck;
use lfn_results::diagnose::{Diagnosis, VerdictLimit, diagnose};
use lfn_results::evidence::{CopyEvidence, Evidence, HostNames, ProgressSample, TypedArgument};
use lfn_results::measure::TestDirection;
use lfn_results::report::{Run, StoredResult, read_result};
use proptest::prelude::*;
use serde_json::Value;

/// Recorded tests with the findings of each run.
const TESTS: &[(&str, &str, &[&[&str]])] = &[
    ("receive window", include_str!("recorded/test-window.json"), &[&["receive window"]]),
    ("loss", include_str!("recorded/test-loss.json"), &[&["random loss"]]),
    ("healthy", include_str!("recorded/test-healthy.json"), &[&[]]),
    ("two directions", include_str!("recorded/test-bidir.json"), &[&[], &[]]),
    ("datagrams with loss", include_str!("recorded/udp-loss.json"), &[&["loss"]]),
    ("datagrams", include_str!("recorded/udp-healthy.json"), &[&[]]),
];

/// A recorded copy with its findings.
struct RecordedCopy {
    document: &'static str,
    findings: &'static [&'static str],
    limit: VerdictLimit,
}

const COPIES: &[RecordedCopy] = &[
    RecordedCopy {
        document: include_str!("recorded/copy-window.json"),
        findings: &["receive window"],
        limit: VerdictLimit::Finding,
    },
    RecordedCopy {
        document: include_str!("recorded/copy-rate-limit.json"),
        findings: &["limited by the server"],
        limit: VerdictLimit::Finding,
    },
    RecordedCopy {
        document: include_str!("recorded/copy-loss.json"),
        findings: &["loss"],
        limit: VerdictLimit::Finding,
    },
    RecordedCopy { document: include_str!("recorded/copy-healthy.json"), findings: &[], limit: VerdictLimit::Path },
];

/// Returns the recorded runs of a test, with the names of the hosts and the arguments that later versions store.
fn runs(document: &str) -> Vec<Run> {
    let StoredResult::Test(document) = read_result(document.as_bytes()).unwrap() else { panic!("a test") };
    let HostNames { near, far } = document.origin.hosts.clone();
    let complete = |mut run: Run| {
        run.evidence.hosts = HostNames { near: near.clone(), far: far.clone() };
        run
    };
    document.runs.into_iter().map(complete).collect()
}

/// Returns the evidence of a recorded copy.
fn copy_evidence(document: &str) -> Evidence {
    let document: Value = serde_json::from_str(document).unwrap();
    let seconds = |name: &str| Duration::from_secs_f64(document[name].as_f64().unwrap());
    let end = ProgressSample {
        at: seconds("seconds"),
        bytes: Bytes(document["moved_bytes"].as_u64().unwrap()),
        sender: serde_json::from_value(document["sender"].clone()).unwrap(),
        receiver: serde_json::from_value(document["receiver"].clone()).unwrap(),
        sockets: serde_json::from_value(document["sockets"].clone()).unwrap(),
        ..ProgressSample::default()
    };
    let predicted = document.pointer("/predicted/average_goodput_bits_per_second").and_then(Value::as_u64);
    let copy = CopyEvidence {
        end,
        streams: u16::try_from(document["streams"].as_u64().unwrap()).unwrap(),
        predicted: predicted.map(BitRate),
        disconnected: seconds("disconnected_seconds"),
        stalled: seconds("stalled_seconds"),
        ..CopyEvidence::default()
    };
    let near_sends = !document["sources"][0].as_str().unwrap().starts_with("far:");
    let direction = if near_sends { TestDirection::Forward } else { TestDirection::Reverse };
    let hosts = HostNames { near: "near".into(), far: "far".into() };
    let arguments = vec![TypedArgument { flag: None, text: "SOURCE far:DESTINATION".into() }];
    Evidence { hosts, arguments, ..Evidence::of_copy(direction, copy, &[]) }
}

/// Asserts equal figures. A time that was written as a decimal number may differ in its last digit.
fn assert_same_figures(found: &BTreeMap<String, Value>, recorded: &BTreeMap<String, Value>) {
    assert!(found.keys().eq(recorded.keys()), "{found:?} {recorded:?}");
    for (name, value) in found {
        let [found, recorded] = [value, &recorded[name]].map(|value| value.as_f64().unwrap_or_default());
        assert!((found - recorded).abs() <= 1e-9 * recorded.abs(), "{name}: {found} {recorded}");
    }
}

fn names(diagnosis: &Diagnosis) -> Vec<&str> {
    diagnosis.findings.iter().map(|finding| finding.name.as_str()).collect()
}

#[test]
fn recorded_tests_have_the_same_findings_in_order() {
    for (name, document, expected) in TESTS {
        let runs = runs(document);
        assert_eq!(runs.len(), expected.len(), "{name}");
        for (run, expected) in runs.iter().zip(*expected) {
            let diagnosis = diagnose(&run.evidence);
            assert_eq!(names(&diagnosis), *expected, "{name}");
            // The recorded result has the same causes, figures and verdict.
            // Versions that did not know the kind of a loss reported all of them as loss.
            let former = expected.iter().map(|name| if *name == "random loss" { "loss" } else { name });
            assert_eq!(names(&run.diagnosis), former.collect::<Vec<_>>(), "{name}");
            for (found, recorded) in diagnosis.findings.iter().zip(&run.diagnosis.findings) {
                assert_eq!(found.summary, recorded.summary, "{name}");
                assert_same_figures(&found.evidence, &recorded.evidence);
                assert_eq!((found.predicted, found.gain), (recorded.predicted, recorded.gain), "{name}");
            }
            let former = diagnosis.verdict.summary.replace("random loss", "loss");
            assert_eq!(former, run.diagnosis.verdict.summary, "{name}");
            assert_eq!(diagnosis.verdict.limit, run.diagnosis.verdict.limit, "{name}");
            assert_eq!(
                (&diagnosis.predicted, &diagnosis.expected),
                (&run.diagnosis.predicted, &run.diagnosis.expected)
            );
            // Derived figures follow from the evidence alone.
            let again = Run::new(run.evidence.clone());
            assert_eq!(
                (again.goodput, again.steady, again.base_rtt),
                (run.goodput, run.steady, run.base_rtt),
                "{name}"
            );
            assert_eq!((again.retransmits, again.possible_goodput), (run.retransmits, run.possible_goodput), "{name}");
        }
    }
}

/// The link was down for 2.5 s of 12 s. Versions without this rule report loss, with more streams as the remedy.
#[test]
fn a_recorded_outage_is_not_loss() {
    let run = runs(include_str!("recorded/test-outage.json")).swap_remove(0);
    assert_eq!(names(&run.diagnosis), ["loss"]);
    let diagnosis = diagnose(&run.evidence);
    assert_eq!(names(&diagnosis), ["outage"], "{:?}", diagnosis.findings);
    assert_eq!(diagnosis.findings[0].remedy.command, "ping -D far");
    assert_eq!(diagnosis.verdict.summary, "limited by an outage");
}

#[test]
fn recorded_copies_have_the_same_limit_and_finding() {
    for RecordedCopy { document, findings, limit } in COPIES {
        let evidence = copy_evidence(document);
        let diagnosis = diagnose(&evidence);
        assert_eq!((names(&diagnosis).as_slice(), diagnosis.verdict.limit), (*findings, *limit), "{diagnosis:?}");
        let document: Value = serde_json::from_str(document).unwrap();
        let near_sends = evidence.request.direction == TestDirection::Forward;
        let bottleneck = diagnosis.bottleneck.as_ref().map(|limit: &CopyBottleneck| limit.display_for_end(near_sends));
        assert_eq!(bottleneck.as_deref(), document["limited_by"].as_str());
        // The text of the recorded finding continues with a hint of its cause.
        let recorded = document.pointer("/shortfall/finding").and_then(Value::as_str);
        let share = |text: &str| text.split(';').next().map(str::to_owned);
        let found = diagnosis.findings.first().map(|finding| finding.summary.as_str());
        assert_eq!(recorded.and_then(share), found.and_then(share));
    }
}

/// Removes the value at one of the paths of an object; the number selects the path.
fn remove_one(value: &mut Value, number: usize) {
    let mut paths = Vec::new();
    collect_paths(value, String::new(), &mut paths);
    if paths.is_empty() {
        return;
    }
    let path = &paths[number % paths.len()];
    let (parent, key) = path.rsplit_once('/').unwrap();
    match value.pointer_mut(parent) {
        Some(Value::Object(map)) => _ = map.remove(key),
        Some(Value::Array(items)) => _ = items.remove(key.parse().unwrap()),
        _ => {}
    }
}

fn collect_paths(value: &Value, at: String, paths: &mut Vec<String>) {
    let mut add = |key: String, part: &Value| {
        let path = format!("{at}/{key}");
        paths.push(path.clone());
        collect_paths(part, path, paths);
    };
    match value {
        Value::Object(map) => map.iter().for_each(|(key, part)| add(key.replace('~', "~0").replace('/', "~1"), part)),
        Value::Array(items) => items.iter().enumerate().for_each(|(index, part)| add(index.to_string(), part)),
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Evidence without some parts either cannot be read, or its diagnosis ends and still is JSON.
    #[test]
    fn evidence_without_random_parts_is_diagnosed(test in 0usize..6, removed in prop::collection::vec(any::<usize>(), 1..40)) {
        let run = runs(TESTS[test].1).swap_remove(0);
        let mut value = serde_json::to_value(&run.evidence).unwrap();
        let mut last = run.evidence;
        for number in removed {
            remove_one(&mut value, number);
            // A part that every version writes is not optional: the evidence before its removal is diagnosed.
            let Ok(evidence) = serde_json::from_value::<Evidence>(value.clone()) else { break };
            last = evidence;
        }
        let diagnosis = diagnose(&last);
        prop_assert!(serde_json::to_string(&diagnosis).is_ok());
        prop_assert!(diagnosis.findings.iter().all(|finding| finding.cause().is_some()));
    }
}

fn missing(diagnosis: &Diagnosis) -> Vec<&str> {
    diagnosis.missing.iter().map(|missing| missing.evidence.as_str()).collect()
}

#[test]
fn complete_evidence_lacks_nothing() {
    for (name, document, _) in TESTS {
        for run in runs(document) {
            assert_eq!(missing(&diagnose(&run.evidence)), [] as [&str; 0], "{name}");
        }
    }
}

/// An older kernel fills a shorter `struct tcp_info`.
#[test]
fn a_short_tcp_info_is_stated_as_missing() {
    let mut evidence = runs(TESTS[0].1).swap_remove(0).evidence;
    for end in [&mut evidence.near, &mut evidence.far] {
        let samples = end.intervals.iter_mut().flat_map(|interval| &mut interval.streams);
        for info in samples.filter_map(|sample| sample.tcp_info.as_mut()) {
            // Linux 4.18 ends before these.
            (info.snd_wnd_bytes, info.rcv_wnd_bytes, info.sent_bytes, info.retransmitted_bytes) =
                (None, None, None, None);
        }
    }
    let diagnosis = diagnose(&evidence);
    let window = "receive window at the sender (Linux 5.4)";
    assert_eq!(missing(&diagnosis), [window, "sent and retransmitted bytes (Linux 4.19)"]);
    assert!(diagnosis.missing[0].findings.contains(&"receive window".to_owned()));
    assert!(!names(&diagnosis).contains(&"receive window"), "no window, no finding");
    // A kernel without busy times is no evidence at all.
    let samples = evidence.near.intervals.iter_mut().flat_map(|interval| &mut interval.streams);
    samples.filter_map(|sample| sample.tcp_info.as_mut()).for_each(|info| info.busy = None);
    assert!(missing(&diagnose(&evidence)).contains(&"busy times of the sender (Linux 4.10)"));
}

#[test]
fn datagrams_without_sockets_are_stated_as_missing() {
    let mut evidence = runs(TESTS[4].1).swap_remove(0).evidence;
    evidence.far.streams.iter_mut().for_each(|stream| stream.socket = None);
    let diagnosis = diagnose(&evidence);
    assert_eq!(missing(&diagnosis), ["socket options of the receiver"]);
    assert_eq!(names(&diagnosis), ["loss"], "the counts are there");
    evidence.near.streams.clear();
    let diagnosis = diagnose(&evidence);
    assert!(missing(&diagnosis).contains(&"datagram counts of both ends"));
    assert_eq!(names(&diagnosis), [] as [&str; 0]);
}

#[test]
fn a_copy_without_path_states_the_missing_prediction() {
    let mut evidence = copy_evidence(COPIES[0].document);
    evidence.copy.as_mut().unwrap().predicted = None;
    let diagnosis = diagnose(&evidence);
    assert_eq!(missing(&diagnosis), ["capacity of the path (--rate)"]);
    assert_eq!((names(&diagnosis).len(), diagnosis.verdict.limit), (0, VerdictLimit::Resource));
    assert_eq!(diagnosis.verdict.summary, "limited by the receive window");
    evidence.copy.as_mut().unwrap().end.sockets = None;
    let diagnosis = diagnose(&evidence);
    assert_eq!(diagnosis.verdict.limit, VerdictLimit::Unknown);
    assert!(missing(&diagnosis).contains(&"socket counters of the copy's sender"));
}

#[test]
fn evidence_without_any_report_has_no_findings() {
    let diagnosis = diagnose(&Evidence::default());
    assert_eq!((names(&diagnosis).len(), diagnosis.verdict.limit), (0, VerdictLimit::Unknown));
    assert!(diagnosis.missing.len() >= 5, "{:?}", diagnosis.missing);
}
