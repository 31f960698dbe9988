//! Evidence files with valid JSON and hostile values: no value causes a panic, and a masked document has no name or address.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeSet;
use std::io::Read;
use std::panic;

use lfn_results::report::{DoctorDocument, read_doctor};
use ruzstd::decoding::StreamingDecoder;
use serde_json::{Value, json};

/// Intervals of each end that stay in the document.
const KEPT_INTERVALS: usize = 3;

/// Returns a recorded document with one direction and few intervals.
fn recorded() -> Value {
    let packed = include_bytes!("doctor_evidence/policer-360mbit-150ms-s1-n11.json.zst");
    let mut text = Vec::new();
    StreamingDecoder::new(&packed[..]).unwrap().read_to_end(&mut text).unwrap();
    let mut document = diagnosed(&serde_json::from_slice(&text).unwrap()).unwrap();
    document.runs.remove(0);
    for run in &mut document.runs {
        run.evidence.near.intervals.truncate(KEPT_INTERVALS);
        run.evidence.far.intervals.truncate(KEPT_INTERVALS);
        run.evidence.latency.iter_mut().for_each(|latency| latency.intervals.truncate(KEPT_INTERVALS));
    }
    serde_json::to_value(document).unwrap()
}

/// Reads a document, diagnoses and masks it, and reads the results again. None if the document is refused.
fn diagnosed(document: &Value) -> Option<DoctorDocument> {
    let again = |document: &DoctorDocument| read_doctor(&serde_json::to_vec(document).unwrap());
    let read = match read_doctor(&serde_json::to_vec(document).unwrap()) {
        Ok(document) => document.diagnosed_again(),
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return None;
        }
    };
    again(&read).unwrap_or_else(|error| panic!("the diagnosis cannot be read: {error}"));
    let masked = read.masked().unwrap_or_else(|error| panic!("masked: {error}"));
    again(&masked).unwrap_or_else(|error| panic!("the masked document cannot be read: {error}"));
    Some(read)
}

/// Collects the places of all values: keys, with `*` for the entries of a list.
fn places(value: &Value, place: &mut Vec<String>, found: &mut BTreeSet<Vec<String>>) {
    found.insert(place.clone());
    let mut visit = |key: String, value: &Value| {
        place.push(key);
        places(value, place, found);
        place.pop();
    };
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| visit(key.clone(), value)),
        Value::Array(values) => values.iter().for_each(|value| visit("*".into(), value)),
        _ => {}
    }
}

/// Changes the values at a place.
fn change(value: &mut Value, place: &[String], with: &dyn Fn(&mut Value)) {
    match (place, value) {
        ([], value) => with(value),
        ([first, rest @ ..], Value::Object(map)) => {
            map.get_mut(first).into_iter().for_each(|value| change(value, rest, with))
        }
        ([_, rest @ ..], Value::Array(values)) => values.iter_mut().for_each(|value| change(value, rest, with)),
        _ => {}
    }
}

/// Returns the document with changed values at each place of the evidence.
fn changed_everywhere(with: &dyn Fn(&mut Value)) -> usize {
    let document = recorded();
    let mut found = BTreeSet::new();
    places(&document, &mut Vec::new(), &mut found);
    let (mut accepted, mut failed) = (0, Vec::new());
    for place in &found {
        let mut changed = document.clone();
        change(&mut changed, place, with);
        if changed != document {
            match panic::catch_unwind(|| diagnosed(&changed).is_some()) {
                Ok(is_accepted) => accepted += usize::from(is_accepted),
                Err(_) => failed.push(place.join("/")),
            }
        }
    }
    assert!(failed.is_empty(), "changed values cause a panic: {failed:?}");
    accepted
}

#[test]
fn extreme_numbers_cause_no_panic() {
    // The largest figure that is in range, numbers out of range, and a text.
    let numbers = [json!(0), json!(1u64 << 56), json!(1e308), json!("NaN")];
    for number in numbers {
        let replace = |value: &mut Value| {
            if value.is_number() {
                *value = number.clone();
            }
        };
        changed_everywhere(&replace);
    }
    // All numbers at once.
    for number in [json!(0), json!(1), json!(u32::MAX), json!(-1), json!(1e-300), json!(u64::MAX)] {
        let mut document = recorded();
        let mut found = BTreeSet::new();
        places(&document, &mut Vec::new(), &mut found);
        for place in &found {
            change(&mut document, place, &|value| {
                if value.is_number() {
                    *value = number.clone();
                }
            });
        }
        diagnosed(&document);
    }
}

#[test]
fn missing_values_cause_no_panic() {
    let emptied = changed_everywhere(&|value| match value {
        Value::Array(values) => values.clear(),
        Value::Object(map) => map.clear(),
        Value::String(text) => text.clear(),
        value => *value = Value::Null,
    });
    assert!(emptied > 20, "{emptied}");
    let document = recorded();
    let mut found = BTreeSet::new();
    places(&document, &mut Vec::new(), &mut found);
    for place in found.iter().filter(|place| place.last().is_some_and(|key| key != "*")) {
        let (key, parent) = place.split_last().unwrap();
        let mut changed = document.clone();
        change(&mut changed, parent, &|value| {
            value.as_object_mut().map(|map| map.remove(key));
        });
        diagnosed(&changed);
    }
}

