//! Settings of the user's ssh client for one host, as `ssh -G` prints them.

use std::process::{Command, Stdio};

/// Settings of ssh that matter here.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SshConfig {
    /// Real host name of an alias.
    pub host: Option<String>,
    /// Socket of a shared connection, if the user has ControlMaster enabled.
    pub control_path: Option<String>,
    /// The user has set ConnectTimeout.
    pub has_timeout: bool,
    /// The user has set ServerAliveInterval.
    pub has_keepalive: bool,
}

impl SshConfig {
    /// Runs `ssh -G`. Returns the defaults if ssh reports no settings.
    pub fn query(words: &[String], host: &str) -> Self {
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
            has_keepalive: value("serveraliveinterval").is_some_and(|seconds| seconds != "0"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ssh_settings_are_parsed() {
        let read = SshConfig::parse("user me\nhostname far.example\nconnecttimeout none\ncontrolmaster false\n");
        assert_eq!(read, SshConfig { host: Some("far.example".into()), ..SshConfig::default() });
        let read = SshConfig::parse("hostname h\ncontrolmaster auto\ncontrolpath /run/c\nconnecttimeout 5\n");
        let path = Some("/run/c".to_owned());
        assert_eq!(
            read,
            SshConfig { host: Some("h".into()), control_path: path, has_timeout: true, has_keepalive: false }
        );
        assert!(
            SshConfig::parse("serveraliveinterval 60\n").has_keepalive
                && !SshConfig::parse("serveraliveinterval 0\n").has_keepalive
        );
        assert_eq!(SshConfig::parse("controlpath /run/c\ncontrolmaster no"), SshConfig::default());
    }
}
