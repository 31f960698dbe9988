//! `lfn test --path` and `--stamp` in namespaces: a chain of routers with known addresses and MTUs, compared with
//! Debian's traceroute and tcpdump; black holes; reflectors over a path with delay and loss, and reflectors with
//! invalid answers.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{fs, thread};

use lfn_sys::namespace::NetNamespace;
use serde_json::Value;

use crate::support;
use crate::support::harness::{Needs, Test, Weight, tests_of};
use crate::support::rate::TWO_OF_THREE;
use crate::support::sandbox::{self, Running};
use crate::support::skip::{Missing, skip};
use crate::support::{lfn, run_scenario, stderr, stdout};

/// Name of this module in the names of its tests and roles.
const MODULE: &str = "path";

/// Runs this program as a part of a test.
pub fn act(role: &str) {
    match role {
        "hops" => hops(),
        "mtus" => mtus(),
        "black-hole" => black_hole(),
        other => panic!("no role '{other}'"),
    }
}

pub fn tests() -> Vec<Test> {
    let tools = Needs::Programs(&["ip", "traceroute", "tcpdump", "unshare"]);
    tests_of(
        MODULE,
        Weight::Waiting,
        &[
            ("hops_are_those_of_traceroute_and_of_one_flow", tools, || run_scenario(MODULE, "hops")),
            ("path_mtu_is_found_in_both_directions", Needs::Programs(&["ip"]), || run_scenario(MODULE, "mtus")),
            ("black_hole_is_found_behind_a_silent_hop", Needs::Programs(&["ip", "unshare"]), || {
                run_scenario(MODULE, "black-hole")
            }),
            (
                "stamp_measures_delay_and_loss_per_direction",
                Needs::Namespaces,
                stamp_measures_delay_and_loss_per_direction,
            ),
            ("stamp_with_a_wrong_key_gets_no_answer", Needs::Nothing, stamp_with_a_wrong_key_gets_no_answer),
            ("invalid_stamp_answers_are_not_used", Needs::Nothing, invalid_stamp_answers_are_not_used),
            ("one_way_delays_match_an_asymmetric_path", Needs::Namespaces, one_way_delays_match_an_asymmetric_path),
            ("trace_is_not_counted_as_a_refused_client", Needs::Nothing, trace_is_not_counted_as_a_refused_client),
            ("path_to_iperf3_server_is_traced_by_udp", Needs::Nothing, path_to_iperf3_server_is_traced_by_udp),
            ("unsupported_flags_are_refused", Needs::Nothing, unsupported_flags_are_refused),
        ],
    )
}

/// Near is this namespace. Two routers and far follow: 10.7.1.2, 10.7.1.1, 10.7.2.2, 10.7.3.2, and fd07:N:: in the same
/// way.
struct Chain {
    first: NetNamespace,
    second: NetNamespace,
    far: NetNamespace,
}

const FAR: &str = "10.7.3.2";
const ROUTERS: [&str; 2] = ["10.7.1.1", "10.7.2.2"];

impl Chain {
    fn new() -> Chain {
        sandbox::enter();
        sandbox::up("lo");
        let new = || NetNamespace::new().unwrap();
        let chain = Chain { first: new(), second: new(), far: new() };
        sandbox::join("n1", &chain.first, "f1", 1);
        chain.first.run(|| sandbox::join("f2", &chain.second, "s2", 2)).unwrap();
        chain.second.run(|| sandbox::join("s3", &chain.far, "x3", 3)).unwrap();
        let near = NetNamespace::current().unwrap();
        for (place, name, net, host) in [
            (&near, "n1", 1, 2),
            (&chain.first, "f1", 1, 1),
            (&chain.first, "f2", 2, 1),
            (&chain.second, "s2", 2, 2),
            (&chain.second, "s3", 3, 1),
            (&chain.far, "x3", 3, 2),
        ] {
            ip(place, &format!("addr add 10.7.{net}.{host}/24 dev {name}"));
            ip(place, &format!("-6 addr add fd07:{net}::{host}/64 dev {name} nodad"));
        }
        for (place, routes) in [
            (&near, ["default via 10.7.1.1", "default via fd07:1::1"]),
            (&chain.first, ["10.7.3.0/24 via 10.7.2.2", "fd07:3::/64 via fd07:2::2"]),
            (&chain.second, ["10.7.1.0/24 via 10.7.2.1", "fd07:1::/64 via fd07:2::1"]),
            (&chain.far, ["default via 10.7.3.1", "default via fd07:3::1"]),
        ] {
            routes.iter().for_each(|route| ip(place, &format!("route add {route}")));
        }
        for router in [&chain.first, &chain.second] {
            sysctl(router, "ipv4/ip_forward", "1");
            sysctl(router, "ipv6/conf/all/forwarding", "1");
        }
        // Three programs query the same routers in the same second.
        for host in [&chain.first, &chain.second, &chain.far] {
            sysctl(host, "ipv4/icmp_ratelimit", "0");
            sysctl(host, "ipv6/icmp/ratelimit", "0");
        }
        chain
    }

