//! Where an emulated path may lie: several beside each other, hops in a row, IPv4 and IPv6.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking, its helpers too")]

mod support;

use std::env;
use std::ffi::OsString;
use std::io::Read;
use std::net::{Ipv6Addr, TcpListener, TcpStream, ToSocketAddrs};
use std::process::{Command, ExitCode, Output};
use std::time::{Duration, Instant};

use lfn_core::link::LinkConfig;
use lfn_core::path::PathProfile;
use lfn_core::units::{BitRate, Bytes};
use lfn_net::emulator::{self, EmulateError, EmulatedPath, FarSide, Ledger, Outcome, Setup};
use support::{Needs, ROLE, as_role, stderr, stdout};

const PORT: u16 = 9000;

fn main() -> ExitCode {
    if let Ok(role) = env::var(ROLE) {
        act(&role);
        return ExitCode::SUCCESS;
    }
    support::run(&[
        (
            "paths_beside_each_other_have_their_own_delay",
            Needs::Namespaces,
            paths_beside_each_other_have_their_own_delay,
        ),
        ("hops_in_a_row_add_up", Needs::Namespaces, hops_in_a_row_add_up),
        ("an_idle_path_carries_nothing", Needs::Namespaces, an_idle_path_carries_nothing),
        ("far_resolves_to_both_families_ipv4_first", Needs::Namespaces, far_resolves_to_both_families_ipv4_first),
        ("a_small_mtu_leaves_ipv4_alone", Needs::Namespaces, a_small_mtu_leaves_ipv4_alone),
        ("what_forbids_namespaces_is_named_with_its_cure", Needs::Namespaces, what_forbids_namespaces),
        ("no_path_and_too_many_are_refused", Needs::Nothing, no_path_and_too_many_are_refused),
    ])
}

fn act(role: &str) {
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

/// Makes the path of that name, and prints its ledger as the last line of stdout.
fn emulate(name: &str) {
    let (path, command) = match name {
        "two-paths" => (vec![path(30), path(90)], "connect far far1 fd73:4c46:4e00::2 fd73:4c46:4e00:1::2"),
        "three-hops" => (vec![three_hops()], "connect far"),
        "names" => (vec![path(1), path(1)], "resolve near far near1 far1"),
        "small-mtu" => (vec![with_mtu(1279)], "resolve far"),
        other => panic!("no path '{other}'"),
    };
    let setup = Setup { paths: path, ..Setup::new(self::path(1), 1, FarSide::Shell(as_role("listen"))) };
    let command: Vec<OsString> = ["sh", "-c", &as_role(command)].map(Into::into).into();
    let outcome = emulator::run(&setup, &command).unwrap();
    println!("{}", serde_json::to_string(&outcome).unwrap());
}

fn path(rtt_millis: u64) -> EmulatedPath {
    EmulatedPath::symmetric(PathProfile::new(BitRate(100_000_000), Duration::from_millis(rtt_millis)))
}

fn with_mtu(mtu: u32) -> EmulatedPath {
    EmulatedPath::symmetric(PathProfile { mtu, ..path(1).profile })
}

/// 10, 20 and 30 ms there, 5 ms back.
fn three_hops() -> EmulatedPath {
    let hop = |millis| LinkConfig {
        delay: Duration::from_millis(millis).into(),
        queue: Bytes(100_000).into(),
        ..LinkConfig::default()
    };
    EmulatedPath { forward: [10, 20, 30].map(hop).into(), back: vec![hop(5)], ..path(65) }
}

/// Runs this binary as the emulator of a path: that has to be a process of one thread.
fn run_emulator(name: &str) -> (Output, Outcome) {
    let program = env::current_exe().unwrap();
    let output = Command::new(program).env(ROLE, format!("emulate {name}")).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let said = stdout(&output);
    let outcome = serde_json::from_str(said.lines().last().unwrap()).unwrap_or_else(|e| panic!("{e}: {said}"));
    (output, outcome)
}

/// The rest of the line that begins with `name`.
fn line_of(output: &Output, name: &str) -> String {
    let said = stdout(output);
    let found = said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    found.unwrap_or_else(|| panic!("no line '{name}' in {said} {}", stderr(output))).to_owned()
}

fn took(output: &Output, host: &str) -> Duration {
    Duration::from_nanos(line_of(output, host).parse().unwrap())
}

fn paths_beside_each_other_have_their_own_delay() {
    let (output, outcome) = run_emulator("two-paths");
    for (host, least) in [("far", 30), ("far1", 90), ("fd73:4c46:4e00::2", 30), ("fd73:4c46:4e00:1::2", 90)] {
        let took = took(&output, host);
        assert!(took >= Duration::from_millis(least) && took < Duration::from_secs(5), "{host}: {took:?}");
    }
    // The handshake and the end of a connection are the same packets on each.
    let Ledger { paths, .. } = outcome.ledger;
    assert_eq!(paths.len(), 2);
    for path in &paths {
        assert!((6..60).contains(&path.near_to_far.offered), "{path:?}");
        assert!((4..60).contains(&path.far_to_near.offered), "{path:?}");
    }
    let delays: Vec<_> = paths.iter().map(|path| path.path.base_rtt.as_millis()).collect();
    assert_eq!(delays, [30, 90]);
}

fn hops_in_a_row_add_up() {
    let (output, _) = run_emulator("three-hops");
    let took = took(&output, "far");
    assert!(took >= Duration::from_millis(65) && took < Duration::from_secs(5), "{took:?}");
}

/// For longer than the kernel waits before it looks for routers, neighbours, duplicates and listeners.
fn an_idle_path_carries_nothing() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut command = support::lfn();
    command.args(["emulate", "--rtt", "20ms", "--rate", "50mbit", "--far", "none", "--report"]).arg(file.path());
    let output = command.args(["--", "sleep", "3"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let outcome: Outcome = serde_json::from_slice(&std::fs::read(file.path()).unwrap()).unwrap();
    let path = &outcome.ledger.paths[0];
    assert_eq!((path.near_to_far.offered, path.far_to_near.offered), (0, 0), "{path:?}");
}

fn far_resolves_to_both_families_ipv4_first() {
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

/// IPv6 demands 1280 bytes of every link.
fn a_small_mtu_leaves_ipv4_alone() {
    let (output, _) = run_emulator("small-mtu");
    assert_eq!(line_of(&output, "far"), "10.73.23.2");
}

/// In a user namespace of the test's own, whose limits are nobody else's; there, root without the right to make others.
fn what_forbids_namespaces() {
    for limit in ["max_user_namespaces", "max_net_namespaces"] {
        let script = format!(
            "echo 0 > /proc/sys/user/{limit} && \
             exec setpriv --bounding-set=-sys_admin \"$0\" emulate --rtt 1ms --rate 1mbit -- true"
        );
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "sh", "-c", &script]).arg(support::lfn_path());
        let output = command.output().unwrap();
        let said = format!(
            "lfn: cannot make namespaces: user.{limit} allows no more of them\n\
             hint: sudo sysctl -w user.{limit}=10000\n"
        );
        assert_eq!((stderr(&output), output.status.code()), (said, Some(1)), "{limit}");
        // And not the limit of whoever runs the tests.
        assert_ne!(std::fs::read_to_string(format!("/proc/sys/user/{limit}")).unwrap().trim(), "0");
    }
}

fn no_path_and_too_many_are_refused() {
    for paths in [0, emulator::MOST_PATHS + 1] {
        let setup = Setup { paths: vec![path(1); paths], ..Setup::new(path(1), 1, FarSide::Nothing) };
        assert_eq!(setup.check(), Err(EmulateError::Paths(paths)));
    }
}
