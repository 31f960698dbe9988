//! Diagnosis of recorded evidence: examinations of emulated paths with known faults.
//!
//! `bench/doctor-keep` writes the files and their index. The evidence comes from live runs, never from the rules. The index
//! has the faults of each run and the findings that are right for each of them. Files whose answer is known to be wrong
//! are in the index too: if their answer becomes right, the index must be written again.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![expect(clippy::disallowed_methods, reason = "the test reads the recorded files, and the crate itself does no I/O")]

use std::fs;
use std::io::Read;
use std::path::PathBuf;

use lfn_results::report::{DoctorDocument, read_doctor};
use ruzstd::decoding::StreamingDecoder;
use serde_json::Value;

/// Maximum length of a file, bytes.
const MAX_FILE: u64 = 20_000;
/// Command that writes the index again.
const INDEX: &str = "bench/doctor-keep index";

/// Line of the index.
struct Recorded {
    name: String,
    /// Names of the findings that are right for each fault of the path.
    expected: Vec<Vec<String>>,
    is_known_wrong: bool,
}

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/doctor_evidence")
}

fn recorded() -> Vec<Recorded> {
    let index = fs::read_to_string(directory().join("index.csv")).unwrap();
    let words = |text: &str, separator: char| -> Vec<String> {
        text.split(separator).filter(|word| !word.is_empty()).map(str::to_owned).collect()
    };
    let line = |line: &str| {
        let [name, _, expected, answer, _] = line.split(',').collect::<Vec<_>>()[..] else { panic!("{line}") };
        assert!(["right", "wrong"].contains(&answer), "{line}");
        let expected = words(expected, ';').iter().map(|fault| words(fault, '|')).collect();
        Recorded { name: name.to_owned(), expected, is_known_wrong: answer == "wrong" }
    };
    index.lines().skip(1).map(line).collect()
}

fn contents(recorded: &Recorded) -> Vec<u8> {
    let file = directory().join(format!("{}.json.zst", recorded.name));
    let packed = fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    assert!(packed.len() as u64 <= MAX_FILE, "{}: {} bytes", recorded.name, packed.len());
    let mut text = Vec::new();
    StreamingDecoder::new(&packed[..]).unwrap().read_to_end(&mut text).unwrap();
    text
}

fn diagnosed(recorded: &Recorded) -> DoctorDocument {
    read_doctor(&contents(recorded)).unwrap_or_else(|error| panic!("{}: {error}", recorded.name)).diagnosed_again()
}

fn names(document: &DoctorDocument) -> Vec<&str> {
    document.findings.iter().map(|found| found.finding.name.as_str()).collect()
}

/// Returns true if the first finding is right for one fault, each of several faults is named, and nothing is named without
/// a fault.
fn is_right(names: &[&str], expected: &[Vec<String>]) -> bool {
    let is_of = |name: &str, fault: &[String]| fault.iter().any(|right| right == name);
    match expected {
        [] => names.is_empty(),
        [fault] => names.first().is_some_and(|name| is_of(name, fault)),
        faults => faults.iter().all(|fault| names.iter().any(|name| is_of(name, fault))),
    }
}

