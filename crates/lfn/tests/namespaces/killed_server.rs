//! The far end is killed during a test. The error comes in bounded time, and the results so far are printed with it.
//! The tests of `lfn-api` have the case of a silent far end, which takes longer to detect.

use std::process::Output;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::harness::{Needs, Test, Weight, tests_of};
use crate::support::server::{Server, number, test, text};

/// Name of this module in the names of its tests and roles.
const MODULE: &str = "killed_server";

pub fn tests() -> Vec<Test> {
    // The kill comes at a fixed time, at which the load must have begun.
    tests_of(
        MODULE,
        Weight::Alone,
        &[
            ("killed_server_leaves_a_partial_result", Needs::Nothing, killed_server_leaves_a_partial_result),
            ("text_shows_the_partial_result", Needs::Nothing, text_shows_the_partial_result),
        ],
    )
}

/// Long enough that no test ends by itself.
const LONG: &[&str] = &["--time", "60s", "--interval", "200ms"];

/// Runs a test in each of these ways at the same time, and kills the server after 1.5 s. Returns the duration of each.
fn kill_server_during(flags: &[&[&str]]) -> Vec<(Output, Duration)> {
    let mut server = Server::start(&[]);
    let (begun, ticket) = (Instant::now(), server.ticket.clone());
    thread::scope(|scope| {
        let ticket = ticket.as_str();
        let tests: Vec<_> = flags
            .iter()
            .map(|flags| scope.spawn(move || (test(ticket, &[LONG, flags].concat()), Instant::now())))
            .collect();
        thread::sleep(Duration::from_millis(1500));
        server.child.kill().unwrap();
        let hit = begun.elapsed();
        let ended = tests.into_iter().map(|test| test.join().unwrap());
        ended.map(|(output, at)| (output, at.duration_since(begun).saturating_sub(hit))).collect()
    })
}

fn killed_server_leaves_a_partial_result() {
    for (number, (output, took)) in kill_server_during(&[&["--json"], &["--json", "--reverse"]]).iter().enumerate() {
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
        assert!(*took < Duration::from_secs(20), "{took:?}");
        let document = partial(output);
        let received = if number == 0 { "far_intervals" } else { "near_intervals" };
        let bytes: u64 =
            document["unfinished"][received].as_array().unwrap().iter().map(|i| self::number(&i["bytes"])).sum();
        assert!(bytes > 0, "{received}");
    }
}

fn text_shows_the_partial_result() {
    let (output, _) = &kill_server_during(&[&[]])[0];
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.starts_with("lfn: "), "{stderr}");
    assert!(stdout.contains("seconds") && stdout.contains("until the failure"), "{stdout}");
}

/// Returns the document of a failed test: no run, the results so far, and the error that stderr also has.
fn partial(output: &Output) -> Value {
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["runs"].as_array().unwrap().len(), 0);
    let message = document["error"]["message"].as_str().unwrap();
    assert!(text(&output.stderr).contains(message), "{message}");
    assert!(!document["unfinished"]["near_intervals"].as_array().unwrap().is_empty());
    document
}
