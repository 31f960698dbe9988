//! `lfn sweep` on loopback: formats, resumed and refused sweeps, bad input, and a server that goes away.

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::lfn;
use crate::support::schema::{assert_valid, check_document};
use crate::support::server::{Server, assert_refused, text};

/// Returns the command of a sweep in the directory `home`.
fn command(home: &Path, words: &[&str]) -> Command {
    let mut command = lfn();
    command.arg("sweep").args(words).current_dir(home).env("HOME", "/nonexistent").env_remove("XDG_CONFIG_HOME");
    for name in ["LFN_EMULATED", "LFN_PATH", "LFN_FAR", "LFN_FAR_TICKET"] {
        command.env_remove(name);
    }
    command
}

fn sweep(home: &TempDir, words: &[&str]) -> Output {
    command(home.path(), words).output().unwrap()
}

/// Flags of a short sweep with four runs of 300 ms.
const SHORT: &[&str] = &["--streams", "1,2", "--time", "300ms", "--repeat", "2", "--state", "state.ndjson"];

fn with<'a>(server: &'a Server, flags: &[&'a str]) -> Vec<&'a str> {
    [&[server.ticket.as_str()], SHORT, flags].concat()
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn points(document: &Value) -> &Vec<Value> {
    document["points"].as_array().unwrap()
}

#[test]
fn every_format_has_every_point() {
    let (home, server) = (tempfile::tempdir().unwrap(), Server::start(&[]));
    let lines = sweep(&home, &with(&server, &["--output", "ndjson", "--report", "report.json"]));
    assert!(lines.status.success(), "{}", text(&lines.stderr));
    let events: Vec<Value> = text(&lines.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    events.iter().for_each(|event| assert_valid("lfn.sweep.event.1", event));
    let names: Vec<_> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(names, ["start", "run", "run", "run", "run", "end"]);
    let report: Value = serde_json::from_slice(&fs::read(home.path().join("report.json")).unwrap()).unwrap();
    check_document(&report).unwrap();
    assert_eq!(events[5]["result"], report);
    assert_eq!((points(&report).len(), report["runs"].as_array().unwrap().len()), (2, 4));
    assert_eq!(report["ended"], "repeated");
    for point in points(&report) {
        assert!(point["runs"] == 2 && point["goodput_bits_per_second"].as_u64() > Some(0), "{point}");
        assert!(point["goodput_interval_bits_per_second"].is_number(), "{point}");
    }
    for line in fs::read_to_string(home.path().join("state.ndjson")).unwrap().lines() {
        assert_valid("lfn.sweep.state.1", &serde_json::from_str(line).unwrap());
    }
    // A finished sweep prints its result again.
    let table = sweep(&home, &with(&server, &["--output", "csv"]));
    let table = text(&table.stdout);
    assert!(table.starts_with("point,streams,runs,goodput_bits_per_second") && table.contains(",limit,error\r\n"));
    assert!(table.lines().count() == 3, "{table}");
    let page = text(&sweep(&home, &with(&server, &[])).stdout);
    assert!(page.contains("optimum") && page.contains("4 runs in "), "{page}");
}

#[test]
fn a_sweep_resumes_after_each_line_of_its_file() {
    let (home, server) = (tempfile::tempdir().unwrap(), Server::start(&[]));
    let file = home.path().join("state.ndjson");
    let whole = json(&sweep(&home, &with(&server, &["--json"])));
    let lines = fs::read_to_string(&file).unwrap();
    let kept: Vec<&str> = lines.split_inclusive('\n').collect();
    // The third run was killed while its line was written.
    fs::write(&file, kept[..3].concat() + &kept[3][..20]).unwrap();
    let output = sweep(&home, &with(&server, &["--json"]));
    let resumed = json(&output);
    assert!(text(&output.stderr).contains("incomplete last line was removed"), "{}", text(&output.stderr));
    let order = |document: &Value| -> Vec<(u64, u64)> {
        let runs = document["runs"].as_array().unwrap().iter();
        runs.map(|run| (run["point"].as_u64().unwrap(), run["block"].as_u64().unwrap())).collect()
    };
    assert_eq!(order(&resumed), order(&whole));
    assert_eq!(resumed["runs"][1], whole["runs"][1]);
    assert_eq!(resumed["seed"], whole["seed"]);
    assert_eq!(fs::read_to_string(&file).unwrap().lines().count(), 5);
    // Another goal continues the same file.
    let words = with(&server, &["--json"]).into_iter().map(|word| if word == "2" { "3" } else { word });
    let longer = json(&sweep(&home, &words.collect::<Vec<_>>()));
    assert_eq!(longer["runs"].as_array().unwrap().len(), 6);
}

#[test]
fn files_of_other_sweeps_stay_unchanged() {
    let (home, server) = (tempfile::tempdir().unwrap(), Server::start(&[]));
    let file = home.path().join("state.ndjson");
    json(&sweep(&home, &with(&server, &["--json", "--seed", "7"])));
    let own = fs::read_to_string(&file).unwrap();
    let newer = own.replace("lfn.sweep.state/1", "lfn.sweep.state/2");
    let damaged = own.replacen("\"block\":0", "\"block\":zero", 1);
    let cases: [(&str, &[&str], &str); 8] = [
        (&own, &["--mss", "1400"], "the set of values differs"),
        (&own, &["--seed", "8"], "the seed differs"),
        (&own, &["--rate", "1gbit"], "the path (emulated, or --rate) differs"),
        (&newer, &[], "newer version of lfn (lfn.sweep.state/2)"),
        (&damaged, &[], "damaged in line 2"),
        ("{\"schema\":\"lfn.test/3\"}\n", &[], "not the state of a sweep"),
        ("notes\n", &[], "not the state of a sweep"),
        ("notes", &[], "not the state of a sweep"),
    ];
    for (contents, flags, says) in cases {
        fs::write(&file, contents).unwrap();
        assert_refused(&sweep(&home, &with(&server, flags)), 1, says);
        assert_eq!(fs::read_to_string(&file).unwrap(), contents, "{says}");
    }
    fs::write(&file, &own).unwrap();
    let lock = OpenOptions::new().append(true).open(&file).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    assert_refused(&sweep(&home, &with(&server, &[])), 1, "another sweep uses this file");
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    assert_refused(&sweep(&home, &with(&server, &[])), 1, "state.ndjson");
}

#[test]
fn bad_values_are_usage_errors_with_a_hint() {
    let home = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &[u8]| fs::File::create(home.path().join(name)).unwrap().write_all(text).unwrap();
    write("bad.toml", b"windows = 1\n");
    write("bytes.toml", &[0xff, 0xfe, 0]);
    write("million.toml", b"streams = \"1..100:+1\"\ncount = \"1..100:+1\"\nmss = \"101..200:+1\"\n");
    write("empty.toml", b"");
    let cases: [(&[&str], &str); 19] = [
        (&[], "no points"),
        (&["--window", "1MB..16MB"], "no step"),
        (&["--window", "1MB,1MB"], "occurs twice"),
        (&["--streams", "1..20000:+1"], "more than 10000"),
        (&["--streams", "1..100:+1", "--count", "1..100:+1", "--mss", "101..200:+1"], "1000000 points"),
        (&["--window", "1MB", "--rcvbuf", "1MB"], "cannot be combined"),
        (&["--window", "1MB", "--far-window", "1MB"], "cannot be combined"),
        (&["--far-window", "1MB", "--direction", "reverse"], "reverse"),
        (&["--streams", "300"], "300 streams"),
        (&["--window", "1B,2MB"], "receive window of 1 B"),
        (&["--count", "10", "--time", "5s"], "cannot be combined"),
        (&["--streams", "1,2", "--budget", "15s"], "20 s are needed"),
        (&["--streams", "1,2", "--until", "0%"], "0.1 %"),
        (&["--streams", "1,2", "--repeat", "0"], "above zero"),
        (&["--streams", "1,2", "--until", "5%", "--repeat", "2"], "at least 3 runs"),
        (&["--file", "bad.toml"], "unknown key 'windows'"),
        (&["--file", "bytes.toml"], "bytes.toml"),
        (&["--file", "million.toml"], "1000000 points"),
        (&["--file", "empty.toml"], "no points"),
    ];
    for (flags, says) in cases {
        // 192.0.2.0/24 is for documentation: no test may begin.
        let words = [&["lfn://192.0.2.1:7323#AAAA", "--state", "state"], flags].concat();
        assert_refused(&sweep(&home, &words), 2, says);
        assert!(!home.path().join("state").exists(), "{says}");
    }
}

#[test]
fn a_dry_run_prints_the_plan_and_runs_nothing() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("sweep.toml"), "streams = [1, 2]\nmss = \"500..1500:+500\"\ntime = \"2s\"\n").unwrap();
    let words = ["far.invalid", "--file", "sweep.toml", "--dry-run", "--rate", "1gbit"];
    let document = json(&sweep(&home, &[&words[..], &["--json"]].concat()));
    check_document(&document).unwrap();
    assert_eq!((points(&document).len(), document["ended"].as_str()), (6, Some("dry_run")));
    assert_eq!(document["remaining_seconds"], 36.0);
    let page = text(&sweep(&home, &words).stdout);
    assert!(page.contains("6 points; one run of each takes 12 s; the sweep takes about 36 s"), "{page}");
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
}

#[test]
fn a_dry_run_of_a_begun_sweep_has_the_remaining_time() {
    let (home, server) = (tempfile::tempdir().unwrap(), Server::start(&[]));
    let whole = json(&sweep(&home, &with(&server, &["--json"])));
    let file = home.path().join("state.ndjson");
    let lines = fs::read_to_string(&file).unwrap();
    let begun: String = lines.split_inclusive('\n').take(4).collect();
    fs::write(&file, &begun).unwrap();
    let plan = json(&sweep(&home, &with(&server, &["--json", "--dry-run"])));
    assert_eq!((plan["seed"].as_u64(), plan["ended"].as_str()), (whole["seed"].as_u64(), Some("dry_run")));
    assert_eq!(plan["runs"].as_array().unwrap().len(), 3);
    let last = plan["remaining_seconds"].as_f64().unwrap();
    assert!(last > 0.0 && last < whole["spent_seconds"].as_f64().unwrap(), "{plan}");
    assert_eq!(fs::read_to_string(&file).unwrap(), begun);
}

#[test]
fn a_budget_that_ends_before_a_point_is_a_failure() {
    let (home, server) = (tempfile::tempdir().unwrap(), Server::start(&[]));
    // The time of a counted test is unknown before its first run.
    let words = [server.ticket.as_str(), "--count", "1,2", "--repeat", "9", "--budget", "1ns", "--state", "state"];
    let output = sweep(&home, &words);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let page = text(&output.stdout);
    assert!(page.contains("the budget ended the sweep") && page.contains("without a run"), "{page}");
}

#[test]
fn a_smaller_budget_prints_the_finished_runs() {
    let (home, server) = (tempfile::tempdir().unwrap(), Server::start(&[]));
    let whole = json(&sweep(&home, &with(&server, &["--json"])));
    let words: Vec<&str> = with(&server, &["--json", "--budget", "100ms"]);
    let again = json(&sweep(&home, &words));
    assert_eq!((&again["runs"], again["ended"].as_str()), (&whole["runs"], Some("repeated")));
}

#[test]
fn defaults_of_variables_are_no_pictures() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("in.svg"), "streams = 1").unwrap();
    let mut sweep = command(home.path(), &["far.invalid", "--dry-run", "--plot", "in.svg"]);
    let output = sweep.env("LFN_SWEEP_FILE", "in.svg").output().unwrap();
    assert_refused(&output, 2, "another argument is the same file");
    assert_eq!(fs::read_to_string(home.path().join("in.svg")).unwrap(), "streams = 1");
}

