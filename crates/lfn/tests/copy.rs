//! `lfn copy` as a user runs it, against an `lfn serve` of its own on loopback.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use lfn_core::transfer::content::fill_random;
use serde_json::Value;
use support::{lfn, lfn_path};

/// Anything that takes this long hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// A server, its root, and a directory for this side.
struct Pair {
    server: Child,
    ticket: String,
    home: tempfile::TempDir,
}

impl Pair {
    fn new() -> Self {
        Pair::serving(true)
    }

    fn serving(root: bool) -> Self {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("near")).unwrap();
        fs::create_dir(home.path().join("far")).unwrap();
        let mut command = lfn();
        command.args(["serve", "--ephemeral", "--quiet", "--port", "0", "--bind", "127.0.0.1"]);
        if root {
            command.arg("--root").arg(home.path().join("far"));
        }
        let mut server = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut ticket = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut ticket).unwrap();
        Pair { server, ticket: ticket.trim().to_owned(), home }
    }

    fn near(&self, name: &str) -> PathBuf {
        self.home.path().join("near").join(name)
    }

    fn far(&self, name: &str) -> PathBuf {
        self.home.path().join("far").join(name)
    }

    /// `lfn copy`, `far` being this pair's server, in the near directory.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = lfn();
        command.arg("copy").args(args).current_dir(self.home.path().join("near"));
        command.env("LFN_FAR_TICKET", &self.ticket).env("HOME", self.home.path()).env_remove("LFN_PATH");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn copy(&self, args: &[&str]) -> Output {
        finish(self.command(args).spawn().unwrap())
    }

    #[track_caller]
    fn copies(&self, args: &[&str]) -> Value {
        let output = self.copy(&[args, &["--json"]].concat());
        assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The copy fails with that exit code, one line that says `what`, perhaps a hint, and leaves nothing half-done.
    #[track_caller]
    fn refuses(&self, args: &[&str], code: i32, what: &str) -> String {
        let output = self.copy(args);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {errors}");
        assert!(errors.contains(what), "{args:?}: {errors}");
        assert!(errors.starts_with("lfn: ") && errors.lines().count() <= 2, "{args:?}: {errors}");
        assert!(output.stdout.is_empty());
        self.nothing_half_done();
        errors
    }

    /// The far side removes its partial when it notices, which may be a moment after the near side has ended.
    #[track_caller]
    fn nothing_half_done(&self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let names = ["near", "far"].map(|side| names(&self.home.path().join(side))).concat();
            if !names.iter().any(|name| name.contains("lfn-partial")) {
                return;
            }
            assert!(Instant::now() < deadline, "{names:?}");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Waits for a command that must end by itself.
#[track_caller]
fn finish(mut child: Child) -> Output {
    let deadline = Instant::now() + PATIENCE;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            let _ = child.kill();
            panic!("still running after {PATIENCE:?}");
        }
        thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn names(directory: &Path) -> Vec<String> {
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn content(length: usize) -> Vec<u8> {
    let mut content = vec![0; length];
    fill_random(length as u64, 0, &mut content);
    content
}

fn write(path: &Path, length: usize) -> Vec<u8> {
    let content = content(length);
    fs::write(path, &content).unwrap();
    content
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited for {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn files_of_every_odd_length_go_up_and_down_whole() {
    let pair = Pair::new();
    let block = 65_536;
    for (number, length) in [0, 1, 1023, block - 1, block, block + 1, 5 * block, 7 * block + 4711].iter().enumerate() {
        let name = format!("file{number}");
        let content = write(&pair.near(&name), *length);
        let protection: &[&str] = if number % 2 == 0 { &[] } else { &["--clear-data"] };
        let up = pair.copies(&[&[&name, &format!("far:{name}"), "--block", "64KiB"], protection].concat());
        assert_eq!(fs::read(pair.far(&name)).unwrap(), content);
        let down =
            pair.copies(&[&[&format!("far:{name}"), "back", "--force", "--block", "64KiB"], protection].concat());
        assert_eq!(fs::read(pair.near("back")).unwrap(), content);
        for report in [up, down] {
            assert_eq!(report["schema"], "lfn.copy/1");
            assert_eq!(report["bytes"], *length as u64);
            assert_eq!(report["digest_blake3"], blake3::hash(&content).to_hex().as_str(), "{length}");
        }
    }
    pair.nothing_half_done();
}

#[test]
fn the_digest_is_what_b3sum_prints() {
    let pair = Pair::new();
    write(&pair.near("a"), 3_333_333);
    let report = pair.copies(&["a", "far:a"]);
    match Command::new("b3sum").arg("--no-names").arg(pair.far("a")).output() {
        Ok(output) => assert_eq!(report["digest_blake3"], text(&output.stdout).trim()),
        Err(error) => eprintln!("b3sum is not installed here ({error}): compared with the library alone"),
    }
}

#[test]
fn many_streams_and_tiny_blocks_carry_a_file() {
    let pair = Pair::new();
    let content = write(&pair.near("a"), 2_000_003);
    for (streams, protection) in [("1", &["--clear-data"][..]), ("32", &["--clear-data"]), ("32", &[])] {
        let args = ["a", "far:a", "--streams", streams, "--block", "1KiB", "--force"];
        let report = pair.copies(&[&args, protection].concat());
        assert_eq!(fs::read(pair.far("a")).unwrap(), content);
        assert_eq!(report["streams"].to_string(), streams);
    }
}

#[test]
fn memory_stands_in_for_files_at_both_ends() {
    let pair = Pair::new();
    let up = pair.copies(&["random:3000000", "far:null:"]);
    let down = pair.copies(&["far:random:3000000", "null:"]);
    assert_ne!(up["digest_blake3"], down["digest_blake3"]);
    let zeros = blake3::hash(&vec![0; 3_000_000]).to_hex();
    for (from, to) in [("zero:3000000", "far:null:"), ("far:zero:3000000", "null:"), ("zero:3000000", "far:z")] {
        assert_eq!(pair.copies(&[from, to])["digest_blake3"], zeros.as_str(), "{from} {to}");
    }
    assert_eq!(fs::read(pair.far("z")).unwrap(), vec![0; 3_000_000]);
    let random = pair.copies(&["far:random:100000", "r"]);
    let hash = blake3::hash(&fs::read(pair.near("r")).unwrap()).to_hex();
    assert_eq!(random["digest_blake3"], hash.as_str());
}

#[test]
fn a_directory_takes_the_file_under_its_own_name() {
    let pair = Pair::new();
    fs::create_dir(pair.far("in")).unwrap();
    let content = write(&pair.near("a"), 10_000);
    for (to, at) in [("far:", "a"), ("far:in", "in/a"), ("far:in/", "in/a"), ("far:in/b", "in/b")] {
        pair.copies(&["a", to, "--force"]);
        assert_eq!(fs::read(pair.far(at)).unwrap(), content, "{to}");
    }
    fs::remove_file(pair.near("a")).unwrap();
    pair.copies(&["far:in/b", "."]);
    assert_eq!(fs::read(pair.near("b")).unwrap(), content);
    let address = pair.ticket.replace('#', "/in/a#");
    pair.copies(&[&address, "./x:y"]);
    assert_eq!(fs::read(pair.near("x:y")).unwrap(), content);
    pair.refuses(&["zero:1", "far:in"], 1, "say which name");
    pair.refuses(&["far:in", "c"], 1, "is a directory");
    pair.refuses(&["in/a", "far:none/a"], 1, "in/a: no such file");
    pair.refuses(&["b", "far:none/a"], 1, "none/a: no such file");
    pair.refuses(&["b", "far:new/"], 1, "new/: no such file");
}

#[test]
fn a_file_that_exists_is_replaced_only_by_force() {
    let pair = Pair::new();
    write(&pair.near("a"), 1000);
    let old = write(&pair.far("a"), 2000);
    let errors = pair.refuses(&["a", "far:a"], 1, "a exists already");
    assert!(errors.contains("--force"), "{errors}");
    assert_eq!(fs::read(pair.far("a")).unwrap(), old);
    pair.refuses(&["far:a", "a"], 1, "a exists already");
    pair.copies(&["--force", "a", "far:a"]);
    assert_eq!(fs::read(pair.far("a")).unwrap(), content(1000));
}

#[test]
fn nothing_leads_out_of_the_served_root() {
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
    // Inside the root, links are followed and .. is no crime.
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
    pair.refuses(&["a", "far:pipe", "--force"], 1, "pipe is a pipe");
    pair.refuses(&["far:zero:1", "/dev/null", "--force"], 1, "/dev/null is a device");
    pair.refuses(&["/dev/zero", "far:b"], 1, "/dev/zero is a device");
}

#[test]
fn what_cannot_be_meant_is_a_usage_error() {
    let pair = Pair::new();
    write(&pair.near("a"), 10);
    for (args, what) in [
        (vec!["a", "b"], "both ends are on this host"),
        (vec!["far:a", "far:b"], "both ends are at a far end"),
        (vec!["null:", "far:b"], "null: can only be a destination"),
        (vec!["a", "far:random:1"], "can only be sources"),
        (vec!["random:-1", "far:b"], "cannot be negative"),
        (vec!["random:1e30", "far:null:"], "too large"),
        (vec!["far:zero:fast", "null:"], "not a byte count"),
        (vec!["", "far:b"], "names no file"),
        (vec!["lfn://x@127.0.0.1#y", "b"], "damaged"),
    ] {
        pair.refuses(&args, 2, what);
    }
    for option in [["--streams", "0"], ["--block", "0"], ["--rate", "fast"], ["--rate", "0"]] {
        let output = pair.copy(&["a", "far:a", option[0], option[1]]);
        assert!(!output.status.success(), "{option:?}");
    }
    pair.refuses(&["a", "far:a", "--block", "3000"], 2, "power of two");
    pair.refuses(&["a", "far:a", "--streams", "1000"], 1, "the server allows");
    pair.refuses(&["a", "far:a", "--streams", "256", "--block", "16MiB"], 1, "of memory");
    pair.refuses(&["a", "far:a", "--congestion", "nosuch"], 1, "congestion control 'nosuch'");
    pair.refuses(&["far:zero:1000", "null:", "--congestion", "nosuch"], 1, "congestion control 'nosuch'");
    pair.refuses(&["missing", "far:a"], 1, "missing: no such file");
    pair.refuses(&["far:missing", "b"], 1, "missing: no such file");
    pair.refuses(&["a", "nobody-saved-this:a"], 1, "nobody-saved-this");
}

#[test]
fn the_wrong_ticket_opens_nothing() {
    let mut pair = Pair::new();
    write(&pair.near("a"), 10_000_000);
    let good = pair.ticket.clone();
    let (token, rest) = good.strip_prefix("lfn://").unwrap().split_once('@').unwrap();
    let (host, fingerprint) = rest.split_once('#').unwrap();
    let other = Pair::new();
    let (other_token, other_rest) = other.ticket.strip_prefix("lfn://").unwrap().split_once('@').unwrap();
    let other_fingerprint = other_rest.split_once('#').unwrap().1;
    for clear in [true, false] {
        let mode: &[&str] = if clear { &["--clear-data"] } else { &[] };
        pair.ticket = format!("lfn://{other_token}@{host}#{fingerprint}");
        pair.refuses(&[&["a", "far:a"], mode].concat(), 1, "token is not this server's");
        pair.refuses(&[&["far:zero:10", "null:"], mode].concat(), 1, "token is not this server's");
        pair.ticket = format!("lfn://{token}@{host}#{other_fingerprint}");
        pair.refuses(&[&["a", "far:a"], mode].concat(), 1, "another key than the ticket's");
    }
    assert!(names(&pair.home.path().join("far")).is_empty());
}

#[test]
fn a_server_without_a_root_copies_memory_only() {
    let pair = Pair::serving(false);
    write(&pair.near("a"), 10);
    let errors = pair.refuses(&["a", "far:a"], 1, "serves no files");
    assert!(errors.contains("lfn serve --root DIR"), "{errors}");
    pair.refuses(&["far:a", "b"], 1, "serves no files");
    pair.copies(&["a", "far:null:"]);
}

#[test]
fn a_server_that_is_gone_is_named() {
    let mut pair = Pair::new();
    write(&pair.near("a"), 10);
    pair.server.kill().unwrap();
    pair.server.wait().unwrap();
    pair.refuses(&["a", "far:a"], 1, "cannot reach");
    pair.refuses(&["far:a", "b"], 1, "cannot reach");
}

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
        let child = pair.command(&args).spawn().unwrap();
        if moving {
            wait_for("the partial file", || {
                names(&pair.home.path().join("near")).iter().any(|n| n.contains("partial"))
            });
        } else {
            thread::sleep(Duration::from_millis(300));
        }
        pair.server.kill().unwrap();
        pair.server.wait().unwrap();
        let output = finish(child);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert!(errors.starts_with("lfn: ") && errors.lines().count() <= 2, "{errors}");
        assert!(names(&pair.home.path().join("near")).is_empty(), "{args:?}");
    }
}

#[test]
fn a_client_killed_or_interrupted_midway_leaves_nothing_at_either_end() {
    let pair = Pair::new();
    fs::File::create(pair.near("big")).unwrap().set_len(2 << 30).unwrap();
    let far_partial = || names(&pair.home.path().join("far")).iter().any(|n| n.contains("partial"));
    for signal in [rustix::process::Signal::KILL, rustix::process::Signal::INT, rustix::process::Signal::TERM] {
        let child = pair.command(&["big", "far:a"]).spawn().unwrap();
        wait_for("the partial file", far_partial);
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, signal).unwrap();
        let output = finish(child);
        if signal != rustix::process::Signal::KILL {
            assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
        }
        wait_for("the partial file to go", || !far_partial());
        assert!(!pair.far("a").exists());
    }
    // The server goes on serving.
    fs::write(pair.near("small"), "small").unwrap();
    pair.copies(&["small", "far:a"]);
}

#[test]
fn a_server_stopped_midway_tidies_up_and_says_so() {
    let mut pair = Pair::new();
    fs::File::create(pair.near("big")).unwrap().set_len(2 << 30).unwrap();
    let child = pair.command(&["big", "far:a"]).spawn().unwrap();
    wait_for("the partial file", || !names(&pair.home.path().join("far")).is_empty());
    // The first lets what runs go on for a while, the second does not.
    for signal in [rustix::process::Signal::TERM, rustix::process::Signal::INT] {
        rustix::process::kill_process(rustix::process::Pid::from_child(&pair.server), signal).unwrap();
    }
    let output = finish(child);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("the server was stopped"), "{}", text(&output.stderr));
    pair.server.wait().unwrap();
    assert!(names(&pair.home.path().join("far")).is_empty());
}

/// The kernel of a frozen server still acknowledges: only its silence tells. Takes half a minute.
#[test]
fn a_server_that_falls_silent_is_given_up() {
    let pair = Pair::new();
    let child = pair.command(&[ENDLESS, "far:null:"]).spawn().unwrap();
    thread::sleep(Duration::from_millis(500));
    let server = rustix::process::Pid::from_child(&pair.server);
    rustix::process::kill_process(server, rustix::process::Signal::STOP).unwrap();
    let output = finish(child);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("no answer from the server within 30 s"), "{}", text(&output.stderr));
}

