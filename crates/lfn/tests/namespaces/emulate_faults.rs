//! Runs that end at any time and in any way leave nothing: no namespace, interface, process or socket.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use lfn_sys::namespace::NetNamespace;
use lfn_sys::netlink::Netlink;
use lfn_sys::{process, sysctl};

use crate::support;
use crate::support::harness::{Needs, Test, Weight, tests_of};
use crate::support::sandbox::{self, Running};
use crate::support::skip::skip;
use crate::support::{eventually, lfn, missing_program, processes_with, run_scenario, stderr};

/// Name of this module in the names of its tests and roles.
const MODULE: &str = "emulate_faults";

/// Number of starts and ends. `TEST_LFN_STARTS=1000` runs a thorough test.
const STARTS: &str = "TEST_LFN_STARTS";
const FEW: u32 = 16;
/// Runs whose namespaces may exist at the same time: a few, because the kernel deletes namespaces in the background.
const MOST_RUNS: u32 = 30;

/// Runs this program as a part of a test.
pub fn act(role: &str) {
    match role {
        "starts-of-root" => starts(&[]),
        // For the kernel and for lfn, this is an ordinary user without rights in its namespaces.
        "starts-of-a-user" => starts(&["unshare", "--user", "--map-user=1000", "--map-group=1000"]),
        "attached-starts" => attached_starts(),
        "vanish" => vanish(),
        other => panic!("no role '{other}'"),
    }
}

pub fn tests() -> Vec<Test> {
    tests_of(
        MODULE,
        Weight::Waiting,
        &[
            ("many_runs_by_root_leave_nothing", Needs::Programs(&["unshare"]), || {
                run_scenario(MODULE, "starts-of-root")
            }),
            ("many_runs_by_a_user_leave_nothing", Needs::Programs(&["unshare"]), || {
                run_scenario(MODULE, "starts-of-a-user")
            }),
            ("many_attached_runs_leave_nothing", Needs::Namespaces, || run_scenario(MODULE, "attached-starts")),
            ("deleted_attached_interface_is_named", Needs::Namespaces, || run_scenario(MODULE, "vanish")),
            ("background_processes_end_with_the_command", Needs::Namespaces, background_processes_end_with_the_command),
            (
                "far_command_that_ignores_signals_is_killed",
                Needs::Namespaces,
                far_command_that_ignores_signals_is_killed,
            ),
            ("second_interrupt_ends_the_run", Needs::Namespaces, second_interrupt_ends_the_run),
            (
                "interrupt_during_the_start_reaches_the_command",
                Needs::Namespaces,
                interrupt_during_the_start_reaches_the_command,
            ),
            ("run_outlives_its_parent", Needs::Namespaces, run_outlives_its_parent),
            ("missing_descriptors_are_named", Needs::Namespaces, missing_descriptors_are_named),
            ("process_limit_is_named", Needs::Root, process_limit_is_named),
            ("invalid_trace_files_are_refused", Needs::Nothing, invalid_trace_files_are_refused),
        ],
    )
}

fn count() -> u32 {
    env::var(STARTS).ok().and_then(|text| text.parse().ok()).unwrap_or(FEW)
}

/// Ways in which a run ends.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// CMD ends by itself.
    Done,
    /// CMD does not exist.
    CannotStart,
    /// The caller gets this signal this many milliseconds after its start.
    Signal(&'static str, u64),
    /// Process 1 of its namespaces is killed after this many milliseconds.
    InsideKilled(u64),
}

/// Returns the ways in turn: the end comes while the path is set up, while it is up, and while it is taken down.
fn way(number: u32) -> Way {
    let after = u64::from(number * 7 % 120);
    match number % 9 {
        0 => Way::Done,
        8 => Way::CannotStart,
        1..=3 => Way::Signal("KILL", after),
        4 => Way::Signal("TERM", after),
        5 => Way::Signal("INT", after),
        6 => Way::Signal("HUP", after),
        _ => Way::InsideKilled(after),
    }
}

