//! Programs that do not know lfn, over an emulated path: ping, curl, ssh, iperf3, tcpdump, the interfaces of iproute2,
//! Multipath TCP, and a QUIC client. Each is used unchanged.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;
use std::{env, fs};

use lfn_emulate::RunOutcome;
use lfn_sys::namespace::UserIdentity;
use quinn::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::Value;
use socket2::{Domain, Protocol, Socket, Type};

use crate::support;
use crate::support::harness::{Needs, Test, Weight, tests_of};
use crate::support::rate::TWO_OF_THREE;
use crate::support::sandbox::{self, Running};
use crate::support::skip::{Missing, skip};
use crate::support::{as_role, lfn, run_scenario, stderr, stdout};

/// Name of this module in the names of its tests and roles.
const MODULE: &str = "other_programs";

/// Environment variable with the directory of a test's files.
const HOME: &str = "TEST_LFN_HOME";
const PORT: u16 = 9000;
/// Length of the copied file: some hundred round trips of small windows, an odd number.
const SIZE: usize = 3_000_001;

/// Runs this program as a part of a test.
pub fn act(role: &str) {
    match role {
        "web-server" => serve_web(),
        "quic-server" => quic(serve_quic()),
        "quic-client" => quic(fetch_quic()),
        "mptcp-server" => serve_mptcp(),
        "mptcp-client" => send_mptcp(),
        "named" => named_namespaces(),
        "down" => interface_down(),
        other => panic!("no role '{other}'"),
    }
}

pub fn tests() -> Vec<Test> {
    let ssh = Needs::Programs(&["ssh", "sshd", "ssh-keygen", "unshare"]);
    tests_of(
        MODULE,
        Weight::Loaded,
        &[
            (
                "ping_measures_the_delay_with_ipv4_and_ipv6",
                Needs::Programs(&["ping"]),
                ping_measures_the_delay_with_ipv4_and_ipv6,
            ),
            ("curl_fetches_a_complete_file", Needs::Programs(&["curl"]), curl_fetches_a_complete_file),
            ("ssh_carries_data_both_ways", ssh, ssh_carries_data_both_ways),
            ("iperf3_fills_the_line_exactly", Needs::Programs(&["iperf3"]), iperf3_fills_the_line_exactly),
            ("nuttcp_and_lfn_agree_on_a_path", Needs::Programs(&["nuttcp"]), nuttcp_and_lfn_agree_on_a_path),
            (
                "tcpdump_captures_packets_of_ping",
                Needs::Programs(&["tcpdump", "ping"]),
                tcpdump_captures_packets_of_ping,
            ),
            ("quic_client_fetches_a_complete_file", Needs::Namespaces, quic_client_fetches_a_complete_file),
            (
                "delays_of_links_in_series_add_up",
                Needs::Programs(&["ping", "iperf3"]),
                delays_of_links_in_series_add_up,
            ),
            ("two_paths_carry_more_than_one", Needs::Programs(&["iperf3"]), two_paths_carry_more_than_one),
            ("ping_measures_the_handover", Needs::Programs(&["ping"]), ping_measures_the_handover),
            ("multipath_tcp_uses_both_paths", Needs::Programs(&["ip"]), multipath_tcp_uses_both_paths),
            ("named_namespaces_can_be_attached", Needs::Programs(&["ip", "ping", "mount"]), || {
                run_scenario(MODULE, "named")
            }),
            ("interface_that_goes_down_is_named", Needs::Programs(&["ip"]), || run_scenario(MODULE, "down")),
        ],
    )
}

/// Runs a script over a path with a directory for its files. On a machine that is too busy for an accurate emulation,
/// exit code 4 is correct.
fn over_a_path(flags: &[&str], far: &str, script: &str, home: &Path) -> Output {
    let mut command = lfn();
    command.args(["emulate", "--far-command", far]).args(flags).args(["--", "sh", "-c", script]);
    let output = command.env("PATH", support::path_with_servers()).env(HOME, home).current_dir(home).output().unwrap();
    let said = format!("{} {}", stdout(&output), stderr(&output));
    match output.status.code() {
        Some(0) => {}
        Some(4) => assert!(said.contains("not accurate"), "{said}"),
        other => panic!("{other:?}: {said}"),
    }
    output
}

