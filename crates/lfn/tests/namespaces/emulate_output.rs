//! Output of `lfn emulate`: the report, the log in both formats, and the live line, as a user gets them.
//!
//! The logs are compared with the accuracy report, which counts separately. tcpdump reads the capture too.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;
use std::{env, fs, thread};

use lfn_emulate::{DirectionReport, RunOutcome};
use lfn_link::DropCause;
use serde_json::Value;

use crate::support;
use crate::support::harness::{Needs, Test, Weight, tests_of};
use crate::support::schema::{assert_valid, check_document};
use crate::support::skip::skip;
use crate::support::{as_role, lfn, missing_program, stderr, stdout};

/// Name of this module in the names of its tests and roles.
const MODULE: &str = "emulate_output";

const PORT: u16 = 9000;
const DATAGRAMS: u64 = 400;
/// Bytes of a stream, enough for super-packets.
const STREAM: usize = 2_000_000;
/// So slow that the datagrams overflow the queue, even if they are sent slowly.
const SLOW: [&str; 10] = ["--rtt", "20ms", "--rate", "200kbit", "--queue", "5kB", "--loss", "0.2", "--seed", "7"];
const FAST: [&str; 4] = ["--rtt", "20ms", "--rate", "1gbit"];

pub fn tests() -> Vec<Test> {
    tests_of(
        MODULE,
        Weight::Waiting,
        &[
            ("log_has_an_outcome_for_every_packet", Needs::Namespaces, log_has_an_outcome_for_every_packet),
            (
                "super_packets_are_logged_as_virtual_packets",
                Needs::Namespaces,
                super_packets_are_logged_as_virtual_packets,
            ),
            ("same_seed_drops_the_same_packets", Needs::Namespaces, same_seed_drops_the_same_packets),
            ("each_side_has_its_own_capture", Needs::Namespaces, each_side_has_its_own_capture),
            ("without_drops_there_is_no_capture_of_them", Needs::Namespaces, without_drops_there_is_no_capture_of_them),
            ("icmp_of_the_link_is_in_both_logs", Needs::Namespaces, icmp_of_the_link_is_in_both_logs),
            ("unwritable_log_is_named", Needs::Namespaces, unwritable_log_is_named),
            ("report_and_log_must_be_different_files", Needs::Nothing, report_and_log_must_be_different_files),
            ("write_errors_do_not_hide_other_results", Needs::Namespaces, write_errors_do_not_hide_other_results),
            ("failed_start_leaves_no_log", Needs::Nothing, failed_start_leaves_no_log),
            ("report_has_the_queueing_delay", Needs::Namespaces, report_has_the_queueing_delay),
            ("plot_has_the_course_and_the_lateness", Needs::Namespaces, plot_has_the_course_and_the_lateness),
            ("live_lines_are_kept_without_a_terminal", Needs::Namespaces, live_lines_are_kept_without_a_terminal),
            ("live_line_leaves_the_terminal_clean", Needs::Namespaces, live_line_leaves_the_terminal_clean),
        ],
    )
}

/// Roles in which this program runs as a command on a path.
pub fn act(role: &str) {
    let far = env::var("LFN_FAR").unwrap_or_default();
    match role {
        "datagrams" => {
            let socket = UdpSocket::bind(("0.0.0.0", 0)).unwrap();
            for number in 0..DATAGRAMS {
                socket.send_to(&[0; 100], (far.as_str(), PORT)).unwrap();
                if number % 20 == 19 {
                    // The emulator of an ordinary user may have only a small receive buffer.
                    thread::sleep(Duration::from_millis(1));
                }
            }
            thread::sleep(Duration::from_millis(600));
        }
        "hold" => {
            // Without this socket, each datagram would cause an ICMP error.
            let _socket = UdpSocket::bind(("0.0.0.0", PORT)).unwrap();
            thread::sleep(Duration::from_secs(600));
        }
        "sink" => {
            let (mut stream, _) = TcpListener::bind(("0.0.0.0", PORT)).unwrap().accept().unwrap();
            std::io::copy(&mut stream, &mut std::io::sink()).unwrap();
            stream.write_all(b"!").unwrap();
        }
        "stream" => {
            // The far command may not listen yet.
            let mut stream = (0..1000).find_map(|_| {
                thread::sleep(Duration::from_millis(20));
                TcpStream::connect(("far", PORT)).ok()
            });
            let stream = stream.as_mut().unwrap();
            stream.write_all(&vec![0; STREAM]).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            stream.read_exact(&mut [0]).unwrap();
        }
        other => panic!("no role '{other}'"),
    }
}

