//! `lfn trace`: files, errors and formats. The captures are written here, so that each of their packets is known.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::support::schema::check_document;
use crate::support::{eventually, lfn, stderr, stdout};

/// Payload of a packet.
const PAYLOAD: usize = 1000;
/// RTT of the generated transfers, microseconds.
const RTT: u64 = 50_000;

/// A capture in the format pcap with microseconds.
struct Capture(Vec<u8>);

/// Sender of a generated packet.
#[derive(Clone, Copy, PartialEq)]
enum From {
    Client,
    Server,
}

const SYN: u8 = 2;
const ACK: u8 = 16;

impl Capture {
    fn new() -> Self {
        let mut bytes = Vec::new();
        for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65535, 1] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        Capture(bytes)
    }

    /// Adds an Ethernet frame at a time in microseconds.
    fn frame(&mut self, at: u64, frame: &[u8]) {
        let at = 1_700_000_000_000_000 + at;
        let length = frame.len() as u32;
        for word in [(at / 1_000_000) as u32, (at % 1_000_000) as u32, length, length] {
            self.0.extend_from_slice(&word.to_le_bytes());
        }
        self.0.extend_from_slice(frame);
    }

    /// Adds a TCP segment of the connection with this client port.
    fn segment(&mut self, at: u64, port: u16, from: From, flags: u8, [sequence, ack]: [u32; 2], payload: usize) {
        let (client, server) = ([192, 0, 2, 1], [198, 51, 100, 2]);
        let ends = if from == From::Client { (client, port, server, 5001) } else { (server, 5001, client, port) };
        let mut ip = vec![0x45, 0];
        ip.extend_from_slice(&(40 + payload as u16).to_be_bytes());
        ip.extend_from_slice(&[0, 0, 0x40, 0, 64, 6, 0, 0]);
        ip.extend_from_slice(&ends.0);
        ip.extend_from_slice(&ends.2);
        ip.extend_from_slice(&ends.1.to_be_bytes());
        ip.extend_from_slice(&ends.3.to_be_bytes());
        ip.extend_from_slice(&sequence.to_be_bytes());
        ip.extend_from_slice(&ack.to_be_bytes());
        ip.extend_from_slice(&[0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        ip.resize(40 + payload, 0);
        let mut frame = vec![0; 12];
        frame.extend_from_slice(&[8, 0]);
        frame.extend_from_slice(&ip);
        self.frame(at, &frame);
    }

    /// Adds a transfer from the client that begins at a time: 10 segments in each RTT.
    fn transfer(&mut self, start: u64, port: u16, rounds: u64) {
        self.segment(start, port, From::Client, SYN, [999, 0], 0);
        self.segment(start + RTT, port, From::Server, SYN | ACK, [4999, 1000], 0);
        for round in 0..rounds {
            let at = start + (round + 1) * RTT + 100;
            let sequence = |index: u64| 1000 + ((round * 10 + index) * PAYLOAD as u64) as u32;
            for index in 0..10 {
                self.segment(at + index, port, From::Client, ACK, [sequence(index), 5000], PAYLOAD);
            }
            for index in 0..10 {
                self.segment(at + RTT - 50 + index, port, From::Server, ACK, [5000, sequence(index + 1)], 0);
            }
        }
    }

    /// Adds an IPv4 packet of a protocol with these bytes.
    fn packet(&mut self, at: u64, protocol: u8, payload: &[u8]) {
        let mut frame = vec![0; 12];
        frame.extend_from_slice(&[8, 0, 0x45, 0]);
        frame.extend_from_slice(&(20 + payload.len() as u16).to_be_bytes());
        frame.extend_from_slice(&[0, 0, 0x40, 0, 64, protocol, 0, 0, 192, 0, 2, 1, 198, 51, 100, 2]);
        frame.extend_from_slice(payload);
        self.frame(at, &frame);
    }

    fn write(&self, path: &Path) -> PathBuf {
        fs::write(path, &self.0).unwrap();
        path.to_owned()
    }
}

/// Returns a capture of one transfer.
fn one_transfer() -> Capture {
    let mut capture = Capture::new();
    capture.transfer(0, 40000, 40);
    capture
}

fn trace(words: &[&str], files: &[&Path]) -> Output {
    lfn().arg("trace").args(words).args(files).output().unwrap()
}

/// Returns the document of an analysis, after a check with its schema.
#[track_caller]
fn document(words: &[&str], files: &[&Path], code: i32) -> Value {
    let output = trace(&[words, &["--json"]].concat(), files);
    assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    check_document(&document).unwrap();
    document
}

/// Compresses a file next to it with a program, if the machine has it.
fn compressed(program: &str, file: &Path, suffix: &str) -> Option<PathBuf> {
    let output = Command::new(program).args(["-c"]).arg(file).output().ok()?;
    let path = PathBuf::from(format!("{}.{suffix}", file.display()));
    fs::write(&path, output.stdout).unwrap();
    output.status.success().then_some(path)
}

#[test]
fn connection_is_listed_with_its_payload_and_rtt() {
    let home = tempfile::tempdir().unwrap();
    let file = one_transfer().write(&home.path().join("a.pcap"));
    let document = document(&[], &[&file], 0);
    let protocols = &document["capture"]["protocols"];
    assert_eq!(
        (&protocols[0]["name"], &protocols[0]["packets"], &protocols[1]),
        (&"TCP".into(), &802.into(), &Value::Null)
    );
    let connection = &document["connections"][0];
    assert_eq!(connection["client"], "192.0.2.1:40000", "{connection}");
    let evidence = &connection["evidence"];
    assert_eq!(evidence["payload_bytes"], 400_000, "{evidence}");
    let rtt = evidence["rtt"]["base_seconds"].as_f64().unwrap();
    assert!((0.049..0.051).contains(&rtt), "{rtt}");
    let limits = document["totals"]["limits"].as_array().unwrap();
    assert!(!limits.is_empty(), "{document}");
}

#[test]
fn other_protocols_are_counted_by_name() {
    let home = tempfile::tempdir().unwrap();
    let mut capture = one_transfer();
    let udp = |port: u16, first: u8| {
        let header = [&[0x80, 0][..], &port.to_be_bytes(), &[0, 108, 0, 0], &[first, 0, 0, 0, 1]].concat();
        [header, vec![0; 95]].concat()
    };
    capture.packet(10, 17, &udp(53, 0));
    capture.packet(20, 17, &udp(443, 0xc3));
    capture.packet(30, 17, &udp(4433, 0xc3));
    capture.packet(40, 132, &[0; 300]);
    capture.packet(50, 1, &[8, 0, 0, 0, 0, 1, 0, 1]);
    capture.packet(60, 253, &[0; 10]);
    capture.frame(70, &[&[0; 12][..], &[8, 6], &[0; 28]].concat());
    let file = capture.write(&home.path().join("a.pcap"));
    let document = document(&[], &[&file], 0);
    let protocols = document["capture"]["protocols"].as_array().unwrap();
    let sum = |key: &str| protocols.iter().map(|protocol| protocol[key].as_u64().unwrap()).sum::<u64>();
    assert_eq!(
        (&sum("packets").into(), &sum("bytes").into()),
        (&document["capture"]["packets"], &document["capture"]["bytes"])
    );
    let text = stdout(&trace(&[], &[&file])).split_whitespace().collect::<Vec<_>>().join(" ");
    let line = "not analysed: 1 SCTP (334 B), 2 QUIC (284 B), 1 UDP (142 B), 1 IP protocol 253 (44 B), 1 ICMP (42 B), \
                1 not IP (42 B)";
    assert!(text.contains(line), "{text}");
}

#[test]
fn totals_have_the_connections_that_are_not_listed() {
    let home = tempfile::tempdir().unwrap();
    let mut capture = Capture::new();
    for number in 0..1234_u16 {
        let at = u64::from(number) * 100_000;
        let payload = 100 + usize::from(number);
        capture.segment(at, 20_000 + number, From::Client, SYN, [999, 0], 0);
        capture.segment(at + 10, 20_000 + number, From::Server, SYN | ACK, [4999, 1000], 0);
        capture.segment(at + 20, 20_000 + number, From::Client, ACK, [1000, 5000], payload);
    }
    let file = capture.write(&home.path().join("a.pcap"));
    let document = document(&[], &[&file], 0);
    let (totals, counts) = (&document["totals"], &document["capture"]);
    assert_eq!(document["connections"].as_array().unwrap().len(), 1000);
    assert_eq!((&counts["connections"], &counts["unlisted_connections"]), (&1234.into(), &234.into()));
    assert_eq!((&totals["connections"], &totals["packets"]), (&1234.into(), &(3 * 1234).into()), "{totals}");
    assert_eq!(totals["payload_bytes"], 1234 * 100 + 1234 * 1233 / 2, "{totals}");
    let text = stdout(&trace(&["--connections", "1"], &[&file])).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("1,000 of 1,234 connections listed: those with the most payload"), "{text}");
    assert!(text.contains("1,234 connections, 884.2 kB of payload, 3,702 packets, 0 lost"), "{text}");
}