/// Returns bytes that are different at every position of a file.
fn contents() -> Vec<u8> {
    (0..SIZE as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

fn ping_measures_the_delay_with_ipv4_and_ipv6() {
    let home = tempfile::tempdir().unwrap();
    let script = "ping -c 3 -i 0.2 far && ping -6 -c 3 -i 0.2 far && ping -c 3 -i 0.2 -s 20000 far";
    let output = over_a_path(&["--rtt", "50ms", "--rate", "50mbit"], "none", script, home.path());
    let said = stdout(&output);
    let times: Vec<f64> =
        said.lines().filter_map(|line| line.split_once("mdev = ")?.1.split('/').next()?.parse().ok()).collect();
    // 20,000 bytes with their headers take 3.3 ms in each direction.
    assert!(matches!(times[..], [a, b, c] if a >= 50.0 && b >= 50.0 && c >= 56.5), "{said}");
    assert_eq!(said.matches("3 received").count(), 3, "{said}");
    assert!(said.contains("(10.73.23.2)") && said.contains("fd73:4c46:4e00::2"), "{said}");
}

/// Serves one request per connection, for the file of this name.
fn serve_web() {
    for stream in TcpListener::bind((Ipv6Addr::UNSPECIFIED, PORT)).unwrap().incoming() {
        let mut stream = stream.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            request.push(byte[0]);
        }
        let name = String::from_utf8(request).unwrap().split(' ').nth(1).unwrap().trim_start_matches('/').to_owned();
        let body = fs::read(Path::new(&env::var_os(HOME).unwrap()).join(name)).unwrap();
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len()).unwrap();
        stream.write_all(&body).unwrap();
    }
}

fn curl_fetches_a_complete_file() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("served"), contents()).unwrap();
    let curl = "curl --silent --show-error --fail --noproxy '*' --max-time 100";
    let script = format!("{curl} -o by4 http://far:{PORT}/served && {curl} -6 -o by6 http://far:{PORT}/served");
    let flags = ["--rtt", "30ms", "--rate", "50mbit", "--loss", "1e-3"];
    over_a_path(&flags, &as_role(MODULE, "web-server"), &script, home.path());
    for name in ["by4", "by6"] {
        assert!(fs::read(home.path().join(name)).unwrap() == contents(), "{name}");
    }
}

/// The ssh server runs as root only if the caller is root. In a user namespace without other users it could not change
/// its user.
fn ssh_carries_data_both_ways() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    for key in ["host", "user"] {
        let keygen = ["-q", "-t", "ed25519", "-N", "", "-f"];
        assert!(Command::new("ssh-keygen").args(keygen).arg(home.join(key)).status().unwrap().success());
    }
    fs::copy(home.join("user.pub"), home.join("authorized")).unwrap();
    fs::write(home.join("sent"), contents()).unwrap();
    let server = "$(command -v sshd) -D -e -f /dev/null -o Port=2222 -o HostKey=$HOME_DIR/host -o PidFile=none \
        -o AuthorizedKeysFile=$HOME_DIR/authorized -o StrictModes=no -o UsePAM=no -o PermitRootLogin=yes";
    let home_dir = format!("HOME_DIR={}", home.display());
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let far = match UserIdentity::current().is_root() {
        // Privilege separation needs a directory that a service manager usually creates.
        true => format!("{home_dir}; mount -t tmpfs tmpfs /run && mkdir /run/sshd && exec {server}"),
        false => format!("{home_dir}; exec unshare --map-user={user} --map-group={group} {server}"),
    };
    let ssh = format!(
        "ssh -F /dev/null -p 2222 -i user -o IdentitiesOnly=yes -o BatchMode=yes -o StrictHostKeyChecking=no \
         -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR $(getent passwd {user} | cut -d: -f1)@far"
    );
    let script =
        format!("{ssh} 'cat > {}/there' < sent && {ssh} 'cat {}/there' > back", home.display(), home.display());
    over_a_path(&["--rtt", "30ms", "--rate", "50mbit"], &far, &script, home);
    assert!(fs::read(home.join("back")).unwrap() == contents());
}