/// Emulates with a report, and with a log if `log` is given. Returns the outcome and the log.
fn emulate(flags: &[&str], far: &str, near: &str, log: Option<&str>) -> (Output, RunOutcome, Vec<u8>) {
    let home = tempfile::tempdir().unwrap();
    let report = home.path().join("report.json");
    let mut command = lfn();
    command.args(["emulate", "--far-command", far, "--report"]).arg(&report);
    let log = log.map(|name| home.path().join(name));
    if let Some(log) = &log {
        command.arg("--log").arg(log);
    }
    let output = command.args(flags).args(["--", "sh", "-c", near]).output().unwrap();
    // On a machine that is too busy for an accurate emulation, exit code 4 is correct.
    assert!(matches!(output.status.code(), Some(0 | 4)), "{}", stderr(&output));
    let document = fs::read_to_string(report).unwrap();
    check_document(&serde_json::from_str(&document).unwrap()).unwrap();
    let outcome = serde_json::from_str(&document).unwrap();
    (output, outcome, log.filter(|log| log.exists()).map(|log| fs::read(log).unwrap()).unwrap_or_default())
}

/// Emulates with captures of both sides. Returns the outcome and the captures of near, far and dropped packets.
fn emulate_captured(flags: &[&str], near: &str) -> (RunOutcome, [Option<Vec<u8>>; 3]) {
    let home = tempfile::tempdir().unwrap();
    let log = home.path().join("log.pcapng").display().to_string();
    let flags = [flags, &["--log", &log]].concat();
    let (_, outcome, _) = emulate(&flags, &as_role(MODULE, "hold"), near, None);
    assert!(!home.path().join("log.pcapng").exists());
    (outcome, ["near", "far", "dropped"].map(|side| fs::read(home.path().join(format!("log.{side}.pcapng"))).ok()))
}

fn lines(log: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(log).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")));
    let lines: Vec<Value> = lines.collect();
    // The first lines have every kind of record that is frequent.
    lines.iter().take(100).chain(lines.last()).for_each(|line| assert_valid("lfn.emulate.log.2", line));
    lines
}

/// Returns the virtual packets of one direction by outcome, with the cause if there is one: `forward`, `drop loss`.
fn counts(lines: &[Value], direction: &str) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for line in lines.iter().filter(|line| line["direction"] == direction) {
        let outcome = line["outcome"].as_str().unwrap();
        let cause = line["cause"].as_str().map(|cause| format!(" {cause}")).unwrap_or_default();
        *counts.entry(format!("{outcome}{cause}")).or_default() += line["count"].as_u64().unwrap();
    }
    counts
}

/// Returns the same counts from the accuracy report.
fn counted(ledger: &DirectionReport) -> BTreeMap<String, u64> {
    let cause = |cause: &DropCause| serde_json::to_value(cause).unwrap().as_str().unwrap().to_owned();
    let drops = ledger.dropped.iter().map(|(why, count)| (format!("drop {}", cause(why)), *count));
    let others = [
        ("forward", ledger.forwarded),
        ("duplicate", ledger.duplicated),
        ("in_flight", ledger.in_flight),
        ("lost no_room", ledger.unmodelled.ring_full),
        ("lost send_failed", ledger.unmodelled.send_failed),
    ];
    let others = others.map(|(outcome, count)| (outcome.to_owned(), count));
    others.into_iter().chain(drops).filter(|(_, count)| *count > 0).collect()
}