#[test]
fn samples_in_any_order_cause_no_panic() {
    let reversed = changed_everywhere(&|value| {
        if let Value::Array(values) = value {
            values.reverse();
        }
    });
    assert!(reversed > 3, "{reversed}");
    changed_everywhere(&|value| {
        if let Value::Array(values) = value {
            let first = values.first().cloned();
            values.extend(std::iter::repeat_n(first, 3).flatten());
        }
    });
}

#[test]
fn any_number_of_runs_is_diagnosed() {
    let document = recorded();
    let runs = document["runs"].as_array().unwrap();
    for count in [0, 1, 3, 50] {
        let mut changed = document.clone();
        changed["runs"] = runs.iter().cycle().take(count).cloned().collect();
        let read = diagnosed(&changed).unwrap();
        assert_eq!(read.runs.len(), count);
        assert!(read.findings.len() < 10, "a direction that occurs twice has its findings once");
    }
}

#[test]
fn truncated_and_nested_files_are_refused() {
    let text = serde_json::to_vec(&recorded()).unwrap();
    for length in (0..text.len()).step_by(997) {
        assert!(read_doctor(&text[..length]).is_err(), "{length}");
    }
    let deep = "[".repeat(1 << 20);
    for text in [format!("{{\"schema\":\"lfn.doctor/1\",\"runs\":{deep}"), deep] {
        assert!(read_doctor(text.as_bytes()).is_err());
    }
}

/// Texts that a masked document must not contain.
const SECRETS: [&str; 9] =
    ["10.9.8.7", "fe80::77", "lab-host", "site.org", "qeth7", "alice", "mine.dat", "abc123key", "aa:bb:cc:dd:ee:77"];
/// The same texts as they occur in a sentence.
const SENTENCE: &str = " 10.9.8.7:7323 [fe80::77%qeth7]:1 lab-host: x.site.org, alice@lab-host 'alice@x.site.org:22' (qeth7) \
                        /data/alice/mine.dat --disk=~/mine.dat lfn://abc123key@10.9.8.7:7323/abc123key aa:bb:cc:dd:ee:77.";

#[test]
fn masked_text_has_no_address_name_or_file() {
    let mut document = recorded();
    for hosts in ["/origin/hosts", "/runs/0/hosts"] {
        *document.pointer_mut(hosts).unwrap() = json!({"near": "near", "far": "alice@lab-host"});
    }
    document["origin"]["command"] =
        json!(["doctor", "alice@lab-host", "--disk=mine.dat", "--report", "mine.dat", "-omine.dat"]);
    for run in document["runs"].as_array_mut().unwrap() {
        run["near"]["host"]["interface"]["name"] = json!("qeth7");
        run["far"]["kernel"]["host"] = json!("lab-host");
        run["near"]["notes"] = json!([{"level": "warning", "message": ""}]);
        run["path_report"]["errors"] = json!([""]);
        run["facts"] = json!({"near": {
            "release": "6.1.0-site.org", "is_root": false, "sysctls": {"net.x": ""}, "congestion_available": [""],
            "congestion_allowed": [""], "processor_model": "", "governor": "", "clock_source": "", "container": "",
            "unreadable": [""], "route": {"gateway": "fe80::77%qeth7", "metrics": {}, "congestion": ""},
            "interface": {"name": "qeth7", "mtu_bytes": 1500, "loopback": false}
        }, "far": null});
    }
    document["unseen"] = json!([{"part": "", "reason": "", "consequence": ""}]);
    document["error"] = json!({"message": "", "hint": ""});
    assert!(diagnosed(&document).is_some(), "{:?}", read_doctor(&serde_json::to_vec(&document).unwrap()).err());
    let mut found = BTreeSet::new();
    places(&document, &mut Vec::new(), &mut found);
    let mut replaced = 0;
    for place in &found {
        let mut changed = document.clone();
        let is_name = |key: &str| ["near", "far", "host", "name", "gateway"].contains(&key);
        // A name has no sentence.
        if place.last().is_some_and(|key| is_name(key)) {
            continue;
        }
        change(&mut changed, place, &|value| {
            if let Value::String(text) = value {
                text.push_str(SENTENCE);
            }
        });
        if changed != document && diagnosed(&changed).is_some() {
            document = changed;
            replaced += 1;
        }
    }
    assert!(replaced > 25, "{replaced}");
    let masked = diagnosed(&document).unwrap().masked().unwrap();
    let text = serde_json::to_string_pretty(&masked).unwrap();
    let is_secret = |line: &&str| SECRETS.iter().any(|secret| line.to_lowercase().contains(secret));
    assert_eq!(text.lines().filter(is_secret).collect::<Vec<_>>(), [""; 0]);
}