fn iperf3_fills_the_line_exactly() {
    for arguments in ["-t 3", "-6 -t 2 -R"] {
        let script = format!("iperf3 -c far {arguments} -J > report.json");
        let measure = || {
            let home = tempfile::tempdir().unwrap();
            over_a_path(&["--rtt", "20ms", "--rate", "40mbit"], "iperf3 -s", &script, home.path());
            received(&home.path().join("report.json"))
        };
        // The range allows for headers, slow start and a busy machine.
        TWO_OF_THREE.require("iperf3_fills_the_line_exactly", measure, |rate| (24e6..39e6).contains(rate));
    }
    let script = "iperf3 -c far -u -b 5M -l 1400 -t 2 -J > report.json";
    let measure = || {
        let home = tempfile::tempdir().unwrap();
        over_a_path(&["--rtt", "20ms", "--rate", "40mbit"], "iperf3 -s", script, home.path());
        iperf3_report(&home.path().join("report.json"))
    };
    let all_came = |report: &Value| {
        let sum = &report["end"]["sum"];
        sum["packets"].as_u64().is_some_and(|packets| packets > 500) && sum["lost_packets"] == 0
    };
    TWO_OF_THREE.require("iperf3_fills_the_line_exactly", measure, all_came);
}

/// Both tools run one after the other over one path. Each figure is the receiver's.
fn nuttcp_and_lfn_agree_on_a_path() {
    const RATE: f64 = 40e6;
    let lfn = support::lfn_path();
    let lfn = lfn.display();
    let far = format!("nuttcp -S --nofork & exec '{lfn}' serve --ephemeral --quiet --ticket-host far >ticket");
    for (nuttcp, reverse) in [("-t", ""), ("-r", "--reverse")] {
        let script = format!(
            "until [ -s ticket ]; do sleep 0.05; done; \
             for _ in 1 2 3 4 5; do nuttcp {nuttcp} -fparse -T3 far >nuttcp && break; sleep 0.5; done; \
             '{lfn}' test \"$(cat ticket)\" {reverse} --time 3s --json >lfn"
        );
        let measure = || {
            let home = tempfile::tempdir().unwrap();
            over_a_path(&["--rtt", "20ms", "--rate", "40mbit"], &far, &script, home.path());
            let said = fs::read_to_string(home.path().join("nuttcp")).unwrap();
            let theirs =
                said.split_once("rate_Mbps=").and_then(|(_, rest)| rest.split(' ').next()?.parse::<f64>().ok());
            let document: Value = serde_json::from_slice(&fs::read(home.path().join("lfn")).unwrap()).unwrap();
            let ours = document["runs"][0]["goodput_bits_per_second"].as_f64();
            (theirs.unwrap_or_else(|| panic!("{said}")) * 1e6, ours.unwrap())
        };
        // The range allows for headers, slow start and a busy machine.
        let is_carried = |rate: f64| (0.6 * RATE..0.975 * RATE).contains(&rate);
        TWO_OF_THREE.require("nuttcp_and_lfn_agree_on_a_path", measure, |(theirs, ours)| {
            is_carried(*theirs) && is_carried(*ours) && (theirs - ours).abs() < 0.2 * RATE
        });
    }
}

/// Returns the report of iperf3.
fn iperf3_report(file: &Path) -> Value {
    serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
}

/// Returns the TCP goodput in bits per second. Returns 0 and prints the error if iperf3 failed.
fn received(file: &Path) -> f64 {
    let report = iperf3_report(file);
    report["end"]["sum_received"]["bits_per_second"].as_f64().unwrap_or_else(|| {
        eprintln!("iperf3 failed: {report}");
        0.0
    })
}