fn log_has_an_outcome_for_every_packet() {
    let flags = [&SLOW[..], &["--duplicate", "0.1", "--corrupt", "0.1"]].concat();
    let (output, outcome, log) =
        emulate(&flags, &as_role(MODULE, "hold"), &as_role(MODULE, "datagrams"), Some("log.jsonl"));
    let ledger = &outcome.accuracy_report.paths[0].near_to_far;
    let lines = lines(&log);
    let (first, last) = (&lines[0], &lines[lines.len() - 1]);
    assert_eq!((first["schema"].as_str(), first["seed"].as_u64()), (Some("lfn.emulate.log/2"), Some(7)));
    let (account, outcomes) = (outcome.log.clone().unwrap(), &lines[1..lines.len() - 1]);
    assert_eq!((last["end"].as_bool(), last["missed"].as_u64()), (Some(true), Some(0)));
    assert_eq!((account.written, account.missed), (outcomes.len() as u64, 0));
    assert!(stderr(&output).contains(&format!("log: {} records in ", outcomes.len())), "{}", stderr(&output));
    assert_eq!(counts(outcomes, "near_to_far"), counted(ledger));
    assert!(ledger.offered == DATAGRAMS && ledger.dropped.len() == 2 && ledger.duplicated > 0, "{ledger:?}");
    let damaged = outcomes.iter().filter(|line| line["corrupted"] == "visible").count();
    assert_eq!(damaged as u64, ledger.corrupted);
    for line in outcomes {
        assert_eq!((line["protocol"].as_str(), line["to"].as_str()), (Some("udp"), Some("10.73.23.2:9000")));
        let seconds = |key: &str| line[key].as_f64();
        assert!(seconds("arrived_unix_seconds").unwrap() > seconds("arrived_seconds").unwrap() + 1e9);
        if let Some(due) = seconds("due_seconds") {
            // The packet needs at least half the RTT. The test allows a microsecond, because sums of decimals are not
            // exact.
            assert!(due - seconds("arrived_seconds").unwrap() > 0.009_999, "{line}");
            let late = seconds("left_seconds").unwrap() - due;
            assert!((late - seconds("lateness_seconds").unwrap()).abs() < 1e-6, "{line}");
        }
    }
}

fn super_packets_are_logged_as_virtual_packets() {
    let (_, outcome, log) = emulate(&FAST, &as_role(MODULE, "sink"), &as_role(MODULE, "stream"), Some("log.jsonl"));
    let lines = lines(&log);
    let path = &outcome.accuracy_report.paths[0];
    assert_eq!(counts(&lines, "near_to_far"), counted(&path.near_to_far));
    assert_eq!(counts(&lines, "far_to_near"), counted(&path.far_to_near));
    let forwards = || lines.iter().filter(|line| line["outcome"] == "forward" && line["direction"] == "near_to_far");
    // Every virtual packet has a unique number, and the numbers count up from 0.
    let numbers: BTreeSet<u64> = forwards().flat_map(numbers).collect();
    assert!(numbers.into_iter().eq(0..path.near_to_far.forwarded));
    let bytes: u64 = forwards().map(|line| line["bytes"].as_u64().unwrap()).sum();
    assert_eq!(bytes, path.near_to_far.forwarded_bytes.0);
    assert!(bytes > STREAM as u64);
    assert!(
        forwards().any(|line| line["count"].as_u64() > Some(1)),
        "super-packets pass whole where nothing befalls them"
    );
}

/// Returns the numbers of a range of virtual packets in their direction.
fn numbers(line: &Value) -> std::ops::Range<u64> {
    let of = |key: &str| line[key].as_u64().unwrap();
    let first = of("packets_before") + of("first");
    first..first + of("count")
}

/// Compares numbers, not only counts: the log has the numbers.
fn same_seed_drops_the_same_packets() {
    let dropped = |seed: &str| -> BTreeSet<u64> {
        let flags = ["--rate", "1gbit", "--rtt", "90ms", "--loss", "1e-2", "--seed", seed];
        let (_, outcome, log) =
            emulate(&flags, &as_role(MODULE, "hold"), &as_role(MODULE, "datagrams"), Some("log.jsonl"));
        let ledger = &outcome.accuracy_report.paths[0].near_to_far;
        assert_eq!((ledger.offered, outcome.log.unwrap().missed), (DATAGRAMS, 0));
        let lines = lines(&log);
        let drops = lines.iter().filter(|line| line["outcome"] == "drop" && line["direction"] == "near_to_far");
        drops.flat_map(numbers).collect()
    };
    let (first, again, other) = (dropped("7"), dropped("7"), dropped("8"));
    assert!(!first.is_empty());
    assert_eq!(first, again);
    assert_ne!(first, other);
}

