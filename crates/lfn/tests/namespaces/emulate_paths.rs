//! Variants of an emulated path: parallel paths, hops in series, IPv4 and IPv6.

use std::env;
use std::ffi::OsString;
use std::io::Read;
use std::net::{Ipv6Addr, TcpListener, TcpStream, ToSocketAddrs};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use lfn_base::path::PathProfile;
use lfn_base::units::{BitRate, Bytes};
use lfn_emulate::{AccuracyReport, EmulateError, EmulatedPath, FarSide, RunOutcome, Setup};
use lfn_link::LinkConfig;

use crate::support;
use crate::support::harness::{Needs, Test, Weight, tests_of};
use crate::support::{ROLE, as_role, role_of, stderr, stdout};

/// Name of this module in the names of its tests and roles.
const MODULE: &str = "emulate_paths";

const PORT: u16 = 9000;

pub fn tests() -> Vec<Test> {
    tests_of(
        MODULE,
        Weight::Waiting,
        &[
            ("parallel_paths_have_their_own_delay", Needs::Namespaces, parallel_paths_have_their_own_delay),
            ("delays_of_hops_in_series_add_up", Needs::Namespaces, delays_of_hops_in_series_add_up),
            ("idle_path_carries_no_packet", Needs::Namespaces, idle_path_carries_no_packet),
            ("far_resolves_to_ipv4_then_ipv6", Needs::Namespaces, far_resolves_to_ipv4_then_ipv6),
            ("small_mtu_disables_ipv6_only", Needs::Namespaces, small_mtu_disables_ipv6_only),
            (
                "namespace_obstacles_are_named_with_a_remedy",
                Needs::Namespaces,
                namespace_obstacles_are_named_with_a_remedy,
            ),
            ("invalid_numbers_of_paths_are_refused", Needs::Nothing, invalid_numbers_of_paths_are_refused),
        ],
    )
}

pub fn act(role: &str) {
    match role.split_once(' ').unwrap_or((role, "")) {
        ("emulate", name) => emulate(name),
        ("listen", _) => {
            let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, PORT)).unwrap();
            listener.incoming().for_each(drop);
        }
        ("connect", hosts) => hosts.split(' ').for_each(connect),
        ("resolve", hosts) => hosts.split(' ').for_each(resolve),
        other => panic!("no role '{other:?}'"),
    }
}

/// Prints `HOST NANOSECONDS` for the handshake, which takes one round trip.
fn connect(host: &str) {
    let before = Instant::now();
    let mut stream = TcpStream::connect((host, PORT)).unwrap();
    println!("{host} {}", before.elapsed().as_nanos());
    // The listener closes at once.
    let _ = stream.read(&mut [0]);
}

fn resolve(host: &str) {
    let addresses: Vec<_> = (host, PORT).to_socket_addrs().unwrap().map(|address| address.ip().to_string()).collect();
    println!("{host} {}", addresses.join(" "));
}

/// Sets up the path of this name, and prints its accuracy report as the last line of stdout.
fn emulate(name: &str) {
    let (path, command) = match name {
        "two-paths" => (vec![path(30), path(90)], "connect far far1 fd73:4c46:4e00::2 fd73:4c46:4e00:1::2"),
        "three-hops" => (vec![three_hops()], "connect far"),
        "names" => (vec![path(1), path(1)], "resolve near far near1 far1"),
        "small-mtu" => (vec![with_mtu(1279)], "resolve far"),
        other => panic!("no path '{other}'"),
    };
    let setup = Setup { paths: path, ..Setup::new(self::path(1), 1, FarSide::Shell(as_role(MODULE, "listen"))) };
    let command: Vec<OsString> = ["sh", "-c", &as_role(MODULE, command)].map(Into::into).into();
    let outcome = lfn_emulate::run(&setup, &command).unwrap();
    println!("{}", serde_json::to_string(&outcome).unwrap());
}

fn path(rtt_millis: u64) -> EmulatedPath {
    EmulatedPath::symmetric(PathProfile::new(BitRate(100_000_000), Duration::from_millis(rtt_millis)))
}

fn with_mtu(mtu: u32) -> EmulatedPath {
    EmulatedPath::symmetric(PathProfile { mtu, ..path(1).profile })
}

/// Three hops with 10, 20 and 30 ms forward and 5 ms back.
fn three_hops() -> EmulatedPath {
    let hop = |millis| LinkConfig {
        delay: Duration::from_millis(millis).into(),
        queue: Bytes(100_000).into(),
        ..LinkConfig::default()
    };
    EmulatedPath { forward: [10, 20, 30].map(hop).into(), back: vec![hop(5)], ..path(65) }
}

