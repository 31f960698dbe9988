//! `lfn mesh plan` and `lfn mesh check`: the example file, files with problems, and plans that do not fit.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;

use crate::support::schema::check_document;
use crate::support::{lfn, stderr, stdout, unwrapped};

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/mesh/vbns.toml")
}

fn mesh(command: &str, file: &Path, words: &[&str]) -> Output {
    let mut lfn = lfn();
    lfn.arg("mesh").arg(command).arg(file).args(words).env("HOME", "/nonexistent").env_remove("XDG_CONFIG_HOME");
    lfn.output().unwrap()
}

#[track_caller]
fn document(output: &Output, code: i32) -> Value {
    assert_eq!(output.status.code(), Some(code), "{}", stderr(output));
    let document = serde_json::from_slice(&output.stdout).unwrap();
    check_document(&document).unwrap();
    document
}

/// Writes a sites file with two sites of this budget and more tables.
fn write_sites(directory: &Path, budget: &str, tables: &str) -> PathBuf {
    let file = directory.join("sites.toml");
    let site = |name: &str| format!("[[site]]\nname = \"{name}\"\naddress = \"{name}.example\"\n");
    let text = format!("name = \"m\"\n{}budget = \"{budget}\"\nrate = \"1gbit\"\n{}{tables}", site("a"), site("b"));
    fs::write(&file, text).unwrap();
    file
}

const DAY: [&str; 2] = ["--day", "2026-12-01"];

#[test]
fn every_host_prints_the_same_plan() {
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("copy.toml");
    fs::copy(example(), &copy).unwrap();
    for words in [&DAY[..], &["--day", "2026-12-01", "--json"], &["--day", "2026-12-01", "--output", "csv"]] {
        let (first, second) = (mesh("plan", &example(), words), mesh("plan", &copy, words));
        assert_eq!(first.status.code(), Some(0), "{}", stderr(&first));
        assert_eq!(first.stdout, second.stdout);
    }
    let other_day = mesh("plan", &example(), &["--day", "2026-12-02"]);
    assert_ne!(other_day.stdout, mesh("plan", &example(), &DAY).stdout);
}