/// Starts a run and ends it in this way. The run must not panic.
fn start_and_end(number: u32, before: &[&str], flags: &[&str], marker: &str) {
    let way = way(number);
    let stay = format!("setsid sleep {marker} & exec sleep {marker}");
    let shell = |script: &str| ["sh", "-c", script].map(str::to_owned).to_vec();
    let cmd = match way {
        Way::Done => shell("true"),
        Way::CannotStart => vec!["/no/such/command".to_owned()],
        Way::Signal(..) | Way::InsideKilled(_) => shell(&stay),
    };
    let mut command = support::lfn_after(before);
    command.args(["emulate", "--rtt", "20ms", "--rate", "10mbit", "--far-command", "none"]).args(flags);
    // Most runs skip the half second of calibration.
    let calibration = if number.is_multiple_of(5) { None } else { Some("--no-calibration") };
    command.args(calibration).arg("--").args(cmd);
    let child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    match way {
        Way::Done | Way::CannotStart => {}
        Way::Signal(name, after) => {
            thread::sleep(Duration::from_millis(after));
            send(child.id(), name);
        }
        Way::InsideKilled(after) => {
            thread::sleep(Duration::from_millis(after));
            // The child may not exist yet, or may be the process that tests for namespaces.
            let kill = |inside| {
                send(inside, "KILL");
            };
            assert!(eventually(|| {
                inside_of(&child).into_iter().for_each(kill);
                has_ended(&child)
            }));
        }
    }
    assert!(eventually(|| has_ended(&child)), "{number} {way:?} goes on");
    let output = child.wait_with_output().unwrap();
    assert!(!stderr(&output).contains("panicked"), "{number} {way:?}: {}", stderr(&output));
    match (way, output.status.code()) {
        (Way::Done, Some(0 | 4)) | (Way::CannotStart, Some(127)) | (Way::Signal(..) | Way::InsideKilled(_), _) => {}
        (way, code) => panic!("{number} {way:?} {code:?}: {}", stderr(&output)),
    }
    // If the caller was killed, its child becomes a child of process 1, which is this process.
    while process::reap().is_some() {}
}