    /// Starts `lfn serve` at the far end.
    fn serve(&self) -> Server {
        let mut command = lfn();
        command.args(["serve", "--ephemeral", "--insecure", "--insecure-anywhere", "--quiet"]);
        Server::new(sandbox::spawn_in(&self.far, command.stdout(Stdio::piped()).stderr(Stdio::null())))
    }
}

fn sysctl(place: &NetNamespace, name: &str, value: &str) {
    let write = || fs::write(Path::new("/proc/sys/net").join(name), value);
    place.run(write).unwrap().unwrap_or_else(|error| panic!("{name}: {error}"));
}

fn ip(place: &NetNamespace, arguments: &str) {
    let status = sandbox::spawn_in(place, Command::new("ip").args(arguments.split(' '))).wait().unwrap();
    assert!(status.success(), "ip {arguments}");
}

struct Server(Child);

impl Server {
    /// The server listens when it has printed its ticket.
    fn new(mut child: Child) -> Server {
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "the server said nothing");
        Server(child)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the path report of `lfn test HOST --path`. With `unshare --user` as `before`, it runs as an ordinary user
/// without rights over this network namespace.
fn path_report(before: &[&str], host: &str) -> Value {
    let flags = ["test", host, "--insecure", "--insecure-anywhere", "--path", "--count", "1", "--json"];
    let output = support::lfn_after(before).args(flags).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let report = document["runs"][0]["path_report"].clone();
    assert_eq!(report.get("troubles"), None, "{report}");
    report
}

/// Returns the addresses of a trace, one per hop, `*` for none.
fn addresses(trace: &Value) -> Vec<&str> {
    let hops = trace["hops"].as_array().unwrap();
    hops.iter().map(|hop| hop["nodes"][0]["address"].as_str().unwrap_or("*")).collect()
}

/// Returns the output of traceroute in the same form.
fn traceroute(flags: &[&str]) -> Vec<String> {
    let output = Command::new("traceroute").args(["-n", "-q", "1"]).args(flags).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let said = stdout(&output);
    said.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1).map(str::to_owned)).collect()
}

fn hops() {
    let chain = Chain::new();
    let _server = chain.serve();
    let tcpdump = capture();
    let report = path_report(&["unshare", "--user"], FAR);
    let [tcp, udp] = &report["traces"].as_array().unwrap()[..] else { panic!("{report}") };
    let seen = tcpdump.map(|mut tcpdump| {
        thread::sleep(Duration::from_millis(200));
        tcpdump.signal("INT");
        tcpdump.stdout()
    });

    for (trace, flags) in [(tcp, &["-T", "-p", "7323", FAR][..]), (udp, &[FAR][..])] {
        assert_eq!(addresses(trace), [ROUTERS[0], ROUTERS[1], FAR], "{trace}");
        assert_eq!(addresses(trace), traceroute(flags), "{flags:?}");
        assert_eq!(trace["end"], "reached");
        if let Some(seen) = &seen {
            assert_eq!(one_flow(trace, seen), sent(trace), "{trace}\n{seen}");
        }
    }
    if let Some(seen) = seen {
        let of_udp = seen.lines().filter(|line| line.contains(".33434: ")).count();
        assert_eq!(of_udp, one_flow(udp, &seen), "datagrams of another flow: {seen}");
    }

    let six = path_report(&[], "[fd07:3::2]");
    for trace in six["traces"].as_array().unwrap() {
        assert_eq!(addresses(trace), ["fd07:1::1", "fd07:2::2", "fd07:3::2"], "{trace}");
    }
    assert_eq!(addresses(&six["traces"][1]), traceroute(&["-6", "fd07:3::2"]));
    assert_eq!(six["mtu"]["forward"]["path_mtu_bytes"], 1500, "{six}");
}

