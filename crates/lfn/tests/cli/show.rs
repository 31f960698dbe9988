//! `lfn show` of stored sweeps, examinations, copies, emulations and captures. `formats.rs` has results of tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;

use crate::support::schema::assert_valid;
use crate::support::server::{Server, assert_refused};
use crate::support::{lfn, stderr, stdout};

fn stored(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stored").join(name)
}

fn show(files: &[&Path], flags: &[&str]) -> Output {
    lfn().arg("show").args(files).args(flags).output().unwrap()
}

fn printed(files: &[&Path], flags: &[&str]) -> String {
    let output = show(files, flags);
    assert!(output.status.success(), "{}", stderr(&output));
    stdout(&output)
}

#[test]
fn stored_sweep_is_printed_and_drawn_as_after_the_sweep() {
    let (home, server) = (tempfile::tempdir().unwrap(), Server::start(&[]));
    let path = |name: &str| home.path().join(name).to_str().unwrap().to_owned();
    let sweep = |flags: &[&str]| {
        let mut command = lfn();
        command.current_dir(home.path()).args(["sweep", &server.ticket, "--streams", "1,2", "--rate", "10gbit"]);
        let output =
            command.args(["--time", "300ms", "--repeat", "2", "--state", "state"]).args(flags).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output)
    };
    let text = sweep(&["--report", &path("sweep.json"), "--plot", &path("after.svg")]);
    // The finished sweep prints its result again without a test.
    fs::write(path("lines.ndjson"), sweep(&["--output", "ndjson"])).unwrap();
    let [result, lines, state] = ["sweep.json", "lines.ndjson", "state"].map(|name| home.path().join(name));
    assert_eq!(printed(&[&result], &["--plot", &path("again.svg")]), text);
    assert_eq!(fs::read(path("again.svg")).unwrap(), fs::read(path("after.svg")).unwrap());
    assert_eq!(printed(&[&lines], &[]), text);
    assert_eq!(printed(&[&result], &["--output", "csv"]), sweep(&["--output", "csv"]));
    let document: Value = serde_json::from_str(&printed(&[&result], &["--json"])).unwrap();
    assert_eq!(document, serde_json::from_slice::<Value>(&fs::read(&result).unwrap()).unwrap());

    let of_state: Value = serde_json::from_str(&printed(&[&state], &["--json"])).unwrap();
    assert_valid("lfn.sweep.1", &of_state);
    assert_eq!((&of_state["runs"], &of_state["ended"]), (&document["runs"], &"unknown".into()));
    assert_eq!(of_state["points"][1]["goodput_bits_per_second"], document["points"][1]["goodput_bits_per_second"]);
    assert!(printed(&[&state], &[]).contains("4 runs"));
    let cut = fs::read_to_string(&lines).unwrap().lines().take(1).collect::<String>();
    fs::write(&lines, cut).unwrap();
    assert_refused(&show(&[&lines], &[]), 1, "did not end");
}

#[test]
fn sweeps_are_compared_point_by_point() {
    let home = tempfile::tempdir().unwrap();
    let other = home.path().join("other.json");
    let first = stored("sweep.json");
    let mut document: Value = serde_json::from_slice(&fs::read(&first).unwrap()).unwrap();
    // One value is another one, and one goodput is twice as high.
    document["parts"][0]["factors"][0]["values"][3] = 524_288.into();
    document["points"][3]["levels"][0]["value"] = 524_288.into();
    let goodput = &mut document["points"][0]["goodput_bits_per_second"];
    *goodput = (2 * goodput.as_u64().unwrap()).into();
    fs::write(&other, document.to_string()).unwrap();

    let page = printed(&[&first, &other], &[]);
    for text in ["sweep.json", "other.json", "+100.0 %", "+0.0 %", "missing", "only here"] {
        assert!(page.contains(text), "{text} in {page}");
    }
    let compared: Value = serde_json::from_str(&printed(&[&first, &other], &["--json"])).unwrap();
    assert_valid("lfn.show.sweeps.1", &compared);
    assert_eq!(compared["points"].as_array().unwrap().len(), 5);
    let table = printed(&[&first, &other], &["--output", "csv"]);
    assert_eq!(table.split_terminator("\r\n").count(), 1 + 8, "{table}");
    let plot = home.path().join("pictures");
    printed(&[&first, &other], &["--plot", plot.to_str().unwrap()]);
    let svg = fs::read_to_string(plot.join("goodput-over-receive-window.svg")).unwrap();
    for name in [">sweep.json<", ">other.json<", ">predicted<"] {
        assert_eq!(svg.matches(name).count(), 1, "{name} in {svg}");
    }

    document["parts"][0]["factors"][0]["factor"] = "rcvbuf".into();
    document["points"].as_array_mut().unwrap().iter_mut().for_each(|p| p["levels"][0]["factor"] = "rcvbuf".into());
    fs::write(&other, document.to_string()).unwrap();
    assert_refused(&show(&[&first, &other], &[]), 2, "no factor is common");
}

