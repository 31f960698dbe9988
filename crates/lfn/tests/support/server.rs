//! A test server `lfn serve` on loopback, and `lfn test` against it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

/// A server on a free port, stopped on drop.
pub struct Server {
    pub child: Child,
    pub ticket: String,
}

impl Server {
    /// Starts a server with `flags` and flags for loopback and quiet output.
    pub fn start(flags: &[&str]) -> Server {
        Server::start_command(super::lfn(), flags)
    }

    /// Starts a server like [`start`](Self::start) after the shell command `limits`.
    pub fn start_limited(limits: &str, flags: &[&str]) -> Server {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{limits}; exec \"$0\" \"$@\"")]).arg(super::lfn_path());
        Server::start_command(command, flags)
    }

    /// Starts a server like [`start`](Self::start) with a command for the binary.
    pub fn start_command(mut command: Command, flags: &[&str]) -> Server {
        command.args(["serve", "--ephemeral", "--quiet", "--port", "0", "--bind", "127.0.0.1"]).args(flags);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut ticket = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut ticket).unwrap();
        Server { child, ticket: ticket.trim().to_owned() }
    }

    /// Runs `lfn test` against this server.
    pub fn test(&self, flags: &[&str]) -> Output {
        test(&self.ticket, flags)
    }

    /// Returns the first run in the JSON of a successful test.
    pub fn json(&self, flags: &[&str]) -> Value {
        self.document(flags)["runs"][0].take()
    }

    /// Returns the JSON of a successful test.
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

/// Runs `lfn test HOST` without the user's environment.
pub fn test(host: &str, flags: &[&str]) -> Output {
    test_command(host, flags).output().unwrap()
}

/// Returns the command of [`test`] without starting it.
pub fn test_command(host: &str, flags: &[&str]) -> Command {
    let mut command = super::lfn();
    // No saved names and no emulated path from the environment.
    command.env("HOME", "/nonexistent").env_remove("XDG_CONFIG_HOME");
    for name in ["LFN_EMULATED", "LFN_PATH", "LFN_FAR", "LFN_FAR_TICKET"] {
        command.env_remove(name);
    }
    command.arg("test").arg(host).args(flags);
    command
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns a JSON count as a number.
pub fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("not a count: {value}"))
}

/// Returns the names of the findings of a run, in order.
pub fn finding_names(run: &Value) -> Vec<&str> {
    run["findings"].as_array().unwrap().iter().map(|finding| finding["name"].as_str().unwrap()).collect()
}

/// Returns whether the first finding of a run has this name.
pub fn is_first_finding(run: &Value, name: &str) -> bool {
    finding_names(run).first() == Some(&name)
}

/// Asserts the exit code, a one-line error that contains `says`, and a hint.
pub fn assert_refused(output: &Output, code: i32, says: &str) {
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    let mut lines = stderr.lines();
    let (line, hint) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    assert!(line.starts_with("lfn: ") && line.contains(says), "{stderr}");
    assert!(hint.starts_with("hint: ") && lines.next().is_none(), "{stderr}");
}

/// Starts a test with events. `words` name the server.
pub fn start_with_events(words: &[&str], flags: &[&str]) -> Child {
    let mut command = super::lfn();
    command.args(words).args(["--output", "ndjson", "--interval", "100ms"]).args(flags);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Calls `then` when this number of directions have reported an interval. Returns the exit code, the events and the
/// standard error.
pub fn interrupted(mut child: Child, directions: u64, then: impl FnOnce(u32)) -> (Option<i32>, Vec<Value>, String) {
    let pid = child.id();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (mut events, mut then) = (Vec::new(), Some(then));
    while let Some(Ok(line)) = lines.next() {
        events.push(serde_json::from_str::<Value>(&line).unwrap());
        let begun = |number: u64| events.iter().any(|e| e["event"] == "interval" && e["run"] == number);
        if (0..directions).all(begun)
            && let Some(then) = then.take()
        {
            then(pid);
        }
    }
    let output = child.wait_with_output().unwrap();
    (output.status.code(), events, text(&output.stderr))
}

/// Sends a signal to a process of this test.
pub fn kill(signal: &str, pid: u32) {
    assert!(Command::new("kill").args(["-s", signal, &pid.to_string()]).status().unwrap().success());
}