#[test]
fn the_plan_has_slots_loads_and_the_bound() {
    let plan = document(&mesh("plan", &example(), &["--day", "2026-12-01", "--json"]), 0);
    // 5 hosts in both directions, four times a day.
    assert_eq!(plan["slots"].as_array().unwrap().len(), 80);
    assert_eq!((&plan["day"], &plan["not_fitting"]), (&"2026-12-01".into(), &Value::Array(Vec::new())));
    assert_eq!(plan["intervals"][0]["makespan_seconds"], plan["intervals"][0]["bound_seconds"]);
    let uplink = plan["resources"].as_array().unwrap().iter().find(|used| used["name"] == "oc3-ncar").unwrap();
    assert_eq!((&uplink["kind"], &uplink["slots"]), (&"bottleneck".into(), &32.into()));
    let csv = stdout(&mesh("plan", &example(), &["--day", "2026-12-01", "--output", "csv"]));
    assert!(csv.starts_with("start,test,from,to,client,length_seconds,max_bytes\r\n2026-12-01T"), "{csv}");
    assert_eq!(csv.lines().count(), 81);
    let text = unwrapped(&mesh("plan", &example(), &DAY));
    for part in
        ["vbns on 2026-12-01 (UTC): 80 loads", "host ncar", "bottleneck oc3-sdsc", "the minimum", "300 GB a day"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn the_plan_of_one_host_has_only_its_loads() {
    let plan = document(&mesh("plan", &example(), &["--day", "2026-12-01", "--host", "psc", "--json"]), 0);
    let slots = plan["slots"].as_array().unwrap();
    assert!(slots.len() == 32 && slots.iter().all(|slot| slot["from"] == "psc" || slot["to"] == "psc"));
    let names: Vec<&str> =
        plan["resources"].as_array().unwrap().iter().map(|used| used["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["psc", "oc3-psc"]);
    let unknown = mesh("plan", &example(), &["--host", "zeus"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(stderr(&unknown).contains("the sites file has no host zeus"), "{}", stderr(&unknown));
    let bad_day = mesh("plan", &example(), &["--day", "tomorrow"]);
    assert_eq!(bad_day.status.code(), Some(2));
    assert!(stderr(&bad_day).contains("--day: 'tomorrow' is not a date"), "{}", stderr(&bad_day));
}

#[test]
fn small_terminals_keep_times_and_hosts() {
    let mut lfn = lfn();
    let output = lfn.args(["mesh", "plan"]).arg(example()).args(DAY).env("COLUMNS", "40").output().unwrap();
    let text = stdout(&output);
    assert!(text.lines().all(|line| line.chars().count() <= 40), "{text}");
    assert!(text.contains("start     from  to") && text.contains("of the day"), "{text}");
}

#[test]
fn a_plan_that_does_not_fit_names_the_tests() {
    let directory = tempfile::tempdir().unwrap();
    let load = |name: &str, keys: &str| format!("[[test]]\nname = \"{name}\"\nkind = \"load\"\n{keys}\n");
    let tests = load("small", "interval = \"6h\"\ntime = \"5s\"") + &load("large", "interval = \"6h\"\ntime = \"60s\"");
    let file = write_sites(directory.path(), "10GB", &tests);
    let output = mesh("plan", &file, &DAY);
    assert_eq!(output.status.code(), Some(1));
    let text = unwrapped(&output);
    assert!(text.contains("large a to b: budget of site a: 30 GB more are needed"), "{text}");
    assert!(!text.contains("small a to b:") && stderr(&output).contains("2 loads without a slot"), "{text}");
    let plan = document(&mesh("plan", &file, &["--json"]), 1);
    assert_eq!(plan["not_fitting"].as_array().unwrap().len(), 2);
    let file = write_sites(directory.path(), "1000TB", &load("long", "interval = \"1min\"\ntime = \"1min\""));
    assert!(unwrapped(&mesh("plan", &file, &DAY)).contains("the slot needs 67 s and the interval has 60 s"));
    let file = write_sites(directory.path(), "1000TB", &load("full", "interval = \"1min\"\ntime = \"30s\""));
    assert!(unwrapped(&mesh("plan", &file, &DAY)).contains("full b to a: host a has no free time of this length"));
}

#[test]
fn check_prints_contacts_audiences_and_windows() {
    let output = mesh("check", &example(), &["--at", "2026-12-20T00:00:00Z"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = unwrapped(&output);
    for part in [
        "5 sites, 5 hosts (5 agents)",
        "ncar-sdsc, ncar to sdsc (MCI, 135 Mb/s, 40 ms)",
        "vBNS engineering <noc@vbns.example> (operator, MCI)",
        "users (public)",
        "vbns-users@vbns.example",
        "2026-12-29 08:00 to 2026-12-29 10:00 UTC, circuit ncar-sdsc, repeated",
        "no problem found",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let checked = document(&mesh("check", &example(), &["--at", "2026-12-20T00:00:00Z", "--json"]), 0);
    assert_eq!((&checked["counts"]["hosts"], &checked["problems"]), (&5.into(), &Value::Array(Vec::new())));
    assert_eq!(checked["maintenance"][0]["start"], "2026-12-29T08:00:00.000Z");
    assert_eq!(mesh("check", &example(), &["--at", "noon"]).status.code(), Some(2));
}

#[test]
fn check_lists_every_problem_with_its_line() {
    let directory = tempfile::tempdir().unwrap();
    let tables = "[[site]]\nname = \"a\"\naddress = \"c.example\"\n[[test]]\nname = \"t\"\nkind = \"load\"\ninterval = \"7h\"\nspeed = 1\n";
    let file = write_sites(directory.path(), "1000TB", tables);
    let output = mesh("check", &file, &[]);
    assert_eq!(output.status.code(), Some(2));
    let text = stdout(&output);
    for part in [
        "sites.toml:11:8: site 'a' occurs twice: the first one is in line 3",
        "sites.toml:16:1: interval 7 h of load test 't' neither divides a day",
        "hint: use 6h or 8h",
        "sites.toml:17:1: unknown key 'speed' in [[test]]",
        "3 problems",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let checked = document(&mesh("check", &file, &["--json"]), 2);
    assert_eq!((&checked["problems"][0]["line"], &checked["mesh"]), (&11.into(), &Value::Null));
    let plan = mesh("plan", &file, &[]);
    assert_eq!(plan.status.code(), Some(2));
    assert!(
        stderr(&plan).contains("occurs twice") && stderr(&plan).contains("hint: list all problems: lfn mesh check")
    );
    let missing = mesh("check", Path::new("/nonexistent/sites.toml"), &[]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(stderr(&missing).contains("cannot read /nonexistent/sites.toml"), "{}", stderr(&missing));
}

#[test]
fn a_hostile_sites_file_is_refused_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("large.toml");
    let sites: String = (0..10_000).map(|at| format!("[[site]]\nname = \"s{at}\"\naddress = \"h{at}\"\n")).collect();
    fs::write(&file, format!("name = \"m\"\n{sites}[[test]]\nname = \"t\"\nkind = \"load\"\ninterval = \"1d\"\n"))
        .unwrap();
    let output = mesh("check", &file, &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stdout(&output).contains("99990000 pairs of hosts: the maximum is 1000000"), "{}", stdout(&output));
}
