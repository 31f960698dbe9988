//! Pictures of `--plot`: charts of each command, paths that cannot be written, and results that are kept.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;

use crate::support::server::{Server, assert_refused, test};
use crate::support::{lfn, stderr, stdout};

const SHORT: [&str; 4] = ["--time", "500ms", "--interval", "100ms"];

/// Returns the texts of an SVG.
fn texts(svg: &Path) -> String {
    let svg = fs::read_to_string(svg).unwrap();
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"), "{svg}");
    svg
}

/// Checks that both files of each chart exist, and nothing else.
fn assert_charts(directory: &Path, stems: &[&str]) {
    let mut found: Vec<String> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    found.sort_unstable();
    let mut expected: Vec<String> =
        stems.iter().flat_map(|stem| [format!("{stem}.png"), format!("{stem}.svg")]).collect();
    expected.sort_unstable();
    assert_eq!(found, expected);
    for stem in stems {
        assert!(fs::read(directory.join(format!("{stem}.png"))).unwrap().starts_with(b"\x89PNG\r\n"));
    }
}

fn succeeded(output: &Output) {
    assert!(output.status.success(), "{}", stderr(output));
}

fn recorded(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../results/tests/recorded").join(name)
}

fn show(files: &[PathBuf], plot: &Path) -> Output {
    lfn().arg("show").args(files).arg("--plot").arg(plot).output().unwrap()
}

#[test]
fn test_draws_each_stream_and_the_windows() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("pictures");
    let server = Server::start(&[]);
    let plot = ["--streams", "2", "--plot", directory.to_str().unwrap()];
    let output = server.test(&[&SHORT[..], &plot].concat());
    succeeded(&output);
    assert!(stdout(&output).contains("goodput") && stderr(&output).contains("pictures: 10 files in"));
    assert_charts(&directory, &["goodput", "rtt", "window", "rtt-distribution", "goodput-distribution"]);
    let goodput = texts(&directory.join("goodput.svg"));
    for text in [">goodput, ", ">stream 0<", ">stream 1<", ">all 2 streams<", "near to far: "] {
        assert!(goodput.contains(text), "{text} in {goodput}");
    }
    let picture = home.path().join("both.PNG");
    let plot = ["--both", "--plot", picture.to_str().unwrap(), "--plot-size", "400x300"];
    succeeded(&server.test(&[&SHORT[..], &plot].concat()));
    let png = fs::read(&picture).unwrap();
    assert_eq!(png[16..20], 1600_u32.to_be_bytes(), "two columns");
    assert!(u32::from_be_bytes(png[20..24].try_into().unwrap()) > 5 * 400, "ten charts in one picture");
}

#[test]
fn copy_draws_its_goodput_and_its_activities() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(&["--root", home.path().to_str().unwrap(), "--max-rate", "200mbit"]);
    let svg = home.path().join("copy.svg");
    let to = server.ticket.replace('#', "/x.bin#");
    let mut command = lfn();
    command.args(["copy", "random:60MB", &to, "--plot"]).arg(&svg);
    let output = command.output().unwrap();
    succeeded(&output);
    assert!(stdout(&output).contains("60 MB"), "{}", stdout(&output));
    let svg = texts(&svg);
    for text in ["Goodput over time", "Time of the threads by activity", ">time since the start, ", "Round-trip time"] {
        assert!(svg.contains(text), "{text} in {svg}");
    }
}

#[test]
fn doctor_draws_both_directions_and_the_trains() {
    let home = tempfile::tempdir().unwrap();
    let [evidence, first, again] = ["evidence.json", "first.svg", "again.svg"].map(|name| home.path().join(name));
    let server = Server::start(&[]);
    let mut command = lfn();
    command.args(["doctor", &server.ticket, "--time", "1s", "--max-load", "50mbit", "--report"]).arg(&evidence);
    succeeded(&command.arg("--plot").arg(&first).output().unwrap());
    let svg = texts(&first);
    for text in ["Goodput over time, near to far", "Round-trip time, far to near", "Trains of datagrams"] {
        assert!(svg.contains(text), "{text} in {svg}");
    }
    let mut command = lfn();
    succeeded(&command.args(["doctor", "--from"]).arg(&evidence).arg("--plot").arg(&again).output().unwrap());
    assert_eq!(svg, texts(&again), "stored evidence has the same picture");
}

