//! Changes of packets that still arrive, checked by the receiving kernel and its applications: detected corruption,
//! hidden corruption, duplicates, reordering, and packets too big for the path.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking, its helpers too")]

mod support;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv6Addr, Shutdown, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use std::{env, fs};

use lfn_emulate::{DirectionReport, RunOutcome};
use lfn_link::DropCause;

use support::{Needs, ROLE, as_role, eventually, lfn, stderr};

/// File in which the far side writes its observations.
const SEEN: &str = "TEST_LFN_SEEN";
const PORT: u16 = 9000;
const DATAGRAMS: u32 = 1000;
const DATAGRAM: usize = 600;
/// Length of a stream in bytes.
const STREAM: usize = 300_000;

fn main() -> ExitCode {
    if let Ok(role) = env::var(ROLE) {
        act(&role);
        return ExitCode::SUCCESS;
    }
    support::run(&[
        ("receiving_kernel_detects_corruption", Needs::Namespaces, receiving_kernel_detects_corruption),
        ("hidden_corruption_reaches_the_application", Needs::Namespaces, hidden_corruption_reaches_the_application),
        ("duplicates_and_reordered_packets_arrive", Needs::Namespaces, duplicates_and_reordered_packets_arrive),
        ("jitter_with_reorder_reorders", Needs::Namespaces, jitter_with_reorder_reorders),
        ("sender_gets_icmp_for_too_big_packets", Needs::Namespaces, sender_gets_icmp_for_too_big_packets),
        ("damaged_copy_never_gets_its_final_name", Needs::Namespaces, damaged_copy_never_gets_its_final_name),
    ])
}

/// Roles in which this program runs as a command on a path.
fn act(role: &str) {
    match role {
        "count" => count(),
        "send" => send(),
        "drain" => drain(),
        "pour" => pour(),
        other => panic!("no role '{other}'"),
    }
}

/// Reads datagrams until none arrives for a while, then writes its observations.
fn count() {
    let socket = UdpSocket::bind(("::", PORT)).unwrap();
    let (mut seen, mut highest) =
        (BTreeMap::from(["datagrams", "damaged", "late", "twice"].map(|what| (what, 0_u64))), 0);
    let mut numbers = vec![0_u32; DATAGRAMS as usize];
    let mut buffer = [0; 2 * DATAGRAM];
    while let Ok(length) = socket.recv(&mut buffer) {
        socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        let (number, payload) = buffer[..length].split_first_chunk().unwrap();
        let number = u32::from_be_bytes(*number);
        *seen.entry("datagrams").or_default() += 1;
        *seen.entry("damaged").or_default() +=
            u64::from(length != DATAGRAM || payload.iter().any(|byte| *byte != 0x55) || number >= DATAGRAMS);
        *seen.entry("late").or_default() += u64::from(number < highest);
        highest = highest.max(number.min(DATAGRAMS));
        if let Some(times) = numbers.get_mut(number as usize) {
            *times += 1;
            *seen.entry("twice").or_default() += u64::from(*times == 2);
        }
    }
    let counters = [
        ("bad datagrams", kernel_count("/proc/net/snmp", "Udp:", "InErrors")),
        ("bad checksums", kernel_count("/proc/net/snmp", "Udp:", "InCsumErrors")),
        ("bad headers", kernel_count("/proc/net/snmp", "Ip:", "InHdrErrors")),
        ("bad datagrams", kernel_count("/proc/net/snmp6", "Udp6InErrors", "")),
        ("bad checksums", kernel_count("/proc/net/snmp6", "Udp6InCsumErrors", "")),
    ];
    counters.into_iter().for_each(|(what, count)| *seen.entry(what).or_default() += count);
    leave(&serde_json::to_string(&seen).unwrap());
}

/// Reads a counter of the kernel in this namespace.
fn kernel_count(file: &str, line: &str, name: &str) -> u64 {
    let text = fs::read_to_string(file).unwrap_or_default();
    let lines: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|words| words.first() == Some(&line))
        .collect();
    let value = match &lines[..] {
        [names, values] => values[names.iter().position(|word| *word == name).unwrap()],
        [pair] => pair[1],
        _ => "0",
    };
    value.parse().unwrap()
}