#[test]
fn an_interrupted_download_leaves_nothing() {
    let pair = Pair::new();
    fs::File::create(pair.far("big")).unwrap().set_len(2 << 30).unwrap();
    let child = pair.command(&["far:big", "a"]).spawn().unwrap();
    wait_for("the partial file", || !names(&pair.home.path().join("near")).is_empty());
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT).unwrap();
    let output = finish(child);
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    assert!(names(&pair.home.path().join("near")).is_empty());
}

#[test]
fn two_copies_into_one_destination_do_not_mix() {
    let pair = Pair::new();
    fs::File::create(pair.near("big")).unwrap().set_len(2 << 30).unwrap();
    write(&pair.near("small"), 1000);
    let child = pair.command(&["big", "far:a"]).spawn().unwrap();
    wait_for("the partial file", || !names(&pair.home.path().join("far")).is_empty());
    let second = pair.copy(&["small", "far:a"]);
    assert_eq!(second.status.code(), Some(1), "{}", text(&second.stdout));
    assert!(text(&second.stderr).contains("another copy to a is under way"), "{}", text(&second.stderr));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    finish(child);
    pair.nothing_half_done();
}

#[test]
fn what_a_crash_left_behind_is_taken_over_unless_it_is_a_trap() {
    let pair = Pair::new();
    let content = write(&pair.near("a"), 1000);
    write(&pair.far(".a.lfn-partial"), 5000);
    pair.copies(&["a", "far:a"]);
    assert_eq!(fs::read(pair.far("a")).unwrap(), content);
    assert_eq!(names(&pair.home.path().join("far")), ["a"]);

    let target = pair.home.path().join("target");
    fs::write(&target, "target").unwrap();
    for (name, trap) in [("s", true), ("h", false)] {
        let partial = pair.far(&format!(".{name}.lfn-partial"));
        if trap {
            symlink(&target, &partial).unwrap()
        } else {
            fs::hard_link(&target, &partial).unwrap()
        }
        let output = pair.copy(&["a", &format!("far:{name}")]);
        assert_eq!(output.status.code(), Some(1), "{name}");
        assert_eq!(fs::read_to_string(&target).unwrap(), "target");
        assert!(!pair.far(name).exists());
    }
}

