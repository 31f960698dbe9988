//! Data connections next to ssh, through ssh, and over a shared connection, and `lfn test` over them.

use std::fs;
use std::net::TcpListener;
use std::process::Command;

use serde_json::Value;

use super::Host;
use crate::copy::{report_of, write};
use crate::support::lfn;
use crate::support::server::text;

#[test]
fn data_goes_through_ssh_behind_a_firewall() {
    let Some(host) = Host::new("data_goes_through_ssh_behind_a_firewall") else { return };
    let content = write(&host.path("near/a"), 2_000_003);
    // sshd reports the address at which it was reached. Without this variable the client knows no address.
    let unknown = format!("env -u SSH_CONNECTION {}", host.path("bin/lfn").display());
    let output = host.copy(&["a", "walled:a", "--remote-lfn", &unknown]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("the data go through ssh"), "{}", text(&output.stderr));
    assert_eq!(fs::read(host.path("far/a")).unwrap(), content);
    // With the variable, the client tries this address.
    let output = host.copy(&["walled:a", "b"]);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    assert_eq!(fs::read(host.path("near/b")).unwrap(), content);
    host.leaves_nothing();
}

/// A shared connection outlives the copy unchanged, whether the configuration or an argument shares it.
#[test]
fn shared_ssh_connection_is_used_and_kept() {
    let Some(host) = Host::new("shared_ssh_connection_is_used_and_kept") else { return };
    let content = write(&host.path("near/a"), 100_000);
    let shared = format!("-F '{}' -S '{}'", host.path("config").display(), host.path("run/master").display());
    let ssh = |words: &str| Command::new("sh").args(["-c", &format!("exec ssh {shared} {words}")]).output().unwrap();
    assert!(ssh("-M -N -f walled > /dev/null 2>&1").status.success());
    // The output is "Master running (pid=N)".
    let said = text(&ssh("-O check walled").stderr);
    let master = said.split_once("pid=").unwrap().1.split_once(')').unwrap().0.parse().unwrap();
    let unknown = format!("env -u SSH_CONNECTION {}", host.path("bin/lfn").display());
    for (more, name) in [("", "a"), (" -o ControlMaster=auto", "b")] {
        let place = format!("walled:{name}");
        let output = host.copy(&["a", &place, "--ssh", &format!("ssh {shared}{more}"), "--remote-lfn", &unknown]);
        assert!(text(&output.stderr).contains("the data go through ssh"), "{}", text(&output.stderr));
        assert_eq!(fs::read(host.path("far").join(name)).unwrap(), content);
        assert_eq!(listening(master), 0);
    }
    assert!(ssh("-O exit walled").status.success());
}

#[test]
fn ssh_server_listens_on_the_given_ports() {
    let Some(host) = Host::new("ssh_server_listens_on_the_given_ports") else { return };
    let free = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let noted = host.noted("noted", "");
    let ports = format!("{free}-{}", free.saturating_add(20));
    host.copies(&["there:zero:10", "null:", "--ssh-ports", &ports, "--remote-lfn", &noted]);
    let said = fs::read_to_string(format!("{noted}.said")).unwrap();
    let line: Value = serde_json::from_str(&said).unwrap();
    let port = line["port"].as_u64().unwrap();
    assert!((u64::from(free)..=u64::from(free) + 20).contains(&port), "{said}");
}

#[test]
fn path_is_tested_over_ssh() {
    let Some(host) = Host::new("path_is_tested_over_ssh") else { return };
    let user = text(&Command::new("id").arg("-un").output().unwrap().stdout);
    let named = format!("{}@there", user.trim());
    for (args, directions) in [
        (&["there", "--count", "200"][..], &["forward"][..]),
        (&[&named, "--count", "200", "--reverse", "--remote-lfn", "lfn"], &["reverse"]),
        (&["there", "--count", "200", "--both"], &["forward", "reverse"]),
        (&["there", "-t", "300ms", "--bidir"], &["forward", "reverse"]),
        (&["there", "-t", "300ms", "--udp"], &["forward"]),
    ] {
        let output = host.test(&[args, &["--json"]].concat());
        let result = report_of(args, &output);
        assert!(output.stderr.is_empty(), "{args:?}: {}", text(&output.stderr));
        let runs: Vec<_> = result["runs"].as_array().unwrap().iter().map(|run| &run["direction"]).collect();
        assert_eq!(runs, directions, "{args:?}");
        assert_eq!(result["origin"]["hosts"]["far"], args[0], "{args:?}");
    }
    host.leaves_nothing();
}

#[test]
fn test_over_ssh_fails_with_a_clear_error() {
    let Some(host) = Host::new("test_over_ssh_fails_with_a_clear_error") else { return };
    // The result of a test through ssh would be about ssh.
    let unknown = format!("env -u SSH_CONNECTION {}", host.path("bin/lfn").display());
    let walled = ["walled", "--remote-lfn", &unknown];
    host.refuses_test(&walled, 1, "would measure ssh, not the path", "--ssh-ports 7400-7409");
    let none = ["there", "--remote-lfn", "no-such-lfn"];
    host.refuses_test(&none, 1, "'no-such-lfn' is not installed on that host", "--remote-lfn PATH");
    host.refuses_test(
        &["me@no-such-host.invalid"],
        1,
        "unknown host 'me@no-such-host.invalid'",
        "lfn hosts add no-such",
    );
    host.refuses_test(&["there:7323"], 1, "a host for ssh has no port", "lfn test there");
    host.refuses_test(&["localhost"], 1, "no ticket is saved for 'localhost'", "lfn test --insecure localhost");
    host.refuses_test(&["-oProxyCommand=x"], 2, "", "");
    // A misspelt saved name is suggested.
    let mut add = lfn();
    let ticket = format!("lfn://{}@192.0.2.1:7323#{}", "A".repeat(22), "A".repeat(43));
    add.args(["hosts", "add", "near1.invalid", &ticket]).env("HOME", host.home.path()).env_remove("XDG_CONFIG_HOME");
    assert!(add.status().unwrap().success());
    host.refuses_test(
        &["naer1.invalid"],
        1,
        "unknown host 'naer1.invalid'",
        "did you mean the saved name near1.invalid?",
    );
    host.leaves_nothing();
}

/// Returns the number of ports on which a process listens.
fn listening(pid: u32) -> usize {
    let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten().flat_map(|fd| fs::read_link(fd.path()));
    let open: Vec<_> = open.map(|file| file.display().to_string()).collect();
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| fs::read_to_string(table).unwrap_or_default());
    let lines = tables.iter().flat_map(|table| table.lines()).map(|line| line.split_whitespace().collect::<Vec<_>>());
    // State 0A is TCP_LISTEN; the last column is the socket's inode.
    lines.filter(|line| line[3] == "0A" && open.contains(&format!("socket:[{}]", line[9]))).count()
}
