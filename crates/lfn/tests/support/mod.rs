//! What the tests that drive the binary share: running it, and skipping loudly where namespaces are forbidden.

#![allow(dead_code, reason = "every test binary compiles this and none uses all of it")]

pub mod sandbox;
pub mod server;

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Output};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Failed, Trial};

/// Where the binary under test is: `LFN_BIN`, where the tests run apart from the place they were built in.
pub fn lfn_path() -> PathBuf {
    std::env::var_os("LFN_BIN").map_or_else(|| env!("CARGO_BIN_EXE_lfn").into(), PathBuf::from)
}

/// The binary under test.
pub fn lfn() -> Command {
    lfn_after(&[])
}

/// The same, started by other commands that become it. A script in the background hands down that interrupts are
/// ignored, `nohup` that hang-ups are, and lfn and CMD would do so too.
pub fn lfn_after(before: &[&str]) -> Command {
    let mut command = Command::new("/usr/bin/env");
    command.arg("--default-signal=INT,HUP").args(before).arg(lfn_path());
    // How wide this command's lines are is none of its.
    command.env_remove("COLUMNS");
    command
}

/// Names what a test binary does when it is run as a command: on one side of a path, or to make one.
pub const ROLE: &str = "LFN_TEST_ROLE";

/// A shell command that runs this test binary in a role.
pub fn as_role(role: &str) -> String {
    let program = std::env::current_exe().expect("a running program has a file");
    format!("{ROLE}='{role}' exec '{}'", program.display())
}

/// Plays a scenario in a process of its own: this test binary again, in that role.
pub fn play(scenario: &str) {
    let mut command = Command::new(std::env::current_exe().expect("a running program has a file"));
    let output = command.env(ROLE, scenario).env("PATH", path_with_servers()).output().expect("it starts");
    eprint!("{}", stderr(&output));
    assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
}

/// What a test cannot do without.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    Nothing,
    Namespaces,
    /// Namespaces, and these programs on the PATH.
    Programs(&'static [&'static str]),
}

/// Runs tests, and counts those as ignored that need what there is not, after saying so. Under `CI=true` they fail
/// instead, because then nobody would notice.
pub fn run(tests: &[(&'static str, Needs, fn())]) -> ExitCode {
    run_with(Arguments::from_args(), tests)
}

/// The same of tests that mostly wait: so many beside each other, if nobody says how many, however few processors there
/// are.
pub fn run_beside(threads: usize, tests: &[(&'static str, Needs, fn())]) -> ExitCode {
    let mut arguments = Arguments::from_args();
    let said = std::env::var("RUST_TEST_THREADS").ok().and_then(|threads| threads.parse().ok());
    arguments.test_threads = arguments.test_threads.or(said).or(Some(threads));
    run_with(arguments, tests)
}

fn run_with(arguments: Arguments, tests: &[(&'static str, Needs, fn())]) -> ExitCode {
    let obstacle = lfn_net::emulator::namespaces_available().err();
    let strict = std::env::var_os("CI").is_some_and(|ci| ci == "true");
    if let Some(obstacle) = &obstacle {
        eprintln!("SKIPPED: tests that need namespaces: {obstacle}. Cure: {}", obstacle.cure());
    }
    let trials = tests.iter().map(|&(name, needs, test)| {
        let forbidden = || obstacle.as_ref().map(|obstacle| format!("cannot make namespaces: {obstacle}"));
        let missing = match needs {
            Needs::Nothing => None,
            Needs::Namespaces => forbidden(),
            Needs::Programs(programs) => {
                missing(programs).inspect(|what| eprintln!("SKIPPED: {name}: {what}")).or_else(forbidden)
            }
        };
        let ignored = missing.is_some() && !strict;
        let trial = Trial::test(name, move || match missing {
            Some(what) => Err(Failed::from(what)),
            None => {
                test();
                Ok(())
            }
        });
        trial.with_ignored_flag(ignored)
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

/// The first of these programs that is not on the PATH, and what would change that.
fn missing(programs: &[&str]) -> Option<String> {
    let path = path_with_servers();
    let is_there = |program: &str| std::env::split_paths(&path).any(|directory| directory.join(program).is_file());
    let program = programs.iter().find(|program| !is_there(program))?;
    let package = match *program {
        "ip" | "tc" => "iproute2",
        "ping" => "iputils-ping",
        "ssh" | "ssh-keygen" => "openssh-client",
        "sshd" => "openssh-server",
        "prlimit" | "setsid" | "unshare" => "util-linux",
        other => other,
    };
    Some(format!("{program} is not on the PATH; on Debian: apt-get install {package}"))
}

/// The PATH, and where Debian keeps servers and network tools, which an ordinary user's PATH leaves out.
pub fn path_with_servers() -> OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    std::env::join_paths(directories).expect("it was a PATH before")
}

/// What it said on stderr.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// What it said on stdout.
pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// That, as if lines had no end.
pub fn unwrapped(output: &Output) -> String {
    stdout(output).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Command lines of all processes that have `marker` among their arguments.
pub fn processes_with(marker: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").expect("/proc is there").flatten();
    entries
        .filter_map(|entry| fs::read(entry.path().join("cmdline")).ok())
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| line.contains(marker))
        .collect()
}

/// Waits until `condition` holds, a minute at most; says whether it does.
pub fn eventually(mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}
