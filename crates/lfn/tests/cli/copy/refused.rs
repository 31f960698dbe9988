//! Refused copies: outside the root, over existing files, without a valid ticket, or with contradictory arguments.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::{Pair, content, is_root, names, write};
use crate::support::server::{Server, text};

#[test]
fn existing_file_is_replaced_only_with_force() {
    let pair = Pair::new();
    write(&pair.near("a"), 1000);
    let old = write(&pair.far("a"), 2000);
    let errors = pair.refuses(&["a", "far:a"], 1, "a: a file of 2 kB exists");
    assert!(errors.contains("--force"), "{errors}");
    assert_eq!(fs::read(pair.far("a")).unwrap(), old);
    // Programs get the error too.
    for format in ["--json", "--output=ndjson"] {
        let output = pair.copy(&["a", "far:a", format]);
        let report: Value = serde_json::from_str(text(&output.stdout).lines().last().unwrap_or_default())
            .or_else(|_| serde_json::from_str(&text(&output.stdout)))
            .unwrap();
        assert_eq!((output.status.code(), &report["failures"][0]["name"]), (Some(1), &"a".into()), "{report}");
    }
    pair.refuses(&["far:a", "a"], 1, "a: a file of 1 kB exists");
    pair.copies(&["--force", "a", "far:a"]);
    assert_eq!(fs::read(pair.far("a")).unwrap(), content(1000));
}

#[test]
fn no_path_leads_out_of_the_served_root() {
    let pair = Pair::new();
    write(&pair.near("a"), 1000);
    fs::write(pair.home.path().join("secret"), "secret").unwrap();
    symlink(pair.home.path(), pair.far("out")).unwrap();
    symlink("../secret", pair.far("link")).unwrap();
    symlink("/proc/self/root", pair.far("magic")).unwrap();
    for path in ["../secret", "out/secret", "link", "/etc/hostname", "magic/etc/hostname", "x/../../secret"] {
        let errors = pair.refuses(&[&format!("far:{path}"), "b"], 1, path);
        assert!(!errors.contains(&*pair.home.path().to_string_lossy()), "{errors}");
    }
    for path in ["../b", "out/b", "out", "link", "..", "/tmp/lfn-copy-escape", "magic/tmp/b"] {
        pair.refuses(&["a", &format!("far:{path}"), "--force"], 1, "");
        assert_eq!(fs::read_to_string(pair.home.path().join("secret")).unwrap(), "secret", "{path}");
    }
    assert_eq!(names(pair.home.path()).len(), 3, "{:?}", names(pair.home.path()));
    // Inside the root, links are followed and `..` is allowed.
    fs::create_dir(pair.far("in")).unwrap();
    write(&pair.far("in/c"), 10);
    symlink("in/c", pair.far("inside")).unwrap();
    pair.copies(&["far:inside", "c1"]);
    pair.copies(&["far:in/../in/c", "c2"]);
}

#[test]
fn only_regular_files_are_copied() {
    let pair = Pair::new();
    write(&pair.near("a"), 1000);
    for side in [pair.near("pipe"), pair.far("pipe")] {
        assert!(Command::new("mkfifo").arg(side).status().unwrap().success());
    }
    pair.refuses(&["far:pipe", "b"], 1, "pipe is a pipe");
    pair.refuses(&["pipe", "far:b"], 1, "pipe is a pipe");
    pair.refuses(&["a", "far:pipe", "--force"], 1, "a device, a socket or a FIFO exists");
    pair.refuses(&["far:zero:1", "/dev/null", "--force"], 1, "a device, a socket or a FIFO exists");
    pair.refuses(&["/dev/zero", "far:b"], 1, "/dev/zero is a device");
}

