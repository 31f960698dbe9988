//! Copies of several movers that share a queue on a NATS server.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::{Child, Output};
use std::time::{Duration, SystemTime};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{Pair, content, finish, report_of, write};
use crate::support::nats::NatsServer;
use crate::support::server::{assert_refused, text};
use crate::support::skip::skip;
use crate::support::{eventually, missing_program};

/// A lease of a test, whose end a test waits for.
const LEASE: [&str; 2] = ["--lease", "1s"];

/// Makes a copy so slow that a fault comes in its middle.
const SLOW: [&str; 4] = ["--rate", "16mbit", "--streams", "2"];

/// Reports whether a NATS server is installed. Otherwise the test is skipped.
fn has_nats(test: &str) -> bool {
    let missing = missing_program(&["nats-server"]);
    missing.iter().for_each(|missing| skip(test, missing));
    missing.is_none()
}

impl Pair {
    fn nats(&self) -> NatsServer {
        NatsServer::start(self.home.path())
    }

    /// Starts a mover that copies `tree` to the server.
    fn mover(&self, nats: &NatsServer, flags: &[&str]) -> Child {
        let queue = nats.queue("runs");
        let flags = [&["tree", "far:", "--queue", &queue, "--json"], &LEASE[..], flags].concat();
        self.command(&flags).spawn().unwrap()
    }

    /// Creates `tree` with small files, a large file, a link, and an empty directory with an old time.
    fn create_tree(&self, large: usize) {
        fs::create_dir_all(self.near("tree/sub/empty")).unwrap();
        for n in 0..20 {
            write(&self.near(&format!("tree/sub/{n}")), n * 1000);
        }
        write(&self.near("tree/large"), large);
        symlink("large", self.near("tree/link")).unwrap();
        for name in ["tree/sub/empty", "tree/sub", "tree"] {
            let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
            fs::File::open(self.near(name)).unwrap().set_modified(old).unwrap();
        }
    }

    #[track_caller]
    fn assert_same_tree(&self) {
        assert_same(&self.near("tree"), &self.far("tree"));
        self.assert_no_partial_files();
    }

    /// Waits until the large file has arrived in part.
    fn wait_for_data(&self) {
        assert!(eventually(|| self.far("tree/.large.lfn-partial").exists()));
    }
}

/// Compares names, contents, link targets and times.
#[track_caller]
fn assert_same(near: &Path, far: &Path) {
    let names = |directory: &Path| {
        let mut names = super::names(directory);
        names.sort();
        names
    };
    assert_eq!(names(near), names(far));
    for name in names(near) {
        let [near, far] = [near, far].map(|directory| directory.join(&name));
        let [here, there] = [&near, &far].map(|path| path.symlink_metadata().unwrap());
        assert_eq!(here.file_type(), there.file_type(), "{name}");
        if here.is_symlink() {
            assert_eq!(fs::read_link(&near).unwrap(), fs::read_link(&far).unwrap());
        } else if here.is_dir() {
            assert_same(&near, &far);
        } else {
            assert!(fs::read(&near).unwrap() == fs::read(&far).unwrap(), "{name}");
        }
        assert_eq!((here.mtime(), here.mtime_nsec()), (there.mtime(), there.mtime_nsec()), "{name}");
    }
}

/// Waits for movers that must succeed, and returns their reports of the queue.
#[track_caller]
fn reports(movers: impl IntoIterator<Item = Child>) -> Vec<Value> {
    let outputs: Vec<Output> = movers.into_iter().map(finish).collect();
    outputs.iter().map(|output| report_of(&["--queue"], output)["queue"].clone()).collect()
}

fn sum(reports: &[Value], key: &str) -> u64 {
    reports.iter().map(|report| report[key].as_u64().unwrap()).sum()
}

