//! `lfn emulate` run as a user runs it. No test depends on good timing: upper limits are generous.

use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs};

use lfn_base::path::PathProfile;
use lfn_base::units::{BitRate, Bytes};
use lfn_emulate::{AccuracyReport, DirectionReport, RunOutcome};
use lfn_link::DropCause;

use crate::support;
use crate::support::harness::{Needs, Test, Weight, tests_of};
use crate::support::skip::{Missing, skip};
use crate::support::{as_role, eventually, lfn, processes_with, stderr, stdout};

/// Name of this module in the names of its tests and roles.
const MODULE: &str = "emulate";

const PORT: u16 = 9000;

/// A custom harness, because the standard one cannot mark a running test as skipped.
pub fn tests() -> Vec<Test> {
    tests_of(
        MODULE,
        Weight::Waiting,
        &[
            ("exit_code_is_the_command_exit_code", Needs::Namespaces, exit_code_is_the_command_exit_code),
            ("closed_stderr_does_not_stop_the_run", Needs::Namespaces, closed_stderr_does_not_stop_the_run),
            ("failing_far_command_is_reported", Needs::Namespaces, failing_far_command_is_reported),
            (
                "default_path_is_searched_without_path_variable",
                Needs::Namespaces,
                default_path_is_searched_without_path_variable,
            ),
            ("command_that_cannot_start_is_reported", Needs::Namespaces, command_that_cannot_start_is_reported),
            ("both_sides_know_the_path_and_each_other", Needs::Namespaces, both_sides_know_the_path_and_each_other),
            ("each_side_has_its_own_interfaces_in_sys", Needs::Namespaces, each_side_has_its_own_interfaces_in_sys),
            ("far_side_serves_with_a_known_ticket", Needs::Namespaces, far_side_serves_with_a_known_ticket),
            ("rtt_is_never_shorter_than_set", Needs::Namespaces, rtt_is_never_shorter_than_set),
            ("same_seed_drops_the_same_counted_packets", Needs::Namespaces, same_seed_drops_the_same_counted_packets),
            ("loss_of_100_percent_drops_everything", Needs::Namespaces, loss_of_100_percent_drops_everything),
            (
                "signalled_group_keeps_the_result_of_its_test",
                Needs::Namespaces,
                signalled_group_keeps_the_result_of_its_test,
            ),
            ("nothing_is_left_after_any_end", Needs::Namespaces, nothing_is_left_after_any_end),
            (
                "host_buffers_are_kept_except_in_a_tuned_test",
                Needs::Namespaces,
                host_buffers_are_kept_except_in_a_tuned_test,
            ),
            ("file_is_copied_over_a_lossy_link", Needs::Namespaces, file_is_copied_over_a_lossy_link),
            ("copied_files_disappear_with_the_far_side", Needs::Namespaces, copied_files_disappear_with_the_far_side),
            ("far_side_answers_iperf3", Needs::Programs(&["iperf3"]), far_side_answers_iperf3),
            ("prompt_shows_the_link", Needs::Programs(&["script", "bash"]), prompt_shows_the_link),
            ("command_without_dashes_is_explained", Needs::Nothing, command_without_dashes_is_explained),
            ("command_that_ignores_signals_is_killed", Needs::Namespaces, command_that_ignores_signals_is_killed),
            (
                "contradictory_flags_are_refused_at_the_start",
                Needs::Nothing,
                contradictory_flags_are_refused_at_the_start,
            ),
        ],
    )
}

/// Roles in which this program runs as a command on a path.
pub fn act(role: &str) {
    let far = env::var("LFN_FAR").unwrap_or_default();
    match role {
        "listen" => {
            let listener = TcpListener::bind(("0.0.0.0", PORT)).unwrap();
            listener.incoming().for_each(drop);
        }
        "connect" => {
            let before = Instant::now();
            drop(TcpStream::connect(("far", PORT)).unwrap());
            println!("RTT {}", before.elapsed().as_nanos());
        }
        "datagrams" => {
            let socket = UdpSocket::bind(("0.0.0.0", 0)).unwrap();
            for _ in 0..DATAGRAMS {
                socket.send_to(&[0; 100], (far.as_str(), PORT)).unwrap();
            }
        }
        other => panic!("no role '{other}'"),
    }
}