#[test]
fn contradictory_arguments_are_usage_errors() {
    let pair = Pair::new();
    write(&pair.near("a"), 10);
    for (args, what) in [
        (vec!["null:", "far:b"], "null: can only be a destination"),
        (vec!["a", "far:random:1"], "can only be sources"),
        (vec!["random:-1", "far:b"], "cannot be negative"),
        (vec!["random:1e30", "far:null:"], "too large"),
        (vec!["far:zero:fast", "null:"], "not a byte count"),
        (vec!["", "far:b"], "contains no file name"),
        (vec!["lfn://x@127.0.0.1#y", "b"], "damaged"),
    ] {
        pair.refuses(&args, 2, what);
    }
    for args in [["-:a", "."], ["a", "-:a"]] {
        let said = pair.refuses(&args, 2, "'-:'");
        assert!(said.contains("\nhint: to read the ticket from standard input, write @-:a"), "{said}");
    }
    for option in [["--streams", "0"], ["--block-size", "0"], ["--rate", "fast"], ["--rate", "0"]] {
        let output = pair.copy(&["a", "far:a", option[0], option[1]]);
        assert!(!output.status.success(), "{option:?}");
    }
    pair.refuses(&["a", "far:a", "--block-size", "3000"], 2, "power of two");
    pair.refuses(&["a", "far:a", "--streams", "1000"], 1, "the server allows");
    pair.refuses(&["a", "far:a", "--streams", "256", "--block-size", "16MiB"], 1, "memory limit");
    pair.refuses(&["a", "far:a", "--congestion", "nosuch"], 1, "congestion control 'nosuch'");
    pair.refuses(&["far:zero:1000", "null:", "--congestion", "nosuch"], 1, "congestion control 'nosuch'");
    pair.refuses(&["missing", "far:a"], 1, "missing: no such file");
    pair.refuses(&["far:missing", "b"], 1, "lfn: far:missing: no such file");
    let here = pair.refuses(&["missing", "far:missing"], 1, "lfn: missing: no such file");
    assert!(!here.contains("far:"), "{here}");
    let long = format!("far:{}", "x".repeat(300));
    let said = pair.refuses(&["a", &long], 1, "File name too long");
    assert!(said.contains("use a shorter name"), "{said}");
    // The colon after a saved name is missing.
    let said = pair.refuses(&["a", "far"], 2, "'far' is a saved name");
    assert!(said.contains("did you mean far:?"), "{said}");
    pair.copies(&["a", "./far"]);
    for option in ["--retry-for", "--wait"] {
        pair.refuses(&["a", "far:a", option, "10"], 2, "has no unit");
    }
    pair.refuses(&["a", "unsaved-name:a"], 1, "unsaved-name");
}

#[test]
fn wrong_ticket_is_refused() {
    let mut pair = Pair::new();
    write(&pair.near("a"), 10_000_000);
    let good = pair.server.ticket.clone();
    let (token, rest) = good.strip_prefix("lfn://").unwrap().split_once('@').unwrap();
    let (host, fingerprint) = rest.split_once('#').unwrap();
    let other = Pair::new();
    let (other_token, other_rest) = other.server.ticket.strip_prefix("lfn://").unwrap().split_once('@').unwrap();
    let other_fingerprint = other_rest.split_once('#').unwrap().1;
    for clear in [true, false] {
        let mode: &[&str] = if clear { &["--clear-data"] } else { &[] };
        pair.server.ticket = format!("lfn://{other_token}@{host}#{fingerprint}");
        pair.refuses(&[&["a", "far:a"], mode].concat(), 1, "does not know the ticket's token");
        pair.refuses(&[&["a", "far:a", "--manifest", "m"], mode].concat(), 1, "does not know the ticket's token");
        assert_eq!(names(&pair.near("")), ["a"]);
        pair.refuses(&[&["far:zero:10", "null:"], mode].concat(), 1, "does not know the ticket's token");
        pair.server.ticket = format!("lfn://{token}@{host}#{other_fingerprint}");
        pair.refuses(&[&["a", "far:a"], mode].concat(), 1, "does not match the ticket");
    }
    assert!(names(&pair.home.path().join("far")).is_empty());
}

#[test]
fn server_without_root_copies_memory_only() {
    let pair = Pair::serving(false);
    write(&pair.near("a"), 10);
    let errors = pair.refuses(&["a", "far:a"], 1, "serves no files");
    assert!(errors.contains("lfn serve --root DIR"), "{errors}");
    pair.refuses(&["far:a", "b"], 1, "serves no files");
    pair.copies(&["a", "far:null:"]);
}

#[test]
fn unreachable_server_is_named() {
    let mut pair = Pair::new();
    write(&pair.near("a"), 10);
    pair.server.child.kill().unwrap();
    pair.server.child.wait().unwrap();
    pair.refuses(&["a", "far:a"], 1, "cannot reach");
    pair.refuses(&["far:a", "b"], 1, "cannot reach");
}

#[test]
fn unwritable_destination_is_named() {
    let pair = Pair::new();
    if is_root() {
        // No user can create files there, not even root.
        pair.refuses(&["far:random:1000", "/proc/lfn"], 1, "cannot create it");
        return;
    }
    let locked = pair.far("locked");
    fs::create_dir(&locked).unwrap();
    fs::set_permissions(&locked, std::os::unix::fs::PermissionsExt::from_mode(0o555)).unwrap();
    pair.refuses(&["random:1000", "far:locked/a"], 1, "cannot create it");
}

#[test]
fn reports_contain_no_secrets() {
    let pair = Pair::new();
    let address = pair.server.ticket.replace('#', "/null:#");
    let report = pair.copies(&["zero:10", &address]);
    let token = pair.server.ticket.strip_prefix("lfn://").unwrap().split_once('@').unwrap().0;
    assert!(!report.to_string().contains(token), "{report}");
    let _: &OsStr = report["destination"].as_str().unwrap().as_ref();
}

