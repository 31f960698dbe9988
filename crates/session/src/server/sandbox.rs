//! Sandbox of the server, in addition to `openat2`. With landlock (Linux 5.13) the kernel lets this process open only
//! the served directories and the files that it needs to read, even if later code has a bug.
//!
//! The server requests every restriction that the kernel knows. Nowhere may the process create a device, a pipe or a
//! socket. The sandbox holds for the calling thread and the threads that it starts, so call [`restrict`] before you
//! start a thread that opens files.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, PathBeneath, PathFd, RestrictionStatus, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetError, RulesetStatus,
};

/// Extent of the sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SandboxStatus {
    Full,
    /// The kernel enforces the restrictions that it knows.
    Partial,
    /// The kernel has no landlock.
    None,
}

impl SandboxStatus {
    /// Returns a sentence for the log.
    pub fn description(self) -> &'static str {
        match self {
            SandboxStatus::Full => "landlock: only the served directories are accessible",
            SandboxStatus::Partial => {
                "landlock: only the served directories are accessible, with the restrictions that this kernel supports"
            }
            SandboxStatus::None => {
                "the kernel has no landlock: openat2 alone confines copies to the served directories"
            }
        }
    }
}

/// Directories with the kernel's figures, which the server reads.
const KERNEL_DIRECTORIES: [&str; 2] = ["/proc", "/sys"];

/// Restricts this thread, and those that it starts, to the directories `roots`, to reading `others`, and to writing the
/// existing files `tuned`.
pub fn restrict(roots: &[&Path], others: &[&Path], tuned: &[PathBuf]) -> Result<SandboxStatus, RulesetError> {
    // Access rights of the newest landlock version that this code knows. An older kernel uses the ones that it knows.
    let abi = ABI::V5;
    let all = AccessFs::from_all(abi);
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let mut ruleset = Ruleset::default().handle_access(all)?.create()?;
    let kernel_directories = KERNEL_DIRECTORIES.iter().map(Path::new);
    let readable = kernel_directories.chain(others.iter().copied()).map(|path| (path, read));
    let served = roots.iter().map(|root| (*root, all & !forbidden_rights()));
    let write = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate;
    let writable = tuned.iter().map(|path| (path.as_path(), write));
    for (path, rights) in served.chain(readable).chain(writable) {
        // A path that does not exist needs no rule.
        if let Ok(opened) = PathFd::new(path) {
            ruleset = ruleset.add_rule(PathBeneath::new(opened, rights))?;
        }
    }
    let RestrictionStatus { ruleset, .. } = ruleset.restrict_self()?;
    Ok(match ruleset {
        RulesetStatus::FullyEnforced => SandboxStatus::Full,
        RulesetStatus::PartiallyEnforced => SandboxStatus::Partial,
        RulesetStatus::NotEnforced => SandboxStatus::None,
    })
}

/// Returns the rights that are denied below a root: creating special files and executing programs.
fn forbidden_rights() -> BitFlags<AccessFs> {
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
    fn sandbox_denies_outside_files_and_pipes() {
        let directory = tempfile::tempdir().unwrap();
        let (inside, outside) = (directory.path().join("in"), directory.path().join("out"));
        fs::create_dir_all(&inside).unwrap();
        fs::create_dir_all(&outside).unwrap();
        fs::write(outside.join("a"), "secret").unwrap();
        fs::write(outside.join("t"), "1").unwrap();
        // The sandbox holds for the new thread only.
        let confined = thread::spawn(move || {
            let status = restrict(&[&inside], &[], &[outside.join("t")]).unwrap();
            if status == SandboxStatus::None {
                return status;
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
            status
        });
        assert_ne!(confined.join().unwrap().description(), "");
        fs::write(directory.path().join("out/b"), "free").unwrap();
    }
}
