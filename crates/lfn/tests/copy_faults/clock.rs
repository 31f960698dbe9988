//! A wall clock that jumps while a program runs: Debian's libfaketime, told by a file that is replaced.
//!
//! Only `CLOCK_REALTIME` moves, as when somebody sets the clock of a host; times of files stay what the kernel says.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The clock of one side.
pub struct Clock(PathBuf);

impl Clock {
    /// One that is right, kept in a new file there.
    pub fn new(file: PathBuf) -> Clock {
        let clock = Clock(file);
        clock.set("+0");
        clock
    }

    /// Moves it so far from the true time, such as `-2d`; whoever reads it sees the old time or the new one.
    pub fn set(&self, offset: &str) {
        let new = self.0.with_extension("new");
        fs::write(&new, format!("{offset}\n")).unwrap();
        fs::rename(new, &self.0).unwrap();
    }

    /// A program goes by it.
    pub fn rules(&self, command: &mut Command) {
        command.env("LD_PRELOAD", library()).env("FAKETIME_TIMESTAMP_FILE", &self.0);
        command.envs(["FAKETIME_NO_CACHE", "FAKETIME_DONT_FAKE_MONOTONIC", "NO_FAKE_STAT"].map(|name| (name, "1")));
    }
}

/// What there is to say if the library is not where Debian has it.
pub fn missing() -> Option<String> {
    let library = library();
    (!library.is_file()).then(|| format!("{} is not there; on Debian: apt-get install faketime", library.display()))
}

fn library() -> PathBuf {
    let triple = format!("{}-linux-gnu", std::env::consts::ARCH);
    Path::new("/usr/lib").join(triple).join("faketime/libfaketime.so.1")
}

/// Removes what the library leaves of a program that is killed, ends without a word to it, or may not since it is confined.
pub fn sweep(pid: u32) {
    for name in ["faketime_shm", "sem.faketime_sem"] {
        let _ = fs::remove_file(format!("/dev/shm/{name}_{pid}"));
    }
}
