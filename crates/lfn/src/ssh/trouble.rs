//! Why ssh ended without a word of the far end: what it said itself, made one line and a hint.

use crate::exit::Failure;

/// How much of what was said is kept: the last of it.
const MOST_KEPT: usize = 4096;

/// ssh's own exit code where it came to no command at all (ssh(1)).
const OWN: i32 = 255;

/// Adds a line to what was said.
pub(super) fn note(said: &mut String, line: &[u8]) {
    let line: String = String::from_utf8_lossy(line).chars().take(512).collect();
    said.push_str(line.trim_end());
    said.push('\n');
    if said.len() > MOST_KEPT {
        let cut = said.len() - MOST_KEPT;
        let at = said[..].char_indices().map(|(at, _)| at).find(|at| *at >= cut).unwrap_or(said.len());
        said.drain(..at);
    }
}

/// What happened, from the exit code and what came on standard error; `ssh` is how ssh was called, `remote` the command
/// that was run there.
pub(super) fn explain(host: &str, (ssh, remote): (&str, &str), code: Option<i32>, said: &str) -> Failure {
    if let Some(failure) = of_lfn(host, said) {
        return failure;
    }
    let last = said.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    if code == Some(127) || last.to_lowercase().contains("command not found") {
        return Failure::msg(format!("{host}: '{remote}' is not installed there, or not in the PATH of that user"))
            .hint("copy the binary there and say where it is: --remote-lfn PATH");
    }
    if code == Some(126) {
        return Failure::msg(format!("{host}: '{remote}' cannot be run there: {last}"))
            .hint("see that it is for that kind of machine and may be executed: --remote-lfn PATH");
    }
    if last.contains("Could not resolve hostname") {
        return Failure::msg(format!(
            "unknown host '{host}': no ticket is saved under that name, and ssh does not know it either: {last}"
        ))
        .hint(format!("run `lfn serve` there and save the ticket it prints: lfn hosts add {host} TICKET"));
    }
    let hint = match last {
        last if last.contains("Host key verification failed") => {
            format!("see what `{ssh} {host} true` says of that key, and do not go on if it is not the host's")
        }
        last if last.contains("Permission denied") => format!("see that `{ssh} {host} true` lets you in"),
        _ => format!("see what `{ssh} {host} {remote} --version` says"),
    };
    let what = match (code, last) {
        (Some(OWN), "") => "ssh failed and does not say why".to_owned(),
        (Some(OWN), last) => last.strip_prefix("ssh: ").map_or(format!("ssh: {last}"), |last| format!("ssh: {last}")),
        (_, "") => format!("'{remote}' ended there without saying where it listens"),
        (_, last) => format!("'{remote}' failed there: {last}"),
    };
    Failure::msg(format!("{host}: {what}")).hint(hint)
}

/// An error of lfn there has its own line, and often its own hint.
fn of_lfn(host: &str, said: &str) -> Option<Failure> {
    let mut lines = said.lines().skip_while(|line| !line.starts_with("lfn: "));
    let what = lines.next()?.strip_prefix("lfn: ")?;
    let failure = Failure::msg(format!("{host}: {what}"));
    if what.contains("--stdio") {
        return Some(failure.hint("use the same version of lfn at both ends: lfn --version"));
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
    fn says(code: i32, said: &str, line: &str, hint: &str) {
        let (text, hinted) = explain("far", ("ssh -p 2222", "lfn"), Some(code), said).words();
        assert!(text.contains(line), "{text}");
        assert!(hinted.as_deref().unwrap_or_default().contains(hint), "{hinted:?}");
    }

    #[test]
    fn each_trouble_has_its_line_and_its_hint() {
        says(127, "bash: line 1: lfn: command not found\n", "'lfn' is not installed there", "--remote-lfn");
        says(1, "lfn: Command not found.\n", "Command not found", "");
        says(126, "bash: /x: Permission denied\n", "cannot be run there", "--remote-lfn");
        says(
            255,
            "@@@\nHost key verification failed.\n",
            "far: ssh: Host key verification failed.",
            "`ssh -p 2222 far true`",
        );
        says(255, "me@far: Permission denied (publickey).\n", "Permission denied (publickey)", "lets you in");
        says(255, "ssh: Could not resolve hostname far: x\n", "unknown host 'far'", "lfn hosts add far");
        says(255, "ssh: connect to host far port 22: Connection refused\n", "far: ssh: connect to", "ssh -p 2222 far");
        says(255, "", "does not say why", "ssh -p 2222 far");
        says(2, "lfn: unexpected argument '--stdio' found\nhint: x\n", "--stdio", "same version");
        says(1, "banner\nlfn: cannot listen on x\nhint: do y\n", "far: cannot listen on x", "do y");
        says(0, "", "ended there without saying", "ssh -p 2222 far lfn --version");
    }

    #[test]
    fn what_is_kept_is_the_end_and_bounded() {
        let mut said = String::new();
        for number in 0..2000 {
            note(&mut said, format!("line {number} \u{e9}\u{ff}").as_bytes());
        }
        note(&mut said, &[b'x'; 100_000]);
        assert!(said.len() <= MOST_KEPT && said.ends_with("xxx\n") && said.contains("line 1999"), "{said}");
    }
}