#[test]
fn three_movers_copy_each_entry_once() {
    if !has_nats("three_movers_copy_each_entry_once") {
        return;
    }
    let pair = Pair::new();
    pair.create_tree(3_000_000);
    let nats = pair.nats();
    // They start at the same time, and only one of them writes the manifest.
    let reports = reports([(); 3].map(|()| pair.mover(&nats, &["--links"])));
    for report in &reports {
        assert_eq!((&report["entries"], &report["done_entries"]), (&25.into(), &25.into()), "{report}");
        assert_eq!((&report["complete"], &report["failed_entries"]), (&true.into(), &0.into()), "{report}");
    }
    assert_eq!(sum(&reports, "own_entries"), 25);
    pair.assert_same_tree();
    // The same command finds that nothing is left.
    let again = finish(pair.command(&["tree", "far:", "--links", "--queue", &nats.queue("runs")]).spawn().unwrap());
    let output = text(&again.stdout);
    assert!(again.status.success() && output.contains("queue runs is complete: 25 entries, 3.19 MB"), "{output}");
    assert!(output.contains("this mover copied 0 entries"), "{output}");
    // Another copy cannot use the queue.
    for (arguments, difference) in [
        (&["tree/", "far:", "--links"][..], "its source is 'tree', and that of this command is 'tree/'"),
        (&["tree", "far:x", "--links"], "its destination is 'far:', and that of this command is 'far:x'"),
        (&["tree", "far:"], "its set of preserved attributes is 'links', and that of this command is 'none'"),
        (&["tree", "far:", "--links", "--verify", "xxh3"], "its verification is 'blake3'"),
    ] {
        let other = pair.copy(&[arguments, &["--queue", &nats.queue("runs")]].concat());
        assert_refused(&other, 2, difference);
    }
    let delete = || pair.copy(&["--queue", &nats.queue("runs"), "--queue-delete"]);
    assert_eq!(text(&delete().stdout), format!("deleted the queue {}\n", nats.queue("runs")));
    assert_refused(&delete(), 1, "there is no queue nats://127.0.0.1:");
    // Another copy can have the name now.
    pair.copies(&["tree/", "far:other", "--queue", &nats.queue("runs")]);
}

#[test]
fn files_of_a_killed_mover_go_to_others() {
    if !has_nats("files_of_a_killed_mover_go_to_others") {
        return;
    }
    let pair = Pair::new();
    pair.create_tree(4_000_000);
    let nats = pair.nats();
    let mut killed = pair.mover(&nats, &[&SLOW[..], &["--links"]].concat());
    pair.wait_for_data();
    killed.kill().unwrap();
    killed.wait().unwrap();
    let reports = reports([(); 2].map(|()| pair.mover(&nats, &["--links"])));
    assert!(sum(&reports, "redeliveries") >= 1, "{reports:?}");
    pair.assert_same_tree();
}

#[test]
fn frozen_mover_does_no_damage_when_it_wakes() {
    if !has_nats("frozen_mover_does_no_damage_when_it_wakes") {
        return;
    }
    let pair = Pair::new();
    pair.create_tree(4_000_000);
    let nats = pair.nats();
    let frozen = pair.mover(&nats, &[&SLOW[..], &["--links"]].concat());
    pair.wait_for_data();
    kill_process(Pid::from_child(&frozen), Signal::STOP).unwrap();
    let others = reports([pair.mover(&nats, &["--links"])]);
    assert!(sum(&others, "redeliveries") >= 1, "{others:?}");
    pair.assert_same_tree();
    kill_process(Pid::from_child(&frozen), Signal::CONT).unwrap();
    let woken = reports([frozen]);
    assert_eq!(sum(&woken, "lost_leases"), 1, "{woken:?}");
    pair.assert_same_tree();
}

#[test]
fn movers_survive_a_restart_of_the_queue_server() {
    if !has_nats("movers_survive_a_restart_of_the_queue_server") {
        return;
    }
    for kills in [true, false] {
        let pair = Pair::new();
        pair.create_tree(4_000_000);
        let mut nats = pair.nats();
        let movers = [(); 2].map(|()| pair.mover(&nats, &[&SLOW[..], &["--links"]].concat()));
        pair.wait_for_data();
        nats.stop(kills);
        if kills {
            // The messages are lost, and the manifest stays.
            nats.delete_stream("LFN_runs");
        }
        nats.start_again();
        reports(movers);
        pair.assert_same_tree();
    }
}

#[test]
fn interrupted_mover_releases_its_lease() {
    if !has_nats("interrupted_mover_releases_its_lease") {
        return;
    }
    let pair = Pair::new();
    pair.create_tree(4_000_000);
    let nats = pair.nats();
    // The next mover would have to wait for the end of this lease.
    let flags = ["tree", "far:", "--links", "--lease", "1h", "--queue", &nats.queue("runs")];
    let interrupted = pair.command(&[&flags[..], &SLOW].concat()).spawn().unwrap();
    pair.wait_for_data();
    kill_process(Pid::from_child(&interrupted), Signal::INT).unwrap();
    let output = finish(interrupted);
    assert_eq!(output.status.code(), Some(130));
    assert_eq!(text(&output.stderr), "lfn: interrupted\nhint: run the same command again: it resumes\n");
    let reports = reports([pair.mover(&nats, &["--links"])]);
    assert!(sum(&reports, "redeliveries") >= 1, "{reports:?}");
    pair.assert_same_tree();
}