/// Writes a file that is complete when it appears.
fn leave(text: &str) {
    let path = env::var(SEEN).unwrap();
    let half = format!("{path}.half");
    fs::write(&half, text).unwrap();
    fs::rename(half, path).unwrap();
}

fn far() -> IpAddr {
    env::var("TEST_LFN_FAR").or_else(|_| env::var("LFN_FAR")).unwrap().parse().unwrap()
}

fn send() {
    let socket = UdpSocket::bind((IpAddr::from(Ipv6Addr::UNSPECIFIED), 0)).unwrap();
    let to = match far() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    for number in 0..DATAGRAMS {
        let mut datagram = [0x55; DATAGRAM];
        datagram[..4].copy_from_slice(&number.to_be_bytes());
        socket.send_to(&datagram, (to, PORT)).unwrap();
        std::thread::sleep(Duration::from_micros(200));
    }
    assert!(eventually(|| Path::new(&env::var(SEEN).unwrap()).exists()), "the far side counts on");
}

/// Reads one stream and writes its length.
fn drain() {
    let listener = TcpListener::bind(("::", PORT)).unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    stream.write_all(&bytes.len().to_be_bytes()).unwrap();
    // Sleeps until it is killed.
    std::thread::sleep(Duration::from_secs(600));
}

fn pour() {
    // The far side may not listen yet.
    let mut attempts = (0..600_u32).map(|attempt| {
        std::thread::sleep(Duration::from_millis(100 * u64::from(attempt > 0)));
        TcpStream::connect((far(), PORT))
    });
    let mut stream = attempts.find_map(Result::ok).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(&vec![0x55; STREAM]).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut length = [0; 8];
    stream.read_exact(&mut length).unwrap();
    assert_eq!(usize::from_be_bytes(length), STREAM);
}

/// Runs two roles over a link. Returns the counts of the forward direction and the observations of the far side.
fn emulate(flags: &[&str], [far, near]: [&str; 2], address: Option<&str>) -> (DirectionReport, BTreeMap<String, u64>) {
    let home = tempfile::tempdir().unwrap();
    let (report, seen) = (home.path().join("report.json"), home.path().join("seen.json"));
    let mut command = lfn();
    command.args(["emulate", "--rtt", "10ms", "--rate", "50mbit", "--queue", "10MB", "--seed", "7"]).args(flags);
    command.arg("--report").arg(&report).args(["--far-command", &as_role(far)]);
    command.env(SEEN, &seen).envs(address.map(|address| ("TEST_LFN_FAR", address)));
    let output = command.args(["--", "sh", "-c", &as_role(near)]).output().unwrap();
    // On a machine that is too busy for an accurate emulation, exit code 4 instead of 0 is correct.
    assert!(matches!(output.status.code(), Some(0 | 4)), "{}", stderr(&output));
    let outcome: RunOutcome = serde_json::from_str(&fs::read_to_string(report).unwrap()).unwrap();
    let seen = fs::read_to_string(seen).map(|text| serde_json::from_str(&text).unwrap()).unwrap_or_default();
    (outcome.accuracy_report.paths[0].near_to_far.clone(), seen)
}

const ADDRESSES: [Option<&str>; 2] = [None, Some("fd73:4c46:4e00::2")];
const UDP: [&str; 2] = ["count", "send"];

fn receiving_kernel_detects_corruption() {
    for address in ADDRESSES {
        let (ledger, seen) = emulate(&["--forward-corrupt", "30%"], UDP, address);
        // Five standard deviations of 1,000 draws.
        assert!((228..=372).contains(&ledger.corrupted), "{}", ledger.corrupted);
        let noticed = seen["bad datagrams"] + seen["bad headers"];
        assert!(noticed >= ledger.corrupted, "{} damaged, {seen:?}", ledger.corrupted);
        assert_eq!(seen["datagrams"] + noticed, ledger.forwarded, "{seen:?}");
        assert_eq!(seen["damaged"], 0, "{seen:?}");
        assert!(seen["bad checksums"] > 150, "{seen:?}");
    }
}

