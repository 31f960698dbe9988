//! `lfn demo coop3d`: both runs are measured and compared with their plan, and every synthetic model has its label.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};

use lfn_sys::process;
use serde_json::Value;

use crate::support;
use crate::support::eventually;
use crate::support::harness::{Needs, Test, Weight, tests_of};
use crate::support::python::python_with;
use crate::support::rate::TWO_OF_THREE;
use crate::support::schema::check_document;
use crate::support::server::text;

/// Name of this module in the names of its tests.
const MODULE: &str = "demo";

pub fn tests() -> Vec<Test> {
    tests_of(
        MODULE,
        Weight::Loaded,
        &[
            ("coop3d_labels_synthetic_models", Needs::Namespaces, coop3d_labels_synthetic_models),
            ("planned_lag_makes_coop3d_faster", Needs::Namespaces, planned_lag_makes_coop3d_faster),
            ("coop3d_names_the_missing_anuga", Needs::Nothing, coop3d_names_the_missing_anuga),
            ("coop3d_couples_anuga", Needs::Namespaces, coop3d_couples_anuga),
            ("coop3d_states_the_accuracy_by_files", Needs::Namespaces, coop3d_states_the_accuracy_by_files),
            ("interrupted_coop3d_leaves_no_files", Needs::Nothing, interrupted_coop3d_leaves_no_files),
        ],
    )
}

fn coop3d(flags: &[&str]) -> Output {
    support::lfn().args(["demo", "coop3d"]).args(flags).output().unwrap()
}

fn coop3d_labels_synthetic_models() {
    let directory = tempfile::tempdir().unwrap();
    let [svg, report] = ["map.svg", "demo.json"].map(|name| directory.path().join(name));
    let [svg_flag, report_flag] = [&svg, &report].map(|path| path.to_str().unwrap());
    // Without ANUGA, the demo prints the line that installs it.
    let output = coop3d(&["--python", "/bin/false", "--steps", "6", "--plot", svg_flag, "--report", report_flag]);
    let (page, messages) = (text(&output.stdout), text(&output.stderr));
    assert!(matches!(output.status.code(), Some(0 | 4)), "{messages}");
    assert!(messages.contains("/bin/false has no ANUGA: the lake is synthetic"), "{messages}");
    assert!(messages.contains("pip install anuga numpy"), "{messages}");
    for line in ["atmosphere  near  synthetic: ", "lake        far   synthetic: "] {
        assert!(page.contains(line), "{page}");
    }
    let document: Value = serde_json::from_slice(&fs::read(&report).unwrap()).unwrap();
    check_document(&document).unwrap();
    let models = document["models"].as_array().unwrap();
    assert_eq!(models.len(), 2);
    assert!(models.iter().all(|model| model["synthetic"] == true && model["model"] == "synthetic"), "{models:?}");
    assert!(document["install"].as_str().unwrap().contains("pip install anuga"));
    let runs = document["runs"].as_array().unwrap();
    let names: Vec<&Value> = runs.iter().map(|run| &run["name"]).collect();
    assert_eq!(names, ["lock-step", "lagged"]);
    for run in runs {
        assert_eq!(run["result"]["measured"]["own"]["steps"], 6);
        assert_eq!(
            run["result"]["measured"]["own"]["received"]["current_east"]["fields"].as_u64().unwrap(),
            6 - lag(run)
        );
    }
    let map = fs::read_to_string(&svg).unwrap();
    for label in ["level, m (synthetic)", "wind (synthetic), up to", "lock-step, lag 0: ", "lagged, lag 3: "] {
        assert!(map.contains(label), "{label} in {map}");
    }
}

fn lag(run: &Value) -> u64 {
    run["lag"].as_u64().unwrap()
}

fn planned_lag_makes_coop3d_faster() {
    let directory = tempfile::tempdir().unwrap();
    let png = directory.path().join("map.png");
    let measure = || {
        let flags = ["--lake", "synthetic", "--steps", "16", "--json", "--plot", png.to_str().unwrap()];
        let output = coop3d(&flags);
        let document: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)));
        let seconds = |run: usize, key: &str| document["runs"][run][key].as_f64().unwrap();
        let ratio = seconds(0, "measured_run_seconds") / seconds(1, "measured_run_seconds");
        (ratio, seconds(1, "measured_run_seconds") / seconds(1, "predicted_run_seconds"))
    };
    // The first fields of a connection arrive later than planned, and other tests need the processors too.
    TWO_OF_THREE.require_serial("lag hides the path", measure, |(ratio, late)| *ratio > 1.8 && *late < 1.5);
    assert!(fs::read(&png).unwrap().starts_with(b"\x89PNG"));
}