#[test]
fn failed_file_does_not_stop_the_others() {
    if !has_nats("failed_file_does_not_stop_the_others") {
        return;
    }
    let pair = Pair::new();
    pair.create_tree(100_000);
    fs::create_dir_all(pair.far("tree")).unwrap();
    fs::write(pair.far("tree/large"), "other").unwrap();
    let nats = pair.nats();
    for output in [(); 2].map(|()| pair.mover(&nats, &["--links"])).map(finish) {
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
        assert!(
            text(&output.stderr).contains("lfn: tree/large: a file of 5 B exists, the source has 100 kB: "),
            "{}",
            text(&output.stderr)
        );
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let queue = &report["queue"];
        assert_eq!((&queue["done_entries"], &queue["failed_entries"]), (&24.into(), &1.into()), "{queue}");
    }
    // The next run tries the file again.
    fs::remove_file(pair.far("tree/large")).unwrap();
    reports([pair.mover(&nats, &["--links"])]);
    pair.assert_same_tree();
}

#[test]
fn file_that_differs_from_the_manifest_fails() {
    if !has_nats("file_that_differs_from_the_manifest_fails") {
        return;
    }
    let pair = Pair::new();
    pair.create_tree(4_000_000);
    let nats = pair.nats();
    let mut killed = pair.mover(&nats, &SLOW);
    pair.wait_for_data();
    killed.kill().unwrap();
    killed.wait().unwrap();
    write(&pair.near("tree/large"), 5);
    fs::remove_file(pair.near("tree/sub/7")).unwrap();
    let output = finish(pair.mover(&nats, &[]));
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("tree/large: changed since the manifest of the queue was written (here)"), "{errors}");
    assert!(errors.contains("tree/sub/7: no such file or directory; it was in the manifest"), "{errors}");
    assert!(!pair.far("tree/large").exists() && pair.far("tree/sub/8").exists());
}

#[test]
fn single_files_and_lists_are_copied() {
    if !has_nats("single_files_and_lists_are_copied") {
        return;
    }
    let pair = Pair::new();
    pair.create_tree(100_000);
    let nats = pair.nats();
    fs::write(pair.near("list"), "sub/3\nsub/empty\nlarge\n").unwrap();
    for (name, arguments) in [
        ("file", &["tree/large", "far:renamed"][..]),
        ("files", &["tree/large", "tree/sub/9", "far:several"]),
        ("contents", &["tree/", "far:contents", "--exclude", "sub"]),
        ("list", &["tree", "far:listed", "--files-from", "list"]),
    ] {
        pair.copies(&[arguments, &["--queue", &nats.queue(name)]].concat());
    }
    let large = content(100_000);
    for path in ["renamed", "several/large", "contents/large", "listed/large"] {
        assert!(fs::read(pair.far(path)).unwrap() == large, "{path}");
    }
    assert!(pair.far("several/9").exists() && !pair.far("contents/sub").exists());
    assert!(pair.far("listed/sub/3").exists() && !pair.far("listed/sub/4").exists());
    assert!(pair.far("listed/sub/empty").is_dir());
}

#[test]
fn impatient_mover_exits_with_3() {
    if !has_nats("impatient_mover_exits_with_3") {
        return;
    }
    let pair = Pair::new();
    pair.create_tree(4_000_000);
    let mut nats = pair.nats();
    let flags = ["tree", "far:", "--lease", "1h", "--queue", &nats.queue("runs")];
    let mut frozen = pair.command(&[&flags[..], &SLOW].concat()).spawn().unwrap();
    pair.wait_for_data();
    kill_process(Pid::from_child(&frozen), Signal::STOP).unwrap();
    let output = finish(pair.mover(&nats, &["--patience", "100ms"]));
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("lfn: the queue runs is incomplete: "), "{}", text(&output.stderr));
    frozen.kill().unwrap();
    frozen.wait().unwrap();
    // The server of the queue goes away, and does not return.
    let waiting = pair.mover(&nats, &["--patience", "500ms"]);
    nats.stop(true);
    let output = finish(waiting);
    // The mover may not have connected before.
    let code = output.status.code();
    assert!(matches!(code, Some(1 | 3)), "{code:?}: {}", text(&output.stderr));
}