#[test]
fn text_json_and_lines_agree() {
    let home = tempfile::tempdir().unwrap();
    let file = one_transfer().write(&home.path().join("a.pcap"));
    let mut json = document(&[], &[&file], 0);
    let text = stdout(&trace(&[], &[&file]));
    let verdict = json["connections"][0]["diagnosis"]["verdict"]["summary"].as_str().unwrap();
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words(&text).contains(verdict), "{verdict}: {text}");
    assert!(text.contains("connection 1: 192.0.2.1:40000 to 198.51.100.2:5001"), "{text}");
    let lines = trace(&["--output", "ndjson"], &[&file]);
    let lines: Vec<Value> = stdout(&lines).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    lines.iter().for_each(|line| check_document(line).unwrap());
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert_eq!(lines[0]["connection"], json["connections"][0]);
    json["connections"] = Value::Array(Vec::new());
    assert_eq!((&lines[1]["event"], &lines[1]["result"]), (&"end".into(), &json));
}

#[test]
fn narrow_text_fits_its_columns() {
    let home = tempfile::tempdir().unwrap();
    let file = one_transfer().write(&home.path().join("a.pcap"));
    let output = lfn().args(["trace"]).arg(&file).env("COLUMNS", "60").output().unwrap();
    let text = stdout(&output);
    let long: Vec<&str> =
        text.lines().filter(|line| line.chars().count() > 60 && !line.starts_with("hint: ")).collect();
    assert!(long.is_empty(), "{long:?}");
}