fn send(pid: u32, name: &str) -> bool {
    Command::new("kill")
        .args(["-s", name, &pid.to_string()])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Returns the child of a run's caller.
fn inside_of(child: &Child) -> Option<u32> {
    let file = format!("/proc/{0}/task/{0}/children", child.id());
    fs::read_to_string(file).ok()?.split_whitespace().next()?.parse().ok()
}

fn has_ended(child: &Child) -> bool {
    fs::read_to_string(format!("/proc/{}/stat", child.id())).is_ok_and(|stat| stat.contains(") Z "))
}

/// Runs in a user namespace that allows only the namespaces of a few runs, so that a remaining namespace causes an
/// error.
fn starts(before: &[&str]) {
    sandbox::enter_with(true);
    limit(MOST_RUNS);
    let marker = format!("98763.{}", std::process::id());
    let began = Instant::now();
    for number in 0..count() {
        start_and_end(number, before, &[], &marker);
    }
    eprintln!("{} starts and ends took {:.1} s", count(), began.elapsed().as_secs_f64());
    assert!(eventually(|| processes_with(&marker).is_empty()), "{:?}", processes_with(&marker));
    assert!(eventually(|| !fs::read_to_string("/proc/net/unix").unwrap().contains("lfn-emulate")));
    // Two header lines, and the loopback interface.
    let interfaces = fs::read_to_string("/proc/net/dev").unwrap();
    assert_eq!(interfaces.lines().count(), 3, "{interfaces}");
    // If the limit is one more than the existing namespaces, another one can be created only if none is left.
    for (kind, here) in [("net", 1), ("pid", 1), ("mnt", 1), ("ipc", 1), ("user", 0)] {
        sysctl::write(&format!("user.max_{kind}_namespaces"), &(here + 1).to_string()).unwrap();
        let flag = if kind == "mnt" { "--mount".to_owned() } else { format!("--{kind}") };
        let mut command = Command::new("unshare");
        command.args([&flag, "--fork", "true"]).stderr(Stdio::null());
        assert!(eventually(|| command.status().unwrap().success()), "a {kind} namespace has stayed");
    }
}

/// Allows the namespaces of this many runs, besides those of the sandbox. A run first tests whether it may create any,
/// and the kernel has not deleted these when the real ones are created. A user's run is in two user namespaces: its
/// own, and a namespace that makes it an ordinary user.
fn limit(runs: u32) {
    for (kind, here, each) in [("net", 1, 4), ("pid", 1, 2), ("mnt", 1, 1), ("ipc", 1, 1), ("user", 0, 3)] {
        sysctl::write(&format!("user.max_{kind}_namespaces"), &(here + each * runs).to_string()).unwrap();
    }
}

/// Nothing of a run stays in an existing namespace.
fn attached_starts() {
    sandbox::enter();
    let near = NetNamespace::new().unwrap();
    let mut resident = sandbox::spawn_in(&near, Command::new("sleep").arg("1000"));
    let marker = format!("98762.{}", std::process::id());
    for number in 0..count() {
        start_and_end(number, &[], &["--attach-near", &resident.id().to_string()], &marker);
        assert!(eventually(|| !sandbox::has_interface(&near, "lfn0")), "{number}");
    }
    resident.kill().unwrap();
    resident.wait().unwrap();
    assert!(eventually(|| processes_with(&marker).is_empty()), "{:?}", processes_with(&marker));
}

/// The process forks, its parent ends, and it has a session of its own without a waiting parent.
fn background_processes_end_with_the_command() {
    let marker = format!("98761.{}", std::process::id());
    let script = format!("(trap '' HUP TERM INT; setsid sleep {marker} &) ; exit 5");
    let mut command = lfn();
    command.args(["emulate", "--rtt", "20ms", "--rate", "10mbit", "--far-command", "none", "--", "sh", "-c", &script]);
    assert_eq!(command.output().unwrap().status.code(), Some(5));
    assert!(eventually(|| processes_with(&marker).is_empty()), "{:?}", processes_with(&marker));
}

fn far_command_that_ignores_signals_is_killed() {
    let marker = format!("98760.{}", std::process::id());
    let far = format!("trap '' INT TERM HUP; setsid sleep {marker} & sleep {marker}");
    let mut command = lfn();
    command.args(["emulate", "--rtt", "20ms", "--rate", "10mbit", "--far-command", &far, "--", "sh", "-c", "exit 6"]);
    assert_eq!(command.output().unwrap().status.code(), Some(6));
    assert!(eventually(|| processes_with(&marker).is_empty()), "{:?}", processes_with(&marker));
}

/// Another root user of the attached namespace deletes the interface.
fn vanish() {
    sandbox::enter();
    let (near, far) = (NetNamespace::new().unwrap(), NetNamespace::new().unwrap());
    let mut residents = [&near, &far].map(|side| sandbox::spawn_in(side, Command::new("sleep").arg("1000")));
    let [near_pid, far_pid] = residents.each_ref().map(|resident| resident.id().to_string());
    for side in [&near, &far] {
        let mut command = lfn();
        command.args(["emulate", "--rtt", "20ms", "--rate", "10mbit", "--no-calibration"]);
        let mut running = Running::start(command.args(["--attach-near", &near_pid, "--attach-far", &far_pid]));
        running.says("an interrupt (Ctrl-C) ends the link");
        let unplug = || {
            let mut netlink = Netlink::open()?;
            let index = netlink.index("lfn0")?;
            netlink.delete(index)
        };
        side.run(unplug).unwrap().unwrap();
        let (status, said) = running.end();
        assert_eq!(status.code(), Some(1), "{said}");
        assert!(said.ends_with("lfn: interface lfn0 vanished\n") && said.contains("near to far"), "{said}");
        assert!(eventually(|| [&near, &far].iter().all(|side| !sandbox::has_interface(side, "lfn0"))));
    }
    for resident in &mut residents {
        resident.kill().unwrap();
        resident.wait().unwrap();
    }
}

/// The first interrupt is for CMD. The second one ends the run.
fn second_interrupt_ends_the_run() {
    let marker = format!("98759.{}", std::process::id());
    let script = format!("trap '' INT; echo ready >&2; sleep {marker}; sleep {marker}");
    let mut command = lfn();
    command.args(["emulate", "--rtt", "20ms", "--rate", "10mbit", "--far-command", "none", "--", "sh", "-c", &script]);
    let mut running = Running::start(&mut command);
    running.says("ready").signal("INT");
    // An earlier interrupt could be the same key press, delivered twice.
    thread::sleep(Duration::from_millis(1000));
    running.signal("INT");
    let (status, said) = running.end();
    assert_eq!(status.code(), Some(137), "{said}");
    assert!(eventually(|| processes_with(&marker).is_empty()), "{:?}", processes_with(&marker));
}

/// A terminal key sends the interrupt to the whole group, so CMD should get it. CMD does not exist yet.
fn interrupt_during_the_start_reaches_the_command() {
    let marker = format!("98757.{}", std::process::id());
    for after in [30, 100, 200, 300, 400] {
        let mut command = support::lfn_after(&[]);
        command.args(["emulate", "--rtt", "20ms", "--rate", "10mbit", "--far-command", "none", "--", "sleep", &marker]);
        let mut child = command.stderr(Stdio::null()).process_group(0).spawn().unwrap();
        thread::sleep(Duration::from_millis(after));
        let group = -i32::try_from(child.id()).unwrap();
        process::send_signal(group, process::signal::SIGINT).unwrap();
        assert!(eventually(|| child.try_wait().unwrap().is_some()), "after {after} ms it was lost");
        assert!(eventually(|| processes_with(&marker).is_empty()), "{:?}", processes_with(&marker));
    }
}

/// The shell that started the run ends before CMD. CMD completes its work, and then nothing is left.
fn run_outlives_its_parent() {
    let home = tempfile::tempdir().unwrap();
    let (go, done) = (home.path().join("go"), home.path().join("done"));
    let marker = format!("98758.{}", std::process::id());
    let script =
        format!("sleep {marker} & while ! test -e '{}'; do sleep 0.05; done; touch '{}'", go.display(), done.display());
    let starter = format!(
        "'{}' emulate --rtt 20ms --rate 10mbit --far-command none -- sh -c \"$1\" 2> /dev/null &",
        support::lfn_path().display()
    );
    assert!(Command::new("sh").args(["-c", &starter, "sh", &script]).status().unwrap().success());
    assert!(eventually(|| processes_with(&marker).iter().any(|line| line.starts_with("sleep "))));
    fs::write(&go, "").unwrap();
    assert!(eventually(|| processes_with(&marker).is_empty()), "{:?}", processes_with(&marker));
    assert!(done.exists());
}

/// At every step of the setup, whichever file cannot be opened.
fn missing_descriptors_are_named() {
    let run = |most: u32| {
        let script = format!(
            "ulimit -n {most}; exec '{}' emulate --rtt 20ms --rate 10mbit --far-command none --no-calibration -- true",
            support::lfn_path().display()
        );
        Command::new("sh").args(["-c", &script]).stdin(Stdio::null()).output().unwrap()
    };
    for (refused, most) in (4..64).enumerate() {
        let output = run(most);
        let said = stderr(&output);
        match output.status.code() {
            Some(0 | 4) => return assert!(refused > 0, "{said}"),
            Some(1 | 126) => assert!(said.contains("lfn: ") && said.contains("Too many open files"), "{most}: {said}"),
            other => panic!("{most}: {other:?} {said}"),
        }
    }
    panic!("63 descriptors are not enough");
}

/// At every step, with and without calibration. The limit does not apply to root and counts all processes of its user,
/// so the test uses a user without processes, which only root can do.
fn process_limit_is_named() {
    const SOMEBODY: u32 = 52_003;
    if let Some(missing) = missing_program(&["prlimit"]) {
        return skip("process_limit_is_named", &missing);
    }
    let home = tempfile::tempdir().unwrap();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = home.path().join("lfn");
    support::copy_program(&support::lfn_path(), &program);
    for flags in [&["--rate", "10mbit", "--no-calibration"][..], &["--rate", "2gbit", "--force"]] {
        let run = |most: u32| {
            let mut command = Command::new("prlimit");
            command.arg(format!("--nproc={most}")).arg(&program).args([
                "emulate",
                "--rtt",
                "20ms",
                "--far-command",
                "none",
            ]);
            command.args(flags).args(["--", "true"]).uid(SOMEBODY).gid(SOMEBODY).current_dir("/");
            command.stdin(Stdio::null()).output().unwrap()
        };
        for (refused, most) in (1..64).enumerate() {
            let output = run(most);
            let said = stderr(&output);
            assert!(!said.contains("panicked"), "{most}: {said}");
            match output.status.code() {
                Some(0 | 4) if !said.contains("not calibrated") => {
                    assert!(refused > 1, "{said}");
                    break;
                }
                Some(0 | 1 | 4) => assert!(said.contains("Resource temporarily unavailable"), "{most}: {said}"),
                other => panic!("{most}: {other:?} {said}"),
            }
            assert!(most < 63, "63 processes are not enough: {said}");
        }
    }
}

/// No data, a directory, an endless file, no text, a missing file: all are refused at the start.
fn invalid_trace_files_are_refused() {
    for file in ["/dev/null", "/", "/dev/zero", "/dev/urandom", "/no/such/file"] {
        for (flag, rest) in [("--trace", &["--rate", "10mbit", "--rtt", "20ms"][..]), ("--profile", &[])] {
            let output = lfn().args(["emulate", flag, file]).args(rest).args(["--", "true"]).output().unwrap();
            let said = stderr(&output);
            assert_eq!(output.status.code(), Some(2), "{flag} {file}: {said}");
            assert!(said.starts_with("lfn: ") && said.contains(file) && said.contains("\nhint: "), "{said}");
        }
    }
}
