//! Running hubs and agents of the tests.

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use lfn_mesh::archive::{Archive, EntryFilter};
use lfn_mesh::entry::{Entry, EntryKind, Outcome};
use serde_json::Value;

use crate::support::{eventually, lfn};

/// A process that is killed at the end.
pub struct Process(pub Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns a free port. Another program may take it, which none of these tests does.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Returns a command of `lfn mesh` in a directory, which is also the home directory.
pub fn mesh(directory: &Path, words: &[&str]) -> Command {
    let mut command = lfn();
    command.arg("mesh").args(words).current_dir(directory).env("HOME", directory);
    command.env_remove("XDG_CONFIG_HOME").stdin(Stdio::null());
    command
}

/// A running `lfn mesh hub` with the files of a directory.
pub struct Hub {
    pub process: Process,
    /// First line of standard output.
    pub printed: String,
    /// Address of the page.
    pub page: String,
    pub password: String,
}

impl Hub {
    pub fn start(directory: &Path) -> Self {
        let flags = ["--hub-state", "hub", "--bind", "127.0.0.1", "--port", "0", "--page", "127.0.0.1:0"];
        let mut command = mesh(directory, &[&["hub", "sites.toml"], &flags[..]].concat());
        let out = directory.join("out");
        let child = command.stdout(fs::File::create(&out).unwrap()).stderr(messages(directory)).spawn().unwrap();
        let process = Process(child);
        let is_ready = eventually(|| fs::read_to_string(&out).unwrap().contains('\n'));
        assert!(is_ready, "{}", said(directory));
        let printed = fs::read_to_string(&out).unwrap();
        let mut words = printed.split_whitespace();
        let page = words.find(|word| word.starts_with("http://")).unwrap_or_default().to_owned();
        let password = words.last().unwrap_or_default().trim_end_matches(')').to_owned();
        Hub { process, printed, page, password }
    }
}

/// A running `lfn mesh up`.
pub struct Up {
    _process: Process,
    pub page: String,
    pub token: String,
    /// Address on which the hub listens for agents.
    pub listen: String,
}

impl Up {
    pub fn start(directory: &Path, flags: &[&str]) -> Self {
        let report = directory.join("hub.json");
        let mut command =
            mesh(directory, &["up", "sites.toml", "--host", "near1", "--hub-state", "hub", "--state", "agent"]);
        command.args([
            "--bind",
            "127.0.0.1",
            "--port",
            "0",
            "--page",
            "127.0.0.1:0",
            "--test-port",
            "0",
            "--report",
            "hub.json",
        ]);
        command.args(flags).stdout(Stdio::null()).stderr(messages(directory));
        let process = Process(command.spawn().unwrap());
        let mut document = Value::Null;
        let is_ready = eventually(|| {
            document = fs::read(&report).ok().and_then(|json| serde_json::from_slice(&json).ok()).unwrap_or_default();
            document["page"].is_string()
        });
        assert!(is_ready, "{}", said(directory));
        let text = |key: &str| document[key].as_str().unwrap().to_owned();
        Up { _process: process, page: text("page"), token: text("token"), listen: text("listen") }
    }

    pub fn get(&self, path: &str, token: &str) -> Output {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--include", "--user", &format!("x:{token}")]);
        curl.arg(format!("{}{path}", self.page.trim_end_matches('/'))).output().unwrap()
    }
}

/// Returns the file for the messages of a hub.
fn messages(directory: &Path) -> fs::File {
    fs::File::create(directory.join("messages")).unwrap()
}

/// Returns the messages of a hub.
pub fn said(directory: &Path) -> String {
    fs::read_to_string(directory.join("messages")).unwrap_or_default()
}

/// Returns all entries of the archive of `lfn mesh up`.
pub fn entries(directory: &Path) -> Vec<Entry> {
    let Ok(mut archive) = Archive::open_read_only(&directory.join("hub/archive.sqlite")) else { return Vec::new() };
    archive.entries(EntryFilter { texts: true, ..EntryFilter::default() }).unwrap_or_default()
}

/// Returns a free UDP port.
pub fn free_udp_port() -> u16 {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Reports whether the archive has a result of this kind between two hosts that did not fail.
pub fn has_result(directory: &Path, kind: EntryKind, from: &str, to: &str) -> bool {
    let is_result =
        |entry: &Entry| (entry.kind, &*entry.from, &*entry.to) == (kind, from, to) && entry.outcome != Outcome::Failed;
    entries(directory).iter().any(is_result)
}
