//! What ssh itself would make of a name: the host it leads to, and what its user has set for it (`ssh -G`).

use std::process::{Command, Stdio};

/// Of that, what matters here.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SshConfig {
    /// The host that the name leads to.
    pub host: Option<String>,
    /// Where connections share one, if the user has them do so.
    pub control_path: Option<String>,
    /// Whether the user has said how long a connection may take.
    pub has_timeout: bool,
    /// Whether ssh looks whether its connection is alive.
    pub looks: bool,
}

impl SshConfig {
    /// Asks ssh; of one that does not say, nothing is known.
    pub fn of(words: &[String], host: &str) -> Self {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).arg("-G").arg(host).stdin(Stdio::null()).stderr(Stdio::null());
        let output = command.output().ok().filter(|output| output.status.success());
        output.map(|output| Self::parse(&String::from_utf8_lossy(&output.stdout))).unwrap_or_default()
    }

    fn parse(text: &str) -> Self {
        let value = |key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
            line.filter(|value| !matches!(*value, "" | "none" | "no" | "false")).map(str::to_owned)
        };
        let shared = value("controlmaster").is_some();
        SshConfig {
            host: value("hostname"),
            control_path: value("controlpath").filter(|_| shared),
            has_timeout: value("connecttimeout").is_some(),
            looks: value("serveraliveinterval").is_some_and(|seconds| seconds != "0"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ssh_says_is_read() {
        let read = SshConfig::parse("user me\nhostname far.example\nconnecttimeout none\ncontrolmaster false\n");
        assert_eq!(read, SshConfig { host: Some("far.example".into()), ..SshConfig::default() });
        let read = SshConfig::parse("hostname h\ncontrolmaster auto\ncontrolpath /run/c\nconnecttimeout 5\n");
        let path = Some("/run/c".to_owned());
        assert_eq!(read, SshConfig { host: Some("h".into()), control_path: path, has_timeout: true, looks: false });
        assert!(
            SshConfig::parse("serveraliveinterval 60\n").looks && !SshConfig::parse("serveraliveinterval 0\n").looks
        );
        assert_eq!(SshConfig::parse("controlpath /run/c\ncontrolmaster no"), SshConfig::default());
    }
}