fn each_side_has_its_own_capture() {
    let (outcome, captures) = emulate_captured(&SLOW, &as_role(MODULE, "datagrams"));
    let ledger = &outcome.accuracy_report.paths[0].near_to_far;
    let dropped: u64 = ledger.dropped.values().sum();
    let captures = captures.map(Option::unwrap);
    let seen = captures.each_ref().map(|capture| read_capture(capture));
    for ((seen, name), count) in
        seen.iter().zip(["near", "far", "dropped"]).zip([ledger.offered, ledger.forwarded, dropped])
    {
        assert_eq!((&seen.names[..], &seen.by_interface[..]), (&[name.to_owned()][..], &[count][..]), "{ledger:?}");
        assert_eq!(seen.statistics, [(count, 0)]);
        assert_eq!(seen.lengths, [142].into(), "a datagram of 100 bytes, its headers, and no more");
    }
    assert_eq!(outcome.log.unwrap().written, ledger.offered + ledger.forwarded + dropped);
    for cause in ledger.dropped.keys() {
        let comment = format!("near to far: dropped by the link: {}", cause.name());
        let reported = seen[2].comments.iter().filter(|reported| **reported == comment).count() as u64;
        assert_eq!(reported, ledger.dropped[cause], "{comment}");
    }
    // Every frame that was captured after near was captured at near first. No frame is twice in a file.
    let [near, far, lost] = seen.each_ref().map(|seen| &seen.ids[0]);
    assert!(far.is_subset(near) && lost.is_subset(near));
    assert_eq!(far.union(lost).count() as u64, ledger.offered - ledger.in_flight);
    assert_eq!((near.len() as u64, far.len() as u64), (ledger.offered, ledger.forwarded));
    tcpdump_reads("each_side_has_its_own_capture", &captures[0], ledger.offered);
    tcpdump_reads("each_side_has_its_own_capture", &captures[1], ledger.forwarded);
}

fn without_drops_there_is_no_capture_of_them() {
    let (outcome, [near, far, dropped]) = emulate_captured(&FAST, &as_role(MODULE, "datagrams"));
    assert_eq!(outcome.accuracy_report.paths[0].near_to_far.dropped.values().sum::<u64>(), 0, "{outcome:?}");
    assert!(near.is_some() && far.is_some());
    // A busy machine may lose packets itself.
    assert!(dropped.is_none() || !outcome.accuracy_report.is_accurate(), "{outcome:?}");
}

/// Every datagram is too big for the path, and the link sends ICMP errors.
fn icmp_of_the_link_is_in_both_logs() {
    let flags = [&FAST[..], &["--forward-path-mtu", "100"]].concat();
    let too_big = |outcome: &RunOutcome| outcome.accuracy_report.paths[0].near_to_far.dropped[&DropCause::TooBig];
    let run = |log| emulate(&flags, &as_role(MODULE, "hold"), &as_role(MODULE, "datagrams"), Some(log));

    let (_, outcome, log) = run("log.jsonl");
    let lines = lines(&log);
    let of = |outcome: &str| lines.iter().filter(|line| line["outcome"] == outcome).collect::<Vec<_>>();
    let (answers, drops) = (of("icmp_reply"), of("drop"));
    assert_eq!((answers.len() as u64, drops.len() as u64), (too_big(&outcome), too_big(&outcome)));
    assert!(answers.iter().zip(&drops).all(|(answer, drop)| answer["id"] == drop["id"]), "each after its drop");
    for answer in answers {
        assert_eq!((&answer["protocol"], &answer["cause"]), (&"icmp".into(), &"too_big".into()), "{answer}");
        assert_eq!((&answer["from"], &answer["to"]), (&"10.73.23.2".into(), &"10.73.23.1".into()), "{answer}");
        assert_eq!(answer["reply_mtu_bytes"], 100, "{answer}");
        // Ethernet, IP, ICMP, and the datagram of 100 bytes with its headers.
        assert_eq!(answer["bytes"], 14 + 20 + 8 + 128, "{answer}");
    }

    let (outcome, [capture, ..]) = emulate_captured(&flags, &as_role(MODULE, "datagrams"));
    let capture = capture.unwrap();
    let (seen, answers) = (read_capture(&capture), too_big(&outcome));
    let comment = "sent by the link: near to far, packet too big, MTU 100 bytes";
    assert_eq!(seen.comments.iter().filter(|reported| *reported == comment).count() as u64, answers);
    assert_eq!((seen.by_interface[0], seen.ids[0].len() as u64), (DATAGRAMS + answers, DATAGRAMS), "{seen:?}");
    if let Some(text) = tcpdump("icmp_of_the_link_is_in_both_logs", &capture) {
        let reported =
            text.lines().filter(|line| line.contains("ICMP 10.73.23.2 unreachable - need to frag (mtu 100)"));
        assert_eq!(reported.count() as u64, answers, "{text}");
    }
}

