//! Created and revoked tokens, their rights, and the visibility of a ticket to other users.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use lfn_session::server::sandbox::{SandboxStatus, restrict};
use serde_json::Value;

use crate::support::schema::assert_valid;
use crate::support::server::{assert_refused, text};
use crate::support::skip::{Missing, skip};
use crate::support::{self, eventually};

/// A home directory with its own server.
struct Home {
    directory: tempfile::TempDir,
    server: Option<Child>,
    port: u16,
}

impl Home {
    fn new() -> Home {
        Home { directory: tempfile::tempdir().unwrap(), server: None, port: 0 }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = support::lfn();
        command.env("HOME", self.directory.path()).current_dir(self.directory.path());
        for name in ["XDG_STATE_HOME", "XDG_CONFIG_HOME", "LFN_EMULATED", "LFN_PATH", "LFN_FAR", "LFN_FAR_TICKET"] {
            command.env_remove(name);
        }
        command.args(words);
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    #[track_caller]
    fn ok(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Starts the server with the directory `root`.
    fn serve(mut self, flags: &[&str]) -> Home {
        fs::create_dir_all(self.path("root")).unwrap();
        let words = ["serve", "--port", "0", "--bind", "127.0.0.1", "--root", "root", "--json"];
        let mut command = self.command(&[&words, flags].concat());
        command.stderr(fs::File::create(self.path("log")).unwrap());
        let mut server = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let announced: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{}", self.log()));
        let listen = announced["listen"].as_str().unwrap();
        self.port = listen.rsplit_once(':').unwrap().1.parse().unwrap();
        fs::write(self.path("own"), announced["ticket"].as_str().unwrap()).unwrap();
        self.server = Some(server);
        self
    }

    /// Creates a token, and writes its ticket to a file with this name.
    fn add(&self, name: &str, flags: &[&str]) {
        let port = self.port.to_string();
        let words = ["token", "add", name, "--ticket-host", "127.0.0.1", "--ticket-port", &port];
        let ticket = self.ok(&[&words, flags].concat());
        fs::write(self.path(name), ticket).unwrap();
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if let Some(server) = &mut self.server {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn token_list_has_no_secrets() {
    let home = Home::new();
    let root = home.path("data");
    fs::create_dir(&root).unwrap();
    let ticket = home.ok(&[
        "token",
        "add",
        "field",
        "--rights",
        "read",
        "--root",
        "data",
        "--rate",
        "10mbit",
        "--expires",
        "2099-12-31",
    ]);
    let token = ticket.strip_prefix("lfn://").unwrap().split('@').next().unwrap();
    let list: Value = serde_json::from_str(&home.ok(&["token", "list", "--json"])).unwrap();
    let one = &list["tokens"][0];
    assert_eq!(
        (&one["name"], &one["rights"], &one["expires"]),
        (&"field".into(), &"read".into(), &"2099-12-31T00:00:00Z".into())
    );
    assert_eq!(one["root"], root.canonicalize().unwrap().to_str().unwrap());
    let plain = home.ok(&["token", "list"]);
    assert!(plain.contains("field") && plain.contains("10 Mb/s"), "{plain}");
    let state = home.path(".local/state/lfn");
    for file in ["tokens.toml", "server.key"] {
        let kept = fs::read_to_string(state.join(file)).unwrap();
        assert!(!kept.contains(token) && !plain.contains(token), "{file}");
        assert_eq!(mode(&state.join(file)), 0o600, "{file}");
    }
    assert_refused(&home.run(&["token", "add", "field"]), 1, "already");
    assert_refused(&home.run(&["token", "add", "../x"]), 2, "not a valid name");
    assert_refused(&home.run(&["token", "add", "x", "--rights", "create,read"]), 2, "create cannot be combined with");
    assert_refused(&home.run(&["token", "add", "x", "--expires", "2001-01-01"]), 2, "past");
    assert_refused(&home.run(&["token", "add", "x", "--expires", "soon"]), 2, "'soon' is not a time from now");
    assert_refused(&home.run(&["token", "revoke", "other"]), 1, "no token 'other'");
    home.ok(&["token", "revoke", "field"]);
    assert_eq!(home.ok(&["token", "list"]), "");
}

#[test]
fn new_token_works_at_once_with_its_rights() {
    let home = Home::new().serve(&["--log-format", "json"]);
    fs::create_dir(home.path("other")).unwrap();
    fs::write(home.path("root/a"), "root").unwrap();
    fs::write(home.path("mine"), "mine").unwrap();
    home.add("reads", &["--rights", "read"]);
    home.ok(&["copy", "@reads:a", "got"]);
    assert_eq!(fs::read_to_string(home.path("got")).unwrap(), "root");
    assert_refused(&home.run(&["copy", "mine", "@reads:b"]), 1, "does not allow uploads");
    assert_refused(&home.run(&["copy", "mine", "@reads:null:"]), 1, "does not allow uploads");
    assert_refused(&home.run(&["test", "@reads", "-t", "1s"]), 1, "does not allow tests");
    home.add("writes", &["--rights", "write"]);
    home.ok(&["copy", "mine", "@writes:b"]);
    assert_eq!(fs::read_to_string(home.path("root/b")).unwrap(), "mine");
    assert_refused(&home.run(&["copy", "@writes:a", "again"]), 1, "does not allow downloads");
    // A missing file is refused with the same words.
    assert_refused(&home.run(&["copy", "@writes:none", "again"]), 1, "does not allow downloads");
    home.add("tests", &["--rights", "test"]);
    home.ok(&["copy", "zero:1MiB", "@tests:null:"]);
    assert_refused(&home.run(&["copy", "@tests:a", "again"]), 1, "does not allow downloads");
    home.add("drops", &["--rights", "create"]);
    for _ in 0..2 {
        home.ok(&["copy", "mine", "@drops:a"]);
    }
    assert_refused(&home.run(&["copy", "@drops:a", "again"]), 1, "does not allow downloads");
    let boxes = fs::read_dir(home.path("root")).unwrap().map(|entry| entry.unwrap().path());
    let boxes: Vec<_> = boxes.filter(|path| path.to_string_lossy().contains("Z-drops-")).collect();
    assert_eq!(boxes.len(), 2, "{boxes:?}");
    assert!(boxes.iter().all(|path| fs::read_to_string(path.join("a")).unwrap() == "mine"));
    assert_eq!(fs::read_to_string(home.path("root/a")).unwrap(), "root");
    // The server's own ticket still works.
    home.ok(&["copy", "@own:a", "own-got"]);
    let log = home.log();
    assert!(log.contains("\"token\":\"writes\"") && log.contains("\"by\":"), "{log}");
}

#[test]
fn token_root_must_exist_at_server_start() {
    let home = Home::new();
    fs::create_dir(home.path("other")).unwrap();
    fs::write(home.path("other/o"), "other").unwrap();
    let ticket = home.ok(&["token", "add", "o", "--rights", "read", "--root", "other", "--ticket-host", "127.0.0.1"]);
    let home = home.serve(&[]);
    fs::write(home.path("root/r"), "root").unwrap();
    fs::write(home.path("o"), ticket.replace(":7323#", &format!(":{}#", home.port))).unwrap();
    home.ok(&["copy", "@o:o", "got"]);
    assert_eq!(fs::read_to_string(home.path("got")).unwrap(), "other");
    assert_refused(&home.run(&["copy", "@o:r", "again"]), 1, "no such file");
    fs::write(home.path("outside"), "not served").unwrap();
    assert_refused(&home.run(&["copy", "@o:../outside", "again"]), 1, "leads out of the served directory");
}

#[test]
fn landlock_forbids_a_root_added_later() {
    let home = Home::new();
    fs::create_dir(home.path("other")).unwrap();
    fs::write(home.path("other/o"), "other").unwrap();
    let home = home.serve(&[]);
    // The features of this kernel, queried by a thread of this test.
    let anywhere = home.path("root");
    let held = thread::spawn(move || restrict(&[&anywhere], &[], &[]).unwrap()).join().unwrap();
    assert!(home.log().contains(&format!("sandboxed by=\"{}\"", held.description())), "{}", home.log());
    fs::create_dir(home.path("root/below")).unwrap();
    fs::write(home.path("root/below/b"), "below").unwrap();
    home.add("below", &["--rights", "read", "--root", "root/below"]);
    home.ok(&["copy", "@below:b", "b"]);
    assert_eq!(fs::read_to_string(home.path("b")).unwrap(), "below");
    home.add("late", &["--rights", "read", "--root", "other"]);
    let output = home.run(&["copy", "@late:o", "got"]);
    if held == SandboxStatus::None {
        // openat2 alone confines it to the root of the token, wherever the root is.
        skip("landlock_forbids_a_root_added_later", &Missing::Feature("landlock"));
        assert!(output.status.success() && home.log().contains("no landlock"), "{}", text(&output.stderr));
    } else {
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains("ermission denied"), "{}", text(&output.stderr));
        assert!(!home.path("got").exists());
    }
}

/// Starts a long copy and waits until it runs.
fn long_copy(home: &Home, name: &str) -> Child {
    let to = format!("@{name}:null:");
    let mut command = home.command(&["copy", "zero:1TiB", &to]);
    let copy = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let is_opened = |line: &str| line.contains("opened") && line.contains(&format!("token={name} "));
    assert!(eventually(|| home.log().lines().any(is_opened)), "{}", home.log());
    copy
}

#[test]
fn revoked_token_ends_only_its_sessions() {
    let home = Home::new().serve(&[]);
    home.add("gone", &["--rate", "50mbit"]);
    home.add("stays", &["--rate", "50mbit"]);
    let (gone, mut stays) = (long_copy(&home, "gone"), long_copy(&home, "stays"));
    let revoked = Instant::now();
    home.ok(&["token", "revoke", "gone"]);
    let ended = gone.wait_with_output().unwrap();
    assert!(revoked.elapsed() < Duration::from_secs(20), "{:?}", revoked.elapsed());
    assert_refused(&ended, 1, "the token 'gone' was revoked");
    assert_refused(&home.run(&["copy", "zero:1", "@gone:null:"]), 1, "does not know the ticket's token");
    // No later part of an examination can succeed.
    let examined = text(&home.run(&["doctor", "@gone"]).stderr);
    assert_eq!(examined.matches("does not know the ticket's token").count(), 1, "{examined}");
    home.add("short", &["--rate", "50mbit", "--expires", "3s"]);
    let short = long_copy(&home, "short").wait_with_output().unwrap();
    assert_refused(&short, 1, "expired");
    assert_refused(&home.run(&["copy", "zero:1", "@short:null:"]), 1, "expired");
    assert!(stays.try_wait().unwrap().is_none(), "it ended too: {}", home.log());
    stays.kill().unwrap();
    stays.wait().unwrap();
}

#[test]
fn readable_secret_files_are_refused_with_a_hint() {
    let home = Home::new();
    home.ok(&["token", "add", "a"]);
    let state = home.path(".local/state/lfn");
    let serve = ["serve", "--port", "0", "--bind", "127.0.0.1"];
    let ticket = home.ok(&["token", "add", "b"]);
    home.ok(&["hosts", "add", "b", ticket.trim()]);
    for (file, words) in [
        (state.join("tokens.toml"), &serve[..]),
        (state.join("server.key"), &serve[..]),
        (state.join("tokens.toml"), &["token", "list"][..]),
        (home.path(".config/lfn/hosts.toml"), &["hosts", "list"][..]),
    ] {
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        let output = home.run(words);
        assert_refused(&output, 1, "is readable by other users: its mode is 0644");
        assert!(text(&output.stderr).contains("chmod 600 "), "{}", text(&output.stderr));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    }
}

#[test]
fn readable_token_file_disables_its_tokens() {
    let home = Home::new().serve(&[]);
    home.add("a", &[]);
    home.ok(&["copy", "zero:1", "@a:null:"]);
    let file = home.path(".local/state/lfn/tokens.toml");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    assert_refused(&home.run(&["copy", "zero:1", "@a:null:"]), 1, "does not know the ticket's token");
    home.ok(&["copy", "zero:1", "@own:null:"]);
    assert!(home.log().contains("is readable by other users"), "{}", home.log());
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    home.ok(&["copy", "zero:1", "@a:null:"]);
}

#[test]
fn typed_ticket_is_hidden_from_ps() {
    let home = Home::new().serve(&[]);
    home.add("a", &["--rate", "50mbit"]);
    let ticket = fs::read_to_string(home.path("a")).unwrap();
    let ticket = ticket.trim();
    let token = ticket.strip_prefix("lfn://").unwrap().split('@').next().unwrap().to_owned();
    let place = ticket.replace('#', "/null:#");
    for words in [&["test", ticket, "-t", "60s"][..], &["copy", "zero:1TiB", &place][..]] {
        let mut command = home.command(words);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let seen = || fs::read_to_string(format!("/proc/{}/cmdline", child.id())).unwrap();
        let is_hidden = || seen().contains("lfn://xxxxxxxxxxxxxxxxxxxxxx@127.0.0.1");
        assert!(eventually(is_hidden), "the ticket is visible: {}", seen());
        assert!(!seen().contains(&token), "{}", seen());
        let _ = child.kill();
        let _ = child.wait();
    }
}

#[test]
fn audit_log_is_complete_and_required() {
    let home = Home::new().serve(&["--audit", "audit"]);
    fs::write(home.path("mine"), "mine").unwrap();
    home.add("w", &["--rights", "write"]);
    home.ok(&["copy", "mine", "@w:b"]);
    assert_refused(&home.run(&["copy", "@w:b", "again"]), 1, "does not allow downloads");
    let audit = || fs::read_to_string(home.path("audit")).unwrap();
    assert!(eventually(|| audit().matches('\n').count() >= 4), "{}", audit());
    let lines: Vec<Value> = audit().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    lines.iter().for_each(|line| assert_valid("lfn.serve.audit.1", line));
    let events: Vec<_> = lines.iter().map(|line| line["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["started", "opened", "ended", "denied"]);
    let ended = &lines[2];
    assert_eq!(
        (&ended["token"], &ended["direction"], &ended["outcome"]),
        (&"w".into(), &"received".into(), &"ok".into())
    );
    assert_eq!((&ended["paths"], &ended["files"], &ended["bytes"]), (&serde_json::json!(["b"]), &1.into(), &4.into()));
    assert_eq!(ended["blake3"], blake3::hash(b"mine").to_hex().as_str());
    assert_eq!((&lines[3]["code"], &lines[3]["token"]), (&"forbidden".into(), &"w".into()));
    assert_eq!(mode(&home.path("audit")), 0o600);
    // Over ssh the server has all rights of the user. It can be read-only, and it has no root.
    assert_refused(&home.run(&["serve", "--stdio", "--write-only"]), 2, "--stdio");
    for flag in ["--write-only", "--create-only"] {
        assert_refused(&home.run(&["serve", "--ephemeral", flag]), 2, "needs --root");
    }
    let full = Home::new();
    let wrong = full.run(&["serve", "--ephemeral", "--port", "0", "--bind", "127.0.0.1", "--audit", "/dev/full"]);
    assert_refused(&wrong, 2, "--audit /dev/full: No space");
}

#[test]
fn token_rate_covers_all_its_sessions() {
    let home = Home::new().serve(&[]);
    home.add("slow", &["--rate", "40mbit"]);
    let started = Instant::now();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| home.ok(&["copy", "zero:5MB", "@slow:null:"]));
        }
    });
    // 10 MB at 5 MB/s, minus a possible burst. Each copy alone would take half of the time.
    assert!(started.elapsed() > Duration::from_millis(1700), "{:?}", started.elapsed());
}

#[test]
fn session_needs_a_writable_audit_log() {
    let home = Home::new();
    let audit = home.path("audit");
    assert!(Command::new("mkfifo").arg(&audit).status().unwrap().success());
    // For a moment also a writer, so that opening does not wait for one.
    let mut reader = BufReader::new(fs::OpenOptions::new().read(true).write(true).open(audit).unwrap());
    let home = home.serve(&["--audit", "audit"]);
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    assert!(line.contains("started"));
    // Without a reader, a write to the pipe fails like a write to a full disk.
    drop(reader);
    fs::write(home.path("mine"), "mine").unwrap();
    for words in [&["copy", "mine", "@own:a"][..], &["test", "@own", "-t", "1s"][..]] {
        assert_refused(&home.run(words), 1, "cannot write its audit log");
    }
    assert!(!home.path("root/a").exists());
    let log = home.log();
    assert_eq!(log.matches("file_error ").count(), 1, "{log}");
}
