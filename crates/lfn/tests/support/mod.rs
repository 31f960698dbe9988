//! What the tests that drive the binary share: running it, and skipping loudly where namespaces are forbidden.

#![allow(dead_code, reason = "every test binary compiles this and none uses all of it")]

use std::fs;
use std::io::Write;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// The binary under test.
pub fn lfn() -> Command {
    Command::new(env!("CARGO_BIN_EXE_lfn"))
}

/// True if paths can be emulated here. Where not, says so past the test harness's capture; under `CI=true` that is a
/// failure, because then nobody would notice.
pub fn namespaces(test: &str) -> bool {
    let Err(obstacle) = lfn_net::emulator::namespaces_available() else { return true };
    let line = format!("SKIPPED: {test}: cannot make namespaces: {obstacle}. Cure: {}\n", obstacle.cure());
    assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{line}");
    // The harness captures what the print macros write, not this.
    let _ = std::io::stderr().write_all(line.as_bytes());
    false
}

/// What it said on stderr.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// What it said on stdout.
pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
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
pub fn eventually(condition: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}