/// Entries below a failed directory are not reported.
#[test]
fn failed_directory_is_reported_once() {
    let pair = Pair::new();
    fs::create_dir_all(pair.near("tree/many/more")).unwrap();
    for n in 0..50 {
        fs::write(pair.near(&format!("tree/many/more/{n}")), b"x").unwrap();
    }
    fs::write(pair.near("tree/other"), b"x").unwrap();
    fs::create_dir(pair.far("tree")).unwrap();
    fs::write(pair.far("tree/many"), b"in the way").unwrap();
    let output = pair.copy(&["tree", "far:"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(said.lines().count(), 2, "{said}");
    assert!(
        said.starts_with("lfn: tree/many: ")
            && said.ends_with("lfn: 51 more entries failed (in directories that failed)\n"),
        "{said}"
    );
    assert_eq!(fs::read(pair.far("tree/other")).unwrap(), b"x");
}

/// An entry has the same path at both ends, so the error names the end.
#[test]
fn failures_name_their_end() {
    for (from, to, at) in [
        (".", "far:", ["here", "at far"]),
        ("far:.", ".", ["at far", "here"]),
        (".", "copies", ["at the source", "at the destination"]),
    ] {
        let pair = Pair::new();
        let (source, destination) = match (from, to) {
            (".", "far:") => (pair.near(""), pair.far("")),
            (".", _) => (pair.near(""), pair.near("copies")),
            _ => (pair.far(""), pair.near("")),
        };
        fs::create_dir_all(source.join("tree")).unwrap();
        write(&source.join("tree/y"), 10);
        // One source is missing, and the destination has an entry in the way.
        fs::create_dir_all(destination.join("tree/y/z")).unwrap();
        fs::write(pair.near("list"), "tree/gone\ntree/y\n").unwrap();
        let args = ["--files-from", "list", from, to];
        let output = pair.copy(&args);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        for (name, at) in ["tree/gone", "tree/y"].iter().zip(at) {
            let reported =
                |line: &str| line.starts_with(&format!("lfn: {name}: ")) && line.ends_with(&format!(" ({at})"));
            assert!(said.lines().any(reported), "{said}");
        }
        let report = pair.copy(&[&args[..], &["--json"]].concat()).stdout;
        let report: serde_json::Value = serde_json::from_slice(&report).unwrap();
        let end = |name: &str| {
            let failures = report["failures"].as_array().unwrap();
            failures.iter().find(|failure| failure["name"] == name).map(|failure| failure["end"].clone())
        };
        assert_eq!((end("tree/gone"), end("tree/y")), (Some("sender".into()), Some("receiver".into())), "{report}");
    }
}

/// The manifest replaces a file, or the target of a link. It must not replace a device.
#[test]
fn manifest_replaces_only_a_regular_file() {
    let pair = Pair::new();
    write(&pair.near("a"), 10);
    let mkfifo = |path: &Path| Command::new("mkfifo").arg(path).status().unwrap().success();
    assert!(mkfifo(&pair.near("pipe")));
    symlink("pipe", pair.near("to-pipe")).unwrap();
    for manifest in ["pipe", "to-pipe", "/dev/full"] {
        let output = pair.copy(&["a", "far:a", "--manifest", manifest]);
        assert_eq!(output.status.code(), Some(1), "{manifest}");
        assert!(text(&output.stderr).contains("not a regular file"), "{}", text(&output.stderr));
        assert!(!pair.far("a").exists());
    }
    assert_eq!(names(&pair.near("")).len(), 3, "a, pipe and to-pipe");
    assert!(fs::metadata(pair.near("to-pipe")).unwrap().file_type().is_fifo());
    fs::create_dir(pair.near("kept")).unwrap();
    fs::write(pair.near("kept/m"), "old").unwrap();
    symlink("kept/m", pair.near("m")).unwrap();
    pair.copies(&["a", "far:a", "--manifest", "m"]);
    assert!(fs::read_to_string(pair.near("kept/m")).unwrap().ends_with("  a\n"));
    assert!(fs::symlink_metadata(pair.near("m")).unwrap().is_symlink());
}

/// With `--no-wait`, or after `--wait`, the copy fails at once.
#[test]
fn copy_waits_for_a_full_server_as_long_as_set() {
    for queue in [&[][..], &["--max-queue", "0"]] {
        let pair = Pair::new();
        let full = Server::start(&[&["--max-sessions", "1", "--third-party"], queue].concat());
        let there = |place: &str| full.ticket.replace('#', &format!("/{place}#"));
        let mut child = pair.command(&["random:1000TiB", &there("null:"), "--output", "ndjson"]).spawn().unwrap();
        // The copy runs when it reports its progress.
        let mut said = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
        assert!(said.contains("progress"), "{said}");
        for wait in [&["--no-wait"][..], &["--wait", "1s"]] {
            for way in [["zero:1B", &there("null:")], [&there("zero:1B"), "null:"], [&there("zero:1B"), "far:a"]] {
                let output = pair.copy(&[wait, &way].concat());
                let said = text(&output.stderr);
                assert_eq!(output.status.code(), Some(1), "{way:?}: {said}");
                assert!(said.contains("full") && !said.contains("lost"), "{way:?}: {said}");
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
