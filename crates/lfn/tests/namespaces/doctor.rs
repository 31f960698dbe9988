//! `lfn doctor` over emulated paths: the fault is named, a healthy path has no finding, and the stored evidence has the same
//! findings without a network.

use std::fs;
use std::process::{Output, Stdio};
use std::time::Instant;

use serde_json::Value;
use tempfile::TempDir;

use crate::support;
use crate::support::harness::{Needs, Test, Weight, tests_of};
use crate::support::rate::TWO_OF_THREE;
use crate::support::schema::assert_valid;
use crate::support::server::{assert_refused, finding_names, text};

/// Name of this module in the names of its tests.
const MODULE: &str = "doctor";

pub fn tests() -> Vec<Test> {
    tests_of(
        MODULE,
        Weight::Loaded,
        &[
            ("healthy_path_is_limited_by_the_path", Needs::Namespaces, healthy_path_is_limited_by_the_path),
            ("policer_is_named_in_its_direction", Needs::Namespaces, policer_is_named_in_its_direction),
            ("black_hole_is_named_in_each_direction", Needs::Namespaces, black_hole_is_named_in_each_direction),
            ("load_stays_below_its_maximum", Needs::Namespaces, load_stays_below_its_maximum),
            ("evidence_is_diagnosed_again_and_masked", Needs::Namespaces, evidence_is_diagnosed_again_and_masked),
            ("disks_of_both_ends_are_measured", Needs::Namespaces, disks_of_both_ends_are_measured),
            ("server_that_goes_away_ends_in_time", Needs::Namespaces, server_that_goes_away_ends_in_time),
            ("bad_evidence_is_refused", Needs::Nothing, bad_evidence_is_refused),
        ],
    )
}

/// Runs a quick examination over a path.
fn examined(path: &[&str], flags: &[&str]) -> Output {
    let mut command = support::lfn();
    command.arg("emulate").args(path).arg("--").arg(support::lfn_path());
    command.args(["doctor", "far", "--quick", "--json"]).args(flags).output().unwrap()
}

/// Returns the validated document of an examination.
fn document(output: &Output) -> Value {
    let document: Result<Value, _> = serde_json::from_slice(&output.stdout);
    let document = document.unwrap_or_else(|_| panic!("{}", text(&output.stderr)));
    assert_valid("lfn.doctor.1", &document);
    document
}

fn healthy_path_is_limited_by_the_path() {
    let path = ["--rate", "40mbit", "--rtt", "20ms", "--large-buffers"];
    TWO_OF_THREE.require_serial(
        "healthy path",
        || document(&examined(&path, &[])),
        |found| {
            let limits: Vec<&str> =
                found["runs"].as_array().unwrap().iter().map(|run| run["verdict"]["limit"].as_str().unwrap()).collect();
            finding_names(found).is_empty() && limits == ["path", "path"]
        },
    );
}

fn policer_is_named_in_its_direction() {
    let path = ["--rate", "120mbit", "--rtt", "30ms", "--return-policer", "20mbit:75000B", "--large-buffers"];
    TWO_OF_THREE.require_serial(
        "policer",
        || document(&examined(&path, &[])),
        |found| {
            let first = &found["findings"][0];
            first["name"] == "policer" && first["directions"] == serde_json::json!(["reverse"])
        },
    );
}

fn black_hole_is_named_in_each_direction() {
    for (side, direction, sender) in [("forward", "forward", "near"), ("return", "reverse", "far")] {
        let flag = format!("--{side}-path-mtu");
        let found = document(&examined(&["--rate", "40mbit", "--rtt", "20ms", &flag, "1300:black-hole"], &[]));
        let first = &found["findings"][0];
        assert_eq!(first["name"], "MTU black hole", "{side}: {}", found["findings"]);
        assert_eq!(first["directions"], serde_json::json!([direction]), "{side}");
        assert_eq!(first["remedy"]["host"], sender, "{side}: {first}");
        assert_eq!(first["evidence"]["largest_passed_bytes"], 1300, "{side}: {first}");
    }
}

fn load_stays_below_its_maximum() {
    let found = document(&examined(&["--rate", "40mbit", "--rtt", "20ms"], &["--max-load", "4mbit"]));
    assert_eq!(found["planned_load"]["max_rate_bits_per_second"], 4_000_000);
    assert_eq!(found["unseen"][0]["part"], "rates above 4 Mb/s", "{}", found["unseen"]);
    for run in found["runs"].as_array().unwrap() {
        let goodput = run["steady_goodput_bits_per_second"].as_u64().unwrap();
        assert!((1_000_000..4_200_000).contains(&goodput), "{goodput}");
        for train in run["trains"]["trains"].as_array().unwrap() {
            assert!(train["sent_bits_per_second"].as_u64().unwrap() < 4_400_000, "{train}");
        }
    }
}

fn evidence_is_diagnosed_again_and_masked() {
    let home = TempDir::new().unwrap();
    let [kept, masked] = ["kept.json", "masked.json"].map(|name| home.path().join(name));
    let path = ["--rate", "40mbit", "--rtt", "20ms", "--path-mtu", "1200"];
    let found = document(&examined(&path, &["--report", kept.to_str().unwrap()]));
    assert!(finding_names(&found).contains(&"small MTU"), "{}", found["findings"]);
    let again = |flags: &[&str]| {
        let output = support::lfn().args(["doctor", "--from", kept.to_str().unwrap()]).args(flags).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        output
    };
    let read = document(&again(&["--json"]));
    assert_eq!(read, found, "the same version finds the same");
    let hidden = document(&again(&["--json", "--mask", "--report", masked.to_str().unwrap()]));
    assert_eq!(finding_names(&hidden), finding_names(&found));
    let written = fs::read_to_string(masked).unwrap();
    assert!(!written.contains("10.73."), "addresses of the emulated path");
    let page = text(&again(&[]).stdout);
    assert!(page.contains("small MTU") && page.contains("near to far"), "{page}");
}