#[test]
fn wrong_queues_are_refused() {
    if !has_nats("wrong_queues_are_refused") {
        return;
    }
    let pair = Pair::new();
    pair.create_tree(1000);
    let nats = NatsServer::with_flags(pair.home.path(), &["-js", "--user", "me", "--pass", "secret"]);
    let url = |user: &str| format!("nats://{user}127.0.0.1:{}/runs", nats.port());
    let refused = |arguments: &[&str], code: i32, error: &str| {
        let output = pair.copy(arguments);
        assert_refused(&output, code, error);
        assert!(!text(&output.stderr).contains("secret"), "{}", text(&output.stderr));
    };
    let (queue, denied) = (url("me:secret@"), url("me:secret2@"));
    for (url, code, error) in [
        ("nats://h:1", 2, "--queue: nats://h:1: the name of the queue is missing: nats://h:1/NAME"),
        ("nats://me:secret@h/a.b", 2, "--queue: 'a.b' is no name of a queue"),
        ("http://me:secret@h/q", 2, "--queue: 'http://' does not begin with nats:// or tls://"),
        ("nats://me:secret@h:x/q", 2, "--queue: 'x' is no port"),
        ("nats://me:secret@127.0.0.1:1/q", 1, "cannot connect to nats://127.0.0.1:1: "),
        (&denied, 1, "refuses the user, the password or the credentials"),
        (&url(""), 1, "refuses the user, the password or the credentials"),
    ] {
        refused(&["tree", "far:", "--queue", url], code, error);
    }
    for (flags, error) in [
        (&["--rank", "0/2"][..], "--ranks cannot be used with --queue"),
        (&["--delete"], "--delete cannot be used with --queue"),
        (&["--dry-run"], "--dry-run cannot be used with --queue"),
        (&["--archive"], "--hard-links cannot be used with --queue"),
        (&["--manifest", "m"], "--manifest cannot be used with --queue"),
        (&["--lease", "10ms"], "--lease 10 ms: expected 1 s to 24 h"),
    ] {
        refused(&[&["tree", "far:", "--queue", &queue], flags].concat(), 2, error);
    }
    for (places, error) in [
        (&["far:tree", "here"][..], "a queue copies local files to one server"),
        (&["tree", "here"], "a queue copies local files to one server"),
        (&["random:1kB", "far:"], "random:1000 cannot be a source of a queue"),
        (&["tree", "tree/sub/../../tree", "far:"], "may have the same names at the destination"),
        (&["tree", "tree/sub/", "far:"], "may have the same names at the destination"),
    ] {
        refused(&[places, &["--queue", &queue]].concat(), 2, error);
    }
    let credentials = ["tree", "far:", "--queue", &queue, "--queue-credentials", "missing.creds"];
    refused(&credentials, 1, "cannot read the credentials missing.creds: ");
    // Only a command with the right password uses the queue.
    pair.copies(&["tree", "far:", "--queue", &queue]);
}

#[test]
fn certificate_of_the_queue_server_is_verified() {
    if !has_nats("certificate_of_the_queue_server_is_verified") {
        return;
    }
    let pair = Pair::new();
    pair.create_tree(1000);
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let [certificate, key] = ["cert.pem", "key.pem"].map(|name| pair.near(name));
    fs::write(&certificate, cert.pem()).unwrap();
    fs::write(&key, signing_key.serialize_pem()).unwrap();
    let [certificate, key] = [&certificate, &key].map(|path| path.to_str().unwrap());
    let flags = ["-js", "--tls", "--tlscert", certificate, "--tlskey", key];
    let nats = NatsServer::with_flags(pair.home.path(), &flags);
    let queue = nats.queue("runs").replace("nats://", "tls://");
    let arguments = ["tree", "far:", "--queue", &queue];
    assert_refused(&pair.copy(&arguments), 1, "cannot connect to tls://127.0.0.1:");
    let mut trusting = pair.command(&arguments);
    let output = finish(trusting.env("SSL_CERT_FILE", certificate).spawn().unwrap());
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn server_without_jetstream_is_refused() {
    if !has_nats("server_without_jetstream_is_refused") {
        return;
    }
    let pair = Pair::new();
    pair.create_tree(1000);
    let nats = NatsServer::with_flags(pair.home.path(), &[]);
    let output = pair.copy(&["tree", "far:", "--queue", &nats.queue("runs")]);
    assert_refused(&output, 1, "has no JetStream");
}