/// Starts tcpdump on near's interface. tcpdump drops its groups before it listens, which a user namespace of an
/// ordinary user forbids.
fn capture() -> Option<Running> {
    if fs::read_to_string("/proc/self/setgroups").unwrap().trim() == "deny" {
        skip(
            "hops_are_those_of_traceroute_and_of_one_flow",
            &Missing::User("root, because tcpdump gives up its groups"),
        );
        return None;
    }
    let filter = "udp dst port 33434 or (tcp dst port 7323 and tcp[tcpflags] == tcp-syn)";
    let mut tcpdump = Command::new("tcpdump");
    tcpdump.args(["-n", "-l", "-tt", "-i", "n1", filter]).stdout(Stdio::piped());
    let mut tcpdump = Running::start(&mut tcpdump);
    tcpdump.says("listening on");
    Some(tcpdump)
}

/// Returns the number of captured packets of a trace's flow.
fn one_flow(trace: &Value, seen: &str) -> usize {
    let end = |which: &str| {
        format!("{}.{}", trace[which].as_str().unwrap(), trace[format!("{which}_port")].as_u64().unwrap())
    };
    let flow = format!("IP {} > {}: ", end("source"), end("destination"));
    seen.lines().filter(|line| line.contains(&flow)).count()
}

/// Returns the number of probes in a trace. Unanswered probes past the destination are not reported.
fn sent(trace: &Value) -> usize {
    trace["hops"].as_array().unwrap().iter().map(|hop| hop["probes"].as_u64().unwrap() as usize).sum()
}

fn mtus() {
    let chain = Chain::new();
    let _server = chain.serve();
    let wide = path_report(&[], FAR);
    for way in ["forward", "reverse"] {
        assert_eq!(wide["mtu"][way]["path_mtu_bytes"], 1500, "{wide}");
        assert_eq!(wide["mtu"][way]["black_hole"], false);
    }
    assert_eq!(wide["mtu"]["icmp_too_big"], Value::Array(Vec::new()));

    // The MTU of the way there is smaller than that of the way back, at the first and second router.
    ip(&chain.first, "route change 10.7.3.0/24 via 10.7.2.2 mtu lock 1337");
    ip(&chain.second, "route change 10.7.1.0/24 via 10.7.2.1 mtu lock 1444");
    let mtu = path_report(&[], FAR)["mtu"].take();
    for (way, size) in [("forward", 1337), ("reverse", 1444)] {
        assert_eq!(mtu[way]["path_mtu_bytes"], size, "{mtu}");
        assert_eq!(mtu[way]["smallest_lost_bytes"], size + 1, "{mtu}");
        assert_eq!((&mtu[way]["search"], &mtu[way]["black_hole"]), (&"complete".into(), &false.into()), "{mtu}");
    }
    let reported = mtu["icmp_too_big"].as_array().unwrap();
    assert!(reported.iter().any(|t| t["to"] == "near" && t["mtu_bytes"] == 1337 && t["from"] == ROUTERS[0]), "{mtu}");
    assert!(reported.iter().any(|t| t["to"] == "far" && t["mtu_bytes"] == 1444), "{mtu}");
    assert_eq!((&mtu["near_interface_mtu_bytes"], &mtu["far_interface_mtu_bytes"]), (&1500.into(), &1500.into()));
    assert_eq!(mtu["near_tcp_pmtu_bytes"], 1337, "{mtu}");
}