/// Runs this binary as the emulator of a path, because the emulator needs a process with one thread.
fn run_emulator(name: &str) -> (Output, RunOutcome) {
    let program = env::current_exe().unwrap();
    let output = Command::new(program).env(ROLE, role_of(MODULE, &format!("emulate {name}"))).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let said = stdout(&output);
    let outcome = serde_json::from_str(said.lines().last().unwrap()).unwrap_or_else(|e| panic!("{e}: {said}"));
    (output, outcome)
}

/// Returns the rest of the line that begins with `name`.
fn line_of(output: &Output, name: &str) -> String {
    let said = stdout(output);
    let found = said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    found.unwrap_or_else(|| panic!("no line '{name}' in {said} {}", stderr(output))).to_owned()
}

fn took(output: &Output, host: &str) -> Duration {
    Duration::from_nanos(line_of(output, host).parse().unwrap())
}

fn parallel_paths_have_their_own_delay() {
    let (output, outcome) = run_emulator("two-paths");
    for (host, least) in [("far", 30), ("far1", 90), ("fd73:4c46:4e00::2", 30), ("fd73:4c46:4e00:1::2", 90)] {
        let took = took(&output, host);
        assert!(took >= Duration::from_millis(least) && took < Duration::from_secs(5), "{host}: {took:?}");
    }
    // The handshake and the end of a connection have the same packets on each path.
    let AccuracyReport { paths, .. } = outcome.accuracy_report;
    assert_eq!(paths.len(), 2);
    for path in &paths {
        assert!((6..60).contains(&path.near_to_far.offered), "{path:?}");
        assert!((4..60).contains(&path.far_to_near.offered), "{path:?}");
    }
    let delays: Vec<_> = paths.iter().map(|path| path.path.base_rtt.as_millis()).collect();
    assert_eq!(delays, [30, 90]);
}

fn delays_of_hops_in_series_add_up() {
    let (output, _) = run_emulator("three-hops");
    let took = took(&output, "far");
    assert!(took >= Duration::from_millis(65) && took < Duration::from_secs(5), "{took:?}");
}

/// The time is longer than the kernel waits before it looks for routers, neighbours, duplicates and listeners.
fn idle_path_carries_no_packet() {
    let file = tempfile::Builder::new().suffix(".json").tempfile().unwrap();
    let mut command = support::lfn();
    command
        .args(["emulate", "--rtt", "20ms", "--rate", "50mbit", "--far-command", "none", "--report"])
        .arg(file.path());
    let output = command.args(["--", "sleep", "3"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let outcome: RunOutcome = serde_json::from_slice(&std::fs::read(file.path()).unwrap()).unwrap();
    let path = &outcome.accuracy_report.paths[0];
    assert_eq!((path.near_to_far.offered, path.far_to_near.offered), (0, 0), "{path:?}");
}

fn far_resolves_to_ipv4_then_ipv6() {
    let (output, _) = run_emulator("names");
    for (name, v4, v6) in [
        ("near", "10.73.23.1", "fd73:4c46:4e00::1"),
        ("far", "10.73.23.2", "fd73:4c46:4e00::2"),
        ("near1", "10.73.24.1", "fd73:4c46:4e00:1::1"),
        ("far1", "10.73.24.2", "fd73:4c46:4e00:1::2"),
    ] {
        assert_eq!(line_of(&output, name), format!("{v4} {v6}"));
    }
}

/// IPv6 requires 1280 bytes of every link.
fn small_mtu_disables_ipv6_only() {
    let (output, _) = run_emulator("small-mtu");
    assert_eq!(line_of(&output, "far"), "10.73.23.2");
}

/// Runs in the test's own user namespace with its own limits, as root without the right to create others.
fn namespace_obstacles_are_named_with_a_remedy() {
    for limit in ["max_user_namespaces", "max_net_namespaces"] {
        let script = format!(
            "echo 0 > /proc/sys/user/{limit} && \
             exec setpriv --bounding-set=-sys_admin \"$0\" emulate --rtt 1ms --rate 1mbit -- true"
        );
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "sh", "-c", &script]).arg(support::lfn_path());
        let output = command.output().unwrap();
        let said = format!(
            "lfn: cannot create namespaces: the limit user.{limit} is reached\n\
             hint: sudo sysctl -w user.{limit}=10000\n"
        );
        assert_eq!((stderr(&output), output.status.code()), (said, Some(1)), "{limit}");
        // The limit of the user who runs the tests is not 0.
        assert_ne!(std::fs::read_to_string(format!("/proc/sys/user/{limit}")).unwrap().trim(), "0");
    }
}

fn invalid_numbers_of_paths_are_refused() {
    for paths in [0, lfn_emulate::MAX_PATHS + 1] {
        let setup = Setup { paths: vec![path(1); paths], ..Setup::new(path(1), 1, FarSide::Nothing) };
        assert_eq!(setup.check(), Err(EmulateError::Paths(paths)));
    }
}