#[test]
fn a_removed_state_file_ends_the_sweep() {
    let (home, server) = (tempfile::tempdir().unwrap(), Server::start(&[]));
    let ticket = server.ticket.clone();
    let words = [ticket.as_str(), "--streams", "1,2", "--time", "200ms", "--repeat", "500", "--output", "ndjson"];
    let mut child = command(home.path(), &[&words[..], &["--state", "state"]].concat());
    let mut child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    while !lines.next().unwrap().unwrap().starts_with(r#"{"event":"run""#) {}
    fs::remove_file(home.path().join("state")).unwrap();
    let rest: Vec<Value> = lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("the file was removed"), "{}", text(&output.stderr));
    // The run that finished before the write failed is in the result.
    let result = &rest.last().unwrap()["result"];
    assert!(result["runs"].as_array().unwrap().len() >= 2, "{result}");
}

#[test]
fn a_lost_server_ends_the_sweep_with_its_runs() {
    let (home, mut server) = (tempfile::tempdir().unwrap(), Server::start(&[]));
    let ticket = server.ticket.clone();
    let words = [ticket.as_str(), "--streams", "1,2", "--time", "200ms", "--repeat", "500", "--retry-for", "1s"];
    let mut child = command(home.path(), &[&words[..], &["--output", "ndjson", "--state", "state"]].concat());
    let mut child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let is_run = |line: &str| line.starts_with(r#"{"event":"run""#);
    while !is_run(&lines.next().unwrap().unwrap()) {}
    server.child.kill().unwrap();
    let rest: Vec<Value> = lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("run the same command"), "{}", text(&output.stderr));
    let result = &rest.last().unwrap()["result"];
    assert_eq!(result["ended"], "failed");
    assert!(result["error"]["message"].as_str().unwrap().starts_with("no run finished for "), "{result}");
    assert!(!result["runs"].as_array().unwrap().is_empty());
    assert!(rest.iter().any(|event| event["event"] == "retry"));
}

