//! Shared helpers of the tests that run the binary: start it, skip tests, and repeat measurements.

#![allow(dead_code, reason = "every test binary compiles this and none uses all of it")]

pub mod examples;
pub mod harness;
pub mod nats;
pub mod python;
pub mod rate;
pub mod sandbox;
pub mod schema;
pub mod server;
pub mod skip;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use skip::Missing;

/// Returns the path of the tested binary: `TEST_LFN_BIN` if the tests run outside of their build directory.
pub fn lfn_path() -> PathBuf {
    std::env::var_os("TEST_LFN_BIN").map_or_else(|| env!("CARGO_BIN_EXE_lfn").into(), PathBuf::from)
}

/// Copies a program with `cp`. If this process wrote the copy, a command that another thread starts at the same time
/// could hold it open for writing, and the kernel refuses to run such a file (`ETXTBSY`).
pub fn copy_program(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("--").args([from, to]).status().unwrap().success());
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

/// Returns the value of [`ROLE`] for a role of a module.
pub fn role_of(module: &str, role: &str) -> String {
    format!("{module}::{role}")
}

/// Returns a shell command that runs this test binary in a role of a module.
pub fn as_role(module: &str, role: &str) -> String {
    let program = std::env::current_exe().expect("a running program has a file");
    format!("{ROLE}='{}' exec '{}'", role_of(module, role), program.display())
}

/// Runs a scenario in a new process: this test binary again, in a role of a module.
pub fn run_scenario(module: &str, scenario: &str) {
    let mut command = Command::new(std::env::current_exe().expect("a running program has a file"));
    let output =
        command.env(ROLE, role_of(module, scenario)).env("PATH", path_with_servers()).output().expect("it starts");
    eprint!("{}", stderr(&output));
    assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
}

/// Returns whether this process runs as root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns the first missing program with the command to install it.
pub fn missing_program(programs: &[&str]) -> Option<Missing> {
    let path = path_with_servers();
    let is_there = |program: &str| std::env::split_paths(&path).any(|directory| directory.join(program).is_file());
    let program = programs.iter().find(|program| !is_there(program))?;
    let package = match *program {
        "ip" | "tc" => "iproute2",
        "ping" => "iputils-ping",
        "ssh" | "ssh-keygen" => "openssh-client",
        "sshd" => "openssh-server",
        "prlimit" | "setsid" | "unshare" => "util-linux",
        "script" => "bsdutils",
        "setfacl" => "acl",
        "mpirun" => "openmpi-bin",
        "srun" | "slurmctld" | "slurmd" => "slurm-wlm",
        "munged" => "munge",
        other => other,
    };
    Some(Missing::Program(format!("{program} is not on the PATH; on Debian: apt-get install {package}")))
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