/// The near disk is too small for a file. The far disk is in memory, and is made slow in the stored evidence.
fn disks_of_both_ends_are_measured() {
    let home = TempDir::new().unwrap();
    let [small, kept] = ["private", "kept.json"].map(|name| home.path().join(name));
    fs::create_dir(&small).unwrap();
    let mut command = support::lfn();
    command.args(["emulate", "--rate", "40mbit", "--rtt", "20ms", "--large-buffers", "--", "sh", "-c"]);
    command.arg(
        "mount -t tmpfs -o size=32m none \"$1\" && exec \"$0\" doctor far --quick --json --disk \"$1\" --disk far:",
    );
    let output = command.arg(support::lfn_path()).arg(&small).output().unwrap();
    let mut found = document(&output);
    let progress = text(&output.stderr);
    assert!(progress.contains("disks: 8 s more") && progress.contains("disk of far"), "{progress}");
    assert_eq!(found["planned_load"]["disk_seconds"], 8.0);
    let disks = &found["runs"][0]["disks"];
    assert_eq!((&disks["near"]["file_system"], &disks["near"]["write"]), (&"tmpfs".into(), &Value::Null), "{disks}");
    assert!(disks["near"]["not_written"].as_str().unwrap().contains("free"), "{disks}");
    assert!(disks["far"]["read"]["rate_bits_per_second"].as_u64().unwrap() > 40_000_000, "{disks}");
    assert!(!finding_names(&found).iter().any(|name| name.contains("disk")), "{}", found["findings"]);
    let unseen = found["unseen"].to_string();
    assert!(unseen.contains("write rate of the disk of near") && !unseen.contains("disk of far"), "{unseen}");
    for run in found["runs"].as_array_mut().unwrap() {
        run["disks"]["far"]["write"]["rate_bits_per_second"] = 10_000_000.into();
        run["disks"]["far"]["write"]["median_bits_per_second"] = 10_000_000.into();
    }
    fs::write(&kept, found.to_string()).unwrap();
    let again = |flags: &[&str]| {
        let output = support::lfn().args(["doctor", "--from", kept.to_str().unwrap()]).args(flags).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        output
    };
    let slow = document(&again(&["--json", "--mask"]));
    assert!(!slow.to_string().contains("private"), "the mask hides the path");
    let finding = slow["findings"].as_array().unwrap().iter().find(|finding| finding["name"] == "destination disk");
    let finding = finding.unwrap_or_else(|| panic!("{}", slow["findings"]));
    assert_eq!((&finding["directions"], &finding["remedy"]["host"]), (&serde_json::json!(["forward"]), &"far".into()));
    let page = text(&again(&[]).stdout);
    assert!(
        page.contains("disk of far (served root, tmpfs, in memory): read ") && page.contains("for a copy: "),
        "{page}"
    );
}

/// The far side stops its server during the first load.
fn server_that_goes_away_ends_in_time() {
    let mut command = support::lfn();
    command.args(["emulate", "--rate", "40mbit", "--rtt", "20ms"]);
    command.arg("--far-command").arg(format!(
        "timeout -s KILL 4 '{}' serve --insecure --quiet --bind \"$LFN_FAR\"",
        support::lfn_path().display()
    ));
    command.args(["--", "sh", "-c", "sleep 1; exec \"$0\" doctor --insecure \"$LFN_FAR\" --json"]);
    command.arg(support::lfn_path()).stdin(Stdio::null());
    let started = Instant::now();
    let output = command.output().unwrap();
    assert!(started.elapsed().as_secs() < 60, "{:?}", started.elapsed());
    let document: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)));
    let unseen = document["unseen"].as_array().unwrap_or_else(|| panic!("{document}"));
    assert!(unseen.iter().any(|part| part["part"] == "TCP from far to near"), "{unseen:?}");
    assert!(unseen.iter().all(|part| !part["reason"].as_str().unwrap().is_empty()), "{unseen:?}");
}

fn bad_evidence_is_refused() {
    let home = TempDir::new().unwrap();
    let file = home.path().join("evidence.json");
    let cases = [
        ("", "is empty"),
        ("not JSON", "not JSON"),
        ("{\"schema\": \"lfn.doctor/2\"}", "the schema is 'lfn.doctor/2'"),
        ("{\"schema\": \"lfn.test/3\", \"runs\": []}", "the schema is 'lfn.test/3'"),
        ("{\"schema\": \"lfn.doctor/1\", \"runs\": [", "EOF"),
        ("{\"schema\": \"lfn.doctor/1\", \"schema\": \"lfn.doctor/1\"}", "schema"),
    ];
    for (content, says) in cases {
        fs::write(&file, content).unwrap();
        let output = support::lfn().args(["doctor", "--from", file.to_str().unwrap()]).output().unwrap();
        assert_refused(&output, 1, says);
    }
    assert_refused(&support::lfn().args(["doctor", "far", "--max-load", "1kbit"]).output().unwrap(), 2, "minimum");
    assert_refused(&support::lfn().args(["doctor", "far", "--time", "0s"]).output().unwrap(), 2, "time");
    assert_refused(&support::lfn().args(["doctor"]).output().unwrap(), 2, "HOST");
}
