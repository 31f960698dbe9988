//! An `lfn serve` on loopback, and `lfn test` against it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Output, Stdio};

use serde_json::Value;

/// A server on a free port, stopped when dropped.
pub struct Server {
    pub child: Child,
    pub ticket: String,
}

impl Server {
    /// `flags` beside those that keep it to loopback and quiet.
    pub fn start(flags: &[&str]) -> Server {
        let mut command = super::lfn();
        command.args(["serve", "--ephemeral", "--quiet", "--port", "0", "--bind", "127.0.0.1"]).args(flags);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut ticket = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut ticket).unwrap();
        Server { child, ticket: ticket.trim().to_owned() }
    }

    /// `lfn test` to this server.
    pub fn test(&self, flags: &[&str]) -> Output {
        test(&self.ticket, flags)
    }

    /// The first run of the JSON of a test that succeeds.
    pub fn json(&self, flags: &[&str]) -> Value {
        self.document(flags)["runs"][0].take()
    }

    /// The JSON of a test that succeeds.
    pub fn document(&self, flags: &[&str]) -> Value {
        let output = self.test(&[flags, &["--json"]].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `lfn test HOST`, with nothing of the surroundings.
pub fn test(host: &str, flags: &[&str]) -> Output {
    let mut command = super::lfn();
    // Nothing of the surroundings: no saved names, no emulated path.
    command.env("HOME", "/nonexistent").env_remove("XDG_CONFIG_HOME");
    for name in ["LFN_EMULATED", "LFN_PATH", "LFN_FAR", "LFN_FAR_TICKET"] {
        command.env_remove(name);
    }
    command.arg("test").arg(host).args(flags).output().unwrap()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A count out of JSON.
pub fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("not a count: {value}"))
}

/// One line that says what, one that says what to do, the exit code.
pub fn assert_refused(output: &Output, code: i32, says: &str) {
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    let mut lines = stderr.lines();
    let (line, hint) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    assert!(line.starts_with("lfn: ") && line.contains(says), "{stderr}");
    assert!(hint.starts_with("hint: ") && lines.next().is_none(), "{stderr}");
}
