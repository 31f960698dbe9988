//! One side is killed, stopped, interrupted or silent during a copy. The other side ends, no incomplete file has its
//! final name, and the same command resumes.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use super::{Pair, event_lines, finish, names, text, wait_for, write};
use crate::support::server::{Server, kill};

/// A copy so long that every fault meets it while it runs.
const ENDLESS: &str = "random:1000TiB";

#[test]
fn killed_server_ends_the_copy() {
    for (args, moving) in
        [(["far:big", "b"], true), ([ENDLESS, "far:null:"], false), (["far:zero:1000TiB", "null:"], false)]
    {
        let mut pair = Pair::new();
        if moving {
            // The file is sparse and takes long to hash, so the copy still runs when its partial file exists.
            fs::File::create(pair.far("big")).unwrap().set_len(2 << 30).unwrap();
        }
        let mut child =
            pair.command(&[&args[..], &["--retry-for", "0s", "--output", "ndjson"]].concat()).spawn().unwrap();
        if moving {
            wait_for("the partial file", || {
                names(&pair.home.path().join("near")).iter().any(|n| n.contains("partial"))
            });
        } else {
            let mut events = BufReader::new(child.stdout.take().unwrap());
            assert!(events.read_line(&mut String::new()).unwrap() > 0, "no progress before the end");
            child.stdout = Some(events.into_inner());
        }
        pair.server.child.kill().unwrap();
        pair.server.child.wait().unwrap();
        let output = finish(child);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{errors}");
        assert!(errors.starts_with("lfn: the connection was lost: ") && errors.lines().count() <= 2, "{errors}");
        assert!(!pair.near("b").exists(), "{args:?}");
    }
}

#[test]
fn goodput_counts_only_transferred_bytes() {
    let pair = Pair::new();
    fs::create_dir(pair.near("tree")).unwrap();
    write(&pair.near("tree/a"), 5_000_001);
    for way in [["tree", "far:"], ["far:tree", "back"]] {
        pair.copies(&way);
        let report = pair.copies(&way);
        let moved = [&report["moved_bytes"], &report["goodput_bits_per_second"], &report["counts"]["bytes"]];
        assert!(moved.iter().all(|figure| **figure == 0) && report["counts"]["skipped_bytes"] == 5_000_001, "{report}");
        let said = text(&pair.copy(&way).stdout);
        assert!(said.starts_with("nothing to copy: 5 MB already up to date, in "), "{said}");
        assert!(!said.contains("goodput") && !said.contains("limit"), "{said}");
    }
    write(&pair.near("tree/b"), 3_000_000);
    let lines = event_lines("lfn.copy.event.3", &pair.copy(&["tree", "far:", "--output", "ndjson"]));
    let last = lines.last().unwrap();
    assert_eq!((&last["moved_bytes"], &last["bytes"]), (&3_000_000.into(), &8_000_001.into()), "{last}");
    // Data that the receiver cannot store does not count.
    fs::create_dir_all(pair.far("tree/c/d")).unwrap();
    write(&pair.near("tree/c"), 700_000);
    let output = pair.copy(&["tree", "far:"]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.starts_with("nothing of 8.7 MB copied, in ") && !said.contains("to disk"), "{said}");
    // A hole does not count.
    fs::File::create(pair.near("hole")).unwrap().set_len(64 << 20).unwrap();
    for way in [["hole", "far:"], ["far:hole", "hole2"]] {
        let report = pair.copies(&[&way[..], &["-S"]].concat());
        assert_eq!((&report["moved_bytes"], &report["bytes"]), (&0.into(), &(64 << 20).into()), "{report}");
    }
}

#[test]
fn server_rate_limit_is_reported_as_the_limit() {
    let pair = Pair::new();
    let slow = Server::start(&["--max-rate", "24mbit"]);
    for way in [["random:8MB", "null:"], ["null:", "random:8MB"]] {
        let place = |place: &str| slow.ticket.replace('#', &format!("/{place}#"));
        let way =
            if way[0] == "null:" { [place(way[1]), way[0].to_owned()] } else { [way[0].to_owned(), place(way[1])] };
        let report = pair.copies(&[&way[0], &way[1]]);
        assert_eq!(report["limited_by"], "server rate limit", "{report}");
    }
}