const DATAGRAMS: u64 = 500;

fn emulate(flags: &[&str]) -> Command {
    let mut command = lfn();
    command.args(["emulate", "--rtt", "20ms", "--rate", "50mbit", "--far-command", "none"]).args(flags);
    command
}

/// Emulates with the default far side.
fn emulate_with_server(flags: &[&str]) -> Command {
    let mut command = lfn();
    command.args(["emulate", "--rtt", "20ms", "--rate", "50mbit"]).args(flags);
    command
}

fn run_shell(flags: &[&str], script: &str) -> Output {
    emulate(flags).args(["--", "sh", "-c", script]).output().unwrap()
}

/// Runs a script and reads the report.
fn reported(flags: &[&str], script: &str) -> (Output, RunOutcome) {
    let file = tempfile::Builder::new().suffix(".json").tempfile().unwrap();
    let path = file.path().to_str().unwrap().to_owned();
    let output = run_shell(&[flags, &["--report", &path]].concat(), script);
    let text = fs::read_to_string(&path).unwrap();
    let outcome = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: '{text}' {}", stderr(&output)));
    (output, outcome)
}

/// On a machine that is too busy for an accurate emulation, exit code 4 instead of 0 is correct.
fn succeeded(output: &Output, ledger: Option<&AccuracyReport>) -> bool {
    match output.status.code() {
        Some(0) => ledger.is_none_or(AccuracyReport::is_accurate),
        Some(4) => stderr(output).contains("not accurate"),
        _ => false,
    }
}

fn exit_code_is_the_command_exit_code() {
    for (script, code) in [("exit 7", 7), ("exit 255", 255), ("kill -9 $$", 137), ("kill -15 $$", 143)] {
        let output = run_shell(&[], script);
        assert_eq!(output.status.code(), Some(code), "{script}: {}", stderr(&output));
    }
}

fn closed_stderr_does_not_stop_the_run() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = emulate(&[]).args(["--", "sh", "-c", "exit 7"]).stderr(writer).status().unwrap();
    assert_eq!(status.code(), Some(7));
}

fn failing_far_command_is_reported() {
    let mut command = lfn();
    command.args(["emulate", "--rtt", "20ms", "--rate", "50mbit", "--far-command", "exit 3", "--", "sleep", "1"]);
    let said = stderr(&command.output().unwrap());
    assert!(said.contains("the far command exited with status 3"), "{said}");
}

fn default_path_is_searched_without_path_variable() {
    for path in [None, Some("")] {
        let mut command = emulate(&[]);
        command.env_remove("PATH").envs(path.map(|path| ("PATH", path)));
        let output = command.args(["--", "env"]).output().unwrap();
        let said = stdout(&output);
        assert!(
            said.lines().any(|line| line.starts_with("PATH=") && !line.ends_with(':')),
            "{said} {}",
            stderr(&output)
        );
    }
}

fn command_that_cannot_start_is_reported() {
    for (command, code) in [("no-such-command", 127), ("/etc/passwd", 126), ("/no/such/command", 127)] {
        let output = emulate(&["--", command]).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{command}");
        let said = stderr(&output);
        assert!(said.starts_with(&format!("lfn: cannot start '{command}'")), "{said}");
        assert!(said.contains("\nhint: "), "{said}");
    }
}

fn both_sides_know_the_path_and_each_other() {
    let flags = ["--queue", "0.5bdp", "--mtu", "9000"];
    let output = run_shell(&flags, "cat /etc/hosts; echo PATH_IS $LFN_PATH; env; lfn --version; echo PID $$");
    let said = stdout(&output);
    assert!(succeeded(&output, None), "{}", stderr(&output));
    for wanted in ["10.73.23.1 near", "10.73.23.2 far", "LFN_FAR=10.73.23.2", "LFN_NEAR=10.73.23.1", "LFN_EMULATED=1"] {
        assert!(said.contains(wanted), "{wanted} is not in {said}");
    }
    assert!(said.contains(&format!("lfn {}", env!("CARGO_PKG_VERSION"))), "lfn is not on the PATH: {said}");
    let path = said.lines().find_map(|line| line.strip_prefix("PATH_IS ")).unwrap();
    let mut wanted = PathProfile::new(BitRate(50_000_000), Duration::from_millis(20));
    wanted.queue = Some(Bytes(90_140));
    wanted.mtu = 9000;
    // Half a BDP is 62,500 bytes. A queue in BDPs has at least ten packets, which is more.
    assert_eq!(serde_json::from_str::<PathProfile>(path).unwrap(), wanted);
}