/// The path has the sum of both RTTs and the lower rate, in either order.
fn delays_of_links_in_series_add_up() {
    let script = "ping -c 10 -i 0.1 far && iperf3 -c far -t 3 -J > tcp.json";
    for rates in [["40mbit", "16mbit"], ["16mbit", "40mbit"]] {
        let links = [format!("rate={},rtt=20ms", rates[0]), format!("rate={},rtt=35ms", rates[1])];
        let measure = || {
            let home = tempfile::tempdir().unwrap();
            let flags = ["--link", &links[0], "--link", &links[1]];
            let said = stdout(&over_a_path(&flags, "iperf3 -s", script, home.path()));
            let least = said.split_once("mdev = ").unwrap().1.split('/').next().unwrap().parse::<f64>().unwrap();
            // The delay is never below the set value on any machine.
            let rate = received(&home.path().join("tcp.json"));
            assert!(least >= 55.0 && rate < 16e6, "{least} ms, {rate} b/s");
            (least, rate)
        };
        TWO_OF_THREE.require("delays_of_links_in_series_add_up", measure, |&(least, rate)| least < 60.0 && rate > 9e6);
    }
}

/// Each flow has its own path because it has its own address. One path cannot carry both.
fn two_paths_carry_more_than_one() {
    let far = "iperf3 -s -p 5301 & exec iperf3 -s -p 5302";
    let script = "iperf3 -c far -p 5301 -t 3 -J > one.json & iperf3 -c far1 -p 5302 -t 3 -J > other.json && wait";
    let flags = ["--rtt", "20ms", "--rate", "20mbit", "--parallel", "rate=10mbit,rtt=40ms"];
    let measure = || {
        let home = tempfile::tempdir().unwrap();
        over_a_path(&flags, far, script, home.path());
        let [one, other] = ["one.json", "other.json"].map(|name| received(&home.path().join(name)));
        assert!(one < 20e6 && other < 10e6, "{one} and {other} b/s");
        one + other
    };
    TWO_OF_THREE.require("two_paths_carry_more_than_one", measure, |&sum| sum > 22e6);
}

/// The satellite changes fifteen seconds after CMD starts. RTTs are 40 ms longer for 200 ms, and then those of another
/// satellite. No packet passes in the 100 ms before.
fn ping_measures_the_handover() {
    let measure = || {
        let home = tempfile::tempdir().unwrap();
        let script = "ping -D -n -i 0.02 -w 17 far";
        let flags = ["--profile", "starlink", "--loss", "none"];
        let said = stdout(&over_a_path(&flags, "none", script, home.path()));
        let echoes: Vec<(f64, f64)> = said.lines().filter_map(echo).collect();
        // A request follows the previous one after 20 ms, plus delays of ping itself. The profile also loses bursts of
        // packets, which can look like an outage. Without them, the longest pause of these two seconds is the outage.
        let mut sent: Vec<f64> = echoes.iter().map(|(sent, _)| *sent).collect();
        sent.sort_by(f64::total_cmp);
        let near = sent.windows(2).filter(|pair| (14.0..16.0).contains(&(pair[0] - sent[0])));
        let pause = near.max_by(|a, b| (a[1] - a[0]).total_cmp(&(b[1] - b[0]))).unwrap();
        let (start, end) = (pause[0], pause[1]);
        let median = |from: f64, to: f64| {
            let inside = echoes.iter().filter(|(sent, _)| (from..to).contains(sent));
            let mut times: Vec<f64> = inside.map(|(_, time)| *time).collect();
            times.sort_by(f64::total_cmp);
            times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
        };
        let rtts = [median(start - 2.0, start), median(end, end + 0.15), median(end + 0.25, end + 1.5)];
        (start - sent[0], end - start, rtts)
    };
    TWO_OF_THREE.require("ping_measures_the_handover", measure, |&(start, pause, [before, handover, after])| {
        (14.6..15.1).contains(&start)
            && (0.08..0.2).contains(&pause)
            && handover - before > 25.0
            && handover - after > 25.0
    });
}

/// Returns the send time of an echo request in seconds and its RTT in milliseconds.
fn echo(line: &str) -> Option<(f64, f64)> {
    let (came, rest) = line.strip_prefix('[')?.split_once(']')?;
    let time: f64 = rest.split_once("time=")?.1.split(' ').next()?.parse().ok()?;
    Some((came.parse::<f64>().ok()? - time / 1e3, time))
}