#[test]
fn report_has_the_document() {
    let home = tempfile::tempdir().unwrap();
    let file = one_transfer().write(&home.path().join("a.pcap"));
    let report = home.path().join("r.json");
    let output = trace(&["--report", report.to_str().unwrap()], &[&file]);
    assert!(output.status.success(), "{}", stderr(&output));
    let stored: Value = serde_json::from_slice(&fs::read(&report).unwrap()).unwrap();
    assert_eq!(stored, document(&[], &[&file], 0));
    let output = trace(&["--report", "r.pdf"], &[&file]);
    assert!(stderr(&output).contains("unknown extension .pdf; supported: .json, .html"), "{}", stderr(&output));
}

#[test]
fn compressed_files_and_standard_input_are_read() {
    let home = tempfile::tempdir().unwrap();
    let file = one_transfer().write(&home.path().join("a.pcap"));
    let plain = document(&[], &[&file], 0);
    for (program, suffix) in [("gzip", "gz"), ("zstd", "zst")] {
        let Some(packed) = compressed(program, &file, suffix) else { continue };
        let document = document(&[], &[&packed], 0);
        assert_eq!(document["connections"], plain["connections"], "{program}");
        // Two members in series are one stream.
        let name = document["files"][0]["compression"].as_str().unwrap();
        assert!(["gzip", "zstd"].contains(&name), "{name}");
    }
    let mut child = lfn().args(["trace", "-", "--json"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&fs::read(&file).unwrap()).unwrap();
    let piped: Value = serde_json::from_slice(&child.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(piped["connections"], plain["connections"]);
}

#[test]
fn parts_of_a_capture_are_read_in_order_of_time() {
    let home = tempfile::tempdir().unwrap();
    let whole = one_transfer();
    let half = 24 + (whole.0.len() - 24) / 2;
    // A packet boundary: the packets before have known lengths.
    let mut at = 24;
    while at < half {
        at += 16 + u32::from_le_bytes(whole.0[at + 8..at + 12].try_into().unwrap()) as usize;
    }
    let first = Capture(whole.0[..at].to_vec()).write(&home.path().join("z.pcap"));
    let second = Capture([&whole.0[..24], &whole.0[at..]].concat()).write(&home.path().join("a.pcap"));
    let all = whole.write(&home.path().join("all.pcap"));
    let parts = document(&[], &[&second, &first], 0);
    assert_eq!(parts["connections"], document(&[], &[&all], 0)["connections"]);
    assert!(parts["files"][0]["name"].as_str().unwrap().ends_with("z.pcap"), "{}", parts["files"]);
    let output = trace(&[], &[&all, &first, &second]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("not parts of one capture"), "{}", stderr(&output));
}

#[test]
fn filter_excludes_other_connections() {
    let home = tempfile::tempdir().unwrap();
    let mut capture = Capture::new();
    capture.transfer(0, 40000, 5);
    capture.transfer(5_000_000, 40001, 5);
    let file = capture.write(&home.path().join("a.pcap"));
    let all = document(&[], &[&file], 0);
    assert_eq!(all["connections"].as_array().unwrap().len(), 2);
    let one = document(&["--port", "40001", "--filter", "192.0.2.1"], &[&file], 0);
    assert_eq!(one["connections"].as_array().unwrap().len(), 1);
    assert_eq!(
        (&one["connections"][0]["client"], &one["capture"]["excluded"]),
        (&"192.0.2.1:40001".into(), &102.into())
    );
    let text = stdout(&trace(&["--connections", "1"], &[&file]));
    assert!(text.contains("1 not printed: --connections 2"), "{text}");
    let text = stdout(&trace(&["--port", "9"], &[&file]));
    assert!(text.contains("no TCP connection matches the filter"), "{text}");
}

#[test]
fn flagged_packets_have_the_names_of_wireshark() {
    let home = tempfile::tempdir().unwrap();
    let mut capture = one_transfer();
    // The last segment again, after its acknowledgement.
    let last = 1000 + 399 * PAYLOAD as u32;
    capture.segment(3_000_000, 40000, From::Client, ACK, [last, 5000], PAYLOAD);
    let file = capture.write(&home.path().join("a.pcap"));
    let text = stdout(&trace(&["--flags"], &[&file]));
    let line = text.lines().find(|line| line.starts_with("803 ")).unwrap_or_else(|| panic!("{text}"));
    assert!(line.contains("192.0.2.1:40000 > 198.51.100.2:5001 tcp.analysis."), "{line}");
    let lines = stdout(&trace(&["--flags", "--output", "ndjson"], &[&file]));
    let events: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    events.iter().for_each(|event| check_document(event).unwrap());
    assert!(events.iter().any(|event| event["event"] == "packet" && event["number"] == 803), "{lines}");
    assert_eq!(trace(&["--flags", "--json"], &[&file]).status.code(), Some(2));
}

#[test]
fn unusable_files_are_errors_with_a_hint() {
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name);
    fs::write(path("empty.pcap"), "").unwrap();
    fs::write(path("text.pcap"), "no packets here, only words\n").unwrap();
    fs::write(path("a.pcap.xz"), b"\xfd7zXZ\0 and more").unwrap();
    fs::write(path("header.pcap"), &one_transfer().0[..24]).unwrap();
    fs::write(path("short.pcap"), &one_transfer().0[..10]).unwrap();
    for (name, says, hint) in [
        ("empty.pcap", "the file is empty", "capture"),
        ("text.pcap", "not a pcap or pcapng capture", "tcpdump -w"),
        ("a.pcap.xz", "compressed with xz", "unxz --keep"),
        ("header.pcap", "no packets", "tcpdump"),
        ("short.pcap", "ends within its header", "capture"),
        ("missing.pcap", "No such file", "check the path"),
        ("", "is a directory", "name its files"),
    ] {
        let output = trace(&[], &[&path(name)]);
        let error = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{name}: {error}");
        let lines: Vec<&str> = error.lines().collect();
        assert_eq!(lines.len(), 2, "{name}: {error}");
        assert!(lines[0].contains(says) && lines[1].starts_with("hint: ") && lines[1].contains(hint), "{error}");
    }
    let output = trace(&[], &[Path::new("-"), &path("empty.pcap")]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let file = one_transfer().write(&path("a.pcap"));
    fs::hard_link(&file, path("b.pcap")).unwrap();
    for words in [vec![&*file, &*file], vec![&file, &path("b.pcap")]] {
        let output = trace(&[], &words);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(stderr(&output).contains("the file is named twice"), "{}", stderr(&output));
    }
}

#[test]
fn interrupt_ends_the_wait_for_a_pipe() {
    let mut child = lfn();
    child.args(["trace", "-", "--json"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = child.spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    pipe.write_all(&one_transfer().0).unwrap();
    // The process has the signal handlers when it has read the capture.
    let pid = rustix::process::Pid::from_child(&child);
    let unread = || rustix::io::ioctl_fionread(&pipe).unwrap();
    assert!(eventually(|| unread() == 0));
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    drop(pipe);
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["connections"][0]["evidence"]["payload_bytes"], 400_000);
}

#[test]
fn clock_that_was_set_back_is_named() {
    let home = tempfile::tempdir().unwrap();
    let mut capture = Capture::new();
    capture.transfer(10_000_000, 40000, 10);
    capture.transfer(2_000_000, 40001, 10);
    let file = capture.write(&home.path().join("a.pcap"));
    let capture = document(&[], &[&file], 0)["capture"].clone();
    // A transfer has a handshake of 2 packets, and 10 rounds of 10 packets and 10 acknowledgements.
    assert_eq!((&capture["time_steps_back"], &capture["first_time_step_back_packet"]), (&202.into(), &203.into()));
    let text = stdout(&trace(&[], &[&file])).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("at 202 packets, first at packet 203"), "{text}");
}

#[test]
fn cut_off_capture_gives_the_packets_before() {
    let home = tempfile::tempdir().unwrap();
    let whole = one_transfer();
    let cut = Capture(whole.0[..whole.0.len() / 2].to_vec()).write(&home.path().join("cut.pcap"));
    let cut_document = document(&[], &[&cut], 4);
    let packets = cut_document["files"][0]["packets"].as_u64().unwrap();
    assert!(cut_document["files"][0]["damage"].as_str().unwrap().contains("within packet"), "{cut_document}");
    let error = stderr(&trace(&[], &[&cut]));
    assert!(error.contains(&format!("ends within packet {}", packets + 1)), "{error}");
    let file = whole.write(&home.path().join("a.pcap"));
    for (program, suffix) in [("gzip", "gz"), ("zstd", "zst")] {
        let Some(packed) = compressed(program, &file, suffix) else { continue };
        let bytes = fs::read(&packed).unwrap();
        let cut = home.path().join(format!("cut.{suffix}"));
        fs::write(&cut, &bytes[..bytes.len() * 3 / 4]).unwrap();
        let output = trace(&[], &[&cut]);
        assert!(matches!(output.status.code(), Some(1 | 4)), "{program}: {}", stderr(&output));
        assert!(stderr(&output).contains("compressed data end early"), "{program}: {}", stderr(&output));
    }
}

#[test]
fn list_of_findings_is_that_of_a_test() {
    let list = stdout(&lfn().args(["trace", "--list-findings"]).output().unwrap());
    assert_eq!(list, stdout(&lfn().args(["test", "--list-findings"]).output().unwrap()));
    assert!(list.contains("receive window"), "{list}");
}

#[test]
fn pictures_are_one_file_or_a_directory() {
    let home = tempfile::tempdir().unwrap();
    let mut capture = Capture::new();
    for number in 0..7 {
        capture.transfer(10_000_000 * u64::from(number), 40000 + number, 20 + u64::from(number));
    }
    let file = capture.write(&home.path().join("a.pcap"));
    let directory = home.path().join("new/pictures");
    let output = trace(&["--plot", directory.to_str().unwrap()], &[&file]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("pictures: 40 files in"), "{}", stderr(&output));
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 40);
    let goodput = fs::read_to_string(directory.join("connection-1-goodput.svg")).unwrap();
    // The largest connection is the first one.
    assert!(goodput.contains("192.0.2.1:40006") && goodput.contains("a.pcap, connection 1"), "{goodput}");

    let picture = home.path().join("a.svg");
    for _ in 0..2 {
        let output = trace(&["--plot", picture.to_str().unwrap(), "--from", "200ms", "--to", "500ms"], &[&file]);
        assert!(output.status.success(), "{}", stderr(&output));
    }
    let all = fs::read_to_string(&picture).unwrap();
    for title in ["Goodput and its limit", "Data and acknowledgements", "Bytes in flight", "Round-trip time"] {
        assert!(all.contains(title), "{title}: {all}");
    }
    assert!(all.contains("in 300 ms"), "{all}");
}

#[test]
fn pictures_do_not_replace_the_capture() {
    let home = tempfile::tempdir().unwrap();
    for (name, plot) in [("a.svg", "a.svg"), ("connection-1-rtt.svg", ".")] {
        let file = one_transfer().write(&home.path().join(name));
        let output = trace(&["--plot", home.path().join(plot).to_str().unwrap()], &[&file]);
        assert_eq!(output.status.code(), Some(2), "{name}: {}", stderr(&output));
        assert!(stderr(&output).contains("another argument is the same file"), "{}", stderr(&output));
        assert_eq!(fs::read(&file).unwrap(), one_transfer().0);
    }
}

#[test]
fn unusable_plot_flags_are_usage_errors() {
    let home = tempfile::tempdir().unwrap();
    let file = one_transfer().write(&home.path().join("a.pcap"));
    let missing = home.path().join("missing/a.svg");
    let svg = home.path().join("a.svg");
    let (missing, svg) = (missing.to_str().unwrap(), svg.to_str().unwrap());
    for (words, says) in [
        (&["--plot", missing][..], "missing/a.svg"),
        (&["--plot", svg, "--from", "3s", "--to", "3s"], "--to must be later than --from"),
        (&["--plot", svg, "--from", "soon"], "--from"),
        (&["--from", "3s"], "--plot"),
        (&["--time", "3s"], "needs --live"),
        (&["--plot", "-"], "no file or directory"),
    ] {
        let output = trace(words, &[&file]);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(says), "{words:?}: {}", stderr(&output));
    }
    assert!(!Path::new(svg).exists());
}

