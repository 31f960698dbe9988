//! Runs that end at any time, in any way, leave nothing: no namespace, interface, process or socket.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking, its helpers too")]

mod support;

use std::env;
use std::fs;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use lfn_sys::namespace::NetNamespace;
use lfn_sys::process;
use lfn_sys::sysctl;
use support::sandbox;
use support::{Needs, eventually, lfn, processes_with, stderr};

/// Names what this test binary does when it is run as a command.
const ROLE: &str = "LFN_TEST_ROLE";
/// How many starts and ends; `LFN_STARTS=1000` for a thorough look.
const STARTS: &str = "LFN_STARTS";
const FEW: u32 = 16;
/// Runs whose namespaces may be there at once: a few, because the kernel clears away in the background.
const MOST_RUNS: u32 = 30;

fn main() -> ExitCode {
    match env::var(ROLE).as_deref() {
        Ok("starts-of-root") => starts(&[]),
        // To the kernel and to lfn it is an ordinary user that has nothing to say in the namespaces it is in.
        Ok("starts-of-a-user") => starts(&["unshare", "--user", "--map-user=1000", "--map-group=1000"]),
        Ok("attached-starts") => attached_starts(),
        Ok(other) => panic!("no role '{other}'"),
        Err(_) => {
            return support::run(&[
                ("however_many_runs_of_root_end_nothing_is_left", Needs::Namespaces, || play("starts-of-root")),
                ("however_many_runs_of_a_user_end_nothing_is_left", Needs::Programs(&["unshare"]), || {
                    play("starts-of-a-user")
                }),
                ("an_attached_namespace_is_free_after_any_end", Needs::Namespaces, || play("attached-starts")),
                (
                    "what_a_command_leaves_behind_ends_with_it",
                    Needs::Namespaces,
                    what_a_command_leaves_behind_ends_with_it,
                ),
                (
                    "a_far_command_that_ignores_signals_is_killed",
                    Needs::Namespaces,
                    a_far_command_that_ignores_signals_is_killed,
                ),
            ]);
        }
    }
    ExitCode::SUCCESS
}

/// Plays a scenario in a process of its own.
fn play(scenario: &str) {
    let output = Command::new(env::current_exe().unwrap()).env(ROLE, scenario).output().unwrap();
    eprint!("{}", stderr(&output));
    assert!(output.status.success(), "{}", stderr(&output));
}

fn count() -> u32 {
    env::var(STARTS).ok().and_then(|text| text.parse().ok()).unwrap_or(FEW)
}

/// How a run comes to its end.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// CMD ends by itself.
    Done,
    /// The caller is sent this, so many milliseconds after its start.
    Signal(&'static str, u64),
    /// Process 1 of its namespaces is killed.
    InsideKilled(u64),
}

/// A mixture that comes round: ends while the path is being built, while it is up, and while it is being taken down.
fn way(number: u32) -> Way {
    let after = u64::from(number * 7 % 120);
    match number % 8 {
        0 => Way::Done,
        1..=3 => Way::Signal("KILL", after),
        4 => Way::Signal("TERM", after),
        5 => Way::Signal("INT", after),
        6 => Way::Signal("HUP", after),
        _ => Way::InsideKilled(after),
    }
}

/// Starts a run and ends it this way. Whatever it says, it must not have panicked.
fn start_and_end(number: u32, before: &[&str], flags: &[&str], marker: &str) {
    let way = way(number);
    let stay = format!("setsid sleep {marker} & exec sleep {marker}");
    let script = if matches!(way, Way::Done) { "true" } else { &stay };
    let mut command = wrapped(before);
    command.args(["emulate", "--rtt", "20ms", "--rate", "10mbit", "--far", "none"]).args(flags);
    // Most without the half second in which nothing is there but what measures.
    let calibration = if number.is_multiple_of(5) { None } else { Some("--no-calibration") };
    command.args(calibration).args(["--", "sh", "-c", script]);
    let child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    match way {
        Way::Done => {}
        Way::Signal(name, after) => {
            thread::sleep(Duration::from_millis(after));
            send(child.id(), name);
        }
        Way::InsideKilled(after) => {
            thread::sleep(Duration::from_millis(after));
            // It may not be there yet; then it is killed as soon as it is.
            assert!(eventually(|| inside_of(&child).is_some_and(|inside| send(inside, "KILL")) || has_ended(&child)));
        }
    }
    let output = child.wait_with_output().unwrap();
    assert!(!stderr(&output).contains("panicked"), "{number} {way:?}: {}", stderr(&output));
    if matches!(way, Way::Done) {
        assert!(matches!(output.status.code(), Some(0 | 4)), "{number}: {}", stderr(&output));
    }
    // An inside whose caller was killed is left to whoever is process 1, which here is this one.
    while process::reap().is_some() {}
}

