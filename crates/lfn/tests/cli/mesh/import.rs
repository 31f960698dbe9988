//! `lfn mesh import` and `lfn mesh export`.

use std::fs;

use serde_json::Value;

use super::{RECORDS, archive_of_records, mesh, printed};
use crate::support::schema::assert_valid;
use crate::support::server::assert_refused;
use crate::support::{stderr, stdout};

#[test]
fn second_import_stores_nothing() {
    let home = archive_of_records();
    let document: Value = serde_json::from_str(&printed(&home, &["import", "--json", RECORDS])).unwrap();
    assert_valid("lfn.mesh.import.1", &document);
    assert_eq!((&document["stored"], &document["known"]), (&0.into(), &29.into()));
}

#[test]
fn export_is_imported_without_a_difference() {
    let home = archive_of_records();
    let exported = printed(&home, &["export"]);
    for line in exported.lines() {
        assert_valid("lfn.mesh.entry.1", &serde_json::from_str(line).unwrap());
    }
    let other = tempfile::tempdir().unwrap();
    fs::write(other.path().join("log.ndjson"), &exported).unwrap();
    assert!(mesh(&other, &["import", "log.ndjson"]).status.success());
    assert_eq!(printed(&other, &["export"]), exported);
    assert_eq!(printed(&home, &["export", "--kind", "load", "--output", "csv"]).lines().count(), 21);
    assert_eq!(printed(&home, &["export", "--from", "psc", "--since", "1997-03-04"]).lines().count(), 4);
}

#[test]
fn export_in_one_object_is_imported_too() {
    let home = archive_of_records();
    let text = printed(&home, &["export", "--json", "--report", "log.json"]);
    let document: Value = serde_json::from_str(&text).unwrap();
    assert_valid("lfn.mesh.export.1", &document);
    assert_eq!(document["entries"].as_array().unwrap().len(), 29);
    assert_eq!(fs::read_to_string(home.path().join("log.json")).unwrap(), text);
    let other = tempfile::tempdir().unwrap();
    fs::write(other.path().join("log.json"), &text).unwrap();
    assert!(mesh(&other, &["import", "log.json"]).status.success());
    assert_eq!(printed(&other, &["export"]), printed(&home, &["export"]));
}

#[test]
fn file_with_a_bad_line_stores_nothing() {
    let home = tempfile::tempdir().unwrap();
    let good = fs::read_to_string(RECORDS).unwrap();
    fs::write(home.path().join("bad.ndjson"), format!("{good}{{}}\n")).unwrap();
    let output = mesh(&home, &["import", "bad.ndjson"]);
    assert_refused(&output, 1, "bad.ndjson: line 30:");
    assert_eq!(printed(&home, &["export"]), "");
}

#[test]
fn iperf3_without_names_needs_the_flags() {
    let home = tempfile::tempdir().unwrap();
    let result = r#"{"start":{"version":"iperf 3.12","timestamp":{"timesecs":1700000000},"connecting_to":{"host":"2001:db8::1"},
        "test_start":{"protocol":"TCP","num_streams":1}},"intervals":[],
        "end":{"sum_received":{"seconds":10,"bytes":125000000,"bits_per_second":100000000}}}"#;
    fs::write(home.path().join("iperf3.json"), result).unwrap();
    assert_refused(&mesh(&home, &["import", "iperf3.json"]), 1, "does not name the host that ran the command");
    let output = mesh(&home, &["import", "iperf3.json", "--from", "a", "--to", "b"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&mesh(&home, &["export"])).contains("100000000"));
    fs::write(home.path().join("two.json"), format!("{result}\n{result}")).unwrap();
    assert_refused(&mesh(&home, &["import", "two.json"]), 1, "more than one result in the file");
}