#[test]
fn copy_resumes_after_client_is_killed_or_interrupted() {
    let pair = Pair::new();
    fs::File::create(pair.near("big")).unwrap().set_len(2 << 30).unwrap();
    let far_partial = || names(&pair.home.path().join("far")).iter().any(|n| n.contains("partial"));
    let far_journal = || fs::metadata(pair.far(".a.lfn-journal")).map_or(0, |journal| journal.len());
    let mut journalled = 0;
    for signal in [Signal::KILL, Signal::INT, Signal::TERM, Signal::HUP] {
        let child = pair.command(&["big", "far:a"]).spawn().unwrap();
        wait_for("the partial file to grow", || far_partial() && far_journal() > journalled + 1000);
        let pid = Pid::from_child(&child);
        kill_process(pid, signal).unwrap();
        let output = finish(child);
        if signal != Signal::KILL {
            assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
        }
        assert!(far_partial() && !pair.far("a").exists());
        journalled = far_journal();
        // The server unlocks the partial file when it has noticed.
        let free = || {
            let file = fs::File::open(pair.far(".a.lfn-partial")).unwrap();
            rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockShared).is_ok()
        };
        wait_for("the server to let go", free);
    }
    let report = pair.copies(&["big", "far:a"]);
    let kept = report["counts"]["resumed_bytes"].as_u64().unwrap();
    assert!(kept > 0 && kept < 2 << 30, "{report}");
    // Resumed data did not cross the path.
    assert_eq!(report["moved_bytes"], (2 << 30) - kept, "{report}");
    assert_eq!(fs::metadata(pair.far("a")).unwrap().len(), 2 << 30);
    assert_eq!(names(&pair.home.path().join("far")), ["a"]);
}

#[test]
fn stopped_server_reports_the_stop() {
    let mut pair = Pair::new();
    fs::File::create(pair.near("big")).unwrap().set_len(2 << 30).unwrap();
    let child = pair.command(&["big", "far:a", "--retry-for", "0s"]).spawn().unwrap();
    wait_for("the partial file", || !names(&pair.home.path().join("far")).is_empty());
    // The first signal lets running sessions continue for a while; the second does not.
    for signal in [Signal::TERM, Signal::INT] {
        kill_process(Pid::from_child(&pair.server.child), signal).unwrap();
    }
    let output = finish(child);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("the server was stopped"), "{}", text(&output.stderr));
    pair.server.child.wait().unwrap();
    assert!(!pair.far("a").exists());
}

/// The kernel of a frozen server still sends acknowledgements, so only the silence shows the failure. Takes half a
/// minute.
#[test]
fn silent_server_ends_the_copy() {
    let pair = Pair::new();
    let mut child = pair.command(&[ENDLESS, "far:null:", "--retry-for", "0s", "--output", "ndjson"]).spawn().unwrap();
    // The first line of progress begins.
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let server = Pid::from_child(&pair.server.child);
    kill_process(server, Signal::STOP).unwrap();
    let output = finish(child);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("no answer from the server within 30 s"), "{}", text(&output.stderr));
}

#[test]
fn interrupted_download_has_no_final_name() {
    let pair = Pair::new();
    fs::File::create(pair.far("big")).unwrap().set_len(2 << 30).unwrap();
    let child = pair.command(&["far:big", "a"]).spawn().unwrap();
    wait_for("the partial file", || !names(&pair.home.path().join("near")).is_empty());
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = finish(child);
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    assert!(!pair.near("a").exists());
}

/// An interrupt must work without a ticket on standard input.
#[test]
fn interrupt_ends_the_wait_for_a_ticket() {
    let pair = Pair::new();
    let mut command = pair.command(&["@-:a", "b"]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let _open = child.stdin.take();
    let status = format!("/proc/{}/status", child.id());
    let catches = || {
        let status = fs::read_to_string(&status).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(caught.trim(), 16).unwrap() & 2 != 0
    };
    wait_for("its handler", catches);
    kill("INT", child.id());
    assert_eq!(finish(child).status.code(), Some(130));
}