#[test]
fn stored_documents_are_printed_as_after_their_command() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(&["--root", home.path().to_str().unwrap()]);
    let report = home.path().join("report.json");
    let after = |words: &[&str]| {
        let output = lfn().args(words).arg("--report").arg(&report).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output)
    };
    let to = server.ticket.replace('#', "/x.bin#");
    let copied = after(&["copy", "random:3MB", &to]);
    assert_eq!(printed(&[&report], &[]), copied);
    let examined = after(&["doctor", &server.ticket, "--time", "1s", "--max-load", "50mbit"]);
    assert_eq!(printed(&[&report], &["--plot", home.path().join("a.svg").to_str().unwrap()]), examined);
    let emulated = printed(&[&stored("emulate.json")], &["--plot", home.path().join("b.svg").to_str().unwrap()]);
    assert!(emulated.starts_with("link: 20 ms, 50 Mb/s"), "{emulated}");
    assert!(fs::read_to_string(home.path().join("b.svg")).unwrap().contains("Queue over time"));
    let traced = printed(&[&stored("trace.json")], &[]);
    assert!(traced.contains("connection 2: "), "{traced}");
}

#[test]
fn results_that_cannot_be_shown_are_one_clear_error() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("file.json");
    let [sweep, copy, trace] = ["sweep.json", "copy.json", "trace.json"].map(stored);
    assert_refused(&show(&[&sweep, &copy], &[]), 2, "only results of one command");
    assert_refused(&show(&[&copy, &copy], &[]), 2, "not those of lfn copy");
    let plot = home.path().join("a.svg");
    let plot = ["--plot", plot.to_str().unwrap()];
    assert_refused(&show(&[&copy], &plot), 2, "no samples over time");
    assert_refused(&show(&[&trace], &plot), 2, "no packets");
    assert_refused(&show(&[&copy], &["--output", "csv"]), 2, "no table");
    assert_refused(&show(&[&sweep], &["--intervals"]), 2, "--intervals");
    for (content, says) in [
        (r#"{"schema":"lfn.sweep/2"}"#, "newer version of lfn (lfn.sweep/2)"),
        (r#"{"schema":"lfn.trace/10"}"#, "newer version of lfn (lfn.trace/10)"),
        ("{\"line\":\"design\",\"schema\":\"lfn.sweep.state/2\"}\n", "newer version of lfn"),
        (r#"{"schema":"lfn.plan/2"}"#, "cannot be shown"),
        (r#"{"schema":"lfn.sweep/1"}"#, "missing field"),
        (r#"{"schema":"lfn.trace/1","files":1e999}"#, "out of range"),
        (r#"{"schema":"lfn.emulate/2","near":null,"near":null}"#, "duplicate key"),
        (r#"{"schema":"lfn.copy/3","bytes":18446744073709551615}"#, "out of range"),
    ] {
        fs::write(&file, content).unwrap();
        assert_refused(&show(&[&file], &[]), 1, says);
    }
    for whole in [sweep, copy, trace, stored("emulate.json")] {
        let bytes = fs::read(whole).unwrap();
        for length in (1..bytes.len() - 2).step_by(bytes.len() / 10) {
            fs::write(&file, &bytes[..length]).unwrap();
            assert_eq!(show(&[&file], &[]).status.code(), Some(1), "{length}");
        }
    }
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1, "no picture is left");
}

#[test]
fn list_of_profiles_has_no_picture() {
    let output = lfn().args(["emulate", "--list", "--plot", "a.svg"]).output().unwrap();
    assert_refused(&output, 2, "--plot");
}