/// Checks that Debian's tcpdump reads the same.
fn tcpdump_reads(test: &str, capture: &[u8], packets: u64) {
    let Some(text) = tcpdump(test, capture) else { return };
    assert_eq!(text.lines().count() as u64, packets, "{text}");
    for line in text.lines() {
        assert!(line.contains(" > 10.73.23.2.9000: UDP, length 100"), "{line}");
        let nanos = line.split_once('.').unwrap().1.split_once(' ').unwrap().0;
        assert_eq!(nanos.len(), 9, "{line}");
    }
}

/// Returns the output of Debian's tcpdump for a capture, if tcpdump is installed.
fn tcpdump(test: &str, capture: &[u8]) -> Option<String> {
    let file = tempfile::Builder::new().suffix(".pcapng").tempfile().unwrap();
    fs::write(file.path(), capture).unwrap();
    // As root, tcpdump would change to a user who may not read the file.
    let read = Command::new("tcpdump").args(["-n", "-tt", "--nano", "-Z", "root", "-r"]).arg(file.path()).output();
    let Ok(output) = read else {
        let missing = missing_program(&["tcpdump"]).unwrap_or_else(|| panic!("tcpdump does not start"));
        skip(test, &missing);
        return None;
    };
    assert!(output.status.success(), "{}", stderr(&output));
    Some(stdout(&output))
}

/// Contents of a capture, parsed by this test from the specification alone.
#[derive(Debug, Default)]
struct Seen {
    names: Vec<String>,
    by_interface: Vec<u64>,
    ids: Vec<BTreeSet<u64>>,
    statistics: Vec<(u64, u64)>,
    comments: Vec<String>,
    lengths: BTreeSet<u32>,
}

fn read_capture(mut bytes: &[u8]) -> Seen {
    let mut seen = Seen::default();
    while !bytes.is_empty() {
        let (kind, length) = (u32_at(bytes, 0), u32_at(bytes, 4) as usize);
        assert!(length.is_multiple_of(4) && u32_at(bytes, length - 4) as usize == length, "both lengths agree");
        let body = &bytes[8..length - 4];
        match kind {
            0x0a0d_0d0a => assert_eq!(u32_at(body, 0), 0x1a2b_3c4d),
            1 => {
                let options = options(&body[8..]);
                assert_eq!((u32_at(body, 0), options[&9][..].to_vec()), (1, vec![9]), "Ethernet, nanoseconds");
                seen.names.push(String::from_utf8(options[&2].clone()).unwrap());
                seen.by_interface.push(0);
                seen.ids.push(BTreeSet::new());
            }
            5 => {
                let options = options(&body[12..]);
                seen.statistics.push((u64_in(&options[&4]), u64_in(&options[&5])));
            }
            6 => {
                let (interface, kept) = (u32_at(body, 0) as usize, u32_at(body, 12) as usize);
                let options = options(&body[20 + kept.next_multiple_of(4)..]);
                seen.by_interface[interface] += 1;
                seen.ids[interface].extend(options.get(&5).map(|id| u64_in(id)));
                seen.lengths.insert(u32_at(body, 16));
                seen.comments.extend(options.get(&1).map(|comment| String::from_utf8(comment.clone()).unwrap()));
            }
            other => panic!("a block of type {other}"),
        }
        bytes = &bytes[length..];
    }
    seen
}

fn options(mut bytes: &[u8]) -> BTreeMap<u16, Vec<u8>> {
    let mut options = BTreeMap::new();
    loop {
        let code = u16::from_le_bytes([bytes[0], bytes[1]]);
        let length = usize::from(u16::from_le_bytes([bytes[2], bytes[3]]));
        if code == 0 {
            assert!(bytes.len() == 4 && length == 0);
            return options;
        }
        options.insert(code, bytes[4..4 + length].to_vec());
        bytes = &bytes[4 + length.next_multiple_of(4)..];
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().unwrap())
}

