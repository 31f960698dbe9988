//! Failures of ssh before the server announced itself: standard error becomes one line and a hint.

use std::time::Duration;
use std::{fmt, io};

use lfn_link::settings::nearest_word;
use lfn_session::SessionError;

use crate::error_kind::ErrorKind;
use crate::hosts::{HostError, SavedHosts};

/// Maximum length of standard error that is kept, bytes. The end is kept.
const MAX_STDERR: usize = 4096;

/// Exit code of ssh if it ran no command (ssh(1)).
const SSH_ERROR: i32 = 255;

const PORTS_HINT: &str = "open a range of ports in the firewall of that host and use it: --ssh-ports 7400-7409";
const SAME_VERSION_HINT: &str = "install the same version on both hosts; `lfn --version` prints it";

/// Reasons why a server was not found, or not started over ssh.
#[derive(Debug, thiserror::Error)]
pub enum SshError {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error("--ssh '{0}': empty command or unclosed quote")]
    BadCommand(String),
    /// The host would be an option of ssh, or is no host.
    #[error("'{host}': {reason}")]
    BadHost { host: String, reason: &'static str },
    #[error("{host}: cannot start {program}: {source}")]
    Start { host: String, program: String, source: io::Error },
    #[error("cannot start lfn serve: {0}")]
    StartLocal(io::Error),
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    #[error("{host}: no answer over ssh within {timeout:?}")]
    NoAnswer { host: String, ssh: String, timeout: Duration },
    #[error("{host}: its lfn uses {theirs}, this host uses {ours}")]
    OtherVersion { host: String, theirs: String, ours: &'static str },
    /// The load of a test must not go through ssh.
    #[error("{host}: cannot reach port {port}: {source}; a test through ssh would measure ssh, not the path")]
    BlockedTest { host: String, port: u16, source: io::Error },
    #[error("{host}: cannot reach port {port}: {source}; ssh port forwarding is refused too")]
    BlockedPort { host: String, port: u16, source: io::Error },
    #[error("interrupted")]
    Interrupted,
    /// ssh or the remote lfn ended before the announcement.
    #[error(transparent)]
    Ended(#[from] SshExit),
}

/// End of ssh before the server announced itself.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub struct SshExit {
    line: String,
    hint: Option<String>,
}

impl fmt::Display for SshExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}

impl SshError {
    /// Returns one action that may fix the error, if there is one.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            SshError::Host(error) => return error.hint(),
            SshError::Session(error) => return error.hint(),
            SshError::Ended(ended) => return ended.hint.clone(),
            SshError::Interrupted | SshError::StartLocal(_) | SshError::Thread(_) => return None,
            SshError::BadCommand(_) => "--ssh 'ssh -p 2222'".to_owned(),
            SshError::BadHost { .. } => "write USER@HOST:PATH, as for scp".to_owned(),
            SshError::Start { .. } => "install the OpenSSH client, or use another program: --ssh COMMAND".to_owned(),
            SshError::NoAnswer { host, ssh, .. } => format!("check that this command works: {ssh} {host} true"),
            SshError::OtherVersion { .. } => SAME_VERSION_HINT.to_owned(),
            SshError::BlockedTest { .. } | SshError::BlockedPort { .. } => PORTS_HINT.to_owned(),
        })
    }

    /// Returns the kind of the error, which decides the exit code of a command.
    pub fn kind(&self) -> ErrorKind {
        match self {
            SshError::Host(error) => error.kind(),
            SshError::BadCommand(_) | SshError::BadHost { .. } => ErrorKind::Usage,
            SshError::Interrupted => ErrorKind::Interrupted,
            _ => ErrorKind::Failed,
        }
    }
}

impl SshExit {
    fn new(line: String, hint: impl Into<String>) -> Self {
        SshExit { line, hint: Some(hint.into()) }
    }

    /// Explains the end from the exit code and standard error. `ssh` is the ssh command that ran, `remote` the command
    /// on the remote host.
    pub(super) fn explain(host: &str, ssh: &str, remote: &str, code: Option<i32>, stderr: &str) -> Self {
        if let Some(ended) = remote_lfn_error(host, stderr) {
            return ended;
        }
        let last = stderr.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
        if code == Some(127) || last.to_lowercase().contains("command not found") {
            return SshExit::new(
                format!("{host}: '{remote}' is not installed on that host, or not in the user's PATH"),
                "copy the binary to that host and give its path: --remote-lfn PATH",
            );
        }
        if code == Some(126) {
            return SshExit::new(
                format!("{host}: '{remote}' cannot run on that host: {last}"),
                "check the architecture and the permissions of the binary, or use another one: --remote-lfn PATH",
            );
        }
        if last.contains("Could not resolve hostname") {
            let reason = last.rsplit(": ").next().unwrap_or(last);
            let line = format!(
                "unknown host '{host}': no ticket is saved under that name, and ssh cannot resolve it: {reason}"
            );
            return SshExit::new(line, unknown_host_hint(host));
        }
        let hint = match last {
            last if last.contains("Host key verification failed") => {
                format!("run `{ssh} {host} true` and compare the host key; stop if it is not the key of that host")
            }
            last if last.contains("Permission denied") => format!("check that this login works: {ssh} {host} true"),
            _ => format!("check that this command works: {ssh} {host} {remote} --version"),
        };
        let what = match (code, last) {
            (Some(SSH_ERROR), "") => "ssh failed without an error message".to_owned(),
            (Some(SSH_ERROR), last) => {
                last.strip_prefix("ssh: ").map_or(format!("ssh: {last}"), |last| format!("ssh: {last}"))
            }
            // The files of the login shell can print errors too.
            (Some(0), _) | (_, "") => format!("'{remote}' exited on that host without announcing its port"),
            (_, last) => format!("'{remote}' failed on that host: {last}"),
        };
        SshExit::new(format!("{host}: {what}"), hint)
    }
}