#[test]
fn a_sweep_goes_on_when_its_server_comes_back() {
    let home = tempfile::tempdir().unwrap();
    let serve = |port: &str| {
        let mut command = lfn();
        command.args([
            "serve",
            "--ephemeral",
            "--quiet",
            "--bind",
            "127.0.0.1",
            "--insecure",
            "--json",
            "--port",
            port,
        ]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        (child, serde_json::from_str::<Value>(&line).unwrap())
    };
    let (mut first, document) = serve("0");
    let address = document["listen"].as_str().unwrap().to_owned();
    let port = address.rsplit(':').next().unwrap().to_owned();
    let words = ["--insecure", &address, "--streams", "1,2", "--time", "200ms", "--repeat", "3"];
    let mut child = command(home.path(), &[&words[..], &["--output", "ndjson", "--state", "state"]].concat());
    let mut child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut until = |start: &str| while !lines.next().unwrap().unwrap().starts_with(start) {};
    until(r#"{"event":"run""#);
    first.kill().unwrap();
    first.wait().unwrap();
    until(r#"{"event":"retry""#);
    let (mut second, _) = serve(&port);
    let rest: Vec<Value> = lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
    let output = child.wait_with_output().unwrap();
    second.kill().and_then(|()| second.wait()).unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let result = &rest.last().unwrap()["result"];
    assert_eq!((result["runs"].as_array().unwrap().len(), result["ended"].as_str()), (6, Some("repeated")));
}