#[test]
fn sweep_draws_the_goodput_over_its_values() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(&[]);
    let directory = home.path().join("pictures");
    let mut command = lfn();
    command.current_dir(home.path()).args(["sweep", &server.ticket, "--streams", "1,2", "--rate", "10gbit"]);
    command.args(["--time", "300ms", "--repeat", "1", "--plot"]).arg(&directory);
    succeeded(&command.output().unwrap());
    assert_charts(&directory, &["goodput-over-streams"]);
    let svg = texts(&directory.join("goodput-over-streams.svg"));
    for text in [">streams<", ">predicted<", ">measured: mean and 95 % interval<"] {
        assert!(svg.contains(text), "{text} in {svg}");
    }
}

#[test]
fn show_draws_several_results_in_one_chart() {
    let home = tempfile::tempdir().unwrap();
    let iperf3 = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/iperf3/results");
    let iperf3 = fs::read_dir(iperf3).unwrap().map(|entry| entry.unwrap().path());
    let is_tcp = |path: &PathBuf| {
        let document: Option<Value> = serde_json::from_slice(&fs::read(path).unwrap()).ok();
        document.is_some_and(|document| {
            document["start"]["test_start"]["protocol"] == "TCP" && document["intervals"][0]["sum"].is_object()
        })
    };
    let iperf3 = iperf3.into_iter().find(is_tcp).unwrap();
    let name = iperf3.file_name().unwrap().to_str().unwrap().to_owned();
    let svg = home.path().join("all.svg");
    let output = show(&[recorded("test-healthy.json"), recorded("test-window.json"), iperf3], &svg);
    succeeded(&output);
    assert!(stdout(&output).contains("goodput"), "{}", stdout(&output));
    let svg = texts(&svg);
    // The name of a result with two directions is followed by the direction.
    for text in ["Goodput over time", ">test-healthy.json<", ">test-window.json<", &format!(">{name}")] {
        assert!(svg.contains(text), "{text} in {svg}");
    }
    let one = home.path().join("one.svg");
    succeeded(&show(&[recorded("test-window.json")], &one));
    assert!(texts(&one).contains("limit: receive window"), "the bands have the limit");
}

#[test]
fn unusable_plot_path_is_an_error_before_the_test() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("file");
    fs::write(&file, "content").unwrap();
    let path = |name: &str| home.path().join(name).to_str().unwrap().to_owned();
    for (plot, says) in [
        ("a.pdf".to_owned(), ".pdf"),
        ("a.json".to_owned(), ".json"),
        (path("missing/a.svg"), "No such file"),
        (path("file/a.png"), "Not a directory"),
        (path("file"), "File exists"),
    ] {
        // No server listens at this address.
        let output = test("127.0.0.1:1", &["--insecure", "--plot", &plot]);
        assert_eq!(output.status.code(), Some(2), "{plot}: {}", stderr(&output));
        assert!(stderr(&output).contains("--plot") && stderr(&output).contains(says), "{plot}: {}", stderr(&output));
    }
    let size = test("127.0.0.1:1", &["--insecure", "--plot", "a.svg", "--plot-size", "1x1"]);
    assert_eq!(size.status.code(), Some(2), "{}", stderr(&size));
    assert_eq!(fs::read(&file).unwrap(), b"content");
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1, "nothing is left");
}

#[test]
fn result_is_printed_if_a_picture_cannot_be_written() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().to_str().unwrap();
    fs::create_dir(home.path().join("goodput.svg")).unwrap();
    let server = Server::start(&[]);
    let output = server.test(&[&SHORT[..], &["--json", "--plot", directory]].concat());
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("goodput.svg"), "{}", stderr(&output));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(document["runs"][0]["goodput_bits_per_second"].as_u64().unwrap() > 0);
}

#[test]
fn picture_never_replaces_an_input() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("result.svg");
    fs::copy(recorded("test-healthy.json"), &file).unwrap();
    assert_refused(&show(std::slice::from_ref(&file), &file), 2, "another argument is the same file");
    assert_eq!(fs::read(&file).unwrap(), fs::read(recorded("test-healthy.json")).unwrap());
}