/// ANUGA from PyPI has the set-up of theory, and is coupled over the emulated path.
fn coop3d_couples_anuga() {
    let python = python_with(&["anuga==4.2.0", "numpy==2.4.6"]);
    let directory = tempfile::tempdir().unwrap();
    let [script, svg] = ["anuga_lake.py", "map.svg"].map(|name| directory.path().join(name));
    fs::write(&script, include_str!("../../src/cmd/demo/coop3d/anuga_lake.py")).unwrap();
    let mut check = Command::new(&python.program);
    let check = check.arg(&script).arg("--check").current_dir(directory.path()).output().unwrap();
    let result = text(&check.stdout);
    assert!(check.status.success(), "{result}{}", text(&check.stderr));
    let result: Value = serde_json::from_str(&result).unwrap();
    assert_eq!((&result["anuga"], &result["ok"]), (&"4.2.0".into(), &true.into()), "{result}");

    let flags = ["--lake", "anuga", "--steps", "6", "--json", "--plot", svg.to_str().unwrap(), "--python"];
    let output = support::lfn().args(["demo", "coop3d"]).args(flags).arg(&python.program).output().unwrap();
    assert!(matches!(output.status.code(), Some(0 | 4)), "{}", text(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    check_document(&document).unwrap();
    let is_synthetic: Vec<&Value> = document["models"].as_array().unwrap().iter().map(|it| &it["synthetic"]).collect();
    assert_eq!(is_synthetic, [true, false], "{document}");
    for run in document["runs"].as_array().unwrap() {
        assert_eq!(run["result"]["measured"]["own"]["steps"], 6);
        assert_eq!(run["result"]["measured"]["partner"]["compute_seconds"].as_f64().map(|it| it > 0.0), Some(true));
    }
    let map = fs::read_to_string(&svg).unwrap();
    assert!(map.contains("level, m (ANUGA"), "{map}");
}

fn coop3d_names_the_missing_anuga() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = support::lfn();
    command.current_dir(directory.path()).args(["demo", "coop3d", "--lake", "anuga", "--python", "/bin/false"]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let message = text(&output.stderr);
    assert!(message.contains("lfn: /bin/false has no ANUGA\nhint: python3 -m venv anuga"), "{message}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "no file is left");
}

fn coop3d_states_the_accuracy_by_files() {
    let directory = tempfile::tempdir().unwrap();
    let [svg, html] = ["map.svg", "demo.html"].map(|name| directory.path().join(name));
    let [svg_flag, html_flag] = [&svg, &html].map(|path| path.to_str().unwrap());
    let mut flags = vec!["--lake", "synthetic", "--steps", "2", "--files", "--json"];
    flags.extend(["--plot", svg_flag, "--report", html_flag]);
    let output = coop3d(&flags);
    let messages = text(&output.stderr);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{messages}"));
    check_document(&document).unwrap();
    let by_files = &document["by_files"];
    assert_eq!(by_files["steps"], 6);
    assert!(by_files["step_seconds"].as_f64().unwrap() > 0.5, "a copy takes round trips: {by_files}");
    assert!(by_files["accuracy_report"]["paths"].as_array().is_some_and(|paths| paths.len() == 1), "{by_files}");
    assert!(messages.contains("By files:\nlink: 539 ms"), "{messages}");
    let is_accurate = document["accurate"] == true;
    assert!(!is_accurate || by_files["accurate"] == true, "{by_files}");
    assert_eq!(output.status.code(), Some(if is_accurate { 0 } else { 4 }), "{messages}");
    let page = fs::read_to_string(&html).unwrap();
    assert_eq!(page.matches("<figure>").count(), 2, "a map for each run");
    assert!(page.contains("By files, with `lfn copy` in each of 6 steps"), "{page}");
}

/// Ctrl-C while the demo measures the lake.
fn interrupted_coop3d_leaves_no_files() {
    let directory = tempfile::tempdir().unwrap();
    let [draft, python, work] = ["draft", "python", "work"].map(|name| directory.path().join(name));
    // A Python that has ANUGA, and never gets ready. It ends with its standard input.
    fs::write(&draft, "#!/bin/sh\n[ \"$1\" = -c ] || exec cat >started\n").unwrap();
    fs::set_permissions(&draft, fs::Permissions::from_mode(0o755)).unwrap();
    support::copy_program(&draft, &python);
    fs::create_dir(&work).unwrap();
    let mut command = support::lfn();
    command.current_dir(directory.path()).env("TMPDIR", &work).args(["demo", "coop3d", "--python"]).arg(&python);
    let child = command.stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let is_started = || {
        let mut directories = fs::read_dir(&work).unwrap().filter_map(Result::ok);
        directories.any(|directory| directory.path().join("started").exists())
    };
    assert!(eventually(is_started));
    process::send_signal(child.id() as i32, process::signal::SIGINT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    assert_eq!(fs::read_dir(&work).unwrap().count(), 0, "no file is left");
    assert!(!directory.path().join("lfn-coop3d.svg").exists());
}