fn u64_in(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(*bytes.first_chunk().unwrap())
}

fn unwritable_log_is_named() {
    let home = tempfile::tempdir().unwrap();
    let full = home.path().join("full.jsonl");
    std::os::unix::fs::symlink("/dev/full", &full).unwrap();
    let mut command = lfn();
    command.args(["emulate", "--rtt", "20ms", "--rate", "50mbit", "--far-command", "none", "--log"]).arg(&full);
    let output = command.args(["--", "sh", "-c", &as_role(MODULE, "datagrams")]).output().unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("full.jsonl: No space left on device") && said.contains("\nhint: "), "{said}");
    assert!(said.contains("packets offered"), "the run went on, and its ledger is reported: {said}");
}

fn report_and_log_must_be_different_files() {
    let home = tempfile::tempdir().unwrap();
    let (file, link) = (home.path().join("both.json"), home.path().join("both.jsonl"));
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let mut command = lfn();
    command.args(["emulate", "--rtt", "20ms", "--rate", "50mbit", "--report"]).arg(&file).arg("--log").arg(&link);
    let output = command.args(["--", "true"]).output().unwrap();
    let said = stderr(&output);
    assert!(output.status.code() == Some(2) && said.contains("is the same file"), "{said}");
    assert!(!file.exists());
}

/// An ignored SIGXFSZ and two write errors. The exit code is still that of CMD.
fn write_errors_do_not_hide_other_results() {
    let home = tempfile::tempdir().unwrap();
    let (report, log) = (home.path().join("run.json"), home.path().join("log.jsonl"));
    std::os::unix::fs::symlink("/dev/full", &log).unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -f 0; exec \"$@\"", "sh"]).arg(support::lfn_path());
    command.args(["emulate", "--rtt", "20ms", "--rate", "50mbit", "--far-command", "none", "--report"]).arg(&report);
    let output = command.arg("--log").arg(&log).args(["--", "sh", "-c", "exit 7"]).output().unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(7), "{said}");
    assert!(said.contains("--report ") && said.contains("run.json: File too large"), "{said}");
    assert!(said.contains("log.jsonl: No space left on device"), "{said}");
}

fn failed_start_leaves_no_log() {
    let home = tempfile::tempdir().unwrap();
    let refused = |log: &Path, code: i32, named: &str| {
        let mut command = lfn();
        command.args(["emulate", "--rtt", "20ms", "--rate", "50mbit", "--far-command", "none", "--log"]).arg(log);
        let output = command.args(["--", "/no/such/command"]).output().unwrap();
        let said = stderr(&output);
        assert!(output.status.code() == Some(code) && said.contains(named), "{code} {named}: {said}");
        assert!(said.contains("\nhint: "), "{said}");
    };
    for name in ["log.txt", "log", "log.pcap", "log.jsonl.gz"] {
        refused(&home.path().join(name), 2, "unknown log format; the name must end in .jsonl or .pcapng");
    }
    refused(Path::new("/no/such/directory/log.jsonl"), 1, "/no/such/directory/log.jsonl: No such file");
    let kept = home.path().join("kept.jsonl");
    fs::write(&kept, "what was there").unwrap();
    let mut command = lfn();
    command
        .args(["emulate", "--rtt", "20ms", "--rate", "50mbit", "--report", "/no/such/report.json", "--log"])
        .arg(&kept);
    assert_eq!(command.args(["--", "true"]).output().unwrap().status.code(), Some(2));
    assert_eq!(fs::read_to_string(&kept).unwrap(), "what was there");
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
}

