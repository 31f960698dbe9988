//! `lfn mesh hub`, `up` and `agent` on loopback, with Debian's prometheus and iperf3.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use lfn_mesh::entry::EntryKind;
use lfn_mesh::sync::{HubConnection, SyncRequest};
use lfn_session::Ticket;
use lfn_session::dial::Target;
use serde_json::Value;

use super::running::{Hub, Process, Up, entries, free_port, has_result, mesh, said};
use crate::support::schema::assert_valid;
use crate::support::server::kill;
use crate::support::skip::skip;
use crate::support::{eventually, lfn, missing_program, path_with_servers, stderr, stdout};

#[test]
fn iperf3_server_is_a_target_and_prometheus_scrapes() {
    const NAME: &str = "iperf3_server_is_a_target_and_prometheus_scrapes";
    if let Some(missing) = missing_program(&["iperf3", "prometheus", "promtool", "curl"]) {
        return skip(NAME, &missing);
    }
    let directory = tempfile::tempdir().unwrap();
    let port = free_port();
    let mut iperf3 = Command::new("iperf3");
    iperf3.args(["-s", "-B", "127.0.0.1", "-p", &port.to_string()]).stdout(Stdio::null()).stderr(Stdio::null());
    let _iperf3 = Process(iperf3.spawn().unwrap());
    let sites = format!(
        "name = \"try\"\n[[site]]\nname = \"near1\"\naddress = \"127.0.0.1\"\n\
         [[site]]\nname = \"far1\"\nhost = [{{ name = \"far1\", address = \"127.0.0.1:{port}\", kind = \"iperf3\", rate = \"100gbit\" }}]\n\
         [[test]]\nname = \"goodput\"\nkind = \"load\"\ninterval = \"30s\"\ntime = \"1s\"\nbytes = \"50MB\"\n\
         [[test]]\nname = \"path\"\nkind = \"path\"\ninterval = \"5s\"\n"
    );
    fs::write(directory.path().join("sites.toml"), sites).unwrap();
    let up = Up::start(directory.path(), &[]);
    let has = |kind, from, to| has_result(directory.path(), kind, from, to);
    let is_complete = || {
        has(EntryKind::Load, "near1", "far1")
            && has(EntryKind::Load, "far1", "near1")
            && has(EntryKind::Path, "near1", "far1")
    };
    assert!(eventually(is_complete) || eventually(is_complete), "{:#?}", entries(directory.path()));
    let load = entries(directory.path()).into_iter().find(|entry| entry.kind == EntryKind::Load).unwrap();
    assert_eq!(load.conditions.get("tool").map(String::as_str), Some("iperf3"));
    assert!(load.bytes.is_some_and(|bytes| bytes.0 <= 51_000_000), "{load:?}");
    let refused = stdout(&up.get("/metrics", "wrong"));
    assert!(refused.starts_with("HTTP/1.1 401"), "{refused}");
    let metrics = stdout(&up.get("/metrics", &up.token));
    assert_conventional(metrics.split_once("\r\n\r\n").unwrap().1);
    assert!(metrics.contains("lfn_mesh_goodput_bits_per_second{from=\"near1\",to=\"far1\"}"), "{metrics}");
    assert_prometheus_scrapes(directory.path(), &up);
}

/// Checks the names and the types of metrics with `promtool check metrics`. Rates are in bit/s, as in all results of lfn.
fn assert_conventional(metrics: &str) {
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).env("PATH", path_with_servers());
    let mut child = promtool.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(metrics.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = stdout(&output) + &stderr(&output);
    let others: Vec<&str> =
        said.lines().filter(|line| !line.ends_with("use base unit \"bytes\" instead of \"bits\"")).collect();
    assert!(others.iter().all(|line| line.is_empty()), "{said}");
}

/// Starts prometheus with the page as its only target, and queries a figure.
fn assert_prometheus_scrapes(directory: &Path, up: &Up) {
    let target = up.page.trim_start_matches("http://").trim_end_matches('/');
    let config = format!(
        "global:\n  scrape_interval: 1s\nscrape_configs:\n- job_name: lfn\n  basic_auth:\n    username: lfn\n    \
         password: {}\n  static_configs:\n  - targets: ['{target}']\n",
        up.token
    );
    fs::write(directory.join("prometheus.yml"), config).unwrap();
    let port = free_port();
    let mut prometheus = Command::new("prometheus");
    prometheus.env("PATH", path_with_servers()).current_dir(directory);
    prometheus.args(["--config.file=prometheus.yml", "--storage.tsdb.path=tsdb", "--log.level=error"]);
    prometheus.arg(format!("--web.listen-address=127.0.0.1:{port}")).stdout(Stdio::null()).stderr(Stdio::null());
    let _prometheus = Process(prometheus.spawn().unwrap());
    let query = "lfn_mesh_goodput_bits_per_second{from=\"near1\",to=\"far1\"}";
    let mut answer = String::new();
    let is_scraped = || {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--get", "--data-urlencode", &format!("query={query}")]);
        let output = curl.arg(format!("http://127.0.0.1:{port}/api/v1/query")).output().unwrap();
        answer = stdout(&output);
        let json: Value = serde_json::from_str(&answer).unwrap_or_default();
        json["data"]["result"][0]["value"][1].as_str().and_then(|value| value.parse::<f64>().ok()) > Some(0.0)
    };
    assert!(eventually(is_scraped), "{answer}");
}

