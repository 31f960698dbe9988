//! Documents of all commands, validated with the schemas in `doc/schema`. The tests of `lfn test`, of copies and of
//! emulations validate their documents themselves.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::support::schema::check_document;
use crate::support::server::Server;
use crate::support::{lfn, stderr, stdout};

/// Returns the document of a command that must exit with this code, after a check with its schema.
#[track_caller]
fn document(words: &[&str], home: &str, code: i32) -> Value {
    let output = lfn().args(words).env("HOME", home).env_remove("XDG_CONFIG_HOME").output().unwrap();
    assert_eq!(output.status.code(), Some(code), "{words:?}: {}", stderr(&output));
    let document = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{words:?}: {error}: {}", stdout(&output)));
    check_document(&document).unwrap_or_else(|fault| panic!("{words:?}: {fault}"));
    document
}

#[test]
fn every_command_prints_a_document_of_its_schema() {
    let home = tempfile::tempdir().unwrap();
    let root = home.path().to_str().unwrap();
    let run = |line: &str| document(&line.split(' ').collect::<Vec<_>>(), root, 0);
    let route = document(
        &["plan", "--link", "oc3c-atm", "--from", "40,-105", "--to", "40,-83", "--via", "geo:-100", "--json"],
        root,
        0,
    );
    assert!(route["route"]["elevation_degrees"].is_array(), "{route}");
    run("plan --rate 10gbit --rtt 150ms --size 2TB --queue 1bdp --loss 1e-5 --for-other-host --json");
    run("version --json");
    run("defaults --json");
    run("emulate --list --json");
    run("emulate --rtt 1ms --rate 1mbit --loss 1e-3 --dry-run --size 1MB --json");
    run("emulate --profile acts --dry-run --size 1MB --streams 4 --json");
    let ticket = run("token add field --rights read,test --rate 1gbit --expires 12h --json");
    run(&format!("hosts add far1 {} --json", ticket["ticket"].as_str().unwrap()));
    run("hosts list --json");
    run("hosts remove far1 --json");
    run("token list --json");
    run("token revoke field --json");
    fs::write(home.path().join("manifest"), format!("{}  missing\n", "0".repeat(64))).unwrap();
    let manifest = home.path().join("manifest");
    let checked = document(&["verify", manifest.to_str().unwrap(), root, "--unlisted", "--json"], root, 1);
    assert_eq!(checked["differences"][0]["status"], "missing", "{checked}");
    document(&["copy", "--clean", root, "--json"], root, 0);
    document(&["show", "/nonexistent", "--json"], root, 1);
}

#[test]
fn started_server_prints_a_document_of_its_schema() {
    let mut command = lfn();
    command.args(["serve", "--ephemeral", "--json", "--port", "0", "--bind", "127.0.0.1"]);
    command.args(["--iperf3=0", "--metrics", "127.0.0.1:0", "--stamp=0"]);
    let mut server = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let _ = server.kill();
    let _ = server.wait();
    let document: Value = serde_json::from_str(&line).unwrap();
    assert!(document["iperf3"].is_string() && document["stamp"].is_string(), "{document}");
    check_document(&document).unwrap();
}

#[test]
fn server_over_ssh_announces_itself_by_its_schema() {
    let mut command = lfn();
    command.args(["serve", "--stdio", "--bind", "127.0.0.1"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut server = command.stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    drop(server.stdin.take());
    let _ = server.wait();
    check_document(&serde_json::from_str(&line).unwrap()).unwrap();
}

#[test]
fn mismatch_names_the_document_and_the_field() {
    let mut plan = document(&["plan", "--rate", "1gbit", "--rtt", "70ms", "--json"], "/nonexistent", 0);
    plan["streams"] = json!("four");
    let fault = check_document(&plan).unwrap_err();
    assert!(fault.contains("lfn.plan.2") && fault.contains("/streams"), "{fault}");
    plan["streams"] = json!(4);
    plan["goodput_megabits"] = json!(1);
    let fault = check_document(&plan).unwrap_err();
    assert!(fault.contains("lfn.plan.2") && fault.contains("goodput_megabits"), "{fault}");
    let server = Server::start(&[]);
    let mut test = server.document(&["--time", "50ms"]);
    test["runs"][0]["bytes"] = Value::Null;
    let fault = check_document(&test).unwrap_err();
    assert!(fault.contains("lfn.test.3") && fault.contains("/runs/0/bytes"), "{fault}");
    assert!(check_document(&json!({ "schema": "lfn.nosuch/1" })).unwrap_err().contains("lfn.nosuch.1"));
}
