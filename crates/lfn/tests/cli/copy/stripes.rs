//! Stripes on loopback: their figures, their search, and refused stripes. Each address of 127.0.0.0/8 is one of this host.

use std::fs;

use serde_json::Value;

use super::{Pair, write};
use crate::support::server::text;

/// Two stripes to a server that listens on all addresses.
const TWO: &str = "127.0.0.2=127.0.0.1,127.0.0.3=127.0.0.1";

fn bytes_of(document: &Value) -> Vec<u64> {
    document["stripes"].as_array().unwrap().iter().map(|stripe| stripe["bytes"].as_u64().unwrap()).collect()
}

#[test]
fn both_stripes_carry_an_upload_and_a_download() {
    let pair = Pair::new();
    let content = write(&pair.near("a"), 40_000_000);
    let stripes = ["--stripe", TWO, "--streams", "2"];
    let upload = pair.copies(&[&["a", "far:a"][..], &stripes].concat());
    assert_eq!(fs::read(pair.far("a")).unwrap(), content);
    let download = pair.copies(&[&["far:a", "b"][..], &stripes].concat());
    assert_eq!(fs::read(pair.near("b")).unwrap(), content);
    for document in [upload, download] {
        let (bytes, total) = (bytes_of(&document), document["moved_bytes"].as_u64().unwrap());
        assert!(bytes.iter().all(|bytes| *bytes > 0), "{document}");
        // The headers of the blocks are less than 1 %.
        let sum: u64 = bytes.iter().sum();
        assert!(sum >= total && sum < total + total / 100, "{sum} of {total}");
        assert_eq!(document["streams"], 4, "{document}");
        assert_eq!(document["stripes"][0]["stripe"], "127.0.0.2=127.0.0.1");
        assert_eq!(document["stripes"][1]["state"], "up");
    }
}

#[test]
fn stripe_that_never_works_is_reported() {
    let pair = Pair::new();
    write(&pair.near("a"), 60_000_000);
    // Nothing listens on port 1.
    let stripes = "127.0.0.2=127.0.0.1,127.0.0.3=127.0.0.1:1";
    let output = pair.copy(&["a", "far:a", "--stripe", stripes, "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(bytes_of(&document)[1], 0);
    assert_eq!(document["stripes"][1]["state"], "down", "{document}");
    assert!(document["stripes"][1]["error"].as_str().unwrap().contains("refused"), "{document}");
}

#[test]
fn copy_without_a_working_stripe_fails() {
    let pair = Pair::new();
    write(&pair.near("a"), 1000);
    let stripes = "127.0.0.2=127.0.0.1:1,127.0.0.3=127.0.0.1:1";
    let errors = pair.refuses(&["a", "far:a", "--stripe", stripes], 1, "no stripe reaches the server");
    assert!(errors.contains("127.0.0.2=127.0.0.1:1: ") && errors.contains("127.0.0.3=127.0.0.1:1: "), "{errors}");
    assert!(errors.contains("hint: check each stripe"), "{errors}");
}

#[test]
fn bad_stripes_are_refused_with_their_value() {
    let pair = Pair::new();
    write(&pair.near("a"), 1000);
    for (stripes, code, what) in [
        ("127.0.0.1", 2, "stripe '127.0.0.1' is not LOCAL=REMOTE"),
        ("=127.0.0.1", 2, "stripe '=127.0.0.1' is not LOCAL=REMOTE"),
        ("127.0.0.2=127.0.0.1,127.0.0.2=127.0.0.1", 2, "stripe 127.0.0.2=127.0.0.1 is given twice"),
        ("127.0.0.2=localhost:9,127.0.0.2=127.0.0.1:9", 2, "stripe 127.0.0.2=127.0.0.1:9 is given twice"),
        ("::1=127.0.0.1", 2, "stripe ::1=127.0.0.1 joins addresses of different IP versions"),
        ("auto,127.0.0.2=127.0.0.1", 2, "cannot be combined"),
        ("nosuchif=127.0.0.1", 1, "stripe nosuchif=127.0.0.1: cannot connect from nosuchif"),
        ("192.0.2.1=127.0.0.1", 1, "stripe 192.0.2.1=127.0.0.1: cannot connect from 192.0.2.1"),
        ("127.0.0.2=no.such.host.invalid", 1, "unknown host 'no.such.host.invalid'"),
    ] {
        let errors = pair.refuses(&["a", "far:a", "--stripe", stripes], code, what);
        assert!(errors.contains("hint: "), "{errors}");
    }
    pair.refuses(&["a", "b", "--stripe", TWO], 2, "this copy is on this host");
    let errors = pair.refuses(&["a", "far:a", "--stripe", TWO, "--streams", "300"], 1, "600 streams requested");
    assert!(errors.contains("or fewer, which counts for each of the 2 stripes"), "{errors}");
}

#[test]
fn auto_finds_the_loopback_stripe() {
    let pair = Pair::new();
    write(&pair.near("a"), 1_000_000);
    let output = pair.copy(&["a", "far:a", "--stripe", "auto"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("lfn: stripe 127.0.0.1=127.0.0.1\n"), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("stripe 127.0.0.1=127.0.0.1: 1 MB at "), "{}", text(&output.stdout));
}

#[test]
fn text_and_report_show_the_stripes() {
    let pair = Pair::new();
    write(&pair.near("a"), 20_000_000);
    let output = pair.copy(&["a", "far:a", "--stripe", TWO, "--report", "report.json", "--progress"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    for stripe in TWO.split(',') {
        assert!(text(&output.stdout).contains(&format!("stripe {stripe}: ")), "{}", text(&output.stdout));
    }
    let report: Value = serde_json::from_slice(&fs::read(pair.near("report.json")).unwrap()).unwrap();
    assert_eq!(report["stripes"].as_array().unwrap().len(), 2);
    let lines = pair.copy(&["--force", "a", "far:c", "--stripe", TWO, "--output", "ndjson"]);
    let lines = text(&lines.stdout);
    let last: Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    assert_eq!(last["stripes"].as_array().unwrap().len(), 2, "{lines}");
}

#[test]
fn transport_falls_back_to_plain_tcp_with_a_reason() {
    let pair = Pair::new();
    write(&pair.near("a"), 1_000_000);
    let document = pair.copies(&["a", "far:a", "--transport", "mptcp"]);
    let has_mptcp = fs::read_to_string("/proc/sys/net/mptcp/enabled").is_ok_and(|text| text.trim() == "1");
    if has_mptcp {
        assert_eq!((&document["transport"], document.get("transport_reason")), (&"mptcp".into(), None), "{document}");
    } else {
        assert_eq!(document["transport"], "tcp", "{document}");
        assert!(document["transport_reason"].as_str().unwrap().contains("Multipath TCP"), "{document}");
    }
    pair.refuses(&["a", "far:c", "--transport", "mptcp", "--rate", "10mbit"], 2, "--rate does not limit Multipath TCP");
    assert_eq!(pair.copies(&["--force", "a", "far:b"])["transport"], "tcp");
}