#[test]
fn recorded_faults_are_named() {
    let mut wrong = Vec::new();
    for recorded in recorded() {
        let document = diagnosed(&recorded);
        let names = names(&document);
        match (is_right(&names, &recorded.expected), recorded.is_known_wrong) {
            (true, false) | (false, true) => {}
            (true, true) => wrong.push(format!("{} is right now: run {INDEX}", recorded.name)),
            (false, false) => wrong.push(format!("{}: {names:?} instead of {:?}", recorded.name, recorded.expected)),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_recorded_file_is_in_the_index() {
    let mut files: Vec<String> =
        fs::read_dir(directory()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    files.retain(|file| file != "index.csv");
    files.sort();
    let mut listed: Vec<String> = recorded().iter().map(|recorded| format!("{}.json.zst", recorded.name)).collect();
    listed.sort();
    assert_eq!(files, listed);
}

#[test]
fn recorded_evidence_is_masked() {
    for recorded in recorded() {
        let text = String::from_utf8(contents(&recorded)).unwrap();
        assert!(!text.contains("\"10."), "{}: an address of the emulated path", recorded.name);
        let document = read_doctor(text.as_bytes()).unwrap();
        let hosts = &document.origin.hosts;
        assert_eq!(hosts.near, "near", "{}", recorded.name);
        assert_eq!(document.masked().unwrap().origin.hosts.near, "near", "{}", recorded.name);
    }
}

#[test]
fn masked_evidence_has_the_same_causes() {
    for recorded in recorded() {
        let document = diagnosed(&recorded);
        let masked = document.masked().unwrap().diagnosed_again();
        assert_eq!(names(&masked), names(&document), "{}", recorded.name);
        assert_eq!(masked.hidden, document.hidden, "{}", recorded.name);
    }
}

/// Figures that `struct tcp_info` of Linux 4.9 lacks, as names of the evidence.
const NEWER_TCP_INFO: [&str; 14] = [
    "busy_seconds",
    "rwnd_limited_seconds",
    "sndbuf_limited_seconds",
    "delivered_segments",
    "delivered_marked_segments",
    "sent_bytes",
    "retransmitted_bytes",
    "duplicate_segments",
    "reorderings",
    "out_of_order_packets",
    "snd_wnd_bytes",
    "rcv_wnd_bytes",
    "timeouts",
    "timeout_recovery_seconds",
];

/// Removes figures of each `tcp_info` of a document.
fn shorten_tcp_info(value: &mut Value) {
    match value {
        Value::Object(object) => {
            if let Some(Value::Object(info)) = object.get_mut("tcp_info") {
                info.retain(|name, _| !NEWER_TCP_INFO.contains(&name.as_str()));
            }
            object.values_mut().for_each(shorten_tcp_info);
        }
        Value::Array(values) => values.iter_mut().for_each(shorten_tcp_info),
        _ => {}
    }
}

/// Without a given capacity, the rate that a line passes is no shaper and no policer.
#[test]
fn healthy_path_of_unknown_capacity_has_no_bucket() {
    let healthy: Vec<Recorded> = recorded().into_iter().filter(|at| at.expected.is_empty()).collect();
    assert!(!healthy.is_empty());
    for recorded in healthy {
        let mut value: Value = serde_json::from_slice(&contents(&recorded)).unwrap();
        for run in value["runs"].as_array_mut().unwrap() {
            run.as_object_mut().unwrap().remove("path");
        }
        let document = read_doctor(&serde_json::to_vec(&value).unwrap()).unwrap().diagnosed_again();
        assert_eq!(names(&document), [] as [&str; 0], "{}", recorded.name);
    }
}

/// Both ends are older kernels: a healthy path has no finding, and the causes that cannot be found are stated.
#[test]
fn short_tcp_info_has_no_false_finding() {
    let healthy: Vec<Recorded> = recorded().into_iter().filter(|at| at.expected.is_empty()).collect();
    assert!(!healthy.is_empty());
    for recorded in healthy.iter().filter(|at| !at.is_known_wrong) {
        let mut value: Value = serde_json::from_slice(&contents(recorded)).unwrap();
        shorten_tcp_info(&mut value);
        let document = read_doctor(&serde_json::to_vec(&value).unwrap()).unwrap().diagnosed_again();
        assert_eq!(names(&document), [] as [&str; 0], "{}", recorded.name);
        for run in &document.runs {
            let missing = |kind: &str| run.diagnosis.missing.iter().find(|missing| missing.evidence.starts_with(kind));
            let window = missing("receive window at the sender").unwrap();
            assert!(window.findings.iter().any(|name| name == "receive window"), "{}", recorded.name);
            assert!(missing("busy times of the sender").is_some(), "{}: {:?}", recorded.name, run.diagnosis.missing);
        }
    }
}
