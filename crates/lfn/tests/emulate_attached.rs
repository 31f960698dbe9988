//! `lfn emulate` between existing network namespaces and interfaces. Each scenario runs in a sandbox, so that it works
//! for an ordinary user and for root and leaves nothing behind.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking, its helpers too")]

mod support;

use std::env;
use std::io::{IoSlice, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use lfn_sys::namespace::NetNamespace;
use lfn_sys::netlink::{MacAddress, Netlink, VethEnd};
use lfn_sys::packet::{LengthFilter, PacketSocket, ReceiveRing, SlotSize, VNET_HEADER};
use lfn_sys::sysctl;

use support::sandbox::{self, Running};
use support::{Needs, ROLE, eventually, lfn, run_scenario, stderr};

const PORT: u16 = 9000;
/// Enough bytes for super-packets to form.
const POURED: usize = 3_000_000;

fn main() -> ExitCode {
    if let Ok(role) = env::var(ROLE) {
        act(&role);
        return ExitCode::SUCCESS;
    }
    support::run(&[
        ("attached_processes_are_left_unchanged", Needs::Namespaces, || run_scenario("attach")),
        ("attached_processes_use_the_far_server", Needs::Namespaces, || run_scenario("attach-server")),
        ("one_side_can_be_new", Needs::Namespaces, || run_scenario("attach-one")),
        ("invalid_attachments_are_refused", Needs::Namespaces, || run_scenario("attach-refused")),
        ("small_socket_buffers_are_reported_not_changed", Needs::Namespaces, || run_scenario("buffers")),
        ("own_namespace_needs_no_root", Needs::Namespaces, own_namespace_needs_no_root),
        ("all_frame_types_pass_the_bridge", Needs::Namespaces, || run_scenario("bridge")),
        ("deleted_interface_is_named", Needs::Namespaces, || run_scenario("vanish")),
        ("invalid_bridges_are_refused", Needs::Namespaces, || run_scenario("bridge-refused")),
    ])
}

fn act(role: &str) {
    match role.split_once(' ').unwrap_or((role, "")) {
        ("listen", _) => listen(),
        ("pour", host) => pour(host),
        (scenario, _) => {
            sandbox::enter();
            match scenario {
                "attach" => attach(),
                "attach-one" => attach_one(),
                "attach-server" => attach_server(),
                "attach-refused" => attach_refused(),
                "buffers" => buffers(),
                "bridge" => bridge(),
                "vanish" => vanish(),
                "bridge-refused" => bridge_refused(),
                other => panic!("no scenario '{other}'"),
            }
        }
    }
}

/// Reads and discards data, prints the number of bytes, and listens again.
fn listen() {
    for stream in TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).unwrap().incoming() {
        let mut stream = stream.unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        stream.write_all(bytes.len().to_string().as_bytes()).unwrap();
    }
}

/// Sends data and prints the duration of the handshake in nanoseconds.
fn pour(host: &str) {
    let before = Instant::now();
    let mut stream = TcpStream::connect((host, PORT)).unwrap();
    let took = before.elapsed();
    stream.write_all(&vec![7; POURED]).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, POURED.to_string());
    println!("{}", took.as_nanos());
}

/// Returns a command that runs this binary in a role.
fn part(role: &str) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.env(ROLE, role);
    command
}

/// A process in a namespace that is killed at the end.
struct Resident(Child);

impl Resident {
    fn sleeper(namespace: &NetNamespace) -> Self {
        Resident(sandbox::spawn_in(namespace, Command::new("sleep").arg("1000")))
    }

