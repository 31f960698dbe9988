//! Third-party copies: transferred data, refusals, and the death of the client.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::{Pair, content, is_root, names, text, wait_for, write};
use crate::support::lfn_path;
use crate::support::missing_program;
use crate::support::server::Server;
use crate::support::skip::skip;

/// Two servers, each with its own root, and a client of both. `far` is the sender.
struct Three {
    pair: Pair,
    other: Server,
}

impl Three {
    fn new(sender: &[&str], receiver: &[&str]) -> Self {
        let home = tempfile::tempdir().unwrap();
        for name in ["near", "far", "other"] {
            fs::create_dir(home.path().join(name)).unwrap();
        }
        let start = |name: &str, flags: &[&str]| {
            let root = home.path().join(name);
            Server::start(&[&["--root", root.to_str().unwrap()], flags].concat())
        };
        let (server, other) = (start("far", sender), start("other", receiver));
        Three { pair: Pair { server, home }, other }
    }

    fn there(&self, name: &str) -> PathBuf {
        self.pair.home.path().join("other").join(name)
    }

    /// Returns the destination `path` at the receiver as a command-line argument.
    fn place(&self, path: &str) -> String {
        self.other.ticket.replace('#', &format!("/{path}#"))
    }
}

const SENDS: &[&str] = &["--third-party"];

#[test]
fn third_party_copy_transfers_a_tree() {
    let three = Three::new(SENDS, &[]);
    let wanted: Vec<_> = (0..40).map(|n| (format!("tree/in/{n}"), content(n * 7919))).collect();
    fs::create_dir_all(three.pair.far("tree/in")).unwrap();
    for (name, bytes) in &wanted {
        fs::write(three.pair.far(name), bytes).unwrap();
    }
    for flags in [&["--clear-data"][..], &["--manifest", "manifest"]] {
        let report = three.pair.copies(&[&["far:tree", three.place("").as_str()], flags].concat());
        assert_eq!((&report["counts"]["files"], &report["counts"]["failed"]), (&40.into(), &0.into()), "{report}");
        for (name, bytes) in &wanted {
            assert!(fs::read(three.there(name)).unwrap() == *bytes, "{name}");
        }
        fs::rename(three.there("tree"), three.there(&format!("tree-{}", flags.len()))).unwrap();
    }
    // No file was written on this host.
    assert_eq!(names(&three.pair.near("")), ["manifest"]);
    fs::rename(three.there("tree-2"), three.there("tree")).unwrap();
    if let Some(missing) = missing_program(&["b3sum"]) {
        skip("third_party_copy_transfers_a_tree", &missing);
    } else {
        let manifest = three.pair.near("manifest");
        let mut command = Command::new("b3sum");
        let output = command.arg("--check").arg(manifest).current_dir(three.there("")).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(text(&output.stdout).lines().count(), 40);
    }
    // Everything is up to date the second time. A dry run reports this.
    let report = three.pair.copies(&["far:tree", &three.place("")]);
    assert_eq!((&report["counts"]["files"], &report["counts"]["skipped"]), (&0.into(), &42.into()), "{report}");
    fs::write(three.there("tree/more"), b"more").unwrap();
    let output = three.pair.copy(&["--dry-run", "--delete", "far:tree", &three.place("")]);
    assert!(text(&output.stdout).contains("tree/more"), "{}", text(&output.stdout));
    assert!(three.there("tree/more").exists());
}