#[test]
fn stopped_agent_prints_its_counts_as_json() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("sites.toml"), "name = \"one\"\n[[site]]\nname = \"a\"\naddress = \"127.0.0.1\"\n")
        .unwrap();
    // The ticket is that of a hub which has stopped.
    drop(Hub::start(directory.path()));
    let ticket = mesh(directory.path(), &["ticket", "sites.toml", "a", "--hub-state", "hub"]).output().unwrap();
    let log = directory.path().join("log");
    let mut command = mesh(directory.path(), &["agent", stdout(&ticket).trim(), "--state", "agent", "--json"]);
    let child = command.stdout(Stdio::piped()).stderr(fs::File::create(&log).unwrap()).spawn().unwrap();
    let mut process = Process(child);
    // The agent listens for signals before it dials the hub, which is away.
    let is_running = eventually(|| fs::read_to_string(&log).unwrap().contains("no exchange with the hub"));
    kill("TERM", process.0.id());
    let mut text = String::new();
    process.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(is_running, "{}", fs::read_to_string(&log).unwrap());
    let document: Value = serde_json::from_str(&text).unwrap();
    assert_valid("lfn.mesh.agent.1", &document);
    assert_eq!((&document["made"], &document["pending"]), (&0.into(), &0.into()));
}

#[test]
fn hub_prints_its_page_and_stops_on_a_signal() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("sites.toml"), "name = \"one\"\n[[site]]\nname = \"a\"\naddress = \"127.0.0.1\"\n")
        .unwrap();
    let Hub { mut process, printed, .. } = Hub::start(directory.path());
    assert!(printed.starts_with("page: http://127.0.0.1:") && printed.contains("password "), "{printed}");
    kill("TERM", process.0.id());
    assert_eq!(process.0.wait().unwrap().code(), Some(0));
}

#[test]
fn tickets_and_backups_have_clear_errors() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("sites.toml"), "name = \"one\"\n[[site]]\nname = \"a\"\naddress = \"127.0.0.1\"\n")
        .unwrap();
    let cases: [(&[&str], i32, &str); 7] = [
        (&["ticket", "sites.toml", "b", "--hub-state", "hub"], 2, "the sites file has no agent host b"),
        (&["ticket", "none.toml", "a"], 2, "cannot read none.toml"),
        (&["ticket", "sites.toml", "a", "--hub-state", "hub"], 1, "no hub has been started with the state in hub"),
        (&["hub", "none.toml"], 2, "cannot read none.toml"),
        (&["agent", "--state", "agent"], 2, "the agent has no ticket of a hub"),
        (&["backup", "copy.sqlite", "--archive", "none.sqlite"], 1, "there is no archive at none.sqlite"),
        (
            &["hub", "sites.toml", "--hub-state", "hub", "--port", "0", "--page", "0.0.0.0:0"],
            1,
            "unencrypted on 0.0.0.0",
        ),
    ];
    for (words, code, says) in cases {
        let output = mesh(directory.path(), words).output().unwrap();
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
        assert!(said.starts_with("lfn: ") && said.contains(says), "{words:?}: {said}");
    }
    let ticket = mesh(directory.path(), &["ticket", "sites.toml", "a", "--hub-state", "hub"]).output().unwrap();
    assert!(stdout(&ticket).starts_with("lfn://"), "{ticket:?}");
}

#[test]
fn a_ticket_saved_while_the_hub_runs_reaches_the_agents() {
    let directory = tempfile::tempdir().unwrap();
    let sites = "name = \"two\"\n[[site]]\nname = \"a\"\naddress = \"127.0.0.1\"\n[[site]]\nname = \"far1\"\n\
                 host = [{ name = \"far1\", address = \"127.0.0.2\", kind = \"serve\" }]\n\
                 [[test]]\nname = \"goodput\"\nkind = \"load\"\ninterval = \"1h\"\n";
    fs::write(directory.path().join("sites.toml"), sites).unwrap();
    let _hub = Hub::start(directory.path());
    let log = said(directory.path());
    let at = log.lines().find_map(|line| line.strip_prefix("hub: listening for agents on ")).unwrap();
    let words = ["ticket", "sites.toml", "a", "--hub-state", "hub", "--ticket-host", at];
    let ticket: Ticket = stdout(&mesh(directory.path(), &words).output().unwrap()).trim().parse().unwrap();
    let mut hub = HubConnection::open(&Target::new(ticket.clone()).unwrap()).unwrap();
    let mut far1 = || hub.exchange(&SyncRequest::default()).unwrap().access.unwrap().access.targets.remove(0).ticket;
    assert_eq!(far1(), None);
    let mut add = lfn();
    add.args(["hosts", "add", "far1", &ticket.to_string()]).env("HOME", directory.path());
    assert!(add.env_remove("XDG_CONFIG_HOME").output().unwrap().status.success());
    let saved = Some(ticket.to_string());
    assert!(eventually(|| far1() == saved));
}