fn black_hole() {
    let chain = Chain::new();
    let _server = chain.serve();
    ip(&chain.first, "route change 10.7.3.0/24 via 10.7.2.2 mtu lock 1337");
    // Drops packets that the router itself sends. Forwarded packets pass.
    ip(&chain.first, "route add blackhole default table 100");
    ip(&chain.first, "rule add iif lo lookup 100 priority 5");
    // The black hole would also drop the load, so one small record is sent.
    let flags = ["test", FAR, "--insecure", "--insecure-anywhere", "--path", "--count", "1", "--length", "100"];
    let begun = Instant::now();
    let output = support::lfn_after(&["unshare", "--user"]).args(flags).arg("--json").output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(begun.elapsed() < Duration::from_secs(60));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let report = &document["runs"][0]["path_report"];
    for trace in report["traces"].as_array().unwrap() {
        assert_eq!(addresses(trace), ["*", ROUTERS[1], FAR], "{trace}");
    }
    let forward = &report["mtu"]["forward"];
    assert_eq!((&forward["path_mtu_bytes"], &forward["black_hole"]), (&1337.into(), &true.into()), "{report}");
    assert_eq!(report["mtu"]["reverse"]["path_mtu_bytes"], 1500, "{report}");
    let text = support::lfn().args(flags).output().unwrap();
    assert!(stdout(&text).contains("black hole near to far: packets above 1337 B are lost"), "{}", stdout(&text));
}

/// Runs `lfn test --stamp` without the user's environment.
fn stamp(flags: &[&str]) -> Output {
    lfn()
        .env("HOME", "/nonexistent")
        .env_remove("XDG_CONFIG_HOME")
        .args(["test", "--stamp"])
        .args(flags)
        .output()
        .unwrap()
}

fn stamp_measures_delay_and_loss_per_direction() {
    let serve = format!(
        "exec '{}' serve --ephemeral --insecure --quiet --stamp=8620 --port 7323",
        support::lfn_path().display()
    );
    let probe = format!(
        "exec '{}' test --stamp far:8620 --stamp-count 300 --stamp-interval 5ms --stamp-size 200 --json",
        support::lfn_path().display()
    );
    let flags = ["emulate", "--rtt", "40ms", "--rate", "100mbit", "--loss", "0.1", "--far-command", &serve];
    let script = format!("sleep 1; {probe}");
    let output = lfn().args(flags).args(["--", "sh", "-c", &script]).output().unwrap();
    assert!(matches!(output.status.code(), Some(0 | 4)), "{}", stderr(&output));
    let said = stdout(&output);
    let json = &said[said.find('{').unwrap()..=said.rfind('}').unwrap()];
    let report: Value = serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {said}"));
    assert_eq!((&report["schema"], &report["sent"]), (&"lfn.stamp/2".into(), &300.into()));
    let count = |name: &str| report[name].as_u64().unwrap_or_else(|| panic!("{name} in {report}"));
    assert_eq!(count("answered") + count("lost"), 300);
    assert_eq!(count("lost_forward") + count("lost_back"), count("lost"));
    // 30 and 27 are expected. Zero has a probability of 1 in 10¹³.
    assert!((1..100).contains(&count("lost_forward")) && (1..100).contains(&count("lost_back")), "{report}");
    assert_eq!((&report["sequence_numbers"], count("unmatched")), (&"counted".into(), 0), "{report}");
    let rtt = |name: &str| report["rtt"][name].as_f64().unwrap();
    assert!(rtt("min_seconds") >= 0.04 && rtt("p50_seconds") < 1.0, "{report}");
    assert!(rtt("min_seconds") <= rtt("p50_seconds") && rtt("p95_seconds") <= rtt("max_seconds"), "{report}");
}

/// Both sides of an emulated path read the same clock.
fn one_way_delays_match_an_asymmetric_path() {
    let lfn_path = support::lfn_path();
    let serve = format!("exec '{}' serve --ephemeral --insecure --quiet --stamp=8620", lfn_path.display());
    let probe = format!(
        "sleep 1; exec '{}' test --stamp far:8620 --stamp-count 100 --stamp-interval 5ms --json",
        lfn_path.display()
    );
    let path = ["--rate", "100mbit", "--forward-delay", "10ms", "--return-delay", "60ms", "--far-command", &serve];
    let measure = || {
        let output = lfn().arg("emulate").args(path).args(["--", "sh", "-c", &probe]).output().unwrap();
        let said = stdout(&output);
        let Some((from, to)) = said.find('{').zip(said.rfind('}')) else { panic!("{said}{}", stderr(&output)) };
        let report: Value = serde_json::from_str(&said[from..=to]).unwrap_or_else(|error| panic!("{error}: {said}"));
        let delay = |way: &str, name: &str| report["one_way"][way][name].as_f64().unwrap_or(f64::NAN);
        // No packet is faster than its path on any machine.
        assert!(delay("forward", "min_seconds") >= 0.0099 && delay("back", "min_seconds") >= 0.0599, "{report}");
        (delay("forward", "p50_seconds"), delay("back", "p50_seconds"))
    };
    TWO_OF_THREE.require("one-way delays", measure, |(forward, back)| *forward < 0.03 && *back < 0.08);
}

