//! Shared helpers of the tests that run the binary: start it, and report skipped tests if namespaces are forbidden.

#![allow(dead_code, reason = "every test binary compiles this and none uses all of it")]

pub mod sandbox;
pub mod schema;
pub mod server;

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Output};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Failed, Trial};

/// Returns the path of the tested binary: `TEST_LFN_BIN` if the tests run outside of their build directory.
pub fn lfn_path() -> PathBuf {
    std::env::var_os("TEST_LFN_BIN").map_or_else(|| env!("CARGO_BIN_EXE_lfn").into(), PathBuf::from)
}

/// Returns a command for the tested binary.
pub fn lfn() -> Command {
    lfn_after(&[])
}

/// Returns a command that starts `before` with the binary as its argument. Resets SIGINT and SIGHUP, because a
/// background script or `nohup` passes ignored signals on.
pub fn lfn_after(before: &[&str]) -> Command {
    let mut command = Command::new("/usr/bin/env");
    command.arg("--default-signal=INT,HUP").args(before).arg(lfn_path());
    // The width of the output must not depend on the environment.
    command.env_remove("COLUMNS");
    // The result on a long link must not depend on the buffers of this host. `host_buffers_*` tests use the default.
    command.env("LFN_EMULATE_LARGE_BUFFERS", "true");
    command
}

/// Environment variable with the role of a test binary that is run as a command.
pub const ROLE: &str = "TEST_LFN_ROLE";

/// Returns a shell command that runs this test binary in a role.
pub fn as_role(role: &str) -> String {
    let program = std::env::current_exe().expect("a running program has a file");
    format!("{ROLE}='{role}' exec '{}'", program.display())
}

/// Runs a scenario in a new process: this test binary again, in this role.
pub fn run_scenario(scenario: &str) {
    let mut command = Command::new(std::env::current_exe().expect("a running program has a file"));
    let output = command.env(ROLE, scenario).env("PATH", path_with_servers()).output().expect("it starts");
    eprint!("{}", stderr(&output));
    assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
}

/// Requirements of a test.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    Nothing,
    Namespaces,
    /// Namespaces, and these programs on the PATH.
    Programs(&'static [&'static str]),
}

/// Runs tests. Marks tests with missing requirements as ignored and reports them. Under `CI=true` these tests fail.
pub fn run(tests: &[(&'static str, Needs, fn())]) -> ExitCode {
    run_with(Arguments::from_args(), tests)
}

/// Runs tests that mostly wait, with this number of threads unless the user sets another number.
pub fn run_parallel(threads: usize, tests: &[(&'static str, Needs, fn())]) -> ExitCode {
    let mut arguments = Arguments::from_args();
    let said = std::env::var("RUST_TEST_THREADS").ok().and_then(|threads| threads.parse().ok());
    arguments.test_threads = arguments.test_threads.or(said).or(Some(threads));
    run_with(arguments, tests)
}

/// A test that was made from data: its name, its requirements and its code.
pub type PageTest = (String, Needs, Box<dyn FnOnce() + Send>);

/// Works like [`run`], for tests that are made from data.
pub fn run_boxed(tests: Vec<PageTest>) -> ExitCode {
    run_trials(&Arguments::from_args(), tests)
}

fn run_with(arguments: Arguments, tests: &[(&'static str, Needs, fn())]) -> ExitCode {
    let boxed = |&(name, needs, test): &(&str, Needs, fn())| (name.to_owned(), needs, Box::new(test) as Box<_>);
    run_trials(&arguments, tests.iter().map(boxed).collect())
}

fn run_trials(arguments: &Arguments, tests: Vec<PageTest>) -> ExitCode {
    let obstacle = lfn_emulate::namespaces_available().err();
    let strict = std::env::var_os("CI").is_some_and(|ci| ci == "true");
    if let Some(obstacle) = &obstacle {
        eprintln!("SKIPPED: tests that need namespaces: {obstacle}. Remedy: {}", obstacle.remedy());
    }
    let trials = tests.into_iter().map(|(name, needs, test)| {
        let forbidden = || obstacle.as_ref().map(|obstacle| format!("cannot create namespaces: {obstacle}"));
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
    libtest_mimic::run(arguments, trials.collect()).exit_code()
}

/// Returns the first missing program with the command to install it.
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

/// Returns the PATH with Debian's directories for servers and network tools, which an ordinary user's PATH does not
/// have.
pub fn path_with_servers() -> OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    std::env::join_paths(directories).expect("it was a PATH before")
}

/// Returns the standard error of a process.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns the standard output of a process.
pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns the standard output without line breaks.
pub fn unwrapped(output: &Output) -> String {
    stdout(output).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the command lines of all processes with `marker` in their arguments.
pub fn processes_with(marker: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").expect("/proc is there").flatten();
    entries
        .filter_map(|entry| fs::read(entry.path().join("cmdline")).ok())
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| line.contains(marker))
        .collect()
}

/// Waits until `condition` holds, for at most a minute. Returns whether it holds.
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