/// Runs only if the system allows it. A second mount shows whether it does.
fn each_side_has_its_own_interfaces_in_sys() {
    const SEE: &str = "echo SEEN $(ls /sys/class/net) $(cat /sys/class/net/lfn0/address) END >&2";
    let near = format!("{SEE}; mount -t sysfs sysfs /sys && ls -d /sys/class/net/lfn0 >/dev/null && echo ALLOWED >&2");
    let mut command = lfn();
    command.args(["emulate", "--rtt", "20ms", "--rate", "50mbit", "--far-command", SEE, "--", "sh", "-c", &near]);
    let said = stderr(&command.output().unwrap());
    let seen: Vec<_> = said.lines().filter(|line| line.starts_with("SEEN ")).collect();
    if said.contains("ALLOWED") {
        assert!(seen.len() == 2 && seen[0] != seen[1], "two interfaces have two addresses: {said}");
        let is_own = |line: &&str| line.starts_with("SEEN lfn0 lo ") && line.split(' ').count() == 5;
        assert!(seen.iter().all(is_own), "{said}");
    } else {
        skip("each_side_has_its_own_interfaces_in_sys", &Missing::Feature("mount of a sysfs in a namespace"));
    }
}

fn far_side_serves_with_a_known_ticket() {
    let mut command = lfn();
    command.args(["emulate", "--rtt", "1ms", "--rate", "1gbit", "--", "sh", "-c", "echo $LFN_FAR_TICKET"]);
    let output = command.output().unwrap();
    assert!(succeeded(&output, None), "{}", stderr(&output));
    let said = stdout(&output);
    assert!(said.starts_with("lfn://") && said.contains("@10.73.23.2:"), "{said}");
}

fn rtt_is_never_shorter_than_set() {
    let mut command = lfn();
    command.args(["emulate", "--rtt", "300ms", "--rate", "50mbit", "--far-command", &as_role(MODULE, "listen")]);
    let output = command.args(["--", "sh", "-c", &as_role(MODULE, "connect")]).output().unwrap();
    assert!(succeeded(&output, None), "{} {}", stdout(&output), stderr(&output));
    let said = stdout(&output);
    let nanos = said.lines().find_map(|line| line.split_once("RTT ")).unwrap().1.trim().parse().unwrap();
    let rtt = Duration::from_nanos(nanos);
    assert!(rtt >= Duration::from_millis(300) && rtt < Duration::from_secs(5), "{rtt:?}");
}

fn lost(ledger: &DirectionReport) -> u64 {
    ledger.dropped.get(&DropCause::Loss).copied().unwrap_or(0)
}

fn same_seed_drops_the_same_counted_packets() {
    let script = as_role(MODULE, "datagrams");
    let run = |seed: &str| {
        let (output, outcome) = reported(&["--loss", "0.3", "--seed", seed, "--queue", "10MB"], &script);
        assert!(succeeded(&output, Some(&outcome.accuracy_report)), "{}", stderr(&output));
        assert!(stderr(&output).contains(&format!("seed {seed}")), "{}", stderr(&output));
        assert_eq!(outcome.accuracy_report.seed.to_string(), seed);
        outcome.accuracy_report.paths[0].near_to_far.clone()
    };
    let (first, again, other) = (run("42"), run("42"), run("43"));
    for ledger in [&first, &again, &other] {
        assert_eq!(ledger.offered, DATAGRAMS);
        assert_eq!(ledger.offered, ledger.forwarded + ledger.dropped.values().sum::<u64>() + ledger.in_flight);
        // 99.99 % of 500 draws at 0.3 are within four standard deviations.
        assert!((109..=191).contains(&lost(ledger)), "{:?}", ledger.dropped);
    }
    assert_eq!(first.dropped, again.dropped);
}

