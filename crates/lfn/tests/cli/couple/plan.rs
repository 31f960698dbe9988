//! `lfn couple plan`: the example file, files with problems, and the formats of the result.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;

use crate::support::schema::check_document;
use crate::support::{lfn, stderr, stdout, unwrapped};

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/couple/lag.toml")
}

fn plan(file: &Path, words: &[&str]) -> Output {
    let mut lfn = lfn();
    lfn.args(["couple", "plan"]).arg(file).args(words).env("HOME", "/nonexistent").env_remove("XDG_CONFIG_HOME");
    lfn.output().unwrap()
}

#[track_caller]
fn document(output: &Output, code: i32) -> Value {
    assert_eq!(output.status.code(), Some(code), "{}", stderr(output));
    let document = serde_json::from_slice(&output.stdout).unwrap();
    check_document(&document).unwrap();
    document
}

/// Writes the example with changes.
fn changed(directory: &Path, changes: &[(&str, &str)]) -> PathBuf {
    let mut text = fs::read_to_string(example()).unwrap();
    for (from, to) in changes {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    let file = directory.join("changed.toml");
    fs::write(&file, text).unwrap();
    file
}

#[test]
fn plan_names_each_lag_that_is_too_small() {
    let directory = tempfile::tempdir().unwrap();
    let output = plan(&example(), &[]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = unwrapped(&output);
    for part in ["lag: 40 steps over 155 Mb/s, RTT 539 ms", "64 KiB", "a step: set lag = 3 in [variable.wind]"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.contains("set lag = 3 in [variable.level]"), "{text}");
    // The lag of the advice is enough.
    let better = plan(&changed(directory.path(), &[("lag = 1", "lag = 3")]), &[]);
    let text = unwrapped(&better);
    assert!(text.contains("no step waits") && !text.contains("set lag"), "{text}");
}

#[test]
fn how_to_page_has_the_example_and_its_plan() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../doc/how-to/couple.md")).unwrap();
    let example_text = fs::read_to_string(example()).unwrap();
    assert!(page.contains(&format!("```toml\n{example_text}```\n")));
    let planned = stdout(&plan(&example(), &[]));
    let shown: Vec<&str> = page.lines().filter(|line| line.starts_with("lag 1 of `")).collect();
    let printed: Vec<&str> = planned.lines().filter(|line| line.starts_with("lag 1 of `")).collect();
    assert_eq!(shown.len(), 2, "{page}");
    assert_eq!(shown, printed, "{planned}");
    // The programs of the page write variables of the example.
    for variable in ["level", "wind"] {
        assert!(
            example_text.contains(&format!("[variable.{variable}]"))
                && page.contains(&format!("/{variable}.{{step}}.nc"))
        );
    }
}

#[test]
fn plan_as_json_has_every_lag() {
    let plan = document(&plan(&example(), &["--json"]), 0);
    assert_eq!(plan["schema"], "lfn.couple.plan/1");
    let runs: Vec<f64> =
        plan["lags"].as_array().unwrap().iter().map(|at| at["run_seconds"].as_f64().unwrap()).collect();
    assert_eq!(runs.len(), 6, "{plan}");
    assert!(runs.windows(2).all(|pair| pair[1] <= pair[0] + 1e-9), "{runs:?}");
    assert_eq!(plan["predicted"]["variables"][0]["needed_lag"], 3);
}

#[test]
fn flags_replace_the_path_of_the_file() {
    let near = document(&plan(&example(), &["--rtt", "20ms", "--rate", "1gbit", "--json"]), 0);
    assert_eq!(near["path"]["rtt_seconds"], 0.02);
    assert_eq!(near["predicted"]["variables"][0]["needed_lag"], 1);
    let slow = unwrapped(&plan(&example(), &["--rate", "1mbit"]));
    assert!(slow.contains("`wind` waits") && slow.contains("with any lag"), "{slow}");
    for (flag, value) in [("--rate", "fast"), ("--rtt", "539"), ("--mtu", "10")] {
        let output = plan(&example(), &[flag, value]);
        assert_eq!(output.status.code(), Some(2), "{flag}: {}", stderr(&output));
    }
}

#[test]
fn every_problem_of_a_coupling_file_is_listed() {
    let directory = tempfile::tempdir().unwrap();
    let problems = [("steps = 40", "steps = 0"), ("from = \"lake\"", "from = \"laek\""), ("[64, 128]", "[]")];
    let output = plan(&changed(directory.path(), &problems), &[]);
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    for part in ["changed.toml", "steps = 0", "from = \"laek\"", "shape = []", "hint: did you mean \"lake\"?"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let error = document(&plan(&changed(directory.path(), &[("lag = 1", "leg = 1")]), &["--json"]), 2);
    let text = error["error"].as_str().unwrap();
    assert!(text.contains("line 31: unknown field `leg`") || text.contains("unknown field `leg`"), "{text}");
    let missing = plan(&directory.path().join("absent.toml"), &[]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(stderr(&missing).contains("cannot read"), "{}", stderr(&missing));
}

#[test]
fn file_without_a_path_needs_both_flags() {
    let directory = tempfile::tempdir().unwrap();
    let file = changed(directory.path(), &[("[path]", ""), ("rate = \"155Mb/s\"", ""), ("rtt = \"539ms\"", "")]);
    let output = plan(&file, &["--rtt", "20ms"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("hint: add [path]"), "{}", stderr(&output));
    assert_eq!(plan(&file, &["--rtt", "20ms", "--rate", "1gbit"]).status.code(), Some(0));
    let file = changed(directory.path(), &[("[component.lake]\ncompute = \"100ms\"", "[component.lake]")]);
    let output = plan(&file, &[]);
    assert!(stderr(&output).contains("component lake has no compute time"), "{}", stderr(&output));
}

#[test]
fn plan_writes_a_report_and_a_picture() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (json, html, svg) = (path("plan.json"), path("plan.html"), path("plan.svg"));
    assert_eq!(plan(&example(), &["--report", &json, "--plot", &svg]).status.code(), Some(0));
    let stored: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    check_document(&stored).unwrap();
    assert!(fs::read_to_string(&svg).unwrap().contains("Time of the run by the lag"));
    assert_eq!(plan(&example(), &["--report", &html]).status.code(), Some(0));
    let page = fs::read_to_string(&html).unwrap();
    assert!(page.contains("<svg") && page.contains("set lag = 3"), "{page}");
}

#[test]
fn couple_without_a_command_prints_its_help() {
    let output = lfn().arg("couple").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(format!("{}{}", stdout(&output), stderr(&output)).contains("plan"), "{}", stderr(&output));
}

#[test]
fn every_lag_that_is_too_small_has_a_line() {
    let directory = tempfile::tempdir().unwrap();
    let text = fs::read_to_string(example()).unwrap();
    let wind = text[text.find("[variable.wind]").unwrap()..].to_owned();
    let wind = wind.split("\n\n").next().unwrap();
    let heat = wind.replace("variable.wind", "variable.heat").replace("m s-1", "W m-2");
    let file = directory.path().join("two.toml");
    fs::write(&file, format!("{text}\n{heat}\n")).unwrap();
    let page = unwrapped(&plan(&file, &[]));
    for variable in ["heat", "level", "wind"] {
        assert!(page.contains(&format!("in [variable.{variable}]")), "{variable}: {page}");
    }
    let document = document(&plan(&file, &["--json"]), 0);
    let variables = document["predicted"]["variables"].as_array().unwrap();
    let waits: Vec<f64> = variables.iter().map(|variable| variable["wait_seconds"].as_f64().unwrap()).collect();
    // The wait for heat is over before that for wind begins.
    assert!(waits[0] > 10.0 * waits[2], "{waits:?}");
}
