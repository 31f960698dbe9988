//! First output of the server: the ticket for scripts, and the command for the other host.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::Value;

use crate::support;
use crate::support::server::text;

/// Starts a server, stops it after its first line, and returns both outputs.
fn announce(flags: &[&str]) -> (String, String) {
    let mut command = support::lfn();
    command.args(["serve", "--ephemeral", "--port", "0"]).args(flags);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    support::server::kill("TERM", child.id());
    (line.trim().to_owned(), text(&child.wait_with_output().unwrap().stderr))
}

#[test]
fn server_prints_the_command_for_the_other_host() {
    let (ticket, messages) = announce(&["--ticket-host", "far.example"]);
    assert!(ticket.starts_with("lfn://") && ticket.contains("@far.example:"), "{ticket}");
    assert!(messages.contains("lfn: listening on ") && messages.contains("addresses of this host"), "{messages}");
    assert!(messages.contains("lfn: on the other host run: lfn test TICKET"), "{messages}");
    // A log may be readable for others.
    let secret = ticket["lfn://".len()..].split('@').next().unwrap();
    assert!(!messages.contains(secret), "{messages}");
}

#[test]
fn ticket_has_an_address_and_no_bare_name() {
    let (line, _) = announce(&["--json"]);
    let object: Value = serde_json::from_str(&line).unwrap();
    let ticket = object["ticket"].as_str().unwrap();
    assert_eq!(object["command"], format!("lfn test '{ticket}'"));
    let host = ticket.split('@').nth(1).unwrap().rsplit_once(':').unwrap().0;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    assert!(host.parse::<std::net::IpAddr>().is_ok(), "{ticket}");
    assert!(object["other_addresses"].is_array(), "{line}");
}

#[test]
fn loopback_server_is_only_for_this_host() {
    let (ticket, messages) = announce(&["--bind", "127.0.0.1"]);
    assert!(ticket.contains("@127.0.0.1:"), "{ticket}");
    assert!(messages.contains("(only this host can connect)") && messages.contains("on this host run: "), "{messages}");
    let (_, messages) = announce(&["--bind", "127.0.0.1", "--insecure"]);
    assert!(messages.contains("on this host run: lfn test --insecure 127.0.0.1:"), "{messages}");
}

#[test]
fn quiet_server_prints_only_its_ticket() {
    let (ticket, messages) = announce(&["--quiet"]);
    assert!(ticket.starts_with("lfn://") && messages.is_empty(), "{messages}");
    let (_, messages) = announce(&["--log-format", "json"]);
    assert!(messages.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{messages}");
}
