//! Stopping a server, and its notifications to systemd.

use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use super::served::{Client, PATIENCE, Served};
use crate::support;
use crate::support::server::{assert_refused, text};

#[test]
fn stop_drains_sessions_and_admits_none() {
    let mut server = Served::start(&["--max-sessions", "1", "--drain", "50s"]);
    let running = Client::begin(&server.ticket, &["--time", "2s"]);
    let waiting = Client::spawn(&server.ticket, &["--time", "1s"]);
    server.logged(&["queued"]);
    server.signal(rustix::process::Signal::TERM);
    server.logged(&["stopping", "running=1", "drain_seconds=50"]);
    let stderr = text(&waiting.end().stderr);
    assert!(
        stderr.contains("lfn: the server is stopping\nhint: try again when the server is running again"),
        "{stderr}"
    );
    assert_refused(&server.test(&["--time", "200ms"]), 1, "the server is stopping");
    // A copy that was never admitted has nothing to resume, whatever its `--retry-for`.
    let place = server.ticket.replace('#', "/null:#");
    for flags in [&[][..], &["--dry-run"]] {
        let output = support::lfn().args(["copy", "zero:1B", &place]).args(flags).output().unwrap();
        assert_refused(&output, 1, "the server is stopping");
    }
    let finished = running.end();
    assert!(finished.status.success(), "{}", text(&finished.stderr));
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn long_sessions_are_ended_with_a_message() {
    let mut server = Served::start(&["--drain", "300ms"]);
    let forward = Client::begin(&server.ticket, &["--time", "60s"]);
    let reverse = Client::begin(&server.ticket, &["--time", "60s", "--reverse"]);
    server.signal(rustix::process::Signal::INT);
    for client in [forward, reverse] {
        assert_refused(
            &client.end(),
            1,
            "the server was stopped; running sessions were ended after the drain time of 300 ms",
        );
    }
    server.logged(&["terminated", "sessions=2"]);
    assert_eq!(server.wait().code(), Some(130));
    // A second signal ends the server at once.
    let mut server = Served::start(&["--drain", "50s"]);
    let client = Client::begin(&server.ticket, &["--time", "60s"]);
    server.signal(rustix::process::Signal::TERM);
    server.logged(&["stopping"]);
    let asked = Instant::now();
    server.signal(rustix::process::Signal::TERM);
    assert_refused(&client.end(), 1, "running sessions were ended immediately");
    assert_eq!(server.wait().code(), Some(0));
    assert!(asked.elapsed() < Duration::from_secs(40), "{:?}", asked.elapsed());
}

#[test]
fn systemd_is_notified_of_start_and_stop() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut command = support::lfn();
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "400000");
    let mut server = Served::run(command, &[]);
    let reported = || {
        let mut buffer = [0; 512];
        let length = socket.recv(&mut buffer).unwrap();
        text(&buffer[..length])
    };
    let ready = reported();
    assert!(ready.starts_with("READY=1\nSTATUS=serving on 127.0.0.1:"), "{ready}");
    for _ in 0..3 {
        assert_eq!(reported(), "WATCHDOG=1\n");
    }
    let client = Client::begin(&server.ticket, &["--time", "1500ms"]);
    server.signal(rustix::process::Signal::TERM);
    while !reported().starts_with("STOPPING=1\n") {}
    assert!(client.end().status.success());
    assert_eq!(server.wait().code(), Some(0));
}
