//! `lfn trace` of a Multipath TCP connection of the kernel: its subflows on two links are shown together.

use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::time::Duration;

use lfn_sys::namespace::NetNamespace;
use serde_json::Value;
use socket2::{Domain, Protocol, Socket, Type};

use crate::support;
use crate::support::harness::{Needs, Test, Weight, tests_of};
use crate::support::schema::check_document;
use crate::support::server::{number, text};
use crate::support::skip::{Missing, skip};
use crate::support::{run_scenario, sandbox};

/// Name of this module in the names of its tests and roles.
const MODULE: &str = "trace_mptcp";
/// Address of the far side on the first link.
const FAR: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 2);
/// Bytes of the transfer.
const PAYLOAD: u64 = 3_000_000;

/// Runs this program as a part of a test.
pub fn act(role: &str) {
    match role {
        "subflows" => subflows(),
        other => panic!("no role '{other}'"),
    }
}

pub fn tests() -> Vec<Test> {
    let scenario = || run_scenario(MODULE, "subflows");
    tests_of(
        MODULE,
        Weight::Waiting,
        &[("kernel_subflows_are_one_mptcp_connection", Needs::Programs(&["ip"]), scenario)],
    )
}

/// Connects two namespaces with two links, and lets the kernel add a subflow on the second link.
fn connect() -> NetNamespace {
    let (near, far) = (NetNamespace::current().unwrap(), NetNamespace::new().unwrap());
    far.run(|| sandbox::up("lo")).unwrap();
    for number in [1, 2] {
        let (here, there) = (format!("n{number}"), format!("f{number}"));
        sandbox::join(&here, &far, &there, number);
        sandbox::address(&near, &here, [10, 0, number, 1]);
        sandbox::address(&far, &there, [10, 0, number, 2]);
    }
    let mptcp = |words: &[&str]| Command::new("ip").arg("mptcp").args(words).status().unwrap().success();
    assert!(mptcp(&["endpoint", "add", "10.0.2.1", "dev", "n2", "subflow"]));
    assert!(mptcp(&["limits", "set", "subflow", "2"]));
    assert!(far.run(|| mptcp(&["limits", "set", "subflow", "2"])).unwrap());
    far
}

/// Sends the payload over Multipath TCP to the far side. The kernel adds the second subflow during the pause.
fn transfer(far: &NetNamespace) {
    let mptcp = || Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)).unwrap();
    let address = SocketAddr::from((FAR, 5001)).into();
    let listener = far.run(mptcp).unwrap();
    listener.bind(&address).unwrap();
    listener.listen(1).unwrap();
    let receiver = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        std::io::copy(&mut socket, &mut std::io::sink()).unwrap()
    });
    let mut sender = mptcp();
    sender.connect(&address).unwrap();
    sender.write_all(&[7; 100_000]).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    sender.write_all(&vec![7; PAYLOAD as usize - 100_000]).unwrap();
    drop(sender);
    assert_eq!(receiver.join().unwrap(), PAYLOAD);
}

fn subflows() {
    sandbox::enter();
    if !fs::read_to_string("/proc/sys/net/mptcp/enabled").is_ok_and(|text| text.trim() == "1") {
        return skip("kernel_subflows_are_one_mptcp_connection", &Missing::Feature("Multipath TCP"));
    }
    sandbox::up("lo");
    let far = connect();
    let home = tempfile::tempdir().unwrap();
    let report = home.path().join("trace.json");
    let mut live = support::lfn();
    live.args(["trace", "--live", "any", "--time", "4s", "--report"]).arg(&report);
    let live = live.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(1));
    transfer(&far);
    let output = live.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let document: Value = serde_json::from_slice(&fs::read(&report).unwrap()).unwrap();
    check_document(&document).unwrap();

    let [mptcp] = &document["mptcp_connections"].as_array().unwrap()[..] else { panic!("{document}") };
    assert_eq!((&mptcp["version"], &mptcp["subflows"]), (&1.into(), &2.into()), "{mptcp}");
    let numbers: Vec<u64> = mptcp["connections"].as_array().unwrap().iter().map(number).collect();
    let connections = document["connections"].as_array().unwrap().iter();
    let subflows: Vec<&Value> = connections.filter(|one| numbers.contains(&number(&one["number"]))).collect();
    let place = |subflow: &Value| {
        let client = subflow["client"].as_str().unwrap().rsplit_once(':').unwrap().0.to_owned();
        (client, subflow["mptcp"]["is_joined"].as_bool().unwrap(), subflow["mptcp"]["token"].clone())
    };
    let mut places: Vec<_> = subflows.iter().map(|subflow| place(subflow)).collect();
    places.sort_by_key(|(client, ..)| client.clone());
    let token = &mptcp["server_token"];
    assert_eq!(places, [("10.0.1.1".into(), false, token.clone()), ("10.0.2.1".into(), true, token.clone())]);
    // The whole load, on whichever subflow the kernel sent it.
    let payload: u64 = subflows.iter().map(|one| number(&one["evidence"]["payload_bytes"])).sum();
    assert_eq!(number(&mptcp["payload_bytes"]), payload);
    assert!(payload >= PAYLOAD, "{mptcp}");

    let page = text(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    let token = token.as_str().unwrap();
    let heading = page.find(&format!("MPTCP connection 1 (token {token}): 2 subflows, goodput")).unwrap();
    let [first, second] = ["(subflow 1 of MPTCP connection 1)", "(subflow 2 of MPTCP connection 1, joined)"]
        .map(|label| page.find(label).unwrap_or_else(|| panic!("no '{label}': {page}")));
    assert!(heading < first && first < second, "{page}");
    assert_eq!(page[heading..second].matches("goodput").count(), 2, "no other connection between them: {page}");
}