#[test]
fn capture_without_data_has_no_picture() {
    let home = tempfile::tempdir().unwrap();
    let mut capture = Capture::new();
    capture.segment(0, 40000, From::Client, SYN, [999, 0], 0);
    let file = capture.write(&home.path().join("a.pcap"));
    let svg = home.path().join("a.svg");
    let output = trace(&["--plot", svg.to_str().unwrap()], &[&file]);
    assert!(output.status.success() && stderr(&output).contains("no picture"), "{}", stderr(&output));
    assert!(!svg.exists());
    let data = one_transfer().write(&home.path().join("b.pcap"));
    let output = trace(&["--plot", svg.to_str().unwrap(), "--from", "1h"], &[&data]);
    assert!(output.status.success() && stderr(&output).contains("with data after 1 h"), "{}", stderr(&output));
    assert!(!svg.exists());
}

/// Both captures of a transfer of 200 packets on a path with 20 ms forward and 10 ms back. The packets in `lost` are
/// sent again after 100 ms. The far clock is an hour ahead.
fn both_captures(lost: &[u64]) -> [Capture; 2] {
    const AHEAD: u64 = 3_600_000_000;
    let mut frames = [Vec::new(), Vec::new()];
    // The last packet is later than the others, because losses at the end of a capture are not certain.
    for index in 0..=200_u64 {
        let sequence = 1000 + (index * PAYLOAD as u64) as u32;
        let mut at = if index < 200 { index * 1000 } else { 5_000_000 };
        if lost.contains(&index) {
            frames[0].push((at, From::Client, [sequence, 5000], PAYLOAD));
            at += 100_000;
        }
        frames[0].push((at, From::Client, [sequence, 5000], PAYLOAD));
        frames[1].push((at + 20_000 + AHEAD, From::Client, [sequence, 5000], PAYLOAD));
        let ack = sequence + PAYLOAD as u32;
        frames[1].push((at + 20_010 + AHEAD, From::Server, [5000, ack], 0));
        frames[0].push((at + 30_010, From::Server, [5000, ack], 0));
    }
    frames.map(|mut frames| {
        frames.sort_by_key(|(at, ..)| *at);
        let mut capture = Capture::new();
        for (at, from, numbers, payload) in frames {
            capture.segment(at, 40000, from, ACK, numbers, payload);
        }
        capture
    })
}