#[test]
fn a_source_that_changes_is_noticed() {
    let pair = Pair::new();
    for change in ["truncate", "write"] {
        fs::File::create(pair.near("big")).unwrap().set_len(2 << 30).unwrap();
        let child = pair.command(&["big", "far:a"]).spawn().unwrap();
        wait_for("the partial file", || !names(&pair.home.path().join("far")).is_empty());
        let file = fs::OpenOptions::new().write(true).open(pair.near("big")).unwrap();
        match change {
            "truncate" => file.set_len(10).unwrap(),
            _ => file.write_all_at(b"new", (2 << 30) - 100).unwrap(),
        }
        let output = finish(child);
        assert_eq!(output.status.code(), Some(1), "{change}: {}", text(&output.stdout));
        assert!(text(&output.stderr).contains("big changed while it was copied"), "{}", text(&output.stderr));
        pair.nothing_half_done();
        assert!(!pair.far("a").exists());
    }
}

#[test]
fn a_full_disk_is_refused_before_a_byte_moves() {
    let pair = Pair::new();
    // No file system here has a pebibyte.
    for args in [["random:1000TiB", "far:a"], ["far:random:1000TiB", "a"]] {
        let started = Instant::now();
        let errors = pair.refuses(&args, 1, "no room for a: 1000 TiB needed, ");
        assert!(errors.contains("available") && started.elapsed() < Duration::from_secs(60), "{errors}");
    }
}

