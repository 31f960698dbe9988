//! A wall clock that jumps while a program runs, made with Debian's libfaketime and a file that is replaced.
//!
//! Only `CLOCK_REALTIME` moves, as if a user sets the clock of a host. The times of files come from the kernel and
//! stay.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::skip::Missing;

/// The wall clock of one side.
pub struct Clock(PathBuf);

impl Clock {
    /// Creates a correct clock that is controlled by a new file at this path.
    pub fn new(file: PathBuf) -> Clock {
        let clock = Clock(file);
        clock.set("+0");
        clock
    }

    /// Moves the clock by this offset from the true time, for example `-2d`. A reader sees the old or the new time.
    pub fn set(&self, offset: &str) {
        let new = self.0.with_extension("new");
        fs::write(&new, format!("{offset}\n")).unwrap();
        fs::rename(new, &self.0).unwrap();
    }

    /// Makes a program use this clock.
    pub fn rules(&self, command: &mut Command) {
        command.env("LD_PRELOAD", library()).env("FAKETIME_TIMESTAMP_FILE", &self.0);
        command.envs(["FAKETIME_NO_CACHE", "FAKETIME_DONT_FAKE_MONOTONIC", "NO_FAKE_STAT"].map(|name| (name, "1")));
    }
}

/// Returns an error if Debian's library is not installed.
pub fn missing() -> Option<Missing> {
    let library = library();
    let missing = || format!("{} is not there; on Debian: apt-get install faketime", library.display());
    (!library.is_file()).then(|| Missing::Program(missing()))
}

fn library() -> PathBuf {
    let triple = format!("{}-linux-gnu", std::env::consts::ARCH);
    Path::new("/usr/lib").join(triple).join("faketime/libfaketime.so.1")
}

/// Removes the shared memory that the library leaves after a kill, an abrupt end, or in a sandbox.
pub fn sweep(pid: u32) {
    for name in ["faketime_shm", "sem.faketime_sem"] {
        let _ = fs::remove_file(format!("/dev/shm/{name}_{pid}"));
    }
}
