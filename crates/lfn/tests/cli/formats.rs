//! Output of `lfn test` for programs and in files, validated with the schemas in `doc/schema`; and `lfn show`, which
//! reads results of `lfn` and iperf3.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::thread;

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support;
use crate::support::missing_program;
use crate::support::schema::assert_valid;
use crate::support::server::{Server, assert_refused, number, text};
use crate::support::skip::skip;

/// Returns this number of nested lists.
fn brackets(deep: usize) -> String {
    format!("{}{}}}", "[".repeat(deep), "]".repeat(deep))
}

fn show(files: &[&Path], flags: &[&str]) -> Output {
    support::lfn().arg("show").args(files).args(flags).output().unwrap()
}

/// Returns the recorded iperf3 result of this version and test.
fn iperf3(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/iperf3/results").join(name)
}

fn succeeded(output: &Output) -> String {
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// Runs a test with events and a saved result. Validates every line, the result and its table, and checks that `lfn
/// show` refuses duplicate keys. Returns the result.
fn checked(test: impl Fn(&[&str]) -> Output, flags: &[&str]) -> Value {
    let directory = TempDir::new().unwrap();
    let [kept, events] = ["kept.json", "events.ndjson"].map(|name| directory.path().join(name));
    let output = test(&[flags, &["--output", "ndjson", "--report", kept.to_str().unwrap()]].concat());
    let reported = events_of(&output);
    fs::write(&events, &output.stdout).unwrap();
    let result: Value = serde_json::from_slice(&fs::read(&kept).unwrap()).unwrap();
    assert_eq!(reported.last().unwrap()["result"], result, "{flags:?}: the last line holds what is kept");
    assert_valid("lfn.test.3", &result);
    let table = succeeded(&show(&[&kept], &["--intervals"]));
    assert_eq!(succeeded(&show(&[&events], &["--intervals"])), table, "{flags:?}");
    let widths: Vec<usize> = table.split_terminator("\r\n").map(|line| line.split(',').count()).collect();
    assert!(widths.iter().all(|width| *width == widths[0]), "{flags:?}: {table}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2, "nothing else is left");
    result
}

/// Returns the error of a result without a goodput.
fn error_of(result: &Value) -> Option<String> {
    let has_goodput = result["runs"][0]["goodput_bits_per_second"].is_u64();
    (!has_goodput).then(|| format!("{} runs, error {}", result["runs"].as_array().map_or(0, Vec::len), result["error"]))
}

/// Returns the events of a test, each validated.
fn events_of(output: &Output) -> Vec<Value> {
    let page = text(&output.stdout);
    assert!(page.ends_with('\n'), "{page}{}", text(&output.stderr));
    let lines: Vec<Value> = page.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    lines.iter().for_each(|line| assert_valid("lfn.test.3.event", line));
    lines
}

#[test]
fn all_modes_match_the_schema() {
    let server = Server::start(&["--client-sessions", "100", "--max-sessions", "100"]);
    let modes: [&[&str]; 16] = [
        &["--time", "300ms"],
        &["--time", "300ms", "--reverse", "--streams", "2", "--interval", "50ms"],
        &["--time", "300ms", "--bidir"],
        &["--time", "200ms", "--both", "--rate", "1gbit", "--omit", "50ms"],
        &["--precision", "50%", "--time", "2s"],
        &["--time", "300ms", "--udp", "--pacing", "20mbit", "--rate", "1gbit"],
        &["--time", "300ms", "--udp", "--pacing", "20mbit", "--reverse", "--streams", "2"],
        &["--ramp", "--ramp-step-time", "50ms", "--pacing", "20mbit"],
        &["--time", "300ms", "--latency", "--reverse"],
        &["--time", "300ms", "--path"],
        &["--bytes", "1MB", "--block-timing"],
        &["--bytes", "1MB", "--no-copy"],
        &["--bytes", "1MB", "--check-data", "--mptcp"],
        &["--count", "100", "--length", "10000", "--near-sndbuf", "50000"],
        &["--time", "200ms", "--window", "200000", "--congestion", "reno"],
        &["--time", "20ms", "--interval", "20ms"],
    ];
    // Each test mostly waits. A test that fails next to the others runs once more, alone.
    let run = |flags: &[&str]| checked(|flags| server.test(flags), flags);
    let failed: Vec<&[&str]> = thread::scope(|scope| {
        let parts = modes.chunks(modes.len().div_ceil(4));
        let threads = parts.map(|part| {
            let run = &run;
            scope
                .spawn(move || part.iter().copied().filter(|flags| error_of(&run(flags)).is_some()).collect::<Vec<_>>())
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    for flags in failed {
        assert_eq!(error_of(&run(flags)), None, "{flags:?}");
    }
    let mut broken = server.document(&["--time", "50ms"]);
    broken["runs"][0]["goodput_megabits"] = json!(1);
    assert!(std::panic::catch_unwind(|| assert_valid("lfn.test.3", &broken)).is_err(), "the schema is strict");
}

#[test]
fn iperf3_results_match_the_schema() {
    if let Some(missing) = missing_program(&["iperf3"]) {
        return skip("iperf3_results_match_the_schema", &missing);
    }
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let mut command = Command::new("iperf3");
    command.args(["-s", "-p", &port, "--forceflush"]).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut stock = Stopped(command.spawn().unwrap());
    let mut lines = BufReader::new(stock.0.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("listening")), "iperf3 -s listens");
    // Otherwise the process would block on a full pipe.
    thread::spawn(move || lines.for_each(drop));
    let host = format!("127.0.0.1:{port}");
    for flags in [&["--time", "1s"][..], &["--time", "1s", "--reverse"], &["--time", "1s", "--udp"]] {
        let result = checked(|flags| lfn_test(&[&["--iperf3", &host], flags].concat()), flags);
        assert!(result["runs"][0]["iperf3"].is_object(), "{result}");
        assert!(result["runs"][0]["far"]["kernel"].is_null(), "iperf3 does not report it");
    }
}

/// The list needs no server.
#[test]
fn list_of_findings_matches_the_schema() {
    let list = |flags: &[&str]| support::lfn().args(["test", "--list-findings"]).args(flags).output().unwrap();
    let document: Value = serde_json::from_str(&succeeded(&list(&["--json"]))).unwrap();
    assert_valid("lfn.findings.1", &document);
    let page = succeeded(&list(&[]));
    for finding in document["findings"].as_array().unwrap() {
        let name = finding["name"].as_str().unwrap();
        assert!(page.contains(&format!("{name}: ")), "{name}: {page}");
    }
    assert_refused(&list(&["--output", "csv"]), 2, "cannot be used with --list-findings");
}

#[test]
fn stamp_results_match_the_schema() {
    let mut command = support::lfn();
    command.args(["serve", "--ephemeral", "--quiet", "--port", "0", "--bind", "127.0.0.1", "--stamp=0", "--json"]);
    let mut server = Stopped(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let said: Value = serde_json::from_str(&line).unwrap();
    assert_valid("lfn.serve.1", &said);
    let reflector = said["stamp"].as_str().unwrap();
    let flags = ["--stamp", reflector, "--stamp-count", "10", "--stamp-interval", "10ms", "--json"];
    let session: Value = serde_json::from_str(&succeeded(&lfn_test(&flags))).unwrap();
    assert_valid("lfn.stamp.2", &session);
    assert_eq!((number(&session["sent"]), session["rtt"].is_object()), (10, true), "{session}");
}

#[test]
fn serve_writes_its_report_at_the_start() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("serve.json");
    let server = Server::start(&["--report", file.to_str().unwrap()]);
    let report: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_valid("lfn.serve.1", &report);
    assert_eq!(report["ticket"], server.ticket);
}

#[test]
fn failed_test_keeps_its_intervals() {
    let directory = TempDir::new().unwrap();
    let kept = directory.path().join("kept.json");
    for flags in [&["--time", "60s"][..], &["--time", "60s", "--reverse"], &["--time", "60s", "--udp"]] {
        let mut server = Server::start(&[]);
        let save = ["--interval", "50ms", "--output", "ndjson", "--report", kept.to_str().unwrap()];
        let client = Client::with_intervals(&server.ticket, &[flags, &save].concat());
        server.child.kill().unwrap();
        let output = client.end();
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
        let result = events_of(&output).pop().unwrap()["result"].take();
        assert_valid("lfn.test.3", &result);
        assert!(result["error"]["message"].is_string() && result["runs"] == json!([]), "{result}");
        assert!(!result["unfinished"]["near_intervals"].as_array().unwrap().is_empty(), "{result}");
        assert_eq!(result, serde_json::from_slice::<Value>(&fs::read(&kept).unwrap()).unwrap());
        assert!(succeeded(&show(&[&kept], &[])).contains("the test is unfinished"));
    }
}

#[test]
fn interrupt_saves_a_complete_result_or_none() {
    let server = Server::start(&[]);
    let directory = TempDir::new().unwrap();
    let kept = directory.path().join("kept.json");
    let flags = ["--time", "60s", "--interval", "50ms", "--output", "ndjson", "--report", kept.to_str().unwrap()];
    let client = Client::with_intervals(&server.ticket, &flags);
    client.signal(Signal::INT);
    let output = client.end();
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    let result = events_of(&output).pop().unwrap()["result"].take();
    assert_valid("lfn.test.3", &result);
    assert_eq!(result["runs"][0]["ended"], "interrupted");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    fs::remove_file(&kept).unwrap();
    // A killed command cannot clean up, so it must leave nothing.
    let mut client = Client::with_intervals(&server.ticket, &flags);
    client.child.kill().unwrap();
    client.end();
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

/// A running test with events.
struct Client {
    child: Child,
    out: BufReader<ChildStdout>,
    seen: Vec<u8>,
}

impl Client {
    /// Returns after each end has reported an interval.
    fn with_intervals(ticket: &str, flags: &[&str]) -> Client {
        let mut command = support::server::test_command(ticket, flags);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut client = Client { out: BufReader::new(child.stdout.take().unwrap()), child, seen: Vec::new() };
        let mut missing = vec![r#""end":"near""#, r#""end":"far""#];
        while !missing.is_empty() {
            let mut line = Vec::new();
            assert!(client.out.read_until(b'\n', &mut line).unwrap() > 0, "{}", text(&client.seen));
            missing.retain(|part| !text(&line).contains(part));
            client.seen.extend(line);
        }
        client
    }

    fn signal(&self, signal: Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).unwrap();
    }

    fn end(mut self) -> Output {
        self.out.read_to_end(&mut self.seen).unwrap();
        Output { stdout: self.seen, ..self.child.wait_with_output().unwrap() }
    }
}

/// Another server that ends with the test.
struct Stopped(Child);

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn lfn_test(flags: &[&str]) -> Output {
    support::lfn().env("HOME", "/nonexistent").env_remove("LFN_PATH").arg("test").args(flags).output().unwrap()
}

#[test]
fn last_event_has_the_complete_result() {
    let server = Server::start(&[]);
    let output =
        server.test(&["--time", "400ms", "--interval", "100ms", "--both", "--output", "ndjson", "--rate", "1tbit"]);
    let lines: Vec<Value> = succeeded(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for line in &lines {
        assert_valid("lfn.test.3.event", line);
    }
    let count = |event: &str, run: u64| lines.iter().filter(|l| l["event"] == event && l["run"] == run).count();
    assert_eq!((&lines[0]["event"], &lines[0]["schema"]), (&json!("start"), &json!("lfn.test.event/3")));
    for run in [0, 1] {
        assert_eq!((count("run", run), count("connected", run)), (1, 1));
    }
    let result = &lines.last().unwrap()["result"];
    assert_valid("lfn.test.3", result);
    let reported = |run: u64, end: &str| -> u64 {
        let mine = lines.iter().filter(|l| l["event"] == "interval" && l["run"] == run && l["end"] == end);
        mine.map(|line| number(&line["interval"]["bytes"])).sum()
    };
    for run in [0, 1] {
        for end in ["near", "far"] {
            assert_eq!(reported(run, end), number(&result["runs"][run as usize][end]["bytes"]), "{run} {end}");
        }
    }
    assert_eq!(result["origin"]["command"][0], "test");
    assert!(!text(&output.stdout).contains("lfn://"), "a ticket is a secret");
}

#[test]
fn csv_accounts_for_all_bytes() {
    let server = Server::start(&[]);
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("kept.json");
    let path = file.to_str().unwrap();
    let flags = ["--time", "400ms", "--interval", "100ms", "--streams", "2", "--output", "csv", "--report", path];
    let table = succeeded(&server.test(&flags));
    let mut records = table.split_terminator("\r\n").map(|line| line.split(',').collect::<Vec<_>>());
    let names = records.next().unwrap();
    let column = |name: &str| names.iter().position(|other| *other == name).unwrap();
    let rows: Vec<Vec<&str>> = records.collect();
    assert!(rows.iter().all(|row| row.len() == names.len()), "{table}");
    let sum = |name: &str| rows.iter().filter_map(|row| row[column(name)].parse::<u64>().ok()).sum::<u64>();
    let kept: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!(sum("received_bytes"), number(&kept["runs"][0]["bytes"]));
    assert_eq!(sum("sent_bytes"), number(&kept["runs"][0]["near"]["bytes"]));
    assert_eq!(sum("retransmitted_segments"), number(&kept["runs"][0]["retransmits"]));
    assert_eq!(succeeded(&show(&[&file], &["--intervals"])), table, "the same from what was kept");
}

#[test]
fn stored_result_is_shown_as_printed() {
    let server = Server::start(&[]);
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("kept.json");
    for flags in [&["--time", "500ms", "--interval", "100ms", "--both", "--rate", "10gbit"][..], &["--count", "50"]] {
        let output = server.test(&[flags, &["--report", file.to_str().unwrap()]].concat());
        assert_eq!(succeeded(&show(&[&file], &[])), succeeded(&output));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing else is left");
    }
    let events = directory.path().join("events.ndjson");
    fs::write(&events, server.test(&["--time", "200ms", "--output", "ndjson"]).stdout).unwrap();
    assert!(succeeded(&show(&[&events], &[])).contains("goodput"));
    // A killed command leaves no last line, and half of a line.
    let lines = fs::read_to_string(&events).unwrap();
    let cut: Vec<&str> = lines.lines().filter(|line| !line.contains(r#""event":"end""#)).collect();
    fs::write(&events, cut.join("\n")).unwrap();
    assert!(succeeded(&show(&[&events], &[])).contains("the test is unfinished: the command was killed"));
}

#[test]
fn unwritable_save_file_fails_before_the_test() {
    let directory = TempDir::new().unwrap();
    let server = Server::start(&[]);
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let cases = [("-".to_owned(), 2), (path(""), 2), (path("no/such/place.json"), 2), ("/dev/null".into(), 2)];
    for (file, code) in cases {
        assert_refused(&server.test(&["--time", "200ms", "--report", &file]), code, "--report");
    }
    // A failed test keeps its intervals and the error. An existing file is replaced as a whole.
    let file = path("kept.json");
    fs::write(&file, "before").unwrap();
    let output = server.test(&["--time", "200ms", "--reverse", "--congestion", "nosuch", "--json", "--report", &file]);
    assert_refused(&output, 1, "nosuch");
    let kept: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!(kept, serde_json::from_slice::<Value>(&output.stdout).unwrap());
    assert_valid("lfn.test.3", &kept);
    assert!(kept["error"]["message"].as_str().unwrap().contains("nosuch"), "{kept}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn files_of_other_users_are_not_overwritten() {
    let directory = TempDir::new().unwrap();
    let shared = directory.path().join("shared");
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).unwrap();
    let (precious, link) = (directory.path().join("precious"), shared.join("result.json"));
    fs::write(&precious, "precious").unwrap();
    symlink(&precious, &link).unwrap();
    let server = Server::start(&[]);
    let flags = ["--time", "200ms", "--output", "nettest", "--report", link.to_str().unwrap()];
    // Only root can change the owner.
    if lchown(&link, Some(12_345), None).is_ok() {
        assert_refused(&server.test(&flags), 2, "another user created it in a directory where all users may write");
        assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
        lchown(&link, Some(rustix::process::geteuid().as_raw()), None).unwrap();
    }
    succeeded(&server.test(&flags));
    assert!(fs::read_to_string(&precious).unwrap().contains("lfn.test/3"), "one's own link is followed");
    // An open descriptor is written, whatever it is.
    let both = succeeded(&server.test(&["--time", "200ms", "--output", "nettest", "--report", "/dev/stdout"]));
    assert!(both.contains("lfn.test/3") && both.contains("Transfer: "), "{both}");
    assert!(fs::symlink_metadata("/dev/stdout").unwrap().is_symlink());
}

#[test]
fn ramps_are_compared_by_their_rate() {
    let server = Server::start(&[]);
    let directory = TempDir::new().unwrap();
    let [steady, ramp] = ["steady.json", "ramp.json"].map(|name| directory.path().join(name));
    let keep =
        |flags: &[&str], to: &Path| succeeded(&server.test(&[flags, &["--report", to.to_str().unwrap()]].concat()));
    keep(&["--udp", "--pacing", "10mbit", "--time", "300ms"], &steady);
    keep(&["--ramp", "--ramp-step-time", "50ms", "--pacing", "4mbit"], &ramp);
    let document: Value = serde_json::from_str(&fs::read_to_string(&ramp).unwrap()).unwrap();
    let found = &document["runs"][0]["near"]["streams"][0]["udp"]["ramp"]["highest_passed_bits_per_second"];
    let comparison: Value = serde_json::from_str(&succeeded(&show(&[&steady, &ramp], &["--json"]))).unwrap();
    assert_valid("lfn.show.2", &comparison);
    let result = &comparison["results"][1];
    assert_eq!((&result["protocol"], &result["goodput_bits_per_second"]), (&"udp ramp".into(), found));
    assert_eq!(comparison["differences"][0]["significant"], Value::Null);
}

#[test]
fn results_of_lfn_and_iperf3_are_compared() {
    let server = Server::start(&[]);
    let directory = TempDir::new().unwrap();
    let kept = directory.path().join("kept.json");
    succeeded(&server.test(&["--time", "300ms", "--report", kept.to_str().unwrap()]));
    let mut files = vec![kept];
    files.extend(fs::read_dir(iperf3("")).unwrap().map(|entry| entry.unwrap().path()));
    files.retain(|file| !file.ends_with("312-error.json"));
    files[1..].sort();
    assert!(files.len() > 20);
    let paths: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    let comparison: Value = serde_json::from_str(&succeeded(&show(&paths, &["--json"]))).unwrap();
    assert_valid("lfn.show.2", &comparison);
    let of = |name: &str| -> Vec<Value> {
        let results = comparison["results"].as_array().unwrap().iter();
        results.filter(|result| result["file"].as_str().unwrap().ends_with(name)).cloned().collect()
    };
    for (name, directions, protocol) in [
        ("312-tcp.client.json", &["forward"][..], "tcp"),
        ("312-tcp.server.json", &["forward"], "tcp"),
        ("321-reverse.client.json", &["reverse"], "tcp"),
        ("321-reverse.server.json", &["reverse"], "tcp"),
        ("312-bidir.client.json", &["forward", "reverse"], "tcp"),
        ("321-udp.client.json", &["forward"], "udp"),
        ("312-udp.server.json", &["forward"], "udp"),
        ("321-stream.json", &["forward"], "tcp"),
    ] {
        let results = of(name);
        let reported: Vec<&str> = results.iter().map(|result| result["direction"].as_str().unwrap()).collect();
        assert_eq!(reported, directions, "{name}");
        for result in &results {
            assert_eq!(result["protocol"], protocol, "{name}");
            // Requested: 50 Mb/s per stream, 100 Mb/s for two.
            let goodput = number(&result["goodput_bits_per_second"]);
            assert!((45_000_000..110_000_000).contains(&goodput), "{name}: {goodput}");
        }
    }
    let warnings = comparison["warnings"].to_string();
    assert!(warnings.contains("protocol: tcp, udp"), "{warnings}");
    let page = succeeded(&show(&paths[..3], &[]));
    assert!(page.contains("kept.json") && page.contains("iperf 3.12") && page.contains("difference"), "{page}");
    let table = succeeded(&show(&paths, &["--output", "csv"]));
    let results = comparison["results"].as_array().unwrap().len();
    assert_eq!(table.split_terminator("\r\n").count(), results + 1);
    assert_refused(&show(&[&iperf3("312-error.json")], &[]), 1, "iperf3 failed: unable to connect");
}

#[test]
fn invalid_result_error_names_file_and_line() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("bad.json");
    let mut cases: Vec<(Vec<u8>, &str)> = vec![
        (vec![], "the file is empty"),
        (b"\x00\x01\x02".to_vec(), "byte 0x00"),
        (b"lfn.test/3".to_vec(), "begins with 'l'"),
        (br#"{"schema":"lfn.test/2","runs":[]}"#.to_vec(), "'lfn.test/2'"),
        (br#"{"schema":"lfn.test/3","runs":NaN}"#.to_vec(), "line 1 column"),
        (br#"{"schema":"lfn.test/3","a":1,"a":2}"#.to_vec(), "duplicate key 'a'"),
        (br#"{"schema":"lfn.test/3"} {}"#.to_vec(), "more than one result"),
        (b"{\"schema\":\"lfn.test/3\",\n\"runs\":7}".to_vec(), "line 2"),
        (b"{\"schema\": \"\xff\xfe\"}".to_vec(), "line 1"),
        (br#"{"hello":"world"}"#.to_vec(), "not a result of"),
        (br#"{"start":{},"intervals":[{"sum":{"bytes":"many"}}],"end":{}}"#.to_vec(), "invalid type: string"),
    ];
    cases.push((format!("{{\"schema\":\"lfn.test/3\",\"x\":{}", brackets(100_000)).into_bytes(), "recursion limit"));
    for (bytes, says) in cases {
        fs::write(&file, bytes).unwrap();
        let output = show(&[&file], &[]);
        assert_refused(&output, 1, says);
        assert!(text(&output.stderr).contains("bad.json"));
    }
    // Every prefix of a valid result is an error and never a panic.
    let whole = fs::read(iperf3("321-bidir.client.json")).unwrap();
    for length in (0..whole.len() - 2).step_by(whole.len() / 20) {
        fs::write(&file, &whole[..length]).unwrap();
        assert_eq!(show(&[&file], &["--json"]).status.code(), Some(1), "{length}");
    }
    assert_refused(&show(&[directory.path()], &[]), 1, "directory");
    assert_refused(&show(&[Path::new("/dev/zero")], &[]), 1, "longer than 512 MiB");
    // Far longer than the read limit, and sparse on disk.
    let sparse = fs::File::create(&file).unwrap();
    sparse.set_len(1 << 40).unwrap();
    assert_refused(&show(&[&file], &[]), 1, "longer than 512 MiB");
    let two = [iperf3("312-tcp.client.json"), iperf3("321-tcp.client.json")];
    assert_refused(&show(&[&two[0], &two[1]], &["--intervals"]), 2, "--intervals");
}

#[test]
fn unsupported_schema_error_names_file_and_versions() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("old.json");
    for (content, version) in [
        (r#"{"schema":"lfn.test/2","runs":[]}"#, "lfn.test/2"),
        (r#"{"event":"start","schema":"lfn.test.event/4"}"#, "lfn.test.event/4"),
        (r#"{"schema":"lfn.test.compare/9"}"#, "lfn.test.compare/9"),
    ] {
        fs::write(&file, content).unwrap();
        let output = show(&[&file], &[]);
        assert_refused(&output, 1, version);
        let error = text(&output.stderr);
        for part in ["old.json: ", "lfn.test/3", "lfn.test.event/3", "iperf3"] {
            assert!(error.contains(part), "'{part}' is not in {error}");
        }
    }
}

/// Returns the output of a test on a terminal of this size, made with `script`.
fn on_terminal(server: &Server, columns: u16, rows: u16, flags: &str, colour: bool) -> String {
    let lfn = support::lfn_path();
    let typed = format!("stty cols {columns} rows {rows}; {} test {} {flags}", lfn.display(), server.ticket);
    let mut command = Command::new("script");
    command.args(["-qec", &typed, "/dev/null"]).env("TERM", "xterm").env("LC_ALL", "C.UTF-8");
    command.env("HOME", "/nonexistent").env_remove("NO_COLOR").env_remove("LFN_PATH").stdin(Stdio::null());
    if !colour {
        command.env("NO_COLOR", "1");
    }
    text(&command.output().unwrap().stdout)
}

/// Removes the colours of the labels in a result.
fn without_colours(text: &str) -> String {
    ["\x1b[1m", "\x1b[33m", "\x1b[36m", "\x1b[0m"].iter().fold(text.to_owned(), |text, code| text.replace(code, ""))
}

#[test]
fn live_view_leaves_the_terminal_clean() {
    if let Some(missing) = missing_program(&["script"]) {
        return skip("live_view_leaves_the_terminal_clean", &missing);
    }
    let server = Server::start(&[]);
    let short =
        |flags: &str, colour| on_terminal(&server, 60, 20, &format!("--time 600ms --interval 100ms {flags}"), colour);
    let seen = short("", true);
    assert!(seen.contains("limits") && seen.contains("left") && seen.contains("\r\x1b[J"), "{seen}");
    let (_, after) = seen.rsplit_once("\r\x1b[J").unwrap();
    let after = without_colours(after);
    assert!(!after.contains("limits  ") && after.contains("goodput"), "what was drawn is gone: {after}");
    for line in after.lines().filter(|line| !line.starts_with("goodput") && !line.starts_with("hint")) {
        assert!(line.trim_end().chars().count() <= 60, "{line}");
    }
    // On a narrow terminal the line may have no room for coloured parts.
    let wide = |colour| on_terminal(&server, 100, 20, "--time 600ms --interval 100ms", colour);
    let coloured = wide(true);
    assert!(coloured.contains("\x1b[0m"), "{coloured:?}");
    let plain = wide(false);
    assert!(plain.contains("limits") && !plain.contains("\x1b[0m"), "{plain:?}");
    assert!(!without_colours(&short("--no-live", true)).contains('\x1b'));
    let both = short("--bidir", true);
    assert!(both.contains("forward ") && both.contains("reverse ") && both.contains("left"), "{both}");
    let datagrams = short("--udp", true);
    assert!(datagrams.contains("lost    ") && datagrams.contains("rate    "), "{datagrams}");
}

#[test]
fn live_view_updates_between_intervals() {
    if let Some(missing) = missing_program(&["script"]) {
        return skip("live_view_updates_between_intervals", &missing);
    }
    let server = Server::start(&[]);
    let seen = on_terminal(&server, 80, 24, "--time 2500ms --interval 2500ms", true);
    let drawn =
        seen.split("time    ").skip(1).filter(|text| text.lines().next().is_some_and(|line| line.contains(" left")));
    assert!(drawn.count() >= 2, "{seen:?}");
}