/// The binary under test, started by another command that becomes it.
fn wrapped(before: &[&str]) -> Command {
    let Some((program, arguments)) = before.split_first() else { return lfn() };
    let mut command = Command::new(program);
    command.args(arguments).arg(support::lfn_path());
    command
}

fn send(pid: u32, name: &str) -> bool {
    Command::new("kill")
        .args(["-s", name, &pid.to_string()])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// The child of a run's caller.
fn inside_of(child: &Child) -> Option<u32> {
    let file = format!("/proc/{0}/task/{0}/children", child.id());
    fs::read_to_string(file).ok()?.split_whitespace().next()?.parse().ok()
}

fn has_ended(child: &Child) -> bool {
    fs::read_to_string(format!("/proc/{}/stat", child.id())).is_ok_and(|stat| stat.contains(") Z "))
}

/// In a user namespace that allows no more namespaces than a few runs need, so that any that stayed would be missed.
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
    // Two lines of headings, and the loopback.
    let interfaces = fs::read_to_string("/proc/net/dev").unwrap();
    assert_eq!(interfaces.lines().count(), 3, "{interfaces}");
    // What is here, and one run: no more than that can still be there if it succeeds.
    limit(1);
    let one_more = || {
        let mut command = wrapped(before);
        command.args(["emulate", "--rtt", "20ms", "--rate", "10mbit", "--far", "none", "--no-calibration"]);
        matches!(command.args(["--", "true"]).stderr(Stdio::null()).status().unwrap().code(), Some(0 | 4))
    };
    assert!(eventually(one_more), "namespaces have stayed");
}

/// Allows the namespaces of so many runs, beside those of the sandbox. A run finds out first whether it may make any, and
/// the kernel has not cleared those away when the real ones are made. A user's run is in two user namespaces: the one that
/// makes it an ordinary user, and its own.
fn limit(runs: u32) {
    for (kind, here, each) in [("net", 1, 4), ("pid", 1, 2), ("mnt", 1, 1), ("ipc", 1, 1), ("user", 0, 3)] {
        sysctl::write(&format!("user.max_{kind}_namespaces"), &(here + each * runs).to_string()).unwrap();
    }
}

/// In a namespace that stays, nothing of a run does.
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

/// It forks, and its parent ends; it has a session of its own, and nobody waits for it.
fn what_a_command_leaves_behind_ends_with_it() {
    let marker = format!("98761.{}", std::process::id());
    let script = format!("(trap '' HUP TERM INT; setsid sleep {marker} &) ; exit 5");
    let mut command = lfn();
    command.args(["emulate", "--rtt", "20ms", "--rate", "10mbit", "--far", "none", "--", "sh", "-c", &script]);
    assert_eq!(command.output().unwrap().status.code(), Some(5));
    assert!(eventually(|| processes_with(&marker).is_empty()), "{:?}", processes_with(&marker));
}

fn a_far_command_that_ignores_signals_is_killed() {
    let marker = format!("98760.{}", std::process::id());
    let far = format!("trap '' INT TERM HUP; setsid sleep {marker} & sleep {marker}");
    let mut command = lfn();
    command.args(["emulate", "--rtt", "20ms", "--rate", "10mbit", "--far", &far, "--", "sh", "-c", "exit 6"]);
    assert_eq!(command.output().unwrap().status.code(), Some(6));
    assert!(eventually(|| processes_with(&marker).is_empty()), "{:?}", processes_with(&marker));
}
