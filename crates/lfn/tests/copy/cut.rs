//! One side is killed, stopped, interrupted or falls silent midway: the other ends, nothing half-done has the final name,
//! and the same command goes on from there.

use std::fs;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use serde_json::Value;

use crate::support::server::{Server, kill};
use crate::{Pair, finish, names, text, wait_for, write};

/// A copy so long that it is under way whenever something happens to it.
const ENDLESS: &str = "random:1000TiB";

#[test]
fn a_server_killed_midway_ends_the_copy() {
    for (args, moving) in
        [(["far:big", "b"], true), ([ENDLESS, "far:null:"], false), (["far:zero:1000TiB", "null:"], false)]
    {
        let mut pair = Pair::new();
        if moving {
            // Sparse, and long to hash: the copy is still going when the partial file has been seen.
            fs::File::create(pair.far("big")).unwrap().set_len(2 << 30).unwrap();
        }
        let child = pair.command(&[&args[..], &["--patience", "0s"]].concat()).spawn().unwrap();
        if moving {
            wait_for("the partial file", || {
                names(&pair.home.path().join("near")).iter().any(|n| n.contains("partial"))
            });
        } else {
            thread::sleep(Duration::from_millis(300));
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
fn goodput_is_of_what_crossed_the_path() {
    let pair = Pair::new();
    fs::create_dir(pair.near("tree")).unwrap();
    write(&pair.near("tree/a"), 5_000_001);
    for way in [["tree", "far:"], ["far:tree", "back"]] {
        pair.copies(&way);
        let report = pair.copies(&way);
        let moved = [&report["moved_bytes"], &report["goodput_bits_per_second"], &report["tally"]["bytes"]];
        assert!(moved.iter().all(|figure| **figure == 0) && report["tally"]["skipped_bytes"] == 5_000_001, "{report}");
        let said = text(&pair.copy(&way).stdout);
        assert!(said.starts_with("nothing of 5 MB had to be moved, in "), "{said}");
        assert!(!said.contains("goodput") && !said.contains("limit"), "{said}");
    }
    write(&pair.near("tree/b"), 3_000_000);
    let said = pair.copy(&["tree", "far:", "--ndjson"]);
    let lines: Vec<Value> = text(&said.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let last = lines.last().unwrap();
    assert_eq!((&last["moved_bytes"], &last["bytes"]), (&3_000_000.into(), &8_000_001.into()), "{last}");
    // Nor what the receiver can make nothing of.
    fs::create_dir_all(pair.far("tree/c/d")).unwrap();
    write(&pair.near("tree/c"), 700_000);
    let output = pair.copy(&["tree", "far:"]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.starts_with("nothing of 8.7 MB was copied, in ") && !said.contains("on disk"), "{said}");
    // Nor is a hole of it.
    fs::File::create(pair.near("hole")).unwrap().set_len(64 << 20).unwrap();
    for way in [["hole", "far:"], ["far:hole", "hole2"]] {
        let report = pair.copies(&[&way[..], &["-S"]].concat());
        assert_eq!((&report["moved_bytes"], &report["bytes"]), (&0.into(), &(64 << 20).into()), "{report}");
    }
}

#[test]
fn a_rate_that_a_server_grants_is_named() {
    let pair = Pair::new();
    let slow = Server::start(&["--max-rate", "24mbit"]);
    for way in [["random:4MB", "null:"], ["null:", "random:4MB"]] {
        let place = |place: &str| slow.ticket.replace('#', &format!("/{place}#"));
        let way =
            if way[0] == "null:" { [place(way[1]), way[0].to_owned()] } else { [way[0].to_owned(), place(way[1])] };
        let report = pair.copies(&[&way[0], &way[1]]);
        assert_eq!(report["limit"], "the server's limit", "{report}");
    }
}

#[test]
fn a_client_killed_or_interrupted_midway_is_gone_on_from() {
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
        // The server lets go of the partial file when it has noticed.
        let free = || {
            let file = fs::File::open(pair.far(".a.lfn-partial")).unwrap();
            rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockShared).is_ok()
        };
        wait_for("the server to let go", free);
    }
    let report = pair.copies(&["big", "far:a"]);
    let kept = report["tally"]["kept"].as_u64().unwrap();
    assert!(kept > 0 && kept < 2 << 30, "{report}");
    // What was there already did not cross the path.
    assert_eq!(report["moved_bytes"], (2 << 30) - kept, "{report}");
    assert_eq!(fs::metadata(pair.far("a")).unwrap().len(), 2 << 30);
    assert_eq!(names(&pair.home.path().join("far")), ["a"]);
}

#[test]
fn a_server_stopped_midway_says_so() {
    let mut pair = Pair::new();
    fs::File::create(pair.near("big")).unwrap().set_len(2 << 30).unwrap();
    let child = pair.command(&["big", "far:a", "--patience", "0s"]).spawn().unwrap();
    wait_for("the partial file", || !names(&pair.home.path().join("far")).is_empty());
    // The first lets what runs go on for a while, the second does not.
    for signal in [Signal::TERM, Signal::INT] {
        kill_process(Pid::from_child(&pair.server.child), signal).unwrap();
    }
    let output = finish(child);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("the server was stopped"), "{}", text(&output.stderr));
    pair.server.child.wait().unwrap();
    assert!(!pair.far("a").exists());
}

/// The kernel of a frozen server still acknowledges: only its silence tells. Takes half a minute.
#[test]
fn a_server_that_falls_silent_is_given_up() {
    let pair = Pair::new();
    let child = pair.command(&[ENDLESS, "far:null:", "--patience", "0s"]).spawn().unwrap();
    thread::sleep(Duration::from_millis(500));
    let server = Pid::from_child(&pair.server.child);
    kill_process(server, Signal::STOP).unwrap();
    let output = finish(child);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("no answer from the server within 30 s"), "{}", text(&output.stderr));
}

#[test]
fn an_interrupted_download_has_no_final_name() {
    let pair = Pair::new();
    fs::File::create(pair.far("big")).unwrap().set_len(2 << 30).unwrap();
    let child = pair.command(&["far:big", "a"]).spawn().unwrap();
    wait_for("the partial file", || !names(&pair.home.path().join("near")).is_empty());
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = finish(child);
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    assert!(!pair.near("a").exists());
}

/// Nobody has to type a ticket to be rid of it.
#[test]
fn an_interrupt_ends_the_wait_for_a_ticket() {
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