/// Starts a server on loopback with a log. Returns its JSON announcement too.
fn logged(flags: &[&str]) -> (Running, Value) {
    let mut command = lfn();
    command.args(["serve", "--ephemeral", "--log-format", "json", "--port", "0", "--bind", "127.0.0.1", "--json"]);
    command.args(flags).stdout(Stdio::piped());
    let mut running = Running::start(&mut command);
    let line = running.line();
    (running, serde_json::from_str(&line).unwrap())
}

fn trace_is_not_counted_as_a_refused_client() {
    let (server, said) = logged(&["--stamp=0", "--metrics", "127.0.0.1:0"]);
    let ticket = said["ticket"].as_str().unwrap();
    let output = support::server::test(ticket, &["--path", "--count", "1"]);
    assert!(output.status.success(), "{}", stderr(&output));
    // A health check, and packets for the reflector.
    drop(TcpStream::connect(said["listen"].as_str().unwrap()).unwrap());
    let output = stamp(&[&[said["stamp"].as_str().unwrap()], &FAST[..]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let metrics = || {
        let mut socket = TcpStream::connect(said["metrics"].as_str().unwrap()).unwrap();
        socket.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let mut page = String::new();
        socket.read_to_string(&mut page).unwrap();
        page
    };
    let gone = "lfn_connections_refused_total{reason=\"gone\"} ";
    assert!(
        support::eventually(|| metrics().contains("lfn_stamp_packets_total{result=\"reflected\"} 2")),
        "{}",
        metrics()
    );
    assert!(support::eventually(|| !metrics().contains(&format!("{gone}0\n"))), "{}", metrics());
    assert!(metrics().contains("reason=\"hello\"} 0\n"), "{}", metrics());
    server.signal("TERM");
    let (_, log) = server.end();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let refused: Vec<Value> = lines.filter(|line| line["event"] == "refused").collect();
    assert!(!refused.is_empty() && refused.iter().all(|line| line["level"] == "info"), "{refused:?}");
}

fn path_to_iperf3_server_is_traced_by_udp() {
    let (_server, said) = logged(&["--iperf3=0"]);
    let address = said["iperf3"].as_str().unwrap();
    let mut command = lfn();
    command.args(["test", "--iperf3", address, "--path", "--time", "1s", "--json"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let report = &document["runs"][0]["path_report"];
    let [udp] = &report["traces"].as_array().unwrap()[..] else { panic!("{report}") };
    assert_eq!((&udp["protocol"], &udp["end"]), (&"udp".into(), &"reached".into()), "{report}");
    assert_eq!(addresses(udp), ["127.0.0.1"]);
    assert_eq!((&report["mtu"]["forward"], &report["mtu"]["reverse"]), (&Value::Null, &Value::Null));
    assert_eq!(report["mtu"]["near_interface_mtu_bytes"], 65_536);
    assert!(report["mtu"]["near_tcp_pmtu_bytes"].as_u64().is_some_and(|mtu| mtu > 1000), "{report}");
    assert!(report["errors"].to_string().contains("no path MTU"), "{report}");
    // Traces use the routes, whatever interface the connections are bound to.
    let refused = support::server::test(said["ticket"].as_str().unwrap(), &["--path", "--bind", "lo"]);
    support::server::assert_refused(&refused, 2, "--path cannot be combined with --bind");
}

/// Starts a reflector on loopback. Returns its address too.
fn reflector(flags: &[&str]) -> (Server, String) {
    let mut command = lfn();
    command.args(["serve", "--ephemeral", "--quiet", "--port", "0", "--bind", "127.0.0.1", "--stamp=0", "--json"]);
    let mut child = command.args(flags).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let said: Value = serde_json::from_str(&line).unwrap();
    (Server(child), said["stamp"].as_str().unwrap().to_owned())
}

const FAST: [&str; 4] = ["--stamp-count", "20", "--stamp-interval", "1ms"];

fn stamp_with_a_wrong_key_gets_no_answer() {
    let home = tempfile::tempdir().unwrap();
    let key = |name: &str, text: &str| {
        let path = home.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (right, wrong) = (key("right", "0123456789abcdef\n"), key("wrong", "0123456789abcdeg\n"));
    let (_server, listen) = reflector(&["--stamp-key", &right]);
    let output = stamp(&[&[listen.as_str(), "--json", "--stamp-key", &right], &FAST[..]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["answered"], &report["authenticated"]), (&20.into(), &true.into()));
    assert_eq!((&report["packet_bytes"], &report["forward_hops"]), (&112.into(), &Value::Null));
    for flags in [&["--stamp-key", wrong.as_str()][..], &[]] {
        let output = stamp(&[&[listen.as_str()], flags, &FAST[..]].concat());
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains("no reply from") && stderr(&output).contains("the same key"));
    }
    let text = stamp(&[&[listen.as_str(), "--stamp-key", &right], &FAST[..]].concat());
    assert!(stdout(&text).contains("authenticated") && stdout(&text).contains("0 of 20"), "{}", stdout(&text));
}

fn invalid_stamp_answers_are_not_used() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let address = socket.local_addr().unwrap().to_string();
    let over = Arc::new(AtomicBool::new(false));
    let stop = over.clone();
    let peer = thread::spawn(move || {
        let mut buffer = [0; 2048];
        while !stop.load(Ordering::Relaxed) {
            let Ok((length, from)) = socket.recv_from(&mut buffer) else { continue };
            // The packet itself, which claims a reflection before it was sent; zeros; too short; too long; empty.
            for answer in [&buffer[..length], &[0; 44], &[7; 20], &[0xff; 1400], &[]] {
                let _ = socket.send_to(answer, from);
            }
        }
    });
    let begun = Instant::now();
    let output = stamp(&[&[address.as_str()], &FAST[..]].concat());
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    assert!(stderr(&output).contains("no reply from"), "{}", stderr(&output));
    assert!(begun.elapsed() < Duration::from_secs(30));
    over.store(true, Ordering::Relaxed);
    peer.join().unwrap();
}

fn unsupported_flags_are_refused() {
    let closed = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    for (flags, code, says) in [
        (&[closed.as_str(), "--stamp-count", "30", "--stamp-interval", "1ms"][..], 1, "the port is closed"),
        (&["127.0.0.1", "--stamp-count", "0"], 2, "--stamp-count: '0'"),
        (&["127.0.0.1", "--stamp-count", "99999999999"], 2, "the maximum is 10000000"),
        (&["127.0.0.1", "--stamp-size", "43"], 2, "not in the range 44 to 65507"),
        (&["127.0.0.1", "--stamp-size", "70000"], 2, "not in the range 44 to 65507"),
        (&["127.0.0.1", "--stamp-key", "/nonexistent"], 2, "cannot read the key /nonexistent"),
        (&["127.0.0.1", "--streams", "4"], 2, "cannot be used with"),
        (&["127.0.0.1", "--udp"], 2, "cannot be used with"),
        (&["127.0.0.1", "--latency"], 2, "cannot be used with"),
        (&["127.0.0.1", "--path"], 2, "cannot be used with"),
        (&["127.0.0.1", "--bind", "lo"], 2, "cannot be used with"),
        (&["127.0.0.1", "--iperf3", "127.0.0.1"], 2, "cannot be used with"),
        (&["127.0.0.1", "--report", "/nonexistent/file.json"], 2, "--report /nonexistent/file.json"),
        (&["127.0.0.1", "--interval", "1s"], 2, "cannot be used with"),
        (&["127.0.0.1", "--output", "csv"], 2, "cannot be used with"),
        (&["127.0.0.1:x"], 2, "127.0.0.1:x"),
    ] {
        support::server::assert_refused(&stamp(flags), code, says);
    }
}