fn loss_of_100_percent_drops_everything() {
    let (output, outcome) = reported(&["--loss", "100%"], &as_role(MODULE, "datagrams"));
    assert!(succeeded(&output, Some(&outcome.accuracy_report)), "{}", stderr(&output));
    let ledger = outcome.accuracy_report.paths[0].near_to_far.clone();
    assert_eq!((ledger.offered, lost(&ledger), ledger.forwarded), (DATAGRAMS, DATAGRAMS, 0));
}

fn nothing_is_left_after_any_end() {
    let hosts = fs::read("/etc/hosts").unwrap_or_default();
    for (signal, code) in [("KILL", None), ("INT", Some(130)), ("TERM", Some(143)), ("HUP", Some(129))] {
        // A duration that no other program sleeps for. It marks every process of this run.
        let marker = format!("98765.{}{}", std::process::id(), signal.len());
        let mut child = start_sleepers(&marker);
        assert!(eventually(|| sleepers(&marker) == 3), "{signal}: {:?}", processes_with(&marker));
        send(&child, signal);
        let status = child.wait().unwrap();
        assert_eq!(status.code(), code, "{signal}");
        assert!(eventually(|| processes_with(&marker).is_empty()), "{signal}: {:?}", processes_with(&marker));
    }
    assert_eq!(fs::read("/etc/hosts").unwrap_or_default(), hosts);
}

/// A terminal or a batch system signals the emulation and the test in it at the same time.
fn signalled_group_keeps_the_result_of_its_test() {
    let home = tempfile::tempdir().unwrap();
    let test = ["test", "far", "--time", "60s", "--interval", "100ms", "--output", "ndjson", "--report", "test.json"];
    let mut command = lfn();
    command.args(["emulate", "--rtt", "20ms", "--rate", "50mbit", "--no-calibration", "--"]).arg(support::lfn_path());
    command.args(test).current_dir(home.path()).process_group(0).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("\"interval\"")), "the test reports intervals");
    assert!(Command::new("kill").args(["-s", "TERM", "--", &format!("-{}", child.id())]).status().unwrap().success());
    lines.for_each(drop);
    // The emulation ends with its own code, or with that of the test if the test ends first.
    assert!(matches!(child.wait().unwrap().code(), Some(130 | 143)));
    let result: serde_json::Value = serde_json::from_slice(&fs::read(home.path().join("test.json")).unwrap()).unwrap();
    assert!(!result["runs"][0]["intervals"].as_array().unwrap().is_empty(), "{result}");
}

/// Starts three sleeping processes: on the far side, as CMD, and in a session of its own that CMD left.
fn start_sleepers(marker: &str) -> Child {
    let mut command = lfn();
    command.args(["emulate", "--rtt", "20ms", "--rate", "50mbit", "--far-command", &format!("exec sleep {marker}")]);
    command.args(["--", "sh", "-c", &format!("setsid sleep {marker} & exec sleep {marker}")]);
    command.stderr(Stdio::null()).spawn().unwrap()
}

fn sleepers(marker: &str) -> usize {
    processes_with(marker).iter().filter(|line| line.starts_with("sleep ")).count()
}

fn send(child: &Child, signal: &str) {
    assert!(Command::new("kill").args(["-s", signal, &child.id().to_string()]).status().unwrap().success());
}

fn host_buffers_are_kept_except_in_a_tuned_test() {
    const FILE: &str = "/proc/sys/net/ipv4/tcp_wmem";
    let home = tempfile::tempdir().unwrap();
    let run = |flags: &[&str], script: &str| {
        let mut command = lfn();
        command.env_remove("LFN_EMULATE_LARGE_BUFFERS").current_dir(home.path());
        command.args(["emulate", "--rtt", "600ms", "--rate", "100mbit", "--no-calibration", "--force"]).args(flags);
        let output = command.args(["--", "sh", "-c", script]).output().unwrap();
        stdout(&output)
    };
    let max = |text: &str| text.split_whitespace().nth(2).unwrap().parse::<u64>().unwrap();
    let host = max(&fs::read_to_string(FILE).unwrap());
    assert_eq!(max(&run(&[], &format!("cat {FILE}"))), host);
    // Twice the BDP of 7.5 MB, because half of the memory holds payload.
    assert!(max(&run(&["--large-buffers"], &format!("cat {FILE}"))) >= 15_000_000);
    if host >= 15_000_000 {
        let missing = Missing::Feature("net.ipv4.tcp_wmem below 15 MB");
        return skip("host_buffers_are_kept_except_in_a_tuned_test", &missing);
    }
    let lfn = support::lfn_path();
    let script = format!("{} test far -t 1 --tuned --json >tuned.json; cat {FILE}", lfn.display());
    assert_eq!(max(&run(&[], &script)), host, "the limit is put back after the test");
    let result: serde_json::Value = serde_json::from_slice(&fs::read(home.path().join("tuned.json")).unwrap()).unwrap();
    let socket = &result["runs"][0]["near"]["streams"][0]["socket"];
    assert!(socket["autotuning_max_bytes"].as_u64() >= Some(7_500_000), "{socket}");
}

