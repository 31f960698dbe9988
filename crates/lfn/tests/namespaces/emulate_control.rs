//! `lfn emulate set` and `show`: a running link is shown and changed, from outside and from both sides, only by its own
//! user.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use lfn_sys::namespace::UserIdentity;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::harness::{Needs, Test, Weight, tests_of};
use crate::support::rate::undisturbed;
use crate::support::sandbox::{self, Running};
use crate::support::schema::check_document;
use crate::support::{ROLE, copy_program, eventually, lfn, lfn_path, role_of, run_scenario, stderr, stdout};

/// Name of this module in the names of its tests and roles.
const MODULE: &str = "emulate_control";

/// Id of a user without a name.
const STRANGER: u32 = 52_003;
/// Name of the run that a part of a test uses.
const RUN: &str = "TEST_LFN_RUN";
const PORT: u16 = 9000;

pub fn tests() -> Vec<Test> {
    tests_of(
        MODULE,
        Weight::Waiting,
        &[
            ("link_is_shown_and_changed", Needs::Namespaces, link_is_shown_and_changed),
            ("commands_inside_can_change_the_link", Needs::Namespaces, commands_inside_can_change_the_link),
            ("single_links_and_paths_can_be_changed", Needs::Namespaces, single_links_and_paths_can_be_changed),
            ("several_runs_are_distinguished", Needs::Namespaces, several_runs_are_distinguished),
            ("invalid_changes_change_nothing", Needs::Namespaces, invalid_changes_change_nothing),
            ("trace_is_sent_with_the_change", Needs::Namespaces, trace_is_sent_with_the_change),
            ("timetables_start_with_the_command", Needs::Namespaces, timetables_start_with_the_command),
            ("hostile_control_peers_do_no_harm", Needs::Namespaces, hostile_control_peers_do_no_harm),
            ("other_users_are_refused", Needs::Root, other_users_are_refused),
            ("root_does_not_guess_the_run_of_a_user", Needs::Root, root_does_not_guess_the_run_of_a_user),
            ("unmapped_users_are_refused", Needs::Programs(&["unshare"]), unmapped_users_are_refused),
            ("report_longer_than_a_pipe_is_read", Needs::Namespaces, report_longer_than_a_pipe_is_read),
            ("killed_run_cannot_be_controlled", Needs::Namespaces, killed_run_cannot_be_controlled),
            ("show_without_a_run_is_an_error", Needs::Nothing, show_without_a_run_is_an_error),
        ],
    )
}

/// Runs this program as a part of a test.
pub fn act(role: &str) {
    match role {
        "listen" => TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).unwrap().incoming().for_each(drop),
        "connect" => connect(),
        "datagrams" => datagrams(),
        "talk" => talk(),
        "root-and-user" => root_and_user(),
        other => panic!("no role '{other}'"),
    }
}