#[test]
fn a_disk_that_fills_up_ends_the_copy() {
    let pair = Pair::new();
    fs::create_dir(pair.far("small")).unwrap();
    let mounted = is_root() && {
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "none"]).arg(pair.far("small")).output();
        mount.is_ok_and(|output| output.status.success())
    };
    if !mounted {
        return eprintln!("skipped: mounting a small tmpfs needs root");
    }
    let output = pair.copy(&["random:3MiB", "far:small/a"]);
    let fits = pair.copy(&["random:500KiB", "far:small/a"]);
    let left = names(&pair.far("small"));
    assert!(Command::new("umount").arg(pair.far("small")).status().unwrap().success());
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("no room for small/a: 3 MiB needed, 1 MiB available"),
        "{}",
        text(&output.stderr)
    );
    assert!(fits.status.success(), "{}", text(&fits.stderr));
    assert_eq!(left, ["a"]);
}

#[test]
fn a_file_size_limit_is_an_error_of_writing() {
    let pair = Pair::new();
    let mut command = Command::new("sh");
    // 100 blocks of 512 bytes.
    command.args(["-c", "ulimit -f 100; exec \"$0\" copy far:random:1MB a"]).arg(lfn_path());
    command.current_dir(pair.home.path().join("near")).env("LFN_FAR_TICKET", &pair.ticket);
    let output = finish(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    assert_eq!(output.status.code(), Some(1), "{:?}", output.status);
    assert!(text(&output.stderr).contains("cannot write a"), "{}", text(&output.stderr));
    assert!(names(&pair.home.path().join("near")).is_empty());
}

#[test]
fn a_place_that_may_not_be_written_is_named() {
    let pair = Pair::new();
    if is_root() {
        // Nobody may create files there, root neither.
        pair.refuses(&["far:random:1000", "/proc/lfn"], 1, "cannot create /proc/lfn");
        return;
    }
    let locked = pair.far("locked");
    fs::create_dir(&locked).unwrap();
    fs::set_permissions(&locked, std::os::unix::fs::PermissionsExt::from_mode(0o555)).unwrap();
    pair.refuses(&["random:1000", "far:locked/a"], 1, "cannot create locked/a");
}

#[test]
fn the_summary_is_two_lines_and_quiet_besides() {
    let pair = Pair::new();
    let output = pair.copy(&["zero:100000", "far:null:", "--rate", "1gbit"]);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    let lines = text(&output.stdout);
    assert_eq!(lines.lines().count(), 2, "{lines}");
    assert!(lines.contains("100 kB in ") && lines.contains("goodput"), "{lines}");
    assert!(lines.contains(blake3::hash(&[0; 100_000]).to_hex().as_str()), "{lines}");
    // A reader that is gone is no failure.
    let mut child = pair.command(&["zero:10", "far:null:"]).spawn().unwrap();
    drop(child.stdout.take());
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert_eq!(finish(child).status.code(), Some(0), "{errors}");
}

#[test]
fn secrets_stay_out_of_reports() {
    let pair = Pair::new();
    let address = pair.ticket.replace('#', "/null:#");
    let report = pair.copies(&["zero:10", &address]);
    let token = pair.ticket.strip_prefix("lfn://").unwrap().split_once('@').unwrap().0;
    assert!(!report.to_string().contains(token), "{report}");
    let _: &OsStr = report["destination"].as_str().unwrap().as_ref();
}