/// Copies in both directions, and the printed digest equals that of `b3sum`.
fn file_is_copied_over_a_lossy_link() {
    let home = tempfile::tempdir().unwrap();
    let (near, far) = (home.path().join("near.bin"), home.path().join("far"));
    fs::create_dir(&far).unwrap();
    let bytes: Vec<u8> = (0..3_000_001_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(&near, &bytes).unwrap();
    let mut command = lfn();
    command.args(["emulate", "--rtt", "20ms", "--rate", "50mbit", "--loss", "1e-3", "--far-root"]).arg(&far);
    let script = "lfn copy near.bin far:there.bin --json && lfn copy far:there.bin back.bin --json";
    let output = command.args(["--", "sh", "-c", script]).current_dir(home.path()).output().unwrap();
    assert!(succeeded(&output, None), "{}", stderr(&output));
    assert!(
        fs::read(far.join("there.bin")).unwrap() == bytes && fs::read(home.path().join("back.bin")).unwrap() == bytes
    );
    let digest = blake3::hash(&bytes).to_string();
    assert_eq!(stdout(&output).matches(&digest).count(), 2, "{}", stdout(&output));
}

fn command_that_ignores_signals_is_killed() {
    let marker = format!("98764.{}", std::process::id());
    let script = format!("trap '' INT TERM; exec sleep {marker}");
    let mut child = emulate(&["--", "sh", "-c", &script]).stderr(Stdio::null()).spawn().unwrap();
    assert!(eventually(|| sleepers(&marker) == 1));
    send(&child, "TERM");
    assert_eq!(child.wait().unwrap().code(), Some(137));
}

/// The far side has an empty directory of its own, so a copy does not meet the original.
fn copied_files_disappear_with_the_far_side() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("file"), "content").unwrap();
    let script = "lfn copy file far: && lfn copy far:file back && lfn copy far: all";
    let output = emulate_with_server(&["--", "sh", "-c", script]).current_dir(home.path()).output().unwrap();
    assert!(matches!(output.status.code(), Some(0 | 4)), "{}", stderr(&output));
    assert_eq!(fs::read_to_string(home.path().join("back")).unwrap(), "content");
    let all: Vec<_> = fs::read_dir(home.path().join("all")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(all, ["file"]);
    let again =
        emulate_with_server(&["--", "lfn", "copy", "far:file", "again"]).current_dir(home.path()).output().unwrap();
    assert_eq!(again.status.code(), Some(1), "{}", stderr(&again));
}

fn far_side_answers_iperf3() {
    let client = ["--", "iperf3", "-c", "far", "-t", "1"];
    let output = emulate_with_server(&client).output().unwrap();
    assert!(matches!(output.status.code(), Some(0 | 4)), "{}{}", stdout(&output), stderr(&output));
    let output = emulate_with_server(&[&["--no-iperf3"], &client[..]].concat()).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}{}", stdout(&output), stderr(&output));
}

/// The user's own startup file still counts.
fn prompt_shows_the_link() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join(".bashrc"), "PS1='own> '").unwrap();
    for (shell, prompt) in [("/bin/bash", "(lfn 20ms 50Mb/s) own> "), ("/bin/sh", "(lfn 20ms 50Mb/s) ")] {
        let program = support::lfn_path();
        let line = format!("'{}' emulate --rtt 20ms --rate 50mbit --far-command none", program.display());
        let mut command = Command::new("script");
        command.args(["-qec", &line, "/dev/null"]).env("SHELL", shell).env("HOME", home.path());
        command.env("TMPDIR", home.path()).env("HISTFILE", "").stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        std::io::Write::write_all(&mut stdin, b"echo is_$((6 * 7)); exit\n").unwrap();
        let output = child.wait_with_output().unwrap();
        let said = stdout(&output);
        assert!(said.contains(prompt) && said.contains("is_42"), "{shell}: {said}");
    }
    // The startup files have deleted themselves.
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
}