/// Prints the duration of a handshake, which is one RTT.
fn connect() {
    // The listener on the far side may start later.
    for _ in 0..200 {
        let before = Instant::now();
        match TcpStream::connect(("far", PORT)) {
            Ok(mut stream) => {
                println!("RTT {}", before.elapsed().as_nanos());
                let _ = stream.read(&mut [0]);
                return;
            }
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => thread::sleep(Duration::from_millis(50)),
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the listener did not start");
}

fn datagrams() {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    for _ in 0..10 {
        socket.send_to(&[0; 100], ("far", PORT)).unwrap();
    }
}

/// Returns a shell command that runs this binary in a role.
fn as_role(role: &str) -> String {
    let program = env::current_exe().unwrap();
    format!("{ROLE}={} '{}'", role_of(MODULE, role), program.display())
}

fn emulate(flags: &[&str]) -> Command {
    let mut command = lfn();
    command.args(["emulate", "--rtt", "20ms", "--rate", "50mbit", "--far-command", "none"]).args(flags);
    command
}

/// Starts a run that answers until it is ended.
fn start_run(flags: &[&str]) -> Running {
    let mut command = emulate(flags);
    let running = Running::start(command.args(["--", "sleep", "1000"]));
    assert!(eventually(|| ask(&running, &["show"]).status.success()));
    running
}

/// Runs `lfn emulate set` or `show`.
fn ask(running: &Running, words: &[&str]) -> Output {
    let (verb, rest) = words.split_first().unwrap();
    lfn().args(["emulate", verb, "--pid", &running.pid().to_string()]).args(rest).output().unwrap()
}

fn shown(running: &Running) -> Value {
    let output = ask(running, &["show", "--json"]);
    let document = serde_json::from_slice(&output.stdout);
    let document = document.unwrap_or_else(|e| panic!("{e}: {} {}", stdout(&output), stderr(&output)));
    check_document(&document).unwrap();
    document
}

/// Returns the settings of a link as text.
fn link(standing: &Value, path: usize, number: usize) -> String {
    standing["paths"][path]["links"][number].as_str().unwrap().to_owned()
}

fn set(running: &Running, settings: &[&str]) {
    let output = ask(running, &[&["set"], settings].concat());
    assert!(output.status.success(), "{settings:?}: {}", stderr(&output));
}

fn link_is_shown_and_changed() {
    let running = start_run(&[]);
    let before = shown(&running);
    assert_eq!((&before["schema"], &before["pid"]), (&"lfn.emulate.show/2".into(), &running.pid().into()));
    assert_eq!(link(&before, 0, 0), "rate=50mbit,rtt=20ms");
    set(&running, &["rate=5mbit", "forward-loss=1e-3"]);
    let after = shown(&running);
    assert_eq!(link(&after, 0, 0), "rate=5mbit,rtt=20ms,forward-loss=0.001");
    assert_eq!(after["paths"][0]["path"]["capacity_bits_per_second"], 5_000_000);
    let text = ask(&running, &["show"]);
    assert!(stdout(&text).contains("link 1: rate=5mbit,rtt=20ms,forward-loss=0.001"), "{}", stdout(&text));
    let flags_last =
        lfn().args(["emulate", "set", "rate=6mbit", "--pid", &running.pid().to_string()]).output().unwrap();
    assert!(flags_last.status.success(), "{}", stderr(&flags_last));
    assert_eq!(link(&shown(&running), 0, 0), "rate=6mbit,rtt=20ms,forward-loss=0.001");
    // An unusual value is applied with a warning, as at the start.
    let odd = ask(&running, &["set", "loss=1"]);
    assert!(odd.status.success() && stderr(&odd).contains("lfn: "), "{}", stderr(&odd));
    running.signal("TERM");
    assert_eq!(running.end().0.code(), Some(143));
}

/// Changes affect the commands inside: their RTT changes at once.
fn commands_inside_can_change_the_link() {
    let (connect, listen) = (as_role("connect"), as_role("listen"));
    let script = format!("{connect} && lfn emulate set rtt=300ms && {connect} && lfn emulate show --json");
    let far = format!("lfn emulate show > /dev/null && exec {}", listen.split_once(' ').map_or("", |(_, rest)| rest));
    let far = format!("export {ROLE}={}; {far}", role_of(MODULE, "listen"));
    let mut command = lfn();
    command.args(["emulate", "--rtt", "20ms", "--rate", "50mbit", "--far-command", &far, "--", "sh", "-c", &script]);
    let output = command.output().unwrap();
    let said = stdout(&output);
    let times: Vec<u64> = said.lines().filter_map(|line| line.strip_prefix("RTT ")?.parse().ok()).collect();
    assert!(matches!(times[..], [a, b] if a >= 20_000_000 && b >= 300_000_000), "{said} {}", stderr(&output));
    let standing: Value = serde_json::from_str(&said[said.find("\n{").unwrap()..]).unwrap();
    assert_eq!(standing["paths"][0]["path"]["rtt_seconds"], 0.3);
    // Two handshakes. The end of the second connection may not have reached the link yet.
    assert!(standing["paths"][0]["near_to_far"]["offered"].as_u64().unwrap() >= 4, "{standing}");
}

fn single_links_and_paths_can_be_changed() {
    let mut command = lfn();
    command.args([
        "emulate",
        "--far-command",
        "none",
        "--link",
        "rate=50mbit,rtt=20ms",
        "--link",
        "rate=10mbit,rtt=2ms",
    ]);
    let mut running = Running::start(command.args(["--parallel", "rate=1mbit,rtt=1ms", "--", "sleep", "1000"]));
    assert!(eventually(|| ask(&running, &["show"]).status.success()));
    set(&running, &["--link", "2", "rtt=4ms"]);
    set(&running, &["--path", "2", "loss=1%"]);
    let standing = shown(&running);
    let links = [(0, 0), (0, 1), (1, 0)].map(|(path, number)| link(&standing, path, number));
    assert_eq!(links, ["rate=50mbit,rtt=20ms", "rate=10mbit,rtt=4ms", "rate=1mbit,rtt=1ms,loss=0.01"]);
    for (words, reason) in [
        (["set", "--link", "3", "rtt=4ms"], "no link 3; the numbers are 1 to 2"),
        (["set", "--path", "3", "rtt=4ms"], "no path 3; the numbers are 1 to 2"),
        (["set", "--path", "0", "rtt=4ms"], "--path"),
    ] {
        let output = ask(&running, &words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(stderr(&output).contains(reason), "{}", stderr(&output));
    }
    running.signal("KILL");
    running.says("");
}

fn several_runs_are_distinguished() {
    let (one, other) = (start_run(&[]), start_run(&[]));
    set(&one, &["rate=1mbit"]);
    assert_eq!(link(&shown(&one), 0, 0), "rate=1mbit,rtt=20ms");
    assert_eq!(link(&shown(&other), 0, 0), "rate=50mbit,rtt=20ms");
    let described = [(&one, "1mbit"), (&other, "50mbit")]
        .map(|(running, rate)| format!("process {} (rate={rate},rtt=20ms", running.pid()));
    // A run that answers late, while other tests load the machine, is listed without its settings.
    let said = undisturbed("both runs answer in time", 10, || {
        let output = lfn().args(["emulate", "set", "loss=1%"]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        let said = stderr(&output);
        if described.iter().all(|text| said.contains(text)) { Ok(said) } else { Err(said) }
    });
    let hint = said.lines().find_map(|line| line.strip_prefix("hint: lfn emulate set --pid=")).unwrap();
    let (pid, settings) = hint.split_once(' ').unwrap();
    // Other tests run emulations at the same time.
    assert!(said.contains(&format!("process {pid} (")) && settings == "loss=1%", "{said}");
}

fn invalid_changes_change_nothing() {
    let running = start_run(&[]);
    let before = link(&shown(&running), 0, 0);
    let cases: &[(&[&str], i32, &str)] = &[
        (&["rate=0"], 2, "0 b/s"),
        (&["rate=fast"], 2, "fast"),
        (&["speed=1mbit"], 2, "speed"),
        (&["rate"], 2, "KEY=VALUE"),
        (&["queue=5B"], 2, "5 B"),
        (&["rtt=3h"], 2, "one-way delay"),
        (&["forward-rtt=3ms"], 2, "rtt"),
        (&["rate=100gbit", "rtt=100s"], 1, "of memory for packets in flight"),
        (&["rate=1mbit", "loss=2"], 2, "'2'"),
        (&["trace=/no/such/trace.csv"], 2, "/no/such/trace.csv"),
        (&[], 2, "KEY=VALUE"),
    ];
    for (settings, code, named) in cases {
        let output = ask(&running, &[&["set"], *settings].concat());
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(*code), "{settings:?}: {said}");
        assert!(said.contains(named) && said.contains("hint: ") && !said.contains("panicked"), "{settings:?}: {said}");
        assert_eq!(link(&shown(&running), 0, 0), before, "{settings:?}");
    }
}

/// The run needs no access to the file and can have another directory.
fn trace_is_sent_with_the_change() {
    let running = start_run(&[]);
    let home = tempfile::tempdir().unwrap();
    let steps: String = (0..5000).map(|step| format!("{step}s,{}mbit\n", 1 + step % 7)).collect();
    fs::write(home.path().join("steps.csv"), format!("time,rate\n{steps}")).unwrap();
    let mut command = lfn();
    command.args(["emulate", "set", "--pid", &running.pid().to_string(), "trace=steps.csv"]);
    let output = command.current_dir(home.path()).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(link(&shown(&running), 0, 0).contains("trace=steps.csv"));
}

/// The time does not start with the machine: a machine that has run longer would be past the timetable.
fn timetables_start_with_the_command() {
    let file = tempfile::Builder::new().suffix(".json").tempfile().unwrap();
    let flags = ["--outage", "at:0s:100s", "--report", file.path().to_str().unwrap()];
    let output = emulate(&flags).args(["--", "sh", "-c", &as_role("datagrams")]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&fs::read(file.path()).unwrap()).unwrap();
    let direction = &report["accuracy_report"]["paths"][0]["near_to_far"];
    assert_eq!((&direction["offered"], &direction["dropped"]["outage"]), (&10.into(), &10.into()), "{direction}");
}

fn name(running: &Running) -> String {
    format!("lfn-emulate-{}-{}", rustix::process::geteuid().as_raw(), running.pid())
}

fn dial(name: &str) -> UnixStream {
    UnixStream::connect_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap()
}

fn hostile_control_peers_do_no_harm() {
    let running = start_run(&[]);
    let name = name(&running);
    let silent: Vec<_> = (0..12).map(|_| dial(&name)).collect();
    let before = Instant::now();
    shown(&running);
    // One after the other, each of them would take a second.
    assert!(before.elapsed().as_secs() < 6, "{:?}", before.elapsed());
    let mut half = dial(&name);
    half.write_all(b"{\"set\":{\"path\":1").unwrap();
    drop(dial(&name));
    // Longer than any request. The server closes the connection before it has read everything.
    let mut endless = dial(&name);
    let mib = vec![b'x'; 1 << 20];
    let sent = (0..64).take_while(|_| endless.write_all(&mib).is_ok()).count();
    assert!(sent < 64);
    for nonsense in [
        "\n",
        "{}\n",
        "\"shew\"\n",
        "{\"set\":{\"path\":99,\"link\":null,\"settings\":[],\"traces\":{}}}\n",
        "\u{0}\u{7f}\n",
    ] {
        let mut peer = dial(&name);
        peer.write_all(nonsense.as_bytes()).unwrap();
        let mut answer = String::new();
        peer.read_to_string(&mut answer).unwrap();
        assert!(serde_json::from_str::<Value>(&answer).unwrap()["Err"]["message"].is_string(), "{nonsense}: {answer}");
    }
    drop(silent);
    set(&running, &["rate=7mbit"]);
    assert_eq!(link(&shown(&running), 0, 0), "rate=7mbit,rtt=20ms");
}

/// Only root can use another user.
fn other_users_are_refused() {
    const NOBODY: u32 = 65_534;
    let running = start_run(&[]);
    let home = Home::new();
    let as_nobody = |command: &mut Command| command.uid(NOBODY).gid(NOBODY).current_dir("/").output().unwrap();
    let output = as_nobody(Command::new(&home.lfn).args(["emulate", "show", "--pid", &running.pid().to_string()]));
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("no running `lfn emulate` of this user"), "{}", stderr(&output));
    // A peer that does not check the other end is also refused.
    let output = as_nobody(Command::new(&home.test).env(ROLE, role_of(MODULE, "talk")).env(RUN, name(&running)));
    assert_eq!(stdout(&output), "heard 0 bytes\n", "{}", stderr(&output));
}

/// Root must name the run of another user. Then root may show and change it.
fn root_does_not_guess_the_run_of_a_user() {
    run_scenario(MODULE, "root-and-user");
}

/// Runs in its own network namespace, where no other run exists.
fn root_and_user() {
    let lfn_path = lfn_path();
    sandbox::enter_with(false);
    let home = Home::copy_of(&lfn_path);
    let none = Command::new(&home.lfn).args(["emulate", "set", "rate=1mbit"]).output().unwrap();
    assert_eq!(none.status.code(), Some(1), "{}", stderr(&none));
    let said = stderr(&none);
    assert_eq!(said, "lfn: no `lfn emulate` is running\nhint: lfn emulate --rtt 539ms --rate 135mbit\n");
    let mut command = Command::new(&home.lfn);
    command.args(["emulate", "--rtt", "20ms", "--rate", "50mbit", "--far-command", "none", "--", "sleep", "1000"]);
    let running = Running::start(command.uid(STRANGER).gid(STRANGER).current_dir("/"));
    let ask = |words: &[&str]| Command::new(&home.lfn).arg("emulate").args(words).output().unwrap();
    let pid = format!("--pid={}", running.pid());
    assert!(eventually(|| ask(&["show", &pid]).status.success()));
    let output = ask(&["set", "rate=1mbit"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let expected = format!(
        "lfn: the only running `lfn emulate` belongs to another user: process {} (user {STRANGER}, rate=50mbit,rtt=20ms)\n\
         hint: lfn emulate set {pid} rate=1mbit\n",
        running.pid()
    );
    assert_eq!(stderr(&output), expected);
    assert!(ask(&["set", &pid, "rate=1mbit"]).status.success());
    assert!(stdout(&ask(&["show", &pid])).contains("rate=1mbit,rtt=20ms"));
}

/// Both binaries in a directory that every user can read.
struct Home {
    lfn: PathBuf,
    test: PathBuf,
    _directory: TempDir,
}

impl Home {
    fn new() -> Home {
        Home::copy_of(&lfn_path())
    }

    fn copy_of(lfn_path: &std::path::Path) -> Home {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let [lfn, test] = [(lfn_path.to_owned(), "lfn"), (env::current_exe().unwrap(), "test")].map(|(from, name)| {
            let to = directory.path().join(name);
            copy_program(&from, &to);
            to
        });
        Home { lfn, test, _directory: directory }
    }
}

/// In a user namespace without mappings all users have one id, also the user of the run. Only root can use another
/// user. An ordinary user at least gets the error.
fn unmapped_users_are_refused() {
    let (home, is_root) = (Home::new(), UserIdentity::current().is_root());
    let [owner, stranger] = if is_root { [52_001, 52_002] } else { [rustix::process::geteuid().as_raw(); 2] };
    let as_user = |command: Command, uid: u32| {
        let mut command = command;
        if is_root {
            command.uid(uid).gid(uid);
        }
        command.current_dir("/");
        command
    };
    let mut sleeper = Command::new("unshare");
    sleeper.args(["--user", "--net", "sleep", "1000"]);
    let resident = Running::start(&mut as_user(sleeper, owner));
    let own = fs::read_link("/proc/self/ns/net").unwrap();
    let there = format!("/proc/{}/ns/net", resident.pid());
    assert!(eventually(|| fs::read_link(&there).is_ok_and(|net| net != own)));
    let mut command = Command::new(&home.lfn);
    command.args(["emulate", "--rtt", "20ms", "--rate", "10mbit", "--far-command", "none", "--no-calibration"]);
    command.args(["--attach-near", &resident.pid().to_string()]);
    let mut running = Running::start(&mut as_user(command, owner));
    running.says("the attached user namespace has no id for this user").says("an interrupt (Ctrl-C) ends the link");
    let name = format!("lfn-emulate-{owner}-{}", running.pid());
    let mut talk = Command::new(&home.test);
    talk.env(ROLE, role_of(MODULE, "talk")).env(RUN, &name);
    let output = as_user(talk, stranger).output().unwrap();
    assert_eq!(stdout(&output), "heard 0 bytes\n", "{}", stderr(&output));
}

/// The description of a change can be long, and the report contains all of it.
fn report_longer_than_a_pipe_is_read() {
    let running = start_run(&[]);
    let outages: Vec<_> = (1000..8000).map(|second| format!("{second}s:1ms")).collect();
    set(&running, &[&format!("outage=at:{}", outages.join("+"))]);
    running.signal("TERM");
    let stat = format!("/proc/{}/stat", running.pid());
    assert!(eventually(|| fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") Z "))), "it hangs");
    let (status, said) = running.end();
    assert_eq!(status.code(), Some(143), "{said}");
    assert!(said.contains("7999s:1ms") && said.contains("near to far"), "{said}");
}

/// Sends a request without the client's own check.
fn talk() {
    let Ok(mut peer) = UnixStream::connect_addr(&SocketAddr::from_abstract_name(env::var(RUN).unwrap()).unwrap())
    else {
        return println!("heard 0 bytes");
    };
    // The server may have closed the connection already.
    let _ = peer.write_all(b"\"show\"\n");
    let mut answer = Vec::new();
    let _ = peer.read_to_end(&mut answer);
    println!("heard {} bytes", answer.len());
}

fn killed_run_cannot_be_controlled() {
    let running = start_run(&[]);
    let mark = name(&running);
    let is_listed = || fs::read_to_string("/proc/net/unix").unwrap().contains(&mark);
    assert!(is_listed());
    running.signal("KILL");
    assert!(eventually(|| !is_listed()));
    let output = ask(&running, &["show"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains(&running.pid().to_string()), "{}", stderr(&output));
}

fn show_without_a_run_is_an_error() {
    let cases: [(&[&str], Option<&str>, &str); 3] = [
        (&["--pid", "4294967295"], None, "process id 4294967295"),
        (&[], Some("nonsense"), "LFN_CONTROL does not name an lfn emulate: 'nonsense'"),
        (&[], Some("@lfn-emulate-0-4294967295"), "process id 4294967295"),
    ];
    for (flags, variable, reason) in cases {
        let mut command = lfn();
        command.args(["emulate", "show"]).args(flags);
        if let Some(value) = variable {
            command.env("LFN_CONTROL", value);
        }
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{flags:?}");
        assert!(stderr(&output).contains(reason) && stderr(&output).contains("hint: "), "{}", stderr(&output));
    }
}