#[test]
fn two_captures_show_losses_and_delays() {
    let home = tempfile::tempdir().unwrap();
    let [near, far] = both_captures(&[50, 51, 120]);
    let near = near.write(&home.path().join("near.pcap"));
    let far = far.write(&home.path().join("far.pcap"));
    let flags = ["--near", near.to_str().unwrap(), "--far", far.to_str().unwrap()];
    let document = document(&flags, &[], 0);
    let pair = &document["pair"];
    let forward = &pair["forward"];
    assert_eq!((&forward["lost"], &forward["loss_bursts"]), (&3.into(), &2.into()), "{pair}");
    assert_eq!(forward["losses"][0]["offset_bytes"], 50_000, "{pair}");
    assert_eq!((&pair["reverse"]["lost"], &pair["reverse"]["lost_acknowledgements"]), (&0.into(), &0.into()));
    let clock = |key: &str| pair["clock"][key].as_f64().unwrap();
    assert!((clock("min_rtt_seconds") - 0.03).abs() < 1e-6, "{pair}");
    // Half of the difference between the delays counts as a part of the offset.
    assert!((clock("offset_seconds") - 3600.005).abs() < 1e-3, "{pair}");
    assert_eq!(document["files"].as_array().unwrap().len(), 2);
    assert_eq!(document["connections"].as_array().unwrap().len(), 1);
    let text = stdout(&trace(&flags, &[]));
    assert!(text.contains("3 lost between the captures") && text.contains("near to far"), "{text}");
}

#[test]
fn captures_without_a_common_packet_are_an_error() {
    let home = tempfile::tempdir().unwrap();
    let near = one_transfer().write(&home.path().join("near.pcap"));
    let mut other = Capture::new();
    other.transfer(0, 41000, 5);
    let far = other.write(&home.path().join("far.pcap"));
    let output = trace(&["--near", near.to_str().unwrap(), "--far", far.to_str().unwrap()], &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("have no packet in common"), "{}", stderr(&output));
}
