//! Failures of ssh before the server announced itself: standard error becomes one line and a hint.

use lfn_core::link::settings::nearest_word;

use crate::exit::Failure;
use crate::remote::SavedHosts;

/// Maximum length of standard error that is kept, bytes. The end is kept.
const MAX_STDERR: usize = 4096;

/// Exit code of ssh if it ran no command (ssh(1)).
const SSH_ERROR: i32 = 255;

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

/// Explains the failure from the exit code and standard error. `ssh` is the ssh command that ran, `remote` the command
/// on the remote host.
pub(super) fn ssh_failure(host: &str, ssh: &str, remote: &str, code: Option<i32>, stderr: &str) -> Failure {
    if let Some(failure) = remote_lfn_failure(host, stderr) {
        return failure;
    }
    let last = stderr.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    if code == Some(127) || last.to_lowercase().contains("command not found") {
        return Failure::msg(format!("{host}: '{remote}' is not installed on that host, or not in the user's PATH"))
            .hint("copy the binary to that host and give its path: --remote-lfn PATH");
    }
    if code == Some(126) {
        return Failure::msg(format!("{host}: '{remote}' cannot run on that host: {last}"))
            .hint("check the architecture and the permissions of the binary, or use another one: --remote-lfn PATH");
    }
    if last.contains("Could not resolve hostname") {
        let reason = last.rsplit(": ").next().unwrap_or(last);
        return Failure::msg(format!(
            "unknown host '{host}': no ticket is saved under that name, and ssh cannot resolve it: {reason}"
        ))
        .hint(unknown_host_hint(host));
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
        (_, "") => format!("'{remote}' exited on that host without announcing its port"),
        (_, last) => format!("'{remote}' failed on that host: {last}"),
    };
    Failure::msg(format!("{host}: {what}")).hint(hint)
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
fn remote_lfn_failure(host: &str, stderr: &str) -> Option<Failure> {
    let mut lines = stderr.lines().skip_while(|line| !line.starts_with("lfn: "));
    let what = lines.next()?.strip_prefix("lfn: ")?;
    let failure = Failure::msg(format!("{host}: {what}"));
    if what.contains("--stdio") {
        return Some(failure.hint("install the same version on both hosts; `lfn --version` prints it"));
    }
    Some(match lines.next().and_then(|line| line.strip_prefix("hint: ")) {
        Some(hint) => failure.hint(hint),
        None => failure,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_failure(code: i32, stderr: &str, line: &str, hint: &str) {
        let (text, hinted) = ssh_failure("far", "ssh -p 2222", "lfn", Some(code), stderr).lines();
        assert!(text.contains(line), "{text}");
        assert!(hinted.as_deref().unwrap_or_default().contains(hint), "{hinted:?}");
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
