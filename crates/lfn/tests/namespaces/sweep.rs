//! `lfn sweep` over an emulated path: it resumes after a kill in the middle of a test, and finds the window of the path.

use std::fs;
use std::process::Output;

use serde_json::Value;

use crate::support;
use crate::support::harness::{Needs, Test, Weight, tests_of};
use crate::support::schema::check_document;
use crate::support::server::text;

/// Name of this module in the names of its tests.
const MODULE: &str = "sweep";

pub fn tests() -> Vec<Test> {
    tests_of(
        MODULE,
        Weight::Loaded,
        &[
            ("killed_sweep_resumes_with_the_same_points", Needs::Namespaces, killed_sweep_resumes_with_the_same_points),
            ("optimum_is_the_window_of_the_path", Needs::Namespaces, optimum_is_the_window_of_the_path),
        ],
    )
}

/// Runs a shell script on the near side of a path of 20 Mb/s and 50 ms.
fn emulated(home: &tempfile::TempDir, script: &str) -> Output {
    let mut command = support::lfn();
    command.args(["emulate", "--rate", "20mbit", "--rtt", "50ms", "--quiet", "--", "sh", "-c", script]);
    command.arg(support::lfn_path()).current_dir(home.path()).output().unwrap()
}

fn document(output: &Output) -> Value {
    let document: Result<Value, _> = serde_json::from_slice(&output.stdout);
    let document = document.unwrap_or_else(|_| panic!("{}", text(&output.stderr)));
    check_document(&document).unwrap();
    document
}

/// The script kills the sweep when a test sends data: after the first finished run, the second test has begun.
fn killed_sweep_resumes_with_the_same_points() {
    let home = tempfile::tempdir().unwrap();
    let script = r#"
sweep() { exec "$0" sweep far --window 20kB..160kB:x2 --time 1s --repeat 2 --seed 5 --state state "$@"; }
(sweep --output ndjson > killed) &
while ! grep -q '"event":"run"' killed; do sleep 0.05; done
sleep 0.5
kill -9 $!
cp state before
(sweep --json)
"#;
    let output = emulated(&home, script);
    let document = document(&output);
    let runs = document["runs"].as_array().unwrap();
    let places = |block: u64| -> Vec<u64> {
        let own = runs.iter().filter(|run| run["block"] == block);
        own.map(|run| run["point"].as_u64().unwrap()).collect()
    };
    assert_eq!(runs.len(), 8, "{}", text(&output.stderr));
    for block in [0, 1] {
        let mut points = places(block);
        points.sort_unstable();
        assert_eq!(points, [0, 1, 2, 3], "block {block}");
    }
    // The runs before the kill are the first ones, unchanged.
    let before = fs::read_to_string(home.path().join("before")).unwrap();
    let lines = before.lines().skip(1).map(|line| serde_json::from_str::<Value>(line).unwrap());
    let kept: Vec<Value> = lines.map(|line| line["run"].clone()).collect();
    assert!((1..8).contains(&kept.len()), "{before}");
    for (kept, run) in kept.iter().zip(runs) {
        assert_eq!((&kept["point"], &kept["started"]), (&run["point"], &run["started"]));
    }
    assert!(text(&output.stderr).contains(" finished\n"), "{}", text(&output.stderr));
}

/// The window of 250 kB is twice the BDP of 125 kB: delays of the host do not empty the path. A third of the BDP gives less than
/// half of the goodput.
fn optimum_is_the_window_of_the_path() {
    let home = tempfile::tempdir().unwrap();
    let flags = "--window 40kB,250kB,500kB --time 2s --repeat 1 --json";
    let document = document(&emulated(&home, &format!(r#"exec "$0" sweep far {flags}"#)));
    let optimum = &document["parts"][0]["optimum"];
    assert_eq!(optimum["point"], 1, "{optimum}");
    let sentence = optimum["sentence"].as_str().unwrap();
    assert!(sentence.starts_with("250 kB reaches ") && sentence.contains("nothing is gained"), "{sentence}");
    let points = document["points"].as_array().unwrap();
    let goodput = |point: usize| points[point]["goodput_bits_per_second"].as_f64().unwrap();
    assert!(goodput(0) < 0.5 * goodput(1), "{points:?}");
    assert!(points.iter().all(|point| point["predicted_bits_per_second"].is_u64()));
}