/// Source and destination at one server can be the same directory or nested, as here.
#[test]
fn copy_within_one_server_loses_no_file() {
    let three = Three::new(SENDS, &[]);
    fs::create_dir_all(three.pair.far("runs/deep")).unwrap();
    fs::write(three.pair.far("runs/deep/a"), "a").unwrap();
    let below = "is below the destination, where the copy would delete it";
    three.pair.refuses(&["--delete", "far:runs/deep/", "far:runs"], 1, below);
    let output = three.pair.copy(&["far:run*", "far:runs/deep"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("runs/deep: is the destination"), "{}", text(&output.stderr));
    assert_eq!(fs::read(three.pair.far("runs/deep/a")).unwrap(), b"a");
    assert!(!three.pair.far("runs/deep/runs/deep").exists());
    three.pair.copies(&["far:runs/deep/a", "far:b"]);
    assert_eq!(fs::read(three.pair.far("b")).unwrap(), b"a");
}

/// The sending session starts the receiving session and does not block it.
#[test]
fn copy_within_one_server_does_not_deadlock() {
    for limit in [["--max-sessions", "1"], ["--client-rate", "100mbit"]] {
        let three = Three::new(&[SENDS, &limit].concat(), &[]);
        write(&three.pair.far("a"), 100_000);
        three.pair.copies(&["far:a", "far:b"]);
        assert_eq!(fs::read(three.pair.far("b")).unwrap(), content(100_000), "{limit:?}");
    }
}

#[test]
fn refusals_of_both_servers_name_host_and_path() {
    let three = Three::new(&[], &[]);
    fs::write(three.pair.far("a"), b"a").unwrap();
    let errors = three.pair.refuses(&["far:a", &three.place("a")], 1, "does not connect to other servers");
    assert!(errors.contains("--third-party"), "{errors}");

    let three = Three::new(SENDS, &["--read-only"]);
    fs::write(three.pair.far("a"), b"a").unwrap();
    three.pair.refuses(&["far:a", &three.place("a")], 1, "the destination: ");
    assert!(!three.there("a").exists());

    let three = Three::new(&["--third-party", "--write-only"], &[]);
    fs::write(three.pair.far("a"), b"a").unwrap();
    three.pair.refuses(&["far:a", &three.place("a")], 1, "the source: ");
    assert!(!three.there("a").exists());

    let mut three = Three::new(SENDS, &[]);
    three.pair.refuses(&["far:none", &three.place("a")], 1, "the source: far:none: no such file");
    fs::write(three.pair.far("a"), b"a").unwrap();
    let said = three.pair.refuses(&["far:a", &three.place("none/b/c")], 1, "the destination: lfn://");
    assert!(said.contains("/none/b/c: no such file"), "{said}");
    three.other.child.kill().unwrap();
    three.other.child.wait().unwrap();
    three.pair.refuses(&["far:none", &three.place("a")], 1, "the destination: ");
}

/// Both servers end the copy, and the same command resumes.
#[test]
fn killed_client_ends_third_party_copy() {
    let three = Three::new(SENDS, &[]);
    fs::File::create(three.pair.far("big")).unwrap().set_len(2 << 30).unwrap();
    let journal = || fs::metadata(three.there(".a.lfn-journal")).map_or(0, |journal| journal.len());
    let mut child = three.pair.command(&["far:big", &three.place("a")]).spawn().unwrap();
    wait_for("the partial file to grow", || journal() > 1000);
    child.kill().unwrap();
    child.wait().unwrap();
    // A copy waits some seconds for files that another copy has locked. This is long enough for both servers to notice.
    let report = three.pair.copies(&["far:big", &three.place("a")]);
    assert!(report["counts"]["resumed_bytes"].as_u64().unwrap() > 0, "{report}");
    assert_eq!(fs::metadata(three.there("a")).unwrap().len(), 2 << 30);
    assert!(!three.there(".a.lfn-partial").exists());
}

/// The data crosses the client's network only once, not to the client and back.
#[test]
fn third_party_data_bypasses_the_client() {
    let home = tempfile::tempdir().unwrap();
    let sizes = [32 << 20, 1 << 20];
    for (directory, size) in ["far", "other"].iter().zip(sizes) {
        fs::create_dir(home.path().join(directory)).unwrap();
        fs::File::create(home.path().join("far").join(size.to_string())).unwrap().set_len(size).unwrap();
    }
    let script = r#"
        serve() { exec "$LFN" serve --ephemeral --quiet --bind 127.0.0.1 --port 0 --ticket-host 127.0.0.1 --root "$@"; }
        crossed() { sed -n 's/^ *lo: *\([0-9]*\) .*/\1/p' /proc/net/dev; }
        ip link set lo up
        rm -f far.ticket other.ticket
        serve far --third-party >far.ticket & far=$!
        serve other >other.ticket & other=$!
        until grep -q "lfn:" far.ticket && grep -q "lfn:" other.ticket; do sleep 0.05; done
        to=$(grep -o 'lfn://[^ ]*' other.ticket | sed 's:#:/got#:')
        LFN_FAR_TICKET=$(grep -o 'lfn://[^ ]*' far.ticket)
        export LFN_FAR_TICKET
        before=$(crossed)
        "$LFN" copy "far:$1" "$to" >&2; ended=$?
        echo $(($(crossed) - before))
        kill $far $other
        exit $ended
    "#;
    let unshare: &[&str] = if is_root() { &["--net"] } else { &["--user", "--map-root-user", "--net"] };
    let mut crossed = sizes.map(|size| {
        let mut command = Command::new("unshare");
        command.args(unshare).args(["sh", "-c", script, "sh", &size.to_string()]).current_dir(home.path());
        let output = command.env("LFN", lfn_path()).env("HOME", home.path()).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(fs::metadata(home.path().join("other/got")).unwrap().len(), size);
        fs::remove_file(home.path().join("other/got")).unwrap();
        text(&output.stdout).trim().parse::<u64>().unwrap()
    });
    crossed.iter_mut().zip(sizes).for_each(|(crossed, size)| *crossed -= size);
    // Besides the data there are packet headers, acknowledgements and session messages.
    assert!(crossed[0] < 8 << 20 && crossed[1] < 1 << 20, "{crossed:?}");
}

/// With `--delete`, both servers get the patterns in one request each.
#[test]
fn too_many_patterns_fail_before_data_moves() {
    let three = Three::new(SENDS, &[]);
    fs::create_dir(three.pair.far("tree")).unwrap();
    let patterns = (0..1000).map(|n| format!("a pattern of some length {n}\n")).collect::<String>();
    fs::write(three.pair.near("patterns"), patterns).unwrap();
    let (far, args) = (three.place(""), ["--exclude-from", "patterns"]);
    three.pair.copies(&[&["far:tree", far.as_str()][..], &args].concat());
    let output = three.pair.copy(&[&["far:tree/", far.as_str(), "--delete"][..], &args].concat());
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("but a request holds at most 61440 B") && errors.lines().count() == 2, "{errors}");
}