    /// Starts a listener and returns when it listens.
    fn listener(namespace: &NetNamespace) -> Self {
        let resident = Resident(sandbox::spawn_in(namespace, &mut part("listen")));
        let is_listening = || std::fs::read_to_string("/proc/thread-self/net/tcp").unwrap().lines().count() > 1;
        assert!(eventually(|| namespace.run(is_listening).unwrap()));
        resident
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Resident {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the handshake time from a namespace, after data was sent.
fn pour_from(namespace: &NetNamespace, host: &str) -> Duration {
    let mut child = sandbox::spawn_in(namespace, part(&format!("pour {host}")).stdout(Stdio::piped()));
    let mut said = String::new();
    child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(child.wait().unwrap().success());
    Duration::from_nanos(said.trim().parse().unwrap())
}

fn emulate(flags: &[&str]) -> Command {
    let mut command = lfn();
    command.args(["emulate", "--rtt", "30ms", "--rate", "200mbit"]).args(flags);
    command
}

/// On a machine that is too busy for an accurate emulation, exit code 4 instead of 0 is correct.
fn is_success(code: Option<i32>, said: &str) -> bool {
    code == Some(0) || code == Some(4) && said.contains("not accurate")
}

fn attach() {
    let (near, far) = (NetNamespace::new().unwrap(), NetNamespace::new().unwrap());
    let (at_near, at_far) = (Resident::sleeper(&near), Resident::listener(&far));
    let before = (settings(&near), settings(&far));
    let flags = ["--attach-near", &at_near.pid(), "--attach-far", &at_far.pid()];
    for signal in ["TERM", "INT", "HUP", "KILL"] {
        let mut running = Running::start(&mut emulate(&flags));
        running.says("an interrupt (Ctrl-C) ends the link");
        let took = pour_from(&near, "10.73.23.2");
        assert!(took >= Duration::from_millis(30) && took < Duration::from_secs(10), "{took:?}");
        assert_eq!((settings(&near), settings(&far)), before);
        running.signal(signal);
        let (status, said) = running.end();
        if signal != "KILL" {
            assert!(is_success(status.code(), &said), "{signal}: {status} {said}");
            assert!(said.contains("near to far"), "{said}");
            assert!(!sandbox::has_interface(&near, "lfn0"), "{signal}");
        }
    }
    assert!(eventually(|| !sandbox::has_interface(&near, "lfn0") && !sandbox::has_interface(&far, "lfn0")));
}

/// Returns the settings that an emulator must not change.
fn settings(namespace: &NetNamespace) -> Vec<String> {
    let names = ["tcp_rmem", "tcp_wmem", "tcp_no_metrics_save", "ping_group_range", "ip_forward"];
    let read = || names.map(|name| sysctl::read(&format!("net.ipv4.{name}")).unwrap());
    namespace.run(read).unwrap().into()
}

/// A process that the emulator did not start finds the far server, in the attached namespace and nowhere else.
fn attach_server() {
    let (near, far, other) = (NetNamespace::new().unwrap(), NetNamespace::new().unwrap(), NetNamespace::new().unwrap());
    let (at_near, at_far) = (Resident::sleeper(&near), Resident::sleeper(&far));
    let home = tempfile::tempdir().unwrap();
    let run_in = |namespace: &NetNamespace, words: &[&str]| {
        let mut command = lfn();
        command.args(words).current_dir(home.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
        sandbox::spawn_in(namespace, &mut command).wait_with_output().unwrap()
    };
    std::fs::write(home.path().join("file"), "content").unwrap();
    let (near_pid, far_pid) = (at_near.pid(), at_far.pid());
    for far_flags in [&[][..], &["--attach-far", &far_pid]] {
        let flags = [&["--attach-near", &near_pid], far_flags].concat();
        let mut running = Running::start(&mut emulate(&flags));
        running.says("an interrupt (Ctrl-C) ends the link");
        running.says(&format!("lfn: in another terminal: nsenter -t {near_pid} -n "));
        for words in [
            &["test", "far", "--time", "1s"][..],
            &["test", "10.73.23.2", "--time", "1s"],
            &["copy", "file", "far:"],
            &["copy", "far:file", "back"],
            &["emulate", "set", "loss=0"],
        ] {
            let output = run_in(&near, words);
            assert!(output.status.success(), "{words:?}: {}", stderr(&output));
        }
        assert_eq!(std::fs::read_to_string(home.path().join("back")).unwrap(), "content");
        std::fs::remove_file(home.path().join("back")).unwrap();
        let outside = run_in(&other, &["test", "far"]);
        assert_eq!(outside.status.code(), Some(1));
        assert!(stderr(&outside).contains("'far' exists only inside `lfn emulate`"), "{}", stderr(&outside));
        if !far_flags.is_empty() {
            let at_far = run_in(&far, &["test", "far"]);
            assert!(stderr(&at_far).contains("this process is on the far side itself"), "{}", stderr(&at_far));
        }
        running.signal("KILL");
        running.end();
        // The ticket is gone with the emulator.
        assert_eq!(run_in(&near, &["test", "far"]).status.code(), Some(1));
    }
}

/// CMD runs in the attached namespace and knows the path. The other side is new.
fn attach_one() {
    let near = NetNamespace::new().unwrap();
    let at_near = Resident::sleeper(&near);
    let flags =
        ["--attach-near", &at_near.pid(), "--", "sh", "-c", "lfn test far --time 1s && readlink /proc/self/ns/net"];
    let output = emulate(&flags).output().unwrap();
    assert!(is_success(output.status.code(), &stderr(&output)), "{}", stderr(&output));
    let namespace = std::fs::read_link(format!("/proc/{}/ns/net", at_near.pid())).unwrap();
    assert!(support::stdout(&output).contains(namespace.to_str().unwrap()), "{}", support::stdout(&output));
}

fn attach_refused() {
    let (near, taken, addressed) =
        (NetNamespace::new().unwrap(), NetNamespace::new().unwrap(), NetNamespace::new().unwrap());
    let [at_near, at_taken, at_addressed] =
        [&near, &taken, &addressed].map(|namespace| Resident::sleeper(namespace).leak());
    let end = |name, number| VethEnd { name, mac: MacAddress([2, 0, 0, 0, 9, number]) };
    Netlink::open().unwrap().add_veth(end("x0", 1), end("lfn0", 2), &taken, 1500).unwrap();
    sandbox::join("x1", &addressed, "eth0", 3);
    sandbox::address(&addressed, "eth0", [10, 73, 23, 1]);
    let cases: [(&[&str], &str); 8] = [
        (&["--attach-near", "999999999"], "process 999999999: there is no such process"),
        (&["--attach-near", "no-such-name"], "'no-such-name'"),
        (&["--attach-near", "/etc/passwd"], "'/etc/passwd': this is not a network namespace"),
        (&["--attach-near", "/proc/self/ns/mnt"], "not a network namespace"),
        (&["--attach-far", "/no/such/file"], "'/no/such/file'"),
        (&["--attach-near", &at_near, "--attach-far", &at_near], "the same network namespace"),
        (&["--attach-near", &at_near, "--attach-far", &at_taken], "already has an interface lfn0"),
        (&["--attach-near", &at_addressed], "already has the address 10.73.23.1"),
    ];
    for (flags, reason) in cases {
        let output = emulate(flags).output().unwrap();
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{flags:?}: {said}");
        assert!(said.contains(reason) && said.contains("\nhint: ") && said.lines().count() == 2, "{flags:?}: {said}");
    }
    assert!(eventually(|| !sandbox::has_interface(&near, "lfn0")));
}

impl Resident {
    /// Keeps the process until the sandbox ends.
    fn leak(self) -> String {
        let pid = self.pid();
        std::mem::forget(self);
        pid
    }
}

fn buffers() {
    let (near, far) = (NetNamespace::new().unwrap(), NetNamespace::new().unwrap());
    let (at_near, at_far) = (Resident::sleeper(&near), Resident::sleeper(&far));
    near.run(|| sysctl::write("net.ipv4.tcp_rmem", "4096 131072 200000")).unwrap().unwrap();
    let flags = ["--attach-near", &at_near.pid(), "--attach-far", &at_far.pid(), "--", "true"];
    let output = emulate(&flags).output().unwrap();
    let said = stderr(&output);
    let hint = format!("hint: nsenter -t {} -n sysctl -w net.ipv4.tcp_rmem='4096 131072 ", at_near.pid());
    assert!(said.contains(&hint) && said.contains("too small to fill this path"), "{said}");
    assert_eq!(near.run(|| sysctl::read("net.ipv4.tcp_rmem")).unwrap().unwrap(), "4096\t131072\t200000");
}

/// Runs outside any sandbox: users create this kind of namespace with `unshare -Urn`.
fn own_namespace_needs_no_root() {
    let mut child = Command::new("unshare").args(["-Urn", "sleep", "1000"]).spawn().unwrap();
    let own = std::fs::read_link("/proc/self/ns/net").unwrap();
    let namespace = format!("/proc/{}/ns/net", child.id());
    assert!(eventually(|| std::fs::read_link(&namespace).is_ok_and(|theirs| theirs != own)));
    // The user namespace exists before it is set up.
    assert!(eventually(
        || std::fs::read_to_string(format!("/proc/{}/comm", child.id())).is_ok_and(|name| name == "sleep\n")
    ));
    let pid = child.id().to_string();
    let output = emulate(&["--attach-near", &pid, "--", "lfn", "test", "far", "--time", "1s"]).output().unwrap();
    let forbidden = emulate(&["--attach-near", "/proc/self/ns/net", "--", "true"]);
    let forbidden = (!lfn_sys::namespace::UserIdentity::current().is_root()).then_some(forbidden);
    let forbidden = forbidden.map(|mut command| command.output().unwrap());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(is_success(output.status.code(), &stderr(&output)), "{}", stderr(&output));
    if let Some(output) = forbidden {
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains("this user has no right to change it"), "{}", stderr(&output));
    }
}

/// Creates two hosts and the interfaces of the bridge between them.
fn hosts() -> (NetNamespace, NetNamespace) {
    let (near, far) = (NetNamespace::new().unwrap(), NetNamespace::new().unwrap());
    sandbox::join("wa", &near, "eth0", 1);
    sandbox::join("wb", &far, "eth0", 2);
    sandbox::address(&near, "eth0", [10, 9, 0, 1]);
    sandbox::address(&far, "eth0", [10, 9, 0, 2]);
    (near, far)
}

fn bridge() {
    let (near, far) = hosts();
    let _listener = Resident::listener(&far);
    let mut running = Running::start(&mut emulate(&["--bridge", "wa", "wb"]));
    running.says("bridge between wa and wb");
    let second = emulate(&["--bridge", "wb", "wa"]).output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    assert!(stderr(&second).contains("interface wb: another emulation already uses it"), "{}", stderr(&second));
    // The address of the other host is first resolved across the bridge.
    let took = pour_from(&near, "10.9.0.2");
    assert!(took >= Duration::from_millis(60) && took < Duration::from_secs(10), "{took:?}");
    let poured_back = Resident::listener(&near);
    pour_from(&far, "10.9.0.1");
    drop(poured_back);
    odd_frames_pass(&near, &far);
    running.signal("INT");
    let (status, said) = running.end();
    assert!(is_success(status.code(), &said), "{status} {said}");
}

/// Frames with an unknown type, with and without VLAN tags, arrive unchanged.
fn odd_frames_pass(near: &NetNamespace, far: &NetNamespace) {
    let open = |namespace: &NetNamespace| {
        let open = || PacketSocket::open(Netlink::open()?.index("eth0")?, LengthFilter::UpTo(1500));
        namespace.run(open).unwrap().unwrap()
    };
    let (from, to) = (open(near), open(far));
    let mut to = ReceiveRing::new(&to, SlotSize::Frames(1500), 1 << 20).unwrap();
    let frame = |between: &[u8]| {
        let addresses: [u8; 12] = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 2, 1];
        // An EtherType for experiments (IEEE 802), and a marker.
        [&addresses[..], between, &[0x88, 0xb5], b"carried by the Long Link Emulator".as_slice(), &[7; 40]].concat()
    };
    for between in [&[][..], &[0x81, 0, 0x20, 5], &[0x81, 0, 0, 0], &[0x88, 0xa8, 0, 9, 0x81, 0, 0, 5]] {
        let sent = frame(between);
        from.send(&[IoSlice::new(&[0; VNET_HEADER]), IoSlice::new(&sent)]).unwrap();
        let arrives = || {
            std::iter::from_fn(|| {
                let slot = to.take().unwrap()?.slot;
                let got = to.bytes(slot)[VNET_HEADER..].to_vec();
                to.give_back(slot);
                Some(got)
            })
            .any(|got| got == sent)
        };
        assert!(eventually(arrives), "{between:x?}");
    }
}

fn vanish() {
    for side in ["near", "far"] {
        let (near, far) = hosts();
        let mut running = Running::start(&mut emulate(&["--bridge", "wa", "wb"]));
        running.says("bridge between wa and wb");
        let (gone, name) = if side == "near" { (&near, "wa") } else { (&far, "wb") };
        let unplug = || {
            let mut netlink = Netlink::open()?;
            let index = netlink.index("eth0")?;
            netlink.delete(index)
        };
        gone.run(unplug).unwrap().unwrap();
        let (status, said) = running.end();
        assert_eq!(status.code(), Some(1), "{said}");
        assert!(said.ends_with(&format!("lfn: interface {name} vanished\n")), "{said}");
        assert!(said.contains("near to far"), "{said}");
        drop((near, far));
        assert!(eventually(|| ["wa", "wb"].iter().all(|name| Netlink::open().unwrap().index(name).is_err())));
    }
}

fn bridge_refused() {
    let _hosts = hosts();
    let other = NetNamespace::new().unwrap();
    let end = |name, number| VethEnd { name, mac: MacAddress([2, 0, 0, 0, 9, number]) };
    Netlink::open().unwrap().add_veth(end("idle", 1), end("eth0", 2), &other, 1500).unwrap();
    let cases: [(&[&str], i32, &str); 6] = [
        (&["--bridge", "wa", "wa"], 1, "interface wa: both ends are the same interface"),
        (&["--bridge", "wa", "nowhere"], 1, "interface nowhere: there is no such interface"),
        (&["--bridge", "lo", "wb"], 1, "interface lo: it is not an Ethernet interface"),
        (&["--bridge", "wa", "idle"], 1, "interface idle: it is down"),
        (&["--bridge", "wa"], 2, "--bridge"),
        (&["--bridge", "wa", "wb", "--far-command", "none"], 2, "--far-command"),
    ];
    for (flags, code, reason) in cases {
        let output = emulate(flags).output().unwrap();
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{flags:?}: {said}");
        assert!(said.contains(reason) && said.contains("hint: "), "{flags:?}: {said}");
    }
    // An interface that the machine itself uses is not an obstacle, but causes a warning.
    let here = NetNamespace::current().unwrap();
    sandbox::address(&here, "wa", [10, 9, 0, 77]);
    let output = emulate(&["--bridge", "wa", "wb", "--", "true"]).output().unwrap();
    assert!(is_success(output.status.code(), &stderr(&output)), "{}", stderr(&output));
    assert!(stderr(&output).contains("wa has the address 10.9.0.77"), "{}", stderr(&output));
}
