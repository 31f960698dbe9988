//! `lfn doctor` on loopback: evidence files of any kind, and an interrupt while disks are measured.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Output, Stdio};
use std::thread;

use crate::copy::wait_for;
use crate::support::lfn;
use crate::support::schema::assert_valid;
use crate::support::server::{Server, assert_refused, kill, text};

/// Maximum length of an evidence file, bytes.
const MAX_BYTES: u64 = 128 << 20;

/// Diagnoses `input` through a pipe on standard input. The command may close the pipe early.
fn from_pipe(input: impl IntoIterator<Item = Vec<u8>>) -> Output {
    let mut command = lfn();
    command.args(["doctor", "--json", "--from", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    let _ = input.into_iter().try_for_each(|bytes| pipe.write_all(&bytes));
    drop(pipe);
    child.wait_with_output().unwrap()
}

fn from_file(path: &Path) -> Output {
    lfn().args(["doctor", "--from"]).arg(path).output().unwrap()
}

#[test]
fn files_that_are_no_evidence_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let [empty, long, missing] = ["empty", "long", "missing"].map(|name| home.path().join(name));
    File::create(&empty).unwrap();
    File::create(&long).unwrap().set_len(MAX_BYTES + 1).unwrap();
    for (path, says) in [
        (home.path(), "directory"),
        (&empty, "the file is empty"),
        (&long, "longer than 128 MiB"),
        (&missing, "No such file"),
    ] {
        let output = from_file(path);
        assert_refused(&output, 1, says);
        assert!(text(&output.stderr).contains("hint: "), "{}", text(&output.stderr));
    }
    assert_refused(&from_pipe([]), 1, "the file is empty");
    assert_refused(&from_pipe([b"{}".to_vec()]), 1, "");
}

/// The command ends at the limit, and does not read on.
#[test]
fn endless_pipe_is_refused_at_the_limit() {
    let mut sent = 0;
    let endless = std::iter::repeat_with(|| vec![b' '; 1 << 20]).inspect(|bytes| sent += bytes.len() as u64);
    let output = from_pipe(endless);
    assert_refused(&output, 1, "longer than 128 MiB");
    assert!(sent < MAX_BYTES + (16 << 20), "{sent} bytes");
}

/// The evidence of the interrupted examination is complete, and a pipe of it is diagnosed like the file.
#[test]
fn interrupt_during_the_disks_leaves_nothing() {
    let home = tempfile::tempdir().unwrap();
    let [near, root, evidence] = ["near", "root", "evidence.json"].map(|name| home.path().join(name));
    fs::create_dir(&near).unwrap();
    fs::create_dir_all(root.join("data")).unwrap();
    let server = Server::start(&["--root", root.to_str().unwrap()]);
    let far = server.ticket.replace('#', "/data#");
    for part in ["disk of near", "disk of far"] {
        let mut command = lfn();
        command.args(["doctor", &server.ticket, "--time", "1s", "--max-load", "10mbit", "--json"]);
        command.arg("--report").arg(&evidence).arg("--disk").arg(&near).arg("--disk").arg(&far);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut messages = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains(part) {
            line.clear();
            assert_ne!(messages.read_line(&mut line).unwrap(), 0, "the examination ended before: {part}");
        }
        kill("INT", child.id());
        // The document is longer than a pipe holds, so both pipes are read at the same time.
        let rest = thread::spawn(move || messages.lines().map_while(Result::ok).collect::<Vec<_>>());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{:?}", rest.join());
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_valid("lfn.doctor.1", &document);
        let listed = document["unseen"].as_array().unwrap().iter().any(|entry| entry["part"] == part);
        assert!(listed, "{}", document["unseen"]);
        let is_empty = |directory: &Path| fs::read_dir(directory).unwrap().next().is_none();
        assert!(is_empty(&near));
        // The server removes its file when it notices that the client is gone.
        wait_for("the removal of the far file", || is_empty(&root.join("data")));
        let again = from_pipe([fs::read(&evidence).unwrap()]);
        assert!(again.status.success(), "{}", text(&again.stderr));
        assert_eq!(serde_json::from_slice::<serde_json::Value>(&again.stdout).unwrap(), document);
    }
}