/// Appends a line and drops the oldest text beyond the maximum.
pub(super) fn append_line(stderr: &mut String, line: &[u8]) {
    let line: String = String::from_utf8_lossy(line).chars().take(512).collect();
    stderr.push_str(line.trim_end());
    stderr.push('\n');
    if stderr.len() > MAX_STDERR {
        let cut = stderr.len() - MAX_STDERR;
        let at = stderr[..].char_indices().map(|(at, _)| at).find(|at| *at >= cut).unwrap_or(stderr.len());
        stderr.drain(..at);
    }
}

/// Suggests a saved name with almost the same spelling, or how to save one.
fn unknown_host_hint(host: &str) -> String {
    let name = host.rsplit('@').next().unwrap_or(host);
    let saved = SavedHosts::load().unwrap_or_default();
    match nearest_word(name, saved.iter().map(|(name, _)| name)) {
        Some(near) => format!("did you mean the saved name {near}?"),
        None => {
            format!(
                "check the spelling, or run `lfn serve` on that host and save its ticket: lfn hosts add {name} TICKET"
            )
        }
    }
}

/// Extracts the error of the remote lfn, and its hint if there is one.
fn remote_lfn_error(host: &str, stderr: &str) -> Option<SshExit> {
    let mut lines = stderr.lines().skip_while(|line| !line.starts_with("lfn: "));
    let what = lines.next()?.strip_prefix("lfn: ")?;
    let hint = lines.next().and_then(|line| line.strip_prefix("hint: "));
    let hint = if what.contains("--stdio") { Some(SAME_VERSION_HINT) } else { hint };
    Some(SshExit { line: format!("{host}: {what}"), hint: hint.map(str::to_owned) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_failure(code: i32, stderr: &str, line: &str, hint: &str) {
        let ended = SshExit::explain("far", "ssh -p 2222", "lfn", Some(code), stderr);
        assert!(ended.line.contains(line), "{}", ended.line);
        assert!(ended.hint.as_deref().unwrap_or_default().contains(hint), "{:?}", ended.hint);
    }

    #[test]
    fn each_failure_has_a_line_and_a_hint() {
        assert_failure(
            127,
            "bash: line 1: lfn: command not found\n",
            "'lfn' is not installed on that host",
            "--remote-lfn",
        );
        assert_failure(1, "lfn: Command not found.\n", "Command not found", "");
        assert_failure(126, "bash: /x: Permission denied\n", "cannot run on that host", "--remote-lfn");
        assert_failure(
            255,
            "@@@\nHost key verification failed.\n",
            "far: ssh: Host key verification failed.",
            "ssh -p 2222 far true",
        );
        assert_failure(
            255,
            "me@far: Permission denied (publickey).\n",
            "Permission denied (publickey)",
            "check that this login works",
        );
        assert_failure(255, "ssh: Could not resolve hostname far: x\n", "unknown host 'far'", "lfn hosts add far");
        assert_failure(
            255,
            "ssh: connect to host far port 22: Connection refused\n",
            "far: ssh: connect to",
            "ssh -p 2222 far",
        );
        assert_failure(255, "", "without an error message", "ssh -p 2222 far");
        assert_failure(2, "lfn: unexpected argument '--stdio' found\nhint: x\n", "--stdio", "same version");
        assert_failure(1, "banner\nlfn: cannot listen on x\nhint: do y\n", "far: cannot listen on x", "do y");
        assert_failure(0, "", "exited on that host without announcing", "ssh -p 2222 far lfn --version");
        assert_failure(0, "tool: cannot write x\n", "exited on that host without announcing", "lfn --version");
    }

    #[test]
    fn stderr_keeps_only_its_end() {
        let mut stderr = String::new();
        for number in 0..2000 {
            append_line(&mut stderr, format!("line {number} \u{e9}\u{ff}").as_bytes());
        }
        append_line(&mut stderr, &[b'x'; 100_000]);
        assert!(stderr.len() <= MAX_STDERR && stderr.ends_with("xxx\n") && stderr.contains("line 1999"), "{stderr}");
    }
}
