//! Protection against symbolic links that another user planted. A link in `/tmp` could make lfn overwrite one of your
//! files.
//!
//! The kernel parameter `fs.protected_symlinks` and its siblings (proc(5)) give the same protection, but only when a
//! file is opened. Code that resolves a link itself, or that replaces a file, must check itself.
//!
//! Another user cannot replace your file between this check and the write, because the directory is sticky.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Mode bits of a directory that is sticky and writable by all users.
const STICKY_WORLD_WRITABLE: u32 = 0o1002;
/// Maximum number of links that the kernel follows (path_resolution(7)).
pub(crate) const MAX_LINKS: u32 = 40;

/// Returns an error if another user created the file `path` or a symbolic link on the way to it, in a directory where
/// all users may write. Files of the directory's owner are accepted.
pub fn check(path: &Path) -> io::Result<()> {
    check_path(path, &mut 0)
}

fn check_path(path: &Path, links: &mut u32) -> io::Result<()> {
    // Files that are already open (/proc/self/fd) were checked when they were opened.
    if path.starts_with("/proc") {
        return Ok(());
    }
    for component in path.ancestors().filter(|component| component.file_name().is_some()) {
        let entry = match fs::symlink_metadata(component) {
            Ok(entry) => entry,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        if component != path && !entry.is_symlink() {
            continue;
        }
        let parent = component.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if is_foreign(&entry, &fs::metadata(parent)?) {
            let reason = "another user created it in a directory where all users may write";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
        }
        if entry.is_symlink() {
            *links += 1;
            if *links > MAX_LINKS {
                return Err(rustix::io::Errno::LOOP.into());
            }
            let target: PathBuf = parent.join(fs::read_link(component)?);
            check_path(&target, links)?;
        }
    }
    Ok(())
}

fn is_foreign(entry: &fs::Metadata, directory: &fs::Metadata) -> bool {
    let is_shared = directory.mode() & STICKY_WORLD_WRITABLE == STICKY_WORLD_WRITABLE;
    is_shared && ![rustix::process::geteuid().as_raw(), directory.uid()].contains(&entry.uid())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn own_files_in_sticky_directories_are_permitted() {
        let home = tempfile::tempdir().unwrap();
        let shared = home.path().join("shared");
        fs::create_dir(&shared).unwrap();
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).unwrap();
        let [target, link, new, linked_directory] = ["target", "link", "new", "way"].map(|name| shared.join(name));
        fs::write(&target, "before").unwrap();
        symlink("target", &link).unwrap();
        symlink(home.path(), &linked_directory).unwrap();
        symlink(&link, home.path().join("to-link")).unwrap();
        let by_linked_directory = linked_directory.join("new");
        for path in [&link, &new, &by_linked_directory, &home.path().join("to-link"), Path::new("/dev/stdout")] {
            check(path).unwrap();
        }
    }

    #[test]
    fn symlink_loops_are_refused() {
        let home = tempfile::tempdir().unwrap();
        let [one, other] = ["one", "other"].map(|name| home.path().join(name));
        symlink(&one, &other).unwrap();
        symlink(&other, &one).unwrap();
        assert!(check(&one).is_err());
    }
}