fn command_without_dashes_is_explained() {
    let rows: [(&[&str], &str, &str); 6] = [
        (
            &["--rtt", "539ms", "--rate", "135mbit", "ping", "-c", "3", "far"],
            "the command 'ping' needs -- before it",
            "lfn emulate --rtt 539ms --rate 135mbit -- ping -c 3 far",
        ),
        (
            &["--profile", "acts", "iperf3", "-c", "far"],
            "the command 'iperf3' needs -- before it",
            "lfn emulate --profile acts -- iperf3 -c far",
        ),
        // All flags of CMD are also flags of `lfn emulate`.
        (
            &["--profile", "acts", "lfn", "test", "far", "--rate", "1mbit"],
            "the command 'lfn' needs -- before it",
            "lfn emulate --profile acts -- lfn test far --rate 1mbit",
        ),
        (
            &["--profile", "acts", "sh", "-c", "ping far; ls"],
            "the command 'sh' needs -- before it",
            "lfn emulate --profile acts -- sh -c 'ping far; ls'",
        ),
        (
            &["acts", "--", "ping", "far"],
            "the profile 'acts' needs --profile before it",
            "lfn emulate --profile acts -- ping far",
        ),
        (&["--up", "3mbit"], "unexpected argument '--up'", "lfn emulate --forward-rate 3mbit"),
    ];
    for (words, error, hint) in rows {
        let output = lfn().arg("emulate").args(words).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert_eq!(stderr(&output), format!("lfn: {error}\nhint: {hint}\n"));
    }
}

fn contradictory_flags_are_refused_at_the_start() {
    let cases: &[(&[&str], i32, &str)] = &[
        (&["--rtt", "-5ms"], 2, "-5ms"),
        (&["--rtt", "0ms"], 2, "the RTT of the path is zero"),
        (&["--rtt", "soon"], 2, "soon"),
        (&["--rtt", "3h"], 2, "one-way delay"),
        (&["--rate", "0"], 2, "rate of 0"),
        (&["--rate", "10MB/s"], 2, "MB/s"),
        (&["--rate", "-1mbit"], 2, "-1mbit"),
        (&["--rate", "99999gbit"], 2, "10 Tb/s"),
        (&["--queue", "5B"], 2, "5 B"),
        (&["--queue", "0bdp"], 2, "0 B"),
        (&["--queue", "-1bdp"], 2, "-1bdp"),
        (&["--queue", "lots"], 2, "lots"),
        (&["--loss", "2"], 2, "'2'"),
        (&["--loss", "-0.1"], 2, "-0.1"),
        (&["--mtu", "20"], 2, "MTU 20"),
        (&["--mtu", "65536"], 2, "MTU 65536"),
        (&["--mtu", "-1"], 2, "-1"),
        (&["--seed", "x"], 2, "--seed x"),
        (&["--far-root", "/no/such/directory"], 2, "/no/such/directory"),
        (&["--far-command", "true", "--far-root", "/"], 2, "--far-root"),
        (&["--far-command", ""], 2, "--far-command"),
        (&["--far-command", "true", "--no-iperf3"], 2, "--no-iperf3"),
        (&["--rtt", "100s", "--rate", "1tbit"], 1, "of memory for packets in flight"),
        (&["--report", "/no/such/directory/report.json"], 2, "/no/such/directory/report.json"),
    ];
    for (flags, code, named) in cases {
        let mut command = lfn();
        command.arg("emulate").args(*flags);
        for (flag, value) in [("--rtt", "20ms"), ("--rate", "50mbit")] {
            if !flags.contains(&flag) {
                command.args([flag, value]);
            }
        }
        let output = command.args(["--", "true"]).output().unwrap();
        assert_eq!(output.status.code(), Some(*code), "{flags:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(named), "{flags:?}: {}", stderr(&output));
        assert!(!stderr(&output).contains("panicked"), "{}", stderr(&output));
    }
}