fn report_has_the_queueing_delay() {
    let flags = ["--rtt", "20ms", "--rate", "1mbit", "--queue", "30kB"];
    let (output, outcome, _) = emulate(&flags, &as_role(MODULE, "hold"), &as_role(MODULE, "datagrams"), None);
    let ledger = &outcome.accuracy_report.paths[0].near_to_far;
    let (waits, most) = (&ledger.queueing_delay, 30_000.0 * 8.0 / 1e6);
    assert!(waits.p50 <= waits.p90 && waits.p90 <= waits.p99 && waits.p99 <= waits.max, "{waits:?}");
    // A packet waits at most as long as a full queue needs to drain. The histogram has a precision of 1 %.
    assert!(waits.max > 0.0 && waits.max <= most * 1.01, "{waits:?} {most}");
    assert!(ledger.utilisation.get() > 0.0 && ledger.throughput.0 > 0 && ledger.active > 0.02, "{ledger:?}");
    assert!(ledger.throughput.0 as f64 <= 1e6 && ledger.queue_peak.0 <= 30_000, "{ledger:?}");
    assert_eq!(ledger.lateness.histogram.iter().map(|bin| bin.1).sum::<u64>(), ledger.forwarded);
    let links = &outcome.accuracy_report.paths[0].links;
    assert!(links.len() == 1 && links[0].split(',').any(|setting| setting == "rate=1mbit"), "{links:?}");
    let said = stderr(&output);
    for row in ["packets offered", "dropped: queue", "utilisation", "queued p50/p90/p99/max", "lateness p50/p99/max"] {
        assert!(said.lines().any(|line| line.starts_with(row)), "{row}: {said}");
    }
    assert!(!said.contains("dropped: loss") && !said.contains("marked"), "no row for what did not happen: {said}");
}

fn plot_has_the_course_and_the_lateness() {
    let home = tempfile::tempdir().unwrap();
    let (directory, report) = (home.path().join("pictures"), home.path().join("report.json"));
    let mut command = lfn();
    command.args(["emulate", "--no-calibration"]).args(FAST).arg("--plot").arg(&directory).arg("--report").arg(&report);
    let output = command.args(["--", "lfn", "test", "far", "--time", "800ms"]).output().unwrap();
    // Drops are a picture of their own, if there are any.
    let said = stderr(&output);
    assert!(said.contains("pictures: 8 files in") || said.contains("pictures: 10 files in"), "{said}");
    let document: Value = serde_json::from_slice(&fs::read(&report).unwrap()).unwrap();
    assert_valid("lfn.emulate.2", &document);
    let course = document["course"].as_array().unwrap();
    let rate = |sample: &Value| sample["paths"][0]["near_to_far"]["throughput_bits_per_second"].as_u64().unwrap();
    assert!(course.len() >= 5 && course.iter().any(|sample| rate(sample) > 1_000_000), "{course:?}");
    for (stem, texts) in [
        ("throughput", ["Throughput over time", "capacity 1 Gb/s"]),
        ("queue", ["Queue over time", "near to far"]),
        ("queueing-delay", ["Distribution of the queueing delay", "near to far: median"]),
        ("lateness", ["Distribution of the lateness", "(logarithmic)"]),
    ] {
        let svg = fs::read_to_string(directory.join(format!("{stem}.svg"))).unwrap();
        assert!(texts.iter().all(|text| svg.contains(text)), "{stem}: {svg}");
        assert!(directory.join(format!("{stem}.png")).exists());
    }
}

fn live_lines_are_kept_without_a_terminal() {
    let (output, ..) = emulate(&[&FAST[..], &["--live"]].concat(), "none", "sleep 6", None);
    let said = stderr(&output);
    assert!(said.starts_with("   5 s  -> 0 b/s, queue 0 B, dropped 0  <- 0 b/s"), "{said}");
    assert!(!said.contains('\x1b') && !said.contains('\r'), "{said}");
}

fn live_line_leaves_the_terminal_clean() {
    let mut command = Command::new("script");
    let line = format!(
        "stty cols 50 rows 20; '{}' emulate --rtt 20ms --rate 50mbit --live --far-command none -- sleep 1.8",
        support::lfn_path().display()
    );
    let output = command.args(["-qec", &line, "/dev/null"]).output().unwrap();
    let said = stdout(&output);
    // The rest of its row is erased behind each line, also if a program wrote there.
    let parts: Vec<&str> = said.split("\x1b[K").collect();
    let (rest, live) = parts.split_last().unwrap();
    let lines: Vec<_> = live.iter().map(|part| part.trim_matches('\r')).filter(|line| !line.is_empty()).collect();
    // One line every half second.
    assert!(lines.len() >= 3, "{said:?}");
    for line in lines {
        assert!(line.starts_with(' ') && line.contains("-> 0 b/s"), "{line:?}");
        assert!(line.chars().count() < 50 && !line.contains(['\n', '\r']), "{line:?}");
    }
    assert!(rest.starts_with("link: 20 ms, 50 Mb/s"), "{said:?}");
}
