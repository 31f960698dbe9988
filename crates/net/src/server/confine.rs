//! What the kernel holds a server to beside `openat2`: with landlock (Linux 5.13) this process can open nothing but what it
//! serves and what it needs to read, whatever is wrong with the code that follows.
//!
//! As much of it is asked for as the kernel knows. No right is given, anywhere, to make a device, a pipe or a socket.
//! It holds for the calling thread and those it starts, so it comes before any thread that touches files.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, PathBeneath, PathFd, RestrictionStatus, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetError, RulesetStatus,
};

/// What holds from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confinement {
    /// All that was asked for.
    Full,
    /// What the kernel knows of it.
    Partial,
    /// Nothing: the kernel has no landlock.
    None,
}

impl Confinement {
    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            Confinement::Full => "confined by landlock to what is served",
            Confinement::Partial => "confined by landlock to what is served, as far as this kernel's goes",
            Confinement::None => "the kernel has no landlock: openat2 alone confines what is served",
        }
    }
}

/// Figures of the kernel, which the server reads.
const FIGURES: [&str; 2] = ["/proc", "/sys"];

/// Confines this thread, and those it starts, to `roots`, to reading `others`, and to writing the existing files `tuned`.
pub fn confine(roots: &[&Path], others: &[&Path], tuned: &[PathBuf]) -> Result<Confinement, RulesetError> {
    // The rights of the newest landlock that is understood here; an older kernel takes those it knows.
    let abi = ABI::V5;
    let all = AccessFs::from_all(abi);
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let mut ruleset = Ruleset::default().handle_access(all)?.create()?;
    let figures = FIGURES.iter().map(Path::new);
    let readable = figures.chain(others.iter().copied()).map(|path| (path, read));
    let served = roots.iter().map(|root| (*root, all & !unmade()));
    let write = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate;
    let writable = tuned.iter().map(|path| (path.as_path(), write));
    for (path, rights) in served.chain(readable).chain(writable) {
        // What is not there needs no right.
        if let Ok(opened) = PathFd::new(path) {
            ruleset = ruleset.add_rule(PathBeneath::new(opened, rights))?;
        }
    }
    let RestrictionStatus { ruleset, .. } = ruleset.restrict_self()?;
    Ok(match ruleset {
        RulesetStatus::FullyEnforced => Confinement::Full,
        RulesetStatus::PartiallyEnforced => Confinement::Partial,
        RulesetStatus::NotEnforced => Confinement::None,
    })
}

/// What nobody makes or runs below a root.
fn unmade() -> BitFlags<AccessFs> {
    AccessFs::MakeChar
        | AccessFs::MakeBlock
        | AccessFs::MakeFifo
        | AccessFs::MakeSock
        | AccessFs::IoctlDev
        | AccessFs::Execute
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::ErrorKind;
    use std::thread;

    use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};

    use super::*;

    #[test]
    fn nothing_outside_can_be_opened_and_no_pipe_made() {
        let place = tempfile::tempdir().unwrap();
        let (inside, outside) = (place.path().join("in"), place.path().join("out"));
        fs::create_dir_all(&inside).unwrap();
        fs::create_dir_all(&outside).unwrap();
        fs::write(outside.join("a"), "secret").unwrap();
        fs::write(outside.join("t"), "1").unwrap();
        // It holds for that thread alone.
        let confined = thread::spawn(move || {
            let held = confine(&[&inside], &[], &[outside.join("t")]).unwrap();
            if held == Confinement::None {
                return held;
            }
            assert_eq!(File::open(outside.join("a")).unwrap_err().kind(), ErrorKind::PermissionDenied);
            assert_eq!(fs::read_dir(&outside).unwrap_err().kind(), ErrorKind::PermissionDenied);
            fs::write(outside.join("t"), "2").unwrap();
            assert_eq!(fs::remove_file(outside.join("t")).unwrap_err().kind(), ErrorKind::PermissionDenied);
            fs::write(inside.join("b"), "b").unwrap();
            fs::rename(inside.join("b"), inside.join("c")).unwrap();
            let nameless = open(&inside, OFlags::TMPFILE | OFlags::WRONLY, Mode::from_raw_mode(0o600)).unwrap();
            let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&nameless));
            rustix::fs::linkat(CWD, path, CWD, inside.join("d"), rustix::fs::AtFlags::SYMLINK_FOLLOW).unwrap();
            let pipe = mknodat(CWD, inside.join("p"), FileType::Fifo, Mode::from_raw_mode(0o600), 0);
            assert_eq!(pipe.unwrap_err(), rustix::io::Errno::ACCESS);
            held
        });
        assert_ne!(confined.join().unwrap().text(), "");
        fs::write(place.path().join("out/b"), "free").unwrap();
    }
}