/// An ordinary user's tcpdump cannot drop its privileges, because there is no other user, so it does not start. It
/// still reads lfn's own log.
fn tcpdump_captures_packets_of_ping() {
    let home = tempfile::tempdir().unwrap();
    let flags = ["--rtt", "20ms", "--rate", "50mbit", "--log", "logged.pcapng"];
    let script = if UserIdentity::current().is_root() {
        "tcpdump -Z root -U -i lfn0 -w seen.pcap -c 6 2> tcpdump.log & \
         for wait in $(seq 500); do grep -q listening tcpdump.log && break; sleep 0.05; done; \
         ping -c 3 -i 0.2 far && wait && tcpdump -n -r seen.pcap > seen.txt"
    } else {
        "ping -c 3 -i 0.2 far > seen.txt"
    };
    over_a_path(&flags, "none", script, home.path());
    let read =
        Command::new("tcpdump").args(["-n", "-r", "logged.near.pcapng"]).current_dir(home.path()).output().unwrap();
    let logged = stdout(&read);
    let seen = fs::read_to_string(home.path().join("seen.txt")).unwrap();
    let captures = if UserIdentity::current().is_root() { vec![seen, logged] } else { vec![logged] };
    for seen in captures {
        for line in ["10.73.23.1 > 10.73.23.2: ICMP echo request", "10.73.23.2 > 10.73.23.1: ICMP echo reply"] {
            assert!(seen.matches(line).count() >= 3, "{seen} {}", stderr(&read));
        }
    }
}

fn quic(work: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work);
}

fn home() -> std::path::PathBuf {
    env::var_os(HOME).unwrap().into()
}

/// Sends the file to each client that opens a stream.
async fn serve_quic() {
    let certificate = CertificateDer::from(fs::read(home().join("certificate")).unwrap());
    let key = PrivateKeyDer::try_from(fs::read(home().join("key")).unwrap()).unwrap();
    let config = quinn::ServerConfig::with_single_cert(vec![certificate], key).unwrap();
    let endpoint = quinn::Endpoint::server(config, (Ipv4Addr::UNSPECIFIED, PORT).into()).unwrap();
    while let Some(incoming) = endpoint.accept().await {
        let connection = incoming.await.unwrap();
        let (mut send, mut receive) = connection.accept_bi().await.unwrap();
        receive.read_to_end(100).await.unwrap();
        send.write_all(&contents()).await.unwrap();
        send.finish().unwrap();
        connection.closed().await;
    }
}

async fn fetch_quic() {
    let mut roots = quinn::rustls::RootCertStore::empty();
    roots.add(CertificateDer::from(fs::read(home().join("certificate")).unwrap())).unwrap();
    let config = quinn::ClientConfig::with_root_certificates(Arc::new(roots)).unwrap();
    let mut endpoint = quinn::Endpoint::client((Ipv4Addr::UNSPECIFIED, 0).into()).unwrap();
    endpoint.set_default_client_config(config);
    let far: Ipv4Addr = env::var("LFN_FAR").unwrap().parse().unwrap();
    let connection = endpoint.connect(SocketAddr::from((far, PORT)), "far").unwrap().await.unwrap();
    let (mut send, mut receive) = connection.open_bi().await.unwrap();
    send.write_all(b"please").await.unwrap();
    send.finish().unwrap();
    let fetched = receive.read_to_end(2 * SIZE).await.unwrap();
    assert!(connection.rtt() >= Duration::from_millis(20), "{:?}", connection.rtt());
    connection.close(0_u32.into(), b"done");
    endpoint.wait_idle().await;
    fs::write(home().join("fetched"), fetched).unwrap();
}

/// quinn sends and receives super-packets (UDP GSO and GRO) if the kernel supports them.
fn quic_client_fetches_a_complete_file() {
    let home = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["far".to_owned()]).unwrap();
    fs::write(home.path().join("certificate"), made.cert.der()).unwrap();
    fs::write(home.path().join("key"), made.signing_key.serialize_der()).unwrap();
    let flags = ["--rtt", "20ms", "--rate", "50mbit", "--loss", "1e-3"];
    over_a_path(&flags, &as_role(MODULE, "quic-server"), &as_role(MODULE, "quic-client"), home.path());
    assert!(fs::read(home.path().join("fetched")).unwrap() == contents());
}