fn hidden_corruption_reaches_the_application() {
    for address in ADDRESSES {
        let (ledger, seen) = emulate(&["--forward-corrupt-hidden", "30%"], UDP, address);
        assert!((228..=372).contains(&ledger.corrupted), "{}", ledger.corrupted);
        assert_eq!((seen["bad checksums"], seen["bad headers"]), (0, 0), "{seen:?}");
        // A socket buffer may overflow if the receiver waits for a processor.
        assert_eq!(seen["datagrams"] + seen["bad datagrams"], ledger.forwarded, "{seen:?}");
        assert!(
            seen["damaged"] <= ledger.corrupted && seen["damaged"] + seen["bad datagrams"] >= ledger.corrupted,
            "{seen:?}"
        );
    }
}

fn duplicates_and_reordered_packets_arrive() {
    let (ledger, seen) = emulate(&["--forward-duplicate", "20%", "--forward-reorder", "10%:3:hold=1s"], UDP, None);
    assert!((137..=263).contains(&ledger.duplicated), "{}", ledger.duplicated);
    assert_eq!(ledger.forwarded, u64::from(DATAGRAMS) + ledger.duplicated);
    let missing = seen["bad datagrams"];
    assert_eq!(seen["datagrams"] + missing, ledger.forwarded, "{seen:?}");
    assert!(seen["twice"] <= ledger.duplicated && seen["twice"] + missing >= ledger.duplicated, "{seen:?}");
    // A tenth, and a fifth of these twice.
    assert!((60..=200).contains(&seen["late"]), "{seen:?}");
}

fn jitter_with_reorder_reorders() {
    let (ledger, seen) = emulate(&["--jitter", "normal:3ms:corr=25%:reorder"], UDP, None);
    assert_eq!(ledger.forwarded, u64::from(DATAGRAMS));
    assert!(seen["late"] > 100, "{seen:?}");
    let (_, seen) = emulate(&["--jitter", "normal:3ms:corr=25%"], UDP, None);
    assert_eq!(seen["late"], 0, "{seen:?}");
}

fn sender_gets_icmp_for_too_big_packets() {
    for address in ADDRESSES {
        let (ledger, _) = emulate(&["--forward-path-mtu", "1300"], ["drain", "pour"], address);
        let dropped = ledger.dropped.get(&DropCause::TooBig).copied().unwrap_or(0);
        // The first flight, and possibly data that was sent before the answer was read.
        assert!((1..100).contains(&dropped), "{dropped}");
    }
}

/// The copy detects corruption that no checksum of the network detects. It sends damaged blocks again and gives no
/// incomplete file its final name.
fn damaged_copy_never_gets_its_final_name() {
    let home = tempfile::tempdir().unwrap();
    let (near, far) = (home.path().join("near.bin"), home.path().join("far"));
    fs::create_dir(&far).unwrap();
    let bytes: Vec<u8> = (0..2_000_001_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(&near, &bytes).unwrap();
    let there = far.join("there.bin");
    // Fields: transport option, share of damaged packets, whether a copy over this path can succeed.
    for (flag, damage, can) in [
        (&["--clear-data"][..], "1%", true),
        (&[], "1%", true),
        (&["--clear-data"], "100%", false),
        (&[], "100%", false),
    ] {
        let mut command = lfn();
        command.args(["emulate", "--rtt", "10ms", "--rate", "50mbit", "--seed", "7"]);
        command.args(["--forward-corrupt-hidden", damage]);
        command.arg("--far-root").arg(&far).args(["--", "lfn", "copy", "near.bin", "far:there.bin"]).args(flag);
        let output = command.args(["--retry-for", "5s"]).current_dir(home.path()).output().unwrap();
        // Exit code 4 means success on a machine that is too busy for an accurate emulation.
        let succeeded = matches!(output.status.code(), Some(0 | 4));
        // A session may be damaged beyond the retries of five seconds; a file never.
        assert_eq!(succeeded, there.exists(), "{flag:?} {damage}: {}", stderr(&output));
        assert!(can || !succeeded, "{flag:?} {damage}: {}", stderr(&output));
        if there.exists() {
            assert!(fs::read(&there).unwrap() == bytes, "{flag:?} {damage}: the file differs from the source");
            fs::remove_file(&there).unwrap();
        }
    }
}
