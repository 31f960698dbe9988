//! The far end goes away in the middle of a test: its process is killed. The error comes in bounded time, and what had
//! been seen by then is printed with it. One that falls silent, which takes longer to notice, is in `lfn-net`'s tests.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::process::{ExitCode, Output};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use support::Needs;
use support::server::{Server, number, test, text};

fn main() -> ExitCode {
    support::run(&[
        (
            "a_server_that_is_killed_leaves_a_partial_result",
            Needs::Nothing,
            a_server_that_is_killed_leaves_a_partial_result,
        ),
        ("text_shows_what_had_come", Needs::Nothing, text_shows_what_had_come),
    ])
}

/// Long enough that no test ends by itself.
const LONG: &[&str] = &["--time", "60s", "--interval", "200ms"];

/// Runs a test in each of these ways at the same time, and kills the server's process after 1.5 s; how long each then
/// took.
fn broken_off(flags: &[&[&str]]) -> Vec<(Output, Duration)> {
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

fn a_server_that_is_killed_leaves_a_partial_result() {
    for (number, (output, took)) in broken_off(&[&["--json"], &["--json", "--reverse"]]).iter().enumerate() {
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
        assert!(*took < Duration::from_secs(20), "{took:?}");
        let document = partial(output);
        let received = if number == 0 { "far_intervals" } else { "near_intervals" };
        let bytes: u64 =
            document["unfinished"][received].as_array().unwrap().iter().map(|i| self::number(&i["bytes"])).sum();
        assert!(bytes > 0, "{received}");
    }
}

fn text_shows_what_had_come() {
    let (output, _) = &broken_off(&[&[]])[0];
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.starts_with("lfn: "), "{stderr}");
    assert!(stdout.contains("seconds") && stdout.contains("until it broke off"), "{stdout}");
}

/// The document of a test that failed: no run, all that was seen of it, and the error that stderr has too.
fn partial(output: &Output) -> Value {
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["runs"].as_array().unwrap().len(), 0);
    let message = document["error"]["message"].as_str().unwrap();
    assert!(text(&output.stderr).contains(message), "{message}");
    assert!(!document["unfinished"]["near_intervals"].as_array().unwrap().is_empty());
    document
}