/// Takes a second over both paths.
const STRIPED: usize = 5_000_000;

fn serve_mptcp() {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)).unwrap();
    socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT)).into()).unwrap();
    socket.listen(1).unwrap();
    loop {
        let (mut stream, _) = socket.accept().unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        stream.write_all(bytes.len().to_string().as_bytes()).unwrap();
    }
}

fn send_mptcp() {
    let far: Ipv4Addr = env::var("LFN_FAR").unwrap().parse().unwrap();
    let mut socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)).unwrap();
    socket.connect(&SocketAddr::from((far, PORT)).into()).unwrap();
    socket.write_all(&vec![7; STRIPED]).unwrap();
    socket.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, STRIPED.to_string());
}

/// The commands of doc/reference/emulate.md: the far side announces its second address, and both sides allow more
/// subflows.
fn multipath_tcp_uses_both_paths() {
    if !Path::new("/proc/sys/net/mptcp/enabled").exists() {
        return skip("multipath_tcp_uses_both_paths", &Missing::Feature("Multipath TCP"));
    }
    let home = tempfile::tempdir().unwrap();
    let allow = "ip mptcp limits set subflows 2 add_addr_accepted 2";
    let far =
        format!("{allow} && ip mptcp endpoint add $LFN_FAR1 dev lfn1 signal && {}", as_role(MODULE, "mptcp-server"));
    let near = format!("{allow} && {}", as_role(MODULE, "mptcp-client"));
    let flags = ["--rtt", "10ms", "--rate", "20mbit", "--parallel", "rate=20mbit,rtt=30ms", "--report", "report.json"];
    over_a_path(&flags, &far, &near, home.path());
    let report: RunOutcome = serde_json::from_slice(&fs::read(home.path().join("report.json")).unwrap()).unwrap();
    let carried: Vec<u64> =
        report.accuracy_report.paths.iter().map(|path| path.near_to_far.forwarded_bytes.0).collect();
    assert!(carried.iter().all(|bytes| *bytes > STRIPED as u64 / 5), "{carried:?}");
}

/// Runs in a sandbox, where named namespaces are not visible to others.
fn named_namespaces() {
    sandbox::enter();
    let run = |line: &str| assert!(Command::new("sh").args(["-c", line]).status().unwrap().success(), "{line}");
    run("mount -t tmpfs tmpfs /run && ip netns add left && ip netns add right");
    let mut command = lfn();
    command.args(["emulate", "--rtt", "30ms", "--rate", "50mbit", "--attach-near", "left", "--attach-far", "right"]);
    let mut running = Running::start(&mut command);
    running.says("in network namespace 'left'; far is lfn0 10.73.23.2 in network namespace 'right'");
    run("ip netns exec left ping -c 2 -i 0.2 10.73.23.2 && ip netns exec right ping -c 2 -i 0.2 fd73:4c46:4e00::1");
    running.signal("INT");
    let (status, said) = running.end();
    assert!(matches!(status.code(), Some(0 | 4)), "{status} {said}");
    run("! ip -n left link show lfn0 && ! ip -n right link show lfn0");
}

fn interface_down() {
    sandbox::enter();
    let run = |line: &str| assert!(Command::new("sh").args(["-c", line]).status().unwrap().success(), "{line}");
    run("ip link add wa type veth peer name ha && ip link add wb type veth peer name hb");
    for name in ["wa", "ha", "wb", "hb"] {
        sandbox::up(name);
    }
    let mut command = lfn();
    let mut running =
        Running::start(command.args(["emulate", "--rtt", "30ms", "--rate", "50mbit", "--bridge", "wa", "wb"]));
    running.says("bridge between wa and wb");
    run("ip link set wb down");
    let (status, said) = running.end();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.ends_with("lfn: interface wb went down\n") && said.contains("near to far"), "{said}");
}
